//! Scenarios in the simulator, in this process.

use pyo3::prelude::*;
use sabul_study::{Cause, runs};

use crate::error::Fault;
use crate::runtime::run;

impl From<sabul_study::Error> for Fault {
    fn from(error: sabul_study::Error) -> Self {
        match error.cause() {
            Cause::Request => Self::usage(error.to_string()),
            _ => Self::failed(error.to_string()),
        }
    }
}

/// Simulates each run of a scenario and returns the documents of `sabul sim run --json`, in order. `name` stands for
/// the file in messages.
#[pyfunction]
pub(crate) fn simulate(
    py: Python<'_>,
    text: String,
    name: String,
    settings: Vec<String>,
    waits: bool,
) -> PyResult<Bound<'_, PyAny>> {
    run(py, waits, async move {
        let task = tokio::task::spawn_blocking(move || simulated(&text, &name, &settings));
        task.await.map_err(|error| Fault::failed(error.to_string()))?
    })
}

fn simulated(text: &str, name: &str, settings: &[String]) -> Result<Vec<String>, Fault> {
    let refused = |error: sabul_scenario::Error| Fault::usage(error.to_string());
    let overrides = settings.iter().map(|setting| sabul_scenario::parse_override(setting));
    let overrides = overrides.collect::<Result<Vec<_>, _>>().map_err(refused)?;
    let all = sabul_scenario::read(text, name, &overrides).map_err(refused)?;
    let results = sabul_scenario::run_all(&all, None, sabul_study::simulate);
    all.iter()
        .zip(results)
        .map(|(run, result)| Ok(runs::document(run, &result?)?.to_json()))
        .collect()
}
