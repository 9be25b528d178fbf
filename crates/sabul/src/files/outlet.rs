//! What the sending end of a transfer gives its blocks to, and tells what it does.

use sabul_wire::control::{Entry, Failure};

/// Where the sending end puts what it produces; every call may wait.
pub trait Outlet {
    /// An empty buffer with room for one block; waits until one is free.
    ///
    /// # Errors
    /// If the transfer is over.
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped>;

    /// The next block of the stream; short ones are the last, and those after which a stream had
    /// nothing more for a while.
    ///
    /// # Errors
    /// If the transfer is over.
    fn block(&mut self, block: Vec<u8>) -> Result<(), Stopped>;

    /// The next entry is announced in a block.
    fn announced(&mut self, _entry: &Entry) {}

    /// All entries were found: so many, of so many bytes, where each size is known.
    fn totals(&mut self, _entries: u64, _bytes: Option<u64>) {}

    /// An entry failed at this end, with the path as it is known here. Told at once; the summary has it, too.
    fn failed(&mut self, _path: &[u8], _failure: &Failure) {}

    /// Whether the transfer is over, for one who has nothing to hand over for a while.
    fn is_over(&self) -> bool {
        false
    }
}

/// The transfer is over before its end; whoever stopped it knows why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the transfer was stopped")
    }
}

impl std::error::Error for Stopped {}
