//! Control packets of the sender: ACK confirmations (ACK2), pings, and probes for routers.
//!
//! A probe carries only a congestion header. Source: ours (ADR 23). A flow controlled by routers has
//! no rate before the first answer of a router. Between two packets more than a round trip apart,
//! such a flow also receives nothing new.
//! Model:       one probe before the first data. Data waits for the answer at most `longest` (a
//!              round trip and four deviations). Later, a probe leaves when neither data nor a probe has left for
//!              max(round trip, a quarter of the inter-packet gap). Shorter gaps have no probe.
//! Invariants:  flows whose packets have no congestion header send no probes and wait for no
//!              answer.

use sabul_units::{Instant, Span};
use sabul_wire::Ack;

/// Ours: ping period of an idle channel; keeps both ends informed that the peer is alive.
const PING_INTERVAL: Span = Span::from_millis(500);
/// Ours: least time between two confirmations, unless the ACK lists losses.
pub(super) const ACK2_INTERVAL: Span = Span::from_millis(10);
/// Ours: DATA packets between two confirmations, unless [`ACK2_AGE`] has passed. Small packets fill
/// a queue that counts packets: with a confirmation each 10 ms, 48 flows at 100 Mb/s × 40 ms lost
/// 1.3 instead of 0.03 %.
const ACK2_PACKETS: u64 = 16;
const ACK2_AGE: Span = Span::from_millis(100);

/// Ours: at most three probes per gap, each a tenth of a DATA packet's size.
const PER_GAP: u64 = 4;

#[derive(Debug)]
pub(super) struct ControlPackets {
    /// Serial number of the ACK to confirm.
    ack2: Option<u64>,
    /// When an ACK was last confirmed, and the number of DATA packets sent until then.
    confirmed: Option<(Instant, u64)>,
    is_ping_due: bool,
    next_ping: Instant,
    /// Present where packets have congestion headers.
    pub(super) probes: Option<RateProbes>,
}

impl ControlPackets {
    pub(super) fn new(now: Instant, has_headers: bool) -> Self {
        let next_ping = now + PING_INTERVAL;
        let probes = has_headers.then(|| RateProbes::new(now));
        Self { ack2: None, confirmed: None, is_ping_due: false, next_ping, probes }
    }

    /// Decides whether to confirm this ACK; `sent` is the number of DATA packets sent so far.
    pub(super) fn note_ack(&mut self, now: Instant, ack: &Ack, sent: u64) {
        let is_due = self.confirmed.is_none_or(|(at, before)| {
            let has_waited = now >= at + ACK2_INTERVAL || !ack.missing.is_empty();
            has_waited && (sent >= before + ACK2_PACKETS || now >= at + ACK2_AGE)
        });
        if is_due {
            self.ack2 = Some(ack.serial);
            self.confirmed = Some((now, sent));
        }
    }

    /// When the next ping is due if no report arrives until then.
    pub(super) fn ping_due(&self, last_received: Instant) -> Instant {
        self.next_ping.max(last_received + PING_INTERVAL)
    }

    /// Requests an ACK: an ACK that opened the window may be lost, or the peer may be gone.
    pub(super) fn ping(&mut self, now: Instant) {
        self.is_ping_due = true;
        self.next_ping = now + PING_INTERVAL;
    }

    /// Returns the serial number of an ACK2 to send now; zero requests an ACK.
    pub(super) fn next(&mut self) -> Option<u64> {
        let answer = self.ack2.take();
        answer.or_else(|| std::mem::take(&mut self.is_ping_due).then_some(0))
    }
}

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
    use sabul_wire::NumberRange;

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

    #[test]
    fn an_ack_is_confirmed_after_sixteen_packets_or_a_tenth_of_a_second() {
        let mut answers = ControlPackets::new(at(0), false);
        let mut confirms = |ms, sent, missing: &[NumberRange]| {
            let ack = Ack { serial: ms, missing: missing.to_vec(), ..Ack::default() };
            answers.note_ack(at(ms), &ack, sent);
            answers.next() == Some(ms)
        };
        let lost = [NumberRange { first: 1, last: 1 }];
        assert!(confirms(1, 1, &[]));
        assert!(!confirms(11, 16, &[]) && !confirms(12, 16, &lost), "15 packets");
        assert!(confirms(13, 17, &[]));
        assert!(!confirms(22, 40, &[]), "less than 10 ms");
        assert!(confirms(22, 40, &lost));
        assert!(!confirms(121, 41, &[]) && confirms(122, 41, &[]), "0.1 s");
    }
}
