//! What cannot be believed.

use std::fmt;

/// The peer's report cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerError(pub &'static str);

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for PeerError {}
