//! Detector of a growing RTT: the delay warning of UDT 1.
//!
//! Source: [UDT1].
//! Model, over the newest sixteen RTTs: `rising` is the share of steps upwards, `net` the total change divided
//! by the sum of the absolute steps. The RTT grows where
//!     rising > 0.66 and net > 0.45,  or  rising > 0.54 and net > 0.55
//! Invariants:  at most one warning in two RTTs.

use sabul_units::{Instant, Span};

/// [UDT1] Number of RTT samples evaluated.
const SAMPLES: usize = 16;
/// [UDT1] Least share of rises and least net change, for both criteria of a trend.
const TRENDS: [(f64, f64); 2] = [(0.66, 0.45), (0.54, 0.55)];

/// Detector state; see the module.
#[derive(Debug, Default)]
pub(super) struct Trend {
    samples: Vec<f64>,
    quiet_until: Option<Instant>,
}

impl Trend {
    /// Adds an RTT sample; returns whether to warn.
    pub(super) fn warns(&mut self, now: Instant, rtt: Span, smoothed: Span) -> bool {
        if self.samples.len() == SAMPLES {
            self.samples.remove(0);
        }
        self.samples.push(rtt.as_secs_f64());
        if self.samples.len() < SAMPLES || self.quiet_until.is_some_and(|until| now < until) {
            return false;
        }
        let is_growing = self.is_growing();
        if is_growing {
            self.quiet_until = Some(now + smoothed * 2);
        }
        is_growing
    }

    fn is_growing(&self) -> bool {
        let steps = || self.samples.windows(2).map(|pair| pair[1] - pair[0]);
        let rising = steps().filter(|step| *step > 0.0).count() as f64 / (SAMPLES - 1) as f64;
        let size: f64 = steps().map(f64::abs).sum();
        let net = if size > 0.0 { steps().sum::<f64>() / size } else { 0.0 };
        TRENDS.iter().any(|(share, change)| rising > *share && net > *change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of warnings for these RTT samples in ms, one each 10 ms, with an average
    /// of 20 ms.
    fn warnings(rtts_ms: impl IntoIterator<Item = u64>) -> usize {
        let mut trend = Trend::default();
        let at = |n: usize| Instant::ZERO + Span::from_millis(10) * n as u64;
        let rtts = rtts_ms.into_iter().enumerate();
        rtts.filter(|(n, rtt)| trend.warns(at(*n), Span::from_millis(*rtt), Span::from_millis(20)))
            .count()
    }

    #[test]
    fn sixteen_rising_round_trips_are_a_trend_and_fifteen_are_not() {
        assert_eq!(warnings(20..35), 0);
        assert_eq!(warnings(20..36), 1);
        // Two averaged RTTs of 20 ms are four samples: warnings at the 16th, 20th and 24th.
        assert_eq!(warnings(20..44), 3);
    }

    #[test]
    fn oscillating_constant_or_falling_rtts_are_no_trend() {
        assert_eq!(warnings((0..40).map(|n| 20 + n % 2)), 0);
        assert_eq!(warnings([20; 40]), 0);
        assert_eq!(warnings((20..60).rev()), 0);
    }

    #[test]
    fn fewer_rises_need_a_larger_change_for_a_trend() {
        // Nine of fifteen steps go up (0.6): by 2 each, the six down by 1: (18 - 6) / 24 = 0.5 is
        // too little; up by 3: (27 - 6) / 33 = 0.64 is sufficient.
        let steps = [1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, 1, 1];
        let path = |up: i64| {
            let mut rtt = 20;
            std::iter::once(20).chain(steps.map(move |step| {
                rtt += if step > 0 { up } else { -1 };
                rtt.unsigned_abs()
            }))
        };
        assert_eq!(warnings(path(2)), 0);
        assert_eq!(warnings(path(3)), 1);
    }
}
