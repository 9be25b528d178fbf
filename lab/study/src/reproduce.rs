//! Reproduction of tables and figures of papers, with verdicts.

mod found;
mod judge;
mod page;
mod plan;
mod regions;
mod times;

use std::fs;
use std::path::Path;

use sabul_report::Page;
use sabul_scenario::{Arm, Run};
use serde::Serialize;

use crate::runs::cannot_write;
use crate::{COMMIT, Error, Observer, SCHEMA, simulate};
use found::{Judged, Ranked, Reproduced, Reproduction};
use plan::{Case, Plan};
use regions::RegionStatistics;

/// A reproduction in the list of available reproductions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name of the reproduction, as passed to [`reproduce`].
    pub name: String,
    /// Source: the paper.
    pub source: String,
    /// Title: the table or figure.
    pub title: String,
    /// Number of experiments.
    pub cases: usize,
}

/// Returns all available reproductions.
///
/// # Errors
/// If a plan file is invalid.
pub fn list() -> Result<Vec<Listed>, Error> {
    let listed = |plan: Plan| Listed {
        name: plan.name,
        source: plan.source,
        title: plan.title,
        cases: plan.cases.len(),
    };
    Ok(plan::all()?.into_iter().map(listed).collect())
}

/// Results of reproductions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Text of each reproduction.
    pub texts: Vec<String>,
    /// One JSON document of all reproductions.
    pub json: String,
    /// Verdicts that differ from the committed ones, one line each.
    pub changed: Vec<String>,
}

/// Runs the reproduction of this name, or `all`, in virtual time. If a directory is given, writes
/// pictures, tables and the report into the directory.
///
/// # Errors
/// If no reproduction has this name, a run fails, or files cannot be written.
pub fn reproduce(name: &str, out: Option<&Path>, observer: &Observer) -> Result<Judgement, Error> {
    let plans = chosen_plans(name)?;
    // Before the runs, which take minutes to hours: an unusable directory must fail early.
    if let Some(dir) = out {
        fs::create_dir_all(dir).map_err(|error| cannot_write(dir, &error))?;
    }
    let reproduced = run_all(&plans, observer)?;
    if let Some(dir) = out {
        write_all(dir, &reproduced)?;
    }
    let json = serde_json::to_string(&Document::new(&reproduced))
        .map_err(|error| Error::failed(format!("cannot write the results: {error}")))?;
    let texts = reproduced.iter().map(page::text).collect();
    Ok(Judgement { texts, json, changed: changed(&reproduced) })
}

/// Returns the verdicts that differ from the committed ones, one line each.
fn changed(all: &[Reproduced<'_>]) -> Vec<String> {
    let judged = claims(all).filter(|(_, _, judged)| judged.is_changed());
    let judged = judged.map(|(plan, case, judged)| {
        let (was, is) = (judged.claim.verdict.name(), judged.verdict.name());
        format!("{}/{}: \"{}\" {was}, now {is}", plan.name, case.id, judged.claim.says)
    });
    let ranked = all.iter().flat_map(|one| one.ranked.iter().map(|ranked| (one.plan, ranked)));
    let ranked = ranked.filter(|(_, ranked)| ranked.is_changed()).map(|(plan, ranked)| {
        let (was, is) = (ranked.rank.verdict.name(), ranked.verdict.name());
        format!("{}: \"{}\" {was}, now {is}", plan.name, ranked.rank.says)
    });
    judged.chain(ranked).collect()
}

/// Returns in words how many claims hold, how many fit, and the total.
fn summary(all: &[Reproduced<'_>]) -> String {
    let judged = claims(all).map(|(_, _, judged)| judged.verdict);
    let ranked = all.iter().flat_map(|one| one.ranked.iter().map(|ranked| ranked.verdict));
    let verdicts: Vec<_> = judged.chain(ranked).collect();
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    let (holding, fitting) = (count(plan::Verdict::Holds), count(plan::Verdict::Fits));
    let fitting = if fitting > 0 { format!(", {fitting} fit") } else { String::new() };
    format!("{holding} of {} claims hold{fitting}", verdicts.len())
}

fn chosen_plans(name: &str) -> Result<Vec<Plan>, Error> {
    let plans = plan::all()?;
    if name == "all" {
        return Ok(plans);
    }
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    let found: Vec<Plan> = plans.into_iter().filter(|plan| plan.name == name).collect();
    if found.is_empty() {
        let known = names.join(", ");
        return Err(Error::usage(format!(
            "no reproduction is called '{name}'; use all or one of: {known}"
        )));
    }
    Ok(found)
}

/// Runs every case of every plan, on all processors.
fn run_all<'a>(plans: &'a [Plan], observer: &Observer) -> Result<Vec<Reproduced<'a>>, Error> {
    let mut work: Vec<Run> = Vec::new();
    let (mut values, mut counts) = (Vec::new(), Vec::new());
    for plan in plans {
        for case in &plan.cases {
            let runs = judge::runs(plan, case)?;
            counts.push(runs.len());
            for (value, run) in runs {
                // Papers print some experiments twice; each experiment runs once.
                let same = work.iter().position(|known| known.text == run.text);
                values.push((value, same.unwrap_or(work.len())));
                if same.is_none() {
                    work.push(run);
                }
            }
        }
    }
    let count = work.len();
    let progress = |done: usize| {
        if done.is_multiple_of(10) || done == count {
            observer.note(format_args!("{done} of {count} runs done"));
        }
    };
    let outcomes = sabul_scenario::run_all_with_progress(&work, None, progress, simulate);
    let outcomes: Vec<_> = outcomes.into_iter().collect::<Result<_, _>>()?;
    let mut done = values.into_iter();
    let mut counts = counts.into_iter();
    plans
        .iter()
        .map(|plan| {
            let cases = plan.cases.iter().map(|case| {
                let runs = done
                    .by_ref()
                    .take(counts.next().unwrap_or(0))
                    .map(|(value, index)| (value, work[index].clone(), outcomes[index].clone()))
                    .collect();
                let mut found = judge::gather(plan.rate, runs);
                if let Some(rounds) = case.model_rounds {
                    found.push(judge::follow_model(plan, case, rounds)?);
                }
                let mut one = Reproduction { case, found, judged: Vec::new() };
                if let Some(chosen) = one.chosen() {
                    one.judged = judge::judge(case, chosen);
                }
                Ok(one)
            });
            let cases = cases.collect::<Result<Vec<_>, Error>>()?;
            Ok(Reproduced { plan, ranked: regions::rank(plan, &cases), cases })
        })
        .collect()
}

fn claims<'a>(
    all: &'a [Reproduced<'a>],
) -> impl Iterator<Item = (&'a Plan, &'a Case, &'a Judged<'a>)> {
    all.iter().flat_map(|one| {
        one.cases.iter().flat_map(move |reproduction| {
            reproduction.judged.iter().map(move |judged| (one.plan, reproduction.case, judged))
        })
    })
}

fn write_all(dir: &Path, all: &[Reproduced<'_>]) -> Result<(), Error> {
    let cannot = |error: std::io::Error| cannot_write(dir, &error);
    let title = match all {
        [one] => one.plan.title.clone(),
        _ => "The papers, reproduced".to_owned(),
    };
    let mut report =
        Page::new(title, format!("Simulated, commit {}", COMMIT)).with_summary(summary(all));
    for one in all {
        report = report.with_section(page::section(one));
        let picture = page::picture_svg(one);
        fs::write(dir.join(format!("{}.svg", one.plan.name)), picture).map_err(cannot)?;
    }
    let tables: Vec<String> = all.iter().map(page::markdown).collect();
    fs::write(dir.join("report.md"), tables.join("\n")).map_err(cannot)?;
    fs::write(dir.join("report.html"), report.to_html()).map_err(cannot)
}

/// Document of `--json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: u32,
    arm: &'static str,
    commit: &'static str,
    reproductions: Vec<PlanDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct PlanDocument<'a> {
    name: &'a str,
    source: &'a str,
    cases: Vec<CaseDocument<'a>>,
    /// Verdicts on the order of the cases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ranks: Vec<RankDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct RankDocument<'a> {
    claim: &'a str,
    correlation: Option<f64>,
    at_least: f64,
    verdict: &'static str,
    committed: &'static str,
    cause: &'a str,
}

#[derive(Debug, Serialize)]
struct CaseDocument<'a> {
    id: &'a str,
    figure: &'a str,
    flows: Vec<FlowDocument<'a>>,
    claims: Vec<ClaimDocument<'a>>,
    /// Present if flows start and stop during the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    marks: Option<RegionStatistics>,
}

#[derive(Debug, Serialize)]
struct FlowDocument<'a> {
    id: &'a str,
    published_mbps: Option<f64>,
    mbps: f64,
    mbps_least: f64,
    mbps_most: f64,
}

#[derive(Debug, Serialize)]
struct ClaimDocument<'a> {
    claim: &'a str,
    published: Option<f64>,
    ours: Option<f64>,
    tolerance: f64,
    verdict: &'static str,
    committed: &'static str,
    cause: &'a str,
}

impl<'a> Document<'a> {
    fn new(all: &'a [Reproduced<'a>]) -> Self {
        let reproductions = all
            .iter()
            .map(|one| PlanDocument {
                name: &one.plan.name,
                source: &one.plan.source,
                cases: one.cases.iter().map(CaseDocument::new).collect(),
                ranks: one.ranked.iter().map(RankDocument::new).collect(),
            })
            .collect();
        Self { schema: SCHEMA, arm: Arm::Sim.name(), commit: COMMIT, reproductions }
    }
}

impl<'a> CaseDocument<'a> {
    fn new(one: &'a Reproduction<'a>) -> Self {
        let rates = one.chosen().map(|found| &found.rates);
        let flows = rates.into_iter().flatten().map(|(id, rate)| FlowDocument {
            id,
            published_mbps: one.case.published_mbps.get(id).copied(),
            mbps: rate.mean,
            mbps_least: rate.least,
            mbps_most: rate.most,
        });
        let claims = one.judged.iter().map(|judged| ClaimDocument {
            claim: &judged.claim.says,
            published: judged.claim.published,
            ours: Some(judged.ours).filter(|ours| ours.is_finite()),
            tolerance: judged.claim.tolerance,
            verdict: judged.verdict.name(),
            committed: judged.claim.verdict.name(),
            cause: &judged.claim.cause,
        });
        Self {
            id: &one.case.id,
            figure: &one.case.figure,
            flows: flows.collect(),
            claims: claims.collect(),
            marks: one.chosen().and_then(RegionStatistics::of),
        }
    }
}

impl<'a> RankDocument<'a> {
    fn new(one: &Ranked<'a>) -> Self {
        Self {
            claim: &one.rank.says,
            correlation: Some(one.correlation).filter(|number| number.is_finite()),
            at_least: one.rank.at_least,
            verdict: one.verdict.name(),
            committed: one.rank.verdict.name(),
            cause: &one.rank.cause,
        }
    }
}
