//! State of a file: what a change of the content changes, as a hash.
//!
//! Hosts that share a file system find the same state. Their device numbers may differ and are left out. The change time
//! cannot be set, and together with the inode number belongs to one file only.

use crate::root::{FileTime, Metadata};
use crate::tree::{FactKind, Facts, modified_ns};

/// The state of an open file.
pub(super) fn state_of(now: &Metadata) -> [u8; 32] {
    hash(now.id.inode, now.size, modified_ns(now.mtime), now.ctime)
}

/// The state of a file at its lookup; `None` for other kinds.
pub(super) fn state_of_facts(facts: &Facts) -> Option<[u8; 32]> {
    let FactKind::File(size) = facts.kind else { return None };
    Some(hash(facts.id.inode, size, facts.modified_ns, facts.changed))
}

pub(super) fn hash(inode: u64, size: u64, modified_ns: Option<i64>, changed: FileTime) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&inode.to_le_bytes()).update(&size.to_le_bytes());
    hasher.update(&[u8::from(modified_ns.is_some())]);
    hasher.update(&modified_ns.unwrap_or(0).to_le_bytes());
    hasher.update(&changed.seconds.to_le_bytes()).update(&changed.nanoseconds.to_le_bytes());
    *hasher.finalize().as_bytes()
}
