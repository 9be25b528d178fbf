//! Contract with TCP: CUBIC's goodput beside the controller, and link utilisation, over a grid of
//! paths.
//!
//! Each cell of the grid is run twice: a CUBIC flow beside the controller, and beside another CUBIC
//! flow, which is the reference. A cell is met if CUBIC keeps four fifths of its reference goodput
//! and the link is as full as in the reference ([`measure::Terms`]). The controller's own goodput
//! is reported too, because a controller that yields is also a result.

mod links;
mod measure;
mod others;
mod page;
mod plan;

use sabul_scenario::Arm;
use serde::Serialize;

use super::head::Head;
use super::measure::Answer;
use super::plan::{Exam, Subject};
use crate::Error;
use links::LinkKindResult;
use measure::{CellResult, TERMS, Terms};
use others::OtherResult;
pub(super) use page::{csv, page, text};
pub use plan::Order;
pub(super) use plan::Question;
use plan::{Choice, LAB, SIM};

/// Options of the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contract {
    /// Order in which the two flows start.
    pub order: Order,
    /// Whether to use a coarse grid.
    pub is_quick: bool,
}

/// Content of `contract.json`.
#[derive(Debug, Serialize)]
pub(super) struct Sheet {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) order: &'static str,
    terms: Terms,
    #[serde(flatten)]
    numbers: Numbers,
}

/// All numbers of a contract.
#[derive(Debug, Default, Serialize)]
struct Numbers {
    /// Number of cells that have valid runs.
    cells_judged: usize,
    cells_met: usize,
    /// The same counts without the cells that have a tiny queue.
    cells_judged_with_room: usize,
    cells_met_with_room: usize,
    /// The cell with the smallest `kept`.
    worst: Option<CellResult>,
    cells: Vec<CellResult>,
    /// Tests with other traffic than one CUBIC flow.
    others: Vec<OtherResult>,
    /// Tests with one flow alone on links whose rate varies.
    links: Vec<LinkKindResult>,
}

impl Numbers {
    fn new(answers: &[Answer<Question>]) -> Self {
        let cells = measure::cells(answers);
        let with_room = || cells.iter().filter(|cell| !cell.has_tiny_queue);
        let met = |cell: &&CellResult| cell.is_met;
        Self {
            cells_judged: cells.len(),
            cells_met: cells.iter().filter(met).count(),
            cells_judged_with_room: with_room().count(),
            cells_met_with_room: with_room().filter(met).count(),
            worst: cells.iter().min_by(|a, b| a.kept.total_cmp(&b.kept)).copied(),
            cells,
            others: others::results(answers),
            links: links::results(answers),
        }
    }
}

/// Returns the scenarios of the selected cells.
pub(super) fn exams(
    subject: &Subject<'_>,
    arm: Arm,
    contract: Contract,
    only: &[String],
) -> Result<Vec<Exam<Question>>, Error> {
    let extent = match arm {
        Arm::Sim => &SIM,
        Arm::Lab => &LAB,
    };
    let choice = Choice::new(extent, contract.is_quick, only)?;
    let mut exams = plan::exams(subject, extent, contract.order, &choice);
    // The other tests take too long for the lab.
    if choice.has_others && arm == Arm::Sim {
        exams.extend(others::exams(subject, contract.order, contract.is_quick));
        exams.extend(links::exams(subject)?);
    }
    Ok(exams)
}

impl Sheet {
    pub(super) fn new(head: Head, order: Order, answers: &[Answer<Question>]) -> Self {
        Self { head, order: order.name(), terms: TERMS, numbers: Numbers::new(answers) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test of the program prints these rows, because their runs take minutes of simulated time.
    #[test]
    fn rows_of_other_flows_and_links_match_the_schema() {
        let schema = crate::schema::of("card-contract").unwrap();
        let rows = [
            ("others", serde_json::to_value(OtherResult::default()).unwrap()),
            ("links", serde_json::to_value(LinkKindResult::default()).unwrap()),
        ];
        for (name, row) in rows {
            let described = &schema["properties"][name]["items"]["properties"];
            let keys = |value: &serde_json::Value| {
                value.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
            };
            assert_eq!(keys(&row), keys(described), "{name}");
        }
    }
}
