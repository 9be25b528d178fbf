//! Files at both ends of a transfer.
//!
//! The sending end walks its sources and fills blocks ([`SourceSet`], [`send_files`]); the
//! receiving end joins blocks and messages and writes files ([`FileReceiver`]) or one stream
//! ([`StreamReceiver`]). Which bytes belong to which entry is `sabul-transfer`'s business; here are
//! the system calls. Everything blocks, so it belongs on threads of its own.

mod destination;
mod group;
pub(crate) mod part;
mod prompt;
mod receive;
mod send;
mod source;
mod stream;

use std::io;

use rustix::io::Errno;
use sabul_transfer::Printable;
use sabul_wire::control::{Failure, FailureCode, Message};

use crate::jail::JailError;

pub use destination::{Destination, FileReceiver, FileSink, local_destination};
pub(crate) use prompt::FLUSH_AFTER;
pub use receive::{Counts, Kept, PROGRESS_INTERVAL, Receiver, Settled, Sink};
pub use send::{MAX_KEPT_FAILURES, SendOptions, SendSummary, send_files};
pub use source::{Source, SourceSet};
pub use stream::{StreamReceiver, StreamSink};

/// Where the sending end puts what it produces; every call may wait.
pub trait Outlet {
    /// An empty buffer with room for one block; waits until one is free.
    ///
    /// # Errors
    /// If the transfer is over.
    fn buffer(&mut self) -> Result<Vec<u8>, Stopped>;

    /// The next block of the stream; short ones are the last, and those after which a stream had
    /// nothing more for a while.
    ///
    /// # Errors
    /// If the transfer is over.
    fn block(&mut self, block: Vec<u8>) -> Result<(), Stopped>;

    /// The next message for the control connection.
    ///
    /// # Errors
    /// If the transfer is over.
    fn message(&mut self, message: Message) -> Result<(), Stopped>;
}

/// The transfer is over before its end; whoever stopped it knows why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the transfer was stopped")
    }
}

impl std::error::Error for Stopped {}

/// Why an entry could not be written, and whether that ends the transfer: where one file finds no
/// room, or a disk that can only be read, so will the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// For the report.
    pub failure: Failure,
    /// No entry can be written any more.
    pub ends_transfer: bool,
    /// Too many files are open; it may go well once others are closed.
    pub lacks_descriptors: bool,
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self { failure, ends_transfer: false, lacks_descriptors: false }
    }
}

/// [`write_failure`] with what it means for the transfer.
fn trouble(path: &[u8], error: &io::Error) -> Trouble {
    Trouble::new(write_failure(path, error), Some(error))
}

/// [`jail_write_failure`] with what it means for the transfer.
fn jail_trouble(error: &JailError) -> Trouble {
    Trouble::new(jail_write_failure(error), error.io_error())
}

impl Trouble {
    fn new(failure: Failure, cause: Option<&io::Error>) -> Self {
        use io::ErrorKind as Kind;
        let ends_transfer = cause.is_some_and(|cause| {
            matches!(
                cause.kind(),
                Kind::StorageFull | Kind::QuotaExceeded | Kind::ReadOnlyFilesystem
            )
        });
        let lacks_descriptors = cause.is_some_and(|cause| {
            let errno = cause.raw_os_error().map(Errno::from_raw_os_error);
            matches!(errno, Some(Errno::MFILE | Errno::NFILE))
        });
        Self { failure, ends_transfer, lacks_descriptors }
    }
}

/// Why a source could not be read.
fn read_failure(path: &[u8], error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => FailureCode::NotFound,
        _ => FailureCode::Unreadable,
    };
    Failure::new(code, format!("cannot read '{}': {error}", Printable(path)))
}

/// Why something below a root could not be read.
fn jail_read_failure(error: &JailError) -> Failure {
    let code = match error {
        JailError::Escapes(_) | JailError::BadName { .. } => FailureCode::Refused,
        _ if error.is_not_found() => FailureCode::NotFound,
        _ => FailureCode::Unreadable,
    };
    Failure::new(code, error.to_string())
}

/// Why something below a root could not be written.
fn jail_write_failure(error: &JailError) -> Failure {
    let (code, advice) = match error {
        JailError::Escapes(_) | JailError::BadName { .. } => (FailureCode::Refused, ""),
        _ => error.io_kind().map_or((FailureCode::Unwritable, ""), advise),
    };
    Failure::new(code, format!("{error}{advice}"))
}

/// Why a destination could not be written.
fn write_failure(path: &[u8], error: &io::Error) -> Failure {
    let (code, advice) = advise(error.kind());
    Failure::new(code, format!("cannot write '{}': {error}{advice}", Printable(path)))
}

/// The class of an error of writing, and what to do about it.
fn advise(kind: io::ErrorKind) -> (FailureCode, &'static str) {
    use io::ErrorKind as Kind;
    match kind {
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => (FailureCode::Permission, ""),
        Kind::StorageFull | Kind::QuotaExceeded => {
            (FailureCode::NoSpace, "; make room and copy it again")
        }
        Kind::BrokenPipe => (FailureCode::Cancelled, "; whoever read it went away"),
        _ => (FailureCode::Unwritable, ""),
    }
}

#[cfg(test)]
mod tests;
