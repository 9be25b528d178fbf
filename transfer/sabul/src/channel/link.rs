//! Sealed datagrams of a channel: encrypt and send, receive and decrypt, replay check.

use std::net::SocketAddr;

use sabul_udp::SendStatus;
use sabul_units::{CongestionHeader, Instant, PacketNumber, Random, SeqNo, Span};
use sabul_wire::{
    ConnectionId, DATA_HEADER_LEN, DataHeader, HEADER_LEN, Header, Kind, TAG_LEN, congestion_len,
    encode_congestion,
};
use tracing::{debug, info};

use super::address::Token;
use super::driver::Datagrams;
use super::shared::{ChannelError, OpenPath, Shared};
use crate::seal::{Opener, Sealer};

/// Randomness of the operating system, unpredictable for a peer.
#[derive(Debug)]
pub(super) struct Entropy;

impl Random for Entropy {
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        // The same source made the keys a moment ago. If it fails, a peer may predict skipped packet numbers, but
        // nothing else.
        let _ = aws_lc_rs::rand::fill(&mut bytes);
        u64::from_ne_bytes(bytes)
    }
}

/// Replay window of the last 128 packet numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplayWindow {
    /// One above the largest number received.
    next: u64,
    /// Bit i: number `next - 1 - i` was received.
    seen: u128,
}

impl ReplayWindow {
    /// Starts with the number after `largest`.
    pub(crate) const fn after(largest: Option<PacketNumber>) -> Self {
        match largest {
            Some(number) => Self { next: number.0 + 1, seen: u128::MAX },
            None => Self { next: 0, seen: 0 },
        }
    }
    pub(crate) const fn expand(self, low: u32) -> PacketNumber {
        PacketNumber::expand(low, PacketNumber(self.next.saturating_sub(1)))
    }
    pub(crate) const fn is_replayed(self, number: PacketNumber) -> bool {
        if number.0 >= self.next {
            return false;
        }
        let age = self.next - 1 - number.0;
        age >= 128 || self.seen >> age & 1 == 1
    }
    pub(crate) fn note(&mut self, number: PacketNumber) {
        if number.0 >= self.next {
            let ahead = number.0 + 1 - self.next;
            self.seen = if ahead >= 128 { 0 } else { self.seen << ahead } | 1;
            self.next = number.0 + 1;
        } else if self.next - 1 - number.0 < 128 {
            self.seen |= 1 << (self.next - 1 - number.0);
        }
    }
}

/// Interval of the answers to hellos and challenges of the peer. Ours: an honest peer repeats neither faster.
const ANSWER_INTERVAL: Span = Span::from_millis(100);
/// Time in which answers may precede their interval: eight answers at once.
const ANSWERS_AHEAD: Span = Span::from_millis(700);

/// Rate limit of the answers to hellos and challenges. Each answer takes a packet number, which a sender keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AnswerLimit {
    /// Time from which all answers ahead are permitted.
    full_at: Instant,
}

impl AnswerLimit {
    /// Whether an answer may leave now; counts the answer.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        if self.full_at > now + ANSWERS_AHEAD {
            return false;
        }
        self.full_at = self.full_at.max(now) + ANSWER_INTERVAL;
        true
    }
}

/// Socket and keys of one channel.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Box<dyn Datagrams>,
    pub(super) connection: ConnectionId,
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    /// Rejected datagrams: forged, replayed or malformed.
    pub(super) refused: u64,
    pub(super) answers: AnswerLimit,
    /// Datagrams that arrived before the channel began.
    pub(super) early: Vec<Vec<u8>>,
    out: Vec<u8>,
}

impl Link {
    pub(super) fn new(open: OpenPath) -> Self {
        let OpenPath { socket, connection, sealer, opener, early, .. } = open;
        let (answers, out) = (AnswerLimit::default(), Vec::new());
        Self { socket, connection, sealer, opener, refused: 0, answers, early, out }
    }

    /// Seals `body` into one small datagram and sends it; a full socket drops the datagram.
    pub(super) fn send_control(
        &mut self,
        kind: Kind,
        number: PacketNumber,
        body: &[u8],
    ) -> Result<SendStatus, ChannelError> {
        let header = Header::new(kind, self.connection, number).encode();
        self.out.clear();
        self.out.extend(header);
        self.out.resize(HEADER_LEN + body.len() + TAG_LEN, 0);
        let sealed = &mut self.out[HEADER_LEN..];
        self.sealer.seal(number, &header, body, sealed).map_err(ChannelError::Seal)?;
        let sent = self.socket.send(&self.out, self.out.len());
        sent.map(|outcome| outcome.status).map_err(ChannelError::Io)
    }

    /// Seals a challenge and sends it to `to`.
    pub(super) fn send_challenge(
        &mut self,
        number: PacketNumber,
        token: Token,
        to: SocketAddr,
    ) -> Result<(), ChannelError> {
        let header = Header::new(Kind::Challenge, self.connection, number).encode();
        let mut datagram = [0; HEADER_LEN + size_of::<Token>() + TAG_LEN];
        datagram[..HEADER_LEN].copy_from_slice(&header);
        let sealed = &mut datagram[HEADER_LEN..];
        self.sealer.seal(number, &header, &token, sealed).map_err(ChannelError::Seal)?;
        debug!(%to, "a datagram came from another address, which gets a challenge");
        // An address that cannot be reached is no address of the peer.
        let _ = self.socket.challenge(&datagram, to);
        Ok(())
    }

    /// Changes to a socket with other addresses.
    pub(super) fn change_socket(&mut self, socket: Box<dyn Datagrams>, shared: &Shared) {
        let (from, to) = (socket.local_addr(), socket.peer_addr());
        info!(%from, ?to, "the channel has moved to other addresses");
        shared.set_waker(socket.waker());
        self.socket = socket;
    }

    /// Sends a DATA packet without payload, to carry a congestion header.
    pub(super) fn send_probe(
        &mut self,
        number: PacketNumber,
        congestion: &CongestionHeader,
    ) -> Result<SendStatus, ChannelError> {
        let length = congestion_len(congestion.fields.form());
        let mut header = DataHeader::new(self.connection, number, SeqNo(0), 0, 0);
        header.congestion_len = u8::try_from(length).unwrap_or(0);
        let header = header.encode();
        self.out.clear();
        self.out.extend(header);
        self.out.resize(DATA_HEADER_LEN + length + TAG_LEN, 0);
        let (front, sealed) = self.out.split_at_mut(DATA_HEADER_LEN + length);
        encode_congestion(congestion, &mut front[DATA_HEADER_LEN..]);
        self.sealer.seal(number, &header, &[], sealed).map_err(ChannelError::Seal)?;
        let sent = self.socket.send(&self.out, self.out.len());
        sent.map(|outcome| outcome.status).map_err(ChannelError::Io)
    }

    /// Decrypts a datagram other than DATA in place.
    pub(super) fn open<'a>(
        &mut self,
        number: PacketNumber,
        datagram: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        let (header, sealed) = datagram.split_at_mut_checked(HEADER_LEN)?;
        match self.opener.open_in_place(number, header, sealed) {
            Ok(body) => Some(body),
            Err(_) => {
                self.refused += 1;
                None
            }
        }
    }

    /// Answers a hello again after the first answer was lost. The answer is smaller than the hello.
    pub(super) fn answer_hello(
        &mut self,
        number: PacketNumber,
        hello: &[u8],
    ) -> Result<(), ChannelError> {
        let mut body = [0; 16];
        if let Some(sent_at) = hello.get(8..16) {
            body[8..].copy_from_slice(sent_at);
        }
        self.send_control(Kind::HelloAck, number, &body).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hellos_get_eight_answers_at_once_and_then_ten_a_second() {
        let mut answers = AnswerLimit::default();
        let mut taken = |from: u64, to| {
            (from..to).filter(|ms| answers.take(Instant::ZERO + Span::from_millis(*ms))).count()
        };
        assert_eq!(taken(0, 10), 8);
        assert_eq!(taken(10, 1010), 10);
        assert_eq!(taken(5000, 5010), 8);
    }

    #[test]
    fn the_replay_window_accepts_each_number_once() {
        let mut window = ReplayWindow::after(None);
        for number in [0, 2, 1, 5, 200, 199, 73] {
            assert!(!window.is_replayed(PacketNumber(number)), "{number}");
            window.note(PacketNumber(number));
            assert!(window.is_replayed(PacketNumber(number)), "{number}");
        }
        assert!(window.is_replayed(PacketNumber(72)), "too old to tell");
        assert!(!window.is_replayed(PacketNumber(74)));
        assert!(ReplayWindow::after(Some(PacketNumber(9))).is_replayed(PacketNumber(9)));
        assert!(!ReplayWindow::after(Some(PacketNumber(9))).is_replayed(PacketNumber(10)));
    }
}
