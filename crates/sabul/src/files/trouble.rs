//! What can go wrong with files, as reports tell it.

use std::io;

use rustix::io::Errno;
use sabul_transfer::Printable;
use sabul_wire::control::{Failure, FailureCode};

use crate::jail::JailError;

/// Most failures that a [`SendSummary`](super::SendSummary) keeps; more are only counted.
pub const MAX_KEPT_FAILURES: usize = 10_000;

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
pub(super) fn trouble(path: &[u8], error: &io::Error) -> Trouble {
    Trouble::new(write_failure(path, error), Some(error))
}

/// [`jail_write_failure`] with what it means for the transfer.
pub(super) fn jail_trouble(error: &JailError) -> Trouble {
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
pub(super) fn read_failure(path: &[u8], error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => FailureCode::NotFound,
        _ => FailureCode::Unreadable,
    };
    Failure::new(code, format!("cannot read '{}': {error}", Printable(path)))
}

/// Why something below a root could not be read.
pub(super) fn jail_read_failure(error: &JailError) -> Failure {
    let code = match error {
        JailError::Escapes(_) | JailError::BadName { .. } => FailureCode::Refused,
        _ if error.is_not_found() => FailureCode::NotFound,
        _ => FailureCode::Unreadable,
    };
    Failure::new(code, error.to_string())
}

/// Why something below a root could not be written.
pub(super) fn jail_write_failure(error: &JailError) -> Failure {
    let (code, advice) = match error {
        JailError::Escapes(_) | JailError::BadName { .. } => (FailureCode::Refused, ""),
        _ => error.io_kind().map_or((FailureCode::Unwritable, ""), advise),
    };
    Failure::new(code, format!("{error}{advice}"))
}

/// Why a destination could not be written.
pub(super) fn write_failure(path: &[u8], error: &io::Error) -> Failure {
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
