//! Simulated UDP: in-memory sockets over the links of `sabul-net`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sabul_net::{Link, LinkConfig};
use sabul_udp::{RecvBuffers, SendOutcome, SendStatus, Wait};
use sabul_units::{Instant as LinkInstant, PacketNumber, Random, SeededRandom, Span};
use sabul_wire::ConnectionId;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::channel::OpenPath;
use crate::channel::driver::{Datagrams, Wake};
use crate::lock::lock;
use crate::seal::{Opener, Sealer, Suite};
use crate::tls::ChannelSecrets;

/// Size of the IPv4 and UDP headers in bytes; links count them.
const HEADERS: u32 = 28;

/// End of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Connector,
    Listener,
}

impl Role {
    const fn other(self) -> Self {
        match self {
            Self::Connector => Self::Listener,
            Self::Listener => Self::Connector,
        }
    }
}

/// Addresses appear only in messages.
fn address(role: Role) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1 + role as u8], 4850))
}

/// A datagram in transit, with its connection and destination.
type InTransit = (u64, Role, Vec<u8>);

/// Simulated UDP network: one link per direction, shared by all channels. Clones share the network.
#[derive(Clone)]
pub(crate) struct Net(Arc<Shared>);

struct Shared {
    began: Instant,
    state: Mutex<State>,
    pushed: Notify,
}

struct State {
    /// Link from connectors to the listener, and the link back.
    links: [Link<InTransit>; 2],
    sockets: BTreeMap<(u64, Role), Arc<Inbox>>,
    /// Channels that only one end has opened so far.
    opened: BTreeMap<u64, Arc<Notify>>,
    /// Paths that drop all datagrams.
    cut: BTreeSet<u8>,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Net")
    }
}

#[derive(Debug, Default)]
struct Inbox {
    datagrams: Mutex<VecDeque<Vec<u8>>>,
    ready: Arc<Notify>,
}

impl Net {
    /// Creates a network with these two links, and spawns the task that drives it.
    pub(crate) fn new(forward: LinkConfig, back: LinkConfig, seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let links =
            [Link::new(forward, &random.fork("forward")), Link::new(back, &random.fork("back"))];
        let state = State {
            links,
            sockets: BTreeMap::new(),
            opened: BTreeMap::new(),
            cut: BTreeSet::new(),
        };
        let net = Self(Arc::new(Shared {
            began: Instant::now(),
            state: Mutex::new(state),
            pushed: Notify::new(),
        }));
        tokio::spawn(net.clone().deliver());
        net
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    fn now(&self) -> LinkInstant {
        LinkInstant::ZERO + Span::from(self.0.began.elapsed())
    }

    async fn deliver(self) {
        loop {
            let next = self.deliver_due();
            let pushed = self.0.pushed.notified();
            match next {
                Some(due) => {
                    let wait = Duration::from(due.since(self.now()));
                    tokio::select! {
                        biased;
                        () = pushed => {}
                        () = tokio::time::sleep(wait.max(Duration::from_micros(1))) => {}
                    }
                }
                None => pushed.await,
            }
        }
    }

    fn deliver_due(&self) -> Option<LinkInstant> {
        let now = self.now();
        let mut state = self.lock();
        let State { links, sockets, .. } = &mut *state;
        for link in links.iter_mut() {
            while let Some(delivery) = link.poll(now).ready() {
                let (connection, role, mut bytes) = delivery.payload;
                if delivery.corrupted
                    && let Some(last) = bytes.last_mut()
                {
                    *last ^= 1;
                }
                if let Some(inbox) = sockets.get(&(connection, role)) {
                    let mut datagrams = lock(&inbox.datagrams);
                    datagrams.push_back(bytes);
                    inbox.ready.notify_one();
                }
            }
        }
        LinkInstant::earliest([links[0].deadline(), links[1].deadline()])
    }

    /// Lets a path drop or pass all datagrams.
    pub(crate) fn set_cut(&self, path: u8, is_cut: bool) {
        let cut = &mut self.lock().cut;
        if is_cut {
            cut.insert(path)
        } else {
            cut.remove(&path)
        };
    }

    fn is_cut(&self, path: u8) -> bool {
        self.lock().cut.contains(&path)
    }

    fn send(&self, connection: u64, to: Role, datagram: &[u8]) {
        let now = self.now();
        let direction = usize::from(to == Role::Connector);
        let size = u32::try_from(datagram.len()).unwrap_or(u32::MAX) + HEADERS;
        self.lock().links[direction].push(now, size, (connection, to, datagram.to_vec()));
        self.0.pushed.notify_one();
    }

    /// Replaces the links.
    pub(crate) fn set_links(&self, forward: LinkConfig, back: LinkConfig, seed: u64) {
        let random = SeededRandom::new(seed);
        self.lock().links =
            [Link::new(forward, &random.fork("forward")), Link::new(back, &random.fork("back"))];
        self.0.pushed.notify_one();
    }
}

/// A host's access to UDP paths.
#[derive(Clone, Debug)]
pub(crate) struct End {
    net: Net,
    role: Role,
    rtt: Duration,
    /// Number of paths of each transfer.
    paths: u8,
}

impl End {
    pub(crate) const fn connector(net: Net, rtt: Duration, paths: u8) -> Self {
        Self { net, role: Role::Connector, rtt, paths }
    }

    pub(crate) const fn listener(net: Net, rtt: Duration) -> Self {
        Self { net, role: Role::Listener, rtt, paths: 1 }
    }

    /// Number of paths of each transfer that this end opens.
    pub(crate) const fn paths(&self) -> u8 {
        self.paths
    }

    /// Address of the other end, for messages.
    pub(crate) fn peer(&self) -> SocketAddr {
        address(self.role.other())
    }

    /// First transfer number of this end, and parity of the peer's numbers.
    pub(crate) const fn parities(&self) -> (u32, u32) {
        match self.role {
            Role::Connector => (1, 0),
            Role::Listener => (2, 1),
        }
    }

    /// Opens the path once both ends have called this; replaces the exchange of hello packets.
    pub(crate) async fn open_path(&self, secrets: &ChannelSecrets, path: u8) -> OpenPath {
        let connection = secrets.connection_id;
        while self.net.is_cut(path) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (inbox, meeting) = {
            let mut state = self.net.lock();
            let inbox = Arc::new(Inbox::default());
            state.sockets.insert((connection, self.role), Arc::clone(&inbox));
            let meeting = state.opened.get(&connection).cloned();
            match &meeting {
                Some(other) => other.notify_one(),
                None => {
                    state.opened.insert(connection, Arc::default());
                }
            }
            let mine = meeting.is_none().then(|| state.opened.get(&connection).cloned()).flatten();
            (inbox, mine)
        };
        let socket = Socket { net: self.net.clone(), connection, role: self.role, path, inbox };
        if let Some(other) = meeting {
            other.notified().await;
        }
        tokio::time::sleep(self.rtt).await;
        let (out, back) = match self.role {
            Role::Connector => (secrets.to_listener, secrets.to_connector),
            Role::Listener => (secrets.to_connector, secrets.to_listener),
        };
        OpenPath {
            socket: Box::new(socket),
            connection: ConnectionId(connection),
            sealer: Sealer::new(Suite::Aes128Gcm, out),
            next_number: PacketNumber(0),
            opener: Opener::new(Suite::Aes128Gcm, back),
            largest_opened: None,
            rtt: Some(Span::from(self.rtt)),
            early: Vec::new(),
        }
    }
}

/// An in-memory UDP socket.
#[derive(Debug)]
pub(crate) struct Socket {
    net: Net,
    connection: u64,
    role: Role,
    path: u8,
    inbox: Arc<Inbox>,
}

impl Socket {
    /// Notified when a datagram arrives or a waker is called.
    pub(crate) fn ready(&self) -> Arc<Notify> {
        Arc::clone(&self.inbox.ready)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.net.lock().sockets.remove(&(self.connection, self.role));
    }
}

impl Datagrams for Socket {
    fn send(&self, datagrams: &[u8], segment: usize) -> io::Result<SendOutcome> {
        let to = self.role.other();
        let mut segments = 0;
        let is_cut = self.net.is_cut(self.path);
        for datagram in datagrams.chunks(segment.max(1)) {
            if !is_cut {
                self.net.send(self.connection, to, datagram);
            }
            segments += 1;
        }
        Ok(SendOutcome { bytes: datagrams.len(), segments, status: SendStatus::Complete })
    }

    fn recv(&self, buffers: &mut RecvBuffers) -> io::Result<usize> {
        let mut waiting = lock(&self.inbox.datagrams);
        Ok(buffers.fill(address(self.role.other()), std::iter::from_fn(|| waiting.pop_front())))
    }

    fn wait(&self, _wait: Wait, _timeout: Duration) -> io::Result<()> {
        Err(io::Error::other("a world has no threads that could wait"))
    }

    fn waker(&self) -> Wake {
        let ready = self.ready();
        Wake(Arc::new(move || ready.notify_one()))
    }

    fn overflow_drops(&self) -> u64 {
        0
    }

    fn path_mtu(&self) -> Option<u32> {
        Some(1500)
    }

    fn local_addr(&self) -> SocketAddr {
        address(self.role)
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Some(address(self.role.other()))
    }

    fn hint(&self) -> Option<String> {
        None
    }

    fn random(&self) -> Box<dyn Random + Send> {
        Box::new(SeededRandom::new(self.connection))
    }

    fn in_world(&self) -> Option<&Socket> {
        Some(self)
    }
}
