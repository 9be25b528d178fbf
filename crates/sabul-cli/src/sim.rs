//! `sabul sim`: scenario files in virtual time.

use std::time::Instant as Clock;

use sabul_scenario::Run;
use sabul_sim::World;

use crate::args::SimRunArgs;
use crate::error::CliError;
use crate::output;
use crate::runs::{self, Finished};

/// Lets one run happen.
pub(crate) fn simulate(run: &Run) -> Result<Finished, CliError> {
    let world = World::new(run.scenario.clone())
        .map_err(|error| CliError::usage(format!("{}: {error}", run.label)))?;
    let started = Clock::now();
    let outcome = world.run();
    let wall_s = started.elapsed().as_secs_f64();
    Ok(Finished { results: outcome.results, series: outcome.series, wall_s, lab: None })
}

/// Runs `sabul sim run`.
pub(crate) fn run(args: &SimRunArgs) -> Result<u8, CliError> {
    let overrides = runs::overrides(&args.set, args.seed)?;
    let all = sabul_scenario::read_file(&args.scenario, &overrides)
        .map_err(|error| CliError::usage(error.to_string()))?;
    if let Some(dir) = &args.out {
        runs::make_directory(dir, "--out")?;
    }
    let count = all.len();
    let show_progress = count > 1 && !args.quiet;
    let progress = |done: usize| {
        if show_progress {
            output::note(format_args!("{done} of {count} runs done"));
        }
    };
    let results = sabul_scenario::run_all_with_progress(&all, args.threads, progress, simulate);
    let results: Vec<Finished> = results.into_iter().collect::<Result<_, _>>()?;
    if let Some(dir) = &args.out {
        for (index, (run, finished)) in all.iter().zip(&results).enumerate() {
            runs::write(&runs::folder(dir, index, count), run, finished)?;
        }
        if count > 1 {
            runs::write_sweep(dir, &all, &results)?;
        }
    }
    for (run, finished) in all.iter().zip(&results) {
        runs::show(run, finished, args.json, count > 1)?;
    }
    if let (false, Some(dir)) = (args.json || args.quiet, &args.out) {
        output::note(format_args!("wrote {}", dir.join("report.html").display()));
    }
    Ok(0)
}
