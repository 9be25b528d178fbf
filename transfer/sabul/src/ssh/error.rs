//! Errors of connections through ssh, and the settings that may remove their cause.

use crate::error::{Error, ErrorKind, SshSetting};

/// Returns an error; a change of one of `settings` may remove the cause.
pub(super) fn ssh_error(
    kind: ErrorKind,
    settings: &'static [SshSetting],
    message: impl Into<String>,
) -> Error {
    Error::Ssh { kind, message: message.into(), settings }
}
