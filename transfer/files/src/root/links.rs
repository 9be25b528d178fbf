//! Operations on links themselves: created, read and dated, never followed.

#[cfg(target_os = "linux")]
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Timespec, Timestamps};
#[cfg(target_os = "linux")]
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::resolve::{DIRECTORY, Links};
use super::{FileTime, RootDir, RootError, RootPath, fail};

impl RootDir {
    /// The target text of a symbolic link. Links in the path before the last name are followed if
    /// they stay inside.
    ///
    /// # Errors
    /// If the link does not exist, or the path leads out.
    pub fn read_link(&self, path: &RootPath) -> Result<Vec<u8>, RootError> {
        self.in_parent("read link", path, Links::FollowInside, |parent, name| {
            rustix::fs::readlinkat(parent, name, Vec::new()).map(std::ffi::CString::into_bytes)
        })
    }

    /// Makes a symbolic link with this target text under an unused name. The target is not checked,
    /// because links are never followed here.
    ///
    /// # Errors
    /// If the name is taken, its folder is missing or reached through a link, or the system refuses.
    pub fn make_symlink(&self, path: &RootPath, text: &[u8]) -> Result<(), RootError> {
        self.in_parent("link", path, Links::Refuse, |parent, name| {
            rustix::fs::symlinkat(text, parent, name)
        })
    }

    /// Makes a hard link under an unused name.
    ///
    /// # Errors
    /// If the name is taken, the file does not exist, either folder is reached through a link, or
    /// the system refuses.
    pub fn make_hard_link(&self, first: &RootPath, path: &RootPath) -> Result<(), RootError> {
        let (Some(folder), Some(first_name)) = (first.parent(), first.name()) else {
            return Err(RootError::IsADirectory(first.to_string()));
        };
        let folder = if folder.is_root() {
            self.root.try_clone().map_err(|source| RootError::Io {
                operation: "link",
                path: first.to_string(),
                source,
            })?
        } else {
            self.resolve("link", &folder, DIRECTORY, Links::Refuse)?
        };
        self.in_parent("link", path, Links::Refuse, |parent, name| {
            // Without a flag, a hard link to a symbolic link is made, not to its target.
            rustix::fs::linkat(&folder, first_name, parent, name, AtFlags::empty())
        })
    }

    /// Sets the group and, if given, the owner of a symbolic link with this target text and no other name. Another entry
    /// that has come to the name keeps its owner.
    ///
    /// # Errors
    /// If another entry has the name, its folder is reached through a link, or the system refuses.
    pub fn set_link_owner(
        &self,
        path: &RootPath,
        text: &[u8],
        user: Option<u32>,
        group: u32,
    ) -> Result<(), RootError> {
        let owner = owner(user, group).map_err(|errno| fail("own", path, errno))?;
        self.in_parent("own", path, Links::Refuse, |parent, name| {
            own_link(parent, name, text, owner)
        })
    }

    /// Sets the modification time of a name, without following a symbolic link.
    ///
    /// # Errors
    /// If the time has 10^9 nanoseconds or more, the name does not exist, its folder is reached
    /// through a link, or the system refuses.
    pub fn set_link_mtime(&self, path: &RootPath, mtime: FileTime) -> Result<(), RootError> {
        if mtime.nanoseconds >= 1_000_000_000 {
            return Err(fail("date", path, Errno::INVAL));
        }
        let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let last_modification =
            Timespec { tv_sec: mtime.seconds, tv_nsec: i64::from(mtime.nanoseconds) };
        let times = Timestamps { last_access, last_modification };
        self.in_parent("date", path, Links::Refuse, |parent, name| {
            rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        })
    }
}

/// Sets the owner of a link with this text: through a descriptor of the link itself, or by name on systems without such
/// descriptors.
fn own_link(
    parent: BorrowedFd<'_>,
    name: &[u8],
    text: &[u8],
    (user, group): (Option<Uid>, Option<Gid>),
) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    let link = {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(parent, name, flags, Mode::empty())?
    };
    #[cfg(target_os = "linux")]
    let (parent, name, flags) = {
        let found = super::examine(link.as_fd())?;
        if found.kind != super::Kind::Symlink || found.names != 1 {
            return Err(Errno::STALE);
        }
        (link.as_fd(), &b""[..], AtFlags::EMPTY_PATH)
    };
    #[cfg(not(target_os = "linux"))]
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    match rustix::fs::readlinkat(parent, name, Vec::new())?.as_bytes() == text {
        true => rustix::fs::chownat(parent, name, user, group, flags),
        false => Err(Errno::STALE),
    }
}

/// Converts user and group ids; rejects the highest value, which has a special meaning for the
/// system.
pub(crate) fn owner(user: Option<u32>, group: u32) -> Result<(Option<Uid>, Option<Gid>), Errno> {
    if group == u32::MAX || user == Some(u32::MAX) {
        return Err(Errno::INVAL);
    }
    Ok((user.map(Uid::from_raw), Some(Gid::from_raw(group))))
}
