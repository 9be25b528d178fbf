//! Map of the model: the transition from one round to the next.
//!
//! Source: [OVV-T §II, §III-A]. State: the senders' gaps δ, and the bits Q in the queue.
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
//! All senders have the same ρ: a drop-tail queue that drops in proportion to the rates causes
//! equal loss rates. Rates are constant within a round, so `max(0, Z)` is exact even if the queue
//! drains within the round.
//!
//! Equality in (3) means within [`TOLERANCE`]. Without Equation 3, as in the paper's analysis, the
//! sign alone selects (1) or (2), with one exception. Increase mode can approach α for ever, and
//! rounding would then fake a loss above α. A second consecutive round of increase mode that
//! gets closer, within the tolerance, counts as this limit, and the gap stays constant.

use crate::params::{Params, Variant};

/// Difference between ρ and α that counts as equal.
pub const TOLERANCE: f64 = 1e-9;

/// An approach counts only if the previous round was already this close. An orbit that jumps to α
/// by chance continues.
const APPROACH: f64 = 1e-6;

/// Rounding error of ρ near α.
const ROUNDING: f64 = 2e-15;

/// Equation that computes the next gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Equation 2: the gap shrinks, the rate grows.
    Increase,
    /// Equation 1: the gap grows, the rate falls.
    Decrease,
    /// The loss is on target: Equation 3, or the limit of increase mode.
    Equal,
}

/// Results of one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round<const N: usize> {
    /// Gaps during the round, in seconds.
    pub gaps: [f64; N],
    /// Rates with these gaps, in bit/s.
    pub rates: [f64; N],
    /// Sum of the rates, in bit/s.
    pub rate: f64,
    /// ρ, the loss rate of the round.
    pub loss: f64,
    /// Bits that the queue dropped.
    pub lost: f64,
    /// Bits that the bottleneck served.
    pub served: f64,
    /// Bits in the queue at the end of the round.
    pub queue: f64,
    /// Equation that computed the next gaps.
    pub mode: Mode,
}

/// Error: a gap is zero or negative. No sender can have such a gap, so the iteration ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GapNotPositive {
    /// Round with the invalid gap, from 0.
    pub round: u64,
    /// Index of the flow, from 0.
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
    /// ρ of the previous round, for late feedback.
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
    /// Returns the map with these gaps, in seconds, and an empty queue.
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

    /// Returns the gaps of the next round, in seconds.
    pub const fn gaps(&self) -> [f64; N] {
        self.gaps
    }

    /// Returns the number of completed rounds.
    pub const fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Computes one round.
    ///
    /// # Errors
    /// If the gap of a flow is not positive. The state is then unchanged.
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
        // Z − K·L, in an order without cancellation if the queue is already full.
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
        // On the same side of α and closer; or at α, but not by a jump across.
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

/// Equation 2. While a deep queue fills, a gap can become smaller than the smallest float. A
/// positive gap then stays positive, as in exact arithmetic; the rate is C in any case.
#[inline]
fn shrink(gap: f64, factor: f64) -> f64 {
    let after = gap * factor;
    if factor > 0.0 { after.max(f64::MIN_POSITIVE) } else { after }
}

#[cfg(test)]
#[path = "map/tests.rs"]
mod tests;
