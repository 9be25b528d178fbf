//! Why an operation in a jail failed, in words for whoever asked for it.

use std::{fmt, io};

use rustix::io::Errno;

use super::path::NameFault;
use crate::error::os_text;

/// Why an operation in a jail failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum JailError {
    /// A name that no entry of a folder can have.
    BadName {
        /// The name, made printable and cut.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// A symbolic link on the way leads out of the jail.
    Escapes(String),
    /// A symbolic link is in the way where none is followed, or links lead in circles.
    Link(String),
    /// Another name shares the file (a hard link), so writing to it could change another file.
    Shared(String),
    /// The operation is for files, and this is a folder.
    IsADirectory(String),
    /// The operation is for folders, and this (or something above it) is none.
    NotADirectory(String),
    /// Neither a plain file nor a folder.
    NotAFile(String),
    /// A rename from one folder to another.
    OtherFolder {
        /// The part file.
        from: String,
        /// Its final name.
        to: String,
    },
    /// The system refused.
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On what.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

impl JailError {
    /// Whether the only fault is that the thing does not exist.
    pub fn is_not_found(&self) -> bool {
        self.io_kind() == Some(io::ErrorKind::NotFound)
    }

    /// The kind of the system's error, if it is one: no space, no permission and so on.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.io_error().map(io::Error::kind)
    }

    /// The system's error, if it is one.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl JailError {
    /// Why it failed, without the path.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Io { source, .. } => os_text(source),
            Self::BadName { .. } | Self::OtherFolder { .. } => self.to_string(),
            Self::Escapes(path)
            | Self::Link(path)
            | Self::Shared(path)
            | Self::IsADirectory(path)
            | Self::NotADirectory(path)
            | Self::NotAFile(path) => {
                let text = self.to_string();
                text.strip_prefix(&format!("{path}: ")).unwrap_or(&text).to_owned()
            }
        }
    }

    /// The path that it is about, relative to the jail.
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::BadName { name: path, .. }
            | Self::Escapes(path)
            | Self::Link(path)
            | Self::Shared(path)
            | Self::IsADirectory(path)
            | Self::NotADirectory(path)
            | Self::NotAFile(path)
            | Self::OtherFolder { from: path, .. }
            | Self::Io { path, .. } => path,
        }
    }
}

impl fmt::Display for JailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName { name, fault } => write!(f, "name '{name}' is refused: {fault}"),
            Self::Escapes(path) => {
                write!(f, "{path}: a symbolic link leads out of the served folder; not followed")
            }
            Self::Link(path) => write!(
                f,
                "{path}: a symbolic link is in the way; writing follows none: remove it, or name \
                 the place it leads to"
            ),
            Self::Shared(path) => {
                write!(f, "{path}: a hard link shares this file: remove it and start afresh")
            }
            Self::IsADirectory(path) => write!(f, "{path}: is a folder where a file is needed"),
            Self::NotADirectory(path) => {
                write!(f, "{path}: something that is not a folder is where one is needed")
            }
            Self::NotAFile(path) => {
                write!(f, "{path}: is a device, pipe or socket; only files and folders are moved")
            }
            Self::OtherFolder { from, to } => {
                write!(f, "cannot rename {from} to {to}: a part file keeps its folder")
            }
            Self::Io { operation, path, source } => {
                write!(f, "cannot {operation} '{path}': {}", os_text(source))
            }
        }
    }
}

impl std::error::Error for JailError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

pub(crate) fn fail(operation: &'static str, path: impl ToString, errno: Errno) -> JailError {
    let path = path.to_string();
    match errno {
        Errno::XDEV => JailError::Escapes(path),
        Errno::LOOP => JailError::Link(path),
        Errno::ISDIR => JailError::IsADirectory(path),
        Errno::NOTDIR => JailError::NotADirectory(path),
        errno => JailError::Io { operation, path, source: errno.into() },
    }
}
