//! Hostile client that seals datagrams with the right key: reports that lie, and data that contradicts itself.

use std::fs;
use std::time::{Duration, Instant};

use sabul::Ticket;
use sabul::internal::seal::{Opener, Sealer, Suite};
use sabul::internal::tls;
use sabul_units::{PacketNumber, SeqNo, Span};
use sabul_wire::block::Record;
use sabul_wire::control::{Direction, Message};
use sabul_wire::{
    Ack, ConnectionId, DATA_HEADER_LEN, DataHeader, Feedback, HEADER_LEN, Header, Kind, LossPolicy,
    Mark, Missing, Nak, NumberRange, TAG_LEN,
};
use tokio::net::UdpSocket;

use super::peer::{Client, block, file, get, last, open, put, receive, say};
use super::{MEMORY_MAX, is_alone, resident, run, serving_at};

/// Longest time until a lie ends the transfer.
const PROMPT: Duration = Duration::from_secs(8);
/// Size of a hello.
const HELLO_BYTES: usize = 1200;

/// The client's end of a UDP channel.
struct Channel {
    socket: UdpSocket,
    connection: ConnectionId,
    sealer: Sealer,
    opener: Opener,
    next: u64,
    began: Instant,
    serial: u64,
    /// Largest packet number so far.
    largest: u64,
    packets: u64,
    bytes: u64,
}

impl Channel {
    /// Opens the channel of an accepted transfer.
    async fn open(client: &Client, ticket: &Ticket, transfer: u32) -> Self {
        Self::open_with(client, ticket, &transfer.to_be_bytes()).await
    }

    /// Opens a path after the first one of a transfer.
    async fn open_path(client: &Client, ticket: &Ticket, transfer: u32, path: u32) -> Self {
        let context = [transfer.to_be_bytes(), (path << 16).to_be_bytes()].concat();
        Self::open_with(client, ticket, &context).await
    }

    async fn open_with(client: &Client, ticket: &Ticket, context: &[u8]) -> Self {
        let control = client.control.get_ref().1;
        let secrets: [u8; 72] = tls::exporter(control, b"EXPORTER-sabul-channel", context).unwrap();
        let (id, keys) = secrets.split_first_chunk().unwrap();
        let (to_listener, to_connector) = keys.split_at(32);
        let suite = Suite::from_code(1).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(ticket.addresses()[0].as_str()).await.unwrap();
        let mut channel = Self {
            socket,
            connection: ConnectionId(u64::from_be_bytes(*id)),
            sealer: Sealer::new(suite, to_listener.try_into().unwrap()),
            opener: Opener::new(suite, to_connector.try_into().unwrap()),
            next: 0,
            began: Instant::now(),
            serial: 0,
            largest: 0,
            packets: 0,
            bytes: 0,
        };
        let hello = [0; HELLO_BYTES - HEADER_LEN - TAG_LEN];
        let (mut answer, mut tries) = ([0; 2048], 0);
        loop {
            channel.say(Kind::Hello, &hello).await;
            let answered = channel.socket.recv(&mut answer);
            if tokio::time::timeout(Duration::from_millis(300), answered).await.is_ok() {
                return channel;
            }
            tries += 1;
            assert!(tries < 20, "no answer to hellos");
        }
    }

    fn number(&mut self) -> PacketNumber {
        self.next += 1;
        PacketNumber(self.next - 1)
    }

    /// Sends a datagram other than DATA.
    async fn say(&mut self, kind: Kind, body: &[u8]) {
        let number = self.number();
        let header = Header::new(kind, self.connection, number).encode();
        self.send(number, &header, body).await;
    }

    async fn data(&mut self, seq: u64, block: u32, offset: u32, ends_block: bool, body: &[u8]) {
        let number = self.number();
        let header = DataHeader::new(self.connection, number, SeqNo(seq), block, offset);
        self.send(number, &DataHeader { ends_block, ..header }.encode(), body).await;
    }

    async fn send(&mut self, number: PacketNumber, header: &[u8], body: &[u8]) {
        let mut datagram = header.to_vec();
        datagram.resize(header.len() + body.len() + TAG_LEN, 0);
        self.sealer.seal(number, header, body, &mut datagram[header.len()..]).unwrap();
        // The other end may be gone.
        let _ = self.socket.send(&datagram).await;
    }

    async fn report(&mut self, report: &Feedback) {
        let mut body = Vec::new();
        report.encode(&mut body);
        let kind = if matches!(report, Feedback::Ack(_)) { Kind::Ack } else { Kind::Nak };
        self.say(kind, &body).await;
    }

    /// Receives DATA for a moment, and notes its numbers.
    async fn listen(&mut self) {
        let mut datagram = [0; 1 << 16];
        for _ in 0..64 {
            let received = self.socket.recv(&mut datagram);
            let received = tokio::time::timeout(Duration::from_millis(20), received).await;
            let Ok(Ok(length)) = received else { return };
            let Ok(header) = DataHeader::decode(&datagram[..length]) else { continue };
            let number = PacketNumber::expand(header.number_low, PacketNumber(self.largest));
            let sealed = &datagram[DATA_HEADER_LEN + usize::from(header.congestion_len)..length];
            let mut body = vec![0; sealed.len() - TAG_LEN];
            let head = &datagram[..DATA_HEADER_LEN];
            if self.opener.open(number, head, sealed, &mut body).is_ok() {
                self.largest = self.largest.max(number.0);
                self.packets += 1;
                self.bytes += body.len() as u64;
            }
        }
    }

    /// A report that acknowledges what has arrived, as if nothing were missing.
    fn ack(&mut self) -> Ack {
        self.serial += 1;
        Ack {
            serial: self.serial,
            seq: SeqNo(0),
            largest: PacketNumber(self.largest),
            arrived_at: Span::from_micros(u64::try_from(self.began.elapsed().as_micros()).unwrap()),
            packets: self.packets,
            bytes: self.bytes,
            block_limit: 1 << 20,
            ..Ack::default()
        }
    }
}

/// A lie, and a part of the reason for which the transfer ends.
type Lie = (&'static str, fn(&mut Channel) -> Vec<(Kind, Vec<u8>)>, &'static str);

fn of(report: Feedback) -> Vec<(Kind, Vec<u8>)> {
    let mut body = Vec::new();
    report.encode(&mut body);
    vec![(if matches!(report, Feedback::Ack(_)) { Kind::Ack } else { Kind::Nak }, body)]
}

fn lies() -> Vec<Lie> {
    vec![
        (
            "data that was not sent",
            |it| of(Feedback::Ack(Ack { seq: SeqNo(1 << 40), ..it.ack() })),
            "sequence number",
        ),
        (
            "a packet that was not sent",
            |it| of(Feedback::Ack(Ack { largest: PacketNumber(1 << 30), ..it.ack() })),
            "packet",
        ),
        (
            "each packet before it can arrive",
            |it| of(Feedback::Ack(Ack { largest: PacketNumber(it.largest + 40), ..it.ack() })),
            "but the newest packet sent is",
        ),
        (
            "more packets than were sent",
            |it| of(Feedback::Ack(Ack { packets: u64::MAX, ..it.ack() })),
            "received packets",
        ),
        (
            "more bytes than were sent",
            |it| of(Feedback::Ack(Ack { bytes: u64::MAX, ..it.ack() })),
            "bytes",
        ),
        (
            "nothing missing, also numbers that were skipped",
            |it| of(Feedback::Ack(it.ack())),
            "without a loss report",
        ),
        (
            "a loss of unsent packets",
            |_| {
                let ranges = vec![NumberRange { first: 0, last: u64::MAX - 1 }];
                of(Feedback::Nak(Nak { policy: LossPolicy::Current, ranges }))
            },
            "loss of packet",
        ),
        (
            "a loss of unsent data",
            |_| {
                let ranges = vec![NumberRange { first: 0, last: 1 << 40 }];
                of(Feedback::Nak(Nak { policy: LossPolicy::Historical, ranges }))
            },
            "does not use",
        ),
        ("a list", |_| of(Feedback::Missing(Missing::default())), "does not use"),
        ("no report", |_| vec![(Kind::Ack, vec![0xff; 60])], "report"),
        ("an empty report", |_| vec![(Kind::Nak, vec![])], "report"),
    ]
}

/// Ends the transfer from this side, or returns the reason for which the other end has ended it.
async fn reason(client: &mut Client) -> Option<String> {
    let next = tokio::time::timeout(Duration::from_millis(1), receive(&mut client.control)).await;
    match next {
        Ok(Some(Message::Cancel { failure, .. })) => Some(failure.message),
        Ok(None) => Some("closed".to_owned()),
        _ => None,
    }
}

#[test]
fn a_report_that_lies_ends_the_transfer() {
    if !is_alone("hostile::udp::a_report_that_lies_ends_the_transfer") {
        return;
    }
    run(async {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("big"), vec![7; 64 << 20]).unwrap();
        for (what, lie, expected) in lies() {
            let (ticket, served) = serving_at(root.path()).await;
            let mut client = Client::dial(&ticket).await;
            let Message::Open(mut request) = open(1, Direction::Pull, get(&["big"])) else {
                panic!()
            };
            request.channel.room = 100;
            say(&mut client.control, &Message::Open(request)).await;
            while !matches!(receive(&mut client.control).await.unwrap(), Message::Accept { .. }) {}
            let (files, wholes) = (vec![], vec![]);
            let have = Message::Have { transfer: 1, files, wholes, is_last: true };
            say(&mut client.control, &have).await;
            let mut channel = Channel::open(&client, &ticket, 1).await;
            let began = Instant::now();
            while channel.packets == 0 {
                channel.listen().await;
                assert!(began.elapsed() < PROMPT, "{what}: no data");
            }
            let why = loop {
                channel.listen().await;
                for (kind, body) in lie(&mut channel) {
                    channel.say(kind, &body).await;
                }
                if let Some(why) = reason(&mut client).await {
                    break why;
                }
                assert!(began.elapsed() < PROMPT, "{what}: the transfer goes on");
            };
            assert!(why.contains(expected), "{what}: {why}");
            assert!(resident() < MEMORY_MAX, "{what}: {}", resident());
            served.abort();
        }
    });
}

/// Packets of a sender: sequence number, block, offset, whether the block ends, and bytes.
type Packet = (u64, u32, u32, bool, usize);

fn packets() -> Vec<(&'static str, Vec<Packet>)> {
    const MAX: u32 = u32::MAX;
    vec![
        ("a block far ahead", vec![(0, MAX, 0, true, 9)]),
        ("an offset far ahead", vec![(0, 0, MAX, true, 9)]),
        ("an offset beyond the block", vec![(0, 0, 0, true, 9), (1, 0, 900, true, 9)]),
        ("two ends of a block", vec![(0, 0, 0, true, 9), (1, 0, 0, true, 5)]),
        ("an end before other data", vec![(1, 0, 50, false, 9), (0, 0, 0, true, 9)]),
        ("overlapping data", vec![(0, 0, 0, false, 100), (1, 0, 50, false, 100)]),
        ("one number for two pieces", vec![(0, 0, 0, false, 9), (0, 0, 9, false, 9)]),
        ("numbers far ahead", vec![(1 << 30, 0, 0, false, 9), (1 << 31, 1, 0, true, 9)]),
        ("each second number", (0..5000).map(|it| (2 * it, 0, 0, false, 9)).collect()),
        ("many blocks without an end", (0..5000).map(|it| (it.into(), it, 0, false, 9)).collect()),
        ("many small blocks", (0..5000).map(|it| (it.into(), it, 0, true, 1)).collect()),
    ]
}

#[test]
fn data_that_contradicts_itself_ends_its_transfer_and_nothing_else() {
    if !is_alone("hostile::udp::data_that_contradicts_itself_ends_its_transfer_and_nothing_else") {
        return;
    }
    run(async {
        let root = tempfile::tempdir().unwrap();
        for (what, list) in packets() {
            let (ticket, served) = serving_at(root.path()).await;
            let mut client = Client::dial(&ticket).await;
            client.request(1, Direction::Push, put("")).await.unwrap();
            let mut channel = Channel::open(&client, &ticket, 1).await;
            for (seq, block, offset, ends_block, bytes) in list {
                channel.data(seq, block, offset, ends_block, &vec![0; bytes]).await;
            }
            let began = Instant::now();
            let why = loop {
                channel.listen().await;
                match reason(&mut client).await {
                    None if began.elapsed() < Duration::from_secs(1) => {}
                    why => break why,
                }
            };
            assert!(resident() < MEMORY_MAX, "{what}: {}", resident());
            // Marks and reports of a receiver are none of a sender, and nothing that arrives twice counts twice.
            channel
                .say(Kind::Mark, &Mark { serial: u64::MAX, end: SeqNo(u64::MAX) }.encode())
                .await;
            channel.report(&Feedback::Ack(Ack::default())).await;
            // The session goes on.
            if why.as_deref() != Some("closed") {
                client.request(3, Direction::Push, put("")).await.unwrap();
                let mut other = Channel::open(&client, &ticket, 3).await;
                let records = [file(0, "f", b"content"), vec![last(1, 7)]].concat();
                let whole = block(&records, b"content");
                for _ in 0..3 {
                    other.data(0, 0, 0, true, &whole).await;
                }
                while !matches!(receive(&mut client.control).await.unwrap(), Message::Done(_)) {}
            }
            say(&mut client.control, &Message::Close).await;
            drop(served);
        }
        assert_eq!(fs::read(root.path().join("f")).unwrap(), b"content");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    });
}

#[test]
fn blocks_of_several_paths_are_taken_once_and_in_order() {
    run(async {
        let root = tempfile::tempdir().unwrap();
        let (ticket, _served) = serving_at(root.path()).await;
        let mut client = Client::dial(&ticket).await;
        for (transfer, (paths, channels)) in (3..).step_by(2).zip([(255, 1), (0, 0), (4, 3)]) {
            let Message::Open(mut request) = open(transfer, Direction::Push, put("")) else {
                panic!()
            };
            (request.channel.paths, request.channel.channels) = (paths, channels);
            say(&mut client.control, &Message::Open(request)).await;
            while !matches!(receive(&mut client.control).await.unwrap(), Message::Cancel { .. }) {}
        }
        let Message::Open(mut request) = open(9, Direction::Push, put("")) else { panic!() };
        request.channel.paths = 2;
        say(&mut client.control, &Message::Open(request)).await;
        while !matches!(receive(&mut client.control).await.unwrap(), Message::Accept { .. }) {}
        let mut one = Channel::open(&client, &ticket, 9).await;
        let mut other = Channel::open_path(&client, &ticket, 9, 1).await;
        let numbered = |records: &[Record], data: &[u8], number: u32| {
            [&block(records, data)[..], &number.to_be_bytes()].concat()
        };
        let all = file(0, "f", b"content");
        let first = numbered(&all[..2], b"content", 0);
        let second = numbered(&[&all[2..], &[last(1, 7)]].concat(), b"", 1);
        let forged = numbered(&[last(0, 0)], b"", 1);
        // The first block of a number counts, over whichever path, and far numbers wait in vain.
        one.data(0, 0, 0, true, &second).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        for (seq, block) in [forged, numbered(&[last(0, 0)], b"", u32::MAX), first.clone(), first]
            .iter()
            .enumerate()
        {
            let seq = u32::try_from(seq).unwrap();
            other.data(seq.into(), seq, 0, true, block).await;
        }
        loop {
            match receive(&mut client.control).await.unwrap() {
                Message::Done(done) => break assert_eq!((done.bytes, done.failed), (7, 0)),
                Message::Cancel { failure, .. } => panic!("{failure}"),
                _ => {}
            }
        }
        assert_eq!(fs::read(root.path().join("f")).unwrap(), b"content");
    });
}
