//! How values are read that commands of several files take.

/// Reads a parameter as its name and its value.
pub(super) fn parse_param(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is not KEY=VALUE, such as syn_interval_ms=10")),
    }
}
