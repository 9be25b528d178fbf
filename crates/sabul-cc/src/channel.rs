//! What an algorithm may need of the channel beyond SABUL's own rules.
//!
//! SABUL's relatives differ less in their rate than in which piece leaves next and in what the
//! receiver says when. Those are rules of the channel; an algorithm names the ones it needs, and
//! both ends follow them.

use sabul_units::{Packets, Span};

/// NETBLT's buffer, in packets: the receiver answers for each as a whole. \[RFC998\]
pub const BUFFER_PACKETS: u64 = 64;

/// The packet number of the first packet of a pair is a multiple of this. [UDT4 core.cpp]
pub const PAIR_EVERY: u64 = 16;

/// Which piece leaves next, and what the receiver reports when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChannelRules {
    /// Losses first, then new data; NAKs at once. [SABUL §II-D]
    #[default]
    Standard,
    /// Everything that may be sent, then a mark, then nothing until the receiver has listed what is
    /// missing; that is the next round. Lateness within a round is made good in full. \[RBUDP\]
    Rounds,
    /// What the receiver asks for goes before new data. It asks at a gap, and for everything that is
    /// outstanding each 350 ms, and tells its error rate then. \[TSUNAMI\]
    Requests,
    /// Round and round over all that is not known to have arrived. The receiver lists what has not
    /// with each 64th packet. \[FOBS\]
    Cyclic,
    /// The receiver answers for each [`BUFFER_PACKETS`] in a row when the last of them comes or is
    /// overdue: all here, or what is missing. \[RFC998\]
    Buffers,
    /// As the standard ones. Besides, of each [`PAIR_EVERY`] packets two leave back to back, and the receiver
    /// reports the time between two such arrivals. [UDT4 core.cpp]
    Pairs,
}

impl ChannelRules {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::Standard, Self::Rounds, Self::Requests, Self::Cyclic, Self::Buffers, Self::Pairs];

    /// Whether the receiver sends a NAK for each loss; the sender sends losses first, then new data.
    pub const fn has_naks(self) -> bool {
        matches!(self, Self::Standard | Self::Pairs)
    }

    /// Its name in messages.
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

/// What a report of the receiver says beyond which pieces are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BulkReport {
    /// Of a round, a buffer, or since the report before.
    Account {
        /// DATA packets that it tells the fate of.
        sent: Packets,
        /// Those of them that arrived, at most as many.
        arrived: Packets,
    },
    /// The receiver's filtered error rate, percent × 1000: 0 to 100 000. \[TSUNAMI\]
    ErrorRate(u32),
    /// The receiver's filtered time between the arrivals of two packets that left back to back; not zero.
    /// [UDT4 window.cpp]
    PairTime(Span),
}
