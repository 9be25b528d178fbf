//! Growth of the window while no queue stands.
//!
//! Source: ours.
//! Model:       no growth for 300 ms; then each epoch without a queue adds a sixteenth to the
//!              growth of the epoch before.
//! Not here:    the limit of the growth, which the controller derives from the link's rate.

use sabul_units::{Instant, Span};

/// Ours: time without a queue before the first growth, the part that each epoch adds, and the
/// largest part.
const WAIT: Span = Span::from_millis(300);
const STEP: f64 = 1.0 / 16.0;
const STEP_MAX: f64 = 0.25;

/// State of the growth; see the module.
#[derive(Debug)]
pub(super) struct Headroom {
    step: f64,
    empty_since: Instant,
    /// No growth before this time.
    from: Instant,
}

impl Headroom {
    pub(super) const fn new() -> Self {
        Self { step: 0.0, empty_since: Instant::ZERO, from: Instant::ZERO }
    }

    /// Records a standing queue and resets the growth.
    pub(super) const fn note_queue(&mut self, now: Instant) {
        (self.step, self.empty_since) = (0.0, now);
    }

    /// Suspends growth until this time, after an overflow.
    pub(super) const fn wait(&mut self, until: Instant) {
        self.from = until;
    }

    /// Returns the part by which the window grows in this epoch without a queue.
    pub(super) fn step(&mut self, now: Instant) -> f64 {
        let is_early = now < self.from || now < self.empty_since + WAIT;
        self.step = if is_early { 0.0 } else { (self.step + STEP).min(STEP_MAX) };
        self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_growth_starts_late_accelerates_and_ends_at_a_queue_or_overflow() {
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        let mut headroom = Headroom::new();
        let mut steps = |times: [u64; 2]| times.map(|ms| headroom.step(at(ms)) * 16.0);
        assert!(steps([100, 299]).iter().sum::<f64>() < 1e-9);
        assert!((steps([300, 400]).iter().sum::<f64>() - 3.0).abs() < 1e-9, "1 and 2 sixteenths");
        (0..40).for_each(|_| assert!(headroom.step(at(600)) > 0.0));
        assert!((headroom.step(at(600)) - STEP_MAX).abs() < 1e-9);
        headroom.note_queue(at(700));
        assert!(headroom.step(at(999)) < 1e-9);
        headroom.wait(at(2000));
        assert!(headroom.step(at(1999)) < 1e-9);
        assert!((headroom.step(at(2000)) - STEP).abs() < 1e-9);
    }
}
