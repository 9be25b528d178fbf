//! One quantity of a path, as it was asked for and as it is.

use sabul_units::Span;
use serde::Serialize;

/// By how much a quantity may be off, as a share of it.
pub(super) const RELATIVE: f64 = 0.02;
/// What hosts and router may add to a round trip, or to what a queue takes: four times through a
/// device, and as many threads to wake up. An idle machine takes about a third of it.
pub(super) const HOST_TIME: Span = Span::from_micros(300);

/// One quantity of a path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// `rtt_ms`, `rate_mbps`, `queue_packets` (as delays show it), `queue_packets_counted` (as the
    /// router does), `loss`, `loss_back`.
    pub quantity: String,
    /// What was asked for.
    pub wanted: f64,
    /// What was found; infinite for a round trip that nothing came back from.
    pub measured: f64,
    /// How far off it may be.
    pub tolerance: f64,
    /// Whether it is no further off than that.
    pub is_met: bool,
}

impl Check {
    pub(super) fn new(quantity: &str, wanted: f64, measured: f64, tolerance: f64) -> Self {
        let is_met = (measured - wanted).abs() <= tolerance;
        Self { quantity: quantity.to_owned(), wanted, measured, tolerance, is_met }
    }
}
