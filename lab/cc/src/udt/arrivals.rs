//! Estimators of UDT for arrival speed and path capacity, from ACKs alone.
//!
//! Source: [UDT4 window.cpp], [UDT4 core.cpp]; ours where these need times of single packets.
//! Model:       speed: the newest sixteen arrival intervals count if they are within a factor of
//!              their median; their mean is one packet's time, if more than eight remain. DEV-040:
//!              an ACK of n packets counts as n equal intervals.
//!              capacity: DEV-041: the largest speed of any sufficiently long run of ACKs.
//! Invariants:  a speed is positive and finite; at most [`SAMPLES_MAX`] ACKs are remembered.

use std::collections::VecDeque;

use sabul_cc::Acked;
use sabul_units::{Bytes, Span};

/// [UDT4 window.cpp] Remembered arrival intervals, and how many must be alike.
const INTERVALS: usize = 16;
const ALIKE_MIN: usize = 9;
/// [UDT4 window.cpp] Initial interval: a second, in microseconds.
const INTERVAL_US_START: f64 = 1e6;
/// Ours: least packets and least time of a run of ACKs that measures capacity. A receiver reads
/// packets in batches with one time each.
const RUN_PACKETS: u64 = 16;
const RUN_TIME: Span = Span::from_millis(1);
/// Ours: remembered ACKs. ACKs are at least 250 µs apart, so a run needs few.
const SAMPLES_MAX: usize = 64;
/// [UDT4 core.cpp] Weight of the newest report in the averages.
const WEIGHT_NEW: f64 = 0.125;

#[derive(Clone, Copy, Debug)]
struct ArrivalSample {
    total: u64,
    arrived_at: Span,
}

/// Estimator state; see the module.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Largest factor between an interval and the median.
    factor: f64,
    intervals_us: [f64; INTERVALS],
    /// Newest ACKs, just enough for one run.
    samples: VecDeque<ArrivalSample>,
    fastest: Option<f64>,
}

impl Arrivals {
    pub(super) const fn new(factor: f64) -> Self {
        let intervals_us = [INTERVAL_US_START; INTERVALS];
        Self { factor, intervals_us, samples: VecDeque::new(), fastest: None }
    }

    pub(super) fn on_ack(&mut self, acked: &Acked) {
        let here = ArrivalSample { total: acked.total.0, arrived_at: acked.arrived_at };
        if let Some(last) = self.samples.back() {
            let time = here.arrived_at.saturating_sub(last.arrived_at);
            let packets = here.total.saturating_sub(last.total);
            if time == Span::ZERO || packets == 0 {
                // The next ACK will cover these packets with a time.
                return;
            }
            let interval = time.as_secs_f64() * 1e6 / packets as f64;
            let count = usize::try_from(packets).unwrap_or(INTERVALS).min(INTERVALS);
            self.intervals_us.rotate_left(count);
            self.intervals_us[INTERVALS - count..].fill(interval);
        }
        self.samples.push_back(here);
        let is_run = |from: &ArrivalSample| {
            here.total.saturating_sub(from.total) >= RUN_PACKETS
                && here.arrived_at.saturating_sub(from.arrived_at) >= RUN_TIME
        };
        // The shortest run contains the least pause between bursts.
        while self.samples.get(1).is_some_and(is_run) || self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        if let Some(from) = self.samples.front().filter(|from| is_run(from)) {
            let time = here.arrived_at.saturating_sub(from.arrived_at).as_secs_f64();
            let speed = here.total.saturating_sub(from.total) as f64 / time;
            self.fastest = Some(self.fastest.map_or(speed, |fastest| fastest.max(speed)));
        }
    }

    /// Returns the arrival speed in packets/s; `None` if the intervals vary too much.
    pub(super) fn speed(&self) -> Option<f64> {
        let mut sorted = self.intervals_us;
        sorted.sort_by(f64::total_cmp);
        let median = sorted[INTERVALS / 2];
        let (least, most) = (median / self.factor, median * self.factor);
        let alike = || sorted.into_iter().filter(|interval| *interval > least && *interval < most);
        let count = alike().count();
        (count >= ALIKE_MIN).then(|| count as f64 * 1e6 / alike().sum::<f64>())
    }

    /// Returns the largest speed of a run so far, in packets/s.
    pub(super) const fn fastest(&self) -> Option<f64> {
        self.fastest
    }
}

/// Average of a measured value, in packets/s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Average(pub(super) f64);

impl Average {
    /// [UDT4 core.cpp] Missing samples are skipped.
    pub(super) fn take(&mut self, sample: Option<f64>) {
        if let Some(sample) = sample {
            self.0 = (1.0 - WEIGHT_NEW) * self.0 + WEIGHT_NEW * sample;
        }
    }
}

/// Capacity of the path, in packets/s.
#[derive(Clone, Copy, Debug)]
pub(super) enum Capacity {
    Measured(Average),
    Given { mbps: f64 },
}

impl Capacity {
    pub(super) const fn new(given_mbps: Option<f64>) -> Self {
        match given_mbps {
            Some(mbps) => Self::Given { mbps },
            // [UDT4 core.cpp] One packet a second before the first sample.
            None => Self::Measured(Average(1.0)),
        }
    }

    pub(super) fn take(&mut self, sample: Option<f64>) {
        if let Self::Measured(average) = self {
            average.take(sample);
        }
    }

    pub(super) fn packets_per_s(&self, packet_bytes: Bytes) -> f64 {
        match self {
            Self::Measured(average) => average.0,
            Self::Given { mbps } => mbps * 1e6 / (packet_bytes.0.max(1) as f64 * 8.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::Packets;

    use super::*;

    fn ack(arrivals: &mut Arrivals, total: u64, at_us: u64) {
        let arrived_at = Span::from_micros(at_us);
        arrivals.on_ack(&Acked { total: Packets(total), arrived_at, ..Acked::default() });
    }

    #[test]
    fn the_arrival_speed_is_the_mean_of_similar_intervals() {
        let mut arrivals = Arrivals::new(8.0);
        ack(&mut arrivals, 1, 0);
        assert!((arrivals.speed().unwrap() - 1.0).abs() < 1e-9, "a second each, until known");
        ack(&mut arrivals, 9, 800);
        assert_eq!(arrivals.speed(), None, "eight of 100 µs and eight of a second");
        // Sixteen of 100 µs, then six of 200 and one of 900, which exceeds eight times the median.
        ack(&mut arrivals, 17, 1600);
        assert!((arrivals.speed().unwrap() - 10_000.0).abs() < 1e-6);
        ack(&mut arrivals, 23, 2800);
        ack(&mut arrivals, 24, 3700);
        // Nine of 100 and six of 200: 2100 / 15 = 140 µs.
        assert!((arrivals.speed().unwrap() - 1e6 / 140.0).abs() < 1e-6);
        // The factor of the early versions is strictly two: nine of 100.
        arrivals.factor = 2.0;
        assert!((arrivals.speed().unwrap() - 10_000.0).abs() < 1e-6);
    }

    #[test]
    fn the_arrival_speed_is_unknown_if_at_most_half_the_intervals_are_similar() {
        let mut arrivals = Arrivals::new(2.0);
        ack(&mut arrivals, 1, 0);
        ack(&mut arrivals, 9, 800);
        ack(&mut arrivals, 17, 800 + 8 * 300);
        assert_eq!(arrivals.speed(), None, "eight of 100 and eight of 300 µs");
        ack(&mut arrivals, 18, 800 + 9 * 300);
        assert!((arrivals.speed().unwrap() - 1e6 / 300.0).abs() < 1e-6);
    }

    #[test]
    fn packets_of_an_ack_without_a_new_time_count_with_the_next_ack() {
        let mut arrivals = Arrivals::new(8.0);
        ack(&mut arrivals, 1, 100);
        ack(&mut arrivals, 11, 100);
        ack(&mut arrivals, 21, 1100);
        assert!((arrivals.speed().unwrap() - 20_000.0).abs() < 1e-6, "20 packets in 1 ms");
    }

    #[test]
    fn the_capacity_is_the_rate_of_the_fastest_run() {
        let mut arrivals = Arrivals::new(8.0);
        // Bursts of 40 at 120 µs, every 20 ms; ACKs at the first packet and after 20 and 39 more.
        for burst in 0..3 {
            let (total, at) = (burst * 40, burst * 20_000);
            ack(&mut arrivals, total + 1, at);
            ack(&mut arrivals, total + 21, at + 20 * 120);
            ack(&mut arrivals, total + 40, at + 39 * 120);
        }
        assert!((arrivals.fastest().unwrap() - 1e6 / 120.0).abs() < 1e-6);
        // Half a millisecond is too short for a run.
        ack(&mut arrivals, 125, 60_000);
        ack(&mut arrivals, 225, 60_500);
        assert!((arrivals.fastest().unwrap() - 1e6 / 120.0).abs() < 1e-6);
    }

    #[test]
    fn memory_is_bounded() {
        let mut arrivals = Arrivals::new(8.0);
        for n in 0..1000 {
            ack(&mut arrivals, n, n / 100 + n);
            assert!(arrivals.samples.len() <= SAMPLES_MAX);
        }
    }

    #[test]
    fn a_sample_has_weight_one_eighth_and_a_given_capacity_is_fixed() {
        let mut measured = Capacity::new(None);
        measured.take(Some(801.0));
        measured.take(None);
        assert!((measured.packets_per_s(Bytes(1500)) - 101.0).abs() < 1e-9);
        let mut given = Capacity::new(Some(12.0));
        given.take(Some(1e9));
        assert!((given.packets_per_s(Bytes(1500)) - 1000.0).abs() < 1e-9);
    }
}
