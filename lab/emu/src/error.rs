//! Errors of a lab.

use std::{fmt, io};

use sabul_tun::TunError;

/// A lab could not be made, or an operation of a lab failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// The system denies the rights for making hosts.
    NotAllowed {
        /// Attempted action.
        action: String,
        /// Error of the system.
        source: io::Error,
        /// Remedy, as a sentence.
        remedy: String,
    },
    /// Unexpected failure of the system.
    System {
        /// Attempted action, as in "cannot ...".
        action: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The scenario has a setting that the lab does not support.
    CannotCarry(String),
    /// A program in a host failed, or could not be started.
    Program(String),
    /// A flow of the scenario failed.
    Flow {
        /// Name of the flow.
        id: String,
        /// Reason.
        why: String,
    },
    /// An early end was requested.
    Interrupted,
}

impl LabError {
    /// Returns a function that makes [`Self::System`] of an error at `action`, as in "cannot ...".
    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::System { action, source }
    }
}

impl From<TunError> for LabError {
    fn from(error: TunError) -> Self {
        let TunError { action, source, remedy } = error;
        if remedy.is_empty() {
            return Self::System { action, source };
        }
        Self::NotAllowed { action, source, remedy }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed { action, source, remedy } => {
                write!(f, "the lab cannot {action}: {source}; {remedy}")
            }
            Self::System { action, source } => write!(f, "the lab cannot {action}: {source}"),
            Self::CannotCarry(why) => write!(f, "the lab cannot carry this scenario: {why}"),
            Self::Program(why) => f.write_str(why),
            Self::Flow { id, why } => write!(f, "flow '{id}' failed: {why}"),
            Self::Interrupted => f.write_str("interrupted; nothing was measured"),
        }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotAllowed { source, .. } | Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}
