//! Sending end: takes blocks from the queue of the transfer and keeps them until they are acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::clock::Clock;
use super::super::handover::DriverEnd;
use super::super::shared::{ChannelError, ChannelStats, Shared};
use super::{
    ACK, Ack, ConnectionStates, END, End, KEEPALIVE_INTERVAL, Progress, Tasks, TcpStart, header,
    run, silent, with_headers,
};
use crate::ceiling::Member;
use crate::connection::Connection;
use crate::lock::lock;

/// Bytes handed to a connection at once; the unit of pacing.
const SLICE: usize = 64 << 10;
const SLICE_MIN: usize = 1 << 10;
/// Blocks that any receiver has room for.
const LIMIT_START: u32 = 4;
/// Longest unused time that a paced sender may catch up.
const CATCH_UP: Duration = Duration::from_millis(10);

/// Pacing of all connections together.
#[derive(Debug)]
struct Pace {
    limit_bps: Option<u64>,
    next: Instant,
}

impl Pace {
    fn new(limit_bps: Option<u64>) -> Self {
        Self { limit_bps, next: Instant::now() }
    }

    /// Returns the time at which `bytes` of content may be sent.
    fn reserve(&mut self, now: Instant, bytes: usize) -> Instant {
        let Some(limit) = self.limit_bps else { return now };
        let start = self.next.max(now.checked_sub(CATCH_UP).unwrap_or(now));
        let bits = 8 * with_headers(bytes as u64);
        self.next = start + Duration::from_secs_f64(bits as f64 / limit.max(1) as f64);
        start
    }
}

/// Reason why the sender waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    Source,
    Destination,
    Cap,
    Path,
}

impl Limit {
    const ALL: [Self; 4] = [Self::Source, Self::Destination, Self::Cap, Self::Path];

    const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Cap => "cap",
            Self::Path => "path",
        }
    }
}

/// A block that is not acknowledged.
#[derive(Debug)]
struct Sent {
    block: Arc<Vec<u8>>,
    /// Index of the connection that carries the block.
    connection: usize,
}

/// Next work of a connection.
enum Next {
    Block(u32, Arc<Vec<u8>>),
    End(u32),
    Stopped,
}

#[derive(Debug)]
struct FlowState {
    /// Blocks before this number have arrived.
    acknowledged: u32,
    /// First number without room at the receiver.
    limit: u32,
    /// Blocks that a connection has taken and that are not acknowledged.
    sent_blocks: BTreeMap<u32, Sent>,
    /// Numbers of blocks of closed connections.
    again: VecDeque<u32>,
    /// Acknowledged blocks that a connection still holds.
    held: Vec<Arc<Vec<u8>>>,
    /// Content bytes: written, received by the peer in complete or incomplete blocks, and acknowledged.
    sent: u64,
    received: u64,
    delivered: u64,
    pace: Pace,
    /// Rate limit of this transfer, in bit/s.
    limit_bps: Option<u64>,
    share: Option<Member>,
    last_ack: Instant,
    /// The receiver has sent its numbers.
    is_answered: bool,
    /// Connections that have sent the header that ends the blocks.
    ends_sent: Vec<usize>,
    /// Time of the last tick, and seconds by limiting factor.
    ticked: Instant,
    spent: [f64; 4],
}

#[derive(Debug)]
struct Flow {
    shared: Arc<Shared>,
    wake: Arc<Notify>,
    clock: Clock,
    carrier: &'static str,
    reason: &'static str,
    silence: Duration,
    rtt_ms: f64,
    block_bytes: u32,
    connections: ConnectionStates,
    state: Mutex<FlowState>,
}

/// Sends the blocks of `shared` until the application stops the channel.
pub(in super::super) async fn send(
    start: TcpStart,
    shared: Arc<Shared>,
    wake: Arc<Notify>,
) -> Result<DriverEnd, ChannelError> {
    let taken = shared.lock().taken;
    let flow = Arc::new(Flow {
        clock: Clock::start(),
        carrier: start.carrier,
        reason: start.reason,
        silence: start.silence,
        block_bytes: start.block_bytes,
        connections: ConnectionStates::new(start.connections.len()),
        rtt_ms: start.rtt.map_or(0.0, |rtt| rtt.as_millis_f64()),
        state: Mutex::new(FlowState {
            acknowledged: taken,
            limit: if taken == 0 { LIMIT_START } else { taken },
            sent_blocks: BTreeMap::new(),
            again: VecDeque::new(),
            held: Vec::new(),
            sent: 0,
            received: 0,
            delivered: 0,
            pace: Pace::new(start.rate_limit_bps),
            limit_bps: start.rate_limit_bps,
            share: start.ceiling.map(|ceiling| ceiling.join()),
            last_ack: Instant::now(),
            is_answered: false,
            ends_sent: Vec::new(),
            ticked: Instant::now(),
            spent: [0.0; 4],
        }),
        shared,
        wake,
    });
    let mut tasks = Tasks::default();
    for (index, connection) in start.connections.into_iter().enumerate() {
        tasks.spawn(index, write_blocks(connection.clone(), index, Arc::clone(&flow)));
        tasks.spawn(index, read_acks(connection, index, Arc::clone(&flow)));
    }
    let result = run(tasks, &*flow, &flow.shared, &flow.wake).await;
    let result = result.and_then(|end| flow.abandon().map(|()| end));
    flow.return_held();
    flow.publish();
    let mut state = flow.shared.lock();
    state.bytes_before = state.stats.bytes;
    let mut own = flow.lock();
    state.limit_before = own.limit;
    own.share = None;
    drop(own);
    drop(state);
    result
}

async fn write_blocks(
    mut connection: Connection,
    index: usize,
    flow: Arc<Flow>,
) -> Result<(), ChannelError> {
    loop {
        let next = tokio::time::timeout(KEEPALIVE_INTERVAL, flow.next_block(index));
        let Ok(next) = next.await else {
            connection.write_all(&header(0, 0)).await.map_err(ChannelError::Tcp)?;
            connection.flush().await.map_err(ChannelError::Tcp)?;
            continue;
        };
        let (number, block) = match next? {
            Next::Block(number, block) => (number, block),
            Next::End(number) => {
                connection.write_all(&header(number, END)).await.map_err(ChannelError::Tcp)?;
                connection.flush().await.map_err(ChannelError::Tcp)?;
                flow.lock().ends_sent.push(index);
                flow.wake.notify_waiters();
                return std::future::pending().await;
            }
            Next::Stopped => return Ok(()),
        };
        let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
        connection.write_all(&header(number, length)).await.map_err(ChannelError::Tcp)?;
        for slice in block.chunks(flow.slice()) {
            flow.pace(slice.len()).await;
            connection.write_all(slice).await.map_err(ChannelError::Tcp)?;
        }
        connection.flush().await.map_err(ChannelError::Tcp)?;
        flow.written(block);
    }
}

async fn read_acks(
    mut connection: Connection,
    index: usize,
    flow: Arc<Flow>,
) -> Result<(), ChannelError> {
    let mut bytes = [0; ACK];
    loop {
        connection.read_exact(&mut bytes).await.map_err(ChannelError::Tcp)?;
        flow.connections.note(index);
        flow.acknowledge(Ack::decode(bytes))?;
    }
}

impl FlowState {
    /// Takes a block of a closed connection, if any.
    fn take_again(&mut self, index: usize) -> Option<(u32, Arc<Vec<u8>>)> {
        while let Some(number) = self.again.pop_front() {
            if let Some(sent) = self.sent_blocks.get_mut(&number) {
                sent.connection = index;
                return Some((number, Arc::clone(&sent.block)));
            }
        }
        None
    }
}

impl End for Flow {
    fn states(&self) -> &ConnectionStates {
        &self.connections
    }

    fn tick(&self) -> Result<Progress, ChannelError> {
        self.update()
    }

    fn closed(&self, index: usize) {
        let mut flow = self.lock();
        let numbers: Vec<u32> = flow
            .sent_blocks
            .iter()
            .filter(|(_, it)| it.connection == index)
            .map(|(&at, _)| at)
            .collect();
        flow.again.extend(numbers);
        drop(flow);
        self.wake.notify_waiters();
    }
}

impl Flow {
    fn lock(&self) -> MutexGuard<'_, FlowState> {
        lock(&self.state)
    }

    /// Waits for the next block that the receiver has room for, or for the end of the blocks.
    async fn next_block(&self, index: usize) -> Result<Next, ChannelError> {
        loop {
            let mut woken = std::pin::pin!(self.wake.notified());
            woken.as_mut().enable();
            if let Some(next) = self.take_next(index)? {
                return Ok(next);
            }
            woken.await;
        }
    }

    fn take_next(&self, index: usize) -> Result<Option<Next>, ChannelError> {
        let (limit, again, has_ended) = {
            let mut flow = self.lock();
            // A connection that is closed meanwhile would lose the block: its blocks have been moved already.
            let again = if self.connections.is_open(index) { flow.take_again(index) } else { None };
            (flow.limit, again, flow.ends_sent.contains(&index))
        };
        let mut state = self.shared.lock();
        if state.is_stopped {
            return Ok(Some(Next::Stopped));
        }
        if has_ended || state.resume_at.is_some() {
            return Ok(None);
        }
        if let Some((number, block)) = again {
            return Ok(Some(Next::Block(number, block)));
        }
        if state.hand_over.is_some() {
            let taken = state.taken;
            drop(state);
            let flow = self.lock();
            let is_end = flow.is_answered && flow.acknowledged == taken;
            return Ok(is_end.then_some(Next::End(taken)));
        }
        if state.taken >= limit {
            return Ok(None);
        }
        let Some(block) = state.outgoing.pop_front() else { return Ok(None) };
        let number = state.taken;
        state.taken = number.checked_add(1).ok_or(ChannelError::TooManyBlocks)?;
        let ahead = state.outgoing.len();
        let may_read_more = state.buffers.as_mut().is_some_and(|it| it.set_ahead(ahead));
        let is_awaited = state.is_awaited && may_read_more;
        drop(state);
        if is_awaited {
            self.shared.changed.notify_all();
        }
        let block = Arc::new(block);
        let mut flow = self.lock();
        let sent = Sent { block: Arc::clone(&block), connection: index };
        flow.sent_blocks.insert(number, sent);
        if !self.connections.is_open(index) {
            flow.again.push_back(number);
        }
        Ok(Some(Next::Block(number, block)))
    }

    /// Bytes to hand over at once: at a low rate few, so that the peer receives some at least twice a second.
    fn slice(&self) -> usize {
        let limit = self.lock().pace.limit_bps.unwrap_or(u64::MAX);
        usize::try_from(limit / 8 / 4).unwrap_or(usize::MAX).clamp(SLICE_MIN, SLICE)
    }

    /// Waits until `bytes` may be sent.
    async fn pace(&self, bytes: usize) {
        let now = Instant::now();
        let start = self.lock().pace.reserve(now, bytes);
        if start > now {
            tokio::time::sleep_until(start).await;
        }
    }

    fn written(&self, block: Arc<Vec<u8>>) {
        let mut state = self.lock();
        state.sent += block.len() as u64;
        drop(block);
        self.release(state);
    }

    fn acknowledge(&self, Ack { next, limit, received }: Ack) -> Result<(), ChannelError> {
        if limit < next {
            return Err(ChannelError::Blocks(format!(
                "the peer announced room up to block {limit}, but block {next} is missing there"
            )));
        }
        self.skip_to(next)?;
        let mut state = self.lock();
        state.last_ack = Instant::now();
        state.is_answered = true;
        let has_room = limit > state.limit;
        // Connections deliver acknowledgements in any order.
        state.acknowledged = state.acknowledged.max(next);
        state.limit = state.limit.max(limit);
        state.received = state.received.max(received);
        self.release(state);
        if has_room || self.shared.lock().hand_over.is_some() {
            self.wake.notify_waiters();
        }
        Ok(())
    }

    /// Drops queued blocks that an earlier carrier has delivered.
    fn skip_to(&self, next: u32) -> Result<(), ChannelError> {
        let mut state = self.shared.lock();
        let sent = state.taken.max(state.taken_before);
        if next > sent {
            return Err(ChannelError::Blocks(format!(
                "the peer acknowledged {next} blocks, but {sent} were sent"
            )));
        }
        let now = self.clock.now();
        while state.taken < next
            && let Some(mut block) = state.outgoing.pop_front()
        {
            state.taken += 1;
            state.bytes_before += block.len() as u64;
            block.clear();
            if let Some(buffers) = &mut state.buffers {
                buffers.put_back(now, block);
            }
        }
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Returns the buffers of acknowledged blocks to the application.
    fn release(&self, mut flow: MutexGuard<'_, FlowState>) {
        let acknowledged = flow.acknowledged;
        let rest = flow.sent_blocks.split_off(&acknowledged);
        let done = std::mem::replace(&mut flow.sent_blocks, rest);
        flow.delivered += done.values().map(|sent| sent.block.len() as u64).sum::<u64>();
        let held = std::mem::take(&mut flow.held);
        let (mut free, mut still_held) = (Vec::new(), Vec::new());
        for block in done.into_values().map(|sent| sent.block).chain(held) {
            match Arc::try_unwrap(block) {
                Ok(block) => free.push(block),
                Err(block) => still_held.push(block),
            }
        }
        flow.held = still_held;
        drop(flow);
        self.put_back(free);
    }

    /// Returns the blocks that the receiver does not have to the queue, if the receiver has closed the connections.
    fn abandon(&self) -> Result<(), ChannelError> {
        let Some(next) = self.shared.lock().resume_at.take() else { return Ok(()) };
        // An earlier carrier may have delivered blocks that wait in the queue.
        self.skip_to(next)?;
        let mut flow = self.lock();
        flow.acknowledged = flow.acknowledged.max(next);
        self.release(flow);
        let blocks = std::mem::take(&mut self.lock().sent_blocks);
        let mut state = self.shared.lock();
        if (next..state.taken).ne(blocks.keys().copied()) {
            return Err(ChannelError::Blocks(format!(
                "the peer continues at block {next} over UDP, but has acknowledged a later one, or {} were sent",
                state.taken
            )));
        }
        state.taken_before = state.taken;
        state.taken = next;
        for (_, sent) in blocks.into_iter().rev() {
            state.outgoing.push_front(Arc::unwrap_or_clone(sent.block));
        }
        Ok(())
    }

    /// Returns buffers for blocks that a connection holds although the connections have ended.
    fn return_held(&self) {
        self.release(self.lock());
        let held = std::mem::take(&mut self.lock().held);
        let new = |_| Vec::with_capacity(self.block_bytes as usize);
        self.put_back(held.into_iter().map(new).collect());
    }

    fn put_back(&self, done: Vec<Vec<u8>>) {
        if done.is_empty() {
            return;
        }
        let now = self.clock.now();
        let mut state = self.shared.lock();
        for mut block in done {
            block.clear();
            if let Some(buffers) = &mut state.buffers {
                buffers.put_back(now, block);
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Applies new settings, and counts the limiting factor.
    fn update(&self) -> Result<Progress, ChannelError> {
        let now = self.clock.now();
        let (settings, has_blocks, taken, is_finished, is_abandoned) = {
            let mut state = self.shared.lock();
            let is_abandoned = state.resume_at.is_some() && state.hand_over.is_some();
            let (has_blocks, settings) = (!state.outgoing.is_empty(), state.steer.take());
            (settings, has_blocks, state.taken, state.is_finished, is_abandoned)
        };
        let mut flow = self.lock();
        if let Some(settings) = settings {
            flow.limit_bps = settings.rate_limit_bps;
        }
        let sent = flow.sent;
        let share_bps = flow.share.as_mut().and_then(|share| {
            share.update(now, sent);
            share.share_bps()
        });
        flow.pace.limit_bps = [flow.limit_bps, share_bps].into_iter().flatten().min();
        let limit = match () {
            () if flow.pace.next > Instant::now() && flow.pace.limit_bps.is_some() => Limit::Cap,
            () if has_blocks && taken >= flow.limit => Limit::Destination,
            () if !has_blocks && flow.sent_blocks.is_empty() => Limit::Source,
            () => Limit::Path,
        };
        let elapsed = flow.ticked.elapsed().as_secs_f64();
        flow.ticked = Instant::now();
        flow.spent[limit as usize] += elapsed;
        let is_complete = is_finished && !has_blocks && flow.sent_blocks.is_empty();
        let progress = match () {
            () if is_abandoned => Progress::Abandoned,
            () if self.connections.all_open_in(&flow.ends_sent) => Progress::Drained,
            () if is_complete && flow.acknowledged == taken => Progress::Complete,
            () => Progress::Running,
        };
        let silence = flow.last_ack.elapsed();
        self.release(flow);
        self.publish();
        if silence > self.silence && progress == Progress::Running {
            return Err(silent(self.silence));
        }
        Ok(progress)
    }

    fn publish(&self) {
        let flow = self.lock();
        let total = flow.spent.iter().sum::<f64>().max(1e-9);
        let shares = Limit::ALL.map(|limit| (limit.name(), flow.spent[limit as usize] / total));
        let silence = flow.last_ack.elapsed();
        let path_limited = Duration::from_secs_f64(flow.spent[Limit::Path as usize]);
        let received = flow.received;
        let (delivered, rate_bps) = (flow.delivered, flow.pace.limit_bps.map(|rate| rate as f64));
        drop(flow);
        let mut state = self.shared.lock();
        let before = state.bytes_before;
        state.stats = ChannelStats {
            bytes: before + delivered,
            received: before.saturating_add(received),
            path_limited,
            rtt_ms_min: self.rtt_ms,
            rtt_ms: self.rtt_ms,
            rate_bps,
            phase: "tcp".to_owned(),
            limiter: shares.into_iter().filter(|(_, share)| *share > 0.0).collect(),
            silence,
            silence_limit: self.silence,
            carrier: self.carrier,
            carrier_reason: self.reason,
            ..ChannelStats::default()
        };
    }
}
