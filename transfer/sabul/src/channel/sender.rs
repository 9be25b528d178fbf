//! Driver of a sending endpoint: reads reports, sends sealed DATA batches, sleeps in between.

mod address;
mod share;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sabul_cc::{ChannelRules, ConfigError, Guarded, Phase, Policy, registry};
use sabul_channel::{
    Cause, DataPacket, Expiry, Limiter, Sender, SenderConfig, Transmit, WaitReason,
    congestion_bytes,
};
use sabul_udp::{MAX_GSO_BYTES, MAX_GSO_SEGMENTS, RecvBuffers, SendStatus, Wait};
use sabul_units::{Bytes, Instant, Polled, Rate, SeededRandom, Span};
use sabul_wire::control::ChannelParams;
use sabul_wire::{
    DATA_HEADER_LEN, DATA_OVERHEAD, DataHeader, Feedback, HEADER_LEN, Header, Kind, TAG_LEN,
    encode_congestion,
};
use tracing::debug;

use super::address::{OwnAddress, PeerAddress};
use super::clock::{Clock, StatsTimes};
use super::driver::{ChannelEndpoint, Datagrams, DriveResult, Pause};
use super::handover::Reception;
use super::link::{Entropy, Link, ReplayWindow};
use super::mtu::{MTU_MIN, MtuSearch, Traffic};
use super::paths;
use super::shared::{ChannelError, ChannelStart, ChannelStats, RateSettings, Shared, reporting};
use super::silence::Silence;
use crate::ceiling::{Ceiling, Member};
use crate::events::TransferEventSink;
use crate::paths::PathTo;

/// Packets due within this time leave in one batch, which saves wake-ups; far below the core's burst limit of one
/// millisecond.
const BATCH_TIME: Span = Span::from_micros(400);
/// Batches sent between two reads of the socket.
const BATCHES_PER_CALL: usize = 4;
/// Receive calls between two rounds of the other work. Ours: each batch of a path that loses a quarter of the packets
/// causes fewer reports.
const RECEIVES_PER_CALL: usize = BATCHES_PER_CALL * 16;
/// Initial block limit: any receiver has room for this many blocks.
const BLOCK_LIMIT_START: u32 = 4;
/// Hint for users when no router answers the controller.
const NO_ROUTER: &str = "no router of the path answered the controller, or the bottleneck has no such router; \
                         the transfer continued with sabul2026";
/// Update interval of the statistics for the application.
const STATS_INTERVAL: Span = Span::from_millis(20);

/// A batch of sealed datagrams of equal size; the last may be shorter.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    segment: usize,
    segments: usize,
    /// Bytes already taken by the socket.
    sent: usize,
}

impl Batch {
    fn has_room(&self, datagram: usize) -> bool {
        self.segments == 0
            || (datagram <= self.segment
                && self.bytes.len().is_multiple_of(self.segment)
                && self.segments < MAX_GSO_SEGMENTS
                && self.bytes.len() + datagram <= MAX_GSO_BYTES)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        (self.segment, self.segments, self.sent) = (0, 0, 0);
    }
}

/// Whether another block can have a number, when `queued` blocks from number `first` are queued. Numbers have 32 bits,
/// and one number is reserved for the limit after the last block.
fn has_number(first: u32, queued: usize) -> bool {
    (first as usize).checked_add(queued).is_some_and(|number| number < u32::MAX as usize)
}

/// Blocks of one of several paths.
#[derive(Debug, Default)]
struct PathBlocks {
    /// Time at which each block was taken from the queue.
    taken_at: VecDeque<Instant>,
    /// The first block is late.
    is_late: bool,
    /// Numbers of the blocks of which a copy was put into the queue.
    copied: BTreeSet<Option<u32>>,
}

/// Driver state of a sending endpoint.
#[derive(Debug)]
pub(super) struct SenderEndpoint {
    link: Link,
    replay: ReplayWindow,
    sender: Sender,
    policy: Policy,
    mtu: MtuSearch,
    /// Length of the congestion header of each DATA packet, in bytes.
    congestion_bytes: u8,
    clock: Clock,
    shared: Arc<Shared>,
    blocks: VecDeque<Vec<u8>>,
    /// Number of the first block in `blocks`.
    first_block: u32,
    /// Bytes that an earlier carrier has delivered.
    bytes_before: u64,
    /// Bytes of the blocks that this carrier has delivered.
    bytes_released: u64,
    /// State of one of several paths.
    path_blocks: PathBlocks,
    batch: Batch,
    /// A sealed packet that did not fit `batch` and starts the next batch.
    next_batch: Batch,
    is_blocked: bool,
    /// The last send found no way to the peer.
    is_unreachable: bool,
    peer_address: PeerAddress,
    own_address: OwnAddress,
    silence: Silence,
    /// Since when blocks wait for an acknowledgement.
    busy_since: Option<Instant>,
    /// Everything is sent and acknowledged; the driver only keeps the channel alive.
    is_complete: bool,
    stats_times: StatsTimes,
    hint: Option<String>,
    events: Option<TransferEventSink>,
    /// Rate limit of this transfer, in bit/s.
    limit_bps: Option<u64>,
    /// Shares of the rate limits of all transfers, and of all paths of this transfer.
    shares: Vec<Member>,
    /// Store of the measured path parameters.
    path: Option<PathTo>,
}

impl ChannelEndpoint for SenderEndpoint {
    fn buffers(&self) -> RecvBuffers {
        RecvBuffers::new(1)
    }

    fn drive(&mut self, buffers: &mut RecvBuffers) -> Result<DriveResult, ChannelError> {
        let now = self.clock.now();
        let is_finished = self.exchange(now)?;
        if self.shared.lock().hand_over.is_some() {
            return Ok(DriveResult::HandOver);
        }
        let is_drained = self.receive(buffers)?;
        self.release(now);
        self.busy_since =
            (!self.sender.is_idle()).then(|| self.busy_since.map_or(now, |since| since.min(now)));
        if is_finished && self.sender.is_idle() && !self.is_complete {
            // Published and remembered now: later figures would include idle time.
            self.publish(now);
            self.remember();
            self.is_complete = true;
        }
        // From a peer that has everything, nothing is due on UDP: its result arrives on the control connection.
        if self.silence.is_over(now, self.sender.last_received(), !self.is_complete) {
            return Err(ChannelError::Silent(self.silence.limit().into()));
        }
        self.check_address(now)?;
        self.probe(now)?;
        let wait = self.transmit()?;
        if let Some(sink) = &self.events {
            while let Some(event) = self.sender.next_event() {
                sink.did(self.clock.start_moment(), event);
            }
            while let Some(fired) = self.sender.next_fired() {
                sink.fired(self.clock.start_moment(), fired);
            }
        }
        if let Some(fault) = self.sender.fault() {
            return Err(ChannelError::Controller(fault.clone()));
        }
        let wait = wait.filter(|_| is_drained);
        Ok(wait.map_or(DriveResult::Again, |(until, because)| {
            DriveResult::Wait(self.rest(until, because))
        }))
    }

    fn socket(&self) -> &dyn Datagrams {
        &*self.link.socket
    }

    fn until(&self, deadline: Instant) -> Duration {
        self.clock.until(deadline)
    }

    fn ended(&mut self) {
        if !self.is_complete {
            self.publish(self.clock.now());
            self.remember();
        }
    }

    fn hand_over(self: Box<Self>) -> Option<Reception> {
        if self.shared.is_path() {
            let queue = self.shared.queue();
            let mut state = queue.lock();
            state.block_times.remove(&self.link.connection);
            paths::put_back(&mut state.outgoing, self.blocks);
            drop(state);
            queue.wake();
            return None;
        }
        let mut state = self.shared.lock();
        state.taken_before = state.taken;
        state.taken = self.first_block;
        state.bytes_before = self.bytes_before + self.bytes_released;
        for block in self.blocks.into_iter().rev() {
            state.outgoing.push_front(block);
        }
        None
    }
}

/// Returns the limiting factors with their shares of `total`. The remaining time counts as `sender-cpu`.
fn shares(limiters: &[Limiter], total: Span, phase: Phase) -> Vec<(&'static str, f64)> {
    let total = total.as_secs_f64().max(1e-9);
    let mut shares = vec![("sender-cpu", 1.0)];
    for Limiter { why, time } in limiters {
        let share = time.as_secs_f64() / total;
        shares[0].1 -= share;
        let name = match why {
            // A constant rate is set by the user.
            Cause::Path if phase == Phase::Constant => "cap",
            Cause::Path => "path",
            Cause::Cap => "cap",
            Cause::Policy => "policy",
            Cause::Freeze => "loss",
            Cause::Window => "window",
            Cause::Overflow => "receiver-cpu",
            Cause::Receiver => "destination",
            Cause::Application => "source",
            Cause::Outage => "outage",
        };
        match shares.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += share,
            None => shares.push((name, share)),
        }
    }
    shares.retain(|(_, share)| *share > 0.0);
    shares
}

/// Makes the requested controller for packets of this size in bytes, or returns the part of a shared controller.
fn controller(start: &ChannelStart, packet: u32, now: Instant) -> Result<Guarded, ConfigError> {
    let params = &start.params;
    let seed = SeededRandom::new(start.open.socket.random().next_u64());
    let build = || {
        let entry = registry::find(&params.controller)?;
        let controller = entry.build(&params.controller_params, Bytes(u64::from(packet)))?;
        Ok(controller.with_breaker().seeded(seed))
    };
    match &start.flow {
        Some(flow) => flow.controller.member(now, build),
        None => build(),
    }
}

/// Checks that the channel has the rules that its controller needs.
fn check_rules(
    params: &ChannelParams,
    controller: &Guarded,
    rules: ChannelRules,
) -> Result<(), ConfigError> {
    if controller.constants().rules == rules {
        return Ok(());
    }
    Err(ConfigError {
        setting: format!("channel rules for controller {}", params.controller),
        value: rules.name.to_owned(),
        allowed: controller.constants().rules.name.to_owned(),
    })
}

fn check_mtu(limit: Option<u32>) -> Result<(), ConfigError> {
    limit.filter(|limit| *limit < MTU_MIN).map_or(Ok(()), |limit| {
        Err(ConfigError {
            setting: "mtu".to_owned(),
            value: limit.to_string(),
            allowed: format!("{MTU_MIN} bytes or more"),
        })
    })
}

impl SenderEndpoint {
    pub(super) fn new(start: ChannelStart, shared: Arc<Shared>) -> Result<Self, ChannelError> {
        let params = &start.params;
        check_mtu(params.mtu_max).map_err(ChannelError::Config)?;
        let is_ipv6 = start.open.socket.local_addr().is_ipv6();
        let mut mtu = MtuSearch::new(is_ipv6, start.open.socket.path_mtu(), params.mtu_max);
        let clock = start.clock();
        let now = clock.now();
        let controller = controller(&start, mtu.packet(), now).map_err(ChannelError::Config)?;
        let congestion_bytes = u8::try_from(congestion_bytes(&controller)).unwrap_or(0);
        mtu.set_congestion(congestion_bytes.into());
        let (policy, reports) = reporting(params)?;
        check_rules(params, &controller, reports.rules.rules).map_err(ChannelError::Config)?;
        let config = SenderConfig {
            policy,
            block_bytes: params.block_bytes,
            window_bytes: params.window_bytes,
            payload_bytes: mtu.payload(),
            block_limit: BLOCK_LIMIT_START.max(params.room).max(shared.lock().limit_before),
            first_number: start.open.next_number,
            reports,
            expiry: Expiry::Adaptive,
        };
        let sender = Sender::new(now, config, controller);
        let mut sender = sender.map_err(ChannelError::Config)?;
        if start.policy != Policy::default() {
            sender.set_policy(now, start.policy);
        }
        if let Some(facts) = start.path.as_ref().and_then(PathTo::facts) {
            sender.remember(now, &facts);
        }
        let open = start.open;
        sender.skip_numbers(open.socket.random());
        open.rtt.into_iter().for_each(|rtt| sender.seed_rtt(rtt));
        if start.events.is_some() {
            sender.listen();
        }
        let (first_block, bytes_before) = {
            let state = shared.lock();
            (state.taken, state.bytes_before)
        };
        sender.start_at_block(first_block);
        let hint = open.socket.hint();
        let peer_address = PeerAddress::new(open.socket.moving_peer(), open.largest_opened);
        let mut endpoint = Self {
            replay: ReplayWindow::after(open.largest_opened),
            link: Link::new(open),
            sender,
            policy: start.policy,
            mtu,
            congestion_bytes,
            clock,
            shared,
            blocks: VecDeque::new(),
            first_block,
            bytes_before,
            bytes_released: 0,
            path_blocks: PathBlocks::default(),
            batch: Batch::default(),
            next_batch: Batch::default(),
            is_blocked: false,
            is_unreachable: false,
            peer_address,
            own_address: OwnAddress::new(start.address_changed),
            silence: Silence::new(start.silence, now),
            busy_since: None,
            is_complete: false,
            stats_times: StatsTimes { began: now, next: Instant::ZERO },
            hint,
            events: start.events,
            limit_bps: params.rate_limit_bps,
            shares: start.ceilings.iter().map(Ceiling::join).collect(),
            path: start.path,
        };
        endpoint.limit_rate();
        Ok(endpoint)
    }

    /// Exchanges blocks, reports and statistics with the application. Returns whether the last block was queued.
    fn exchange(&mut self, now: Instant) -> Result<bool, ChannelError> {
        let (reports, settings) = {
            let mut state = self.shared.lock();
            if state.is_stopped {
                return Err(ChannelError::Stopped);
            }
            (std::mem::take(&mut state.reports), state.steer.take())
        };
        let is_finished = self.take_blocks(now)?;
        if let Some(settings) = settings {
            self.steer(now, settings);
        }
        for report in reports {
            self.take_feedback(now, &report)?;
        }
        if now >= self.stats_times.next && !self.is_complete {
            self.publish(now);
        }
        let sent = self.sender.stats().sent * self.sender.packet_bytes().0;
        let mut has_changed = false;
        for share in &mut self.shares {
            has_changed |= share.update(now, sent);
        }
        if has_changed {
            self.limit_rate();
        }
        Ok(is_finished)
    }

    /// Takes blocks from the queue. Returns whether no block follows.
    fn take_blocks(&mut self, now: Instant) -> Result<bool, ChannelError> {
        let queue = self.shared.queue();
        let is_path = self.shared.is_path();
        let mut state = queue.lock();
        let is_shared = is_path && self.share_blocks(now, &mut state);
        while (!is_path || self.takes_block())
            && let Some(block) = state.outgoing.pop_front()
        {
            if !has_number(self.first_block, self.blocks.len()) {
                return Err(ChannelError::TooManyBlocks);
            }
            self.sender.push_block(u32::try_from(block.len()).unwrap_or(u32::MAX));
            self.blocks.push_back(block);
            if is_path {
                self.path_blocks.taken_at.push_back(now);
            }
            state.taken += 1;
        }
        let is_finished = state.is_finished && state.outgoing.is_empty();
        let ahead = if is_path { state.outgoing.len() } else { self.sender.uncut_blocks() };
        let may_read_more = state.buffers.as_mut().is_some_and(|it| it.set_ahead(ahead));
        // The application waits for a buffer although it may read ahead: memory is the limit.
        self.sender.hold_source(state.is_awaited && !may_read_more);
        let is_awaited = state.is_awaited && may_read_more;
        drop(state);
        if is_awaited {
            queue.changed.notify_all();
        }
        if is_shared {
            queue.wake();
        }
        Ok(is_finished)
    }

    /// Applies new settings. The policy is forwarded only if it changed, because setting it resets the controller.
    fn steer(&mut self, now: Instant, settings: RateSettings) {
        if self.policy != settings.policy {
            self.policy = settings.policy;
            self.sender.set_policy(now, settings.policy);
        }
        self.limit_bps = settings.rate_limit_bps;
        self.limit_rate();
    }

    /// Applies the lowest of the channel's own limit and its shares of common limits.
    fn limit_rate(&mut self) {
        let shares = self.shares.iter().filter_map(Member::share_bps);
        self.sender.limit_rate(shares.chain(self.limit_bps).min().map(Rate));
    }

    /// Stores the path parameters for the next transfer.
    fn remember(&self) {
        if let (Some(path), Some(facts)) = (&self.path, self.sender.path()) {
            path.note(facts);
        }
    }

    fn publish(&mut self, now: Instant) {
        self.stats_times.next = now + STATS_INTERVAL;
        let stats = self.sender.stats();
        let limits = self.sender.limits();
        let rtt = self.sender.rtt();
        let phase = self.sender.phase();
        let last = self.busy_since.map(|since| since.max(self.sender.last_received()));
        let is_path = |why| matches!(why, Cause::Path | Cause::Freeze | Cause::Outage);
        let limiters = self.sender.limiters();
        let path_limited =
            limiters.iter().filter(|it| is_path(it.why)).map(|it| Duration::from(it.time)).sum();
        let lacks_router = self.sender.is_fallback();
        let hint = lacks_router.then(|| NO_ROUTER.to_owned()).or_else(|| self.hint.clone());
        let published = ChannelStats {
            bytes: self.bytes_before + stats.delivered,
            received: self.bytes_before + stats.delivered,
            path_limited,
            packets: stats.sent,
            packets_retransmitted: stats.resent,
            packets_lost: stats.lost,
            packets_overflowed: stats.overflowed,
            rtt_ms_min: rtt.map_or(0.0, |rtt| rtt.min.as_millis_f64()),
            rtt_ms: rtt.map_or(0.0, |rtt| rtt.smoothed.as_millis_f64()),
            rate_bps: limits.rate(self.sender.packet_bytes()).map(|rate| rate.0 as f64),
            gap_ns: limits.gap.0.as_nanos() as f64,
            mtu: self.mtu.packet(),
            phase: phase.name().to_owned(),
            limiter: shares(&limiters, now.since(self.stats_times.began), phase),
            packets_refused: self.link.refused,
            silence: self.silence.lasted(now, self.sender.last_received()).into(),
            unanswered: last.map_or(Duration::ZERO, |last| now.since(last).into()),
            silence_limit: self.silence.limit().into(),
            hint,
            carrier: "udp",
            carrier_reason: "",
            paths: 1,
        };
        self.shared.lock().stats = published;
    }

    /// Processes the datagrams of a bounded number of receive calls. Returns whether the socket is drained.
    fn receive(&mut self, buffers: &mut RecvBuffers) -> Result<bool, ChannelError> {
        for _ in 0..RECEIVES_PER_CALL {
            if self.link.socket.recv(buffers).map_err(ChannelError::Io)? == 0 {
                return Ok(true);
            }
            let now = self.clock.now();
            for datagram in buffers.datagrams() {
                self.take_datagram(now, datagram.payload, datagram.source)?;
            }
        }
        Ok(false)
    }

    fn take_datagram(
        &mut self,
        now: Instant,
        datagram: &mut [u8],
        source: SocketAddr,
    ) -> Result<(), ChannelError> {
        let Ok(header) = Header::decode(datagram) else {
            self.link.refused += 1;
            return Ok(());
        };
        let number = self.replay.expand(header.number_low);
        if header.connection != self.link.connection || self.replay.is_replayed(number) {
            self.link.refused += 1;
            return Ok(());
        }
        let Some(body) = self.link.open(number, datagram) else {
            return Ok(());
        };
        self.replay.note(number);
        let token = body.first_chunk().copied().unwrap_or_default();
        match header.kind {
            Kind::Ack | Kind::Nak => self.take_feedback(now, body)?,
            Kind::ProbeAck => {
                if let Some(size) = body.first_chunk::<4>()
                    && self.mtu.confirmed(now, u32::from_be_bytes(*size))
                {
                    debug!(mtu = self.mtu.packet(), "packets of this size pass");
                    self.sender.set_payload_bytes(self.mtu.payload());
                }
            }
            // A peer that repeats a hello or a challenge too fast gets no answer, as after a loss.
            Kind::Hello | Kind::Challenge if !self.link.answers.take(now) => {}
            Kind::Hello => {
                let answer = self.take_number()?;
                self.link.answer_hello(answer, body)?;
            }
            Kind::Challenge => {
                self.own_address.challenged();
                self.respond(token)?;
            }
            Kind::Response => {
                if let Some(change) = self.peer_address.respond(source, token)
                    && let Some(socket) = self.link.socket.toward(source)
                {
                    self.link.change_socket(socket, &self.shared);
                    self.start_path(now, change);
                }
            }
            Kind::HelloAck | Kind::Data | Kind::Ack2 | Kind::Probe | Kind::Mark => {}
        }
        match self.peer_address.note(now, source, number, &mut Entropy) {
            Some(token) => self.challenge(source, token),
            None => Ok(()),
        }
    }

    /// Processes an encoded report of the receiver.
    fn take_feedback(&mut self, now: Instant, report: &[u8]) -> Result<(), ChannelError> {
        let feedback = Feedback::decode(report).map_err(ChannelError::Report)?;
        self.sender.handle_feedback(now, &feedback).map_err(ChannelError::Peer)
    }

    /// Returns the buffers of acknowledged blocks to the application.
    fn release(&mut self, now: Instant) {
        let released = self.sender.released_blocks();
        if released == self.first_block {
            return;
        }
        let queue = self.shared.queue();
        let mut state = queue.lock();
        while self.first_block < released {
            if let Some(mut block) = self.blocks.pop_front() {
                if self.shared.is_path() {
                    let path_blocks = &mut self.path_blocks;
                    path_blocks.copied.remove(&paths::number(&block));
                    let time = path_blocks.taken_at.pop_front().map(|taken| now.since(taken));
                    let time = time.unwrap_or_default();
                    let smoothed = state.block_times.entry(self.link.connection).or_insert(time);
                    *smoothed = *smoothed * 7 / 8 + time / 8;
                }
                self.bytes_released += block.len() as u64;
                block.clear();
                if let Some(buffers) = &mut state.buffers {
                    buffers.put_back(now, block);
                }
            }
            self.first_block += 1;
        }
        drop(state);
        queue.changed.notify_all();
    }

    /// Checks whether large packets still pass, and sends due MTU probes.
    fn probe(&mut self, now: Instant) -> Result<(), ChannelError> {
        let stats = self.sender.stats();
        let rtt = self.sender.rtt().map(|rtt| rtt.smoothed);
        let traffic = Traffic { sent: stats.sent, full: stats.full_arrived };
        self.mtu.watch(now, traffic, rtt);
        if self.mtu.is_raise_due(now) {
            self.mtu.raise(now, self.link.socket.path_mtu());
        }
        for size in self.mtu.poll(now, rtt) {
            let body = vec![0; size as usize - HEADER_LEN - TAG_LEN];
            self.flush_all()?;
            if self.is_blocked {
                // The socket is full; this size is tried again later.
                return Ok(());
            }
            let number = self.take_number()?;
            if self.link.send_control(Kind::Probe, number, &body)? == SendStatus::TooLarge {
                self.shrink(size);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Handles a datagram size that the local machine does not send, or no longer sends.
    fn shrink(&mut self, datagram: u32) {
        if self.mtu.refused(self.clock.now(), datagram, self.link.socket.path_mtu()) {
            debug!(mtu = self.mtu.packet(), "larger packets do not pass");
            self.sender.set_payload_bytes(self.mtu.payload());
        }
    }

    /// Sends due packets. Returns the time of the next action, or `None` if more can be sent now.
    fn transmit(&mut self) -> Result<Option<(Option<Instant>, WaitReason)>, ChannelError> {
        let mut batches = 0;
        loop {
            if self.is_blocked {
                self.flush()?;
                if self.is_blocked {
                    let until = self.clock.now() + STATS_INTERVAL;
                    return Ok(Some((Some(until), WaitReason::Pacing)));
                }
            }
            let now = self.clock.now();
            match self.sender.poll(now) {
                Polled::Ready(Transmit::Data(packet)) => {
                    // Sealed at once, whichever batch the packet goes into: packet numbers are used in order.
                    let headers = DATA_OVERHEAD + usize::from(self.congestion_bytes);
                    let datagram = packet.length as usize + headers;
                    let fits = self.batch.has_room(datagram);
                    self.seal(&packet, datagram, fits)?;
                    if fits && self.batch.has_room(datagram) {
                        continue;
                    }
                    self.flush()?;
                    batches += 1;
                    if batches == BATCHES_PER_CALL {
                        return Ok(None);
                    }
                }
                Polled::Ready(Transmit::Ack2 { number, serial }) => {
                    // A packet that overtakes queued ones would look like a loss to the receiver.
                    self.flush_all()?;
                    self.link.send_control(Kind::Ack2, number, &serial.to_be_bytes())?;
                }
                Polled::Ready(Transmit::RateProbe { number }) => {
                    self.flush_all()?;
                    if let Some(header) = self.sender.probe_header() {
                        self.link.send_probe(number, &header)?;
                    }
                }
                Polled::Ready(Transmit::Mark { number, mark }) => {
                    self.flush_all()?;
                    self.link.send_control(Kind::Mark, number, &mark.encode())?;
                }
                Polled::Wait { until, because } => {
                    self.flush_all()?;
                    return Ok(Some((until, because)));
                }
            }
        }
    }

    fn seal(
        &mut self,
        packet: &DataPacket,
        datagram: usize,
        fits: bool,
    ) -> Result<(), ChannelError> {
        let connection = self.link.connection;
        let mut header =
            DataHeader::new(connection, packet.number, packet.seq, packet.block, packet.offset);
        header.ends_block = packet.ends_block;
        header.congestion_len = self.congestion_bytes;
        let header = header.encode();
        let block = &self.blocks[(packet.block - self.first_block) as usize];
        let payload = &block[packet.offset as usize..(packet.offset + packet.length) as usize];
        let batch = if fits { &mut self.batch } else { &mut self.next_batch };
        let start = batch.bytes.len();
        batch.bytes.resize(start + datagram, 0);
        let out = &mut batch.bytes[start..];
        let (front, rest) = out.split_at_mut(DATA_HEADER_LEN);
        front.copy_from_slice(&header);
        let (congestion, sealed) = rest.split_at_mut(self.congestion_bytes.into());
        if let Some(header) = self.sender.congestion_header() {
            encode_congestion(&header, congestion);
        }
        self.link
            .sealer
            .seal(packet.number, &header, payload, sealed)
            .map_err(ChannelError::Seal)?;
        if batch.segments == 0 {
            batch.segment = datagram;
        }
        batch.segments += 1;
        Ok(())
    }

    /// Passes all sealed datagrams to the socket, until the socket is full.
    fn flush_all(&mut self) -> Result<(), ChannelError> {
        while !self.batch.bytes.is_empty() {
            self.flush()?;
            if self.is_blocked {
                break;
            }
        }
        Ok(())
    }

    /// Passes one batch to the socket. The rest of a batch that a full socket did not take stays for the next call.
    fn flush(&mut self) -> Result<(), ChannelError> {
        self.is_blocked = false;
        if self.batch.bytes.is_empty() {
            return Ok(());
        }
        let rest = &self.batch.bytes[self.batch.sent..];
        let outcome = self.link.socket.send(rest, self.batch.segment).map_err(ChannelError::Io)?;
        self.batch.sent += outcome.bytes;
        match outcome.status {
            SendStatus::WouldBlock => self.is_blocked = true,
            // The path is down for now, or its MTU fell: the packets count as lost.
            status => {
                self.is_unreachable |= status == SendStatus::Unreachable;
                if status == SendStatus::TooLarge {
                    self.shrink(u32::try_from(self.batch.segment).unwrap_or(u32::MAX));
                }
                self.batch.clear();
                std::mem::swap(&mut self.batch, &mut self.next_batch);
            }
        }
        Ok(())
    }

    /// Returns the pause until the next action.
    fn rest(&self, until: Option<Instant>, because: WaitReason) -> Pause {
        let now = self.clock.now();
        let until = match because {
            WaitReason::Pacing => until.map(|until| until.max(now + BATCH_TIME)),
            _ => until,
        };
        // Bounded, so that statistics stay current and a lost wake-up costs no more than this.
        let latest = now + Span::from(Duration::from_millis(100));
        let until = Instant::earliest([until, self.mtu.deadline()])
            .map_or(latest, |until| until.min(latest));
        let wait = if self.is_blocked { Wait::BOTH } else { Wait::READABLE };
        Pause { rest: None, wait, until }
    }
}

#[cfg(test)]
mod tests;
