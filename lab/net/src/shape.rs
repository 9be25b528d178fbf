//! Variable link rates: a policer, a shaper that lets bursts pass, a random walk, step changes, and
//! traces ([`crate::trace`]).
//!
//! Policer:  a bucket fills at a rate up to a depth. A packet with more bytes than there are tokens
//!           is dropped before the queue; any other packet consumes its tokens.
//! Shaper:   the same bucket fills at the link's rate, behind the queue. A packet leaves at the
//!           burst rate once there are tokens for all of it. A link at rest is therefore faster
//!           until the bucket is empty.
//! Walk:     the rate holds for a period and then changes by up to an eighth of the range, either
//!           way, uniformly, and stays within two limits. The walk starts at the link's rate. The
//!           change also applies to the packet in the serialiser.
//! Steps:    the rate holds until the next of the given times. The change also applies to the
//!           packet in the serialiser.
//! Buckets are full at first. Tokens are stored as the time that it takes to earn them, so only
//! packet times are rounded.

use std::collections::VecDeque;

use sabul_units::key::{Key, Range, Takes};
use sabul_units::{Bytes, Instant, Random, Rate, SeededRandom, Span};

use crate::forge::Forgery;
use crate::router::RouterPlan;
use crate::setting::{DELAY_MAX, LinkError, RATE_MAX, RATE_MBPS, RATE_MIN, ensure};
use crate::steps::{DelayStep, RateStep, check_order};
use crate::trace::{Player, Trace};

/// Largest bucket in bytes: at the slowest rate it takes half of the countable time to fill.
const BUCKET_MAX: u64 = 1_000_000_000;
/// Range of the period of a rate, in milliseconds.
const EVERY_MS: Range = Range::of(1.0, 3.6e6);
/// Largest change of the rate, as a divisor of the range.
const STEP: u64 = 8;
/// After this many periods at rest, the walk draws once instead of for each period.
const PERIODS_MAX: u64 = 1_000;

/// A token bucket and its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Policer: fill rate. Shaper: sending rate while tokens last.
    pub rate: Rate,
    /// Capacity in bytes.
    pub bytes: u64,
}

/// A random walk of the rate between a limit and the link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateWalk {
    /// The other limit.
    pub low: Rate,
    /// Period for which a rate holds.
    pub every: Span,
}

/// Settings other than a constant rate and delay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shaping {
    pub(crate) policer: Option<TokenBucket>,
    pub(crate) shaper: Option<TokenBucket>,
    pub(crate) rate_walk: Option<RateWalk>,
    pub(crate) rate_steps: Vec<RateStep>,
    pub(crate) trace: Option<Trace>,
    pub(crate) delay_steps: Vec<DelayStep>,
    pub(crate) router: Option<RouterPlan>,
    pub(crate) forge: Option<Forgery>,
}

impl Shaping {
    /// Rejects two variable rates at once, and steps that are out of order or range.
    pub(crate) fn check(&self, rate: Option<Rate>) -> Result<(), LinkError> {
        let courses = [
            ("shaper", self.shaper.is_some()),
            ("rate_walk", self.rate_walk.is_some()),
            ("rate_steps", !self.rate_steps.is_empty()),
            ("trace", self.trace.is_some()),
        ];
        let mut given = courses.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name);
        if let (Some(first), Some(second)) = (given.next(), given.next()) {
            return ensure(false, first, || format!("beside {second}"), "one of the two");
        }
        let is_mean = self.trace.as_ref().is_none_or(|trace| rate == Some(trace.mean_rate()));
        ensure(is_mean, "trace", || format!("beside {rate:?}"), "the mean rate of the trace")?;
        let allowed = "rates from 1 kbit/s to 1 Tbit/s, on a link that has a rate";
        for step in &self.rate_steps {
            let is_allowed = rate.is_some() && (RATE_MIN..=RATE_MAX).contains(&step.rate);
            ensure(is_allowed, "rate_steps", || step.rate.to_string(), allowed)?;
        }
        check_order("rate_steps", self.rate_steps.iter().map(|step| step.at))?;
        for step in &self.delay_steps {
            let is_allowed = step.delay <= DELAY_MAX;
            let value = || format!("{:?}", step.delay);
            ensure(is_allowed, "delay_steps", value, "delays of 0 to 3600 s")?;
        }
        check_order("delay_steps", self.delay_steps.iter().map(|step| step.at))
    }
}

/// Example of a policer.
pub(crate) const POLICER_EXAMPLE: &str = "{ rate_mbps = 50, bucket_bytes = 100000 }";
/// Example of a shaper.
pub(crate) const SHAPER_EXAMPLE: &str = "{ burst_mbps = 1000, bucket_bytes = 1000000 }";
/// Example of a random walk.
pub(crate) const WALK_EXAMPLE: &str = "{ low_mbps = 5, every_ms = 100 }";

const fn bucket_key(example: &'static str) -> Key<TokenBucket> {
    Key::<TokenBucket>::new(
        "bucket_bytes",
        Takes::Whole(1, BUCKET_MAX, |bucket, n| bucket.bytes = n),
    )
    .doc("capacity of the bucket; the bucket is full at the start")
    .required(example)
}

/// Keys of a link's `policer`.
pub const POLICER: &[Key<TokenBucket>] = &[
    Key::<TokenBucket>::new("rate_mbps", Takes::Mbps(RATE_MBPS, |bucket, rate| bucket.rate = rate))
        .doc("rate at which the bucket fills")
        .required(POLICER_EXAMPLE),
    bucket_key(POLICER_EXAMPLE),
];

/// Keys of a link's `shaper`.
pub const SHAPER: &[Key<TokenBucket>] = &[
    Key::<TokenBucket>::new(
        "burst_mbps",
        Takes::Mbps(RATE_MBPS, |bucket, rate| bucket.rate = rate),
    )
    .doc("rate while the bucket has tokens; at least the rate of the link")
    .required(SHAPER_EXAMPLE),
    bucket_key(SHAPER_EXAMPLE),
];

/// Keys of a link's `rate_walk`.
pub const RATE_WALK: &[Key<RateWalk>] = &[
    Key::<RateWalk>::new("low_mbps", Takes::Mbps(RATE_MBPS, |walk, rate| walk.low = rate))
        .doc("one end of the range; the other end is the rate of the link")
        .required(WALK_EXAMPLE),
    Key::<RateWalk>::new("every_ms", Takes::Millis(EVERY_MS, |walk, every| walk.every = every))
        .doc("time between two changes of the rate")
        .required(WALK_EXAMPLE),
];

/// State of a token bucket.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate: Rate,
    /// Capacity and present tokens, as the time to earn them.
    depth: Span,
    credit: Span,
    at: Instant,
}

impl Bucket {
    /// Creates a full bucket.
    pub(crate) fn new(rate: Rate, bytes: u64) -> Self {
        let depth = rate.time_for(Bytes(bytes));
        Self { rate, depth, credit: depth, at: Instant::ZERO }
    }

    fn fill(&mut self, now: Instant) {
        let left = self.depth.saturating_sub(self.credit);
        self.credit += now.since(self.at).min(left);
        self.at = now;
    }

    /// Whether a packet passes the policer; consumes its tokens if so.
    #[inline(never)]
    pub(crate) fn admits(&mut self, now: Instant, size: u32) -> bool {
        self.fill(now);
        let cost = self.rate.time_for(Bytes(size.into()));
        let passes = cost <= self.credit;
        if passes {
            self.credit = self.credit.saturating_sub(cost);
        }
        passes
    }
}

/// Replacement of the constant rate in the serialiser.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Burst { burst: Rate, bucket: Bucket },
    Varying(Box<Varying>),
    Trace(Player),
}

/// A rate that holds until a time.
#[derive(Clone, Debug)]
pub(crate) struct Varying {
    rate: Rate,
    until: Instant,
    course: Course,
}

/// Rule for the next rate.
#[derive(Clone, Debug)]
enum Course {
    /// Random walk: a nearby rate between two limits.
    Walk { low: u64, high: u64, every: Span, random: SeededRandom },
    /// Steps: the first entry, at the end of the present rate.
    Steps(VecDeque<RateStep>),
}

impl Shape {
    pub(crate) fn burst(rate: Rate, shaper: TokenBucket) -> Self {
        Self::Burst { burst: shaper.rate.max(rate), bucket: Bucket::new(rate, shaper.bytes) }
    }

    pub(crate) fn walk(rate: Rate, walk: RateWalk, random: SeededRandom) -> Self {
        let (low, high) = (rate.0.min(walk.low.0), rate.0.max(walk.low.0));
        let RateWalk { every, .. } = walk;
        let course = Course::Walk { low, high, every, random };
        Self::Varying(Box::new(Varying { rate, until: Instant::ZERO + every, course }))
    }

    /// Creates a rate with steps; `None` without steps.
    pub(crate) fn steps(rate: Rate, steps: &[RateStep]) -> Option<Self> {
        let until = steps.first()?.at;
        let course = Course::Steps(steps.iter().copied().collect());
        Some(Self::Varying(Box::new(Varying { rate, until, course })))
    }

    /// Records that no packet waits until `now`.
    #[cold]
    pub(crate) fn rest(&mut self, now: Instant) {
        if let Self::Trace(player) = self {
            player.rest(now);
        }
    }

    /// Returns when the last bit of a packet has left whose transmission begins at `start`.
    #[cold]
    pub(crate) fn finish(&mut self, start: Instant, size: u32) -> Instant {
        match self {
            Self::Burst { burst, bucket } => {
                bucket.fill(start);
                let cost = bucket.rate.time_for(Bytes(size.into()));
                let at_once = burst.time_for(Bytes(size.into()));
                let begin = start + cost.saturating_sub(bucket.credit);
                bucket.fill(begin);
                bucket.credit = bucket.credit.saturating_sub(cost);
                begin + at_once
            }
            Self::Varying(varying) => varying.finish(start, size),
            Self::Trace(player) => player.finish(start, size),
        }
    }
}

impl Varying {
    fn finish(&mut self, start: Instant, size: u32) -> Instant {
        let mut at = start;
        // Part of the packet that is left, in billionths.
        let mut left = WHOLE;
        loop {
            self.move_on(at);
            let whole = self.rate.time_for(Bytes(size.into()));
            let needed = whole.mul_ratio(left, WHOLE);
            let room = self.until.since(at);
            if needed <= room || self.until == FOREVER {
                return at + needed;
            }
            left = left.saturating_sub(part(room, whole));
            at = self.until;
        }
    }

    /// Updates the rate to time `at`.
    fn move_on(&mut self, at: Instant) {
        let Self { rate, until, course } = self;
        match course {
            Course::Walk { low, high, every, random } => {
                let passed = at.since(*until).0 / every.0.max(1);
                if passed > PERIODS_MAX {
                    *until = *until + Span(every.0 * passed);
                }
                while *until <= at {
                    *until = *until + *every;
                    let step = (*high - *low) / STEP;
                    let moved = rate.0 + random.below(2 * step + 1);
                    *rate = Rate(moved.saturating_sub(step).clamp(*low, *high));
                }
            }
            Course::Steps(steps) => {
                while *until <= at {
                    let Some(step) = steps.pop_front() else { return };
                    *rate = step.rate;
                    *until = steps.front().map_or(FOREVER, |next| next.at);
                }
            }
        }
    }
}

/// The end of the countable time.
const FOREVER: Instant = Instant(u64::MAX);
/// Scale of the parts of a packet.
const WHOLE: u64 = 1_000_000_000;

/// Returns the part of a packet that leaves within `room`, in billionths.
#[expect(clippy::cast_possible_truncation, reason = "a part of a whole packet")]
fn part(room: Span, whole: Span) -> u64 {
    let part = u128::from(room.0) * u128::from(WHOLE) / u128::from(whole.0.max(1));
    part.min(u128::from(WHOLE)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn a_policer_admits_its_bucket_at_once_and_then_its_rate() {
        // 8 Mb/s is 1000 bytes per millisecond.
        let mut bucket = Bucket::new(Rate::from_mbps(8), 5_000);
        let passed =
            |bucket: &mut Bucket, now| (0..20).filter(|_| bucket.admits(now, 1_000)).count();
        assert_eq!(passed(&mut bucket, at_ms(0)), 5);
        assert_eq!(passed(&mut bucket, at_ms(3)), 3);
        assert_eq!(passed(&mut bucket, at_ms(500)), 5, "it holds no more");
        assert!(!bucket.admits(at_ms(500), 1) && bucket.admits(at_ms(501), 900));
    }

    #[test]
    fn a_shaper_is_faster_while_its_bucket_lasts() {
        let shaper = TokenBucket { rate: Rate::from_mbps(80), bytes: 2_000 };
        let mut shape = Shape::burst(Rate::from_mbps(8), shaper);
        let mut at = Instant::ZERO;
        let times: Vec<u64> = (0..4)
            .map(|_| {
                let finish = shape.finish(at, 1_000);
                let micros = finish.since(at).as_micros();
                at = finish;
                micros
            })
            .collect();
        // 100 µs at 80 Mb/s each; the third waits for 800 bytes, because 200 were earned meanwhile.
        assert_eq!(times, [100, 100, 900, 1_000]);
        let busy = at;
        assert_eq!(shape.finish(at_ms(100), 1_000).since(at_ms(100)).as_micros(), 100);
        assert!(busy < at_ms(100));
    }

    #[test]
    fn a_random_walk_rate_stays_in_range_and_repeats_with_its_seed() {
        let walk = RateWalk { low: Rate::from_mbps(2), every: Span::from_millis(10) };
        let run = |seed| {
            let random = SeededRandom::new(seed);
            let mut shape = Shape::walk(Rate::from_mbps(10), walk, random);
            let mut at = Instant::ZERO;
            (0..2_000)
                .map(|_| {
                    let finish = shape.finish(at, 1_500);
                    let span = finish.since(at);
                    at = finish;
                    span
                })
                .collect::<Vec<_>>()
        };
        let spans = run(1);
        assert_eq!(spans, run(1));
        assert_ne!(spans, run(2));
        let (least, most) = (Rate::from_mbps(10), Rate::from_mbps(2));
        let [least, most] = [least, most].map(|rate| rate.time_for(Bytes(1_500)));
        let slack = Span::from_nanos(1);
        assert!(spans.iter().all(|span| *span + slack >= least && *span <= most + slack));
        assert!(spans.iter().any(|span| *span > least.mul_ratio(2, 1)), "it moves");
    }

    #[test]
    fn a_rate_change_affects_a_packet_during_serialisation() {
        let walk = RateWalk { low: Rate::from_mbps(8), every: Span::from_millis(1) };
        // Both limits are the same: one and a half periods take as long as at a constant rate.
        let mut shape = Shape::walk(Rate::from_mbps(8), walk, SeededRandom::new(1));
        let took = shape.finish(Instant::ZERO, 1_500).elapsed();
        assert!(took.0.abs_diff(Span::from_micros(1_500).0) < 10_000, "{took:?}");
    }

    #[test]
    fn a_rate_step_applies_to_the_packet_in_the_serialiser() {
        // 1000 bytes at 8 Mb/s take 1 ms. A quarter leaves before the step to 2 Mb/s, and the rest takes 3 ms.
        let steps = [
            RateStep { at: at_ms(10), rate: Rate::from_mbps(2) },
            RateStep { at: at_ms(20), rate: Rate::from_mbps(8) },
        ];
        let mut shape = Shape::steps(Rate::from_mbps(8), &steps).unwrap();
        let start = Instant::ZERO + Span::from_micros(9_750);
        assert_eq!(shape.finish(start, 1_000).elapsed(), Span::from_millis(13));
        // Half leaves in 2 ms before the step back, and the other half in 0.5 ms.
        assert_eq!(shape.finish(at_ms(18), 1_000).elapsed(), Span::from_micros(20_500));
        assert_eq!(shape.finish(at_ms(90), 1_000).elapsed(), Span::from_millis(91));
        assert!(Shape::steps(Rate::from_mbps(8), &[]).is_none());
    }

    #[test]
    fn rate_steps_on_an_idle_link_leave_the_last_rate() {
        let steps = [1, 2, 4].map(|n| RateStep { at: at_ms(n), rate: Rate::from_mbps(n) });
        let mut shape = Shape::steps(Rate::from_mbps(8), &steps).unwrap();
        assert_eq!(shape.finish(at_ms(5), 1_000).since(at_ms(5)), Span::from_millis(2));
    }
}
