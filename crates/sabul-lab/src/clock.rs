//! The real clock, as the picoseconds that links count.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, Timespec, clock_gettime};
use sabul_units::{Instant, Span};

/// A receive time further back than this comes from a system clock that was set in between.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Counts from its first use, so that a path's outages start with the traffic.
#[derive(Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    /// When it was started, on the system's own clock.
    pub(crate) fn started(&self) -> std::time::Instant {
        self.start
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + Span::from(self.start.elapsed())
    }
}

/// Turns the kernel's receive times, which are of the system clock, into ages.
pub(crate) struct Ages {
    system_now: Duration,
}

impl Ages {
    pub(crate) fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self { system_now: since_epoch.unwrap_or_default() }
    }

    /// How long ago that was; no time at all if it is unknown or implausible.
    pub(crate) fn of(&self, received: Option<Duration>) -> Span {
        let age = received.and_then(|at| self.system_now.checked_sub(at));
        age.filter(|age| *age <= AGE_MAX).map_or(Span::ZERO, Span::from)
    }
}

/// Processor time that the calling thread has used, in seconds.
pub(crate) fn thread_cpu_seconds() -> f64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    tv_sec as f64 + tv_nsec as f64 / 1e9
}

/// A span as the kernel takes it.
pub(crate) fn timespec(span: Span) -> Timespec {
    let duration = Duration::from(span);
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_time_from_a_clock_that_was_set_counts_as_now() {
        let ages = Ages { system_now: Duration::from_secs(100) };
        assert_eq!(ages.of(Some(Duration::from_millis(99_999))), Span::from_millis(1));
        for odd in [None, Some(Duration::from_secs(101)), Some(Duration::from_secs(98))] {
            assert_eq!(ages.of(odd), Span::ZERO, "{odd:?}");
        }
    }
}
