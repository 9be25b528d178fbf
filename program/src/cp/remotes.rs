//! Copies between two other machines: the entries that differ, and the changes at the destination beside the copy.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

use sabul::internal::compare::{ReadParts, Selected, Selection as _};
use sabul::internal::{Remote, Server};
use sabul::{Failure, Report, SendStream, Session};
use sabul_front::json::ErrorJson;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use super::compare::{Compared, Comparing, Task};
use super::names::Names;
use super::pass::{adjust, narrowing};
use super::plan::Plan;
use super::sync::Selecting;
use super::tops::{TopsReader, look_up};
use crate::args::CopyArgs;
use crate::error::CliError;
use crate::exit::{DONE, FAILED, code_of_failures};

/// Bytes of names that are sent together.
const PORTION: usize = 16 << 10;

/// Two other machines, with the places of a copy between them.
pub(crate) struct Remotes<'a> {
    args: &'a CopyArgs,
    selecting: &'a Selecting,
    source: &'a Session,
    places: Vec<Vec<u8>>,
    destination: &'a Session,
    /// A copy to the destination.
    plan: Plan,
    tops: Option<Arc<TopsReader>>,
}

/// Entries that a copy sends.
pub(crate) enum Choice {
    /// All entries: these places are not compared.
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

impl<'a> Remotes<'a> {
    pub(crate) fn new(
        args: &'a CopyArgs,
        selecting: &'a Selecting,
        (source, places): (&'a Session, Vec<Vec<u8>>),
        (destination, path): (&'a Session, Vec<u8>),
    ) -> Self {
        let sources = places.iter().map(|place| OsString::from_vec(place.clone())).collect();
        let plan = Plan::Put { sources, destination: Remote { server: Server::Ticket, path } };
        let tops = selecting.sync.as_ref().filter(|_| !selecting.is_dry).map(|sync| {
            TopsReader::between(&plan, (source, &places), destination, args, sync.trash())
        });
        Self { args, selecting, source, places, destination, plan, tops }
    }

    /// Compares both ends, if the command does so.
    pub(crate) async fn compare(&self) -> Result<Choice, CliError> {
        let Self { selecting, plan, destination, .. } = self;
        let is_sync = selecting.sync.is_some();
        let Some(mut order) = selecting.order(self.args, plan) else { return Ok(Choice::All) };
        order.tops.clone_from(&self.tops);
        order.narrowing =
            (!selecting.is_dry).then(|| narrowing(plan, destination, self.tops.as_ref()));
        let Plan::Put { destination: to, .. } = plan else { return Ok(Choice::All) };
        let source = (self.source, &self.places[..]);
        let to = (*destination, &to.path[..]);
        let comparing = Comparing::between(&self.args.listed(), source, to, order)?;
        let Some(comparing) = comparing else {
            return match is_sync {
                true => Err(CliError::usage("sync does not support patterns; name one directory")),
                false => Ok(Choice::All),
            };
        };
        let (mut names, task) = comparing.names(selecting.is_dry).await;
        if names.is_some() {
            return Ok(Choice::Different(Different { names, task }));
        }
        let compared = match task.await.map_err(|_| CliError::failed("the comparison failed"))? {
            Ok(compared) => compared,
            // The source can be read, but not listed.
            Err(error) if !is_sync && error.is_refusal() => return Ok(Choice::All),
            Err(error) => return Err(error),
        };
        // A transfer without entries makes the directory, and removes the journal of an interrupted one.
        if !selecting.is_dry && (compared.has_journal || self.makes_top().await?) {
            names = Some(Names::none());
        }
        let task = tokio::spawn(std::future::ready(Ok(compared)));
        Ok(Choice::Different(Different { names, task }))
    }

    /// Whether the copy has to make the destination although no entry needs a copy.
    async fn makes_top(&self) -> Result<bool, CliError> {
        Ok(match (&self.selecting.sync, &self.tops) {
            (Some(sync), Some(tops)) => sync.makes_top(&tops.get().await?),
            _ => false,
        })
    }

    /// Removes rights of the destination before the copy.
    pub(crate) async fn prepare(&self) -> Result<(), CliError> {
        match (&self.selecting.sync, &self.tops) {
            (Some(sync), Some(tops)) => sync.narrow_top(&self.plan, self.destination, tops).await,
            _ => Ok(()),
        }
    }

    /// Completes a copy: removals, and metadata of existing entries. Adds the results to the event at its end. Returns
    /// whether the copy has to be repeated for entries that another kind of entry blocked.
    pub(crate) async fn complete(
        &self,
        different: Different,
        done: &mut Value,
    ) -> Result<bool, CliError> {
        let Different { names, task } = different;
        drop(names);
        let mut compared = task.await.map_err(|_| CliError::failed("the comparison failed"))??;
        done["skipped_files"] = compared.same_files.into();
        done["skipped_bytes"] = compared.same_bytes.into();
        add_failures(done, compared.source_failures, &compared.source_errors);
        let unchanged = [&compared.destination_failures[..], &compared.refused].concat();
        add_failures(done, unchanged.len() as u64, &unchanged);
        let entries_failed = done["failed"].as_u64().unwrap_or_default();
        let mut report = self.report().await?;
        report.entries_failed = entries_failed;
        let mut removed = 0;
        let completed = match (&self.selecting.sync, &self.tops) {
            (None, _) => adjust(self.args, &self.plan, self.destination, self.selecting, &compared)
                .await
                .map(|()| 0),
            (Some(sync), None) => sync.check(&report, &compared).map(|()| 0),
            (Some(sync), Some(tops)) => {
                let tops = tops.get().await?;
                sync.complete(&self.plan, self.destination, &report, &compared, &tops).await
            }
        };
        match completed {
            Ok(count) => removed = count,
            Err(error) => add_error(done, &error),
        }
        if self.selecting.is_dry {
            (done["files"], done["bytes"]) = (compared.files.into(), compared.bytes.into());
            removed = compared.extras.len() as u64;
        }
        done["removed"] = removed.into();
        let conflicts = std::mem::take(&mut compared.conflicts);
        Ok(!conflicts.is_empty() && removed > 0)
    }

    /// The result of the transfer, as far as changes at the destination need the result.
    async fn report(&self) -> Result<Report, CliError> {
        let mut report = Report::default();
        let Plan::Put { destination, .. } = &self.plan else { return Ok(report) };
        if self.tops.is_some() {
            let place = if destination.path.is_empty() { b"." } else { &destination.path[..] };
            let found = look_up(self.destination, place, ReadParts::default()).await?;
            report.destination = found.and_then(Result::ok);
        }
        Ok(report)
    }
}

impl Different {
    /// Entries with these names, without a comparison.
    pub(crate) fn named(names: Vec<Vec<u8>>) -> Self {
        let task = tokio::spawn(std::future::ready(Ok(Compared::default())));
        Self { names: Some(Names::of(names)), task }
    }

    /// Whether no entry differs.
    pub(crate) const fn is_empty(&self) -> bool {
        self.names.is_none()
    }

    /// Sends the names, each followed by a zero byte, and an empty name as the last.
    pub(crate) fn send_names(&mut self, mut stream: SendStream) {
        let Some(names) = self.names.take() else { return };
        let (sender, mut portions) = mpsc::channel::<Vec<u8>>(1);
        tokio::task::spawn_blocking(move || take_portions(names, &sender));
        // The end of the program drops this task, and then the thread ends, too.
        tokio::spawn(async move {
            while let Some(portion) = portions.recv().await {
                // An ended copy takes no more names, and reports its own error.
                if stream.write_all(&portion).await.is_err() {
                    return;
                }
            }
            let _ = stream.finish().await;
        });
    }
}

/// Takes the names until the last, and sends them in portions. Waits for names, and for the receiver.
fn take_portions(mut names: Names, portions: &mpsc::Sender<Vec<u8>>) {
    let mut text = Vec::new();
    while !portions.is_closed() {
        let selected = names.next();
        if let Selected::Name(name) = &selected {
            text.extend_from_slice(name);
        }
        if matches!(selected, Selected::Name(_) | Selected::End) {
            text.push(0);
        }
        let is_due = !matches!(selected, Selected::Name(_)) || text.len() >= PORTION;
        let is_ended = is_due
            && !text.is_empty()
            && portions.blocking_send(std::mem::take(&mut text)).is_err();
        if is_ended || selected == Selected::End {
            return;
        }
    }
}

/// Adds failures of single entries to the event at the end of a copy.
fn add_failures(done: &mut Value, count: u64, failures: &[(Vec<u8>, Failure)]) {
    if count == 0 {
        return;
    }
    let failed = done["failed"].as_u64().unwrap_or_default();
    done["failed"] = failed.saturating_add(count).into();
    let code = code_of_failures(failures.iter().map(|(_, failure)| failure)).max(FAILED);
    let failures = failures.iter().map(|(path, failure)| ErrorJson::of_entry(path, failure));
    add_errors(done, code, failures);
}

fn add_error(done: &mut Value, error: &CliError) {
    add_errors(done, error.code(), std::iter::once(crate::json::error(error)));
}

fn add_errors(done: &mut Value, code: u8, errors: impl Iterator<Item = ErrorJson>) {
    if done["exit"] == DONE {
        done["exit"] = code.into();
    }
    let errors = errors.filter_map(|error| serde_json::to_value(error).ok());
    if let Some(known) = done["errors"].as_array_mut() {
        known.extend(errors);
    }
}
