//! `sabul sim`: scenario files in virtual time.
//!
//! A run in which a controller fails has no results. The command reports that run and keeps the
//! results of the others.

use sabul_study::{runs, simulate_with_events};

use crate::args::SimRunArgs;
use crate::error::CliError;
use crate::events::{self, EventFile};
use crate::exit::{self, FAILED};
use crate::output;

/// Runs `sabul sim run` and returns the exit code.
pub(crate) fn run(args: &SimRunArgs) -> Result<u8, CliError> {
    let overrides = runs::overrides(&args.file.set, args.file.seed)?;
    let all = sabul_scenario::read_file(&args.file.scenario, &overrides)
        .map_err(|error| CliError::usage(error.to_string()))?;
    if let Some(dir) = &args.output.out {
        runs::make_directory(dir, "--out")?;
    }
    let count = all.len();
    events::check_for_one_run(args.events.as_deref(), count)?;
    let events = args.events.as_deref().map(EventFile::create).transpose()?;
    let show_progress = count > 1 && !args.output.quiet;
    let progress = |done: usize| {
        if show_progress {
            output::note(format_args!("{done} of {count} runs done"));
        }
    };
    let simulate = |run: &_| {
        let mut on_line = events.as_ref().map(|events| |line: &str| events.write_line(line));
        simulate_with_events(run, on_line.as_mut().map(|on_line| on_line as &mut dyn FnMut(&str)))
    };
    let results = sabul_scenario::run_all_with_progress(&all, args.threads, progress, simulate);
    events.as_ref().map_or(Ok(()), EventFile::finish)?;
    if let Some(dir) = &args.output.out {
        for (index, (run, result)) in all.iter().zip(&results).enumerate() {
            let folder = runs::folder(dir, index, count);
            match result {
                Ok(finished) => runs::write(&folder, run, finished)?,
                Err(_) => runs::remove_manifest(&folder)?,
            }
        }
    }
    let (mut done, mut finished, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for (run, result) in all.into_iter().zip(results) {
        match result {
            Ok(result) => {
                done.push(run);
                finished.push(result);
            }
            Err(error) => failures.push(error.into()),
        }
    }
    if let (Some(dir), true) = (&args.output.out, count > 1 && !done.is_empty()) {
        runs::write_sweep(dir, &done, &finished)?;
    }
    for (run, finished) in done.iter().zip(&finished) {
        output::show(run, finished, args.output.json, count > 1)?;
    }
    if let (false, Some(dir), false) =
        (args.output.json || args.output.quiet, &args.output.out, done.is_empty())
    {
        output::note(format_args!("wrote {}", dir.join("report.html").display()));
    }
    end(failures, count)
}

/// Returns the exit code. If there are several runs, prints an error for each failed run.
fn end(mut failures: Vec<CliError>, count: usize) -> Result<u8, CliError> {
    if count == 1
        && let Some(only) = failures.pop()
    {
        return Err(only);
    }
    for error in &failures {
        output::error(error);
    }
    if failures.is_empty() {
        return Ok(exit::DONE);
    }
    let failed = failures.len();
    output::error(format_args!("{failed} of {count} runs failed and have no results"));
    Ok(FAILED)
}
