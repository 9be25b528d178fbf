//! The sending end of a channel: which piece goes out next, and when.
//!
//! Source: [SABUL §II-D]: the loss list first, then new data while the flow window allows, each at
//! the time that rate control gives; every SYN interval, or with every SYN report of a peer that
//! sends them, a rate control event. Expiry after [UDT4 §3.5].
//! States:      of blocks: `stream`; of numbers: `ledger`.
//! Not here:    bytes, keys, sockets; what the loss report means for the rate (`sabul-cc`).

mod answers;
mod asks;
mod error;
mod feedback;
mod ledger;
mod losses;
mod pace;
mod pick;
mod rate;
mod records;
mod rules;
mod silence;
mod skips;
mod stream;
mod waits;

use sabul_cc::events::Event;
use sabul_cc::{Fault, Guarded, LossReport, PathFacts, Policy, RttEstimate, SendLimits, YIELDING};
use sabul_units::{
    Bytes, CongestionHeader, Instant, PacketNumber, Packets, Polled, Random, Rate, SeqNo, Span,
};
use sabul_wire::{LossPolicy, Mark};

use crate::fired::Fired;
use crate::flow_window::FlowWindow;
use crate::reports::ReportRule;
use answers::Answers;
use feedback::Heard;
use ledger::Ledger;
use losses::Losses;
use pace::Pace;
use rate::RateControl;
use records::Place;
use rules::Rules;
use silence::Silence;
use skips::Skips;
use stream::Stream;
use waits::Waits;

pub use error::PeerError;
pub use rate::congestion_bytes;
pub use silence::Expiry;
pub use waits::{Cause, Limiter, WaitReason};

/// How a sender behaves.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Which numbers loss reports name.
    pub policy: LossPolicy,
    /// Bytes of a full block.
    pub block_bytes: u32,
    /// Most bytes unacknowledged.
    pub window_bytes: u64,
    /// Payload bytes of a full DATA packet, which has the controller's congestion header before them.
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

/// Why a sender has something to do though nothing happens, in the order in which timers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// The controller may hear of losses that it has not been told of.
    Loss,
    /// An interval of rate control ends.
    Interval,
    /// Neither ACK nor NAK of outstanding data has come.
    Expiry,
    /// Nothing has been heard for a while: the peer is asked for an ACK. Only looked at while there is
    /// nothing to send.
    Ping,
}

/// A packet to send now.
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
    /// A DATA packet without data, for the congestion header in it ([`Sender::asking_header`]); it asks for an ACK.
    Ask {
        /// Packet number to send it under.
        number: PacketNumber,
    },
}

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

/// The sending end.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    stats: SenderStats,
    stream: Stream,
    ledger: Ledger,
    skips: Skips,
    window: FlowWindow,
    rules: Rules,
    rate: RateControl,
    pace: Pace,
    losses: Losses,
    silence: Silence,
    /// Silence: one packet goes out past every limit.
    is_probe_due: bool,
    heard: Heard,
    answers: Answers,
    waits: Waits,
}

impl Sender {
    /// A sender at the start of a channel.
    pub fn new(now: Instant, config: SenderConfig, controller: Guarded) -> Self {
        let packets = (config.window_bytes / u64::from(config.payload_bytes.max(1))).max(2);
        let burst = controller.burst();
        let is_driven_by_peer = config.reports.syn_interval.is_some();
        let has_headers = controller.header().is_some();
        Self {
            stats: SenderStats::default(),
            stream: Stream::new(config.payload_bytes),
            ledger: Ledger::new(config.first_number),
            skips: Skips::none(),
            window: FlowWindow::new(now, Packets(packets), config.block_limit),
            rules: Rules::new(config.reports.channel),
            rate: RateControl::new(now, controller, config.payload_bytes, is_driven_by_peer),
            pace: Pace::new(now, burst),
            losses: Losses::new(now),
            silence: Silence::new(now, config.expiry),
            is_probe_due: false,
            heard: Heard::default(),
            answers: Answers::new(now, has_headers),
            waits: Waits::default(),
            config,
        }
    }

    /// A round trip seen while the path was opened.
    pub fn seed_rtt(&mut self, sample: Span) {
        self.rate.note_rtt(sample);
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
        self.pace.set_cap(limit);
    }

    /// How the flow stands beside others from now on; of no effect where the controller follows no policy.
    pub fn set_policy(&mut self, now: Instant, policy: Policy) {
        self.rate.set_policy(now, policy);
    }

    /// What an earlier flow saw of what may be the same path; to be told before the first block. Of no effect where the
    /// controller remembers no path.
    pub fn remember(&mut self, now: Instant, facts: &PathFacts) {
        self.rate.remember(now, facts);
    }

    /// What is known of the path by now, for a later flow.
    pub fn path(&self) -> Option<PathFacts> {
        self.rate.controller().path(self.packet_bytes())
    }

    /// The next block is this long. One that is not full takes the room of a full one at the receiver.
    pub fn push_block(&mut self, length: u32) {
        debug_assert!(length > 0 && length <= self.config.block_bytes);
        self.stream.push(length);
    }

    /// Whether the application has more to send than it has memory for: what then runs out is room, and not
    /// what there is to send.
    pub const fn hold_source(&mut self, is_held: bool) {
        self.stream.hold(is_held);
    }

    /// What leaves from now on has at most this many payload bytes, at least one. Pieces that were
    /// larger are cut again when they are sent again.
    pub fn set_payload_bytes(&mut self, bytes: u32) {
        let bytes = bytes.max(1);
        self.stream.set_payload_bytes(bytes);
        self.rate.set_payload_bytes(bytes);
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

    /// How often the circuit breaker has opened; `None` without a breaker.
    pub fn breaker_opened(&self) -> Option<u64> {
        self.rate.controller().breaker_opened()
    }

    /// The round trip.
    pub const fn rtt(&self) -> Option<RttEstimate> {
        self.rate.rtt()
    }

    /// What the controller allows.
    pub const fn limits(&self) -> SendLimits {
        *self.rate.limits()
    }

    /// DATA packets of which nothing is known yet.
    pub const fn in_flight(&self) -> u64 {
        self.ledger.numbers.in_flight()
    }

    /// What goes into the congestion header of the DATA packet that [`Self::poll`] has just given, where the
    /// channel's packets have one: its length is the same all the time.
    pub fn congestion_header(&self) -> Option<CongestionHeader> {
        self.rate.controller().header().map(CongestionHeader::new)
    }

    /// What goes into the congestion header of a [`Transmit::Ask`]: it is of no rate, so that nobody counts a flow more for
    /// it.
    pub fn asking_header(&self) -> Option<CongestionHeader> {
        let fields = self.rate.controller().header()?;
        Some(CongestionHeader::new(fields.asking()))
    }

    /// What the controller is doing.
    pub fn phase(&self) -> &'static str {
        self.rate.controller().phase()
    }

    /// What the controller did that none may do: the channel has to end because of it.
    pub fn fault(&self) -> Option<&Fault> {
        self.rate.controller().fault()
    }

    /// From now on keeps what the controller does, and why, for [`Self::next_event`], and which timers
    /// fire, for [`Self::next_fired`].
    pub fn listen(&mut self) {
        self.rate.controller_mut().listen();
        self.waits.fired.listen();
    }

    /// The controller's oldest event that was not fetched yet.
    pub fn next_event(&mut self) -> Option<Event> {
        self.rate.controller_mut().next_event()
    }

    /// The oldest timer that fired and was not fetched yet.
    pub fn next_fired(&mut self) -> Option<Fired> {
        self.waits.fired.next()
    }

    /// When the peer last sent an ACK or a NAK.
    pub const fn last_heard(&self) -> Instant {
        self.silence.last_heard()
    }

    /// What held the sender back so far.
    pub fn limiters(&self) -> [Limiter; 9] {
        self.waits.limiters()
    }

    /// A packet number for a datagram of another kind, which no loss report will count.
    pub fn take_number(&mut self) -> PacketNumber {
        self.ledger.numbers.push_other()
    }

    /// Size on the wire of a full packet.
    pub const fn packet_bytes(&self) -> Bytes {
        self.rate.packet_bytes()
    }

    /// The next packet to send, or until when there is none.
    pub fn poll(&mut self, now: Instant) -> Polled<Transmit, WaitReason> {
        self.waits.end(now);
        self.run_timers(now);
        if self.skips.take(now, self.ledger.numbers.next()) {
            self.ledger.numbers.push_other();
        }
        if let Some(serial) = self.answers.next() {
            let number = self.ledger.numbers.push_other();
            return Polled::Ready(Transmit::Ack2 { number, serial });
        }
        if let Some(number) = self.first_ask(now) {
            return Polled::Ready(Transmit::Ask { number });
        }
        let (why, until) = match self.next_data(now) {
            Ok(packet) => return Polled::Ready(Transmit::Data(packet)),
            Err(held) => held,
        };
        let until = match self.next_ask(now, why) {
            Ok(number) => return Polled::Ready(Transmit::Ask { number }),
            Err(ask) => until.min(ask),
        };
        if why != WaitReason::Pacing {
            self.pace.note_held();
        }
        let until = match self.next_mark(now, why) {
            Ok(mark) => return Polled::Ready(mark),
            Err(next) => until.min(next),
        };
        let numbers = &self.ledger.numbers;
        self.rate.note_held(why, numbers.in_flight(), numbers.next());
        self.waits.begin(self.cause(why), now);
        let (loss, interval) = (self.due(Timer::Loss), self.due(Timer::Interval));
        let timers = [loss, interval, self.due(Timer::Expiry), Some(until)];
        Polled::Wait { until: Instant::earliest(timers), because: why }
    }

    /// What a wait is accounted to.
    fn cause(&self, why: WaitReason) -> Cause {
        let in_flight = Packets(self.ledger.numbers.in_flight());
        match why {
            _ if self.silence.is_outage() => Cause::Outage,
            WaitReason::Pacing if self.pace.is_capped() => Cause::Cap,
            WaitReason::Pacing | WaitReason::Window if self.phase() == YIELDING => Cause::Policy,
            WaitReason::Pacing => Cause::Path,
            WaitReason::Freeze => Cause::Freeze,
            WaitReason::Window if self.is_controller_window_full() => Cause::Path,
            WaitReason::Window if self.window.is_shrunk_below(in_flight) => Cause::Overflow,
            WaitReason::Window => Cause::Window,
            WaitReason::Receiver => Cause::Receiver,
            WaitReason::Application => Cause::Application,
        }
    }

    fn note_sent(&mut self, now: Instant, length: u32, is_repeat: bool) {
        self.stats.sent += 1;
        self.stats.sent_bytes += u64::from(length);
        self.stats.resent += u64::from(is_repeat);
        self.rules.note_sent();
        self.rate.note_sent(now, is_repeat);
        if let Some(asks) = &mut self.answers.asks {
            asks.note_sent(now);
        }
        if self.silence.expires().is_none() {
            self.silence.expect(now, self.rate.longest_rtt(), self.report_interval());
        }
    }

    /// The longest time between two reports of a peer that has something to report.
    fn report_interval(&self) -> Span {
        self.config.reports.ack_interval_max().max(self.rate.controller().syn_interval())
    }

    /// When something has to be done though nothing happens.
    #[inline(always)] // Asked for each packet; each timer is one comparison.
    fn due(&self, timer: Timer) -> Option<Instant> {
        match timer {
            Timer::Loss => self.losses.due(),
            Timer::Interval => self.rate.ends(),
            Timer::Expiry => self.silence.expires(),
            Timer::Ping => Some(self.answers.ping_due(self.silence.last_heard())),
        }
    }

    #[inline]
    fn run_timers(&mut self, now: Instant) {
        // In this order, and not in a loop: that would cost each packet more than the comparisons.
        self.run_due(Timer::Loss, now);
        self.run_due(Timer::Interval, now);
        self.run_due(Timer::Expiry, now);
        self.run_due(Timer::Ping, now);
    }

    #[inline(always)]
    fn run_due(&mut self, timer: Timer, now: Instant) {
        if self.due(timer).is_some_and(|due| now >= due) {
            self.run(timer, now);
        }
    }

    #[cold] // Once for hundreds of packets.
    fn run(&mut self, timer: Timer, now: Instant) {
        let (name, why) = match timer {
            Timer::Loss => ("loss", "held-losses"),
            Timer::Interval => ("interval", "interval-over"),
            Timer::Expiry if self.ledger.pieces.is_empty() => ("expiry", "nothing-outstanding"),
            Timer::Expiry => ("expiry", "silent"),
            Timer::Ping => ("ping", "long-unheard"),
        };
        self.waits.fired.note(now, name, why);
        match timer {
            Timer::Loss => self.tell_loss(now),
            Timer::Interval => {
                let is_outstanding = !self.ledger.pieces.is_empty() || self.stream.uncut() > 0;
                self.rate.turn(now, is_outstanding, self.silence.is_heard());
            }
            Timer::Expiry if self.ledger.pieces.is_empty() => self.silence.stop(),
            Timer::Expiry => self.expire(now),
            Timer::Ping => self.answers.ping(now),
        }
    }

    fn expire(&mut self, now: Instant) {
        self.stats.expiries += 1;
        let count = self.silence.expire();
        match self.silence.rule {
            // A lost mark, or a lost answer to one.
            _ if !self.rules.has_naks() => self.rules.repeat_mark(),
            Expiry::Everything => self.ledger.lose_above_list(),
            // DEV-004: the papers say nothing of silence; UDT's rule, shorter on short paths.
            Expiry::Adaptive => {
                if self.config.policy == LossPolicy::Historical && count.is_power_of_two() {
                    // [UDT4 §3.5] Ever more rarely, or it would keep out the reports that it waits for.
                    self.ledger.lose_all();
                }
                self.is_probe_due = true;
            }
        }
        // The first expiry may be no more than a lost tail.
        if self.silence.is_outage() {
            self.rate.on_timeout(now);
        }
        self.silence.go_on(now, self.rate.longest_rtt(), self.report_interval());
    }

    fn report_loss(&mut self, now: Instant, mut report: LossReport) {
        // DEV-009: what the receiver's own socket dropped is no congestion of the path.
        let excused = self.losses.take_excuse(now, report.first_time.0);
        self.stats.lost_at_receiver += excused;
        report.first_time.0 -= excused;
        self.stats.lost += report.first_time.0;
        self.stats.repeats += report.repeats.0;
        self.rate.note_lost(report.first_time.0);
        if report.first_time.0 == 0 && (excused > 0 || report.repeats.0 == 0) {
            return;
        }
        self.losses.hold(report);
        // DEV-010: as published, each NAK is one event of rate control. How many NAKs a burst of
        // losses makes depends on how the receiver's machine happens to wake up, so in the current
        // policy the controller hears of the first at once, of more once a SYN interval.
        if self.config.policy == LossPolicy::Historical || self.losses.may_tell(now) {
            self.tell_loss(now);
        }
    }

    fn tell_loss(&mut self, now: Instant) {
        let after = self.rate.controller().syn_interval();
        if let Some(report) = self.losses.take(now, after) {
            self.rate.on_loss(now, &report);
        }
    }

    /// What must hold between any two calls.
    ///
    /// # Panics
    /// If it does not.
    pub fn check_invariants(&self) {
        self.stream.check_invariants();
        self.ledger.check_invariants();
        let open = self.rules.open();
        assert!(
            open.is_none_or(|open| self.ledger.covers(open)),
            "only unacknowledged numbers are gone over"
        );
        assert!(self.stats.resent <= self.stats.sent);
    }
}

#[cfg(test)]
#[path = "sender/tests.rs"]
mod tests;
