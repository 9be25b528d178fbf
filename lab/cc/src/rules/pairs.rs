//! Packet-pair measurement: the time between the two packets of a pair estimates the bottleneck's
//! time per packet.
//!
//! Source: [UDT4 window.cpp]: the median of the newest 64 times; the mean of those within a factor
//! of 8 of the median.
//! Invariants:  a recorded time is positive; a report leaves at most once a SYN interval.

use sabul_cc::{BulkReport, ChannelRules, SYN_INTERVAL};
use sabul_channel::ReportRule;
use sabul_channel::rules::{PaceReference, ReceiverContext, ReceiverRules, RuleSet, SenderRules};
use sabul_units::{Instant, PacketNumber, SeqNo, Span};
use sabul_wire::Feedback;

/// The first packet of a packet pair has a packet number that is a multiple of this.
/// [UDT4 core.cpp]
const PAIR_EVERY: u64 = 16;

/// [UDT4 core.cpp] Number of times remembered.
const TIMES: usize = 64;
/// [UDT4 window.cpp] Initial value of each time, in nanoseconds.
const TIME_NS_START: u32 = 1_000_000;
/// [UDT4 window.cpp] Times count within this factor of the median, bounds excluded.
const ALIKE: u32 = 8;

/// Standard rules, and packet pairs: of each 16 packets two leave back to back, and the receiver
/// reports the time between their arrivals. [UDT4 core.cpp]
pub const PAIRS: ChannelRules = ChannelRules { name: "pairs", has_naks: true };

pub(super) const RULES: RuleSet = RuleSet {
    rules: PAIRS,
    codes: [6, 7],
    reports: |policy| (policy, ReportRule::of_policy(policy)),
    sender: Some(|| Box::new(Sender)),
    receiver: Some(|| Box::new(Pairs::new())),
};

#[derive(Debug)]
struct Sender;

impl SenderRules for Sender {
    fn pace_from(&mut self, number: PacketNumber) -> PaceReference {
        if number.0.is_multiple_of(PAIR_EVERY) { PaceReference::Pair } else { PaceReference::Due }
    }
    fn accepts(&self, report: BulkReport) -> bool {
        matches!(report, BulkReport::PairTime(time) if time > Span::ZERO)
    }
}

/// Packet-pair filter; see the module.
#[derive(Debug)]
struct Pairs {
    /// The newest first packet of a pair, and its arrival time.
    first: Option<(PacketNumber, Instant)>,
    times_ns: [u32; TIMES],
    oldest: usize,
    is_fresh: bool,
    next_report: Instant,
}

impl Pairs {
    fn new() -> Self {
        Self {
            first: None,
            times_ns: [TIME_NS_START; TIMES],
            oldest: 0,
            is_fresh: false,
            next_report: Instant::ZERO,
        }
    }

    /// Records a DATA packet.
    #[inline]
    fn note(&mut self, now: Instant, number: PacketNumber) {
        match number.0 % PAIR_EVERY {
            0 => self.first = Some((number, now)),
            1 => self.note_second(now, number),
            _ => {}
        }
    }

    fn note_second(&mut self, now: Instant, number: PacketNumber) {
        let Some((_, at)) = self.first.take().filter(|(first, _)| first.0 + 1 == number.0) else {
            return;
        };
        let time_ns = u32::try_from(now.since(at).as_nanos()).unwrap_or(u32::MAX);
        // Zero: one system call read both packets and gave both the same time.
        if time_ns > 0 {
            self.times_ns[self.oldest] = time_ns;
            self.oldest = (self.oldest + 1) % TIMES;
            self.is_fresh = true;
        }
    }

    /// Returns a report if it is due and a new time was recorded.
    fn report(&mut self, now: Instant) -> Option<Feedback> {
        if !self.is_fresh || now < self.next_report {
            return None;
        }
        self.is_fresh = false;
        self.next_report = now + SYN_INTERVAL;
        Some(Feedback::PairTime(self.filtered()))
    }

    fn filtered(&self) -> Span {
        let mut sorted = self.times_ns;
        sorted.sort_unstable();
        let median = sorted[TIMES / 2];
        let is_alike = |time: &u32| *time > median / ALIKE && *time < median.saturating_mul(ALIKE);
        // The source counts the median a second time.
        let alike = || sorted.into_iter().filter(is_alike).chain([median]);
        let sum: u64 = alike().map(u64::from).sum();
        Span::from_nanos(sum / alike().count() as u64)
    }
}

impl ReceiverRules for Pairs {
    fn on_piece(&mut self, context: &mut ReceiverContext<'_>, number: PacketNumber, _seq: SeqNo) {
        self.note(context.now, number);
    }
    fn run(&mut self, context: &mut ReceiverContext<'_>) {
        if let Some(report) = self.report(context.now) {
            context.send(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_us(us: u64) -> Instant {
        Instant::ZERO + Span::from_micros(us)
    }

    /// Sends pairs of these numbers with this time between their packets, one pair each
    /// millisecond.
    fn arrive(pairs: &mut Pairs, numbers: std::ops::Range<u64>, apart_us: u64) {
        for pair in numbers {
            let number = PacketNumber(pair * PAIR_EVERY);
            pairs.note(at_us(pair * 1000), number);
            pairs.note(at_us(pair * 1000 + apart_us), PacketNumber(number.0 + 1));
        }
    }

    #[test]
    fn the_reported_pair_time_is_the_mean_of_times_near_the_median() {
        let mut pairs = Pairs::new();
        assert_eq!(pairs.report(at_us(0)), None);
        arrive(&mut pairs, 0..64, 12);
        let report = Feedback::PairTime(Span::from_micros(12));
        assert_eq!(pairs.report(at_us(64_000)), Some(report));
        assert_eq!(pairs.report(at_us(90_000)), None, "nothing is new");
        // Times of 1.5 µs and less, and of 96 µs and more, do not count: 44 of 12 µs and 8 of 64.
        for (numbers, apart) in [(64..70, 1), (70..76, 96), (76..84, 64)] {
            arrive(&mut pairs, numbers, apart);
        }
        // (45 × 12 + 8 × 64) / 53 = 19.849 µs.
        let report = Feedback::PairTime(Span::from_nanos(19_849));
        assert_eq!(pairs.report(at_us(84_000)), Some(report));
    }

    #[test]
    fn a_pair_report_is_sent_once_a_syn_interval_and_starts_at_a_millisecond() {
        let mut pairs = Pairs::new();
        arrive(&mut pairs, 1..9, 200);
        // 56 of 1000 µs and the median, 8 of 200: 58 600 / 65.
        let report = Feedback::PairTime(Span::from_nanos(901_538));
        assert_eq!(pairs.report(at_us(9000)), Some(report));
        arrive(&mut pairs, 9..10, 200);
        assert_eq!(pairs.report(at_us(18_999)), None);
        assert!(pairs.report(at_us(19_000)).is_some());
    }

    #[test]
    fn packets_of_different_pairs_or_with_equal_times_are_ignored() {
        let mut pairs = Pairs::new();
        pairs.note(at_us(0), PacketNumber(16));
        pairs.note(at_us(5), PacketNumber(33));
        pairs.note(at_us(9), PacketNumber(17));
        pairs.note(at_us(20), PacketNumber(48));
        pairs.note(at_us(20), PacketNumber(49));
        pairs.note(at_us(30), PacketNumber(u64::MAX));
        assert_eq!(pairs.report(at_us(50_000)), None);
    }
}
