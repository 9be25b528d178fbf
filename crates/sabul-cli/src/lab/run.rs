//! `sabul lab run`: scenario files on real sockets, one run after another.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;

use sabul_lab::{Lab, LabConfig, Sample, isolate};
use sabul_run::results::Series;
use sabul_scenario::{Arm, Run};

use super::{Stop, isolated};
use crate::args::LabRunArgs;
use crate::error::{CliError, FAILED, INTERRUPTED};
use crate::output;
use crate::runs::{self, Finished};
use crate::size::{count, show_rate};

/// Flows that a line of progress names; of more, it cannot be read.
const FLOWS_SHOWN: usize = 6;

/// Runs `sabul lab run`.
pub(super) fn run(args: &LabRunArgs) -> Result<ExitCode, CliError> {
    let overrides = runs::overrides(&args.file.set, args.file.seed)?;
    let all = sabul_scenario::read_file_for(Arm::Lab, &args.file.scenario, &overrides)
        .map_err(|error| CliError::usage(error.to_string()))?;
    if args.check {
        return check(&all).map(ExitCode::from);
    }
    for (flag, dir) in [("--out", &args.output.out), ("--pcap", &args.pcap)] {
        if let Some(dir) = dir {
            runs::make_directory(dir, flag)?;
        }
    }
    isolated(|| measure_all(args, &all))
}

/// Says whether the lab could run this here, as far as that can be told beforehand.
fn check(all: &[Run]) -> Result<u8, CliError> {
    isolate::probe()?;
    let seconds: f64 = all.iter().map(|run| run.scenario.duration.as_secs_f64()).sum();
    output::print_line(format_args!(
        "{} of {seconds} s in all, calibration not counted; this system lets the lab make hosts",
        count(all.len() as u64, "run"),
    ))?;
    Ok(0)
}

/// Each run is shown and written as soon as it is over, so that a later one that fails takes nothing
/// with it.
fn measure_all(args: &LabRunArgs, all: &[Run]) -> Result<u8, CliError> {
    output::warn_of_debug_build();
    let stop = Stop::listen()?;
    let is_sweep = all.len() > 1;
    let mut results = Vec::new();
    for (index, run) in all.iter().enumerate() {
        let measuring = Measuring {
            capture: args.pcap.as_ref().map(|dir| runs::folder(dir, index, all.len())),
            skip_calibration: args.skip_calibration,
            is_quiet: args.output.quiet,
            title: title(run, index, all.len()),
        };
        let finished = measure(run, measuring, &stop)
            .map_err(|error| in_run(error, index, args, is_sweep.then_some(run)))?;
        if let Some(dir) = &args.output.out {
            runs::write(&runs::folder(dir, index, all.len()), run, &finished)?;
        }
        runs::show(run, &finished, args.output.json, is_sweep)?;
        if args.output.json && !finished.is_valid() {
            let faults = finished.faults().join("; ");
            output::complain(format_args!("{}: the run is invalid: {faults}", run.label));
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
    Ok(if results.iter().all(Finished::is_valid) { 0 } else { FAILED })
}

fn title(run: &Run, index: usize, count: usize) -> String {
    if count > 1 {
        format!("run {} of {count} [{}]", index + 1, run.label)
    } else {
        run.label.clone()
    }
}

/// The same failure, with the run it happened in and what is there already.
fn in_run(error: CliError, index: usize, args: &LabRunArgs, run: Option<&Run>) -> CliError {
    let code = error.code();
    let mut text = match run {
        Some(run) => format!("run {} [{}]: {error}", index + 1, run.label),
        None => error.to_string(),
    };
    if code == INTERRUPTED || index > 0 {
        let before = match (index, &args.output.out) {
            (0, _) => "nothing was written".to_owned(),
            (index, Some(dir)) => {
                format!("{} before it: complete in {}", count(index as u64, "run"), dir.display())
            }
            (index, None) => format!("{} before it: shown", count(index as u64, "run")),
        };
        text = format!("{text}; {before}");
    }
    CliError::failed(text).with_code(code)
}

/// How one run is to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Measuring {
    /// Where to record the links.
    pub(crate) capture: Option<PathBuf>,
    pub(crate) skip_calibration: bool,
    pub(crate) is_quiet: bool,
    /// What to call it while it goes on.
    pub(crate) title: String,
}

/// Measures one run, which takes its time.
pub(crate) fn measure(run: &Run, how: Measuring, stop: &Stop) -> Result<Finished, CliError> {
    if stop.is_asked() {
        return Err(sabul_lab::LabError::Interrupted.into());
    }
    let seconds = run.scenario.duration.as_secs_f64();
    if !how.is_quiet {
        let before = if how.skip_calibration { "" } else { "calibration, then " };
        output::note(format_args!("{}: {before}{seconds} s", how.title));
    }
    let lab = Lab::new(run.scenario.clone())?;
    let mut ticker = Ticker::default();
    let shows_progress = !how.is_quiet && io::stderr().is_terminal();
    let on_sample: Box<dyn FnMut(&Sample<'_>) + Send> = Box::new(move |sample| {
        if let Some(line) = ticker.line(sample.series) {
            output::note(line);
        }
    });
    let stop = stop.clone();
    let outcome = lab.run(LabConfig {
        capture: how.capture,
        skip_calibration: how.skip_calibration,
        on_sample: shows_progress.then_some(on_sample),
        is_interrupted: Some(Box::new(move || stop.is_asked())),
        ..LabConfig::default()
    })?;
    Ok(outcome.into())
}

/// Progress: a line for each second, with each flow's goodput since the line before.
#[derive(Clone, Debug, Default)]
struct Ticker {
    rows_told: usize,
    seconds_told: f64,
}

impl Ticker {
    fn line(&mut self, series: &Series) -> Option<String> {
        let now = *series.t_s.last()?;
        // Sample times are sums of picoseconds; a hair below a second is the second.
        if now + 1e-6 < self.seconds_told + 1.0 {
            return None;
        }
        let rows = self.rows_told..series.t_s.len();
        (self.rows_told, self.seconds_told) = (rows.end, now);
        let flows = series.flows.iter().take(FLOWS_SHOWN).map(|flow| {
            let rates = flow.goodput_bps.get(rows.clone()).unwrap_or_default();
            let mean = rates.iter().fold(0.0, |sum, rate| sum + rate) / rates.len().max(1) as f64;
            format!("  {} {}", flow.id, show_rate(mean))
        });
        let mut line = format!("{now:6.1} s{}", flows.collect::<String>());
        if let Some(more) = series.flows.len().checked_sub(FLOWS_SHOWN).filter(|more| *more > 0) {
            line += &format!("  and {more} more");
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use sabul_run::results::FlowSeries;

    use super::*;

    #[test]
    fn progress_tells_each_second_what_happened_since_the_last_line() {
        let flow = |id: &str| FlowSeries { id: id.to_owned(), ..FlowSeries::default() };
        let mut series = Series { flows: vec![flow("a"), flow("b")], ..Series::default() };
        let mut ticker = Ticker::default();
        assert_eq!(ticker.line(&series), None);
        let mut lines = Vec::new();
        for n in 1..=8 {
            series.t_s.push(f64::from(n) * 0.25);
            // The first second has 1, 2, 3, 4 Mb/s, the next 5, 6, 7, 8.
            series.flows[0].goodput_bps.push(f64::from(n) * 1e6);
            series.flows[1].goodput_bps.push(0.0);
            lines.extend(ticker.line(&series));
        }
        assert_eq!(
            lines,
            ["   1.0 s  a 2.5 Mbit/s  b 0 bit/s", "   2.0 s  a 6.5 Mbit/s  b 0 bit/s"]
        );
    }

    #[test]
    fn progress_of_a_crowd_is_cut() {
        let flows = (0..9).map(|n| FlowSeries { id: n.to_string(), ..FlowSeries::default() });
        let series = Series { t_s: vec![5.0], flows: flows.collect(), links: Vec::new() };
        let line = Ticker::default().line(&series).unwrap();
        assert!(line.ends_with("  5 0 bit/s  and 3 more"), "{line}");
    }
}
