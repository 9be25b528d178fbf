//! Real-time clock in picoseconds, the unit of links.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, Timespec, clock_gettime};
use sabul_units::{Instant, Span};

/// Longest plausible age of a receive time; an older receive time means that the system clock was
/// set in between.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Monotonic clock of a run: time zero is shared by the path and all its flows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// A clock whose time zero is now.
    pub(crate) fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    pub(crate) fn now(self) -> Instant {
        self.at(std::time::Instant::now())
    }

    /// Returns time zero as a moment of the system's clock.
    pub(crate) const fn start_moment(self) -> std::time::Instant {
        self.start
    }

    /// Converts a moment of the system's clock; zero before time zero.
    pub(crate) fn at(self, moment: std::time::Instant) -> Instant {
        Instant::ZERO + moment.saturating_duration_since(self.start).into()
    }

    /// Returns the moment at which this clock shows `at`; a year from now if the system cannot
    /// represent that moment.
    pub(crate) fn moment(self, at: Instant) -> std::time::Instant {
        let year = Duration::from_secs(365 * 86_400);
        let moment = self.start.checked_add(at.elapsed().into());
        moment.unwrap_or_else(|| std::time::Instant::now() + year)
    }
}

/// Converts the kernel's receive times, which are of the system clock, to ages.
pub(crate) struct Ages {
    system_now: Duration,
}

impl Ages {
    pub(crate) fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self { system_now: since_epoch.unwrap_or_default() }
    }

    /// Returns the age of a receive time; zero if unknown or implausible.
    pub(crate) fn of(&self, received: Option<Duration>) -> Span {
        let age = received.and_then(|at| self.system_now.checked_sub(at));
        age.filter(|age| *age <= AGE_MAX).map_or(Span::ZERO, Span::from)
    }
}

/// Returns the processor time of the calling thread, in seconds.
pub(crate) fn thread_cpu_seconds() -> f64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    tv_sec as f64 + tv_nsec as f64 / 1e9
}

/// Converts a span to the kernel's format.
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
    fn clock_moments_and_times_convert_both_ways() {
        let clock = Clock::start();
        let at = Instant::ZERO + Span::from_millis(1500);
        assert_eq!(clock.at(clock.moment(at)), at);
        assert_eq!(clock.at(clock.start - Duration::from_secs(1)), Instant::ZERO);
        assert!(clock.moment(Instant::MAX) > clock.moment(at), "however far away");
    }

    #[test]
    fn a_receive_time_from_a_clock_that_was_set_counts_as_now() {
        let ages = Ages { system_now: Duration::from_secs(100) };
        assert_eq!(ages.of(Some(Duration::from_millis(99_999))), Span::from_millis(1));
        for odd in [None, Some(Duration::from_secs(101)), Some(Duration::from_secs(98))] {
            assert_eq!(ages.of(odd), Span::ZERO, "{odd:?}");
        }
    }
}
