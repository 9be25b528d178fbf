//! Token bucket of events: so many at once, and then one in each interval.

use std::time::Duration;

use tokio::time::Instant;

/// Rate of handshakes, evictions or calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) interval: Duration,
    pub(crate) burst: u32,
}

impl Rate {
    /// Returns the time until the next token. `full_at` is the time at which the bucket will be full.
    pub(crate) fn wait(self, full_at: Option<Instant>, now: Instant) -> Duration {
        let full_at = full_at.unwrap_or(now).max(now);
        (full_at + self.interval).saturating_duration_since(now + self.interval * self.burst)
    }

    /// Takes a token and returns the time at which the bucket will be full.
    pub(crate) fn taken(self, full_at: Option<Instant>, now: Instant) -> Instant {
        full_at.unwrap_or(now).max(now) + self.interval
    }
}
