//! Why the sender was silent, and for how long.

use sabul_units::{Instant, Span};

use crate::fired::FiredLog;

/// Why the sender is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitReason {
    /// The gap to the next packet is not over.
    Pacing,
    /// The controller holds everything for a round trip after a loss.
    Freeze,
    /// The window of the controller or of the configuration is full, or this end's memory.
    Window,
    /// The receiver has no room.
    Receiver,
    /// The application has given nothing to send.
    Application,
}

impl WaitReason {
    const ALL: [Self; 5] =
        [Self::Pacing, Self::Freeze, Self::Window, Self::Receiver, Self::Application];
}

/// What held the sender back, for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    /// The reason.
    pub why: WaitReason,
    /// Time spent so.
    pub time: Span,
}

/// The account of it, and of the timers that fired meanwhile.
#[derive(Debug, Default)]
pub(super) struct Waits {
    pub(super) fired: FiredLog,
    present: Option<(WaitReason, Instant)>,
    spent: [Span; WaitReason::ALL.len()],
}

impl Waits {
    pub(super) const fn begin(&mut self, why: WaitReason, now: Instant) {
        self.present = Some((why, now));
    }

    #[inline]
    pub(super) fn end(&mut self, now: Instant) {
        if let Some((why, since)) = self.present.take() {
            self.spent[why as usize] += now.since(since);
        }
    }

    pub(super) fn limiters(&self) -> [Limiter; WaitReason::ALL.len()] {
        WaitReason::ALL.map(|why| Limiter { why, time: self.spent[why as usize] })
    }
}
