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
//! `reorder`; what other rules of the channel report is in `bulk`.
//! Invariants:  `largest` and every missing number below it account for all packet numbers.
//! Not here:    bytes; the owner opens and stores them where [`Receiver::admit`] allows.

mod bulk;
mod reorder;

use std::collections::{BTreeSet, VecDeque};

use sabul_cc::{ChannelRules, RttEstimate};
use sabul_units::{Instant, PacketNumber, SeqNo, Span};
use sabul_wire::{Ack, DataHeader, Feedback, LossPolicy, MAX_RANGES, Nak, NumberRange};

use crate::interval_set::IntervalSet;
use crate::reports::{ERR_INTERVAL, Repeat, RepeatRtt, ReportRule};
use crate::rtt;
use bulk::Bulk;
use reorder::Gaps;
pub(crate) use reorder::WINDOW_MAX;

/// [SABUL §II-D] A loss is reported again after k × RTT; k starts here and grows by one with each
/// report, so that NAKs never bury a blocked path.
const REPEAT_K_START: u64 = 2;
/// Ours: what RTT stands for until one is known.
const RTT_UNKNOWN: Span = Span::from_millis(100);
/// Ours: no round trip counts as shorter.
const RTT_SAMPLE_MIN: Span = Span::from_micros(1);
/// Ours: holes in the sequence numbers; data that would make more is dropped until some are filled.
const HOLES_MAX: usize = 1 << 18;
/// Ours: a loss is repeated no sooner, however short the round trip is said to be: the sender times it.
const REPEAT_MIN: Span = Span::from_millis(1);
/// Ours: and no more than so many ranges are repeated within each so long.
const REPEAT_RANGES: u32 = 4000;
const REPEAT_PERIOD: Span = Span::from_millis(10);
/// Ours: packet numbers this far below the largest are forgotten and count as replayed.
const REPLAY_WINDOW: u64 = 1 << 20;
/// Ours: ACKs whose confirmation is still awaited; older ones are given up and reported anew.
const ACK_LOG_MAX: usize = 256;

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

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Authentic DATA packets.
    pub packets: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// DATA packets whose data was here already.
    pub duplicates: u64,
    /// Numbers reported missing, each report counted.
    pub reported: u64,
    /// Packets that had been reported missing and came all the same: late, not lost.
    pub late: u64,
    /// Packets with the ECN mark.
    pub marked: u64,
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    stats: ReceiverStats,
    rtt: Option<RttEstimate>,
    first_rtt: Option<Span>,
    // Packet numbers.
    largest: Option<(PacketNumber, Instant)>,
    missing_numbers: IntervalSet,
    /// Current policy: numbers passed over, reported or not yet.
    gaps: Gaps,
    /// Current policy: missing numbers that have been reported and that the sender has not confirmed
    /// to know of.
    unconfirmed: IntervalSet,
    // Data sequence numbers.
    next_seq: SeqNo,
    missing_seqs: IntervalSet,
    /// Historical policy: (when, first, last, k) of reports to repeat unless the data has come.
    repeats: BTreeSet<(Instant, u64, u64, u64)>,
    /// How many of them have been repeated in this period.
    repeated: u32,
    repeat_period_end: Instant,
    // Feedback.
    naks: VecDeque<Vec<NumberRange>>,
    ack_wanted: bool,
    next_ack: Instant,
    serial: u64,
    ack_log: VecDeque<(u64, Instant, Vec<NumberRange>)>,
    /// Where the next ACK goes on listing unconfirmed numbers.
    list_from: u64,
    overflowed: u64,
    overflow_reported: u64,
    block_limit: u32,
    // Periodic reports.
    /// When the first DATA packet came: SYN reports and checks for repeats count from there.
    opened_at: Instant,
    next_syn: Option<Instant>,
    /// DATA packets that SYN reports have told of.
    syn_packets: u64,
    bulk: Bulk,
}

impl Receiver {
    /// A receiver at the start of a channel.
    ///
    /// # Panics
    /// If the rule has a SYN interval of zero.
    pub const fn new(config: ReceiverConfig) -> Self {
        assert!(
            !matches!(config.reports.syn_interval, Some(Span::ZERO)),
            "a SYN report every zero seconds would never end"
        );
        Self {
            config,
            stats: ReceiverStats {
                packets: 0,
                bytes: 0,
                duplicates: 0,
                reported: 0,
                late: 0,
                marked: 0,
            },
            rtt: None,
            first_rtt: None,
            largest: None,
            missing_numbers: IntervalSet::new(),
            gaps: Gaps::new(),
            unconfirmed: IntervalSet::new(),
            next_seq: SeqNo(0),
            missing_seqs: IntervalSet::new(),
            repeats: BTreeSet::new(),
            repeated: 0,
            repeat_period_end: Instant::ZERO,
            naks: VecDeque::new(),
            ack_wanted: false,
            next_ack: Instant::ZERO,
            serial: 0,
            ack_log: VecDeque::new(),
            list_from: 0,
            overflowed: 0,
            overflow_reported: 0,
            block_limit: config.block_limit,
            opened_at: Instant::ZERO,
            next_syn: None,
            syn_packets: 0,
            bulk: Bulk::new(),
        }
    }

    /// Counts since the start.
    pub const fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// The round trip, once an ACK has been confirmed.
    pub const fn rtt(&self) -> Option<RttEstimate> {
        self.rtt
    }

    /// All data before this number has been received.
    pub fn ack_seq(&self) -> SeqNo {
        self.missing_seqs.first().map_or(self.next_seq, SeqNo)
    }

    /// The full numbers of a packet whose low halves these are.
    pub fn expand(&self, header: &DataHeader) -> (PacketNumber, SeqNo) {
        (self.expand_number(header.number_low), SeqNo::expand(header.seq_low, self.next_seq))
    }

    /// The full packet number whose low half this is.
    pub fn expand_number(&self, low: u32) -> PacketNumber {
        let near = self.largest.map_or(PacketNumber(0), |(number, _)| number);
        PacketNumber::expand(low, near)
    }

    /// A round trip seen while the path was opened. DEV-022: published is one of the TCP connection.
    pub fn seed_rtt(&mut self, sample: Span) {
        self.note_rtt(sample);
    }

    fn note_rtt(&mut self, sample: Span) {
        // Never zero, or repeats after k × RTT would never end.
        let sample = sample.max(RTT_SAMPLE_MIN);
        self.rtt = Some(rtt::update(self.rtt, sample));
        self.first_rtt = self.first_rtt.or(Some(sample));
    }

    /// Packet numbers start after those used while the path was opened.
    pub fn start_after(&mut self, now: Instant, largest: PacketNumber) {
        self.largest = Some((largest, now));
    }

    /// Whether a packet number can be new.
    pub fn is_replayed(&self, number: PacketNumber) -> bool {
        match self.largest {
            Some((largest, _)) if number <= largest => {
                number.0 + REPLAY_WINDOW < largest.0 || !self.missing_numbers.contains(number.0)
            }
            _ => false,
        }
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
        if seq < self.next_seq && !self.missing_seqs.contains(seq.0) {
            return Admission::Duplicate;
        }
        let makes_hole = seq > self.next_seq || self.missing_seqs.would_split(seq.0);
        if block >= self.block_limit || (makes_hole && self.missing_seqs.range_count() >= HOLES_MAX)
        {
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
        self.note_number(now, arrival.number);
        let Some((seq, length)) = arrival.data else {
            return;
        };
        self.stats.packets += 1;
        if self.stats.packets == 1 {
            self.opened_at = now;
            self.next_syn = self.config.reports.syn_interval.map(|interval| now + interval);
        }
        self.stats.bytes += u64::from(length);
        self.stats.marked += u64::from(arrival.is_marked);
        // Something new for the sender, even where the data is a duplicate: the ACK that would
        // have spared it may have been lost.
        self.ack_wanted |= self.is_ack_due();
        if seq >= self.next_seq {
            if seq > self.next_seq {
                let gap = NumberRange { first: self.next_seq.0, last: seq.0 - 1 };
                self.missing_seqs.insert(gap);
                if self.config.reports.channel != ChannelRules::Standard {
                    self.note_gap(now, gap);
                } else if self.config.policy == LossPolicy::Historical {
                    self.report(now, gap, REPEAT_K_START);
                }
            }
            self.next_seq = seq.next();
        } else if !self.missing_seqs.remove(seq.0) {
            self.stats.duplicates += 1;
        }
        if self.config.reports.channel != ChannelRules::Standard {
            self.note_piece(now, seq);
        }
    }

    fn note_number(&mut self, now: Instant, number: PacketNumber) {
        // Numbers count from zero: a first packet that is not number zero shows a gap before it.
        let expected = self.largest.map_or(0, |(largest, _)| largest.0 + 1);
        if number.0 < expected {
            let was_missing = self.missing_numbers.remove(number.0);
            self.unconfirmed.remove(number.0);
            if was_missing && self.config.policy == LossPolicy::Current {
                self.stats.late += u64::from(self.gaps.fill(now, number));
            }
            return;
        }
        if number.0 > expected {
            let gap = NumberRange { first: expected, last: number.0 - 1 };
            self.missing_numbers.insert(gap);
            self.missing_numbers.remove_below(number.0.saturating_sub(REPLAY_WINDOW));
            if self.config.policy == LossPolicy::Current {
                self.unconfirmed.remove_below(number.0.saturating_sub(REPLAY_WINDOW));
                self.gaps.open(now, gap);
            }
        }
        self.largest = Some((number, now));
    }

    /// Current policy: reports what is still missing of the gaps that have been open for long enough.
    fn report_gaps(&mut self, now: Instant) {
        while let Some(gap) = self.gaps.next_lost(now, self.rtt) {
            let missing: Vec<_> = self.missing_numbers.overlap(gap).collect();
            if !missing.is_empty() {
                self.gaps.note_lost();
            }
            for range in missing {
                // DEV-007: packet numbers, each reported once; confirmed by ACK2, not repeated.
                self.unconfirmed.insert(range);
                self.nak(range);
            }
        }
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
        let rtt = match self.config.reports.repeat_rtt {
            RepeatRtt::Averaged => self.rtt.map(|rtt| rtt.smoothed),
            RepeatRtt::First => self.first_rtt,
        };
        let rtt = rtt.unwrap_or(RTT_UNKNOWN);
        let due = match self.config.reports.repeat {
            Repeat::KTimesRtt => now + (rtt * k).max(REPEAT_MIN),
            // The first check that finds the report older than that.
            Repeat::Periodic => self.next_of(ERR_INTERVAL, now + ReportRule::report_age(rtt)),
        };
        self.repeats.insert((due, range.first, range.last, k));
    }

    /// Historical policy: whether one more range may be repeated now; takes note of it.
    fn may_repeat(&mut self, now: Instant) -> bool {
        if now >= self.repeat_period_end {
            (self.repeat_period_end, self.repeated) = (now + REPEAT_PERIOD, 0);
        }
        let may = self.repeated < REPEAT_RANGES;
        self.repeated += u32::from(may);
        may
    }

    /// The first time after `now` that is a whole number of intervals after the first DATA packet.
    fn next_of(&self, interval: Span, now: Instant) -> Instant {
        self.opened_at + interval * (now.since(self.opened_at).0 / interval.0 + 1)
    }

    /// The sender has seen the ACK of this serial number; zero asks for an ACK at once.
    pub fn handle_ack2(&mut self, now: Instant, serial: u64) {
        if serial == 0 {
            self.ack_wanted = true;
            self.next_ack = now;
            return;
        }
        while let Some((logged, sent_at, _)) = self.ack_log.front() {
            if *logged > serial {
                return;
            }
            let (logged, sent_at) = (*logged, *sent_at);
            let Some((_, _, ranges)) = self.ack_log.pop_front() else {
                return;
            };
            // Only the very ACK that was answered is known to have arrived.
            if logged == serial {
                self.note_rtt(now.since(sent_at));
                for range in ranges {
                    self.unconfirmed.remove_range(range);
                }
            }
        }
    }

    /// The owner has room for all blocks below `limit`.
    pub fn open_to(&mut self, limit: u32) {
        if limit > self.block_limit {
            self.block_limit = limit;
            self.ack_wanted = true;
        }
    }

    /// The socket has dropped this many packets since the start.
    pub fn note_overflow(&mut self, total: u64) {
        self.overflowed = self.overflowed.max(total);
    }

    /// The next report to send now, if there is one. Call until it gives none.
    pub fn poll_feedback(&mut self, now: Instant) -> Option<Feedback> {
        self.report_gaps(now);
        while let Some(&(due, first, last, k)) = self.repeats.first() {
            if due > now || !self.may_repeat(now) {
                break;
            }
            self.repeats.pop_first();
            let still: Vec<_> = self.missing_seqs.overlap(NumberRange { first, last }).collect();
            for range in still {
                self.report(now, range, k + 1);
            }
        }
        if self.config.reports.channel != ChannelRules::Standard {
            self.run_bulk(now);
        }
        // The overflow count goes ahead of the losses that it explains.
        let explains = self.overflowed > self.overflow_reported && !self.naks.is_empty();
        if explains || (self.ack_wanted && now >= self.next_ack) {
            self.ack_wanted = false;
            self.overflow_reported = self.overflowed;
            let rtt_min = self.rtt.map(|rtt| rtt.min);
            self.next_ack = now + self.config.reports.ack_interval(rtt_min);
            return Some(Feedback::Ack(self.ack(now)));
        }
        if let Some(ranges) = self.naks.pop_front() {
            return Some(Feedback::Nak(Nak { policy: self.config.policy, ranges }));
        }
        if self.config.reports.channel != ChannelRules::Standard {
            return self.next_list();
        }
        // After the losses that were noticed in the interval that it ends.
        self.syn(now)
    }

    /// The SYN report, if it is due; one stands for all that nobody asked for in time.
    fn syn(&mut self, now: Instant) -> Option<Feedback> {
        let interval = self.config.reports.syn_interval?;
        self.next_syn.filter(|due| *due <= now)?;
        self.next_syn = Some(self.next_of(interval, now));
        let received = self.stats.packets - self.syn_packets;
        self.syn_packets = self.stats.packets;
        Some(Feedback::Syn { received })
    }

    fn ack(&mut self, now: Instant) -> Ack {
        self.serial += 1;
        let missing = self.list_unconfirmed();
        if self.ack_log.len() == ACK_LOG_MAX {
            self.ack_log.pop_front();
        }
        self.ack_log.push_back((self.serial, now, missing.clone()));
        let (largest, arrived) = self.largest.unwrap_or((PacketNumber(0), now));
        Ack {
            serial: self.serial,
            seq: self.ack_seq(),
            largest,
            delay: now.since(arrived),
            arrived_at: arrived.elapsed(),
            packets: self.stats.packets,
            bytes: self.stats.bytes,
            marked: self.stats.marked,
            overflowed: self.overflowed,
            block_limit: self.block_limit,
            missing,
        }
    }

    /// A report's worth of unconfirmed numbers, going round where there are more: with fewer than
    /// [`MAX_RANGES`] the list is complete.
    fn list_unconfirmed(&mut self) -> Vec<NumberRange> {
        let from = self.list_from;
        let behind: Vec<_> = self.unconfirmed.iter_from(from).take(MAX_RANGES).collect();
        let room = MAX_RANGES - behind.len();
        let before = self.unconfirmed.iter().take_while(|range| range.last < from).take(room);
        let mut missing: Vec<_> = before.collect();
        let last = missing.last().or_else(|| behind.last()).copied();
        missing.extend(behind);
        self.list_from = match last {
            Some(last) if missing.len() == MAX_RANGES => last.last + 1,
            _ => 0,
        };
        missing
    }

    /// When to poll again though nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        if !self.naks.is_empty() || self.has_list() {
            return Some(Instant::ZERO);
        }
        let ack = self.ack_wanted.then_some(self.next_ack);
        let repeat = self.repeats.first().map(|(due, ..)| match self.repeated {
            ..REPEAT_RANGES => *due,
            REPEAT_RANGES.. => (*due).max(self.repeat_period_end),
        });
        let gap = self.gaps.deadline(self.rtt);
        Instant::earliest([ack, repeat, gap, self.next_syn, self.bulk_deadline()])
    }

    /// What must hold between any two calls.
    ///
    /// # Panics
    /// If it does not.
    pub fn check_invariants(&self) {
        self.missing_numbers.check_invariants();
        self.missing_seqs.check_invariants();
        self.unconfirmed.check_invariants();
        let largest = self.largest.map_or(0, |(number, _)| number.0);
        assert!(!self.missing_numbers.contains(largest), "the largest number has arrived");
        assert!(self.missing_numbers.iter().all(|range| range.last < largest.max(1)));
        assert!(self.missing_seqs.iter().all(|range| range.last < self.next_seq.0));
        for range in self.unconfirmed.iter() {
            let inside: u64 = self.missing_numbers.overlap(range).map(NumberRange::count).sum();
            assert_eq!(inside, range.count(), "only missing numbers await confirmation");
        }
        self.check_bulk();
        assert!(self.syn_packets <= self.stats.packets, "SYN reports tell of packets that came");
        let has_syn = self.config.reports.syn_interval.is_some() && self.stats.packets > 0;
        assert_eq!(self.next_syn.is_some(), has_syn, "SYN reports go on for ever");
    }
}

#[cfg(test)]
#[path = "receiver/tests.rs"]
mod tests;
