//! Addresses of a channel that change: validation of a new address of the peer, and checks of the own one.
//!
//! Source:      [RFC9000 §9], with the roles of the two ends fixed: only connectors change their address.
//! Model:       a listener accepts authentic datagrams from any address. The newest one from another address makes that
//!              address a candidate, which gets a random challenge under the AEAD. The channel moves when the response
//!              arrives from the candidate. Until then everything is sent to the old address.
//! Invariants:  at most one candidate; at most one challenge each [`CHALLENGE_GAP`], smaller than the datagram that
//!              caused it, whatever arrives.
//! Not here:    sockets (`path/sockets.rs`).

use std::net::SocketAddr;
use std::sync::Arc;

use sabul_units::{Instant, PacketNumber, Random, Span};
use tokio::sync::Notify;

/// Least time between two challenges of a channel. Ours: a lost challenge costs a tenth of a second.
pub(super) const CHALLENGE_GAP: Span = Span::from_millis(100);
/// Interval of the checks of the local address.
const CHECK_INTERVAL: Span = Span::from_millis(500);
/// Silence after which a connector announces its address, and the least interval of announcements: a NAT may have lost
/// its state, and then only a datagram of the connector opens a way back.
const ANNOUNCE_AFTER: Span = Span::from_millis(300);
/// Silence after which the local address that the system prefers counts.
const SILENT: Span = Span::from_secs(1);

/// Content of a challenge and of its response.
pub(super) type Token = [u8; 8];

/// A change of the peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Only the port is another one: probably the same path behind a NAT.
    Port,
    /// The host is at another address, on another path.
    Host,
}

/// Returns the address without flow label and scope, in which equal addresses may differ.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Address of the peer of a listener's channel.
#[derive(Debug)]
pub(super) struct PeerAddress {
    present: Option<SocketAddr>,
    /// Largest authentic packet number.
    largest: Option<PacketNumber>,
    candidate: Option<(SocketAddr, Token)>,
    next_challenge: Instant,
}

impl PeerAddress {
    /// The address of a listener's peer; a connector, whose peer does not move, has none.
    pub(super) fn new(present: Option<SocketAddr>, largest: Option<PacketNumber>) -> Self {
        let present = present.map(plain);
        Self { present, largest, candidate: None, next_challenge: Instant::ZERO }
    }

    /// Records an authentic datagram. Returns the token of the challenge to send to its source, if one is due.
    pub(super) fn note(
        &mut self,
        now: Instant,
        source: SocketAddr,
        number: PacketNumber,
        random: &mut dyn Random,
    ) -> Option<Token> {
        if self.largest.is_some_and(|largest| number <= largest) {
            return None;
        }
        self.largest = Some(number);
        let source = plain(source);
        if self.present.is_none_or(|present| present == source) || now < self.next_challenge {
            return None;
        }
        self.next_challenge = now + CHALLENGE_GAP;
        let token = match self.candidate {
            Some((candidate, token)) if candidate == source => token,
            // Zeros mean no challenge.
            _ => (random.next_u64() | 1).to_be_bytes(),
        };
        self.candidate = Some((source, token));
        Some(token)
    }

    /// Processes a response from this address. Returns the change if the address is now that of the peer.
    pub(super) fn respond(&mut self, source: SocketAddr, token: Token) -> Option<Change> {
        let source = plain(source);
        self.candidate.take_if(|candidate| *candidate == (source, token))?;
        let before = self.present.replace(source);
        let is_same_host = before.is_some_and(|before| before.ip() == source.ip());
        Some(if is_same_host { Change::Port } else { Change::Host })
    }
}

/// Times at which a connector checks its own address and announces the address.
#[derive(Debug)]
pub(super) struct OwnAddress {
    next_check: Instant,
    next_announcement: Option<Instant>,
    /// Notified of each change.
    change: Arc<Notify>,
}

impl OwnAddress {
    pub(super) const fn new(change: Arc<Notify>) -> Self {
        Self { next_check: Instant::ZERO, next_announcement: None, change }
    }

    /// Whether a check is due; `is_unreachable` after a send that failed. Returns whether the peer is silent for so
    /// long that the address which the system prefers counts.
    pub(super) fn check(
        &mut self,
        now: Instant,
        silence: Span,
        is_unreachable: bool,
    ) -> Option<bool> {
        if is_unreachable {
            self.next_check = self.next_check.min(now + CHALLENGE_GAP);
        }
        if now < self.next_check {
            return None;
        }
        self.next_check = now + CHECK_INTERVAL;
        Some(silence > SILENT)
    }

    /// Records a new local address, which is announced at once.
    pub(super) fn changed(&mut self, now: Instant) {
        self.next_announcement = Some(now);
        self.change.notify_one();
    }

    /// Records a challenge: for the listener, the address of this end has changed.
    pub(super) fn challenged(&self) {
        self.change.notify_one();
    }

    /// Whether an announcement is due, after this silence of a peer from which a packet is due.
    pub(super) fn announces(&mut self, now: Instant, silence: Span) -> bool {
        let is_due = self.next_announcement.is_some_and(|due| now >= due);
        if silence < ANNOUNCE_AFTER && !is_due {
            return false;
        }
        let is_due = is_due || self.next_announcement.is_none();
        if is_due {
            self.next_announcement = (silence >= ANNOUNCE_AFTER).then(|| now + ANNOUNCE_AFTER);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::SeededRandom;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn only_the_right_response_from_the_candidate_moves_the_channel() {
        let (old, new) = (address("192.0.2.1:1"), address("192.0.2.1:2"));
        let mut random = SeededRandom::new(1);
        let mut peer = PeerAddress::new(Some(old), None);
        assert_eq!(peer.note(at(0), old, PacketNumber(5), &mut random), None, "no change");
        assert_eq!(peer.note(at(0), new, PacketNumber(4), &mut random), None, "an older packet");
        let token = peer.note(at(0), new, PacketNumber(6), &mut random).unwrap();
        assert_eq!(peer.respond(new, [0; 8]), None);
        assert_eq!(peer.respond(address("192.0.2.2:2"), token), None);
        assert_eq!(peer.respond(new, token), Some(Change::Port));
        assert_eq!(peer.respond(new, token), None, "once");
        let moved = address("198.51.100.1:2");
        let token = peer.note(at(100), moved, PacketNumber(7), &mut random).unwrap();
        assert_eq!(peer.respond(moved, token), Some(Change::Host));
    }

    #[test]
    fn a_thousand_forged_changes_cost_ten_challenges_a_second_and_move_nothing() {
        let old = address("192.0.2.1:1");
        let mut random = SeededRandom::new(1);
        let mut peer = PeerAddress::new(Some(old), None);
        let challenges = (0..1000_u64)
            .filter(|&forged| {
                let source =
                    SocketAddr::from(([198, 51, 100, 1], 1000 + u16::try_from(forged).unwrap()));
                peer.note(at(forged), source, PacketNumber(forged), &mut random).is_some()
            })
            .count();
        assert_eq!((challenges, peer.present), (10, Some(old)));
    }

    #[test]
    fn a_silent_peer_gets_announcements_at_intervals() {
        let mut own = OwnAddress::new(Arc::default());
        let times = |own: &mut OwnAddress, silent: bool| {
            let silence = |millis| Span::from_millis(if silent { millis } else { 0 });
            (0..1000).filter(|&millis| own.announces(at(millis), silence(millis))).count()
        };
        assert_eq!(times(&mut own, true), 3);
        assert_eq!(times(&mut own, false), 0);
        own.changed(at(5));
        assert_eq!(times(&mut own, false), 1);
    }
}
