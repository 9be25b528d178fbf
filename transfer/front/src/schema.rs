//! JSON Schemas of the documents that commands print.

use schemars::schema_for;
use serde_json::Value;

use crate::control_socket::messages::JobJson;
use crate::json::{
    Document, DryJson, JoinJson, PerfJson, ReplicasJson, SeenJson, SiteJson, TransferJson,
    VerifyJson,
};
use crate::lines::{CopyEvent, Line, PerfEvent, ServeEvent};

/// For each document: its name, and the command that prints it.
pub const DOCUMENTS: &[(&str, &str)] = &[
    ("cp", "sabul cp --json"),
    ("cp-sites", "a line of sabul cp --json with several destinations"),
    ("cp-lines", "a line of sabul cp --json-lines"),
    ("cp-dry-run", "sabul cp --dry-run --json"),
    ("verify", "sabul verify --json"),
    ("replicas", "sabul replicate status --json"),
    ("join", "sabul join --json"),
    ("ls", "a line of sabul ls --json"),
    ("stat", "a line of sabul stat --json"),
    ("perf", "sabul perf --json"),
    ("perf-lines", "a line of sabul perf --json-lines"),
    ("serve-lines", "a line of sabul serve --json-lines and sabul perf serve --json-lines"),
    ("ps", "a line of sabul ps --json"),
    ("set", "sabul set --json"),
];

/// Returns the schema of a document (JSON Schema 2020-12) without its title, or `None` for a name
/// that [`DOCUMENTS`] lacks.
pub fn of(name: &str) -> Option<Value> {
    Some(match name {
        "cp" => schema_for!(Document<TransferJson>).to_value(),
        "cp-sites" => schema_for!(Document<SiteJson>).to_value(),
        "cp-lines" => schema_for!(Line<CopyEvent>).to_value(),
        "cp-dry-run" => schema_for!(DryJson).to_value(),
        "verify" => schema_for!(Document<VerifyJson>).to_value(),
        "join" => schema_for!(Document<JoinJson>).to_value(),
        "replicas" => schema_for!(Document<ReplicasJson>).to_value(),
        "ls" | "stat" => schema_for!(SeenJson).to_value(),
        "ps" | "set" => schema_for!(JobJson).to_value(),
        "perf" => schema_for!(Document<PerfJson>).to_value(),
        "perf-lines" => schema_for!(Line<PerfEvent>).to_value(),
        "serve-lines" => schema_for!(Line<ServeEvent>).to_value(),
        _ => return None,
    })
}
