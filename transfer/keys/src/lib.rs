//! Standing keys: the ssh keys of users as identities, and the files that name them.
//!
//! A client signs a value that TLS exports from its connection, in the format SSHSIG [PROTOCOL.sshsig]. The key is
//! a file of `~/.ssh` or a key of an ssh agent. The server finds the key in a file in the form of `authorized_keys`,
//! which also limits the rights of the key. The client finds the fingerprint of the server in its own list.
//!
//! Formats come from the crate `ssh-key`; signatures are made and verified by aws-lc-rs.
//!
//! Not here: the connection and its messages (`sabul`).

mod agent;
mod armor;
mod authorized;
mod expiry;
mod fingerprint;
mod grant;
mod guard;
mod hosts;
mod identities;
mod origin;
mod private;
mod signature;
mod tickets;
mod wire;

pub use armor::{armored, from_armor};
pub use authorized::{AuthorizedKeys, KeyLine};
pub use expiry::Expiry;
pub use fingerprint::Fingerprint;
pub use grant::{Grant, Right, Rights};
pub use guard::{FileError, read_guarded, write_private};
pub use hosts::KnownHosts;
pub use identities::{Identities, Search, SignError};
pub use origin::Origins;
pub use signature::{SignatureError, verify};
pub use tickets::{NamedTicket, NamedTickets};

/// Namespace of the signatures that begin a session.
pub const SESSION_NAMESPACE: &str = "sabul-session@v1";
/// Namespace of the signatures of receipts.
pub const RECEIPT_NAMESPACE: &str = "sabul-receipt@v1";
