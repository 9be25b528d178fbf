//! Lemma 7: the average loss can exceed the target. [OVV-T §III-B]

use super::statement::{
    Claim, Context, Draft, Relation, Statement, number, positive_gap, standing,
};
use crate::formulas::{
    c_of_excess_loss, c_of_excess_loss_printed, excess, gap_at_target, k2_sharp,
};
use crate::orbit::{End, Orbit};
use crate::params::Key;

/// Returns the claim that γ exceeds α, undecided within the error of the average.
fn exceeds(orbit: &Orbit, alpha: f64) -> Claim {
    let is_measured = !matches!(orbit.end, End::TooLong) || orbit.switches >= 20;
    let is_clear = (orbit.gamma - alpha).abs() > 2.0 * orbit.gamma_error;
    Claim::compare("γ > α", orbit.gamma, Relation::Above, alpha).if_decided(is_measured && is_clear)
}

/// Lemma 7. The proof assumes that increase and decrease rounds alternate and that an increase
/// starts from λ = µ. Under the corrected conditions, every increase round and the decrease round
/// after it lose more than α on average, whatever follows; see [`c_of_excess_loss`].
pub(super) fn lemma7(context: &Context<'_>) -> Draft {
    let (p, orbit) = (context.params, context.orbit);
    let share = 1.0 - p.service() / p.capacity();
    let c_us = p.value(Key::CUs);
    let printed_c = c_of_excess_loss_printed(p) * 1e6;
    let gain = (1.0 + p.k1()) * p.k2() * p.alpha();
    let mut conditions = vec![
        Claim::compare("c <= [(1+k1)·k2·α - k1]·X (us)", c_us, Relation::AtMost, printed_c),
        Claim::compare("(1+k1)·k2·α > k1", gain, Relation::Above, p.k1()),
        positive_gap(p),
        Claim::compare("k2 > 2", p.k2(), Relation::Above, 2.0),
        Claim::compare("k2·(1-µ/C) >= 2", p.k2() * share, Relation::AtLeast, 2.0),
    ];
    conditions.extend(standing(p));
    let printed = Statement::new(conditions, || vec![exceeds(orbit, p.alpha())]);

    let d = excess(p);
    let corrected_c = c_of_excess_loss(p) * 1e6;
    let mut conditions = vec![
        Claim::compare("k2·D > 2", p.k2() * d, Relation::Above, 2.0),
        positive_gap(p),
        Claim::compare("k1·D <= 1", p.k1() * d, Relation::AtMost, 1.0),
        Claim::compare("c <= corrected bound (us)", c_us, Relation::AtMost, corrected_c),
    ];
    conditions.extend(standing(p));
    let corrected = Statement::new(conditions, || vec![exceeds(orbit, p.alpha())]);

    let numbers = vec![
        number("γ", orbit.gamma, ""),
        number("γ, uncertainty", orbit.gamma_error, ""),
        number("γ with the queue always full", context.full.gamma, ""),
        number("α", p.alpha(), ""),
        number("largest c, printed", printed_c, "us"),
        number("largest c, corrected", corrected_c, "us"),
        number("δ*", gap_at_target(p) * 1e6, "us"),
        number("1/D", k2_sharp(p), ""),
    ];
    let what = format!("γ = {:.6} does not exceed α = {}", orbit.gamma, p.alpha());
    Draft { printed, corrected, numbers, failure: Some((what, 1.0 - orbit.gamma / p.alpha())) }
}
