//! What can go wrong with a device.

use std::{fmt, io};

/// A device could not be had.
#[derive(Debug)]
pub struct TunError {
    /// What was tried, as in "cannot ...".
    pub action: String,
    /// What the system said.
    pub source: io::Error,
    /// What to change, as a sentence; empty where nothing is known to help.
    pub remedy: String,
}

impl fmt::Display for TunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.action, self.source)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

impl std::error::Error for TunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
