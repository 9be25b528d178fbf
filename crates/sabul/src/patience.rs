//! How long one end waits for the other.

use std::time::Duration;

/// How long to wait for a peer before it counts as gone.
///
/// Time in which this process did not run, because it was stopped or the machine slept, does not
/// count: what the peer said meanwhile is read first. The peer counts for itself. So a laptop that
/// sleeps for an hour finds its session alive if the other end has more than an hour of patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Longest silence of a peer: on the control connection, where each end asks for an answer three
    /// times in this time, and on UDP while data is due. It should be several seconds: a path may
    /// be out for a while.
    pub silence: Duration,
    /// Longest time that a peer may take to answer a request for files or for a measurement. Requests
    /// for streams are for the peer's application, which may think as long as it likes.
    pub accept: Duration,
    /// Longest time that a session may have no transfer; none for as long as the peer lives.
    pub idle: Option<Duration>,
}

impl Patience {
    /// What a listener has where nothing else is asked for: as the default, and 15 minutes for a
    /// session without transfers.
    pub const LISTENER: Self = Self { idle: Some(Duration::from_secs(15 * 60)), ..Self::DEFAULT };

    const DEFAULT: Self =
        Self { silence: Duration::from_secs(30), accept: Duration::from_secs(60), idle: None };
}

impl Patience {
    /// The same with another longest silence. An answer, too, may take that long.
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Self {
        Self { silence, accept: self.accept.max(silence), ..self }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::DEFAULT
    }
}
