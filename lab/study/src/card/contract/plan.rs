//! Scenario files for the cells of the contract, and their selection by `--only`.
//!
//! The link is called `bottleneck` and CUBIC's flow `cubic`. The flow beside CUBIC is `a`: the
//! controller's flow, or the second CUBIC flow of the reference.

use serde::Serialize;

use super::super::plan::{Exam, Subject, Times, link, tcp};
use super::others::{Flow, Test};
use crate::Error;

/// Warm-up: share of a run that is excluded from averages.
const WARMUP: f64 = 0.25;
/// Seconds from the start of the first flow to the start of the second.
const LATER_S: f64 = 1.0;

/// Start order of the two flows. The later flow starts one second after the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// CUBIC starts first.
    #[default]
    CubicFirst,
    /// Both start at the same time.
    Together,
    /// The controller starts first.
    CubicLast,
}

impl Order {
    /// Returns the name used in files and flags.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CubicFirst => "cubic-first",
            Self::Together => "together",
            Self::CubicLast => "cubic-last",
        }
    }

    /// Returns the start times of the other flows and of the flow under test, as lines of a
    /// scenario.
    pub(super) fn starts(self) -> [String; 2] {
        let starts_s = match self {
            Self::CubicFirst => [0.0, LATER_S],
            Self::Together => [0.0, 0.0],
            Self::CubicLast => [LATER_S, 0.0],
        };
        let line = |at_s: f64| format!("start_s = {at_s}\n");
        starts_s.map(|at_s| if at_s > 0.0 { line(at_s) } else { String::new() })
    }
}

/// A path of the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(in super::super) struct Cell {
    pub(super) rate_mbps: f64,
    pub(super) rtt_ms: f64,
    pub(super) queue_bdp: f64,
    pub(super) loss: f64,
}

/// The measurement that a scenario is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Question {
    /// CUBIC beside the controller.
    Beside(Cell),
    /// CUBIC beside CUBIC.
    Reference(Cell),
    /// Other traffic than one CUBIC flow.
    Other { test: Test, rtt_ms: f64, flow: Flow },
    /// One flow alone on a link whose rate is not constant.
    Link { place: usize, cc: &'static str },
}

/// Grid of paths for an arm.
#[derive(Debug)]
pub(super) struct Extent {
    rates_mbps: &'static [f64],
    rtts_ms: &'static [f64],
    queues_bdp: &'static [f64],
    losses: &'static [f64],
    /// Duration of a run in seconds.
    seconds: fn(&Cell) -> f64,
}

pub(super) const SIM: Extent = Extent {
    rates_mbps: &[100.0, 1000.0],
    rtts_ms: &[1.0, 10.0, 50.0, 100.0, 200.0],
    queues_bdp: &[0.25, 0.5, 1.0, 2.0, 4.0],
    losses: &[0.0, 0.001],
    // The time between overflows of CUBIC's queue grows with its window.
    seconds: |cell| match (cell.rtt_ms < 50.0, cell.rate_mbps < 1000.0) {
        (true, _) => 60.0,
        (false, true) => 120.0,
        (false, false) => 200.0,
    },
};

/// Sixteen cells in real time, at a rate that a small machine carries: 13 minutes with the
/// references.
pub(super) const LAB: Extent = Extent {
    rates_mbps: &[100.0],
    rtts_ms: &[10.0, 50.0, 100.0, 200.0],
    queues_bdp: &[0.5, 1.0, 2.0, 4.0],
    losses: &[0.0],
    seconds: |cell| if cell.rtt_ms < 50.0 { 16.0 } else { 24.0 },
};

/// Name of the tests beside the grid in `--only`.
const OTHERS: &str = "others";
/// Values of each key in a coarse grid.
const QUICK: [(&str, &[f64]); 3] =
    [("rate_mbps", &[100.0]), ("rtt_ms", &[10.0, 50.0, 200.0]), ("queue_bdp", &[0.25, 1.0, 4.0])];

/// The selected cells. A key without selected values keeps all its values.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    cells: Vec<Cell>,
    /// Whether the tests beside the grid are selected.
    pub(super) has_others: bool,
}

impl Extent {
    /// Returns the values of each key, with the name of the key in the results.
    const fn keys(&self) -> [(&'static str, &'static [f64]); 4] {
        [
            ("rate_mbps", self.rates_mbps),
            ("rtt_ms", self.rtts_ms),
            ("queue_bdp", self.queues_bdp),
            ("loss", self.losses),
        ]
    }
}

fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

impl Choice {
    /// Parses the values of `--only`: `KEY=VALUE[,VALUE...]` for cells, or [`OTHERS`].
    pub(super) fn new(extent: &Extent, is_quick: bool, only: &[String]) -> Result<Self, Error> {
        let keys = extent.keys();
        let mut wanted = keys.map(|(name, all)| {
            let quick = QUICK.iter().find(|(key, _)| is_quick && *key == name);
            let has = |value: &f64| quick.is_none_or(|(_, few)| few.contains(value));
            all.iter().copied().filter(has).collect::<Vec<f64>>()
        });
        let others = only.iter().filter(|text| *text == OTHERS).count();
        if others > 0 && others == only.len() {
            return Ok(Self { cells: Vec::new(), has_others: true });
        }
        for text in only.iter().filter(|text| *text != OTHERS) {
            let (name, values) = text.split_once('=').unwrap_or((text, ""));
            let Some(place) = keys.iter().position(|(key, _)| *key == name) else {
                let names = keys.map(|(name, _)| name).join(", ");
                return Err(Error::usage(format!(
                    "--only {text}: use {OTHERS}, or KEY=VALUE[,VALUE...] for cells; keys are {names}"
                )));
            };
            let values = values.split(',').map(|value| {
                let number = value.trim().parse::<f64>().ok();
                let known = number.and_then(|number| {
                    keys[place].1.iter().copied().find(|known| is_same(*known, number))
                });
                known.ok_or_else(|| {
                    let all: Vec<String> = keys[place].1.iter().map(f64::to_string).collect();
                    Error::usage(format!(
                        "--only {text}: '{value}' is no {name} of the grid, which has {}",
                        all.join(", ")
                    ))
                })
            });
            wanted[place] = values.collect::<Result<_, _>>()?;
        }
        let [rates, rtts, queues, losses] = wanted;
        let mut cells = Vec::new();
        for &rate_mbps in &rates {
            for &rtt_ms in &rtts {
                for &queue_bdp in &queues {
                    let cell = |loss: &f64| Cell { rate_mbps, rtt_ms, queue_bdp, loss: *loss };
                    cells.extend(losses.iter().map(cell));
                }
            }
        }
        Ok(Self { cells, has_others: only.is_empty() || others > 0 })
    }
}

/// Returns both scenarios of each cell.
pub(super) fn exams(
    subject: &Subject<'_>,
    extent: &Extent,
    order: Order,
    choice: &Choice,
) -> Vec<Exam<Question>> {
    let both = |cell: &Cell| {
        let [first, start] = order.starts();
        let of = |question, kind: &str, beside: &str| {
            let Cell { rate_mbps, rtt_ms, queue_bdp, loss } = *cell;
            let seconds = (extent.seconds)(cell);
            let warmup = WARMUP * seconds;
            let cubic = tcp("cubic", "cubic", &first);
            subject.exam(
                question,
                format!(
                    "{kind}-{rate_mbps}mbps-{rtt_ms}ms-{queue_bdp}bdp-{}pct",
                    sabul_report::significant(loss * 100.0, 3)
                ),
                Times::new((warmup, seconds - warmup), 1000),
                &link(rate_mbps, rtt_ms, &format!("queue_bdp = {queue_bdp}\nloss = {loss}\n")),
                &[cubic.as_str(), beside].join("\n"),
            )
        };
        [
            of(Question::Beside(*cell), "beside", &subject.flow("a", &start)),
            of(Question::Reference(*cell), "reference", &tcp("a", "cubic", &start)),
        ]
    };
    choice.cells.iter().flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use sabul_lab_cc::registry;

    use super::super::super::plan::Carrier;
    use super::*;

    fn names(extent: &Extent, order: Order, is_quick: bool, only: &[&str]) -> Vec<Exam<Question>> {
        let entry = registry::find("sabul2003").unwrap();
        let subject = Subject { entry, params: &[], transport: Carrier::Sabul };
        let only: Vec<String> = only.iter().map(|&text| text.to_owned()).collect();
        exams(&subject, extent, order, &Choice::new(extent, is_quick, &only).unwrap())
    }

    #[test]
    fn the_grid_has_a_hundred_cells_and_a_coarse_one_eighteen() {
        for (extent, is_quick, only, wanted) in [
            (&SIM, false, &[][..], 100),
            (&SIM, true, &[], 18),
            (&SIM, false, &["rate_mbps=100", "rtt_ms=10,50", "loss=0"], 10),
            (&SIM, true, &["rate_mbps=1000"], 18),
            (&LAB, false, &[], 16),
            (&LAB, true, &[], 6),
        ] {
            let exams = names(extent, Order::CubicFirst, is_quick, only);
            assert_eq!(exams.len(), 2 * wanted, "{only:?}");
            for exam in exams {
                let run = sabul_scenario::read(&exam.text, &exam.name, &[]).unwrap().remove(0);
                assert_eq!(run.scenario.flows.len(), 2);
            }
        }
    }

    #[test]
    fn the_second_flow_starts_a_second_later_in_run_and_reference() {
        for (order, wanted) in
            [(Order::CubicFirst, [0, 1]), (Order::Together, [0, 0]), (Order::CubicLast, [1, 0])]
        {
            for exam in names(&LAB, order, false, &["rtt_ms=10", "queue_bdp=1"]) {
                let scenario =
                    sabul_scenario::read(&exam.text, "x", &[]).unwrap().remove(0).scenario;
                let starts = scenario.flows.iter().map(|flow| flow.start.elapsed().as_secs_f64());
                let wanted = wanted.map(f64::from);
                assert_eq!(starts.collect::<Vec<_>>(), wanted, "{}", exam.name);
                let ids: Vec<&str> = scenario.flows.iter().map(|flow| flow.id.as_str()).collect();
                assert_eq!(ids, ["cubic", "a"]);
            }
        }
    }

    #[test]
    fn a_value_outside_the_grid_is_refused_with_the_grid_values() {
        for (only, part) in [
            ("tea", "rate_mbps, rtt_ms, queue_bdp, loss"),
            ("rtt_ms", "is no rtt_ms"),
            ("rtt_ms=10,20", "'20' is no rtt_ms of the grid, which has 1, 10, 50"),
            ("loss=0.5", "0, 0.001"),
        ] {
            let error = Choice::new(&SIM, false, &[only.to_owned()]).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("--only"), "{error}");
        }
    }
}
