//! Why an experiment has no result.

use std::fmt;

use sabul_lab::LabError;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// What was asked for cannot be meant or done as it is: ask otherwise.
    Request,
    /// It was tried and went wrong.
    Failure,
    /// A person stopped it.
    Interrupt,
    /// A program that it started ended with this code.
    Program(u8),
}

/// One sentence for the user, and its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    cause: Cause,
    message: String,
}

impl Error {
    /// What was asked for cannot be meant or done as it is.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { cause: Cause::Request, message: message.into() }
    }

    /// It was tried and went wrong.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { cause: Cause::Failure, message: message.into() }
    }

    /// A person stopped it.
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self { cause: Cause::Interrupt, message: message.into() }
    }

    /// A program that it started failed, with this code if it told one.
    pub(crate) fn of_program(code: Option<u8>, message: impl Into<String>) -> Self {
        let code = code.filter(|&code| code > 0);
        Self { cause: code.map_or(Cause::Failure, Cause::Program), message: message.into() }
    }

    /// Whose turn it is.
    pub const fn cause(&self) -> Cause {
        self.cause
    }

    /// The same cause in other words.
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
    fn what_the_lab_may_not_or_cannot_do_is_a_matter_of_the_request() {
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
