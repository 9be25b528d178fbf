//! Calls that a listener passes on as an introducer.

use std::net::SocketAddr;

use sabul_wire::control::{Failure, FailureCode};
use tracing::info;

use super::Gate;
use super::entry::{check_version, refuse};
use crate::budget::SESSION_BYTES;
use crate::connection::Connection;
use crate::error::Error;
use crate::path::DemuxPort;

/// Binds the second UDP port of an introducer: the next port, which a firewall can open in advance, or any other.
pub(super) fn second_port(first: SocketAddr) -> Result<DemuxPort, Error> {
    let port = |port| DemuxPort::bind_alone(SocketAddr::new(first.ip(), port));
    match first.port().checked_add(1) {
        Some(next) => port(next).or_else(|_| port(0)),
        None => port(0),
    }
}

/// Passes a caller on to a registered server.
pub(super) async fn call(
    connection: Connection,
    peer: SocketAddr,
    gate: &Gate,
    version: u16,
    name: [u8; 16],
    carries_data: bool,
) {
    let refusal = |text: &str| Failure::new(FailureCode::Refused, text);
    let permitted = check_version(version).and_then(|()| {
        let introducer = gate.introducer.as_ref();
        let introducer = introducer.ok_or_else(|| refusal("the listener introduces nobody"))?;
        let loans = (0..introducer.call_bytes().div_ceil(SESSION_BYTES))
            .map(|_| gate.endpoint.memory.session())
            .collect::<Result<Vec<_>, _>>();
        Ok((introducer, loans.map_err(Failure::from)?))
    });
    connection.watch_over(gate.endpoint.timeouts);
    let refused = match permitted {
        Ok((introducer, _loans)) => introducer.call(connection, peer, name, carries_data).await,
        Err(failure) => Err((connection, failure)),
    };
    if let Err((connection, failure)) = refused {
        info!(%peer, %failure, "call refused");
        refuse(connection, failure, &gate.farewells).await;
    }
}
