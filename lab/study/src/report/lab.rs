//! Validity of a run in the lab, for pages and texts: calibration and lateness.

use sabul_emu::{Calibration, RouterSnapshot};
use sabul_report::{Cell, Item, Page, Section, Table};
use sabul_scenario::Run;
use sabul_units::Span;

use crate::conversations;
use crate::runs::{CONVERSATIONS_SHOWN, LabFacts, flow_ids};

/// Message that replaces the numbers of an invalid run.
pub const INVALID: &str =
    "the lab was not the path that was asked for, so there are reasons here and no numbers";

/// Returns a table of requested and measured values: one row per quantity of each path.
pub fn calibration_table<'a>(calibrations: &'a [Calibration]) -> Table {
    let of_path = |one: &'a Calibration| one.checks.iter().map(move |check| (one, check));
    let checks: Vec<_> = calibrations.iter().flat_map(of_path).collect();
    Table::of("Calibration: the path as measured before the run", &checks)
        .text("path", |(one, _)| one.path.clone().into())
        .text("quantity", |(_, check)| check.quantity.clone().into())
        .number("wanted", "", |(_, check)| Cell::Number(check.wanted))
        .number("measured", "", |(_, check)| Cell::Number(check.measured))
        .number("tolerance ±", "", |(_, check)| Cell::Number(check.tolerance))
        .text("verdict", |(_, check)| match check.is_met {
            true => Cell::Pass("met".to_owned()),
            false => Cell::Fail("MISSED".to_owned()),
        })
        .table()
}

/// Returns one sentence for each calibration step that was skipped, with the reason.
pub fn left_out(calibrations: &[Calibration]) -> Vec<String> {
    let of = |one: &Calibration| -> Vec<String> {
        one.skipped.iter().map(|why| format!("Not calibrated on {}: {why}", one.path)).collect()
    };
    calibrations.iter().flat_map(of).collect()
}

/// Returns a sentence on how well the router kept the path's schedule.
pub fn lateness(router: &RouterSnapshot) -> String {
    let late = &router.lateness;
    if late.packets == 0 {
        return "Lateness: no packet was measured".to_owned();
    }
    format!(
        "Lateness: half of {} packets left at most {} late, 99 % at most {}, the latest {}",
        late.packets,
        show_time(late.p50),
        show_time(late.p99),
        show_time(late.max),
    )
}

/// Formats a time in milliseconds down to a microsecond.
fn show_time(span: Span) -> String {
    format!("{:.3} ms", span.as_millis_f64())
}

/// Adds the validity of the run to the page as its first summary lines.
pub(super) fn with_verdict(page: Page, facts: &LabFacts) -> Page {
    let mut page = if facts.faults.is_empty() {
        page.with_summary(format!("Valid: {}", calibrated(facts)))
    } else {
        let page = page.with_summary(format!("INVALID: {INVALID}"));
        facts.faults.iter().fold(page, |page, fault| page.with_summary(format!("Fault: {fault}")))
    };
    for note in &facts.notes {
        page = page.with_summary(format!("Note: {note}"));
    }
    page
}

fn calibrated(facts: &LabFacts) -> String {
    let checked: usize = facts.calibrations.iter().map(|one| one.checks.len()).sum();
    let left_out: usize = facts.calibrations.iter().map(|one| one.skipped.len()).sum();
    match (checked, left_out) {
        (0, _) => "no fault was seen; the path was not calibrated".to_owned(),
        (_, 0) => "the path met its calibration, and no fault was seen".to_owned(),
        _ => format!(
            "the path met its calibration, {checked} quantities checked and {left_out} left out, \
             and no fault was seen"
        ),
    }
}

/// Returns the section on calibration, lateness and errors of the router.
pub(super) fn validity_section(facts: &LabFacts) -> Section {
    let RouterSnapshot { malformed, refused, longest_pause, cpu_seconds, .. } = &facts.router;
    let mut text = format!(
        "Before the run the path is measured from host to host; a quantity that is further off than \
         its tolerance makes the run invalid.\n\n{}. Longest pause of the router {}, processor time \
         {cpu_seconds:.1} s. Frames that were no packets of this path: {malformed}; refused by a \
         host: {refused}.",
        lateness(&facts.router),
        show_time(*longest_pause),
    );
    for why in left_out(&facts.calibrations) {
        text += &format!("\n\n{why}");
    }
    let section = Section::new("Calibration and validity", text);
    if facts.calibrations.is_empty() {
        return section;
    }
    section.with_item(Item::Table(calibration_table(&facts.calibrations)))
}

/// Returns the section of the 5-tuples that the router recorded.
pub(super) fn conversations_section(run: &Run, facts: &LabFacts) -> Section {
    Section::new(
        "Conversations",
        "As the router saw them, headers included, warm-up included; all of them are in tuples.csv.",
    )
    .with_item(Item::Table(conversations::table(&facts.tuples, &flow_ids(run), CONVERSATIONS_SHOWN)))
}
