//! Errors of the queue of a site.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::job::JobId;

/// Error of the queue of a site.
#[derive(Debug)]
#[non_exhaustive]
pub enum SiteError {
    /// The database does not answer, or has no room; a later call can succeed.
    Outage {
        /// The database.
        place: String,
        /// The cause.
        cause: String,
    },
    /// The connection was lost before the answer, so the action may have taken effect.
    Uncertain {
        /// The database.
        place: String,
        /// The cause.
        cause: String,
    },
    /// The database reported an error.
    Database {
        /// The database.
        place: String,
        /// The error.
        error: tokio_postgres::Error,
    },
    /// A newer version of the program created the tables.
    Newer {
        /// The database.
        place: String,
        /// Version of the tables.
        version: i32,
        /// Version of this program.
        ours: i32,
    },
    /// The database has another character encoding than UTF-8.
    Encoding {
        /// The database.
        place: String,
        /// Its encoding.
        encoding: String,
    },
    /// A row of the table has a state that this program does not have.
    Row(JobId, String),
    /// A file of the worker cannot be used.
    File(PathBuf, io::Error),
    /// A runtime or a thread cannot be created.
    Process(io::Error),
    /// The call needs a worker.
    NoWorker,
}

impl fmt::Display for SiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outage { place, cause } => write!(
                f,
                "the database of the queue, {place}, does not answer: {cause}; start the database, make room on its \
                 machine, or correct the address of --store"
            ),
            Self::Uncertain { place, cause } => write!(
                f,
                "the connection to the database of the queue, {place}, was lost before the answer ({cause}); 'sabul \
                 queue list' shows whether the command took effect"
            ),
            Self::Database { place, error } => {
                write!(f, "the database of the queue, {place}, refused: {}", cause_of(error))
            }
            Self::Newer { place, version, ours } => write!(
                f,
                "the tables of the queue in {place} have version {version}, and this program uses version {ours}; \
                 use the newer sabul"
            ),
            Self::Encoding { place, encoding } => write!(
                f,
                "the database {place} has the encoding {encoding}; create a database for the queue with: createdb -E UTF8"
            ),
            Self::Row(id, word) => write!(
                f,
                "job {id} has the unknown state '{word}'; use the version of sabul that wrote it"
            ),
            Self::File(path, error) => {
                write!(f, "cannot use '{}' of the worker: {error}", path.display())
            }
            Self::Process(error) => write!(f, "cannot start a task: {error}"),
            Self::NoWorker => f.write_str("this process is no worker; use 'sabul queue run'"),
        }
    }
}

impl std::error::Error for SiteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Database { error, .. } => Some(error),
            Self::File(_, error) | Self::Process(error) => Some(error),
            _ => None,
        }
    }
}

impl From<tokio_postgres::Error> for SiteError {
    fn from(error: tokio_postgres::Error) -> Self {
        let place = String::new();
        if is_outage(&error) {
            return Self::Outage { place, cause: cause_of(&error) };
        }
        Self::Database { place, error }
    }
}

impl SiteError {
    /// Whether a later call can succeed.
    pub const fn is_outage(&self) -> bool {
        matches!(self, Self::Outage { .. })
    }

    /// Whether the database was unreachable during the call.
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Outage { .. } | Self::Uncertain { .. })
    }

    /// Error of a call without an answer in time.
    pub(super) fn late(limit: Duration) -> Self {
        let cause = format!("no answer within {:.1} s", limit.as_secs_f64());
        Self::Outage { place: String::new(), cause }
    }

    /// Adds the database to the error.
    pub(super) fn at(mut self, name: &str) -> Self {
        if let Self::Outage { place, .. }
        | Self::Database { place, .. }
        | Self::Newer { place, .. }
        | Self::Encoding { place, .. } = &mut self
        {
            name.clone_into(place);
        }
        self
    }
}

/// Whether the error is that of a connection, or of a database that starts, stops, is a standby, or lacks disk space,
/// memory, files or connections.
fn is_outage(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => is_outage_code(code),
        None => {
            error.is_closed()
                || has_io_cause(error)
                || error.to_string().starts_with("error connecting")
        }
    }
}

fn is_outage_code(code: &SqlState) -> bool {
    // Connection exception, insufficient resources, and errors of the system. [PostgreSQL 15, appendix A]
    ["08", "53", "58"].iter().any(|class| code.code().starts_with(class))
        || [
            SqlState::QUERY_CANCELED,
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::IDLE_SESSION_TIMEOUT,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::READ_ONLY_SQL_TRANSACTION,
        ]
        .contains(code)
}

fn has_io_cause(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<io::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns the message of an error with its causes.
fn cause_of(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
