//! Escaping of untrusted text, from control sockets of other processes, on input: the text cannot
//! control a terminal, log or JSON line.

use sabul::internal::Printable;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses a JSON document and escapes all its strings and keys.
///
/// # Errors
///
/// If the text is not JSON, or does not match the type.
pub(crate) fn document<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    serde_json::from_value(printable(serde_json::from_slice(bytes)?))
}

fn printable(value: Value) -> Value {
    let text = |text: String| Printable(text.as_bytes()).to_string();
    match value {
        Value::String(it) => Value::String(text(it)),
        Value::Array(items) => Value::Array(items.into_iter().map(printable).collect()),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, it)| (text(key), printable(it))).collect()
        }
        plain => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_escaped_for_the_terminal() {
        let json = r#"{"a": ["\u001b]0;x\u0007", 1], "\u009b": {"b": "\u202e"}}"#;
        let escaped: Value = document(json.as_bytes()).unwrap();
        let text = escaped.to_string();
        assert!(text.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{text}");
        assert_eq!(escaped["a"][1], 1);
        assert!(document::<Value>(b"{").is_err());
    }
}
