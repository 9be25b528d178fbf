//! Arrival process and sizes of flows, for both simulator and lab.
//!
//! The runner of a plan takes the time of the next arrival from [`Traffic::next_at`] and calls
//! [`Traffic::take`] at that time. The runner reports the end of a flow to [`Traffic::note_end`].
//! The same plan, end and random stream give the same arrivals and sizes.

use sabul_units::{Instant, Random, SeededRandom, Span};

use crate::scenario::{Arrivals, FlowPlan, FlowSize};
use sabul_units::math::{exp, ln};

/// The longest draw, 10^12 bytes: bounds heavy tails with an infinite mean.
const BYTES_MAX: f64 = 1e12;

/// Arrivals of one flow plan, in order of time.
#[derive(Clone, Debug)]
pub struct Traffic {
    size: FlowSize,
    payload_bytes: u32,
    times: Times,
    sizes_random: SeededRandom,
}

#[derive(Clone, Debug)]
enum Times {
    /// Times drawn beforehand, latest first; then `waiting` more flows, each at the end of an
    /// earlier flow.
    Listed {
        times: Vec<Instant>,
        waiting: u32,
    },
    Poisson {
        next: Instant,
        mean: Span,
        until: Instant,
        random: SeededRandom,
    },
}

impl Traffic {
    /// The traffic of a plan in a run that lasts until `end`. Simulator and lab draw from the same
    /// stream: the fork `flow/<id>` of the scenario's seed.
    pub fn new(plan: &FlowPlan, end: Instant, random: &SeededRandom) -> Self {
        let mut starts = random.fork("arrivals");
        let times = match plan.arrivals {
            Arrivals::Together { count, spread } => {
                let mut times: Vec<_> =
                    (0..count).map(|_| plan.start + Span(starts.below(spread.0))).collect();
                times.sort_unstable_by(|a, b| b.cmp(a));
                Times::Listed { times, waiting: 0 }
            }
            Arrivals::Chain { count, parallel } => {
                let first = parallel.min(count);
                let times = (0..first).map(|_| plan.start).collect();
                Times::Listed { times, waiting: count - first }
            }
            Arrivals::Poisson { mean_interval } => {
                let mut times = Times::Poisson {
                    next: plan.start,
                    mean: mean_interval,
                    until: plan.stop.unwrap_or(end).min(end),
                    random: starts,
                };
                times.advance();
                times
            }
        };
        let payload_bytes = plan.payload_bytes();
        Self { size: plan.size, payload_bytes, times, sizes_random: random.fork("sizes") }
    }

    /// Returns the time of the next arrival; `None` after the last arrival, or while a chain waits
    /// for a flow to end.
    pub fn next_at(&self) -> Option<Instant> {
        match &self.times {
            Times::Listed { times, .. } => times.last().copied(),
            Times::Poisson { next, until, .. } => (next < until).then_some(*next),
        }
    }

    /// Records the end of a flow: the next flow of a chain may start.
    pub fn note_end(&mut self, now: Instant) {
        if let Times::Listed { times, waiting: waiting @ 1.. } = &mut self.times {
            *waiting -= 1;
            times.push(now);
        }
    }

    /// Takes the next arrival and returns its payload bytes; `None` for an endless flow.
    pub fn take(&mut self) -> Option<u64> {
        self.times.advance();
        match self.size {
            FlowSize::Endless => None,
            FlowSize::Bytes(bytes) => Some(bytes),
            FlowSize::Pareto { shape, mean_packets } => {
                Some(pareto(&mut self.sizes_random, shape, mean_packets, self.payload_bytes))
            }
        }
    }
}

impl Times {
    fn advance(&mut self) {
        match self {
            Self::Listed { times, .. } => {
                times.pop();
            }
            Self::Poisson { next, mean, random, .. } => {
                *next = *next + Span::from_secs_f64(mean.as_secs_f64() * -ln(unit(random)));
            }
        }
    }
}

/// A uniform number in (0, 1].
fn unit(random: &mut SeededRandom) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// Pareto by inversion: scale ÷ u^(1 ÷ shape), scale = mean × (shape − 1) ÷ shape.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and capped")]
fn pareto(random: &mut SeededRandom, shape: f64, mean_packets: f64, payload_bytes: u32) -> u64 {
    let scale = mean_packets * (shape - 1.0) / shape;
    let packets = scale * exp((-ln(unit(random)) / shape).min(600.0));
    (packets * f64::from(payload_bytes)).clamp(1.0, BYTES_MAX) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pareto_sizes_have_their_scale_and_mean() {
        let mut random = SeededRandom::new(7);
        let draws: Vec<u64> = (0..200_000).map(|_| pareto(&mut random, 2.5, 100.0, 1000)).collect();
        let mean = draws.iter().sum::<u64>() as f64 / draws.len() as f64 / 1000.0;
        assert!((98.0..102.0).contains(&mean), "{mean}");
        // 100 × 1.5 ÷ 2.5 = 60 packets is the least.
        let least = draws.iter().min().copied().unwrap_or(0);
        assert!((60_000..60_100).contains(&least), "{least}");
        // P(X > 2 × scale) = 2^-2.5 = 0.1768.
        let over = draws.iter().filter(|draw| **draw > 120_000).count() as f64 / 200_000.0;
        assert!((0.172..0.181).contains(&over), "{over}");
    }

    #[test]
    fn exponential_intervals_have_their_mean() {
        let mut times = Times::Poisson {
            next: Instant::ZERO,
            mean: Span::from_millis(200),
            until: Instant(u64::MAX),
            random: SeededRandom::new(3),
        };
        for _ in 0..50_000 {
            times.advance();
        }
        let Times::Poisson { next, .. } = times else { panic!("it was Poisson") };
        let mean = next.elapsed().as_secs_f64() / 50_000.0;
        assert!((0.197..0.203).contains(&mean), "{mean}");
    }
}
