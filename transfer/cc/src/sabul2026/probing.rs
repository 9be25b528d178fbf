//! Schedule and size of the probes for free capacity.
//!
//! Source: ours; [BBR3 §5.3.3.8] probes by the wall clock, too, so that no RTT probes more often than another.
//! Model:       two to three seconds between probes; each successful probe is followed by a probe
//!              of twice the size
//! Not here:    packets and evaluation of a probe (`sabul2026`).

use sabul_units::{Instant, Span};

use crate::controller::Context;

/// Ours: part of the window that the first probe adds; doubled after each success, up to the
/// maximum.
const PART: f64 = 1.0 / 16.0;
const PART_MAX: f64 = 0.5;
/// [BBR3 §5.3.3.8] Time between two probes, and the largest random addition.
const WAIT: Span = Span::from_secs(2);
const WAIT_MORE_NS: u64 = 1_000_000_000;
/// Ours: epochs in which a probe's packets spread over the RTT; the following epoch is measured.
pub(super) const SETTLE_EPOCHS: u32 = 2;

/// Schedule of the next probe.
#[derive(Debug)]
pub(super) struct Probing {
    pub(super) at: Instant,
    /// Part of the window that the probe adds.
    pub(super) part: f64,
}

impl Probing {
    pub(super) const fn new() -> Self {
        Self { at: Instant::ZERO, part: PART }
    }

    /// Schedules a small probe in two to three seconds.
    pub(super) fn schedule(&mut self, cx: &mut Context<'_>) {
        self.at = cx.now + WAIT + Span::from_nanos(cx.random.below(WAIT_MORE_NS));
        self.part = PART;
    }

    /// Doubles the size of the next probe after a success.
    pub(super) fn grow(&mut self) {
        self.part = (self.part * 2.0).min(PART_MAX);
    }
}
