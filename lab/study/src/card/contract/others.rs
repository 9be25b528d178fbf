//! Contract tests with other traffic than one CUBIC flow: four CUBIC flows, BBR 1, short transfers,
//! and the delay of a packet in the same queue.
//!
//! Each row has one number in two or three settings: beside the controller, beside a reference flow
//! in its place, and alone where that number is meaningful. The reference flow is CUBIC, or BBR in
//! the BBR rows.

use sabul_report::{Cell, Table};
use sabul_run::results::Completion;
use serde::Serialize;

use super::super::measure::{Answer, Trial};
use super::super::plan::{Exam, Subject, Times, link, tcp};
use super::measure::over;
use super::plan::{Order, Question};

const RATE_MBPS: f64 = 100.0;
/// RTTs of the full grid, and of the coarse grid.
const RTTS_MS: [f64; 3] = [10.0, 50.0, 100.0];
const QUICK_RTTS_MS: [f64; 1] = [50.0];
/// Seconds of warm-up, and seconds of measurement.
const SECONDS: (f64, f64) = (30.0, 90.0);
/// Interval between samples of the queue: ten a second, as with `ping -i 0.1`.
const SAMPLE_MS: u32 = 100;
/// Short transfers: name, packets, and mean seconds between starts. The loads are 4 and 8 Mb/s.
const SHORT: [(&str, u32, f64); 2] = [("100 kB", 69, 0.2), ("1 MB", 685, 1.0)];

/// The traffic that shares the link with the flow under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Test {
    /// Four CUBIC flows.
    FourCubics,
    /// One BBR flow.
    Bbr1,
    /// Short transfers: index into [`SHORT`].
    Short(usize),
    /// No other flow. Measures the queueing delay of a packet.
    Ping,
}

/// The flow under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Flow {
    /// A flow of the tested controller.
    Ours,
    /// The reference flow that replaces the tested controller (CUBIC; BBR in the BBR rows).
    Reference,
    /// No flow.
    Nobody,
}

/// One number in each setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct OtherResult {
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    pub(super) rtt_ms: f64,
    /// Beside the tested controller.
    pub(super) beside_cc: f64,
    /// Beside CUBIC, or beside another BBR flow in the BBR rows.
    pub(super) beside_reference: f64,
    pub(super) alone: Option<f64>,
    /// Goodput of the controller's own flow in the same run.
    pub(super) cc_bps: f64,
}

/// Returns the scenarios of every test.
pub(super) fn exams(subject: &Subject<'_>, order: Order, is_quick: bool) -> Vec<Exam<Question>> {
    let rtts = if is_quick { &QUICK_RTTS_MS[..] } else { &RTTS_MS };
    let tests = [Test::FourCubics, Test::Bbr1, Test::Short(0), Test::Short(1), Test::Ping];
    let of_rtt = |rtt_ms: &f64| {
        let flows = [Flow::Ours, Flow::Reference, Flow::Nobody];
        let all = tests.iter().flat_map(move |test| flows.map(|flow| (*test, flow)));
        let wanted =
            all.filter(|(test, flow)| *flow != Flow::Nobody || matches!(test, Test::Short(_)));
        wanted.map(|(test, flow)| exam(subject, order, test, *rtt_ms, flow)).collect::<Vec<_>>()
    };
    rtts.iter().flat_map(of_rtt).collect()
}

fn exam(
    subject: &Subject<'_>,
    order: Order,
    test: Test,
    rtt_ms: f64,
    flow: Flow,
) -> Exam<Question> {
    let [peers_at, flow_at] = order.starts();
    let (name, cc, peers) = match test {
        Test::FourCubics => {
            let peer = |number: u32| tcp(&format!("peer-{number}"), "cubic", &peers_at);
            ("four-cubics".to_owned(), "cubic", (1..=4).map(peer).collect())
        }
        Test::Bbr1 => ("bbr1".to_owned(), "bbr1", vec![tcp("peer-1", "bbr1", &peers_at)]),
        Test::Short(place) => {
            let (_, packets, interval_s) = SHORT[place];
            let more = format!(
                "start_s = {}\narrivals = {{ process = \"poisson\", mean_interval_s = {interval_s} }}\n\
                 size = {{ distribution = \"fixed\", packets = {packets} }}\n",
                SECONDS.0,
            );
            (format!("short-{packets}"), "cubic", vec![tcp("peer-1", "cubic", &more)])
        }
        Test::Ping => ("ping".to_owned(), "cubic", Vec::new()),
    };
    let (kind, beside) = match flow {
        Flow::Ours => ("beside", Some(subject.flow("a", &flow_at))),
        Flow::Reference => ("reference", Some(tcp("a", cc, &flow_at))),
        Flow::Nobody => ("alone", None),
    };
    let flows: Vec<String> = peers.into_iter().chain(beside).collect();
    subject.exam(
        Question::Other { test, rtt_ms, flow },
        format!("{name}-{kind}-{rtt_ms}ms"),
        Times::new(SECONDS, SAMPLE_MS),
        &link(RATE_MBPS, rtt_ms, "queue_bdp = 1\n"),
        &flows.join("\n"),
    )
}

/// A number of a test: name, unit, and function that computes the number from a run.
type Number = (&'static str, &'static str, fn(&Trial) -> f64);

fn numbers(test: Test) -> Vec<Number> {
    match test {
        Test::FourCubics => vec![("four CUBIC flows, each", "Mb/s", |one| peers_bps(one) / 4e6)],
        Test::Bbr1 => vec![("one BBR 1 flow", "Mb/s", |one| peers_bps(one) / 1e6)],
        Test::Short(0) => vec![
            ("100 kB by CUBIC, median", "s", |one| completion(one).median_s),
            ("100 kB by CUBIC, 99 %", "s", |one| completion(one).p99_s),
        ],
        Test::Short(_) => vec![
            ("1 MB by CUBIC, median", "s", |one| completion(one).median_s),
            ("1 MB by CUBIC, 99 %", "s", |one| completion(one).p99_s),
        ],
        Test::Ping => vec![
            ("a packet waits, mean", "ms", |one| queue(one).mean * one.packet_ms()),
            ("a packet waits, 99 %", "ms", |one| queue(one).p99 * one.packet_ms()),
        ],
    }
}

fn peers_bps(trial: &Trial) -> f64 {
    let flows = trial.finished.results.flows.iter();
    flows.filter(|flow| flow.id.starts_with("peer")).map(|flow| flow.goodput_bps).sum()
}

fn completion(trial: &Trial) -> Completion {
    let none = Completion { median_s: f64::NAN, p99_s: f64::NAN };
    trial.flow("peer-1").and_then(|flow| flow.completion).unwrap_or(none)
}

fn queue(trial: &Trial) -> sabul_run::results::Queue {
    trial.finished.results.links.first().map(|link| link.queue_packets).unwrap_or_default()
}

/// Returns every number that has valid runs beside the controller.
pub(super) fn results(answers: &[Answer<Question>]) -> Vec<OtherResult> {
    let find = |test: Test, rtt_ms: f64, flow: Flow| {
        let wanted = Question::Other { test, rtt_ms, flow };
        let trials = answers.iter().find(|answer| answer.exam.question == wanted);
        trials.map(|answer| answer.trials.as_slice()).unwrap_or_default()
    };
    let mut results = Vec::new();
    for answer in answers.iter().filter(|answer| !answer.trials.is_empty()) {
        let Question::Other { test, rtt_ms, flow: Flow::Ours } = answer.exam.question else {
            continue;
        };
        for (what, unit, number) in numbers(test) {
            let reference = over(find(test, rtt_ms, Flow::Reference), |one| match test {
                // The mean of both flows: the test does not depend on which flow starts first.
                Test::Bbr1 => f64::midpoint(number(one), one.goodput("a") / 1e6),
                _ => number(one),
            });
            let alone = over(find(test, rtt_ms, Flow::Nobody), number);
            results.push(OtherResult {
                what,
                unit,
                rtt_ms,
                beside_cc: over(&answer.trials, number),
                beside_reference: reference,
                alone: alone.is_finite().then_some(alone),
                cc_bps: over(&answer.trials, |one| one.goodput("a")),
            });
        }
    }
    results
}

/// Returns the numbers as a table.
pub(super) fn table(results: &[OtherResult], cc: &'static str) -> Table {
    Table::of("Others beside it, 100 Mb/s, queue 1 BDP", results)
        .text("what", |result| result.what.into())
        .number("RTT", "ms", |result| Cell::Number(result.rtt_ms))
        .number(format!("beside {cc}"), "", |result| Cell::Number(result.beside_cc))
        .number("beside CUBIC", "", |result| Cell::Number(result.beside_reference))
        .number("alone", "", |result| result.alone.map_or(Cell::Empty, Cell::Number))
        .text("unit", |result| result.unit.into())
        .number(cc, "Mb/s", |result| Cell::Fixed(result.cc_bps / 1e6, 1))
        .table()
}

#[cfg(test)]
mod tests {
    use sabul_lab_cc::registry;
    use sabul_run::results::{FlowResult, LinkResult, Queue, Results, Series};

    use super::super::super::measure::tests::{close, trial};
    use super::super::super::plan::Carrier;
    use super::*;

    #[test]
    fn every_test_has_a_reference_and_short_transfers_also_run_alone() {
        let entry = registry::find("sabul2003").unwrap();
        let subject = Subject { entry, params: &[], transport: Carrier::Sabul };
        let exams = exams(&subject, Order::CubicFirst, true);
        assert_eq!(exams.len(), 12);
        for exam in &exams {
            let run = sabul_scenario::read(&exam.text, &exam.name, &[]).unwrap().remove(0);
            let Question::Other { test, flow, .. } = exam.question else { panic!("another") };
            let others = match test {
                Test::FourCubics => 4,
                Test::Bbr1 | Test::Short(_) => 1,
                Test::Ping => 0,
            };
            let ours = usize::from(flow != Flow::Nobody);
            assert_eq!(run.scenario.flows.len(), others + ours, "{}", exam.name);
        }
    }

    #[test]
    fn numbers_are_paired_with_references_and_queues_become_delays() {
        let run = |peer: f64, own: f64, waiting: f64| {
            let flow = |id: &str, goodput_bps| FlowResult {
                id: id.to_owned(),
                goodput_bps,
                ..FlowResult::default()
            };
            let queue_packets = Queue { mean: waiting, p99: 2.0 * waiting, max: 100 };
            let links = vec![LinkResult { queue_packets, ..LinkResult::default() }];
            let flows = vec![flow("peer-1", peer), flow("a", own)];
            vec![trial("", Results { flows, links, ..Results::default() }, Series::default())]
        };
        let answer = |test, flow, trials| Answer {
            exam: Exam {
                question: Question::Other { test, rtt_ms: 50.0, flow },
                name: String::new(),
                text: String::new(),
            },
            trials,
            invalid: Vec::new(),
        };
        let found = results(&[
            answer(Test::Bbr1, Flow::Ours, run(3e6, 6e6, 0.0)),
            answer(Test::Bbr1, Flow::Reference, run(2e6, 6e6, 0.0)),
            answer(Test::Ping, Flow::Ours, run(0.0, 9e6, 10.0)),
        ]);
        assert_eq!(found.len(), 3);
        close(found[0].beside_cc, 3.0);
        close(found[0].beside_reference, 4.0);
        close(found[0].cc_bps, 6e6);
        // Ten packets of 1.2 ms.
        close(found[1].beside_cc, 12.0);
        close(found[2].beside_cc, 24.0);
        assert!(found[1].beside_reference.is_nan() && found[1].alone.is_none());
    }
}
