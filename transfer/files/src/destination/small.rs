//! Small file buffer: small files stay in memory until they are complete, then several are written
//! at a time.
//!
//! Source: ours. The cost of a small file is file system calls, not bytes. The calls are made for
//! many files at once, by several threads, with each folder held open. They are made in steps, so
//! that each folder is prepared in between.
//! Invariants: no byte of a small file is on the disk before the file is complete and verified; no
//! file waits longer than the block in which it ends.
//! Not here: the rename to the final name (`group.rs`).

use sabul_wire::control::{Entry, EntryKind};

use crate::disk::Disk;
use crate::entry_error::EntryError;
use crate::metadata::LostMetadata;
use crate::part::Part;
use crate::pool::{FilePool, FolderCache, RUN, by_folder};
use crate::root::RootPath;

/// Maximum number of waiting files; each needs a descriptor.
const FILES_MAX: usize = 128;
/// Approximate maximum of waiting bytes.
const BYTES_MAX: usize = 2 << 20;

// Lists of these are moved from step to step, and larger lists would need new pages each time.
const _: () = assert!(size_of::<(Whole, Part)>() <= 768);

/// Small files that are not on the disk yet.
#[derive(Debug, Default)]
pub(super) struct SmallFiles {
    /// The file that is arriving.
    incoming: Option<IncomingFile>,
    whole: Vec<Whole>,
    bytes: usize,
}

#[derive(Debug)]
struct IncomingFile {
    index: u64,
    target: RootPath,
    content: Vec<u8>,
}

/// A verified small file.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) index: u64,
    pub(super) entry: Entry,
    pub(super) hash: [u8; 32],
    target: RootPath,
    content: Vec<u8>,
}

impl SmallFiles {
    /// Starts a file if it has at most `most` bytes; returns whether it was started.
    pub(super) fn begin(
        &mut self,
        index: u64,
        entry: &Entry,
        target: &RootPath,
        most: u64,
    ) -> bool {
        let bytes = entry.stream_bytes().filter(|bytes| *bytes <= most);
        let (EntryKind::File(_), Some(bytes)) = (entry.kind, bytes) else { return false };
        if entry.more.as_ref().is_some_and(|more| more.kept.is_some()) {
            return false;
        }
        let content = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        self.incoming = Some(IncomingFile { index, target: target.clone(), content });
        true
    }

    /// Appends to the arriving file; returns `false` if this is another file.
    pub(super) fn write(&mut self, index: u64, content: &[u8]) -> bool {
        let incoming = self.incoming.as_mut().filter(|incoming| incoming.index == index);
        incoming.map(|incoming| incoming.content.extend_from_slice(content)).is_some()
    }

    /// Queues the verified file; returns `false` if this is another file.
    pub(super) fn finish(&mut self, index: u64, entry: &Entry, hash: [u8; 32]) -> bool {
        let incoming = self.incoming.take_if(|incoming| incoming.index == index);
        let Some(IncomingFile { index, target, content }) = incoming else { return false };
        self.bytes += content.len();
        self.whole.push(Whole { index, entry: entry.clone(), hash, target, content });
        true
    }

    /// Discards the arriving file.
    pub(super) fn discard(&mut self, index: u64) {
        self.incoming.take_if(|incoming| incoming.index == index);
    }

    /// Discards all files.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the waiting files.
    pub(super) fn take(&mut self) -> Vec<Whole> {
        self.bytes = 0;
        std::mem::take(&mut self.whole)
    }

    /// Whether the waiting files should be written now.
    pub(super) fn is_full(&self) -> bool {
        self.whole.len() >= FILES_MAX || self.bytes >= BYTES_MAX
    }

    /// Memory of the arriving file, in bytes.
    pub(super) fn incoming_bytes(&self) -> usize {
        self.incoming.as_ref().map_or(0, |incoming| incoming.content.capacity())
    }
}

/// Creates the part files.
pub(super) fn create(
    disk: &dyn Disk,
    pool: &FilePool,
    files: Vec<Whole>,
    preserve: bool,
) -> Vec<(Whole, Result<Part, EntryError>)> {
    let in_folder = |files: Vec<Whole>| {
        let mut near = FolderCache::new(disk);
        let create = |file: Whole| {
            let part =
                Part::create(near.at(&file.target), file.target.clone(), &file.entry, preserve);
            (file, part)
        };
        files.into_iter().map(create).collect::<Vec<_>>()
    };
    let folders = by_folder(files, |file| &file.target);
    pool.each(folders, 1, in_folder).into_iter().flatten().collect()
}

/// Writes content and metadata; without `sync` checks that nothing is lost.
pub(super) fn write(
    pool: &FilePool,
    files: Vec<(Whole, Part)>,
    sync: bool,
) -> Vec<(Whole, Part, Result<LostMetadata, EntryError>)> {
    let write = |(file, mut part): (Whole, Part)| {
        let result = part.write(&file.content, sync).and_then(|()| {
            let lost = part.keep_metadata(&file.entry)?;
            if sync { Ok(lost) } else { part.check_written().map(|()| lost) }
        });
        (file, part, result)
    };
    pool.each(files, RUN, write)
}
