//! `sabul sync`: settings of the comparison, lines about changes, and changes after the copy.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sabul::files::{Expected, Facts, Identity, NewMetadata, Owner, SeenKind, View};
use sabul::internal::compare::{
    CompareOptions, Difference, ListOptions, LocalTree, Named, ReadParts, RenameOf,
    differing_attributes, facts_of, mode_of, recognized,
};
use sabul::internal::replica::Removal;
use sabul::{Failure, FailureCode, Report, Session};
use sabul_content::Printable;

use super::compare::{Compared, Observer, Order};
use super::guard::ReplicaStore;
use super::names::{below, join};
use super::narrow::{closed_last, narrowed};
use super::plan::Plan;
use super::plan_file::{PlanWriter, Planned};
use super::portions::{CHANGES_AT_ONCE, in_portions};
use super::sides::local_directory;
use super::tops::{Tops, TopsReader, look_up};
use crate::args::{CopyArgs, SyncArgs};
use crate::error::CliError;
use crate::output;

/// Directories whose permission bits one request asks for.
const LOOKUPS_AT_ONCE: usize = 500;
/// Permission bits of a directory for which no other bits are known.
const PRIVATE: u32 = 0o700;
/// Files of one name that the trash keeps.
const KEPT_OF_A_NAME: u32 = 1000;

/// Settings of `sabul sync`.
#[derive(Debug)]
pub(crate) struct Sync {
    options: CompareOptions,
    delete: bool,
    delete_limit: Option<u64>,
    trash: Option<PathBuf>,
    whole_file: bool,
    has_rules: bool,
    prints: bool,
    /// Only these entries are compared.
    names: Option<Arc<[Named]>>,
    /// The plan file to write.
    writer: Option<Arc<Mutex<Option<PlanWriter>>>>,
    /// The plan to carry out.
    planned: Option<Planned>,
    /// The replica whose own changes are kept.
    replica: Option<ReplicaStore>,
}

/// Selection of the entries to copy.
#[derive(Debug)]
pub(crate) struct Selecting {
    /// Everything is copied.
    pub(super) is_all: bool,
    /// Nothing is changed.
    pub(crate) is_dry: bool,
    /// Settings of `sabul sync`.
    pub(crate) sync: Option<Sync>,
}

impl Selecting {
    /// Settings of the comparison; `None` if everything is copied.
    pub(super) fn order(&self, args: &CopyArgs, plan: &Plan) -> Option<Order> {
        // A source that still receives cannot be listed.
        if args.queued.passed_on {
            return None;
        }
        let Some(sync) = &self.sync else {
            return (!self.is_all).then(|| Order::of_copy(args));
        };
        let is_put = plan.is_put();
        let options = sync.options.clone();
        let writer = sync.writer.clone();
        let print: Observer = Box::new(move |difference| {
            if let Some(writer) = &writer
                && let Ok(mut writer) = writer.lock()
                && let Some(writer) = &mut *writer
            {
                writer.add(difference, options.removes)?;
            }
            match line(difference, &options, is_put) {
                Some(line) => output::print_line(line),
                None => Ok(()),
            }
        });
        Some(Order {
            options: sync.options.clone(),
            is_sync: true,
            names: sync.names.clone(),
            keeps_extras: sync.delete,
            observer: (sync.prints || args.dry_run).then_some(print),
            planned: sync.planned.clone(),
            ..Order::default()
        })
    }
}

impl Order {
    /// Settings of the comparison of a copy.
    fn of_copy(args: &CopyArgs) -> Self {
        let is_kept = args.preserve || args.archive;
        let options = CompareOptions {
            content: args.checksum,
            modes: is_kept,
            owners: args.archive && is_root(),
            attributes: args.archive,
            directories: true,
            copies_disordered: true,
            ..CompareOptions::default()
        };
        Self { options, ..Self::default() }
    }
}

impl Sync {
    /// Reads the settings of the command line.
    pub(super) fn of(args: &SyncArgs) -> Result<Self, CliError> {
        let copy = &args.copy;
        if copy.json && copy.dry_run {
            return Err(CliError::usage("sync -n prints lines; leave out --json"));
        }
        if args.itemize_changes && (copy.json || copy.json_lines) {
            return Err(CliError::usage("-i prints lines; leave out --json and --json-lines"));
        }
        let writer = args.plan.as_ref().map(|path| PlanWriter::new(path, args)).transpose()?;
        let writer = writer.map(|writer| Arc::new(Mutex::new(Some(writer))));
        let is_kept = copy.preserve || copy.archive;
        let options = CompareOptions {
            size_only: args.size_only,
            content: copy.checksum,
            keep_newer: args.update,
            existing: args.existing,
            ignore_existing: args.ignore_existing,
            window_ns: i64::from(args.modify_window) * 1_000_000_000,
            modes: is_kept,
            owners: copy.archive && is_root(),
            attributes: copy.archive,
            directories: true,
            removes: args.delete,
            extras: args.delete,
            keeps_unknown: args.update || args.existing || args.ignore_existing,
            ..CompareOptions::default()
        };
        Ok(Self {
            options,
            delete: args.delete,
            delete_limit: args.delete_limit,
            trash: args.trash.clone(),
            whole_file: args.whole_file,
            has_rules: !copy.rules.0.is_empty(),
            prints: args.itemize_changes,
            names: args.names.as_deref().map(Arc::from),
            writer,
            planned: None,
            replica: None,
        })
    }

    /// Whether the transfer has to make the destination although no entry needs a copy.
    pub(super) fn makes_top(&self, tops: &Tops) -> bool {
        !self.options.existing
            && tops.source.is_some()
            && matches!(tops.expected, Expected::New { .. })
    }

    /// Directory for removed files.
    pub(super) fn trash(&self) -> Option<&Path> {
        self.trash.as_deref()
    }

    /// Whether only named entries are compared.
    pub(super) const fn has_names(&self) -> bool {
        self.names.is_some()
    }

    /// Whether only the changed ranges of large files are sent.
    pub(super) const fn has_deltas(&self) -> bool {
        !self.whole_file
    }

    /// Whether moved files are searched: only if the old names are removed.
    pub(super) const fn has_moves(&self) -> bool {
        self.delete
    }

    /// Makes only the changes of this plan.
    pub(super) fn with_plan(mut self, planned: Planned) -> Self {
        self.options.keeps_unknown = true;
        Self { planned: Some(planned), ..self }
    }

    /// Keeps the changes of this replica. A directory with kept entries stays.
    pub(super) fn with_replica(mut self, replica: ReplicaStore) -> Self {
        self.options.keeps_unknown = true;
        Self { replica: Some(replica), has_rules: true, ..self }
    }

    /// The replica whose own changes are kept.
    pub(super) fn replica(&self) -> Option<ReplicaStore> {
        self.replica.clone()
    }

    /// Completes the plan file, if requested.
    pub(super) fn finish_plan(&self) -> Result<(), CliError> {
        let writer = self.writer.as_ref().and_then(|writer| writer.lock().ok()?.take());
        writer.map_or(Ok(()), PlanWriter::finish)
    }

    /// Whether entries at the destination can stay although they differ.
    pub(super) const fn keeps_differences(&self) -> bool {
        let CompareOptions { size_only, keep_newer, existing, ignore_existing, .. } = self.options;
        size_only || keep_newer || existing || ignore_existing
    }

    /// Checks that the entries that exist only at the destination may be removed.
    pub(super) fn check(&self, report: &Report, compared: &Compared) -> Result<(), CliError> {
        if !self.delete || compared.extras.is_empty() {
            return Ok(());
        }
        let removal = Removal {
            extras: compared.extras.len() as u64,
            failures: compared.source_failures.max(report.entries_failed),
            source_entries: compared.source_entries,
            destination_entries: compared.destination_entries,
            limit: self.delete_limit,
        };
        removal.check().map_err(|refused| CliError::failed(refused.to_string()))
    }

    /// Completes a copy: removes extra entries, and sets metadata. Returns the number of removed entries.
    pub(super) async fn complete(
        &self,
        plan: &Plan,
        session: &Session,
        report: &Report,
        compared: &Compared,
        tops: &Tops,
    ) -> Result<u64, CliError> {
        let id = tops.destination.or(report.destination).and_then(|found| found.id);
        let target = Target::of(plan, session, self.has_rules, [id, tops.trash]);
        let removed = self.remove(&target, report, compared).await;
        let is_changed = removed.as_ref().is_ok_and(|removed| *removed > 0)
            || compared.entries + compared.moved_files > 0
            || compared.has_journal;
        let is_equal = |source: &Facts| {
            tops.destination.is_some_and(|destination| self.options.is_same(source, &destination))
        };
        let top = tops.source.filter(|source| is_changed || !is_equal(source));
        // The transfer has made a new directory.
        let top = top.zip(tops.destination.or(report.destination));
        let mut adjusted = self.adjust(&target, compared, top).await;
        if let (Err(_), Some((source, seen))) = (&adjusted, top)
            && let Some(now) = target.changed_top(&seen).await
        {
            adjusted = self.adjust(&target, compared, Some((source, now))).await;
        }
        removed.and_then(|removed| adjusted.map(|()| removed))
    }

    /// Removes the rights that the destination itself loses, before content is copied there. A failure shows itself when
    /// its other metadata is set. The receiver makes a new destination private.
    pub(super) async fn narrow_top(
        &self,
        plan: &Plan,
        session: &Session,
        reader: &TopsReader,
    ) -> Result<(), CliError> {
        let tops = reader.get().await?;
        let Some((source, old)) = tops.source.zip(tops.destination) else { return Ok(()) };
        let Some(mode) = self.options.narrowed(&source, &old) else { return Ok(()) };
        let target = Target::of(plan, session, false, [tops.id(), None]);
        if target.set_metadata(vec![narrowed(Vec::new(), &old, mode)], 1).await.is_ok() {
            reader.narrowed(mode);
        }
        Ok(())
    }

    /// Removes the entries that exist only at the destination. Returns the number of removed entries.
    async fn remove(
        &self,
        target: &Target<'_>,
        report: &Report,
        compared: &Compared,
    ) -> Result<u64, CliError> {
        let extras = &compared.extras;
        if !self.delete || extras.is_empty() {
            return Ok(0);
        }
        self.check(report, compared)?;
        if let Some(trash) = &self.trash {
            target.keep(extras, trash).await?;
        }
        target.remove(extras, self.trash.is_some()).await
    }

    /// Sets the metadata of existing entries, and of the directory itself if its content was synchronised. The destination
    /// changes only entries with the metadata that was compared.
    async fn adjust(
        &self,
        target: &Target<'_>,
        compared: &Compared,
        top: Option<(Facts, Facts)>,
    ) -> Result<(), CliError> {
        let top = top.iter().map(|(facts, seen)| (Vec::new(), facts, *seen));
        let entries = compared.adjusted.iter();
        let entries = entries.map(|it| (it.path.clone(), &it.source, it.old));
        let change = |(path, facts, seen): (Vec<u8>, &Facts, Facts)| NewMetadata {
            path,
            mode: self.options.modes.then_some(mode_of(facts, Some(&seen)) & 0o1777),
            modified_ns: facts.modified_ns.filter(|_| !self.options.size_only),
            owner: self.options.owners.then_some(Owner { user: facts.owner, group: facts.group }),
            seen: recognized(facts, &seen),
        };
        target.set_metadata(entries.chain(top).map(change).collect(), CHANGES_AT_ONCE).await
    }
}

impl<'a> Target<'a> {
    /// The destination, and the directory for removed files, are recognized by these identities.
    pub(super) fn of(
        plan: &Plan,
        session: &'a Session,
        has_rules: bool,
        ids: [Option<Identity>; 2],
    ) -> Self {
        let [id, trash_id] = ids;
        let to = match plan {
            Plan::Put { destination, .. } => destination.path.clone(),
            Plan::Get { destination, .. } => destination.as_bytes().to_vec(),
        };
        Self { session: plan.is_put().then_some(session), to, has_rules, id, trash_id }
    }
}

/// The destination, for changes of names and metadata.
pub(super) struct Target<'a> {
    /// The other machine, if it has the destination.
    session: Option<&'a Session>,
    to: Vec<u8>,
    /// Some entries can be excluded.
    has_rules: bool,
    id: Option<Identity>,
    trash_id: Option<Identity>,
}

impl Target<'_> {
    /// Removes these entries, the content of a directory before the directory. With `is_moved`, only directories are
    /// left. Returns the number of removed entries.
    async fn remove(&self, extras: &[(Vec<u8>, Facts)], is_moved: bool) -> Result<u64, CliError> {
        let is_directory = |facts: &Facts| facts.kind == SeenKind::Directory;
        let (mut left, others): (Vec<_>, Vec<_>) =
            extras.iter().rev().partition(|(_, facts)| !is_directory(facts));
        let mut removed = 0;
        if is_moved {
            removed = left.len() as u64;
            left.clear();
        }
        // Files do not wait for each other, so several requests are on their way at the same time.
        let files = left.len();
        left.extend(others);
        let (files, directories) = left.split_at(files);
        let mut failures = Vec::new();
        for (entries, at_once) in [(files, CHANGES_AT_ONCE), (directories, 1)] {
            let (count, failed) = self.remove_all(entries, at_once).await?;
            removed += count;
            failures.extend(failed);
        }
        // A directory with an excluded entry stays.
        failures
            .retain(|(facts, _, is_filled)| !(self.has_rules && *is_filled && is_directory(facts)));
        match failures.first() {
            None => Ok(removed),
            Some((_, first, _)) => Err(CliError::failed(format!(
                "{} of {} extra entries were not removed: {first}",
                failures.len(),
                extras.len()
            ))),
        }
    }

    /// Removes entries by so many requests at the same time. Returns the number of removed entries, and the others with
    /// the reason, and whether the reason is the content of a directory.
    async fn remove_all(
        &self,
        entries: &[&(Vec<u8>, Facts)],
        at_once: usize,
    ) -> Result<(u64, Vec<(Facts, String, bool)>), CliError> {
        let (mut removed, mut failures) = (0, Vec::new());
        let failed = |facts: Facts, failure: Failure| {
            (facts, failure.message, failure.code == FailureCode::Refused)
        };
        let Some(session) = self.session else {
            // The other machine chose the names, and other users can change directories meanwhile.
            let tree = self.local_tree()?;
            for (path, seen) in entries {
                match tree.remove(path, seen) {
                    Ok(()) => removed += 1,
                    Err(failure) => failures.push(failed(*seen, failure)),
                }
            }
            return Ok((removed, failures));
        };
        let place = |(path, facts): &&(Vec<u8>, Facts)| {
            (below(&self.to, path), Facts { hash: None, ..*facts })
        };
        let size = |(path, _): &&(Vec<u8>, Facts)| below(&self.to, path).len();
        let request = |now: &[&(Vec<u8>, Facts)]| {
            let (session, places) = (session.clone(), now.iter().map(place).collect());
            async move { session.remove_compared(places).await }
        };
        let changed = in_portions(entries, at_once, size, request).await?;
        for (index, failure) in changed.failures {
            if let Some((_, facts)) = entries.get(index) {
                failures.push(failed(*facts, failure));
            }
        }
        Ok((changed.names, failures))
    }

    /// Sets metadata, after all other changes; paths are relative to the destination. Directories that their owner may not
    /// search are last, each after its content; the others are in so many requests at the same time.
    pub(super) async fn set_metadata(
        &self,
        changes: Vec<NewMetadata>,
        at_once: usize,
    ) -> Result<(), CliError> {
        let (mut changes, open) = closed_last(changes);
        let mut failures = Vec::new();
        match self.session {
            Some(session) => {
                for change in &mut changes {
                    change.path = below(&self.to, &change.path);
                }
                let (open, closed) = changes.split_at(open);
                for (changes, at_once) in [(open, at_once), (closed, 1)] {
                    let request = |now: &[NewMetadata]| {
                        let (session, now) = (session.clone(), now.to_vec());
                        async move { session.set_metadata(now).await }
                    };
                    let changed =
                        in_portions(changes, at_once, |it| it.path.len(), request).await?;
                    failures.extend(changed.failures.into_iter().map(|(_, failure)| failure));
                }
            }
            None if changes.is_empty() => {}
            None => {
                // The other machine chose the names.
                let tree = self.local_tree()?;
                failures.extend(changes.iter().filter_map(|it| tree.set_metadata(it).err()));
            }
        }
        match failures.first() {
            None => Ok(()),
            Some(first) => Err(CliError::failed(format!(
                "the metadata of {} of {} entries was not set: {first}",
                failures.len(),
                changes.len()
            ))),
        }
    }

    /// Metadata of a private destination that another copy has changed since it was seen. A new destination is private, and
    /// each copy into it sets the metadata of its own source.
    async fn changed_top(&self, seen: &Facts) -> Option<Facts> {
        let place = if self.to.is_empty() { b"." } else { &self.to[..] };
        let now = match self.session {
            Some(session) => look_up(session, place, ReadParts::default()).await.ok()??.ok()?,
            None => facts_of(&local_directory(&self.to).join("."), false)?,
        };
        let is_changed = [now.mode, now.owner, now.group] != [seen.mode, seen.owner, seen.group];
        let is_new = seen.mode & 0o777 == PRIVATE && now.id == seen.id && is_changed;
        is_new.then_some(Facts { attributes: seen.attributes, ..now })
    }

    /// Moves files and links below a directory of the destination's machine.
    async fn keep(&self, extras: &[(Vec<u8>, Facts)], trash: &Path) -> Result<(), CliError> {
        let folders = self.modes_of(folders_of(extras)).await?;
        let place = trash.as_os_str().as_bytes();
        if let Some(above) = parent(place).filter(|above| !above.is_empty()) {
            // The directories above stand for none of the destination. A failure shows itself in the next step.
            let _ = self.make_folder(above.to_vec(), 0o777, None).await;
        }
        let top = folders.get(&b""[..]).copied();
        self.make_folder(place.to_vec(), top.unwrap_or(PRIVATE), None).await?;
        let trash = Trash::open(self, trash).await?;
        for (folder, mode) in folders.iter().filter(|(folder, _)| !folder.is_empty()) {
            trash.make_folder_instead(self, folder, *mode).await?;
        }
        for (path, seen) in extras.iter().filter(|(_, facts)| facts.kind != SeenKind::Directory) {
            trash.keep_file(path, &Facts { hash: None, ..*seen }).await?;
        }
        Ok(())
    }

    /// Completes the permission bits of directories of the destination. A directory that cannot be read counts as
    /// private.
    async fn modes_of(
        &self,
        folders: BTreeMap<&[u8], Option<u32>>,
    ) -> Result<BTreeMap<Vec<u8>, u32>, CliError> {
        let unknown = folders.iter().filter(|(_, mode)| mode.is_none());
        let unknown: Vec<&[u8]> = unknown.map(|(folder, _)| *folder).collect();
        let place = |folder: &&[u8]| match (*folder, &self.to[..]) {
            (b"", b"") => b".".to_vec(),
            (b"", to) => [to, b"/."].concat(),
            (folder, to) => join(to, folder),
        };
        let mut found = BTreeMap::new();
        for some in unknown.chunks(LOOKUPS_AT_ONCE) {
            let places = some.iter().map(place);
            let Some(session) = self.session else {
                let here = |place: Vec<u8>| facts_of(Path::new(OsStr::from_bytes(&place)), false);
                found.extend(some.iter().copied().zip(places.map(here)));
                continue;
            };
            let options = ListOptions { literal: true, ..ListOptions::default() };
            let mut listing = session.list_for_copy(places.collect(), View::Itself, options)?;
            for folder in some {
                // The answer has one item for each place.
                let Some(seen) = listing.next().await? else { break };
                found.insert(*folder, seen.outcome.ok());
            }
        }
        let is_folder = |facts: &Facts| facts.kind == SeenKind::Directory;
        let looked_up = |folder: &[u8]| found.get(folder).copied().flatten().filter(is_folder);
        let mode = |folder: &[u8]| looked_up(folder).map_or(PRIVATE, |facts| facts.mode);
        let all = folders.into_iter();
        Ok(all.map(|(it, known)| (it.to_vec(), known.unwrap_or_else(|| mode(it)))).collect())
    }

    /// Opens the destination on this machine.
    fn local_tree(&self) -> Result<LocalTree, CliError> {
        Ok(LocalTree::open(&local_directory(&self.to), self.id).map_err(sabul::Error::from)?)
    }

    /// Makes a directory and the missing ones above. New directories get these permission bits, less the umask.
    /// With `below`, the directory before the mark of the path must have this identity at the other machine.
    async fn make_folder(
        &self,
        folder: Vec<u8>,
        mode: u32,
        below: Option<Identity>,
    ) -> Result<(), CliError> {
        let fail = |failure: Failure| Err(CliError::from(sabul::Error::from(failure)));
        match self.session {
            Some(session) => {
                let changed = session.make_folders_as(vec![folder], mode, below).await?;
                changed.failures.into_iter().next().map_or(Ok(()), |(_, failure)| fail(failure))
            }
            None => {
                let mut options = fs::DirBuilder::new();
                let options = options.recursive(true).mode(mode & 0o777 | 0o700);
                options.create(OsStr::from_bytes(&folder)).map_err(|error| {
                    CliError::failed(format!("cannot make '{}': {error}", Printable(&folder)))
                })
            }
        }
    }
}

/// Directory on the destination's machine that keeps removed files. No link below the directory or the destination is
/// followed.
enum Trash<'a> {
    Here { destination: LocalTree, trash: LocalTree },
    There { session: &'a Session, destination: &'a [u8], trash: Vec<u8>, id: Option<Identity> },
}

impl<'a> Trash<'a> {
    /// Opens an existing directory. A directory that was there at the start must be the same.
    async fn open(target: &'a Target<'_>, trash: &Path) -> Result<Self, CliError> {
        Ok(match target.session {
            Some(session) => {
                let trash = trash.as_os_str().as_bytes().to_vec();
                let id = match target.trash_id {
                    None => {
                        let found = look_up(session, &trash, ReadParts::default()).await?;
                        found.and_then(Result::ok).and_then(|it| it.id)
                    }
                    id => id,
                };
                Self::There { session, destination: &target.to, trash, id }
            }
            None => Self::Here {
                destination: target.local_tree()?,
                trash: LocalTree::open(trash, target.trash_id).map_err(sabul::Error::from)?,
            },
        })
    }

    async fn make_folder(
        &self,
        target: &Target<'_>,
        folder: &[u8],
        mode: u32,
    ) -> Result<(), CliError> {
        match self {
            Self::Here { trash, .. } => Ok(trash.make(folder, mode).map_err(sabul::Error::from)?),
            Self::There { trash, id, .. } => {
                target.make_folder(below(trash, folder), mode, *id).await
            }
        }
    }

    /// Makes a directory. An earlier file of the same name in the trash gets a number.
    async fn make_folder_instead(
        &self,
        target: &Target<'_>,
        folder: &[u8],
        mode: u32,
    ) -> Result<(), CliError> {
        let Err(error) = self.make_folder(target, folder, mode).await else { return Ok(()) };
        for number in 1..KEPT_OF_A_NAME {
            let to = numbered(folder, number);
            let renamed = match self {
                Self::Here { trash, .. } => {
                    trash.move_to(folder, trash, &to, None).map_err(Into::into)
                }
                Self::There { session, trash, id, .. } => {
                    let conditions = RenameOf { seen: None, below: *id };
                    session.move_compared(below(trash, folder), below(trash, &to), conditions).await
                }
            };
            match renamed {
                Ok(()) => return self.make_folder(target, folder, mode).await,
                Err(sabul::Error::Exists(_)) => {}
                Err(_) => break,
            }
        }
        Err(error)
    }

    /// Moves a file. An earlier file of the same name in the trash stays: the new file gets a number.
    async fn keep_file(&self, path: &[u8], seen: &Facts) -> Result<(), CliError> {
        let mut result = self.move_file(path, path, seen).await;
        for number in 1..KEPT_OF_A_NAME {
            if !matches!(result, Err(sabul::Error::Exists(_))) {
                break;
            }
            result = self.move_file(path, &numbered(path, number), seen).await;
        }
        Ok(result?)
    }

    async fn move_file(&self, from: &[u8], to: &[u8], seen: &Facts) -> Result<(), sabul::Error> {
        match self {
            Self::Here { destination, trash } => {
                Ok(destination.move_to(from, trash, to, Some(seen))?)
            }
            Self::There { session, destination, trash, id } => {
                let conditions = RenameOf { seen: Some(*seen), below: *id };
                session.move_compared(below(destination, from), below(trash, to), conditions).await
            }
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The directories that hold these entries in the trash, with the permission bits that are known. The empty name is the
/// destination itself.
fn folders_of(extras: &[(Vec<u8>, Facts)]) -> BTreeMap<&[u8], Option<u32>> {
    let mut folders = BTreeMap::from([(&b""[..], None)]);
    for (path, facts) in extras {
        let mut above = parent(path);
        while let Some(folder) = above.filter(|folder| !folder.is_empty()) {
            folders.entry(folder).or_insert(None);
            above = parent(folder);
        }
        if facts.kind == SeenKind::Directory {
            folders.insert(path, Some(facts.mode));
        }
    }
    folders
}

/// Name of a further file of a name in the trash.
fn numbered(path: &[u8], number: u32) -> Vec<u8> {
    [path, format!(".~{number}~").as_bytes()].concat()
}

fn parent(path: &[u8]) -> Option<&[u8]> {
    path.iter().rposition(|&byte| byte == b'/').map(|slash| &path[..slash])
}

/// Line about a change, as rsync prints it with -i; `None` if nothing changes.
fn line(difference: &Difference, options: &CompareOptions, is_put: bool) -> Option<String> {
    let name = |path: &[u8], kind| {
        let slash = if kind == SeenKind::Directory { "/" } else { "" };
        format!("{}{slash}", Printable(path))
    };
    match difference {
        Difference::Copy { path, source, old } => {
            let letter = match source.kind {
                SeenKind::Directory => 'd',
                SeenKind::Link => 'L',
                _ => 'f',
            };
            let action = match (source.kind, old) {
                (SeenKind::File, _) if is_put => '<',
                (SeenKind::File, _) => '>',
                _ => 'c',
            };
            let changes = match old {
                Some(old) if old.kind == source.kind => changes(source, old, options),
                _ => "+++++++++".to_owned(),
            };
            Some(format!("{action}{letter}{changes} {}", name(path, source.kind)))
        }
        Difference::Adjust { path, source, old } => {
            let letter = if source.kind == SeenKind::Directory { 'd' } else { 'f' };
            let changes = changes(source, old, options);
            let has_changes = changes.bytes().any(|letter| letter != b'.');
            has_changes.then(|| format!(".{letter}{changes} {}", name(path, source.kind)))
        }
        Difference::Extra { path, old } if options.removes => {
            Some(format!("*deleting   {}", name(path, old.kind)))
        }
        _ => None,
    }
}

/// Letters for the attributes that change.
fn changes(source: &Facts, old: &Facts, options: &CompareOptions) -> String {
    let is_file = source.kind == SeenKind::File;
    let letter = |is_changed, letter| if is_changed { letter } else { '.' };
    let (users, lists) = differing_attributes(source, old);
    let letters = [
        '.',
        letter(is_file && source.size != old.size, 's'),
        letter(!options.size_only && source.modified_ns != old.modified_ns, 't'),
        letter(options.modes && mode_of(source, Some(old)) & 0o777 != old.mode & 0o777, 'p'),
        letter(options.owners && source.owner != old.owner, 'o'),
        letter(options.owners && source.group != old.group, 'g'),
        '.',
        letter(lists, 'a'),
        letter(users, 'x'),
    ];
    letters.iter().collect()
}
