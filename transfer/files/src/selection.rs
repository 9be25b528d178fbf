//! Names of the entries to send, chosen by a comparison of both ends.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sabul_wire::control::{Delta, Entry, EntryKind, Failure, Replaces};

use super::followed::Awaited;
use super::glob::{self, Matches};
use super::source::{is_content, last_component};
use super::tree::Tree;

/// Names of the entries to send, as a copy of all sources would name them. A directory is sent without its content.
pub trait Selection: Send {
    /// Returns the next name; waits at most some milliseconds.
    fn next(&mut self) -> Selected;

    /// Takes size and modification time of the entry that is sent under the last name. The entry may have changed since
    /// its name was chosen.
    fn sent(&mut self, _name: &[u8], _size: u64, _modified_ns: Option<i64>) {}

    /// Takes the object at the destination that the entry of the last name may replace; `None` for any.
    fn replaces(&mut self) -> Option<Replaces> {
        None
    }

    /// Flag that is set once no other transfer writes the awaited entries. They are then sent as they are.
    fn is_written(&self) -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(true))
    }
}

/// Result of [`Selection::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// The next name.
    Name(Vec<u8>),
    /// The next name, of a file of which the receiver has an old version.
    Changed(Vec<u8>, Box<Delta>),
    /// The next entry, which another transfer may still write at this machine.
    Awaited(Box<Awaited>),
    /// The next name is not known yet.
    NotYet,
    /// There are no more names.
    End,
}

/// Entries that a comparison has found to need no copy, so that the totals of a copy do not count them.
#[derive(Debug, Default)]
pub struct Skipped {
    entries: AtomicU64,
    bytes: AtomicU64,
    is_complete: AtomicBool,
}

impl Skipped {
    /// Counts an entry of this size.
    pub fn add(&self, bytes: u64) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of an entry that is sent.
    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Marks the end of the comparison.
    pub fn finish(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// Entries and bytes so far, and whether these are all.
    pub(super) fn counts(&self) -> (u64, u64, bool) {
        // Read the flag first: if it is set, the counts read afterwards are final.
        let is_complete = self.is_complete.load(Ordering::Acquire);
        let (entries, bytes) = (&self.entries, &self.bytes);
        (entries.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed), is_complete)
    }
}

/// The chosen names of a walk, and the sources to which the names belong.
pub(super) struct Chosen {
    names: Box<dyn Selection>,
    /// The next entry, which is not there yet.
    waiting: Option<Box<Awaited>>,
    /// Sources by the name of their entry.
    sources: BTreeMap<Vec<u8>, PathBuf>,
    /// Directories whose content goes to the top level.
    contents: Vec<PathBuf>,
    /// Patterns without a match.
    failures: BTreeMap<Vec<u8>, Failure>,
}

impl std::fmt::Debug for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chosen").field("sources", &self.sources).finish_non_exhaustive()
    }
}

impl Chosen {
    pub(super) fn new(names: Box<dyn Selection>) -> Self {
        let (sources, contents, failures) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Self { names, waiting: None, sources, contents, failures }
    }

    /// Adds the sources of the walk. With `are_patterns`, a source may be a pattern.
    pub(super) fn add(&mut self, tree: &Tree, sources: Vec<PathBuf>, are_patterns: bool) {
        for source in sources {
            if let Some(quoted) = glob::quoted_path(&source).filter(|_| are_patterns) {
                self.add(tree, vec![quoted], false);
                continue;
            }
            let bytes = source.as_os_str().as_bytes();
            let matches = match are_patterns && glob::is_pattern(bytes) {
                true => glob::expand(tree, &source),
                false => Ok(Matches::Itself),
            };
            match matches {
                Ok(Matches::Several(paths)) => self.add(tree, paths, false),
                Ok(Matches::Itself) if is_content(bytes) => self.contents.push(source),
                Ok(Matches::Itself) => {
                    self.sources.entry(last_component(bytes)).or_insert(source);
                }
                Err(failure) => {
                    self.failures.insert(last_component(bytes), failure);
                }
            }
        }
    }

    /// Returns the next name.
    pub(super) fn next(&mut self) -> Selected {
        self.waiting.take().map_or_else(|| self.names.next(), Selected::Awaited)
    }

    /// Returns this entry again as the next one.
    pub(super) fn wait_for(&mut self, awaited: Box<Awaited>) {
        self.waiting = Some(awaited);
    }

    /// Flag that is set once no other transfer writes the awaited entries.
    pub(super) fn is_written(&self) -> Arc<AtomicBool> {
        self.names.is_written()
    }

    /// Reports the entry that is sent under the last name, and records in the entry what the entry may replace.
    pub(super) fn sent(&mut self, entry: &mut Entry, size: u64) {
        self.names.sent(&entry.path, size, entry.modified_ns);
        // A directory replaces nothing.
        if let Some(replaces) = self.names.replaces()
            && entry.kind != EntryKind::Directory
        {
            entry.more.get_or_insert_default().replaces = Some(replaces);
        }
    }

    /// Returns the reason why no source has this name, if the name is a pattern without a match.
    pub(super) fn failure(&self, name: &[u8]) -> Option<&Failure> {
        self.failures.get(name)
    }

    /// Returns the places where an entry of this name can be, each with the source above; `None` above a source.
    pub(super) fn places(&self, name: &[u8]) -> Vec<(PathBuf, Option<PathBuf>)> {
        let (top, below) = match name.iter().position(|&byte| byte == b'/') {
            Some(slash) => (&name[..slash], Some(&name[slash + 1..])),
            None => (name, None),
        };
        let join = |source: &Path, below: &[u8]| source.join(OsStr::from_bytes(below));
        let named = self.sources.get(top).map(|source| match below {
            Some(below) => (join(source, below), Some(source.clone())),
            None => (source.clone(), None),
        });
        let contents =
            self.contents.iter().map(|source| (join(source, name), Some(source.clone())));
        named.into_iter().chain(contents).collect()
    }
}
