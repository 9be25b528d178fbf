//! Waiting for connectors: one TCP port, the same UDP port, a ticket that lets them in.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use sabul_wire::control::{CONTROL_VERSION, Failure, FailureCode, Message};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::config::ListenerConfig;
use crate::control::Connection;
use crate::error::Error;
use crate::machine::Machine;
use crate::path::Demux;
use crate::patience::Patience;
use crate::seal::Suite;
use crate::session::{Session, Terms, software};
use crate::ticket::{self, Ticket};
use crate::tls::{self, Identity};
use crate::transfer::Side;

/// How long a connector may take to say who it is.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);
/// Connectors that may be saying so at once; more wait in the system's queue.
const GREETINGS_MAX: usize = 64;
/// Authenticated sessions that may wait for [`Listener::accept`].
const SESSIONS_WAITING: usize = 16;
/// Times a port is chosen anew when it is free for TCP and not for UDP.
const PORT_ATTEMPTS: usize = 8;

/// Accepts sessions with those who hold its ticket.
#[derive(Debug)]
pub struct Listener {
    ticket: Ticket,
    address: SocketAddr,
    sessions: Mutex<mpsc::Receiver<Session>>,
    acceptor: JoinHandle<()>,
}

impl Listener {
    /// Listens on TCP and UDP, with a new identity and a new ticket.
    ///
    /// # Errors
    /// If the port is not free for both, or an address to advertise is none.
    pub async fn bind(config: ListenerConfig) -> Result<Self, Error> {
        let (tcp, demux) = bind_both(&config).await?;
        let address =
            tcp.local_addr().map_err(|source| Error::Io { action: "learn the port", source })?;
        let internal = |error: tls::TlsError| Error::Io {
            action: "make an identity",
            source: std::io::Error::other(error),
        };
        let identity = Identity::generate().map_err(internal)?;
        let tls = identity.server_config().map_err(internal)?;
        let advertise = if config.advertise.is_empty() {
            reachable(address).into_iter().map(|address| address.to_string()).collect()
        } else {
            config.advertise.clone()
        };
        let ticket = Ticket::generate(advertise, identity.fingerprint())
            .map_err(|error| Error::Config(error.to_string()))?;
        let (accepted, sessions) = mpsc::channel(SESSIONS_WAITING);
        let gate = Gate {
            tls,
            ticket: ticket.clone(),
            demux: Arc::new(demux),
            address,
            memory_bytes: config.memory_bytes,
            patience: config.patience,
        };
        let acceptor = tokio::spawn(accept_all(tcp, Arc::new(gate), accepted));
        Ok(Self { ticket, address, sessions: Mutex::new(sessions), acceptor })
    }

    /// What connectors need to find, recognise and use this listener.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Where it listens, on TCP and UDP.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next session with a connector that holds the ticket. Others are logged and left out.
    ///
    /// # Errors
    /// If the listener has ended.
    pub async fn accept(&self) -> Result<Session, Error> {
        let session = self.sessions.lock().await.recv().await;
        session.ok_or_else(|| Error::PeerGone("the listener has ended".to_owned()))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// What every connector has to pass.
#[derive(Debug)]
struct Gate {
    tls: Arc<ServerConfig>,
    ticket: Ticket,
    demux: Arc<Demux>,
    address: SocketAddr,
    memory_bytes: usize,
    patience: Patience,
}

async fn bind_both(config: &ListenerConfig) -> Result<(TcpListener, Demux), Error> {
    let mut attempt = 1;
    loop {
        let tcp = TcpListener::bind(config.address)
            .await
            .map_err(|source| Error::Io { action: "listen on TCP", source })?;
        let address =
            tcp.local_addr().map_err(|source| Error::Io { action: "learn the port", source })?;
        match Demux::start(address, &config.sockets) {
            Ok(demux) => return Ok((tcp, demux)),
            Err(error) if config.address.port() != 0 || attempt >= PORT_ATTEMPTS => {
                return Err(error);
            }
            Err(_) => attempt += 1,
        }
    }
}

/// Addresses at which others may find a listener on `address`, the likeliest first.
fn reachable(address: SocketAddr) -> Vec<SocketAddr> {
    if !address.ip().is_unspecified() {
        return vec![address];
    }
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    // Connecting a UDP socket sends nothing and tells which of our addresses faces the world; the
    // destinations are reserved for documentation.
    let facing =
        ["0.0.0.0:0 192.0.2.1:9", "[::]:0 [2001:db8::1]:9"].into_iter().filter_map(|pair| {
            let (local, remote) = pair.split_once(' ')?;
            if remote.starts_with('[') && address.is_ipv4() {
                return None;
            }
            let socket = std::net::UdpSocket::bind(local).ok()?;
            socket.connect(remote).ok()?;
            Some(socket.local_addr().ok()?.ip())
        });
    let mut ips: Vec<IpAddr> = facing.chain([loopback]).collect();
    ips.dedup();
    ips.into_iter().map(|ip| SocketAddr::new(ip, address.port())).collect()
}

async fn accept_all(tcp: TcpListener, gate: Arc<Gate>, accepted: mpsc::Sender<Session>) {
    let greetings = Arc::new(Semaphore::new(GREETINGS_MAX));
    while let Ok(permit) = Arc::clone(&greetings).acquire_owned().await {
        let (stream, peer) = match tcp.accept().await {
            Ok(found) => found,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                // Out of descriptors, most likely: some may be free again later.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (gate, accepted) = (Arc::clone(&gate), accepted.clone());
        tokio::spawn(async move {
            let greeting = tokio::time::timeout(GREETING_PATIENCE, greet(stream, peer, &gate));
            match greeting.await {
                Ok(Ok(session)) => {
                    drop(permit);
                    info!(%peer, "session");
                    // The listener may be gone.
                    let _ = accepted.send(session).await;
                }
                Ok(Err(reason)) => info!(%peer, reason, "a stranger was turned away"),
                Err(_) => info!(%peer, "a stranger said nothing and was turned away"),
            }
        });
    }
}

async fn greet(stream: TcpStream, peer: SocketAddr, gate: &Gate) -> Result<Session, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    stream.set_nodelay(true).map_err(|error| text(&error))?;
    let stream = tls::accept(stream, Arc::clone(&gate.tls)).await.map_err(|error| text(&error))?;
    let mut connection = Connection::new(stream);
    let exporter = connection.proof_exporter().map_err(|error| text(&error))?;
    let hello = connection.read().await.map_err(|error| text(&error))?;
    let Some(Message::Hello { version, proof, suites, software: theirs }) = hello else {
        return Err("it did not greet".to_owned());
    };
    let suite = suites.iter().find_map(|&code| Suite::from_code(code));
    let failure = if !ticket::verify_proof(gate.ticket.secret(), &exporter, &proof) {
        let text = "the ticket's secret is wrong: get a fresh ticket from the listener";
        Failure::new(FailureCode::Authentication, text)
    } else if version != CONTROL_VERSION || suite.is_none() {
        let text = format!(
            "the listener speaks version {CONTROL_VERSION} and the connector {version}, or they \
             have no cipher in common: use the same release on both sides"
        );
        Failure::new(FailureCode::Version, text)
    } else {
        info!(%peer, software = theirs, "authenticated");
        let side = Side::Listener {
            demux: Arc::clone(&gate.demux),
            peer: peer.ip(),
            address: gate.address,
        };
        let suite_code = suite.map_or(0, Suite::code);
        let welcome =
            Message::Welcome { version: CONTROL_VERSION, suite: suite_code, software: software() };
        let Gate { memory_bytes, patience, .. } = *gate;
        let terms = Terms { machine: Machine::current(), memory_bytes, patience };
        return Ok(Session::start(terms, connection, side, peer, suite, welcome));
    };
    let reason = failure.message.clone();
    // It may have left already.
    let _ = connection.write(&Message::Cancel { transfer: None, failure }).await;
    // Its request may be on the way; closing before it is read would lose our answer.
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        while let Ok(Some(_)) = connection.read().await {}
    })
    .await;
    Err(reason)
}
