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

/// The schema of a document (JSON Schema 2020-12); none of a name that [`DOCUMENTS`] does not have.
pub fn of(name: &str) -> Option<Value> {
    let schema = match name {
        "model-check" => schema_for!(CheckReport),
        "model-iterate" => schema_for!(IterateReport),
        "model-grid" => schema_for!(GridReport),
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
    fn every_document_has_a_schema_and_no_other_name_has() {
        for (name, what) in DOCUMENTS {
            let schema = of(name).unwrap();
            assert_eq!(schema["title"], *what);
            assert_eq!(schema["properties"]["schema"]["description"], "Version of this document.");
        }
        assert_eq!(of("sim"), None);
    }
}
