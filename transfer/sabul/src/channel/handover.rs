//! State that passes from one carrier of a channel to the next.

use std::fmt;

use sabul_units::Instant;

use super::error::ChannelError;
use super::room::Room;
use crate::budget::BlockLoan;

/// Called once, after the application stopped the channel or the channel failed.
pub(crate) type OnEnd = Box<dyn FnOnce(Result<(), ChannelError>) + Send>;
/// Called with each complete block, in order.
pub(crate) type Deliver = Box<dyn FnMut(Vec<u8>) + Send>;

/// End of a driver without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriverEnd {
    /// The endpoint is finished.
    Over,
    /// Another carrier takes over.
    HandOver,
}

/// State of a receiving end that the next carrier takes over.
pub(crate) struct Reception {
    /// Blocks delivered so far.
    pub(super) next: u32,
    /// Bytes of these blocks.
    pub(super) delivered: u64,
    /// Blocks that the application is processing.
    pub(super) blocks_out: usize,
    pub(super) room: Room,
    pub(super) deliver: Deliver,
}

impl Reception {
    /// State before the first block.
    pub(super) fn new(memory: BlockLoan, deliver: Deliver) -> Self {
        let room = Room::with_spare(memory, Instant::ZERO);
        Self { next: 0, delivered: 0, blocks_out: 0, room, deliver }
    }
}

impl fmt::Debug for Reception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reception").field("next", &self.next).finish_non_exhaustive()
    }
}

/// State of an endpoint whose blocks another carrier takes over.
pub(crate) struct HandedOver {
    pub(super) on_end: OnEnd,
    /// State of a receiving endpoint.
    pub(super) reception: Option<Reception>,
}

impl fmt::Debug for HandedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandedOver").finish_non_exhaustive()
    }
}
