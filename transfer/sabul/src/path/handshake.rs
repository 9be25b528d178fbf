//! The packets of a handshake, and the connector's part of a handshake.
//!
//! The listener sends data at once after its hello ack. If the ack is lost, data arrives first. Data shows as well that the
//! path is open, and is kept for the channel.

use std::time::{Duration, Instant};

use sabul_units::{PacketNumber, Span};
use sabul_wire::{ConnectionId, DATA_HEADER_LEN, HEADER_LEN, Header, Kind, TAG_LEN};

use crate::channel::driver::Datagrams;
use crate::channel::{OpenPath, ReplayWindow};
use crate::error::Error;
use crate::seal::{Opener, Sealer, Suite};
use crate::tls::ChannelSecrets;

/// Size of a hello datagram in bytes: passes every path, and no answer is larger.
pub(super) const HELLO_BYTES: usize = 1200;
/// Most challenges that a connector answers at once. Ours: one or two are usual; after that, hellos leave at their
/// times only.
const ANSWERS_MAX: u32 = 32;
/// Used bytes of the body of a hello or of its answer.
pub(super) const BODY_BYTES: usize = 16;

// No amplification: a spoofed source address receives no more bytes than were sent.
const _: () = assert!(HEADER_LEN + BODY_BYTES + TAG_LEN <= HELLO_BYTES);

/// An authentic packet of the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The next hello must echo a challenge.
    Challenge,
    /// The listener has accepted a hello; the RTT if the ack echoes a time of this end.
    Accepted(Option<Span>),
    /// The listener sends data already, so it has accepted a hello.
    Data,
}

/// A handshake of a connector.
#[derive(Debug)]
pub(super) struct Handshake {
    connection: ConnectionId,
    sealer: Sealer,
    opener: Opener,
    start: Instant,
    next_number: PacketNumber,
    challenge: [u8; 8],
    /// Challenges so far.
    challenges: u32,
    /// Numbers of the acks so far.
    acks: ReplayWindow,
    /// Newest packet of the listener, if all packets before have arrived as well.
    largest_opened: Option<PacketNumber>,
}

impl Handshake {
    pub(super) fn new(secrets: &ChannelSecrets, suite: Suite) -> Self {
        Self {
            connection: ConnectionId(secrets.connection_id),
            sealer: Sealer::new(suite, secrets.to_listener),
            opener: Opener::new(suite, secrets.to_connector),
            start: Instant::now(),
            next_number: PacketNumber(0),
            challenge: [0; 8],
            challenges: 0,
            acks: ReplayWindow::after(None),
            largest_opened: None,
        }
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Makes the next hello.
    pub(super) fn hello(&mut self) -> Result<Vec<u8>, Error> {
        let mut body = [0; HELLO_BYTES - HEADER_LEN - TAG_LEN];
        body[..8].copy_from_slice(&self.challenge);
        body[8..BODY_BYTES].copy_from_slice(&micros(self.elapsed()).to_be_bytes());
        let number = self.next_number;
        self.next_number = number.next();
        seal(&mut self.sealer, Kind::Hello, self.connection, number, &body)
            .map_err(|error| Error::io("seal a packet")(std::io::Error::other(error)))
    }

    /// Processes a datagram; `None` if the datagram is no authentic answer or data of the listener. An ack counts once:
    /// a hello is larger, and goes to the address from which the ack came.
    pub(super) fn take(&mut self, datagram: &[u8]) -> Option<Answer> {
        let near = PacketNumber(0);
        let header = Header::decode(datagram).ok()?;
        if header.kind == Kind::Data && header.connection == self.connection {
            return self.opens(header, datagram).then_some(Answer::Data);
        }
        let (number, challenge, echoed) =
            open_body(&mut self.opener, datagram, self.connection, Kind::HelloAck, near)?;
        if self.acks.is_replayed(number) {
            return None;
        }
        self.acks.note(number);
        if number.0 == self.largest_opened.map_or(0, |largest| largest.0 + 1) {
            self.largest_opened = Some(number);
        }
        if challenge != [0; 8] {
            self.challenge = challenge;
            self.challenges = self.challenges.saturating_add(1);
            return (self.challenges <= ANSWERS_MAX).then_some(Answer::Challenge);
        }
        let sent_at = Duration::from_micros(u64::from_be_bytes(echoed));
        let rtt = self.elapsed().checked_sub(sent_at);
        Some(Answer::Accepted(rtt.map(|rtt| Span::from_micros(micros(rtt)))))
    }

    /// Whether a DATA packet is authentic.
    fn opens(&mut self, header: Header, datagram: &[u8]) -> bool {
        let sealed_at = DATA_HEADER_LEN + usize::from(header.congestion_len);
        let Some((head, sealed)) = datagram.split_at_checked(sealed_at) else { return false };
        let mut payload = vec![0; sealed.len().saturating_sub(TAG_LEN)];
        let number = PacketNumber::expand(header.number_low, PacketNumber(0));
        sealed.len() >= TAG_LEN
            && self.opener.open(number, &head[..DATA_HEADER_LEN], sealed, &mut payload).is_ok()
    }

    /// Ends the handshake. `early`: datagrams of the listener that this end has received already.
    pub(super) fn into_path(
        self,
        socket: Box<dyn Datagrams>,
        rtt: Option<Span>,
        early: Vec<Vec<u8>>,
    ) -> OpenPath {
        OpenPath {
            socket,
            connection: self.connection,
            sealer: self.sealer,
            next_number: self.next_number,
            opener: self.opener,
            largest_opened: self.largest_opened,
            rtt,
            early,
        }
    }
}

/// Decrypts a packet of this kind; returns its number and the first 16 bytes of its body.
pub(super) fn open_body(
    opener: &mut Opener,
    datagram: &[u8],
    connection: ConnectionId,
    kind: Kind,
    near: PacketNumber,
) -> Option<(PacketNumber, [u8; 8], [u8; 8])> {
    let header = Header::decode(datagram).ok()?;
    if header.kind != kind || header.connection != connection || header.congestion_len != 0 {
        return None;
    }
    let sealed = &datagram[HEADER_LEN..];
    let mut body = vec![0; sealed.len().checked_sub(TAG_LEN)?];
    let number = PacketNumber::expand(header.number_low, near);
    opener.open(number, &datagram[..HEADER_LEN], sealed, &mut body).ok()?;
    let (first, rest) = body.split_first_chunk::<8>()?;
    Some((number, *first, *rest.first_chunk::<8>()?))
}

/// Makes a sealed datagram of this kind.
pub(super) fn seal(
    sealer: &mut Sealer,
    kind: Kind,
    connection: ConnectionId,
    number: PacketNumber,
    body: &[u8],
) -> Result<Vec<u8>, crate::seal::SealError> {
    let header = Header::new(kind, connection, number).encode();
    let mut datagram = header.to_vec();
    datagram.resize(HEADER_LEN + body.len() + TAG_LEN, 0);
    sealer.seal(number, &header, body, &mut datagram[HEADER_LEN..])?;
    Ok(datagram)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: Suite = Suite::ChaCha20Poly1305;

    #[test]
    fn an_ack_counts_once_and_few_challenges_are_answered_at_once() {
        let secrets =
            ChannelSecrets { connection_id: 7, to_listener: [1; 32], to_connector: [2; 32] };
        let mut handshake = Handshake::new(&secrets, SUITE);
        let mut listener = Sealer::new(SUITE, secrets.to_connector);
        let mut ack = |number: u64, challenge: [u8; 8]| {
            let (number, connection) = (PacketNumber(number), ConnectionId(7));
            let body = [challenge, [0; 8]].concat();
            seal(&mut listener, Kind::HelloAck, connection, number, &body).unwrap()
        };
        let first = ack(0, [5; 8]);
        assert_eq!(handshake.take(&first), Some(Answer::Challenge));
        assert_eq!(handshake.take(&first), None, "a copy, from any address");
        let late = ack(1, [5; 8]);
        let answers = (2..100).filter(|number| handshake.take(&ack(*number, [6; 8])).is_some());
        assert_eq!(answers.count(), ANSWERS_MAX as usize - 1);
        assert_eq!(handshake.take(&late), None);
        assert_eq!(handshake.challenge, [5; 8], "hellos at their times echo the newest");
        assert!(matches!(handshake.take(&ack(100, [0; 8])), Some(Answer::Accepted(_))));
    }
}
