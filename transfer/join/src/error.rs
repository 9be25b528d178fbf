//! Errors of a join.

use std::{fmt, io};

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;

/// Cause of the end of a join.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// The request does not fit the tables: unknown column, key types that differ, bad condition.
    Refused(String),
    /// A table cannot be decoded.
    Table(String),
    /// A local file cannot be read or written.
    Io {
        /// The operation and its object.
        what: String,
        /// Error of the operating system.
        error: io::Error,
    },
    /// A source of batches ended without its end mark.
    Source(String),
}

impl JoinError {
    /// Returns a function that adds the operation to an I/O error.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) | Self::Table(text) | Self::Source(text) => f.write_str(text),
            Self::Io { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for JoinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<ArrowError> for JoinError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(what, error) => Self::Io { what, error },
            other => Self::Table(other.to_string()),
        }
    }
}

impl From<ParquetError> for JoinError {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(error) => Self::Io { what: "parquet".to_owned(), error: *error },
                Err(other) => Self::Table(other.to_string()),
            },
            other => Self::Table(other.to_string()),
        }
    }
}
