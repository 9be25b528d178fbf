//! Small files: in memory until they are whole, then written several at a time.
//!
//! Source:      ours. What a small file costs is calls of the file system, not bytes, so they are made for many files at
//!              once, by several threads, with each folder held open; in steps, so that each folder is prepared in between.
//! Invariants:  nothing of such a file is on the disk before it is whole and verified; none waits longer than the
//!              block in which it ends.
//! Not here:    how they get their names (`group.rs`).

use sabul_wire::control::{Entry, EntryKind};

use crate::disk::Disk;
use crate::files::hands::{Hands, Nearby, RUN, by_folder};
use crate::files::metadata::Lost;
use crate::files::part::Part;
use crate::files::trouble::Trouble;
use crate::jail::JailPath;

/// Most files that wait: each will have a descriptor.
const FILES_MAX: usize = 128;
/// Bytes that wait at most, about.
const BYTES_MAX: usize = 2 << 20;

/// Those that are not on the disk.
#[derive(Debug, Default)]
pub(super) struct SmallFiles {
    /// The one that comes now.
    coming: Option<Coming>,
    whole: Vec<Whole>,
    bytes: usize,
}

#[derive(Debug)]
struct Coming {
    index: u64,
    target: JailPath,
    content: Vec<u8>,
}

/// One that is verified.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) index: u64,
    pub(super) entry: Entry,
    pub(super) hash: [u8; 32],
    target: JailPath,
    content: Vec<u8>,
}

impl SmallFiles {
    /// Begins a file of at most so many bytes, if this is one.
    pub(super) fn begin(
        &mut self,
        index: u64,
        entry: &Entry,
        target: &JailPath,
        most: u64,
    ) -> bool {
        let bytes = entry.stream_bytes().filter(|bytes| *bytes <= most);
        let (EntryKind::File(_), Some(bytes)) = (entry.kind, bytes) else { return false };
        let content = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        self.coming = Some(Coming { index, target: target.clone(), content });
        true
    }

    /// Appends to the file that comes, if it is this one.
    pub(super) fn write(&mut self, index: u64, content: &[u8]) -> bool {
        let coming = self.coming.as_mut().filter(|coming| coming.index == index);
        coming.map(|coming| coming.content.extend_from_slice(content)).is_some()
    }

    /// Keeps the file that comes, if it is this one: it has this hash.
    pub(super) fn finish(&mut self, index: u64, entry: &Entry, hash: [u8; 32]) -> bool {
        let coming = self.coming.take_if(|coming| coming.index == index);
        let Some(Coming { index, target, content }) = coming else { return false };
        self.bytes += content.len();
        self.whole.push(Whole { index, entry: entry.clone(), hash, target, content });
        true
    }

    /// Throws away what has come of a file.
    pub(super) fn discard(&mut self, index: u64) {
        self.coming.take_if(|coming| coming.index == index);
    }

    /// Throws away all.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Those that wait.
    pub(super) fn take(&mut self) -> Vec<Whole> {
        self.bytes = 0;
        std::mem::take(&mut self.whole)
    }

    /// Whether enough of them wait.
    pub(super) fn is_full(&self) -> bool {
        self.whole.len() >= FILES_MAX || self.bytes >= BYTES_MAX
    }

    /// What the file that comes takes, in bytes.
    pub(super) fn coming_bytes(&self) -> usize {
        self.coming.as_ref().map_or(0, |coming| coming.content.capacity())
    }
}

/// Creates the parts of these.
pub(super) fn create(
    disk: &dyn Disk,
    hands: &Hands,
    files: Vec<Whole>,
    preserve: bool,
) -> Vec<(Whole, Result<Part, Trouble>)> {
    let in_folder = |files: Vec<Whole>| {
        let mut near = Nearby::new(disk);
        let create = |file: Whole| {
            let part =
                Part::create(near.at(&file.target), file.target.clone(), &file.entry, preserve);
            (file, part)
        };
        files.into_iter().map(create).collect::<Vec<_>>()
    };
    let folders = by_folder(files, |file| &file.target);
    hands.each(folders, 1, in_folder).into_iter().flatten().collect()
}

/// Writes content, and metadata where they are kept; what will not be flushed is closed.
pub(super) fn write(
    hands: &Hands,
    files: Vec<(Whole, Part)>,
    (sync, preserve): (bool, bool),
) -> Vec<(Whole, Part, Result<Lost, Trouble>)> {
    let write = |(file, mut part): (Whole, Part)| {
        let result = part.write(&file.content, sync).and_then(|()| {
            let lost = if preserve { part.keep_metadata(&file.entry)? } else { Lost::default() };
            // Some file systems tell only now that content is lost.
            if sync { Ok(lost) } else { part.close().map(|()| lost) }
        });
        (file, part, result)
    };
    hands.each(files, RUN, write)
}
