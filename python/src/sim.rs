//! Scenarios in the simulator, in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use sabul_scenario::Run;
use sabul_study::{Cause, runs};

use crate::controller::watched;
use crate::error::Fault;
use crate::runtime::run;
use crate::series::{self, Table};

impl From<sabul_study::Error> for Fault {
    fn from(error: sabul_study::Error) -> Self {
        match error.cause() {
            Cause::Request => Self::usage(error.to_string()),
            _ => Self::failed(error.to_string()),
        }
    }
}

/// Results of a run: the document of `sabul sim run --json`, and the series of flows and of links.
type Results = (String, Table, Table);

/// Simulates each run of a scenario and returns the results in order. `name` stands for the file in messages.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    text: String,
    name: String,
    settings: Vec<String>,
    waits: bool,
) -> PyResult<Bound<'_, PyAny>> {
    run(py, waits, async move {
        let stop = StopOnDrop(Arc::default());
        let stopped = Arc::clone(&stop.0);
        let task =
            tokio::task::spawn_blocking(move || simulated(&text, &name, &settings, &stopped));
        task.await.map_err(|error| Fault::failed(error.to_string()))?
    })
}

/// Stops the controllers in Python of a simulation whose caller no longer waits, for example after Ctrl-C.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn simulated(
    text: &str,
    name: &str,
    settings: &[String],
    stopped: &Arc<AtomicBool>,
) -> Result<Vec<Results>, Fault> {
    let refused = |error: sabul_scenario::Error| Fault::usage(error.to_string());
    let overrides = settings.iter().map(|setting| sabul_scenario::parse_override(setting));
    let overrides = overrides.collect::<Result<Vec<_>, _>>().map_err(refused)?;
    let all = watched(stopped, || sabul_scenario::read(text, name, &overrides))
        .map_err(|failure| failure.into_fault(name))?
        .map_err(refused)?;
    let results = sabul_scenario::run_all(&all, None, |run| -> Result<_, Fault> {
        let finished = watched(stopped, || sabul_study::simulate(run));
        Ok(finished.map_err(|failure| failure.into_fault(&title(run)))??)
    });
    all.iter()
        .zip(results)
        .map(|(run, result)| {
            let finished = result?;
            let document = runs::document(run, &finished)?.to_json();
            let (flows, links) = series::tables(finished.series)?;
            Ok((document, flows, links))
        })
        .collect()
}

/// Returns the name of a run for messages.
fn title(run: &Run) -> String {
    let name = &run.scenario.name;
    let label = if run.label == *name { String::new() } else { format!(" [{}]", run.label) };
    format!("scenario '{name}'{label}")
}
