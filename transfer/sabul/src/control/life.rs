//! Liveness of the peer on the control connection: silence and idle timeouts, excluding suspensions of this process.

use std::time::Duration;

use tokio::time::Instant;

use super::ending::Ending;
use crate::timeouts::Timeouts;

/// A check that is later than this means that the process was stopped or the machine slept. Ours: far beyond the delays
/// of a busy machine.
const PAUSE_MIN: Duration = Duration::from_secs(2);

/// Measures the peer's silence and the session's idle time from check to check.
#[derive(Debug)]
pub(super) struct Watch {
    timeouts: Timeouts,
    checked_at: Instant,
    /// Received bytes at the last check.
    seen: u64,
    received_at: Instant,
    busy_at: Instant,
}

impl Watch {
    pub(super) fn new(timeouts: Timeouts, now: Instant) -> Self {
        Self { timeouts, checked_at: now, seen: 0, received_at: now, busy_at: now }
    }

    /// Time of the next check.
    pub(super) fn next_check(&self) -> Instant {
        self.checked_at + (self.timeouts.silence / 6).max(Duration::from_millis(10))
    }

    /// Checks the timeouts, with `seen` received bytes so far and `is_busy` if the session has transfers. Data queued
    /// in the socket must be read before the call. Returns why the session is over, if it is over.
    pub(super) fn check(&mut self, now: Instant, seen: u64, is_busy: bool) -> Option<Ending> {
        let pause = now.saturating_duration_since(self.next_check());
        self.checked_at = now;
        if seen != self.seen || pause > PAUSE_MIN {
            self.seen = seen;
            self.received_at = now;
        }
        if is_busy || pause > PAUSE_MIN {
            self.busy_at = now;
        }
        if now - self.received_at > self.timeouts.silence {
            return Some(Ending::Silent(self.timeouts.silence));
        }
        let idle = self.timeouts.idle.filter(|idle| now - self.busy_at > *idle);
        idle.map(Ending::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Timeouts = Timeouts {
        silence: Duration::from_secs(30),
        accept: Duration::from_secs(60),
        idle: Some(Duration::from_secs(900)),
    };

    /// Checks whenever a check is due, for this many seconds; returns when and why the session ended.
    fn watch(
        watch: &mut Watch,
        seconds: u64,
        mut seen: impl FnMut(u64) -> u64,
        is_busy: bool,
    ) -> Option<(u64, Ending)> {
        let start = watch.checked_at;
        loop {
            let now = watch.next_check();
            let at = (now - start).as_secs();
            if at > seconds {
                return None;
            }
            if let Some(ending) = watch.check(now, seen(at), is_busy) {
                return Some((at, ending));
            }
        }
    }

    #[test]
    fn a_peer_silent_for_too_long_ends_the_session() {
        let mut silent = Watch::new(TIMEOUT, Instant::now());
        let (at, ending) = watch(&mut silent, 1000, |at| at.min(100), true).unwrap();
        assert!(matches!(ending, Ending::Silent(_)), "{ending:?}");
        assert!((130..=140).contains(&at), "{at}");
    }

    #[test]
    fn a_peer_that_answers_pings_may_idle_only_during_transfers() {
        let mut resting = Watch::new(TIMEOUT, Instant::now());
        assert!(watch(&mut resting, 7200, |at| at / 10, true).is_none());
        let (at, ending) = watch(&mut resting, 7200, |at| 720 + at / 10, false).unwrap();
        assert!(matches!(ending, Ending::Idle(_)) && (900..=910).contains(&at), "{at} {ending:?}");
        let mut patient = Watch::new(Timeouts { idle: None, ..TIMEOUT }, Instant::now());
        assert!(watch(&mut patient, 7200, |at| at / 10, false).is_none());
    }

    #[test]
    fn time_while_suspended_is_not_counted_as_peer_silence() {
        let mut asleep = Watch::new(TIMEOUT, Instant::now());
        assert!(watch(&mut asleep, 25, |_| 0, true).is_none());
        let awake = asleep.checked_at + Duration::from_secs(3600);
        assert!(asleep.check(awake, 0, false).is_none());
        let (at, ending) = watch(&mut asleep, 1000, |_| 0, false).unwrap();
        assert!(matches!(ending, Ending::Silent(_)) && (30..=40).contains(&at), "{at} {ending:?}");
    }
}
