//! Losses in bursts, jitter and steps of the delay: what few links have, so that the others pay one comparison.

use sabul_units::{Instant, Random, SeededRandom, Span};

use crate::config::LinkConfig;
use crate::loss::BurstProcess;

/// The state of bursts, jitter and delay between two packets.
#[derive(Clone)]
pub(crate) struct Rough {
    burst: Option<BurstProcess>,
    jitter: SeededRandom,
    /// How many steps of the delay have begun.
    steps_done: usize,
    /// The latest arrivals so far, of packets that are held back and of the others: jitter and a shorter delay
    /// leave each of the two in order.
    last: [Instant; 2],
}

impl Rough {
    /// The state at the beginning; none for a link that has nothing of all this.
    pub(crate) fn new(config: &LinkConfig, random: &SeededRandom) -> Option<Self> {
        let burst = config.burst_loss().map(|loss| BurstProcess::new(loss, random.fork("burst")));
        let has_delays = config.jitter() > Span::ZERO || !config.delay_steps().is_empty();
        let is_needed = burst.is_some() || has_delays;
        let jitter = random.fork("jitter");
        is_needed.then_some(Self { burst, jitter, steps_done: 0, last: [Instant::ZERO; 2] })
    }

    /// Whether a packet is lost in a burst, and what jitter adds to its delay.
    #[inline(never)]
    pub(crate) fn draw(&mut self, config: &LinkConfig) -> (bool, Span) {
        let is_lost = self.burst.as_mut().is_some_and(BurstProcess::loses_next);
        (is_lost, Span(self.jitter.below(config.jitter().0 + 1)))
    }

    /// The delay of a packet whose last bit leaves at `finish`, which is no earlier than that of the packet before.
    pub(crate) fn delay(&mut self, config: &LinkConfig, finish: Instant) -> Span {
        let steps = config.delay_steps();
        while steps.get(self.steps_done).is_some_and(|step| step.at <= finish) {
            self.steps_done += 1;
        }
        let latest = self.steps_done.checked_sub(1).and_then(|index| steps.get(index));
        latest.map_or_else(|| config.delay(), |step| step.delay)
    }

    /// An arrival at `at`, or as late as the packet before.
    pub(crate) fn in_order(&mut self, at: Instant, held: bool) -> Instant {
        let last = &mut self.last[usize::from(held)];
        *last = at.max(*last);
        *last
    }
}
