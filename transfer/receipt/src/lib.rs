//! Receipts of copies: manifests of files, a statement that both ends sign, and its verification.
//!
//! A receipt is a directory:
//!
//! ```text
//! manifest-sha256.txt     as `sha256sum -c` reads it; paths relative to the copied root
//! manifest-blake3.txt     as `b3sum -c` reads it
//! receipt.json            in-toto Statement v1: hashes of both manifests, and facts of both ends
//! receipt.json.sig        SSHSIG of the receiver, for content that is durable
//! receipt.json.sender.sig SSHSIG of the sender, for content that it read
//! allowed_signers         the keys of both, as `ssh-keygen -Y verify` reads them
//! ```
//!
//! Sources: in-toto Statement v1, PROTOCOL.sshsig, RFC 8493 (BagIt).
//! Not here:    reading the files of a copy at its two ends, and the messages between the ends.

mod bag;
mod folder;
mod hashes;
mod manifest;
pub mod names;
mod place;
mod signer;
mod statement;
mod verify;

pub use bag::{Bag, BagError, PAYLOAD, Payload};
pub use folder::{Draft, FolderError};
pub use hashes::{FileHasher, FileHashes};
pub use manifest::{Line, LineError, Manifests};
pub use place::Place;
pub use signer::{Signer, here};
pub use statement::{
    CommandFacts, Lost, Party, Predicate, Role, Statement, StatementError, Subject,
};
pub use verify::{Finding, Verified, has_only_receipt, is_receipt, verify};
