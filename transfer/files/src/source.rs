//! Sources of a transfer: local files and directories, a stream, or paths below a listener's root.
//!
//! The walk is lazy and sorted by bytes, so two runs send the same order. A directory with more
//! than [`NAMES_HELD`] names is sorted in sections, to bound memory.
//! Symbolic links are followed if they stay in the named directory, unless they are sent as links
//! (`archive.rs`). A link that leads out of the directory is followed only on request. Otherwise the
//! author of the tree could choose which other files leave this machine. A link to a directory that
//! contains the link is reported as a failure. Below a listener's root, links to files are followed
//! if they stay inside, and links to directories are reported.
//! Only files that were found to be regular are opened: opening a FIFO or a device may block for ever
//! or act on hardware.
//! Other users may swap names between the lookup of an entry and its opening. A named directory is
//! therefore held open (`tree/named.rs`), and paths below it are resolved without links, unless all
//! links are followed on request. Content and attributes are sent only if the opened file is the file
//! of the lookup (`source/found.rs`).

mod argument;
mod awaited;
mod base;
mod chosen;
mod found;
mod missing;
mod objects;
mod place;
mod ranges;
mod rule_files;
mod state;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul_content::{Printable, RelativePath};
use sabul_wire::control::{
    Entry, EntryKind, Failure, FailureCode, MAX_ORIGINS, More, Owner, Range,
};

pub use argument::Source;
use base::Base;
pub(super) use found::Found;
use found::failed;

use super::archive::{HardLinkIndex, add_attributes};
use super::chmod::Chmod;
use super::entry_error::read_failure;
use super::glob;
use super::have::name_of;
use super::journal::is_journal;
use super::listing::{Planned, ReadParts};
use super::named::NamedSet;
use super::part::{is_reserved, is_under_construction};
use super::rules::{Filter, Rules};
use super::selection::{Chosen, Selection, Skipped};
use super::tree::{Children, FactKind, Facts, Links, Tree, sorted_part, unreadable};
use crate::disk::Disk;
use crate::root::{FileId, LinkTarget, Metadata};
use crate::store::file::Listed;
use ranges::Ranges;

/// Maximum number of names that a walk holds, except that each directory on the current path may
/// hold a hundredth of it. Ours: some 5 MB of typical names.
const NAMES_HELD: usize = 100_000;

/// As [`NAMES_HELD`], for a listing, whose order must be the same at both ends. Ours: some 100 MB of typical names, and
/// only for directories with so many.
const NAMES_LISTED: usize = 2_000_000;

/// Reason why a journal is reported.
const JOURNAL: &str = "it is the journal of an interrupted transfer, or has the name of one; complete that transfer, or rename the file";

/// Reason why a directory is not sent.
const NOT_RECURSIVE: &str = "is a directory; copy it with -r";

/// Number of skipped names after which a walk returns [`Step::Pause`].
const PAUSE_AFTER: usize = 1000;

/// All sources of one transfer.
pub struct SourceSet {
    tree: Tree,
    roots: Vec<PathBuf>,
    stream: Option<(Vec<u8>, Stream)>,
    recursive: bool,
    rules: Rules,
    /// Only these entries are listed.
    named: Option<Arc<NamedSet>>,
    /// Ranges of the files, if they are not sent as a whole.
    ranges: Box<Ranges>,
    /// Sources may be glob patterns.
    are_patterns: bool,
    /// How links are treated. With `Keep`, owners and extended attributes are sent too.
    links: Links,
    /// Further names of a file are sent as hard links.
    hard_links: bool,
    /// Only these entries are sent.
    selection: Option<Box<dyn Selection>>,
    /// Entries that the selection leaves out, if they are counted.
    skipped: Option<Arc<Skipped>>,
    /// Files that grow are sent up to their announced size.
    pub(super) growing: bool,
    chmod: Chmod,
}

/// Reader of a stream entry.
pub(super) struct Stream(pub(super) Box<dyn Read + Send>);

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}

impl std::fmt::Debug for SourceSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceSet").field("roots", &self.roots).finish_non_exhaustive()
    }
}

impl SourceSet {
    /// Creates the set of one file or directory on this machine, with the content of the directory. A
    /// trailing `/` means the content of the directory, as in rsync.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self::of_paths(vec![path.into()], true)
    }

    fn of_paths(roots: Vec<PathBuf>, recursive: bool) -> Self {
        Self {
            tree: Tree::Local,
            roots,
            stream: None,
            recursive,
            rules: Rules::default(),
            named: None,
            ranges: Box::default(),
            are_patterns: false,
            links: Links::Inside,
            hard_links: false,
            selection: None,
            skipped: None,
            growing: false,
            chmod: Chmod::default(),
        }
    }

    /// Creates a set of sources on this machine.
    ///
    /// # Errors
    /// If there is more than one stream, or a stream's name is invalid.
    pub fn local(sources: Vec<Source>, recursive: bool) -> Result<Self, Failure> {
        let (mut roots, mut stream) = (Vec::new(), None);
        for source in sources {
            match source {
                Source::Path(path) => roots.push(path),
                Source::Stream { name, reader } => {
                    let bad = |message| Failure::new(FailureCode::BadSetting, message);
                    RelativePath::new(&*name).map_err(|error| bad(error.to_string()))?;
                    if stream.replace((name, Stream(reader))).is_some() {
                        return Err(bad("only one source can be a stream; give '-' once".into()));
                    }
                }
            }
        }
        Ok(Self { stream, ..Self::of_paths(roots, recursive) })
    }

    /// Creates a set of sources below a listener's root, as requested by a peer. A leading `/` is
    /// the root.
    pub fn in_disk(disk: Arc<dyn Disk>, sources: Vec<Vec<u8>>, recursive: bool) -> Self {
        let roots = sources.into_iter().map(|path| OsString::from_vec(path).into()).collect();
        Self { tree: Tree::Disk(disk), ..Self::of_paths(roots, recursive) }
    }

    /// Creates a set of sources as paths of this process's user; an empty path is the current
    /// directory.
    pub fn as_user(sources: Vec<Vec<u8>>, recursive: bool) -> Self {
        let path = |path: Vec<u8>| {
            let path = if path.is_empty() { b".".to_vec() } else { path };
            PathBuf::from(OsString::from_vec(path))
        };
        Self::of_paths(sources.into_iter().map(path).collect(), recursive)
    }

    /// Short hashes of the sources. A later transfer finds its interrupted predecessor by them.
    pub fn origins(&self) -> Vec<[u8; 8]> {
        let absolute = |root: &PathBuf| match &self.tree {
            Tree::Disk(_) | Tree::Store(_) => root.clone(),
            Tree::Local | Tree::Named(_) => {
                std::path::absolute(root).unwrap_or_else(|_| root.clone())
            }
        };
        let roots: Vec<PathBuf> = self.roots.iter().map(absolute).collect();
        origins_of(roots.iter().map(|root| root.as_os_str().as_bytes()))
    }

    /// Excludes entries by these rules.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Lists only these entries, and the directories above them.
    #[must_use]
    pub fn with_names(self, named: Option<Arc<NamedSet>>) -> Self {
        Self { named, ..self }
    }

    /// Sends only these byte ranges: one of all files, or one of each source, which is then a file.
    #[must_use]
    pub fn with_ranges(mut self, ranges: Vec<Range>) -> Self {
        self.ranges.set(ranges);
        self
    }

    /// Whether offsets of ranges count backwards from the ends of files. The entries then have the facts of their files.
    #[must_use]
    pub fn with_ranges_from_end(mut self, from_end: bool) -> Self {
        self.ranges.from_end = from_end;
        self
    }

    /// Sends only files in this state, which is the hash of a listing of states.
    #[must_use]
    pub fn with_state(mut self, state: Option<[u8; 32]>) -> Self {
        self.ranges.state = state;
        self
    }

    /// Whether a source is treated as a glob pattern if no file has that exact name.
    #[must_use]
    pub fn with_patterns(self, are_patterns: bool) -> Self {
        Self { are_patterns, ..self }
    }

    /// Whether to send symbolic links as links, and hard links, owners and extended attributes.
    /// Otherwise links are followed, and only modes and times are sent.
    #[must_use]
    pub fn with_archive_mode(self, is_wanted: bool) -> Self {
        Self { links: if is_wanted { Links::Keep } else { self.links }, ..self }
    }

    /// Whether to send further names of a file as hard links. Archive mode does so in any case.
    #[must_use]
    pub fn with_hard_links(self, hard_links: bool) -> Self {
        Self { hard_links, ..self }
    }

    /// Whether to follow symbolic links that lead out of the named directories.
    #[must_use]
    pub fn with_links_out(self, is_wanted: bool) -> Self {
        Self { links: if is_wanted { Links::Follow } else { self.links }, ..self }
    }

    /// Sends only the entries with these names, in this order. With the entries that are left out, the totals of the
    /// others can be counted ahead.
    #[must_use]
    pub fn with_selection(self, names: Box<dyn Selection>, skipped: Option<Arc<Skipped>>) -> Self {
        Self { selection: Some(names), skipped, ..self }
    }

    /// Whether to send files that grow while they are read, up to their first size.
    #[must_use]
    pub fn with_growing(self, growing: bool) -> Self {
        Self { growing, ..self }
    }

    /// Changes permission bits.
    #[must_use]
    pub fn with_chmod(self, chmod: Chmod) -> Self {
        Self { chmod, ..self }
    }

    /// Lists the entries in order without reading content; standard input is not listed.
    pub fn plan(self) -> Planned {
        Planned { walk: self.into_listing(true), parts: ReadParts::default() }
    }

    /// As [`Self::plan`], for a comparison: files are not opened, except to read these parts.
    pub fn plan_compared(self, parts: ReadParts) -> Planned {
        Planned { walk: self.into_listing(false), parts }
    }

    /// The walk of a listing. With `opens`, a file that cannot be opened is a failure.
    pub(super) fn into_listing(self, opens: bool) -> Walk {
        let (mut walk, _) = self.into_parts();
        (walk.names_held, walk.opens, walk.shows_journals) = (NAMES_LISTED, opens, !opens);
        walk
    }

    /// Entries that the selection leaves out, if they are counted.
    pub(super) fn skipped(&self) -> Option<Arc<Skipped>> {
        self.skipped.clone()
    }

    /// Whether the destination must be a directory: several sources, or the content of a directory.
    pub fn needs_directory(&self) -> bool {
        let count = self.roots.len() + usize::from(self.stream.is_some());
        matches!(self.tree, Tree::Store(_))
            || count > 1
            || self.roots.iter().any(|root| is_content(root.as_os_str().as_bytes()))
    }

    /// The tree in which sources are looked up.
    pub(super) const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The named files and directories.
    pub(super) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Whether everything below the named paths is sent, so that it can be counted ahead: no
    /// stream, no rules, no names, no range, no patterns, and no selection that does not count the entries it leaves out.
    pub fn can_be_counted(&self) -> bool {
        let is_name =
            |root: &PathBuf| !self.are_patterns || !glob::is_pattern(root.as_os_str().as_bytes());
        self.stream.is_none()
            && !matches!(self.tree, Tree::Store(_))
            && (self.selection.is_none() || self.skipped.is_some())
            && self.rules.is_empty()
            && self.named.is_none()
            && self.ranges.are_none()
            && self.roots.iter().all(is_name)
    }

    /// How links are treated.
    pub(super) const fn links(&self) -> Links {
        self.links
    }

    pub(super) const fn is_recursive(&self) -> bool {
        self.recursive
    }

    /// The walk, and the stream that is sent last.
    pub(super) fn into_parts(self) -> (Walk, Option<(Vec<u8>, Stream)>) {
        let Self {
            tree,
            roots,
            stream,
            recursive,
            rules,
            named,
            ranges,
            are_patterns,
            links,
            hard_links,
            selection,
            chmod,
            ..
        } = self;
        let objects = match &tree {
            Tree::Store(source) => Some(Listed::new(Arc::clone(source))),
            _ => None,
        };
        let (chosen, roots) = match selection {
            None => (None, roots.into()),
            Some(names) => {
                let mut chosen = Chosen::new(names);
                chosen.add(&tree, roots, are_patterns);
                (Some(chosen), VecDeque::new())
            }
        };
        let walk = Walk {
            tree,
            objects,
            roots,
            recursive,
            filter: Filter::new(rules),
            named,
            ranges: *ranges,
            chmod,
            are_patterns,
            links,
            hard_links: (hard_links || links == Links::Keep).then(HardLinkIndex::default),
            stack: Vec::new(),
            chosen,
            base: Base::default(),
            opens: true,
            shows_journals: false,
            names_held: NAMES_HELD,
            left_out: 0,
            led_out: 0,
        };
        (walk, stream)
    }
}

/// Short hashes of these sources, at most `MAX_ORIGINS`.
pub fn origins_of<'a>(sources: impl Iterator<Item = &'a [u8]>) -> Vec<[u8; 8]> {
    sources.take(MAX_ORIGINS).map(name_of).collect()
}

/// Whether a source means the content of a directory: its path ends in `/`, `.` or `..`.
pub(super) fn is_content(path: &[u8]) -> bool {
    matches!(path.rsplit(|&byte| byte == b'/').next(), None | Some(b"" | b"." | b".."))
}

/// Result of a step of a walk.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every step is an entry, and is moved once")]
pub(super) enum Step {
    /// The next entry.
    Found(Found),
    /// Many names were skipped; the caller should check for cancellation.
    Pause,
    /// The walk is complete.
    End,
}

/// A walk in progress.
#[derive(Debug)]
pub(super) struct Walk {
    tree: Tree,
    /// The objects of a store.
    objects: Option<Listed>,
    roots: VecDeque<PathBuf>,
    recursive: bool,
    filter: Filter,
    named: Option<Arc<NamedSet>>,
    ranges: Ranges,
    chmod: Chmod,
    are_patterns: bool,
    links: Links,
    /// Files with several names, if hard links are kept.
    hard_links: Option<HardLinkIndex>,
    stack: Vec<Level>,
    /// The names to send, if not all are sent.
    chosen: Option<Chosen>,
    /// The source below which names are looked up.
    base: Base,
    /// Files are opened, to check that they can be read.
    opens: bool,
    /// Journals of interrupted transfers are reported as failures.
    shows_journals: bool,
    names_held: usize,
    left_out: u64,
    led_out: u64,
}

/// A directory whose children are being visited.
struct Level {
    path: PathBuf,
    /// Path prefix of the directory in the transfer; empty if its content goes to the top level.
    name: Vec<u8>,
    children: std::vec::IntoIter<Vec<u8>>,
    /// Children after those, if any.
    rest: Option<Children>,
    /// Device and inode; used if links to directories are followed.
    identity: Option<(u64, u64)>,
    /// Identity of the directory that was opened, if known.
    id: Option<FileId>,
}

impl std::fmt::Debug for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Level").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Kind, file facts and further metadata of a visited path.
type Visited = (EntryKind, Facts, Option<Box<More>>);

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            match self.step() {
                Step::Found(found) => return Some(found),
                Step::Pause => {}
                Step::End => return None,
            }
        }
    }
}

impl Walk {
    /// Continues to the next entry, or up to a pause.
    pub(super) fn step(&mut self) -> Step {
        if self.chosen.is_some() {
            return self.step_chosen();
        }
        if let Some(objects) = &mut self.objects {
            return match objects.next() {
                Some(Ok(object)) => self.visit_object(object).map_or(Step::Pause, Step::Found),
                Some(Err(failure)) => Step::Found(failed(Vec::new(), PathBuf::new(), failure)),
                None => Step::End,
            };
        }
        for _ in 0..PAUSE_AFTER {
            let most = self.room_for_names();
            let Some(level) = self.stack.last_mut() else {
                let Some(root) = self.roots.pop_front() else { return Step::End };
                match self.start(root) {
                    Some(found) => return Step::Found(found),
                    None => continue,
                }
            };
            let Some(child) = level.children.next() else {
                match sorted_part(&mut level.rest, most) {
                    Ok(names) if !names.is_empty() => level.children = names.into_iter(),
                    result => {
                        let level = self.stack.pop();
                        if let (Err(failure), Some(Level { path, name, .. })) = (result, level) {
                            return Step::Found(failed(name, path, failure));
                        }
                    }
                }
                continue;
            };
            if let Err(failure) = self.base.come_near(&level.path, level.id) {
                let (path, name) = (level.path.clone(), level.name.clone());
                self.stack.pop();
                return Step::Found(failed(name, path, failure));
            }
            let path = level.path.join(OsStr::from_bytes(&child));
            let mut name = level.name.clone();
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend(child);
            if let Some(found) = self.visit(path, name) {
                return Step::Found(found);
            }
        }
        Step::Pause
    }

    /// The tree of the walk.
    pub(super) const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Starts one source. Returns `None` if the content of a directory follows, or the source was
    /// replaced by matches of its pattern.
    fn start(&mut self, root: PathBuf) -> Option<Found> {
        self.ranges.next_source();
        self.filter.restart();
        let quoted = if self.are_patterns { glob::quoted_path(&root) } else { None };
        let is_quoted = quoted.is_some();
        let root = quoted.unwrap_or(root);
        let bytes = root.as_os_str().as_bytes();
        let name = last_component(bytes);
        if self.are_patterns && !is_quoted && glob::is_pattern(bytes) {
            match glob::expand(&self.tree, &root) {
                // Matches are taken literally, also if they are gone by then, and come before the next source.
                Ok(glob::Matches::Several(paths)) => {
                    for path in paths.into_iter().rev() {
                        let name = glob::escape(path.as_os_str().as_bytes());
                        self.roots.push_front(OsString::from_vec(name).into());
                    }
                    return None;
                }
                Ok(glob::Matches::Itself) => {}
                Err(failure) => return Some(failed(name, root, failure)),
            }
        }
        if !is_content(bytes) {
            return self.visit(root, name);
        }
        let failure = match self.tree.facts(&root, true) {
            Ok(facts @ Facts { kind: FactKind::Directory(identity), .. }) => {
                match self.enter(&root, Vec::new(), identity) {
                    Ok(opened) => {
                        return self.content_with_rules(&root, &facts.of_opened(opened.as_ref()));
                    }
                    Err(failure) => failure,
                }
            }
            Ok(_) => unreadable(&root, "is not a directory; leave out the '/' at its end"),
            Err(failure) => failure,
        };
        Some(failed(name, root, failure))
    }

    /// Examines a path; returns `None` for excluded files and part files.
    fn visit(&mut self, path: PathBuf, name: Vec<u8>) -> Option<Found> {
        match self.try_visit(&path, &name) {
            Ok(Some((kind, facts, more))) => {
                let size = match (&facts.kind, &more) {
                    (FactKind::File(size), _) => *size,
                    (FactKind::Link, Some(more)) => more.target.len() as u64,
                    _ => 0,
                };
                let (kind, part) = match self.ranges.part_of(kind, &path) {
                    Ok(part) => part,
                    Err(failure) => return Some(failed(name, path, failure)),
                };
                let (mode, modified_ns) = (Some(facts.mode), facts.modified_ns);
                let mut entry = Entry { path: name, kind, mode, modified_ns, more };
                self.chmod.change(&mut entry);
                let rules = self.take_rules();
                let state = self.ranges.state;
                let found = Found::new(entry, path, &facts, self.place());
                Some(self.ranges.with_facts(Found { part, size, rules, state, ..found }))
            }
            Ok(None) => None,
            Err(failure) => Some(failed(name, path, failure)),
        }
    }

    fn try_visit(&mut self, path: &Path, name: &[u8]) -> Result<Option<Visited>, Failure> {
        let is_below = self.is_below();
        let named = self.base.source().filter(|_| is_below);
        let mut facts = match self.place().examine_source(path, named, self.links) {
            Ok(facts) => facts,
            Err(_) if !self.takes(name, false) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        if !self.takes(name, matches!(facts.kind, FactKind::Directory(_))) {
            return Ok(None);
        }
        self.ranges.check_state(path, &facts)?;
        if matches!(facts.kind, FactKind::File(_)) && is_reserved(name) {
            if is_below && self.shows_journals && is_journal(name) {
                return Err(Failure::new(FailureCode::Refused, JOURNAL));
            }
            // A comparison reports a user's own file with such a name.
            if is_below && !self.shows_journals && is_under_construction(name) {
                self.left_out += 1;
                return Ok(None);
            }
            let message = format!(
                "'{}' is a file under construction, or has the name of one; wait for the transfer \
                 that writes it, or rename it",
                Printable(path.as_os_str().as_bytes())
            );
            return Err(Failure::new(FailureCode::Refused, message));
        }
        RelativePath::new(name)
            .map_err(|error| Failure::new(FailureCode::Unreadable, error.to_string()))?;
        let mut more = (self.links == Links::Keep).then(More::default);
        let kind = match facts.kind {
            FactKind::Directory(identity) => {
                facts = self.visit_directory(path, name, identity, facts, &mut more)?;
                EntryKind::Directory
            }
            FactKind::File(size) if !self.opens => EntryKind::File(size),
            FactKind::File(size) => self.visit_file(path, name, size, &facts, &mut more)?,
            FactKind::Link => {
                more.get_or_insert_default().target = self.place().read_link(path)?;
                EntryKind::SymbolicLink
            }
            FactKind::LinkOut => {
                self.led_out += 1;
                let why = "is a link that leads out of the sources; -L follows it";
                return Err(unreadable(path, why));
            }
            FactKind::Other(what) => return Err(unreadable(path, &format!("is {what}"))),
        };
        if let Some(more) = more.as_mut().filter(|_| self.links == Links::Keep) {
            more.owner = Some(owner_of(&facts));
        }
        Ok(Some((kind, facts, more.map(Box::new))))
    }

    /// Enters a directory, or opens a chosen one. Returns the facts of the directory that was opened.
    fn visit_directory(
        &mut self,
        path: &Path,
        name: &[u8],
        identity: Option<(u64, u64)>,
        facts: Facts,
        more: &mut Option<More>,
    ) -> Result<Facts, Failure> {
        let opened = if self.chosen.is_none() {
            self.enter(path, name.to_vec(), identity)?
        } else if !self.recursive {
            return Err(unreadable(path, NOT_RECURSIVE));
        } else {
            // The content is not sent, but must be readable.
            self.place().enter(path)?.1
        };
        let facts = facts.of_opened(opened.as_ref());
        if let Some(more) = more.as_mut().filter(|_| self.opens) {
            let folder = self.place().open_directory(path)?;
            found::check_same(&*folder, path, &facts)?;
            add_attributes(&*folder, path, more)?;
        }
        Ok(facts)
    }

    /// Opens a file of `size` bytes and adds the metadata that needs an open file.
    fn visit_file(
        &mut self,
        path: &Path,
        name: &[u8],
        size: u64,
        facts: &Facts,
        more: &mut Option<More>,
    ) -> Result<EntryKind, Failure> {
        // Opened now, so that an unreadable file costs a message and not its size in zeros.
        // Closed again, so that a batch may exceed the limit of open files.
        let file = self.place().open(path)?;
        if let Some(first) = self.hard_links.as_mut().and_then(|all| all.first_name(facts, name)) {
            more.get_or_insert_default().target = first;
            return Ok(EntryKind::HardLink);
        }
        if let Some(more) = more {
            add_attributes(&*file, path, more)?;
        }
        if self.ranges.are_none() && facts.may_have_holes() {
            let data = file
                .data(size)
                .map_err(|error| read_failure(path.as_os_str().as_bytes(), &error))?;
            if data.is_some() {
                more.get_or_insert_default().data = data;
            }
        }
        // A file with nothing to announce is compared when its content is read.
        let is_announced = |more: &More| {
            more.data.is_some() || more.attributes_left > 0 || !more.attributes.is_empty()
        };
        if more.as_ref().is_some_and(is_announced) {
            found::check_same(&*file, path, facts)?;
        }
        Ok(EntryKind::File(size))
    }

    /// Number of links found that lead out of the sources.
    pub(super) fn led_out(&self) -> u64 {
        self.led_out
    }

    /// Number of part files found and skipped.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Descends into a directory whose children get the prefix `name`. Returns the metadata of the directory that was
    /// opened, if known.
    fn enter(
        &mut self,
        path: &Path,
        name: Vec<u8>,
        identity: Option<(u64, u64)>,
    ) -> Result<Option<Metadata>, Failure> {
        if !self.recursive {
            return Err(unreadable(path, NOT_RECURSIVE));
        }
        if identity.is_some() && self.stack.iter().any(|level| level.identity == identity) {
            return Err(unreadable(path, "is a link to a directory that contains it"));
        }
        if self.stack.is_empty() {
            self.set_base(path)?;
        }
        let (children, opened) = self.children(path, &name)?;
        self.read_rules(path, &name)?;
        let mut rest = Some(children);
        let children = sorted_part(&mut rest, self.room_for_names())?.into_iter();
        let id = opened.map(|opened| opened.id);
        self.stack.push(Level { path: path.to_path_buf(), name, children, rest, identity, id });
        Ok(opened)
    }

    /// The names to visit in a directory. Named entries that are missing are visited, too, and then reported.
    fn children(&self, path: &Path, name: &[u8]) -> Result<(Children, Option<Metadata>), Failure> {
        let tree = self.base.tree(&self.tree);
        let Some(named) = &self.named else { return tree.enter(path) };
        let mut names = named.children(name);
        if !named.lists_all(name) {
            return Ok((Box::new(names.into_iter().map(Ok)), tree.approach(path)?));
        }
        let (children, opened) = tree.enter(path)?;
        let is_missing = |child: &Vec<u8>| {
            let child = path.join(OsStr::from_bytes(child));
            tree.examine(&child, LinkTarget::Itself).is_err()
        };
        names.retain(is_missing);
        Ok((Box::new(children.chain(names.into_iter().map(Ok))), opened))
    }

    /// How many more names may be held.
    fn room_for_names(&self) -> usize {
        let held: usize = self.stack.iter().map(|level| level.children.len()).sum();
        self.names_held.saturating_sub(held).max(self.names_held / 100).max(1)
    }
}

fn owner_of(facts: &Facts) -> Owner {
    Owner { user: facts.owner, group: facts.group }
}

/// The last component of a path, without trailing slashes.
pub(super) fn last_component(path: &[u8]) -> Vec<u8> {
    path.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()).unwrap_or(path).to_vec()
}

#[cfg(test)]
mod tests;
