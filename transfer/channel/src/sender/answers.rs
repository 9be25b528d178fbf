//! ACK confirmations (ACK2) and pings of the sender.

use sabul_units::{Instant, Span};
use sabul_wire::Ack;

use super::probes::RateProbes;

/// Ours: ping period of an idle channel; keeps both ends informed that the peer is alive.
const PING_INTERVAL: Span = Span::from_millis(500);
/// Ours: least time between two confirmations, unless the ACK lists losses.
pub(super) const ACK2_INTERVAL: Span = Span::from_millis(10);
/// Ours: DATA packets between two confirmations, unless [`ACK2_AGE`] has passed. Small packets fill
/// a queue that counts packets: with a confirmation each 10 ms, 48 flows at 100 Mb/s × 40 ms lost
/// 1.3 instead of 0.03 %.
const ACK2_PACKETS: u64 = 16;
const ACK2_AGE: Span = Span::from_millis(100);

#[derive(Debug)]
pub(super) struct Answers {
    /// Serial number of the ACK to confirm.
    ack2: Option<u64>,
    /// When an ACK was last confirmed, and the number of DATA packets sent until then.
    confirmed: Option<(Instant, u64)>,
    is_ping_due: bool,
    next_ping: Instant,
    /// Present where packets have congestion headers.
    pub(super) probes: Option<RateProbes>,
}

impl Answers {
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

#[cfg(test)]
mod tests {
    use super::*;
    use sabul_wire::NumberRange;

    #[test]
    fn an_ack_is_confirmed_after_sixteen_packets_or_a_tenth_of_a_second() {
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        let mut answers = Answers::new(at(0), false);
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
