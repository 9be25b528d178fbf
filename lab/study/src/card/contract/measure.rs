//! Verdict on each cell, computed from its runs by pure functions. Numbers are medians over seeds.

use sabul_net::QueueLimit;
use sabul_run::statistics;
use serde::Serialize;

use super::super::measure::{Answer, Trial};
use super::plan::{Cell, Question};

/// Conditions for a cell to be met.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Terms {
    /// Least goodput of CUBIC, as a share of its goodput beside another CUBIC flow.
    pub(super) kept_min: f64,
    /// Most by which utilisation may be below that with two CUBIC flows.
    pub(super) emptier_max: f64,
    /// Least utilisation where random loss keeps two CUBIC flows below this utilisation.
    pub(super) utilisation_min: f64,
    /// Cells with a smaller queue are marked, because they measure burst lengths.
    pub(super) tiny_queue_packets: u64,
}

pub(super) const TERMS: Terms =
    Terms { kept_min: 0.8, emptier_max: 0.005, utilisation_min: 0.95, tiny_queue_packets: 4 };

/// Result of one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct CellResult {
    #[serde(flatten)]
    pub(super) cell: Cell,
    pub(super) queue_packets: u64,
    pub(super) has_tiny_queue: bool,
    /// Goodput of CUBIC and of the controller beside CUBIC.
    pub(super) cubic_bps: f64,
    pub(super) cc_bps: f64,
    /// Goodput of two CUBIC flows beside each other: first, second, and their mean.
    pub(super) reference_first_bps: f64,
    pub(super) reference_second_bps: f64,
    pub(super) reference_bps: f64,
    /// `cubic_bps` ÷ `reference_bps`.
    pub(super) kept: f64,
    /// Utilisation of the link in the run, and with two CUBIC flows.
    pub(super) utilisation: f64,
    pub(super) reference_utilisation: f64,
    pub(super) is_kept: bool,
    pub(super) is_full: bool,
    pub(super) is_met: bool,
}

/// Returns every cell with valid runs of both scenarios, in the order of the grid.
pub(super) fn cells(answers: &[Answer<Question>]) -> Vec<CellResult> {
    let valid = |answer: &&Answer<Question>| !answer.trials.is_empty();
    let mut cells = Vec::new();
    for beside in answers.iter().filter(valid) {
        let Question::Beside(cell) = beside.exam.question else { continue };
        let reference = answers.iter().filter(valid).find(
            |answer| matches!(answer.exam.question, Question::Reference(other) if other == cell),
        );
        cells.extend(reference.map(|reference| judge(cell, &beside.trials, &reference.trials)));
    }
    cells
}

/// Returns the median of a number over seeds, or NaN without runs.
pub(super) fn over(trials: &[Trial], number: impl Fn(&Trial) -> f64) -> f64 {
    statistics::median(trials.iter().map(number).collect()).unwrap_or(f64::NAN)
}

/// Returns the utilisation of the first link, from 0 to 1.
pub(super) fn utilisation(trial: &Trial) -> f64 {
    trial.finished.results.links.first().map_or(f64::NAN, |link| link.utilisation)
}

fn judge(cell: Cell, beside: &[Trial], reference: &[Trial]) -> CellResult {
    let queue_packets = beside.first().map_or(0, room);
    let cubic_bps = over(beside, |one| one.goodput("cubic"));
    let reference_bps =
        over(reference, |one| f64::midpoint(one.goodput("cubic"), one.goodput("a")));
    let kept = cubic_bps / reference_bps;
    let utilisation_of = |trials| over(trials, utilisation);
    let (utilisation, reference_utilisation) = (utilisation_of(beside), utilisation_of(reference));
    let is_kept = kept >= TERMS.kept_min;
    let is_short_of_loss = cell.loss > 0.0 && reference_utilisation < TERMS.utilisation_min;
    let least = match is_short_of_loss {
        true => TERMS.utilisation_min,
        false => reference_utilisation - TERMS.emptier_max,
    };
    let is_full = utilisation >= least;
    CellResult {
        cell,
        queue_packets,
        has_tiny_queue: queue_packets < TERMS.tiny_queue_packets,
        cubic_bps,
        cc_bps: over(beside, |one| one.goodput("a")),
        reference_first_bps: over(reference, |one| one.goodput("cubic")),
        reference_second_bps: over(reference, |one| one.goodput("a")),
        reference_bps,
        kept,
        utilisation,
        reference_utilisation,
        is_kept,
        is_full,
        is_met: is_kept && is_full,
    }
}

/// Returns the capacity of the queue in packets, or `u64::MAX` if the limit has another unit.
fn room(trial: &Trial) -> u64 {
    match trial.scenario().links.first().map(|link| link.forward.queue()) {
        Some(QueueLimit::Packets(packets)) => packets,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use sabul_run::results::{FlowResult, LinkResult, Results, Series};

    use super::super::super::measure::tests::{close, trial};
    use super::super::super::plan::Exam;
    use super::*;

    fn run(cubic_bps: f64, other_bps: f64, utilisation: f64) -> Trial {
        let flow = |id: &str, goodput_bps| FlowResult {
            id: id.to_owned(),
            goodput_bps,
            ..FlowResult::default()
        };
        let flows = vec![flow("cubic", cubic_bps), flow("a", other_bps)];
        let links = vec![LinkResult { utilisation, ..LinkResult::default() }];
        trial("", Results { flows, links, ..Results::default() }, Series::default())
    }

    fn judged(loss: f64, beside: &[Trial], reference: &[Trial]) -> CellResult {
        let cell = Cell { rate_mbps: 10.0, rtt_ms: 10.0, queue_bdp: 1.0, loss };
        let answer = |question, trials: &[Trial]| Answer {
            exam: Exam { question, name: String::new(), text: String::new() },
            trials: trials.to_vec(),
            invalid: Vec::new(),
        };
        let answers =
            [answer(Question::Beside(cell), beside), answer(Question::Reference(cell), reference)];
        let cells = cells(&answers);
        assert_eq!(cells.len(), usize::from(!beside.is_empty() && !reference.is_empty()));
        cells.first().copied().unwrap_or_default()
    }

    #[test]
    fn cubic_is_compared_with_half_of_two_cubics_by_medians_over_seeds() {
        // Medians 4 of 3, 4, 9; halves of both 4, 5, 6: 4 ÷ 5.
        let beside = [run(3e6, 6e6, 1.0), run(4e6, 5e6, 1.0), run(9e6, 1e6, 1.0)];
        let reference = [run(2e6, 6e6, 1.0), run(9e6, 1e6, 1.0), run(6e6, 6e6, 1.0)];
        let found = judged(0.0, &beside, &reference);
        close(found.kept, 0.8);
        close(found.cc_bps, 5e6);
        close(found.reference_first_bps, 6e6);
        assert!(found.is_kept && found.is_full && found.is_met && !found.has_tiny_queue);
        let less = judged(0.0, &[run(3.9e6, 6e6, 1.0)], &reference);
        assert!(!less.is_kept && less.is_full && !less.is_met);
        let starved = judged(0.0, &beside, &[run(0.0, 0.0, 0.0)]);
        assert!(starved.is_kept, "nothing was to be kept");
    }

    #[test]
    fn a_link_must_be_as_full_as_with_two_cubics_or_95_percent_under_loss() {
        let full = |loss, utilisation, reference| {
            judged(loss, &[run(5e6, 1e6, utilisation)], &[run(5e6, 5e6, reference)]).is_full
        };
        assert!(full(0.0, 0.995, 1.0) && !full(0.0, 0.994, 1.0));
        assert!(full(0.0, 0.5, 0.5), "without loss nothing more is asked for");
        assert!(full(0.001, 0.95, 0.5) && !full(0.001, 0.94, 0.5));
        assert!(full(0.001, 0.945, 0.95), "there CUBIC fills it");
    }

    #[test]
    fn a_cell_without_valid_runs_has_no_verdict() {
        assert_eq!(judged(0.0, &[], &[run(5e6, 5e6, 1.0)]), CellResult::default());
        assert_eq!(judged(0.0, &[run(5e6, 5e6, 1.0)], &[]), CellResult::default());
    }
}
