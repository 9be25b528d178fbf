//! Sink of the receiver that writes objects to a destination.
//!
//! A small object waits in memory; several are written at the same time when their block is used up, because each call
//! may take long. A large object is written in parts as its content arrives.

use std::collections::BTreeMap;
use std::sync::Arc;

use sabul_content::{Layout, Printable};
use sabul_wire::control::{Entry, EntryKind, Failure, FailureCode};

use super::object::{NewObject, ObjectDestination, Upload, checked, layout_of};
use crate::entry_error::EntryError;
use crate::pool::{FilePool, SMALL_BYTES};
use crate::receive::{Commit, CommitResult, Receiver, Sink};

/// Receiver of a transfer into a destination.
pub type StoreReceiver = Receiver<StoreSink>;

/// Maximum number of small objects that wait.
const SMALL_MAX: usize = 128;

/// Writes entries as objects. Directories are not stored.
#[derive(Debug)]
pub struct StoreSink {
    destination: Arc<dyn ObjectDestination>,
    sync: bool,
    pool: FilePool,
    open: BTreeMap<u64, OpenObject>,
    /// Verified small objects.
    small: Vec<(u64, OpenObject)>,
    committed: Vec<CommitResult>,
    durable_bytes: u64,
}

/// An object whose content is arriving, or is verified and waits.
#[derive(Debug)]
struct OpenObject {
    new: NewObject,
    layout: Layout,
    /// `None` for a small object.
    upload: Option<Box<dyn Upload>>,
    /// Bytes of the stream that arrived, and of those the last, which wait for a full part.
    at: u64,
    waiting: Vec<u8>,
}

impl StoreReceiver {
    /// Creates a receiver; with `sync`, objects are durable before they get their names.
    pub fn of_store(destination: Arc<dyn ObjectDestination>, sync: bool, transfer: u32) -> Self {
        let sink = StoreSink {
            destination,
            sync,
            pool: FilePool::default(),
            open: BTreeMap::new(),
            small: Vec::new(),
            committed: Vec::new(),
            durable_bytes: 0,
        };
        Self::with_sink(sink, transfer)
    }
}

impl OpenObject {
    /// Writes the waiting content; without `all`, only full parts.
    fn write(&mut self, part_bytes: usize, all: bool) -> Result<(), Failure> {
        let Some(upload) = &self.upload else { return Ok(()) };
        let mut from = 0;
        while from < self.waiting.len() {
            let stream_at = self.at - (self.waiting.len() - from) as u64;
            let (place, run) = self.layout.place(stream_at);
            let rest = self.waiting.len() - from;
            let run = usize::try_from(run).unwrap_or(usize::MAX);
            // A part ends at a multiple of its size, or at the end of a range of data.
            let past = usize::try_from(place % part_bytes as u64).unwrap_or(0);
            let wanted = if part_bytes == 1 { rest } else { part_bytes - past };
            let now = wanted.min(run).min(rest);
            if now == 0 || (now < wanted.min(run) && !all) {
                break;
            }
            upload.write(place, &self.waiting[from..from + now])?;
            from += now;
        }
        self.waiting.drain(..from);
        Ok(())
    }

    fn finish(mut self, destination: &dyn ObjectDestination, sync: bool) -> Result<(), Failure> {
        if self.upload.is_none() {
            self.upload = Some(destination.create(&self.new)?);
        }
        self.write(destination.part_bytes(), true)?;
        let Some(upload) = self.upload else { return Ok(()) };
        if sync {
            upload.make_durable()?;
        }
        upload.publish()
    }
}

impl StoreSink {
    fn opened(&mut self, index: u64) -> Result<OpenObject, EntryError> {
        self.open.remove(&index).ok_or_else(|| {
            let text = format!("the receiver has no content of entry {index}");
            Failure::new(FailureCode::Internal, text).into()
        })
    }

    fn count(&mut self, bytes: u64) {
        self.durable_bytes += if self.sync { bytes } else { 0 };
    }
}

impl Sink for StoreSink {
    fn make_directory(&mut self, _index: u64, _entry: &Entry) -> Result<Commit, EntryError> {
        Ok(Commit::Now)
    }

    fn make_link(&mut self, _index: u64, entry: &Entry) -> Result<Commit, EntryError> {
        let path = Printable(&entry.path);
        let text = format!("'{path}' is a link, and the destination stores only files");
        Err(Failure::new(FailureCode::BadSetting, text).into())
    }

    fn create(&mut self, index: u64, entry: &Entry) -> Result<(), EntryError> {
        let more = entry.more.as_ref();
        if more.is_some_and(|more| more.kept.is_some()) {
            let text = format!("'{}' takes content from an old file", Printable(&entry.path));
            return Err(Failure::new(FailureCode::Refused, text).into());
        }
        let size = match entry.kind {
            EntryKind::File(size) => Some(Layout::of(entry).holes().map_or(size, |it| it.0)),
            _ => None,
        };
        let new = NewObject {
            path: checked(&entry.path)?,
            size,
            modified_ns: entry.modified_ns,
            data: more.and_then(|more| more.data.clone()),
        };
        let is_small = size.is_some_and(|size| size <= SMALL_BYTES);
        let upload = if is_small { None } else { Some(self.destination.create(&new)?) };
        let (layout, waiting) = (layout_of(&new), Vec::new());
        self.open.insert(index, OpenObject { new, layout, upload, at: 0, waiting });
        Ok(())
    }

    fn write(&mut self, index: u64, entry: &Entry, content: &[u8]) -> Result<(), EntryError> {
        let part_bytes = self.destination.part_bytes();
        let Some(object) = self.open.get_mut(&index) else {
            let text = format!("the receiver has no content of '{}'", Printable(&entry.path));
            return Err(Failure::new(FailureCode::Internal, text).into());
        };
        object.at += content.len() as u64;
        object.waiting.extend_from_slice(content);
        Ok(object.write(part_bytes, false)?)
    }

    fn finish(&mut self, index: u64, _: &Entry, _: [u8; 32]) -> Result<Commit, EntryError> {
        let object = self.opened(index)?;
        if object.upload.is_none() {
            self.small.push((index, object));
            if self.small.len() >= SMALL_MAX {
                self.commit();
            }
            return Ok(Commit::Later);
        }
        let bytes = object.at;
        object.finish(&*self.destination, self.sync)?;
        self.count(bytes);
        Ok(Commit::Now)
    }

    fn discard(&mut self, index: u64) {
        self.open.remove(&index);
    }

    fn durable(&self) -> u64 {
        self.durable_bytes
    }

    fn block_done(&mut self) {
        self.commit();
    }

    fn pending_bytes(&self) -> usize {
        self.open.values().map(|object| object.waiting.capacity()).sum()
    }

    fn commit(&mut self) {
        let small = std::mem::take(&mut self.small);
        let (destination, sync) = (&*self.destination, self.sync);
        let write = |(index, object): (u64, OpenObject)| {
            let (path, bytes) = (object.new.path.as_bytes().to_vec(), object.at);
            let result = object.finish(destination, sync).map_err(EntryError::from);
            (bytes, CommitResult { index, path, is_directory: false, result })
        };
        for (bytes, result) in self.pool.each(small, 1, write) {
            if result.result.is_ok() {
                self.count(bytes);
            }
            self.committed.push(result);
        }
    }

    fn committed(&mut self) -> Vec<CommitResult> {
        std::mem::take(&mut self.committed)
    }

    fn abort(&mut self) {
        self.open.clear();
        self.small.clear();
    }
}
