//! One round of the model.
//!
//! Source: [OVV-T §II, §III-A]. State: the gaps δ of the senders and the bits Q in the queue.
//!
//! ```text
//! λ     = L / (L/C + δ)                                            (5)
//! Z     = Q + (Σλ − µ)·T        lost = max(0, Z − K·L)
//! Q'    = min(K·L, max(0, Z))   ρ    = lost / (Σλ·T)
//! δ'    = δ·(1 + k1·(ρ − α)) + c     ρ > α, "decrease" (of the rate)  (1)
//!       = δ·(1 + k2·(ρ − α))         ρ < α, "increase"                (2)
//!       = δ + d                      ρ = α                            (3)
//! ```
//!
//! All senders see the same ρ: a drop-tail queue that drops in proportion to the rates gives
//! each the same loss rate. Rates are constant within a round, so `max(0, Z)` is exact also where
//! the queue runs empty in it.
//!
//! Equality in (3) means within [`TOLERANCE`]. Where Equation 3 is left out, as the paper does
//! in its analysis, (1) and (2) decide by the sign alone, with one exception: increase mode can
//! approach α for ever, and rounding would then fake a loss above α. A second round of increase mode
//! in a row that comes nearer, within the tolerance, is taken for that limit, and the gap stands
//! still.

use crate::params::{Params, Variant};

/// How near ρ is to α to count as equal.
pub const TOLERANCE: f64 = 1e-9;

/// An approach counts as one only if the round before was this near already; an orbit that jumps
/// to α by chance goes on.
const APPROACH: f64 = 1e-6;

/// What rounding can do to ρ near α.
const ROUNDING: f64 = 2e-15;

/// Which equation makes the next gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Equation 2: the gap shrinks, the rate grows.
    Increase,
    /// Equation 1: the gap grows, the rate falls.
    Decrease,
    /// The loss is on target: Equation 3, or the limit of increase mode.
    Equal,
}

/// What happened in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round<const N: usize> {
    /// Gaps kept during the round, in seconds.
    pub gaps: [f64; N],
    /// Rates they make, in bit/s.
    pub rates: [f64; N],
    /// Sum of the rates.
    pub rate: f64,
    /// ρ, the loss rate of the round.
    pub loss: f64,
    /// Bits that the queue dropped.
    pub lost: f64,
    /// Bits that the bottleneck served.
    pub served: f64,
    /// Bits in the queue at the end of the round.
    pub queue: f64,
    /// Which equation made the next gaps.
    pub mode: Mode,
}

/// A gap that is zero or negative: no sender can keep it, so the iteration ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GapNotPositive {
    /// The round that would have had it, from 0.
    pub round: u64,
    /// Which flow, from 0.
    pub flow: usize,
    /// The gap, in seconds.
    pub gap: f64,
}

/// The map and its state, for `N` flows.
#[derive(Clone, Debug)]
pub struct Map<const N: usize> {
    gaps: [f64; N],
    queue: f64,
    rounds: u64,
    /// Distance α − ρ and mode of the last round.
    last: (f64, Mode),
    /// ρ of the last round, for late feedback.
    loss_before: f64,
    // Copies of the parameters in the units of the equations.
    packet: f64,
    packet_time: f64,
    service: f64,
    served_most: f64,
    round: f64,
    room: f64,
    alpha: f64,
    k1: f64,
    k2: f64,
    c: f64,
    d: f64,
    is_late: bool,
    is_full: bool,
    has_equation3: bool,
}

impl<const N: usize> Map<N> {
    /// Starts with these gaps, in seconds, and an empty queue.
    pub fn new(params: &Params, gaps: [f64; N]) -> Self {
        Self {
            gaps,
            queue: 0.0,
            rounds: 0,
            last: (f64::INFINITY, Mode::Decrease),
            loss_before: 0.0,
            packet: params.packet(),
            packet_time: params.packet() / params.capacity(),
            service: params.service(),
            served_most: params.service() * params.round(),
            round: params.round(),
            room: params.room(),
            alpha: params.alpha(),
            k1: params.k1(),
            k2: params.k2(),
            c: params.c(),
            d: params.d(),
            is_late: params.feedback_lag_rounds() > 0,
            is_full: params.variant() == Variant::Full,
            has_equation3: params.equation3(),
        }
    }

    /// Gaps of the next round, in seconds.
    pub const fn gaps(&self) -> [f64; N] {
        self.gaps
    }

    /// Rounds done.
    pub const fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Does one round.
    ///
    /// # Errors
    /// If the gap of a flow is not positive; the state stays as it is.
    #[inline]
    pub fn step(&mut self) -> Result<Round<N>, GapNotPositive> {
        let gaps = self.gaps;
        let mut rates = [0.0; N];
        let mut rate = 0.0;
        for (flow, &gap) in gaps.iter().enumerate() {
            if gap <= 0.0 {
                return Err(GapNotPositive { round: self.rounds, flow, gap });
            }
            rates[flow] = self.packet / (self.packet_time + gap);
            rate += rates[flow];
        }
        let sent = rate * self.round;
        let before = self.queue;
        let excess = (rate - self.service) * self.round;
        // Z − K·L, in an order that loses no digit where the queue is full already.
        let lost = (excess - (self.room - before)).max(0.0);
        self.queue = if lost > 0.0 { self.room } else { (before + excess).max(0.0) };
        let loss = if self.is_full { (1.0 - self.service / rate).max(0.0) } else { lost / sent };
        let served = self.served_most.min(before + sent);

        let seen = if self.is_late { self.loss_before } else { loss };
        let mode = self.decide(seen);
        for gap in &mut self.gaps {
            *gap = match mode {
                Mode::Decrease => *gap * (1.0 + self.k1 * (seen - self.alpha)) + self.c,
                Mode::Increase => shrink(*gap, 1.0 + self.k2 * (seen - self.alpha)),
                Mode::Equal if self.has_equation3 => *gap + self.d,
                Mode::Equal => *gap,
            };
        }
        self.last = (self.alpha - seen, mode);
        self.loss_before = loss;
        self.rounds += 1;
        Ok(Round { gaps, rates, rate, loss, lost, served, queue: self.queue, mode })
    }

    #[inline]
    fn decide(&self, loss: f64) -> Mode {
        let below = self.alpha - loss;
        let (before, mode) = self.last;
        // On the same side of α and nearer; or at it, and not just thrown across.
        let is_approach = mode == Mode::Increase
            && before <= APPROACH
            && ((0.0..before).contains(&below) || below.abs() <= ROUNDING.min(before / 2.0));
        let is_equal =
            below.abs() <= TOLERANCE && (self.has_equation3 || mode == Mode::Equal || is_approach);
        if is_equal {
            Mode::Equal
        } else if below < 0.0 {
            Mode::Decrease
        } else {
            Mode::Increase
        }
    }
}

/// Equation 2. A long fill of a deep queue can shrink a gap by more than floats have digits for; a
/// positive one then stays positive, as it does in exact arithmetic, and the rate is C anyway.
#[inline]
fn shrink(gap: f64, factor: f64) -> f64 {
    let after = gap * factor;
    if factor > 0.0 { after.max(f64::MIN_POSITIVE) } else { after }
}

#[cfg(test)]
#[path = "map/tests.rs"]
mod tests;
