//! A replica that lacks much takes its files from another replica, and this machine sends the rest.
//!
//! This machine compares its files with those of both replicas. It records the versions that are sent, and orders the copy
//! as between two servers ([`Pair`]). Which entries another replica sends is decided in
//! [`sabul::internal::replica`]. Any failure only means that this machine sends the entries itself. Entries whose contents
//! were not compared after such a copy stay in the record, and are compared before the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sabul::files::{Facts, SeenKind, View};
use sabul::internal::compare::{ListOptions, Named, NamedContent, ReadParts, facts_with};
use sabul::internal::replica::{CATCH_UP_MIN, Caught, Version, Versions, keep, may_send, sends};
use sabul::internal::ssh::UploadObserver;
use sabul::internal::{Remote, Server, escape_pattern};
use sabul::{FailureCode, Session, TransferOptions};
use sabul_units::{count, show_bytes};
use tokio::runtime::Handle;

use super::super::guard::{Guard, ReplicaStore};
use super::super::listings::Lister;
use super::super::names::below;
use super::super::plan::Plan;
use super::super::remotes::Different;
use super::super::sides::Sides;
use super::super::versions::Store;
use super::status::source_entries;
use crate::args::CopyArgs;
use crate::between::in_text;
use crate::between::pair::{Dialled, Pair, Turn};
use crate::between::servers::why_incomplete;
use crate::error::CliError;
use crate::files::dial;
use crate::interrupt::Interrupt;
use crate::order::{ChannelSettings, CopyOrder, FileSettings};
use crate::output;
use crate::upload::UploadProgress;

/// Entries that are compared and copied together. Ours: their metadata takes some MB.
const ENTRIES_AT_ONCE: u64 = 10_000;
/// Bytes of their files. Ours: three machines read so much at most before a copy that is refused.
const BYTES_AT_ONCE: u64 = 4_000_000_000;
/// Ours: time for the other replica to list entries, besides the time to read their files at a low rate.
const LISTING_TIMEOUT: Duration = Duration::from_secs(120);
const READ_BYTES_PER_S: u64 = 5_000_000;

/// A replica on another machine, as the passes to the other replicas see it.
#[derive(Debug)]
pub(super) struct Peer {
    /// Place in front of a message.
    shown: String,
    args: CopyArgs,
    place: Remote,
    options: TransferOptions,
    replica: ReplicaStore,
    /// The last connection failed.
    is_away: AtomicBool,
}

/// An entry of the source that a replica lacks.
#[derive(Clone)]
struct Missing {
    path: Vec<u8>,
    version: Version,
}

/// An entry that another replica sends.
type Sent = (Vec<u8>, Facts);

/// Entries that another replica has sent: files and their bytes, and all paths.
#[derive(Default)]
struct Arrived {
    files: u64,
    bytes: u64,
    paths: BTreeSet<Vec<u8>>,
}

impl Arrived {
    fn add(&mut self, (path, facts): Sent) {
        if facts.kind == SeenKind::File {
            self.files += 1;
            self.bytes += facts.size;
        }
        self.paths.insert(path);
    }
}

impl fmt::Display for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", show_bytes(self.bytes), count(self.files, "file"))
    }
}

impl Missing {
    /// Bytes of a file; `None` for a directory.
    fn file_bytes(&self) -> Option<u64> {
        self.version.modified_ns.map(|_| self.version.size.unsigned_abs())
    }
}

impl Peer {
    /// Returns the replica, if it may take files from others and send files to them.
    pub(super) fn of(
        shown: &str,
        args: &CopyArgs,
        plan: &Plan,
        options: &TransferOptions,
        replica: &ReplicaStore,
    ) -> Option<Arc<Self>> {
        let Plan::Put { destination, .. } = plan else { return None };
        if destination.server == Server::Here || args.channel.relay {
            return None;
        }
        // ssh carries no data between two replicas.
        ChannelSettings::of(options)?;
        let mut place = destination.clone();
        if matches!(place.server, Server::Ssh(_)) && place.path.starts_with(b"~/") {
            place.path.drain(..2);
        }
        Some(Arc::new(Self {
            shown: shown.to_owned(),
            args: args.clone(),
            place,
            options: options.clone().growing(false).new_names(true).rules(Vec::new()),
            replica: replica.clone(),
            is_away: AtomicBool::new(false),
        }))
    }

    pub(super) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    /// Lists the entries of these names; blocks. With `hashes`, files are read. An entry that cannot be read is missing
    /// in the result if `is_tolerant`.
    fn list(
        &self,
        session: &Session,
        names: &Arc<[Named]>,
        hashes: bool,
        is_tolerant: bool,
    ) -> Result<BTreeMap<Vec<u8>, Facts>, CliError> {
        let parts = ReadParts { content: hashes, ..ReadParts::default() };
        let lister = Lister { session, parts, names: Some(names) };
        let listing =
            lister.list(vec![self.place.path.clone()], View::Archive, Vec::new(), true)?;
        // A replica that lists without end takes no memory here.
        let wanted: BTreeSet<_> = names.iter().map(|named| &named.path).collect();
        let mut all = BTreeMap::new();
        for seen in listing {
            let seen = seen?;
            match seen.outcome {
                Ok(_) if !wanted.contains(&seen.path) => {}
                Ok(facts) => drop(all.insert(seen.path, facts)),
                Err(failure) if is_tolerant || failure.code == FailureCode::NotFound => {}
                Err(failure) => return Err(sabul::Error::Failed(failure).into()),
            }
        }
        Ok(all)
    }

    /// Whether the replica has no entries.
    async fn is_empty(&self, session: &Session) -> Result<bool, CliError> {
        let options = ListOptions { literal: true, ..ListOptions::default() };
        let place =
            if self.place.path.is_empty() { b".".to_vec() } else { self.place.path.clone() };
        let mut listing = session.list_for_copy(vec![place], View::Content, options)?;
        Ok(match listing.next().await? {
            None => true,
            Some(seen) => seen.outcome.is_err_and(|failure| failure.code == FailureCode::NotFound),
        })
    }

    /// The path of the replica, as a destination; with `is_source`, as a source, which may be a pattern.
    fn path_in_text(&self, is_source: bool) -> Result<String, CliError> {
        let path = &self.place.path;
        let pattern = is_source.then(|| escape_pattern(path));
        in_text(OsStr::from_bytes(pattern.as_ref().unwrap_or(path)))
    }
}

/// Takes what the replica lacks from the others, if that is much.
pub(super) async fn run(
    peer: &Arc<Peer>,
    others: &[Arc<Peer>],
    plan: &Plan,
    session: &Session,
    interrupt: &Interrupt,
) {
    if let Err(error) = attempt(peer, others, plan, session, interrupt).await
        && !interrupt.is_seen()
    {
        output::note(format_args!("{}: this machine sends all files: {error}", peer.shown));
    }
}

async fn attempt(
    peer: &Arc<Peer>,
    others: &[Arc<Peer>],
    plan: &Plan,
    session: &Session,
    interrupt: &Interrupt,
) -> Result<(), CliError> {
    check_rest(peer, plan, session).await?;
    let mut others: Vec<_> =
        others.iter().filter(|it| !it.is_away.load(Ordering::Relaxed)).cloned().collect();
    if others.is_empty() {
        return Ok(());
    }
    let has_nothing = peer.is_empty(session).await?;
    let of = Arc::clone(peer);
    let mut missing = blocking(move || missing(&of, has_nothing)).await?;
    loop {
        let from = others.clone();
        let (chosen, all) = blocking(move || Ok((choose(&from, &missing)?, missing))).await?;
        missing = all;
        let Some((index, entries)) = chosen else { return Ok(()) };
        let other = others.remove(index);
        let taking = Taking { peer, other: &other, plan, session, has_nothing };
        // Another replica may have what this one does not send.
        let arrived = taking.run(&entries, interrupt).await;
        missing.retain(|it| !arrived.paths.contains(&it.path));
    }
}

/// Compares the entries of an earlier copy that were not compared after it.
pub(super) async fn check_rest(
    peer: &Arc<Peer>,
    plan: &Plan,
    session: &Session,
) -> Result<(), CliError> {
    let comparison = Comparison {
        peer: Arc::clone(peer),
        session: session.clone(),
        other: None,
        has_nothing: false,
    };
    let sides = Sides::of(plan, session, None);
    blocking(move || comparison.check_rest(sides)).await
}

/// Runs `work` on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, CliError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| CliError::failed("the comparison ended with a fault"))?
}

/// Entries of the source that the replica lacks according to the record, in the order of a walk. A replica with nothing
/// lacks all entries. Blocks.
fn missing(peer: &Peer, has_nothing: bool) -> Result<Vec<Missing>, CliError> {
    let (site, _) = peer.replica.with_store(|store| store.site())?;
    let mut all = Vec::new();
    for (path, facts) in source_entries(&site)? {
        let is_there =
            !has_nothing && peer.replica.with_store(|store| store.versions(&path))?.has(&facts);
        if !is_there && may_send(&facts) {
            all.push(Missing { path, version: Version::of(&facts) });
        }
    }
    Ok(all)
}

/// Chooses the replica that has most of the missing bytes according to the record, if these are enough. Returns its index,
/// and the entries that it has. Blocks.
fn choose(
    others: &[Arc<Peer>],
    missing: &[Missing],
) -> Result<Option<(usize, Vec<Missing>)>, CliError> {
    let (mut best, mut most) = (None, CATCH_UP_MIN);
    for (index, other) in others.iter().enumerate() {
        let mut entries = Vec::new();
        for it in missing {
            let had = other.replica.with_store(|store| store.versions(&it.path))?.had;
            if had == Some(it.version) {
                entries.push(it.clone());
            }
        }
        let bytes: u64 = entries.iter().filter_map(Missing::file_bytes).sum();
        if bytes >= most {
            (best, most) = (Some((index, entries)), bytes.saturating_add(1));
        }
    }
    Ok(best)
}

/// Splits entries into portions that are compared and copied together.
fn portions(all: &[Missing]) -> impl Iterator<Item = &[Missing]> {
    let (mut entries, mut bytes) = (0, 0);
    // The function is called with each pair of neighbours in turn.
    all.chunk_by(move |before, next| {
        entries += 1;
        bytes += before.file_bytes().unwrap_or(0);
        let is_one =
            entries < ENTRIES_AT_ONCE && bytes + next.file_bytes().unwrap_or(0) <= BYTES_AT_ONCE;
        if !is_one {
            (entries, bytes) = (0, 0);
        }
        is_one
    })
}

/// A replica that takes files from another one.
struct Taking<'a> {
    peer: &'a Arc<Peer>,
    other: &'a Arc<Peer>,
    plan: &'a Plan,
    /// Session with the replica that takes the files.
    session: &'a Session,
    has_nothing: bool,
}

impl Taking<'_> {
    /// Takes these entries, and prints the result.
    async fn run(&self, entries: &[Missing], interrupt: &Interrupt) -> Arrived {
        let (begin, mut arrived) = (Instant::now(), Arrived::default());
        let result = self.take(entries, &mut arrived, interrupt).await;
        let Peer { shown, args, .. } = &**self.peer;
        let text = format!("{shown}: {} has sent {arrived}", self.other.shown);
        match result {
            _ if args.quiet || interrupt.is_seen() => {}
            Ok(()) => {
                output::note(format_args!("{text}, {:.2} s", begin.elapsed().as_secs_f64()));
            }
            // Replicas need not be permitted to dial each other.
            Err(error) if error.is_refusal() && args.verbose == 0 => {}
            Err(error) => output::note(format_args!("{text}, then failed: {error}")),
        }
        arrived
    }

    /// Takes these entries. `arrived` gets those that have arrived, also after a failure.
    async fn take(
        &self,
        entries: &[Missing],
        arrived: &mut Arrived,
        interrupt: &Interrupt,
    ) -> Result<(), CliError> {
        let Peer { args, place, .. } = &**self.other;
        let observer: Arc<dyn UploadObserver> = Arc::new(UploadProgress::new(true, false));
        let dialled =
            dial(&args.channel, &args.ssh, &place.server, interrupt, None, &observer).await;
        let (source, bridge) = dialled.map_err(|error| self.of_other(&error))?;
        let mut result = Ok(());
        for some in portions(entries) {
            result = self.take_some(&source, some, arrived).await;
            if result.is_err() {
                break;
            }
        }
        source.close().await;
        if let Some(bridge) = bridge {
            bridge.close().await;
        }
        result
    }

    fn of_other(&self, error: &CliError) -> CliError {
        CliError::failed(format!("{}: {error}", self.other.shown))
    }

    /// Compares these entries, orders their copy, and compares again.
    async fn take_some(
        &self,
        source: &Session,
        entries: &[Missing],
        arrived: &mut Arrived,
    ) -> Result<(), CliError> {
        let comparison = Comparison {
            peer: Arc::clone(self.peer),
            session: self.session.clone(),
            other: Some((Arc::clone(self.other), source.clone())),
            has_nothing: self.has_nothing,
        };
        let names: Vec<_> = entries.iter().map(|it| it.path.clone()).collect();
        let bytes: u64 = entries.iter().filter_map(Missing::file_bytes).sum();
        let selecting = blocking(move || {
            let sent = comparison.select(&names)?;
            Ok((comparison, sent))
        });
        let limit = LISTING_TIMEOUT + Duration::from_secs(bytes / READ_BYTES_PER_S);
        let selected = tokio::time::timeout(limit, selecting).await;
        let late = |_| CliError::lost(format!("no comparison within {} s", limit.as_secs()));
        let (comparison, sent) = selected.map_err(late)??;
        if sent.is_empty() {
            return Ok(());
        }
        let copied = self.copy(source, &sent).await;
        if copied.as_ref().is_err_and(CliError::is_lost) {
            // No file may arrive after the comparison.
            source.clone().close().await;
        }
        let sides = Sides::of(self.plan, self.session, None);
        // Also after a failure: some entries may have arrived.
        let (checked, result) = blocking(move || comparison.check(sent, sides)).await?;
        checked.into_iter().for_each(|it| arrived.add(it));
        copied.and(result)
    }

    /// Has the replica dial the other one, and waits for the end of the copy. The other one could write any file if it
    /// dialled; a replica that dials accepts only the files that it has requested.
    async fn copy(&self, source: &Session, sent: &[Sent]) -> Result<(), CliError> {
        let Peer { args, options, .. } = &**self.peer;
        let channel = ChannelSettings::of(options).ok_or_else(|| {
            CliError::failed("--carrier ssh carries no data between two replicas")
        })?;
        let order = CopyOrder {
            ticket: String::new(),
            sources: vec![self.other.path_in_text(true)?],
            recursive: true,
            selected: true,
            destination: self.peer.path_in_text(false)?,
            files: FileSettings::of(options),
            channel,
        };
        let dialled = |peer: &Peer, session: &Session| Dialled {
            name: peer.shown.clone(),
            session: session.clone(),
        };
        let pair = Pair {
            args,
            options: options.clone(),
            order,
            source: dialled(self.other, source),
            destination: dialled(self.peer, self.session),
            ends_stalled: true,
        };
        let names = sent.iter().map(|(path, _)| path.clone()).collect();
        let ended = pair.carry_out(Turn::Fetch, Some(&mut Different::named(names))).await?;
        why_incomplete(&ended.done).map_or(Ok(()), |why| Err(CliError::failed(why)))
    }
}

/// Comparison of the writer's entries with those of the two replicas; blocks.
struct Comparison {
    peer: Arc<Peer>,
    session: Session,
    /// The replica that sends, if there is one.
    other: Option<(Arc<Peer>, Session)>,
    has_nothing: bool,
}

impl Comparison {
    /// Selects the entries that the other replica sends, and records their versions.
    fn select(&self, names: &[Vec<u8>]) -> Result<Vec<Sent>, CliError> {
        let Some((other_peer, source)) = &self.other else { return Ok(Vec::new()) };
        let (site, _) = self.peer.replica.with_store(|store| store.site())?;
        let there = match self.has_nothing {
            true => BTreeMap::new(),
            false => self.peer.list(&self.session, &named(names.iter()), false, false)?,
        };
        // Only a pass replaces an entry.
        let free: Vec<_> = names.iter().filter(|path| !there.contains_key(*path)).collect();
        if free.is_empty() {
            return Ok(Vec::new());
        }
        let at_other = other_peer.list(source, &named(free.iter().copied()), true, true)?;
        let mut sent = Vec::new();
        for path in free {
            let Some(other) = at_other.get(path) else { continue };
            let versions = other_peer.replica.with_store(|store| store.versions(path))?;
            let writer = local_facts(&site.directory, path);
            let Some(writer) = writer.filter(|writer| sends(writer, other, versions)) else {
                continue;
            };
            let versions = Versions { had: None, sent: Some(Version::of(&writer)) };
            self.peer.replica.with_store(|store| {
                store.record(path, versions)?;
                store.add_unchecked(path)
            })?;
            sent.push((path.clone(), writer));
        }
        self.peer.replica.with_store(Store::commit)?;
        Ok(sent)
    }

    /// Compares the sent entries with what the replica has now. Returns those that have arrived, and the first error of an
    /// entry that cannot be put right.
    fn check(
        &self,
        sent: Vec<Sent>,
        sides: Sides,
    ) -> Result<(Vec<Sent>, Result<(), CliError>), CliError> {
        let there = self.contents(&sent)?;
        let state = |(path, writer): &Sent, other: Option<&Facts>| {
            Caught::of(writer, there.get(path), other)
        };
        let (arrived, unclear): (Vec<_>, Vec<_>) =
            sent.into_iter().partition(|it| state(it, None) == Caught::Complete);
        let mut result = Ok(());
        if !unclear.is_empty() {
            let named = named(unclear.iter().map(|it| &it.0));
            let list =
                |(other, source): &(Arc<Peer>, Session)| other.list(source, &named, true, true);
            let at_other = self.other.as_ref().and_then(|it| list(it).ok()).unwrap_or_default();
            let guard = Guard::new(self.peer.replica.clone(), sides);
            for it in &unclear {
                let done = there.get(&it.0).map_or(Ok(()), |now| {
                    self.put_right(&it.0, now, state(it, at_other.get(&it.0)), &guard)
                });
                if done.is_ok() {
                    self.peer.replica.with_store(|store| store.remove_unchecked(&it.0))?;
                }
                // Also after a failure of another entry.
                result = result.and(done);
            }
        }
        for (path, _) in &arrived {
            self.peer.replica.with_store(|store| store.remove_unchecked(path))?;
        }
        self.peer.replica.with_store(Store::commit)?;
        Ok((arrived, result))
    }

    /// Compares the entries that were not compared after an earlier copy.
    fn check_rest(&self, sides: Sides) -> Result<(), CliError> {
        let (site, _) = self.peer.replica.with_store(|store| store.site())?;
        let paths = self.peer.replica.with_store(|store| store.unchecked())?;
        if paths.is_empty() {
            return Ok(());
        }
        let (sent, gone): (Vec<_>, Vec<_>) = paths
            .into_iter()
            .map(|path| (local_facts(&site.directory, &path), path))
            .partition(|(writer, _)| writer.is_some());
        // The pass decides about entries that the source has no longer.
        for (_, path) in gone {
            self.peer.replica.with_store(|store| store.remove_unchecked(&path))?;
        }
        let sent = sent.into_iter().filter_map(|(writer, path)| Some((path, writer?))).collect();
        let (_, result) = self.check(sent, sides)?;
        result
    }

    /// Lists the sent entries at the replica with hashes. A file that cannot be read there has no hash.
    fn contents(&self, sent: &[Sent]) -> Result<BTreeMap<Vec<u8>, Facts>, CliError> {
        let mut there =
            self.peer.list(&self.session, &named(sent.iter().map(|it| &it.0)), true, true)?;
        let rest: Vec<_> =
            sent.iter().map(|it| &it.0).filter(|it| !there.contains_key(*it)).collect();
        if !rest.is_empty() {
            let unread = self.peer.list(&self.session, &named(rest.into_iter()), false, false)?;
            there.extend(unread);
        }
        Ok(there)
    }

    /// Removes or renames a file that is not the one of the writer, so that the writer sends its own.
    fn put_right(
        &self,
        path: &[u8],
        now: &Facts,
        state: Caught,
        guard: &Guard,
    ) -> Result<(), CliError> {
        let now = Facts { hash: None, ..*now };
        if state == Caught::Foreign {
            let place = vec![(below(&self.peer.place.path, path), now)];
            let removed = Handle::current().block_on(self.session.remove_compared(place));
            if removed.is_ok_and(|changed| changed.failures.is_empty()) {
                return Ok(());
            }
        }
        if matches!(state, Caught::Foreign | Caught::Unlike) {
            keep(guard, path, &now)?
                .map_err(|failure| CliError::from(sabul::Error::Failed(failure)))?;
        }
        Ok(())
    }
}

fn named<'a>(names: impl Iterator<Item = &'a Vec<u8>>) -> Arc<[Named]> {
    names.map(|path| Named { path: path.clone(), content: NamedContent::Nothing }).collect()
}

/// An entry of the source, a file with its hash. `directory` ends in `/` if its content is the source.
fn local_facts(directory: &[u8], path: &[u8]) -> Option<Facts> {
    let directory = Path::new(OsStr::from_bytes(directory));
    let is_content = directory.as_os_str().as_bytes().ends_with(b"/");
    let above = if is_content { Some(directory) } else { directory.parent() };
    let parts = ReadParts { content: true, ..ReadParts::default() };
    facts_with(&above?.join(OsStr::from_bytes(path)), parts)
}
