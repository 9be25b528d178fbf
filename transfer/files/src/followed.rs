//! Entries that another transfer still writes here, and the reading of their files meanwhile.
//!
//! A receiver writes a part from its beginning to its end (`part.rs`), so all bytes up to the length of the part are
//! content. They are read as they come. If the part vanishes, or another part of the same name is newer, the reader goes
//! on there. The end of the file is sent only after the file got its name, with the announced size and time. The sender
//! then reads the named file again and compares the hash. So bytes of a part that was written anew are never passed on
//! as a complete file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use std::os::unix::ffi::OsStrExt as _;

use super::part::is_part_of;
use super::tree::{Tree, modified_ns};
use crate::disk::ReadFile;
use crate::root::{FileId, Kind, LinkTarget, Metadata};

/// Time between two looks at an entry, or at new bytes. Ours: the bytes of this time at a slow path fill a small part of
/// a block, and a copy to several machines is late by this time for each machine.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// Time between two searches for a newer part. Ours: a search lists the directory.
const SEARCH_AFTER: Duration = Duration::from_secs(1);

/// An entry that another transfer may still write at this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Name, as a copy of all sources would name the entry.
    pub name: Vec<u8>,
    /// Size of the complete file in bytes; `None` for a directory.
    pub size: Option<u64>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Modification time of the complete entry, in nanoseconds since 1970.
    pub modified_ns: Option<i64>,
    /// Content is sent before the file is complete.
    pub begins_early: bool,
}

impl Awaited {
    /// Whether a file of this size and time is complete.
    pub(super) fn is_file_of(&self, size: u64, modified_ns: Option<i64>) -> bool {
        self.size == Some(size) && self.modified_ns == modified_ns
    }
}

/// A file that is read while another transfer writes it.
#[derive(Debug)]
pub(crate) struct Followed {
    tree: Tree,
    /// Final path.
    path: PathBuf,
    awaited: Awaited,
    /// Set once the other transfer has ended.
    is_written: Arc<AtomicBool>,
    now: Mutex<Now>,
}

/// The file that is read now.
#[derive(Debug)]
struct Now {
    file: Box<dyn ReadFile>,
    id: FileId,
    /// The file has its final name.
    is_complete: bool,
    searched: Instant,
}

impl Followed {
    /// Opens the newest part of an awaited file; `None` if this user has no part of the file.
    pub(super) fn open(
        tree: &Tree,
        path: PathBuf,
        awaited: &Awaited,
        is_written: Arc<AtomicBool>,
    ) -> Option<Self> {
        let (file, found) = newest_part(tree, &path)?;
        let now = Now { file, id: found.id, is_complete: false, searched: Instant::now() };
        let (tree, awaited) = (tree.clone(), awaited.clone());
        Some(Self { tree, path, awaited, is_written, now: Mutex::new(now) })
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the file is complete under its final name, and is read there from now on.
    ///
    /// # Errors
    /// If the other transfer has ended without this file.
    pub(super) fn is_complete(&self) -> io::Result<bool> {
        self.look(&mut self.now())
    }

    /// Changes to the named file, or to a newer part.
    fn look(&self, now: &mut Now) -> io::Result<bool> {
        if now.is_complete {
            return Ok(true);
        }
        // Read first: a file that gets its name before the end of the transfer is found below.
        let is_written = self.is_written.load(Ordering::Acquire);
        if let Some((file, id)) = self.named() {
            (now.file, now.id, now.is_complete) = (file, id, true);
            return Ok(true);
        }
        if is_written {
            let text = "the transfer that wrote the file ended with another file; copy it again";
            return Err(io::Error::other(text));
        }
        if now.searched.elapsed() >= SEARCH_AFTER {
            now.searched = Instant::now();
            if let Some((file, found)) = newest_part(&self.tree, &self.path) {
                (now.file, now.id) = (file, found.id);
            }
        }
        Ok(false)
    }

    /// The complete file under its final name.
    fn named(&self) -> Option<(Box<dyn ReadFile>, FileId)> {
        let is_wanted = |found: &Metadata| {
            let is_as_announced = self.awaited.is_file_of(found.size, modified_ns(found.mtime));
            found.kind == Kind::File && is_as_announced
        };
        let (file, found) = open_itself(&self.tree, &self.path)?;
        is_wanted(&found).then_some((file, found.id))
    }
}

impl ReadFile for Arc<Followed> {
    fn metadata(&self) -> io::Result<Metadata> {
        self.now().file.metadata()
    }

    /// Fails with [`io::ErrorKind::WouldBlock`] at the end of a file that is not complete.
    fn read_at(&self, into: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
        let mut now = self.now();
        let read = now.file.read_at(into, offset)?;
        if read > 0 || now.is_complete {
            return Ok(read);
        }
        match self.look(&mut now)? {
            true => now.file.read_at(into, offset),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.now().file.sync()
    }
}

/// Opens a regular file; no link at the end of the path is followed.
fn open_itself(tree: &Tree, path: &Path) -> Option<(Box<dyn ReadFile>, Metadata)> {
    let there = tree.examine(path, LinkTarget::Itself).ok()?;
    let file = (there.kind == Kind::File).then(|| tree.open(path).ok()).flatten()?;
    let found = file.metadata().ok()?;
    (found.kind == Kind::File && found.id == there.id).then_some((file, found))
}

/// Opens the part of a file that was changed last. Parts of other users, or writable by them, do not count.
fn newest_part(tree: &Tree, path: &Path) -> Option<(Box<dyn ReadFile>, Metadata)> {
    let name = path.file_name()?.as_bytes();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    let user = rustix::process::geteuid().as_raw();
    let names = tree.list(parent).ok()?.map_while(Result::ok);
    let parts = names.filter(|part| is_part_of(part, name));
    parts
        .filter_map(|part| open_itself(tree, &parent.join(std::ffi::OsStr::from_bytes(&part))))
        .filter(|(_, found)| found.is_only_of(user))
        .max_by_key(|(_, found)| (found.ctime.seconds, found.ctime.nanoseconds))
}
