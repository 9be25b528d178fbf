//! Comparison of both ends of a copy. The comparison selects the entries to copy while both ends are still listed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use sabul::Session;
use sabul::files::{Facts, Rule, RuleKind, Seen, SeenKind, View};
use sabul::internal::compare::{
    CompareOptions, Comparison, Difference, Named, NamedSet, Selected, Skipped, is_journal, is_part,
};
use sabul::internal::replica::Guarded;
use sabul::internal::{Chmod, Rules};
use sabul::{Failure, FailureCode};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::delta::Deltas;
use super::entries::{
    Destination, Entries, Repeated, changed, difference_of, lookup, tolerant, valid,
};
use super::files_from::checked;
use super::guard::Guard;
use super::listings::Lister;
use super::moves::{self, NameAndFacts};
use super::names::{Names, Watch, is_pattern, join, names_of};
use super::narrow::Narrowing;
use super::plan::{Plan, is_into, source_set};
use super::plan_file::{Planned, Verdict};
use super::sides::Sides;
use super::tops::TopsReader;
use crate::error::CliError;

/// Names that wait for the transfer. Ours: some MB; a smaller comparison ends at once, so that the totals are known.
const NAMES_WAITING: usize = 65_536;
/// Failures of the source that are kept.
const ERRORS_KEPT: usize = 1000;

/// The comparison on its thread.
pub(crate) type Task = JoinHandle<Result<Compared, CliError>>;

/// Counts of a comparison, and the entries that exist only at the destination.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Files that need no copy, and their bytes.
    pub(super) same_files: u64,
    pub(super) same_bytes: u64,
    /// Entries to copy; their files and the bytes of these files.
    pub(super) entries: u64,
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Files that are sent as deltas, and the bytes of these files that are not sent.
    pub(super) deltas: u64,
    pub(super) kept_bytes: u64,
    /// Changed large files that are sent completely because the path is faster than a comparison.
    pub(super) whole: u64,
    /// Files that were renamed at the destination, and their bytes.
    pub(super) moved_files: u64,
    pub(super) moved_bytes: u64,
    /// All entries of the source, without a named directory itself.
    pub(super) source_entries: u64,
    /// Parts of the source that could not be listed.
    pub(super) source_failures: u64,
    /// The first of these, with their reasons.
    pub(super) source_errors: Vec<(Vec<u8>, Failure)>,
    /// All entries of the destination.
    pub(super) destination_entries: u64,
    /// Parts of the destination that could not be listed.
    pub(super) destination_failures: Vec<(Vec<u8>, Failure)>,
    /// Entries that are a directory at one end only. The entry at the destination is removed first.
    pub(super) conflicts: Vec<Vec<u8>>,
    /// The last of these entries; its content is not copied yet.
    blocked: Option<Vec<u8>>,
    /// The destination has the journal of an interrupted transfer.
    pub(super) has_journal: bool,
    /// Changes that cannot be made.
    pub(super) refused: Vec<(Vec<u8>, Failure)>,
    /// Entries of which only the metadata differs. An empty name means the destination.
    pub(super) adjusted: Vec<Adjusted>,
    /// Entries that exist only at the destination, if requested.
    pub(super) extras: Vec<(Vec<u8>, Facts)>,
}

/// An entry of which only the metadata differs.
#[derive(Debug)]
pub(super) struct Adjusted {
    pub(super) path: Vec<u8>,
    /// Metadata at the source.
    pub(super) source: Facts,
    /// Metadata at the destination, by which the destination recognizes the entry.
    pub(super) old: Facts,
}

/// Called for each difference.
pub(super) type Observer = Box<dyn FnMut(&Difference) -> Result<(), CliError> + Send>;

/// Settings of a comparison.
#[derive(Default)]
pub(crate) struct Order {
    pub(super) options: CompareOptions,
    /// Compare as for `sabul sync`: the destination is listed with the rules, and failures of its listing are errors.
    pub(super) is_sync: bool,
    /// Only these entries are listed, and the directories above; sorted as in a walk.
    pub(super) names: Option<Arc<[Named]>>,
    /// Links at the destination count as their targets.
    pub(super) follows_links: bool,
    /// A missing destination is an error, although the source has no entries.
    pub(super) needs_destination: bool,
    /// Keep the entries that exist only at the destination.
    pub(super) keeps_extras: bool,
    pub(super) observer: Option<Observer>,
    /// Only the changes of this plan are made.
    pub(super) planned: Option<Planned>,
    /// Changed files are sent as deltas.
    pub(super) deltas: Option<Deltas>,
    /// Moved files are renamed at the destination.
    pub(super) moves: Option<Sides>,
    /// Changes of others at the destination are protected.
    pub(super) guard: Option<Guard>,
    /// Directories lose rights before their content is copied.
    pub(super) narrowing: Option<Narrowing>,
    /// Metadata of the destination.
    pub(super) tops: Option<Arc<TopsReader>>,
}

impl Order {
    /// Settings with the metadata of the destination; blocks.
    fn options_with_top(&self, runtime: &Handle) -> Result<CompareOptions, CliError> {
        let tops = self.tops.as_ref().map(|tops| runtime.block_on(tops.get())).transpose()?;
        let top = tops.and_then(|tops| tops.destination);
        Ok(CompareOptions { top, ..self.options.clone() })
    }
}

/// Which entries of the source are listed.
pub(super) struct ListedArgs<'a> {
    pub(super) recursive: bool,
    pub(super) archive: bool,
    pub(super) copy_links: bool,
    pub(super) chmod: Chmod,
    pub(super) rules: &'a [Rule],
}

impl ListedArgs<'_> {
    fn view(&self) -> View {
        match (self.archive, self.recursive) {
            (true, _) => View::Archive,
            (_, true) => View::Tree,
            _ => View::Files,
        }
    }
}

/// A comparison in progress.
pub(crate) struct Comparing {
    names: Receiver<Selected>,
    skipped: Arc<Skipped>,
    task: Task,
    watch: Option<Watch>,
}

impl Comparing {
    /// Starts to list both ends. Returns `None` if a copy of these places cannot be compared.
    pub(super) fn start(
        args: &ListedArgs<'_>,
        plan: &Plan,
        session: &Session,
        mut order: Order,
    ) -> Result<Option<Self>, CliError> {
        order.options.rules = compile(args.rules)?;
        let Some(ends) = Ends::of(args, plan, session, &order)? else { return Ok(None) };
        Ok(Some(Self::run(ends, order)))
    }

    /// Starts to list places of two other machines, the sources at the first. Returns `None` if a copy of these places
    /// cannot be compared.
    pub(super) fn between(
        args: &ListedArgs<'_>,
        (source, places): (&Session, &[Vec<u8>]),
        (destination, to): (&Session, &[u8]),
        mut order: Order,
    ) -> Result<Option<Self>, CliError> {
        order.options.rules = compile(args.rules)?;
        let names = names_of(places.iter().map(|place| &place[..]));
        let Some(names) = names.filter(|_| !places.iter().any(|place| is_pattern(place))) else {
            return Ok(None);
        };
        let parts = order.options.parts();
        let lister = |session| Lister { session, parts, names: None };
        let sources =
            lister(source).list(places.to_vec(), args.view(), args.rules.to_vec(), true)?;
        let lister = lister(destination);
        let inside = lister.list(places_below(to, &names), View::Archive, Vec::new(), true)?;
        let destination = lister.destination(to, &names, View::Archive, inside)?;
        let tops = tops_of(&names);
        let walk = if names.len() > 1 { names } else { Vec::new() };
        let ends = Ends::Listings { source: valid(sources), destination, order: walk, tops };
        Ok(Some(Self::run(ends, order)))
    }

    /// Compares on a thread.
    fn run(ends: Ends, order: Order) -> Self {
        let (name_sender, names) = sync_channel(NAMES_WAITING);
        let runtime = Handle::current();
        let skipped = Arc::<Skipped>::default();
        let count = Arc::clone(&skipped);
        let watch = order.guard.as_ref().map(Guard::watch);
        let task = tokio::task::spawn_blocking(move || {
            let compared = ends.compare(&runtime, order, &name_sender, &count);
            count.finish();
            compared
        });
        Self { names, skipped, task, watch }
    }

    /// Returns the names before any is known.
    pub(super) fn names_at_once(self) -> (Option<Names>, Option<Task>) {
        let Self { names: rest, skipped, task, .. } = self;
        (Some(Names::new(None, rest, skipped, None)), Some(task))
    }

    /// Waits for the first name. Returns all names, or `None` if nothing is to be copied. With `is_dry` nothing is
    /// copied.
    pub(super) async fn names(self, is_dry: bool) -> (Option<Names>, Task) {
        let Self { names, skipped, task, watch } = self;
        let waited = tokio::task::spawn_blocking(move || {
            if is_dry {
                names.iter().for_each(drop);
                return None;
            }
            let first = names.recv().ok()?;
            Some(Names::new(Some(first), names, skipped, watch))
        });
        (waited.await.ok().flatten(), task)
    }
}

/// Both ends of a copy.
enum Ends {
    /// Two listings in the order of a walk.
    Listings { source: Entries, destination: Destination, order: Vec<Vec<u8>>, tops: u64 },
    /// A listing of the source, and lookups of single names at this machine: the destination, and whether it is a
    /// directory that takes the sources.
    Lookups { source: Entries, to: OsString, is_into: bool, repeated: Repeated },
}

/// Choice of the entries to copy from the differences.
struct Chooser<'a> {
    order: Order,
    names: &'a SyncSender<Selected>,
    /// Entries that need no copy.
    skipped: &'a Skipped,
    compared: Compared,
    /// New files that the destination may have under another name.
    waiting: Vec<NameAndFacts>,
    /// Permission bits of new directories, for files that are moved there.
    folders: BTreeMap<Vec<u8>, u32>,
    /// The destination has no entries.
    is_first_copy: bool,
    /// The transfer has an entry, or will have one.
    has_begun: bool,
    /// The first entry of the destination is a failure.
    missing: Option<(Vec<u8>, Failure)>,
    /// The destination is a file that the only source replaces.
    is_renamed: bool,
}

impl Ends {
    fn of(
        args: &ListedArgs<'_>,
        plan: &Plan,
        session: &Session,
        order: &Order,
    ) -> Result<Option<Self>, CliError> {
        let (rules, parts) = (args.rules.to_vec(), order.options.parts());
        let view = args.view();
        let lister = Lister { session, parts, names: order.names.as_ref() };
        let named = order.names.as_deref().map(NamedSet::new).transpose();
        let named = named.map_err(|failure| CliError::usage(failure.to_string()))?.map(Arc::new);
        let there = if order.is_sync { rules_there(&rules) } else { Vec::new() };
        let there_view = if order.follows_links { View::Tree } else { View::Archive };
        match plan {
            Plan::Put { sources, destination } => {
                let Some(names) = names_of(sources.iter().map(|source| source.as_bytes())) else {
                    return Ok(None);
                };
                let set = source_set(sources, args.recursive)?
                    .with_rules(compile(&rules)?)
                    .with_archive_mode(args.archive)
                    .with_links_out(args.copy_links)
                    .with_chmod(args.chmod.clone())
                    .with_names(named.clone());
                let (places, own) =
                    (places_below(&destination.path, &names), set.plan_compared(parts));
                let compare = Some(&order.options);
                let (own, inside) = lister.list_beside(places, there_view, there, compare, own)?;
                let source = checked(own, named);
                let destination =
                    lister.destination(&destination.path, &names, there_view, inside)?;
                let tops = tops_of(&names);
                let order = if names.len() > 1 { names } else { Vec::new() };
                Ok(Some(Self::Listings { source, destination, order, tops }))
            }
            // A listing does not follow links that lead out of the sources.
            Plan::Get { .. } if args.copy_links => Ok(None),
            Plan::Get { sources, destination, .. } if order.is_sync => {
                let Some(names) = names_of(sources.iter().map(|source| &source[..])) else {
                    return Ok(None);
                };
                let places = places_below(destination.as_bytes(), &names);
                let places: Vec<OsString> = places.into_iter().map(OsString::from_vec).collect();
                let set = source_set(&places, true)?
                    .with_rules(compile(&there)?)
                    .with_archive_mode(!order.follows_links)
                    .with_names(named.clone());
                // A literal place is listed without opening its files. The listing inserts entries of the destination for
                // equal entries, so nothing else may depend on the metadata of these.
                let is_same = order.guard.is_none() && args.chmod.text().is_empty();
                let (compare, own) = (is_same.then_some(&order.options), set.plan_compared(parts));
                let (inside, source) =
                    lister.list_beside(sources.clone(), view, rules.clone(), compare, own)?;
                let source = changed(checked(valid(source), named), &args.chmod);
                let destination =
                    Destination::local(destination, inside, &names, order.follows_links, parts)?;
                let tops = tops_of(&names);
                Ok(Some(Self::Listings { source, destination, order: Vec::new(), tops }))
            }
            Plan::Get { sources, destination, .. } => {
                let is_into = is_into(sources, destination) || Path::new(destination).is_dir();
                let may_exist = match names_of(sources.iter().map(|source| &source[..])) {
                    Some(names) if is_into && !sources.iter().any(|source| is_pattern(source)) => {
                        names.iter().any(|name| {
                            let path = join(destination.as_bytes(), name);
                            Path::new(OsStr::from_bytes(&path)).symlink_metadata().is_ok()
                        })
                    }
                    _ => Path::new(destination).exists(),
                };
                if !may_exist {
                    return Ok(None);
                }
                let source = lister.list(sources.clone(), view, rules, false)?;
                let source = changed(valid(source), &args.chmod);
                let repeated = Repeated::of(sources);
                Ok(Some(Self::Lookups { source, to: destination.clone(), is_into, repeated }))
            }
        }
    }

    /// Number of sources that are entries themselves.
    fn tops(&self) -> u64 {
        match self {
            Self::Listings { tops, .. } => *tops,
            Self::Lookups { .. } => 0,
        }
    }

    /// Compares, and sends the names of the entries to copy. Ends early if nobody takes the names.
    fn compare(
        self,
        runtime: &Handle,
        order: Order,
        names: &SyncSender<Selected>,
        skipped: &Skipped,
    ) -> Result<Compared, CliError> {
        let _entered = runtime.enter();
        let tops = self.tops();
        let is_sync = order.is_sync;
        let mut options = order.options_with_top(runtime)?;
        let mut chooser = Chooser {
            order,
            names,
            skipped,
            compared: Compared::default(),
            waiting: Vec::new(),
            folders: BTreeMap::new(),
            is_first_copy: true,
            has_begun: false,
            missing: None,
            is_renamed: false,
        };
        match self {
            Self::Listings { source, destination, order, .. } => {
                options.order = order;
                let (destination, is_renamed) = destination.resolve()?;
                chooser.is_renamed = is_renamed;
                let mut destination = tolerant(destination, !is_sync).peekable();
                let first = destination.peek();
                if let Some(Ok(Seen { path, outcome: Err(failure), .. })) = first {
                    chooser.missing = Some((path.clone(), failure.clone()));
                }
                chooser.is_first_copy = !matches!(first, Some(Ok(Seen { outcome: Ok(_), .. })));
                for difference in Comparison::new(options, source, destination) {
                    if !chooser.release() || !chooser.take(difference?)? {
                        break;
                    }
                }
            }
            Self::Lookups { source, to, is_into, mut repeated } => {
                chooser.is_renamed = !is_into;
                for seen in source {
                    let Seen { path, outcome, .. } = seen?;
                    let difference = match repeated.check(&path, outcome) {
                        Err(failure) => Difference::SourceFailed(path, failure),
                        Ok(source) => {
                            let old = lookup(&to, is_into, &path, options.parts());
                            difference_of(&options, path, source, old)
                        }
                    };
                    if !chooser.release() || !chooser.take(difference)? {
                        break;
                    }
                }
            }
        }
        chooser.finish(tops)
    }
}

impl Chooser<'_> {
    /// Takes an item that is no change of an entry. Returns false for other items.
    fn passes_by(&mut self, difference: &Difference) -> bool {
        let order = &mut self.order;
        match difference {
            Difference::Narrow { path, old, mode } => {
                let is_planned = |planned: &Planned| planned.has(path);
                if order.planned.as_ref().is_none_or(is_planned)
                    && let Some(narrowing) = &mut order.narrowing
                {
                    narrowing.add(path.clone(), old, *mode);
                }
                true
            }
            Difference::Unknown(path, failure) => {
                self.compared.source_entries += 1;
                self.compared.destination_failures.push((path.clone(), failure.clone()));
                self.skipped.add(0);
                true
            }
            // `cp` warns of these, and a directory with replicas may receive files all the time.
            Difference::SourceFailed(path, _) if is_journal(path) || is_part(path) => {
                !order.is_sync || order.guard.is_some()
            }
            Difference::DestinationFailed(path, _) if is_journal(path) => {
                self.compared.has_journal = true;
                true
            }
            Difference::DestinationFailed(path, _) => is_part(path),
            _ => false,
        }
    }

    /// Takes the next difference; returns false if nobody takes the names.
    fn take(&mut self, difference: Difference) -> Result<bool, CliError> {
        if self.passes_by(&difference) {
            return Ok(true);
        }
        let Self { order, compared, skipped, .. } = self;
        if let Some(planned) = &mut order.planned {
            let verdict = planned.verdict(&difference);
            if verdict != Verdict::Permitted {
                compared.leave(&difference, verdict);
                skipped.add(difference.source_size().unwrap_or(0));
                return Ok(true);
            }
        }
        let difference = match &mut order.guard {
            Some(guard) => match guard.check(difference)? {
                Guarded::CarriedOut(difference) => difference,
                Guarded::Left(difference) => {
                    compared.leave(&difference, Verdict::Unplanned);
                    return Ok(true);
                }
                Guarded::Refused(difference, failure) => {
                    compared.leave(&difference, Verdict::Unplanned);
                    skipped.add(difference.source_size().unwrap_or(0));
                    compared.refuse(&difference, failure);
                    return Ok(true);
                }
            },
            None => difference,
        };
        if let Some(observer) = &mut order.observer {
            observer(&difference)?;
        }
        let size = difference.source_size();
        let copied = match &difference {
            Difference::Copy { source, old, .. } => Some((*source, *old)),
            _ => None,
        };
        let name = match compared.conflict(&difference, order.is_sync, order.keeps_extras) {
            true => None,
            false => compared.add(difference, order.is_sync, order.keeps_extras),
        };
        if let (Some(narrowing), Some(adjusted)) =
            (&mut order.narrowing, compared.adjusted.last_mut())
        {
            adjusted.old.mode = narrowing.take(&adjusted.path).unwrap_or(adjusted.old.mode);
        }
        if let (None, Some(size)) = (&name, size) {
            skipped.add(size);
        }
        let Some(name) = name else { return Ok(true) };
        Ok(self.select(name, copied))
    }

    /// Sends the name of an entry to copy. `copied`: the source and the object that the entry replaces. Returns false if
    /// nobody takes the names.
    fn select(&mut self, name: Vec<u8>, copied: Option<(Facts, Option<Facts>)>) -> bool {
        if let (Some(guard), Some((_, old))) = (&self.order.guard, copied) {
            guard.may_replace(&name, old);
        }
        match copied {
            Some((source, None)) if self.may_be_moved(&source) => {
                self.waiting.push((name, source));
                true
            }
            Some((source, None)) => self.send_new(name, &source),
            Some((source, Some(old))) => self.send_changed(name, &source, &old),
            None => self.send(Selected::Name(name)),
        }
    }

    /// Whether a new file waits for the end of the comparison, because the destination may have the file elsewhere.
    fn may_be_moved(&self, source: &Facts) -> bool {
        self.order.moves.is_some()
            && !self.is_first_copy
            && self.waiting.len() < moves::WAITING_MAX
            && source.kind == SeenKind::File
            && source.size >= moves::MOVED_FROM
    }

    /// Sends an entry to the transfer; returns false if nobody takes it.
    fn send(&mut self, selected: Selected) -> bool {
        let Some(narrowing) = &mut self.order.narrowing else {
            return self.names.send(selected).is_ok();
        };
        narrowing.hold(selected);
        // The transfer opens while the entry waits.
        let is_open = std::mem::replace(&mut self.has_begun, true);
        (is_open || self.names.send(Selected::NotYet).is_ok()) && self.release()
    }

    /// Sends the entries before which all directories have lost rights; returns false if nobody takes them.
    fn release(&mut self) -> bool {
        let held = self.order.narrowing.iter_mut().flat_map(|it| std::iter::from_fn(|| it.next()));
        held.into_iter().all(|selected| self.names.send(selected).is_ok())
    }

    /// Sends the name of a new entry, and records a directory for moved files; returns false if nobody takes the names.
    fn send_new(&mut self, name: Vec<u8>, source: &Facts) -> bool {
        if source.kind == SeenKind::Directory
            && self.order.moves.is_some()
            && self.folders.len() < moves::WAITING_MAX
        {
            // With the metadata of the source, the directory is private until its owner is set.
            let mode = if self.order.options.modes { 0o700 } else { source.mode };
            self.folders.insert(name.clone(), mode);
        }
        self.send(Selected::Name(name))
    }

    /// Sends the name of a file that exists at the destination; returns false if nobody takes the names.
    fn send_changed(&mut self, name: Vec<u8>, source: &Facts, old: &Facts) -> bool {
        if self.order.keeps_extras {
            self.compared.set_time_later(&name, source, old);
        }
        let delta = self.order.deltas.as_mut().and_then(|deltas| deltas.find(&name, source, old));
        let selected = match delta {
            Some((delta, kept)) => {
                self.compared.deltas += 1;
                self.compared.kept_bytes += kept;
                self.skipped.add_bytes(kept);
                Selected::Changed(name, delta)
            }
            None => Selected::Name(name),
        };
        self.send(selected)
    }

    /// Renames moved files, and sends the names of the other new files.
    fn finish(mut self, tops: u64) -> Result<Compared, CliError> {
        self.order.narrowing.iter_mut().for_each(Narrowing::carry_out);
        self.release();
        let mut waiting = std::mem::take(&mut self.waiting);
        // The source may still have an entry that was not listed.
        let is_listed = self.compared.source_failures == 0;
        if let Some(sides) = self.order.moves.as_ref().filter(|_| is_listed) {
            let extras = &mut self.compared.extras;
            for moved in moves::carry_out(sides, &self.folders, &mut waiting, extras) {
                self.compared.moved(moved.source.size);
                self.skipped.add(moved.source.size);
                self.compared.adjusted.push(moved);
            }
        }
        for (name, _) in waiting {
            if self.names.send(Selected::Name(name)).is_err() {
                break;
            }
        }
        let Self { mut compared, order, is_renamed, missing, .. } = self;
        if is_renamed {
            compared.adjusted.iter_mut().for_each(|adjusted| adjusted.path.clear());
        }
        order.guard.as_ref().map_or(Ok(()), Guard::finish)?;
        if order.needs_destination && compared.source_entries == 0 {
            compared.destination_failures.extend(missing);
        }
        compared.source_entries = compared.source_entries.saturating_sub(tops);
        compared.whole = order.deltas.map_or(0, |deltas| deltas.whole);
        if let Some(planned) = &order.planned {
            compared.refused.extend(planned.missing());
        }
        Ok(compared)
    }
}

impl Compared {
    /// Whether an entry cannot be copied because it, or its directory, is a directory at one end only.
    fn conflict(&mut self, difference: &Difference, is_sync: bool, removes: bool) -> bool {
        let Difference::Copy { path, source, old } = difference else { return false };
        let is_blocked = |blocked: &Vec<u8>| {
            path.strip_prefix(&blocked[..]).is_some_and(|rest| rest.starts_with(b"/"))
        };
        if self.blocked.as_ref().is_some_and(is_blocked) {
            self.source_entries += 1;
            return true;
        }
        let is_directory = |facts: &Facts| facts.kind == SeenKind::Directory;
        let Some(old) = old.filter(|old| is_sync && is_directory(old) != is_directory(source))
        else {
            return false;
        };
        self.source_entries += 1;
        self.destination_entries += 1;
        self.blocked = Some(path.clone());
        if removes {
            self.conflicts.push(path.clone());
            self.extras.push((path.clone(), old));
        } else {
            let text = "a directory at one end and none at the other; --delete replaces the entry";
            let failure = Failure::new(FailureCode::Unwritable, text);
            self.destination_failures.push((path.clone(), failure));
        }
        true
    }

    /// Counts a new file that was renamed instead of copied.
    fn moved(&mut self, bytes: u64) {
        self.moved_files += 1;
        self.moved_bytes += bytes;
        self.entries -= 1;
        self.files -= 1;
        self.bytes -= bytes;
    }

    /// Counts a difference that is left as it is.
    fn leave(&mut self, difference: &Difference, verdict: Verdict) {
        let (path, is_source, is_old) = match difference {
            Difference::Copy { path, old, .. } => (path, true, old.is_some()),
            Difference::Adjust { path, .. } | Difference::Same { path, .. } => (path, true, true),
            Difference::Extra { path, .. } => (path, false, true),
            _ => return,
        };
        self.source_entries += u64::from(is_source);
        self.destination_entries += u64::from(is_old);
        if let Verdict::Changed(why) = verdict {
            let text = format!("{why}; make a new plan");
            self.refused.push((path.clone(), Failure::new(FailureCode::Changed, text)));
        }
    }

    /// Records a directory that is copied although it exists. A removal changes its time after the copy, which has set all
    /// other metadata.
    fn set_time_later(&mut self, path: &[u8], source: &Facts, old: &Facts) {
        if [source.kind, old.kind] == [SeenKind::Directory; 2] {
            let Facts { owner, group, attributes, .. } = *source;
            let old = Facts { mode: source.mode & 0o1777, owner, group, attributes, ..*old };
            self.adjusted.push(Adjusted { path: path.to_vec(), source: *source, old });
        }
    }

    /// Records that a copy is not possible.
    fn refuse(&mut self, difference: &Difference, failure: Failure) {
        if let Difference::Copy { path, .. } = difference {
            self.refused.push((path.clone(), failure));
        }
    }

    /// Counts an entry that exists at both ends with the same content.
    fn same(&mut self, source: &Facts) {
        self.source_entries += 1;
        self.destination_entries += 1;
        if source.kind == SeenKind::File {
            self.same_files += 1;
            self.same_bytes += source.size;
        }
    }

    /// Counts a difference. Returns the name of an entry to copy.
    fn add(
        &mut self,
        difference: Difference,
        is_sync: bool,
        keeps_extras: bool,
    ) -> Option<Vec<u8>> {
        match difference {
            Difference::Copy { path, source, old } => {
                self.source_entries += 1;
                self.destination_entries += u64::from(old.is_some());
                self.entries += 1;
                if source.kind == SeenKind::File {
                    self.files += 1;
                    self.bytes += source.size;
                }
                Some(path)
            }
            Difference::Same { is_there: false, .. } => {
                self.source_entries += 1;
                None
            }
            // A copy sends a directory again, with all its metadata.
            Difference::Adjust { path, source, .. }
                if !is_sync && source.kind != SeenKind::File =>
            {
                self.source_entries += 1;
                self.destination_entries += 1;
                self.entries += 1;
                Some(path)
            }
            Difference::Same { source, .. } => {
                self.same(&source);
                None
            }
            Difference::Adjust { path, source, old } => {
                self.same(&source);
                self.adjusted.push(Adjusted { path, source, old });
                None
            }
            Difference::Extra { path, old } => {
                self.destination_entries += 1;
                self.extras.extend(keeps_extras.then_some((path, old)));
                None
            }
            Difference::Narrow { .. } | Difference::Unknown(..) => None,
            Difference::SourceFailed(path, failure) => {
                self.source_failures += 1;
                if self.source_errors.len() < ERRORS_KEPT {
                    self.source_errors.push((path, failure));
                }
                None
            }
            Difference::DestinationFailed(path, failure) => {
                // The source has no such entry, so that without a removal nothing depends on it.
                if keeps_extras {
                    self.destination_failures.push((path, failure));
                }
                None
            }
            Difference::Disordered(path) => {
                let text = "its directory changed during the listing, or has too many names";
                let failure = Failure::new(FailureCode::Unreadable, text);
                self.destination_failures.push((path, failure));
                self.source_failures += 1;
                None
            }
        }
    }
}

/// Rules for the listing of the destination: those before the rule files of the source. The comparison applies the rule
/// files and the rules after them.
fn rules_there(rules: &[Rule]) -> Vec<Rule> {
    rules.iter().take_while(|rule| rule.kind != RuleKind::Files).cloned().collect()
}

fn places_below(to: &[u8], names: &[Vec<u8>]) -> Vec<Vec<u8>> {
    names.iter().map(|name| join(to, name)).collect()
}

fn tops_of(names: &[Vec<u8>]) -> u64 {
    names.iter().filter(|name| !name.is_empty()).count() as u64
}

fn compile(rules: &[Rule]) -> Result<Rules, CliError> {
    Rules::new(rules).map_err(|failure| CliError::usage(failure.to_string()))
}
