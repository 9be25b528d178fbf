//! Known weak points of the paper, recomputed at every run of the checker.

use schemars::JsonSchema;
use serde::Serialize;

use crate::formulas::lowest_rate;
use crate::lemmas::{Outcome, check, share};
use crate::params::{Key, Params, Set, Variant};

/// One weak point.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Suspect {
    /// The lemma, from 1.
    pub lemma: u8,
    /// Error in the lemma.
    pub title: &'static str,
    /// Value of the lemma as printed, for these parameters.
    pub printed: Outcome,
    /// Observed behaviour.
    pub what: String,
    /// The parameters.
    pub params: Params,
}

/// Returns a published set with some values changed.
fn vary(set: Set, changes: &[(Key, f64)]) -> Params {
    let builder = Params::preset(set).to_builder();
    let builder = changes.iter().fold(builder, |builder, &(key, value)| builder.with(key, value));
    builder.build().expect("the values below are in range")
}

/// Returns the example in which later decreases are longer than the first: full queue, decreases of
/// 7, 53, 53, 53, 53, 50, 23 … rounds.
pub fn lemma5_example() -> Params {
    let changes = [
        (Key::ServiceMbps, 515.0),
        (Key::K1, 0.018),
        (Key::K2, 280.0),
        (Key::Alpha, 4.6e-4),
        (Key::CUs, 0.022),
        (Key::RateMbpsInitial, 320.0),
    ];
    let builder = vary(Set::Pr0, &changes).to_builder().with_variant(Variant::Full);
    builder.build().expect("the values above are in range")
}

/// Returns the example in which the conditions of Lemma 7 hold and the average loss stays below α.
pub fn lemma7_example() -> Params {
    vary(
        Set::Pr0,
        &[
            (Key::ServiceMbps, 850.0),
            (Key::K1, 0.01),
            (Key::K2, 14.0),
            (Key::Alpha, 0.05),
            (Key::CUs, 0.2),
        ],
    )
}

/// Returns the example of Lemma 3, between the two bounds on k2, with this initial rate in Mb/s.
pub fn lemma3_example(rate_mbps: f64) -> Params {
    let changes = [(Key::K2, 2.001), (Key::QueuePackets, 0.0), (Key::RateMbpsInitial, rate_mbps)];
    vary(Set::Pr0, &changes)
}

/// Returns all known weak points.
pub fn known() -> Vec<Suspect> {
    let too_fast = [(Key::K2, 1500.0)];
    let slow = [(Key::ServiceMbps, 999.5), (Key::K2, 1500.0)];
    let locks = [(Key::K2, 1.0), (Key::QueuePackets, 0.0), (Key::RateMbpsInitial, 200.0)];
    let judged = [
        (1, "k2·α > 1 is a misprint for k2·α < 1", vary(Set::Pr0, &too_fast)),
        (2, "the limit 0 has an empty premise", Params::preset(Set::Pr0)),
        (3, "k2 between C/(C-µ) and 1/D, start at 300 Mb/s", lemma3_example(300.0)),
        (3, "the same, start at 499 Mb/s", lemma3_example(499.0)),
        (5, "T_2 depends on the start", lemma5_example()),
        (6, "k2·α < 1 is missing", vary(Set::Pr0, &slow)),
        (7, "k2·D <= 2 < k2·(1-µ/C)", lemma7_example()),
        (8, "increase mode can lock before the rates are equal", vary(Set::Pr0, &locks)),
    ];
    let mut suspects: Vec<Suspect> = judged
        .into_iter()
        .map(|(lemma, title, params)| judged_by_checker(lemma, title, params))
        .collect();
    suspects.extend([lowest_rates(), not_necessary(), frozen()]);
    suspects.sort_by_key(|suspect| suspect.lemma);
    suspects
}

fn judged_by_checker(lemma: u8, title: &'static str, params: Params) -> Suspect {
    let report = check(&params);
    let found = report.lemmas.into_iter().find(|found| found.lemma == lemma);
    let found = found.expect("all eight lemmas are checked");
    let what = found.verdict.counterexample().map_or_else(String::new, |found| found.what.clone());
    Suspect { lemma, title, printed: found.printed.outcome, what, params }
}

fn lowest_rates() -> Suspect {
    let params = Params::preset(Set::Pr0);
    let low = lowest_rate(&params);
    let what = format!(
        "case (i): {:.1} Mb/s by iteration and as corrected, {:.1} printed, both above µ with \
         c0 = {:.3} us; case (ii): {:.1} Mb/s by iteration and as corrected, {:.2e} printed",
        low.first / 1e6,
        low.first_printed / 1e6,
        low.c0 * 1e6,
        low.second / 1e6,
        low.second_printed / 1e6
    );
    Suspect { what, ..judged_by_checker(4, "both formulas for λ_min are wrong", params) }
}

fn not_necessary() -> Suspect {
    let params = Params::preset(Set::Pr0);
    let gamma = check(&params).orbit.gamma;
    let what = format!(
        "Pr_0 at µ = 500 Mb/s misses the conditions and γ = {gamma:.4} exceeds α = {}",
        params.alpha()
    );
    Suspect { what, ..judged_by_checker(7, "sufficient, not necessary", params) }
}

fn frozen() -> Suspect {
    let params = vary(
        Set::Pr0,
        &[
            (Key::ServiceMbps, 900.0),
            (Key::CUs, 0.0),
            (Key::RateMbpsInitial, 600.0),
            (Key::RateMbpsInitialSecond, 100.0),
        ],
    );
    let [first, second] = share(&params, params.gaps_initial(), 10_000).rates_end;
    let what = format!("the rates stand at {:.1} and {:.1} Mb/s", first / 1e6, second / 1e6);
    Suspect { what, ..judged_by_checker(8, "c = 0 takes the fairness away", params) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lemma_but_the_fourth_has_parameters_that_violate_it_as_printed() {
        let known = known();
        for lemma in [1, 2, 3, 5, 6, 7, 8] {
            let found = known.iter().any(|s| s.lemma == lemma && s.printed == Outcome::Violated);
            assert!(found, "lemma {lemma}: {known:#?}");
        }
        assert!(known.iter().all(|suspect| !suspect.what.is_empty()));
    }
}
