//! Sawtooth of the queue beside a loss-based flow.
//!
//! Source: ours. A loss-based flow fills the queue over many RTTs, reduces its window at an overflow, and fills the
//! queue again. Flows of this kind fill the queue within a few RTTs after a drain, and then keep its length. A flow with
//! a small share of the link loses few packets, so overflows alone do not show such a competitor.
//! Model:       a tooth is a fall of the queue, if
//!                  each epoch before the fall had nearly the longest queue, as after a slow rise, and
//!                  the queue is still low some time after the fall
//!              teeth are alike if they have about the same longest queue; other falls subtract one
//! Not here:    the meaning of teeth (`competitor`).

use sabul_units::{Instant, Span};

/// Ours: epochs that are compared, and epochs of a fall.
const EPOCHS: usize = 8;
const FALL_EPOCHS: usize = 2;
/// Ours: least part of the longest queue in each epoch before a fall. A late flow of this kind that drains a crowd of
/// flows with different RTTs has epochs below 0.65.
const STEADY_PART: f64 = 0.7;
/// Ours: teeth are alike if the shorter one is at least this part of the longer one. CUBIC overflows the same queue, so
/// its teeth differ by a twentieth.
const ALIKE_PART: f64 = 0.85;
/// Ours: time in which flows of this kind with RTTs of up to 200 ms drain a queue and fill the queue again.
const REFILLED: Span = Span::from_millis(700);
/// Ours: a queue is low after a fall below this part of the longest queue before.
const LOW_PART: f64 = 2.0 / 3.0;

/// A fall that is not judged yet.
#[derive(Clone, Copy, Debug)]
struct Fall {
    /// Longest queue before the fall, in seconds.
    longest: f64,
    /// Whether the queue was long in all epochs before the fall.
    is_steady: bool,
    judged_at: Instant,
}

/// Queues of the newest epochs, the newest fall, and the teeth so far; see the module.
#[derive(Debug)]
pub(super) struct Sawtooth {
    /// Queues in seconds, the oldest first.
    queues: [f64; EPOCHS],
    fall: Option<Fall>,
    /// Longest queue of the newest tooth, in seconds.
    longest: f64,
    /// Alike teeth, less the other falls since the first.
    teeth: u32,
}

impl Sawtooth {
    pub(super) const fn new() -> Self {
        Self { queues: [0.0; EPOCHS], fall: None, longest: 0.0, teeth: 0 }
    }

    /// Records the queue of an epoch in seconds, and whether another flow has reduced the queue. Returns the number of
    /// alike teeth after each tooth.
    pub(super) fn note(&mut self, queue: f64, has_fallen: bool, now: Instant) -> Option<u32> {
        self.queues.rotate_left(1);
        self.queues[EPOCHS - 1] = queue;
        if let Some(fall) = self.fall.take_if(|fall| now >= fall.judged_at) {
            return self.judge(&fall, queue);
        }
        // A fall may last several epochs.
        if has_fallen && self.fall.is_none() {
            let longest = self.queues.into_iter().fold(0.0, f64::max);
            let before = &self.queues[..EPOCHS - FALL_EPOCHS];
            let is_steady = before.iter().all(|queue| *queue >= STEADY_PART * longest);
            self.fall = Some(Fall { longest, is_steady, judged_at: now + REFILLED });
        }
        None
    }

    fn judge(&mut self, fall: &Fall, queue: f64) -> Option<u32> {
        if !fall.is_steady || queue >= LOW_PART * fall.longest {
            self.teeth = self.teeth.saturating_sub(1);
            return None;
        }
        let previous = std::mem::replace(&mut self.longest, fall.longest);
        let is_alike = previous.min(fall.longest) >= ALIKE_PART * previous.max(fall.longest);
        self.teeth = if is_alike { self.teeth + 1 } else { 1 };
        Some(self.teeth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records epochs of 30 ms with these queues, and a fall at each queue that is less than two thirds of the queue
    /// before; returns the numbers of alike teeth.
    fn teeth(queues: impl IntoIterator<Item = f64>) -> Vec<u32> {
        let mut sawtooth = Sawtooth::new();
        let (mut now, mut before) = (Instant::ZERO, 0.0);
        let mut found = Vec::new();
        for queue in queues {
            now = now + Span::from_millis(30);
            found.extend(sawtooth.note(queue, queue < before * 2.0 / 3.0, now));
            before = queue;
        }
        found
    }

    /// Queues of one cycle of this many epochs, from a fifth of this queue to all of the queue.
    fn cycle(epochs: u32, longest: f64) -> impl Iterator<Item = f64> {
        (1..=epochs).map(move |n| longest * (0.2 + 0.8 * f64::from(n) / f64::from(epochs)))
    }

    #[test]
    fn each_cycle_of_a_loss_based_flow_is_a_tooth() {
        assert_eq!(teeth((0..5).flat_map(|_| cycle(100, 0.016))), [1, 2, 3, 4]);
    }

    #[test]
    fn a_fall_of_two_epochs_is_one_tooth() {
        let one = || cycle(100, 0.016).chain([0.009]);
        assert_eq!(teeth((0..5).flat_map(|_| one())), [1, 2, 3, 4]);
    }

    #[test]
    fn a_queue_that_is_full_again_after_a_drain_has_no_teeth() {
        let drained = || (0..160).map(|n| if n < 4 { 0.001 } else { 0.010 });
        assert_eq!(teeth((0..5).flat_map(|_| drained())), []);
    }

    #[test]
    fn a_tooth_of_another_length_is_the_first_of_its_row() {
        let cycles = [0.016, 0.016, 0.016, 0.008, 0.008, 0.008, 0.008];
        let cycles = cycles.into_iter().flat_map(|longest| cycle(100, longest));
        assert_eq!(teeth(cycles), [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn a_drain_between_two_teeth_subtracts_one() {
        let drained = (0..60).map(|n| if n < 4 { 0.003 } else { 0.016 });
        let queues = cycle(100, 0.016).chain(cycle(100, 0.016)).chain(cycle(50, 0.016));
        let queues = queues.chain(drained).chain(cycle(100, 0.016)).chain(cycle(100, 0.016));
        assert_eq!(teeth(queues), [1, 2, 2, 3]);
    }

    #[test]
    fn sudden_rises_are_not_teeth() {
        let burst = || cycle(90, 0.010).chain([0.016, 0.016, 0.016]);
        assert_eq!(teeth((0..5).flat_map(|_| burst())), []);
    }
}
