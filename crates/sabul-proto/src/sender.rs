//! The sending end of a channel: which piece goes out next, and when.
//!
//! Source: [SABUL §II-D]: the loss list first, then new data while the flow window allows, each at
//! the time that rate control gives; every SYN interval, or with every SYN report of a peer that
//! sends them, a rate control event. Expiry after [UDT4 §3.5].
//! States:      of blocks: `stream`; of numbers: `ledger`.
//! Not here:    bytes, keys, sockets; what the loss report means for the rate (`sabul-cc`).

mod feedback;
mod ledger;
mod pick;
mod records;
mod skips;
mod stream;

use std::fmt;

use sabul_cc::{
    ChannelRules, Context, Controller, Fault, IntervalReport, LossReport, RttEstimate, SendLimits,
};
use sabul_units::{Bytes, Instant, PacketNumber, Packets, Random, Rate, SeqNo, Span};
use sabul_wire::{DATA_OVERHEAD, LossPolicy, Mark};

use crate::flow_window::FlowWindow;
use crate::reports::ReportRule;
use crate::rtt;
use ledger::Ledger;
use pick::Pick;
use records::Place;
use skips::Skips;
use stream::Stream;

/// IPv4 and UDP headers: what a datagram is on the wire beyond its payload. Rates count IP packets;
/// IPv6 adds 20 bytes, which the gap ignores.
const IP_UDP_BYTES: u64 = 28;
/// Ours: lateness of up to this is made good by a burst; more is lost. Bursts are capped by time.
const BURST: Span = Span::from_millis(1);
/// [UDT4 §3.5] The smallest expiry period there is 300 ms; ours may be shorter on short paths, since
/// the first expiry only sends one packet again.
const EXPIRY_MIN: Span = Span::from_millis(20);
/// Ours: the longest silence between two tries, so that a path that comes back is noticed.
const EXPIRY_MAX: Span = Span::from_millis(500);
/// [SABUL2] The 2002 sender expires after so long without an ACK or an ERR.
const EXPIRY_2002: Span = Span::from_secs(1);
/// Ours: what RTT stands for until one is known.
const RTT_UNKNOWN: Span = Span::from_millis(300);
/// Ours: an idle channel asks for an ACK this often, so that each end knows of the other.
const PING_INTERVAL: Span = Span::from_millis(500);
/// Ours: ACKs are confirmed at most this often unless they list losses.
const ACK2_INTERVAL: Span = Span::from_millis(10);

/// How a sender behaves.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Which numbers loss reports name.
    pub policy: LossPolicy,
    /// Bytes of a full block.
    pub block_bytes: u32,
    /// Most bytes unacknowledged.
    pub window_bytes: u64,
    /// Payload bytes of a full DATA packet.
    pub payload_bytes: u32,
    /// Blocks for which the receiver has room at first.
    pub block_limit: u32,
    /// First packet number.
    pub first_number: PacketNumber,
    /// When the peer reports; the receiver has the same.
    pub reports: ReportRule,
    /// What is done about silence.
    pub expiry: Expiry,
}

/// What a sender does when it hears neither ACK nor NAK of outstanding data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// After about a round trip, doubled by each expiry in a row, one packet goes out again
    /// (DEV-004).
    #[default]
    Adaptive,
    /// [SABUL2 sender.cpp] After one second everything above the end of the loss list is put onto it, and
    /// again after each further second.
    Everything,
}

/// A DATA packet to build and send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPacket {
    /// New for each transmission.
    pub number: PacketNumber,
    /// The same in each retransmission, which may be shorter than the transmission before.
    pub seq: SeqNo,
    /// Which block.
    pub block: u32,
    /// Where in it.
    pub offset: u32,
    /// How much of it.
    pub length: u32,
    /// It reaches the block's end.
    pub ends_block: bool,
}

impl DataPacket {
    const fn new(number: PacketNumber, seq: SeqNo, place: Place) -> Self {
        let Place { block, offset, length, ends_block } = place;
        Self { number, seq, block, offset, length, ends_block }
    }
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Send this piece.
    Data(DataPacket),
    /// Confirm an ACK; serial zero asks for one.
    Ack2 {
        /// Packet number to send it under.
        number: PacketNumber,
        /// Which ACK.
        serial: u64,
    },
    /// Everything that may be sent has been; only under rules that ask for it.
    Mark {
        /// Packet number to send it under.
        number: PacketNumber,
        /// What it says.
        mark: Mark,
    },
    /// Nothing until then, unless something happens before.
    Wait {
        /// When to ask again.
        until: Instant,
        /// What is waited for.
        why: WaitReason,
    },
}

/// Why the sender is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitReason {
    /// The gap to the next packet is not over.
    Pacing,
    /// The controller holds everything for a round trip after a loss.
    Freeze,
    /// The window of the controller or of the configuration is full.
    Window,
    /// The receiver has no room.
    Receiver,
    /// The application has given nothing to send.
    Application,
}

/// What held the sender back, for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    /// The reason.
    pub why: WaitReason,
    /// Time spent so.
    pub time: Span,
}

/// The peer's report cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerError(pub &'static str);

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for PeerError {}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// DATA packets sent.
    pub sent: u64,
    /// Their payload bytes.
    pub sent_bytes: u64,
    /// Retransmissions among them.
    pub resent: u64,
    /// Packets reported lost on the path, each once.
    pub lost: u64,
    /// Losses reported again by a later NAK; historical policy only.
    pub repeats: u64,
    /// Packets reported lost that the receiver's socket had dropped.
    pub lost_at_receiver: u64,
    /// Packets that the receiver's socket says it dropped.
    pub overflowed: u64,
    /// DATA packets that arrived, duplicates included.
    pub arrived: u64,
    /// How often the newest packet to arrive held as much as fits now.
    pub full_arrived: u64,
    /// Payload bytes that arrived, duplicates included.
    pub delivered: u64,
    /// Expiries.
    pub expiries: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    sent: u64,
    resent: u64,
    lost: u64,
    starved: bool,
    paced: bool,
}

/// The sending end.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    controller: Box<dyn Controller>,
    limits: SendLimits,
    window: FlowWindow,
    stats: SenderStats,
    rtt: Option<RttEstimate>,
    // Data.
    stream: Stream,
    ledger: Ledger,
    skips: Skips,
    rate_limit: Option<Rate>,
    pick: Pick,
    // Time.
    next_send: Instant,
    next_tick: Option<Instant>,
    last_tick: Instant,
    last_heard: Instant,
    expiry_at: Option<Instant>,
    expiry_count: u32,
    last_wait: Option<(WaitReason, Instant)>,
    waited: [Span; 5],
    interval: Interval,
    // Feedback.
    /// DATA packets that SYN reports have told of.
    syn_received: u64,
    ack_serial: u64,
    largest_arrived: Option<PacketNumber>,
    delivered_wire: u64,
    /// Packets below this number left while the window allowed more than there was.
    app_limited_until: PacketNumber,
    marked: u64,
    /// Losses of which the controller has not been told, and when it may be.
    unheard_loss: Option<LossReport>,
    next_loss_event: Instant,
    overflow_credit: u64,
    overflow_credit_until: Instant,
    next_window_growth: Instant,
    ack2_due: Option<u64>,
    next_ack2: Instant,
    probe_due: bool,
    ping_due: bool,
    next_ping: Instant,
}

impl Sender {
    /// A sender at the start of a channel.
    pub fn new(now: Instant, config: SenderConfig, controller: Box<dyn Controller>) -> Self {
        let packets = (config.window_bytes / u64::from(config.payload_bytes.max(1))).max(2);
        Self {
            limits: controller.limits(),
            window: FlowWindow::new(Packets(packets), config.block_limit),
            stats: SenderStats::default(),
            rtt: None,
            stream: Stream::new(config.payload_bytes),
            ledger: Ledger::new(config.first_number),
            skips: Skips::none(),
            rate_limit: None,
            pick: Pick::new(config.reports.channel, controller.burst()),
            next_send: now,
            next_tick: None,
            last_tick: now,
            last_heard: now,
            expiry_at: None,
            expiry_count: 0,
            last_wait: None,
            waited: [Span::ZERO; 5],
            interval: Interval::default(),
            syn_received: 0,
            ack_serial: 0,
            largest_arrived: None,
            delivered_wire: 0,
            app_limited_until: PacketNumber(0),
            marked: 0,
            unheard_loss: None,
            next_loss_event: now,
            overflow_credit: 0,
            overflow_credit_until: now,
            next_window_growth: now,
            ack2_due: None,
            next_ack2: now,
            probe_due: false,
            ping_due: false,
            next_ping: now + PING_INTERVAL,
            config,
            controller,
        }
    }

    /// A round trip seen while the path was opened.
    pub fn seed_rtt(&mut self, sample: Span) {
        self.rtt = Some(rtt::update(None, sample));
    }

    /// Leaves out a packet number now and then, where nobody can know who does not have `random`, and
    /// takes a peer that acknowledges it for a liar. Of no effect where reports do not name packet
    /// numbers.
    pub fn skip_numbers(&mut self, random: Box<dyn Random + Send>) {
        if self.config.policy == LossPolicy::Current {
            self.skips.start(self.ledger.numbers.next(), random);
        }
    }

    /// Never send faster than this, IP headers included, whatever the controller says.
    pub const fn limit_rate(&mut self, limit: Option<Rate>) {
        self.rate_limit = limit;
    }

    /// The next block is this long. One that is not full takes the room of a full one at the receiver.
    pub fn push_block(&mut self, length: u32) {
        debug_assert!(length > 0 && length <= self.config.block_bytes);
        self.stream.push(length);
    }

    /// What leaves from now on has at most this many payload bytes, at least one. Pieces that were
    /// larger are cut again when they are sent again.
    pub fn set_payload_bytes(&mut self, bytes: u32) {
        let bytes = bytes.max(1);
        self.stream.set_payload_bytes(bytes);
        let packets = (self.config.window_bytes / u64::from(bytes)).max(2);
        self.window.set_unacknowledged_max(Packets(packets));
    }

    /// Blocks that are acknowledged to the end: the first that is not has this number.
    pub const fn released_blocks(&self) -> u32 {
        self.stream.first()
    }

    /// Blocks of which nothing has been sent yet, and the one that is being cut.
    pub fn uncut_blocks(&self) -> usize {
        self.stream.uncut()
    }

    /// Whether every block so far has been acknowledged.
    pub fn is_idle(&self) -> bool {
        self.stream.is_empty()
    }

    /// Counts since the start.
    pub const fn stats(&self) -> SenderStats {
        self.stats
    }

    /// The round trip.
    pub const fn rtt(&self) -> Option<RttEstimate> {
        self.rtt
    }

    /// What the controller allows.
    pub const fn limits(&self) -> SendLimits {
        self.limits
    }

    /// DATA packets of which nothing is known yet.
    pub const fn in_flight(&self) -> u64 {
        self.ledger.numbers.in_flight()
    }

    /// What the controller is doing.
    pub fn phase(&self) -> &'static str {
        self.controller.phase()
    }

    /// What the controller did that none may do: the channel has to end because of it.
    pub fn fault(&self) -> Option<&Fault> {
        self.controller.fault()
    }

    /// When the peer last sent an ACK or a NAK.
    pub const fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// What held the sender back so far.
    pub fn limiters(&self) -> [Limiter; 5] {
        use WaitReason::{Application, Freeze, Pacing, Receiver, Window};
        [Pacing, Freeze, Window, Receiver, Application]
            .map(|why| Limiter { why, time: self.waited[why as usize] })
    }

    /// A packet number for a datagram of another kind, which no loss report will count.
    pub fn take_number(&mut self) -> PacketNumber {
        self.ledger.numbers.push_other()
    }

    /// Size on the wire of a full packet.
    pub fn packet_bytes(&self) -> Bytes {
        Bytes(u64::from(self.stream.payload_bytes()) + DATA_OVERHEAD as u64 + IP_UDP_BYTES)
    }

    fn context(&self, now: Instant) -> Context {
        Context::new(now, self.rtt, self.packet_bytes())
    }

    fn refresh_limits(&mut self) {
        self.limits = self.controller.limits();
    }

    /// What to do now; call again until it says wait.
    pub fn poll_transmit(&mut self, now: Instant) -> Transmit {
        if let Some((why, since)) = self.last_wait.take() {
            self.waited[why as usize] += now.since(since);
        }
        self.run_timers(now);
        if self.skips.take(now, self.ledger.numbers.next()) {
            self.ledger.numbers.push_other();
        }
        if let Some(serial) = self.ack2_due.take() {
            return Transmit::Ack2 { number: self.ledger.numbers.push_other(), serial };
        }
        if std::mem::take(&mut self.ping_due) {
            return Transmit::Ack2 { number: self.ledger.numbers.push_other(), serial: 0 };
        }
        match self.next_data(now) {
            Ok(packet) => Transmit::Data(packet),
            Err((why, until)) => {
                let until = match self.next_mark(now, why) {
                    Ok(mark) => return mark,
                    Err(next) => until.min(next),
                };
                self.interval.starved |= matches!(
                    why,
                    WaitReason::Application | WaitReason::Receiver | WaitReason::Window
                );
                self.interval.paced |= matches!(why, WaitReason::Pacing | WaitReason::Freeze);
                if matches!(why, WaitReason::Application | WaitReason::Receiver)
                    && self
                        .limits
                        .window
                        .is_none_or(|most| self.ledger.numbers.in_flight() < most.0)
                {
                    self.app_limited_until = self.ledger.numbers.next();
                }
                self.last_wait = Some((why, now));
                let loss_event = self.unheard_loss.map(|_| self.next_loss_event);
                let timers = [self.next_tick, self.expiry_at, loss_event, Some(until)];
                let until = Instant::earliest(timers).unwrap_or(until);
                Transmit::Wait { until, why }
            }
        }
    }

    fn note_sent(&mut self, now: Instant, length: u32, is_repeat: bool) {
        self.stats.sent += 1;
        self.stats.sent_bytes += u64::from(length);
        self.interval.sent += 1;
        self.note_picked();
        if is_repeat {
            self.stats.resent += 1;
            self.interval.resent += 1;
        }
        if self.next_tick.is_none() {
            self.last_tick = now;
            self.next_tick = Some(self.tick_after(now));
        }
        if self.expiry_at.is_none() {
            self.expiry_at = Some(now + self.expiry_period());
        }
    }

    /// When this sender's own clock ends the interval that begins now; never where the peer's SYN
    /// reports end it.
    fn tick_after(&self, now: Instant) -> Instant {
        match self.config.reports.syn_interval {
            Some(_) => Instant::MAX,
            None => now + self.controller.syn_interval(),
        }
    }

    /// [UDT4 §3.5] RTT + 4 × RTTVar + SYN, doubled by each expiry in a row.
    fn expiry_period(&self) -> Span {
        if self.config.expiry == Expiry::Everything {
            return EXPIRY_2002;
        }
        let base = self.rtt.map_or(RTT_UNKNOWN, |rtt| rtt.smoothed + rtt.variance * 4);
        let ack = self.config.reports.ack_interval_max().max(self.controller.syn_interval());
        let base = (base + ack).max(EXPIRY_MIN);
        (base * (1 << self.expiry_count.min(8))).min(EXPIRY_MAX.max(base))
    }

    fn run_timers(&mut self, now: Instant) {
        if now >= self.next_loss_event {
            self.tell_loss(now);
        }
        if self.next_tick.is_some_and(|tick| now >= tick) {
            self.tick(now);
            let outstanding = !self.ledger.pieces.is_empty() || self.stream.uncut() > 0;
            self.next_tick = outstanding.then(|| self.tick_after(now));
        }
        if self.expiry_at.is_some_and(|expiry| now >= expiry) {
            if self.ledger.pieces.is_empty() {
                self.expiry_at = None;
            } else {
                self.expire(now);
            }
        }
        if now >= self.next_ping.max(self.last_heard + PING_INTERVAL) {
            // An ACK that opened the window may have been lost; or the peer is gone.
            self.ping_due = true;
            self.next_ping = now + PING_INTERVAL;
        }
    }

    /// An interval of rate control ended.
    fn tick(&mut self, now: Instant) {
        let report = IntervalReport::new(
            Packets(self.interval.sent),
            Packets(self.interval.resent),
            Packets(self.interval.lost),
            now.since(self.last_tick),
            // Where pacing never bound, the machine did: the rate was not reached.
            self.interval.starved || !self.interval.paced,
        );
        self.interval = Interval::default();
        self.last_tick = now;
        // DEV-015: as published, an interval without a report counts as one without a loss, and a
        // sender that hears nothing goes faster and faster.
        if self.expiry_count == 0 || self.config.expiry == Expiry::Everything {
            self.controller.on_interval(&report, &self.context(now));
            self.refresh_limits();
        }
    }

    fn expire(&mut self, now: Instant) {
        self.stats.expiries += 1;
        self.expiry_count += 1;
        match self.config.expiry {
            // A lost mark, or a lost answer to one.
            _ if self.pick.rules != ChannelRules::Standard => self.repeat_mark(),
            Expiry::Everything => {
                self.ledger.lose_above_list();
            }
            // DEV-004: the papers say nothing of silence; UDT's rule, shorter on short paths.
            Expiry::Adaptive => {
                if self.config.policy == LossPolicy::Historical
                    && self.expiry_count.is_power_of_two()
                {
                    // [UDT4 §3.5] Ever more rarely, or it would keep out the reports that it waits for.
                    self.ledger.lose_all();
                }
                self.probe_due = true;
            }
        }
        // The first expiry may be no more than a lost tail.
        if self.expiry_count > 1 {
            self.controller.on_timeout(&self.context(now));
            self.refresh_limits();
        }
        self.expiry_at = Some(now + self.expiry_period());
    }

    fn report_loss(&mut self, now: Instant, mut report: LossReport) {
        if now > self.overflow_credit_until {
            self.overflow_credit = 0;
        }
        // DEV-009: what the receiver's own socket dropped is no congestion of the path.
        let excused = report.first_time.0.min(self.overflow_credit);
        self.overflow_credit -= excused;
        self.stats.lost_at_receiver += excused;
        report.first_time.0 -= excused;
        self.stats.lost += report.first_time.0;
        self.stats.repeats += report.repeats.0;
        self.interval.lost += report.first_time.0;
        if report.first_time.0 == 0 && (excused > 0 || report.repeats.0 == 0) {
            return;
        }
        self.unheard_loss = Some(match self.unheard_loss {
            Some(earlier) => LossReport::new(
                Packets(earlier.first_time.0 + report.first_time.0),
                Packets(earlier.repeats.0 + report.repeats.0),
                earlier.first_lost.min(report.first_lost),
                report.largest_sent,
            ),
            None => report,
        });
        // DEV-010: as published, each NAK is one event of rate control. How many NAKs a burst of
        // losses makes depends on how the receiver's machine happens to wake up, so in the current
        // policy the controller hears of the first at once, of more once a SYN interval.
        if self.config.policy == LossPolicy::Historical || now >= self.next_loss_event {
            self.tell_loss(now);
        }
    }

    fn tell_loss(&mut self, now: Instant) {
        if let Some(report) = self.unheard_loss.take() {
            self.next_loss_event = now + self.controller.syn_interval();
            self.controller.on_loss(&report, &self.context(now));
            self.refresh_limits();
        }
    }

    /// What must hold between any two calls.
    ///
    /// # Panics
    /// If it does not.
    pub fn check_invariants(&self) {
        self.stream.check_invariants();
        self.ledger.check_invariants();
        assert!(self.ledger.covers(self.pick.open()), "only unacknowledged numbers are gone over");
        assert!(self.stats.resent <= self.stats.sent);
    }
}

#[cfg(test)]
#[path = "sender/tests.rs"]
mod tests;
