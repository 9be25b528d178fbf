//! Inputs of the channel rules, and the outputs for their reports.

use sabul_cc::RttEstimate;
use sabul_units::Instant;

use crate::receiver::acks::Acks;
use crate::receiver::lists::Lists;
use crate::receiver::sequence::Sequence;
use crate::receiver::stats::ReceiverStats;

/// The parts of a receiver that its rules use.
#[derive(Debug)]
pub(in crate::receiver) struct ReceiverContext<'a> {
    pub(in crate::receiver) now: Instant,
    pub(in crate::receiver) data: &'a Sequence,
    pub(in crate::receiver) rtt: Option<RttEstimate>,
    pub(in crate::receiver) stats: &'a mut ReceiverStats,
    pub(in crate::receiver) acks: &'a mut Acks,
    pub(in crate::receiver) lists: &'a mut Lists,
}
