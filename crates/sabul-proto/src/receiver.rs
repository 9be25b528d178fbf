//! The receiving end of a channel: what is wanted, what is missing, when to say so.
//!
//! Source: [SABUL §II-C, §II-D]: ACK each SYN interval when something new arrived, NAK at once on a
//! gap, ranges compressed, a loss reported again after k × RTT with k = 2, 3, … What differs in 2002
//! is in [`ReportRule`].
//!
//! Two loss policies. *Historical* reports data sequence numbers as published. *Current* reports
//! packet numbers: a retransmission has a new one, so a lost retransmission shows as a new gap at
//! once, and each transmission is reported lost at most once. Since a NAK may itself be lost on UDP,
//! what the sender has not confirmed (ACK2) rides along in the ACKs. When a gap counts as a loss is in
//! `reorder`; what other rules of the channel report is in `rules`.
//! States:      of packet numbers: `numbers`; of data: `sequence`; of ACKs: `acks`.
//! Not here:    bytes; the owner opens and stores them where [`Receiver::admit`] allows.

mod acks;
mod echoes;
mod lists;
mod numbers;
mod reorder;
mod repeats;
mod rules;
mod sequence;
mod stats;
mod syn;

use std::collections::VecDeque;

use sabul_cc::RttEstimate;
use sabul_units::{CongestionHeader, Instant, PacketNumber, Polled, SeqNo, Span};
use sabul_wire::{Ack, DataHeader, Feedback, LossPolicy, MAX_RANGES, Mark, Nak, NumberRange};

use crate::fired::{Fired, FiredLog};
use crate::reports::{RepeatRtt, ReportRule};
use crate::rtt;
use acks::Acks;
use echoes::Echoes;
use lists::Lists;
use numbers::Numbers;
pub(crate) use numbers::REPLAY_WINDOW;
pub(crate) use reorder::WINDOW_MAX;
use repeats::{K_START, Repeats};
use rules::{Desk, Rules};
use sequence::Sequence;
use syn::{Clock, SynReports};

pub use stats::ReceiverStats;

/// Ours: no round trip counts as shorter.
const RTT_SAMPLE_MIN: Span = Span::from_micros(1);
/// Ours: a mark this far beyond what has come is no honest one.
const MARK_AHEAD_MAX: u64 = 1 << 40;

/// How a receiver behaves.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// Which numbers its loss reports name.
    pub policy: LossPolicy,
    /// Bytes of a full block.
    pub block_bytes: u32,
    /// Blocks for which there is room at first.
    pub block_limit: u32,
    /// When it reports; the sender has the same.
    pub reports: ReportRule,
}

/// What to do with a DATA packet whose header has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Open it into its place.
    Fresh,
    /// Its data is here already; open it aside, for its number counts if it is authentic.
    Duplicate,
    /// Drop it unopened.
    Refused(Refusal),
}

/// Why a DATA packet is dropped unopened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This packet number has been accepted before, or is too old to tell.
    Replayed,
    /// There is no room for its block, or there are too many holes before it.
    BeyondLimit,
    /// Its place is outside a block.
    BadPlace,
}

/// An authentic packet from the sender.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its packet number.
    pub number: PacketNumber,
    /// The data in it; none for packets of other kinds.
    pub data: Option<(SeqNo, u32)>,
    /// It carried the ECN mark.
    pub is_marked: bool,
}

/// The round trip as the receiver knows it.
#[derive(Debug, Default)]
struct RoundTrip {
    estimate: Option<RttEstimate>,
    first: Option<Span>,
}

impl RoundTrip {
    fn note(&mut self, sample: Span) {
        // Never zero, or repeats after k × RTT would never end.
        let sample = sample.max(RTT_SAMPLE_MIN);
        self.estimate = Some(rtt::update(self.estimate, sample));
        self.first = self.first.or(Some(sample));
    }

    /// The one that repeats go by.
    fn of(&self, which: RepeatRtt) -> Span {
        let known = match which {
            RepeatRtt::Averaged => self.estimate.map(|rtt| rtt.smoothed),
            RepeatRtt::First => self.first,
        };
        known.unwrap_or(rtt::UNKNOWN_TO_RECEIVER)
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    stats: ReceiverStats,
    rtt: RoundTrip,
    numbers: Numbers,
    data: Sequence,
    /// Losses to report now.
    naks: VecDeque<Vec<NumberRange>>,
    repeats: Repeats,
    acks: Acks,
    clock: Clock,
    syn: SynReports,
    rules: Rules,
    lists: Lists,
    block_limit: u32,
    echoes: Echoes,
    fired: FiredLog,
}

impl Receiver {
    /// A receiver at the start of a channel.
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
            clock: Clock::new(),
            syn: SynReports::new(config.reports.syn_interval),
            rules: Rules::new(config.reports.channel),
            lists: Lists::new(),
            block_limit: config.block_limit,
            echoes: Echoes::default(),
            fired: FiredLog::default(),
        }
    }

    /// From now on keeps which timers fire, for [`Self::next_fired`].
    pub fn listen(&mut self) {
        self.fired.listen();
    }

    /// The oldest timer that fired and was not fetched yet.
    pub fn next_fired(&mut self) -> Option<Fired> {
        self.fired.next()
    }

    /// Counts since the start.
    pub const fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// The round trip, once an ACK has been confirmed.
    pub const fn rtt(&self) -> Option<RttEstimate> {
        self.rtt.estimate
    }

    /// All data before this number has been received.
    pub fn ack_seq(&self) -> SeqNo {
        self.data.complete()
    }

    /// The full numbers of a packet whose low halves these are.
    pub fn expand(&self, header: &DataHeader) -> (PacketNumber, SeqNo) {
        (self.expand_number(header.number_low), SeqNo::expand(header.seq_low, self.data.next()))
    }

    /// The full packet number whose low half this is.
    pub fn expand_number(&self, low: u32) -> PacketNumber {
        let near = self.numbers.largest().map_or(PacketNumber(0), |(number, _)| number);
        PacketNumber::expand(low, near)
    }

    /// A round trip seen while the path was opened. DEV-022: published is one of the TCP connection.
    pub fn seed_rtt(&mut self, sample: Span) {
        self.rtt.note(sample);
    }

    /// Packet numbers start after those used while the path was opened.
    pub const fn start_after(&mut self, now: Instant, largest: PacketNumber) {
        self.numbers.set_largest(now, largest);
    }

    /// Whether a packet number can be new.
    pub fn is_replayed(&self, number: PacketNumber) -> bool {
        self.numbers.is_replayed(number)
    }

    /// Whether a DATA packet is wanted, judged by its readable header alone.
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

    /// Takes note of an authentic packet that [`Receiver::admit`] did not refuse.
    pub fn accept(&mut self, now: Instant, arrival: &Arrival) {
        self.stats.late += u64::from(self.numbers.note(now, arrival.number));
        let Some((seq, length)) = arrival.data else {
            return;
        };
        self.stats.packets += 1;
        if self.stats.packets == 1 {
            self.clock.start(now);
            self.syn.start(now);
        }
        self.rules.note_number(now, arrival.number);
        self.stats.bytes += u64::from(length);
        self.stats.marked += u64::from(arrival.is_marked);
        // Something new for the sender, even where the data is a duplicate: the ACK that would
        // have spared it may have been lost.
        if self.rules.wants_ack(self.stats.packets) {
            self.acks.want();
        }
        if let Some(gap) = self.data.pass_over(seq) {
            self.note_gap(now, gap);
        }
        self.stats.duplicates += u64::from(!self.data.note(seq));
        if !self.rules.has_naks() {
            if self.due(ReceiverWait::Rules).is_some_and(|due| now >= due) {
                self.fired.note(now, "rules", "due");
            }
            let (rules, mut desk) = self.desk(now);
            rules.on_piece(&mut desk, seq);
        }
    }

    /// Takes note of an authentic packet that carries nothing but a congestion header, whose number is not
    /// [replayed](Self::is_replayed): an ACK leaves at once. One whose header does not decode says nothing but that.
    pub fn handle_ask(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        header: Option<&CongestionHeader>,
    ) {
        self.accept(now, arrival);
        if let Some(header) = header {
            self.echoes.note(arrival.number, header);
        }
        self.acks.want_now(now);
    }

    /// Takes note of the congestion header of a packet that was just [accepted](Self::accept), each once.
    pub fn note_congestion(&mut self, number: PacketNumber, header: &CongestionHeader) {
        self.echoes.note(number, header);
    }

    /// Data is missing that nobody knew of.
    fn note_gap(&mut self, now: Instant, gap: NumberRange) {
        if !self.rules.has_naks() {
            let (rules, mut desk) = self.desk(now);
            rules.on_gap(&mut desk, gap);
        } else if self.config.policy == LossPolicy::Historical {
            self.report(now, gap, K_START);
        }
    }

    /// The rules, and what they may look at.
    const fn desk(&mut self, now: Instant) -> (&mut Rules, Desk<'_>) {
        let desk = Desk {
            now,
            data: &self.data,
            rtt: self.rtt.estimate,
            stats: &mut self.stats,
            acks: &mut self.acks,
            lists: &mut self.lists,
        };
        (&mut self.rules, desk)
    }

    /// The sender has sent everything before the mark's end, and nothing more for now.
    pub fn handle_mark(&mut self, now: Instant, mark: Mark) {
        if !self.rules.has_marks() || mark.end.0 > self.data.next().0.saturating_add(MARK_AHEAD_MAX)
        {
            return;
        }
        // The tail is lost, or late.
        let tail = self.data.pass_over(mark.end);
        // Where nothing is missing, that is all the sender waits for.
        self.acks.want_now(now);
        let (rules, mut desk) = self.desk(now);
        rules.on_mark(&mut desk, mark, tail);
    }

    /// DEV-023: published for 2002 are single numbers.
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
        self.repeats.plan(now, range, k, rule.repeat, rtt, &self.clock);
    }

    /// The sender has seen the ACK of this serial number; zero asks for an ACK at once.
    pub fn handle_ack2(&mut self, now: Instant, serial: u64) {
        if serial == 0 {
            self.acks.want_now(now);
        } else if let Some((sent_at, listed)) = self.acks.confirm(serial) {
            self.rtt.note(now.since(sent_at));
            self.numbers.confirm(&listed);
        }
    }

    /// The owner has room for all blocks below `limit`.
    pub const fn open_to(&mut self, limit: u32) {
        if limit > self.block_limit {
            self.block_limit = limit;
            self.acks.want();
        }
    }

    /// The socket has dropped this many packets since the start.
    pub fn note_overflow(&mut self, total: u64) {
        self.acks.note_overflow(total);
    }

    /// The next report to send, or until when there is none.
    pub fn poll(&mut self, now: Instant) -> Polled<Feedback, ReceiverWait> {
        match self.next_report(now) {
            Some(report) => Polled::Ready(report),
            None => self.wait(),
        }
    }

    fn next_report(&mut self, now: Instant) -> Option<Feedback> {
        self.run_timers(now);
        // The overflow count goes ahead of the losses that it explains.
        let explains = self.acks.has_untold_overflow() && !self.naks.is_empty();
        let is_due = self.due(ReceiverWait::Ack).is_some_and(|due| now >= due);
        if explains || is_due {
            if is_due {
                self.fired.note(now, "ack", "due");
            }
            return Some(Feedback::Ack(self.ack(now)));
        }
        if let Some(ranges) = self.naks.pop_front() {
            return Some(Feedback::Nak(Nak { policy: self.config.policy, ranges }));
        }
        if !self.rules.has_naks() {
            let report = self.lists.next(&self.data, &mut self.stats)?;
            self.rules.note_listed(&report);
            return Some(report);
        }
        if let Some(report) = self.rules.report_pairs(now) {
            return Some(report);
        }
        // After the losses that were noticed in the interval that it ends.
        let received = self.syn.next(now, &self.clock, self.stats.packets)?;
        self.fired.note(now, "syn", "interval-over");
        Some(Feedback::Syn { received })
    }

    /// What makes reports; ACKs and SYN reports are made when they leave.
    fn run_timers(&mut self, now: Instant) {
        while let Some(missing) = self.numbers.next_lost(now, self.rtt.estimate) {
            if !missing.is_empty() {
                self.fired.note(now, "gap", "open-too-long");
            }
            for range in missing {
                self.nak(range);
            }
        }
        while let Some((range, k)) = self.repeats.next(now) {
            let still: Vec<_> = self.data.missing().overlap(range).collect();
            if !still.is_empty() {
                self.fired.note(now, "repeat", "still-missing");
            }
            for range in still {
                self.report(now, range, k + 1);
            }
        }
        if !self.rules.has_naks() {
            let (rules, mut desk) = self.desk(now);
            rules.run(&mut desk);
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

    /// When something has to be done though nothing happens.
    #[inline(always)] // Asked for each packet.
    fn due(&self, timer: ReceiverWait) -> Option<Instant> {
        match timer {
            ReceiverWait::Arrival => None,
            ReceiverWait::Ack => self.acks.due(),
            ReceiverWait::Repeat => self.repeats.due(),
            ReceiverWait::Gap => self.numbers.gap_due(self.rtt.estimate),
            ReceiverWait::Syn => self.syn.due(),
            ReceiverWait::Rules => self.rules.due(),
        }
    }

    /// There is nothing to report until the first timer runs out.
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

    /// What must hold between any two calls.
    ///
    /// # Panics
    /// If it does not.
    pub fn check_invariants(&self) {
        self.numbers.check_invariants();
        self.data.check_invariants();
        self.rules.check_invariants();
        self.syn.check_invariants(self.stats.packets);
    }
}

/// What a receiver waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverWait {
    /// That something arrives; there is nothing to report before.
    Arrival,
    /// The next ACK may leave.
    Ack,
    /// A gap has been open for so long that it counts as a loss.
    Gap,
    /// A loss is reported again.
    Repeat,
    /// A SYN report is due, whatever has arrived.
    Syn,
    /// The rules want to list what is missing.
    Rules,
}

impl ReceiverWait {
    /// Those that have a time.
    const TIMERS: [Self; 5] = [Self::Ack, Self::Gap, Self::Repeat, Self::Syn, Self::Rules];
}

#[cfg(test)]
#[path = "receiver/tests.rs"]
mod tests;
