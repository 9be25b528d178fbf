//! Grids of parameter sets: the region of each point, and the outcome of each lemma.
//!
//! All cores process the points, and the results are collected in order, so they depend only on the
//! grid.

mod builtin;
mod spec;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use crate::lemmas::{Counterexample, Outcome, Verdict, check_within};
use crate::orbit::{End, Limits, Region};
use crate::params::{Key, Params};

pub use builtin::builtin;
pub use spec::{Axis, Grid, Spread, read_grid};

/// Points that are processed before their results are folded. Bounds the memory.
const CHUNK: usize = 4096;

/// Limits for one point. Shorter than for a single set, because there are thousands of points.
const LIMITS: Limits = Limits { rounds: 40_000, window: 3_000 };

/// One point of a grid and its results.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// Values of the grid's axes, in the order of the axes.
    pub values: Vec<f64>,
    /// Class of the orbit.
    pub region: Region,
    /// γ, the average loss.
    pub gamma: f64,
    /// Mean rate, in Mb/s.
    pub rate_mbps: f64,
    /// Lowest rate, in Mb/s.
    pub rate_mbps_min: f64,
    /// Highest rate, in Mb/s.
    pub rate_mbps_max: f64,
    /// Rate served by the bottleneck, as a share of µ.
    pub utilisation: f64,
    /// Length of the limit cycle in rounds, if there is a limit cycle.
    pub period_rounds: Option<u64>,
    /// Number of mode changes.
    pub switches: u64,
    /// One letter per lemma as printed: `-` does not apply, `H` holds, `V` violated, `?` undecided.
    pub printed: String,
    /// One letter per lemma as corrected.
    pub corrected: String,
}

/// Number of points by outcome of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tally {
    /// Points that do not meet the conditions.
    pub not_applicable: u64,
    /// Points at which the statement holds.
    pub holds: u64,
    /// Points at which the statement is violated.
    pub violated: u64,
    /// Points without a decision.
    pub undecided: u64,
}

impl Tally {
    fn add(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::NotApplicable => &mut self.not_applicable,
            Outcome::Holds => &mut self.holds,
            Outcome::Violated => &mut self.violated,
            Outcome::Undecided => &mut self.undecided,
        } += 1;
    }
}

/// Results of one lemma over the whole grid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LemmaTally {
    /// Number of the lemma, from 1.
    pub lemma: u8,
    /// Outcomes of the printed statement.
    pub printed: Tally,
    /// Outcomes of the corrected statement.
    pub corrected: Tally,
    /// The point with the worst violation of the printed statement.
    pub worst: Option<Counterexample>,
    /// A point that violates the corrected statement.
    pub corrected_failure: Option<Params>,
}

/// Result of a grid.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Summary {
    /// Number of evaluated points.
    pub points: u64,
    /// Number of skipped combinations, which are invalid, such as µ ≥ C.
    pub left_out: u64,
    /// Number of points in each region.
    pub regions: Vec<(Region, u64)>,
    /// Results of lemmas 1 to 8.
    pub lemmas: Vec<LemmaTally>,
}

/// A summary and every point.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Results {
    /// Names of the axes.
    pub axes: Vec<&'static str>,
    /// The summary.
    pub summary: Summary,
    /// The points, in the order of the grid.
    pub points: Vec<Point>,
}

/// Result of one point before folding.
struct Judged {
    point: Point,
    verdicts: Vec<(Outcome, Outcome, Option<Counterexample>)>,
}

/// Evaluates all points of a grid.
pub fn run(grid: &Grid) -> Results {
    let keys: Vec<Key> = grid.axes.iter().map(|axis| axis.key).collect();
    let mut points = Vec::new();
    let summary =
        sweep(grid.points(), |index| grid.point(index), &keys, |point| points.push(point));
    Results { axes: keys.into_iter().map(Key::name).collect(), summary, points }
}

/// Evaluates `count` points of the built-in grid.
pub fn run_builtin(count: u64, seed: u64) -> Summary {
    sweep(count, |index| builtin(seed, index, count), &[], |_| {})
}

fn sweep(
    count: u64,
    params: impl Fn(u64) -> Option<Params> + Sync,
    keys: &[Key],
    mut keep: impl FnMut(Point),
) -> Summary {
    let mut summary = Summary {
        points: 0,
        left_out: 0,
        regions: Region::ALL.map(|region| (region, 0)).to_vec(),
        lemmas: (1..=8).map(|lemma| LemmaTally { lemma, ..LemmaTally::default() }).collect(),
    };
    let mut from = 0;
    while from < count {
        let to = count.min(from + CHUNK as u64);
        let judged: Vec<Option<(Params, Judged)>> = (from..to)
            .into_par_iter()
            .map(|index| params(index).map(|params| (params.clone(), judge(&params, keys, LIMITS))))
            .collect();
        for judged in judged {
            match judged {
                Some((params, judged)) => keep(fold(&mut summary, &params, judged)),
                None => summary.left_out += 1,
            }
        }
        from = to;
    }
    summary
}

fn judge(params: &Params, keys: &[Key], limits: Limits) -> Judged {
    let report = check_within(params, limits);
    let orbit = &report.orbit;
    let letters = |of: fn(&crate::lemmas::LemmaReport) -> Outcome| {
        report.lemmas.iter().map(|lemma| of(lemma).letter()).collect()
    };
    let point = Point {
        values: keys.iter().map(|&key| params.value(key)).collect(),
        region: orbit.region,
        gamma: orbit.gamma,
        rate_mbps: orbit.rate_mean / 1e6,
        rate_mbps_min: orbit.rate_min / 1e6,
        rate_mbps_max: orbit.rate_max / 1e6,
        utilisation: orbit.utilisation,
        period_rounds: match orbit.end {
            End::Cycle { period } => Some(period),
            _ => None,
        },
        switches: orbit.switches,
        printed: letters(|lemma| lemma.printed.outcome),
        corrected: letters(|lemma| lemma.corrected.outcome),
    };
    let verdicts = report.lemmas.into_iter().map(|lemma| {
        let found = match lemma.verdict {
            Verdict::HoldsCorrected { counterexample } => counterexample,
            Verdict::Violated { counterexample } => Some(counterexample),
            _ => None,
        };
        (lemma.printed.outcome, lemma.corrected.outcome, found.map(|found| *found))
    });
    Judged { verdicts: verdicts.collect(), point }
}

fn fold(summary: &mut Summary, params: &Params, judged: Judged) -> Point {
    summary.points += 1;
    for (region, count) in &mut summary.regions {
        *count += u64::from(*region == judged.point.region);
    }
    for (tally, (printed, corrected, found)) in summary.lemmas.iter_mut().zip(judged.verdicts) {
        tally.printed.add(printed);
        tally.corrected.add(corrected);
        if corrected == Outcome::Violated && tally.corrected_failure.is_none() {
            tally.corrected_failure = Some(params.clone());
        }
        let worst = tally.worst.as_ref().map_or(f64::NEG_INFINITY, |worst| worst.severity);
        if let Some(found) = found.filter(|found| found.severity > worst) {
            tally.worst = Some(found);
        }
    }
    judged.point
}

/// A quantity over two axes of a grid, for a heat map.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HeatMap {
    /// Name of the horizontal axis.
    pub x: &'static str,
    /// Name of the vertical axis.
    pub y: &'static str,
    /// Centres of the columns.
    pub x_values: Vec<f64>,
    /// Centres of the rows.
    pub y_values: Vec<f64>,
    /// Mean γ of the points in each cell, row by row; null for a cell without points.
    pub gamma: Vec<Vec<Option<f64>>>,
    /// The most frequent region in each cell.
    pub region: Vec<Vec<Option<Region>>>,
}

/// Assigns the points of a grid to the cells of two of its axes. Lists and ranges with steps have
/// one cell per value; randomly drawn values are assigned to twenty cells.
///
/// # Errors
/// If the grid does not have one of the axes.
pub fn heat_map(grid: &Grid, results: &Results, x: Key, y: Key) -> Result<HeatMap, String> {
    let place = |key: Key| {
        let found = grid.axes.iter().position(|axis| axis.key == key);
        found.ok_or_else(|| format!("the grid has no axis '{}' for a heat map", key.name()))
    };
    let (column, row) = (place(x)?, place(y)?);
    let x_cells = grid.axes[column].cells(grid.samples.is_some());
    let y_cells = grid.axes[row].cells(grid.samples.is_some());
    let mut cells = vec![vec![Cell::default(); x_cells.len()]; y_cells.len()];
    for point in &results.points {
        let i = nearest(&x_cells, point.values[column]);
        let j = nearest(&y_cells, point.values[row]);
        cells[j][i].add(point);
    }
    Ok(HeatMap {
        x: x.name(),
        y: y.name(),
        x_values: x_cells,
        y_values: y_cells,
        gamma: cells.iter().map(|row| row.iter().map(Cell::gamma).collect()).collect(),
        region: cells.iter().map(|row| row.iter().map(Cell::region).collect()).collect(),
    })
}

fn nearest(cells: &[f64], value: f64) -> usize {
    let distance = |i: &usize| (cells[*i] - value).abs();
    (0..cells.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}

#[derive(Clone, Debug, Default)]
struct Cell {
    points: u32,
    gamma: f64,
    regions: [u32; Region::ALL.len()],
}

impl Cell {
    fn add(&mut self, point: &Point) {
        self.points += 1;
        self.gamma += point.gamma;
        self.regions[point.region as usize] += 1;
    }

    fn gamma(&self) -> Option<f64> {
        (self.points > 0).then(|| self.gamma / f64::from(self.points))
    }

    fn region(&self) -> Option<Region> {
        let most = self.regions.iter().max().filter(|&&most| most > 0)?;
        Region::ALL.into_iter().find(|&region| self.regions[region as usize] == *most)
    }
}

#[cfg(test)]
mod tests;
