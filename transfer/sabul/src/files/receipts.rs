//! Receipts: both ends of a copy hash its files and sign a statement about them.

pub use sabul_receipt::{
    Bag, BagError, CommandFacts, Draft, FileHashes, Finding, FolderError, Line, Lost, Manifests,
    PAYLOAD, Party, Place, Role, Signer, Statement, StatementError, Verified, has_only_receipt,
    is_receipt, names, verify,
};
pub use sabul_wire::control::{Part, ToHash};

pub use crate::config::Signing;
pub use crate::session::{Attestation, AttestedFiles};
pub use sabul_files::{ReceivedFiles, SentFiles};

use crate::keys::{Identities, ServerIdentity};

/// Adds the key of a server's certificate to the keys that can sign. Returns whether the key can be used.
pub fn add_identity(identities: &mut Identities, identity: &ServerIdentity) -> bool {
    identity.add_to(identities)
}
