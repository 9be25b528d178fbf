//! RTT estimator and retransmission timeout. [RFC6298 §2]

use sabul_cc::RttEstimate;
use sabul_units::Span;

/// [RFC6298 §2] Timeout before the first sample.
const RTO_INITIAL: Span = Span::from_secs(1);
/// [RFC6298 §2] An upper bound on the timeout must be at least 60 s.
const RTO_MAX: Span = Span::from_secs(60);

#[derive(Debug)]
pub(super) struct Rtt {
    estimate: Option<RttEstimate>,
    rto_min: Span,
    /// Timeouts since the last ACK of new data.
    backoff: u32,
}

impl Rtt {
    pub(super) const fn new(rto_min: Span) -> Self {
        Self { estimate: None, rto_min, backoff: 0 }
    }

    pub(super) const fn estimate(&self) -> Option<RttEstimate> {
        self.estimate
    }

    /// Adds a sample. Echoed times identify the answered copy, so Karn's algorithm holds.
    pub(super) fn sample(&mut self, latest: Span) {
        self.estimate = Some(match self.estimate {
            None => RttEstimate { latest, smoothed: latest, variance: latest / 2, min: latest },
            Some(old) => {
                let error = Span(old.smoothed.0.abs_diff(latest.0));
                RttEstimate {
                    latest,
                    // alpha = 1/8, beta = 1/4.
                    smoothed: old.smoothed - old.smoothed / 8 + latest / 8,
                    variance: old.variance - old.variance / 4 + error / 4,
                    min: old.min.min(latest),
                }
            }
        });
    }

    /// Resets the backoff after an ACK of new data.
    pub(super) const fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    /// [RFC6298 §5] rule 5.5: each timeout doubles the next.
    pub(super) const fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// Returns the time without ACKs of new data after which everything outstanding counts as lost.
    ///
    /// DEV-013: [RFC6298 §2] requires at least one second. Here, as in Linux, the margin above the
    /// smoothed RTT is at least `rto_min`, so a delayed ACK never counts as a loss.
    pub(super) fn timeout(&self) -> Span {
        let base = self
            .estimate
            .map_or(RTO_INITIAL, |rtt| rtt.smoothed + (rtt.variance * 4).max(self.rto_min));
        (base * (1 << self.backoff.min(16))).min(RTO_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let mut rtt = Rtt::new(MS(200));
        assert_eq!(rtt.timeout(), MS(1000), "before the first sample");
        rtt.sample(MS(100));
        // smoothed 100, variance 50: 100 + max(200, 4 × 50) = 300.
        assert_eq!(rtt.timeout(), MS(300));
        rtt.sample(MS(180));
        // smoothed 7/8 × 100 + 1/8 × 180 = 110; variance 3/4 × 50 + 1/4 × 80 = 57.5; 4 × 57.5 = 230.
        let estimate = rtt.estimate().unwrap();
        assert_eq!((estimate.smoothed, estimate.variance), (MS(110), Span::from_micros(57_500)));
        assert_eq!((estimate.min, estimate.latest), (MS(100), MS(180)));
        assert_eq!(rtt.timeout(), MS(340));
    }

    #[test]
    fn a_steady_rtt_keeps_the_minimum_timeout_margin() {
        let mut rtt = Rtt::new(MS(200));
        for _ in 0..100 {
            rtt.sample(MS(300));
        }
        assert_eq!(rtt.timeout().as_micros(), 500_000);
    }

    #[test]
    fn each_timeout_doubles_the_next_up_to_a_minute() {
        let mut rtt = Rtt::new(MS(200));
        rtt.sample(MS(100));
        for expected in [300, 600, 1200, 2400, 4800, 9600, 19_200, 38_400, 60_000, 60_000] {
            assert_eq!(rtt.timeout(), MS(expected));
            rtt.back_off();
        }
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.timeout(), MS(60_000));
        rtt.reset_backoff();
        assert_eq!(rtt.timeout(), MS(300));
    }
}
