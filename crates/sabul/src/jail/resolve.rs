//! Two ways from a jail's root to what a path stands for, neither of which leaves the root.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::path::JailPath;

/// Opens a folder only to go on from it: needs no permission to list it.
#[cfg(target_os = "linux")]
pub(super) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Opens a folder only to go on from it.
#[cfg(not(target_os = "linux"))]
pub(super) const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// Opens anything only to ask what it is: needs no permission to read it.
#[cfg(target_os = "linux")]
pub(super) const EXAMINE: OFlags = OFlags::PATH;
/// Opens anything only to ask what it is.
#[cfg(not(target_os = "linux"))]
pub(super) const EXAMINE: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// Symbolic links followed in one resolution (as many as Linux follows).
const MAX_LINKS: usize = 40;
/// Times `openat2` is asked again when renames elsewhere made it give up.
#[cfg(target_os = "linux")]
const MAX_RETRIES: usize = 32;

/// What to do about symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// Follow those that lead to a place inside.
    FollowInside,
    /// Follow none.
    Refuse,
}

/// How paths are resolved.
///
/// Both ways fail with `XDEV` on what leads out and with `LOOP` on a link that is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolver {
    /// In one system call, confined by the kernel (Linux 5.6 and later).
    #[cfg(target_os = "linux")]
    Kernel,
    /// Name by name, by us.
    Walk,
}

impl Resolver {
    /// The kernel's way if it has one; old kernels lack it and some sandboxes forbid it.
    pub(super) fn detect(root: BorrowedFd<'_>) -> Self {
        #[cfg(target_os = "linux")]
        if beneath(root, b".", DIRECTORY, Links::Refuse).is_ok() {
            return Self::Kernel;
        }
        let _ = root;
        Self::Walk
    }

    /// Opens what `path` stands for. `flags` must not create anything.
    pub(super) fn open(
        self,
        root: BorrowedFd<'_>,
        path: &JailPath,
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

/// Opens name after name without ever letting the system follow a link.
///
/// Links are read and their targets walked the same way. `..` in a target goes back to the folder
/// we came from, which we still hold, and not to what the disk calls its parent by now.
fn walk(
    root: BorrowedFd<'_>,
    path: &JailPath,
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    let mut entered: Vec<OwnedFd> = Vec::new();
    // The names still to go, next one last.
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
    // The path, or a link's target, ended on a folder that we hold.
    let here = entered.last().map_or(root, |fd| fd.as_fd());
    rustix::fs::openat(here, ".", flags | OFlags::CLOEXEC, Mode::empty())
}

/// Opens the folder `name` in `here`; `LOOP` if it is a link.
pub(super) fn enter(here: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    open_one(here, name, DIRECTORY)
}

/// Opens `name` in `here`; `LOOP` if it is a link, whatever the flags make the system say.
fn open_one(here: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_link = |mode| FileType::from_raw_mode(mode) == FileType::Symlink;
    match rustix::fs::openat(here, name, flags, Mode::empty()) {
        // `O_PATH` opens the link itself.
        Ok(fd) if is_link(rustix::fs::fstat(&fd)?.st_mode) => Err(Errno::LOOP),
        Ok(fd) => Ok(fd),
        // `O_DIRECTORY` calls a link "not a directory".
        Err(Errno::NOTDIR) => {
            let stat = rustix::fs::statat(here, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
            Err(if is_link(stat.st_mode) { Errno::LOOP } else { Errno::NOTDIR })
        }
        Err(errno) => Err(errno),
    }
}
