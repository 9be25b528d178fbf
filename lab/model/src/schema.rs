//! JSON Schemas of the documents of the model commands.

use schemars::schema_for;
use serde_json::Value;

use crate::report::{CheckReport, GridReport, IterateReport};

/// Each document: its name, and the command that prints it.
pub const DOCUMENTS: &[(&str, &str)] = &[
    ("model-check", "sabul model check --json"),
    ("model-iterate", "sabul model iterate --json"),
    ("model-grid", "sabul model grid --json"),
];

/// Returns the schema of a document (JSON Schema 2020-12) without a title; `None` if [`DOCUMENTS`]
/// does not list the name.
pub fn of(name: &str) -> Option<Value> {
    Some(match name {
        "model-check" => schema_for!(CheckReport).to_value(),
        "model-iterate" => schema_for!(IterateReport).to_value(),
        "model-grid" => schema_for!(GridReport).to_value(),
        _ => return None,
    })
}
