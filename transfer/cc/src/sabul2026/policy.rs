//! Parameters of the law under each policy.
//!
//! Source: ours; [FRCC]'s coding of flow counts as delays leaves room for weights and for a low
//! priority.
//! Model:       target queue = theta × (weight × count - 1), zero for a flow alone; so flows that
//!                measure the same queue have rates in proportion to their weights
//!              low = a quarter of theta, the least omega, half a flow where a queue stands;
//!                half of the window in each epoch while another flow's queue stands
//! Invariants:  the target queue is zero or more; the fair policy leaves the law unchanged.

use sabul_units::{Instant, Rate, Span};

use crate::phase::Phase;
use crate::policy::Policy;
use crate::search::SearchStep;

/// Ours: number of flows up to which each flow adds a theta, and thetas per doubling beyond. With
/// both at 8, the queue of 16 flows overflows 20 ms of room.
const LINEAR: f64 = 4.0;
const DOUBLING: f64 = 1.5;
/// Ours: count from which a weighted flow has its full target queue; below it, the flow may be
/// alone. A flow of weight two beside one fair flow counts 1.5.
const SHARED_COUNT: f64 = 1.25;
/// Ours: initial rate of the low policy, as a part of the trains' arrival rate.
const LOW_START: u64 = 16;
/// Ours: part of theta that each flow of the low policy adds.
const LOW_THETA_PART: f64 = 0.25;
/// Ours: omega of the low policy in seconds. Its own queue oscillates by about four omegas.
const LOW_OMEGA: f64 = 0.0001;
/// Ours: a queue longer than the own queue by this time in seconds, or by the jitter if longer,
/// belongs to another flow.
const FOREIGN_MIN: f64 = 0.0008;
/// Ours: part of the window kept in each epoch beside another flow's queue.
const RETREAT: f64 = 0.5;

/// Ours: time without growth after such a reduction; as long as [BBR3 §5.3.3.8] waits between
/// probes.
const REST: Span = Span::from_secs(3);
/// Ours: part of the free capacity that the low policy takes per epoch, relative to its window.
const LOW_GAIN: f64 = 0.25;

/// Parameters of the law under a policy, and the state of the low policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PolicyGains {
    policy: Policy,
    rest_until: Instant,
    /// The flow has reduced its rate for another flow and has not grown since.
    is_yielding: bool,
    /// Queue in seconds that the flow has built, or yielded to, in the last epochs; the next epochs
    /// may still show it.
    recent: [f64; 2],
    /// Until this time a queue may be the flow's own, left by its probe.
    probed_until: Instant,
}

impl PolicyGains {
    pub(super) const fn of(policy: Policy) -> Self {
        let (rest_until, probed_until) = (Instant::ZERO, Instant::ZERO);
        Self { policy, rest_until, is_yielding: false, recent: [0.0; 2], probed_until }
    }

    /// Returns the start of the low policy: a small part of the train's rate, once a train has
    /// measured the link.
    pub(super) fn start(self, trained: Option<Rate>) -> Option<SearchStep> {
        let rate = trained.filter(|_| self.policy.yields())?.mul_ratio(1, LOW_START);
        Some(SearchStep::Found { rate, hold: None })
    }

    /// Returns whether the flow may start from an earlier flow's rate.
    pub(super) const fn may_remember(self) -> bool {
        !self.policy.yields()
    }

    /// Returns the queue that each further flow adds, in seconds; `fair` is the fair policy's.
    pub(super) const fn theta_s(self, fair_s: f64) -> f64 {
        if self.policy.yields() { fair_s * LOW_THETA_PART } else { fair_s }
    }

    /// Returns the queue that keeps the link busy, in seconds; `fair` is the fair policy's.
    pub(super) const fn omega_s(self, fair_s: f64) -> f64 {
        if self.policy.yields() { LOW_OMEGA } else { fair_s }
    }

    /// Returns the target queue beyond omega for `count` flows like this flow; `is_queued` is true
    /// if more than omega stands. All times in seconds.
    pub(super) fn target_queue(self, theta: f64, base: f64, count: f64, is_queued: bool) -> f64 {
        let weighted = spread((self.policy.weight() * count).max(1.0));
        match self.policy {
            Policy::Fair => theta * weighted,
            Policy::High => {
                theta * weighted * ((count - 1.0) / (SHARED_COUNT - 1.0)).clamp(0.0, 1.0)
            }
            Policy::Low if is_queued => theta * weighted,
            // Takes free capacity directly, without a queue as a signal.
            Policy::Low => base * LOW_GAIN * (count - 1.0),
        }
    }

    /// Returns whether the flow grows beyond the law's target while no queue stands.
    pub(super) const fn takes_headroom(self) -> bool {
        !self.policy.yields()
    }

    /// Returns whether the flow keeps a share beside a flow that fills the queue.
    pub(super) const fn keeps_share(self) -> bool {
        !self.policy.yields()
    }

    /// Returns whether the flow may probe for capacity beyond the law's target.
    pub(super) fn may_probe(self, count: f64, now: Instant) -> bool {
        !self.policy.yields() || (count < SHARED_COUNT && !self.rests(now))
    }

    /// Returns the part of the window to keep if another flow's queue stood through an epoch.
    /// `queue` is the standing queue, `own` the flow's own part; all in seconds.
    pub(super) fn keep(&mut self, now: Instant, queue: f64, own: f64, jitter: f64) -> Option<f64> {
        let [last, before] = self.recent;
        let recent = own.max(last).max(before);
        self.recent = [own, last];
        self.is_yielding &= self.rests(now);
        if !self.policy.yields()
            || now < self.probed_until
            || queue <= recent + jitter.max(FOREIGN_MIN)
        {
            return None;
        }
        // Packets sent before the reduction still stand in the queue.
        self.recent = [queue, 0.0];
        self.rest_until = now + REST;
        self.is_yielding = true;
        Some(RETREAT)
    }

    /// Suspends growth until this time, because the queue and the gap left by a probe are not the
    /// link's.
    pub(super) fn suspend_growth(&mut self, until: Instant) {
        if self.policy.yields() {
            self.rest_until = self.rest_until.max(until);
            self.probed_until = until;
        }
    }

    /// Returns the steady phase.
    pub(super) const fn phase(self) -> Phase {
        if self.is_yielding { Phase::Yielding } else { Phase::Named("cruise") }
    }

    /// Returns whether growth is suspended.
    pub(super) fn rests(self, now: Instant) -> bool {
        now < self.rest_until
    }
}

/// Returns the thetas of queue for `count` flows: one for each further flow up to [`LINEAR`], then
/// a constant for each doubling. The queue of many flows stays bounded, and an error of the delay
/// still changes the ratio of two rates by the same factor. [FRCC] has no bound.
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

    fn target_queue(policy: Policy, count: f64, is_queued: bool) -> f64 {
        PolicyGains::of(policy).target_queue(THETA, 0.04, count, is_queued)
    }

    #[test]
    fn flows_with_the_same_queue_have_rates_in_proportion_to_weights() {
        // A link shared by one flow of weight 2 and two fair flows: counts of 2 and 4 have the same
        // target queue.
        assert!(
            (target_queue(Policy::High, 2.0, true) - target_queue(Policy::Fair, 4.0, true)).abs()
                < 1e-9
        );
        assert!(
            (target_queue(Policy::High, 1.5, true) - target_queue(Policy::Fair, 3.0, true)).abs()
                < 1e-9
        );
    }

    #[test]
    fn beyond_four_flows_each_doubling_adds_the_same_queue() {
        for (count, thetas) in [(1.0, 0.0), (2.0, 1.0), (4.0, 3.0), (8.0, 4.5), (256.0, 12.0)] {
            assert!((spread(count) - thetas).abs() < 1e-9, "{count}");
        }
    }

    #[test]
    fn a_flow_alone_has_no_queue_target_with_any_policy() {
        for policy in Policy::ALL {
            assert!(target_queue(policy, 1.0, false).abs() < 1e-9);
            assert!(target_queue(policy, 1.0, true).abs() < 1e-9);
        }
    }

    #[test]
    fn only_the_low_policy_yields_and_only_to_queues_beyond_jitter() {
        let now = Instant::ZERO + Span::from_secs(3);
        let mut low = PolicyGains::of(Policy::Low);
        assert_eq!(low.keep(now, 0.0007, 0.0003, 0.0), None);
        assert_eq!(low.keep(now, 0.0012, 0.0003, 0.001), None);
        assert!(!low.rests(now));
        assert_eq!(low.keep(now, 0.0012, 0.0003, 0.0), Some(RETREAT));
        assert!(low.rests(now) && !low.rests(now + REST));
        assert_eq!(low.phase(), Phase::Yielding);
        assert_eq!(low.keep(now + REST, 0.0, 0.0003, 0.0), None);
        assert_eq!(low.phase().name(), "cruise", "the rest is over and no queue of others stands");
        for policy in [Policy::Fair, Policy::High] {
            assert_eq!(PolicyGains::of(policy).keep(now, 1.0, 0.0003, 0.0), None);
        }
    }
}
