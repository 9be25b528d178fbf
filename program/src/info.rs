//! Information about the program itself: controllers and completions.

use std::fmt::Write as _;

use clap_complete::Shell;
use sabul_lab_cc::registry;

use crate::args::{self, CcArgs, CcCommand};
use crate::error::CliError;
use crate::exit;
use crate::output;

/// Runs `sabul cc` and returns the exit code.
pub(crate) fn controllers(args: &CcArgs) -> Result<u8, CliError> {
    match &args.command {
        CcCommand::List => output::print(list())?,
        CcCommand::Show { name } => output::print(show(registry::find(name)?))?,
    }
    Ok(exit::DONE)
}

fn list() -> String {
    let width = registry::all().map(|entry| entry.name.len()).max().unwrap_or(0);
    let lines = |entries: &[registry::Entry]| -> String {
        let line = |entry: &registry::Entry| {
            let default = if entry.name == registry::DEFAULT { " (default)" } else { "" };
            format!("{:width$}  {}{default}\n", entry.name, entry.summary)
        };
        entries.iter().map(line).collect()
    };
    let text = lines(sabul_cc::registry::ENTRIES)
        + "\nFor experiments:\n"
        + &lines(sabul_cc::registry::included());
    match registry::added() {
        [] => text,
        added => text + "\nAdded by this program:\n" + &lines(added),
    }
}

fn show(entry: &registry::Entry) -> String {
    let mut text = format!("{}\n  {}\n  Source: {}\n", entry.name, entry.summary, entry.source);
    if !entry.is_adaptive {
        text += "  Does not react to loss.\n";
    }
    if entry.follows_policy {
        text += "  Supports the policies fair, high and low.\n";
    }
    if entry.remembers_path {
        text += "  Starts with the rate and RTT that earlier transfers measured.\n";
    }
    for param in entry.params {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {} = {} ({}", param.name, param.default, param.unit);
        let _ = match param.unit {
            sabul_cc::Unit::Word(_) => writeln!(text, ")"),
            _ => writeln!(text, ", {} to {})", param.range.0, param.range.1),
        };
        let _ = writeln!(text, "    {}", param.doc);
        let _ = writeln!(text, "    Source: {}", param.source);
    }
    text
}

/// Prints the completion script of a shell.
pub(crate) fn completion(shell: Shell) -> Result<u8, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "sabul", &mut script);
    output::print(script)?;
    Ok(exit::DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_controller_is_listed_and_shown_with_its_parameters() {
        let list = list();
        assert!(list.contains("(default)"));
        for entry in registry::all() {
            assert!(list.contains(entry.name));
            let text = show(entry);
            assert!(text.contains(entry.source));
            assert!(entry.params.iter().all(|param| text.contains(param.name)), "{text}");
        }
    }
}
