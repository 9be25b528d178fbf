//! Limits shared by all parts of messages.

use crate::bytes::{DecodeError, Reason};

/// Longest body of any message, in bytes; [`body_limit`] is lower for most kinds.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Longest body of a greeting other than those of [`MAX_LOGIN`], in bytes.
pub const MAX_GREETING: usize = 1 << 10;
/// Longest body of an offer of keys or of a login, in bytes: the signature of an RSA key of 8192 bits takes 2.2 kB.
pub const MAX_LOGIN: usize = 4 << 10;
/// Longest body of a request, in bytes. Ours: 4096 sources of 60 bytes each.
pub const MAX_OPEN: usize = 256 << 10;
/// Longest body of any other message, in bytes: the largest report takes 4.1 kB.
pub const MAX_SMALL: usize = 8 << 10;
/// Longest body of a [`Have`](super::Message::Have), in bytes.
pub const MAX_HAVE: usize = 256 << 10;
/// Longest body of a [`Names`](super::Message::Names), in bytes.
pub const MAX_NAMES_BODY: usize = 256 << 10;
/// Longest body of a [`Chunks`](super::Message::Chunks), in bytes.
pub const MAX_CHUNKS_BODY: usize = 128 << 10;
/// Longest statement of a receipt, in bytes.
pub const MAX_STATEMENT: usize = 32 << 10;
/// Longest text of a failure, in bytes; longer texts lose their middle.
pub const MAX_TEXT: usize = 1 << 10;
/// Longest path of a file, in bytes; the limit of Linux.
pub const MAX_NAME: usize = 4096;
/// Longest name or value of a setting, and longest name of a program, in bytes.
pub const MAX_WORD: usize = 256;
/// Assumed memory use of each list item besides its bytes.
pub(super) const ITEM: usize = 96;

/// Returns the longest body, in bytes, of a message whose body begins with the byte `kind`; never 0.
pub const fn body_limit(kind: u8) -> usize {
    match kind {
        HELLO | WELCOME | JOIN | CHOOSE | RESUME | RESUMED | REGISTER | CALL => MAX_GREETING,
        OFFER | LOGIN => MAX_LOGIN,
        OPEN => MAX_OPEN,
        SEEN | DELTA | HASHED | PACKED => MAX_MESSAGE,
        CHUNKS => MAX_CHUNKS_BODY,
        HAVE => MAX_HAVE,
        NAMES | TO_HASH => MAX_NAMES_BODY,
        // The text, its length, and the number of the request.
        STATEMENT => MAX_STATEMENT + 16,
        _ => MAX_SMALL,
    }
}

/// Returns the length of the body that follows a length prefix.
///
/// # Errors
/// If the length is zero or over [`MAX_MESSAGE`]: the peer is broken or not sabul.
pub fn body_length(prefix: [u8; 4]) -> Result<usize, DecodeError> {
    match usize::try_from(u32::from_be_bytes(prefix)) {
        Ok(length) if (1..=MAX_MESSAGE).contains(&length) => Ok(length),
        _ => Err(DecodeError { offset: 0, reason: Reason::TooLong }),
    }
}

/// First byte of a compressed body; no message has this kind.
pub const PACKED: u8 = 255;

/// Whether messages of this kind carry lists, which may be compressed.
pub const fn is_list(kind: u8) -> bool {
    matches!(kind, OPEN | SEEN | HAVE | NAMES | TO_HASH)
}

/// Positions of variants in [`super::Message`]; postcard writes the position as the first byte.
pub(super) const HELLO: u8 = 0;
const WELCOME: u8 = 1;
const OPEN: u8 = 2;
const HAVE: u8 = 4;
const SEEN: u8 = 6;
const JOIN: u8 = 20;
const OFFER: u8 = 24;
const CHOOSE: u8 = 25;
const LOGIN: u8 = 26;
const NAMES: u8 = 27;
const RESUME: u8 = 28;
const RESUMED: u8 = 29;
const CHUNKS: u8 = 31;
const DELTA: u8 = 32;
const TO_HASH: u8 = 33;
const HASHED: u8 = 34;
const STATEMENT: u8 = 35;
const REGISTER: u8 = 37;
const CALL: u8 = 39;
