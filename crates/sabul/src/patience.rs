//! How long one end waits for the other.

use std::time::Duration;

/// How long to wait for a peer before it counts as gone.
///
/// Time in which this process did not run, because it was stopped or the machine slept, does not
/// count: what the peer said meanwhile is read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Longest silence of a peer that has something to say. It should be several seconds: a path
    /// may be out for a while.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { silence: Duration::from_secs(30) }
    }
}
