//! `sabul replicate`: keeps replicas of a directory in step. The directory has one writer.
//!
//! A pass compares the directory with one replica and copies what differs, as `sabul sync` does, on a connection that
//! stays open between passes. Entries that were changed at the replica are kept ([`guard`](super::guard)).

mod catch_up;
mod places;
mod status;
mod watch;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sabul::internal::Retry;
use sabul::internal::replica::failed_entry;
use sabul::internal::ssh::UploadObserver;
use sabul::{ErrorKind, Report, Session, TransferOptions};
use sabul_content::Printable;
use sabul_front::json::ErrorJson;
use tokio::task::JoinSet;

use super::guard::ReplicaStore;
use super::outcome::Outcome;
use super::pass::{in_session, transfer_options};
use super::plan::Plan;
use super::summary::{entries, print_failures, record, summary};
use super::sync::{Selecting, Sync};
use super::versions::{self, Site, Store};
use crate::args::{CopyArgs, ReplicateArgs, ReplicateCommand, SyncArgs};
use crate::error::CliError;
use crate::exit::{self, End};
use crate::files::dial;
use crate::interrupt::Interrupt;
use crate::output;
use crate::upload::UploadProgress;
use catch_up::Peer;
use places::{absolute, full_place, now_s, refuse_repeated};
use watch::Changes;

/// Time for which an unreachable replica is dialled again with --watch.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 86_400);
/// Ours: pause after a pass that did not copy everything.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(30);

/// Runs `sabul replicate` and returns the exit code.
pub(crate) async fn run(args: ReplicateArgs) -> Result<u8, CliError> {
    if let Some(ReplicateCommand::Status(args)) = &args.command {
        return status::run(args);
    }
    refuse_options(&args.copy)?;
    let (directory, places) = match args.copy.places.split_first() {
        Some((directory, places)) if !places.is_empty() => (directory, places),
        _ => {
            return Err(CliError::usage(
                "give the directory and at least one replica: sabul replicate DIR PLACE...",
            ));
        }
    };
    let directory = absolute(directory)?;
    refuse_repeated(places)?;
    let folder = versions::folder()?;
    sabul::internal::allow_many_files();
    let interrupt = Interrupt::listen()?;
    let changes = match args.watch {
        true => Some(Changes::of(Path::new(&directory), args.rescan)?),
        false => None,
    };
    let mut sites = Vec::new();
    for place in places {
        sites.push(Runner::new(&args, &directory, place, &folder)?);
    }
    introduce(&mut sites, args.from_writer);
    let mut tasks = JoinSet::new();
    for site in sites {
        tasks.spawn(site.run(changes.clone(), interrupt.clone()));
    }
    let mut code = exit::DONE;
    while let Some(ended) = tasks.join_next().await {
        code = code.max(ended.map_err(|_| CliError::failed("a pass ended with a fault"))?);
    }
    if interrupt.is_seen() && !args.watch {
        return Err(CliError::interrupted("interrupted: run the same command again to continue"));
    }
    Ok(code)
}

/// Lets the replicas take files from each other, unless all come from the writer.
fn introduce(sites: &mut [Runner], is_from_writer: bool) {
    let peers: Vec<_> = sites.iter().map(Runner::peer).collect();
    for (number, site) in sites.iter_mut().enumerate() {
        site.peer.clone_from(&peers[number]);
        if !is_from_writer {
            let others = peers.iter().enumerate().filter(|(other, _)| *other != number);
            site.others = others.filter_map(|(_, peer)| peer.clone()).collect();
        }
    }
}

/// Rejects options that mean one copy.
fn refuse_options(copy: &CopyArgs) -> Result<(), CliError> {
    let flags = [
        (copy.dry_run, "--dry-run"),
        (copy.json || copy.json_lines, "--json and --json-lines"),
        (copy.report.is_some(), "--report"),
        (copy.receipt.receipt.is_some(), "--receipt"),
    ];
    match flags.iter().find(|(is_given, _)| *is_given) {
        Some((_, flag)) => Err(CliError::usage(format!(
            "replicate does not support {flag}; use 'sabul sync', or 'sabul replicate status'"
        ))),
        None => Ok(()),
    }
}

/// One replica, its settings, and the versions that it received.
struct Runner {
    /// Place in front of a message.
    shown: String,
    args: SyncArgs,
    plan: Plan,
    options: TransferOptions,
    replica: ReplicaStore,
    is_watching: bool,
    /// This replica, if it takes files from the others, and sends files to them.
    peer: Option<Arc<Peer>>,
    others: Vec<Arc<Peer>>,
}

impl Runner {
    fn new(
        args: &ReplicateArgs,
        directory: &OsString,
        place: &OsString,
        folder: &Path,
    ) -> Result<Self, CliError> {
        let mut copy = args.copy.clone();
        copy.places = vec![directory.clone(), place.clone()];
        copy.recursive = true;
        copy.growing = true;
        let sync = SyncArgs::of_replica(copy, args.delete, args.delete_limit);
        let plan = Plan::of_sync(&sync.copy, false)?;
        let options = transfer_options(&sync.copy)?;
        let rules = serde_json::to_string(&sync.copy.rules.0).unwrap_or_default();
        let site = Site {
            directory: directory.as_bytes().to_vec(),
            place: full_place(place)?.into_vec(),
            rules,
            archive: sync.copy.archive,
        };
        let replica = ReplicaStore::new(Store::write(folder, &site)?);
        // The home directory of a host is the host.
        let shown = Printable(place.as_bytes()).to_string().trim_end_matches(':').to_owned();
        let is_watching = args.watch;
        let (peer, others) = (None, Vec::new());
        Ok(Self { shown, args: sync, plan, options, replica, is_watching, peer, others })
    }

    fn peer(&self) -> Option<Arc<Peer>> {
        Peer::of(&self.shown, &self.args.copy, &self.plan, &self.options, &self.replica)
    }

    /// Runs passes until the replica is in step; with --watch, until an interrupt. Returns the exit code.
    async fn run(self, mut changes: Option<Changes>, interrupt: Interrupt) -> u8 {
        let limit =
            if self.is_watching { FOREVER } else { self.args.copy.retry.unwrap_or_default() };
        let mut retry = Retry::new(limit);
        loop {
            let result = self.connected(&mut changes, &interrupt, &mut retry).await;
            if interrupt.is_seen() {
                return exit::DONE;
            }
            let error = match result {
                Ok(code) => return code,
                Err(error) => error,
            };
            self.set_away(true);
            self.end_pass(Err(&error.to_string()));
            let pause = match error.end() {
                End::Error(ErrorKind::Request) => None,
                End::Error(kind) => match retry.on_failure(kind) {
                    None if self.is_watching => Some(PAUSE_AFTER_FAILURE),
                    pause => pause,
                },
                _ => None,
            };
            let Some(pause) = pause else {
                output::error(format_args!("{}: {error}", self.shown));
                return error.code();
            };
            let seconds = pause.as_secs_f64();
            output::error(format_args!("{}: {error}; next attempt in {seconds:.1} s", self.shown));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = interrupt.wait() => {}
            }
        }
    }

    /// Connects, and runs passes until the connection fails.
    async fn connected(
        &self,
        changes: &mut Option<Changes>,
        interrupt: &Interrupt,
        retry: &mut Retry,
    ) -> Result<u8, CliError> {
        let copy = &self.args.copy;
        let observer: Arc<dyn UploadObserver> = Arc::new(UploadProgress::new(true, false));
        let mut ssh = copy.ssh.clone();
        ssh.dials = self.peer.is_some() && !self.others.is_empty();
        retry.begin();
        let dialled = tokio::select! {
            dialled = dial(&copy.channel, &ssh, self.plan.server(), interrupt, None, &observer) => dialled,
            () = interrupt.wait() => return Ok(exit::DONE),
        };
        let (session, bridge) = dialled?;
        self.set_away(false);
        self.catch_up(&session, interrupt).await;
        let result = self.passes(&session, changes, interrupt, retry).await;
        session.close().await;
        if let (Ok(_), Some(bridge)) = (&result, bridge) {
            bridge.close().await;
        }
        result
    }

    /// Takes files from other replicas. An interrupt ends the passes, too.
    async fn catch_up(&self, session: &Session, interrupt: &Interrupt) {
        let Some(peer) = &self.peer else { return };
        tokio::select! {
            () = catch_up::run(peer, &self.others, &self.plan, session, interrupt) => {}
            () = interrupt.wait() => {}
        }
    }

    fn set_away(&self, is_away: bool) {
        self.peer.iter().for_each(|peer| peer.set_away(is_away));
    }

    async fn passes(
        &self,
        session: &Session,
        changes: &mut Option<Changes>,
        interrupt: &Interrupt,
        retry: &mut Retry,
    ) -> Result<u8, CliError> {
        loop {
            if let Some(changes) = changes {
                changes.begin();
            }
            if let Some(peer) = &self.peer {
                tokio::select! {
                    // The end of the pass shows a failure.
                    _ = catch_up::check_rest(peer, &self.plan, session) => {}
                    () = interrupt.wait() => return Ok(exit::DONE),
                }
            }
            let code = self.pass(session, interrupt).await?;
            retry.reset_backoff();
            let Some(changes) = changes else { return Ok(code) };
            let again = match code {
                exit::DONE => changes.rescan(),
                _ => PAUSE_AFTER_FAILURE.min(changes.rescan()),
            };
            tokio::select! {
                () = changes.wait() => {}
                () = tokio::time::sleep(again) => {}
                () = interrupt.wait() => return Ok(exit::DONE),
                None = session.next_request() => {
                    return Err(CliError::lost("the connection to the replica was lost"));
                }
            }
        }
    }

    /// Compares and copies once. Returns the exit code; failures of single entries are no error.
    async fn pass(&self, session: &Session, interrupt: &Interrupt) -> Result<u8, CliError> {
        self.replica.with_store(Store::begin_pass)?;
        let sync = Sync::of(&self.args)?.with_replica(self.replica.clone());
        let selecting = Selecting { is_all: false, is_dry: false, sync: Some(sync) };
        let mut outcome = Outcome::new("replicate", &self.args.copy, selecting, None);
        outcome.machines = self.plan.machines();
        let (args, plan, options) = (&self.args.copy, &self.plan, &self.options);
        let closed = Arc::default();
        let copied =
            in_session(args, plan, session, options, interrupt, &mut outcome, &closed).await;
        // Also after a failure: the entries have another name now.
        let kept = self.print_kept();
        let report = copied.inspect_err(|_| self.add_kept(kept))?;
        let failed = self.failed(&report);
        let why = shortfall(&failed, report.entries_failed, &outcome.incomplete);
        self.record_arrivals(&failed, report.entries_failed, &outcome.incomplete);
        record(args, &report, &mut outcome);
        print_failures(&report.failures, report.entries_failed, &mut outcome);
        let is_changed =
            report.entries > 0 || outcome.removed > 0 || outcome.compared.moved_files > 0;
        if !args.quiet && (is_changed || !self.is_watching || outcome.code != exit::DONE) {
            output::note(format_args!("{}: {}", self.shown, summary(&report, &outcome)));
        }
        self.add_kept(kept);
        if outcome.code != exit::DONE {
            self.end_pass(Err(&why));
            return Ok(outcome.code);
        }
        Ok(match self.unchecked()? {
            None => {
                self.end_pass(Ok(()));
                exit::DONE
            }
            Some(why) => {
                self.end_pass(Err(&why));
                output::error(format_args!("{}: {why}", self.shown));
                exit::FAILED
            }
        })
    }

    /// Why a pass without failures does not show that the replica is in step: another replica sent some entries, and their
    /// contents were not compared. A pass compares only sizes and times.
    fn unchecked(&self) -> Result<Option<String>, CliError> {
        let paths = self.replica.with_store(|store| store.unchecked())?;
        let Some(first) = paths.first() else { return Ok(None) };
        Ok(Some(format!(
            "the content of {}, first '{}', came from another replica and was not compared; run the command again, \
             without --relay and --carrier ssh",
            entries(paths.len() as u64),
            Printable(first)
        )))
    }

    /// Records which entries have arrived in a pass with failures. Without the path of each failure, none is recorded.
    fn record_arrivals(&self, failed: &[&[u8]], entries_failed: u64, beside: &[ErrorJson]) {
        if let Some(failed) = failed_paths(failed, entries_failed, beside) {
            self.write(|store| store.record_arrivals(&failed));
        }
    }

    /// The failed entries of a report.
    fn failed<'a>(&self, report: &'a Report) -> Vec<&'a [u8]> {
        let directory = self.args.copy.places.first().map_or(&b""[..], |it| it.as_bytes());
        report.failures.iter().map(|(path, _)| failed_entry(path, directory)).collect()
    }

    /// Prints the entries that were kept; returns their number.
    fn print_kept(&self) -> u64 {
        let kept = self.replica.take_kept();
        for (old, new) in &kept {
            let (old, new) = (Printable(old), Printable(new));
            let shown = &self.shown;
            output::note(format_args!("{shown}: '{old}' was changed there; kept as '{new}'"));
        }
        kept.len() as u64
    }

    fn add_kept(&self, kept: u64) {
        self.write(|store| store.add_kept(kept));
    }

    fn end_pass(&self, result: Result<(), &str>) {
        self.write(|store| store.end_pass(now_s(), result));
    }

    /// The result of a pass is only shown, so the pass goes on without the database.
    fn write(&self, work: impl FnOnce(&mut Store) -> Result<(), CliError>) {
        if let Err(error) = self.replica.with_store(work) {
            output::error(format_args!("{}: {error}", self.shown));
        }
    }
}

/// Why a pass did not copy everything: the number of failed entries, or else the error of no single entry. `named` has
/// the first of all failed entries of the copy.
fn shortfall(named: &[&[u8]], entries_failed: u64, beside: &[ErrorJson]) -> String {
    let named: BTreeSet<_> = named.iter().map(|path| Printable(path).to_string()).collect();
    let others: BTreeSet<_> = beside.iter().filter_map(|error| error.path.as_ref()).collect();
    let others = others.into_iter().filter(|path| !named.contains(*path)).count();
    match (entries_failed + others as u64, beside.first()) {
        (0, Some(error)) => error.message.clone(),
        (failed, _) => format!("{} failed", entries(failed.max(1))),
    }
}

/// Paths of all failed entries; `None` if a path is not known.
fn failed_paths<'a>(
    named: &[&'a [u8]],
    entries_failed: u64,
    beside: &'a [ErrorJson],
) -> Option<Vec<&'a [u8]>> {
    // Without a name, the failure is that of the directory.
    if named.len() as u64 != entries_failed || named.contains(&&b""[..]) {
        return None;
    }
    let shown = beside.iter().filter_map(|error| error.path.as_ref());
    // Another byte, or the start of an escape, may stand for one of these.
    let others = shown.map(|path| {
        let is_plain = !path.contains(['\\', char::REPLACEMENT_CHARACTER]);
        is_plain.then_some(path.as_bytes())
    });
    named.iter().copied().map(Some).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use sabul::{Failure, FailureCode};

    use super::*;

    #[test]
    fn an_entry_with_an_escaped_name_leaves_its_path_unknown() {
        let failure = Failure::new(FailureCode::Unwritable, "full");
        assert_eq!(failed_paths(&[], 1, &[]), None);
        assert_eq!(failed_paths(&[b""], 1, &[]), None);
        let paths = |other: &[u8]| {
            let beside = [ErrorJson::of_entry(other, &failure), ErrorJson::of_all("x", "y".into())];
            let paths = failed_paths(&[b"a\n"], 1, &beside)?;
            Some(paths.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        assert_eq!(paths("caf\u{e9}/b".as_bytes()).unwrap()[1], "caf\u{e9}/b".as_bytes());
        assert_eq!((paths(b"b\n"), paths(b"\xff")), (None, None));
    }

    #[test]
    fn each_failed_entry_is_counted_once() {
        let failure = Failure::new(FailureCode::Unwritable, "full");
        let metadata = ErrorJson::of_all("failed", "the metadata was not set".to_owned());
        let of = |path: &[u8]| ErrorJson::of_entry(path, &failure);
        for (failures, beside, text) in [
            (&[&b"a"[..]][..], vec![metadata.clone()], "1 entry failed"),
            (&[b"a"], vec![of(b"a"), metadata.clone()], "1 entry failed"),
            (&[b"a"], vec![of(b"b"), of(b"b")], "2 entries failed"),
            (&[], vec![metadata], "the metadata was not set"),
            (&[], vec![], "1 entry failed"),
        ] {
            assert_eq!(shortfall(failures, failures.len() as u64, &beside), text);
        }
    }
}
