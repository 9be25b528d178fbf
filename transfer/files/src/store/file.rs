//! Open object of a source, as the sender reads files.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use sabul_content::RelativePath;
use sabul_wire::control::{Extent, Failure, FailureCode};

use super::object::{Object, ObjectSource, changed, checked};
use crate::disk::ReadFile;
use crate::root::{FileId, FileTime, Kind, Metadata};

/// Number of objects that are listed ahead of the walk. Ours: one page of a bucket.
const LISTED_AHEAD: usize = 1000;

/// One version of an object. Reads fail once the object has another version.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    source: Arc<dyn ObjectSource>,
    object: Object,
}

impl ObjectFile {
    /// Opens the current version.
    pub(crate) fn open(
        source: &Arc<dyn ObjectSource>,
        path: &RelativePath,
    ) -> Result<Self, Failure> {
        Ok(Self { source: Arc::clone(source), object: source.stat(path)? })
    }
}

/// Name of an object as a path of the walk.
pub(crate) fn name_of(path: &Path) -> Result<RelativePath, Failure> {
    checked(path.as_os_str().as_bytes())
}

/// Objects of a source in order, listed on a thread of their own and a bounded number ahead.
#[derive(Debug)]
pub(crate) struct Listed {
    source: Arc<dyn ObjectSource>,
    objects: Option<Receiver<Result<Object, Failure>>>,
}

impl Listed {
    /// A list that starts with the first call of `next`.
    pub(crate) fn new(source: Arc<dyn ObjectSource>) -> Self {
        Self { source, objects: None }
    }
}

impl Iterator for Listed {
    type Item = Result<Object, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let source = &self.source;
        let objects = self.objects.get_or_insert_with(|| {
            let (sender, objects) = sync_channel(LISTED_AHEAD);
            let source = Arc::clone(source);
            let failed = sender.clone();
            let list = move || match source.list() {
                // The channel closes when the walk ends early.
                Ok(list) => drop(list.into_iter().try_for_each(|object| sender.send(object))),
                Err(failure) => drop(sender.send(Err(failure))),
            };
            if let Err(error) = thread::Builder::new().name("sabul-list".to_owned()).spawn(list) {
                let text = format!("cannot start a thread that lists the source: {error}");
                drop(failed.send(Err(Failure::new(FailureCode::Internal, text))));
            }
            objects
        });
        objects.recv().ok()
    }
}

/// Metadata of an object, as of a file without owner and links.
pub(crate) fn metadata_of(object: &Object) -> Metadata {
    let ns = object.modified_ns.unwrap_or(0);
    let nanoseconds = u32::try_from(ns.rem_euclid(1_000_000_000)).unwrap_or(0);
    Metadata {
        id: FileId { device: 0, inode: 0, born_ns: 0 },
        kind: Kind::File,
        size: object.size,
        allocated: if object.data.is_some() { 0 } else { object.size },
        names: 1,
        mode: 0o644,
        mtime: FileTime { seconds: ns.div_euclid(1_000_000_000), nanoseconds },
        ctime: FileTime { seconds: 0, nanoseconds: 0 },
        owner: 0,
        group: 0,
    }
}

impl ReadFile for ObjectFile {
    fn metadata(&self) -> io::Result<Metadata> {
        let now = self.source.stat(&self.object.path).map_err(io::Error::other)?;
        if now.version != self.object.version {
            return Err(io::Error::other(changed(&now.path)));
        }
        Ok(metadata_of(&now))
    }

    fn read_at(&self, into: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
        self.source.read(&self.object, offset, into).map_err(io::Error::other)
    }

    /// A published object is durable.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn data(&self, _size: u64) -> io::Result<Option<Vec<Extent>>> {
        Ok(self.object.data.clone())
    }
}
