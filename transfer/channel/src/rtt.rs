//! RTT estimator. [RFC6298 §2]

use sabul_cc::RttEstimate;
use sabul_units::Span;

/// Ours: RTT assumed by a sender before the first sample; a shorter value would resend packets
/// still in flight.
pub(crate) const UNKNOWN_TO_SENDER: Span = Span::from_millis(300);
/// Ours: RTT assumed by a receiver; a longer value would delay loss reports.
pub(crate) const UNKNOWN_TO_RECEIVER: Span = Span::from_millis(100);

/// Returns the estimate after one more sample.
pub(crate) fn update(estimate: Option<RttEstimate>, sample: Span) -> RttEstimate {
    let Some(old) = estimate else {
        return RttEstimate { latest: sample, smoothed: sample, variance: sample / 2, min: sample };
    };
    let error = old.smoothed.saturating_sub(sample).max(sample.saturating_sub(old.smoothed));
    RttEstimate {
        latest: sample,
        // alpha = 1/8, beta = 1/4.
        smoothed: old.smoothed.mul_ratio(7, 8) + sample / 8,
        variance: old.variance.mul_ratio(3, 4) + error / 4,
        min: old.min.min(sample),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_rfc_6298() {
        let ms = Span::from_millis;
        let first = update(None, ms(100));
        assert_eq!((first.smoothed, first.variance), (ms(100), ms(50)));
        // smoothed = 7/8 × 100 + 1/8 × 180 = 110; variance = 3/4 × 50 + 1/4 × 80 = 57.5.
        let second = update(Some(first), ms(180));
        assert_eq!((second.smoothed, second.variance), (ms(110), Span::from_micros(57_500)));
        assert_eq!(second.min, ms(100));
    }
}
