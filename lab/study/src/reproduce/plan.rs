//! Plan of a reproduction: cases, published values, and the claims to judge.
//!
//! The files of `reproductions/` are built into the program.

use std::collections::BTreeMap;

use include_dir::{Dir, include_dir};
use sabul_report::Cell;
use serde::Deserialize;

use crate::Error;

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/reproductions");

/// One table or figure of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// The folder's name.
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) title: String,
    /// Publication that contains the table or figure.
    pub(crate) source: String,
    /// Description: subject, settings that the paper leaves open, and our choices.
    pub(crate) about: String,
    /// Kind of rate in `published_mbps`.
    pub(crate) rate: RateKind,
    /// Seeds of each case; results are means over seeds. Only the first seed is also run with the
    /// other options of open settings.
    #[serde(default = "one_seed")]
    pub(crate) seeds: Vec<u64>,
    /// Settings that the paper does not state, with possible values.
    #[serde(default)]
    pub(crate) open: Vec<Open>,
    #[serde(rename = "case")]
    pub(crate) cases: Vec<Case>,
    /// Statements about the order of the cases.
    #[serde(default, rename = "rank")]
    pub(crate) ranks: Vec<Rank>,
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

/// Which rate of a flow a paper published.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RateKind {
    /// Rate of the sender on the wire.
    Sending,
    /// Rate of new data at the receiver.
    Goodput,
}

/// A setting that a paper leaves open.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Open {
    /// Name of the setting.
    pub(crate) what: String,
    /// Possible values.
    #[serde(rename = "option")]
    pub(crate) options: Vec<Choice>,
    /// Name of the chosen option, which verdicts are based on.
    pub(crate) chosen: String,
    /// Cases in which the setting is open. Empty: all cases.
    #[serde(default)]
    pub(crate) cases: Vec<String>,
    /// Cases that the choice was fitted to and that are run with the other options. Empty: all
    /// cases.
    #[serde(default)]
    pub(crate) fitted: Vec<String>,
}

/// A possible value of an open setting.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Choice {
    pub(crate) name: String,
    /// Settings of this option, in the form of `--set`.
    pub(crate) set: Vec<String>,
}

impl Open {
    pub(crate) fn concerns(&self, case: &Case) -> bool {
        self.cases.is_empty() || self.cases.contains(&case.id)
    }

    /// Returns whether a case is run with options other than the chosen one.
    pub(crate) fn is_varied_in(&self, case: &Case) -> bool {
        self.concerns(case) && (self.fitted.is_empty() || self.fitted.contains(&case.id))
    }

    /// Returns the index of the chosen option.
    pub(crate) fn chosen(&self) -> Option<usize> {
        self.options.iter().position(|option| option.name == self.chosen)
    }
}

/// One experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) id: String,
    /// Figure in the paper.
    #[serde(default)]
    pub(crate) figure: String,
    /// The scenario file, in this folder or, as `other/file.toml`, in another folder. If
    /// `model_rounds` is given, the file has parameters of the deterministic model.
    pub(crate) scenario: String,
    /// Number of rounds, if the case is two flows of the model. The flows are called `first` and
    /// `second`.
    pub(crate) model_rounds: Option<u64>,
    /// Overrides of the file, in the form of `--set`.
    #[serde(default)]
    pub(crate) set: Vec<String>,
    /// Published rates by flow.
    #[serde(default)]
    pub(crate) published_mbps: BTreeMap<String, f64>,
    /// Published values of a case in which flows start and stop.
    pub(crate) published: Option<Published>,
    /// Further flows to show.
    #[serde(default)]
    pub(crate) shown: Vec<String>,
    #[serde(default, rename = "claim")]
    pub(crate) claims: Vec<Claim>,
}

/// A statement of the paper that a number can confirm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// The statement.
    pub(crate) says: String,
    pub(crate) measure: Measure,
    /// Names of the flows, or of the link for measures of a link.
    pub(crate) flows: Vec<String>,
    /// The published number, if any.
    pub(crate) published: Option<f64>,
    /// Largest relative deviation from the published number, or the limit itself without a
    /// published number.
    pub(crate) tolerance: f64,
    /// Whether a setting was fitted to the number of this claim. A confirmed claim then proves
    /// nothing.
    #[serde(default)]
    pub(crate) fitted: bool,
    /// Verdict when this file was committed.
    pub(crate) verdict: Verdict,
    /// Reason why the statement does not hold.
    #[serde(default)]
    pub(crate) cause: String,
}

/// The number that a claim is about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Sum of the flows' rates in Mb/s, compared with the published number.
    Total,
    /// First flow's rate ÷ second flow's rate, compared with the published number.
    Ratio,
    /// (largest − smallest rate) ÷ mean rate; at most the tolerance.
    Spread,
    /// First flow's rate ÷ second flow's rate; at most the tolerance.
    AtMost,
    /// First flow's rate ÷ second flow's rate; at least the tolerance.
    AtLeast,
    /// Longest queue of a link in packets, compared with the published number.
    Queue,
    /// The same; at most the tolerance.
    QueueAtMost,
    /// Utilisation of a link; at least the tolerance.
    Used,
    /// The same; at most the tolerance.
    UsedAtMost,
    /// Packets dropped by a link; at most the tolerance.
    Drops,
    /// Seconds until a link is full, compared with the published time.
    Full,
    /// The same; at most the tolerance.
    FullAtMost,
    /// Seconds from the last start of the flows until their rates stay alike; at most the
    /// tolerance.
    AlikeAtMost,
}

#[cfg(test)]
impl Measure {
    /// Returns whether the measure is about a link rather than flows.
    pub(crate) const fn is_of_link(self) -> bool {
        match self {
            Self::Queue | Self::QueueAtMost | Self::Used | Self::UsedAtMost => true,
            Self::Drops | Self::Full | Self::FullAtMost => true,
            Self::Total | Self::Ratio | Self::Spread => false,
            Self::AtMost | Self::AtLeast | Self::AlikeAtMost => false,
        }
    }
}

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Holds,
    /// The claim holds, but a setting was fitted to its number.
    Fits,
    Differs,
}

impl Verdict {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fits => "fits",
            Self::Differs => "differs",
        }
    }

    /// Returns the cell of a table. `is_changed` states that another verdict is committed.
    pub(crate) fn cell(self, is_changed: bool) -> Cell {
        let name = format!("{}{}", self.name(), if is_changed { " (changed)" } else { "" });
        match self {
            Self::Holds | Self::Fits => Cell::Pass(name),
            Self::Differs => Cell::Fail(name),
        }
    }
}

/// Returns all reproductions, sorted by name.
pub(crate) fn all() -> Result<Vec<Plan>, Error> {
    let mut plans = Vec::new();
    for folder in FILES.dirs() {
        let path = folder.path().join("plan.toml");
        let Some(file) = folder.get_file(&path) else { continue };
        let name = folder.path().display().to_string();
        let text = file.contents_utf8().unwrap_or_default();
        let mut plan: Plan = toml::from_str(text)
            .map_err(|error| Error::usage(format!("reproductions/{name}/plan.toml: {error}")))?;
        plan.name = name;
        if let Some(open) = plan.open.iter().find(|open| open.chosen().is_none()) {
            let (name, chosen) = (&plan.name, &open.chosen);
            return Err(Error::usage(format!("{name}: '{chosen}' is none of its options")));
        }
        plans.push(plan);
    }
    plans.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(plans)
}

impl Plan {
    /// Returns the text of a case's scenario file, and its name for error messages.
    pub(crate) fn scenario(&self, case: &Case) -> Result<(String, &'static str), Error> {
        let path = if case.scenario.contains('/') {
            case.scenario.clone()
        } else {
            format!("{}/{}", self.name, case.scenario)
        };
        let text = FILES.get_file(&path).and_then(|file| file.contents_utf8());
        text.map(|text| (format!("reproductions/{path}"), text)).ok_or_else(|| {
            Error::usage(format!(
                "{}: case {} names {path}, which is not there",
                self.name, case.id
            ))
        })
    }
}

/// Published values of a case with regions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    /// Total goodput of all flows over the whole time.
    pub(crate) mean_mbps: f64,
    /// Standard deviation of the total goodput over reports of one second.
    pub(crate) sd_mbps: f64,
    /// Standard deviation ÷ mean, as printed.
    pub(crate) stability: f64,
    /// Smallest Jain's index of any region.
    pub(crate) jain_min: f64,
    /// Stability and Jain's index of each region.
    pub(crate) regions: Vec<(f64, f64)>,
}

/// A statement that the cases come in the published order.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rank {
    /// The statement.
    pub(crate) says: String,
    pub(crate) mark: Statistic,
    /// Least rank correlation for which the statement holds.
    pub(crate) at_least: f64,
    /// Verdict when the file was committed.
    pub(crate) verdict: Verdict,
    /// Reason why the statement does not hold.
    #[serde(default)]
    pub(crate) cause: String,
}

/// The statistic by which cases are ranked.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Statistic {
    Mean,
    Stability,
    JainMin,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::judge;
    use super::*;

    #[test]
    fn every_folder_with_a_plan_is_a_reproduction() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reproductions");
        let folders = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
        let on_disk: BTreeSet<String> = folders
            .filter(|folder| folder.path().join("plan.toml").is_file())
            .map(|folder| folder.file_name().into_string().unwrap())
            .collect();
        let names: Vec<String> = all().unwrap().into_iter().map(|plan| plan.name).collect();
        assert!(names.iter().eq(&on_disk), "{names:?}, and on disk {on_disk:?}");
    }

    #[test]
    fn every_case_reads_with_every_setting_and_seed() {
        for plan in all().unwrap() {
            for case in &plan.cases {
                let place = format!("{}/{}", plan.name, case.id);
                if case.model_rounds.is_some() {
                    judge::follow_model(&plan, case, 1).unwrap();
                    continue;
                }
                let runs = judge::runs(&plan, case)
                    .unwrap_or_else(|error| panic!("{}: {error}", plan.name));
                let chosen = runs.iter().filter(|(variation, _)| variation.is_none());
                let seeds: Vec<u64> = chosen.map(|(_, run)| run.scenario.seed).collect();
                assert_eq!(seeds, plan.seeds, "{place}");
                let opens = plan.open.iter().filter(|open| open.is_varied_in(case));
                let others: usize = opens.map(|open| open.options.len() - 1).sum();
                assert_eq!(runs.len(), plan.seeds.len() + others, "{place}");
                // Every variation changes the run: no two runs are the same.
                let texts: BTreeSet<&str> = runs.iter().map(|(_, run)| run.text.as_str()).collect();
                assert_eq!(texts.len(), runs.len(), "{place}");
                for (_, run) in &runs {
                    sabul_sim::World::new(run.scenario.clone())
                        .unwrap_or_else(|error| panic!("{place}: {error}"));
                }
            }
        }
    }

    #[test]
    fn every_claim_names_existing_flows_and_can_be_judged() {
        for plan in all().unwrap() {
            let name = &plan.name;
            assert!(!plan.seeds.is_empty() && !plan.title.is_empty() && !plan.source.is_empty());
            let claims = plan.cases.iter().map(|case| case.claims.len()).sum::<usize>();
            assert!(claims + plan.ranks.len() > 0, "{name} claims nothing");
            for rank in &plan.ranks {
                let is_explained = rank.verdict == Verdict::Holds || !rank.cause.is_empty();
                assert!(is_explained, "{name}: {} differs: say why", rank.says);
            }
            let ids: BTreeSet<&str> = plan.cases.iter().map(|case| case.id.as_str()).collect();
            assert_eq!(ids.len(), plan.cases.len(), "{name} has a case twice");
            for open in &plan.open {
                let what = &open.what;
                assert!(open.chosen().is_some(), "{name}: {what}: what was chosen is an option");
                let mut named = open.cases.iter().chain(&open.fitted);
                let known = named.all(|case| ids.contains(case.as_str()));
                assert!(known, "{name}: {what} is open in a case that is not there");
            }
            for case in &plan.cases {
                let place = format!("{name}/{}", case.id);
                let runs = judge::runs(&plan, case).unwrap();
                let flows: BTreeSet<&str> = match runs.first() {
                    Some((_, run)) => run.scenario.flows.iter().map(|f| f.id.as_str()).collect(),
                    None => ["first", "second"].into(),
                };
                let shown = case.published_mbps.keys().chain(&case.shown);
                let of_flows = case.claims.iter().filter(|claim| !claim.measure.is_of_link());
                for flow in shown.chain(of_flows.flat_map(|claim| &claim.flows)) {
                    assert!(flows.contains(flow.as_str()), "{place} has no flow {flow}");
                }
                for claim in case.claims.iter().filter(|claim| claim.measure.is_of_link()) {
                    let links = runs.iter().flat_map(|(_, run)| &run.scenario.links);
                    let is_there = links.map(|link| &link.id).any(|id| *id == claim.flows[0]);
                    assert!(is_there, "{place} has no link {:?}", claim.flows);
                }
                for claim in &case.claims {
                    check_claim(&format!("{place}: {}", claim.says), claim);
                }
            }
        }
    }

    fn check_claim(place: &str, claim: &Claim) {
        let (flows, is_published) = (claim.flows.len(), claim.published.is_some());
        match claim.measure {
            Measure::Total => assert!(flows >= 1 && is_published, "{place}"),
            Measure::Ratio => assert!(flows == 2 && is_published, "{place}"),
            Measure::Spread | Measure::AlikeAtMost => assert!(flows >= 2, "{place}"),
            Measure::AtMost | Measure::AtLeast => assert_eq!(flows, 2, "{place}"),
            Measure::Queue | Measure::Full => assert!(flows == 1 && is_published, "{place}"),
            Measure::QueueAtMost | Measure::Used | Measure::UsedAtMost => {
                assert_eq!(flows, 1, "{place}");
            }
            Measure::Drops | Measure::FullAtMost => assert_eq!(flows, 1, "{place}"),
        }
        assert!(claim.tolerance > 0.0 && claim.tolerance.is_finite(), "{place}");
        assert!(claim.published.is_none_or(|number| number > 0.0), "{place}");
        let is_explained = claim.verdict != Verdict::Differs || !claim.cause.is_empty();
        assert!(is_explained, "{place} differs: say why");
        let is_proof = claim.verdict == Verdict::Holds;
        assert!(!(is_proof && claim.fitted), "{place} was chosen so: it fits");
    }
}
