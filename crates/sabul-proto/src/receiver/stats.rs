//! What a receiver counts.

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Authentic DATA packets.
    pub packets: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// DATA packets whose data was here already.
    pub duplicates: u64,
    /// Numbers reported missing, each report counted.
    pub reported: u64,
    /// Packets that had been reported missing and came all the same: late, not lost.
    pub late: u64,
    /// Packets with the ECN mark.
    pub marked: u64,
}
