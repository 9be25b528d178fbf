//! Directories that lose rights: they lose them before new content is copied into them.
//!
//! Other metadata is set after the content, because writing changes times, and because more rights must not come before
//! the content is complete. Fewer rights cannot wait: the source is private already.

use std::collections::BTreeMap;

use sabul::files::{Facts, NewMetadata};

/// Makes changes of metadata at the destination; blocks.
type Set = Box<dyn FnMut(Vec<NewMetadata>) + Send>;

/// Changes of directories of a destination, which are made before the next entry is copied.
pub(super) struct Narrowing {
    set: Set,
    changes: Vec<NewMetadata>,
    /// New permission bits, until the other metadata of the directory is known.
    modes: BTreeMap<Vec<u8>, u32>,
}

impl Narrowing {
    /// Without changes. Each change is made by `set`.
    pub(super) fn new(set: Set) -> Self {
        Self { set, changes: Vec::new(), modes: BTreeMap::new() }
    }

    /// Records a directory that gets these permission bits.
    pub(super) fn add(&mut self, path: Vec<u8>, old: &Facts, mode: u32) {
        self.changes.push(narrowed(path.clone(), old, mode));
        self.modes.insert(path, mode);
    }

    /// The permission bits that a directory got, once.
    pub(super) fn take(&mut self, path: &[u8]) -> Option<u32> {
        self.modes.remove(path)
    }

    /// Makes the changes; blocks. A failure shows itself when the other metadata of the directory is set.
    pub(super) fn carry_out(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        if !changes.is_empty() {
            (self.set)(changes);
        }
    }
}

/// Change of the permission bits of a directory with this metadata.
pub(super) fn narrowed(path: Vec<u8>, old: &Facts, mode: u32) -> NewMetadata {
    let seen = Facts { hash: None, attributes: None, ..*old };
    NewMetadata { path, mode: Some(mode), modified_ns: None, owner: None, seen }
}
