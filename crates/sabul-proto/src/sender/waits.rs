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

/// What holds a sender back, as an account of its time names it: finer than [`WaitReason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The controller's rate or window.
    Path,
    /// The configured highest rate, which is below the controller's.
    Cap,
    /// The controller's rate, which it has lowered for others because its policy asks for that.
    Policy,
    /// The controller holds everything for a round trip after a loss.
    Freeze,
    /// The window of the configuration is full, or this end's memory.
    Window,
    /// The bound on packets in flight after drops at the receiver's socket.
    Overflow,
    /// The receiver has no room.
    Receiver,
    /// The application has given nothing to send.
    Application,
    /// Neither ACK nor NAK of outstanding data has come, since the second expiry in a row.
    Outage,
}

impl Cause {
    const ALL: [Self; 9] = [
        Self::Path,
        Self::Cap,
        Self::Policy,
        Self::Freeze,
        Self::Window,
        Self::Overflow,
        Self::Receiver,
        Self::Application,
        Self::Outage,
    ];
}

/// What held the sender back, for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    /// The cause.
    pub why: Cause,
    /// Time spent so.
    pub time: Span,
}

/// The account of it, and of the timers that fired meanwhile.
#[derive(Debug, Default)]
pub(super) struct Waits {
    pub(super) fired: FiredLog,
    present: Option<(Cause, Instant)>,
    spent: [Span; Cause::ALL.len()],
}

impl Waits {
    pub(super) const fn begin(&mut self, why: Cause, now: Instant) {
        self.present = Some((why, now));
    }

    #[inline]
    pub(super) fn end(&mut self, now: Instant) {
        if let Some((why, since)) = self.present.take() {
            self.spent[why as usize] += now.since(since);
        }
    }

    pub(super) fn limiters(&self) -> [Limiter; Cause::ALL.len()] {
        Cause::ALL.map(|why| Limiter { why, time: self.spent[why as usize] })
    }
}
