//! Reading without links: folders and files of a tree that other users may change meanwhile.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::resolve::{self, Links};
use super::{LinkTarget, Metadata, RootDir, RootPath, examine, examine_at};

/// Flags to list a folder. A FIFO in its place is an error and does not block.
const LIST: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// Flags to read a file. A FIFO in its place does not block.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

impl Metadata {
    /// The metadata of a path, resolved with the rights of this process.
    pub(crate) fn of_path(path: &Path, link: LinkTarget) -> Result<Self, Errno> {
        let flags = match link {
            LinkTarget::Follow => AtFlags::empty(),
            LinkTarget::Itself => AtFlags::SYMLINK_NOFOLLOW,
        };
        examine_at(CWD, path.as_os_str().as_bytes(), flags)
    }
}

impl RootDir {
    /// Opens a folder to list its names. No link is followed.
    pub(crate) fn list_plain(&self, path: &RootPath) -> Result<Folder, Errno> {
        self.open_plain(path, LIST).map(Folder)
    }

    /// Opens a folder as a starting point for its names; on Linux no read permission is needed. No link is followed.
    pub(crate) fn enter_plain(&self, path: &RootPath) -> Result<Folder, Errno> {
        self.open_plain(path, resolve::DIRECTORY).map(Folder)
    }

    /// Opens a file to read it; its kind is not checked. No link is followed.
    pub(crate) fn read_plain(&self, path: &RootPath) -> Result<File, Errno> {
        self.open_plain(path, READ).map(File::from)
    }

    /// The metadata of a path. No link is followed.
    pub(crate) fn stat_plain(&self, path: &RootPath) -> Result<Metadata, Errno> {
        examine(self.open_plain(path, resolve::EXAMINE)?.as_fd())
    }

    fn open_plain(&self, path: &RootPath, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.resolver.open(self.root.as_fd(), path, flags, Links::Refuse)
    }
}

/// An open folder; its names are looked up without its path.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder to list its names. Links in the path are followed.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        rustix::fs::open(path, LIST, Mode::empty()).map(Self)
    }

    /// The same folder, with a descriptor of its own.
    pub(crate) fn duplicate(&self) -> Result<Self, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.0, 0).map(Self)
    }

    /// The metadata of the folder itself.
    pub(crate) fn metadata(&self) -> Result<Metadata, Errno> {
        examine(self.0.as_fd())
    }

    /// The metadata of a name in the folder; a link is not followed.
    pub(crate) fn examine(&self, name: &[u8]) -> Result<Metadata, Errno> {
        examine_at(self.0.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens a name in the folder to read it; returns `LOOP` for a link. The kind of the file is not checked.
    pub(crate) fn read(&self, name: &[u8]) -> Result<File, Errno> {
        rustix::fs::openat(&self.0, name, READ | OFlags::NOFOLLOW, Mode::empty()).map(File::from)
    }

    /// The target text of a symbolic link in the folder.
    pub(crate) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        rustix::fs::readlinkat(&self.0, name, Vec::new()).map(std::ffi::CString::into_bytes)
    }

    /// The names in the folder, in no particular order.
    pub(crate) fn names(self) -> Result<FolderNames, Errno> {
        Dir::new(self.0).map(FolderNames)
    }
}

impl From<Folder> for File {
    fn from(Folder(fd): Folder) -> Self {
        Self::from(fd)
    }
}

/// Iterator over the names in a folder, read on demand; ends with the first error.
#[derive(Debug)]
pub(crate) struct FolderNames(Dir);

impl Iterator for FolderNames {
    type Item = Result<Vec<u8>, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.read()? {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Ok(entry) => return Some(Ok(entry.file_name().to_bytes().to_vec())),
                Err(errno) => return Some(Err(errno)),
            }
        }
    }
}
