//! Output of the model commands: text, and one JSON document.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

use crate::grid::{self, Grid, HeatMap, Results, Summary, Tally};
use crate::lemmas::{self, Claim, LemmaReport, Outcome, Report};
use crate::orbit::{End, Limits, Orbit, follow};
use crate::params::{Params, Set};
use crate::series::{PhasePlane, Series, phase_plane, series};
use crate::suspects::{self, Suspect};

/// Version of the JSON documents.
pub const SCHEMA: u32 = 1;

/// Result of `check`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CheckReport {
    /// Version of this document.
    pub schema: u32,
    /// Results of the single parameter sets.
    pub sets: Vec<Named>,
    /// Known weak points of the paper.
    pub suspects: Vec<Suspect>,
    /// Results of the grid, if a grid was requested.
    pub grid: Option<Summary>,
}

/// A report under the name of its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Named {
    /// Source of the parameters: a published set or a file.
    pub name: String,
    /// Results of all lemmas.
    pub report: Report,
}

impl CheckReport {
    /// Returns whether a corrected lemma failed, which is an error of this crate.
    pub fn has_failed_correction(&self) -> bool {
        let in_sets = self.sets.iter().flat_map(|set| &set.report.lemmas);
        let in_grid = self.grid.iter().flat_map(|grid| &grid.lemmas);
        in_sets.map(|lemma| lemma.corrected.outcome).any(|outcome| outcome == Outcome::Violated)
            || in_grid.map(|lemma| lemma.corrected.violated).any(|tally| tally > 0)
    }
}

/// Checks one named set, or Pr_0 and Pr_1 by default, and `points` of the built-in grid.
pub fn check(given: Option<(String, Params)>, points: u64, seed: u64) -> CheckReport {
    let sets: Vec<(String, Params)> = match given {
        Some(given) => vec![given],
        None => Set::ALL.map(|set| (set.name().to_owned(), Params::preset(set))).to_vec(),
    };
    CheckReport {
        schema: SCHEMA,
        sets: sets
            .into_iter()
            .map(|(name, params)| Named { name, report: lemmas::check(&params) })
            .collect(),
        suspects: suspects::known(),
        grid: (points > 0).then(|| grid::run_builtin(points, seed)),
    }
}

/// Result of `iterate`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct IterateReport {
    /// Version of this document.
    pub schema: u32,
    /// The parameters.
    pub params: Params,
    /// Long-run behaviour of the first flow alone.
    pub orbit: Orbit,
    /// Rounds of the first flow alone.
    pub series: Series,
    /// Both flows together.
    pub phase_plane: PhasePlane,
}

/// Iterates one set for `rounds` rounds.
pub fn iterate(params: Params, rounds: u64) -> IterateReport {
    IterateReport {
        schema: SCHEMA,
        orbit: follow(&params, params.gaps_initial()[0], Limits::default()),
        series: series(&params, rounds),
        phase_plane: phase_plane(&params, rounds),
        params,
    }
}

/// Result of `grid`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GridReport {
    /// Version of this document.
    pub schema: u32,
    /// All points.
    #[serde(flatten)]
    pub results: Results,
    /// Heat map over two axes, if the grid has two.
    pub heat_map: Option<HeatMap>,
}

/// Evaluates a grid.
pub fn grid(grid: &Grid) -> GridReport {
    let results = grid::run(grid);
    let heat_map = grid.heat_map.and_then(|(x, y)| grid::heat_map(grid, &results, x, y).ok());
    GridReport { schema: SCHEMA, results, heat_map }
}

/// Returns one JSON document with a final newline.
///
/// # Panics
/// Never: JSON can represent all values of the reports.
pub fn json(report: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(report);
    text.expect("reports have no maps with keys other than words") + "\n"
}

impl CheckReport {
    /// Returns the report as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for set in &self.sets {
            describe_set(&mut out, set);
        }
        line(&mut out, "Known weak points of the printed lemmas, computed anew:");
        for suspect in &self.suspects {
            let Suspect { lemma, title, printed, what, .. } = suspect;
            line(&mut out, &format!("  Lemma {lemma} ({}): {title}", words(*printed)));
            line(&mut out, &format!("    {what}"));
        }
        if let Some(grid) = &self.grid {
            line(&mut out, "");
            describe_summary(&mut out, grid);
        }
        out
    }
}

fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

const fn words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::NotApplicable => "not met",
        Outcome::Holds => "holds",
        Outcome::Violated => "violated",
        Outcome::Undecided => "undecided",
    }
}

fn describe_set(out: &mut String, set: &Named) {
    let report = &set.report;
    line(out, &format!("{}: {}", set.name, report.params));
    describe_orbit(out, &report.params, &report.orbit);
    line(out, "");
    line(out, "lemma  as printed  as corrected  verdict             about");
    for lemma in &report.lemmas {
        line(
            out,
            &format!(
                "{:>5}  {:<10}  {:<12}  {:<18}  {}",
                lemma.lemma,
                words(lemma.printed.outcome),
                words(lemma.corrected.outcome),
                lemma.verdict.name(),
                lemma.title
            ),
        );
    }
    line(out, "");
    report.lemmas.iter().for_each(|lemma| describe_lemma(out, lemma));
}

fn describe_lemma(out: &mut String, lemma: &LemmaReport) {
    line(out, &format!("Lemma {}: {}", lemma.lemma, lemma.title));
    for (name, statement) in [("printed", &lemma.printed), ("corrected", &lemma.corrected)] {
        line(out, &format!("  {name}: {}", words(statement.outcome)));
        statement.conditions.iter().for_each(|claim| describe_claim(out, "if", claim));
        statement.checks.iter().for_each(|claim| describe_claim(out, "then", claim));
    }
    if let Some(found) = lemma.verdict.counterexample() {
        line(out, &format!("  counterexample: {}", found.what));
    }
    let numbers = lemma.numbers.iter().map(|number| {
        let unit = if number.unit.is_empty() { "" } else { " " };
        format!("{} = {}{unit}{}", number.name, short(number.value), number.unit)
    });
    line(out, &format!("  {}", numbers.collect::<Vec<_>>().join("; ")));
    line(out, "");
}

fn describe_claim(out: &mut String, role: &str, claim: &Claim) {
    let holds = match claim.holds {
        Some(true) => "yes",
        Some(false) => "no",
        None => "undecided",
    };
    let sides = claim.sides.map_or_else(String::new, |sides| {
        format!(": {} {} {}", short(sides.left), sides.relation.sign(), short(sides.right))
    });
    line(out, &format!("    {role:<4} {}{sides}: {holds}", claim.what));
}

/// Formats a number with six digits in the shorter notation.
fn short(value: f64) -> String {
    let size = value.abs();
    if value.fract().abs() < f64::EPSILON && size < 1e9 {
        format!("{value}")
    } else if (1e-3..1e6).contains(&size) {
        let text = if size >= 1.0 { format!("{value:.4}") } else { format!("{value:.6}") };
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.4e}")
    }
}

fn describe_orbit(out: &mut String, p: &Params, orbit: &Orbit) {
    let end = match orbit.end {
        End::Cycle { period } => format!("cycle of {period} rounds"),
        End::LockedAtTarget => "locked at µ/(1-α)".to_owned(),
        End::LockedAtCapacity => "locked at C".to_owned(),
        End::GapNotPositive { round, gap_s } => {
            format!("gap {:.4} us in round {round}", gap_s * 1e6)
        }
        End::Window => "no cycle met".to_owned(),
        End::TooLong => "not decided".to_owned(),
    };
    let runs: Vec<String> = orbit.first_runs.iter().take(12).map(u64::to_string).collect();
    let first = if orbit.starts_in_increase { "increase" } else { "decrease" };
    line(
        out,
        &format!(
            "  {}, {end} ({} rounds followed); γ = {:.6} ± {:.1e} at α = {}; rate {:.1} Mb/s \
             ({:.1} to {:.1}); {:.2} % of µ used",
            orbit.region.name(),
            orbit.rounds,
            orbit.gamma,
            orbit.gamma_error,
            p.alpha(),
            orbit.rate_mean / 1e6,
            orbit.rate_min / 1e6,
            orbit.rate_max / 1e6,
            orbit.utilisation * 100.0
        ),
    );
    if !runs.is_empty() {
        line(out, &format!("  runs, {first} first: {} … rounds", runs.join(", ")));
    }
}

/// Most rounds that `iterate` prints.
const LINES: usize = 40;

impl IterateReport {
    /// Returns text: the long-run behaviour, and up to forty of the rounds.
    pub fn text(&self) -> String {
        let mut out = String::new();
        line(&mut out, &self.params.to_string());
        describe_orbit(&mut out, &self.params, &self.orbit);
        line(&mut out, "");
        line(&mut out, "   round       t s    rate Mb/s        loss  queue pkt      gap us");
        let rounds = self.series.rate_mbps.len();
        for round in (0..rounds).step_by(rounds.div_ceil(LINES).max(1)) {
            let (t_s, rate) = self.series.rate_mbps[round];
            line(
                &mut out,
                &format!(
                    "{round:>8}  {t_s:>8.1}  {rate:>11.3}  {:>10.6}  {:>9.1}  {:>10.4}",
                    self.series.loss[round].1,
                    self.series.queue_packets[round].1,
                    self.series.gap_us[round].1
                ),
            );
        }
        let last = |series: &[(f64, f64)]| series.last().map_or(f64::NAN, |&(_, rate)| rate);
        line(&mut out, "");
        line(
            &mut out,
            &format!(
                "two flows: {:.1} and {:.1} Mb/s after {} rounds",
                last(&self.phase_plane.rate_mbps_first),
                last(&self.phase_plane.rate_mbps_second),
                self.phase_plane.path_us.len()
            ),
        );
        out
    }
}

impl GridReport {
    /// Returns text: the counts, and the heat map by regions.
    pub fn text(&self) -> String {
        let mut out = String::new();
        describe_summary(&mut out, &self.results.summary);
        if let Some(map) = &self.heat_map {
            describe_map(&mut out, map);
        }
        out
    }
}

fn describe_summary(out: &mut String, summary: &Summary) {
    line(
        out,
        &format!("grid: {} points, {} combinations left out", summary.points, summary.left_out),
    );
    for (region, count) in &summary.regions {
        let share = *count as f64 * 100.0 / summary.points.max(1) as f64;
        line(out, &format!("  {:<18} {count:>8}  {share:>5.1} %", region.name()));
    }
    line(out, "");
    line(
        out,
        "lemma  as printed: holds  violated  undecided  as corrected: holds  violated  undecided",
    );
    for lemma in &summary.lemmas {
        let columns = |tally: &Tally| [tally.holds, tally.violated, tally.undecided];
        let [a, b, c] = columns(&lemma.printed);
        let [d, e, f] = columns(&lemma.corrected);
        line(out, &format!("{:>5}  {a:>17}  {b:>8}  {c:>9}  {d:>19}  {e:>8}  {f:>9}", lemma.lemma));
    }
    for lemma in &summary.lemmas {
        if let Some(worst) = &lemma.worst {
            line(out, &format!("worst for lemma {}: {}", lemma.lemma, worst.what));
            line(out, &format!("  {}", worst.params));
        }
        if let Some(params) = &lemma.corrected_failure {
            line(out, &format!("lemma {} fails as corrected: {params}", lemma.lemma));
        }
    }
}

fn describe_map(out: &mut String, map: &HeatMap) {
    line(out, "");
    line(out, &format!("regions, {} to the right, {} upwards:", map.x, map.y));
    for (value, row) in map.y_values.iter().zip(&map.region).rev() {
        let cells: String = row
            .iter()
            .map(|cell| match cell {
                Some(region) => region.name().chars().next().unwrap_or(' '),
                None => '.',
            })
            .collect();
        line(out, &format!("{:>12}  {cells}", short(*value)));
    }
    let ends = map.x_values.first().zip(map.x_values.last());
    if let Some((first, last)) = ends {
        line(out, &format!("{:>12}  from {} to {}", "", short(*first), short(*last)));
    }
    let key = "o oscillates, e excess loss, l locks in increase, s stays overloaded, \
               g gap negative, u undecided, . no points";
    line(out, &format!("{:>12}  {key}", ""));
}

#[cfg(test)]
#[path = "report/tests.rs"]
mod tests;
