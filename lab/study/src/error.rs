//! Errors of experiments.

use std::fmt;

use sabul_emu::LabError;

/// Cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The request is invalid or cannot be carried out; the user has to change the request.
    Request,
    /// An operation failed.
    Failure,
    /// A person interrupted the experiment.
    Interrupt,
    /// A child program ended with this exit code.
    Program(u8),
}

/// An error: one sentence for the user, and its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    cause: Cause,
    message: String,
}

impl Error {
    /// Returns an error with the cause [`Cause::Request`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self { cause: Cause::Request, message: message.into() }
    }

    /// Returns an error with the cause [`Cause::Failure`].
    pub fn failed(message: impl Into<String>) -> Self {
        Self { cause: Cause::Failure, message: message.into() }
    }

    /// Returns an error with the cause [`Cause::Interrupt`].
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self { cause: Cause::Interrupt, message: message.into() }
    }

    /// Returns an error for a failed child program, with its exit code if there is one.
    pub(crate) fn of_program(code: Option<u8>, message: impl Into<String>) -> Self {
        let code = code.filter(|&code| code > 0);
        Self { cause: code.map_or(Cause::Failure, Cause::Program), message: message.into() }
    }

    /// Returns the cause.
    pub const fn cause(&self) -> Cause {
        self.cause
    }

    /// Replaces the message and keeps the cause.
    #[must_use]
    pub(crate) fn in_words(self, message: String) -> Self {
        Self { message, ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<LabError> for Error {
    fn from(error: LabError) -> Self {
        let cause = match error {
            LabError::NotAllowed { .. } | LabError::CannotCarry(_) => Cause::Request,
            LabError::Interrupted => Cause::Interrupt,
            _ => Cause::Failure,
        };
        Self { cause, message: error.to_string() }
    }
}

impl From<sabul_cc::ConfigError> for Error {
    fn from(error: sabul_cc::ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<sabul_cc::registry::UnknownController> for Error {
    fn from(error: sabul_cc::registry::UnknownController) -> Self {
        Self::usage(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_errors_of_permission_or_capability_have_cause_request() {
        let not_allowed = LabError::NotAllowed {
            action: "make hosts".to_owned(),
            source: std::io::Error::from(std::io::ErrorKind::PermissionDenied),
            remedy: "become root".to_owned(),
        };
        let error = Error::from(not_allowed);
        assert_eq!(error.cause(), Cause::Request);
        assert!(error.to_string().ends_with("become root"), "{error}");
        for (error, cause) in [
            (LabError::CannotCarry("x".to_owned()), Cause::Request),
            (LabError::Program("x".to_owned()), Cause::Failure),
            (LabError::Flow { id: "a".to_owned(), why: "x".to_owned() }, Cause::Failure),
            (LabError::Interrupted, Cause::Interrupt),
        ] {
            assert_eq!(Error::from(error).cause(), cause);
        }
    }
}
