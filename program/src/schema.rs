//! `sabul schema`: JSON Schemas of the documents that commands print.

use sabul_front::json::Document;
use schemars::schema_for;
use serde_json::Value;

use crate::doctor::DoctorJson;
use crate::error::CliError;
use crate::exit;
use crate::output;

/// Documents that are assembled in this crate: name, and the command that prints the document.
const DOCUMENTS: &[(&str, &str)] = &[
    ("doctor", "sabul doctor --json"),
    ("router", "a line of sabul router --json"),
    ("queue-list", "sabul queue list --json"),
    ("queue-job", "sabul queue show --json and sabul queue add --json"),
];

/// Prints the schema with this name, or the list of all schemas.
pub(crate) fn run(name: Option<&str>) -> Result<u8, CliError> {
    let Some(name) = name else {
        let lines = documents().map(|(name, what)| format!("{name:13}  {what}\n"));
        output::print(lines.collect::<String>())?;
        return Ok(exit::DONE);
    };
    let schema = of(name).ok_or_else(|| {
        let names: Vec<_> = documents().map(|(name, _)| *name).collect();
        CliError::usage(format!("unknown schema '{name}'; known schemas: {}", names.join(", ")))
    })?;
    output::print_line(format_args!("{schema:#}"))?;
    Ok(exit::DONE)
}

/// Returns all documents that have a schema: name, and the command that prints the document.
fn documents() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    sabul_front::schema::DOCUMENTS
        .iter()
        .chain(DOCUMENTS)
        .chain(sabul_study::schema::DOCUMENTS)
        .chain(sabul_model::schema::DOCUMENTS)
}

/// Returns the schema of a document. Its title is the command that prints the document.
fn of(name: &str) -> Option<Value> {
    let (_, what) = documents().find(|(known, _)| *known == name)?;
    let mut schema = match name {
        "doctor" => schema_for!(Document<DoctorJson>).to_value(),
        "router" => schema_for!(Document<sabul_router::Line>).to_value(),
        "queue-list" => schema_for!(sabul_queue::QueueJson).to_value(),
        "queue-job" => schema_for!(sabul_queue::Shown).to_value(),
        _ => sabul_front::schema::of(name)
            .or_else(|| sabul_study::schema::of(name))
            .or_else(|| sabul_model::schema::of(name))?,
    };
    schema["title"] = (*what).into();
    Some(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_has_a_schema_that_explains_each_field() {
        for (name, what) in documents() {
            let schema = of(name).unwrap();
            assert_eq!(schema["title"], *what);
            check(&schema, name);
        }
        assert_eq!(of("nothing"), None);
    }

    /// Checks that each property has a description, its own or that of the referenced type.
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
