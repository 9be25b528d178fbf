//! Calls through introducers: those that a listener passes on as an introducer, and those that it takes as a server.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use rustls::ServerConfig;
use sabul_wire::control::{Failure, FailureCode};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tracing::info;

use super::entry::{check_version, greet, refuse};
use super::{Gate, Handshakes, RELAYED_TIMEOUT, hand_over};
use crate::connection::{Carried, Connection, Hop};
use crate::error::Error;
use crate::introducer::{CALLER_LEN, Caller};
use crate::path::DemuxPort;
use crate::relay;
use crate::session::Session;
use crate::tls::{self, TlsError};

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
        introducer.ok_or_else(|| refusal("the listener introduces nobody"))
    });
    connection.watch_over(gate.endpoint.timeouts);
    let refused = match permitted {
        Ok(introducer) => {
            let caller = Caller { peer, name, carries_data };
            introducer.call(connection, caller, &gate.endpoint.memory).await
        }
        Err(failure) => Err((connection, failure)),
    };
    if let Err((connection, failure)) = refused {
        info!(%peer, %failure, "call refused");
        refuse(connection, failure, &gate.farewells).await;
    }
}

/// Accepts a caller whom the introducer passes on.
pub(super) fn take(stream: relay::Stream, gate: &Arc<Gate>, accepted: &mpsc::Sender<Session>) {
    let (gate, accepted) = (Arc::clone(gate), accepted.clone());
    tokio::spawn(async move {
        let mut stream = stream;
        let mut peer = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let greeting = async {
            let mut caller = [0; CALLER_LEN];
            stream.read_exact(&mut caller).await?;
            let (ip, port) = caller.split_at(16);
            let ip: [u8; 16] = ip.try_into()?;
            let port = u16::from_be_bytes(port.try_into()?);
            peer = SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port);
            let stream: Carried = Box::new(stream);
            let stream = handshake(stream, &gate.handshakes, Arc::clone(&gate.tls)).await?;
            greet(Connection::relayed(stream, Hop::Introducer), peer, &gate).await
        };
        let greeting = match tokio::time::timeout(RELAYED_TIMEOUT, greeting).await {
            Ok(greeting) => greeting,
            Err(_) => Err("no greeting arrived in time".into()),
        };
        hand_over(greeting, peer, &gate, &accepted).await;
    });
}

/// Waits for the first message and for a turn, then for the end of the handshake. An introducer can open streams without
/// end, so these handshakes count in the total rate of the direct ones.
async fn handshake(
    mut stream: Carried,
    handshakes: &Handshakes,
    tls: Arc<ServerConfig>,
) -> Result<TlsStream<Carried>, TlsError> {
    let hello = tls::client_hello(&mut stream).await?;
    let handshake = {
        let _one_at_a_time = handshakes.begin_introduced().await;
        hello.answer(stream, tls)
    };
    handshake.await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::tls::Identity;

    #[tokio::test(start_paused = true)]
    async fn handshakes_through_an_introducer_count_in_the_total_rate() {
        let identity = Identity::generate().unwrap();
        let handshakes = Handshakes::new();
        let begin = Instant::now();
        let one = async || {
            let (near, far) = tokio::io::duplex(1 << 16);
            let server = handshake(Box::new(near), &handshakes, identity.server_config().unwrap());
            let client = tls::connect(far, identity.fingerprint());
            let (server, client) = tokio::join!(server, client);
            assert!(server.is_ok() && client.is_ok());
            begin.elapsed()
        };
        assert_eq!(one().await, Duration::ZERO, "a handshake at once");
        // Direct handshakes use up the burst.
        while handshakes.admission().begin_introduced(Instant::now()).is_ok() {}
        for turn in 1..=3 {
            // The timer of the runtime counts whole milliseconds.
            assert!(one().await >= Duration::from_millis(2 * turn), "turn {turn}");
        }
    }
}
