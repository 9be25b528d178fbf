//! Bounds that all parts of messages share.

/// Longest name of a file or place, in bytes; Linux refuses longer paths too.
pub const MAX_NAME: usize = 4096;
/// Longest name or value of a setting, and longest name of a program, in bytes.
pub const MAX_WORD: usize = 256;
/// What each item of a list is taken to need beside its bytes.
pub(super) const ITEM: usize = 96;
