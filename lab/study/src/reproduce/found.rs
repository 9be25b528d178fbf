//! Results of the cases of a reproduction, and verdicts on their claims.

use std::collections::BTreeMap;

use sabul_model::series::PhasePlane;

use super::plan::{Case, Claim, Plan, Rank, Verdict};
use crate::card::Trial;

/// The results of one reproduction.
#[derive(Debug)]
pub(crate) struct Reproduced<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) cases: Vec<Reproduction<'a>>,
    /// Verdicts on the order of the cases.
    pub(crate) ranked: Vec<Ranked<'a>>,
}

/// The results of one case.
#[derive(Debug)]
pub(crate) struct Reproduction<'a> {
    pub(crate) case: &'a Case,
    /// Results with the chosen settings, and with each open setting varied.
    pub(crate) found: Vec<Found>,
    pub(crate) judged: Vec<Judged<'a>>,
}

impl Reproduction<'_> {
    /// Returns the results with the chosen settings, which verdicts are based on.
    pub(crate) fn chosen(&self) -> Option<&Found> {
        self.found.iter().find(|found| found.variation.is_none())
    }
}

/// A difference from the chosen settings: indexes of an open setting and of its option in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variation {
    pub(crate) open: usize,
    pub(crate) option: usize,
}

/// One case over all seeds, as chosen or with one open setting varied.
#[derive(Debug)]
pub(crate) struct Found {
    /// `None`: all settings as chosen, which verdicts are based on.
    pub(crate) variation: Option<Variation>,
    /// The runs of each seed. Empty for a case of the model.
    pub(crate) trials: Vec<Trial>,
    /// Rates by flow in Mb/s: mean, minimum and maximum over seeds.
    pub(crate) rates: BTreeMap<String, Rates>,
    /// Phase plane, if the case is two flows of the deterministic model.
    pub(crate) phase: Option<Box<PhasePlane>>,
}

/// A rate over seeds, in Mb/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    pub(crate) mean: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// Verdict on a claim.
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

/// Verdict on a statement about the order of cases.
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
