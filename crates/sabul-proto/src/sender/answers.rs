//! Small packets that the sender owes the peer, or wants of it.

use sabul_units::{Instant, Span};

use super::asks::Asks;

/// Ours: an idle channel asks for an ACK this often, so that each end knows of the other.
const PING_INTERVAL: Span = Span::from_millis(500);
/// Ours: ACKs are confirmed at most this often unless they list losses.
pub(super) const ACK2_INTERVAL: Span = Span::from_millis(10);

/// Confirmations and pings.
#[derive(Debug)]
pub(super) struct Answers {
    /// The ACK to confirm.
    ack2: Option<u64>,
    next_ack2: Instant,
    is_ping_due: bool,
    next_ping: Instant,
    /// Where packets have congestion headers.
    pub(super) asks: Option<Asks>,
}

impl Answers {
    pub(super) fn new(now: Instant, has_headers: bool) -> Self {
        let next_ping = now + PING_INTERVAL;
        let asks = has_headers.then(|| Asks::new(now));
        Self { ack2: None, next_ack2: now, is_ping_due: false, next_ping, asks }
    }

    /// An ACK has come, with a list of losses or without.
    pub(super) fn note_ack(&mut self, now: Instant, serial: u64, has_losses: bool) {
        if now >= self.next_ack2 || has_losses {
            self.ack2 = Some(serial);
            self.next_ack2 = now + ACK2_INTERVAL;
        }
    }

    /// When the peer is asked for an ACK if nothing is heard of it until then.
    pub(super) fn ping_due(&self, last_heard: Instant) -> Instant {
        self.next_ping.max(last_heard + PING_INTERVAL)
    }

    /// An ACK that opened the window may have been lost; or the peer is gone.
    pub(super) fn ping(&mut self, now: Instant) {
        self.is_ping_due = true;
        self.next_ping = now + PING_INTERVAL;
    }

    /// The serial number of an ACK2 to send now; zero asks for an ACK.
    pub(super) fn next(&mut self) -> Option<u64> {
        let answer = self.ack2.take();
        answer.or_else(|| std::mem::take(&mut self.is_ping_due).then_some(0))
    }
}
