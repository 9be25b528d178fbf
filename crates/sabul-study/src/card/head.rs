//! What stands at the head of every document of a card, and in words under its title.

use std::collections::BTreeMap;

use serde::Serialize;

use super::lab::LabPart;

/// What ran, by what program, and where: the first part of every document.
#[derive(Debug, Serialize)]
pub(super) struct Head {
    pub(super) schema: u32,
    pub(super) arm: &'static str,
    pub(super) cc: &'static str,
    pub(super) transport: &'static str,
    pub(super) params: BTreeMap<String, String>,
    pub(super) commit: &'static str,
    pub(super) seeds: u32,
    /// What was changed.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) wall_s: f64,
    #[serde(flatten)]
    pub(super) lab: Option<LabPart>,
}

/// What a page is about: a controller with its parameters.
pub(super) fn title(what: &str, cc: &str, params: &BTreeMap<String, String>) -> String {
    let params: Vec<String> =
        params.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    let params =
        if params.is_empty() { String::new() } else { format!(" ({})", params.join(", ")) };
    format!("{what} {cc}{params}")
}

/// Where and with what it was measured.
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
