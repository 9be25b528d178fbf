//! The introducer of a listener, as its configuration names it.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use sabul_keys::{Fingerprint, Identities};

use crate::error::Error;
use crate::ticket::{Introduction, Ticket};

/// The introducer at which a listener registers, and the right to do so.
#[derive(Clone, Debug)]
pub struct Via {
    pub(crate) address: String,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) fingerprint: [u8; 32],
    pub(crate) login: Login,
}

/// Proof of the right to register.
#[derive(Clone, Debug)]
pub(crate) enum Login {
    Ticket(Ticket),
    Keys(Arc<Identities>),
}

impl Via {
    /// The introducer of this ticket, at `address` (`host:port`) or at the first address of the ticket. The name of
    /// the host is looked up now.
    ///
    /// # Errors
    /// If the host has no address.
    pub fn by_ticket(ticket: &Ticket, address: Option<&str>) -> Result<Self, Error> {
        let first = ticket.addresses().first().map(String::as_str);
        let address = address.or(first).unwrap_or_default();
        Self::new(address, ticket.fingerprint(), Login::Ticket(ticket.clone()))
    }

    /// The introducer at `address` (`host:port`), whose certificate has this fingerprint, by a key of the user.
    ///
    /// # Errors
    /// As [`Self::by_ticket`].
    pub fn by_key(
        address: &str,
        introducer: Fingerprint,
        identities: &Arc<Identities>,
    ) -> Result<Self, Error> {
        Self::new(address, introducer.0, Login::Keys(Arc::clone(identities)))
    }

    fn new(address: &str, fingerprint: [u8; 32], login: Login) -> Result<Self, Error> {
        let found = address.to_socket_addrs();
        let addresses: Vec<_> = found
            .map(Iterator::collect)
            .map_err(|source| Error::Unreachable { address: address.to_owned(), source })?;
        Ok(Self { address: address.to_owned(), addresses, fingerprint, login })
    }

    /// The address, as `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Ports of the introducer.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.addresses.iter().map(SocketAddr::port)
    }

    /// The way to a listener that registers under this name, for its tickets.
    pub(crate) fn introduction(&self, name: [u8; 16]) -> Introduction {
        Introduction { address: self.address.clone(), fingerprint: self.fingerprint, name }
    }
}
