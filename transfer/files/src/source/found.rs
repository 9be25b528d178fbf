//! An entry that a walk found, and the check that the opened file is the file of its lookup.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul_content::{MAX_PATH, Printable, RelativePath};
use sabul_wire::control::{
    Entry, EntryKind, Facts, Failure, FailureCode, SeenAttributes, SeenKind,
};

use super::state::{hash, state_of};
use crate::disk::ReadFile;
use crate::entry_error::read_failure;
use crate::followed::Followed;
use crate::root::{FileId, FileTime, Kind, Metadata};
use crate::tree::{self, FactKind, Tree};

/// An entry to send, or a failure to report.
#[derive(Debug)]
pub(crate) struct Found {
    /// The announced entry; an empty file in case of a failure.
    pub(crate) entry: Entry,
    /// Path to open.
    pub(crate) path: PathBuf,
    /// Tree in which the path is opened.
    pub(super) tree: Tree,
    /// Identity at the lookup; `None` for an object of a store.
    pub(crate) id: Option<FileId>,
    /// The file has several names.
    pub(crate) is_shared: bool,
    /// Reason why the entry cannot be sent.
    pub(crate) failure: Option<Failure>,
    /// Offset of the requested range and size of the whole file, if only a range is sent.
    pub(crate) part: Option<(u64, u64)>,
    /// Size of the file, or length of the text of a link.
    pub(crate) size: u64,
    /// User and group number of the owner.
    pub(crate) owner: (u32, u32),
    /// Change time (ctime).
    pub(crate) changed: FileTime,
    /// Text of the rule file of a directory, in a listing.
    pub(crate) rules: Box<[u8]>,
    /// State that the opened file must have.
    pub(super) state: Option<[u8; 32]>,
    /// The file that is read while another transfer writes it.
    pub(crate) followed: Option<Arc<Followed>>,
}

impl Found {
    /// An entry with these facts.
    pub(super) fn new(entry: Entry, path: PathBuf, facts: &tree::Facts, tree: &Tree) -> Self {
        let (owner, changed) = ((facts.owner, facts.group), facts.changed);
        let id = (!matches!(tree, Tree::Store(_))).then_some(facts.id);
        let is_shared = matches!(facts.kind, FactKind::File(_)) && facts.names > 1;
        Self { id, is_shared, owner, changed, ..Self::object(entry, path, tree.clone()) }
    }

    /// An entry without owner and identity.
    pub(super) fn object(entry: Entry, path: PathBuf, tree: Tree) -> Self {
        let changed = FileTime { seconds: 0, nanoseconds: 0 };
        let (id, failure, part, rules, state) = (None, None, None, Box::default(), None);
        let (is_shared, size, owner, followed) = (false, 0, (0, 0), None);
        Self {
            entry,
            path,
            tree,
            id,
            is_shared,
            failure,
            part,
            size,
            owner,
            changed,
            rules,
            state,
            followed,
        }
    }

    /// Facts of the entry, without hashes.
    pub(crate) fn facts(&self) -> Facts {
        let kind = match self.entry.kind {
            EntryKind::File(_) | EntryKind::HardLink => SeenKind::File,
            EntryKind::Directory => SeenKind::Directory,
            EntryKind::Stream => SeenKind::Other,
            EntryKind::SymbolicLink => SeenKind::Link,
        };
        let (owner, group) = self.owner;
        Facts {
            mode: self.entry.mode.unwrap_or(0),
            owner,
            group,
            id: self.id.map(Into::into),
            is_shared: self.is_shared,
            ..Facts::new(kind, self.size, self.entry.modified_ns)
        }
    }

    /// Opens the file. The caller compares its metadata with [`Self::is_same`] before the content is used.
    pub(crate) fn open(&self) -> Result<Box<dyn ReadFile>, Failure> {
        match &self.followed {
            Some(followed) => Ok(Box::new(Arc::clone(followed))),
            None => self.tree.open(&self.path),
        }
    }

    /// Opens the file, if it is the file of the lookup.
    pub(crate) fn open_same(&self) -> Result<Box<dyn ReadFile>, Failure> {
        let file = self.open()?;
        if self.id.is_some() || self.state.is_some() {
            let bytes = self.path.as_os_str().as_bytes();
            let now = file.metadata().map_err(|error| read_failure(bytes, &error))?;
            if !self.is_same(&now) {
                return Err(changed(&self.path));
            }
        }
        Ok(file)
    }

    /// Hashes of the extended attributes of a file or directory; `None` if they cannot be read.
    pub(crate) fn attributes(&self) -> Option<SeenAttributes> {
        let file = match self.entry.kind {
            EntryKind::Directory => self.tree.open_directory(&self.path).ok()? as Box<dyn ReadFile>,
            EntryKind::File(_) | EntryKind::HardLink => self.open().ok()?,
            EntryKind::Stream | EntryKind::SymbolicLink => return None,
        };
        let is_same = is_same(&file.metadata().ok()?, self.id?, self.changed, self.owner.0);
        is_same.then(|| file.seen_attributes().ok().flatten()).flatten()
    }

    /// Whether an opened file is the file of the lookup.
    pub(crate) fn is_same(&self, now: &Metadata) -> bool {
        self.state.is_none_or(|state| state_of(now) == state)
            && self.id.is_none_or(|id| {
                now.kind == Kind::File && is_same(now, id, self.changed, self.owner.0)
            })
    }

    /// State of the file of the lookup.
    pub(crate) fn found_state(&self) -> Option<[u8; 32]> {
        let EntryKind::File(size) = self.entry.kind else { return None };
        self.id.map(|id| hash(id.inode, size, self.entry.modified_ns, self.changed))
    }
}

/// Whether metadata is that of the file that had this identity, change time and owner. Some network file systems number
/// their files anew. Birth time and change time cannot be set, so they and the owner identify a file as well.
fn is_same(now: &Metadata, id: FileId, changed: FileTime, owner: u32) -> bool {
    let is_unchanged = || now.ctime == changed && now.owner == owner;
    let other_number = FileId { inode: id.inode, ..now.id };
    now.id == id || (other_number == id && is_unchanged())
}

/// Checks that an opened file or directory is that of the lookup.
///
/// # Errors
/// If the name was given to another file, or the metadata cannot be read.
pub(super) fn check_same(
    file: &dyn ReadFile,
    path: &Path,
    facts: &tree::Facts,
) -> Result<(), Failure> {
    let now = file.metadata().map_err(|error| read_failure(path.as_os_str().as_bytes(), &error))?;
    if is_same(&now, facts.id, facts.changed, facts.owner) { Ok(()) } else { Err(changed(path)) }
}

pub(super) fn changed(path: &Path) -> Failure {
    let shown = Printable(path.as_os_str().as_bytes());
    let text = format!("'{shown}' changed while it was read; copy it again");
    Failure::new(FailureCode::Changed, text)
}

pub(super) fn failed(name: Vec<u8>, path: PathBuf, failure: Failure) -> Found {
    let name = valid_name(name);
    let entry =
        Entry { path: name, kind: EntryKind::File(0), mode: None, modified_ns: None, more: None };
    Found { failure: Some(failure), ..Found::object(entry, path, Tree::Local) }
}

/// The name of a failed entry for the receiver: its own, or that of the nearest directory above if the own name is too
/// long. A name of none of its directories is not expected by the receiver, and is out of order in a listing.
fn valid_name(mut name: Vec<u8>) -> Vec<u8> {
    while name.len() > MAX_PATH {
        let above = name.iter().rposition(|&byte| byte == b'/');
        name.truncate(above.unwrap_or(0));
    }
    if RelativePath::new(&*name).is_ok() { name } else { b"unnamed".to_vec() }
}
