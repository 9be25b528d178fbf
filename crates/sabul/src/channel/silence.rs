//! Tells a peer that has gone from one that has nothing to say, and from our own sleep.

use sabul_units::{Instant, Span};

/// A loop that looks more seldom than this did not run: the process was stopped or the machine
/// slept. Ours: loops look ten times a second, and the busiest machine lets them run sooner.
const PAUSE_MIN: Span = Span::from_secs(2);

/// Counts the time in which a peer that should say something did not, while we could have heard it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    limit: Span,
    /// Silence before this time does not count.
    since: Instant,
    looked_at: Instant,
}

impl Silence {
    pub(super) const fn new(limit: Span, now: Instant) -> Self {
        Self { limit, since: now, looked_at: now }
    }

    /// Whether a peer last heard at `heard` counts as gone; `is_due` says whether it owes us anything.
    /// What waited in the socket has to be read before.
    pub(super) fn is_over(&mut self, now: Instant, heard: Instant, is_due: bool) -> bool {
        if !is_due || now.since(self.looked_at) > PAUSE_MIN {
            self.since = now;
        }
        self.looked_at = now;
        self.lasted(now, heard) > self.limit
    }

    /// How long a peer last heard at `heard` has been silent while something was due, as of the last look.
    pub(super) fn lasted(&self, now: Instant, heard: Instant) -> Span {
        now.since(heard.max(self.since))
    }

    pub(super) const fn limit(&self) -> Span {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Span::from_millis(millis)
    }

    /// Looks each 100 ms from `from` up to and without `to`; the first time that is too long.
    fn first_over(
        silence: &mut Silence,
        from: u64,
        to: u64,
        heard: u64,
        is_due: bool,
    ) -> Option<u64> {
        (from..to).step_by(100).find(|&now| silence.is_over(at(now), at(heard), is_due))
    }

    #[test]
    fn silence_counts_from_the_last_word() {
        let mut silence = Silence::new(Span::from_secs(30), at(0));
        assert_eq!(first_over(&mut silence, 0, 60_000, 5000, true), Some(35_100));
    }

    #[test]
    fn silence_counts_only_while_something_is_due() {
        let mut silence = Silence::new(Span::from_secs(30), at(0));
        assert_eq!(first_over(&mut silence, 0, 600_000, 0, false), None);
        assert_eq!(first_over(&mut silence, 600_000, 700_000, 0, true), Some(630_000));
    }

    #[test]
    fn our_own_sleep_is_not_the_peers_silence() {
        let mut silence = Silence::new(Span::from_secs(30), at(0));
        assert_eq!(first_over(&mut silence, 0, 29_000, 0, true), None);
        // An hour later we wake up; the peer has another 30 s.
        assert_eq!(first_over(&mut silence, 3_600_000, 3_700_000, 0, true), Some(3_630_100));
    }
}
