//! Where the sockets of this user's running commands are.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, geteuid, test_kill_process};

use crate::own;

/// What sockets are called behind the process id.
const SUFFIX: &str = ".sock";
/// Most names in the folder that are looked at.
const NAMES_MAX: usize = 10_000;

/// The folder of this user, made where it is missing: in `XDG_RUNTIME_DIR`, or beside temporary files.
pub(super) fn own() -> io::Result<PathBuf> {
    let mut last = io::Error::other("there is no folder for it");
    for folder in places() {
        match make(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// All folders in which commands of this user may be, since another one may have been started without the variable;
/// and why a folder of that name is not looked into.
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
    // Nothing is made where another user could replace it.
    if let Some(outer) = folder.parent() {
        own::check_way(outer)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => check(folder),
    }
}

/// Refuses a folder that is not this user's alone, whoever the user is.
fn check(folder: &Path) -> io::Result<()> {
    let facts = own::check(folder)?;
    if facts.mode() & 0o077 != 0 {
        let text = format!("'{}' is no folder of mode 0700; remove it", folder.display());
        return Err(io::Error::other(text));
    }
    Ok(())
}

/// The socket of this process.
pub(super) fn socket(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}{SUFFIX}"))
}

/// All sockets in the folder, with the ids of their processes, in their order.
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

/// Removes the sockets of processes that are gone, and that of an earlier process with our own id.
pub(super) fn sweep(folder: &Path) {
    for (pid, path) in sockets(folder) {
        if pid == std::process::id() || is_gone(pid) {
            remove_dead(&path);
        }
    }
}

/// Removes a socket at which nobody answers.
fn remove_dead(path: &Path) {
    let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    // One that answers belongs to a process of another container that shares the folder.
    if UnixStream::connect(path).is_err_and(refused) {
        let _ = fs::remove_file(path);
    }
}

/// There is no process with this id.
pub(super) fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}
