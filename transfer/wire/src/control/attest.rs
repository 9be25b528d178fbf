//! Files that an end hashes for a receipt.

use serde::{Deserialize, Serialize};

use super::bounds;
use super::limits::{ITEM, MAX_NAME};

/// Part of an end in a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// The end with the sources.
    Sender,
    /// The end with the destination.
    Receiver,
}

/// A file to hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToHash {
    /// Path of the file in the manifests, relative to the destination.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub path: Vec<u8>,
    /// For the sender, the name of the entry in the transfer if it is not `path`; otherwise empty.
    #[serde(deserialize_with = "bounds::bytes::<_, MAX_NAME>")]
    pub name: Vec<u8>,
    /// For the sender, the number of bytes to hash; a source may have grown. The receiver hashes all bytes.
    pub bytes: u64,
}

impl ToHash {
    /// Assumed memory use in bytes.
    pub(super) fn weight(&self) -> usize {
        ITEM + self.path.len() + self.name.len()
    }
}

/// Size and hashes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedFile {
    /// Number of hashed bytes.
    pub bytes: u64,
    /// SHA-256 of these bytes.
    pub sha256: [u8; 32],
    /// BLAKE3 of these bytes.
    pub blake3: [u8; 32],
}
