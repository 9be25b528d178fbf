//! Output interface of the file sender: takes blocks and events.

use sabul_wire::control::{Entry, Failure};

/// Consumer of the sender's output; every call may block.
pub trait Outlet {
    /// Returns an empty buffer with room for one block; blocks until a buffer is free.
    ///
    /// # Errors
    /// If the transfer is over.
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped>;

    /// Takes the next block of the stream. A block is short only at the end, and where a stream
    /// paused.
    ///
    /// # Errors
    /// If the transfer is over.
    fn block(&mut self, block: Vec<u8>) -> Result<(), Stopped>;

    /// Reports that the next entry is in a block.
    fn announced(&mut self, _entry: &Entry) {}

    /// Reports the total number of entries, and the total bytes if every size is known.
    fn totals(&mut self, _entries: u64, _bytes: Option<u64>) {}

    /// Reports a local failure of an entry, with its local path. Called at once; the failure is
    /// also in the summary.
    fn failed(&mut self, _path: &[u8], _failure: &Failure) {}

    /// Reports that a file grew while it was read.
    fn grew(&mut self) {}

    /// Whether the transfer is over; used while no block is produced.
    fn is_over(&self) -> bool {
        false
    }
}

/// The transfer ended early; the outlet has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the transfer was stopped")
    }
}

impl std::error::Error for Stopped {}
