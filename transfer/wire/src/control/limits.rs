//! Limits shared by all parts of messages.

/// Longest path of a file, in bytes; the limit of Linux.
pub const MAX_NAME: usize = 4096;
/// Longest name or value of a setting, and longest name of a program, in bytes.
pub const MAX_WORD: usize = 256;
/// Assumed memory use of each list item besides its bytes.
pub(super) const ITEM: usize = 96;
