//! Partial data that a receiver of files reports.

use serde::{Deserialize, Serialize};

use super::bounds;
use super::limits::{ITEM, MAX_NAME};

/// Most checkpoints of one file.
pub const MAX_CHECKPOINTS: usize = 64;

/// Partial file at the receiver: a prefix of the content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Name of the entry.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub path: Vec<u8>,
    /// Offsets from which the transfer can resume, ascending; at most [`MAX_CHECKPOINTS`].
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_CHECKPOINTS>")]
    pub checkpoints: Vec<Checkpoint>,
}

/// A complete small file at the receiver, identified by truncated hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// The first bytes of the BLAKE3 hash of the entry's name.
    pub name: [u8; 8],
    /// The first bytes of the BLAKE3 hash of the content.
    pub content: [u8; 8],
}

/// Resume point: an offset in a file with the hash of the bytes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Start of the hashed range: zero, or the offset of an earlier checkpoint.
    pub from: u64,
    /// Offset of the checkpoint in bytes.
    pub bytes: u64,
    /// Hash of the range, computed as for an entry with these bytes; includes the map of holes if the file has holes.
    pub hash: [u8; 32],
}

impl Held {
    /// Assumed memory use in bytes.
    pub fn weight(&self) -> usize {
        ITEM + self.path.len() + size_of::<Checkpoint>() * self.checkpoints.len()
    }
}
