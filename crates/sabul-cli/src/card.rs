//! `sabul card`: one congestion controller, measured by every test, on one page.
//!
//! A card is a list of scenarios ([`plan`]), all run at once; pure functions make its numbers of what
//! they have shown ([`measure`]), and [`page`] puts those down. A controller that is at fault, or whose runs
//! have no sensible numbers, is named as the cause.

mod measure;
mod page;
mod plan;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant as Clock;

use sabul_cc::registry;
use sabul_scenario::{Override, Run};
use sabul_units::Bytes;
use serde::Serialize;

use crate::args::{Arm, CardArgs};
use crate::error::CliError;
use crate::runs::{self, COMMIT, Finished};
use crate::{json, output, sim};
use measure::{Answer, Marks};
pub(crate) use measure::{RegionTest, Trial, region_test};
use plan::{Exam, Subject};

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
    params: BTreeMap<&'a str, &'a str>,
    commit: &'static str,
    seeds: u32,
    seconds_per_flow: f64,
    /// What `--set` has changed.
    settings: BTreeMap<&'a str, &'a str>,
    wall_s: f64,
    #[serde(flatten)]
    marks: Marks,
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
    params: &'a BTreeMap<&'a str, &'a str>,
    seeds: u32,
    seconds_per_flow: f64,
    settings: &'a BTreeMap<&'a str, &'a str>,
    files: &'a [String],
}

/// Runs `sabul card`.
pub(crate) fn run(args: &CardArgs) -> Result<u8, CliError> {
    let entry = registry::find(&args.cc)?;
    entry.build(&args.cc_params, Bytes(1500))?;
    if args.arm == Arm::Lab {
        return Err(CliError::usage("the lab's card is not built yet; use --arm sim"));
    }
    args.set.iter().try_for_each(check_setting)?;
    let subject = Subject { entry, params: &args.cc_params };
    let exams = subject.exams(args.seconds_per_flow);
    let all = read(&exams, &args.set, args.seeds)?;
    // Before the runs, which take their time.
    if let Some(dir) = &args.out {
        runs::make_directory(&dir.join(SCENARIOS), "--out")?;
    }
    let started = Clock::now();
    let finished = run_all(&all, args)?;
    let wall_s = started.elapsed().as_secs_f64();
    let answers = answers(entry.name, exams, all, finished, args.seeds)?;
    let card = Card {
        schema: json::SCHEMA,
        arm: "sim",
        cc: entry.name,
        params: borrowed(&args.cc_params),
        commit: COMMIT,
        seeds: args.seeds,
        seconds_per_flow: args.seconds_per_flow,
        settings: settings(&answers),
        wall_s,
        marks: Marks::new(&answers),
    };
    if let Some(dir) = &args.out {
        write(dir, &card, &answers)?;
    }
    if args.json {
        json::print(&card)?;
    } else {
        output::print(page::text(&card))?;
    }
    if let (false, Some(dir)) = (args.json || args.quiet, &args.out) {
        output::note(format_args!("wrote {}", dir.join("report.html").display()));
    }
    Ok(0)
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
fn read(exams: &[Exam], set: &[Override], seeds: u32) -> Result<Vec<Run>, CliError> {
    let wrong = |error: sabul_scenario::Error| CliError::usage(error.to_string());
    let mut overrides = set.to_vec();
    overrides.push(sabul_scenario::parse_override(&format!("seed=1..{seeds}")).map_err(wrong)?);
    let mut all = Vec::new();
    for exam in exams {
        let file = format!("{}.toml", exam.name);
        all.extend(sabul_scenario::read(&exam.text, &file, &overrides).map_err(wrong)?);
    }
    Ok(all)
}

fn run_all(all: &[Run], args: &CardArgs) -> Result<Vec<Finished>, CliError> {
    let count = all.len();
    let progress = |done: usize| {
        if !args.quiet && (done.is_multiple_of(10) || done == count) {
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
        for trial in &trials {
            if let Some(what) = measure::nonsense(trial) {
                return Err(fault(cc, &trial.run.scenario.name, &what));
            }
        }
        answers.push(Answer { exam, trials });
    }
    Ok(answers)
}

fn borrowed(pairs: &[(String, String)]) -> BTreeMap<&str, &str> {
    pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// What `--set` has changed, as a run tells it.
fn settings(answers: &[Answer]) -> BTreeMap<&str, &str> {
    let run = answers.first().and_then(|answer| answer.trials.first()).map(|trial| &trial.run);
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
        if let Some(trial) = answer.trials.first() {
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
    fn runs_are_in_the_order_of_the_scenarios_seeds_together() {
        let entry = registry::find("cubic").unwrap();
        let exams = Subject { entry, params: &[] }.exams(1.0);
        let all = read(&exams, &[], 3).unwrap();
        assert_eq!(all.len(), exams.len() * 3);
        for (exam, runs) in exams.iter().zip(all.chunks(3)) {
            for (seed, run) in (1..).zip(runs) {
                let wanted = (format!("cubic {}", exam.name), seed);
                assert_eq!((run.scenario.name.clone(), run.scenario.seed), wanted);
            }
        }
    }
}
