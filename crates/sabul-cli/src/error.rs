//! What ends the program early, and with which exit code.

use std::fmt;

use sabul::{Failure, FailureCode};
use sabul_lab::LabError;
use sabul_study::Cause;

/// Exit code where some or all of the transfer failed.
pub(crate) const FAILED: u8 = 1;
/// Exit code for usage and configuration.
pub(crate) const USAGE: u8 = 2;
/// Exit code where content does not match its hash.
pub(crate) const VERIFICATION: u8 = 5;
/// Exit code where a person stopped it.
pub(crate) const INTERRUPTED: u8 = 130;

/// One sentence for the user and the exit code that goes with it.
#[derive(Debug)]
pub(crate) struct CliError {
    code: u8,
    message: String,
}

impl CliError {
    /// What was asked for cannot be meant or done as it is.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into() }
    }

    /// It was tried and went wrong.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { code: FAILED, message: message.into() }
    }

    /// A person stopped it.
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self { code: INTERRUPTED, message: message.into() }
    }

    /// The same sentence with another exit code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// The exit code.
    pub(crate) const fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for CliError {
    /// One line, whatever the parts of the message brought along.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.message.lines().map(str::trim).filter(|line| !line.is_empty());
        f.write_str(lines.next().unwrap_or("failed"))?;
        lines.try_for_each(|line| write!(f, "; {line}"))
    }
}

impl std::error::Error for CliError {}

impl From<sabul::Error> for CliError {
    fn from(error: sabul::Error) -> Self {
        Self { code: error.exit_code(), message: error.to_string() }
    }
}

impl From<LabError> for CliError {
    fn from(error: LabError) -> Self {
        sabul_study::Error::from(error).into()
    }
}

impl From<sabul_study::Error> for CliError {
    fn from(error: sabul_study::Error) -> Self {
        let code = match error.cause() {
            Cause::Request => USAGE,
            Cause::Failure => FAILED,
            Cause::Interrupt => INTERRUPTED,
            Cause::Program(code) => code,
        };
        Self { code, message: error.to_string() }
    }
}

impl From<sabul_cc::ConfigError> for CliError {
    fn from(error: sabul_cc::ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

/// The exit code for the failures of single files: the gravest of theirs.
pub(crate) fn code_of_failures<'a>(failures: impl IntoIterator<Item = &'a Failure>) -> u8 {
    failures
        .into_iter()
        .map(|failure| match failure.code {
            FailureCode::Verification => 5,
            FailureCode::NoSpace | FailureCode::Permission => 6,
            _ => FAILED,
        })
        .max()
        .unwrap_or(FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_many_lines_becomes_one() {
        assert_eq!(CliError::failed("a\n\n  b\n").to_string(), "a; b");
        assert_eq!(CliError::failed("").to_string(), "failed");
    }

    #[test]
    fn what_the_lab_may_not_or_cannot_do_is_configuration_and_the_rest_failed() {
        let refused = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let not_allowed = LabError::NotAllowed {
            action: "make hosts".to_owned(),
            source: refused,
            remedy: "become root".to_owned(),
        };
        let error = CliError::from(not_allowed);
        assert_eq!(error.code(), 2);
        assert!(error.to_string().ends_with("become root"), "{error}");
        assert_eq!(CliError::from(LabError::CannotCarry("x".to_owned())).code(), 2);
        assert_eq!(CliError::from(LabError::Program("x".to_owned())).code(), 1);
        let flow = LabError::Flow { id: "a".to_owned(), why: "x".to_owned() };
        assert_eq!(CliError::from(flow).code(), 1);
        assert_eq!(CliError::from(LabError::Interrupted).code(), 130);
    }

    #[test]
    fn the_gravest_failure_of_a_file_decides_the_exit_code() {
        let failure = |code| Failure::new(code, "x");
        let [changed, space, content] =
            [FailureCode::Changed, FailureCode::NoSpace, FailureCode::Verification].map(failure);
        assert_eq!(code_of_failures([&changed]), 1);
        assert_eq!(code_of_failures([&changed, &content]), 5);
        assert_eq!(code_of_failures([&content, &space, &changed]), 6);
        assert_eq!(code_of_failures([]), 1);
    }
}
