//! UDP through NATs, with the help of an introducer ([`crate::introducer`]).
//!
//! A connector sends hellos from one socket to all addresses at which the listener may be. At the same time it sends the
//! listener its own outside address, over TLS. The listener then sends a hello ack with a challenge from its port to that
//! address, which opens the listener's NAT for the hellos. The ack itself may pass the connector's NAT first; the connector then
//! answers its source. So a path opens if one of the two directions does.
//!
//! Only an authenticated connector can make a listener send to an address, and only a few acks of less than 60 bytes.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sabul_udp::{Ecn, RecvBuffers, SocketOptions, UdpSocket, Wait};
use sabul_wire::control::UdpAddress;
use sabul_wire::{ConnectionId, Kind};
use tokio::sync::watch;
use tracing::debug;

use super::sockets::{ConnectorSocket, Way};
use super::{Answer, Attempt, BODY_BYTES, Datagram, Demux, HELLO_GAP, Handshake, OpenPath, seal};
use crate::error::Error;
use crate::outside::{Outside, Reflector, Search, may_be_peer, nonce};
use crate::seal::Suite;
use crate::tls::{ChannelSecrets, JoinSecrets};

/// How long a connector tries. Ours: with the control connection, the message about a failure comes within 5 s.
pub(crate) const NAT_TIMEOUT: Duration = Duration::from_millis(2500);
/// Longest time between hellos.
const GAP_MAX: Duration = Duration::from_millis(200);
/// Time after which two symmetric NATs fail: addresses behind the same NAT answer sooner.
const SAME_NAT: Duration = Duration::from_secs(1);
/// Most acks of a channel before its path is open, and addresses of each request for acks.
const PUNCHES_MAX: u32 = 32;
const PUNCH_ADDRESSES_MAX: usize = 2;
/// Acks of all channels: at once, and interval of further ones.
const PUNCH_BURST: u32 = 200;
const PUNCH_INTERVAL: Duration = Duration::from_millis(10);

/// Means to open UDP paths in a session through an introducer.
pub(crate) struct Meeting {
    /// The introducer, for TCP and UDP.
    pub(crate) introducer: SocketAddr,
    pub(crate) secrets: Arc<JoinSecrets>,
    /// The listener's end.
    pub(crate) peer: watch::Receiver<Option<Outside>>,
    /// This end, for the message about a failure.
    pub(crate) own: watch::Sender<Option<Outside>>,
    /// Sends the listener a request for acks of a channel.
    pub(crate) punch: Box<dyn Fn(u64, Vec<UdpAddress>) + Send + Sync>,
}

impl Meeting {
    /// The error of a session whose UDP does not pass. `relay`: why the introducer relays no data, if requested.
    pub(crate) fn failure(&self, waited: Duration, relay: Option<String>) -> Error {
        let peer = self.peer.borrow().clone();
        Error::NatBlocked {
            has_own_address: self.own.borrow().is_some(),
            own_is_symmetric: self.own.borrow().as_ref().and_then(|it| it.is_symmetric),
            peer_is_symmetric: peer.and_then(|it| it.is_symmetric),
            waited,
            relay,
        }
    }
}

/// As [`super::connect`], through the NATs of both ends.
pub(crate) fn connect(
    meeting: &Meeting,
    local: Option<IpAddr>,
    options: &SocketOptions,
    secrets: &ChannelSecrets,
    suite: Suite,
    attempt: &Attempt,
) -> Result<Option<OpenPath>, Error> {
    let any: IpAddr = match meeting.introducer {
        SocketAddr::V4(_) => [0; 4].into(),
        SocketAddr::V6(_) => [0; 16].into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(local.unwrap_or(any), 0), options);
    let socket = socket.map_err(Error::Udp)?;
    let mut search = Search::new(Arc::clone(&meeting.secrets), meeting.introducer, nonce()?);
    let is_local = search.is_local();
    let mut handshake = Handshake::new(secrets, suite);
    let mut buffers = RecvBuffers::new(1);
    let start = Instant::now();
    let (mut gap, mut next_hello) = (HELLO_GAP, start);
    while let Some(was_held) = attempt.may_continue() {
        let now = Instant::now();
        if was_held {
            (next_hello, gap) = (now, HELLO_GAP);
        }
        if now >= next_hello {
            for (to, question) in search.questions(false) {
                send(&socket, &question, to);
            }
            let peer = meeting.peer.borrow().clone().unwrap_or_default();
            let is_symmetric = search.is_symmetric();
            if let Some(outside) = search.outside() {
                (meeting.punch)(secrets.connection_id, vec![outside.into()]);
                let own = Outside { addresses: vec![outside], is_symmetric };
                meeting.own.send_replace(Some(own));
            }
            if is_symmetric == Some(true)
                && peer.is_symmetric == Some(true)
                && now - start >= SAME_NAT
            {
                return Err(meeting.failure(now - start, None));
            }
            let fits = |to: &&SocketAddr| {
                to.is_ipv4() == meeting.introducer.is_ipv4() && may_be_peer(**to, is_local)
            };
            for to in peer.addresses.iter().filter(fits) {
                send(&socket, &handshake.hello()?, *to);
            }
            next_hello = now + gap;
            gap = (gap * 2).min(GAP_MAX);
        }
        let timeout = next_hello.saturating_duration_since(Instant::now());
        socket.wait(Wait::READABLE, Some(timeout)).map_err(Error::io("wait for UDP packets"))?;
        if socket.recv(&mut buffers).map_err(Error::io("receive UDP packets"))? == 0 {
            continue;
        }
        let mut datagrams = buffers.datagrams();
        while let Some(datagram) = datagrams.next() {
            let (source, payload) = (datagram.source, datagram.payload);
            if search.take(payload, source) {
                // The second question, and the first request for acks.
                next_hello = Instant::now();
                continue;
            }
            let (rtt, first) = match handshake.take(payload) {
                None => continue,
                Some(Answer::Challenge) => {
                    send(&socket, &handshake.hello()?, source);
                    continue;
                }
                Some(Answer::Accepted(rtt)) => (rtt, None),
                Some(Answer::Data) => (None, Some(payload.to_vec())),
            };
            socket.connect(source).map_err(Error::Udp)?;
            let others = datagrams.filter(|it| it.source == source).map(|it| it.payload.to_vec());
            let early = first.into_iter().chain(others).collect();
            let way = Way { peer: source, local, options: options.clone() };
            debug!(%source, own = ?search.outside(), "a UDP path through NATs is open");
            let socket = Box::new(ConnectorSocket::new(socket, way));
            return Ok(Some(handshake.into_path(socket, rtt, early)));
        }
    }
    Ok(None)
}

/// Sends a datagram. A failed send is not fatal: the next one may pass.
fn send(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) {
    if let Err(error) = socket.send(datagram, datagram.len(), Some(to), Ecn::NotEct) {
        debug!(%error, %to, "a datagram was not sent");
    }
}

/// State of a listener's port for sessions through introducers.
#[derive(Debug, Default)]
pub(super) struct NatPort {
    /// Answers to questions for outside addresses, with the number of the second port.
    reflector: OnceLock<(Arc<Reflector>, u16)>,
    /// Searches for the outside addresses of this port.
    searches: Mutex<Vec<Search>>,
    /// Time from which all of [`PUNCH_BURST`] are permitted.
    punches_full_at: Mutex<Option<Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NatPort {
    /// Processes a question or an answer.
    pub(super) fn take(&self, socket: &UdpSocket, datagram: Datagram<'_>) {
        let Datagram { payload, source, local_ip } = datagram;
        if let Some((reflector, second)) = self.reflector.get()
            && let Some(answer) = reflector.answer(payload, source, *second, Instant::now())
        {
            // A lost answer is requested again.
            let _ = socket.answer(&answer, source, local_ip, Ecn::NotEct);
            return;
        }
        let mut searches = lock(&self.searches);
        let is_new = searches.iter_mut().any(|search| search.take(payload, source));
        if is_new {
            for (to, question) in searches.iter().flat_map(|search| search.questions(false)) {
                if to.ip() == source.ip() && to != source {
                    send(socket, &question, to);
                }
            }
        }
    }

    /// Whether another ack may be sent now.
    fn may_punch(&self, now: Instant) -> bool {
        let mut full_at = lock(&self.punches_full_at);
        let next = full_at.map_or(now, |full_at| full_at.max(now)) + PUNCH_INTERVAL;
        let is_permitted = next <= now + PUNCH_INTERVAL * PUNCH_BURST;
        if is_permitted {
            *full_at = Some(next);
        }
        is_permitted
    }
}

impl Demux {
    /// Answers questions for outside addresses from now on.
    pub(crate) fn reflect(&self, reflector: Arc<Reflector>, second_port: u16) {
        let _ = self.shared.nat.reflector.set((reflector, second_port));
    }

    /// Searches for the outside addresses of the port.
    pub(crate) fn search_outside(&self, searches: Vec<Search>) {
        *lock(&self.shared.nat.searches) = searches;
    }

    /// Sends questions for the outside addresses: those whose answers are unknown, or with `again` all.
    pub(crate) fn question_outside(&self, again: bool) {
        for search in lock(&self.shared.nat.searches).iter() {
            for (to, question) in search.questions(again) {
                send(&self.shared.socket, &question, to);
            }
        }
    }

    /// The outside addresses of the port, and whether the NAT is symmetric.
    pub(crate) fn outside(&self) -> (Vec<SocketAddr>, Option<bool>) {
        let searches = lock(&self.shared.nat.searches);
        let outside = searches.iter().filter_map(Search::outside).collect();
        (outside, searches.iter().find_map(Search::is_symmetric))
    }

    pub(crate) fn is_outside_known(&self) -> bool {
        !self.outside().0.is_empty()
    }

    pub(crate) fn is_symmetry_known(&self) -> bool {
        self.outside().1.is_some()
    }

    /// Sends a hello ack of an expected channel to addresses of its connector, within limits.
    pub(crate) fn punch(&self, channel: u64, addresses: &[SocketAddr]) {
        // An introducer on this machine sees callers on this machine at loopback.
        let is_local = lock(&self.shared.nat.searches).iter().any(Search::is_local);
        let mut state = self.shared.lock();
        let Some(expected) = state.expected.get_mut(&channel) else { return };
        let permitted = addresses.iter().filter(|to| may_be_peer(**to, is_local));
        for to in permitted.take(PUNCH_ADDRESSES_MAX) {
            if expected.punches >= PUNCHES_MAX || !self.shared.nat.may_punch(Instant::now()) {
                return;
            }
            let mut body = [0; BODY_BYTES];
            body[..8].copy_from_slice(&expected.challenge);
            let number = expected.next_number;
            let connection = ConnectionId(channel);
            let ack = seal(&mut expected.sealer, Kind::HelloAck, connection, number, &body);
            let Ok(ack) = ack else { return };
            expected.next_number = number.next();
            expected.punches += 1;
            send(&self.shared.socket, &ack, *to);
        }
    }
}
