//! JSON Schemas of what commands print.

use schemars::schema_for;
use serde_json::Value;

use crate::desk::words::JobJson;
use crate::json::{Document, DryJson, PerfJson, SeenJson, TransferJson};
use crate::lines::{CopyEvent, Line, PerfEvent, ServeEvent};

/// For each document: its name, and what prints it.
pub const DOCUMENTS: &[(&str, &str)] = &[
    ("cp", "sabul cp --json"),
    ("cp-lines", "a line of sabul cp --json-lines"),
    ("cp-dry-run", "sabul cp --dry-run --json"),
    ("ls", "a line of sabul ls --json"),
    ("stat", "a line of sabul stat --json"),
    ("perf", "sabul perf --json"),
    ("perf-lines", "a line of sabul perf --json-lines"),
    ("serve-lines", "a line of sabul serve --json-lines and sabul perf serve --json-lines"),
    ("ps", "a line of sabul ps --json"),
    ("set", "sabul set --json"),
];

/// The schema of a document (JSON Schema 2020-12); none of a name that [`DOCUMENTS`] does not have.
pub fn of(name: &str) -> Option<Value> {
    let schema = match name {
        "cp" => schema_for!(Document<TransferJson>),
        "cp-lines" => schema_for!(Line<CopyEvent>),
        "cp-dry-run" => schema_for!(DryJson),
        "ls" | "stat" => schema_for!(SeenJson),
        "ps" | "set" => schema_for!(JobJson),
        "perf" => schema_for!(Document<PerfJson>),
        "perf-lines" => schema_for!(Line<PerfEvent>),
        "serve-lines" => schema_for!(Line<ServeEvent>),
        _ => return None,
    };
    let mut schema = schema.to_value();
    if let (Some(fields), Some((_, what))) =
        (schema.as_object_mut(), DOCUMENTS.iter().find(|(known, _)| *known == name))
    {
        fields.insert("title".to_owned(), (*what).into());
    }
    Some(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_has_a_schema_that_explains_each_field() {
        for (name, what) in DOCUMENTS {
            let schema = of(name).unwrap();
            assert_eq!(schema["title"], *what);
            check(&schema, name);
        }
        assert_eq!(of("sim"), None);
    }

    /// Each property has a description, its own or that of what it refers to.
    fn check(schema: &Value, at: &str) {
        let Value::Object(fields) = schema else { return };
        for (name, property) in
            fields.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            let is_constant = property.get("const").is_some();
            assert!(is_constant || property.get("description").is_some(), "{at}: {name}");
        }
        for (name, below) in fields {
            match below {
                Value::Array(parts) => parts.iter().for_each(|part| check(part, name)),
                below => check(below, name),
            }
        }
    }
}
