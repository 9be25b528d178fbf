//! File system interface: one method per system call, on real or in-memory disks.
//!
//! [`RootDir`] is the real implementation. All file access goes through [`Disk`] and [`DiskFile`]. So
//! an in-memory disk can replace the real disk, and fail or lose power at each single call. An open
//! file and its name are independent: an operation on a path may not affect the file that is open.

mod extra;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod memory;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use sabul_wire::control::{Attribute, Extent, SeenAttributes};

use crate::root::{
    self, Entry, FileTime, LinkTarget, Metadata, RootDir, RootError, RootPath, set_mode, set_mtime,
};

/// A tree of folders and files. Paths are relative to its root and never leave it.
pub trait Disk: Send + Sync + fmt::Debug {
    /// A path as displayed to the user of this disk, made printable.
    fn shown(&self, path: &RootPath) -> String {
        path.to_string()
    }

    /// The metadata of the path.
    ///
    /// # Errors
    /// If the path does not exist, or leads out of the root.
    fn stat(&self, path: &RootPath, link: LinkTarget) -> Result<Metadata, RootError>;

    /// Creates a folder in an existing folder; returns whether the folder was missing.
    ///
    /// # Errors
    /// If the folder cannot be created and does not exist.
    fn create_dir(&self, path: &RootPath) -> Result<bool, RootError>;

    /// As [`Self::create_dir`], with these permission bits of a new folder, less the umask. By default for disks without
    /// other users.
    ///
    /// # Errors
    /// As [`Self::create_dir`].
    fn create_dir_as(&self, path: &RootPath, _mode: u32) -> Result<bool, RootError> {
        self.create_dir(path)
    }

    /// Creates an empty file under an unused name.
    ///
    /// # Errors
    /// If the name is taken, or the system refuses.
    fn create_file(&self, path: &RootPath, mode: u32) -> Result<Box<dyn DiskFile>, RootError>;

    /// Opens a file for writing; the file must not have other hard links.
    ///
    /// # Errors
    /// If the file does not exist, or the system refuses.
    fn open_file(&self, path: &RootPath) -> Result<Box<dyn DiskFile>, RootError>;

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// If the file does not exist, or the system refuses.
    fn open_read(&self, path: &RootPath) -> Result<Box<dyn DiskFile>, RootError>;

    /// Opens a regular file, to set its metadata; no link is followed. By default for disks without links.
    ///
    /// # Errors
    /// If the file does not exist, or the path has a link.
    fn open_own(&self, path: &RootPath) -> Result<Box<dyn DiskFile>, RootError> {
        self.open_read(path)
    }

    /// Opens a folder, to set its mode or time or to flush its names.
    ///
    /// # Errors
    /// If the folder does not exist, or the system refuses.
    fn open_dir(&self, path: &RootPath) -> Result<Box<dyn DiskFile>, RootError>;

    /// The names in a folder, in no particular order.
    ///
    /// # Errors
    /// If the path is no folder, or cannot be listed.
    fn names(&self, path: &RootPath) -> Result<Names, RootError>;

    /// Renames a file atomically within a folder; replaces an existing file.
    ///
    /// # Errors
    /// If the new name is that of a folder, or the system refuses.
    fn rename(&self, from: &RootPath, to: &RootPath) -> Result<(), RootError>;

    /// Renames a file, link or folder to an unused name; never replaces a file that appears meanwhile.
    ///
    /// # Errors
    /// If the new name exists, or the system refuses.
    fn rename_unused(&self, from: &RootPath, to: &RootPath) -> Result<(), RootError>;

    /// Moves a regular file to an unused name, if `is_wanted` accepts its content and no other user can change the file or
    /// its name meanwhile.
    ///
    /// # Errors
    /// As [`RootDir::move_own`]; if this disk does not know other users.
    fn rename_own(
        &self,
        from: &RootPath,
        _to: &RootPath,
        _is_wanted: &dyn Fn(&dyn ReadFile) -> io::Result<bool>,
    ) -> Result<(), RootError> {
        Err(made_up("rename", from, Errno::OPNOTSUPP))
    }

    /// Removes a file, never a folder.
    ///
    /// # Errors
    /// If the file does not exist, or the system refuses.
    fn remove_file(&self, path: &RootPath) -> Result<(), RootError>;

    /// Removes an empty folder, never a file.
    ///
    /// # Errors
    /// If the folder does not exist or is not empty, or the system refuses.
    fn remove_dir(&self, path: &RootPath) -> Result<(), RootError>;

    /// The target text of a symbolic link.
    ///
    /// # Errors
    /// If the link does not exist, or this disk does not support links.
    fn read_link(&self, path: &RootPath) -> Result<Vec<u8>, RootError> {
        Err(made_up("read link", path, Errno::OPNOTSUPP))
    }

    /// Makes a symbolic link with this target text under an unused name.
    ///
    /// # Errors
    /// If the name is taken, the system refuses, or this disk does not support links.
    fn make_symlink(&self, path: &RootPath, _text: &[u8]) -> Result<(), RootError> {
        Err(made_up("link", path, Errno::OPNOTSUPP))
    }

    /// Makes a hard link under an unused name.
    ///
    /// # Errors
    /// If the name is taken, the system refuses, or this disk does not support links.
    fn make_hard_link(&self, _first: &RootPath, path: &RootPath) -> Result<(), RootError> {
        Err(made_up("link", path, Errno::OPNOTSUPP))
    }

    /// Sets the group and, if given, the owner of a symbolic link with this target text.
    ///
    /// # Errors
    /// If another entry has the name, the system refuses, or this disk does not support owners.
    fn set_link_owner(
        &self,
        path: &RootPath,
        _text: &[u8],
        _user: Option<u32>,
        _group: u32,
    ) -> Result<(), RootError> {
        Err(made_up("own", path, Errno::OPNOTSUPP))
    }

    /// Sets the modification time of a name, without following a symbolic link.
    ///
    /// # Errors
    /// If the system refuses, or this disk does not support links.
    fn set_link_mtime(&self, path: &RootPath, _mtime: FileTime) -> Result<(), RootError> {
        Err(made_up("date", path, Errno::OPNOTSUPP))
    }

    /// Whether several threads may make calls at the same time. A disk that counts its calls
    /// returns `false`.
    fn takes_several(&self) -> bool {
        false
    }

    /// The same disk for short-term use in one folder, which is kept open; `None` if this has no
    /// benefit.
    fn near(&self, _folder: &RootPath) -> Option<Box<dyn Disk>> {
        None
    }

    /// The same disk restricted to this folder, for reading: links must not lead out of the folder.
    /// `None` if the disk has no links.
    fn within(&self, _folder: &RootPath) -> Option<Box<dyn Disk>> {
        None
    }

    /// A disk with this folder as its root, which is kept open: operations go to the folder even if another one gets its
    /// name. `None` if the disk does not support this.
    ///
    /// # Errors
    /// If the folder does not exist, or the path has a link.
    fn hold(&self, _folder: &RootPath) -> Result<Option<RootDir>, RootError> {
        Ok(None)
    }

    /// User id of files created here.
    fn user(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// Random bits for a name that is unique and cannot be guessed.
    ///
    /// # Errors
    /// If the system has no random numbers.
    fn draw(&self) -> io::Result<u64>;
}

/// Iterator over the names in a folder, read on demand; ends with the first error.
pub type Names = Box<dyn Iterator<Item = Result<Entry, RootError>> + Send>;

/// Result of an attempt to lock a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The lock is held until the file is closed or this process ends.
    Held,
    /// Another process or file handle holds the lock.
    Busy,
    /// The file system does not support locks.
    Unknown,
}

/// Extended attributes of a file that are copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Attributes within the size limits, sorted by name.
    pub list: Vec<Attribute>,
    /// Number of further attributes.
    pub left: u32,
}

/// Content that can be read: an open file, or a version of an object.
pub trait ReadFile: Send + fmt::Debug {
    /// The metadata of the file.
    ///
    /// # Errors
    /// As reported by the system.
    fn metadata(&self) -> io::Result<Metadata>;

    /// Reads from this offset in bytes into the spare capacity of `into`; returns the number of
    /// bytes.
    ///
    /// # Errors
    /// As reported by the system.
    fn read_at(&self, into: &mut Vec<u8>, offset: u64) -> io::Result<usize>;

    /// Flushes content and metadata of a file, or the names in a folder, to the disk.
    ///
    /// # Errors
    /// If any of it could not be written.
    fn sync(&self) -> io::Result<()>;

    /// The extended attributes that are copied.
    ///
    /// # Errors
    /// As reported by the system.
    fn attributes(&self) -> io::Result<Attributes> {
        Ok(Attributes::default())
    }

    /// Hashes of the extended attributes that are copied; `None` if the file system has none of them.
    ///
    /// # Errors
    /// As reported by the system.
    fn seen_attributes(&self) -> io::Result<Option<SeenAttributes>> {
        Ok(None)
    }

    /// The access control list; `None` if the mode has all rights.
    ///
    /// # Errors
    /// As reported by the system.
    fn access_list(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// The data extents of a file of `size` bytes, at most
    /// [`MAX_EXTENTS`](sabul_wire::control::MAX_EXTENTS). Returns `None` if the system reports no
    /// holes.
    ///
    /// # Errors
    /// As reported by the system.
    fn data(&self, _size: u64) -> io::Result<Option<Vec<Extent>>> {
        Ok(None)
    }
}

/// An open file or folder; independent of its name.
pub trait DiskFile: ReadFile {
    /// Writes some of the bytes from this offset; returns the number of bytes.
    ///
    /// # Errors
    /// As reported by the system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes from this offset.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = bytes.get(count..).unwrap_or_default();
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sets the length of the file in bytes.
    ///
    /// # Errors
    /// As reported by the system.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Free space on the file system, in bytes.
    ///
    /// # Errors
    /// As reported by the system.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Reserves space for a range without changing the length. Missing support is no error.
    ///
    /// # Errors
    /// If there is not enough space.
    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Starts the writeback of a range; does not wait.
    fn start_writeback(&self, offset: u64, bytes: u64);

    /// Whether locks are effective for all writers of the file system, including writers on other
    /// machines.
    ///
    /// # Errors
    /// As reported by the system.
    fn has_shared_locks(&self) -> io::Result<bool>;

    /// Drops cached content that is on the disk, so that the next read comes from the disk.
    fn drop_cache(&self) {}

    /// Sets the permission bits, including the sticky bit.
    ///
    /// # Errors
    /// As reported by the system.
    fn set_mode(&self, mode: u32) -> io::Result<()>;

    /// Sets the modification time.
    ///
    /// # Errors
    /// As reported by the system.
    fn set_mtime(&self, mtime: FileTime) -> io::Result<()>;

    /// Sets the group and, if given, the owner.
    ///
    /// # Errors
    /// As reported by the system; if this disk does not support owners.
    fn set_owner(&self, _user: Option<u32>, _group: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As reported by the system; if this disk does not support attributes.
    fn set_attribute(&self, _attribute: &Attribute) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes an extended attribute. An attribute that does not exist is no error.
    ///
    /// # Errors
    /// As reported by the system.
    fn remove_attribute(&self, _name: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Flushes the whole file system to the disk.
    ///
    /// # Errors
    /// If a write on the file system failed since this file was opened; `Unsupported` if the call
    /// would not guarantee this here.
    fn sync_file_system(&self) -> io::Result<()>;

    /// Whether an open folder has no entries. By default for disks without other processes.
    ///
    /// # Errors
    /// As reported by the system.
    fn is_empty_folder(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Takes an exclusive lock without waiting.
    ///
    /// # Errors
    /// As reported by the system.
    fn lock(&self) -> io::Result<Lock>;

    /// Closes a duplicate of the file. Some file systems report failed writes only on close. The file stays open and keeps
    /// its lock.
    ///
    /// # Errors
    /// If content is lost, or no descriptor is free.
    fn close_duplicate(&self) -> io::Result<()>;
}

impl Disk for RootDir {
    fn shown(&self, path: &RootPath) -> String {
        self.shown(path)
    }

    fn stat(&self, path: &RootPath, link: LinkTarget) -> Result<Metadata, RootError> {
        self.stat(path, link)
    }

    fn create_dir(&self, path: &RootPath) -> Result<bool, RootError> {
        self.create_dir(path)
    }

    fn create_dir_as(&self, path: &RootPath, mode: u32) -> Result<bool, RootError> {
        self.create_dir_as(path, mode)
    }

    fn create_file(&self, path: &RootPath, mode: u32) -> Result<Box<dyn DiskFile>, RootError> {
        Ok(Box::new(self.create_part(path, mode)?))
    }

    fn open_file(&self, path: &RootPath) -> Result<Box<dyn DiskFile>, RootError> {
        Ok(Box::new(self.open_part(path)?))
    }

    fn open_read(&self, path: &RootPath) -> Result<Box<dyn DiskFile>, RootError> {
        Ok(Box::new(self.open_read(path)?))
    }

    fn open_own(&self, path: &RootPath) -> Result<Box<dyn DiskFile>, RootError> {
        Ok(Box::new(self.open_own(path)?))
    }

    fn open_dir(&self, path: &RootPath) -> Result<Box<dyn DiskFile>, RootError> {
        Ok(Box::new(self.open_dir(path)?))
    }

    fn names(&self, path: &RootPath) -> Result<Names, RootError> {
        Ok(Box::new(self.read_dir(path)?))
    }

    fn rename(&self, from: &RootPath, to: &RootPath) -> Result<(), RootError> {
        self.rename(from, to)
    }

    fn rename_unused(&self, from: &RootPath, to: &RootPath) -> Result<(), RootError> {
        self.move_to(from, self, to)
    }

    fn rename_own(
        &self,
        from: &RootPath,
        to: &RootPath,
        is_wanted: &dyn Fn(&dyn ReadFile) -> io::Result<bool>,
    ) -> Result<(), RootError> {
        self.move_own(from, self, to, &|file| is_wanted(file))
    }

    fn remove_file(&self, path: &RootPath) -> Result<(), RootError> {
        self.remove_file(path)
    }

    fn remove_dir(&self, path: &RootPath) -> Result<(), RootError> {
        self.remove_dir(path)
    }

    fn read_link(&self, path: &RootPath) -> Result<Vec<u8>, RootError> {
        self.read_link(path)
    }

    fn make_symlink(&self, path: &RootPath, text: &[u8]) -> Result<(), RootError> {
        self.make_symlink(path, text)
    }

    fn make_hard_link(&self, first: &RootPath, path: &RootPath) -> Result<(), RootError> {
        self.make_hard_link(first, path)
    }

    fn set_link_owner(
        &self,
        path: &RootPath,
        text: &[u8],
        user: Option<u32>,
        group: u32,
    ) -> Result<(), RootError> {
        self.set_link_owner(path, text, user, group)
    }

    fn set_link_mtime(&self, path: &RootPath, mtime: FileTime) -> Result<(), RootError> {
        self.set_link_mtime(path, mtime)
    }

    fn takes_several(&self) -> bool {
        true
    }

    fn near(&self, folder: &RootPath) -> Option<Box<dyn Disk>> {
        // A problem with the folder is reported by later calls there.
        self.near(folder).ok().map(|near| Box::new(near) as Box<dyn Disk>)
    }

    fn within(&self, folder: &RootPath) -> Option<Box<dyn Disk>> {
        self.within(folder).ok().map(|inside| Box::new(inside) as Box<dyn Disk>)
    }

    fn hold(&self, folder: &RootPath) -> Result<Option<RootDir>, RootError> {
        self.hold(folder).map(Some)
    }

    fn draw(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        // The kernel fills a buffer of up to 256 bytes completely.
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

impl ReadFile for File {
    fn metadata(&self) -> io::Result<Metadata> {
        Metadata::of(self)
    }

    fn read_at(&self, into: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
        // Directly into uninitialized spare capacity: no zeroing and no copy.
        Ok(rustix::io::pread(self, spare_capacity(into), offset)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn attributes(&self) -> io::Result<Attributes> {
        extra::attributes(self)
    }

    fn seen_attributes(&self) -> io::Result<Option<SeenAttributes>> {
        extra::seen_attributes(self).map(Some)
    }

    fn access_list(&self) -> io::Result<Option<Vec<u8>>> {
        extra::access_list(self)
    }

    fn data(&self, size: u64) -> io::Result<Option<Vec<Extent>>> {
        extra::data(self, size)
    }
}

impl DiskFile for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::fstatvfs(self)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<()> {
        loop {
            return match rustix::fs::fallocate(self, FallocateFlags::KEEP_SIZE, offset, bytes) {
                Err(Errno::INTR) => continue,
                Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
                _ => Ok(()),
            };
        }
    }

    fn start_writeback(&self, offset: u64, bytes: u64) {
        // On Linux this advice first starts the writeback of dirty pages. Pages that cannot be
        // dropped stay in memory.
        let bytes = std::num::NonZeroU64::new(bytes);
        let _ = rustix::fs::fadvise(self, offset, bytes, Advice::DontNeed);
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        set_mode(self, mode)
    }

    fn set_mtime(&self, mtime: FileTime) -> io::Result<()> {
        set_mtime(self, mtime)
    }

    fn set_owner(&self, user: Option<u32>, group: u32) -> io::Result<()> {
        let (user, group) = root::owner(user, group)?;
        Ok(rustix::fs::fchown(self, user, group)?)
    }

    fn set_attribute(&self, attribute: &Attribute) -> io::Result<()> {
        extra::set_attribute(self, attribute)
    }

    fn remove_attribute(&self, name: &[u8]) -> io::Result<()> {
        extra::remove_attribute(self, name)
    }

    fn sync_file_system(&self) -> io::Result<()> {
        sync_file_system(self)
    }

    fn is_empty_folder(&self) -> io::Result<bool> {
        for entry in rustix::fs::Dir::read_from(self)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn lock(&self) -> io::Result<Lock> {
        match rustix::fs::flock(self, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock::Held),
            Err(Errno::WOULDBLOCK) => Ok(Lock::Busy),
            Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Ok(Lock::Unknown),
            Err(error) => Err(error.into()),
        }
    }

    fn has_shared_locks(&self) -> io::Result<bool> {
        is_local(self)
    }

    fn drop_cache(&self) {
        // Only clean pages are dropped; the system does not report whether they were.
        let _ = rustix::fs::fadvise(self, 0, None, Advice::DontNeed);
    }

    fn close_duplicate(&self) -> io::Result<()> {
        match nix::unistd::close(self.try_clone()?) {
            // Linux has closed the descriptor nevertheless.
            Ok(()) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether only this machine writes to the file system: ext2 to ext4, XFS, Btrfs, F2FS, tmpfs,
/// overlay, ZFS or bcachefs.
#[cfg(target_os = "linux")]
fn is_local(file: &File) -> io::Result<bool> {
    let kind = u64::try_from(rustix::fs::fstatfs(file)?.f_type).unwrap_or(0);
    Ok(syncfs_returns_errors(kind) || matches!(kind, 0x794C_7630 | 0x2FC1_2FC1 | 0xCA45_1A4E))
}

#[cfg(not(target_os = "linux"))]
fn is_local(_file: &File) -> io::Result<bool> {
    Ok(false)
}

/// Flushes a whole file system, if one call does so and returns every write error: on Linux 5.8 and
/// later.
#[cfg(target_os = "linux")]
fn sync_file_system(file: &File) -> io::Result<()> {
    // The type of the field differs between machines; the numbers have 32 bits.
    let kind = u64::try_from(rustix::fs::fstatfs(file)?.f_type).unwrap_or(0);
    if !syncfs_returns_errors(kind) || !reports_errors() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(rustix::fs::syncfs(file)?)
}

/// Whether `syncfs` returns every write error on a file system of this `statfs` type: ext2 to ext4,
/// XFS, Btrfs, F2FS and tmpfs. Their superblocks record writeback errors. The superblock of an
/// overlay records no error of the file system below it (measured on Linux 6.18). So files on an
/// overlay are flushed one by one with `fsync`.
#[cfg(target_os = "linux")]
const fn syncfs_returns_errors(kind: u64) -> bool {
    matches!(kind, 0xEF53 | 0x5846_5342 | 0x9123_683E | 0xF2F5_2010 | 0x0102_1994)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_file: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether `syncfs` reports failed writes (Linux 5.8 and later).
#[cfg(target_os = "linux")]
fn reports_errors() -> bool {
    let name = rustix::system::uname();
    let mut numbers =
        name.release().to_bytes().split(|byte| !byte.is_ascii_digit()).map(|digits| {
            std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| digits.parse::<u32>().ok())
                .unwrap_or(0)
        });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 8)
}

/// Error of an in-memory disk for a call on a path.
pub(crate) fn made_up(operation: &'static str, path: &RootPath, errno: Errno) -> RootError {
    root::fail(operation, path, errno)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    /// A file opened with `O_PATH`: every flush fails, if the system is called at all.
    fn cannot_be_flushed(folder: &str) -> Option<File> {
        let dir = tempfile::tempdir_in(folder).ok()?;
        std::fs::write(dir.path().join("f"), "content").unwrap();
        let path = dir.path().join("f");
        rustix::fs::open(&path, OFlags::PATH, Mode::empty()).ok().map(File::from)
    }

    #[test]
    fn a_failed_system_flush_is_an_error() {
        let file = cannot_be_flushed(&std::env::temp_dir().display().to_string()).unwrap();
        let refused = Some(Errno::BADF.raw_os_error());
        assert_eq!(ReadFile::sync(&file).unwrap_err().raw_os_error(), refused);
        // A tmpfs is flushed as a whole.
        let Some(file) = cannot_be_flushed("/dev/shm") else {
            println!("SKIPPED the flush of a whole file system: no tmpfs at /dev/shm");
            return;
        };
        assert_eq!(DiskFile::sync_file_system(&file).unwrap_err().raw_os_error(), refused);
    }

    #[test]
    fn only_file_systems_whose_syncfs_returns_errors_are_flushed_as_a_whole() {
        for (kind, name) in [
            (0x794C_7630, "overlay"),
            (0x6573_5546, "FUSE"),
            (0x6969, "NFS"),
            (0xFF53_4D42, "CIFS"),
            (0xF15F, "eCryptfs"),
            (0x2FC1_2FC1, "ZFS"),
            (0, "unknown"),
        ] {
            assert!(!syncfs_returns_errors(kind), "{name}");
        }
        assert!(syncfs_returns_errors(0xEF53), "ext4");
        let Ok(shm) = File::open("/dev/shm") else { return };
        let kind = u64::try_from(rustix::fs::fstatfs(&shm).unwrap().f_type).unwrap();
        assert!(syncfs_returns_errors(kind), "tmpfs is {kind:#x}");
    }
}
