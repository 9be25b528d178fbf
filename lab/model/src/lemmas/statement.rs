//! Parts and outcome of a lemma: claims, conditions, conclusion, verdict.

use schemars::JsonSchema;
use serde::Serialize;

use crate::orbit::{Limits, Orbit};
use crate::params::{Key, Params};

/// Relation of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Relation {
    /// `<`
    #[serde(rename = "<")]
    Below,
    /// `<=`
    #[serde(rename = "<=")]
    AtMost,
    /// `>`
    #[serde(rename = ">")]
    Above,
    /// `>=`
    #[serde(rename = ">=")]
    AtLeast,
}

impl Relation {
    pub(super) fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Below => left < right,
            Self::AtMost => left <= right,
            Self::Above => left > right,
            Self::AtLeast => left >= right,
        }
    }

    /// Returns the sign used in formulas.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Below => "<",
            Self::AtMost => "<=",
            Self::Above => ">",
            Self::AtLeast => ">=",
        }
    }
}

/// The two sides of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sides {
    /// The value on the left.
    pub left: f64,
    /// Required relation of left and right.
    pub relation: Relation,
    /// The value on the right.
    pub right: f64,
}

/// A claim that is true, false, or undecided.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Claim {
    /// The claim, as a formula or in words.
    pub what: &'static str,
    /// The two values, if the claim compares two.
    #[serde(flatten)]
    pub sides: Option<Sides>,
    /// Whether the claim holds; `None` if the iteration did not decide.
    pub holds: Option<bool>,
}

impl Claim {
    pub(super) fn compare(what: &'static str, left: f64, relation: Relation, right: f64) -> Self {
        let holds = Some(relation.holds(left, right));
        Self { what, sides: Some(Sides { left, relation, right }), holds }
    }

    pub(super) fn fact(what: &'static str, holds: impl Into<Option<bool>>) -> Self {
        Self { what, sides: None, holds: holds.into() }
    }

    /// Returns the same claim, but undecided unless `is_decided`.
    pub(super) fn if_decided(self, is_decided: bool) -> Self {
        Self { holds: self.holds.filter(|_| is_decided), ..self }
    }
}

/// Outcome of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A condition is not met, so the statement does not apply.
    NotApplicable,
    /// The conditions are met, and the conclusion is true.
    Holds,
    /// The conditions are met, and the conclusion is false.
    Violated,
    /// The iteration ended before a decision.
    Undecided,
}

impl Outcome {
    /// Returns one letter, for dense tables.
    pub const fn letter(self) -> char {
        match self {
            Self::NotApplicable => '-',
            Self::Holds => 'H',
            Self::Violated => 'V',
            Self::Undecided => '?',
        }
    }
}

/// Conditions and conclusion of a lemma, with the outcome.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Statement {
    /// Conditions.
    pub conditions: Vec<Claim>,
    /// Conclusion. Checked only if the conditions are met.
    pub checks: Vec<Claim>,
    /// The result.
    pub outcome: Outcome,
}

impl Statement {
    pub(super) fn new(conditions: Vec<Claim>, checks: impl FnOnce() -> Vec<Claim>) -> Self {
        if conditions.iter().any(|claim| claim.holds == Some(false)) {
            return Self { conditions, checks: Vec::new(), outcome: Outcome::NotApplicable };
        }
        let checks = checks();
        let outcome = if conditions.iter().any(|claim| claim.holds.is_none()) {
            Outcome::Undecided
        } else if checks.iter().any(|claim| claim.holds == Some(false)) {
            Outcome::Violated
        } else if checks.iter().any(|claim| claim.holds.is_none()) {
            Outcome::Undecided
        } else {
            Outcome::Holds
        };
        Self { conditions, checks, outcome }
    }
}

/// A measured or computed value of interest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Number {
    /// Description.
    pub name: &'static str,
    /// Value of the number.
    pub value: f64,
    /// Unit of the value; empty for pure numbers.
    pub unit: &'static str,
}

/// Parameters for which a lemma as printed does not hold.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Counterexample {
    /// Observed behaviour.
    pub what: String,
    /// Size of the violation, for a search of the worst point; comparable within one lemma only.
    pub severity: f64,
    /// The parameters.
    pub params: Params,
}

/// Verdict on one lemma for one parameter set.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Verdict {
    /// Neither the printed nor the corrected conditions are met.
    ConditionsNotMet,
    /// The printed statement holds.
    Holds,
    /// The printed statement does not apply or does not hold; the corrected statement holds.
    HoldsCorrected {
        /// Counterexample to the printed statement, if the statement applies.
        counterexample: Option<Box<Counterexample>>,
    },
    /// The printed statement does not hold, and the corrected statement does not apply.
    Violated {
        /// Observed behaviour.
        counterexample: Box<Counterexample>,
    },
    /// The corrected statement does not hold, which is our error.
    CorrectionViolated,
    /// The iteration ended before a decision.
    Undecided,
}

impl Verdict {
    /// Returns the verdict in words.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ConditionsNotMet => "conditions not met",
            Self::Holds => "holds",
            Self::HoldsCorrected { .. } => "holds as corrected",
            Self::Violated { .. } => "violated",
            Self::CorrectionViolated => "correction violated",
            Self::Undecided => "undecided",
        }
    }

    /// Returns the counterexample, if any.
    pub const fn counterexample(&self) -> Option<&Counterexample> {
        match self {
            Self::HoldsCorrected { counterexample: Some(found) }
            | Self::Violated { counterexample: found } => Some(found),
            _ => None,
        }
    }
}

/// Results of one lemma for one parameter set.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LemmaReport {
    /// Number of the lemma, from 1.
    pub lemma: u8,
    /// Subject.
    pub title: &'static str,
    /// The printed statement.
    pub printed: Statement,
    /// The corrected statement.
    pub corrected: Statement,
    /// Verdict on both statements.
    pub verdict: Verdict,
    /// Numbers that the verdict is based on.
    pub numbers: Vec<Number>,
}

/// Input of the lemma functions: the parameters and the orbits.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) params: &'a Params,
    pub(super) limits: Limits,
    pub(super) orbit: &'a Orbit,
    /// The parameters and the orbit with a queue that is always full. The orbit is unchanged if
    /// there is no queue.
    pub(super) full_params: &'a Params,
    pub(super) full: &'a Orbit,
}

/// A lemma before the verdict: both statements, and the explanation if the printed statement fails.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) printed: Statement,
    pub(super) corrected: Statement,
    pub(super) numbers: Vec<Number>,
    pub(super) failure: Option<(String, f64)>,
}

/// Returns the conditions that every lemma assumes: Equations 1 and 2 alone, with the loss of the
/// same round and positive constants [OVV-T §II]. Only unmet conditions are listed, and always the
/// condition on c.
pub(super) fn standing(p: &Params) -> Vec<Claim> {
    let mut claims = vec![Claim::compare("c > 0 (us)", p.value(Key::CUs), Relation::Above, 0.0)];
    if p.feedback_lag_rounds() > 0 {
        claims.push(Claim::fact("feedback is about the same round", false));
    }
    if p.equation3() {
        claims.push(Claim::fact("Equation 3 is left out", false));
    }
    claims
}

/// Returns the claim `C > µ/(1−α)`: the interface can exceed the rate of the target loss.
pub(super) fn fast_interface(p: &Params) -> Claim {
    let limit = p.value(Key::ServiceMbps) / (1.0 - p.alpha());
    let capacity = p.value(Key::CapacityMbps);
    Claim::compare("C > µ/(1-α) (Mb/s)", capacity, Relation::Above, limit)
}

/// Returns the claim `k2·α < 1`: a round without loss leaves a positive gap.
pub(super) fn positive_gap(p: &Params) -> Claim {
    Claim::compare("k2·α < 1", p.k2() * p.alpha(), Relation::Below, 1.0)
}

pub(super) const fn number(name: &'static str, value: f64, unit: &'static str) -> Number {
    Number { name, value, unit }
}

pub(super) fn optional(
    name: &'static str,
    value: Option<f64>,
    unit: &'static str,
) -> Option<Number> {
    value.map(|value| number(name, value, unit))
}
