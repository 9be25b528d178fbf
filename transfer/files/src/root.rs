//! Directory sandbox: paths from a peer or a manifest can never leave the root folder.
//!
//! A [`RootPath`] holds only plain names: no `..`, no absolute path, no NUL. A [`RootDir`] resolves
//! the path below one open folder. Symbolic links cannot lead out, even if they are created while a
//! transfer runs. On Linux the kernel confines each resolution (`openat2`); elsewhere the path is
//! walked name by name without following links.
//!
//! Reading follows symbolic links that stay inside. Writing follows no links. A link in place of a folder or a part
//! file is an error. A link under a final name is replaced, not followed.
//!
//! The same type is used for a served folder and for the destination of a local copy; only the
//! root's own name may be treated differently ([`RootLink`]).

mod fault;
mod links;
mod names;
mod path;
pub(crate) mod read;
mod resolve;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

pub use fault::RootError;
pub(crate) use fault::fail;
pub(crate) use links::owner;
pub(crate) use names::rename_to_unused;
pub use path::{MAX_NAME, MAX_PATH, NameFault, RootPath};
use resolve::{Links, Resolver};

/// Whether the root's own path may end in a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootLink {
    /// Yes: the user or the administrator has chosen the path.
    Follow,
    /// No: a link here is a mistake or an attack.
    Refuse,
}

/// Whether the last name of a path is followed if it is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    /// The target of the link, if the target is inside.
    Follow,
    /// The link itself.
    Itself,
}

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, pipe or socket.
    Other,
}

impl From<FileType> for Kind {
    fn from(file_type: FileType) -> Self {
        match file_type {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}

/// A file time, counted from 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileTime {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after that second, below 10^9.
    pub nanoseconds: u32,
}

/// Identity of a file, independent of its name; unique among existing files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    /// Device number, as reported by the system.
    pub device: u64,
    /// Inode number; may be reused once the file is removed.
    pub inode: u64,
    /// Birth time in nanoseconds since 1970; zero if the system does not report it.
    pub born_ns: i64,
}

/// File metadata, as reported by `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Identity of the file.
    pub id: FileId,
    /// Kind of the file.
    pub kind: Kind,
    /// Size in bytes; for other kinds than regular files, as reported by the system.
    pub size: u64,
    /// Allocated bytes on the disk; less than the size for a sparse file.
    pub allocated: u64,
    /// Number of hard links.
    pub names: u64,
    /// Permission bits, up to 0o7777.
    pub mode: u32,
    /// Modification time (mtime); can be set.
    pub mtime: FileTime,
    /// Change time (ctime): the last change of content, metadata or names; cannot be set.
    pub ctime: FileTime,
    /// User id of the owner.
    pub owner: u32,
    /// Group id.
    pub group: u32,
}

impl Metadata {
    /// The metadata of an open file.
    ///
    /// # Errors
    /// As reported by the system.
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(examine(file.as_fd())?)
    }

    /// Whether this user owns the file, and neither its group nor other users may write to it.
    pub const fn is_only_of(&self, user: u32) -> bool {
        self.owner == user && self.mode & 0o022 == 0
    }
}

/// Mode bits by which users other than the owner may write. As in pam_umask(8), the group with the number of a user is
/// private. Root's group may have members.
pub(crate) const fn foreign_write(owner: u32, group: u32) -> u32 {
    if owner != 0 && owner == group { 0o002 } else { 0o022 }
}

impl From<&Stat> for Metadata {
    fn from(stat: &Stat) -> Self {
        let nanoseconds = |ns| u32::try_from(ns).unwrap_or(0);
        Self {
            id: FileId { device: stat.st_dev, inode: stat.st_ino, born_ns: 0 },
            kind: FileType::from_raw_mode(stat.st_mode).into(),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            allocated: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK),
            names: wide(stat.st_nlink),
            mode: Mode::from_raw_mode(stat.st_mode).bits() & 0o7777,
            mtime: FileTime {
                seconds: stat.st_mtime,
                nanoseconds: nanoseconds(stat.st_mtime_nsec),
            },
            ctime: FileTime {
                seconds: stat.st_ctime,
                nanoseconds: nanoseconds(stat.st_ctime_nsec),
            },
            owner: stat.st_uid,
            group: stat.st_gid,
        }
    }
}

/// A count whose type differs between machines.
fn wide(count: impl TryInto<u64>) -> u64 {
    count.try_into().unwrap_or(1)
}

/// Unit of `st_blocks` in bytes, on all file systems.
const BLOCK: u64 = 512;

/// Metadata of an open file.
fn examine(fd: BorrowedFd<'_>) -> Result<Metadata, Errno> {
    #[cfg(target_os = "linux")]
    match statx(fd, c"", AtFlags::EMPTY_PATH) {
        Err(Errno::NOSYS) => {}
        result => return result,
    }
    rustix::fs::fstat(fd).map(|stat| Metadata::from(&stat))
}

/// Metadata of a name in a folder.
fn examine_at(folder: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Result<Metadata, Errno> {
    #[cfg(target_os = "linux")]
    match statx(folder, name, flags) {
        Err(Errno::NOSYS) => {}
        result => return result,
    }
    rustix::fs::statat(folder, name, flags).map(|stat| Metadata::from(&stat))
}

/// As `stat`, but with the birth time.
#[cfg(target_os = "linux")]
fn statx(
    folder: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
    flags: AtFlags,
) -> Result<Metadata, Errno> {
    use rustix::fs::{StatxFlags, StatxTimestamp, makedev};
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = rustix::fs::statx(folder, name, flags, wanted)?;
    let time = |time: StatxTimestamp| FileTime { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    let born = found.stx_btime;
    let born_ns = born.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(born.tv_nsec.into());
    Ok(Metadata {
        id: FileId {
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            born_ns: if has_birth { born_ns } else { 0 },
        },
        kind: FileType::from_raw_mode(found.stx_mode.into()).into(),
        size: found.stx_size,
        allocated: found.stx_blocks.saturating_mul(BLOCK),
        names: found.stx_nlink.into(),
        mode: u32::from(found.stx_mode) & 0o7777,
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        owner: found.stx_uid,
        group: found.stx_gid,
    })
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name in bytes; the encoding is unspecified.
    pub name: Vec<u8>,
    /// Kind of the file; links are not followed.
    pub kind: Kind,
}

/// A sandbox: a root folder and everything below it.
#[derive(Debug)]
pub struct RootDir {
    root: OwnedFd,
    resolver: Resolver,
    /// A folder that is kept open; names in the folder are found without resolving its path.
    near: Option<(RootPath, OwnedFd)>,
    /// Path of `root` in messages; if empty, messages have relative paths.
    name: Vec<u8>,
}

impl RootDir {
    /// Opens the sandbox of an existing folder.
    ///
    /// # Errors
    /// If `root` is not a folder that can be entered, or is a link that `link` refuses.
    pub fn open(root: &Path, link: RootLink) -> Result<Self, RootError> {
        let mut flags = resolve::DIRECTORY;
        if link == RootLink::Refuse {
            flags |= OFlags::NOFOLLOW;
        }
        let opened = rustix::fs::open(root, flags, Mode::empty());
        let root = opened.map_err(|errno| {
            let is_link = root.symlink_metadata().is_ok_and(|m| m.is_symlink());
            let errno = if is_link && errno == Errno::NOTDIR { Errno::LOOP } else { errno };
            fail("open", root.display().to_string(), errno)
        })?;
        let resolver = Resolver::detect(root.as_fd());
        Ok(Self { root, resolver, near: None, name: Vec::new() })
    }

    /// The same sandbox, with this path of its root in messages.
    #[must_use]
    pub fn named(self, name: &[u8]) -> Self {
        let name = if name == b"." { Vec::new() } else { name.to_vec() };
        Self { name, ..self }
    }

    /// A path as displayed to the user.
    pub fn shown(&self, path: &RootPath) -> String {
        sabul_content::Printable(&self.join(path)).to_string()
    }

    fn join(&self, path: &RootPath) -> Vec<u8> {
        let path = path.as_bytes();
        match &self.name[..] {
            [] => path.to_vec(),
            name if path == b"." => name.to_vec(),
            name if name.ends_with(b"/") => [name, path].concat(),
            name => [name, b"/", path].concat(),
        }
    }

    /// The same sandbox with one folder kept open: names in the folder are found without resolving
    /// its path again. For short-term use only: if the folder is moved, operations follow it to its
    /// new place.
    ///
    /// # Errors
    /// If the folder does not exist, or the path has a link.
    pub fn near(&self, folder: &RootPath) -> Result<Self, RootError> {
        let fault = |errno| fail("open folder", folder, errno);
        let held = if folder.is_root() {
            rustix::io::fcntl_dupfd_cloexec(&self.root, 0).map_err(fault)?
        } else {
            self.resolve("open folder", folder, resolve::DIRECTORY, Links::Refuse)?
        };
        let root = rustix::io::fcntl_dupfd_cloexec(&self.root, 0).map_err(fault)?;
        let (resolver, name) = (self.resolver, self.name.clone());
        Ok(Self { root, resolver, near: Some((folder.clone(), held)), name })
    }

    /// The sandbox of a folder below.
    ///
    /// # Errors
    /// If the folder does not exist, or the path leads out.
    pub fn within(&self, folder: &RootPath) -> Result<Self, RootError> {
        let root = self.resolve("open", folder, resolve::DIRECTORY, Links::FollowInside)?;
        Ok(Self { root, resolver: self.resolver, near: None, name: self.join(folder) })
    }

    /// As [`Self::within`], but no link is followed.
    ///
    /// # Errors
    /// If the folder does not exist, or the path has a link.
    pub fn hold(&self, folder: &RootPath) -> Result<Self, RootError> {
        let root = self.resolve("open", folder, resolve::DIRECTORY, Links::Refuse)?;
        Ok(Self { root, resolver: self.resolver, near: None, name: self.join(folder) })
    }

    /// Opens a regular file for reading. Links that stay inside are followed.
    ///
    /// # Errors
    /// If the file does not exist, is not a regular file, or the path leads out.
    pub fn open_read(&self, path: &RootPath) -> Result<File, RootError> {
        // Without NONBLOCK, opening a FIFO would block before its kind is checked.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.resolve("open", path, flags, Links::FollowInside)?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| fail("examine", path, errno))?;
        plain_file(path, &stat)?;
        Ok(File::from(fd))
    }

    /// Opens a regular file, to set its metadata. No link is followed.
    ///
    /// # Errors
    /// If the file does not exist, is not a regular file, or the path has a link.
    pub fn open_own(&self, path: &RootPath) -> Result<File, RootError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.resolve("open", path, flags, Links::Refuse)?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| fail("examine", path, errno))?;
        plain_file(path, &stat)?;
        Ok(File::from(fd))
    }

    /// Creates an empty file for writing and reading under an unused name. Only the permission bits
    /// of `mode` are used, less the umask.
    ///
    /// # Errors
    /// If the name is taken, its folder does not exist or is reached through a link, or the system
    /// refuses.
    /// system refuses.
    pub fn create_part(&self, path: &RootPath, mode: u32) -> Result<File, RootError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        self.in_parent("create", path, Links::Refuse, |parent, name| {
            rustix::fs::openat(parent, name, flags | OFlags::CLOEXEC, permissions(mode))
                .map(File::from)
        })
    }

    /// Opens an existing part file for writing and reading, and keeps its content.
    ///
    /// # Errors
    /// If the file does not exist, is not a regular file, has other hard links, or the path has a
    /// link.
    pub fn open_part(&self, path: &RootPath) -> Result<File, RootError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        let (fd, stat) = self.in_parent("open", path, Links::Refuse, |parent, name| {
            let fd = rustix::fs::openat(parent, name, flags | OFlags::CLOEXEC, Mode::empty())?;
            let stat = rustix::fs::fstat(&fd)?;
            Ok((fd, stat))
        })?;
        plain_file(path, &stat)?;
        if stat.st_nlink > 1 {
            return Err(RootError::Shared(path.to_string()));
        }
        Ok(File::from(fd))
    }

    /// Creates a folder in an existing folder and returns whether it was missing; an existing
    /// folder is no error.
    ///
    /// # Errors
    /// If the name is taken by something other than a folder, such as a link, or the path has a
    /// link.
    pub fn create_dir(&self, path: &RootPath) -> Result<bool, RootError> {
        self.create_dir_as(path, 0o777)
    }

    /// As [`Self::create_dir`], with these permission bits of a new folder, less the umask. The owner's bits are always set.
    ///
    /// # Errors
    /// As [`Self::create_dir`].
    pub fn create_dir_as(&self, path: &RootPath, mode: u32) -> Result<bool, RootError> {
        if path.is_root() {
            return Ok(false);
        }
        self.in_parent("create folder", path, Links::Refuse, |parent, name| {
            match rustix::fs::mkdirat(parent, name, permissions(mode | 0o700)) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => resolve::enter(parent, name).map(|_| false),
                Err(errno) => Err(errno),
            }
        })
    }

    /// Creates a folder and its missing parents; an existing folder is no error.
    ///
    /// # Errors
    /// If one of the names is taken by something other than a folder, such as a link.
    pub fn create_dir_all(&self, path: &RootPath) -> Result<(), RootError> {
        match self.resolve("open", path, resolve::DIRECTORY, Links::Refuse) {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let mut held: Option<OwnedFd> = None;
        for name in path.components() {
            let here = held.as_ref().map_or_else(|| self.root.as_fd(), |fd| fd.as_fd());
            match rustix::fs::mkdirat(here, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(fail("create folder", path, errno)),
            }
            let entered = resolve::enter(here, name);
            held = Some(entered.map_err(|errno| fail("create folder", path, errno))?);
        }
        Ok(())
    }

    /// Opens a folder, to set its mode or time or to flush its names to disk (`sync_all`).
    ///
    /// # Errors
    /// If the folder does not exist, or the path has a link.
    pub fn open_dir(&self, path: &RootPath) -> Result<File, RootError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.resolve("open folder", path, flags, Links::Refuse).map(File::from)
    }

    /// Renames a file, link or folder atomically; replaces an existing file or link.
    ///
    /// # Errors
    /// If the new name is a folder that is not empty, or the system refuses.
    pub fn rename(&self, from: &RootPath, to: &RootPath) -> Result<(), RootError> {
        let old_parent =
            match from.parent() == to.parent() {
                true => None,
                false => Some(self.in_parent("rename", from, Links::Refuse, |parent, _| {
                    rustix::io::dup(parent)
                })?),
            };
        self.in_parent("rename to", to, Links::Refuse, |parent, to| {
            let from = from.name().ok_or(Errno::INVAL)?;
            match &old_parent {
                None => rustix::fs::renameat(parent, from, parent, to),
                Some(old_parent) => rustix::fs::renameat(old_parent, from, parent, to),
            }
        })
    }

    /// Removes a file or a link, never a folder.
    ///
    /// # Errors
    /// If the file does not exist, is a folder, its folder is reached through a link, or the system
    /// refuses.
    pub fn remove_file(&self, path: &RootPath) -> Result<(), RootError> {
        self.in_parent("remove", path, Links::Refuse, |parent, name| {
            rustix::fs::unlinkat(parent, name, AtFlags::empty())
        })
    }

    /// Removes an empty folder, never a file or a link.
    ///
    /// # Errors
    /// If the folder does not exist, is not empty, is reached through a link, or the system
    /// refuses.
    pub fn remove_dir(&self, path: &RootPath) -> Result<(), RootError> {
        self.in_parent("remove", path, Links::Refuse, |parent, name| {
            rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
        })
    }

    /// The metadata of the path. Links in the path are followed if they stay inside.
    ///
    /// # Errors
    /// If the path does not exist, or leads out.
    pub fn stat(&self, path: &RootPath, link: LinkTarget) -> Result<Metadata, RootError> {
        if link == LinkTarget::Follow || path.is_root() {
            let fd = self.resolve("examine", path, resolve::EXAMINE, Links::FollowInside)?;
            examine(fd.as_fd()).map_err(|errno| fail("examine", path, errno))
        } else {
            self.in_parent("examine", path, Links::FollowInside, |parent, name| {
                examine_at(parent, name, AtFlags::SYMLINK_NOFOLLOW)
            })
        }
    }

    /// The names in a folder, in no particular order. Links to the folder are followed if they stay
    /// inside.
    ///
    /// # Errors
    /// If the path is not a folder, or leads out.
    pub fn read_dir(&self, path: &RootPath) -> Result<Names, RootError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = self.resolve("list", path, flags, Links::FollowInside)?;
        let folder = Dir::new(fd).map_err(|errno| fail("list", path, errno))?;
        Ok(Names { folder, path: path.clone() })
    }

    fn resolve(
        &self,
        operation: &'static str,
        path: &RootPath,
        flags: OFlags,
        links: Links,
    ) -> Result<OwnedFd, RootError> {
        self.resolver
            .open(self.root.as_fd(), path, flags, links)
            .map_err(|errno| fail(operation, path, errno))
    }

    /// Runs `act` with the open parent folder of the path and the last name.
    fn in_parent<T>(
        &self,
        operation: &'static str,
        path: &RootPath,
        links: Links,
        act: impl FnOnce(BorrowedFd<'_>, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, RootError> {
        let (Some(parent), Some(name)) = (path.parent(), path.name()) else {
            return Err(RootError::IsADirectory(path.to_string()));
        };
        let near = self.near.as_ref().filter(|(folder, _)| *folder == parent);
        let result = if let Some((_, held)) = near {
            act(held.as_fd(), name)
        } else if parent.is_root() {
            act(self.root.as_fd(), name)
        } else {
            let parent = self.resolve(operation, &parent, resolve::DIRECTORY, links)?;
            act(parent.as_fd(), name)
        };
        result.map_err(|errno| fail(operation, path, errno))
    }
}

/// Sets the permission bits of an open file. Only the lowest nine bits and the sticky bit are used:
/// a mode from a peer must not set setuid or setgid.
///
/// # Errors
/// If the system refuses.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, permissions(mode) | Mode::from_bits_truncate(mode & 0o1000))?)
}

/// Sets the modification time of an open file.
///
/// # Errors
/// If the time has 10^9 nanoseconds or more, or the system refuses.
pub fn set_mtime(file: &File, mtime: FileTime) -> io::Result<()> {
    // Larger values may have a special meaning for the system, such as `UTIME_OMIT`.
    if mtime.nanoseconds >= 1_000_000_000 {
        let message = format!("{} nanoseconds are over a second", mtime.nanoseconds);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let last_modification =
        Timespec { tv_sec: mtime.seconds, tv_nsec: i64::from(mtime.nanoseconds) };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access, last_modification })?)
}

fn plain_file(path: &RootPath, stat: &Stat) -> Result<(), RootError> {
    match Kind::from(FileType::from_raw_mode(stat.st_mode)) {
        Kind::File => Ok(()),
        Kind::Directory => Err(RootError::IsADirectory(path.to_string())),
        Kind::Symlink | Kind::Other => Err(RootError::NotAFile(path.to_string())),
    }
}

fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & 0o777)
}

/// Iterator over the names in a folder, read on demand; ends with the first error.
#[derive(Debug)]
pub struct Names {
    folder: Dir,
    path: RootPath,
}

impl Iterator for Names {
    type Item = Result<Entry, RootError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.folder.read()?.and_then(|entry| classify(&self.folder, &entry)) {
                Ok(Some(entry)) => return Some(Ok(entry)),
                Ok(None) => {}
                Err(errno) => return Some(Err(fail("list", &self.path, errno))),
            }
        }
    }
}

/// Kind of a directory entry; `None` for `.` and `..`, and if the entry no longer exists.
fn classify(folder: &Dir, entry: &DirEntry) -> Result<Option<Entry>, Errno> {
    let name = entry.file_name();
    if matches!(name.to_bytes(), b"." | b"..") {
        return Ok(None);
    }
    let kind = match entry.file_type() {
        // Some file systems do not report the kind.
        FileType::Unknown => {
            match rustix::fs::statat(folder.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode).into(),
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
        file_type => file_type.into(),
    };
    Ok(Some(Entry { name: name.to_bytes().to_vec(), kind }))
}

#[cfg(test)]
mod tests;
