//! Step changes of a link: a rate or a delay that holds from a given time until the next step.
//!
//! Rate:   a packet in the serialiser continues at the new rate ([`crate::shape`]).
//! Delay:  the delay that holds when the last bit of a packet has left. A shorter delay never reorders: a
//!     packet arrives no earlier than the packet before it ([`crate::impairments`]).

use sabul_units::key::{Key, Range, Takes};
use sabul_units::{Instant, Rate, Span};

use crate::setting::{DELAY_MS, LinkError, RATE_MBPS, SECONDS_MAX, ensure};

/// A rate from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStep {
    /// When the rate begins to hold.
    pub at: Instant,
    /// The rate, in bit/s over whole packets.
    pub rate: Rate,
}

/// A one-way delay from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayStep {
    /// When the delay begins to hold.
    pub at: Instant,
    /// The one-way propagation delay.
    pub delay: Span,
}

/// Example of rate steps.
pub(crate) const RATE_STEPS_EXAMPLE: &str = "a list such as [{ at_s = 20, rate_mbps = 100 }]";
/// Example of delay steps.
pub(crate) const DELAY_STEPS_EXAMPLE: &str = "a list such as [{ at_s = 20, delay_ms = 50 }]";

const AT_DOC: &str = "start time of the step; later than the previous step";

/// Keys of one of a link's `rate_steps`.
pub const RATE_STEP: &[Key<RateStep>] = &[
    Key::<RateStep>::new(
        "at_s",
        Takes::Seconds(Range::of(0.0, SECONDS_MAX), |step, at| step.at = Instant::ZERO + at),
    )
    .doc(AT_DOC)
    .required(RATE_STEPS_EXAMPLE),
    Key::<RateStep>::new("rate_mbps", Takes::Mbps(RATE_MBPS, |step, rate| step.rate = rate))
        .doc("rate after the step")
        .required(RATE_STEPS_EXAMPLE),
];

/// Keys of one of a link's `delay_steps`.
pub const DELAY_STEP: &[Key<DelayStep>] = &[
    Key::<DelayStep>::new(
        "at_s",
        Takes::Seconds(Range::of(0.0, SECONDS_MAX), |step, at| step.at = Instant::ZERO + at),
    )
    .doc(AT_DOC)
    .required(DELAY_STEPS_EXAMPLE),
    Key::<DelayStep>::new("delay_ms", Takes::Millis(DELAY_MS, |step, delay| step.delay = delay))
        .doc("one-way delay after the step")
        .required(DELAY_STEPS_EXAMPLE),
];

/// Rejects steps that are not in order of time, each later than the step before.
pub(crate) fn check_order(
    setting: &'static str,
    times: impl Iterator<Item = Instant>,
) -> Result<(), LinkError> {
    let times: Vec<Instant> = times.collect();
    let is_ordered = times.windows(2).all(|pair| pair[0] < pair[1]);
    ensure(
        is_ordered,
        setting,
        || format!("{times:?}"),
        "steps in order, each at a time of its own",
    )
}

/// Bits that a link carries between two times, if `rate` holds until the first of its steps.
pub(crate) fn bits_between(rate: Rate, steps: &[RateStep], from: Instant, until: Instant) -> f64 {
    let starts = [RateStep { at: Instant::ZERO, rate }];
    let all: Vec<&RateStep> = starts.iter().chain(steps).collect();
    let ends = all.iter().skip(1).map(|step| step.at).chain([Instant(u64::MAX)]);
    let part = |(step, end): (&&RateStep, Instant)| {
        let span = end.min(until).since(step.at.max(from));
        step.rate.0 as f64 * span.as_secs_f64()
    };
    all.iter().zip(ends).map(part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_between_two_times_sum_each_rate_over_its_duration() {
        let at = |s| Instant::ZERO + Span::from_secs(s);
        let step = |s, mbps| RateStep { at: at(s), rate: Rate::from_mbps(mbps) };
        let steps = [step(10, 100), step(20, 400)];
        let mbits =
            |from, until| bits_between(Rate::from_mbps(400), &steps, at(from), at(until)) / 1e6;
        assert!((mbits(0, 10) - 4_000.0).abs() < 1e-6);
        assert!((mbits(5, 25) - (2_000.0 + 1_000.0 + 2_000.0)).abs() < 1e-6);
        assert!((mbits(12, 13) - 100.0).abs() < 1e-6);
        assert!((mbits(30, 31) - 400.0).abs() < 1e-6);
    }
}
