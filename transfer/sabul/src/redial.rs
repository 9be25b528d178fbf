//! Further connections to the listener of a session, from any usable local address to any of its addresses.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::calls::Introduced;
use crate::connection::Connection;
use crate::dial::{connect_from, first_of, interleaved};
use crate::tls::{self, JoinSecrets, TlsError};

/// Timeout for the look-up of a name.
const NAME_TIMEOUT: Duration = Duration::from_secs(2);

/// Way to the listener of a session.
#[derive(Debug)]
pub(crate) struct Redial {
    /// Address of the first connection.
    peer: SocketAddr,
    /// Further addresses of the listener, as `host:port`.
    addresses: Vec<String>,
    fingerprint: [u8; 32],
    /// Local addresses; empty if the system chooses.
    bind: Arc<[IpAddr]>,
    /// Timeout of each attempt.
    timeout: Duration,
    secrets: JoinSecrets,
    /// Way through an introducer, instead of the addresses.
    introduced: Option<Arc<Introduced>>,
    /// Notified when an address may have changed.
    pub(crate) address_changed: Arc<Notify>,
}

/// Whether this machine has the address.
pub(crate) fn is_local(address: IpAddr) -> bool {
    let bound = std::net::UdpSocket::bind((address, 0));
    // A lack of descriptors, for example, is no change of the address.
    !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

impl Redial {
    pub(crate) fn new(
        peer: SocketAddr,
        addresses: Vec<String>,
        fingerprint: [u8; 32],
        bind: Arc<[IpAddr]>,
        timeout: Duration,
        secrets: JoinSecrets,
        address_changed: Arc<Notify>,
    ) -> Self {
        let introduced = None;
        Self { peer, addresses, fingerprint, bind, timeout, secrets, introduced, address_changed }
    }

    /// Returns the same with calls through an introducer.
    pub(crate) fn through(self, introduced: Arc<Introduced>) -> Self {
        Self { introduced: Some(introduced), ..self }
    }

    pub(crate) const fn secrets(&self) -> &JoinSecrets {
        &self.secrets
    }

    /// Dials the address of the first connection and then all others. Returns the first connection whose TLS handshake
    /// is complete.
    ///
    /// # Errors
    /// With the error of the first attempt if all fail.
    pub(crate) async fn dial(&self) -> io::Result<Connection> {
        if let Some(introduced) = &self.introduced {
            return introduced.call_again(self.fingerprint).await;
        }
        let first = match self.dial_any(vec![self.peer]).await {
            Err(error) => error,
            dialled => return dialled,
        };
        let mut others = Vec::new();
        for address in &self.addresses {
            let looked_up = tokio::time::timeout(NAME_TIMEOUT, tokio::net::lookup_host(address));
            others.extend(looked_up.await.into_iter().flatten().flatten());
        }
        others.retain(|address| *address != self.peer);
        if others.is_empty() {
            return Err(first);
        }
        self.dial_any(interleaved(others)).await.map_err(|_| first)
    }

    async fn dial_any(&self, remotes: Vec<SocketAddr>) -> io::Result<Connection> {
        let locals: Vec<Option<IpAddr>> = match &*self.bind {
            [] => vec![None],
            bind => bind.iter().copied().map(Some).collect(),
        };
        let fits = |local: &Option<IpAddr>, remote: &SocketAddr| {
            local.is_none_or(|local| local.is_ipv4() == remote.is_ipv4())
        };
        let pairs =
            remotes.iter().flat_map(|&remote| locals.iter().map(move |&local| (local, remote)));
        let pairs: Vec<_> = pairs.filter(|(local, remote)| fits(local, remote)).collect();
        let (fingerprint, timeout) = (self.fingerprint, self.timeout);
        first_of(pairs, move |(local, remote)| async move {
            let dialled = tokio::time::timeout(timeout, dial(local, remote, fingerprint)).await;
            dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        })
        .await
    }
}

async fn dial(
    local: Option<IpAddr>,
    remote: SocketAddr,
    fingerprint: [u8; 32],
) -> io::Result<Connection> {
    let stream = connect_from(local, remote).await?;
    stream.set_nodelay(true)?;
    let stream = tls::connect(stream, fingerprint).await;
    stream.map(Connection::new).map_err(|error: TlsError| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_of_this_machine_is_local() {
        assert!(is_local([127, 0, 0, 1].into()));
        assert!(!is_local([192, 0, 2, 1].into()));
    }
}
