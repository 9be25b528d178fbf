//! UDT 4: as version 2, but starts at the arrival speed and cuts at most five times per epoch.
//!
//! Source: [UDT4 §7.2], details as in [UDT4 ccc.cpp]; the draft ends slow start at the first ACK
//! and counts NAKs differently.
//! Model, at the end of each SYN interval with an ACK (DEV-046), A the averaged arrival speed:
//!     slow start:  W += packets acknowledged + 1
//!     else:        W = A × (RTT + SYN) + 16
//!     the period falls (`udt`); headroom is at most a ninth of the capacity while the period is longer
//!     than before the last epoch; no fall in the first interval after a loss
//! Slow start ends when W exceeds its maximum, or with a NAK: P = 1 / A.
//! On a NAK beyond the largest number sent at the last decrease, n the NAKs since, U a draw:
//!     P ×= 9/8;  avg = ceil(0.875 avg + 0.125 n);  every = max(1, ceil(U × avg))
//! On each of the next four counted NAKs in the epoch, if `every` divides its count: P ×= 9/8.
//! States:      slow start --NAK | full window | timeout--> steady
//! Invariants:  1 <= every; 0 < A.
//! Not here:    a bound on the rate, which the sender applies.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::{
    Acked, BulkReport, ConfigError, Constants, Context, Controller, IntervalReport, LossReport,
    ParamSpec, ParamValues, Phase, Reason, SYN_INTERVAL, SendLimits, SentNumber,
};
use sabul_units::{Bytes, Gap, Packets, Random, Span};

use super::arrivals::{Arrivals, Average, Capacity};
use super::{CAPACITY, CUT, PERIOD_US_MAX, WINDOW, draw, increase, risen};
use crate::rules::PAIRS;

/// [UDT4 window.cpp] Intervals count if they are within a factor of eight of the median.
const ALIKE: f64 = 8.0;
/// [UDT4 ccc.cpp] Window at the start, and packets of the window beyond speed × delay.
const WINDOW_BASE: f64 = 16.0;
/// [UDT4 core.cpp] Arrival speed, in packets/s, and RTT before the first measurements.
const SPEED_START: f64 = 16.0;
const RTT_START: Span = Span::from_millis(100);
/// [UDT4 ccc.cpp] The first period, in microseconds.
const PERIOD_US_START: f64 = 1.0;
/// Ours: a hundred million packets a second; the source has no bound.
const PERIOD_US_MIN: f64 = 0.01;
/// [UDT4 ccc.cpp] Least increase in packets per SYN interval.
const INCREASE_MIN: f64 = 0.01;
/// [UDT4 ccc.cpp] Counted NAKs of an epoch.
const COUNTED_MAX: u64 = 5;

pub(crate) const ENTRY: Entry = Entry::new("udt4", Family::Rate, build)
    .summary(
        "UDT 4's rate and window: starts at the arrival rate, at most five decreases per epoch",
    )
    .source("[UDT4 §7.2], [UDT4 ccc.cpp] Gu 2010, 2013")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    WINDOW,
    CAPACITY,
    ParamSpec::word("period", &["fractional", "whole-us"], "fractional")
        .doc("Time between packets after a decrease: 'fractional', or 'whole-us', rounded up to whole microseconds")
        .source("[UDT4 ccc.cpp] rounds, which at 10 Gb/s makes a cut of two fifths"),
];

#[derive(Debug)]
struct Udt4 {
    period_us: f64,
    is_whole: bool,
    window: f64,
    window_max: f64,
    is_slow_start: bool,
    arrivals: Arrivals,
    speed: Average,
    capacity: Capacity,
    /// Newest report of packet pairs.
    pair_time: Option<Span>,
    /// Packets that arrived since the last report; `None` without an ACK.
    newly: Option<f64>,
    has_lost: bool,
    epoch: Epoch,
}

/// Loss epoch: from a NAK on packets sent after the last decrease to the next such NAK.
/// [UDT4 ccc.cpp]
#[derive(Debug)]
struct Epoch {
    /// Newest packet that had left at the last decrease.
    last_decrease: Option<SentNumber>,
    /// Period at the start of the epoch.
    period_us_before: f64,
    average_naks: f64,
    nak_count: u64,
    /// Counted NAKs, the first included.
    counted: u64,
    /// One of this many NAKs cuts.
    every: u64,
}

impl Epoch {
    const fn none() -> Self {
        Self {
            last_decrease: None,
            period_us_before: PERIOD_US_START,
            average_naks: 0.0,
            nak_count: 0,
            counted: 0,
            every: 1,
        }
    }

    /// Begins an epoch: averages the NAK count of the last epoch, and draws `every`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
    fn begin(&mut self, period_us: f64, largest_sent: SentNumber, random: &mut dyn Random) {
        self.period_us_before = period_us;
        self.average_naks = (0.875 * self.average_naks + 0.125 * self.nak_count as f64).ceil();
        self.every = ((self.average_naks * draw(random)).ceil() as u64).max(1);
        self.nak_count = 1;
        self.counted = 1;
        self.last_decrease = Some(largest_sent);
    }
}

impl Udt4 {
    fn new(params: &ParamValues) -> Self {
        Self {
            period_us: PERIOD_US_START,
            is_whole: params.choice("period", &[("fractional", false), ("whole-us", true)]),
            window: WINDOW_BASE,
            window_max: params.number(WINDOW.name),
            is_slow_start: true,
            arrivals: Arrivals::new(ALIKE),
            speed: Average(SPEED_START),
            capacity: Capacity::new(params.number_or_word(CAPACITY.name)),
            pair_time: None,
            newly: None,
            has_lost: false,
            epoch: Epoch::none(),
        }
    }

    fn cut(&mut self) {
        let longer = self.period_us * CUT;
        let longer = if self.is_whole { longer.ceil() } else { longer };
        self.period_us = longer.min(PERIOD_US_MAX);
    }

    /// [UDT4 ccc.cpp] Ends slow start at the arrival speed.
    fn end_slow_start(&mut self) {
        self.is_slow_start = false;
        self.period_us = (1e6 / self.speed.0).clamp(PERIOD_US_MIN, PERIOD_US_MAX);
    }

    /// Returns the capacity sample: the speed of pairs, or of runs of ACKs if that is larger:
    /// DEV-041.
    fn shown(&self) -> Option<f64> {
        let by_pairs = self.pair_time.map(|time| 1.0 / time.as_secs_f64());
        by_pairs.into_iter().chain(self.arrivals.fastest()).max_by(f64::total_cmp)
    }

    fn rise(&mut self, packet_bytes: Bytes) {
        let capacity = self.capacity.packets_per_s(packet_bytes);
        let mut headroom = capacity - 1e6 / self.period_us;
        if self.period_us > self.epoch.period_us_before {
            headroom = headroom.min(capacity / 9.0);
        }
        let inc = increase(headroom, packet_bytes, INCREASE_MIN);
        self.period_us = risen(self.period_us, inc).max(PERIOD_US_MIN);
    }
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(Udt4::new(params)))
}

impl Controller for Udt4 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    fn limits(&self) -> SendLimits {
        let window = Some(Packets(self.window.clamp(1.0, self.window_max) as u64));
        let gap = Gap(Span::from_secs_f64(self.period_us * 1e-6));
        SendLimits { gap, window, hold_until: None }
    }

    fn on_ack(&mut self, acked: &Acked, _cx: &mut Context<'_>) {
        self.arrivals.on_ack(acked);
        self.newly = Some(self.newly.unwrap_or(0.0) + acked.newly.0 as f64);
    }

    fn on_interval(&mut self, _report: &IntervalReport, cx: &mut Context<'_>) {
        let Some(newly) = self.newly.take() else { return };
        self.speed.take(self.arrivals.speed());
        self.capacity.take(self.shown());
        if self.is_slow_start {
            // One more than the acknowledged packets, because both ends of the range are counted.
            self.window += newly + 1.0;
            if self.window <= self.window_max {
                return;
            }
            self.end_slow_start();
        } else {
            let rtt = cx.rtt.map_or(RTT_START, |rtt| rtt.smoothed);
            self.window = self.speed.0 * (rtt + SYN_INTERVAL).as_secs_f64() + WINDOW_BASE;
        }
        if !std::mem::take(&mut self.has_lost) {
            cx.log_reason(Reason::Rise);
            self.rise(cx.packet_bytes);
        }
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        if self.is_slow_start {
            self.end_slow_start();
            return;
        }
        self.has_lost = true;
        if self.epoch.last_decrease.is_none_or(|last| loss.first_lost > last) {
            cx.log_reason(Reason::LossEpoch);
            self.epoch.begin(self.period_us, loss.largest_sent, cx.random);
            self.cut();
        } else if self.epoch.counted < COUNTED_MAX {
            self.epoch.counted += 1;
            self.epoch.nak_count += 1;
            if self.epoch.nak_count.is_multiple_of(self.epoch.every) {
                cx.log_reason(Reason::FurtherLoss);
                self.cut();
                self.epoch.last_decrease = Some(loss.largest_sent);
            }
        }
    }

    fn on_timeout(&mut self, _cx: &mut Context<'_>) {
        if self.is_slow_start {
            self.end_slow_start();
        } else {
            // DEV-042: no response as published.
            self.cut();
        }
    }

    fn on_report(&mut self, report: &BulkReport, _cx: &mut Context<'_>) {
        if let BulkReport::PairTime(time) = report {
            self.pair_time = Some(*time);
        }
    }

    fn constants(&self) -> Constants {
        Constants { rules: PAIRS, ..Constants::default() }
    }

    fn phase(&self) -> Phase {
        if self.is_slow_start { Phase::Named("slow-start") } else { Phase::Named("steady") }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Steps, cx, interval, loss, values};
    use super::*;

    fn udt4(given: &[(&str, &str)]) -> Udt4 {
        Udt4::new(&values(PARAMS, given))
    }

    /// Creates a controller past slow start, at `mbps` on a path of a known 1000 Mb/s, 83 333
    /// packets/s.
    fn steady(mbps: f64, given: &[(&str, &str)]) -> Udt4 {
        let given: Vec<_> = given.iter().copied().chain([("capacity_mbps", "1000")]).collect();
        let mut udt4 = udt4(&given);
        udt4.is_slow_start = false;
        udt4.period_us = 12_000.0 / mbps;
        udt4
    }

    fn mbps(udt4: &Udt4) -> f64 {
        12_000.0 / udt4.period_us
    }

    #[test]
    fn slow_start_adds_arrivals_and_continues_at_the_arrival_speed() {
        let (mut udt4, mut steps) = (udt4(&[("window_packets", "100")]), Steps::default());
        assert_eq!(udt4.limits().window, Some(Packets(16)));
        steps.step(&mut udt4, 16);
        assert_eq!(udt4.limits().window, Some(Packets(33)));
        assert_eq!(udt4.limits().gap, Gap(Span::from_micros(1)));
        steps.step(&mut udt4, 66);
        // One packet a second before the first intervals, then all sixteen intervals are 10 ms /
        // 66: of 16 packets/s 14.125 remain; of these, 12.36 and an eighth of 6600.
        assert!((udt4.speed.0 - 837.359_375).abs() < 1e-6, "{udt4:?}");
        assert_eq!(udt4.limits().window, Some(Packets(100)), "33 + 67 is not beyond 100");
        assert_eq!(udt4.phase().name(), "slow-start");
        steps.step(&mut udt4, 66);
        // 837.36 × 7/8 + 6600 / 8 = 1557.69.
        assert_eq!(udt4.phase().name(), "steady");
        let (slow, inc) = (1e6 / 1_557.689_453_125, 0.01);
        assert!((1e4 / udt4.period_us - 1e4 / slow - inc).abs() < 1e-6, "{udt4:?}");
        steps.step(&mut udt4, 66);
        // 2187.98 packets/s × (40 + 10) ms + 16 = 125.4, at most 100.
        assert!((udt4.window - 125.398_913).abs() < 1e-6, "{udt4:?}");
        assert_eq!(udt4.limits().window, Some(Packets(100)));
    }

    #[test]
    fn the_first_nak_ends_slow_start_without_a_cut() {
        let mut udt4 = udt4(&[]);
        udt4.speed = Average(8000.0);
        udt4.on_loss(&loss(5, 100), &mut cx(Span::ZERO));
        assert!((udt4.period_us - 125.0).abs() < 1e-9);
        assert_eq!((udt4.phase().name(), udt4.epoch.last_decrease), ("steady", None));
        // The second NAK is the first of an epoch.
        udt4.on_loss(&loss(6, 100), &mut cx(Span::ZERO));
        assert!((udt4.period_us - 140.625).abs() < 1e-9);
        assert_eq!(udt4.epoch.last_decrease, Some(SentNumber(100)));
    }

    #[test]
    fn an_epoch_has_at_most_five_cuts() {
        let mut udt4 = steady(900.0, &[]);
        let naks: Vec<_> = (0..40)
            .map(|_| {
                let before = udt4.period_us;
                udt4.on_loss(&loss(50, 100), &mut cx(Span::ZERO));
                udt4.period_us > before
            })
            .collect();
        // No NAK average exists yet, so each counted NAK cuts.
        assert_eq!(naks.iter().filter(|cut| **cut).count(), 5);
        assert!(naks[..5].iter().all(|cut| *cut));
        // (8/9)^5 = 0.555.
        assert!((mbps(&udt4) / 900.0 - 0.5549).abs() < 1e-4);
        udt4.on_loss(&loss(101, 200), &mut cx(Span::ZERO));
        // ceil(0.875 × 0 + 0.125 × 5) = 1.
        assert_eq!((udt4.epoch.nak_count, udt4.epoch.counted, udt4.epoch.every), (1, 1, 1));
        assert!((udt4.epoch.average_naks - 1.0).abs() < 1e-12);
    }

    #[test]
    fn more_naks_per_epoch_make_a_smaller_share_of_them_cut() {
        let mut udt4 = steady(900.0, &[]);
        (udt4.epoch.average_naks, udt4.epoch.nak_count) = (20.0, 5);
        udt4.on_loss(&loss(50, 100), &mut cx(Span::ZERO));
        // ceil(17.5 + 0.625) = 19.
        assert!((udt4.epoch.average_naks - 19.0).abs() < 1e-12);
        assert_eq!(udt4.epoch.every, 10, "U is 0.5: ceil(9.5)");
        udt4.epoch.every = 3;
        let before = udt4.period_us;
        for (count, largest) in [(2, 100), (3, 110), (4, 110), (5, 110), (5, 110)] {
            udt4.on_loss(&loss(60, 110), &mut cx(Span::ZERO));
            assert_eq!(udt4.epoch.nak_count, count);
            assert_eq!(udt4.epoch.last_decrease, Some(SentNumber(largest)));
        }
        assert!((udt4.period_us / before - 1.125).abs() < 1e-12, "the third alone");
    }

    #[test]
    fn one_increase_is_skipped_after_a_loss() {
        let (mut udt4, mut steps) = (steady(900.0, &[]), Steps::default());
        udt4.on_loss(&loss(50, 100), &mut cx(Span::ZERO));
        steps.step(&mut udt4, 600);
        assert!((mbps(&udt4) - 800.0).abs() < 1e-9);
        // 200 are free, of which a ninth of the capacity counts, 111: one packet, 1.2 Mb/s.
        steps.step(&mut udt4, 600);
        assert!((mbps(&udt4) - 801.2).abs() < 1e-9);
        udt4.on_interval(&interval(0), &mut cx(steps.now));
        assert!((mbps(&udt4) - 801.2).abs() < 1e-9, "no ACK came");
    }

    #[test]
    fn a_cut_near_the_capacity_is_recovered_in_seven_and_a_half_seconds() {
        // [DAIMD] 1000 to 888.9 Mb/s, then one packet per step up to 900, and a tenth of a packet
        // up to 990.
        let mut udt4 = steady(1000.0, &[]);
        udt4.on_loss(&loss(50, 100), &mut cx(Span::ZERO));
        let mut steps = Steps::default();
        while mbps(&udt4) < 990.0 {
            steps.step(&mut udt4, 800);
        }
        let time = steps.now.as_secs_f64();
        assert!((7.5..7.7).contains(&time), "{time} s");
    }

    #[test]
    fn until_a_cut_is_recovered_at_most_a_ninth_of_capacity_counts_as_free() {
        // 60 Mb/s in a path of 90: 30 are free, of the decade of 100; a ninth is 10.
        for (before, inc) in [(50.0, 0.1), (80.0, 0.01)] {
            let mut udt4 = steady(60.0, &[]);
            udt4.capacity = Capacity::new(Some(89.0));
            udt4.epoch.period_us_before = 12_000.0 / before;
            Steps::default().step(&mut udt4, 50);
            assert!(((mbps(&udt4) - 60.0) / 1.2 - inc).abs() < 1e-9, "{before}");
        }
    }

    #[test]
    fn rounding_to_whole_microseconds_makes_deep_cuts() {
        // 10 Gb/s: 1.2 µs × 9/8 = 1.35.
        for (word, period) in [("fractional", 1.35), ("whole-us", 2.0)] {
            let mut udt4 = steady(10_000.0, &[("period", word)]);
            udt4.on_loss(&loss(50, 100), &mut cx(Span::ZERO));
            assert!((udt4.period_us - period).abs() < 1e-12, "{word}");
        }
    }

    #[test]
    fn a_timeout_cuts_the_rate_and_ends_slow_start() {
        let mut udt4 = udt4(&[]);
        udt4.on_timeout(&mut cx(Span::ZERO));
        // 16 packets/s, the initial speed.
        assert!((udt4.period_us - 62_500.0).abs() < 1e-9);
        udt4.on_timeout(&mut cx(Span::ZERO));
        assert!((udt4.period_us - 70_312.5).abs() < 1e-9);
        for _ in 0..100 {
            udt4.on_timeout(&mut cx(Span::ZERO));
        }
        assert!((udt4.period_us - PERIOD_US_MAX).abs() < 1e-9);
    }
}
