//! JSON Schemas of the documents of experiments, built from tables of fields.
//!
//! The code that computes the numbers also builds the documents. Tests of the program check real
//! output against these schemas.

#[rustfmt::skip]
mod tables;

use serde_json::{Map, Value, json};

use tables::{CARD, COMPARISON, CONTRACT, DEMO, DRAW, LAB, PRESETS, REPRODUCTIONS, RUN};

/// Each document: its name, and the command that prints it.
pub const DOCUMENTS: &[(&str, &str)] = &[
    ("sim", "a line of sabul sim run --json"),
    ("lab", "a line of sabul lab run --json"),
    ("lab-compare", "sabul lab compare --json"),
    ("lab-presets", "sabul lab presets --json"),
    ("card", "sabul card --json, without --contract"),
    ("card-contract", "sabul card --contract --json, without --draw"),
    ("card-draw", "sabul card --contract --draw --json"),
    ("reproduce", "sabul reproduce run --json"),
    ("demo", "sabul demo --json"),
];

/// Returns the schema of a document (JSON Schema 2020-12) without a title; `None` if [`DOCUMENTS`]
/// does not list the name.
pub fn of(name: &str) -> Option<Value> {
    let fields = match name {
        "sim" => RUN,
        "lab" => LAB,
        "lab-compare" => COMPARISON,
        "lab-presets" => PRESETS,
        "card-contract" => CONTRACT,
        "card-draw" => DRAW,
        "reproduce" => REPRODUCTIONS,
        "demo" => DEMO,
        "card" => CARD,
        _ => return None,
    };
    let mut schema = object(fields);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    Some(schema)
}

/// A field: name, kind, and description.
struct Field(&'static str, Kind, &'static str);

/// Type of a field.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Truth,
    /// A non-negative integer.
    Count,
    Number,
    /// A number, or null if there is no number.
    MaybeNumber,
    MaybeText,
    /// An object with user-defined field names and values of this type.
    Named(&'static str),
    Object(&'static [Field]),
    /// An object, or null.
    MaybeObject(&'static [Field]),
    List(&'static [Field]),
    /// An optional object.
    OptionalObject(&'static [Field]),
    /// An optional list.
    OptionalList(&'static [Field]),
    /// Optional fields of the kinds above.
    OptionalCount,
    OptionalNumber,
    OptionalMaybeNumber,
    OptionalText,
    OptionalTexts,
    /// An optional list of objects that are not described further.
    OptionalAnys,
    /// Pairs of numbers.
    Pairs,
    /// An object that is not described further.
    Any,
}

fn object(fields: &[Field]) -> Value {
    let required = fields.iter().filter(|field| !field.1.is_optional()).map(|field| field.0);
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
    /// Returns whether the field may be absent.
    const fn is_optional(self) -> bool {
        matches!(
            self,
            Self::OptionalObject(_)
                | Self::OptionalList(_)
                | Self::OptionalCount
                | Self::OptionalNumber
                | Self::OptionalMaybeNumber
                | Self::OptionalText
                | Self::OptionalTexts
                | Self::OptionalAnys
        )
    }

    fn schema(self) -> Value {
        match self {
            Self::Text | Self::OptionalText => json!({ "type": "string" }),
            Self::Texts | Self::OptionalTexts => {
                json!({ "type": "array", "items": { "type": "string" } })
            }
            Self::OptionalAnys => json!({ "type": "array", "items": { "type": "object" } }),
            Self::Pairs => {
                let pair = json!({
                    "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2,
                });
                json!({ "type": "array", "items": pair })
            }
            Self::Truth => json!({ "type": "boolean" }),
            Self::Count | Self::OptionalCount => json!({ "type": "integer", "minimum": 0 }),
            Self::Number | Self::OptionalNumber => json!({ "type": "number" }),
            Self::MaybeNumber | Self::OptionalMaybeNumber => json!({ "type": ["number", "null"] }),
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
    fn the_lab_schema_adds_fields_that_the_sim_schema_lacks() {
        let [sim, lab] = ["sim", "lab"].map(|name| of(name).unwrap());
        assert!(sim["properties"].get("valid").is_none() && lab["properties"]["valid"].is_object());
        let required = lab["required"].as_array().unwrap();
        assert!(required.contains(&"valid".into()) && !required.contains(&"discarded".into()));
    }
}
