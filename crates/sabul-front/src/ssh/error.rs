//! Why there is no sabul at the other end of ssh.

use std::fmt;

use sabul::{Error, ErrorKind};

/// Why there is no sabul at the other end of ssh: what happened, where, and what to do.
#[derive(Debug)]
pub struct SshError {
    kind: ErrorKind,
    message: String,
}

impl SshError {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What kind of failure this is.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for SshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SshError {}

impl From<Error> for SshError {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}
