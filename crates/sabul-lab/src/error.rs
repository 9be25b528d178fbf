//! What can go wrong with a lab.

use std::{fmt, io};

use sabul_tun::TunError;

/// A lab could not be made, or could not do what was asked of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// The system does not let us make hosts.
    NotAllowed {
        /// What was tried.
        action: String,
        /// What the system said.
        source: io::Error,
        /// What to change, as a sentence.
        remedy: String,
    },
    /// The system failed at something that it usually does.
    System {
        /// What was tried, as in "cannot ...".
        action: String,
        /// What the system said.
        source: io::Error,
    },
    /// The scenario asks for what the lab cannot do.
    CannotCarry(String),
    /// A program in a host failed, or could not be started.
    Program(String),
    /// A flow of the scenario failed.
    Flow {
        /// Its name.
        id: String,
        /// Why.
        why: String,
    },
    /// Somebody asked for an early end.
    Interrupted,
}

impl LabError {
    /// A failure of the system at `action`, as in "cannot ...".
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
