//! Access to a standing listener, and its authenticated peers.

use std::sync::Arc;

use sabul_keys::{AuthorizedKeys, Grant, NamedTickets};

use crate::tls::Identity;

/// Access to a standing listener: its identity, which later runs keep, and the keys that it accepts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StandingAccess {
    /// Key and certificate of the listener.
    pub identity: Arc<Identity>,
    /// Accepted keys.
    pub keys: Option<AuthorizedKeys>,
    /// Accepted named tickets.
    pub tickets: Option<NamedTickets>,
    /// Also accept the ticket of this run, [`Listener::ticket`](crate::Listener::ticket).
    pub run_ticket: bool,
}

impl StandingAccess {
    /// Access with this identity, for nobody yet.
    pub fn new(identity: Identity) -> Self {
        Self { identity: Arc::new(identity), keys: None, tickets: None, run_ticket: false }
    }
}

setters!(StandingAccess {
    keys: Option<AuthorizedKeys>,
    tickets: Option<NamedTickets>,
    run_ticket: bool,
});

/// A peer that a listener authenticated by a key or a named ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// The key by its fingerprint, or the ticket by its name, for logs.
    pub name: String,
    /// Limits of the user.
    pub grant: Arc<Grant>,
}
