//! What a policy makes of the law's numbers.
//!
//! Source: ours, after the weights and the scavenger that [FRCC]'s code of delays leaves room for.
//! Model:       queue asked for = theta × (weight × count - 1), so that flows that read the same queue have rates as
//!                                their weights; a flow alone asks for none, whatever its weight
//!              low             = a quarter of theta, the least omega, half a flow where a queue stands, and half the
//!                                window an epoch while a queue stands that is not its own
//! Invariants:  what is asked for is zero or more, and as without a policy where that is fair.

use sabul_units::{Instant, Rate, Span};

use crate::policy::{Policy, YIELDING};
use crate::search::SearchStep;

/// Ours: number of flows up to which each adds a theta, and thetas that each doubling adds beyond. With both at 8 the
/// queue of 16 flows overflows 20 ms of room.
const LINEAR: f64 = 4.0;
const DOUBLING: f64 = 1.5;
/// Ours: count from which a weighted flow asks for all of its queue; less, and it may be alone. A flow of
/// weight two beside one fair flow counts 1.5.
const SHARED_COUNT: f64 = 1.25;
/// Ours: it starts at this part of the rate at which trains arrive.
const LOW_START: u64 = 16;
/// Ours: the part of theta that each flow adds where it gives way.
const LOW_THETA_PART: f64 = 0.25;
/// Ours: its omega in seconds. What it sees of its own queue swings by some four of it.
const LOW_OMEGA: f64 = 0.0001;
/// Ours: a queue longer than omega and this, in seconds, or the jitter where that is longer, is not of a flow that
/// gives way.
const FOREIGN_MIN: f64 = 0.0008;
/// Ours: the part of the window that it keeps then, each epoch.
const RETREAT: f64 = 0.5;

/// Ours: how long it takes nothing more after that: as long as [BBR3 §5.3.3.8] waits between probes.
const REST: Span = Span::from_secs(3);
/// Ours: how much of what is free it takes an epoch, in parts of its window.
const LOW_GAIN: f64 = 0.25;

/// The law's numbers under a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Manner {
    policy: Policy,
    rest_until: Instant,
    /// It has given way, and has not taken anything since.
    is_yielding: bool,
    /// Queue in seconds that it has made itself, or given way to, in the last epochs: the next ones may show it.
    known: [f64; 2],
    /// What stands until then may be what its own probe left.
    probed_until: Instant,
}

impl Manner {
    pub(super) const fn of(policy: Policy) -> Self {
        let (rest_until, probed_until) = (Instant::ZERO, Instant::ZERO);
        Self { policy, rest_until, is_yielding: false, known: [0.0; 2], probed_until }
    }

    /// How a flow that gives way starts: small, once a train has shown how fast the link is, and without filling it.
    pub(super) fn start(self, trained: Option<Rate>) -> Option<SearchStep> {
        let rate = trained.filter(|_| self.policy.yields())?.mul_ratio(1, LOW_START);
        Some(SearchStep::Found { rate, hold: None })
    }

    /// Whether it may begin with what an earlier flow took.
    pub(super) const fn may_remember(self) -> bool {
        !self.policy.yields()
    }

    /// Queue that each further flow adds, of what a fair flow adds; in seconds.
    pub(super) const fn theta(self, fair: f64) -> f64 {
        if self.policy.yields() { fair * LOW_THETA_PART } else { fair }
    }

    /// Queue that keeps the link busy, where a fair flow keeps this one; in seconds.
    pub(super) const fn omega(self, fair: f64) -> f64 {
        if self.policy.yields() { LOW_OMEGA } else { fair }
    }

    /// Queue to ask for beyond omega where `count` flows like this one share the link, and `is_queued` tells
    /// whether more than omega stands; all in seconds.
    pub(super) fn ask(self, theta: f64, base: f64, count: f64, is_queued: bool) -> f64 {
        let weighted = spread((self.policy.weight() * count).max(1.0));
        match self.policy {
            Policy::Fair => theta * weighted,
            Policy::High => {
                theta * weighted * ((count - 1.0) / (SHARED_COUNT - 1.0)).clamp(0.0, 1.0)
            }
            Policy::Low if is_queued => theta * weighted,
            // What is free is taken, without a queue that would tell how much.
            Policy::Low => base * LOW_GAIN * (count - 1.0),
        }
    }

    /// Whether it takes a link without a queue faster than it asks for one.
    pub(super) const fn takes_room(self) -> bool {
        !self.policy.yields()
    }

    /// Whether it keeps a share beside one who fills the queue.
    pub(super) const fn keeps_share(self) -> bool {
        !self.policy.yields()
    }

    /// Whether it looks for room that the law does not know of.
    pub(super) fn may_probe(self, count: f64, now: Instant) -> bool {
        !self.policy.yields() || (count < SHARED_COUNT && !self.rests(now))
    }

    /// The part of the window to keep, where this queue stood through an epoch and its own was so long; all in
    /// seconds.
    pub(super) fn keep(&mut self, now: Instant, queue: f64, own: f64, jitter: f64) -> Option<f64> {
        let [last, before] = self.known;
        let known = own.max(last).max(before);
        self.known = [own, last];
        self.is_yielding &= self.rests(now);
        if !self.policy.yields()
            || now < self.probed_until
            || queue <= known + jitter.max(FOREIGN_MIN)
        {
            return None;
        }
        // What left before still stands in it.
        self.known = [queue, 0.0];
        self.rest_until = now + REST;
        self.is_yielding = true;
        Some(RETREAT)
    }

    /// Takes nothing more until then: what a probe left of the queue, and of the gap behind it, is not the link's.
    pub(super) fn settle(&mut self, until: Instant) {
        if self.policy.yields() {
            self.rest_until = self.rest_until.max(until);
            self.probed_until = until;
        }
    }

    /// The name of the steady phase.
    pub(super) const fn phase(self) -> &'static str {
        if self.is_yielding { YIELDING } else { "cruise" }
    }

    /// Whether it takes nothing more for now.
    pub(super) fn rests(self, now: Instant) -> bool {
        now < self.rest_until
    }
}

/// Thetas of queue for `count` flows: one for each further flow up to [`LINEAR`], then as many for each doubling, so
/// that the queue of a crowd stays bounded while the rates of two flows still differ by the same factor for the same
/// error of delay. [FRCC] has no bound.
pub(super) fn spread(count: f64) -> f64 {
    if count <= LINEAR {
        return (count - 1.0).max(0.0);
    }
    // Piecewise linear logarithm to base 2: exact arithmetic on every target.
    let (mut rest, mut doublings) = (count / LINEAR, 0.0);
    while rest >= 2.0 {
        (rest, doublings) = (rest / 2.0, doublings + 1.0);
    }
    LINEAR - 1.0 + DOUBLING * (doublings + rest - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THETA: f64 = 0.002;

    fn ask(policy: Policy, count: f64, is_queued: bool) -> f64 {
        Manner::of(policy).ask(THETA, 0.04, count, is_queued)
    }

    #[test]
    fn flows_that_read_the_same_queue_have_rates_as_their_weights() {
        // A link shared by one flow of weight 2 and two fair ones: counts of 2 and 4 ask for the same queue.
        assert!((ask(Policy::High, 2.0, true) - ask(Policy::Fair, 4.0, true)).abs() < 1e-9);
        assert!((ask(Policy::High, 1.5, true) - ask(Policy::Fair, 3.0, true)).abs() < 1e-9);
    }

    #[test]
    fn beyond_four_flows_each_doubling_adds_as_much() {
        for (count, thetas) in [(1.0, 0.0), (2.0, 1.0), (4.0, 3.0), (8.0, 4.5), (256.0, 12.0)] {
            assert!((spread(count) - thetas).abs() < 1e-9, "{count}");
        }
    }

    #[test]
    fn a_flow_alone_asks_for_no_queue_whatever_its_weight() {
        for policy in Policy::ALL {
            assert!(ask(policy, 1.0, false).abs() < 1e-9);
            assert!(ask(policy, 1.0, true).abs() < 1e-9);
        }
    }

    #[test]
    fn only_low_retreats_and_only_from_a_queue_that_jitter_does_not_explain() {
        let now = Instant::ZERO + Span::from_secs(3);
        let mut low = Manner::of(Policy::Low);
        assert_eq!(low.keep(now, 0.0007, 0.0003, 0.0), None);
        assert_eq!(low.keep(now, 0.0012, 0.0003, 0.001), None);
        assert!(!low.rests(now));
        assert_eq!(low.keep(now, 0.0012, 0.0003, 0.0), Some(RETREAT));
        assert!(low.rests(now) && !low.rests(now + REST));
        assert_eq!(low.phase(), YIELDING);
        assert_eq!(low.keep(now + REST, 0.0, 0.0003, 0.0), None);
        assert_eq!(low.phase(), "cruise", "the rest is over and no queue of others stands");
        for policy in [Policy::Fair, Policy::High] {
            assert_eq!(Manner::of(policy).keep(now, 1.0, 0.0003, 0.0), None);
        }
    }
}
