//! Causes of the end of a session, with their messages.

use std::io;
use std::time::Duration;

use sabul_wire::control::{Failure, FailureCode};

use crate::connection::incoming::ReadError;
use crate::error::Error;

/// Why a session has ended, or why it never started.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// The peer or this side closed the session.
    Closed,
    /// The connection failed.
    Gone(String),
    /// The peer was silent for this long.
    Silent(Duration),
    /// The session had no transfer for this long.
    Idle(Duration),
    /// The peer ended the session with this failure.
    Reported(Failure),
    /// This side ended the session with this failure.
    Failure(Failure),
}

impl Ending {
    /// Converts a read error.
    pub(super) fn of(error: &ReadError) -> Self {
        match error {
            ReadError::Malformed(text) => Self::Failure(Failure::violation(text)),
            ReadError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Self::Gone("it was closed".to_owned())
            }
            ReadError::Io(error) => Self::Gone(error.to_string()),
        }
    }

    /// Returns the error for the operations that the end interrupts.
    pub(crate) fn to_error(&self) -> Error {
        match (self.failure(), self) {
            (Some(failure), _) => failure.into(),
            (None, Self::Gone(why)) => {
                let text = format!(
                    "the control connection to the peer broke ({why}); check that the peer still runs, \
                     and try again"
                );
                Error::PeerGone(text.into())
            }
            (None, _) => Error::PeerGone("the peer has closed the session".into()),
        }
    }

    /// Returns the failure, if the cause is not a close or a lost connection.
    pub(super) fn failure(&self) -> Option<Failure> {
        match self {
            Self::Closed | Self::Gone(_) => None,
            Self::Silent(time) => Some(Failure::new(
                FailureCode::Timeout,
                format!(
                    "the other end sent nothing for {:.0} s, not even an answer to pings: it \
                     was stopped, fell asleep or lost its network; check that it runs, and try again",
                    time.as_secs_f64()
                ),
            )),
            Self::Idle(time) => Some(Failure::new(
                FailureCode::Timeout,
                format!(
                    "the session had no transfer for {:.0} s and was ended; connect anew",
                    time.as_secs_f64()
                ),
            )),
            Self::Reported(failure) | Self::Failure(failure) => Some(failure.clone()),
        }
    }
}
