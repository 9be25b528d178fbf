//! Tests with one flow alone on links whose rate varies: utilisation and loss.
//!
//! The controller is compared with known controllers: BBR 1 and CUBIC over TCP, and BBR 3 over our
//! protocol.

use sabul_lab_cc::registry;
use sabul_report::{Cell, Table};
use serde::Serialize;

use super::super::measure::Answer;
use super::super::plan::{Carrier, Exam, Subject, Times, link};
use super::measure::{over, utilisation};
use super::plan::Question;
use crate::Error;

const RATE_MBPS: f64 = 100.0;
const RTT_MS: f64 = 50.0;
/// Seconds of warm-up, and seconds of measurement.
const SECONDS: (f64, f64) = (30.0, 60.0);
/// Kinds of link: name, and the scenario keys beside rate, delay and queue.
const KINDS: [(&str, &str); 4] = [
    ("policer, 50 of 100 Mb/s, 100 kB", "policer = { rate_mbps = 50, bucket_bytes = 100000 }"),
    ("policer, 50 of 100 Mb/s, 1 MB", "policer = { rate_mbps = 50, bucket_bytes = 1000000 }"),
    ("shaper, bursts of 5 MB at 1 Gb/s", "shaper = { burst_mbps = 1000, bucket_bytes = 5000000 }"),
    ("rate walk, 10 to 100 Mb/s each 100 ms", "rate_walk = { low_mbps = 10, every_ms = 100 }"),
];
const OTHERS: [(&str, Carrier); 3] =
    [("bbr1", Carrier::Tcp), ("bbr3", Carrier::Sabul), ("cubic", Carrier::Tcp)];

/// Result of one controller on one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct LinkKindResult {
    link: &'static str,
    cc: &'static str,
    goodput_bps: f64,
    utilisation: f64,
    /// Share of the flow's packets that were lost.
    loss_rate: f64,
}

/// Returns the scenarios of the controller and of the controllers for comparison.
pub(super) fn exams(subject: &Subject<'_>) -> Result<Vec<Exam<Question>>, Error> {
    let mut exams = Vec::new();
    for (place, (_, more)) in KINDS.iter().enumerate() {
        let link = link(RATE_MBPS, RTT_MS, &format!("queue_bdp = 1\n{more}\n"));
        let exam = |subject: &Subject<'_>, name: String| {
            let question = Question::Link { place, cc: subject.entry.name };
            let times = Times::new(SECONDS, 1000);
            subject.exam(question, name, times, &link, &subject.flow("a", ""))
        };
        let kind = more.split(' ').next().unwrap_or_default();
        exams.push(exam(subject, format!("link-{place}-{kind}")));
        for (cc, transport) in OTHERS.iter().filter(|(cc, _)| *cc != subject.entry.name) {
            let other = Subject { entry: registry::find(cc)?, params: &[], transport: *transport };
            exams.push(exam(&other, format!("link-{place}-{kind}-{cc}")));
        }
    }
    Ok(exams)
}

/// Returns one row for each scenario that has valid runs.
pub(super) fn results(answers: &[Answer<Question>]) -> Vec<LinkKindResult> {
    let valid = answers.iter().filter(|answer| !answer.trials.is_empty());
    let result = |answer: &Answer<Question>| {
        let Question::Link { place, cc } = answer.exam.question else { return None };
        let trials = &answer.trials;
        Some(LinkKindResult {
            link: KINDS.get(place)?.0,
            cc,
            goodput_bps: over(trials, |one| one.goodput("a")),
            utilisation: over(trials, utilisation),
            loss_rate: over(trials, |one| one.flow("a").map_or(f64::NAN, |flow| flow.loss_rate)),
        })
    };
    valid.filter_map(result).collect()
}

/// Returns the rows as a table.
pub(super) fn table(results: &[LinkKindResult]) -> Table {
    Table::of("Alone where the rate is not constant, 50 ms, queue 1 BDP", results)
        .text("link", |result| result.link.into())
        .text("controller", |result| result.cc.into())
        .number("goodput", "Mb/s", |result| Cell::Fixed(result.goodput_bps / 1e6, 1))
        .number("of 100 Mb/s", "%", |result| Cell::Fixed(result.utilisation * 100.0, 1))
        .number("lost", "%", |result| Cell::Fixed(result.loss_rate * 100.0, 2))
        .table()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_compared_with_the_others_and_listed_once() {
        for (name, transport, wanted) in
            [("sabul2003", Carrier::Sabul, 16), ("cubic", Carrier::Tcp, 12)]
        {
            let entry = registry::find(name).unwrap();
            let exams = exams(&Subject { entry, params: &[], transport }).unwrap();
            assert_eq!(exams.len(), wanted);
            for exam in &exams {
                let run = sabul_scenario::read(&exam.text, &exam.name, &[]).unwrap().remove(0);
                let link = &run.scenario.links[0].forward;
                let is_rough = link.policer().is_some() || link.shaper().is_some();
                assert!(is_rough || link.rate_walk().is_some(), "{}", exam.name);
            }
        }
    }
}
