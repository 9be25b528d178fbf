//! JSON Schemas of what the commands print.

use schemars::schema_for;
use serde_json::Value;

use crate::report::{CheckReport, GridReport, IterateReport};

/// For each document: its name, and what prints it.
pub const DOCUMENTS: &[(&str, &str)] = &[
    ("model-check", "sabul model check --json"),
    ("model-iterate", "sabul model iterate --json"),
    ("model-grid", "sabul model grid --json"),
];

/// The schema of a document (JSON Schema 2020-12), to which its title comes; none of a name that [`DOCUMENTS`] does not have.
pub fn of(name: &str) -> Option<Value> {
    Some(match name {
        "model-check" => schema_for!(CheckReport).to_value(),
        "model-iterate" => schema_for!(IterateReport).to_value(),
        "model-grid" => schema_for!(GridReport).to_value(),
        _ => return None,
    })
}
