//! Delta of a changed file: the ranges that are sent, and the ranges that the receiver takes from its old file.

use serde::{Deserialize, Serialize};

use super::bounds;
use super::more::Extent;

/// Most data extents of one entry. Ours: 10 GiB of which 1 % changed in random pages has some 26,000.
pub const MAX_DELTA_EXTENTS: usize = 32_768;
/// Most moved ranges of one entry. Ours: a file with more insertions is sent with the smallest ranges.
pub const MAX_MOVED: usize = 4096;
/// Most chunks in one message.
pub const MAX_CHUNKS: usize = 4096;

/// Division of a file into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chunking {
    /// Chunks of equal size.
    Fixed,
    /// Content-defined chunks: an insertion changes only the chunks around the insertion.
    Content,
}

/// A range of a file, next to the range before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Chunk {
    /// Length in bytes.
    pub bytes: u32,
    /// First bytes of the BLAKE3 hash of the content.
    pub hash: [u8; 16],
}

/// End of a list of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunksEnd {
    /// Length of the file in bytes.
    pub size: u64,
    /// Identifies size, modification time and change time of the file.
    pub version: [u8; 16],
}

/// Ranges of an entry that the receiver takes from its old file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// BLAKE3 hash of all kept bytes, in the order of the new file.
    pub hash: [u8; 32],
    /// Ranges that have another offset in the old file, ascending; at most [`MAX_MOVED`]. Other kept ranges have the
    /// same offset in both files.
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_MOVED>")]
    pub moved: Vec<Moved>,
}

/// A range with its offsets in both files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Offset in the new file, in bytes.
    pub to: u64,
    /// Offset in the old file, in bytes.
    pub from: u64,
    /// Length in bytes; not zero.
    pub bytes: u64,
}

/// How to send a changed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// Version of the file that was compared, as in [`ChunksEnd`].
    pub version: [u8; 16],
    /// Ranges to send, ascending; at most [`MAX_DELTA_EXTENTS`].
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_DELTA_EXTENTS>")]
    pub data: Vec<Extent>,
    /// All other ranges.
    pub kept: Kept,
}

impl Kept {
    /// Assumed memory use in bytes.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.moved.len() * size_of::<Moved>()
    }
}

impl Delta {
    /// Assumed memory use in bytes.
    pub(super) fn weight(&self) -> usize {
        self.data.len() * size_of::<Extent>() + self.kept.weight()
    }
}
