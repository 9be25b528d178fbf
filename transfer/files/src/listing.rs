//! Directory listings without reading content; also makes folders and removes files.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul_content::{MAX_COMPONENT, MAX_PATH, Printable};
use sabul_wire::control::{
    Facts, Failure, FailureCode, Identity, ListOptions, Seen, SeenAttributes, SeenKind, View,
};

use super::entry_error::{cancelled, not_a_folder, read_failure, root_write_failure};
use super::glob::{self, Matches};
use super::identity::{check_entry, facts, open_marked};
use super::named::NamedSet;
use super::rules::Rules;
use super::source::{Found, SourceSet, Step, Walk};
use super::tree::{Children, Tree, means_folder, root_path, sorted_part, unreadable};
use crate::disk::{Disk, ReadFile};
use crate::root::{Kind, LinkTarget, Metadata, RootDir, RootLink, RootPath};

/// Maximum number of names held while a folder is listed or removed. Ours: some 5 MB.
const NAMES_HELD: usize = 100_000;

/// Bytes of a file that are read at once to hash them.
const HASHED_AT_ONCE: usize = 1 << 20;

/// Parts of files that a listing reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadParts {
    /// Content of regular files, to hash it.
    pub content: bool,
    /// Extended attributes of files and directories.
    pub attributes: bool,
    /// The hash of a file is that of its state, and its content is not read.
    pub states: bool,
}

/// Entries that a copy of local files would send, in order.
#[derive(Debug)]
pub struct Planned {
    pub(super) walk: Walk,
    pub(super) parts: ReadParts,
}

impl Iterator for Planned {
    type Item = Seen;

    fn next(&mut self) -> Option<Seen> {
        let found = self.walk.next()?;
        Some(seen(found, self.parts, &|| false))
    }
}

/// A listing in progress.
#[derive(Debug)]
pub struct DirectoryListing(ListingKind);

#[derive(Debug)]
enum ListingKind {
    /// A plain listing; symbolic links are shown as links.
    PathWalk(PathWalk),
    /// Entries that a copy would send.
    Copy(Box<Walk>, ReadParts),
}

/// Result of a step of a listing.
#[derive(Debug)]
pub enum ListingStep {
    /// The next item.
    Seen(Seen),
    /// No item yet; the caller should check for cancellation.
    Pause,
    /// The listing is complete.
    End,
}

impl DirectoryListing {
    /// Starts a listing below a root, or of local files if `disk` is `None`. `rules` are those of `options`, compiled.
    ///
    /// # Errors
    /// If a name is invalid.
    pub fn new(
        disk: Option<Arc<dyn Disk>>,
        places: Vec<Vec<u8>>,
        view: View,
        options: &ListOptions,
        rules: Rules,
    ) -> Result<Self, Failure> {
        let &ListOptions { hashes, attributes, literal, states, .. } = options;
        let named = options.names.as_deref().map(NamedSet::new).transpose()?;
        let recursive = match view {
            View::Files => false,
            View::Tree | View::Archive => true,
            View::Itself | View::Content | View::All => {
                let tree = disk.map_or(Tree::Local, Tree::Disk);
                let meaning = if literal { Meaning::Name } else { Meaning::Any };
                let todo =
                    places.into_iter().rev().map(|place| Task::Place(path_of(place), meaning));
                let todo = todo.collect();
                return Ok(Self(ListingKind::PathWalk(PathWalk { tree, view, attributes, todo })));
            }
        };
        let set = match disk {
            Some(disk) => SourceSet::in_disk(disk, places, recursive),
            None => SourceSet::as_user(places, recursive),
        };
        let set = set
            .with_rules(rules)
            .with_archive_mode(view == View::Archive)
            .with_names(named.map(Arc::new));
        let set = set.with_patterns(!literal);
        // Literal places are those of a destination, which nobody reads.
        let parts = ReadParts { content: hashes, attributes, states };
        Ok(Self(ListingKind::Copy(Box::new(set.into_listing(!literal)), parts)))
    }

    /// Continues to the next item, or up to a pause. Stops reading a file once `is_over` returns true.
    pub fn step(&mut self, is_over: &dyn Fn() -> bool) -> ListingStep {
        match &mut self.0 {
            ListingKind::PathWalk(places) => places.step(),
            ListingKind::Copy(walk, parts) => match walk.step() {
                Step::Found(found) => ListingStep::Seen(seen(found, *parts, is_over)),
                Step::Pause => ListingStep::Pause,
                Step::End => ListingStep::End,
            },
        }
    }
}

fn path_of(place: Vec<u8>) -> PathBuf {
    let place = if place.is_empty() { b".".to_vec() } else { place };
    OsString::from_vec(place).into()
}

/// Converts an entry of the walk to an item of the listing.
fn seen(mut found: Found, parts: ReadParts, is_over: &dyn Fn() -> bool) -> Seen {
    let facts = found.facts();
    let mut hash = if parts.states { found.found_state() } else { None };
    if parts.content && !parts.states && found.failure.is_none() && facts.kind == SeenKind::File {
        match found.open_same().and_then(|file| hash_of(&*file, &found.path, is_over)) {
            Ok(content) => hash = Some(content),
            Err(failure) => found.failure = Some(failure),
        }
    }
    let is_read = parts.attributes && found.failure.is_none();
    let attributes = if is_read { found.attributes() } else { None };
    let Found { entry, failure, rules, .. } = found;
    let facts = Facts { hash, attributes, ..facts };
    Seen { path: entry.path, outcome: failure.map_or(Ok(facts), Err), rules: rules.into() }
}

/// The metadata of a local path, if the path exists; links are not followed. With `hashes`, the content of a file is
/// hashed.
pub fn facts_of(path: &Path, hashes: bool) -> Option<Facts> {
    facts_with(path, ReadParts { content: hashes, ..ReadParts::default() })
}

/// As [`facts_of`], with these parts of the file or directory.
pub fn facts_with(path: &Path, parts: ReadParts) -> Option<Facts> {
    let metadata = Tree::Local.examine(path, LinkTarget::Itself).ok()?;
    let found = facts(&metadata);
    let read = || {
        let file = Tree::Local.open(path).ok()?;
        let is_same = file.metadata().is_ok_and(|now| now.id == metadata.id);
        if is_same { hash_of(&*file, path, &|| false).ok() } else { None }
    };
    let is_hashed = parts.content && found.kind == SeenKind::File;
    let hash = is_hashed.then(read).flatten();
    let attributes = || attributes_of(&Tree::Local, path, &metadata);
    Some(Facts { hash, attributes: parts.attributes.then(attributes).flatten(), ..found })
}

/// Hashes of the extended attributes of a file or directory with this metadata; `None` if they cannot be read.
fn attributes_of(tree: &Tree, path: &Path, found: &Metadata) -> Option<SeenAttributes> {
    let file = match found.kind {
        Kind::File => tree.open(path).ok()?,
        Kind::Directory => tree.open_directory(path).ok()? as Box<dyn ReadFile>,
        Kind::Symlink | Kind::Other => return None,
    };
    let is_same = file.metadata().is_ok_and(|now| now.id == found.id);
    is_same.then(|| file.seen_attributes().ok().flatten()).flatten()
}

/// BLAKE3 hash of the content of a file.
fn hash_of(
    file: &dyn ReadFile,
    path: &Path,
    is_over: &dyn Fn() -> bool,
) -> Result<[u8; 32], Failure> {
    content_hash(file, is_over).map_err(|error| read_failure(path.as_os_str().as_bytes(), &error))
}

/// BLAKE3 hash of the content of an open file; an error once `is_over` returns true. A sparse file can have petabytes.
pub(super) fn content_hash(
    file: &dyn ReadFile,
    is_over: &dyn Fn() -> bool,
) -> io::Result<[u8; 32]> {
    let (mut hasher, mut content, mut at) = (blake3::Hasher::new(), Vec::new(), 0);
    loop {
        if is_over() {
            return Err(cancelled());
        }
        content.clear();
        content.reserve_exact(HASHED_AT_ONCE);
        match file.read_at(&mut content, at) {
            Ok(0) => return Ok(*hasher.finalize().as_bytes()),
            Ok(_) => {
                hasher.update(&content);
                at += content.len() as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A walk that follows only links that were named.
#[derive(Debug)]
struct PathWalk {
    tree: Tree,
    view: View,
    attributes: bool,
    /// A stack: the next task is last.
    todo: Vec<Task>,
}

/// Meaning of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// A name, or a pattern if there is no such name.
    Any,
    /// A name that was requested.
    Name,
    /// A name that matches a pattern.
    Match,
}

enum Task {
    /// A path to list.
    Place(PathBuf, Meaning),
    /// A folder: names already read, in reverse order, and names not read yet.
    Folder(PathBuf, Vec<Vec<u8>>, Option<Children>),
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Place(path, _) | Self::Folder(path, ..)) = self;
        f.debug_tuple("Todo").field(path).finish()
    }
}

impl PathWalk {
    fn step(&mut self) -> ListingStep {
        match self.todo.pop() {
            None => ListingStep::End,
            Some(Task::Place(path, meaning)) => {
                self.begin(path, meaning).unwrap_or(ListingStep::Pause)
            }
            Some(Task::Folder(path, mut names, rest)) => match names.pop() {
                Some(name) => {
                    let child = path.join(OsStr::from_bytes(&name));
                    self.todo.push(Task::Folder(path, names, rest));
                    self.child(child)
                }
                None if rest.is_some() => self.read_on(path, rest),
                None => ListingStep::Pause,
            },
        }
    }

    /// Shows a name in a folder, and enters the folder if the view is recursive.
    fn child(&mut self, path: PathBuf) -> ListingStep {
        if let Some(failure) = too_long(&path) {
            return failed(path.parent().unwrap_or(&path), failure);
        }
        let step = self.show(&path, LinkTarget::Itself);
        let is_folder = matches!(&step, ListingStep::Seen(Seen { outcome: Ok(facts), .. })
            if facts.kind == SeenKind::Directory);
        if is_folder && self.view == View::All { self.enter(path, Some(step)) } else { step }
    }

    /// Reads more names of a folder.
    fn read_on(&mut self, path: PathBuf, mut rest: Option<Children>) -> ListingStep {
        let room = NAMES_HELD.saturating_sub(self.held()).max(NAMES_HELD / 100);
        match sorted_part(&mut rest, room) {
            Ok(mut names) => {
                names.reverse();
                self.todo.push(Task::Folder(path, names, rest));
                ListingStep::Pause
            }
            Err(failure) => failed(&path, failure),
        }
    }

    fn held(&self) -> usize {
        let names = self.todo.iter().map(|todo| match todo {
            Task::Folder(_, names, _) => names.len(),
            Task::Place(..) => 0,
        });
        names.sum()
    }

    /// Starts a path; returns `None` if the path was replaced by matches of its pattern.
    fn begin(&mut self, path: PathBuf, meaning: Meaning) -> Option<ListingStep> {
        let quoted = if meaning == Meaning::Any { glob::quoted_path(&path) } else { None };
        let (path, meaning) = quoted.map_or((path, meaning), |name| (name, Meaning::Name));
        if meaning == Meaning::Any && glob::is_pattern(path.as_os_str().as_bytes()) {
            match glob::expand(&self.tree, &path) {
                Ok(Matches::Several(paths)) => {
                    let places =
                        paths.into_iter().rev().map(|path| Task::Place(path, Meaning::Match));
                    self.todo.extend(places);
                    return None;
                }
                Ok(Matches::Itself) => {}
                Err(failure) => return Some(failed(&path, failure)),
            }
        }
        if self.view == View::Itself || (self.view == View::Content && meaning == Meaning::Match) {
            return Some(self.show(&path, LinkTarget::Itself));
        }
        match self.tree.examine(&path, LinkTarget::Follow) {
            Ok(metadata) if metadata.kind == Kind::Directory => Some(self.enter(path, None)),
            result if path.as_os_str().as_bytes().ends_with(b"/") => {
                let failure = result.map(|_| unreadable(&path, "is no folder"));
                Some(failed(&path, failure.unwrap_or_else(|failure| failure)))
            }
            // A broken link is shown itself.
            _ => Some(self.show(&path, LinkTarget::Itself)),
        }
    }

    /// Returns `shown` and continues with the content of the folder.
    fn enter(&mut self, path: PathBuf, shown: Option<ListingStep>) -> ListingStep {
        match self.tree.list(&path) {
            Ok(children) => {
                self.todo.push(Task::Folder(path, Vec::new(), Some(children)));
                shown.unwrap_or(ListingStep::Pause)
            }
            Err(failure) => failed(&path, failure),
        }
    }

    fn show(&self, path: &Path, link: LinkTarget) -> ListingStep {
        match self.tree.examine(path, link) {
            Ok(metadata) => {
                let is_read = self.attributes && self.view == View::Itself;
                let attributes = || attributes_of(&self.tree, path, &metadata);
                let attributes = is_read.then(attributes).flatten();
                ListingStep::Seen(seen_path(path, Ok(Facts { attributes, ..facts(&metadata) })))
            }
            Err(failure) => failed(path, failure),
        }
    }
}

/// The failure of a path that no message can contain. The directory above gets this failure.
fn too_long(path: &Path) -> Option<Failure> {
    let shown = display_path(path);
    (shown.len() > MAX_PATH).then(|| {
        let text = format!(
            "a path that begins with '{}' has {} bytes; paths have at most {MAX_PATH}, so make it shorter",
            Printable(&shown[..MAX_COMPONENT]),
            shown.len()
        );
        Failure::new(FailureCode::Unreadable, text)
    })
}

/// A path as displayed: without the leading `./` that was added here.
fn display_path(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_prefix(b"./").filter(|rest| !rest.is_empty()).unwrap_or(bytes).to_vec()
}

fn failed(path: &Path, failure: Failure) -> ListingStep {
    ListingStep::Seen(seen_path(path, Err(failure)))
}

fn seen_path(path: &Path, outcome: Result<Facts, Failure>) -> Seen {
    Seen { path: display_path(path), outcome, rules: Vec::new() }
}

/// A change to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// Remove a file or folder.
    Remove {
        /// Also remove folders with their content.
        recursive: bool,
        /// Metadata of the entry as it was compared. Another entry of the name stays.
        seen: Option<Facts>,
    },
    /// Make a folder.
    Make {
        /// Also make missing parents, and accept an existing folder.
        parents: bool,
        /// Permission bits of a new folder, less the umask; the owner's bits are always set.
        mode: u32,
        /// Identity of the directory before the mark; `None` for any.
        below: Option<Identity>,
    },
}

impl NameChange {
    /// Applies the change below a root, or to local files if `disk` is `None`. Returns the number
    /// of names removed or made.
    ///
    /// # Errors
    /// If the change was not made, or only in part; with [`FailureCode::Changed`] if another entry or directory has the
    /// name.
    pub fn apply(
        self,
        disk: Option<&dyn Disk>,
        place: &[u8],
        is_over: &dyn Fn() -> bool,
    ) -> Result<u64, Failure> {
        let below = match self {
            Self::Remove { .. } => None,
            Self::Make { below, .. } => below,
        };
        if let Some((root, rest)) = open_marked(disk, place, below)? {
            let path = root_path(Path::new(OsStr::from_bytes(rest)))?;
            return self.apply_in(&root, &path, place, is_over);
        }
        let names = place.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
        match disk {
            Some(disk) => {
                let path = RootPath::new(names).map_err(root_write_failure)?;
                self.apply_in(disk, &path, place, is_over)
            }
            None => {
                let (start, names) = user_place(place, names.collect())?;
                let root_dir =
                    RootDir::open(&start, RootLink::Follow).map_err(root_write_failure)?;
                self.apply_in(
                    &root_dir,
                    &RootPath::new(names).map_err(root_write_failure)?,
                    place,
                    is_over,
                )
            }
        }
    }

    fn apply_in(
        self,
        disk: &dyn Disk,
        path: &RootPath,
        written: &[u8],
        is_over: &dyn Fn() -> bool,
    ) -> Result<u64, Failure> {
        if path.is_root() {
            let text = "the served directory itself is not removed or made";
            return Err(Failure::new(FailureCode::Refused, text));
        }
        match self {
            Self::Remove { recursive, seen } => {
                let found = means_folder(written).then(|| disk.stat(path, LinkTarget::Itself));
                if found.is_some_and(|it| it.is_ok_and(|it| it.kind != Kind::Directory)) {
                    return Err(not_a_folder("remove", written));
                }
                let Some(seen) = seen else { return remove(disk, path, recursive, is_over) };
                // The folder stays the same for the check and the removal.
                let folder = path.parent().unwrap_or(RootPath::root());
                let near = disk.near(&folder).ok_or_else(|| unreachable_folder(disk, &folder))?;
                check_entry(&*near, path, &seen)?;
                remove(&*near, path, recursive, is_over)
            }
            Self::Make { parents, mode, .. } => make(disk, path, parents, mode),
        }
    }
}

/// Failure of a folder that cannot be kept open.
fn unreachable_folder(disk: &dyn Disk, folder: &RootPath) -> Failure {
    match disk.open_dir(folder) {
        Err(error) => root_write_failure(error),
        Ok(_) => {
            let why = "cannot be kept open; run the command again";
            Failure::of_file(FailureCode::Changed, "change names in", disk.shown(folder), why)
        }
    }
}

/// Splits a local path into a start directory and names below. Components above the last name may
/// be links or `..`, as in other programs.
fn user_place<'a>(
    place: &[u8],
    mut names: Vec<&'a [u8]>,
) -> Result<(PathBuf, Vec<&'a [u8]>), Failure> {
    let start = if place.starts_with(b"/") { "/" } else { "." };
    let Some(_) = names.last().filter(|name| **name != b"..") else {
        let text = format!("'{}' names no file of its own", Printable(place));
        return Err(Failure::new(FailureCode::Refused, text));
    };
    // Existing folders are entered as usual, through links too.
    let mut start = PathBuf::from(start);
    while names.len() > 1 {
        let next = start.join(OsStr::from_bytes(names[0]));
        if !next.is_dir() {
            break;
        }
        start = next;
        names.remove(0);
    }
    Ok((start, names))
}

fn make(disk: &dyn Disk, path: &RootPath, parents: bool, mode: u32) -> Result<u64, Failure> {
    let mut made = 0;
    let mut here = RootPath::root();
    for name in path.components() {
        let above = here.clone();
        here = here.join(name).map_err(root_write_failure)?;
        let is_last = here == *path;
        if !is_last && !parents {
            continue;
        }
        if disk.create_dir_as(&here, mode).map_err(root_write_failure)? {
            made += 1;
            let folder = disk.open_dir(&above).map_err(root_write_failure)?;
            folder
                .sync()
                .map_err(|error| super::entry_error::write_failure(here.as_bytes(), &error))?;
        } else if !parents {
            let text = format!("there is a folder '{path}' already");
            return Err(Failure::new(FailureCode::Unwritable, text));
        }
    }
    Ok(made)
}

/// Removes a name; links are removed and not followed. Stops at the first error.
fn remove(
    disk: &dyn Disk,
    path: &RootPath,
    recursive: bool,
    is_over: &dyn Fn() -> bool,
) -> Result<u64, Failure> {
    let is_folder =
        |path: &RootPath| disk.stat(path, LinkTarget::Itself).map(|it| it.kind == Kind::Directory);
    let is_top_folder = is_folder(path).map_err(|error| match error.is_not_found() {
        true => Failure::new(FailureCode::NotFound, error.to_string()),
        false => root_write_failure(error),
    })?;
    if !is_top_folder {
        disk.remove_file(path).map_err(root_write_failure)?;
        return Ok(1);
    }
    if !recursive {
        if disk.names(path).map_err(root_write_failure)?.next().is_some() {
            let text = format!("'{path}' is a folder and not empty; remove it with -r");
            return Err(Failure::new(FailureCode::Refused, text));
        }
        disk.remove_dir(path).map_err(root_write_failure)?;
        return Ok(1);
    }
    let mut removed = 0;
    let mut todo = vec![path.clone()];
    while let Some(folder) = todo.last().cloned() {
        let mut is_empty = true;
        let mut inner = None;
        for entry in disk.names(&folder).map_err(root_write_failure)?.take(NAMES_HELD) {
            if is_over() {
                return Err(Failure::new(FailureCode::Cancelled, "the removal was stopped"));
            }
            let child =
                folder.join(entry.map_err(root_write_failure)?.name).map_err(root_write_failure)?;
            is_empty = false;
            if is_folder(&child).map_err(root_write_failure)? {
                inner = Some(child);
                break;
            }
            disk.remove_file(&child).map_err(root_write_failure)?;
            removed += 1;
        }
        if let Some(inner) = inner {
            todo.push(inner);
        } else if is_empty {
            disk.remove_dir(&folder).map_err(root_write_failure)?;
            removed += 1;
            todo.pop();
        }
    }
    Ok(removed)
}
