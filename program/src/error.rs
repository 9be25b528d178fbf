//! Error type of the program.

use std::fmt;

use sabul::ssh::SshSetting;
use sabul::{ErrorKind, FailureCode};
use sabul_emu::LabError;
use sabul_router::RouterError;

use crate::exit::End;

/// Error message for the user, with the cause that determines the exit code.
#[derive(Debug)]
pub(crate) struct CliError {
    end: End,
    message: String,
    /// Failure code of the transfer, if a transfer failed.
    failure: Option<FailureCode>,
}

impl CliError {
    /// Error in usage or configuration.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Request, message)
    }

    /// Error of an attempted operation.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Failure, message)
    }

    /// Error of a login that cannot succeed.
    pub(crate) fn unauthenticated(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Authentication, message)
    }

    /// Error of a file that differs from its hash.
    pub(crate) fn unverified(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Verification, message)
    }

    /// Error of a transfer below the minimum rate.
    pub(crate) fn too_slow(message: impl Into<String>) -> Self {
        Self { end: End::Slow, message: message.into(), failure: None }
    }

    /// Error of a lost connection.
    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Unreachable, message)
    }

    /// Error of a file that cannot be written.
    #[cfg(feature = "join")]
    pub(crate) fn destination(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Destination, message)
    }

    /// Error of an interrupted command.
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self::of(ErrorKind::Interrupt, message)
    }

    fn of(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { end: End::Error(kind), message: message.into(), failure: None }
    }

    /// Replaces the message.
    pub(crate) fn in_words(self, message: String) -> Self {
        Self { message, ..self }
    }

    /// Returns the cause.
    pub(crate) const fn end(&self) -> End {
        self.end
    }

    /// Returns the failure code of the transfer, if a transfer failed.
    pub(crate) const fn failure_code(&self) -> Option<FailureCode> {
        self.failure
    }

    /// Whether the other end does not permit the request.
    pub(crate) fn is_refusal(&self) -> bool {
        self.failure == Some(FailureCode::Refused)
    }

    /// Whether the other end cannot be reached any more.
    pub(crate) const fn is_lost(&self) -> bool {
        matches!(self.end, End::Error(ErrorKind::Unreachable))
    }

    /// Returns the exit code.
    pub(crate) const fn code(&self) -> u8 {
        self.end.code()
    }
}

impl fmt::Display for CliError {
    /// Writes the first line, then each further line indented.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.message.lines().map(str::trim).filter(|line| !line.is_empty());
        f.write_str(&without_number(lines.next().unwrap_or("failed")))?;
        lines.try_for_each(|line| write!(f, "\n  {}", without_number(line)))
    }
}

/// Removes the errno number that Rust appends to system error messages.
fn without_number(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => out += rest,
            _ => out += &format!(" (os error {part}"),
        }
    }
    out
}

impl std::error::Error for CliError {}

impl From<sabul::Error> for CliError {
    fn from(error: sabul::Error) -> Self {
        let message = match &error {
            sabul::Error::Ssh { settings: [first, rest @ ..], .. } => {
                let others = rest.iter().map(|setting| format!(" and {}", flag(*setting)));
                format!("{error}; see {}{}", flag(*first), others.collect::<String>())
            }
            _ => error.to_string(),
        };
        Self { failure: Some(error.code()), ..Self::of(error.kind(), message) }
    }
}

/// Returns the flag for a setting of a connection through ssh.
const fn flag(setting: SshSetting) -> &'static str {
    match setting {
        SshSetting::Command => "--ssh",
        SshSetting::RemoteProgram => "--remote-sabul",
        SshSetting::Upload => "--push[=FILE]",
        SshSetting::Ports => "--ports",
        SshSetting::Carrier => "--carrier",
        _ => "the flags for hosts reached through ssh",
    }
}

impl From<LabError> for CliError {
    fn from(error: LabError) -> Self {
        sabul_study::Error::from(error).into()
    }
}

impl From<RouterError> for CliError {
    fn from(error: RouterError) -> Self {
        let of = if error.is_request() { Self::usage } else { Self::failed };
        of(error.to_string())
    }
}

impl From<sabul_study::Error> for CliError {
    fn from(error: sabul_study::Error) -> Self {
        Self { end: error.cause().into(), message: error.to_string(), failure: None }
    }
}

impl From<sabul_cc::ConfigError> for CliError {
    fn from(error: sabul_cc::ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<sabul_cc::registry::UnknownController> for CliError {
    fn from(error: sabul_cc::registry::UnknownController) -> Self {
        Self::usage(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_list_keeps_its_lines() {
        assert_eq!(CliError::failed("a\n\n  b\n").to_string(), "a\n  b");
        assert_eq!(CliError::failed("").to_string(), "failed");
        let text = "cannot read 'a': No such file or directory (os error 2); look (os error) there";
        let shown = "cannot read 'a': No such file or directory; look (os error) there";
        assert_eq!(CliError::failed(text).to_string(), shown);
    }

    #[test]
    fn lab_permission_errors_are_configuration_errors_and_the_rest_failures() {
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
}
