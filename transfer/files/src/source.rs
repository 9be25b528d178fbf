//! Sources of a transfer: local files and directories, a stream, or paths below a listener's root.
//!
//! The walk is lazy and sorted by bytes, so two runs send the same order. A directory with more
//! than [`NAMES_HELD`] names is sorted in sections, to bound memory.
//! Symbolic links are followed if they stay in the named directory, unless they are sent as links
//! (`archive.rs`). A link that leads out of the directory is followed only on request. Otherwise the
//! author of the tree could choose which other files leave this machine. A link to a directory that
//! contains the link is reported as a failure. Below a listener's root, links to files are followed
//! if they stay inside, and links to directories are reported.
//! Only regular files are ever opened: opening a FIFO or a device may block for ever or act on
//! hardware.

mod argument;
mod objects;
mod ranges;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::mem::take;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul_content::{Printable, RelativePath};
use sabul_wire::control::{
    Entry, EntryKind, Failure, FailureCode, MAX_ORIGINS, More, Owner, Range,
};

pub use argument::Source;

use super::archive::{HardLinkIndex, add_attributes};
use super::chmod::Chmod;
use super::delta::apply_delta;
use super::entry_error::read_failure;
use super::glob;
use super::have::name_of;
use super::journal::is_journal;
use super::listing::Planned;
use super::named::NamedSet;
use super::part::{is_reserved, is_under_construction};
use super::rules::Rules;
use super::selection::{Chosen, Selected, Selection, Skipped};
use super::tree::{Children, FactKind, Facts, Links, Tree, sorted_part, unreadable};
use crate::disk::Disk;
use crate::root::{FileTime, LinkTarget};
use crate::store::file::Listed;
use ranges::Ranges;

/// Maximum number of names that a walk holds, except that each directory on the current path may
/// hold a hundredth of it. Ours: some 5 MB of typical names.
const NAMES_HELD: usize = 100_000;

/// As [`NAMES_HELD`], for a listing, whose order must be the same at both ends. Ours: some 100 MB of typical names, and
/// only for directories with so many.
const NAMES_LISTED: usize = 2_000_000;

/// Reason why a journal is reported.
const JOURNAL: &str = "journal of an interrupted transfer";

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
    /// Ranges of the files, if they are not sent as a whole: one for all sources, or one for each source.
    ranges: Vec<Range>,
    /// Sources may be glob patterns.
    are_patterns: bool,
    /// How links are treated. With `Keep`, owners and extended attributes are sent too.
    links: Links,
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
            ranges: Vec::new(),
            are_patterns: false,
            links: Links::Inside,
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
            Tree::Local => std::path::absolute(root).unwrap_or_else(|_| root.clone()),
            Tree::Disk(_) | Tree::Store(_) => root.clone(),
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
    pub fn with_ranges(self, ranges: Vec<Range>) -> Self {
        Self { ranges, ..self }
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
        Planned { walk: self.into_listing(true), hashes: false }
    }

    /// As [`Self::plan`], for a comparison: files are not opened, except to hash their content if `hashes` is true.
    pub fn plan_compared(self, hashes: bool) -> Planned {
        Planned { walk: self.into_listing(false), hashes }
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

    /// Failures by source, if no source can be sent because it does not exist or is a directory
    /// without `recursive`. Returns an empty list if any source may be sent. Costs one `stat` per
    /// source.
    pub fn none_to_send(&self) -> Vec<(Vec<u8>, Failure)> {
        if self.stream.is_some() {
            return Vec::new();
        }
        let failure = |root: &PathBuf| {
            let bytes = root.as_os_str().as_bytes();
            let links = if is_content(bytes) { Links::Follow } else { self.links };
            let failure = match self.tree.examine_source(root, None, links) {
                Ok(facts) if matches!(facts.kind, FactKind::Directory(_)) && !self.recursive => {
                    unreadable(root, NOT_RECURSIVE)
                }
                Ok(_) => return None,
                Err(failure) if failure.code == FailureCode::NotFound => failure,
                Err(_) => return None,
            };
            Some((last_component(bytes), failure))
        };
        self.roots.iter().map(failure).collect::<Option<_>>().unwrap_or_default()
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
            && self.ranges.is_empty()
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
            rules,
            named,
            ranges: Ranges::new(ranges),
            chmod,
            are_patterns,
            links,
            all: (links == Links::Keep).then(HardLinkIndex::default),
            stack: Vec::new(),
            chosen,
            source: None,
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

/// An entry to send, or a failure to report.
#[derive(Debug)]
pub(super) struct Found {
    /// The announced entry; an empty file in case of a failure.
    pub(super) entry: Entry,
    /// Path to open.
    pub(super) path: PathBuf,
    /// Reason why the entry cannot be sent.
    pub(super) failure: Option<Failure>,
    /// Offset of the requested range and size of the whole file, if only a range is sent.
    pub(super) part: Option<(u64, u64)>,
    /// Size of the file, or length of the text of a link.
    pub(super) size: u64,
    /// User and group number of the owner.
    pub(super) owner: (u32, u32),
    /// Change time (ctime).
    pub(super) changed: FileTime,
}

/// Result of a step of a walk.
#[derive(Debug)]
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
    rules: Rules,
    named: Option<Arc<NamedSet>>,
    ranges: Ranges,
    chmod: Chmod,
    are_patterns: bool,
    links: Links,
    /// State for links and hard links, if they are kept.
    all: Option<HardLinkIndex>,
    stack: Vec<Level>,
    /// The names to send, if not all are sent.
    chosen: Option<Chosen>,
    /// The source above the chosen name; `None` if the name is a source itself.
    source: Option<PathBuf>,
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
        if let Some(chosen) = &mut self.chosen {
            return match chosen.next() {
                Selected::Name(name) => match self.visit_chosen(name) {
                    Some(found) => Step::Found(found),
                    None => Step::Pause,
                },
                Selected::Changed(name, delta) => match self.visit_chosen(name) {
                    Some(mut found) => {
                        if found.failure.is_none() && found.part.is_none() {
                            apply_delta(*delta, &mut found.entry, found.changed);
                        }
                        Step::Found(found)
                    }
                    None => Step::Pause,
                },
                Selected::NotYet => Step::Pause,
                Selected::End => Step::End,
            };
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

    /// Examines the entry of a chosen name.
    pub(super) fn visit_chosen(&mut self, name: Vec<u8>) -> Option<Found> {
        let chosen = self.chosen.as_ref()?;
        if let Some(failure) = chosen.failure(&name) {
            return Some(failed(name, PathBuf::new(), failure.clone()));
        }
        let mut places = chosen.places(&name);
        if let Err(error) = RelativePath::new(&*name) {
            let failure = Failure::new(FailureCode::Unreadable, error.to_string());
            return Some(failed(name, PathBuf::new(), failure));
        }
        if places.len() > 1 {
            let is_there = |path: &Path| self.tree.examine(path, LinkTarget::Itself).is_ok();
            let at = places.iter().position(|(path, _)| is_there(path)).unwrap_or_default();
            places.swap(0, at);
        }
        let Some((path, source)) = places.into_iter().next() else {
            let text = format!("'{}' is in no requested source", Printable(&name));
            return Some(failed(name, PathBuf::new(), Failure::new(FailureCode::NotFound, text)));
        };
        self.source = source;
        let found = self.visit(path, name)?;
        if let (Some(chosen), None) = (&mut self.chosen, &found.failure) {
            chosen.sent(&found.entry, found.size);
        }
        Some(found)
    }

    /// Whether only chosen names are sent.
    pub(super) const fn is_chosen(&self) -> bool {
        self.chosen.is_some()
    }

    /// The tree of the walk.
    pub(super) const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Starts one source. Returns `None` if the content of a directory follows, or the source was
    /// replaced by matches of its pattern.
    fn start(&mut self, root: PathBuf) -> Option<Found> {
        self.ranges.next_source();
        let bytes = root.as_os_str().as_bytes();
        let name = last_component(bytes);
        if self.are_patterns && glob::is_pattern(bytes) {
            match glob::expand(&self.tree, &root) {
                // Matches are taken literally, and come before the next source.
                Ok(glob::Matches::Several(paths)) => {
                    for path in paths.into_iter().rev() {
                        self.roots.push_front(path);
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
        let result = match self.tree.facts(&root, true) {
            Ok(Facts { kind: FactKind::Directory(identity), .. }) => {
                self.enter(&root, Vec::new(), identity)
            }
            Ok(_) => Err(unreadable(&root, "is not a directory; leave out the '/' at its end")),
            Err(failure) => Err(failure),
        };
        result.err().map(|failure| failed(name, root, failure))
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
                let Facts { mode, modified_ns, changed, owner, group, .. } = facts;
                let owner = (owner, group);
                let (kind, part) = match self.ranges.part_of(kind, &path) {
                    Ok(part) => part,
                    Err(failure) => return Some(failed(name, path, failure)),
                };
                let mut entry = Entry { path: name, kind, mode: Some(mode), modified_ns, more };
                self.chmod.change(&mut entry);
                Some(Found { entry, path, failure: None, part, size, owner, changed })
            }
            Ok(None) => None,
            Err(failure) => Some(failed(name, path, failure)),
        }
    }

    fn try_visit(&mut self, path: &Path, name: &[u8]) -> Result<Option<Visited>, Failure> {
        let named = self.source.as_deref().or_else(|| self.stack.first().map(|level| &*level.path));
        let is_below = named.is_some();
        let facts = match self.tree.examine_source(path, named, self.links) {
            Ok(facts) => facts,
            Err(_) if !self.rules.take(name, false) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        if !self.rules.take(name, matches!(facts.kind, FactKind::Directory(_))) {
            return Ok(None);
        }
        if matches!(facts.kind, FactKind::File(_)) && is_reserved(name) {
            if is_below && self.shows_journals && is_journal(name) {
                return Err(Failure::new(FailureCode::Refused, JOURNAL));
            }
            if is_below && is_under_construction(name) {
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
        let mut more = self.all.as_ref().map(|_| More {
            owner: Some(Owner { user: facts.owner, group: facts.group }),
            ..More::default()
        });
        let kind = match facts.kind {
            FactKind::Directory(identity) => {
                if self.chosen.is_none() {
                    self.enter(path, name.to_vec(), identity)?;
                } else if !self.recursive {
                    return Err(unreadable(path, NOT_RECURSIVE));
                } else {
                    // The content is not sent, but must be readable.
                    drop(self.tree.list(path)?);
                }
                if let Some(more) = more.as_mut().filter(|_| self.opens) {
                    add_attributes(&*self.tree.open_directory(path)?, path, more)?;
                }
                EntryKind::Directory
            }
            FactKind::File(size) if !self.opens => EntryKind::File(size),
            FactKind::File(size) => {
                // Opened now, so that an unreadable file costs a message and not its size in zeros.
                // Closed again, so that a batch may exceed the limit of open files.
                let file = self.tree.open(path)?;
                let first = self.all.as_mut().and_then(|all| all.first_name(&facts, name));
                match (first, &mut more) {
                    (Some(first), Some(more)) => {
                        more.target = first;
                        return Ok(Some((EntryKind::HardLink, facts, Some(Box::new(take(more))))));
                    }
                    (_, Some(more)) => add_attributes(&*file, path, more)?,
                    _ => {}
                }
                if self.ranges.are_none() && facts.may_have_holes() {
                    let data = file
                        .data(size)
                        .map_err(|error| read_failure(path.as_os_str().as_bytes(), &error))?;
                    if data.is_some() {
                        more.get_or_insert_default().data = data;
                    }
                }
                EntryKind::File(size)
            }
            FactKind::Link => {
                more.get_or_insert_default().target = self.tree.read_link(path)?;
                EntryKind::SymbolicLink
            }
            FactKind::LinkOut => {
                self.led_out += 1;
                let why = "is a link that leads out of the sources; -L follows it";
                return Err(unreadable(path, why));
            }
            FactKind::Other(what) => return Err(unreadable(path, &format!("is {what}"))),
        };
        Ok(Some((kind, facts, more.map(Box::new))))
    }

    /// Number of links found that lead out of the sources.
    pub(super) fn led_out(&self) -> u64 {
        self.led_out
    }

    /// Number of part files found and skipped.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Descends into a directory whose children get the prefix `name`.
    fn enter(
        &mut self,
        path: &Path,
        name: Vec<u8>,
        identity: Option<(u64, u64)>,
    ) -> Result<(), Failure> {
        if !self.recursive {
            return Err(unreadable(path, NOT_RECURSIVE));
        }
        if identity.is_some() && self.stack.iter().any(|level| level.identity == identity) {
            return Err(unreadable(path, "is a link to a directory that contains it"));
        }
        let mut rest = Some(self.children(path, &name)?);
        let children = sorted_part(&mut rest, self.room_for_names())?.into_iter();
        self.stack.push(Level { path: path.to_path_buf(), name, children, rest, identity });
        Ok(())
    }

    /// The names to visit in a directory. Named entries that are missing are visited, too, and then reported.
    fn children(&self, path: &Path, name: &[u8]) -> Result<Children, Failure> {
        let Some(named) = &self.named else { return self.tree.list(path) };
        let mut names = named.children(name);
        if !named.lists_all(name) {
            return Ok(Box::new(names.into_iter().map(Ok)));
        }
        let is_missing = |child: &Vec<u8>| {
            let child = path.join(OsStr::from_bytes(child));
            self.tree.examine(&child, LinkTarget::Itself).is_err()
        };
        names.retain(is_missing);
        Ok(Box::new(self.tree.list(path)?.chain(names.into_iter().map(Ok))))
    }

    /// How many more names may be held.
    fn room_for_names(&self) -> usize {
        let held: usize = self.stack.iter().map(|level| level.children.len()).sum();
        self.names_held.saturating_sub(held).max(self.names_held / 100).max(1)
    }
}

fn failed(name: Vec<u8>, path: PathBuf, failure: Failure) -> Found {
    // The receiver gets the failure too, so the entry needs a valid name.
    let name = if RelativePath::new(&*name).is_ok() { name } else { b"unnamed".to_vec() };
    let entry =
        Entry { path: name, kind: EntryKind::File(0), mode: None, modified_ns: None, more: None };
    let changed = FileTime { seconds: 0, nanoseconds: 0 };
    Found { entry, path, failure: Some(failure), part: None, size: 0, owner: (0, 0), changed }
}

/// The last component of a path, without trailing slashes.
pub(super) fn last_component(path: &[u8]) -> Vec<u8> {
    path.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()).unwrap_or(path).to_vec()
}

#[cfg(test)]
mod tests;
