//! Channel rules: order of transmission and kind of receiver reports that an algorithm needs.
//!
//! Relatives of SABUL differ less in rate control than in the order of pieces and in the receiver's
//! reports. An algorithm names its rules, and both ends follow them.

use sabul_units::{Packets, Span};

/// Buffer size of NETBLT in packets: the receiver reports each buffer as a whole. \[RFC998\]
pub const BUFFER_PACKETS: u64 = 64;

/// The first packet of a packet pair has a packet number that is a multiple of this.
/// [UDT4 core.cpp]
pub const PAIR_EVERY: u64 = 16;

/// Order of transmission, and content and time of receiver reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChannelRules {
    /// Losses first, then new data; NAKs at once. [SABUL §II-D]
    #[default]
    Standard,
    /// Rounds: all pieces, then a mark, then silence until the receiver has listed the missing
    /// pieces, which form the next round. Lateness within a round is compensated in full. \[RBUDP\]
    Rounds,
    /// Requested pieces before new data. The receiver requests missing pieces at a gap and all
    /// missing pieces each 350 ms, together with its error rate. \[TSUNAMI\]
    Requests,
    /// Cyclic passes over all pieces not known to have arrived. The receiver lists missing pieces
    /// with each 64th packet. \[FOBS\]
    Cyclic,
    /// Buffers of [`BUFFER_PACKETS`]: the receiver reports a buffer as complete, or lists its
    /// missing pieces, when its last packet arrives or is overdue. \[RFC998\]
    Buffers,
    /// Standard rules, and packet pairs: of each [`PAIR_EVERY`] packets two leave back to back, and
    /// the receiver reports the time between their arrivals. [UDT4 core.cpp]
    Pairs,
}

impl ChannelRules {
    /// All rules.
    pub const ALL: [Self; 6] =
        [Self::Standard, Self::Rounds, Self::Requests, Self::Cyclic, Self::Buffers, Self::Pairs];

    /// Returns whether the receiver sends a NAK for each loss; the sender sends losses first, then
    /// new data.
    pub const fn has_naks(self) -> bool {
        matches!(self, Self::Standard | Self::Pairs)
    }

    /// Returns the name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Rounds => "rounds",
            Self::Requests => "requests",
            Self::Cyclic => "cyclic",
            Self::Buffers => "buffers",
            Self::Pairs => "pairs",
        }
    }
}

/// Content of a receiver report besides the list of missing pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BulkReport {
    /// Counts of a round, of a buffer, or since the previous report.
    Account {
        /// DATA packets that the report covers.
        sent: Packets,
        /// Covered packets that arrived; at most `sent`.
        arrived: Packets,
    },
    /// The receiver's filtered error rate, percent × 1000: 0 to 100 000. \[TSUNAMI\]
    ErrorRate(u32),
    /// The receiver's filtered time between the arrivals of two packets that left back to back; not zero.
    /// [UDT4 window.cpp]
    PairTime(Span),
}
