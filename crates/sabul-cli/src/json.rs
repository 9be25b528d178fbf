//! Printing JSON documents: one, or a line for each thing that happens.

use sabul::{Progress, Transfer};
use sabul_front::json::ErrorJson;
use sabul_front::lines::{CopyEvent, Teller};
use serde::Serialize;

use crate::error::CliError;
use crate::exit;
use crate::output;

/// The error that ended everything.
pub(crate) fn error(error: &CliError) -> ErrorJson {
    ErrorJson::of_all(exit::word_of(error.end()), error.to_string())
}

/// Prints one document on a line.
pub(crate) fn print(document: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(document)
        .map_err(|error| CliError::failed(format!("cannot write JSON: {error}")))?;
    output::print_line(text)
}

/// Prints a line of what happens, where lines are wanted. One that cannot be written is told of by the last.
pub(crate) fn tell(teller: Option<&Teller>, event: CopyEvent) {
    if let Some(teller) = teller {
        let _ = print(&teller.line(event));
    }
}

/// Prints what is new of a transfer.
pub(crate) fn follow(teller: &mut Teller, transfer: &Transfer, progress: &Progress) {
    let failed = teller.failed(&transfer.failures_after(teller.failures()));
    for line in failed.into_iter().chain(teller.look(progress)) {
        let _ = print(&line);
    }
}
