//! Closed-form formulas of the paper, as printed and as corrected.
//!
//! With `X = L/µ − L/C` (the gap at λ = µ) and `D = 1 − α − µ/C`, the gap at λ = µ/(1−α) is
//! `δ* = L·D/µ`. While the queue is full, Equation 2 is the logistic map
//! `δ' = δ·(1 + k2·(D − µδ/L))`, which gives the exact thresholds below.

use crate::params::Params;

/// Rounds up to a whole number, at most 9e15, which no iteration reaches.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
pub(crate) fn ceil_rounds(rounds: f64) -> u64 {
    // NaN also gives the maximum: then nothing is known and nothing is excluded.
    if rounds <= 0.0 { 0 } else { rounds.ceil().min(9e15) as u64 }
}

/// Returns X, the gap at λ = µ, in seconds.
pub fn gap_at_service(p: &Params) -> f64 {
    p.gap_of(p.service())
}

/// Returns D = 1 − α − µ/C, the margin by which the interface exceeds the rate of the target loss.
pub fn excess(p: &Params) -> f64 {
    1.0 - p.alpha() - p.service() / p.capacity()
}

/// Returns δ*, the gap at λ = µ/(1−α), in seconds. The gap is negative if the interface cannot
/// reach this rate.
pub fn gap_at_target(p: &Params) -> f64 {
    p.packet() * excess(p) / p.service()
}

/// Returns C/(C−µ), the bound on k2 in Lemma 3 [OVV-T §III-B]. With k2 up to this bound, a full
/// queue locks increase mode from every start.
pub fn k2_printed(p: &Params) -> f64 {
    p.capacity() / (p.capacity() - p.service())
}

/// Returns 1/D: above this bound on k2, a full queue oscillates from every start. Between the two
/// bounds the result depends on the start.
pub fn k2_sharp(p: &Params) -> f64 {
    1.0 / excess(p)
}

/// Returns the limit of the gap under Equation 1 alone, applied whatever the loss, in seconds. The
/// limit is the root of `c = k1·δ·(α − ρ(δ))`, which is `c/(k1·α)` if that gap makes no loss.
pub fn gap_of_endless_decrease(p: &Params) -> f64 {
    let free = p.c() / (p.k1() * p.alpha());
    if free >= gap_at_service(p) {
        return free;
    }
    // Otherwise 0 < ρ < α: k1·(µ/L)·δ² − k1·D·δ − c = 0.
    let (a, b) = (p.k1() * p.service() / p.packet(), p.k1() * excess(p));
    (b + (b * b + 4.0 * a * p.c()).sqrt()) / (2.0 * a)
}

/// Returns n', the rounds of increase mode without loss from `gap` to λ ≥ µ. [OVV-T §VI] Equation
/// 15.
pub fn rounds_to_service(p: &Params, gap: f64) -> u64 {
    ceil_rounds((gap_at_service(p) / gap).ln() / (1.0 - p.k2() * p.alpha()).ln())
}

/// Returns l, the rounds that fill the queue from λ = µ on. [OVV-T §VI], proof of Lemma 4.
pub fn rounds_to_fill(p: &Params) -> u64 {
    let (capacity, service, gain) = (p.capacity(), p.service(), p.k2() * p.alpha());
    let bits = p.room() * (capacity - capacity * gain + gain * service);
    ceil_rounds(bits / (p.round() * gain * service * (capacity - service)))
}

/// Lowest rate at a switch from Equation 1 to 2 in the paper's two cases, in bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowestRate {
    /// Case (i): one step of Equation 1 from δ* with ρ = 1 − µ/C and `c = c0`, iterated.
    pub first: f64,
    /// Case (i) by the formula as printed [OVV-T §VI].
    pub first_printed: f64,
    /// The same value by the corrected formula.
    pub first_corrected: f64,
    /// Case (ii): the same step with `c = L/µ − L/C`.
    pub second: f64,
    /// Case (ii) by the formula as printed, whose terms do not have the same dimension.
    pub second_printed: f64,
    /// The same value by the corrected formula.
    pub second_corrected: f64,
    /// c0, the threshold of c in case (i), in seconds; it can be negative.
    pub c0: f64,
}

/// Computes λ_min1 and λ_min2 of the proof of Lemma 4 in all three ways.
pub fn lowest_rate(p: &Params) -> LowestRate {
    let (capacity, service, alpha, k1) = (p.capacity(), p.service(), p.alpha(), p.k1());
    let d = excess(p);
    let c0 = p.packet() / service * (alpha - k1 + k1 * alpha) + p.packet() * k1 / capacity;
    let stepped = gap_at_target(p) * (1.0 + k1 * d);
    let square = capacity * capacity;
    let headroom = capacity * (1.0 - alpha) - service;
    LowestRate {
        first: p.rate_of(stepped + c0),
        first_printed: square * service
            / (square - k1 * capacity * service
                + 2.0 * k1 * capacity * service * alpha
                + k1 * service * alpha
                - k1 * square * alpha
                + k1 * alpha * alpha * square),
        first_corrected: service / (1.0 - k1 * d * (alpha + service / capacity)),
        second: p.rate_of(stepped + gap_at_service(p)),
        second_printed: square * service
            / ((square * (1.0 - alpha) - capacity * service) * (capacity + k1 * headroom) + square),
        second_corrected: square * service / (headroom * (capacity + k1 * headroom) + square),
        c0,
    }
}

/// Returns the largest c that Lemma 7 as printed allows, in seconds.
pub fn c_of_excess_loss_printed(p: &Params) -> f64 {
    ((1.0 + p.k1()) * p.k2() * p.alpha() - p.k1()) * gap_at_service(p)
}

/// Returns the largest c, in seconds, with this property: a decrease round follows every increase
/// round, and the pair's mean loss exceeds α. The bound requires k2·D > 2 and k1·D ≤ 1.
///
/// A decrease from below δ* ends at most at δ* + c. Up to the gap X, which is `α·L/µ` more than δ*,
/// the queue stays full. The pair then loses `2α + e·(k2·(D + e) − 2)` with `e = α − ρ > 0`. If the
/// queue counts as full at any rate, the same holds for gaps up to
/// `X·(1 + (k2·α − 2α/(1−µ/C))/(1 − k2·α))`. It does not hold if the queue can drain.
pub fn c_of_excess_loss(p: &Params) -> f64 {
    let to_service = p.alpha() * p.packet() / p.service();
    if p.room() > 0.0 {
        return to_service;
    }
    let gain = p.k2() * p.alpha();
    let share = 1.0 - p.service() / p.capacity();
    to_service + gap_at_service(p) * (gain - 2.0 * p.alpha() / share) / (1.0 - gain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Key, Set};

    fn assert_near(value: f64, expected: f64, within: f64) {
        assert!((value - expected).abs() <= within, "{value} is not {expected} ± {within}");
    }

    #[test]
    fn gaps_of_pr0_at_half_the_interface() {
        let p = Params::preset(Set::Pr0);
        // X = 24 − 12 µs; D = 1 − 0.001 − 0.5; δ* = 24 µs × 0.499.
        assert_near(gap_at_service(&p), 12e-6, 1e-15);
        assert_near(excess(&p), 0.499, 1e-15);
        assert_near(gap_at_target(&p), 11.976e-6, 1e-15);
        assert_near(p.rate_of(gap_at_target(&p)), 500e6 / 0.999, 1e-3);
        assert_near(k2_printed(&p), 2.0, 1e-12);
        assert_near(k2_sharp(&p), 1.0 / 0.499, 1e-12);
    }

    #[test]
    fn equation_1_alone_tends_to_c_over_k1_alpha() {
        // 0.5 µs / (0.1 × 0.001) = 5 ms: 12000 bit / 5.012 ms = 2.394 Mb/s, not 0.
        let p = Params::preset(Set::Pr0);
        assert_near(gap_of_endless_decrease(&p), 5e-3, 1e-12);
        assert_near(p.rate_of(gap_of_endless_decrease(&p)), 2.394_254e6, 1.0);
    }

    #[test]
    fn equation_1_alone_stops_below_the_target_loss_where_c_is_tiny() {
        let p = Params::preset(Set::Pr0).to_builder().with(Key::CUs, 1e-5).build().unwrap();
        let gap = gap_of_endless_decrease(&p);
        let loss = 1.0 - p.service() / p.rate_of(gap);
        assert!(loss > 0.0 && loss < p.alpha());
        assert_near(gap * p.k1() * (loss - p.alpha()) + p.c(), 0.0, 1e-20);
    }

    #[test]
    fn corrected_lowest_rates_match_the_step_and_printed_rates_do_not() {
        let low = lowest_rate(&Params::preset(Set::Pr0));
        assert_near(low.first / 1e6, 512.8, 0.05);
        assert_near(low.second / 1e6, 328.1, 0.05);
        assert_near(low.first_corrected / low.first, 1.0, 1e-12);
        assert_near(low.second_corrected / low.second, 1.0, 1e-12);
        assert!((low.first_printed / low.first - 1.0).abs() > 1e-3);
        assert!((low.second_printed / low.second - 1.0).abs() > 1e-3);
        assert!(low.c0 < 0.0);
    }

    #[test]
    fn the_corrected_second_fraction_holds_away_from_half_the_interface_rate() {
        for share in [0.1, 0.4, 0.9] {
            let p = Params::preset(Set::Pr1).to_builder().with(Key::ServiceShare, share);
            let p = p.with(Key::RateShareInitial, 0.5).build().unwrap();
            let low = lowest_rate(&p);
            assert_near(low.first_corrected / low.first, 1.0, 1e-12);
            assert_near(low.second_corrected / low.second, 1.0, 1e-12);
        }
    }

    #[test]
    fn rounds_to_service_counts_the_simulated_rounds() {
        let p = Params::preset(Set::Pr0);
        // 28 µs × 0.99^n ≤ 12 µs from n = 85 on.
        assert_eq!(rounds_to_service(&p, 28e-6), 85);
        assert_eq!(rounds_to_service(&p, 12e-6), 0);
        // 12 Mbit / (0.2 s × 500 Mb/s × (1/0.995 − 1)) = 23.88.
        assert_eq!(rounds_to_fill(&p), 24);
    }
}
