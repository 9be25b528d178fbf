//! JSON output: single documents and JSON Lines.

use std::io;

use sabul::internal::steers;
use sabul::{Progress, Transfer};
use sabul_front::json::ErrorJson;
use sabul_front::lines::{CopyEvent, LineBuilder};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

use crate::error::CliError;
use crate::exit;
use crate::output;

/// Returns the JSON form of the error that ended the command.
pub(crate) fn error(error: &CliError) -> ErrorJson {
    ErrorJson::of_all(exit::word_of(error.end()), error.to_string())
}

/// Prints one document as one line.
pub(crate) fn print(document: &impl Serialize) -> Result<(), CliError> {
    let mut text = Vec::new();
    document
        .serialize(&mut Serializer::with_formatter(&mut text, Escaping))
        .map_err(|error| CliError::failed(format!("cannot write JSON: {error}")))?;
    text.push(b'\n');
    output::print(text)
}

/// Ours: most values in an event of another machine. An event with 10,000 failures, the most, has some 100,000.
const VALUES_MAX: usize = 400_000;

/// Reads an event of another machine; `None` for a line that is none. A value takes up to 100 times its text in memory, so
/// the number of values is bounded.
///
/// # Errors
/// If the line has too many values.
pub(crate) fn event(line: &[u8]) -> Result<Option<Value>, CliError> {
    let values = line.iter().filter(|byte| matches!(byte, b'[' | b'{' | b',' | b':')).count();
    if values > VALUES_MAX {
        return Err(CliError::failed(format!(
            "the other machine sent a line with {values} values, and at most {VALUES_MAX} are accepted; copy fewer files at \
             once, or update the program there"
        )));
    }
    Ok(serde_json::from_slice(line).ok())
}

/// Compact JSON formatter that also escapes characters that control a terminal.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut units = [0; 2];
        for part in fragment.split_inclusive(steers) {
            let last = part.chars().next_back().filter(|last| steers(*last));
            let plain = part.len() - last.map_or(0, char::len_utf8);
            writer.write_all(&part.as_bytes()[..plain])?;
            for unit in last.iter().flat_map(|last| last.encode_utf16(&mut units).to_vec()) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

/// Prints one event if JSON Lines are requested. A write error is ignored here; printing the last
/// line reports write errors.
pub(crate) fn print_event(line_builder: Option<&LineBuilder>, event: CopyEvent) {
    if let Some(line_builder) = line_builder {
        let _ = print(&line_builder.line(event));
    }
}

/// Prints new failures and, when due, the progress of a transfer.
pub(crate) fn follow(line_builder: &mut LineBuilder, transfer: &Transfer, progress: &Progress) {
    let failed = line_builder.failed(&transfer.failures_after(line_builder.failures()));
    for line in failed.into_iter().chain(line_builder.update(progress)) {
        let _ = print(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_a_bounded_number_of_values() {
        assert_eq!(event(b"{\"event\":\"done\"}").unwrap().unwrap()["event"], "done");
        assert_eq!(event(b"a banner").unwrap(), None);
        let failure = r#"{"code":"changed","path":"a, b: c","message":"changed, and more"}"#;
        let failures = |count: usize| format!("[{}]", vec![failure; count].join(",")).into_bytes();
        assert_eq!(event(&failures(10_000)).unwrap().unwrap().as_array().unwrap().len(), 10_000);
        for line in [failures(100_000), b"[0],".repeat(1 << 20), b"[".repeat(1 << 20)] {
            assert!(event(&line).unwrap_err().to_string().contains("at most 400000"));
        }
    }

    #[test]
    fn json_output_escapes_control_characters_and_round_trips_text() {
        let text = "a\"\\\u{1b}[2J\u{9b}31m\u{7f}\u{202e}b\u{1f600}é";
        let mut line = Vec::new();
        text.serialize(&mut Serializer::with_formatter(&mut line, Escaping)).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert!(!line.contains(steers), "{line}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}
