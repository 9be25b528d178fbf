//! Server side of connection setup: a TCP port, the same UDP port, and a ticket that authorises connectors.

mod addresses;
mod admission;
mod entry;
mod introduced;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;
use rustls::ServerConfig;
use sabul_wire::control::{Failure, FailureCode, Message};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{debug, info, warn};

use crate::access::StandingAccess;
use crate::config::ListenerConfig;
use crate::connection::{Carried, Connection, Hop};
use crate::descriptors::{self, Purpose};
use crate::dial::prepare;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::introducer::Introducer;
use crate::joins::Joining;
use crate::lock::lock;
use crate::machine::Machine;
use crate::path::{Demux, DemuxPort};
use crate::registrar::Registrar;
use crate::relay;
use crate::resume::Resuming;
use crate::session::Session;
use crate::ticket::Ticket;
use crate::tls::{self, ClientHello, Identity, TlsError};
use admission::{Admission, Verdict};
use entry::{Admitted, Greeting, RejectReason, admit, greet, origin, refuse};

/// Interval of the check for connections whose handshake takes too long.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of a rejected connection that are read and dropped; sabul's ClientHello has about 1500.
const DISCARDED_MAX: usize = 4096;
/// Concurrent handshakes that use a processor.
const HANDSHAKE_PROCESSORS: usize = 1;
/// Connections with a wrong secret that receive the reason at the same time; further ones are closed without a reason.
const REJECTIONS_MAX: usize = 64;
/// Timeout for sending the reason.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a failed `accept`, and least interval between log messages about failures.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// Timeout of a handshake through ssh.
const RELAYED_TIMEOUT: Duration = Duration::from_secs(30);
/// Authenticated sessions that may be queued for [`Listener::accept`].
const SESSIONS_WAITING: usize = 16;
/// Backlog of the listening socket; the same as tokio's.
const BACKLOG: i32 = 1024;
/// Attempts to find a port that is free for both TCP and UDP.
const PORT_ATTEMPTS: usize = 8;

/// Listener that accepts sessions with holders of its ticket.
#[derive(Debug)]
pub struct Listener {
    ticket: Ticket,
    address: SocketAddr,
    sessions: tokio::sync::Mutex<mpsc::Receiver<Session>>,
    gate: Arc<Gate>,
    accepted: mpsc::Sender<Session>,
    acceptor: JoinHandle<()>,
    /// Registration at an introducer.
    _registration: JoinSet<()>,
    /// Second UDP port of an introducer.
    _second: Option<Demux>,
}

/// Bound ports of a listener that accepts nothing yet. No thread has started, so privileges that the process drops now
/// are dropped for all threads of the listener.
#[derive(Debug)]
pub struct Bound {
    config: ListenerConfig,
    tcp: std::net::TcpListener,
    udp: DemuxPort,
    address: SocketAddr,
    ticket: Ticket,
    tls: Arc<ServerConfig>,
    /// Second UDP port of an introducer.
    second: Option<DemuxPort>,
    /// Name of the registration at an introducer.
    name: [u8; 16],
}

impl Bound {
    /// Binds the port for TCP and UDP and makes a new ticket, and a new identity unless the listener has standing
    /// access. The kernel queues connections from now on. If the address is `[::]` and the machine has no IPv6
    /// (`EAFNOSUPPORT`, `EADDRNOTAVAIL`), binds all IPv4 addresses.
    ///
    /// # Errors
    /// If the port is not free for both, or an address to advertise is invalid.
    pub fn new(config: ListenerConfig) -> Result<Self, Error> {
        let SocketAddr::V6(address) = config.address else { return Self::at(config) };
        match Self::at(config.clone()) {
            Err(error)
                if address.ip().is_unspecified()
                    && error.socket_error().is_some_and(is_ipv6_missing) =>
            {
                let address = SocketAddr::from(([0, 0, 0, 0], address.port()));
                Self::at(ListenerConfig { address, ..config })
            }
            other => other,
        }
    }

    fn at(config: ListenerConfig) -> Result<Self, Error> {
        let (tcp, udp) = bind_both(&config)?;
        let address = bound_address(&tcp)?;
        let internal = |error: TlsError| Error::io("make an identity")(io::Error::other(error));
        let identity = match &config.standing {
            Some(standing) => Arc::clone(&standing.identity),
            None => Arc::new(Identity::generate().map_err(internal)?),
        };
        let tls = identity.server_config().map_err(internal)?;
        let advertise = if config.advertise.is_empty() {
            addresses::reachable(address)
        } else {
            let port = address.port();
            config.advertise.iter().map(|text| addresses::with_port(text, port)).collect()
        };
        let mut ticket = Ticket::generate(advertise, identity.fingerprint())?;
        let name = identity.registration_name();
        if let Some(via) = &config.via {
            ticket = ticket.with_introduction(via.introduction(name))?;
        }
        let second = config.introducer.map(|_| introduced::second_port(address)).transpose()?;
        Ok(Self { config, tcp, udp, address, ticket, tls, second, name })
    }

    /// Puts an address of another machine that forwards to this listener first in the ticket, such as the outside
    /// address of a router.
    #[must_use]
    pub fn forwarded_from(mut self, outside: SocketAddr) -> Self {
        let own = self.ticket.addresses().iter().cloned();
        let addresses = std::iter::once(outside.to_string()).chain(own).collect();
        self.ticket = self.ticket.with_addresses(addresses);
        self
    }

    /// Returns the ticket, which connectors need to find, authenticate and use this listener.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Returns the bound address of TCP and UDP.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Starts to accept connections. Call from within a tokio runtime.
    ///
    /// # Errors
    /// If a thread cannot be started, or the runtime rejects the port.
    pub fn listen(self) -> Result<Listener, Error> {
        let Self { config, tcp, udp, address, ticket, tls, second, name } = self;
        let tcp = TcpListener::from_std(tcp).map_err(|source| Error::Listen { address, source })?;
        let demux = udp.start()?;
        let (accepted, sessions) = mpsc::channel(SESSIONS_WAITING);
        let demux = Arc::new(demux);
        let (introducer, second) = match (config.introducer, second) {
            (Some(introducer), Some(second)) => {
                let introducer = Arc::new(Introducer::new(introducer));
                let port = second.port();
                let second = second.start()?;
                for demux in [&*demux, &second] {
                    demux.reflect(Arc::clone(&introducer.reflector), port);
                }
                (Some(introducer), Some(second))
            }
            _ => (None, None),
        };
        let registrar = config.via.clone().map(|via| {
            let local = ticket.addresses().iter().filter_map(|it| it.parse().ok()).collect();
            Arc::new(Registrar::new(via, name, Arc::clone(&demux), local, config.timeouts))
        });
        let gate = Arc::new(Gate {
            is_closed: AtomicBool::new(false),
            tls,
            ticket: ticket.clone(),
            standing: config.standing.clone(),
            demux,
            introducer,
            registrar,
            address,
            endpoint: endpoint(&config, &ticket),
            handshakes: Arc::new(Handshakes::new()),
            farewells: Semaphore::new(REJECTIONS_MAX),
        });
        // The task ends with this value.
        let mut registration = JoinSet::new();
        if let Some(registrar) = gate.registrar.clone() {
            let (gate, accepted) = (Arc::clone(&gate), accepted.clone());
            registration.spawn(async move {
                registrar.run(|stream| introduced::take(stream, &gate, &accepted)).await;
            });
        }
        let acceptor = tokio::spawn(accept_all(tcp, Arc::clone(&gate), accepted.clone()));
        let sessions = tokio::sync::Mutex::new(sessions);
        Ok(Listener {
            ticket,
            address,
            sessions,
            gate,
            accepted,
            acceptor,
            _registration: registration,
            _second: second,
        })
    }
}

impl Listener {
    /// Listens on TCP and UDP, with a new identity and a new ticket.
    ///
    /// # Errors
    /// If the port is not free for both, or an address to advertise is invalid.
    pub async fn bind(config: ListenerConfig) -> Result<Self, Error> {
        Bound::new(config)?.listen()
    }

    /// Returns the ticket, which connectors need to find, authenticate and use this listener.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Returns the bound address of TCP and UDP.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the next session with a connector that holds the ticket. Other connections are logged and closed.
    ///
    /// # Errors
    /// If the listener has ended.
    pub async fn accept(&self) -> Result<Session, Error> {
        let session = self.sessions.lock().await.recv().await;
        session.ok_or_else(|| Error::PeerGone("the listener has ended".into()))
    }

    /// Waits until the listener is registered at its introducer for the first time; returns at once without an introducer.
    ///
    /// # Errors
    /// If the introducer refuses the registration for good. While the name is in use, the listener tries again.
    pub async fn registered(&self) -> Result<(), Error> {
        match &self.gate.registrar {
            Some(registrar) => registrar.registered().await,
            None => Ok(()),
        }
    }

    /// Refuses further sessions. Further connections of accepted sessions can still join them, as long as this value
    /// exists.
    pub fn refuse_sessions(&self) {
        self.gate.is_closed.store(true, Ordering::Release);
    }

    /// Accepts a connection through ssh, beside those of the port. The user of ssh may use this machine anyway, so no
    /// admission applies.
    pub(crate) fn take_relayed(&self, stream: relay::Stream) {
        let (gate, accepted) = (Arc::clone(&self.gate), self.accepted.clone());
        tokio::spawn(async move {
            let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let stream: Carried = Box::new(stream);
            let handshake = tls::accept(stream, Arc::clone(&gate.tls));
            let greeting =
                async { greet(Connection::relayed(handshake.await?, Hop::Ssh), peer, &gate).await };
            let greeting = match tokio::time::timeout(RELAYED_TIMEOUT, greeting).await {
                Ok(greeting) => greeting,
                Err(_) => Err("no greeting arrived in time".into()),
            };
            hand_over(greeting, peer, &gate, &accepted).await;
        });
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(introducer) = &self.gate.introducer {
            introducer.close();
        }
        self.acceptor.abort();
    }
}

/// State shared by the handshakes of all connections.
#[derive(Debug)]
struct Gate {
    /// No further session is accepted.
    is_closed: AtomicBool,
    tls: Arc<ServerConfig>,
    ticket: Ticket,
    standing: Option<StandingAccess>,
    demux: Arc<Demux>,
    /// Introductions to other servers.
    introducer: Option<Arc<Introducer>>,
    /// Registration of this listener at an introducer.
    registrar: Option<Arc<Registrar>>,
    address: SocketAddr,
    endpoint: Arc<Endpoint>,
    handshakes: Arc<Handshakes>,
    /// Places for rejected connections that receive the reason.
    farewells: Semaphore,
}

/// Returns whether an error of a socket means that this machine has no IPv6.
fn is_ipv6_missing(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

/// Makes the state that all sessions of a listener share.
fn endpoint(config: &ListenerConfig, ticket: &Ticket) -> Arc<Endpoint> {
    let endpoint = Endpoint::new(
        Machine::current(),
        config.memory.clone(),
        config.timeouts,
        config.sending.clone(),
        config.receiving.clone(),
        config.events.clone(),
        config.paths.clone(),
    );
    endpoint.arrivals.passes.set_listener(ticket);
    endpoint
}

fn bind_both(config: &ListenerConfig) -> Result<(std::net::TcpListener, DemuxPort), Error> {
    let mut attempt = 1;
    loop {
        let address = config.address;
        let tcp = listen_on(address).map_err(|source| Error::Listen { address, source })?;
        let address = bound_address(&tcp)?;
        match DemuxPort::bind(address, &config.sockets) {
            Ok(udp) => return Ok((tcp, udp)),
            Err(error) if config.address.port() != 0 || attempt >= PORT_ATTEMPTS => {
                return Err(error);
            }
            Err(_) => attempt += 1,
        }
    }
}

fn bound_address(tcp: &std::net::TcpListener) -> Result<SocketAddr, Error> {
    tcp.local_addr().map_err(Error::io("read the address of the TCP socket"))
}

/// Binds a non-blocking TCP port, as tokio requires.
fn listen_on(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let tcp = std::net::TcpListener::bind(address)?;
    // The backlog of the standard library is shorter; this many connections may wait while the listener is busy.
    rustix::net::listen(&tcp, BACKLOG)?;
    tcp.set_nonblocking(true)?;
    Ok(tcp)
}

/// Accepts every connection at once and passes authenticated sessions to the application.
async fn accept_all(tcp: TcpListener, gate: Arc<Gate>, accepted: mpsc::Sender<Session>) {
    let handshakes = Arc::clone(&gate.handshakes);
    // The tasks end with this task.
    let mut greetings = JoinSet::new();
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_warning = Instant::now();
    loop {
        tokio::select! {
            biased;
            _ = sweep.tick(), if !greetings.is_empty() => handshakes.sweep(),
            Some(_) = greetings.join_next(), if !greetings.is_empty() => {}
            called = tcp.accept() => {
                let problem = match called {
                    Ok((stream, peer)) => {
                        let crowded = descriptors::shortage(&stream, Purpose::Session);
                        if crowded.is_some() {
                            close_rejected(stream);
                            crowded
                        } else if !gate.endpoint.memory.has_room_for_sessions(1 + greetings.len()) {
                            close_rejected(stream);
                            Some("memory is short".to_owned())
                        } else {
                            match handshakes.call(peer) {
                                Ok(caller) => {
                                    let new_connection = NewConnection { stream, peer };
                                    let greeting = greet_and_hand_over(
                                        new_connection, Arc::clone(&caller), Arc::clone(&gate),
                                        accepted.clone(),
                                    );
                                    greetings.spawn(greeting);
                                }
                                Err(reason) => {
                                    debug!(%peer, reason, "connection rejected");
                                    close_rejected(stream);
                                }
                            }
                            None
                        }
                    }
                    Err(error) => {
                        // Most likely out of descriptors or memory, some of which may become free later.
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        Some(error.to_string())
                    }
                };
                if let Some(problem) = problem
                    && Instant::now() >= next_warning
                {
                    next_warning = Instant::now() + WARNING_INTERVAL;
                    warn!(problem, "connections cannot be accepted; trying on");
                }
            }
        }
    }
}

/// A connection that has just been accepted.
#[derive(Debug)]
struct NewConnection {
    stream: TcpStream,
    peer: SocketAddr,
}

/// Sends a busy message if that needs no waiting, and closes the connection. The connector retries.
fn close_rejected(stream: TcpStream) {
    if let Ok(mut stream) = stream.into_std() {
        // Neither call blocks. A connector that misses the message finds its connection closed.
        let _ = io::Write::write(&mut stream, &tls::BUSY);
        // Bytes that were not read would make the kernel reset the connection. The kernel would not send a lost busy
        // message again after a reset.
        let mut scrap = [0; DISCARDED_MAX];
        let _ = io::Read::read(&mut stream, &mut scrap);
    }
}

/// Unauthenticated connections.
#[derive(Debug)]
struct Handshakes {
    admission: Mutex<Admission>,
    /// Wakes the task of a connection that is evicted.
    evictions: Mutex<BTreeMap<u64, Arc<Notify>>>,
    /// Limits the processors used by handshakes; the other processors are for sessions.
    processors: Semaphore,
}

impl Handshakes {
    fn new() -> Self {
        let mut seed = [0; 8];
        // Without randomness an attacker may predict which connections are dropped, but nothing else.
        let _ = aws_lc_rs::rand::fill(&mut seed);
        Self {
            admission: Mutex::new(Admission::new(u64::from_be_bytes(seed))),
            evictions: Mutex::default(),
            processors: Semaphore::new(HANDSHAKE_PROCESSORS),
        }
    }

    fn admission(&self) -> MutexGuard<'_, Admission> {
        lock(&self.admission)
    }

    fn evictions(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Notify>>> {
        lock(&self.evictions)
    }

    /// Admits a connection or returns the reason for rejection.
    fn call(self: &Arc<Self>, peer: SocketAddr) -> Result<Arc<Caller>, &'static str> {
        match self.admission().call(Instant::now(), peer.ip()) {
            Verdict::Enter { number, instead_of } => {
                self.stop(instead_of);
                let evicted = Arc::<Notify>::default();
                self.evictions().insert(number, Arc::clone(&evicted));
                Ok(Arc::new(Caller { handshakes: Arc::clone(self), number, evicted }))
            }
            Verdict::SourceIsFull => Err("too many others from its address are greeting"),
            Verdict::RandomDrop => Err("too many callers are greeting"),
            Verdict::LineIsFull => Err("too many callers wait for a handshake"),
        }
    }

    /// Waits until the handshake of a connection through an introducer may begin, and returns the permit for it.
    async fn begin_introduced(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        let first = self.processors.acquire().await.ok();
        loop {
            let permitted = self.admission().begin_introduced(Instant::now());
            match permitted {
                Ok(()) => return first,
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
    }

    fn sweep(&self) {
        let late = self.admission().sweep(Instant::now());
        self.stop(late);
    }

    fn stop(&self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            if let Some(evicted) = self.evictions().remove(&number) {
                debug!(number, "connection evicted");
                evicted.notify_one();
            }
        }
    }
}

/// Slot of an unauthenticated connection.
#[derive(Debug)]
struct Caller {
    handshakes: Arc<Handshakes>,
    number: u64,
    evicted: Arc<Notify>,
}

impl Caller {
    /// Waits in the queue until the handshake may begin, and returns the permit for the handshake. Only the first in
    /// the queue waits for the total rate, so no other task wakes up for that rate.
    async fn begin(&self) -> Option<SemaphorePermit<'_>> {
        self.pause(Admission::line_up).await;
        // The semaphore is never closed.
        let first = self.handshakes.processors.acquire().await.ok();
        self.pause(Admission::begin).await;
        first
    }

    async fn pause(&self, until: fn(&mut Admission, Instant, u64) -> Result<(), Duration>) {
        loop {
            let permitted = until(&mut self.handshakes.admission(), Instant::now(), self.number);
            match permitted {
                Ok(()) => return,
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
    }

    /// Frees the slot: the connection is authenticated or rejected.
    fn leave(&self) {
        self.handshakes.admission().leave(self.number);
        self.handshakes.evictions().remove(&self.number);
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.leave();
    }
}

async fn greet_and_hand_over(
    new_connection: NewConnection,
    caller: Arc<Caller>,
    gate: Arc<Gate>,
    accepted: mpsc::Sender<Session>,
) {
    let NewConnection { mut stream, peer } = new_connection;
    // Until this end has sent its first byte, an evicted connection receives the busy message.
    let ready = tokio::select! {
        biased;
        () = caller.evicted.notified() => return close_rejected(stream),
        ready = line_up(&mut stream, &caller) => ready,
    };
    let handshake =
        ready.map(|(hello, _one_at_a_time)| hello.answer(stream, Arc::clone(&gate.tls)));
    // Later the only possible message is a close. A greeting that has already arrived comes before an eviction.
    let greeting = tokio::select! {
        biased;
        greeting = async { greet(Connection::new(handshake?.await?), peer, &gate).await } => greeting,
        () = caller.evicted.notified() => {
            debug!(%peer, "connection evicted during its handshake");
            return;
        }
    };
    caller.leave();
    hand_over(greeting, peer, &gate, &accepted).await;
}

/// Passes an authenticated session to the application, or a further connection to its transfer.
async fn hand_over(
    greeting: Result<Greeting, RejectReason>,
    peer: SocketAddr,
    gate: &Gate,
    accepted: &mpsc::Sender<Session>,
) {
    let admitted = match greeting {
        Ok(Greeting {
            connection,
            exporter,
            hello: Message::Join { id, proof, attempt, index, count },
            registers: None,
        }) => {
            let joining = Joining { id, proof, exporter, attempt, index, count };
            let endpoint = &gate.endpoint;
            match endpoint.arrivals.joins.join(joining, connection, &endpoint.memory).await {
                Ok(()) => debug!(%peer, index, count, "a connection joined a transfer"),
                Err(reason) => debug!(%peer, reason, "a connection was closed"),
            }
            return;
        }
        Ok(Greeting {
            connection,
            exporter,
            hello: Message::Resume { id, proof, attempt, received },
            registers: None,
        }) => {
            let resuming = Resuming { id, proof, exporter, attempt, received };
            let origin = origin(&connection, peer).ip();
            match gate.endpoint.arrivals.sessions.resume(&resuming, connection, origin) {
                Ok(()) => info!(%peer, "a connection continues its session"),
                Err((connection, reason)) => {
                    info!(%peer, reason, "connection rejected");
                    let failure = Failure::new(FailureCode::Refused, reason);
                    refuse(connection, failure, &gate.farewells).await;
                }
            }
            return;
        }
        Ok(Greeting {
            connection,
            hello: Message::Call { version, name, carries_data },
            registers: None,
            ..
        }) => return introduced::call(connection, peer, gate, version, name, carries_data).await,
        Ok(greeting) => admit(greeting, peer, gate).await,
        Err(error) => Err(error),
    };
    match admitted {
        Ok(Admitted::Server { connection, introducer, name, user, loan: _loan }) => {
            connection.watch_over(gate.endpoint.timeouts);
            let registered = introducer.register(connection, name, user).await;
            if let Err((connection, failure)) = registered {
                info!(%peer, %failure, "registration refused");
                refuse(connection, failure, &gate.farewells).await;
            } else {
                info!(%peer, "a registered server is gone");
            }
        }
        Ok(Admitted::Session(session)) => {
            info!(%peer, "session");
            if let (true, Some(registrar)) = (session.is_introduced(), gate.registrar.clone()) {
                let session = session.clone();
                tokio::spawn(async move { session.send(registrar.outside().await) });
            }
            // The listener may have been dropped.
            let _ = accepted.send(session).await;
        }
        Err(reason) => info!(%peer, %reason, "connection rejected"),
    }
}

/// Waits for the first message of a connection and then for its turn. The handshake may use a processor while the
/// permit is held.
async fn line_up<'a>(
    stream: &mut TcpStream,
    caller: &'a Caller,
) -> Result<(ClientHello, Option<SemaphorePermit<'a>>), RejectReason> {
    prepare(stream)?;
    let hello = tls::client_hello(stream).await?;
    caller.handshakes.admission().speaks(caller.number);
    Ok((hello, caller.begin().await))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_without_ipv6_listens_on_ipv4_instead() {
        let is_missing = |errno: Errno| is_ipv6_missing(&errno.into());
        assert!([Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].into_iter().all(is_missing));
        for other in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ADDRINUSE, Errno::ACCESS] {
            assert!(!is_missing(other), "{other}");
        }
    }
}
