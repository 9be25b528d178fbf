//! Access to a standing listener, and its authenticated peers.

use std::path::PathBuf;
use std::sync::Arc;

use sabul_content::Printable;
use sabul_files::root::{RootDir, RootPath};
use sabul_keys::{AuthorizedKeys, Grant, NamedTickets, Right};
use sabul_wire::control::{Failure, FailureCode};

use crate::passes::Pass;
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
    /// Served directory. A use of a ticket counts only if the ticket's own directory below can be opened.
    pub root: Option<PathBuf>,
}

impl StandingAccess {
    /// Access with this identity, for nobody yet.
    pub fn new(identity: Identity) -> Self {
        let identity = Arc::new(identity);
        Self { identity, keys: None, tickets: None, run_ticket: false, root: None }
    }
}

setters!(StandingAccess {
    keys: Option<AuthorizedKeys>,
    tickets: Option<NamedTickets>,
    run_ticket: bool,
    root: Option<PathBuf>,
});

/// Start of the name of a user with a ticket; the name of the ticket follows.
const TICKET: &str = "ticket ";

/// A peer that a listener authenticated by a key or a named ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// The key by its fingerprint, or the ticket by its name, for logs.
    pub name: String,
    /// Limits of the user.
    pub grant: Arc<Grant>,
    /// The only request, for the holder of a pass.
    pub(crate) pass: Option<Arc<Pass>>,
}

impl User {
    /// The holder of a ticket of this name.
    pub(crate) fn of_ticket(ticket: &str, grant: Arc<Grant>) -> Self {
        Self { name: format!("{TICKET}{ticket}"), grant, pass: None }
    }

    /// Whether the user may read content.
    pub(crate) fn may_read(&self) -> bool {
        self.grant.rights.allow(Right::Read)
    }

    /// Opens the part of the served directory that the user may access, which may block.
    ///
    /// # Errors
    /// If there is no such directory, or a link leads out of the served directory.
    pub(crate) fn open_root(&self, served: &RootDir) -> Result<RootDir, Failure> {
        let root = &self.grant.root;
        let path = RootPath::new(root.split(|&byte| byte == b'/'));
        path.and_then(|path| served.within(&path)).map_err(|error| {
            let whose = match self.name.strip_prefix(TICKET) {
                Some(ticket) => format!("the ticket '{ticket}'"),
                None => "your key".to_owned(),
            };
            let text = format!(
                "the directory '{}' of {whose} is not available: {error}; contact the listener's administrator",
                Printable(root)
            );
            Failure::new(FailureCode::Refused, text)
        })
    }
}
