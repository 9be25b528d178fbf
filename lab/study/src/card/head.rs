//! Head of every document of a card, and its description under the title.

use std::collections::BTreeMap;

use serde::Serialize;

use super::lab::LabPart;

/// First part of every document: the controller, the program and the arm.
#[derive(Debug, Serialize)]
pub(super) struct Head {
    pub(super) schema: u32,
    pub(super) arm: &'static str,
    pub(super) cc: &'static str,
    pub(super) transport: &'static str,
    pub(super) params: BTreeMap<String, String>,
    pub(super) commit: &'static str,
    pub(super) seeds: u32,
    /// Overridden settings.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) wall_s: f64,
    #[serde(flatten)]
    pub(super) lab: Option<LabPart>,
}

/// Returns the title of a page: the controller with its parameters.
pub(super) fn title(what: &str, cc: &str, params: &BTreeMap<String, String>) -> String {
    let params: Vec<String> =
        params.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let params =
        if params.is_empty() { String::new() } else { format!(" ({})", params.join(", ")) };
    format!("{what} {cc}{params}")
}

/// Returns a description of the arm, transport, settings and seeds.
pub(super) fn how(run: &Head) -> String {
    let settings: Vec<String> =
        run.settings.iter().map(|(key, value)| format!(", {key} = {value}")).collect();
    let seeds = match run.seeds {
        1 => "seed 1".to_owned(),
        last => format!("seeds 1 to {last}"),
    };
    let carrier = match (&run.lab, run.transport) {
        (Some(_), "tcp") => "flows of the kernel's TCP".to_owned(),
        (_, transport) => format!("flows of {transport}"),
    };
    let how = match &run.lab {
        None => format!("simulated in {:.1} s", run.wall_s),
        Some(lab) => format!(
            "emulated: measured in real time in {:.0} s on {}",
            run.wall_s,
            lab.machine.line()
        ),
    };
    format!("{how}, {carrier}{}, {seeds}, commit {}", settings.concat(), run.commit)
}
