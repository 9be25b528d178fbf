//! `sabul lab run`: scenario files on real sockets, one run after another.

use sabul::ErrorKind;
use sabul_emu::{OnEvent, isolate};
use sabul_scenario::{Arm, Run};
use sabul_study::runs::{self, Finished};
use sabul_study::{Measuring, measure};
use sabul_units::count;

use crate::args::LabRunArgs;
use crate::error::CliError;
use crate::events::{self, EventFile};
use crate::exit::{self, End, FAILED};
use crate::output;
use crate::stop::{Stop, isolated};

/// Runs `sabul lab run` and returns the exit code.
pub(super) fn run(args: &LabRunArgs) -> Result<u8, CliError> {
    let overrides = runs::overrides(&args.file.set, args.file.seed)?;
    let all = sabul_scenario::read_file_for(Arm::Lab, &args.file.scenario, &overrides)
        .map_err(|error| CliError::usage(error.to_string()))?;
    if args.check {
        return check(&all);
    }
    events::check_for_one_run(args.events.as_deref(), all.len())?;
    for (flag, dir) in [("--out", &args.output.out), ("--pcap", &args.pcap)] {
        if let Some(dir) = dir {
            runs::make_directory(dir, flag)?;
        }
    }
    isolated(|| measure_all(args, &all))
}

/// Checks in advance whether the lab can run these scenarios on this system.
fn check(all: &[Run]) -> Result<u8, CliError> {
    isolate::probe()?;
    let seconds: f64 = all.iter().map(|run| run.scenario.duration.as_secs_f64()).sum();
    output::print_line(format_args!(
        "{}, {seconds} s in total plus calibration; this system lets the lab make hosts",
        count(all.len() as u64, "run"),
    ))?;
    Ok(exit::DONE)
}

/// Shows and writes each run when it ends, so a later failure does not affect its results.
fn measure_all(args: &LabRunArgs, all: &[Run]) -> Result<u8, CliError> {
    output::warn_of_debug_build();
    let observer = Stop::listen()?.observer(args.output.quiet);
    let events = args.events.as_deref().map(EventFile::create).transpose()?;
    let is_sweep = all.len() > 1;
    let mut results = Vec::new();
    for (index, run) in all.iter().enumerate() {
        let measuring = Measuring {
            capture: args.pcap.as_ref().map(|dir| runs::folder(dir, index, all.len())),
            skip_calibration: args.skip_calibration,
            on_event: events
                .clone()
                .map(|events| -> OnEvent { Box::new(move |line| events.write_line(line)) }),
            title: title(run, index, all.len()),
        };
        let finished = measure(run, measuring, &observer)
            .map_err(|error| in_run(error.into(), index, args, is_sweep.then_some(run)))?;
        if let Some(dir) = &args.output.out {
            runs::write(&runs::folder(dir, index, all.len()), run, &finished)?;
        }
        output::show(run, &finished, args.output.json, is_sweep)?;
        if args.output.json && !finished.is_valid() {
            let faults = finished.faults().join("; ");
            output::error(format_args!("{}: the run is invalid: {faults}", run.label));
        }
        results.push(finished);
    }
    if let Some(dir) = &args.output.out {
        if is_sweep {
            runs::write_sweep(dir, all, &results)?;
        }
        if !args.output.json && !args.output.quiet {
            output::note(format_args!("wrote {}", dir.join("report.html").display()));
        }
    }
    events.as_ref().map_or(Ok(()), EventFile::finish)?;
    Ok(if results.iter().all(Finished::is_valid) { exit::DONE } else { FAILED })
}

fn title(run: &Run, index: usize, count: usize) -> String {
    if count > 1 {
        format!("run {} of {count} [{}]", index + 1, run.label)
    } else {
        run.label.clone()
    }
}

/// Adds the failed run and the state of the earlier runs to an error.
fn in_run(error: CliError, index: usize, args: &LabRunArgs, run: Option<&Run>) -> CliError {
    let is_interrupted = error.end() == End::Error(ErrorKind::Interrupt);
    let mut text = match run {
        Some(run) => format!("run {} [{}]: {error}", index + 1, run.label),
        None => error.to_string(),
    };
    if is_interrupted || index > 0 {
        let before = match (index, &args.output.out) {
            (0, _) => "nothing was written".to_owned(),
            (index, Some(dir)) => {
                format!("{} before it: complete in {}", count(index as u64, "run"), dir.display())
            }
            (index, None) => format!("{} before it: shown", count(index as u64, "run")),
        };
        text = format!("{text}; {before}");
    }
    error.in_words(text)
}
