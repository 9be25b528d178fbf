//! Path measurements of BBR version 3: RTT, delivery rate, ACK aggregation.
//!
//! Source: [BBR3 §5.3.1.2] (full), [BBR3 §5.3.4], [BBR3 §5.5] (filters).
//! Invariants:  the smallest RTT is never older than its filter's length and a probe.

use sabul_units::{Instant, Span};

use crate::tcp::delivery::Largest;

/// [BBR3 §2] Age at which the smallest RTT expires, and age at which an RTT probe is due.
const RTT_MIN_AGE: Span = Span::from_secs(10);
const PROBE_RTT_AGE: Span = Span::from_secs(5);
/// [BBR3 §5.3.1.2] The path is full after this many rounds with less growth than this factor.
const FULL_ROUNDS: u32 = 3;
const FULL_GROWTH: f64 = 1.25;
/// [BBR3 §2] Rounds for which ACK aggregation counts, after and before the path was full.
const LUMP_ROUNDS: u64 = 10;
const LUMP_ROUNDS_STARTUP: u64 = 1;

/// Smallest RTT of ten seconds, and of the five seconds that schedule RTT probes.
#[derive(Debug, Default)]
pub(super) struct RttFilter {
    pub(super) min: Option<Span>,
    min_at: Instant,
    recent: Option<Span>,
    recent_at: Instant,
}

impl RttFilter {
    /// Adds a sample; returns whether an RTT probe is due.
    pub(super) fn keep(&mut self, rtt: Span, now: Instant) -> bool {
        let is_due = self.recent.is_some() && now > self.recent_at + PROBE_RTT_AGE;
        if is_due || self.recent.is_none_or(|recent| rtt < recent) {
            (self.recent, self.recent_at) = (Some(rtt), now);
        }
        let is_old = now > self.min_at + RTT_MIN_AGE;
        if is_old || self.min.is_none_or(|min| self.recent < Some(min)) {
            (self.min, self.min_at) = (self.recent, self.recent_at);
        }
        is_due
    }

    /// Ends a probe: the next probe is due one age from now.
    pub(super) const fn probed(&mut self, now: Instant) {
        self.recent_at = now;
    }
}

/// Detector of a full path: the delivery rate has stopped growing.
#[derive(Debug, Default)]
pub(super) struct FullPipe {
    rate: f64,
    rounds: u32,
    pub(super) is_now: bool,
    /// True once the path was full.
    pub(super) is_reached: bool,
}

impl FullPipe {
    /// Restarts the detection from this rate.
    pub(super) const fn reset(&mut self, rate: f64) {
        (self.rate, self.rounds, self.is_now) = (rate, 0, false);
    }

    /// Adds the rate of a round.
    pub(super) fn check(&mut self, rate: f64) {
        if self.is_now {
            return;
        }
        if rate >= self.rate * FULL_GROWTH {
            self.reset(rate);
        } else {
            self.rounds += 1;
            self.is_now = self.rounds >= FULL_ROUNDS;
            self.is_reached |= self.is_now;
        }
    }
}

/// Largest rate of this probing cycle and of the previous cycle.
#[derive(Debug, Default)]
pub(super) struct RateFilter {
    cycle: f64,
    before: f64,
}

impl RateFilter {
    /// Returns the largest rate in packets a second; zero before the first sample.
    pub(super) const fn max(&self) -> f64 {
        self.cycle.max(self.before)
    }

    pub(super) const fn keep(&mut self, rate: f64) {
        self.cycle = self.cycle.max(rate);
    }

    /// Ends a cycle; a cycle without samples does not count.
    pub(super) fn advance(&mut self) {
        if self.cycle > 0.0 {
            (self.before, self.cycle) = (self.cycle, 0.0);
        }
    }
}

/// ACK aggregation: packets that ACKs report beyond the delivery rate. [BBR3 §5.5.9]
#[derive(Debug)]
pub(super) struct Lumps {
    since: Instant,
    arrived: f64,
    largest: Largest,
}

impl Lumps {
    pub(super) const fn new() -> Self {
        Self { since: Instant::ZERO, arrived: 0.0, largest: Largest::new() }
    }

    pub(super) fn extra(&self) -> f64 {
        self.largest.get().unwrap_or(0.0)
    }

    /// Adds `newly` arrivals on a path of `rate`; at most `cwnd` packets count as aggregation.
    pub(super) fn keep(
        &mut self,
        newly: f64,
        rate: f64,
        cwnd: f64,
        now: Instant,
        round: u64,
        is_full: bool,
    ) {
        let mut expected = rate * now.since(self.since).as_secs_f64();
        if self.arrived <= expected {
            (self.since, self.arrived, expected) = (now, 0.0, 0.0);
        }
        self.arrived += newly;
        let extra = (self.arrived - expected).min(cwnd);
        let span = if is_full { LUMP_ROUNDS } else { LUMP_ROUNDS_STARTUP };
        self.largest.keep(extra, round, span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn the_minimum_rtt_lasts_ten_seconds_and_a_probe_is_due_after_five() {
        let ms = Span::from_millis;
        let mut rtt = RttFilter::default();
        // Rows: time, sample, whether a probe is due, smallest RTT afterwards.
        for (now, sample, is_due, min) in [
            (0, 50, false, 50),
            (1000, 40, false, 40),
            (5900, 60, false, 40),
            // Five seconds after the smallest: the newest sample becomes the recent minimum.
            (6001, 60, true, 40),
            (7000, 45, false, 40),
            // Ten seconds after the smallest: the recent minimum becomes the smallest.
            (11_001, 70, false, 45),
            (12_001, 41, true, 41),
        ] {
            assert_eq!(rtt.keep(ms(sample), at(now)), is_due, "{now}");
            assert_eq!(rtt.min, Some(ms(min)), "{now}");
        }
        rtt.probed(at(16_000));
        assert!(!rtt.keep(ms(80), at(21_000)));
        assert!(rtt.keep(ms(80), at(21_001)));
    }

    #[test]
    fn a_rate_sample_is_kept_for_its_cycle_and_the_next() {
        let mut rates = RateFilter::default();
        rates.keep(7.0);
        rates.keep(5.0);
        rates.advance();
        assert!((rates.max() - 7.0).abs() < 1e-9);
        // A cycle without samples does not count.
        rates.advance();
        assert!((rates.max() - 7.0).abs() < 1e-9);
        rates.keep(6.0);
        rates.advance();
        assert!((rates.max() - 6.0).abs() < 1e-9);
    }

    #[test]
    fn ack_aggregation_is_the_largest_excess_in_ten_rounds() {
        let mut lumps = Lumps::new();
        // One packet a millisecond: 30 at once are 30 in excess, 8 more after 10 ms are 28.
        lumps.keep(30.0, 1000.0, 100.0, at(100), 1, true);
        lumps.keep(8.0, 1000.0, 100.0, at(110), 1, true);
        assert!((lumps.extra() - 30.0).abs() < 1e-9);
        // 38 packets in 138 ms are no excess: the count restarts, with 5.
        lumps.keep(5.0, 1000.0, 100.0, at(138), 2, true);
        assert!((lumps.extra() - 30.0).abs() < 1e-9);
        lumps.keep(1.0, 1000.0, 100.0, at(300), 12, true);
        assert!((lumps.extra() - 5.0).abs() < 1e-9);
        lumps.keep(500.0, 1000.0, 100.0, at(301), 13, true);
        assert!((lumps.extra() - 100.0).abs() < 1e-9, "no more than the window");
    }
}
