//! Error type of connections through ssh.

use std::fmt;

use crate::error::{Error, ErrorKind};

/// Error of a connection through ssh: what failed, on which host, and what to do.
#[derive(Debug)]
pub struct SshError {
    kind: ErrorKind,
    message: String,
}

impl SshError {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Returns the kind of the failure.
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

impl From<SshError> for Error {
    fn from(error: SshError) -> Self {
        Self::Ssh { kind: error.kind, message: error.message }
    }
}

impl From<Error> for SshError {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}
