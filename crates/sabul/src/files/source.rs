//! What to send: local files and directories, a stream, or what a listener's root holds.
//!
//! The walk is lazy and sorted by bytes, so that two runs send the same order; of a directory with
//! more than [`NAMES_HELD`] names it sorts one part after the other, so that memory stays bounded.
//! Links are followed as far as they stay in the directory that was named, unless all of files is wanted (`all.rs`); one that
//! leads out of it is followed on request only, since whoever made the tree would decide what leaves this machine. A link to a
//! directory that contains it is reported. Below a listener's root, links to files are followed as
//! far as they stay inside, and links to directories are reported. Nothing but regular files is ever opened: opening a
//! FIFO or a device can wait for ever or act on hardware.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::mem::take;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul_transfer::{Printable, RelativePath};
use sabul_wire::control::{
    Entry, EntryKind, Failure, FailureCode, MAX_ORIGINS, More, Owner, Range,
};

use super::all::{AllOfFiles, add_attributes};
use super::glob;
use super::have::name_of;
use super::look::Planned;
use super::part::is_reserved;
use super::prompt::Prompt;
use super::rules::Rules;
use super::tree::{Children, FactKind, Facts, Links, Tree, sorted_part, unreadable};
use super::trouble::read_failure;
use crate::disk::Disk;
use crate::jail::FileTime;

/// Name of the entry that carries standard input, until the destination names it.
const STDIN_NAME: &[u8] = b"stdin";

/// Most names of directories that a walk holds at a time, as far as each directory on the way
/// down may have a hundredth of them. Ours: some 5 MB of usual names.
const NAMES_HELD: usize = 100_000;

/// Why a directory is not sent.
const NOT_RECURSIVE: &str = "is a directory; copy it with -r";

/// Names that a walk looks at and leaves out before it pauses.
const PAUSE_AFTER: usize = 1000;

/// One thing to send.
pub enum Source {
    /// A file or directory. A trailing `/` means the content of a directory, as in rsync.
    Path(PathBuf),
    /// Bytes until the end of the reader, under a name.
    Stream {
        /// Name of the entry; one plain component.
        name: Vec<u8>,
        /// Where the bytes come from. Where it fails with [`io::ErrorKind::WouldBlock`], what was
        /// read leaves, though no block is full, and it is asked again at once: it has to wait a
        /// little itself before it fails so.
        reader: Box<dyn Read + Send>,
    },
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Stream { name, .. } => {
                f.debug_struct("Stream").field("name", &Printable(name)).finish_non_exhaustive()
            }
        }
    }
}

impl Source {
    /// A source as written on a command line: a path, or `-` for standard input.
    pub fn from_argument(argument: &OsStr) -> Self {
        if argument == "-" {
            let reader: Box<dyn Read + Send> = match Prompt::stdin() {
                Ok(prompt) => Box::new(prompt),
                Err(_) => Box::new(io::stdin()),
            };
            Self::Stream { name: STDIN_NAME.to_vec(), reader }
        } else {
            Self::Path(argument.into())
        }
    }
}

/// Everything that one transfer sends.
#[derive(Debug)]
pub struct SourceSet {
    tree: Tree,
    roots: Vec<PathBuf>,
    stream: Option<(Vec<u8>, Stream)>,
    recursive: bool,
    rules: Rules,
    range: Option<Range>,
    /// Sources may be patterns.
    are_patterns: bool,
    /// Kept, all is kept: links, owners and extended attributes.
    links: Links,
}

/// The reader of a stream entry.
pub(super) struct Stream(pub(super) Box<dyn Read + Send>);

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}

impl SourceSet {
    /// Sources on this machine.
    ///
    /// # Errors
    /// If there is more than one stream, or its name is none.
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
        Ok(Self {
            tree: Tree::Local,
            roots,
            stream,
            recursive,
            rules: Rules::default(),
            range: None,
            are_patterns: false,
            links: Links::Inside,
        })
    }

    /// Sources below a listener's root, as a peer asks for them. A `/` in front is the root.
    pub fn in_disk(disk: Arc<dyn Disk>, sources: Vec<Vec<u8>>, recursive: bool) -> Self {
        let roots = sources.into_iter().map(|path| OsString::from_vec(path).into()).collect();
        Self {
            tree: Tree::Disk(disk),
            roots,
            stream: None,
            recursive,
            rules: Rules::default(),
            range: None,
            are_patterns: false,
            links: Links::Inside,
        }
    }

    /// Sources as the user of this process would write them; nothing is the current directory.
    pub(crate) fn as_user(sources: Vec<Vec<u8>>, recursive: bool) -> Self {
        let path = |path: Vec<u8>| {
            let path = if path.is_empty() { b".".to_vec() } else { path };
            PathBuf::from(OsString::from_vec(path))
        };
        Self {
            tree: Tree::Local,
            roots: sources.into_iter().map(path).collect(),
            stream: None,
            recursive,
            rules: Rules::default(),
            range: None,
            are_patterns: false,
            links: Links::Inside,
        }
    }

    /// What stands for each source, by which what an interrupted transfer of it left is found again.
    pub fn origins(&self) -> Vec<[u8; 8]> {
        let absolute = |root: &PathBuf| match &self.tree {
            Tree::Local => std::path::absolute(root).unwrap_or_else(|_| root.clone()),
            Tree::Disk(_) => root.clone(),
        };
        let roots: Vec<PathBuf> = self.roots.iter().map(absolute).collect();
        origins_of(roots.iter().map(|root| root.as_os_str().as_bytes()))
    }

    /// Leaves out what these rules leave out.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Sends this stretch of files alone.
    #[must_use]
    pub(crate) fn with_range(self, range: Option<Range>) -> Self {
        Self { range, ..self }
    }

    /// Takes a source under whose very name there is nothing for a pattern of names.
    #[must_use]
    pub(crate) fn with_patterns(self) -> Self {
        Self { are_patterns: true, ..self }
    }

    /// Sends symbolic links as links, hard links as what they are to each other, and owners and extended attributes;
    /// or follows links and sends no more than modes and times.
    #[must_use]
    pub fn with_all_of_files(self, is_wanted: bool) -> Self {
        Self { links: if is_wanted { Links::Keep } else { self.links }, ..self }
    }

    /// Follows symbolic links out of the named directories too.
    #[must_use]
    pub fn with_links_out(self, is_wanted: bool) -> Self {
        Self { links: if is_wanted { Links::Follow } else { self.links }, ..self }
    }

    /// What would be sent, in order, without reading any of it; standard input aside.
    pub fn plan(self) -> Planned {
        Planned { walk: self.into_parts().0 }
    }

    /// Why each source cannot be sent, where none of them can: nothing is there, or it is a directory and the set is not
    /// recursive. A look at each.
    pub fn none_to_send(&self) -> Vec<(Vec<u8>, Failure)> {
        if self.stream.is_some() {
            return Vec::new();
        }
        let failure = |root: &PathBuf| {
            let bytes = root.as_os_str().as_bytes();
            let links = if is_content(bytes) { Links::Follow } else { self.links };
            let failure = match self.tree.look(root, None, links) {
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

    /// Whether the destination has to be a directory: with several sources, or when the content
    /// of a directory is sent.
    pub fn needs_directory(&self) -> bool {
        let count = self.roots.len() + usize::from(self.stream.is_some());
        count > 1 || self.roots.iter().any(|root| is_content(root.as_os_str().as_bytes()))
    }

    /// Where it is looked up.
    pub(super) const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The files and directories that were named.
    pub(super) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Whether what is below the named places is what is sent, so that it can be counted ahead: no stream, no rules, no
    /// stretch of a file and no patterns.
    pub(crate) fn can_be_counted(&self) -> bool {
        let is_name =
            |root: &PathBuf| !self.are_patterns || !glob::is_pattern(root.as_os_str().as_bytes());
        self.stream.is_none()
            && self.rules.is_empty()
            && self.range.is_none()
            && self.roots.iter().all(is_name)
    }

    /// What becomes of links.
    pub(super) const fn links(&self) -> Links {
        self.links
    }

    pub(super) const fn is_recursive(&self) -> bool {
        self.recursive
    }

    /// The walk, the tree it happens in, and the stream that comes last.
    pub(super) fn into_parts(self) -> (Walk, Option<(Vec<u8>, Stream)>) {
        let Self { tree, roots, stream, recursive, rules, range, are_patterns, links } = self;
        let roots = roots.into();
        let walk = Walk {
            tree,
            roots,
            recursive,
            rules,
            range,
            are_patterns,
            links,
            all: (links == Links::Keep).then(AllOfFiles::default),
            stack: Vec::new(),
            names_held: NAMES_HELD,
            left_out: 0,
            led_out: 0,
        };
        (walk, stream)
    }
}

/// What stands for each of these sources, up to a bound.
pub(crate) fn origins_of<'a>(sources: impl Iterator<Item = &'a [u8]>) -> Vec<[u8; 8]> {
    sources.take(MAX_ORIGINS).map(name_of).collect()
}

/// Whether a source stands for what is in a directory: it ends in `/`, `.` or `..`.
pub(super) fn is_content(path: &[u8]) -> bool {
    matches!(path.rsplit(|&byte| byte == b'/').next(), None | Some(b"" | b"." | b".."))
}

/// Something to send, or to say that it cannot be sent.
#[derive(Debug)]
pub(super) struct Found {
    /// As announced; an empty file where there is a failure.
    pub(super) entry: Entry,
    /// Where to open it.
    pub(super) path: PathBuf,
    /// Why it cannot be sent.
    pub(super) failure: Option<Failure>,
    /// Which part of the file the entry is, where it is not all; and bytes of all.
    pub(super) part: Option<(u64, u64)>,
    /// Numbers of its owner and group.
    pub(super) owner: (u32, u32),
    /// When anything about it last changed, as the system counts.
    pub(super) changed: FileTime,
}

/// What comes of a step of a walk.
#[derive(Debug)]
pub(super) enum Step {
    /// The next one.
    Found(Found),
    /// Much was left out: a moment to ask whether this is still wanted.
    Pause,
    /// There is no more.
    End,
}

/// A walk under way.
#[derive(Debug)]
pub(super) struct Walk {
    tree: Tree,
    roots: VecDeque<PathBuf>,
    recursive: bool,
    rules: Rules,
    range: Option<Range>,
    are_patterns: bool,
    links: Links,
    /// Links and the like are kept.
    all: Option<AllOfFiles>,
    stack: Vec<Level>,
    names_held: usize,
    left_out: u64,
    led_out: u64,
}

/// A directory whose children are being visited.
struct Level {
    path: PathBuf,
    /// Name of the directory in the transfer; empty where its content goes to the top.
    name: Vec<u8>,
    children: std::vec::IntoIter<Vec<u8>>,
    /// Gives the children after those, if there are any.
    rest: Option<Children>,
    /// Device and inode, where links to directories are followed.
    identity: Option<(u64, u64)>,
}

impl std::fmt::Debug for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Level").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What a path is, what is known of it, and what else is kept of it.
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
    /// Goes on to the next one, or for a while.
    pub(super) fn step(&mut self) -> Step {
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

    /// Where it happens.
    pub(super) const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Begins one source; nothing where the content of a directory begins.
    fn start(&mut self, root: PathBuf) -> Option<Found> {
        let bytes = root.as_os_str().as_bytes();
        let name = last_component(bytes);
        if self.are_patterns && glob::is_pattern(bytes) {
            match glob::expand(&self.tree, &root) {
                // What came of it is taken as it is, and comes before the next source.
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

    /// Looks at a path; nothing where it is a file under construction.
    fn visit(&mut self, path: PathBuf, name: Vec<u8>) -> Option<Found> {
        match self.try_visit(&path, &name) {
            Ok(Some((kind, Facts { mode, modified_ns, changed, owner, group, .. }, more))) => {
                let owner = (owner, group);
                let (kind, part) = match self.part_of(kind, &path) {
                    Ok(part) => part,
                    Err(failure) => return Some(failed(name, path, failure)),
                };
                let entry = Entry { path: name, kind, mode: Some(mode), modified_ns, more };
                Some(Found { entry, path, failure: None, part, owner, changed })
            }
            Ok(None) => None,
            Err(failure) => Some(failed(name, path, failure)),
        }
    }

    fn try_visit(&mut self, path: &Path, name: &[u8]) -> Result<Option<Visited>, Failure> {
        let named = self.stack.first().map(|level| &*level.path);
        let facts = match self.tree.look(path, named, self.links) {
            Ok(facts) => facts,
            Err(_) if !self.rules.take(name, false) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        if !self.rules.take(name, matches!(facts.kind, FactKind::Directory(_))) {
            return Ok(None);
        }
        if matches!(facts.kind, FactKind::File(_)) && is_reserved(name) {
            if !self.stack.is_empty() {
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
                self.enter(path, name.to_vec(), identity)?;
                if let Some(more) = &mut more {
                    add_attributes(&*self.tree.open_directory(path)?, path, more)?;
                }
                EntryKind::Directory
            }
            FactKind::File(size) => {
                // Opened now so that a file without permission costs a message and not its size in
                // zeros; closed again so that a batch may exceed the limit of open files.
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
                if self.range.is_none() && facts.may_have_holes() {
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
                let why = "is a link that leads out of what is copied; -L follows it";
                return Err(unreadable(path, why));
            }
            FactKind::Other(what) => return Err(unreadable(path, &format!("is {what}"))),
        };
        Ok(Some((kind, facts, more.map(Box::new))))
    }

    /// The stretch that is wanted of a file, as its own entry.
    fn part_of(
        &self,
        kind: EntryKind,
        path: &Path,
    ) -> Result<(EntryKind, Option<(u64, u64)>), Failure> {
        let (Some(range), EntryKind::File(size)) = (self.range, kind) else {
            return Ok((kind, None));
        };
        let rest = size.checked_sub(range.offset).ok_or_else(|| {
            unreadable(path, &format!("has {size} bytes, and byte {} was asked for", range.offset))
        })?;
        let length = range.length.map_or(rest, |length| rest.min(length));
        Ok((EntryKind::File(length), Some((range.offset, size))))
    }

    /// Links that were met and lead out of what is sent.
    pub(super) fn led_out(&self) -> u64 {
        self.led_out
    }

    /// Files under construction that were met and left out.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Goes on with the children of a directory, which have `name` in front of theirs.
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
        let mut rest = Some(self.tree.list(path)?);
        let children = sorted_part(&mut rest, self.room_for_names())?.into_iter();
        self.stack.push(Level { path: path.to_path_buf(), name, children, rest, identity });
        Ok(())
    }

    /// How many more names may be held.
    fn room_for_names(&self) -> usize {
        let held: usize = self.stack.iter().map(|level| level.children.len()).sum();
        self.names_held.saturating_sub(held).max(self.names_held / 100).max(1)
    }
}

fn failed(name: Vec<u8>, path: PathBuf, failure: Failure) -> Found {
    // The receiver is told as well, so it needs some name that it can accept.
    let name = if RelativePath::new(&*name).is_ok() { name } else { b"unnamed".to_vec() };
    let entry =
        Entry { path: name, kind: EntryKind::File(0), mode: None, modified_ns: None, more: None };
    let changed = FileTime { seconds: 0, nanoseconds: 0 };
    Found { entry, path, failure: Some(failure), part: None, owner: (0, 0), changed }
}

/// What comes behind the last slash, those at the end aside.
fn last_component(path: &[u8]) -> Vec<u8> {
    path.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()).unwrap_or(path).to_vec()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_with_more_names_than_are_held_is_walked_in_sorted_parts() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/sub")).unwrap();
        for i in 0..50 {
            fs::write(dir.path().join(format!("a/{i:02}")), "").unwrap();
            fs::write(dir.path().join(format!("a/sub/{i:02}")), "").unwrap();
        }
        for names_held in [1, 7, 1000] {
            let set = SourceSet::local(vec![Source::Path(dir.path().join("a"))], true).unwrap();
            let (mut walk, _) = set.into_parts();
            walk.names_held = names_held;
            let mut found = Vec::new();
            while let Some(next) = walk.next() {
                let held: usize = walk.stack.iter().map(|level| level.children.len()).sum();
                assert!(held <= names_held + walk.stack.len(), "{held} of {names_held}");
                assert_eq!(next.failure, None);
                found.push(next.entry.path);
            }
            assert_eq!(found.len(), 102);
            if names_held == 1000 {
                assert!(found.is_sorted(), "one part is all of it");
            }
            found.sort();
            found.dedup();
            assert_eq!(found.len(), 102, "each comes once");
        }
    }
}
