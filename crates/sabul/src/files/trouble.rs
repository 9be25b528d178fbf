//! What can go wrong with files, as reports tell it.

use std::io;

use rustix::io::Errno;
use sabul_transfer::Printable;
use sabul_units::show_bytes;
use sabul_wire::control::{Failure, FailureCode};

use crate::error::os_text;
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
    /// Something on the way to the entry is missing.
    pub is_not_found: bool,
    /// Why, and what to do, without the path; where the failure is about writing the entry.
    pub reason: Option<String>,
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        let (ends_transfer, lacks_descriptors, is_not_found) = (false, false, false);
        Self { failure, ends_transfer, lacks_descriptors, is_not_found, reason: None }
    }
}

/// [`write_failure`] with what it means for the transfer.
pub(super) fn trouble(path: &[u8], error: &io::Error) -> Trouble {
    let reason = os_text(error) + advise(error.kind()).1;
    Trouble::new(write_failure(path, error), reason, Some(error))
}

/// [`jail_write_failure`] with what it means for the transfer.
pub(super) fn jail_trouble(error: &JailError) -> Trouble {
    let advice = error.io_kind().map_or("", |kind| advise(kind).1);
    Trouble::new(jail_write_failure(error), error.reason() + advice, error.io_error())
}

/// The first folder of a transfer that could not be made, and why.
#[derive(Debug, Default)]
pub(super) struct LostFolder(Option<(Vec<u8>, Trouble)>);

impl LostFolder {
    /// A folder could not be made.
    pub(super) fn note(&mut self, path: &[u8], trouble: &Trouble) {
        self.0.get_or_insert_with(|| (path.to_vec(), trouble.clone()));
    }

    /// Why an entry fails: below that folder, because of the same.
    pub(super) fn explain(&self, path: &[u8], trouble: Trouble) -> Trouble {
        let below =
            |folder: &[u8]| path.strip_prefix(folder).is_some_and(|it| it.starts_with(b"/"));
        match &self.0 {
            Some((folder, why)) if trouble.is_not_found && below(folder) => why.clone(),
            _ => trouble,
        }
    }
}

impl Trouble {
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

    /// The disk has less room than is needed, by so many bytes.
    pub(super) fn with_missing(mut self, missing: u64) -> Self {
        if let (Some(reason), 1..) = (&mut self.reason, missing) {
            *reason = format!(
                "no space left on the device, at least {} more are needed; make room and copy it again",
                show_bytes(missing)
            );
        }
        self
    }

    /// The failure, of an entry that its user knows by this path.
    pub(super) fn at(self, shown: Option<String>) -> Failure {
        match (self.reason, shown) {
            (Some(reason), Some(shown)) => {
                Failure::new(self.failure.code, format!("cannot write '{shown}': {reason}"))
            }
            _ => self.failure,
        }
    }
}

/// Why a source could not be read.
pub(super) fn read_failure(path: &[u8], error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => FailureCode::NotFound,
        _ => FailureCode::Unreadable,
    };
    Failure::new(code, format!("cannot read '{}': {}", Printable(path), os_text(error)))
}

/// Why something below a root could not be read.
pub(super) fn jail_read_failure(error: &JailError) -> Failure {
    let code = match error {
        JailError::Escapes(_) | JailError::BadName { .. } => FailureCode::Refused,
        _ if error.is_not_found() => FailureCode::NotFound,
        _ => FailureCode::Unreadable,
    };
    Failure::new(code, format!("cannot read '{}': {}", error.path(), error.reason()))
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
    Failure::new(code, format!("cannot write '{}': {}{advice}", Printable(path), os_text(error)))
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
