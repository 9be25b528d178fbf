//! Directory of the control sockets of this user's running commands.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, geteuid, test_kill_process};

use crate::ownership;

/// File name suffix of a socket, after the process id.
const SUFFIX: &str = ".sock";
/// Ours: maximum number of directory entries that are read.
const NAMES_MAX: usize = 10_000;

/// Returns the directory of this user, created if missing: in `XDG_RUNTIME_DIR`, otherwise in the
/// directory for temporary files.
pub(super) fn own() -> io::Result<PathBuf> {
    let mut last = io::Error::other("no directory for control sockets");
    for folder in places() {
        match make(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns all directories in which commands of this user may have sockets, because another command
/// may run without the variable. For an unusable directory returns the reason.
pub(super) fn all() -> Vec<io::Result<PathBuf>> {
    let found = places().into_iter().map(|folder| check(&folder).map(|()| folder));
    found.filter(|it| !it.as_ref().is_err_and(|why| why.kind() == ErrorKind::NotFound)).collect()
}

fn places() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|folder| folder.is_absolute()).map(|folder| folder.join("sabul"));
    let beside = std::env::temp_dir().join(format!("sabul-{}", geteuid().as_raw()));
    runtime.into_iter().chain([beside]).collect()
}

pub(super) fn make(folder: &Path) -> io::Result<()> {
    // The parent directory must not allow another user to replace the new directory.
    if let Some(outer) = folder.parent() {
        ownership::check_way(outer)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => check(folder),
    }
}

/// Rejects a directory that other users can access, for root too.
fn check(folder: &Path) -> io::Result<()> {
    let facts = ownership::check(folder)?;
    if facts.mode() & 0o077 != 0 {
        let text = format!("'{}' must have mode 0700; remove it", folder.display());
        return Err(io::Error::other(text));
    }
    Ok(())
}

/// Returns the path of the socket of a process.
pub(super) fn socket(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}{SUFFIX}"))
}

/// Returns all sockets in the directory with their process ids, sorted.
pub(super) fn sockets(folder: &Path) -> Vec<(u32, PathBuf)> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().take(NAMES_MAX);
    let mut found: Vec<_> = names
        .filter_map(|entry| {
            let name = entry.file_name();
            let pid = name.to_str()?.strip_suffix(SUFFIX)?.parse().ok()?;
            Some((pid, entry.path()))
        })
        .collect();
    found.sort_unstable();
    found
}

/// Removes the sockets of dead processes, and that of an earlier process with our own id.
pub(super) fn sweep(folder: &Path) {
    for (pid, path) in sockets(folder) {
        if pid == std::process::id() || is_gone(pid) {
            remove_dead(&path);
        }
    }
}

/// Removes a socket that refuses connections.
fn remove_dead(path: &Path) {
    let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    // A live socket belongs to a process of another container that shares the directory.
    if UnixStream::connect(path).is_err_and(refused) {
        let _ = fs::remove_file(path);
    }
}

/// Returns whether no process has this id.
pub(super) fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}
