//! Comparison of two other machines: the names of the entries that a copy between them sends.

use sabul::internal::compare::{Selected, Selection as _};
use sabul::{SendStream, Session};
use sabul_front::json::ErrorJson;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::Handle;

use super::compare::{Compared, Comparing, Order, Task};
use super::names::Names;
use crate::args::CopyArgs;
use crate::error::CliError;
use crate::exit::{FAILED, code_of_failures};

/// Bytes of names that are sent together.
const PORTION: usize = 16 << 10;

/// Entries that a copy sends.
pub(crate) enum Choice {
    /// All entries: these places cannot be compared.
    All,
    /// Those that differ.
    Different(Different),
}

/// Entries that differ, while the comparison continues.
pub(crate) struct Different {
    /// `None` if no entry differs.
    names: Option<Names>,
    task: Task,
}

/// Compares sources at one machine with a destination at another.
pub(crate) async fn compare(
    args: &CopyArgs,
    source: (&Session, &[Vec<u8>]),
    destination: (&Session, &[u8]),
) -> Result<Choice, CliError> {
    let mut order = Order::of_copy(args);
    // The destination sets the owners that its rights permit, and this machine does not know these rights.
    order.options.owners = false;
    let comparing = Comparing::between(&args.listed(), source, destination, order)?;
    let Some(comparing) = comparing else { return Ok(Choice::All) };
    let (names, task) = comparing.names(false).await;
    if names.is_some() || !task.is_finished() {
        return Ok(Choice::Different(Different { names, task }));
    }
    match task.await.map_err(|_| CliError::failed("the comparison failed"))? {
        Ok(compared) => {
            let task = tokio::spawn(std::future::ready(Ok(compared)));
            Ok(Choice::Different(Different { names, task }))
        }
        // The source can be read, but not listed.
        Err(error) if error.is_refusal() => Ok(Choice::All),
        Err(error) => Err(error),
    }
}

impl Different {
    /// Whether no entry differs.
    pub(crate) const fn is_empty(&self) -> bool {
        self.names.is_none()
    }

    /// Sends the names on a thread, each followed by a zero byte, and an empty name as the last.
    pub(crate) fn send_names(&mut self, mut stream: SendStream) {
        let Some(mut names) = self.names.take() else { return };
        let runtime = Handle::current();
        tokio::task::spawn_blocking(move || {
            let mut text = Vec::new();
            loop {
                let selected = names.next();
                if let Selected::Name(name) = &selected {
                    text.extend_from_slice(name);
                }
                if matches!(selected, Selected::Name(_) | Selected::End) {
                    text.push(0);
                }
                let is_due = !matches!(selected, Selected::Name(_)) || text.len() >= PORTION;
                // An ended copy takes no more names, and reports its own error.
                if is_due && runtime.block_on(stream.write_all(&text)).is_err() {
                    return;
                }
                if is_due {
                    text.clear();
                }
                if selected == Selected::End {
                    let _ = runtime.block_on(stream.finish());
                    return;
                }
            }
        });
    }

    /// Adds the result of the comparison to the event at the end of a copy.
    pub(crate) async fn complete(self, done: &mut Value) -> Result<(), CliError> {
        drop(self.names);
        let compared = self.task.await.map_err(|_| CliError::failed("the comparison failed"))??;
        let Compared { same_files, same_bytes, source_failures, source_errors, .. } = compared;
        done["skipped_files"] = same_files.into();
        done["skipped_bytes"] = same_bytes.into();
        if source_failures == 0 {
            return Ok(());
        }
        // The copy does not report entries that were not listed.
        let failed = done["failed"].as_u64().unwrap_or_default();
        done["failed"] = (failed + source_failures).into();
        let code = code_of_failures(source_errors.iter().map(|(_, failure)| failure)).max(FAILED);
        if done["exit"] == 0 {
            done["exit"] = code.into();
        }
        let errors = source_errors.iter();
        let errors = errors.filter_map(|(path, failure)| {
            serde_json::to_value(ErrorJson::of_entry(path, failure)).ok()
        });
        if let Some(known) = done["errors"].as_array_mut() {
            known.extend(errors);
        }
        Ok(())
    }
}
