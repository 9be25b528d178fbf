//! Errors of TUN devices.

use std::{fmt, io};

/// A device could not be opened.
#[derive(Debug)]
pub struct TunError {
    /// The failed action, as in "cannot ...".
    pub action: String,
    /// Error of the system.
    pub source: io::Error,
    /// Advice as a sentence; empty where no remedy is known.
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
