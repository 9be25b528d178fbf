//! Loss reports for the controller: subtracts drops at the receiver's socket and limits the rate of
//! loss events.
//!
//! States:      nothing held ⇄ held until the next event is due

use sabul_cc::LossReport;
use sabul_units::{Instant, Packets, Span};

/// Ours: a receive buffer joins up to this many datagrams and counts their drop as one.
const OVERFLOW_JOINED: u64 = 64;

/// Losses not yet passed to the controller.
#[derive(Debug)]
pub(super) struct Losses {
    held: Option<LossReport>,
    /// No loss event before this time.
    next_event: Instant,
    /// Packets dropped by the receiver's socket; this many losses do not count as losses of the
    /// path.
    discounted: u64,
    discount_until: Instant,
}

impl Losses {
    pub(super) const fn new(now: Instant) -> Self {
        Self { held: None, next_event: now, discounted: 0, discount_until: now }
    }

    /// Records drops at the receiver's socket, bounded by `most`, the packets that may be lost.
    pub(super) fn discount(&mut self, packets: u64, most: u64, until: Instant) {
        let joined = packets.saturating_mul(OVERFLOW_JOINED);
        self.discounted = self.discounted.saturating_add(joined).min(most);
        self.discount_until = until;
    }

    /// Takes up to `packets` from the discounted count and returns how many.
    pub(super) fn take_discount(&mut self, now: Instant, packets: u64) -> u64 {
        if now > self.discount_until {
            self.discounted = 0;
        }
        let discounted = packets.min(self.discounted);
        self.discounted -= discounted;
        discounted
    }

    /// Merges a report into the held one. Controllers decide by the first loss of a report whether
    /// the report is a new event, so the merged report keeps the largest first loss. If that loss
    /// is no new event, no other loss is.
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

    /// Whether a loss event is allowed now.
    pub(super) fn may_report(&self, now: Instant) -> bool {
        now >= self.next_event
    }

    /// When the held losses must be passed on.
    pub(super) fn due(&self) -> Option<Instant> {
        self.held.map(|_| self.next_event)
    }

    /// Returns the held losses for the controller; the next event comes no sooner than `after` this
    /// call.
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
    fn new_losses_after_a_decrease_are_reported_apart_from_earlier_losses() {
        // A controller that reacted up to number 100 receives 90 and 120 in one report.
        let report = |first, largest| {
            LossReport::new(Packets(2), Packets(1), SentNumber(first), SentNumber(largest))
        };
        let mut losses = Losses::new(Instant::ZERO);
        losses.hold(report(90, 130));
        losses.hold(report(120, 140));
        losses.hold(report(95, 150));
        let merged = losses.take(Instant::ZERO, Span::from_millis(10)).unwrap();
        let numbers = [120, 150].map(SentNumber);
        assert_eq!(merged, LossReport::new(Packets(6), Packets(3), numbers[0], numbers[1]));
        assert_eq!(losses.take(Instant::ZERO, Span::ZERO), None);
    }
}
