//! From the text of a file to runs.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use sabul_run::scenario::Scenario;

use crate::arm::Arm;
use crate::error::{Error, Origin, Problem};
use crate::flow::default_controller;
use crate::plan;
use crate::set::Override;
use crate::sweep::{Combination, Sweep};
use crate::traces::Traces;
use crate::tree::{self, Field, Node, Value, find};

/// The largest scenario file: 1 MiB. Larger ones are something else.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Text that all runs of a sweep may take together; each keeps its own.
const SWEEP_BYTES_MAX: usize = 64 << 20;

/// One run that a file describes.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What distinguishes it from the other runs of the same file, such as
    /// `link.bottleneck.rate_mbps=10, seed=2`; the scenario's name where there is no other.
    pub label: String,
    /// Settings that are not the file's own, by sweep or override, in the order they took effect.
    pub settings: Vec<(String, String)>,
    /// What to run.
    pub scenario: Scenario,
    /// The same as a scenario file, settings applied: it reads back to the same scenario, with the files of traces
    /// where they are.
    pub text: String,
}

/// Reads a scenario file for the simulator and checks every run it describes.
///
/// `file` is what to call it in errors; a scenario without a name is called after its stem.
/// Paths of traces count from the folder of `file`. Overrides beat the file's own values and its `[sweep]`, later ones earlier ones.
///
/// # Errors
/// If anything is wrong with any run. The error lists what could be found, with lines.
pub fn read(text: &str, file: &str, overrides: &[Override]) -> Result<Vec<Run>, Error> {
    read_for(Arm::Sim, text, file, overrides)
}

/// [`read`] for the arm where the runs are to take place.
///
/// In the lab TCP is the kernel's: `cc` of a `tcp` flow is a name of the kernel's, and there are no
/// `params`. Only the lab takes flows of transport `command`. What else a lab can do it says itself.
///
/// # Errors
/// As [`read`] says.
pub fn read_for(
    arm: Arm,
    text: &str,
    file: &str,
    overrides: &[Override],
) -> Result<Vec<Run>, Error> {
    let whole = |what| Error::new(file, vec![Problem::new(&Origin::File, "", what)]);
    if text.len() > FILE_BYTES_MAX {
        return Err(whole(too_large(&format!("{} bytes", text.len()))));
    }
    let mut fields = tree::parse_file(text).map_err(|problem| Error::new(file, vec![problem]))?;
    let sweep =
        Sweep::take(&mut fields, overrides).map_err(|problems| Error::new(file, problems))?;
    if sweep.count().saturating_mul(text.len()) > SWEEP_BYTES_MAX {
        let what = format!("{} runs of a file of {} bytes", sweep.count(), text.len());
        return Err(whole(format!("{what} are too many; use fewer values or a shorter file")));
    }
    let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str());
    let name = stem.filter(|stem| !stem.is_empty()).unwrap_or("scenario");
    let traces = Traces::of(file);
    let run = |n| run(sweep.combination(n, &fields, arm), name, file, arm, &traces);
    (0..sweep.count()).map(run).collect()
}

/// Reads a scenario file from disk, as [`read`] does.
///
/// # Errors
/// If it cannot be read, is larger than [`FILE_BYTES_MAX`], is not text, or as [`read`] says.
pub fn read_file(path: &Path, overrides: &[Override]) -> Result<Vec<Run>, Error> {
    read_file_for(Arm::Sim, path, overrides)
}

/// Reads a scenario file from disk, as [`read_for`] does.
///
/// # Errors
/// As [`read_file`] says.
pub fn read_file_for(arm: Arm, path: &Path, overrides: &[Override]) -> Result<Vec<Run>, Error> {
    let name = path.display().to_string();
    let refuse = |at: Origin, what: String| Error::new(&name, vec![Problem::new(&at, "", what)]);
    let cannot = |error: std::io::Error| {
        let what = format!("cannot be read: {error}; give the path of a scenario file");
        refuse(Origin::File, what)
    };
    let file = File::open(path).map_err(cannot)?;
    if let Ok(about) = file.metadata()
        && about.is_file()
        && about.len() > FILE_BYTES_MAX as u64
    {
        return Err(refuse(Origin::File, too_large(&format!("{} bytes", about.len()))));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(refuse(Origin::File, too_large("larger")));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        refuse(Origin::Line(line), "this is not text in UTF-8; save the file as such".to_owned())
    })?;
    read_for(arm, text, &name, overrides)
}

fn too_large(size: &str) -> String {
    format!("is {size}; a scenario file has at most {FILE_BYTES_MAX} bytes")
}

fn run(
    combination: Combination,
    name: &str,
    file: &str,
    arm: Arm,
    traces: &Traces,
) -> Result<Run, Error> {
    let Combination { label, settings, mut fields } = combination;
    let scenario = plan::read(&fields, name, arm, traces).map_err(|mut problems| {
        if !label.is_empty() {
            for problem in &mut problems {
                problem.what.push_str(&format!(" (in the run with {label})"));
            }
        }
        Error::new(file, problems)
    })?;
    spell_out(&mut fields, &scenario.name);
    spell_out_traces(&mut fields, traces);
    let text = tree::write_file(&fields);
    let label = if label.is_empty() { scenario.name.clone() } else { label };
    Ok(Run { label, settings, scenario, text })
}

/// Writes down the defaults that another file name or version would change.
fn spell_out(fields: &mut Vec<Field>, name: &str) {
    if find(fields, "name").is_none() {
        fields.insert(0, text_field("name", name));
    }
    let flows = fields.iter_mut().find(|field| field.key == "flow");
    let Some(Value::List(flows)) = flows.map(|field| &mut field.node.value) else { return };
    for flow in flows {
        let Value::Table(flow) = &mut flow.value else { continue };
        let transport = match find(flow, "transport").map(|field| &field.node.value) {
            Some(Value::Text(transport)) => transport.as_str(),
            _ => "sabul",
        };
        if let Some(cc) = default_controller(transport)
            && find(flow, "cc").is_none()
        {
            flow.push(text_field("cc", cc));
        }
    }
}

/// Writes paths of traces so that they hold in every folder.
fn spell_out_traces(fields: &mut [Field], traces: &Traces) {
    let links = fields.iter_mut().find(|field| field.key == "link");
    let Some(Value::List(links)) = links.map(|field| &mut field.node.value) else { return };
    for link in links {
        let Value::Table(link) = &mut link.value else { continue };
        for field in link.iter_mut().filter(|field| field.key == "trace") {
            if let Value::Text(path) = &mut field.node.value
                && let Some(absolute) = traces.absolute(path)
            {
                *path = absolute;
            }
        }
    }
}

fn text_field(key: &str, text: &str) -> Field {
    let node = Node { at: Origin::File, value: Value::Text(text.to_owned()) };
    Field { key: key.to_owned(), at: Origin::File, node, is_from_file: true }
}
