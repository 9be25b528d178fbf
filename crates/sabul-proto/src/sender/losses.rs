//! Losses on their way to the controller: what is no loss of the path, and when it may hear of the rest.
//!
//! States:      nothing held ⇄ held until the next event is due

use sabul_cc::LossReport;
use sabul_units::{Instant, Packets, Span};

/// Ours: a receive buffer joins up to this many datagrams into one, and counts their drop as one.
const OVERFLOW_JOINED: u64 = 64;

/// Losses of which the controller has not been told.
#[derive(Debug)]
pub(super) struct Losses {
    held: Option<LossReport>,
    /// No event before this.
    next_event: Instant,
    /// Packets that the receiver's socket has dropped: so many losses are none of the path.
    excused: u64,
    excused_until: Instant,
}

impl Losses {
    pub(super) const fn new(now: Instant) -> Self {
        Self { held: None, next_event: now, excused: 0, excused_until: now }
    }

    /// The receiver's socket says that it has dropped so many, of at most `most` that may be lost.
    pub(super) fn excuse(&mut self, packets: u64, most: u64, until: Instant) {
        let joined = packets.saturating_mul(OVERFLOW_JOINED);
        self.excused = self.excused.saturating_add(joined).min(most);
        self.excused_until = until;
    }

    /// Takes so many of those that are excused.
    pub(super) fn take_excuse(&mut self, now: Instant, packets: u64) -> u64 {
        if now > self.excused_until {
            self.excused = 0;
        }
        let excused = packets.min(self.excused);
        self.excused -= excused;
        excused
    }

    /// Keeps a report together with those that are kept already. Whether losses are a new event is asked of
    /// the first of a report, so of several the one that is furthest on counts: if it is no news, none is.
    pub(super) fn hold(&mut self, report: LossReport) {
        self.held = Some(match self.held {
            Some(earlier) => LossReport::new(
                Packets(earlier.first_time.0 + report.first_time.0),
                Packets(earlier.repeats.0 + report.repeats.0),
                earlier.first_lost.max(report.first_lost),
                report.largest_sent,
            ),
            None => report,
        });
    }

    /// Whether an event may be now.
    pub(super) fn may_tell(&self, now: Instant) -> bool {
        now >= self.next_event
    }

    /// When what is held has to be told.
    pub(super) fn due(&self) -> Option<Instant> {
        self.held.map(|_| self.next_event)
    }

    /// What is held, for the controller; the next event comes no sooner than `after` this one.
    pub(super) fn take(&mut self, now: Instant, after: Span) -> Option<LossReport> {
        let report = self.held.take()?;
        self.next_event = now + after;
        Some(report)
    }
}

#[cfg(test)]
mod tests {
    use sabul_cc::SentNumber;

    use super::*;

    #[test]
    fn what_was_lost_after_a_decrease_is_news_although_it_is_told_with_what_was_lost_before() {
        // A controller that answered up to 100 hears at once of 90 and of 120.
        let report = |first, largest| {
            LossReport::new(Packets(2), Packets(1), SentNumber(first), SentNumber(largest))
        };
        let mut losses = Losses::new(Instant::ZERO);
        losses.hold(report(90, 130));
        losses.hold(report(120, 140));
        losses.hold(report(95, 150));
        let told = losses.take(Instant::ZERO, Span::from_millis(10)).unwrap();
        let numbers = [120, 150].map(SentNumber);
        assert_eq!(told, LossReport::new(Packets(6), Packets(3), numbers[0], numbers[1]));
        assert_eq!(losses.take(Instant::ZERO, Span::ZERO), None);
    }
}
