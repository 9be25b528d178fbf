//! Errors of operations in a sandbox, with messages for the user.

use std::{fmt, io};

use rustix::io::Errno;

use super::path::NameFault;
use crate::system::os_text;

/// Reason why an operation in a sandbox failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum RootError {
    /// A name that is invalid for an entry of a folder.
    BadName {
        /// The name, made printable and shortened.
        name: String,
        /// The flaw of the name.
        fault: NameFault,
    },
    /// A symbolic link in the path leads out of the sandbox.
    Escapes(String),
    /// A symbolic link where no link is followed, or a loop of links.
    Link(String),
    /// The file has other hard links, so writing to it could change another file.
    Shared(String),
    /// Other users can change the file or its name, or it has changed.
    Foreign(String),
    /// The operation is for files, and the path is a folder.
    IsADirectory(String),
    /// The operation is for folders, and the path or one of its parents is not a folder.
    NotADirectory(String),
    /// The path is neither a regular file nor a folder.
    NotAFile(String),
    /// The system returned an error.
    Io {
        /// The failed operation, as a verb.
        operation: &'static str,
        /// The path of the operation.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl RootError {
    /// Whether the error means only that the path does not exist.
    pub fn is_not_found(&self) -> bool {
        self.io_kind() == Some(io::ErrorKind::NotFound)
    }

    /// The kind of the system error, if there is one: no space, no permission and so on.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.io_error().map(io::Error::kind)
    }

    /// The system error, if there is one.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl RootError {
    /// The reason, without the path.
    pub fn reason(&self) -> String {
        let reason = match self {
            Self::Io { source, .. } => return os_text(source),
            Self::BadName { .. } => return self.to_string(),
            Self::Escapes(_) => "a symbolic link leads out of the served folder; not followed",
            Self::Link(_) => {
                "a symbolic link is in the way; writing follows none: remove it, or name the place \
                 it leads to"
            }
            Self::Shared(_) => "a hard link shares this file: remove it and start afresh",
            Self::Foreign(_) => "other users can change this file, or it has changed",
            Self::IsADirectory(_) => "is a folder where a file is needed",
            Self::NotADirectory(_) => "something that is not a folder is where one is needed",
            Self::NotAFile(_) => "is a device, pipe or socket; only files and folders are moved",
        };
        reason.to_owned()
    }

    /// The path of the error, relative to the sandbox.
    pub fn path(&self) -> &str {
        match self {
            Self::BadName { name: path, .. }
            | Self::Escapes(path)
            | Self::Link(path)
            | Self::Shared(path)
            | Self::Foreign(path)
            | Self::IsADirectory(path)
            | Self::NotADirectory(path)
            | Self::NotAFile(path)
            | Self::Io { path, .. } => path,
        }
    }
}

impl fmt::Display for RootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName { name, fault } => write!(f, "name '{name}' is refused: {fault}"),
            Self::Io { operation, path, source } => {
                write!(f, "cannot {operation} '{path}': {}", os_text(source))
            }
            _ => write!(f, "{}: {}", self.path(), self.reason()),
        }
    }
}

impl std::error::Error for RootError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

pub(crate) fn fail(operation: &'static str, path: impl ToString, errno: Errno) -> RootError {
    let path = path.to_string();
    match errno {
        Errno::XDEV => RootError::Escapes(path),
        Errno::LOOP => RootError::Link(path),
        Errno::ISDIR => RootError::IsADirectory(path),
        Errno::NOTDIR => RootError::NotADirectory(path),
        errno => RootError::Io { operation, path, source: errno.into() },
    }
}
