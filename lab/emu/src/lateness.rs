//! Lateness of sent packets relative to the path's schedule.

use sabul_units::{Instant, Span};

/// Resolution of the percentiles.
const BUCKET: Span = Span::from_micros(5);
/// Buckets cover 20 ms; later packets count in the last bucket.
const BUCKETS: usize = 4_000;

/// Distribution of (actual send time − due time), which is never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Packets measured.
    pub packets: u64,
    /// Median lateness, rounded up to 5 µs.
    pub p50: Span,
    /// 99th percentile of the lateness, rounded up to 5 µs, and at most 20 ms.
    pub p99: Span,
    /// Largest lateness.
    pub max: Span,
}

#[derive(Debug)]
pub(crate) struct LatenessMeter {
    buckets: Vec<u64>,
    packets: u64,
    max: Span,
}

impl LatenessMeter {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; BUCKETS], packets: 0, max: Span::ZERO }
    }

    pub(crate) fn record(&mut self, due: Instant, sent: Instant) {
        let late = sent.since(due);
        let bucket = usize::try_from(late.0 / BUCKET.0).unwrap_or(BUCKETS).min(BUCKETS - 1);
        self.buckets[bucket] += 1;
        self.packets += 1;
        self.max = self.max.max(late);
    }

    pub(crate) fn summary(&self) -> Lateness {
        Lateness {
            packets: self.packets,
            p50: self.percentile(50),
            p99: self.percentile(99),
            max: self.max,
        }
    }

    fn percentile(&self, percent: u64) -> Span {
        let wanted = (self.packets * percent).div_ceil(100);
        let mut seen = 0;
        for (bucket, count) in (1..).zip(&self.buckets) {
            seen += count;
            if seen >= wanted && seen > 0 {
                return (BUCKET * bucket).min(self.max);
            }
        }
        Span::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_rounded_up_to_a_bucket_and_never_exceed_the_maximum() {
        let mut meter = LatenessMeter::new();
        assert_eq!(meter.summary(), Lateness::default());
        // 1, 2, … 100 µs: half are at most 50 µs late, which ends the bucket 50..55.
        for us in 1..=100 {
            meter.record(Instant(7), Instant(7) + Span::from_micros(us));
        }
        let summary = meter.summary();
        assert_eq!(summary.packets, 100);
        assert_eq!(summary.p50, Span::from_micros(55));
        assert_eq!(summary.p99, Span::from_micros(100));
        assert_eq!(summary.max, Span::from_micros(100));
    }

    #[test]
    fn lateness_beyond_the_scale_counts_in_the_last_bucket() {
        let mut meter = LatenessMeter::new();
        meter.record(Instant::ZERO, Instant::ZERO + Span::from_secs(9));
        assert_eq!(meter.summary().p99, Span::from_millis(20));
        assert_eq!(meter.summary().max, Span::from_secs(9));
    }
}
