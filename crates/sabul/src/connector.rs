//! Dialling a listener.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sabul_wire::control::{CONTROL_VERSION, Message};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::config::ConnectConfig;
use crate::control::Connection;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::machine::Machine;
use crate::policy::SendPolicy;
use crate::seal::Suite;
use crate::session::{Session, software};
use crate::ticket::{self, Ticket};
use crate::tls::{self, TlsError};
use crate::transfer::Side;

/// Pause before a listener without room for callers is asked again; doubles up to
/// [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Longest such pause.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often a listener may hang up during the handshake before it counts as something else.
const HANG_UPS_MAX: u32 = 3;

/// Connects to the listener of a ticket, at the first of its addresses that answers.
///
/// It does not wait for the listener's consent, which saves a round trip: a wrong secret shows in
/// the first operation of the session.
///
/// # Errors
/// If no address answers, or what answers is not that listener.
pub async fn connect(ticket: &Ticket, config: ConnectConfig) -> Result<Session, Error> {
    let mut first = None;
    for address in ticket.addresses() {
        match connect_to(address, ticket, config.clone()).await {
            Err(error @ (Error::Unreachable { .. } | Error::NotSabul { .. })) => {
                first.get_or_insert(error);
            }
            other => return other,
        }
    }
    Err(first.unwrap_or_else(|| Error::Config("the ticket has no address".to_owned())))
}

/// Connects to the listener of a ticket at another address, `host:port`, than the ticket says.
///
/// # Errors
/// As [`connect`].
pub async fn connect_to(
    address: &str,
    ticket: &Ticket,
    config: ConnectConfig,
) -> Result<Session, Error> {
    let (stream, peer) = dial(address, ticket, config.timeout).await?;
    let connection = Connection::new(stream);
    let exporter = connection.proof_exporter().map_err(|error| Error::from_tls(error, address))?;
    let hello = Message::Hello {
        version: CONTROL_VERSION,
        proof: ticket::proof(ticket.secret(), &exporter),
        suites: Suite::preference().map(Suite::code).to_vec(),
        software: software(),
    };
    let side = Side::Connector { peer, sockets: config.sockets };
    let ConnectConfig { memory, patience, events, paths, .. } = config;
    let policy = SendPolicy::default();
    let endpoint = Endpoint::new(Machine::current(), memory, patience, policy, None, events, paths);
    let loan = endpoint.memory.session();
    let loan = loan.map_err(|refusal| Error::Config(refusal.to_string()))?;
    Ok(Session::start(connection, side, peer, endpoint, loan, None, hello))
}

/// Why dialling failed.
enum Failed {
    /// Something answered, and TLS did not come about.
    Tls(TlsError),
    Otherwise(Error),
}

/// Dials until TLS stands. A listener without room for callers is asked again until the deadline,
/// one that hangs up a few times, for it may be the same.
async fn dial(
    address: &str,
    ticket: &Ticket,
    timeout: Duration,
) -> Result<(TlsStream<TcpStream>, SocketAddr), Error> {
    let deadline = Instant::now() + timeout;
    let mut pause = RETRY_PAUSE;
    let mut hang_ups = 0;
    let mut before = None;
    loop {
        let error = match dial_once(address, ticket, deadline, timeout).await {
            Ok(found) => return Ok(found),
            // What was said first tells more than what became of it since.
            Err(Failed::Otherwise(error)) => return Err(before.unwrap_or(error)),
            Err(Failed::Tls(error)) => error,
        };
        hang_ups += u32::from(error == TlsError::Closed);
        let is_full = error == TlsError::Busy || error == TlsError::Closed;
        let error = Error::from_tls(error, address);
        if !is_full || hang_ups > HANG_UPS_MAX || Instant::now() + pause >= deadline {
            return Err(error);
        }
        before = Some(error);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_PAUSE_MAX);
    }
}

async fn dial_once(
    address: &str,
    ticket: &Ticket,
    deadline: Instant,
    timeout: Duration,
) -> Result<(TlsStream<TcpStream>, SocketAddr), Failed> {
    let unreachable =
        |source| Failed::Otherwise(Error::Unreachable { address: address.to_owned(), source });
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, no_answer(timeout));
    let stream = tokio::time::timeout_at(deadline, TcpStream::connect(address))
        .await
        .map_err(late)
        .and_then(|connected| connected)
        .map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let peer = stream.peer_addr().map_err(unreachable)?;
    let handshake = tokio::time::timeout_at(deadline, tls::connect(stream, ticket.fingerprint()));
    match handshake.await {
        Ok(Ok(stream)) => Ok((stream, peer)),
        Ok(Err(error)) => Err(Failed::Tls(error)),
        Err(late_by) => {
            let silent = late(late_by).to_string();
            let why = format!("it took the connection and then gave {silent}");
            Err(unreachable(io::Error::new(io::ErrorKind::TimedOut, why)))
        }
    }
}

fn no_answer(waited: Duration) -> String {
    format!("no answer within {:.0} s", waited.as_secs_f64())
}
