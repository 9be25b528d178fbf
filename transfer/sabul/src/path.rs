//! Opening of a channel's UDP path: handshake and address validation.
//!
//! The connector sends sealed hellos of 1200 bytes from its own socket until an answer arrives. One
//! UDP port of the listener serves all sessions. [`Demux`] looks up the connection id, decrypts the
//! hello, and opens a socket for the channel on the same port, connected to the peer.
//!
//! ```text
//! hello:      | challenge echoed, 8 | time sent in µs, 8 | zeros up to 1200 bytes of datagram |
//! hello ack:  | challenge, 8        | time echoed, 8     |
//! ```
//! The address of the TCP connection is accepted at once; any other address has to echo a
//! challenge.

mod handshake;
mod nat;
mod sockets;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use sabul_udp::{Ecn, RecvBuffers, SocketOptions, UdpSocket, Wait, Waker};
use sabul_units::PacketNumber;
use sabul_wire::control::{Failure, FailureCode};
use sabul_wire::{ConnectionId, Header, Kind};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::channel::OpenPath;
use crate::descriptors::{self, Purpose};
use crate::error::Error;
use crate::lock::{lock, wait};
use crate::outside;
use crate::seal::{Opener, Sealer, Suite};
use crate::source::source;
use crate::tls::ChannelSecrets;
use handshake::{Answer, BODY_BYTES, HELLO_BYTES, Handshake, open_body, seal};
use nat::NatPort;
pub(crate) use nat::{Meeting, NAT_TIMEOUT, connect as connect_through_nats};
use sockets::{Channels, ConnectorSocket, ListenerSocket, Way};

/// How long a connector tries before UDP counts as blocked. Ours: eight hellos.
pub(crate) const CONNECTOR_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connector waits for its turn to dial TCP and for the connections.
pub(crate) const TCP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a listener waits for a carrier; longer, so that the connector's error comes first.
pub(crate) const LISTENER_TIMEOUT: Duration = Duration::from_secs(40);
/// Time until the second hello; doubles up to [`HELLO_GAP_MAX`].
const HELLO_GAP: Duration = Duration::from_millis(50);
/// Longest time between hellos.
const HELLO_GAP_MAX: Duration = Duration::from_millis(500);
/// Most stored hellos for unknown channels: a hello can arrive before its request.
const EARLY_MAX: usize = 64;
/// Most stored hellos of one source, so that one host cannot evict those of others.
const EARLY_PER_SOURCE: usize = 4;

/// An open path that no endpoint uses yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingPath(Arc<Mutex<Option<OpenPath>>>);

impl PendingPath {
    pub(crate) fn new(path: OpenPath) -> Self {
        Self(Arc::new(Mutex::new(Some(path))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<OpenPath>> {
        lock(&self.0)
    }

    /// Takes the path for an endpoint.
    pub(crate) fn take(&self) -> Option<OpenPath> {
        self.lock().take()
    }

    /// Answers hellos that have arrived; returns false once the path is taken.
    fn answer_hellos(&self, buffers: &mut RecvBuffers) -> bool {
        let mut path = self.lock();
        path.as_mut().map(|path| answer_hellos(path, buffers)).is_some()
    }

    /// Answers hellos until the path is taken or dropped.
    pub(crate) fn answering(&self) -> impl Future<Output = ()> + Send + use<> {
        let waiting = Arc::downgrade(&self.0);
        async move {
            let mut buffers = RecvBuffers::new(1);
            while waiting.upgrade().is_some_and(|path| Self(path).answer_hellos(&mut buffers)) {
                tokio::time::sleep(HELLO_GAP).await;
            }
        }
    }
}

/// Answers hellos that have arrived: the peer repeats a hello whose answer was lost.
fn answer_hellos(path: &mut OpenPath, buffers: &mut RecvBuffers) {
    while path.socket.recv(buffers).is_ok_and(|count| count > 0) {
        for datagram in buffers.datagrams() {
            let near = path.largest_opened.unwrap_or(PacketNumber(0));
            let opener = &mut path.opener;
            let hello = open_body(opener, datagram.payload, path.connection, Kind::Hello, near);
            let Some((number, _, time)) = hello else { continue };
            path.largest_opened = path.largest_opened.max(Some(number));
            let mut body = [0; BODY_BYTES];
            body[8..].copy_from_slice(&time);
            let answer = path.next_number;
            let sealed = seal(&mut path.sealer, Kind::HelloAck, path.connection, answer, &body);
            let Ok(sealed) = sealed else { return };
            path.next_number = answer.next();
            let _ = path.socket.send(&sealed, sealed.len());
        }
    }
}

/// Opens a socket connected to `peer`.
fn socket_to(
    peer: SocketAddr,
    local: Option<IpAddr>,
    options: &SocketOptions,
) -> Result<UdpSocket, Error> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    UdpSocket::bind(SocketAddr::new(local.unwrap_or(any), 0), options)
        .and_then(|socket| socket.connect(peer).map(|()| socket))
        .map_err(Error::Udp)
}

/// Control of an attempt to open a path, for use by another thread.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    state: Mutex<AttemptState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AttemptState {
    is_over: bool,
    is_held: bool,
}

impl Attempt {
    /// Ends the attempt.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Pauses or resumes the hellos.
    pub(crate) fn hold(&self, is_held: bool) {
        self.lock().is_held = is_held;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, AttemptState> {
        lock(&self.state)
    }

    /// Waits while the attempt is paused. Returns whether it was paused, or `None` if it is over.
    fn may_continue(&self) -> Option<bool> {
        let mut state = self.lock();
        let was_held = state.is_held;
        while state.is_held && !state.is_over {
            state = wait(&self.changed, state);
        }
        (!state.is_over).then_some(was_held)
    }
}

/// Sends hellos to `peer` until an answer arrives; blocks at most until the attempt ends. `None` if
/// it ended.
pub(crate) fn connect(
    peer: SocketAddr,
    local: Option<IpAddr>,
    options: &SocketOptions,
    secrets: &ChannelSecrets,
    suite: Suite,
    attempt: &Attempt,
) -> Result<Option<OpenPath>, Error> {
    let io = |action| move |source| Error::io(format!("{action} {peer}"))(source);
    let socket = socket_to(peer, local, options)?;
    let mut handshake = Handshake::new(secrets, suite);
    let mut buffers = RecvBuffers::new(1);
    let (mut gap, mut next_hello) = (HELLO_GAP, Instant::now());
    while let Some(was_held) = attempt.may_continue() {
        let now = Instant::now();
        if was_held {
            (next_hello, gap) = (now, HELLO_GAP);
        }
        if now >= next_hello {
            let datagram = handshake.hello()?;
            // A failed send is not fatal: the next hello may pass.
            if let Err(error) = socket.send(&datagram, datagram.len(), None, Ecn::NotEct) {
                debug!(%error, "a hello was not sent");
            }
            next_hello = now + gap;
            gap = (gap * 2).min(HELLO_GAP_MAX);
        }
        let timeout = next_hello.saturating_duration_since(Instant::now());
        socket.wait(Wait::READABLE, Some(timeout)).map_err(io("wait for UDP packets from"))?;
        if socket.recv(&mut buffers).map_err(io("receive UDP packets from"))? == 0 {
            continue;
        }
        let mut datagrams = buffers.datagrams();
        while let Some(datagram) = datagrams.next() {
            let (rtt, first) = match handshake.take(datagram.payload) {
                None => continue,
                Some(Answer::Challenge) => {
                    next_hello = Instant::now();
                    continue;
                }
                Some(Answer::Accepted(rtt)) => (rtt, None),
                Some(Answer::Data) => (None, Some(datagram.payload.to_vec())),
            };
            let early = first.into_iter().chain(datagrams.map(|it| it.payload.to_vec())).collect();
            let way = Way { peer, local, options: options.clone() };
            let socket = Box::new(ConnectorSocket::new(socket, way));
            return Ok(Some(handshake.into_path(socket, rtt, early)));
        }
    }
    Ok(None)
}

/// A channel that waits for its hello.
struct Expected {
    sealer: Sealer,
    next_number: PacketNumber,
    opener: Opener,
    /// Address of the peer on the control connection.
    tcp_peer: IpAddr,
    challenge: [u8; 8],
    /// Hello acks that were sent to open a NAT.
    punches: u32,
    /// Buffer size of the channel's socket in bytes.
    buffer_bytes: usize,
    done: oneshot::Sender<Result<OpenPath, Error>>,
}

/// A received datagram.
#[derive(Clone, Copy)]
struct Datagram<'a> {
    payload: &'a [u8],
    source: SocketAddr,
    local_ip: Option<IpAddr>,
}

/// A hello of an unknown channel.
struct Early {
    payload: Vec<u8>,
    source: SocketAddr,
    local_ip: Option<IpAddr>,
}

/// Hellos that arrived before their channels were expected.
#[derive(Default)]
struct EarlyHellos(VecDeque<Early>);

impl EarlyHellos {
    /// Stores a hello; evicts the oldest of the same source, or the oldest of all.
    fn keep(&mut self, datagram: Datagram<'_>) {
        let from = source(datagram.source.ip());
        let is_same = |early: &Early| source(early.source.ip()) == from;
        if self.0.iter().filter(|early| is_same(early)).count() >= EARLY_PER_SOURCE {
            let oldest = self.0.iter().position(is_same);
            oldest.map(|index| self.0.remove(index));
        } else if self.0.len() >= EARLY_MAX {
            self.0.pop_front();
        }
        let Datagram { payload, source, local_ip } = datagram;
        self.0.push_back(Early { payload: payload.to_vec(), source, local_ip });
    }

    /// Removes and returns the hellos of a channel.
    fn take(&mut self, connection: ConnectionId) -> Vec<Early> {
        let is_its = |early: &Early| {
            Header::decode(&early.payload).is_ok_and(|header| header.connection == connection)
        };
        let (its, others) = std::mem::take(&mut self.0).into_iter().partition(is_its);
        self.0 = others;
        Vec::from(its)
    }
}

#[derive(Default)]
struct DemuxState {
    expected: HashMap<u64, Expected>,
    early: EarlyHellos,
}

struct DemuxShared {
    socket: UdpSocket,
    channels: Channels,
    options: SocketOptions,
    state: Mutex<DemuxState>,
    nat: NatPort,
    stop: AtomicBool,
    unknown: AtomicU64,
}

/// UDP port of a listener, and the thread that opens a socket on the port for each channel.
pub(crate) struct Demux {
    shared: Arc<DemuxShared>,
    waker: Waker,
}

impl std::fmt::Debug for Demux {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Demux")
            .field("address", &self.shared.socket.local_addr())
            .field("unknown", &self.shared.unknown.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

/// Registration of an expected channel; dropping the value removes it.
pub(crate) struct Expectation {
    shared: Arc<DemuxShared>,
    connection: u64,
    done: oneshot::Receiver<Result<OpenPath, Error>>,
}

impl Expectation {
    /// Waits until the peer has opened the path.
    pub(crate) async fn wait(&mut self) -> Result<OpenPath, Error> {
        match (&mut self.done).await {
            Ok(result) => result,
            Err(_) => Err(Error::PeerGone("the listener has ended".into())),
        }
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        self.shared.lock().expected.remove(&self.connection);
    }
}

/// UDP port of a listener before its thread has started.
#[derive(Debug)]
pub(crate) struct DemuxPort {
    socket: UdpSocket,
    options: SocketOptions,
}

impl DemuxPort {
    /// Binds the UDP port of `address`.
    pub(crate) fn bind(address: SocketAddr, options: &SocketOptions) -> Result<Self, Error> {
        let options = SocketOptions { reuse_port: true, ..options.clone() };
        let socket = UdpSocket::bind(address, &options).map_err(Error::Udp)?;
        Ok(Self { socket, options })
    }

    /// Binds a UDP port that no other socket uses.
    pub(crate) fn bind_alone(address: SocketAddr) -> Result<Self, Error> {
        let options = SocketOptions::default();
        let socket = UdpSocket::bind(address, &options).map_err(Error::Udp)?;
        Ok(Self { socket, options })
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        self.socket.local_addr().port()
    }

    /// Starts the thread of the port.
    pub(crate) fn start(self) -> Result<Demux, Error> {
        let Self { socket, options } = self;
        let waker = socket.waker();
        let shared = Arc::new(DemuxShared {
            socket,
            channels: Channels::default(),
            options,
            state: Mutex::default(),
            nat: NatPort::default(),
            stop: AtomicBool::new(false),
            unknown: AtomicU64::new(0),
        });
        let served = Arc::clone(&shared);
        thread::Builder::new()
            .name("sabul-demux".to_owned())
            .spawn(move || served.run())
            .map_err(Error::io("start the thread sabul-demux"))?;
        Ok(Demux { shared, waker })
    }
}

impl Demux {
    /// Registers a channel whose hello is expected.
    pub(crate) fn expect(
        &self,
        secrets: &ChannelSecrets,
        suite: Suite,
        tcp_peer: IpAddr,
        buffer_bytes: usize,
    ) -> Result<Expectation, Error> {
        let mut challenge = [0; 8];
        aws_lc_rs::rand::fill(&mut challenge).map_err(|_| {
            Error::io("get random bytes")(std::io::Error::other("the system returns no bytes"))
        })?;
        // Zero means no challenge.
        challenge[0] |= 1;
        let (done, receiver) = oneshot::channel();
        let expected = Expected {
            sealer: Sealer::new(suite, secrets.to_connector),
            next_number: PacketNumber(0),
            opener: Opener::new(suite, secrets.to_listener),
            tcp_peer: tcp_peer.to_canonical(),
            challenge,
            punches: 0,
            buffer_bytes,
            done,
        };
        let connection = secrets.connection_id;
        let mut state = self.shared.lock();
        state.expected.insert(connection, expected);
        for Early { payload, source, local_ip } in state.early.take(ConnectionId(connection)) {
            self.shared.handle(&mut state, Datagram { payload: &payload, source, local_ip });
        }
        drop(state);
        Ok(Expectation { shared: Arc::clone(&self.shared), connection, done: receiver })
    }
}

impl Drop for Demux {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl DemuxShared {
    fn lock(&self) -> MutexGuard<'_, DemuxState> {
        lock(&self.state)
    }

    fn run(self: &Arc<Self>) {
        let mut buffers = RecvBuffers::default();
        while !self.stop.load(Ordering::Acquire) {
            let received =
                self.socket.wait(Wait::READABLE, None).and_then(|_| self.socket.recv(&mut buffers));
            match received {
                Ok(0) => continue,
                Ok(_) => {}
                Err(error) => {
                    warn!(%error, "cannot receive on the listener's UDP port");
                    thread::sleep(Duration::from_millis(100));
                    continue;
                }
            }
            for datagram in buffers.datagrams() {
                self.take(Datagram {
                    payload: datagram.payload,
                    source: datagram.source,
                    local_ip: datagram.local_ip,
                });
            }
        }
    }

    /// Processes a datagram of the listener's port. A datagram of an open channel, from another address than its
    /// peer's, is for the channel. Any other that is not a hello only costs a check of its header.
    fn take(self: &Arc<Self>, datagram: Datagram<'_>) {
        if outside::is_ours(datagram.payload) {
            return self.nat.take(&self.socket, datagram);
        }
        let header = Header::decode(datagram.payload).ok();
        if header.is_some_and(|header| self.channels.pass(header, datagram)) {
            return;
        }
        let is_hello = |header: &Header| header.kind == Kind::Hello;
        let hello = header.filter(is_hello).filter(|_| datagram.payload.len() == HELLO_BYTES);
        let Some(hello) = hello else {
            self.unknown.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut state = self.lock();
        if state.expected.contains_key(&hello.connection.0) {
            self.handle(&mut state, datagram);
        } else {
            self.unknown.fetch_add(1, Ordering::Relaxed);
            state.early.keep(datagram);
        }
    }

    /// Processes a hello of an expected channel; returns `None` if the hello is not authentic or
    /// its address is not validated.
    fn handle(self: &Arc<Self>, state: &mut DemuxState, datagram: Datagram<'_>) -> Option<()> {
        let connection = Header::decode(datagram.payload).ok()?.connection;
        let expected = state.expected.get_mut(&connection.0)?;
        let near = PacketNumber(0);
        let (largest, echo, time) =
            open_body(&mut expected.opener, datagram.payload, connection, Kind::Hello, near)?;
        let is_known = datagram.source.ip() == expected.tcp_peer || echo == expected.challenge;
        let mut body = [0; BODY_BYTES];
        body[8..].copy_from_slice(&time);
        if !is_known {
            body[..8].copy_from_slice(&expected.challenge);
        }
        let number = expected.next_number;
        let answer = seal(&mut expected.sealer, Kind::HelloAck, connection, number, &body).ok()?;
        expected.next_number = number.next();
        if !is_known {
            let Datagram { source, local_ip, .. } = datagram;
            // If the answer is lost, the peer repeats its hello.
            let _ = self.socket.answer(&answer, source, local_ip, Ecn::NotEct);
            return None;
        }
        let expected = state.expected.remove(&connection.0)?;
        let options = self.options.clone().with_buffers(expected.buffer_bytes);
        let opened = self
            .socket_to(&options, datagram.source, datagram.local_ip)
            .and_then(|socket| match descriptors::shortage(&socket, Purpose::Channel) {
                None => Ok(socket),
                Some(text) => Err(Error::Failed(Failure::new(FailureCode::Refused, text))),
            })
            .map(|socket| {
                let _ = socket.send(&answer, answer.len(), None, Ecn::NotEct);
                OpenPath {
                    socket: Box::new(ListenerSocket::new(socket, self, connection, options)),
                    connection,
                    sealer: expected.sealer,
                    next_number: expected.next_number,
                    opener: expected.opener,
                    largest_opened: Some(largest),
                    rtt: None,
                    early: Vec::new(),
                }
            });
        // The waiting task may have ended meanwhile.
        let _ = expected.done.send(opened);
        Some(())
    }
}

impl DemuxShared {
    /// Opens a socket on the listener's port, connected to `peer`, whose datagrams arrive at `local_ip`.
    fn socket_to(
        &self,
        options: &SocketOptions,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
    ) -> Result<UdpSocket, Error> {
        let local = local_address(self.socket.local_addr(), local_ip, peer);
        UdpSocket::bind(local, options)
            .and_then(|socket| socket.connect(peer).map(|()| socket))
            .map_err(Error::Udp)
    }
}

/// Local address of a channel's socket: the address at which the hello arrived, with the listener's
/// port. A link-local address needs the scope id of the link on which the hello arrived.
fn local_address(listener: SocketAddr, arrived: Option<IpAddr>, from: SocketAddr) -> SocketAddr {
    let mut local = SocketAddr::new(arrived.unwrap_or_else(|| listener.ip()), listener.port());
    if let (SocketAddr::V6(local), SocketAddr::V6(from)) = (&mut local, from)
        && local.ip().is_unicast_link_local()
    {
        local.set_scope_id(from.scope_id());
    }
    local
}

#[cfg(test)]
#[path = "path/tests.rs"]
mod tests;
