//! Path resolution below a root: by the kernel, or by a walk in user space.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::path::RootPath;

/// Flags to open a folder as a starting point; on Linux no read permission is needed.
#[cfg(target_os = "linux")]
pub(super) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Flags to open a folder as a starting point.
#[cfg(not(target_os = "linux"))]
pub(super) const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// Flags to open a path for its metadata; on Linux no read permission is needed.
#[cfg(target_os = "linux")]
pub(super) const EXAMINE: OFlags = OFlags::PATH;
/// Flags to open a path for its metadata.
#[cfg(not(target_os = "linux"))]
pub(super) const EXAMINE: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// Maximum number of symbolic links followed in one resolution, as on Linux.
const MAX_LINKS: usize = 40;
/// Maximum number of retries of `openat2`, which fails with `AGAIN` during concurrent renames.
#[cfg(target_os = "linux")]
const MAX_RETRIES: usize = 32;

/// Treatment of symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// Follow links whose target is inside the root.
    FollowInside,
    /// Follow no links.
    Refuse,
}

/// Method of path resolution.
///
/// Both methods fail with `XDEV` if the path leads out, and with `LOOP` on a link that is not
/// followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolver {
    /// One system call, confined by the kernel (Linux 5.6 and later).
    #[cfg(target_os = "linux")]
    Kernel,
    /// A walk in user space, name by name.
    Walk,
}

impl Resolver {
    /// Selects the kernel's method if available: old kernels lack it, and some container sandboxes
    /// forbid it.
    pub(super) fn detect(root: BorrowedFd<'_>) -> Self {
        #[cfg(target_os = "linux")]
        if beneath(root, b".", DIRECTORY, Links::Refuse).is_ok() {
            return Self::Kernel;
        }
        let _ = root;
        Self::Walk
    }

    /// Opens `path`. `flags` must not create a file.
    pub(super) fn open(
        self,
        root: BorrowedFd<'_>,
        path: &RootPath,
        flags: OFlags,
        links: Links,
    ) -> Result<OwnedFd, Errno> {
        debug_assert!(!flags.contains(OFlags::CREATE), "the walk could create a link's target");
        #[cfg(target_os = "linux")]
        if self == Self::Kernel {
            for _ in 0..MAX_RETRIES {
                match beneath(root, path.as_bytes(), flags, links) {
                    Err(Errno::AGAIN) => {}
                    result => return result,
                }
            }
        }
        walk(root, path, flags, links)
    }
}

#[cfg(target_os = "linux")]
fn beneath(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if links == Links::Refuse {
        resolve |= ResolveFlags::NO_SYMLINKS;
    }
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Opens name after name; the system never follows a link.
///
/// Links are read, and their targets are walked the same way. `..` in a target returns to the
/// previous folder, which is still open. The current parent on the disk is not used, because it may
/// have changed.
fn walk(
    root: BorrowedFd<'_>,
    path: &RootPath,
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    let mut entered: Vec<OwnedFd> = Vec::new();
    // Remaining names; the next name is last.
    let mut ahead: Vec<Vec<u8>> = path.components().rev().map(<[u8]>::to_vec).collect();
    let mut followed = 0;
    while let Some(name) = ahead.pop() {
        if name == b".." {
            entered.pop().ok_or(Errno::XDEV)?;
            continue;
        }
        let here = entered.last().map_or(root, |fd| fd.as_fd());
        let is_last = ahead.is_empty();
        let opened = if is_last { open_one(here, &name, flags) } else { enter(here, &name) };
        match opened {
            Ok(fd) if is_last => return Ok(fd),
            Ok(fd) => entered.push(fd),
            Err(Errno::LOOP) if links == Links::FollowInside && followed < MAX_LINKS => {
                followed += 1;
                let target = rustix::fs::readlinkat(here, &name, Vec::new())?.into_bytes();
                if target.starts_with(b"/") {
                    return Err(Errno::XDEV);
                }
                let names = target.split(|&b| b == b'/').filter(|n| !matches!(*n, b"" | b"."));
                ahead.extend(names.rev().map(<[u8]>::to_vec));
            }
            Err(errno) => return Err(errno),
        }
    }
    // The path, or a link's target, ended at a folder that is already open.
    let here = entered.last().map_or(root, |fd| fd.as_fd());
    rustix::fs::openat(here, ".", flags | OFlags::CLOEXEC, Mode::empty())
}

/// Opens the folder `name` in `here`; returns `LOOP` if `name` is a link.
pub(super) fn enter(here: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    open_one(here, name, DIRECTORY)
}

/// Opens `name` in `here`; returns `LOOP` if `name` is a link, whatever the flags are.
fn open_one(here: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_link = |mode| FileType::from_raw_mode(mode) == FileType::Symlink;
    match rustix::fs::openat(here, name, flags, Mode::empty()) {
        // `O_PATH` opens the link itself.
        Ok(fd) if is_link(rustix::fs::fstat(&fd)?.st_mode) => Err(Errno::LOOP),
        Ok(fd) => Ok(fd),
        // `O_DIRECTORY` fails with `NOTDIR` on a link.
        Err(Errno::NOTDIR) => {
            let stat = rustix::fs::statat(here, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
            Err(if is_link(stat.st_mode) { Errno::LOOP } else { Errno::NOTDIR })
        }
        Err(errno) => Err(errno),
    }
}
