//! Check of one quantity of a path: expected and measured value.

use sabul_units::Span;
use serde::Serialize;

/// Relative tolerance of a quantity.
pub(super) const RELATIVE: f64 = 0.02;
/// Time that hosts and router may add to an RTT or to a queueing delay: four passes through a
/// device and as many thread wake-ups. An idle machine needs about a third of that.
pub(super) const HOST_TIME: Span = Span::from_micros(300);

/// Check of one quantity of a path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// `rtt_ms`, `rate_mbps`, `queue_packets` (measured by delay), `queue_packets_counted` (counted
    /// by the router), `loss`, `loss_back`.
    pub quantity: String,
    /// Expected value.
    pub wanted: f64,
    /// Measured value; infinite for an RTT without any echo.
    pub measured: f64,
    /// Largest allowed difference.
    pub tolerance: f64,
    /// Whether the difference is within the tolerance.
    pub is_met: bool,
}

impl Check {
    pub(super) fn new(quantity: &str, wanted: f64, measured: f64, tolerance: f64) -> Self {
        let is_met = (measured - wanted).abs() <= tolerance;
        Self { quantity: quantity.to_owned(), wanted, measured, tolerance, is_met }
    }
}
