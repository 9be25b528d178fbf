//! Log of packets that links dropped.

use sabul_units::Instant;

use crate::link::LinkStats;
use crate::topology::Way;

/// Packets that one direction of a link dropped at one time for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropEvent {
    /// Position of the link.
    pub link: usize,
    /// Direction of the link.
    pub way: Way,
    /// Time.
    pub at: Instant,
    /// Reason.
    pub why: DropReason,
    /// Flow number; `None` where the link dropped a packet other than the one that arrived.
    pub flow: Option<u32>,
    /// Number of packets.
    pub packets: u64,
}

/// Why a link drops packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The queue was full.
    Full,
    /// The discipline dropped the packets while there was room.
    Early,
    /// Random loss.
    Loss,
    /// During an outage.
    Outage,
    /// Larger than the MTU.
    TooLarge,
}

impl DropReason {
    /// Name of the reason in event texts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Early => "early",
            Self::Loss => "loss",
            Self::Outage => "outage",
            Self::TooLarge => "too-large",
        }
    }

    /// Returns the drops between two snapshots, by reason.
    pub(crate) fn since(before: &LinkStats, now: &LinkStats) -> impl Iterator<Item = (Self, u64)> {
        [
            (Self::Full, now.dropped_full - before.dropped_full),
            (Self::Early, now.dropped_early - before.dropped_early),
            (Self::Loss, now.dropped_loss - before.dropped_loss),
            (Self::Outage, now.dropped_outage - before.dropped_outage),
            (Self::TooLarge, now.dropped_too_large - before.dropped_too_large),
        ]
        .into_iter()
        .filter(|(_, packets)| *packets > 0)
    }
}
