//! Totals of a received transfer.

/// Totals of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Content bytes written or already present, without failed entries.
    pub bytes: u64,
    /// Bytes that were already present.
    pub resumed: u64,
    /// Durable bytes, as defined by [`Sink::durable`](super::Sink::durable).
    pub durable: u64,
    /// Entries that are complete, verified and kept as the sink guarantees.
    pub entries: u64,
    /// Kept entries that are neither directories nor links.
    pub files: u64,
    /// Entries that failed.
    pub failed: u64,
    /// Files that grew while they were read.
    pub grown: u64,
}
