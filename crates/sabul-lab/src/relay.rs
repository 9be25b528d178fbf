//! The relay: one address that a connector dials, with an emulated path behind it.
//!
//! One thread drives everything. While packets move it wakes every [`TICK`], takes in
//! whatever the kernel has received (with the kernel's receive times, so that waking late does not
//! blur arrivals), and sends what has become due in batches of equal segments. Packets are never
//! sent early; how late they were is measured and reported ([`Lateness`]).
//!
//! What the model leaves out: the relay knows UDP datagrams and TCP byte streams, not IP packets.
//! A damaged datagram is delivered with wrong bytes, as if its checksum had been right. TCP is
//! carried by the model of its own that `tcp.rs` describes. ECN and IP options are not carried.

mod engine;
mod socket;
mod stats;
mod store;
mod tcp;
mod udp;

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sabul_path::{Damage, Link, LinkConfig, PacketMeta, RouteId, Topology, Transit, Verdict, Way};
use sabul_units::{Instant, SeededRandom, Span};

use engine::Engine;
pub use stats::RelayStats;
use stats::Shared;
use store::Piece;

/// How long a busy relay sleeps between two rounds. Waking adds about 50 µs on a virtual machine, so
/// at 1 Gb/s some ten full packets leave together. Longer costs less processor time and spaces
/// packets worse: `examples/relay_ceiling.rs` measures both.
const TICK: Duration = Duration::from_micros(75);

/// What a relay connects, and over which path.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Where connectors dial; port 0 picks a port that is free for both UDP and TCP.
    pub listen: SocketAddr,
    /// The listener's address, for UDP and TCP.
    pub target: SocketAddr,
    /// The path from connector to listener. Its clock, which outages refer to, starts when the
    /// relay sees its first packet or connection.
    pub forward: LinkConfig,
    /// The path from listener to connector, on the same clock.
    pub back: LinkConfig,
    /// Decides which packets are lost, repeated, held and damaged.
    pub seed: u64,
    /// Swallows all UDP, for the case of a firewall that passes only TCP.
    pub udp_blocked: bool,
}

/// A relay could not be started.
#[derive(Debug)]
pub struct RelayError {
    action: &'static str,
    address: SocketAddr,
    source: io::Error,
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, address, source } = self;
        write!(f, "relay cannot {action} at {address}: {source}; try another listen address")
    }
}

impl std::error::Error for RelayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A running relay; dropping it closes its sockets and ends its thread.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    waker: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Binds the sockets and starts to relay.
    ///
    /// # Errors
    /// If the address cannot be bound for both UDP and TCP, or no thread can be started.
    pub fn start(config: RelayConfig) -> Result<Self, RelayError> {
        let listen = config.listen;
        let fail = |action| move |source| RelayError { action, address: listen, source };
        let (udp, tcp) = socket::bind_pair(listen).map_err(fail("bind UDP and TCP"))?;
        let address = tcp.local_addr().map_err(fail("learn its port"))?;
        let (waker, wakened) = UnixStream::pair().map_err(fail("make its waker"))?;
        let shared = Arc::new(Shared::default());
        let stop = Arc::new(AtomicBool::new(false));

        let (parts, flag) = (Arc::clone(&shared), Arc::clone(&stop));
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("sabul-relay".to_owned())
            .spawn(move || match Engine::new(&config, udp, tcp, wakened, parts, flag) {
                Ok(engine) => {
                    // The receiver waits just below; if it is gone, nobody wants the relay.
                    if ready.send(Ok(())).is_ok() {
                        engine.run();
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            })
            .map_err(fail("start its thread"))?;
        let gone = || io::Error::other("its thread ended at once");
        started.recv().unwrap_or_else(|_| Err(gone())).map_err(fail("prepare its sockets"))?;
        Ok(Self { address, shared, stop, waker, thread: Some(thread) })
    }

    /// The address to dial instead of the target's, for UDP and TCP.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// What has happened so far; at most about 10 ms old.
    pub fn stats(&self) -> RelayStats {
        self.shared.read()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A full pipe means that the thread has wake-ups to read already.
        let _ = self.waker.write(&[0]);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by its hook.
            let _ = thread.join();
        }
    }
}

/// What travels on the links.
#[derive(Clone, Debug)]
enum Packet {
    Udp { flow: udp::FlowId, piece: Piece },
    Tcp { connection: u64, segment: u64 },
}

/// The path: one link, and one route over it, forward from connector to listener.
#[derive(Debug)]
struct Road {
    network: Topology<Packet>,
    route: RouteId,
}

impl Road {
    fn new(config: &RelayConfig) -> Self {
        let random = SeededRandom::new(config.seed);
        let random = [random.fork("relay/forward"), random.fork("relay/back")];
        let mut network = Topology::new(Damage::Arrives);
        let link = network.add_link(config.forward.clone(), config.back.clone(), &random);
        let route = network.add_route(Arc::from([link]), Span::ZERO);
        Self { network, route }
    }

    /// Puts a packet of `size` bytes onto the link.
    fn push(&mut self, at: Instant, way: Way, size: u32, packet: Packet) -> Verdict {
        let meta = PacketMeta { size, ..PacketMeta::default() };
        self.network.push(at, self.route, way, meta, packet)
    }

    fn link(&self, way: Way) -> &Link<Transit<Packet>> {
        self.network.link(0, way)
    }
}

/// Headers of an IP packet around a UDP payload, and around a TCP payload, in bytes.
fn header_sizes(address: &SocketAddr) -> (u32, u32) {
    match address {
        SocketAddr::V4(_) => (20 + 8, 20 + 20),
        SocketAddr::V6(_) => (40 + 8, 40 + 20),
    }
}
