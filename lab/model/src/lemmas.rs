//! The eight lemmas of [OVV-T §III-B], as printed and as corrected, checked by iteration of the
//! map.
//!
//! A lemma is a [`Statement`]: conditions, and checks of its conclusion by iteration. The corrected
//! statement is ours; `docs/algorithms/` explains each difference. The checks are no proof: a
//! statement that holds has only held for the orbit that was followed.

mod fairness;
mod loss;
mod modes;
mod oscillation;
mod statement;

use schemars::JsonSchema;
use serde::Serialize;

use crate::orbit::{Limits, Orbit, follow};
use crate::params::{Key, Params, Variant};

pub use fairness::{Sharing, share};
pub use statement::{
    Claim, Counterexample, LemmaReport, Number, Outcome, Relation, Sides, Statement, Verdict,
};
use statement::{Context, Draft};

/// Short statement of each lemma, in order.
pub const TITLES: [&str; 8] = [
    "increase mode: rates rise to µ/(1-α), losses to α",
    "decrease mode: rates and losses fall to 0",
    "increase and decrease take turns for ever",
    "an increase lasts at most max(T_1, T')",
    "a decrease lasts at most T_2",
    "a slow interface locks increase mode",
    "the average loss exceeds α",
    "two flows become equal",
];

/// Results of all lemmas for one parameter set.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// The parameters.
    pub params: Params,
    /// Behaviour of the first flow alone.
    pub orbit: Orbit,
    /// Results of lemmas 1 to 8.
    pub lemmas: Vec<LemmaReport>,
}

/// Checks all lemmas with the default limits.
pub fn check(params: &Params) -> Report {
    check_within(params, Limits::default())
}

/// Checks all lemmas. No orbit is followed for longer than `limits`.
pub fn check_within(params: &Params, limits: Limits) -> Report {
    let start = params.gaps_initial()[0];
    let orbit = follow(params, start, limits);
    let full_params = full_queue(params);
    let own_full = (params.room() > 0.0).then(|| follow(&full_params, start, limits));
    let full = own_full.as_ref().unwrap_or(&orbit);
    let context = Context { params, limits, orbit: &orbit, full_params: &full_params, full };
    let drafts = [
        modes::lemma1(&context),
        modes::lemma2(&context),
        oscillation::lemma3(&context),
        oscillation::lemma4(&context),
        oscillation::lemma5(&context),
        modes::lemma6(&context),
        loss::lemma7(&context),
        fairness::lemma8(&context),
    ];
    let lemmas = (1..).zip(TITLES).zip(drafts);
    let lemmas = lemmas.map(|((lemma, title), draft)| judge(lemma, title, draft, params)).collect();
    Report { params: params.clone(), orbit, lemmas }
}

fn full_queue(params: &Params) -> Params {
    let builder = params.to_builder().with(Key::QueuePackets, 0.0).with_variant(Variant::Full);
    builder.build().expect("a valid set stays valid without a queue")
}

fn judge(lemma: u8, title: &'static str, draft: Draft, params: &Params) -> LemmaReport {
    let Draft { printed, corrected, numbers, failure } = draft;
    let counterexample = || {
        let (what, severity) = failure.unwrap_or_default();
        Box::new(Counterexample { what, severity, params: params.clone() })
    };
    let verdict = match (printed.outcome, corrected.outcome) {
        (_, Outcome::Violated) => Verdict::CorrectionViolated,
        (Outcome::Holds, _) => Verdict::Holds,
        (Outcome::Violated, Outcome::Holds) => {
            Verdict::HoldsCorrected { counterexample: Some(counterexample()) }
        }
        (Outcome::Violated, _) => Verdict::Violated { counterexample: counterexample() },
        (Outcome::NotApplicable, Outcome::Holds) => {
            Verdict::HoldsCorrected { counterexample: None }
        }
        (Outcome::NotApplicable, Outcome::NotApplicable) => Verdict::ConditionsNotMet,
        _ => Verdict::Undecided,
    };
    LemmaReport { lemma, title, printed, corrected, verdict, numbers }
}

#[cfg(test)]
mod tests;
