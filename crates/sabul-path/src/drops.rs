//! Packets that a link dropped, noted while somebody wants to know.

use sabul_units::Instant;

use crate::link::LinkStats;
use crate::topology::Way;

/// Packets that one direction of a link dropped at one moment, for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drop {
    /// Position of the link.
    pub link: usize,
    /// Which direction of it.
    pub way: Way,
    /// When.
    pub at: Instant,
    /// Why.
    pub why: DropReason,
    /// The number of the flow; none where the link dropped another packet than the one that came.
    pub flow: Option<u32>,
    /// How many.
    pub packets: u64,
}

/// Why a link drops packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The queue was full.
    Full,
    /// The discipline dropped them while there was room.
    Early,
    /// By chance.
    Loss,
    /// During an outage.
    Outage,
    /// Larger than the MTU.
    TooLarge,
}

impl DropReason {
    /// Its word in the text of an event.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Early => "early",
            Self::Loss => "loss",
            Self::Outage => "outage",
            Self::TooLarge => "too-large",
        }
    }

    /// What was dropped between two looks, by reason.
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
