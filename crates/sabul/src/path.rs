//! Opening the UDP path of a channel: who sends first, and from where.
//!
//! The connector sends sealed hellos of 1200 bytes from a socket of its own until an answer comes.
//! The listener's one UDP port serves all sessions: [`Demux`] looks up the connection id, opens
//! the hello, and gives the channel a socket of its own on the same port, connected to the peer.
//!
//! ```text
//! hello:      | challenge echoed, 8 | time sent in µs, 8 | zeros up to 1200 bytes of datagram |
//! hello ack:  | challenge, 8        | time echoed, 8     |
//! ```
//! An address from which TCP comes too is taken at once; another one has to echo a challenge.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sabul_udp::{Ecn, RecvBuffers, SocketOptions, UdpSocket, Wait, Waker};
use sabul_units::{PacketNumber, Span};
use sabul_wire::{ConnectionId, HEADER_LEN, Header, Kind, TAG_LEN};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::channel::engine::Datagrams;
use crate::error::Error;
use crate::seal::{Opener, Sealer, Suite};
use crate::tls::ChannelSecrets;

/// How long a connector tries before UDP counts as blocked. Ours: eight hellos.
pub(crate) const CONNECTOR_PATIENCE: Duration = Duration::from_secs(5);
/// How long a listener waits for a hello; longer, so that the connector's verdict comes first.
pub(crate) const LISTENER_PATIENCE: Duration = Duration::from_secs(10);
/// Time to the second hello; doubles up to [`HELLO_GAP_MAX`].
const HELLO_GAP: Duration = Duration::from_millis(50);
/// Longest time between hellos.
const HELLO_GAP_MAX: Duration = Duration::from_millis(500);
/// Bytes of a hello datagram: passes every path, and no answer is larger.
const HELLO_BYTES: usize = 1200;
/// Bytes of either body that mean something.
const BODY_BYTES: usize = 16;
/// Datagrams kept for channels that nobody expects yet: a hello can overtake its request.
const EARLY_MAX: usize = 64;

/// A path that is open, with what its opening used up.
#[derive(Debug)]
pub(crate) struct OpenPath {
    pub(crate) socket: Box<dyn Datagrams>,
    pub(crate) connection: ConnectionId,
    pub(crate) sealer: Sealer,
    pub(crate) next_number: PacketNumber,
    pub(crate) opener: Opener,
    pub(crate) largest_opened: Option<PacketNumber>,
    pub(crate) rtt: Option<Span>,
}

/// Opens one authentic packet of this kind and returns the front of its body.
fn open_body(
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

/// A sealed datagram of this kind.
fn seal(
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

/// Sends hellos to `peer` until one is answered; blocks, until `stop` at the latest.
pub(crate) fn connect(
    peer: SocketAddr,
    options: &SocketOptions,
    secrets: &ChannelSecrets,
    suite: Suite,
    stop: &AtomicBool,
) -> Result<Option<OpenPath>, Error> {
    let io = |action| move |source| Error::Io { action, source };
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0), options)
        .and_then(|socket| socket.connect(peer).map(|()| socket))
        .map_err(|error| Error::Io { action: "open a UDP socket", source: error.into() })?;
    let connection = ConnectionId(secrets.connection_id);
    let mut sealer = Sealer::new(suite, secrets.to_listener);
    let mut opener = Opener::new(suite, secrets.to_connector);
    let mut buffers = RecvBuffers::new(1);
    let start = Instant::now();
    let mut challenge = [0; 8];
    let mut number = PacketNumber(0);
    let mut gap = HELLO_GAP;
    let mut next_hello = start;
    while !stop.load(Ordering::Acquire) {
        let now = Instant::now();
        if now >= next_hello {
            let mut body = [0; HELLO_BYTES - HEADER_LEN - TAG_LEN];
            body[..8].copy_from_slice(&challenge);
            body[8..16].copy_from_slice(&micros(now - start).to_be_bytes());
            let datagram = seal(&mut sealer, Kind::Hello, connection, number, &body)
                .map_err(|error| io("seal a packet")(std::io::Error::other(error)))?;
            number = number.next();
            // Whatever keeps it from leaving, the next one may pass.
            let sent = socket.send(&datagram, datagram.len(), None, Ecn::NotEct);
            if let Err(error) = sent {
                debug!(%error, "a hello was not sent");
            }
            next_hello = now + gap;
            gap = (gap * 2).min(HELLO_GAP_MAX);
        }
        let timeout = next_hello.saturating_duration_since(Instant::now());
        socket.wait(Wait::READABLE, Some(timeout)).map_err(io("wait for UDP packets"))?;
        if socket.recv(&mut buffers).map_err(io("receive UDP packets"))? == 0 {
            continue;
        }
        for datagram in buffers.datagrams() {
            let near = PacketNumber(0);
            let Some((answer, asked, echoed)) =
                open_body(&mut opener, datagram.payload, connection, Kind::HelloAck, near)
            else {
                continue;
            };
            if asked != [0; 8] {
                challenge = asked;
                next_hello = Instant::now();
                continue;
            }
            let sent_at = Duration::from_micros(u64::from_be_bytes(echoed));
            let rtt =
                start.elapsed().checked_sub(sent_at).map(|rtt| Span::from_micros(micros(rtt)));
            return Ok(Some(OpenPath {
                socket: Box::new(socket),
                connection,
                sealer,
                next_number: number,
                opener,
                largest_opened: Some(answer),
                rtt,
            }));
        }
    }
    Ok(None)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A channel whose hello is awaited.
struct Expected {
    sealer: Sealer,
    next_number: PacketNumber,
    opener: Opener,
    /// Where the control connection comes from.
    tcp_peer: IpAddr,
    challenge: [u8; 8],
    done: oneshot::Sender<Result<OpenPath, Error>>,
}

/// A datagram whose channel is not known (yet).
struct Early {
    payload: Vec<u8>,
    source: SocketAddr,
    local_ip: Option<IpAddr>,
}

#[derive(Default)]
struct DemuxState {
    expected: HashMap<u64, Expected>,
    early: VecDeque<Early>,
}

struct DemuxShared {
    socket: UdpSocket,
    options: SocketOptions,
    state: Mutex<DemuxState>,
    stop: AtomicBool,
    unknown: AtomicU64,
}

/// The listener's UDP port, and the thread that gives each channel its own socket on it.
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

/// Takes back the expectation of a channel when nobody waits for it any more.
pub(crate) struct Expectation {
    shared: Arc<DemuxShared>,
    connection: u64,
    done: oneshot::Receiver<Result<OpenPath, Error>>,
}

impl Expectation {
    /// The path, once the peer has opened it.
    pub(crate) async fn wait(&mut self) -> Result<OpenPath, Error> {
        match (&mut self.done).await {
            Ok(result) => result,
            Err(_) => Err(Error::PeerGone("the listener has ended".to_owned())),
        }
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        self.shared.lock().expected.remove(&self.connection);
    }
}

impl Demux {
    /// Serves the UDP port of `address`.
    pub(crate) fn start(address: SocketAddr, options: &SocketOptions) -> Result<Self, Error> {
        let options = SocketOptions { reuse_port: true, ..options.clone() };
        let socket = UdpSocket::bind(address, &options)
            .map_err(|error| Error::Io { action: "listen on UDP", source: error.into() })?;
        let waker = socket.waker();
        let shared = Arc::new(DemuxShared {
            socket,
            options,
            state: Mutex::default(),
            stop: AtomicBool::new(false),
            unknown: AtomicU64::new(0),
        });
        let served = Arc::clone(&shared);
        thread::Builder::new()
            .name("sabul-demux".to_owned())
            .spawn(move || served.run())
            .map_err(|source| Error::Io { action: "start a thread", source })?;
        Ok(Self { shared, waker })
    }

    /// Expects the hello of a channel.
    pub(crate) fn expect(
        &self,
        secrets: &ChannelSecrets,
        suite: Suite,
        tcp_peer: IpAddr,
    ) -> Result<Expectation, Error> {
        let mut challenge = [0; 8];
        aws_lc_rs::rand::fill(&mut challenge).map_err(|_| Error::Io {
            action: "get randomness",
            source: std::io::Error::other("the system gives none"),
        })?;
        // Zero stands for no challenge.
        challenge[0] |= 1;
        let (done, receiver) = oneshot::channel();
        let expected = Expected {
            sealer: Sealer::new(suite, secrets.to_connector),
            next_number: PacketNumber(0),
            opener: Opener::new(suite, secrets.to_listener),
            tcp_peer: tcp_peer.to_canonical(),
            challenge,
            done,
        };
        let connection = secrets.connection_id;
        let mut state = self.shared.lock();
        state.expected.insert(connection, expected);
        let early = std::mem::take(&mut state.early);
        for datagram in early {
            let shared = &self.shared;
            if let Some(back) = shared.handle(&mut state, datagram) {
                state.early.push_back(back);
            }
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
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
            let mut state = self.lock();
            for datagram in buffers.datagrams() {
                if datagram.payload.len() != HELLO_BYTES {
                    self.unknown.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let early = Early {
                    payload: datagram.payload.to_vec(),
                    source: datagram.source,
                    local_ip: datagram.local_ip,
                };
                if let Some(early) = self.handle(&mut state, early) {
                    self.unknown.fetch_add(1, Ordering::Relaxed);
                    if state.early.len() >= EARLY_MAX {
                        state.early.pop_front();
                    }
                    state.early.push_back(early);
                }
            }
        }
    }

    /// Takes a datagram; gives it back where nobody expects its channel.
    fn handle(&self, state: &mut DemuxState, datagram: Early) -> Option<Early> {
        let Ok(header) = Header::decode(&datagram.payload) else { return None };
        let connection = header.connection;
        let Some(expected) = state.expected.get_mut(&connection.0) else { return Some(datagram) };
        let near = PacketNumber(0);
        let (largest, echo, time) =
            open_body(&mut expected.opener, &datagram.payload, connection, Kind::Hello, near)?;
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
            let to = Some(datagram.source);
            // A lost answer is asked for again.
            let _ = self.socket.send(&answer, answer.len(), to, Ecn::NotEct);
            return None;
        }
        let expected = state.expected.remove(&connection.0)?;
        let local = SocketAddr::new(
            datagram.local_ip.unwrap_or_else(|| self.socket.local_addr().ip()),
            self.socket.local_addr().port(),
        );
        let opened = UdpSocket::bind(local, &self.options)
            .and_then(|socket| socket.connect(datagram.source).map(|()| socket))
            .map_err(|error| Error::Io { action: "open a UDP socket", source: error.into() })
            .map(|socket| {
                let _ = socket.send(&answer, answer.len(), None, Ecn::NotEct);
                OpenPath {
                    socket: Box::new(socket),
                    connection,
                    sealer: expected.sealer,
                    next_number: expected.next_number,
                    opener: expected.opener,
                    largest_opened: Some(largest),
                    rtt: None,
                }
            });
        // Whoever waited may have given up meanwhile.
        let _ = expected.done.send(opened);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITE: Suite = Suite::ChaCha20Poly1305;

    fn secrets() -> ChannelSecrets {
        ChannelSecrets { connection_id: 7, to_listener: [1; 32], to_connector: [2; 32] }
    }

    fn demux() -> (Demux, SocketAddr) {
        let demux =
            Demux::start("127.0.0.1:0".parse().unwrap(), &SocketOptions::default()).unwrap();
        let address = demux.shared.socket.local_addr();
        (demux, address)
    }

    /// A connector with these secrets that tries for at most three seconds.
    fn connecting(
        peer: SocketAddr,
        secrets: ChannelSecrets,
    ) -> (thread::JoinHandle<Option<OpenPath>>, Arc<AtomicBool>) {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, late) = (Arc::clone(&stop), Arc::clone(&stop));
        thread::spawn(move || {
            thread::sleep(Duration::from_secs(3));
            late.store(true, Ordering::Release);
        });
        let run = move || connect(peer, &SocketOptions::default(), &secrets, SUITE, &flag).unwrap();
        (thread::spawn(run), stop)
    }

    fn wait(expectation: &mut Expectation) -> Option<OpenPath> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let patience = Duration::from_secs(3);
        runtime
            .block_on(async { tokio::time::timeout(patience, expectation.wait()).await })
            .ok()
            .map(|path| path.unwrap())
    }

    #[test]
    fn a_hello_from_the_known_address_is_answered_at_once() {
        let (demux, address) = demux();
        let mut expected = demux.expect(&secrets(), SUITE, "127.0.0.1".parse().unwrap()).unwrap();
        let (connector, _stop) = connecting(address, secrets());
        let far = wait(&mut expected).unwrap();
        let near = connector.join().unwrap().unwrap();
        assert_eq!(near.socket.local_addr().port(), far.socket.peer_addr().unwrap().port());
        assert_eq!(far.socket.local_addr(), address);
        assert_eq!(
            (far.next_number, near.largest_opened),
            (PacketNumber(1), Some(PacketNumber(0)))
        );
        assert!(near.rtt.is_some());
    }

    #[test]
    fn a_hello_from_another_address_has_to_echo_a_challenge() {
        let (demux, address) = demux();
        let mut expected = demux.expect(&secrets(), SUITE, "192.0.2.1".parse().unwrap()).unwrap();
        let (connector, _stop) = connecting(address, secrets());
        let far = wait(&mut expected).unwrap();
        let near = connector.join().unwrap().unwrap();
        // One answer with the challenge, and one that accepts its echo.
        assert_eq!(
            (far.next_number, near.largest_opened),
            (PacketNumber(2), Some(PacketNumber(1)))
        );
        assert!(near.next_number >= PacketNumber(2));
    }

    #[test]
    fn a_hello_that_overtakes_its_request_is_kept() {
        let (demux, address) = demux();
        let (connector, _stop) = connecting(address, secrets());
        while demux.shared.unknown.load(Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let mut expected = demux.expect(&secrets(), SUITE, "127.0.0.1".parse().unwrap()).unwrap();
        assert!(wait(&mut expected).is_some());
        assert!(connector.join().unwrap().is_some());
        assert!(demux.shared.lock().expected.is_empty());
    }

    #[test]
    fn a_forged_hello_gets_no_answer_and_changes_nothing() {
        let (demux, address) = demux();
        let mut expected = demux.expect(&secrets(), SUITE, "127.0.0.1".parse().unwrap()).unwrap();
        let forged =
            ChannelSecrets { connection_id: 7, to_listener: [9; 32], to_connector: [9; 32] };
        let (forger, stop) = connecting(address, forged);
        while demux.shared.lock().expected[&7].opener.forged() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Release);
        assert!(forger.join().unwrap().is_none());
        let (connector, _stop) = connecting(address, secrets());
        assert!(wait(&mut expected).is_some());
        assert!(connector.join().unwrap().is_some());
    }

    #[test]
    fn nothing_stays_behind_where_nobody_waits_any_more() {
        let (demux, _) = demux();
        drop(demux.expect(&secrets(), SUITE, "127.0.0.1".parse().unwrap()).unwrap());
        assert!(demux.shared.lock().expected.is_empty());
    }
}
