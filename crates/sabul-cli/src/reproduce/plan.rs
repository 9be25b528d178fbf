//! What a reproduction is: cases, what was published for them, and the claims to judge.
//!
//! The files are those of `reproductions/`, built into the program.

use std::collections::BTreeMap;

use include_dir::{Dir, include_dir};
use serde::Deserialize;

use crate::error::CliError;

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../reproductions");

/// One table or figure of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// The folder's name.
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) title: String,
    /// Where it was published.
    pub(crate) source: String,
    /// What it is about, what the paper leaves open, and what we chose.
    pub(crate) about: String,
    /// What the published numbers of `published_mbps` are.
    pub(crate) rate: RateKind,
    /// Seeds of each case; results are their means. Only the first is run with open values other
    /// than the chosen one.
    #[serde(default = "one_seed")]
    pub(crate) seeds: Vec<u64>,
    /// What the paper does not say, and what it may have been.
    pub(crate) open: Option<Open>,
    #[serde(rename = "case")]
    pub(crate) cases: Vec<Case>,
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

/// Which rate of a flow a paper published.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RateKind {
    /// What its sender put on the wire.
    Sending,
    /// What its receiver got that was new.
    Goodput,
}

/// A setting that a paper leaves open.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Open {
    /// The setting, as `--set` names it.
    pub(crate) key: String,
    /// What is tried.
    pub(crate) values: Vec<toml::Value>,
    /// What verdicts are about.
    pub(crate) chosen: toml::Value,
}

/// One experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) id: String,
    /// Its figure in the paper.
    #[serde(default)]
    pub(crate) figure: String,
    /// The scenario file, in this folder or, as `other/file.toml`, in another.
    pub(crate) scenario: String,
    /// What differs from the file, as `--set` takes it.
    #[serde(default)]
    pub(crate) set: Vec<String>,
    /// Published rates by flow.
    #[serde(default)]
    pub(crate) published_mbps: BTreeMap<String, f64>,
    /// Flows shown beside those.
    #[serde(default)]
    pub(crate) shown: Vec<String>,
    #[serde(default, rename = "claim")]
    pub(crate) claims: Vec<Claim>,
}

/// A statement of the paper that a number can bear out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// The statement.
    pub(crate) says: String,
    pub(crate) measure: Measure,
    /// The flows it is about.
    pub(crate) flows: Vec<String>,
    /// The published number, where there is one.
    pub(crate) published: Option<f64>,
    /// How far ours may be from it, as a fraction of it; or the limit itself where none was
    /// published.
    pub(crate) tolerance: f64,
    /// What we found when this file was committed.
    pub(crate) verdict: Verdict,
    /// Why it is not borne out.
    #[serde(default)]
    pub(crate) cause: String,
}

/// Which number a claim is about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Sum of the flows' rates in Mb/s, against the published one.
    Total,
    /// First flow's rate over the second's, against the published one.
    Ratio,
    /// Largest less smallest rate over their mean; at most the tolerance.
    Spread,
    /// First flow's rate over the second's; at most the tolerance.
    AtMost,
    /// First flow's rate over the second's; at least the tolerance.
    AtLeast,
}

/// Whether a claim is borne out.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Holds,
    Differs,
}

impl Verdict {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Differs => "differs",
        }
    }
}

/// All reproductions, by name.
pub(crate) fn all() -> Result<Vec<Plan>, CliError> {
    let mut plans = Vec::new();
    for folder in FILES.dirs() {
        let path = folder.path().join("plan.toml");
        let Some(file) = folder.get_file(&path) else { continue };
        let name = folder.path().display().to_string();
        let text = file.contents_utf8().unwrap_or_default();
        let mut plan: Plan = toml::from_str(text)
            .map_err(|error| CliError::usage(format!("reproductions/{name}/plan.toml: {error}")))?;
        plan.name = name;
        plans.push(plan);
    }
    plans.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(plans)
}

impl Plan {
    /// Whether verdicts are about this open value, or nothing is open.
    pub(crate) fn is_chosen(&self, value: Option<&toml::Value>) -> bool {
        self.open.as_ref().is_none_or(|open| Some(&open.chosen) == value)
    }

    /// The text of one of its scenario files, and what to call it in errors.
    pub(crate) fn scenario(&self, case: &Case) -> Result<(String, &'static str), CliError> {
        let path = if case.scenario.contains('/') {
            case.scenario.clone()
        } else {
            format!("{}/{}", self.name, case.scenario)
        };
        let text = FILES.get_file(&path).and_then(|file| file.contents_utf8());
        text.map(|text| (format!("reproductions/{path}"), text)).ok_or_else(|| {
            CliError::usage(format!(
                "{}: case {} names {path}, which is not there",
                self.name, case.id
            ))
        })
    }
}
