//! Part that several machines write, which share a file system.
//!
//! One machine creates the part and gives it its final name. The others open it by its path. Each machine flushes what
//! it wrote itself: data of one machine may still be in its memory when another machine flushes.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabul_wire::control::{Entry, EntryKind, Facts, Failure, FailureCode, SeenKind};

use super::destination::make_all;
use super::entry_error::{EntryError, entry_error};
use super::group::{give_name, sync_named};
use super::part::{KEPT_MODE, Part, is_part};
use crate::disk::{Disk, DiskFile};
use crate::root::{Kind, LinkTarget, RootDir, RootLink, RootPath};
use crate::spelling::Spellings;
use crate::tree::root_path;

/// A part that this machine writes, in any order.
#[derive(Debug)]
pub struct SharedPart {
    disk: Arc<dyn Disk>,
    target: RootPath,
    file: Mutex<Box<dyn DiskFile>>,
    size: u64,
}

/// The right to give a part its final name. A dropped value removes the part.
#[derive(Debug)]
pub struct PartOwner {
    disk: Arc<dyn Disk>,
    entry: Entry,
    part: Option<Part>,
    /// Number of directories above the file that were made for it.
    made: usize,
}

impl SharedPart {
    /// Creates the part of a file below a directory, with missing directories above. The file gets size, permission bits
    /// and time of its source. Returns the part, and its path below the directory. With `is_private`, new directories are
    /// closed to other users.
    ///
    /// # Errors
    /// If the part cannot be created, or the file system has less space than the size.
    pub fn create(
        directory: &Path,
        file: &[u8],
        source: &Facts,
        is_private: bool,
    ) -> Result<(Self, PartOwner, Vec<u8>), Failure> {
        let (disk, target) = open(directory, file)?;
        if source.kind != SeenKind::File {
            let reason = "its source is no regular file";
            return Err(Failure::of_file(FailureCode::Refused, "write", &target, reason));
        }
        let size = source.size;
        let entry = Entry {
            path: file.to_vec(),
            kind: EntryKind::File(size),
            mode: Some(source.mode & 0o777),
            modified_ns: source.modified_ns,
            more: None,
        };
        let fail = |error: EntryError| error.at(Some(disk.shown(&target)));
        let mode = if is_private { 0o700 } else { 0o777 };
        let mut made = 0;
        if let Some(above) = target.parent().filter(|above| !above.is_root()) {
            let is_missing = |at: &RootPath| disk.stat(at, LinkTarget::Itself).is_err();
            made = std::iter::successors(Some(above.clone()), RootPath::parent)
                .take_while(|at| !at.is_root() && is_missing(at))
                .count();
            make_all(&*disk, &above, mode).map_err(|error| fail(error.into()))?;
        }
        let part = Part::create(&*disk, target.clone(), &entry, false).map_err(fail)?;
        let prepared = part
            .check_room()
            .and_then(|()| part.set_len(size))
            .and_then(|()| part.set_mode(KEPT_MODE))
            .and_then(|()| Ok((part.path().clone(), disk.open_file(part.path())?)));
        let (path, file) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                let failure = fail(error);
                part.remove(&*disk);
                return Err(failure);
            }
        };
        let shared = Self { disk: Arc::clone(&disk), target, file: Mutex::new(file), size };
        Ok((shared, PartOwner { disk, entry, part: Some(part), made }, path.as_bytes().to_vec()))
    }

    /// Opens a part that another machine created for a file of this size: both paths are below the directory.
    ///
    /// # Errors
    /// If the path is not that of a part, or the part may be changed by other users or has another size.
    pub fn open(directory: &Path, file: &[u8], size: u64, path: &[u8]) -> Result<Self, Failure> {
        let (disk, target) = open(directory, file)?;
        let path = root_path(local(path))?;
        let refuse =
            |reason: &str| Failure::of_file(FailureCode::Unwritable, "write", &target, reason);
        if !is_part(path.as_bytes()) || path.parent() != target.parent() {
            return Err(refuse("the other machine named no part of this file"));
        }
        let fail = |error: EntryError| error.at(Some(disk.shown(&target)));
        let file = disk.open_file(&path).map_err(|error| fail(error.into()))?;
        let found =
            file.metadata().map_err(|error| fail(entry_error(target.as_bytes(), &error)))?;
        if found.kind != Kind::File || !found.is_only_of(disk.user()) || found.size != size {
            return Err(refuse("its part belongs to another copy or another user"));
        }
        Ok(Self { disk, target, file: Mutex::new(file), size })
    }

    /// Writes bytes at this offset, and starts their way to the disk.
    ///
    /// # Errors
    /// If the bytes are outside of the file or cannot be written.
    pub fn write(&self, content: &[u8], offset: u64) -> Result<(), Failure> {
        let bytes = content.len() as u64;
        if offset.checked_add(bytes).is_none_or(|end| end > self.size) {
            let reason = format!("{bytes} bytes at {offset} are outside of the file");
            return Err(Failure::of_file(FailureCode::Unwritable, "write", &self.target, reason));
        }
        // The part is a hole until its bytes are written.
        if content.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let file = self.file();
        file.write_all_at(content, offset).map_err(|error| self.fail(&error))?;
        file.start_writeback(offset, bytes);
        Ok(())
    }

    /// Flushes all that this machine wrote.
    ///
    /// # Errors
    /// If data was lost.
    pub fn sync(&self) -> Result<(), Failure> {
        self.file().sync().map_err(|error| self.fail(&error))
    }

    fn file(&self) -> MutexGuard<'_, Box<dyn DiskFile>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: &io::Error) -> Failure {
        entry_error(self.target.as_bytes(), error).at(Some(self.disk.shown(&self.target)))
    }
}

impl PartOwner {
    /// Gives the part its final name, with the announced time; with `sync`, the name survives a power failure. All
    /// machines must have flushed their data.
    ///
    /// # Errors
    /// If the name cannot be given. An existing file of this name is then unchanged.
    pub fn publish(mut self, sync: bool) -> Result<(), Failure> {
        let Some(mut part) = self.part.take() else { return Ok(()) };
        let target = part.target().clone();
        let fail = |error: EntryError| error.at(Some(self.disk.shown(&target)));
        let named = part
            .keep_metadata(&self.entry)
            .and_then(|_| part.set_mode(part.mode()))
            .and_then(|()| if sync { part.sync() } else { Ok(()) })
            .and_then(|()| give_name(&*self.disk, &mut part, &Spellings::default(), |_| false));
        if let Err(error) = named {
            let failure = fail(error);
            part.remove(&*self.disk);
            return Err(failure);
        }
        if sync { sync_named(&*self.disk, &target, self.made).map_err(fail) } else { Ok(()) }
    }
}

impl Drop for PartOwner {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            part.remove(&*self.disk);
        }
    }
}

fn local(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// Opens the directory; returns it with the path of the file below.
fn open(directory: &Path, file: &[u8]) -> Result<(Arc<dyn Disk>, RootPath), Failure> {
    let failed =
        |error: crate::root::RootError| Failure::new(FailureCode::Unwritable, error.to_string());
    let disk = RootDir::open(directory, RootLink::Follow).map_err(failed)?;
    Ok((Arc::new(disk), root_path(local(file))?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn source(size: u64) -> Facts {
        let modified_ns = Some(7_000_000_000);
        #[rustfmt::skip]
        let facts = Facts {
            kind: SeenKind::File, size, mode: 0o644, modified_ns, owner: 0, group: 0, hash: None, attributes: None,
            id: None, is_shared: false,
        };
        facts
    }

    fn names(directory: &Path) -> Vec<String> {
        let all = fs::read_dir(directory).unwrap();
        all.map(|name| name.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn two_machines_write_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let (first, owner, path) =
            SharedPart::create(folder.path(), b"a/b/new", &source(6), false).unwrap();
        let second = SharedPart::open(folder.path(), b"a/b/new", 6, &path).unwrap();
        second.write(b"def", 3).unwrap();
        first.write(b"abc", 0).unwrap();
        first.write(b"xyz", 4).unwrap_err();
        second.write(b"x", u64::MAX).unwrap_err();
        second.sync().unwrap();
        first.sync().unwrap();
        let inside = folder.path().join("a/b");
        assert_eq!(names(&inside).len(), 1);
        assert_ne!(names(&inside), ["new"]);
        owner.publish(true).unwrap();
        assert_eq!(names(&inside), ["new"]);
        let found = fs::metadata(inside.join("new")).unwrap();
        let seconds = found.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(
            (fs::read(inside.join("new")).unwrap(), seconds.as_secs()),
            (b"abcdef".into(), 7)
        );
        assert_eq!(found.permissions().mode() & 0o600, 0o600);
    }

    #[test]
    fn a_part_is_closed_to_others_and_has_the_name_that_cleanups_remove() {
        let folder = tempfile::tempdir().unwrap();
        let (_part, owner, path) =
            SharedPart::create(folder.path(), b"new", &source(6), false).unwrap();
        assert!(!crate::part::is_kept_name(&root_path(local(&path)).unwrap()));
        let mode = fs::metadata(folder.path().join(local(&path))).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        owner.publish(false).unwrap();
        let created = fs::File::create(folder.path().join("other")).unwrap();
        let usual = created.metadata().unwrap().permissions().mode() & 0o644;
        let found = fs::metadata(folder.path().join("new")).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, usual);
    }

    #[test]
    fn a_part_that_is_not_published_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), "old").unwrap();
        let created = SharedPart::create(folder.path(), b"old", &source(6), false).unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(created);
        assert_eq!(names(folder.path()), ["old"]);
        assert_eq!(fs::read(folder.path().join("old")).unwrap(), b"old");
    }

    #[test]
    fn only_an_own_part_of_the_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (_first, _owner, path) =
            SharedPart::create(folder.path(), b"new", &source(6), false).unwrap();
        let part = folder.path().join(local(&path));
        let open =
            |file: &[u8], size: u64, path: &[u8]| SharedPart::open(folder.path(), file, size, path);
        open(b"new", 6, &path).unwrap();
        open(b"new", 7, &path).unwrap_err();
        open(b"a/new", 6, &path).unwrap_err();
        fs::write(folder.path().join("other"), "123456").unwrap();
        open(b"new", 6, b"other").unwrap_err();
        open(b"new", 6, b"../other").unwrap_err();
        fs::set_permissions(&part, fs::Permissions::from_mode(0o660)).unwrap();
        open(b"new", 6, &path).unwrap_err();
    }
}
