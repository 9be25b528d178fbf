//! Dialling a listener.

use std::io;
use std::time::Duration;

use sabul_wire::control::{CONTROL_VERSION, Message};
use tokio::net::TcpStream;

use crate::config::ConnectConfig;
use crate::control::Connection;
use crate::error::Error;
use crate::machine::Machine;
use crate::seal::Suite;
use crate::session::{Session, Terms, software};
use crate::ticket::{self, Ticket};
use crate::tls;
use crate::transfer::Side;

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
    let unreachable = |source| Error::Unreachable { address: address.to_owned(), source };
    let deadline = tokio::time::Instant::now() + config.timeout;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, no_answer(config.timeout));
    let stream = tokio::time::timeout_at(deadline, TcpStream::connect(address))
        .await
        .map_err(late)
        .and_then(|connected| connected)
        .map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let peer = stream.peer_addr().map_err(unreachable)?;
    let stream = tokio::time::timeout_at(deadline, tls::connect(stream, ticket.fingerprint()))
        .await
        .map_err(|_| Error::NotSabul {
            address: address.to_owned(),
            reason: format!("TLS got {}", no_answer(config.timeout)),
        })?
        .map_err(|error| Error::from_tls(error, address))?;
    let connection = Connection::new(stream);
    let exporter = connection.proof_exporter().map_err(|error| Error::from_tls(error, address))?;
    let hello = Message::Hello {
        version: CONTROL_VERSION,
        proof: ticket::proof(ticket.secret(), &exporter),
        suites: Suite::preference().map(Suite::code).to_vec(),
        software: software(),
    };
    let side = Side::Connector { peer, sockets: config.sockets };
    let ConnectConfig { memory_bytes, patience, .. } = config;
    let terms = Terms { machine: Machine::current(), memory_bytes, patience };
    Ok(Session::start(terms, connection, side, peer, None, hello))
}

fn no_answer(waited: Duration) -> String {
    format!("no answer within {:.0} s", waited.as_secs_f64())
}
