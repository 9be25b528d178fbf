//! What files are written to and served from, one system call at a time.
//!
//! [`Jail`] is the real thing. Whatever writes files does so through [`Disk`] and [`DiskFile`], so
//! that a disk in memory can take its place, and fail, or lose its power, at each single call.
//! A file that is open and a name are two things: what is done to the one may miss the other.

mod extra;
pub(crate) mod memory;

use std::fmt;
use std::fs::File;
use std::io;

use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::Errno;
use sabul_wire::control::{Attribute, Extent};

use crate::jail::{
    self, Entry, FileTime, Jail, JailError, JailPath, LinkTarget, Metadata, set_mode, set_mtime,
};

/// A tree of folders and files; paths are relative to its root and never leave it.
pub trait Disk: Send + Sync + fmt::Debug {
    /// A path as the user of this disk knows it, made printable.
    fn shown(&self, path: &JailPath) -> String {
        path.to_string()
    }

    /// What the path stands for.
    ///
    /// # Errors
    /// If there is nothing, or the way to it leads out.
    fn stat(&self, path: &JailPath, link: LinkTarget) -> Result<Metadata, JailError>;

    /// Creates a folder in one that exists, and tells whether it was missing.
    ///
    /// # Errors
    /// If it can neither be made nor is there.
    fn create_dir(&self, path: &JailPath) -> Result<bool, JailError>;

    /// Creates an empty file under a name that nothing has.
    ///
    /// # Errors
    /// If the name is taken, or the system refuses.
    fn create_file(&self, path: &JailPath, mode: u32) -> Result<Box<dyn DiskFile>, JailError>;

    /// Opens a file for writing that no other name shares.
    ///
    /// # Errors
    /// If there is none, or the system refuses.
    fn open_file(&self, path: &JailPath) -> Result<Box<dyn DiskFile>, JailError>;

    /// Opens a plain file for reading.
    ///
    /// # Errors
    /// If there is none, or the system refuses.
    fn open_read(&self, path: &JailPath) -> Result<Box<dyn DiskFile>, JailError>;

    /// Opens a folder, to set its mode or time or to flush its names.
    ///
    /// # Errors
    /// If there is none, or the system refuses.
    fn open_dir(&self, path: &JailPath) -> Result<Box<dyn DiskFile>, JailError>;

    /// The names in a folder, in no order.
    ///
    /// # Errors
    /// If it is no folder, or cannot be listed.
    fn names(&self, path: &JailPath) -> Result<Names, JailError>;

    /// Gives a file another name in the same folder in one step; a file of that name is replaced.
    ///
    /// # Errors
    /// If the new name is that of a folder, or the system refuses.
    fn rename(&self, from: &JailPath, to: &JailPath) -> Result<(), JailError>;

    /// Removes a file, never a folder.
    ///
    /// # Errors
    /// If there is none, or the system refuses.
    fn remove_file(&self, path: &JailPath) -> Result<(), JailError>;

    /// Removes an empty folder, never a file.
    ///
    /// # Errors
    /// If there is none, it is not empty, or the system refuses.
    fn remove_dir(&self, path: &JailPath) -> Result<(), JailError>;

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// If there is none, or this disk knows no links.
    fn read_link(&self, path: &JailPath) -> Result<Vec<u8>, JailError> {
        Err(made_up("read link", path, Errno::OPNOTSUPP))
    }

    /// Makes a symbolic link of this text under a name that nothing has.
    ///
    /// # Errors
    /// If the name is taken, the system refuses, or this disk knows no links.
    fn make_symlink(&self, path: &JailPath, _text: &[u8]) -> Result<(), JailError> {
        Err(made_up("link", path, Errno::OPNOTSUPP))
    }

    /// Gives a file another name that nothing has.
    ///
    /// # Errors
    /// If the name is taken, the system refuses, or this disk knows no links.
    fn make_hard_link(&self, _first: &JailPath, path: &JailPath) -> Result<(), JailError> {
        Err(made_up("link", path, Errno::OPNOTSUPP))
    }

    /// Sets the owner, where it is to change, and the group of a name, of a symbolic link itself.
    ///
    /// # Errors
    /// If the system refuses, or this disk knows no owners.
    fn set_link_owner(
        &self,
        path: &JailPath,
        _user: Option<u32>,
        _group: u32,
    ) -> Result<(), JailError> {
        Err(made_up("own", path, Errno::OPNOTSUPP))
    }

    /// Sets the time of modification of a name, of a symbolic link itself.
    ///
    /// # Errors
    /// If the system refuses, or this disk knows no links.
    fn set_link_mtime(&self, path: &JailPath, _mtime: FileTime) -> Result<(), JailError> {
        Err(made_up("date", path, Errno::OPNOTSUPP))
    }

    /// Whether several threads may do something at a time. A disk that counts its calls says no.
    fn takes_several(&self) -> bool {
        false
    }

    /// The same disk for somebody who does much in one folder, for a moment; nothing where that is of no use.
    fn near(&self, _folder: &JailPath) -> Option<Box<dyn Disk>> {
        None
    }

    /// The same disk for reading below this folder, where links lead no further than that; nothing where there are no links.
    fn within(&self, _folder: &JailPath) -> Option<Box<dyn Disk>> {
        None
    }

    /// Number of the user who owns the files that are created here.
    fn user(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// Bits for a name that nobody else has or can guess.
    ///
    /// # Errors
    /// If the system has none to give.
    fn draw(&self) -> io::Result<u64>;
}

/// The names in a folder, read as they are asked for; ends with the first error.
pub type Names = Box<dyn Iterator<Item = Result<Entry, JailError>> + Send>;

/// What came of an attempt to lock a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// It is ours until it is closed or our process ends, however it ends.
    Held,
    /// Somebody else has it.
    Busy,
    /// This file system knows no locks.
    Unknown,
}

/// Extended attributes of a file that are copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Those that fit what may be sent, sorted by name.
    pub list: Vec<Attribute>,
    /// How many there are beside.
    pub left: u32,
}

/// An open file or folder. What it is called, if anything, does not matter to it.
pub trait DiskFile: Send + fmt::Debug {
    /// What is known of it.
    ///
    /// # Errors
    /// If the system cannot tell.
    fn metadata(&self) -> io::Result<Metadata>;

    /// Reads from this offset in bytes into the unused capacity of `into`; tells how many bytes.
    ///
    /// # Errors
    /// As the system says.
    fn read_at(&self, into: &mut Vec<u8>, offset: u64) -> io::Result<usize>;

    /// Writes some of the bytes at the end of what was written; tells how many.
    ///
    /// # Errors
    /// As the system says.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Ends the file here, in bytes from its beginning; what is written next goes there.
    ///
    /// # Errors
    /// As the system says.
    fn resume_at(&mut self, offset: u64) -> io::Result<()>;

    /// Bytes that there is room for on its disk.
    ///
    /// # Errors
    /// If the system cannot tell.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Reserves space for a range without changing the length. A file system that cannot is fine.
    ///
    /// # Errors
    /// If there is not so much space.
    fn reserve(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Asks the system to begin to write a range to the disk; waits for nothing.
    fn start_writeback(&self, offset: u64, bytes: u64);

    /// Whether every writer of the file system obeys a lock, on other machines too.
    ///
    /// # Errors
    /// If the system cannot tell.
    fn has_shared_locks(&self) -> io::Result<bool>;

    /// Forgets what of its content is on the disk, so that the next read comes from there.
    fn drop_cache(&self) {}

    /// Sets the permission bits, the sticky bit included.
    ///
    /// # Errors
    /// As the system says.
    fn set_mode(&self, mode: u32) -> io::Result<()>;

    /// Sets the time of modification.
    ///
    /// # Errors
    /// As the system says.
    fn set_mtime(&self, mtime: FileTime) -> io::Result<()>;

    /// Sets the owner, where it is to change, and the group.
    ///
    /// # Errors
    /// As the system says; if this disk knows no owners.
    fn set_owner(&self, _user: Option<u32>, _group: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The extended attributes that are copied.
    ///
    /// # Errors
    /// If the system cannot tell.
    fn attributes(&self) -> io::Result<Attributes> {
        Ok(Attributes::default())
    }

    /// Gives it an extended attribute.
    ///
    /// # Errors
    /// As the system says; if this disk knows none.
    fn set_attribute(&self, _attribute: &Attribute) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Where a file of this length, in bytes, has data between holes; at most
    /// [`MAX_EXTENTS`](sabul_wire::control::MAX_EXTENTS) stretches. Nothing where it has no holes that the system
    /// tells of.
    ///
    /// # Errors
    /// As the system says.
    fn data(&self, _size: u64) -> io::Result<Option<Vec<Extent>>> {
        Ok(None)
    }

    /// Waits until it is on the disk: content and metadata of a file, names in a folder.
    ///
    /// # Errors
    /// If any of it could not be written.
    fn sync(&self) -> io::Result<()>;

    /// Waits until all of its file system is on the disk.
    ///
    /// # Errors
    /// If anything on it could not be written since this file was opened; `Unsupported` where this
    /// would not mean what it says.
    fn sync_file_system(&self) -> io::Result<()>;

    /// Locks it for ourselves, without waiting.
    ///
    /// # Errors
    /// As the system says.
    fn lock(&self) -> io::Result<Lock>;

    /// Closes it, and tells what went wrong with earlier writes, which some file systems find out
    /// only now.
    ///
    /// # Errors
    /// If content is lost.
    fn close(self: Box<Self>) -> io::Result<()>;
}

impl Disk for Jail {
    fn shown(&self, path: &JailPath) -> String {
        self.shown(path)
    }

    fn stat(&self, path: &JailPath, link: LinkTarget) -> Result<Metadata, JailError> {
        self.stat(path, link)
    }

    fn create_dir(&self, path: &JailPath) -> Result<bool, JailError> {
        self.create_dir(path)
    }

    fn create_file(&self, path: &JailPath, mode: u32) -> Result<Box<dyn DiskFile>, JailError> {
        Ok(Box::new(self.create_part(path, mode)?))
    }

    fn open_file(&self, path: &JailPath) -> Result<Box<dyn DiskFile>, JailError> {
        Ok(Box::new(self.open_part(path)?))
    }

    fn open_read(&self, path: &JailPath) -> Result<Box<dyn DiskFile>, JailError> {
        Ok(Box::new(self.open_read(path)?))
    }

    fn open_dir(&self, path: &JailPath) -> Result<Box<dyn DiskFile>, JailError> {
        Ok(Box::new(self.open_dir(path)?))
    }

    fn names(&self, path: &JailPath) -> Result<Names, JailError> {
        Ok(Box::new(self.read_dir(path)?))
    }

    fn rename(&self, from: &JailPath, to: &JailPath) -> Result<(), JailError> {
        self.rename(from, to)
    }

    fn remove_file(&self, path: &JailPath) -> Result<(), JailError> {
        self.remove_file(path)
    }

    fn remove_dir(&self, path: &JailPath) -> Result<(), JailError> {
        self.remove_dir(path)
    }

    fn read_link(&self, path: &JailPath) -> Result<Vec<u8>, JailError> {
        self.read_link(path)
    }

    fn make_symlink(&self, path: &JailPath, text: &[u8]) -> Result<(), JailError> {
        self.make_symlink(path, text)
    }

    fn make_hard_link(&self, first: &JailPath, path: &JailPath) -> Result<(), JailError> {
        self.make_hard_link(first, path)
    }

    fn set_link_owner(
        &self,
        path: &JailPath,
        user: Option<u32>,
        group: u32,
    ) -> Result<(), JailError> {
        self.set_link_owner(path, user, group)
    }

    fn set_link_mtime(&self, path: &JailPath, mtime: FileTime) -> Result<(), JailError> {
        self.set_link_mtime(path, mtime)
    }

    fn takes_several(&self) -> bool {
        true
    }

    fn near(&self, folder: &JailPath) -> Option<Box<dyn Disk>> {
        // What is wrong with it shows in what is done there.
        self.near(folder).ok().map(|near| Box::new(near) as Box<dyn Disk>)
    }

    fn within(&self, folder: &JailPath) -> Option<Box<dyn Disk>> {
        self.within(folder).ok().map(|inside| Box::new(inside) as Box<dyn Disk>)
    }

    fn draw(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        aws_lc_rs::rand::fill(&mut bytes)
            .map_err(|_| io::Error::other("the system gives no random numbers"))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

impl DiskFile for File {
    fn metadata(&self) -> io::Result<Metadata> {
        Metadata::of(self)
    }

    fn read_at(&self, into: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
        // Straight into unused memory: no zeroing and no copy.
        Ok(rustix::io::pread(self, spare_capacity(into), offset)?)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write(self, bytes)
    }

    fn resume_at(&mut self, offset: u64) -> io::Result<()> {
        self.set_len(offset)?;
        io::Seek::seek(self, io::SeekFrom::Start(offset)).map(drop)
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
        // This advice makes Linux write what is dirty first; what it cannot drop stays in memory.
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
        let (user, group) = jail::owner(user, group)?;
        Ok(rustix::fs::fchown(self, user, group)?)
    }

    fn attributes(&self) -> io::Result<Attributes> {
        extra::attributes(self)
    }

    fn set_attribute(&self, attribute: &Attribute) -> io::Result<()> {
        extra::set_attribute(self, attribute)
    }

    fn data(&self, size: u64) -> io::Result<Option<Vec<Extent>>> {
        extra::data(self, size)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn sync_file_system(&self) -> io::Result<()> {
        sync_file_system(self)
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
        // Only pages that were flushed go; that they are gone, nobody tells.
        let _ = rustix::fs::fadvise(self, 0, None, Advice::DontNeed);
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        match nix::unistd::close(*self) {
            // Linux has closed it nevertheless.
            Ok(()) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether only this machine writes to the file system: ext2 to ext4, XFS, Btrfs, F2FS, tmpfs, overlays, ZFS or bcachefs.
#[cfg(target_os = "linux")]
fn is_local(file: &File) -> io::Result<bool> {
    let kind = u64::try_from(rustix::fs::fstatfs(file)?.f_type).unwrap_or(0);
    Ok(syncfs_returns_errors(kind) || matches!(kind, 0x794C_7630 | 0x2FC1_2FC1 | 0xCA45_1A4E))
}

#[cfg(not(target_os = "linux"))]
fn is_local(_file: &File) -> io::Result<bool> {
    Ok(false)
}

/// Flushes a whole file system, where one call does that and returns every write error: from Linux 5.8 on.
#[cfg(target_os = "linux")]
fn sync_file_system(file: &File) -> io::Result<()> {
    // The types differ between machines; the numbers have 32 bits.
    let kind = u64::try_from(rustix::fs::fstatfs(file)?.f_type).unwrap_or(0);
    if !syncfs_returns_errors(kind) || !tells_errors() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(rustix::fs::syncfs(file)?)
}

/// Whether `syncfs` returns every write error on a file system of this type, as `statfs` numbers it: ext2 to ext4, XFS,
/// Btrfs, F2FS and tmpfs, whose superblocks record the errors of writeback. The superblock of an overlay records no error
/// of the file system below it (measured on Linux 6.18), so files on an overlay are flushed by `fsync`, one by one.
#[cfg(target_os = "linux")]
const fn syncfs_returns_errors(kind: u64) -> bool {
    matches!(kind, 0xEF53 | 0x5846_5342 | 0x9123_683E | 0xF2F5_2010 | 0x0102_1994)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_file: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether `syncfs` reports what could not be written.
#[cfg(target_os = "linux")]
fn tells_errors() -> bool {
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

/// The error of a call on a path that a disk in memory makes up.
pub(crate) fn made_up(operation: &'static str, path: &JailPath, errno: Errno) -> JailError {
    jail::fail(operation, path, errno)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    /// A file that is open as a path only: every flush of it fails, if the system is called at all.
    fn cannot_be_flushed(folder: &str) -> Option<File> {
        let dir = tempfile::tempdir_in(folder).ok()?;
        std::fs::write(dir.path().join("f"), "content").unwrap();
        let path = dir.path().join("f");
        rustix::fs::open(&path, OFlags::PATH, Mode::empty()).ok().map(File::from)
    }

    #[test]
    fn a_flush_that_the_system_refuses_fails() {
        let file = cannot_be_flushed(&std::env::temp_dir().display().to_string()).unwrap();
        let refused = Some(Errno::BADF.raw_os_error());
        assert_eq!(DiskFile::sync(&file).unwrap_err().raw_os_error(), refused);
        // A tmpfs is one of the file systems that are flushed as a whole.
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
