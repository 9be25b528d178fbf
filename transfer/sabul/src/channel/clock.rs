//! Clock of a channel.

use std::time::Duration;

use sabul_units::Instant;

// Tokio's clock can be virtual but costs a call per packet. Both clocks return the system's monotonic time unless
// tokio's is paused.
#[cfg(not(test))]
use std::time::Instant as Base;
#[cfg(test)]
use tokio::time::Instant as Base;

/// Clock of a driver: the only place where a channel reads the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Base);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Base::now())
    }
    pub(super) fn now(self) -> Instant {
        Instant::ZERO + self.0.elapsed().into()
    }
    /// Time zero of this clock, on the system's clock.
    #[cfg(not(test))]
    pub(super) fn start_moment(self) -> std::time::Instant {
        self.0
    }
    #[cfg(test)]
    pub(super) fn start_moment(self) -> std::time::Instant {
        self.0.into_std()
    }
    /// Time from now until `deadline`.
    pub(super) fn until(self, deadline: Instant) -> Duration {
        deadline.since(self.now()).into()
    }
}

/// Times of the statistics for the application.
#[derive(Debug)]
pub(super) struct StatsTimes {
    /// Start of the carrier.
    pub(super) began: Instant,
    /// Time of the next statistics.
    pub(super) next: Instant,
}
