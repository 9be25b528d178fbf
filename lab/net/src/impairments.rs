//! Burst losses, jitter and delay steps, kept apart so that links without them pay one comparison.

use sabul_units::{Instant, Random, SeededRandom, Span};

use crate::config::LinkConfig;
use crate::loss::BurstProcess;

/// State of burst losses, jitter and delay steps.
#[derive(Clone)]
pub(crate) struct Impairments {
    burst: Option<BurstProcess>,
    jitter: SeededRandom,
    /// Number of delay steps that have begun.
    steps_done: usize,
    /// Latest arrival so far, separately for packets held back and for others: jitter and a shorter
    /// delay keep each of the two kinds in order.
    last: [Instant; 2],
}

impl Impairments {
    /// Returns `None` for a link without burst losses, jitter and delay steps.
    pub(crate) fn new(config: &LinkConfig, random: &SeededRandom) -> Option<Self> {
        let burst = config.burst_loss().map(|loss| BurstProcess::new(loss, random.fork("burst")));
        let has_delays = config.jitter() > Span::ZERO || !config.delay_steps().is_empty();
        let is_needed = burst.is_some() || has_delays;
        let jitter = random.fork("jitter");
        is_needed.then_some(Self { burst, jitter, steps_done: 0, last: [Instant::ZERO; 2] })
    }

    /// Draws whether a packet is lost in a burst, and its jitter.
    #[inline(never)]
    pub(crate) fn draw(&mut self, config: &LinkConfig) -> (bool, Span) {
        let is_lost = self.burst.as_mut().is_some_and(BurstProcess::loses_next);
        (is_lost, Span(self.jitter.below(config.jitter().0 + 1)))
    }

    /// Returns the delay of a packet whose last bit leaves at `finish`; calls must be in order of
    /// `finish`.
    pub(crate) fn delay(&mut self, config: &LinkConfig, finish: Instant) -> Span {
        let steps = config.delay_steps();
        while steps.get(self.steps_done).is_some_and(|step| step.at <= finish) {
            self.steps_done += 1;
        }
        let latest = self.steps_done.checked_sub(1).and_then(|index| steps.get(index));
        latest.map_or_else(|| config.delay(), |step| step.delay)
    }

    /// Returns `at`, or the latest earlier arrival if that is later.
    pub(crate) fn in_order(&mut self, at: Instant, held: bool) -> Instant {
        let last = &mut self.last[usize::from(held)];
        *last = at.max(*last);
        *last
    }
}
