//! Names of the files of a receipt.

/// Manifest of SHA-256.
pub const SHA256: &str = "manifest-sha256.txt";
/// Manifest of BLAKE3.
pub const BLAKE3: &str = "manifest-blake3.txt";
/// Statement.
pub const STATEMENT: &str = "receipt.json";
/// Signature of the receiver.
pub const RECEIVER: &str = "receipt.json.sig";
/// Signature of the sender.
pub const SENDER: &str = "receipt.json.sender.sig";
/// Keys of both ends.
pub const SIGNERS: &str = "allowed_signers";
/// All files of a receipt.
pub(crate) const ALL: [&str; 6] = [SHA256, BLAKE3, STATEMENT, RECEIVER, SENDER, SIGNERS];
