//! Value parsers shared by several commands.

use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use sabul::settings::MemoryBudget;
use sabul_lab_cc::registry;

use sabul_units::{Bytes, parse_bytes};

/// Splits `KEY=VALUE`.
pub(super) fn parse_param(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is not KEY=VALUE, such as syn_interval_ms=10")),
    }
}

/// Parser for the name of a controller. Completions list the controllers; the command rejects
/// unknown names.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControllerName;

impl TypedValueParser for ControllerName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(registry::all().map(|entry| PossibleValue::new(entry.name))))
    }
}

/// Resident memory of a server without sessions, in bytes. Measured: 13 to 17 MiB, most of it pages of the program.
const PROGRAM_BYTES: u64 = 12 << 20;

/// Parses a memory budget in bytes. The program itself counts as long as the smallest budget is left.
pub(super) fn parse_memory(text: &str) -> Result<MemoryBudget, String> {
    let bytes = parse_bytes(text)?;
    let left = bytes.saturating_sub(PROGRAM_BYTES).max(MemoryBudget::BYTES_MIN as u64);
    MemoryBudget::new(Bytes(left.min(bytes))).map_err(|error| error.to_string())
}

/// Parses a timeout in seconds.
pub(super) fn parse_timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.trim().trim_end_matches('s').parse::<u64>().ok();
    // With a shorter timeout, one or two lost packets would end a session.
    seconds
        .filter(|seconds| (3..=86_400).contains(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| format!("'{text}' is not a number of seconds from 3 to 86400"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_limit_includes_the_program_as_long_as_the_smallest_budget_is_left() {
        let budget = |text| parse_memory(text).map(|budget| budget.bytes() >> 20);
        for (text, mebibytes) in [("16MiB", 16), ("20MiB", 16), ("64MiB", 52), ("1GiB", 1012)] {
            assert_eq!(budget(text), Ok(mebibytes), "{text}");
        }
        assert!(budget("15MiB").unwrap_err().contains("give at least 16 MiB"));
    }
}
