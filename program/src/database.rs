//! Failures of this user's databases: the file, the cause and the remedy.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rusqlite::ErrorCode;
use rustix::fs::statvfs;
use sabul_content::Printable;

use crate::error::CliError;

/// Ours: with less free space, SQLite cannot extend its log and its index, which have some 32 KiB each at first.
const ROOM_MIN: u64 = 128 << 10;

/// Error of the database in this file, which belongs to `owner`.
pub(crate) fn failed(path: &Path, owner: &str, error: &rusqlite::Error) -> CliError {
    let is_full = has_no_room(path);
    let remedy = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => NO_ROOM,
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) if is_full => NO_ROOM,
        Some(ErrorCode::SystemIoFailure) => {
            ": reading or writing the file failed; check its disk and your quota, then run the command again"
        }
        _ => "",
    };
    let path = Printable(path.as_os_str().as_bytes());
    CliError::failed(format!("cannot use the database '{path}' of {owner}: {error}{remedy}"))
}

const NO_ROOM: &str = ": no room on its file system; make room there, then run the command again";

/// Whether the file system of this file has no room for further data or files.
fn has_no_room(path: &Path) -> bool {
    statvfs(path.parent().unwrap_or(path)).is_ok_and(|facts| {
        let free = facts.f_bavail.saturating_mul(facts.f_frsize);
        free < ROOM_MIN || facts.f_files > 0 && facts.f_favail == 0
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn the_error_of_a_full_disk_names_file_cause_and_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let text = |path: &Path, code| {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            failed(path, "the queue", &error).to_string()
        };
        let here = folder.path().join("queue.sqlite");
        let full = text(&here, ffi::SQLITE_FULL);
        let shown = format!("cannot use the database '{}' of the queue: ", here.display());
        assert!(full.starts_with(&shown) && full.contains("; make room there"), "{full}");
        let broken = text(&here, ffi::SQLITE_IOERR);
        assert!(broken.contains("check its disk"), "{broken}");
        // The kernel reports no free blocks there.
        let unclear = text(Path::new("/proc/queue.sqlite"), ffi::SQLITE_IOERR_SHMSIZE);
        assert!(unclear.contains("; make room there"), "{unclear}");
        assert!(!text(&here, ffi::SQLITE_CORRUPT).contains("then run"), "no room helps there");
    }
}
