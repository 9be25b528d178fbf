//! Folder of a file system as an object store.
//!
//! Lists and reads as the sender of files does (`source.rs`, `tree.rs`), and writes part files as their receiver does
//! (`part.rs`). A name of a file under construction is refused.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabul_content::RelativePath;
use sabul_wire::control::{EntryKind, Failure, FailureCode};

use super::object::{
    NewObject, Object, ObjectDestination, ObjectSource, Objects, Upload, Version, WrittenRanges,
    changed, check_write, checked,
};
use crate::destination::make_all;
use crate::disk::Disk;
use crate::entry_error::{EntryError, entry_error, read_failure};
use crate::group::{give_name, sync_named};
use crate::part::{Part, is_part};
use crate::root::{Kind, LinkTarget, Metadata, RootPath};
use crate::source::SourceSet;
use crate::spelling::Spellings;
use crate::tree::{Tree, modified_ns, root_path};

/// The files below the root of a disk.
#[derive(Clone, Debug)]
pub struct Folder {
    disk: Arc<dyn Disk>,
    tree: Tree,
}

impl Folder {
    /// The files below the root of this disk.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { tree: Tree::Disk(Arc::clone(&disk)), disk }
    }

    fn object(&self, path: &RelativePath) -> Result<Object, Failure> {
        let found = self.tree.examine(&local(path), LinkTarget::Follow)?;
        if found.kind != Kind::File {
            let reason = "is no regular file";
            return Err(Failure::of_file(FailureCode::Unreadable, "read", path, reason));
        }
        Ok(object_of(path, &found))
    }
}

fn local(path: &RelativePath) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

fn object_of(path: &RelativePath, found: &Metadata) -> Object {
    let (modified_ns, version) = (modified_ns(found.mtime), version_of(found));
    Object { path: path.clone(), size: found.size, modified_ns, data: None, version }
}

/// Device, inode, size and times of a file.
fn version_of(found: &Metadata) -> Version {
    let (id, mtime, ctime) = (found.id, found.mtime, found.ctime);
    let mut bytes = Vec::with_capacity(56);
    for number in [id.device, id.inode, found.size] {
        bytes.extend(number.to_be_bytes());
    }
    for time in [mtime, ctime] {
        bytes.extend(time.seconds.to_be_bytes());
        bytes.extend(time.nanoseconds.to_be_bytes());
    }
    Version(bytes)
}

impl ObjectSource for Folder {
    fn list(&self) -> Result<Objects<'_>, Failure> {
        let set = SourceSet::in_disk(Arc::clone(&self.disk), vec![b"/".to_vec()], true);
        let walk = set.into_listing(false);
        Ok(Box::new(walk.filter_map(|found| match (found.failure, found.entry.kind) {
            (Some(_), _) if is_part(&found.entry.path) => None,
            (Some(failure), _) => Some(Err(failure)),
            (None, EntryKind::File(_)) => {
                Some(checked(&found.entry.path).and_then(|path| self.object(&path)))
            }
            _ => None,
        })))
    }

    fn stat(&self, path: &RelativePath) -> Result<Object, Failure> {
        self.object(path)
    }

    fn read(&self, object: &Object, offset: u64, into: &mut Vec<u8>) -> Result<usize, Failure> {
        let fail = |error: io::Error| read_failure(object.path.as_bytes(), &error);
        let file = self.tree.open(&local(&object.path))?;
        let read = loop {
            match file.read_at(into, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result.map_err(fail)?,
            }
        };
        let now = file.metadata().map_err(fail)?;
        if version_of(&now) != object.version {
            into.truncate(into.len() - read);
            return Err(changed(&object.path));
        }
        Ok(read)
    }
}

impl ObjectDestination for Folder {
    fn find(&self, path: &RelativePath) -> Result<Option<Object>, Failure> {
        match self.object(path) {
            Ok(object) => Ok(Some(object)),
            Err(failure) if failure.code == FailureCode::NotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn create(&self, new: &NewObject) -> Result<Box<dyn Upload>, Failure> {
        let target = root_path(Path::new(&local(&new.path)))?;
        let shown = |error: EntryError| error.at(Some(self.disk.shown(&target)));
        let mut made = Vec::new();
        let mut above = target.parent();
        while let Some(folder) = above.filter(|folder| !folder.is_root()) {
            match self.disk.stat(&folder, LinkTarget::Itself) {
                Err(error) if error.is_not_found() => made.push(folder.clone()),
                _ => break,
            }
            above = folder.parent();
        }
        if let Some(folder) = target.parent() {
            make_all(&*self.disk, &folder, 0o777).map_err(|error| shown(error.into()))?;
        }
        let part = Part::create(&*self.disk, target.clone(), &new.to_entry(), false);
        let state = part.map_err(shown).and_then(|part| {
            let size = new.size.unwrap_or(0);
            part.set_len(size).map_err(shown)?;
            Ok(State { part: Some(part), written: WrittenRanges::default(), is_durable: false })
        });
        match state {
            Ok(state) => {
                let (disk, new, state) = (Arc::clone(&self.disk), new.clone(), Mutex::new(state));
                Ok(Box::new(FolderUpload { disk, new, target, made, state }))
            }
            Err(failure) => {
                remove_empty(&*self.disk, &made);
                Err(failure)
            }
        }
    }
}

/// Removes folders that are still empty, innermost first.
fn remove_empty(disk: &dyn Disk, made: &[RootPath]) {
    // A folder that another writer uses meanwhile is not empty and stays.
    let _ = made.iter().try_for_each(|folder| disk.remove_dir(folder));
}

/// A file of a [`Folder`] under construction.
#[derive(Debug)]
struct FolderUpload {
    disk: Arc<dyn Disk>,
    new: NewObject,
    target: RootPath,
    /// Folders that were made for the file, innermost first.
    made: Vec<RootPath>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` once the part has its name or is removed.
    part: Option<Part>,
    written: WrittenRanges,
    is_durable: bool,
}

impl FolderUpload {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: EntryError) -> Failure {
        error.at(Some(self.disk.shown(&self.target)))
    }
}

impl Upload for FolderUpload {
    fn write(&self, offset: u64, content: &[u8]) -> Result<(), Failure> {
        let end = check_write(&self.new, offset, content)?;
        let mut state = self.lock();
        let Some(part) = &state.part else { return Err(self.gone()) };
        part.write_at(content, offset).map_err(|error| self.fail(error))?;
        state.written.add(offset, end);
        state.is_durable = false;
        Ok(())
    }

    fn make_durable(&self) -> Result<(), Failure> {
        let mut state = self.lock();
        state.written.check_complete(&self.new)?;
        let entry = self.new.to_entry();
        let Some(part) = &mut state.part else { return Err(self.gone()) };
        part.keep_metadata(&entry).map_err(|error| self.fail(error))?;
        part.sync().map_err(|error| self.fail(error))?;
        state.is_durable = true;
        Ok(())
    }

    fn publish(self: Box<Self>) -> Result<(), Failure> {
        let mut state = self.lock();
        state.written.check_complete(&self.new)?;
        let (entry, is_durable) = (self.new.to_entry(), state.is_durable);
        let Some(part) = &mut state.part else { return Err(self.gone()) };
        let named = if is_durable { Ok(()) } else { part.keep_metadata(&entry).map(drop) };
        named
            .and_then(|()| give_name(&*self.disk, part, &Spellings::default(), |_| false))
            .map_err(|error| self.fail(error))?;
        // The part has its name; it must not be removed.
        state.part = None;
        if is_durable {
            sync_named(&*self.disk, &self.target, self.made.len())
                .map_err(|error| self.fail(error))?;
        }
        Ok(())
    }

    fn abort(self: Box<Self>) {}
}

impl FolderUpload {
    fn gone(&self) -> Failure {
        self.fail(entry_error(self.target.as_bytes(), &io::ErrorKind::NotConnected.into()))
    }
}

impl Drop for FolderUpload {
    fn drop(&mut self) {
        let part = self.lock().part.take();
        if let Some(part) = part {
            part.remove(&*self.disk);
            remove_empty(&*self.disk, &self.made);
        }
    }
}
