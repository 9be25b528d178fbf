//! Files that a session has written, for a user who may not read.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::root::{FileId, Kind, Metadata};

/// Ours: most files that are remembered. Further files count as not written.
const FILES_MAX: usize = 1 << 22;

/// Files that a session has written and that nobody has changed since, as hashes of their identity and change time.
#[derive(Debug, Default)]
pub struct Published {
    known: Mutex<HashSet<u64>>,
}

impl Published {
    /// Remembers a file with its final name.
    pub(crate) fn note(&self, file: &Metadata) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if file.kind == Kind::File && known.len() < FILES_MAX {
            known.insert(state(file));
        }
    }

    /// Whether the session has written this file, and the file is unchanged.
    pub(crate) fn has(&self, file: &Metadata) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        file.kind == Kind::File && known.contains(&state(file))
    }
}

/// Hash of a file's identity, size and change time.
fn state(file: &Metadata) -> u64 {
    let time = [file.ctime.seconds, file.ctime.nanoseconds.into()].map(i64::to_le_bytes);
    short(file.id, &[file.size.to_le_bytes(), time[0], time[1]])
}

/// Hash of a file's identity and of other facts.
pub(super) fn short(id: FileId, more: &[[u8; 8]]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&id.device.to_le_bytes());
    hasher.update(&id.inode.to_le_bytes());
    hasher.update(&id.born_ns.to_le_bytes());
    hasher.update(more.as_flattened());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
