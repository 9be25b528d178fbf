//! Receiving end of a channel: admits packets, tracks losses and schedules reports.
//!
//! Source: [SABUL §II-C, §II-D]: an ACK each SYN interval when something new arrived, and a NAK at once on a gap,
//! with compressed ranges. A loss is reported again after k × RTT with k = 2, 3, … [`ReportRule`]
//! holds the differences of 2002.
//!
//! Two loss policies. *Historical* reports data sequence numbers as published. *Current* reports
//! packet numbers. A retransmission has a new packet number, so a lost retransmission appears as a
//! new gap at once, and each transmission is reported lost at most once. A NAK may itself be lost
//! on UDP, so ACKs repeat every loss that the sender has not confirmed (ACK2). `reorder` decides
//! when a gap counts as a loss. Other channel rules add or replace reports ([`ReceiverRules`]).
//! States:      of packet numbers: `numbers`; of data: `sequence`; of ACKs: `acks`.
//! Not here:    payload bytes; the caller opens and stores them where [`Receiver::admit`] allows.

mod acks;
pub(crate) mod context;
mod echoes;
pub(crate) mod lists;
pub(crate) mod numbers;
mod recent;
pub(crate) mod reorder;
mod repeats;
pub(crate) mod sequence;
mod stats;
mod syn;

use std::collections::VecDeque;

use sabul_cc::RttEstimate;
use sabul_units::{CongestionHeader, Instant, PacketNumber, Polled, SeqNo, Span};
use sabul_wire::{Ack, DataHeader, Feedback, LossPolicy, MAX_RANGES, Mark, Nak, NumberRange};

use crate::fired::{Fired, FiredLog, FiredTimer};
use crate::reports::{RepeatRtt, ReportRule};
use crate::rtt;
use crate::rules::ReceiverRules;
use acks::Acks;
use echoes::Echoes;
use lists::Lists;
use numbers::Numbers;
use repeats::{K_START, Repeats};
use syn::SynReports;

use context::ReceiverContext;
pub use reorder::Lateness;
use sequence::Sequence;
pub use stats::ReceiverStats;

/// Ours: minimum RTT sample.
const RTT_SAMPLE_MIN: Span = Span::from_micros(1);
/// Ours: a mark this far beyond the received data is ignored as invalid.
const MARK_AHEAD_MAX: u64 = 1 << 40;

/// Settings of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// Kind of number that loss reports list: sequence numbers or packet numbers.
    pub policy: LossPolicy,
    /// Size of a full block in bytes.
    pub block_bytes: u32,
    /// Initial flow-control limit: number of blocks for which there is room at the start.
    pub block_limit: u32,
    /// When reports leave; sender and receiver use the same rule.
    pub reports: ReportRule,
}

/// Decision about a DATA packet, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// New data: open the packet into its place.
    Fresh,
    /// The data has arrived before. Open the packet aside: its packet number counts if it is
    /// authentic.
    Duplicate,
    /// Drop the packet unopened.
    Refused(Refusal),
}

/// Why a DATA packet is dropped unopened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The packet number has been accepted before, or is too old to check.
    Replayed,
    /// There is no room for the block, or the data before it has too many holes.
    BeyondLimit,
    /// The piece is empty or reaches beyond the block.
    BadPlace,
}

/// An authentic packet from the sender.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Packet number.
    pub number: PacketNumber,
    /// Sequence number and payload length of the data; `None` for other kinds of packets.
    pub data: Option<(SeqNo, u32)>,
    /// Whether the packet carried the ECN mark.
    pub is_marked: bool,
}

#[derive(Debug, Default)]
struct RoundTrip {
    estimate: Option<RttEstimate>,
    first: Option<Span>,
}

impl RoundTrip {
    fn note(&mut self, sample: Span) {
        // Never zero: repeats after k × RTT would never end.
        let sample = sample.max(RTT_SAMPLE_MIN);
        self.estimate = Some(rtt::update(self.estimate, sample));
        self.first = self.first.or(Some(sample));
    }

    /// Returns the RTT for the timing of repeats, or a default before the first sample.
    fn of(&self, which: RepeatRtt) -> Span {
        let known = match which {
            RepeatRtt::Averaged => self.estimate.map(|rtt| rtt.smoothed),
            RepeatRtt::First => self.first,
        };
        known.unwrap_or(rtt::UNKNOWN_TO_RECEIVER)
    }
}

/// The receiving end of a channel.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    stats: ReceiverStats,
    rtt: RoundTrip,
    numbers: Numbers,
    data: Sequence,
    /// NAKs to send now.
    naks: VecDeque<Vec<NumberRange>>,
    repeats: Repeats,
    acks: Acks,
    syn: SynReports,
    /// Channel rules of a related protocol, and their reports.
    rules: Option<Box<dyn ReceiverRules>>,
    lists: Lists,
    block_limit: u32,
    echoes: Echoes,
    fired: FiredLog,
}

impl Receiver {
    /// Creates a receiver at the start of a channel.
    ///
    /// # Panics
    /// If the rule has a SYN interval of zero.
    pub fn new(config: ReceiverConfig) -> Self {
        assert!(
            !matches!(config.reports.syn_interval, Some(Span::ZERO)),
            "a SYN report every zero seconds would never end"
        );
        Self {
            config,
            stats: ReceiverStats::default(),
            rtt: RoundTrip::default(),
            numbers: Numbers::new(config.policy),
            data: Sequence::new(),
            naks: VecDeque::new(),
            repeats: Repeats::new(),
            acks: Acks::new(),
            syn: SynReports::new(config.reports.syn_interval),
            rules: config.reports.rules.receiver.map(|new| new()),
            lists: Lists::new(),
            block_limit: config.block_limit,
            echoes: Echoes::default(),
            fired: FiredLog::default(),
        }
    }

    /// Starts to record fired timers for [`Self::next_fired`].
    pub fn listen(&mut self) {
        self.fired.listen();
    }

    /// Removes and returns the oldest recorded timer event.
    pub fn next_fired(&mut self) -> Option<Fired> {
        self.fired.next()
    }

    /// Counts since the start.
    pub const fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// The RTT estimate; `None` before the first sample.
    pub const fn rtt(&self) -> Option<RttEstimate> {
        self.rtt.estimate
    }

    /// All data before this number has been received.
    pub fn ack_seq(&self) -> SeqNo {
        self.data.complete()
    }

    /// Expands the low halves in a header to full packet and sequence numbers.
    pub fn expand(&self, header: &DataHeader) -> (PacketNumber, SeqNo) {
        (self.expand_number(header.number_low), SeqNo::expand(header.seq_low, self.data.next()))
    }

    /// Expands the low half of a packet number to the full number.
    pub fn expand_number(&self, low: u32) -> PacketNumber {
        let near = self.numbers.largest().map_or(PacketNumber(0), |(number, _)| number);
        PacketNumber::expand(low, near)
    }

    /// Adds an RTT sample measured during the handshake. DEV-022: the published protocol uses the
    /// RTT of the TCP connection.
    pub fn seed_rtt(&mut self, sample: Span) {
        self.rtt.note(sample);
    }

    /// Measurements of late packets on this path. A later channel over the same path, with the same clock, may begin
    /// with these.
    pub const fn lateness(&mut self) -> &mut Lateness {
        self.numbers.lateness()
    }

    /// Starts packet numbers after those used during the handshake.
    pub fn start_after(&mut self, now: Instant, largest: PacketNumber) {
        self.numbers.set_largest(now, largest);
    }

    /// Whether a packet number was accepted before or is too old to check.
    pub fn is_replayed(&self, number: PacketNumber) -> bool {
        self.numbers.is_replayed(number)
    }

    /// Decides about a DATA packet from its readable header alone.
    pub fn admit(
        &self,
        number: PacketNumber,
        seq: SeqNo,
        block: u32,
        offset: u32,
        length: usize,
    ) -> Admission {
        if self.is_replayed(number) {
            return Admission::Refused(Refusal::Replayed);
        }
        if self.data.has(seq) {
            return Admission::Duplicate;
        }
        if block >= self.block_limit || !self.data.may_take(seq) {
            return Admission::Refused(Refusal::BeyondLimit);
        }
        let end = u64::from(offset) + length as u64;
        if length == 0 || end > u64::from(self.config.block_bytes) {
            return Admission::Refused(Refusal::BadPlace);
        }
        Admission::Fresh
    }

    /// Records an authentic packet that [`Receiver::admit`] did not refuse.
    pub fn accept(&mut self, now: Instant, arrival: &Arrival) {
        self.stats.late += u64::from(self.numbers.note(now, arrival.number));
        let Some((seq, length)) = arrival.data else {
            return;
        };
        self.stats.packets += 1;
        if self.stats.packets == 1 {
            self.syn.start(now);
        }
        self.stats.bytes += u64::from(length);
        self.stats.marked += u64::from(arrival.is_marked);
        // An ACK is due even where the data is a duplicate: the ACK that would have prevented the
        // duplicate may have been lost.
        if self.rules.as_ref().is_none_or(|rules| rules.needs_ack(self.stats.packets)) {
            self.acks.need();
        }
        if let Some(gap) = self.data.pass_over(seq) {
            self.note_gap(now, gap);
        }
        self.stats.duplicates += u64::from(!self.data.note(seq));
        if self.due(ReceiverWait::Rules).is_some_and(|due| now >= due) {
            self.fired.note(now, FiredTimer::Rules);
        }
        if let Some((rules, mut context)) = self.rules(now) {
            rules.on_piece(&mut context, arrival.number, seq);
        }
    }

    /// Records an authentic packet that carries only a congestion header. An ACK leaves at once.
    /// The packet number must not be [replayed](Self::is_replayed). `header` is `None` if the
    /// header does not decode.
    pub fn handle_probe(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: Option<&CongestionHeader>,
    ) {
        self.accept(now, arrival);
        if let Some(header) = header {
            self.echoes.note(arrival.number, header);
        }
        self.acks.need_now(now);
    }

    /// Records the congestion header of a packet just [accepted](Self::accept). Call once per
    /// packet.
    pub fn note_congestion(&mut self, number: PacketNumber, header: &CongestionHeader) {
        self.echoes.note(number, header);
    }

    /// Handles newly missing data.
    fn note_gap(&mut self, now: Instant, gap: NumberRange) {
        if let Some((rules, mut context)) = self.rules(now) {
            rules.on_gap(&mut context, gap);
        }
        if self.config.reports.has_naks() && self.config.policy == LossPolicy::Historical {
            self.report(now, gap, K_START);
        }
    }

    /// Returns the channel rules of a related protocol, and the parts of the receiver that they use.
    fn rules(&mut self, now: Instant) -> Option<(&mut dyn ReceiverRules, ReceiverContext<'_>)> {
        let rules = self.rules.as_deref_mut()?;
        let context = ReceiverContext {
            now,
            data: &self.data,
            rtt: self.rtt.estimate,
            stats: &mut self.stats,
            acks: &mut self.acks,
            lists: &mut self.lists,
        };
        Some((rules, context))
    }

    /// Processes a mark: the sender has sent everything before the mark's end, and nothing more for
    /// now.
    pub fn handle_mark(&mut self, now: Instant, mark: Mark) {
        let has_marks = self.rules.as_ref().is_some_and(|rules| rules.has_marks());
        if !has_marks || mark.end.0 > self.data.next().0.saturating_add(MARK_AHEAD_MAX) {
            return;
        }
        // The tail is lost or late.
        let tail = self.data.pass_over(mark.end);
        // Where nothing is missing, the sender waits only for this ACK.
        self.acks.need_now(now);
        if let Some((rules, mut context)) = self.rules(now) {
            rules.on_mark(&mut context, mark, tail);
        }
    }

    /// Queues a loss report. DEV-023: the published reports of 2002 list single numbers.
    fn nak(&mut self, range: NumberRange) {
        self.stats.reported += range.count();
        match self.naks.back_mut() {
            Some(ranges)
                if ranges.len() < MAX_RANGES
                    && ranges.last().is_some_and(|last| last.last < range.first) =>
            {
                ranges.push(range);
            }
            _ => self.naks.push_back(vec![range]),
        }
    }

    /// Historical policy: reports a range of sequence numbers and plans the repeat.
    fn report(&mut self, now: Instant, range: NumberRange, k: u64) {
        self.nak(range);
        let rule = &self.config.reports;
        let rtt = self.rtt.of(rule.repeat_rtt);
        self.repeats.plan(now, range, k, rule.repeat, rtt, self.syn.clock());
    }

    /// Processes an ACK2: the ACK of this serial number has arrived; zero requests an ACK at once.
    pub fn handle_ack2(&mut self, now: Instant, serial: u64) {
        if serial == 0 {
            self.acks.need_now(now);
        } else if let Some((sent_at, listed)) = self.acks.confirm(serial) {
            self.rtt.note(now.since(sent_at));
            self.numbers.confirm(&listed);
        }
    }

    /// Raises the flow-control limit: the caller has room for all blocks below `limit`.
    pub const fn open_to(&mut self, limit: u32) {
        if limit > self.block_limit {
            self.block_limit = limit;
            self.acks.need();
        }
    }

    /// Limits the holes in the data: an honest sender leaves no more in the announced room. Data that would add a hole
    /// is dropped.
    pub fn limit_holes(&mut self, holes: usize) {
        self.data.limit_holes(holes);
    }

    /// Records the total of packets dropped by the socket since the start.
    pub fn note_overflow(&mut self, total: u64) {
        self.acks.note_overflow(total);
    }

    /// Returns the next report to send, or the time until which there is no report.
    pub fn poll(&mut self, now: Instant) -> Polled<Feedback, ReceiverWait> {
        match self.next_report(now) {
            Some(report) => Polled::Ready(report),
            None => self.wait(),
        }
    }

    fn next_report(&mut self, now: Instant) -> Option<Feedback> {
        self.run_timers(now);
        // The overflow count must precede the losses that the overflow caused.
        let explains = self.acks.has_unreported_overflow() && !self.naks.is_empty();
        let is_due = self.due(ReceiverWait::Ack).is_some_and(|due| now >= due);
        if explains || is_due {
            if is_due {
                self.fired.note(now, FiredTimer::Ack);
            }
            return Some(Feedback::Ack(self.ack(now)));
        }
        if let Some(ranges) = self.naks.pop_front() {
            return Some(Feedback::Nak(Nak { policy: self.config.policy, ranges }));
        }
        if let Some(report) = self.lists.next(&self.data, &mut self.stats) {
            return Some(report);
        }
        // A SYN report follows the losses detected in the interval that it ends.
        let received = self.syn.next(now, self.stats.packets)?;
        self.fired.note(now, FiredTimer::Syn);
        Some(Feedback::Syn { received })
    }

    /// Runs the timers that create reports. ACKs and SYN reports are created when they leave.
    fn run_timers(&mut self, now: Instant) {
        while let Some(missing) = self.numbers.next_lost(now, self.rtt.estimate) {
            if !missing.is_empty() {
                self.fired.note(now, FiredTimer::Gap);
            }
            for range in missing {
                self.nak(range);
            }
        }
        while let Some((range, k)) = self.repeats.next(now) {
            let still: Vec<_> = self.data.missing().overlap(range).collect();
            if !still.is_empty() {
                self.fired.note(now, FiredTimer::Repeat);
            }
            for range in still {
                self.report(now, range, k + 1);
            }
        }
        if let Some((rules, mut context)) = self.rules(now) {
            rules.run(&mut context);
        }
    }

    fn ack(&mut self, now: Instant) -> Ack {
        let missing = self.numbers.list_unconfirmed();
        let rtt_min = self.rtt.estimate.map(|rtt| rtt.min);
        let interval = self.config.reports.ack_interval(rtt_min);
        let (largest, arrived) = self.numbers.largest().unwrap_or((PacketNumber(0), now));
        Ack {
            serial: self.acks.send(now, interval, missing.clone()),
            seq: self.ack_seq(),
            largest,
            delay: now.since(arrived),
            arrived_at: arrived.elapsed(),
            packets: self.stats.packets,
            bytes: self.stats.bytes,
            marked: self.stats.marked,
            overflowed: self.acks.overflowed(),
            block_limit: self.block_limit,
            missing,
            echo: self.echoes.newest(),
        }
    }

    /// Returns when a timer fires; `None` where the timer is not armed.
    #[inline(always)] // Called for each packet.
    fn due(&self, timer: ReceiverWait) -> Option<Instant> {
        match timer {
            ReceiverWait::Arrival => None,
            ReceiverWait::Ack => self.acks.due(),
            ReceiverWait::Repeat => self.repeats.due(),
            ReceiverWait::Gap => self.numbers.gap_due(self.rtt.estimate),
            ReceiverWait::Syn => self.syn.due(),
            ReceiverWait::Rules => self.rules.as_ref()?.due(),
        }
    }

    /// Returns the earliest deadline of all timers.
    fn wait(&self) -> Polled<Feedback, ReceiverWait> {
        debug_assert!(self.naks.is_empty() && self.lists.is_empty(), "all reports have left");
        let (mut until, mut because) = (None, ReceiverWait::Arrival);
        for timer in ReceiverWait::TIMERS {
            let due = self.due(timer);
            if due.is_some_and(|due| until.is_none_or(|until| due < until)) {
                (until, because) = (due, timer);
            }
        }
        Polled::Wait { until, because }
    }

    /// Checks the invariants that hold between any two calls.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check_invariants(&self) {
        self.numbers.check_invariants();
        self.data.check_invariants();
        if let Some(rules) = &self.rules {
            rules.check_invariants();
        }
        self.syn.check_invariants(self.stats.packets);
    }
}

/// Event that a receiver waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverWait {
    /// An arrival; no timer is armed.
    Arrival,
    /// The next ACK may leave.
    Ack,
    /// A gap counts as a loss.
    Gap,
    /// A loss is reported again.
    Repeat,
    /// A SYN report is due, whatever has arrived.
    Syn,
    /// The channel rules list missing pieces.
    Rules,
}

impl ReceiverWait {
    /// All timers.
    const TIMERS: [Self; 5] = [Self::Ack, Self::Gap, Self::Repeat, Self::Syn, Self::Rules];
}

#[cfg(test)]
#[path = "receiver/tests.rs"]
mod tests;
