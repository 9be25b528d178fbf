//! Scenario file reader: from text to runs.

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

/// Largest scenario file: 1 MiB; larger files are taken for something else.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Limit on the text of all runs of a sweep together, in bytes; each run keeps its own copy.
const SWEEP_BYTES_MAX: usize = 64 << 20;

/// One run that a file describes.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Settings that distinguish this run from other runs of the same file, such as
    /// `link.bottleneck.rate_mbps=10, seed=2`; the scenario's name for a single run.
    pub label: String,
    /// Settings from sweep or overrides, in the order of application.
    pub settings: Vec<(String, String)>,
    /// Plan of the run.
    pub scenario: Scenario,
    /// Scenario file of this run with the settings applied. The text reads back to the same
    /// scenario, as long as trace files stay in place.
    pub text: String,
}

/// Reads a scenario file for the simulator and checks every run that the file describes.
///
/// `file` is the name in errors; a scenario without a name takes the stem of `file`. Paths of
/// traces are relative to the folder of `file`. Overrides take precedence over the file's values
/// and its `[sweep]`, and later overrides over earlier overrides.
///
/// # Errors
/// If any run has a problem. The error lists the problems found, with lines.
pub fn read(text: &str, file: &str, overrides: &[Override]) -> Result<Vec<Run>, Error> {
    read_for(Arm::Sim, text, file, overrides)
}

/// Same as [`read`], for the arm where the runs take place.
///
/// In the lab TCP is the kernel's: `cc` of a `tcp` flow is a kernel's name, and `params` is not
/// allowed. Only the lab accepts flows of transport `command`. Further limits of the lab are
/// checked by the lab.
///
/// # Errors
/// Same as for [`read`].
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

/// Reads a scenario file from disk, otherwise like [`read`].
///
/// # Errors
/// If the file cannot be read, is larger than [`FILE_BYTES_MAX`] or is not text, and as for
/// [`read`].
pub fn read_file(path: &Path, overrides: &[Override]) -> Result<Vec<Run>, Error> {
    read_file_for(Arm::Sim, path, overrides)
}

/// Reads a scenario file from disk, otherwise like [`read_for`].
///
/// # Errors
/// Same as for [`read_file`].
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
        refuse(Origin::Line(line), "this line is not UTF-8 text; save the file as UTF-8".to_owned())
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

/// Writes out the defaults that depend on the file's name or the program's version.
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

/// Makes the paths of traces absolute.
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
