//! JSON Schemas of what experiments print, from tables of their fields.
//!
//! The documents are made where their numbers are; that both agree is held by tests of the program, which look at
//! real output.

#[rustfmt::skip]
mod tables;

use serde_json::{Map, Value, json};

use tables::{CARD, LAB, RUN};

/// For each document: its name, and what prints it.
pub const DOCUMENTS: &[(&str, &str)] = &[
    ("sim", "a line of sabul sim run --json"),
    ("lab", "a line of sabul lab run --json"),
    ("card", "sabul card --json, without --contract"),
];

/// The schema of a document (JSON Schema 2020-12); none of a name that [`DOCUMENTS`] does not have.
pub fn of(name: &str) -> Option<Value> {
    let (_, what) = DOCUMENTS.iter().find(|(known, _)| *known == name)?;
    let fields = match name {
        "sim" => RUN,
        "lab" => LAB,
        _ => CARD,
    };
    let mut schema = object(fields);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = (*what).into();
    Some(schema)
}

/// A field: its name, what it holds, and what that means.
struct Field(&'static str, Kind, &'static str);

/// What a field holds.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Truth,
    /// A whole number from zero on.
    Count,
    Number,
    /// A number, or null where there is none.
    MaybeNumber,
    MaybeText,
    /// An object whose fields have names of the user's.
    Named(&'static str),
    Object(&'static [Field]),
    /// An object, or null.
    MaybeObject(&'static [Field]),
    List(&'static [Field]),
    /// An object that may not be there.
    OptionalObject(&'static [Field]),
    /// A list that may not be there.
    OptionalList(&'static [Field]),
    /// A number that may not be there.
    OptionalNumber,
    /// An object that is not described further.
    Any,
}

fn object(fields: &[Field]) -> Value {
    let optional = |kind| {
        matches!(kind, Kind::OptionalObject(_) | Kind::OptionalList(_) | Kind::OptionalNumber)
    };
    let required = fields.iter().filter(|field| !optional(field.1)).map(|field| field.0);
    let properties: Map<String, Value> = fields
        .iter()
        .map(|Field(name, kind, what)| {
            let mut property = kind.schema();
            property["description"] = (*what).into();
            ((*name).to_owned(), property)
        })
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required.collect::<Vec<_>>(),
        "additionalProperties": false,
    })
}

impl Kind {
    fn schema(self) -> Value {
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Self::Truth => json!({ "type": "boolean" }),
            Self::Count => json!({ "type": "integer", "minimum": 0 }),
            Self::Number | Self::OptionalNumber => json!({ "type": "number" }),
            Self::MaybeNumber => json!({ "type": ["number", "null"] }),
            Self::MaybeText => json!({ "type": ["string", "null"] }),
            Self::Named(kind) => {
                json!({ "type": "object", "additionalProperties": { "type": kind } })
            }
            Self::Object(fields) | Self::OptionalObject(fields) => object(fields),
            Self::MaybeObject(fields) => {
                let mut schema = object(fields);
                schema["type"] = json!(["object", "null"]);
                schema
            }
            Self::List(fields) | Self::OptionalList(fields) => {
                json!({ "type": "array", "items": object(fields) })
            }
            Self::Any => json!({ "type": "object" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_has_a_schema_and_no_other_name_has() {
        for (name, what) in DOCUMENTS {
            let schema = of(name).unwrap();
            assert_eq!(schema["title"], *what);
            assert!(schema["properties"]["wall_s"]["description"].is_string());
        }
        assert_eq!(of("cp"), None);
        let [sim, lab] = ["sim", "lab"].map(|name| of(name).unwrap());
        assert!(sim["properties"].get("valid").is_none() && lab["properties"]["valid"].is_object());
        let required = lab["required"].as_array().unwrap();
        assert!(required.contains(&"valid".into()) && !required.contains(&"discarded".into()));
    }
}
