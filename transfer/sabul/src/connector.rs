//! Client side of connection setup: dials a listener over TCP and TLS.

mod introduced;
mod login;
mod rejections;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sabul_keys::{Fingerprint, Identities};
use sabul_wire::control::{CONTROL_VERSION, Message};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tracing::{debug, warn};

use crate::address::invalid;
use crate::config::ConnectConfig;
use crate::connection::{Carried, Connection, Hop};
use crate::control::Succession;
use crate::dial::connect_to_name;
use crate::endpoint::Endpoint;
use crate::error::{Cause, Error};
use crate::machine::Machine;
use crate::policy::{Controllers, SendPolicy};
use crate::redial::Redial;
use crate::relay::ThroughSsh;
use crate::seal::Suite;
use crate::session::{Opening, Session, software};
use crate::ticket::{self, Ticket, TicketError};
use crate::tls::{self, TlsError};
use crate::transfer::{Side, Through};
use rejections::{BUSY_TIMEOUTS, Rejection, Rejections};

/// Connects to the listener of a ticket, at the first of its addresses that answers, or at
/// [`ConnectConfig::address`].
///
/// Returns before the listener has accepted the ticket, which saves an RTT. A wrong secret therefore causes an error in
/// the first operation of the session. A busy listener is dialled again for up to 15 minutes, and then its answer is
/// awaited.
///
/// # Errors
/// If no address answers, or if the peer that answers is not that listener.
pub async fn connect(ticket: &Ticket, config: ConnectConfig) -> Result<Session, Error> {
    if let Some(address) = &config.address {
        return connect_to(address, ticket, config.clone()).await;
    }
    if let Some(introduction) = ticket.introduction() {
        return introduced::connect(introduction, ticket, config).await;
    }
    let mut first = None;
    let credential = Credential::Secret(ticket.secret());
    let (fingerprint, others) = (ticket.fingerprint(), ticket.addresses());
    let target = Target { fingerprint, credential, others };
    for address in ticket.addresses() {
        match connect_as(address, &target, config.clone()).await {
            Err(
                error @ (Error::Unreachable { .. } | Error::NotSabul { .. } | Error::Busy { .. }),
            ) => {
                first.get_or_insert(error);
            }
            other => return other,
        }
    }
    Err(first.unwrap_or_else(|| TicketError::AddressCount(0).into()))
}

/// Connects to the listener of a ticket at `address` (`host:port`) instead of the ticket's addresses. If that is the
/// address of the ticket's introducer, the session goes through the introducer.
///
/// # Errors
/// As [`connect`].
pub async fn connect_to(
    address: &str,
    ticket: &Ticket,
    config: ConnectConfig,
) -> Result<Session, Error> {
    if let Some(introduction) = ticket.introduction().filter(|it| it.address == address) {
        return introduced::connect(introduction, ticket, config).await;
    }
    let credential = Credential::Secret(ticket.secret());
    let target = Target { fingerprint: ticket.fingerprint(), credential, others: &[] };
    connect_as(address, &target, config).await
}

/// Connects to the standing listener at `address` (`host:port`), whose certificate has this fingerprint, by a key that
/// the listener accepts. With several keys the listener chooses, which takes one RTT. [`ConnectConfig::address`] is not
/// used.
///
/// # Errors
/// If no host answers, the listener has another key or accepts none of the keys, or no key signs. With a single key, a
/// refusal is an error of the first operation.
pub async fn connect_by_key(
    address: &str,
    server: Fingerprint,
    identities: &Arc<Identities>,
    config: ConnectConfig,
) -> Result<Session, Error> {
    let credential = Credential::Keys(identities);
    let target = Target { fingerprint: server.0, credential, others: &[] };
    connect_as(address, &target, config).await
}

/// Returns the fingerprint of the listener at `address` (`host:port`), which nobody has verified. The caller must
/// compare the fingerprint with a value from another source before it trusts the listener.
///
/// # Errors
/// If no listener of sabul answers within `timeout`.
pub async fn fingerprint_at(address: &str, timeout: Duration) -> Result<Fingerprint, Error> {
    // No certificate has this fingerprint, so the handshake ends with the fingerprint of the listener.
    match dial_once(address, [0; 32], timeout, None).await {
        Err(Failed::Tls(TlsError::WrongKey { found, .. })) => Ok(Fingerprint(found)),
        Err(Failed::Tls(error)) => Err(Error::from_tls(error, address)),
        Err(Failed::Otherwise(error)) => Err(error),
        Ok(_) => {
            Err(Error::Authentication(format!("{address} has an impossible certificate").into()))
        }
    }
}

/// The listener to reach, and the right to do so.
struct Target<'a> {
    fingerprint: [u8; 32],
    credential: Credential<'a>,
    /// Further addresses of the listener, as `host:port`.
    others: &'a [String],
}

/// Proof of the right to connect.
pub(crate) enum Credential<'a> {
    /// Secret of a ticket.
    Secret(&'a [u8; 32]),
    /// Keys of the user.
    Keys(&'a Arc<Identities>),
}

impl Target<'_> {
    /// Converts an error of the TLS handshake with the listener at `address`.
    fn error(&self, error: TlsError, address: &str) -> Error {
        match (error, &self.credential) {
            (TlsError::WrongKey { expected, found }, Credential::Keys(_)) => {
                let text = format!(
                    "{address} has another key than the trusted one ({} instead of {}), so someone may be in \
                     between; if the server has a new key, compare the output of 'sabul key fingerprint' there, \
                     then run: sabul key trust {address} FINGERPRINT",
                    Fingerprint(found),
                    Fingerprint(expected)
                );
                Error::Authentication(Cause::of(text, TlsError::WrongKey { expected, found }))
            }
            (error, _) => Error::from_tls(error, address),
        }
    }
}

async fn connect_as(
    address: &str,
    target: &Target<'_>,
    config: ConnectConfig,
) -> Result<Session, Error> {
    if let Some(local) = config.bind.first() {
        std::net::UdpSocket::bind((*local, 0)).map_err(|error| {
            let why = format!("cannot be used as a local address: {error}");
            invalid(local, why, "an address of this machine")
        })?;
    }
    let mut rejections = Rejections::new();
    loop {
        let Dialled { stream, peer, took } =
            dial(address, target, &config, &mut rejections).await?;
        let connection = Connection::new(stream);
        let session = match start(connection, peer, address, target, None, config.clone()).await {
            // The listener may be busy.
            Err(error @ Error::PeerGone(_)) => {
                wait(&mut rejections, Rejection::Unanswered, error, address).await?;
                continue;
            }
            started => started?,
        };
        if !rejections.is_answer_due(took) {
            return Ok(session);
        }
        // The listener may be busy and may close this connection.
        let answer = tokio::time::timeout(BUSY_TIMEOUTS * config.timeout, session.answered());
        let Ok(Err(error)) = answer.await else { return Ok(session) };
        wait(&mut rejections, Rejection::Unanswered, error, address).await?;
    }
}

/// Connects to the listener of a ticket through ssh. `peer` is the listener's address, for the user.
///
/// # Errors
/// If the listener does not answer within the timeout, or if ssh ends.
pub(crate) async fn connect_through(
    through: ThroughSsh,
    peer: SocketAddr,
    ticket: &Ticket,
    config: ConnectConfig,
) -> Result<Session, Error> {
    let text = |why: &dyn fmt::Display| format!("sabul does not answer through ssh: {why}");
    let dialling = async {
        let stream =
            through.relay.open().await.map_err(|error| Error::gone(text(&error), error))?;
        let stream: Carried = Box::new(stream);
        let stream = tls::connect(stream, ticket.fingerprint()).await;
        stream.map_err(|error| Error::gone(text(&error), error))
    };
    let limit = config.timeout * BUSY_TIMEOUTS;
    let stream = tokio::time::timeout(limit, dialling).await;
    let stream = stream.map_err(|_| Error::PeerGone(text(&no_answer(limit)).into()))??;
    debug!("control connection, TLS through ssh");
    let credential = Credential::Secret(ticket.secret());
    let target = Target { fingerprint: ticket.fingerprint(), credential, others: &[] };
    let through = Some(Through::Ssh(through));
    start(Connection::relayed(stream, Hop::Ssh), peer, "ssh", &target, through, config).await
}

/// Returns the first message of a connection, which proves the right to connect.
///
/// # Errors
/// If no key is accepted, or no key signs.
pub(crate) async fn first_message(
    connection: &mut Connection,
    address: &str,
    credential: &Credential<'_>,
) -> Result<Message, Error> {
    match credential {
        Credential::Secret(secret) => {
            let exporter =
                connection.proof_exporter().map_err(|error| Error::from_tls(error, address))?;
            Ok(Message::Hello {
                version: CONTROL_VERSION,
                proof: ticket::proof(secret, &exporter),
                suites: Suite::preference().map(Suite::code).to_vec(),
                software: software(),
            })
        }
        Credential::Keys(identities) => login::greeting(connection, address, identities).await,
    }
}

/// Starts the session on a connection whose TLS handshake is complete.
async fn start(
    mut connection: Connection,
    peer: SocketAddr,
    address: &str,
    target: &Target<'_>,
    through: Option<Through>,
    config: ConnectConfig,
) -> Result<Session, Error> {
    let hello = first_message(&mut connection, address, &target.credential).await?;
    let ConnectConfig {
        memory,
        timeouts,
        events,
        paths,
        bind,
        sockets,
        timeout,
        sending,
        receiving,
        ..
    } = config;
    let bind: Arc<[IpAddr]> = bind.into();
    let policy = sending.unwrap_or_else(|| SendPolicy::default().controllers(Controllers::Any));
    let endpoint =
        Endpoint::new(Machine::current(), memory, timeouts, policy, receiving, events, paths);
    let succession = match &through {
        // The end of ssh is the end of the session.
        Some(Through::Ssh(_)) => Succession::None,
        through => {
            let secrets = connection.resume_secrets();
            let secrets = secrets.map_err(|error| Error::from_tls(error, address))?;
            // A name may have other addresses in another network.
            let addresses = [address].into_iter().chain(target.others.iter().map(String::as_str));
            let addresses = addresses.map(str::to_owned).collect();
            let (bind, changed) = (Arc::clone(&bind), Arc::clone(&endpoint.address_changed));
            let fingerprint = target.fingerprint;
            let redial = Redial::new(peer, addresses, fingerprint, bind, timeout, secrets, changed);
            Succession::Dial(match through {
                Some(Through::Introducer(introduced)) => redial.through(Arc::clone(introduced)),
                _ => redial,
            })
        }
    };
    let fingerprint = target.fingerprint;
    let side = Side::Connector { peer, sockets, fingerprint, bind, through };
    let loan = endpoint.memory.session()?;
    Ok(Session::start(
        connection,
        side,
        peer,
        endpoint,
        loan,
        Opening::of_connector(hello, succession),
    ))
}

/// Cause of a failed dial.
enum Failed {
    /// TCP connected, but the TLS handshake failed.
    Tls(TlsError),
    Otherwise(Error),
}

/// A connection whose TLS handshake is complete.
struct Dialled {
    stream: TlsStream<TcpStream>,
    peer: SocketAddr,
    /// Time of the attempt that succeeded.
    took: Duration,
}

/// Dials until the TLS handshake is complete, or until a failure is final.
async fn dial(
    address: &str,
    target: &Target<'_>,
    config: &ConnectConfig,
    rejections: &mut Rejections,
) -> Result<Dialled, Error> {
    loop {
        let began = Instant::now();
        let local = config.bind.first().copied();
        let dialled = dial_once(address, target.fingerprint, config.timeout, local).await;
        let (rejection, error) = match dialled {
            Ok((stream, peer)) => return Ok(Dialled { stream, peer, took: began.elapsed() }),
            Err(Failed::Otherwise(error)) => (Rejection::of(&error), error),
            Err(Failed::Tls(error)) => (Rejection::of_tls(&error), target.error(error, address)),
        };
        wait(rejections, rejection, error, address).await?;
    }
}

/// Waits until the next attempt, or returns the error if no further attempt is sensible.
async fn wait(
    rejections: &mut Rejections,
    rejection: Rejection,
    error: Error,
    address: &str,
) -> Result<(), Error> {
    let why = error.to_string();
    let pause = rejections.next(rejection, error, address)?;
    debug!(%address, why, ?pause, "dialling again");
    if let Some(word) = rejections.word(address) {
        warn!("{word}");
    }
    tokio::time::sleep(pause).await;
    Ok(())
}

async fn dial_once(
    address: &str,
    fingerprint: [u8; 32],
    timeout: Duration,
    local: Option<IpAddr>,
) -> Result<(TlsStream<TcpStream>, SocketAddr), Failed> {
    // The kernel of a busy listener completes the TCP connection long before the listener accepts it.
    let timeouts = timeout * BUSY_TIMEOUTS;
    let unreachable =
        |source| Failed::Otherwise(Error::Unreachable { address: address.to_owned(), source });
    let stream = tokio::time::timeout(timeout, connect_to_name(address, local))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, no_answer(timeout)))
        .and_then(|connected| connected)
        .map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let peer = stream.peer_addr().map_err(unreachable)?;
    let handshake = tokio::time::timeout(timeouts, tls::connect(stream, fingerprint));
    match handshake.await {
        Ok(Ok(stream)) => {
            let suite = stream.get_ref().1.negotiated_cipher_suite().map(|suite| suite.suite());
            debug!(%peer, ?suite, "control connection, TLS");
            Ok((stream, peer))
        }
        Ok(Err(error)) => Err(Failed::Tls(error)),
        Err(_) => {
            let silent = no_answer(timeouts);
            let why = format!("it took the connection and then gave {silent}");
            Err(unreachable(io::Error::new(io::ErrorKind::TimedOut, why)))
        }
    }
}

fn no_answer(waited: Duration) -> String {
    format!("no answer within {:.0} s", waited.as_secs_f64())
}
