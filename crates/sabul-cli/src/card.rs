//! `sabul card`: one congestion controller, measured by every test, on one page.
//!
//! A card is a list of scenarios ([`plan`]), in virtual time all run at once; pure functions make its
//! numbers of what they have shown ([`measure`]), and [`page`] puts those down. A controller that is at
//! fault, or whose runs have no sensible numbers, is named as the cause. In the lab fewer and shorter
//! scenarios run one after another ([`lab`]), and those whose numbers do not count leave reasons.

mod cost;
mod lab;
mod measure;
mod page;
mod plan;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant as Clock;

use sabul_cc::registry::{self, Entry};
use sabul_lab::isolate;
use sabul_scenario::{Override, Run};
use sabul_units::Bytes;
use serde::Serialize;

use crate::args::{Arm, CardArgs, CardTransport};
use crate::error::{CliError, FAILED};
use crate::runs::{self, COMMIT, Finished};
use crate::{json, output, sim};
use lab::LabPart;
use measure::{Answer, Marks};
pub(crate) use measure::{RegionTest, Trial, region_test};
use plan::{Exam, LAB, SIM, Subject};

const MANIFEST: &str = "manifest.json";
const SCENARIOS: &str = "scenarios";
/// Keys that tests of the card set themselves: one of them for all would make their names untrue.
const OWN_LINK_KEYS: &[&str] = &["delay_ms", "loss", "queue_bdp", "queue_packets", "queue_bytes"];
const OWN_FLOW_KEYS: &[&str] = &[
    "access_delay_ms",
    "arrivals",
    "bytes",
    "cc",
    "count",
    "params",
    "path",
    "rate_mbps",
    "rtt_ms",
    "size",
    "spread_s",
    "start_s",
    "stop_s",
    "transport",
];

/// What `--json` prints and `card.json` holds.
#[derive(Debug, Serialize)]
struct Card<'a> {
    schema: u32,
    arm: &'static str,
    cc: &'a str,
    transport: &'static str,
    params: BTreeMap<&'a str, &'a str>,
    commit: &'static str,
    seeds: u32,
    seconds_per_flow: f64,
    /// What `--set` has changed.
    settings: BTreeMap<&'a str, &'a str>,
    wall_s: f64,
    #[serde(flatten)]
    marks: Marks,
    #[serde(flatten)]
    lab: Option<LabPart>,
}

/// The note on what made the files of a card.
#[derive(Debug, Serialize)]
struct Manifest<'a> {
    schema: u32,
    program: &'static str,
    version: &'static str,
    commit: &'static str,
    arm: &'static str,
    cc: &'a str,
    transport: &'static str,
    params: &'a BTreeMap<&'a str, &'a str>,
    seeds: u32,
    seconds_per_flow: f64,
    settings: &'a BTreeMap<&'a str, &'a str>,
    files: &'a [String],
}

/// What is to run.
struct Sitting<'a> {
    args: &'a CardArgs,
    subject: Subject<'a>,
    seconds_per_flow: f64,
    exams: Vec<Exam>,
    /// All seeds of the first scenario, then those of the next.
    all: Vec<Run>,
}

/// Runs `sabul card`. For the lab the process must have one thread until then.
pub(crate) fn run(args: &CardArgs) -> Result<ExitCode, CliError> {
    if isolate::is_inside() {
        isolate::settle()?;
    }
    let entry = registry::find(&args.cc)?;
    entry.build(&args.cc_params, Bytes(1500))?;
    args.set.iter().try_for_each(check_setting)?;
    let transport = transport(entry, args.transport)?;
    let subject = Subject { entry, params: &args.cc_params, transport };
    let (arm, extent) = match args.arm {
        Arm::Sim => (sabul_scenario::Arm::Sim, &SIM),
        Arm::Lab => (sabul_scenario::Arm::Lab, &LAB),
    };
    let seconds_per_flow = args.seconds_per_flow.unwrap_or(extent.region_s);
    let exams = chosen(subject.exams(extent, seconds_per_flow), &args.only)?;
    if args.arm == Arm::Lab {
        lab::check(&subject)?;
    }
    let all = read(arm, &exams, &args.set, args.seeds)?;
    // Before the runs, which take their time.
    if let Some(dir) = &args.output.out {
        runs::make_directory(&dir.join(SCENARIOS), "--out")?;
    }
    let sitting = Sitting { args, subject, seconds_per_flow, exams, all };
    match args.arm {
        Arm::Sim => {
            let started = Clock::now();
            let finished = run_all(&sitting.all, args)?;
            sitting.mark(finished, None, started).map(ExitCode::from)
        }
        Arm::Lab => crate::lab::isolated(|| {
            let started = Clock::now();
            let (finished, machine) = lab::run_all(entry.name, &sitting.all, args)?;
            sitting.mark(finished, Some(machine), started)
        }),
    }
}

/// What carries the controller's flows.
fn transport(entry: &Entry, wanted: Option<CardTransport>) -> Result<CardTransport, CliError> {
    let own = CardTransport::of(entry);
    match wanted {
        Some(CardTransport::Tcp) if own == CardTransport::Sabul => Err(CliError::usage(format!(
            "--transport tcp: '{}' controls a rate, and TCP has a window; leave it out",
            entry.name
        ))),
        wanted => Ok(wanted.unwrap_or(own)),
    }
}

/// The tests that `--only` asks for; all without it.
fn chosen(exams: Vec<Exam>, only: &[String]) -> Result<Vec<Exam>, CliError> {
    let is_of = |exam: &Exam, test: &str| {
        let rest = exam.name.strip_prefix(test);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    if let Some(unknown) = only.iter().find(|test| !exams.iter().any(|exam| is_of(exam, test))) {
        let names: Vec<&str> = exams.iter().map(|exam| exam.name.as_str()).collect();
        return Err(CliError::usage(format!(
            "--only {unknown}: this card has no such test; use the first words of some of {}",
            names.join(", ")
        )));
    }
    let is_chosen = |exam: &Exam| only.is_empty() || only.iter().any(|test| is_of(exam, test));
    Ok(exams.into_iter().filter(is_chosen).collect())
}

impl Sitting<'_> {
    /// Makes the card of what has been run; the result is the exit code.
    fn mark(
        self,
        finished: Vec<Finished>,
        machine: Option<lab::Machine>,
        started: Clock,
    ) -> Result<u8, CliError> {
        let Self { args, subject, seconds_per_flow, exams, all } = self;
        let wall_s = started.elapsed().as_secs_f64();
        let answers = answers(subject.entry.name, exams, all, finished, args.seeds)?;
        let mhz = machine.as_ref().and_then(|machine| machine.cpu_mhz);
        let card = Card {
            schema: json::SCHEMA,
            arm: if machine.is_some() { "lab" } else { "sim" },
            cc: subject.entry.name,
            transport: subject.transport.name(),
            params: borrowed(subject.params),
            commit: COMMIT,
            seeds: args.seeds,
            seconds_per_flow,
            settings: settings(&answers),
            wall_s,
            marks: Marks::new(&answers, mhz),
            lab: machine.map(|machine| LabPart::new(machine, &answers)),
        };
        if let Some(dir) = &args.output.out {
            write(dir, &card, &answers)?;
        }
        if args.output.json {
            json::print(&card)?;
            for sentence in card.lab.iter().flat_map(LabPart::invalid) {
                output::complain(sentence);
            }
        } else {
            output::print(page::text(&card))?;
        }
        if let (false, Some(dir)) = (args.output.json || args.output.quiet, &args.output.out) {
            output::note(format_args!("wrote {}", dir.join("report.html").display()));
        }
        Ok(if card.lab.as_ref().is_none_or(LabPart::is_valid) { 0 } else { FAILED })
    }
}

/// Refuses what would take away what a test is about.
fn check_setting(given: &Override) -> Result<(), CliError> {
    let key = given.key();
    let refuse = |what: &str| Err(CliError::usage(format!("--set {key}: {what}")));
    if given.value_count() != 1 {
        return refuse("a card has one value for each setting; make a card for each");
    }
    let parts: Vec<&str> = key.split('.').collect();
    match parts.as_slice() {
        ["link", _, key, ..] if OWN_LINK_KEYS.contains(key) => {
            refuse("this is what tests of the card set themselves; use sabul sim run")
        }
        ["flow", _, key, ..] if OWN_FLOW_KEYS.contains(key) => refuse(
            "this is what tests of the card set themselves; use --cc-param, or sabul sim run",
        ),
        ["link" | "flow", _, ..] => Ok(()),
        _ => refuse("use link.bottleneck.KEY or flow.*.KEY; seeds are --seeds"),
    }
}

/// Every run of the card: all seeds of the first scenario, then those of the next.
fn read(
    arm: sabul_scenario::Arm,
    exams: &[Exam],
    set: &[Override],
    seeds: u32,
) -> Result<Vec<Run>, CliError> {
    let wrong = |error: sabul_scenario::Error| CliError::usage(error.to_string());
    let mut overrides = set.to_vec();
    overrides.push(sabul_scenario::parse_override(&format!("seed=1..{seeds}")).map_err(wrong)?);
    let mut all = Vec::new();
    for exam in exams {
        let file = format!("{}.toml", exam.name);
        all.extend(sabul_scenario::read_for(arm, &exam.text, &file, &overrides).map_err(wrong)?);
    }
    Ok(all)
}

fn run_all(all: &[Run], args: &CardArgs) -> Result<Vec<Finished>, CliError> {
    let count = all.len();
    let progress = |done: usize| {
        if !args.output.quiet && (done.is_multiple_of(10) || done == count) {
            output::note(format_args!("{done} of {count} runs done"));
        }
    };
    let finished =
        sabul_scenario::run_all_with_progress(all, args.threads, progress, sim::simulate);
    finished.into_iter().collect()
}

/// The controller is to blame.
fn fault(cc: &str, scenario: &str, what: &str) -> CliError {
    CliError::failed(format!("controller '{cc}' failed in the scenario '{scenario}': {what}"))
}

/// Runs and what they have shown, by scenario; refuses what no controller may bring about.
fn answers(
    cc: &str,
    exams: Vec<Exam>,
    all: Vec<Run>,
    finished: Vec<Finished>,
    seeds: u32,
) -> Result<Vec<Answer>, CliError> {
    let mut trials = all.into_iter().zip(finished).map(|(run, finished)| Trial { run, finished });
    let mut answers = Vec::new();
    for exam in exams {
        let trials: Vec<Trial> = trials.by_ref().take(seeds as usize).collect();
        let (trials, invalid): (Vec<_>, Vec<_>) =
            trials.into_iter().partition(|trial| trial.finished.is_valid());
        for trial in &trials {
            if let Some(what) = measure::nonsense(trial) {
                return Err(fault(cc, &trial.run.scenario.name, &what));
            }
        }
        answers.push(Answer { exam, trials, invalid });
    }
    Ok(answers)
}

fn borrowed(pairs: &[(String, String)]) -> BTreeMap<&str, &str> {
    pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// What `--set` has changed, as a run tells it.
fn settings(answers: &[Answer]) -> BTreeMap<&str, &str> {
    let run = answers.first().and_then(Answer::first).map(|trial| &trial.run);
    let mut settings = run.map(|run| borrowed(&run.settings)).unwrap_or_default();
    settings.remove("seed");
    settings
}

/// Writes the files of a card. The manifest comes last: where it is, everything is.
fn write(dir: &Path, card: &Card<'_>, answers: &[Answer]) -> Result<(), CliError> {
    let wrong = |error| CliError::failed(format!("cannot write JSON: {error}"));
    let document = serde_json::to_string(card).map_err(wrong)?;
    let mut files = vec![
        ("card.json".to_owned(), document),
        ("report.html".to_owned(), page::page(card, answers).to_html()),
    ];
    for answer in answers {
        if let Some(trial) = answer.first() {
            files.push((format!("{SCENARIOS}/{}.toml", answer.exam.name), trial.run.text.clone()));
        }
    }
    let names: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
    let manifest = Manifest {
        schema: json::SCHEMA,
        program: "sabul",
        version: env!("CARGO_PKG_VERSION"),
        commit: card.commit,
        arm: card.arm,
        cc: card.cc,
        transport: card.transport,
        params: &card.params,
        seeds: card.seeds,
        seconds_per_flow: card.seconds_per_flow,
        settings: &card.settings,
        files: &names,
    };
    let manifest = serde_json::to_string_pretty(&manifest).map_err(wrong)?;
    files.push((MANIFEST.to_owned(), manifest));
    write_files(dir, &files).map_err(|error| runs::cannot_write(dir, &error))
}

fn write_files(dir: &Path, files: &[(String, String)]) -> io::Result<()> {
    // What an earlier card left here is whole no longer.
    match fs::remove_file(dir.join(MANIFEST)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    files.iter().try_for_each(|(name, text)| fs::write(dir.join(name), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(text: &str) -> Result<(), String> {
        let given = sabul_scenario::parse_override(text).unwrap();
        check_setting(&given).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_may_not_take_away_what_a_test_is_about() {
        for text in ["link.bottleneck.rate_mbps=10", "link.*.discipline=codel", "flow.*.ecn=true"] {
            assert_eq!(setting(text), Ok(()), "{text}");
        }
        for (text, part) in [
            ("link.bottleneck.loss=0.1", "sim run"),
            ("flow.*.cc=reno", "--cc-param"),
            ("flow.a.params.beta=0.5", "--cc-param"),
            ("seed=5", "--seeds"),
            ("duration_s=5", "link.bottleneck.KEY"),
            ("link.bottleneck.rate_mbps=10,20", "one value"),
        ] {
            let error = setting(text).unwrap_err();
            assert!(error.starts_with("--set ") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn tests_are_chosen_by_their_first_words() {
        let entry = registry::find("cubic").unwrap();
        let exams = || {
            let transport = CardTransport::Tcp;
            Subject { entry, params: &[], transport }.exams(&LAB, 6.0)
        };
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&test| test.to_owned()).collect();
            chosen(exams(), &only)
                .map(|exams| exams.into_iter().map(|exam| exam.name).collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(names(&[]).unwrap().len(), exams().len());
        assert_eq!(names(&["mice", "queue"]).unwrap(), ["queue", "mice", "mice-alone"]);
        assert_eq!(names(&["regions-10ms"]).unwrap(), ["regions-10ms"]);
        assert_eq!(names(&["regions"]).unwrap().len(), 3);
        let error = names(&["regions-1"]).unwrap_err();
        assert!(error.contains("--only regions-1") && error.contains("regions-10ms"), "{error}");
    }

    #[test]
    fn a_rate_is_not_for_tcp_and_a_window_is_for_both() {
        let of = |name: &str, wanted| transport(registry::find(name).unwrap(), wanted);
        assert_eq!(of("cubic", None).unwrap(), CardTransport::Tcp);
        assert_eq!(of("cubic", Some(CardTransport::Sabul)).unwrap(), CardTransport::Sabul);
        assert_eq!(of("sabul2003", None).unwrap(), CardTransport::Sabul);
        let error = of("sabul2003", Some(CardTransport::Tcp)).unwrap_err().to_string();
        assert!(error.contains("--transport tcp"), "{error}");
    }

    #[test]
    fn runs_are_in_the_order_of_the_scenarios_seeds_together() {
        let entry = registry::find("cubic").unwrap();
        let transport = CardTransport::of(entry);
        let exams = Subject { entry, params: &[], transport }.exams(&SIM, 1.0);
        let all = read(sabul_scenario::Arm::Sim, &exams, &[], 3).unwrap();
        assert_eq!(all.len(), exams.len() * 3);
        for (exam, runs) in exams.iter().zip(all.chunks(3)) {
            for (seed, run) in (1..).zip(runs) {
                let wanted = (format!("cubic {}", exam.name), seed);
                assert_eq!((run.scenario.name.clone(), run.scenario.seed), wanted);
            }
        }
    }
}
