//! The parts of a receiver that channel rules read, and those that send their reports.

use sabul_cc::RttEstimate;
use sabul_units::{Instant, Span};
use sabul_wire::Feedback;

use super::acks::Acks;
use super::lists::{Listing, Lists};
use super::sequence::Sequence;
use super::stats::ReceiverStats;
use crate::rtt;

/// View of a receiver for its channel rules.
#[derive(Debug)]
pub struct ReceiverContext<'a> {
    /// The receiver's clock.
    pub now: Instant,
    /// RTT estimate; `None` before the first sample.
    pub rtt: Option<RttEstimate>,
    /// Sequence numbers that have arrived and that are missing.
    pub data: &'a Sequence,
    pub(super) stats: &'a mut ReceiverStats,
    pub(super) acks: &'a mut Acks,
    pub(super) lists: &'a mut Lists,
}

impl ReceiverContext<'_> {
    /// Returns the smoothed RTT, or a default before the first sample.
    pub fn smoothed_rtt(&self) -> Span {
        self.rtt.map_or(rtt::UNKNOWN_TO_RECEIVER, |rtt| rtt.smoothed)
    }

    /// Returns the number of DATA packets that have arrived.
    pub const fn packets(&self) -> u64 {
        self.stats.packets
    }

    /// Requests an ACK at once.
    pub const fn ack_now(&mut self) {
        self.acks.need_now(self.now);
    }

    /// Sends a report, after those that already wait.
    pub fn send(&mut self, report: Feedback) {
        if let Feedback::Missing(missing) = &report {
            self.stats.reported += missing.count();
        }
        self.lists.push(report);
    }

    /// Lists the missing numbers of a range, each list when it leaves. A listing that has not ended
    /// ends now.
    pub const fn list(&mut self, listing: Listing) {
        self.lists.begin(listing);
    }

    /// Returns the end of the newest list of [`Self::list`].
    pub const fn listed_below(&self) -> u64 {
        self.lists.listed_below()
    }
}
