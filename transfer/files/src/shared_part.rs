//! Part that several machines write, which share a file system.
//!
//! One machine creates the part and gives it its final name. The others open it by its path. Each machine flushes what
//! it wrote itself: data of one machine may still be in its memory when another machine flushes. Each machine holds the
//! destination directory open, so that no link that is swapped in leads elsewhere.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabul_wire::control::{Entry, EntryKind, Facts, Failure, FailureCode, More, Owner, SeenKind};

use super::destination::make_all;
use super::entry_error::{EntryError, entry_error};
use super::group::{give_name, sync_named};
use super::part::{KEPT_MODE, Part, is_part};
use crate::disk::{Disk, DiskFile};
use crate::root::{Kind, LinkTarget, RootDir, RootLink, RootPath};
use crate::spelling::Spellings;
use crate::tree::root_path;

/// Name of the file by which machines find out whether they share a directory.
const PROBE: &[u8] = b"shared";
/// Zeros of at least this many bytes stay a hole. Ours: the size from which a copy looks for holes.
const HOLE_MIN: usize = 64 << 10;

/// The destination directory of files that several machines write, held open.
#[derive(Clone, Debug)]
pub struct SharedFolder {
    disk: Arc<dyn Disk>,
}

/// Metadata that a file gets with its name, besides its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Permission bits less the umask, or those of the file that is replaced.
    Nothing,
    /// Permission bits of the source.
    Mode,
    /// Owner, group and permission bits of the source, as far as permitted.
    Owner,
}

/// A file that shows other machines that they share the directory. A dropped value removes the file.
#[derive(Debug)]
pub struct Probe {
    disk: Arc<dyn Disk>,
    part: Option<Part>,
}

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
    keeps_mode: bool,
    /// Number of directories above the file that were made for it.
    made: usize,
}

impl SharedFolder {
    /// Opens a directory.
    ///
    /// # Errors
    /// If the directory is not there or cannot be opened.
    pub fn open(directory: &Path) -> Result<Self, Failure> {
        let failed = |error: crate::root::RootError| {
            Failure::new(FailureCode::Unwritable, error.to_string())
        };
        let disk = RootDir::open(directory, RootLink::Follow).map_err(failed)?;
        Ok(Self { disk: Arc::new(disk.named(directory.as_os_str().as_bytes())) })
    }

    /// Creates a file by which other machines find out whether they share the directory. Returns its name, too.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn probe(&self) -> Result<(Probe, Vec<u8>), Failure> {
        let target = root_path(local(PROBE))?;
        let entry = Entry {
            path: PROBE.to_vec(),
            kind: EntryKind::File(0),
            mode: Some(KEPT_MODE),
            modified_ns: None,
            more: None,
        };
        let part = Part::create(&*self.disk, target.clone(), &entry, true)
            .map_err(|error| error.at(Some(self.disk.shown(&target))))?;
        let name = part.path().as_bytes().to_vec();
        Ok((Probe { disk: Arc::clone(&self.disk), part: Some(part) }, name))
    }

    /// Whether the directory has a probe of another machine.
    ///
    /// # Errors
    /// If the name is not that of a probe.
    pub fn sees(&self, probe: &[u8]) -> Result<bool, Failure> {
        if !is_part(probe) || probe.contains(&b'/') || !probe.starts_with(PROBE) {
            let text = "the other machine named no file for the test of the directory";
            return Err(Failure::new(FailureCode::BadSetting, text));
        }
        let path = root_path(local(probe))?;
        let found = self.disk.stat(&path, LinkTarget::Itself);
        if found.is_err() {
            // A client of a network file system remembers missing names until it lists the directory.
            let _ = self.disk.names(&RootPath::root()).map(Iterator::count);
        }
        Ok(found.is_ok_and(|found| found.kind == Kind::File))
    }

    /// Creates the part of a file below the directory, with missing directories above. The file gets size and time of its
    /// source. Returns the part, and its path below the directory. If metadata is kept, new directories are closed to other
    /// users.
    ///
    /// # Errors
    /// If the part cannot be created, or the file system has less space than the size.
    pub fn create(
        &self,
        file: &[u8],
        source: &Facts,
        kept: Kept,
    ) -> Result<(SharedPart, PartOwner, Vec<u8>), Failure> {
        let (disk, target) = (Arc::clone(&self.disk), root_path(local(file))?);
        if source.kind != SeenKind::File {
            let reason = "its source is no regular file";
            return Err(Failure::of_file(FailureCode::Refused, "write", &target, reason));
        }
        let size = source.size;
        let owner = Some(Owner { user: source.owner, group: source.group });
        let entry = Entry {
            path: file.to_vec(),
            kind: EntryKind::File(size),
            mode: Some(source.mode & 0o777),
            modified_ns: source.modified_ns,
            more: (kept == Kept::Owner).then(|| Box::new(More { owner, ..More::default() })),
        };
        let fail = |error: EntryError| error.at(Some(disk.shown(&target)));
        let keeps_mode = kept != Kept::Nothing;
        let mode = if keeps_mode { 0o700 } else { 0o777 };
        let mut made = 0;
        if let Some(above) = target.parent().filter(|above| !above.is_root()) {
            let is_missing = |at: &RootPath| disk.stat(at, LinkTarget::Itself).is_err();
            made = std::iter::successors(Some(above.clone()), RootPath::parent)
                .take_while(|at| !at.is_root() && is_missing(at))
                .count();
            make_all(&*disk, &above, mode).map_err(|error| fail(error.into()))?;
        }
        let part = Part::create(&*disk, target.clone(), &entry, keeps_mode).map_err(fail)?;
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
        let shared = SharedPart { disk: Arc::clone(&disk), target, file: Mutex::new(file), size };
        let owner = PartOwner { disk, entry, part: Some(part), keeps_mode, made };
        Ok((shared, owner, path.as_bytes().to_vec()))
    }

    /// Opens a part that another machine created for a file of this size: both paths are below the directory.
    ///
    /// # Errors
    /// If the path is not that of a part, or the part may be changed by other users or has another size.
    pub fn open_part(&self, file: &[u8], size: u64, path: &[u8]) -> Result<SharedPart, Failure> {
        let (disk, target) = (Arc::clone(&self.disk), root_path(local(file))?);
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
        Ok(SharedPart { disk, target, file: Mutex::new(file), size })
    }
}

impl SharedPart {
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
        let file = self.file();
        // The part is a hole until its bytes are written.
        for data in data_of(content) {
            let (at, content) = (offset + data.start as u64, &content[data]);
            file.write_all_at(content, at).map_err(|error| self.fail(&error))?;
            file.start_writeback(at, content.len() as u64);
        }
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
    /// Gives the part its final name, with the metadata of its source that is kept; with `sync`, the name survives a power failure. All
    /// machines must have flushed their data.
    ///
    /// # Errors
    /// If the name cannot be given. An existing file of this name is then unchanged.
    pub fn publish(mut self, sync: bool) -> Result<(), Failure> {
        let Some(mut part) = self.part.take() else { return Ok(()) };
        let target = part.target().clone();
        let fail = |error: EntryError| error.at(Some(self.disk.shown(&target)));
        // Metadata that is lost is reported by the copy that follows.
        let named = part
            .keep_metadata(&self.entry)
            .and_then(|_| if self.keeps_mode { Ok(()) } else { part.set_mode(part.mode()) })
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

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            part.remove(&*self.disk);
        }
    }
}

/// The parts of the content without long runs of zeros.
fn data_of(content: &[u8]) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for (number, piece) in content.chunks(HOLE_MIN).enumerate() {
        if piece.iter().all(|&byte| byte == 0) {
            continue;
        }
        let start = number * HOLE_MIN;
        let end = start + piece.len();
        match parts.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => parts.push(start..end),
        }
    }
    parts
}

fn local(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn source(size: u64) -> Facts {
        let modified_ns = Some(7_000_000_000);
        Facts { mode: 0o644, ..Facts::new(SeenKind::File, size, modified_ns) }
    }

    fn shared(folder: &tempfile::TempDir) -> SharedFolder {
        SharedFolder::open(folder.path()).unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let all = fs::read_dir(directory).unwrap();
        all.map(|name| name.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn two_machines_write_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let (first, owner, path) =
            shared(&folder).create(b"a/b/new", &source(6), Kept::Nothing).unwrap();
        let second = shared(&folder).open_part(b"a/b/new", 6, &path).unwrap();
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
            shared(&folder).create(b"new", &source(6), Kept::Nothing).unwrap();
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
        let created = shared(&folder).create(b"old", &source(6), Kept::Nothing).unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(created);
        assert_eq!(names(folder.path()), ["old"]);
        assert_eq!(fs::read(folder.path().join("old")).unwrap(), b"old");
    }

    #[test]
    fn only_an_own_part_of_the_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (_first, _owner, path) =
            shared(&folder).create(b"new", &source(6), Kept::Nothing).unwrap();
        let part = folder.path().join(local(&path));
        let open =
            |file: &[u8], size: u64, path: &[u8]| shared(&folder).open_part(file, size, path);
        open(b"new", 6, &path).unwrap();
        open(b"new", 7, &path).unwrap_err();
        open(b"a/new", 6, &path).unwrap_err();
        fs::write(folder.path().join("other"), "123456").unwrap();
        open(b"new", 6, b"other").unwrap_err();
        open(b"new", 6, b"../other").unwrap_err();
        fs::set_permissions(&part, fs::Permissions::from_mode(0o660)).unwrap();
        open(b"new", 6, &path).unwrap_err();
    }
    #[test]
    fn a_folder_that_is_swapped_for_a_link_is_written_on() {
        let above = tempfile::tempdir().unwrap();
        let path = |name: &str| above.path().join(name);
        fs::create_dir(path("to")).unwrap();
        fs::create_dir(path("other")).unwrap();
        let folder = SharedFolder::open(&path("to")).unwrap();
        fs::rename(path("to"), path("moved")).unwrap();
        std::os::unix::fs::symlink("other", path("to")).unwrap();
        let (part, owner, at) = folder.create(b"d/new", &source(3), Kept::Nothing).unwrap();
        part.write(b"abc", 0).unwrap();
        folder.open_part(b"d/new", 3, &at).unwrap();
        owner.publish(true).unwrap();
        assert_eq!(fs::read(path("moved").join("d/new")).unwrap(), b"abc");
        assert_eq!(names(&path("other")), [""; 0]);
    }

    #[test]
    fn machines_that_share_a_folder_see_the_probe() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (probe, name) = shared(&first).probe().unwrap();
        assert!(shared(&first).sees(&name).unwrap() && !shared(&second).sees(&name).unwrap());
        for other in [&b"shared"[..], b"../other.0123456789abcdef.sabul-part", b"a"] {
            shared(&first).sees(other).unwrap_err();
        }
        drop(probe);
        assert_eq!(names(first.path()), [""; 0]);
    }

    #[test]
    fn a_file_gets_the_mode_of_its_source_with_its_name_if_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let found = fs::metadata(folder.path()).unwrap();
        let (user, group) = (
            std::os::unix::fs::MetadataExt::uid(&found),
            std::os::unix::fs::MetadataExt::gid(&found),
        );
        for (kept, old, mode) in [
            (Kept::Mode, Some(0o666), 0o640),
            (Kept::Owner, None, 0o640),
            (Kept::Nothing, Some(0o604), 0o604),
        ] {
            if let Some(old) = old {
                fs::write(folder.path().join("f"), "old").unwrap();
                let rights = fs::Permissions::from_mode(old);
                fs::set_permissions(folder.path().join("f"), rights).unwrap();
            }
            let source = Facts { mode: 0o640, owner: user, group, ..source(3) };
            let (_part, owner, _) = shared(&folder).create(b"f", &source, kept).unwrap();
            owner.publish(false).unwrap();
            let found = fs::metadata(folder.path().join("f")).unwrap();
            assert_eq!(found.permissions().mode() & 0o777, mode, "{kept:?}");
            fs::remove_file(folder.path().join("f")).unwrap();
        }
    }

    #[test]
    fn long_zeros_inside_of_a_write_are_left_out() {
        let mut content = vec![0; 5 * HOLE_MIN + 7];
        assert!(data_of(&content).is_empty());
        content[HOLE_MIN + 1] = 1;
        content[2 * HOLE_MIN] = 1;
        content[5 * HOLE_MIN + 6] = 1;
        assert_eq!(data_of(&content), [HOLE_MIN..3 * HOLE_MIN, 5 * HOLE_MIN..5 * HOLE_MIN + 7]);
        assert_eq!(data_of(b"\0\0x").first(), Some(&(0..3)));
    }
}
