//! Account of waiting times by cause.

use sabul_units::{Instant, Span};

use crate::fired::FiredLog;

/// Why nothing can be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitReason {
    /// The inter-packet gap is not over.
    Pacing,
    /// The controller freezes sending for a round trip after a loss.
    Freeze,
    /// The controller's window, the flow window or this end's memory is full.
    Window,
    /// The receiver has no room.
    Receiver,
    /// The application has given nothing to send.
    Application,
}

/// Cause of a wait in the account of waiting times: finer than [`WaitReason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The controller's rate or window.
    Path,
    /// The configured maximum rate, which is below the controller's rate.
    Cap,
    /// The controller's rate, which its policy has lowered in favour of other flows.
    Policy,
    /// The controller freezes sending for a round trip after a loss.
    Freeze,
    /// The flow window or this end's memory is full.
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

/// Total time under one cause of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limiter {
    /// The cause.
    pub why: Cause,
    /// Time spent waiting for this cause.
    pub time: Span,
}

/// Account of waits, and the log of fired timers.
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
