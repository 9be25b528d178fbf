//! Failures: class and text of a cause, in a form that crosses the wire.
//!
//! The wire carries the text only. A text about a file therefore has a fixed form, which this module
//! writes and reads: `cannot ACTION 'PATH': REASON`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::bounds;
use super::limits::MAX_TEXT;

/// End of the text about a file that may not be replaced.
const EXISTS: &str = " exists; leave out -n to replace it";

/// Cause of a failure, in a form that crosses the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Class of the failure; determines the exit code.
    pub code: FailureCode,
    /// Text for users: what failed, where, and what to do. At most [`MAX_TEXT`] bytes cross the wire.
    #[serde(
        serialize_with = "bounds::short::<_, MAX_TEXT>",
        deserialize_with = "bounds::text::<_, MAX_TEXT>"
    )]
    pub message: String,
}

/// Classes of failure. New classes are added at the end: the position is the wire code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureCode {
    /// The peer violated the protocol.
    Protocol,
    /// The two ends support no common version.
    Version,
    /// The secret is wrong.
    Authentication,
    /// The listener does not allow the operation.
    Refused,
    /// The source does not exist.
    NotFound,
    /// The source cannot be read.
    Unreadable,
    /// The source changed or shrank while it was read.
    Changed,
    /// No permission at the destination.
    Permission,
    /// No space at the destination.
    NoSpace,
    /// The destination cannot be written for another reason.
    Unwritable,
    /// The content does not match its hash.
    Verification,
    /// UDP does not pass between the two ends.
    UdpBlocked,
    /// The peer sent nothing for too long.
    Timeout,
    /// A user stopped the operation.
    Cancelled,
    /// This end does not support a setting or its value.
    BadSetting,
    /// Internal error of this program.
    Internal,
}

impl FailureCode {
    /// The name of the class in documents and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Version => "version",
            Self::Authentication => "authentication",
            Self::Refused => "refused",
            Self::NotFound => "not-found",
            Self::Unreadable => "unreadable",
            Self::Changed => "changed",
            Self::Permission => "permission",
            Self::NoSpace => "no-space",
            Self::Unwritable => "unwritable",
            Self::Verification => "verification",
            Self::UdpBlocked => "udp-blocked",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::BadSetting => "bad-setting",
            Self::Internal => "internal",
        }
    }
}

/// Parts of a failure's text that names an action on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAction<'a> {
    /// The action, such as `read` or `write`.
    pub action: &'a str,
    /// Path of the file, printable.
    pub path: &'a str,
    /// Reason and advice.
    pub reason: &'a str,
}

impl fmt::Display for FileAction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} '{}': {}", self.action, self.path, self.reason)
    }
}

impl Failure {
    /// Makes a failure of this class.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Makes the failure of an action on a file. The path must be printable.
    pub fn of_file(
        code: FailureCode,
        action: &str,
        path: impl fmt::Display,
        reason: impl fmt::Display,
    ) -> Self {
        let (path, reason) = (path.to_string(), reason.to_string());
        Self::new(code, FileAction { action, path: &path, reason: &reason }.to_string())
    }

    /// Makes the failure of a peer that violated the protocol.
    pub fn violation(what: impl fmt::Display) -> Self {
        let message = format!(
            "the peer violated the protocol: {what}; report this error if the peer is sabul of the same version"
        );
        Self::new(FailureCode::Protocol, message)
    }

    /// Makes the failure of an action that may not replace the file at this printable path.
    pub fn existing(path: impl fmt::Display) -> Self {
        Self::new(FailureCode::Unwritable, format!("'{path}'{EXISTS}"))
    }

    /// Returns whether [`Self::existing`] made this failure, here or at the peer.
    pub fn is_existing(&self) -> bool {
        self.code == FailureCode::Unwritable && self.message.ends_with(EXISTS)
    }

    /// Returns the parts of a text made by [`Self::of_file`].
    pub fn file_action(&self) -> Option<FileAction<'_>> {
        let (action, rest) = self.message.strip_prefix("cannot ")?.split_once(" '")?;
        let (path, reason) = rest.split_once("': ")?;
        Some(FileAction { action, path, reason })
    }

    /// Returns whether the text names a file: a quoted path.
    pub fn names_file(&self) -> bool {
        self.message.contains('\'')
    }

    /// Returns the text with `machine:` before the path, or before a text without a path.
    pub fn on_machine(&self, machine: &str) -> String {
        match self.message.split_once('\'') {
            Some((front, rest)) => format!("{front}'{machine}:{rest}"),
            None => format!("{machine}: {}", self.message),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_file_action_has_its_parts_again() {
        for path in ["a", "d/it's", "x: y"] {
            let failure = Failure::of_file(FailureCode::Unreadable, "read", path, "no; try: again");
            let parts = FileAction { action: "read", path, reason: "no; try: again" };
            assert_eq!(failure.file_action(), Some(parts), "{failure}");
            assert!(failure.names_file());
        }
        assert!(Failure::existing("a").is_existing());
        assert!(!Failure::new(FailureCode::Unwritable, "'a' exists").is_existing());
        let other = Failure::new(FailureCode::Changed, "'a' grew");
        assert_eq!(other.file_action(), None);
        assert_eq!(other.on_machine("far"), "'far:a' grew");
        let plain = Failure::new(FailureCode::Changed, "it grew");
        assert_eq!(plain.on_machine("far"), "far: it grew");
        assert!(!plain.names_file());
    }
}
