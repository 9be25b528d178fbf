//! Times and sizes of the probes that look for free capacity.
//!
//! Source: ours; [BBR3 §5.3.3.8] probes by the wall clock, too, so that no RTT probes more often than another.
//! Model:       two to three seconds between probes; each probe that finds room is followed by one twice as large
//! Not here:    what a probe sends and how it is judged (`sabul2026`).

use sabul_units::{Instant, Span};

use crate::controller::Context;

/// Ours: part of the window that a probe adds at first and, each doubling the one before while it finds room, at last.
const PART: f64 = 1.0 / 16.0;
const PART_MAX: f64 = 0.5;
/// [BBR3 §5.3.3.8] Time between two probes, and the most that chance adds.
const WAIT: Span = Span::from_secs(2);
const WAIT_MORE_NS: u64 = 1_000_000_000;
/// Ours: epochs in which a probe's packets spread over the round trip; the one after is measured.
pub(super) const SETTLES: u32 = 2;

/// The next probe.
#[derive(Debug)]
pub(super) struct Probing {
    pub(super) at: Instant,
    /// Part of the window that it adds.
    pub(super) part: f64,
}

impl Probing {
    pub(super) const fn new() -> Self {
        Self { at: Instant::ZERO, part: PART }
    }

    /// The next probe is small, and two to three seconds away.
    pub(super) fn schedule(&mut self, cx: &mut Context<'_>) {
        self.at = cx.now + WAIT + Span::from_nanos(cx.random.below(WAIT_MORE_NS));
        self.part = PART;
    }

    /// The next probe is twice as large, since the last one found room.
    pub(super) fn grow(&mut self) {
        self.part = (self.part * 2.0).min(PART_MAX);
    }
}
