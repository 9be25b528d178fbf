//! Links as data: made, read and dated, and never followed.

use rustix::fs::{AtFlags, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::resolve::{DIRECTORY, Links};
use super::{FileTime, Jail, JailError, JailPath, fail};

impl Jail {
    /// The text of a symbolic link. Links on the way to it are followed as far as they stay inside.
    ///
    /// # Errors
    /// If there is none, or the way to it leads out.
    pub fn read_link(&self, path: &JailPath) -> Result<Vec<u8>, JailError> {
        self.in_parent("read link", path, Links::FollowInside, |parent, name| {
            rustix::fs::readlinkat(parent, name, Vec::new()).map(std::ffi::CString::into_bytes)
        })
    }

    /// Makes a symbolic link of this text under a name that nothing has. Where the text leads does not matter: nobody
    /// follows it here.
    ///
    /// # Errors
    /// If the name is taken, its folder is missing or reached through a link, or the system refuses.
    pub fn make_symlink(&self, path: &JailPath, text: &[u8]) -> Result<(), JailError> {
        self.in_parent("link", path, Links::Refuse, |parent, name| {
            rustix::fs::symlinkat(text, parent, name)
        })
    }

    /// Gives a file another name that nothing has.
    ///
    /// # Errors
    /// If the name is taken, there is no such file, a link leads to either, or the system refuses.
    pub fn make_hard_link(&self, first: &JailPath, path: &JailPath) -> Result<(), JailError> {
        let (Some(folder), Some(first_name)) = (first.parent(), first.name()) else {
            return Err(JailError::IsADirectory(first.to_string()));
        };
        let folder = if folder.is_root() {
            self.root.try_clone().map_err(|source| JailError::Io {
                operation: "link",
                path: first.to_string(),
                source,
            })?
        } else {
            self.resolve("link", &folder, DIRECTORY, Links::Refuse)?
        };
        self.in_parent("link", path, Links::Refuse, |parent, name| {
            // Without a flag, a symbolic link is linked itself.
            rustix::fs::linkat(&folder, first_name, parent, name, AtFlags::empty())
        })
    }

    /// Sets the owner and group of a name, of a symbolic link itself; nothing where one is to stay.
    ///
    /// # Errors
    /// If there is no such name, a link leads to its folder, or the system refuses.
    pub fn set_link_owner(
        &self,
        path: &JailPath,
        user: Option<u32>,
        group: u32,
    ) -> Result<(), JailError> {
        let (user, group) = owner(user, group).map_err(|errno| fail("own", path, errno))?;
        self.in_parent("own", path, Links::Refuse, |parent, name| {
            rustix::fs::chownat(parent, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
        })
    }

    /// Sets the time of modification of a name, of a symbolic link itself.
    ///
    /// # Errors
    /// If the time has 10^9 nanoseconds or more, there is no such name, a link leads to its folder, or the system
    /// refuses.
    pub fn set_link_mtime(&self, path: &JailPath, mtime: FileTime) -> Result<(), JailError> {
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

/// Numbers of owners as the system takes them; the highest one is a command to it.
pub(crate) fn owner(user: Option<u32>, group: u32) -> Result<(Option<Uid>, Option<Gid>), Errno> {
    if group == u32::MAX || user == Some(u32::MAX) {
        return Err(Errno::INVAL);
    }
    Ok((user.map(Uid::from_raw), Some(Gid::from_raw(group))))
}
