//! Error for a peer's impossible report.

use std::fmt;

/// The peer sent a report that cannot be true; the text names the contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerError(pub &'static str);

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for PeerError {}
