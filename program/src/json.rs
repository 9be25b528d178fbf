//! JSON output: single documents and JSON Lines.

use std::io;

use sabul::internal::steers;
use sabul::{Progress, Transfer};
use sabul_front::json::ErrorJson;
use sabul_front::lines::{CopyEvent, LineBuilder};
use serde::Serialize;
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
    fn json_output_escapes_control_characters_and_round_trips_text() {
        let text = "a\"\\\u{1b}[2J\u{9b}31m\u{7f}\u{202e}b\u{1f600}é";
        let mut line = Vec::new();
        text.serialize(&mut Serializer::with_formatter(&mut line, Escaping)).unwrap();
        let line = String::from_utf8(line).unwrap();
        assert!(!line.contains(steers), "{line}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}
