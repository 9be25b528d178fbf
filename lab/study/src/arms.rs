//! Runner for one scenario, in the simulator (virtual time) or in the lab (real time).
//!
//! A run with a faulty controller has no results. The error names the controller.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant as Clock;

use sabul_emu::{Lab, LabConfig, OnEvent, Sample};
use sabul_run::results::Series;
use sabul_scenario::Run;
use sabul_sim::World;

use crate::error::Error;
use crate::observer::Observer;
use crate::runs::Finished;
use crate::why::Why;
use sabul_units::show_rate;

/// Most flows in a line of progress. A longer line cannot be read.
const FLOWS_SHOWN: usize = 6;

/// Simulates one run.
///
/// # Errors
/// If the settings contradict each other, or if the controller violates its interface.
pub fn simulate(run: &Run) -> Result<Finished, Error> {
    simulate_with_events(run, None)
}

/// Like [`simulate`], and passes each event to `on_event` as a line of JSON ([`sabul_run::events`]).
///
/// # Errors
/// As [`simulate`].
pub fn simulate_with_events(
    run: &Run,
    mut on_event: Option<&mut dyn FnMut(&str)>,
) -> Result<Finished, Error> {
    let mut world = World::new(run.scenario.clone())
        .map_err(|error| Error::usage(format!("{}: {error}", run.label)))?;
    if on_event.is_some() {
        world.listen();
    }
    let mut why = Why::default();
    let started = Clock::now();
    while world.step() {
        if let Some(on_event) = &mut on_event {
            for line in world.take_events() {
                why.note(&line);
                on_event(&line);
            }
        }
    }
    let outcome = world.finish().map_err(|fault| {
        let name = &run.scenario.name;
        let label = if run.label == *name { String::new() } else { format!(" [{}]", run.label) };
        Error::failed(format!("scenario '{name}'{label}, {fault}"))
    })?;
    let wall_s = started.elapsed().as_secs_f64();
    Ok(Finished { results: outcome.results, series: outcome.series, wall_s, lab: None, why })
}

/// Options for a run in the lab.
#[derive(Default)]
pub struct Measuring {
    /// Output file for a packet capture of the links.
    pub capture: Option<PathBuf>,
    /// Skips calibration and assumes that the path is as requested.
    pub skip_calibration: bool,
    /// Receives each event with its reason, a line of JSON each.
    pub on_event: Option<OnEvent>,
    /// Name of the run in progress messages.
    pub title: String,
}

impl fmt::Debug for Measuring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Measuring").field("title", &self.title).finish_non_exhaustive()
    }
}

/// Measures one run in the lab, in real time. The caller must have isolated the process with
/// `sabul_emu::isolate`.
///
/// # Errors
/// If the lab cannot carry the scenario, a host or a program fails, or the observer interrupts the
/// run.
pub fn measure(run: &Run, how: Measuring, observer: &Observer) -> Result<Finished, Error> {
    if observer.is_interrupted() {
        return Err(sabul_emu::LabError::Interrupted.into());
    }
    let seconds = run.scenario.duration.as_secs_f64();
    let before = if how.skip_calibration { "" } else { "calibration, then " };
    observer.note(format_args!("{}: {before}{seconds} s", how.title));
    let lab = Lab::new(run.scenario.clone())?;
    let mut ticker = Ticker::default();
    let event_observer = observer.clone();
    let on_sample: Box<dyn FnMut(&Sample<'_>) + Send> = Box::new(move |sample| {
        if let Some(line) = ticker.line(sample.series) {
            event_observer.note(line);
        }
    });
    let interrupt_observer = observer.clone();
    let why = Arc::new(Mutex::new(Why::default()));
    let on_event = how.on_event.map(|mut on_event| -> OnEvent {
        let why = Arc::clone(&why);
        Box::new(move |line| {
            why.lock().unwrap_or_else(PoisonError::into_inner).note(line);
            on_event(line);
        })
    });
    let outcome = lab.run(LabConfig {
        capture: how.capture,
        skip_calibration: how.skip_calibration,
        on_event,
        on_sample: observer.has_samples().then_some(on_sample),
        is_interrupted: Some(Box::new(move || interrupt_observer.is_interrupted())),
        ..LabConfig::default()
    })?;
    let mut finished = Finished::from(outcome);
    finished.why = std::mem::take(&mut why.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(finished)
}

/// Progress reporter: one line a second, with each flow's goodput since the previous line.
#[derive(Clone, Debug, Default)]
struct Ticker {
    rows_reported: usize,
    seconds_reported: f64,
}

impl Ticker {
    fn line(&mut self, series: &Series) -> Option<String> {
        let now = *series.t_s.last()?;
        // Sample times are sums of picoseconds, so a sample slightly below a second counts as that
        // second.
        if now + 1e-6 < self.seconds_reported + 1.0 {
            return None;
        }
        let rows = self.rows_reported..series.t_s.len();
        (self.rows_reported, self.seconds_reported) = (rows.end, now);
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
    fn progress_reports_each_second_the_rates_since_the_last_line() {
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
    fn progress_of_many_flows_is_truncated() {
        let flows = (0..9).map(|n| FlowSeries { id: n.to_string(), ..FlowSeries::default() });
        let series = Series { t_s: vec![5.0], flows: flows.collect(), links: Vec::new() };
        let line = Ticker::default().line(&series).unwrap();
        assert!(line.ends_with("  5 0 bit/s  and 3 more"), "{line}");
    }
}
