//! Where the sockets of this user's running commands are.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, geteuid, test_kill_process};

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

/// All folders in which commands of this user may be: another one may have been started without the variable.
pub(super) fn all() -> Vec<PathBuf> {
    places().into_iter().filter(|folder| check(folder).is_ok()).collect()
}

fn places() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|folder| folder.is_absolute()).map(|folder| folder.join("sabul"));
    let beside = std::env::temp_dir().join(format!("sabul-{}", geteuid().as_raw()));
    runtime.into_iter().chain([beside]).collect()
}

pub(super) fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => match owner(folder)? == geteuid().as_raw() {
            true => Ok(()),
            false => Err(io::Error::other(format!("'{}' is another user's", folder.display()))),
        },
    }
}

/// Refuses a folder that others may write to; root may look into everybody's.
fn check(folder: &Path) -> io::Result<()> {
    let (owner, user) = (owner(folder)?, geteuid().as_raw());
    if user != 0 && owner != user {
        return Err(io::Error::other(format!("'{}' is another user's", folder.display())));
    }
    Ok(())
}

/// Whose folder it is, if nobody else may enter it.
fn owner(folder: &Path) -> io::Result<u32> {
    let facts = fs::symlink_metadata(folder)?;
    if !facts.is_dir() || facts.mode() & 0o077 != 0 {
        let text = format!("'{}' is no folder of mode 0700; remove it", folder.display());
        return Err(io::Error::other(text));
    }
    Ok(facts.uid())
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
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
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
