//! Timeouts of one end for the other.

use std::time::Duration;

/// Timeouts after which a peer counts as gone.
///
/// Time in which this process did not run, because it was stopped or the machine slept, does not count: queued messages
/// of the peer are read first. Each end measures for itself. After an hour of suspend, the session continues if the
/// timeout of the other end is longer than an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// Longest silence of a peer: on the control connection, with three pings in this time, and on UDP while data is
    /// due. Use several seconds, because a path may fail for a while.
    pub silence: Duration,
    /// Longest time until a peer answers a request for files or for a measurement. Requests for streams have no
    /// timeout, because the peer's application answers them.
    pub accept: Duration,
    /// Longest time of a session without a transfer; `None` has no limit while the peer is alive.
    pub idle: Option<Duration>,
}

setters!(Timeouts { silence: Duration, accept: Duration, idle: Option<Duration> });

impl Timeouts {
    /// Default of a listener: as [`Timeouts::default`], with 15 minutes for a session without transfers.
    pub const LISTENER: Self = Self { idle: Some(Duration::from_secs(15 * 60)), ..Self::DEFAULT };

    const DEFAULT: Self =
        Self { silence: Duration::from_secs(30), accept: Duration::from_secs(60), idle: None };
}

impl Timeouts {
    /// Returns a copy with this silence timeout; also raises `accept` to at least this time.
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Self {
        Self { silence, accept: self.accept.max(silence), ..self }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::DEFAULT
    }
}
