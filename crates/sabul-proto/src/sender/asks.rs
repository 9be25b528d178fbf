//! When a packet leaves that carries a congestion header and nothing else.
//!
//! Source: ours (ADR 23). A flow that follows routers knows nothing until one has answered, and nothing new between two
//!         packets that are further apart than a round trip.
//! Model:       one before the first data, which waits for the answer, at most `longest` (a round trip and four deviations);
//!              later one where neither data nor such a packet has left for max(round trip, a quarter of the gap) of a gap
//!              that is longer than that.
//! Invariants:  flows whose packets have no congestion header ask nothing and wait for nothing.

use sabul_units::{Instant, Span};

/// Ours: questions cost no more than a third of such a gap's packets, and are a tenth of their size.
const PER_GAP: u64 = 4;

/// Before the first data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Nothing has been asked.
    Silent,
    /// Data waits for the answer until then.
    Waiting(Instant),
    /// There was one, or none came.
    Over,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Asks {
    start: Start,
    /// When the newest packet with a header left.
    newest: Instant,
}

impl Asks {
    pub(super) const fn new(now: Instant) -> Self {
        Self { start: Start::Silent, newest: now }
    }

    /// Whether one leaves before the first data, for whose answer that waits so long.
    pub(super) fn begin(&mut self, now: Instant, longest: Span) -> bool {
        let is_first = self.start == Start::Silent;
        if is_first {
            (self.start, self.newest) = (Start::Waiting(now + longest), now);
        }
        is_first
    }

    /// Until when data waits.
    pub(super) fn holds(&mut self, now: Instant) -> Option<Instant> {
        match self.start {
            Start::Waiting(until) if until > now => Some(until),
            Start::Waiting(_) => {
                self.start = Start::Over;
                None
            }
            Start::Silent | Start::Over => None,
        }
    }

    /// The peer has answered.
    pub(super) const fn note_answer(&mut self) {
        self.start = Start::Over;
    }

    /// A packet with a header has left.
    pub(super) const fn note_sent(&mut self, now: Instant) {
        self.newest = now;
    }

    /// When the next leaves within a gap; none where the next packet is as good.
    pub(super) fn due(&self, gap: Span, rtt: Span) -> Option<Instant> {
        let each = rtt.max(gap / PER_GAP);
        (gap > each).then(|| self.newest + each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn the_first_data_waits_for_one_answer_and_not_for_ever() {
        let mut asks = Asks::new(at(0));
        assert!(asks.begin(at(5), Span::from_millis(60)));
        assert!(!asks.begin(at(6), Span::from_millis(60)));
        assert_eq!(asks.holds(at(64)), Some(at(65)));
        assert_eq!(asks.holds(at(65)), None);
        let mut asks = Asks::new(at(0));
        assert!(asks.begin(at(5), Span::from_millis(60)));
        asks.note_answer();
        assert_eq!(asks.holds(at(25)), None);
        assert!(!asks.begin(at(25), Span::from_millis(60)), "one is enough");
    }

    #[test]
    fn a_gap_longer_than_a_round_trip_has_a_question_in_each_and_at_most_three() {
        let mut asks = Asks::new(at(0));
        asks.note_sent(at(100));
        let due = |gap, rtt| asks.due(Span::from_millis(gap), Span::from_millis(rtt));
        assert_eq!(due(187, 50), Some(at(150)));
        assert_eq!(due(187, 187), None);
        assert_eq!(due(187, 1), Some(at(146) + Span::from_micros(750)));
        assert_eq!(due(10, 50), None);
    }
}
