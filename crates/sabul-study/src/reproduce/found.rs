//! What was found for the cases of a reproduction, and what became of their claims.

use std::collections::BTreeMap;

use sabul_model::series::PhasePlane;

use super::plan::{Case, Claim, Plan, Rank, Verdict};
use crate::card::Trial;

/// One reproduction, run.
#[derive(Debug)]
pub(crate) struct Reproduced<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) cases: Vec<Reproduction<'a>>,
    /// Whether cases come in the published order.
    pub(crate) ranked: Vec<Ranked<'a>>,
}

/// One case of it.
#[derive(Debug)]
pub(crate) struct Reproduction<'a> {
    pub(crate) case: &'a Case,
    /// What was found as chosen, and with each open setting varied.
    pub(crate) found: Vec<Found>,
    pub(crate) judged: Vec<Judged<'a>>,
}

impl Reproduction<'_> {
    /// What was found with the values that verdicts are about.
    pub(crate) fn chosen(&self) -> Option<&Found> {
        self.found.iter().find(|found| found.variation.is_none())
    }
}

/// What differs from the choice: something open, and its option, by their positions in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variation {
    pub(crate) open: usize,
    pub(crate) option: usize,
}

/// One case over all seeds, as chosen or with one open setting varied.
#[derive(Debug)]
pub(crate) struct Found {
    /// None: everything as chosen, which verdicts are about.
    pub(crate) variation: Option<Variation>,
    /// The runs that it is the mean of, one a seed; none of the model's.
    pub(crate) trials: Vec<Trial>,
    /// Rates by flow in Mb/s: mean, least and most over seeds.
    pub(crate) rates: BTreeMap<String, Rates>,
    /// Where the case is two flows of the deterministic model.
    pub(crate) phase: Option<Box<PhasePlane>>,
}

/// A rate over seeds, in Mb/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    pub(crate) mean: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// What became of a claim.
#[derive(Clone, Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) ours: f64,
    pub(crate) verdict: Verdict,
}

impl Judged<'_> {
    pub(crate) fn is_changed(&self) -> bool {
        self.verdict != self.claim.verdict
    }
}

/// What became of a statement about the order.
#[derive(Clone, Debug)]
pub(crate) struct Ranked<'a> {
    pub(crate) rank: &'a Rank,
    /// Spearman's rank correlation.
    pub(crate) correlation: f64,
    pub(crate) verdict: Verdict,
}

impl Ranked<'_> {
    pub(crate) fn is_changed(&self) -> bool {
        self.verdict != self.rank.verdict
    }
}
