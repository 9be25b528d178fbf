//! Demand estimator of the plain class; the explicit class gets the rest of the link.
//!
//! Model, every `WINDOW` T, with a the bits that arrived for the plain class (dropped or not):
//!     d += (a / T - d) / 4           demand of the plain class
//!     C_e = max(C - d, s C)          capacity of the explicit class, s its least share
//! Ours: the demand counts arrivals, not departures, so that a growing plain class is measured
//! before the explicit class has made room. If the plain class would take the whole link, the share
//! s applies and the size of the demand no longer matters.

use sabul_units::{Instant, Rate, Span};

/// Ours: long compared with packet spacing, short compared with a transfer.
const WINDOW: Span = Span::from_millis(50);
/// Ours: gain of the demand average per window.
const PART: f64 = 0.25;
/// Windows processed after silence; after that many windows the demand is zero.
const CATCH_UP: u32 = 64;

/// Demand of the plain class.
#[derive(Debug)]
pub(crate) struct PlainDemand {
    began: Instant,
    bytes: u64,
    /// Bit/s.
    demand: f64,
}

impl PlainDemand {
    pub(crate) const fn new() -> Self {
        Self { began: Instant::ZERO, bytes: 0, demand: 0.0 }
    }

    /// Counts an arriving packet of the class, with its bytes on the link.
    pub(crate) const fn add(&mut self, bytes: u32) {
        self.bytes += bytes as u64;
    }

    /// Returns the new demand in bit/s at the end of a window, `None` within a window.
    #[inline]
    pub(crate) fn advance(&mut self, now: Instant) -> Option<f64> {
        (now.since(self.began) >= WINDOW).then(|| self.end_windows(now))
    }

    /// Returns the demand in bit/s.
    pub(crate) const fn bps(&self) -> f64 {
        self.demand
    }

    #[cold]
    fn end_windows(&mut self, now: Instant) -> f64 {
        for _ in 0..CATCH_UP {
            if now.since(self.began) < WINDOW {
                return self.demand;
            }
            let came = self.bytes as f64 * 8.0 / WINDOW.as_secs_f64();
            self.demand += PART * (came - self.demand);
            self.bytes = 0;
            self.began = self.began + WINDOW;
        }
        self.began = now;
        self.demand = 0.0;
        self.demand
    }
}

/// Returns the capacity of the explicit class on a link of `rate`, at least `share`.
pub(crate) fn left_of(rate: Rate, share: Rate, demand_bps: f64) -> Rate {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let left = (rate.0 as f64 - demand_bps).clamp(share.0 as f64, rate.0 as f64) as u64;
    Rate(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn plain_demand_follows_arrivals_within_half_a_second_and_decays_to_zero() {
        let mut demand = PlainDemand::new();
        for ms in 1..=1_000 {
            demand.advance(at_ms(ms));
            demand.add(1_250);
            if ms == 500 {
                assert!(demand.bps() > 0.9 * 10e6, "{}", demand.bps());
            }
        }
        assert!((demand.bps() / 10e6 - 1.0).abs() < 0.03, "{}", demand.bps());
        demand.advance(at_ms(1_000_000));
        assert!(demand.bps() < 1.0, "{}", demand.bps());
    }

    #[test]
    fn the_explicit_class_gets_the_remainder_and_at_least_its_share() {
        let (rate, share) = (Rate::from_mbps(100), Rate::from_mbps(30));
        assert_eq!(left_of(rate, share, 0.0), rate);
        assert_eq!(left_of(rate, share, 20e6), Rate::from_mbps(80));
        assert_eq!(left_of(rate, share, 90e6), share);
        assert_eq!(left_of(rate, share, 1e12), share);
    }
}
