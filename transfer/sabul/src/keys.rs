//! Standing keys: sessions with a server that keeps its identity, authenticated by ssh keys.
//!
//! ```no_run
//! use std::sync::Arc;
//! use sabul::keys::{self, Identities, KnownHosts, Search};
//!
//! # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
//! let hosts = KnownHosts::at("known_hosts");
//! let server = hosts.find("far:4850")?.ok_or("not trusted yet")?;
//! let identities = Arc::new(Identities::find(&Search::of_user(None)));
//! let session = keys::connect("far:4850", server, &identities, sabul::ConnectConfig::default()).await?;
//! # session.close().await;
//! # Ok(())
//! # }
//! ```

pub use sabul_keys::{
    AuthorizedKeys, Expiry, FileError, Fingerprint, Grant, Identities, KeyLine, KnownHosts,
    NamedTicket, NamedTickets, Origins, Right, Rights, Search, SignError, read_guarded,
    write_private,
};

/// Verifies a signature of a receipt, and returns the fingerprint of its key.
///
/// # Errors
/// If the signature is not by its key over this text.
pub fn verify_receipt(
    text: &[u8],
    signature: &[u8],
) -> Result<Fingerprint, sabul_keys::SignatureError> {
    sabul_keys::verify(sabul_keys::RECEIPT_NAMESPACE, text, signature)
}

pub use crate::access::{StandingAccess, User};
pub use crate::connector::{connect_by_key as connect, fingerprint_at};
pub use crate::tls::Identity as ServerIdentity;
