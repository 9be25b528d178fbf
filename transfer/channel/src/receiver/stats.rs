//! Counters of a receiver.

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Authentic DATA packets.
    pub packets: u64,
    /// Payload bytes of these packets.
    pub bytes: u64,
    /// DATA packets whose data had arrived before.
    pub duplicates: u64,
    /// Numbers reported missing; each report counts.
    pub reported: u64,
    /// Packets that arrived after a loss report had listed them: late, not lost.
    pub late: u64,
    /// Packets with the ECN mark.
    pub marked: u64,
}
