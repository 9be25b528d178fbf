//! Sessions through an introducer: the connector calls the server, and TLS runs inside of the call.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::rejections::{BUSY_TIMEOUTS, Rejections};
use super::{Credential, Dialled, Target, dial, start};
use crate::calls::{Introduced, Outer, call};
use crate::config::ConnectConfig;
use crate::connection::{Carried, Connection, Hop};
use crate::error::Error;
use crate::session::Session;
use crate::ticket::{Introduction, Ticket};
use crate::tls;
use crate::transfer::Through;

/// Connects to the listener of a ticket through its introducer.
///
/// # Errors
/// If the introducer does not answer or the listener is not registered there.
pub(super) async fn connect(
    introduction: &Introduction,
    ticket: &Ticket,
    config: ConnectConfig,
) -> Result<Session, Error> {
    let Introduction { address, fingerprint, name } = introduction;
    let began = Instant::now();
    // The proof of the ticket is for the listener, not for the introducer.
    let credential = Credential::Secret(ticket.secret());
    let target = Target { fingerprint: *fingerprint, credential, others: &[] };
    let mut rejections = Rejections::new();
    let Dialled { stream, peer, .. } = dial(address, &target, &config, &mut rejections).await?;
    let mut connection = Connection::new(stream);
    connection.watch_over(config.timeouts);
    let secrets = connection.outside_secrets().map_err(|it| Error::from_tls(it, address))?;
    call(&mut connection, address, *name, false).await?;
    let stream: Carried = Box::new(Outer::new(connection));
    let handshake =
        timeout(config.timeout * BUSY_TIMEOUTS, tls::connect(stream, ticket.fingerprint()));
    let stream = handshake
        .await
        .map_err(|_| Error::PeerGone(format!("the server behind {address}: no answer").into()))?;
    let stream =
        stream.map_err(|error| Error::from_tls(error, &format!("the server behind {address}")))?;
    debug!(took = ?began.elapsed(), "control connection, TLS through an introducer");
    let introduced = Introduced {
        introduction: introduction.clone(),
        introducer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
        secrets: Mutex::new(Arc::new(secrets)),
        own: watch::Sender::new(None),
        relay: config.relay,
        timeout: config.timeout,
        local: config.bind.first().copied(),
    };
    let through = Some(Through::Introducer(Arc::new(introduced)));
    let target = Target { fingerprint: ticket.fingerprint(), ..target };
    start(Connection::relayed(stream, Hop::Introducer), peer, address, &target, through, config)
        .await
}
