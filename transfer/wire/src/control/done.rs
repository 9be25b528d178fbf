//! Result of a transfer.

use serde::{Deserialize, Serialize};

use super::bounds;
use super::listing::Facts;
use super::more::{MAX_NOT_KEPT, NotKept};

/// Result of a transfer as counted by the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Number of the transfer.
    pub transfer: u32,
    /// Content bytes received, or present before.
    pub bytes: u64,
    /// The part of `bytes` that was present before.
    pub resumed: u64,
    /// The part of `bytes` that survives a power cut.
    pub durable: u64,
    /// Entries that arrived complete and verified.
    pub entries: u64,
    /// The part of `entries` that are not directories.
    pub files: u64,
    /// Entries that failed.
    pub failed: u64,
    /// Microseconds from opening the channel to the last byte.
    pub elapsed_us: u64,
    /// CPU time of the receiving process during the transfer, in microseconds.
    pub cpu_us: u64,
    /// The name of the destination took the place of the name of the source.
    pub in_place: bool,
    /// Metadata of arrived entries that could not be preserved; at most [`MAX_NOT_KEPT`].
    #[serde(deserialize_with = "bounds::list::<_, _, MAX_NOT_KEPT>")]
    pub not_kept: Vec<NotKept>,
    /// Metadata of the destination when it was opened, if the request expected a directory.
    pub destination: Option<Box<Facts>>,
}
