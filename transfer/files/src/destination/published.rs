//! Files that a session has written, for a user who may not read.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::FileReceiver;
use crate::group::short;
use crate::root::{Kind, Metadata};

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

impl FileReceiver {
    /// Also remembers the written files here.
    #[must_use]
    pub fn noting(mut self, published: Option<Arc<Published>>) -> Self {
        self.sink_mut().group.published = published;
        self
    }
}
