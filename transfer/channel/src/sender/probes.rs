//! Timer for probe packets that carry only a congestion header.
//!
//! Source: ours (ADR 23). A flow controlled by routers has no rate before the first answer of a
//! router. Between two packets more than a round trip apart, such a flow also receives nothing new.
//! Model:       one probe before the first data. Data waits for the answer at most `longest` (a
//!              round trip and four deviations). Later, a probe leaves when neither data nor a
//!              probe has left for max(round trip, a quarter of the inter-packet gap), and only in
//!              gaps longer than that time.
//! Invariants:  flows whose packets have no congestion header send no probes and wait for no
//!              answer.

use sabul_units::{Instant, Span};

/// Ours: at most three probes per gap, each a tenth of a DATA packet's size.
const PER_GAP: u64 = 4;

/// State of the probe before the first data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// No probe has been sent.
    Silent,
    /// Data waits for the answer until this time.
    Waiting(Instant),
    /// An answer arrived, or the wait ended without an answer.
    Over,
}

/// Probe timer; see the module.
#[derive(Debug)]
pub(super) struct RateProbes {
    start: Start,
    /// When the newest packet with a congestion header left.
    newest: Instant,
}

impl RateProbes {
    pub(super) const fn new(now: Instant) -> Self {
        Self { start: Start::Silent, newest: now }
    }

    /// Returns whether to send a probe now, before the first data; data then waits up to `longest`.
    pub(super) fn begin(&mut self, now: Instant, longest: Span) -> bool {
        let is_first = self.start == Start::Silent;
        if is_first {
            (self.start, self.newest) = (Start::Waiting(now + longest), now);
        }
        is_first
    }

    /// Returns the time until which data waits.
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

    /// Records that a congestion header came back.
    pub(super) const fn note_answer(&mut self) {
        self.start = Start::Over;
    }

    /// Records that a packet with a congestion header has left.
    pub(super) const fn note_sent(&mut self, now: Instant) {
        self.newest = now;
    }

    /// Returns when the next probe leaves within a gap; `None` where the next data packet is as
    /// early.
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
    fn the_first_data_waits_a_bounded_time_for_one_router_answer() {
        let mut probes = RateProbes::new(at(0));
        assert!(probes.begin(at(5), Span::from_millis(60)));
        assert!(!probes.begin(at(6), Span::from_millis(60)));
        assert_eq!(probes.holds(at(64)), Some(at(65)));
        assert_eq!(probes.holds(at(65)), None);
        let mut probes = RateProbes::new(at(0));
        assert!(probes.begin(at(5), Span::from_millis(60)));
        probes.note_answer();
        assert_eq!(probes.holds(at(25)), None);
        assert!(!probes.begin(at(25), Span::from_millis(60)), "one is enough");
    }

    #[test]
    fn a_gap_longer_than_an_rtt_contains_one_query_per_rtt_and_at_most_three() {
        let mut probes = RateProbes::new(at(0));
        probes.note_sent(at(100));
        let due = |gap, rtt| probes.due(Span::from_millis(gap), Span::from_millis(rtt));
        assert_eq!(due(187, 50), Some(at(150)));
        assert_eq!(due(187, 187), None);
        assert_eq!(due(187, 1), Some(at(146) + Span::from_micros(750)));
        assert_eq!(due(10, 50), None);
    }
}
