//! Silence timeout of a peer, excluding idle times of the channel and suspensions of this process.

use sabul_units::{Instant, Span};

/// A longer time between two checks means that the process was stopped or the machine slept. Ours: checks happen ten
/// times a second, and even the busiest machine runs them sooner.
const PAUSE_MIN: Span = Span::from_secs(2);

/// Measures the time in which a due packet did not arrive although this process could receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    limit: Span,
    /// Start of the measured silence at the earliest.
    since: Instant,
    looked_at: Instant,
}

impl Silence {
    pub(super) const fn new(limit: Span, now: Instant) -> Self {
        Self { limit, since: now, looked_at: now }
    }

    /// Whether a peer whose last packet came at `received` counts as gone; `is_due` if a packet of the peer is due.
    /// Packets queued in the socket must be read before the call.
    pub(super) fn is_over(&mut self, now: Instant, received: Instant, is_due: bool) -> bool {
        if !is_due || now.since(self.looked_at) > PAUSE_MIN {
            self.since = now;
        }
        self.looked_at = now;
        self.lasted(now, received) > self.limit
    }

    /// Silence of a peer whose last packet came at `received`, while a packet was due, as of the last check.
    pub(super) fn lasted(&self, now: Instant, received: Instant) -> Span {
        now.since(received.max(self.since))
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

    /// Checks each 100 ms from `from` up to and without `to`; returns the first time of a timeout.
    fn first_over(
        silence: &mut Silence,
        from: u64,
        to: u64,
        received: u64,
        is_due: bool,
    ) -> Option<u64> {
        (from..to).step_by(100).find(|&now| silence.is_over(at(now), at(received), is_due))
    }

    #[test]
    fn silence_is_measured_from_the_last_message() {
        let mut silence = Silence::new(Span::from_secs(30), at(0));
        assert_eq!(first_over(&mut silence, 0, 60_000, 5000, true), Some(35_100));
    }

    #[test]
    fn silence_counts_only_while_an_answer_is_due() {
        let mut silence = Silence::new(Span::from_secs(30), at(0));
        assert_eq!(first_over(&mut silence, 0, 600_000, 0, false), None);
        assert_eq!(first_over(&mut silence, 600_000, 700_000, 0, true), Some(630_000));
    }

    #[test]
    fn suspended_time_is_not_counted_as_peer_silence() {
        let mut silence = Silence::new(Span::from_secs(30), at(0));
        assert_eq!(first_over(&mut silence, 0, 29_000, 0, true), None);
        // An hour later the process resumes; the peer has another 30 s.
        assert_eq!(first_over(&mut silence, 3_600_000, 3_700_000, 0, true), Some(3_630_100));
    }
}
