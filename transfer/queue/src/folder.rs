//! Files of the queue in its directory, and their locks.
//!
//! ```text
//! queue.sqlite     jobs, with its files queue.sqlite-wal and queue.sqlite-shm
//! runner.lock      flock(2) of the runner; contains its process id
//! locks/ID         fcntl(2) lock of the process that runs job ID, or its hook
//! queue.log        output of a runner in the background
//! ```
//!
//! The kernel releases both kinds of locks when their process ends. The lock of a job survives execve(2), and
//! no child inherits the lock, so the lock is held exactly as long as the process lives.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, fcntl_lock, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::geteuid;

use crate::job::JobId;

/// Ours: maximum size of the log; a longer log is moved to `queue.log.old` when a runner starts.
const LOG_MAX: u64 = 4 << 20;
/// Ours: interval between two attempts to lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// Ours: longer than another process examines the lock of the runner.
const PROBE: Duration = Duration::from_millis(200);

/// Returns the path of the database.
pub fn database(folder: &Path) -> PathBuf {
    folder.join("queue.sqlite")
}

/// Returns the path of the log of runners in the background.
pub fn log(folder: &Path) -> PathBuf {
    folder.join("queue.log")
}

/// Opens a file of this user for reading and writing, created with mode 0600. Does not follow a link.
///
/// # Errors
///
/// If the file cannot be opened, is not a regular file, belongs to another user, or may be written by others.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    let facts = file.metadata()?;
    let refuse = |why: &str| Err(io::Error::other(format!("'{}' {why}", path.display())));
    if !facts.is_file() {
        return refuse("is not a regular file; remove it");
    }
    if facts.uid() != geteuid().as_raw() {
        return refuse("belongs to another user; remove it");
    }
    if facts.mode() & 0o022 != 0 {
        return refuse("may be written by other users; set its mode to 0600");
    }
    Ok(file)
}

/// Opens the log for appending, after a long log was moved aside.
///
/// # Errors
///
/// As for all files of the queue: if the log cannot be opened, or does not belong to this user alone.
pub fn open_log(folder: &Path) -> io::Result<File> {
    let path = log(folder);
    if fs::symlink_metadata(&path).is_ok_and(|facts| facts.len() > LOG_MAX) {
        fs::rename(&path, path.with_extension("log.old"))?;
    }
    let mut file = open_own(&path)?;
    file.seek(io::SeekFrom::End(0))?;
    // Parallel writers append, too.
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

/// Lock of the runner. Released when dropped, and by the kernel when the process ends.
#[derive(Debug)]
pub struct RunnerLock {
    _file: File,
}

impl RunnerLock {
    /// Takes the lock. Returns `None` if another runner has the lock.
    ///
    /// # Errors
    ///
    /// If the file of the lock cannot be used.
    pub fn take(folder: &Path) -> io::Result<Option<Self>> {
        let mut file = open_own(&folder.join("runner.lock"))?;
        let deadline = Instant::now() + PROBE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                // Perhaps only `holder` of another process.
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(LOCK_INTERVAL);
                }
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        file.set_len(0)?;
        write!(file, "{}", std::process::id())?;
        Ok(Some(Self { _file: file }))
    }

    /// Returns the process id of the runner, or `None` if no runner has the lock. The id is 0 for a runner that
    /// has just started.
    ///
    /// # Errors
    ///
    /// If the file of the lock cannot be used.
    pub fn holder(folder: &Path) -> io::Result<Option<u32>> {
        let file = open_own(&folder.join("runner.lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => {}
            result => return result.map(|()| None).map_err(io::Error::from),
        }
        let mut text = String::new();
        file.take(20).read_to_string(&mut text)?;
        Ok(Some(text.trim().parse().unwrap_or(0)))
    }
}

/// Returns the path of the lock of a job; creates its directory.
///
/// # Errors
///
/// If the directory cannot be created.
pub fn job_lock(folder: &Path, id: JobId) -> io::Result<PathBuf> {
    let locks = folder.join("locks");
    match DirBuilder::new().mode(0o700).create(&locks) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    Ok(locks.join(id.to_string()))
}

/// Whether no process has the lock of a job; waits for the end of such a process until the timeout.
///
/// # Errors
///
/// If the file of the lock cannot be used.
#[cfg(feature = "site")]
pub(crate) fn is_job_free(folder: &Path, id: JobId, timeout: Duration) -> io::Result<bool> {
    let path = folder.join("locks").join(id.to_string());
    if let Err(error) = fs::symlink_metadata(&path) {
        return if error.kind() == io::ErrorKind::NotFound { Ok(true) } else { Err(error) };
    }
    let file = open_own(&path)?;
    let deadline = Instant::now() + timeout;
    loop {
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::ACCESS | Errno::AGAIN) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_INTERVAL);
            }
            Err(Errno::ACCESS | Errno::AGAIN) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Removes the lock of a job that has ended and whose hook has ended.
pub fn remove_job_lock(folder: &Path, id: JobId) {
    // A file that stays is used again or removed later.
    let _ = fs::remove_file(folder.join("locks").join(id.to_string()));
}

/// Whether the path still names this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes a job lock for the rest of this process, also after execve(2). Returns `false` if another process has the
/// lock until the timeout.
///
/// # Errors
///
/// If the file of the lock cannot be used.
pub fn keep_job_lock(path: &Path, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    let mut file = open_own(path)?;
    loop {
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, path)? => break,
            // The last owner has removed the file; the next process would lock another one.
            Ok(()) => file = open_own(path)?,
            Err(Errno::ACCESS | Errno::AGAIN) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_INTERVAL);
            }
            Err(Errno::ACCESS | Errno::AGAIN) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    fcntl_setfd(&file, FdFlags::empty())?;
    // The lock ends with the process.
    std::mem::forget(file);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn one_runner_has_the_lock_and_its_end_releases_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(RunnerLock::holder(folder.path()).unwrap(), None);
        let first = RunnerLock::take(folder.path()).unwrap().unwrap();
        assert!(RunnerLock::take(folder.path()).unwrap().is_none());
        assert_eq!(RunnerLock::holder(folder.path()).unwrap(), Some(std::process::id()));
        drop(first);
        assert_eq!(RunnerLock::holder(folder.path()).unwrap(), None);
        RunnerLock::take(folder.path()).unwrap().unwrap();
    }

    #[test]
    fn links_and_files_that_others_may_write_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        open_own(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        symlink(&file, &link).unwrap();
        assert!(open_own(&link).is_err());
        for mode in [0o620, 0o602] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let error = open_own(&file).unwrap_err().to_string();
            assert!(error.contains("written by other users"), "{error}");
        }
        assert!(open_own(folder.path()).is_err());
    }

    #[test]
    fn a_lock_that_was_removed_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = job_lock(folder.path(), 7).unwrap();
        let file = open_own(&path).unwrap();
        assert!(is_at(&file, &path).unwrap());
        remove_job_lock(folder.path(), 7);
        assert!(!is_at(&file, &path).unwrap());
        assert!(keep_job_lock(&path, Duration::ZERO).unwrap());
        assert!(path.exists() && !is_at(&file, &path).unwrap(), "a new file has the lock");
    }

    #[test]
    fn a_long_log_is_moved_aside() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            writeln!(open_log(folder.path()).unwrap(), "a").unwrap();
        }
        assert_eq!(fs::read(log(folder.path())).unwrap(), b"a\na\n");
        open_log(folder.path()).unwrap().set_len(LOG_MAX + 1).unwrap();
        assert_eq!(open_log(folder.path()).unwrap().metadata().unwrap().len(), 0);
        assert!(folder.path().join("queue.log.old").exists());
    }
}
