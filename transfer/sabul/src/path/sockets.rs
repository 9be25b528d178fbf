//! Sockets of a channel whose peer, or whose own machine, changes its address.
//!
//! The channel of a listener has a socket connected to the connector. Its datagrams from another address therefore
//! arrive at the socket of the port, which passes them on by their connection id. The channel decrypts them and
//! decides. A connector looks whether its local address still exists, and opens another socket if not.
//! Not here:    the challenge (`channel/address.rs`).

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use sabul_udp::{Ecn, RecvBuffers, SendOutcome, SocketOptions, UdpSocket, Wait};
use sabul_units::Random;
use sabul_wire::{ConnectionId, Header, Kind};
use tracing::debug;

use super::{Datagram, DemuxShared, socket_to};
use crate::channel::driver::{Datagrams, Wake};
use crate::lock::lock;
use crate::redial::is_local;

/// Most datagrams from other addresses that wait for a channel, and most bytes of them before the last; further ones
/// are dropped. Ours: enough to find the newest one in a flood of DATA, and little beside the blocks of a channel.
const WAITING_MAX: usize = 64;
const WAITING_BYTES_MAX: usize = 128 << 10;

/// A datagram from another address than that of the peer.
#[derive(Debug)]
struct Stray {
    payload: Vec<u8>,
    source: SocketAddr,
    local_ip: Option<IpAddr>,
}

/// Datagrams from other addresses that wait for their channel.
#[derive(Debug)]
struct Inbox {
    has_any: AtomicBool,
    strays: Mutex<VecDeque<Stray>>,
    waker: Mutex<Wake>,
}

/// Open channels of a listener.
#[derive(Debug, Default)]
pub(super) struct Channels(Mutex<HashMap<u64, Weak<Inbox>>>);

impl Channels {
    /// Passes a datagram to its channel. Returns false if no channel is open, or for a hello, which opens one.
    pub(super) fn pass(&self, header: Header, datagram: Datagram<'_>) -> bool {
        if header.kind == Kind::Hello {
            return false;
        }
        let Some(inbox) = lock(&self.0).get(&header.connection.0).and_then(Weak::upgrade) else {
            return false;
        };
        let Datagram { payload, source, local_ip } = datagram;
        let mut strays = lock(&inbox.strays);
        let bytes: usize = strays.iter().map(|stray| stray.payload.len()).sum();
        if strays.len() < WAITING_MAX && bytes < WAITING_BYTES_MAX {
            strays.push_back(Stray { payload: payload.to_vec(), source, local_ip });
        }
        drop(strays);
        inbox.has_any.store(true, Ordering::Release);
        lock(&inbox.waker).wake();
        true
    }
}

/// The methods of [`Datagrams`] that a socket with an address of its own does not change.
macro_rules! pass_to_socket {
    () => {
        fn send(&self, datagrams: &[u8], segment: usize) -> io::Result<SendOutcome> {
            Datagrams::send(&self.socket, datagrams, segment)
        }

        fn wait(&self, wait: Wait, timeout: Duration) -> io::Result<()> {
            Datagrams::wait(&self.socket, wait, timeout)
        }

        fn waker(&self) -> Wake {
            Datagrams::waker(&self.socket)
        }

        fn overflow_drops(&self) -> u64 {
            Datagrams::overflow_drops(&self.socket)
        }

        fn path_mtu(&self) -> Option<u32> {
            self.socket.path_mtu()
        }

        fn local_addr(&self) -> SocketAddr {
            self.socket.local_addr()
        }

        fn peer_addr(&self) -> Option<SocketAddr> {
            self.socket.peer_addr()
        }

        fn hint(&self) -> Option<String> {
            self.socket.hint()
        }

        fn random(&self) -> Box<dyn Random + Send> {
            self.socket.random()
        }
    };
}

/// Socket of a channel of a listener.
#[derive(Debug)]
pub(super) struct ListenerSocket {
    socket: UdpSocket,
    port: Arc<DemuxShared>,
    connection: ConnectionId,
    options: SocketOptions,
    inbox: Arc<Inbox>,
    /// Local address at which the last datagrams from another address arrived.
    arrived_at: Mutex<Option<IpAddr>>,
}

impl std::fmt::Debug for DemuxShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DemuxShared").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl ListenerSocket {
    pub(super) fn new(
        socket: UdpSocket,
        port: &Arc<DemuxShared>,
        connection: ConnectionId,
        options: SocketOptions,
    ) -> Self {
        let inbox = Arc::new(Inbox {
            has_any: AtomicBool::new(false),
            strays: Mutex::default(),
            waker: Mutex::new(Datagrams::waker(&socket)),
        });
        let mut channels = lock(&port.channels.0);
        channels.retain(|_, inbox| inbox.strong_count() > 0);
        channels.insert(connection.0, Arc::downgrade(&inbox));
        drop(channels);
        let (port, arrived_at) = (Arc::clone(port), Mutex::default());
        Self { socket, port, connection, options, inbox, arrived_at }
    }

    /// Takes waiting datagrams of one source.
    fn take_strays(&self, buffers: &mut RecvBuffers) -> usize {
        let mut strays = lock(&self.inbox.strays);
        let Some((source, local_ip)) = strays.front().map(|it| (it.source, it.local_ip)) else {
            self.inbox.has_any.store(false, Ordering::Release);
            return 0;
        };
        *lock(&self.arrived_at) = local_ip;
        let is_same = |stray: &Stray| stray.source == source && stray.local_ip == local_ip;
        let same = std::iter::from_fn(|| match strays.front() {
            Some(stray) if is_same(stray) => strays.pop_front().map(|stray| stray.payload),
            _ => None,
        });
        buffers.fill(source, same)
    }
}

impl Datagrams for ListenerSocket {
    pass_to_socket!();

    fn recv(&self, buffers: &mut RecvBuffers) -> io::Result<usize> {
        if self.inbox.has_any.load(Ordering::Acquire) {
            let count = self.take_strays(buffers);
            if count > 0 {
                return Ok(count);
            }
        }
        self.socket.recv(buffers)
    }

    fn challenge(&self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        // From the socket of the port: a lost challenge is repeated.
        self.port.socket.send(datagram, datagram.len(), Some(to), Ecn::NotEct).map(drop)
    }

    fn toward(&self, peer: SocketAddr) -> Option<Box<dyn Datagrams>> {
        let arrived_at = *lock(&self.arrived_at);
        let socket = match self.port.socket_to(&self.options, peer, arrived_at) {
            Ok(socket) => socket,
            Err(error) => {
                debug!(%error, %peer, "no socket for the new address of a peer");
                return None;
            }
        };
        *lock(&self.inbox.waker) = Datagrams::waker(&socket);
        Some(Box::new(Self {
            socket,
            port: Arc::clone(&self.port),
            connection: self.connection,
            options: self.options.clone(),
            inbox: Arc::clone(&self.inbox),
            arrived_at: Mutex::new(arrived_at),
        }))
    }

    fn moving_peer(&self) -> Option<SocketAddr> {
        self.socket.peer_addr()
    }
}

/// How a connector opens sockets to the listener.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) peer: SocketAddr,
    /// Local address that the user has chosen.
    pub(super) local: Option<IpAddr>,
    pub(super) options: SocketOptions,
}

/// Socket of a channel of a connector.
#[derive(Debug)]
pub(super) struct ConnectorSocket {
    socket: UdpSocket,
    way: Way,
    /// Local address that the system has chosen for the path, if known.
    local_ip: Option<IpAddr>,
}

impl ConnectorSocket {
    pub(super) fn new(socket: UdpSocket, way: Way) -> Self {
        let local_ip = rustix::net::getsockname(&socket).ok();
        let local_ip = local_ip.and_then(|local| SocketAddr::try_from(local).ok());
        Self { local_ip: local_ip.map(|local| local.ip()), socket, way }
    }
}

impl Datagrams for ConnectorSocket {
    pass_to_socket!();

    fn recv(&self, buffers: &mut RecvBuffers) -> io::Result<usize> {
        self.socket.recv(buffers)
    }

    fn renewed(&self, is_silent: bool) -> Option<Box<dyn Datagrams>> {
        let present = self.local_ip?;
        let is_gone = !is_local(present);
        if !is_gone && (!is_silent || self.way.local.is_some()) {
            return None;
        }
        let Way { peer, local, options } = &self.way;
        let next = Self::new(socket_to(*peer, *local, options).ok()?, self.way.clone());
        // While the address exists, the system must prefer another one.
        (is_gone || next.local_ip != Some(present)).then(|| Box::new(next) as Box<dyn Datagrams>)
    }
}
