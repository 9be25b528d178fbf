//! File errors, in the form in which they are reported.

use std::io;

use rustix::io::Errno;
use sabul_content::Printable;
use sabul_units::show_bytes;
use sabul_wire::control::{Failure, FailureCode};

use crate::root::RootError;
use crate::system::os_text;

/// Maximum number of failures in a [`SendSummary`](super::SendSummary); further failures are only
/// counted.
pub const MAX_KEPT_FAILURES: usize = 10_000;

/// Reason why an entry could not be written, and whether the transfer must end. A full or read-only
/// disk ends the transfer, because later files would fail too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryError {
    /// The failure to report.
    pub failure: Failure,
    /// No further entry can be written.
    pub ends_transfer: bool,
    /// Too many open files; a retry may succeed once files are closed.
    pub lacks_descriptors: bool,
    /// A component of the path is missing.
    pub is_not_found: bool,
    /// Reason and advice without the path; set if the failure is about writing the entry.
    pub reason: Option<String>,
}

impl From<Failure> for EntryError {
    fn from(failure: Failure) -> Self {
        let (ends_transfer, lacks_descriptors, is_not_found) = (false, false, false);
        Self { failure, ends_transfer, lacks_descriptors, is_not_found, reason: None }
    }
}

/// Converts an I/O error like [`write_failure`], with its effect on the transfer.
pub(super) fn entry_error(path: &[u8], error: &io::Error) -> EntryError {
    let reason = os_text(error) + advise(error.kind()).1;
    EntryError::new(write_failure(path, error), reason, Some(error))
}

/// The failure of writing the path, with its effect on the transfer.
impl From<RootError> for EntryError {
    fn from(error: RootError) -> Self {
        let (code, advice) = match &error {
            RootError::Escapes(_) | RootError::BadName { .. } => (FailureCode::Refused, ""),
            _ => error.io_kind().map_or((FailureCode::Unwritable, ""), advise),
        };
        let failure = Failure::new(code, format!("{error}{advice}"));
        Self::new(failure, error.reason() + advice, error.io_error())
    }
}

/// The first folder that could not be made, with the reason.
#[derive(Debug, Default)]
pub(super) struct FailedFolder(Option<(Vec<u8>, EntryError)>);

impl FailedFolder {
    /// Records that a folder could not be made.
    pub(super) fn note(&mut self, path: &[u8], entry_error: &EntryError) {
        self.0.get_or_insert_with(|| (path.to_vec(), entry_error.clone()));
    }

    /// Returns the original reason if an entry fails because it is below the recorded folder.
    pub(super) fn explain(&self, path: &[u8], entry_error: EntryError) -> EntryError {
        let below =
            |folder: &[u8]| path.strip_prefix(folder).is_some_and(|it| it.starts_with(b"/"));
        match &self.0 {
            Some((folder, why)) if entry_error.is_not_found && below(folder) => why.clone(),
            _ => entry_error,
        }
    }
}

impl EntryError {
    fn new(failure: Failure, reason: String, cause: Option<&io::Error>) -> Self {
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
        let is_not_found = cause.is_some_and(|cause| cause.kind() == Kind::NotFound);
        Self { failure, ends_transfer, lacks_descriptors, is_not_found, reason: Some(reason) }
    }

    /// Adds to the reason that at least `missing` more bytes of disk space are needed.
    pub(super) fn with_missing(mut self, missing: u64) -> Self {
        if let (Some(reason), 1..) = (&mut self.reason, missing) {
            *reason = format!(
                "no space left on the device, at least {} more are needed; make room and copy it again",
                show_bytes(missing)
            );
        }
        self
    }

    /// Returns the failure, with the path as displayed to the local user.
    pub(super) fn at(self, shown: Option<String>) -> Failure {
        match (self.reason, shown) {
            (Some(reason), Some(shown)) => {
                Failure::of_file(self.failure.code, "write", shown, reason)
            }
            _ => self.failure,
        }
    }
}

/// Failure of reading a source. A failure of a store is returned as it is.
pub(super) fn read_failure(path: &[u8], error: &io::Error) -> Failure {
    if let Some(failure) = error.get_ref().and_then(|inner| inner.downcast_ref::<Failure>()) {
        return failure.clone();
    }
    let code = match error.kind() {
        io::ErrorKind::NotFound => FailureCode::NotFound,
        _ => FailureCode::Unreadable,
    };
    let advice = if code == FailureCode::NotFound { "; check the name" } else { "" };
    Failure::of_file(code, "read", Printable(path), os_text(error) + advice)
}

/// Failure of reading a path below a root.
pub(super) fn root_read_failure(error: RootError) -> Failure {
    let code = match error {
        RootError::Escapes(_) | RootError::BadName { .. } => FailureCode::Refused,
        _ if error.is_not_found() => FailureCode::NotFound,
        _ => FailureCode::Unreadable,
    };
    let advice = if code == FailureCode::NotFound { "; check the name" } else { "" };
    Failure::of_file(code, "read", error.path(), format!("{}{advice}", error.reason()))
}

/// Failure of writing a path below a root.
pub(super) fn root_write_failure(error: RootError) -> Failure {
    EntryError::from(error).failure
}

/// Failure of an action on a path that ends in `/` but is not a directory.
pub(super) fn not_a_folder(action: &str, path: &[u8]) -> Failure {
    let why = "it is not a directory; leave out the '/' at its end to name a file or link";
    Failure::of_file(FailureCode::Unwritable, action, Printable(path), why)
}

/// Failure of writing a destination.
pub(super) fn write_failure(path: &[u8], error: &io::Error) -> Failure {
    let (code, advice) = advise(error.kind());
    Failure::of_file(code, "write", Printable(path), os_text(error) + advice)
}

/// Failure code and advice for a write error.
fn advise(kind: io::ErrorKind) -> (FailureCode, &'static str) {
    use io::ErrorKind as Kind;
    match kind {
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => (FailureCode::Permission, ""),
        Kind::StorageFull | Kind::QuotaExceeded => {
            (FailureCode::NoSpace, "; make room and copy it again")
        }
        Kind::BrokenPipe => (FailureCode::Cancelled, "; its reader has ended"),
        _ => (FailureCode::Unwritable, ""),
    }
}

/// Error of a reader that stops because its request was cancelled.
pub(super) fn cancelled() -> io::Error {
    io::Error::other("the request was cancelled")
}
