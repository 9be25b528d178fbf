//! Peer that authenticates properly, speaks the protocol and sends anything. Its blocks go over TCP.

use std::io::Read as _;
use std::sync::Arc;

use flate2::read::DeflateDecoder;
use sabul::Ticket;
use sabul::internal::ticket::proof;
use sabul::internal::tls::{self, Identity};
use sabul_wire::block::{Record, end_block};
use sabul_wire::control::{
    CONTROL_VERSION, ChannelParams, Direction, Entry, EntryKind, Expected, Message, Open, PACKED,
    Request, body_length,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{client, server};

/// A message with any content; the limits of the protocol are not applied.
pub(crate) fn framed(message: &Message) -> Vec<u8> {
    let body = postcard::to_allocvec(message).unwrap();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[..], &body].concat()
}

/// Sends a message of any length; returns whether it could be sent.
pub(crate) async fn say(to: &mut (impl AsyncWrite + Unpin), message: &Message) -> bool {
    to.write_all(&framed(message)).await.is_ok() && to.flush().await.is_ok()
}

/// Returns the next message; `None` once the other end closes.
pub(crate) async fn receive(from: &mut (impl AsyncRead + Unpin)) -> Option<Message> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await.ok()?;
    let mut body = vec![0; body_length(length).ok()?];
    from.read_exact(&mut body).await.ok()?;
    if let Some((&PACKED, packed)) = body.split_first() {
        let mut plain = Vec::new();
        DeflateDecoder::new(packed).read_to_end(&mut plain).ok()?;
        body = plain;
    }
    Message::decode_body(&body).ok()
}

/// A request of the peer with usual settings.
pub(crate) fn open(transfer: u32, direction: Direction, request: Request) -> Message {
    let channel = ChannelParams::new("bbr3");
    Message::Open(Open { transfer, direction, request, channel })
}

/// A request to write below the root.
pub(crate) fn put(destination: &str) -> Request {
    Request::Put {
        destination: destination.into(),
        into_directory: true,
        preserve: true,
        sync: false,
        read_back: false,
        origins: Vec::new(),
        expected: Expected::Any,
    }
}

/// A request to read these sources.
pub(crate) fn get(sources: &[&str]) -> Request {
    Request::Get {
        sources: sources.iter().map(|source| source.as_bytes().to_vec()).collect(),
        recursive: true,
        rules: Vec::new(),
        ranges: Vec::new(),
        archive: false,
        hard_links: false,
        links_out: false,
        selected: false,
        growing: false,
        literal: false,
        state: None,
        from_end: false,
    }
}

pub(crate) fn entry(path: impl Into<Vec<u8>>, kind: EntryKind) -> Entry {
    Entry { path: path.into(), kind, mode: None, modified_ns: None, more: None }
}

/// A block with these records and this data.
pub(crate) fn block(records: &[Record], data: &[u8]) -> Vec<u8> {
    let mut table = Vec::new();
    for record in records {
        record.encode(&mut table).unwrap();
    }
    let mut block = data.to_vec();
    end_block(&mut block, data.len(), &table);
    block
}

/// The records of a file with this content.
pub(crate) fn file(index: u64, path: &str, content: &[u8]) -> Vec<Record> {
    let bytes = content.len() as u64;
    let part = Record::Part { index, offset: 0, bytes };
    let end = Record::End { index, outcome: Ok(*blake3::hash(content).as_bytes()) };
    let entry = Record::Entry(entry(path, EntryKind::File(bytes)));
    [Some(entry), (bytes > 0).then_some(part), Some(end)].into_iter().flatten().collect()
}

pub(crate) const fn last(entries: u64, bytes: u64) -> Record {
    Record::Last { entries, bytes, grown: 0 }
}

/// Sends blocks with their numbers, and reads nothing; returns whether they could be sent.
pub(crate) async fn send_blocks(to: &mut (impl AsyncWrite + Unpin), blocks: &[Vec<u8>]) -> bool {
    for (number, block) in blocks.iter().enumerate() {
        if !send_block(to, u32::try_from(number).unwrap(), block).await {
            return false;
        }
    }
    true
}

/// Sends a block with any number.
pub(crate) async fn send_block(
    to: &mut (impl AsyncWrite + Unpin),
    number: u32,
    block: &[u8],
) -> bool {
    let length = u32::try_from(block.len()).unwrap();
    let head = [number.to_be_bytes(), length.to_be_bytes()].concat();
    let sent = async {
        to.write_all(&head).await?;
        to.write_all(block).await?;
        to.flush().await
    };
    sent.await.is_ok()
}

/// Connector that holds the ticket of its victim.
pub(crate) struct Client {
    pub(crate) control: client::TlsStream<TcpStream>,
    ticket: Ticket,
}

impl Client {
    /// Connects and authenticates.
    pub(crate) async fn dial(ticket: &Ticket) -> Self {
        let mut control = Self::connect(ticket).await;
        let exporter = tls::proof_exporter(control.get_ref().1).unwrap();
        let proof = proof(ticket.secret(), &exporter);
        let software = "hostile".to_owned();
        let hello = Message::Hello { version: CONTROL_VERSION, proof, suites: vec![1], software };
        assert!(say(&mut control, &hello).await);
        Self { control, ticket: ticket.clone() }
    }

    async fn connect(ticket: &Ticket) -> client::TlsStream<TcpStream> {
        let tcp = TcpStream::connect(ticket.addresses()[0].as_str()).await.unwrap();
        tls::connect(tcp, ticket.fingerprint()).await.unwrap()
    }

    /// Opens a connection that carries blocks of an accepted transfer.
    pub(crate) async fn join(&self, transfer: u32) -> client::TlsStream<TcpStream> {
        let label = b"EXPORTER-sabul-join";
        let secrets: [u8; 40] =
            tls::exporter(self.control.get_ref().1, label, &transfer.to_be_bytes()).unwrap();
        let mut data = Self::connect(&self.ticket).await;
        let exporter = tls::proof_exporter(data.get_ref().1).unwrap();
        let id = u64::from_be_bytes(*secrets.first_chunk().unwrap());
        let proof = proof(secrets.last_chunk().unwrap(), &exporter);
        assert!(say(&mut data, &Message::Join { id, proof, attempt: 1, index: 0, count: 1 }).await);
        assert!(say(&mut data, &Message::Joined).await);
        assert!(matches!(receive(&mut data).await, Some(Message::Joined)));
        data
    }

    /// Requests something and waits for its acceptance; the failure if it is refused.
    pub(crate) async fn request(
        &mut self,
        transfer: u32,
        direction: Direction,
        request: Request,
    ) -> Result<(), String> {
        say(&mut self.control, &open(transfer, direction, request)).await;
        loop {
            match receive(&mut self.control).await {
                Some(Message::Accept { .. }) => return Ok(()),
                Some(Message::Cancel { transfer: of, failure })
                    if of.is_none_or(|of| of == transfer) =>
                {
                    return Err(failure.message);
                }
                Some(_) => {}
                None => return Err("closed".to_owned()),
            }
        }
    }
}

/// Listener whose ticket its victim holds. It has no UDP, so that its victim dials TCP.
pub(crate) struct Server {
    listener: TcpListener,
    config: Arc<rustls::ServerConfig>,
}

/// A connection to the hostile listener, with its first message.
pub(crate) type Caller = (server::TlsStream<TcpStream>, Message);

impl Server {
    pub(crate) async fn bind() -> (Self, Ticket) {
        let identity = Identity::generate().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let ticket = Ticket::generate(vec![address], identity.fingerprint()).unwrap();
        let config = identity.server_config().unwrap();
        (Self { listener, config }, ticket)
    }

    /// The next connection and its first message.
    pub(crate) async fn accept(&self) -> Option<Caller> {
        loop {
            let (tcp, _) = self.listener.accept().await.ok()?;
            let Ok(mut stream) = tls::accept(tcp, self.config.clone()).await else { continue };
            let Some(first) = receive(&mut stream).await else { continue };
            return Some((stream, first));
        }
    }

    /// Welcomes the victim.
    pub(crate) async fn welcome(&self) -> server::TlsStream<TcpStream> {
        loop {
            let (mut control, first) = self.accept().await.unwrap();
            if matches!(first, Message::Hello { .. }) {
                let software = "hostile".to_owned();
                let welcome = Message::Welcome { version: CONTROL_VERSION, suite: 1, software };
                say(&mut control, &welcome).await;
                return control;
            }
        }
    }

    /// Accepts all connections for the blocks of a transfer.
    pub(crate) async fn data(&self) -> Vec<server::TlsStream<TcpStream>> {
        let mut joined = Vec::new();
        loop {
            let Some((stream, Message::Join { count, .. })) = self.accept().await else { continue };
            joined.push(stream);
            if joined.len() == usize::from(count) {
                break;
            }
        }
        for stream in &mut joined {
            receive(stream).await;
        }
        for stream in &mut joined {
            say(stream, &Message::Joined).await;
        }
        joined
    }
}
