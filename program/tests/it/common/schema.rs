//! Validation of the printed JSON against the printed schemas.

use serde_json::Value;

use super::{expect_code, json, run, sabul};

/// Returns the schema with this name.
pub(crate) fn schema(name: &str) -> Value {
    let output = run(sabul().args(["schema", name]));
    expect_code(&output, 0);
    json(&output)
}

/// Returns the violations of a schema by a value. Supports the part of JSON Schema that our schemas
/// use.
fn faults(value: &Value, schema: &Value, root: &Value, at: &str) -> Vec<String> {
    let schema = match schema.get("$ref").and_then(Value::as_str) {
        Some(place) => root.pointer(place.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    let mut found = Vec::new();
    let is_of = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "null" => value.is_null(),
        kind => panic!("a type that this test does not know: {kind}"),
    };
    let is_kind = match schema.get("type") {
        None => true,
        Some(Value::String(kind)) => is_of(kind),
        Some(kinds) => kinds.as_array().unwrap().iter().any(|kind| is_of(kind.as_str().unwrap())),
    };
    if !is_kind || schema.get("const").is_some_and(|only| only != value) {
        found.push(format!("{at}: {value} is not {schema}"));
    }
    for any in ["oneOf", "anyOf"] {
        let ways = schema.get(any).and_then(Value::as_array);
        if ways.is_some_and(|ways| ways.iter().all(|way| !faults(value, way, root, at).is_empty()))
        {
            found.push(format!("{at}: {value} is none of {any}"));
        }
    }
    let required = schema.get("required").filter(|_| value.is_object()).and_then(Value::as_array);
    for name in required.into_iter().flatten() {
        if value.get(name.as_str().unwrap()).is_none() {
            found.push(format!("{at}: {name} is missing"));
        }
    }
    for (name, property) in
        schema.get("properties").and_then(Value::as_object).into_iter().flatten()
    {
        if let Some(field) = value.get(name) {
            found.extend(faults(field, property, root, &format!("{at}.{name}")));
        }
    }
    let known = schema.get("properties").and_then(Value::as_object);
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        let is_known = |name: &String| known.is_some_and(|known| known.contains_key(name));
        let fields = value.as_object().into_iter().flatten().map(|it| it.0);
        found.extend(fields.filter(|it| !is_known(it)).map(|it| format!("{at}: {it} is new")));
    }
    if let (Some(kind), Some(all)) =
        (schema.get("additionalProperties").filter(|it| it.is_object()), value.as_object())
    {
        found.extend(
            all.iter().flat_map(|(name, it)| faults(it, kind, root, &format!("{at}.{name}"))),
        );
    }
    if let (Some(items), Some(all)) = (schema.get("items"), value.as_array()) {
        found.extend(all.iter().flat_map(|item| faults(item, items, root, &format!("{at}[]"))));
    }
    found
}

/// Returns all fields in a schema, of every variant and of the line itself.
fn names(schema: &Value, root: &Value) -> Vec<String> {
    let schema = match schema.get("$ref").and_then(Value::as_str) {
        Some(place) => root.pointer(place.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    let mut found: Vec<String> = Vec::new();
    found.extend(
        schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|it| it.0.clone()),
    );
    for way in ["oneOf", "anyOf", "allOf"] {
        let ways = schema.get(way).and_then(Value::as_array).into_iter().flatten();
        found.extend(ways.flat_map(|way| names(way, root)));
    }
    found
}

/// Checks a value against the schema with this name, and that the schema contains each of its
/// fields.
#[track_caller]
pub(crate) fn expect(value: &Value, name: &str) {
    let schema = schema(name);
    assert_eq!(faults(value, &schema, &schema, name), Vec::<String>::new());
    let known = names(&schema, &schema);
    for field in value.as_object().unwrap().keys() {
        assert!(known.contains(field), "{name} does not tell of {field}: {known:?}");
    }
}
