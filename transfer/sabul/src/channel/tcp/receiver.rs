//! Receiving end: puts blocks in order, delivers them, and announces room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sabul_units::{Instant, Span};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, watch};

use super::super::clock::Clock;
use super::super::handover::{DriverEnd, Reception};
use super::super::room::Room;
use super::super::shared::{ChannelError, ChannelStats, Deliver, Shared};
use super::{
    Ack, ConnectionStates, END, End, HEADER, KEEPALIVE_INTERVAL, Progress, RECEIVED_INTERVAL,
    Tasks, TcpStart, closed, pair, run, silent,
};
use crate::connection::Connection;
use crate::lock::lock;

/// Bytes of a block read at once.
const SLICE: usize = 16 << 10;

struct IntakeState {
    next: u32,
    delivered: u64,
    blocks_out: usize,
    room: Room,
    deliver: Deliver,
    /// Blocks behind a missing block, and blocks that are arriving (`None`).
    waiting: BTreeMap<u32, Option<Vec<u8>>>,
    /// Number of the block that arrives, by connection.
    arriving: BTreeMap<usize, u32>,
    /// Connections whose block arrives on another connection, too: the sender has closed them.
    abandoned: Vec<usize>,
    free: Vec<Vec<u8>>,
    last_received: Instant,
    /// Bytes of blocks received, and the bytes and the time of the last report.
    received: u64,
    reported: (u64, Instant),
    /// UDP carries the next block.
    is_over: bool,
}

struct Intake {
    shared: Arc<Shared>,
    clock: Clock,
    block_bytes: u32,
    rtt: Option<Span>,
    carrier: &'static str,
    reason: &'static str,
    silence: Duration,
    connections: ConnectionStates,
    /// `None` once another carrier has taken over.
    state: Mutex<Option<IntakeState>>,
    acks: watch::Sender<Ack>,
}

/// Receives blocks until the application stops the channel.
pub(in super::super) async fn receive(
    start: TcpStart,
    reception: Reception,
    shared: Arc<Shared>,
    wake: Arc<Notify>,
) -> (Result<DriverEnd, ChannelError>, Option<Reception>) {
    let clock = Clock::start();
    let Reception { next, delivered, blocks_out, mut room, deliver } = reception;
    room.restart(clock.now());
    let acks = watch::Sender::new(Ack { next, limit: room.limit(), received: 0 });
    let intake = Arc::new(Intake {
        shared: Arc::clone(&shared),
        clock,
        block_bytes: start.block_bytes,
        rtt: start.rtt,
        carrier: start.carrier,
        reason: start.reason,
        silence: start.silence,
        connections: ConnectionStates::new(start.connections.len()),
        state: Mutex::new(Some(IntakeState {
            next,
            delivered,
            blocks_out,
            room,
            deliver,
            waiting: BTreeMap::new(),
            arriving: BTreeMap::new(),
            abandoned: Vec::new(),
            free: Vec::new(),
            last_received: clock.now(),
            received: 0,
            reported: (0, clock.now()),
            is_over: false,
        })),
        acks,
    });
    let mut tasks = Tasks::default();
    for (index, connection) in start.connections.into_iter().enumerate() {
        tasks.spawn(index, write_acks(connection.clone(), intake.acks.subscribe()));
        tasks.spawn(index, read_blocks(connection, index, Arc::clone(&intake), Arc::clone(&wake)));
    }
    let result = run(tasks, &*intake, &shared, &wake).await;
    let reception = match result {
        Ok(DriverEnd::HandOver) => intake.reception(),
        _ => None,
    };
    (result, reception)
}

async fn write_acks(
    mut connection: Connection,
    mut acks: watch::Receiver<Ack>,
) -> Result<(), ChannelError> {
    acks.mark_changed();
    while !matches!(tokio::time::timeout(KEEPALIVE_INTERVAL, acks.changed()).await, Ok(Err(_))) {
        let ack = *acks.borrow_and_update();
        connection.write_all(&ack.encode()).await.map_err(ChannelError::Tcp)?;
        connection.flush().await.map_err(ChannelError::Tcp)?;
    }
    Ok(())
}

async fn read_blocks(
    mut connection: Connection,
    index: usize,
    intake: Arc<Intake>,
    wake: Arc<Notify>,
) -> Result<(), ChannelError> {
    let mut bytes = [0; HEADER];
    loop {
        connection.read_exact(&mut bytes).await.map_err(ChannelError::Tcp)?;
        intake.note_received(index, 0);
        let (number, length) = pair(bytes);
        if length == 0 {
            continue;
        }
        if length == END {
            intake.end(number)?;
            wake.notify_waiters();
            return std::future::pending().await;
        }
        let Some(mut block) = intake.begin(index, number, length)? else {
            skip(&mut connection, length as usize, || intake.note_received(index, 0)).await?;
            continue;
        };
        block.resize(length as usize, 0);
        let mut filled = 0;
        while filled < block.len() {
            let end = block.len().min(filled + SLICE);
            match connection.read(&mut block[filled..end]).await.map_err(ChannelError::Tcp)? {
                0 => return Err(closed()),
                read => {
                    filled += read;
                    intake.note_received(index, read);
                }
            }
        }
        intake.take(index, number, block);
    }
}

/// Reads the bytes of a block that is not needed.
async fn skip(
    connection: &mut Connection,
    mut length: usize,
    note: impl Fn(),
) -> Result<(), ChannelError> {
    let mut scratch = vec![0; SLICE];
    while length > 0 {
        let size = length.min(SLICE);
        connection.read_exact(&mut scratch[..size]).await.map_err(ChannelError::Tcp)?;
        length -= size;
        note();
    }
    Ok(())
}

impl End for Intake {
    fn states(&self) -> &ConnectionStates {
        &self.connections
    }

    fn tick(&self) -> Result<Progress, ChannelError> {
        self.update()
    }

    fn closed(&self, index: usize) {
        self.drop_block_of(index);
    }

    fn abandoned(&self) -> Vec<usize> {
        self.lock().as_mut().map(|state| std::mem::take(&mut state.abandoned)).unwrap_or_default()
    }
}

impl Intake {
    fn lock(&self) -> MutexGuard<'_, Option<IntakeState>> {
        lock(&self.state)
    }

    /// Notes that bytes of a block, or a header, have arrived.
    fn note_received(&self, index: usize, bytes: usize) {
        self.connections.note(index);
        if let Some(state) = self.lock().as_mut() {
            state.last_received = self.clock.now();
            state.received += bytes as u64;
        }
    }

    /// Returns a buffer for a block that arrives; `None` if the block has been delivered before.
    fn begin(
        &self,
        index: usize,
        number: u32,
        length: u32,
    ) -> Result<Option<Vec<u8>>, ChannelError> {
        if length > self.block_bytes {
            return Err(ChannelError::Blocks(format!(
                "the peer sent block {number} with {length} bytes; at most {} are allowed",
                self.block_bytes
            )));
        }
        let mut guard = self.lock();
        let Some(state) = guard.as_mut() else { return Ok(None) };
        if state.is_over {
            return Err(ChannelError::Blocks(format!(
                "the peer sent block {number} over TCP after the end of the blocks over TCP"
            )));
        }
        if number < state.next {
            return Ok(None);
        }
        if number >= state.room.limit() {
            return Err(ChannelError::Blocks(format!(
                "the peer sent block {number}, but its room ends before block {}",
                state.room.limit()
            )));
        }
        match state.waiting.get(&number) {
            // Sent again, because the acknowledgement is on its way.
            Some(Some(_)) => return Ok(None),
            Some(None) => {
                let other = state.arriving.iter().find(|(_, at)| **at == number);
                if let Some((&other, _)) = other {
                    state.arriving.remove(&other);
                    state.abandoned.push(other);
                }
            }
            None => {
                state.waiting.insert(number, None);
            }
        }
        state.arriving.insert(index, number);
        Ok(Some(state.free.pop().unwrap_or_else(|| Vec::with_capacity(self.block_bytes as usize))))
    }

    /// Delivers a block and those behind it, as far as none is missing.
    fn take(&self, index: usize, number: u32, block: Vec<u8>) {
        let mut guard = self.lock();
        let Some(state) = guard.as_mut() else { return };
        if state.arriving.remove(&index) != Some(number) {
            // Another connection carries the block.
            return;
        }
        state.waiting.insert(number, Some(block));
        while let Some(first) = state.waiting.first_entry()
            && *first.key() == state.next
            && first.get().is_some()
        {
            if let Some(block) = first.remove() {
                state.next += 1;
                state.delivered += block.len() as u64;
                state.blocks_out += 1;
                (state.deliver)(block);
            }
        }
        self.acknowledge(state);
    }

    /// Drops the incomplete block of a closed connection.
    fn drop_block_of(&self, index: usize) {
        let mut guard = self.lock();
        let Some(state) = guard.as_mut() else { return };
        if let Some(number) = state.arriving.remove(&index) {
            state.waiting.remove(&number);
        }
    }

    /// Takes back buffers of the application, adjusts the room, and publishes the statistics.
    fn update(&self) -> Result<Progress, ChannelError> {
        let now = self.clock.now();
        let mut guard = self.lock();
        let Some(state) = guard.as_mut() else { return Ok(Progress::Drained) };
        let mut shared = self.shared.lock();
        let returned = std::mem::take(&mut shared.free);
        state.room.returned(u32::try_from(returned.len()).unwrap_or(u32::MAX));
        state.blocks_out = state.blocks_out.saturating_sub(returned.len());
        state.free.extend(returned.into_iter().map(|mut buffer| {
            buffer.clear();
            buffer
        }));
        state.room.review(now, self.rtt, state.waiting.values().flatten().count());
        let started = state.waiting.last_key_value().map_or(state.next, |(last, _)| last + 1);
        state.free.truncate(state.room.keep(started));
        let silence = Duration::from(now.since(state.last_received));
        shared.peer_silence.set_silence(silence);
        let rtt_ms = self.rtt.map_or(0.0, Span::as_millis_f64);
        shared.stats = ChannelStats {
            bytes: state.delivered,
            rtt_ms_min: rtt_ms,
            rtt_ms,
            phase: "receiving".to_owned(),
            silence,
            silence_limit: self.silence,
            carrier: self.carrier,
            carrier_reason: self.reason,
            ..ChannelStats::default()
        };
        let is_drained = state.is_over && shared.hand_over.is_some();
        let is_abandoned = shared.abandons && shared.hand_over.is_some();
        drop(shared);
        if Duration::from(now.since(state.reported.1)) >= RECEIVED_INTERVAL {
            state.reported = (state.received, now);
        }
        self.acknowledge(state);
        if silence > self.silence {
            return Err(silent(self.silence));
        }
        Ok(match () {
            () if is_drained => Progress::Drained,
            () if is_abandoned => Progress::Abandoned,
            () => Progress::Running,
        })
    }

    /// Notes that UDP carries the blocks from `number` on.
    fn end(&self, number: u32) -> Result<(), ChannelError> {
        let mut guard = self.lock();
        let Some(state) = guard.as_mut() else { return Ok(()) };
        // Each connection carries the end.
        if state.is_over && number == state.next {
            return Ok(());
        }
        if number != state.next || !state.waiting.is_empty() {
            return Err(ChannelError::Blocks(format!(
                "the peer ended TCP at block {number}, but block {} is missing",
                state.next
            )));
        }
        state.is_over = true;
        Ok(())
    }

    /// Takes the state for the next carrier.
    fn reception(&self) -> Option<Reception> {
        let state = self.lock().take()?;
        let IntakeState { next, delivered, blocks_out, room, deliver, .. } = state;
        Some(Reception { next, delivered, blocks_out, room, deliver })
    }

    fn acknowledge(&self, state: &IntakeState) {
        let (next, limit) = (state.next, state.room.limit());
        let ack = Ack { next, limit, received: state.reported.0 };
        self.acks.send_if_modified(|last| std::mem::replace(last, ack) != ack);
    }
}
