//! How fast a link is taken on which no queue stands.
//!
//! Source: ours.
//! Model:       nothing for a while; then each epoch without a queue adds a part to the growth of the one before.
//! Not here:    how far: the flow that grows knows how much the link carries.

use sabul_units::{Instant, Span};

/// Ours: time without a queue before the first such growth, the part each epoch adds, and the most.
const WAIT: Span = Span::from_millis(300);
const STEP: f64 = 1.0 / 16.0;
const STEP_MAX: f64 = 0.25;

/// See the module.
#[derive(Debug)]
pub(super) struct Room {
    step: f64,
    empty_since: Instant,
    /// Not before this time.
    from: Instant,
}

impl Room {
    pub(super) const fn new() -> Self {
        Self { step: 0.0, empty_since: Instant::ZERO, from: Instant::ZERO }
    }

    /// A queue stands.
    pub(super) const fn note_queue(&mut self, now: Instant) {
        (self.step, self.empty_since) = (0.0, now);
    }

    /// The queue overflowed: no such growth for a while.
    pub(super) const fn wait(&mut self, until: Instant) {
        self.from = until;
    }

    /// No queue stands: the part by which to grow.
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
    fn growth_begins_after_a_while_and_grows_and_a_queue_or_an_overflow_ends_it() {
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        let mut room = Room::new();
        let mut steps = |times: [u64; 2]| times.map(|ms| room.step(at(ms)) * 16.0);
        assert!(steps([100, 299]).iter().sum::<f64>() < 1e-9);
        assert!((steps([300, 400]).iter().sum::<f64>() - 3.0).abs() < 1e-9, "1 and 2 sixteenths");
        (0..40).for_each(|_| assert!(room.step(at(600)) > 0.0));
        assert!((room.step(at(600)) - STEP_MAX).abs() < 1e-9);
        room.note_queue(at(700));
        assert!(room.step(at(999)) < 1e-9);
        room.wait(at(2000));
        assert!(room.step(at(1999)) < 1e-9);
        assert!((room.step(at(2000)) - STEP).abs() < 1e-9);
    }
}
