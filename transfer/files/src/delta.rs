//! Delta of a changed file: equal chunks of the old and the new file are not sent.
//!
//! Each end divides its file into chunks and hashes them. The client receives the chunks of the peer and reads its own
//! file. A chunk of the new file whose hash occurs in the old file is kept there. The receiver copies the kept ranges
//! and compares their hash, so a hash of 16 bytes needs to be no proof.
//! Chunks of equal size find changes in place. Content-defined chunks (FastCDC, Xia et al., 2020) also find content that
//! moved.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use fastcdc::v2020::StreamCDC;
use sabul_wire::control::{
    Chunk, Chunking, ChunksEnd, Delta, Entry, EntryKind, Extent, Failure, FailureCode, Kept,
    MAX_DELTA_EXTENTS, MAX_MOVED, Moved,
};

use super::entry_error::{cancelled, read_failure};
use super::tree::{Tree, modified_ns, unreadable};
use crate::disk::{Disk, ReadFile};
use crate::root::{FileTime, Kind, Metadata};

/// Minimum size of a file that is compared by chunks. Ours: at 1 Gb/s a smaller file is sent within an RTT of 67 ms.
pub const DELTA_FROM: u64 = 8 << 20;
/// Bytes of a chunk of [`Chunking::Fixed`]. Ours: a database page of 4 KiB that changes costs four pages, and the
/// hashes of a file are a thousandth of the file.
const FIXED_BYTES: usize = 16 << 10;
/// Minimum, mean and maximum bytes of a content-defined chunk.
const CONTENT_BYTES: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];
/// Bytes that are read at once; a multiple of [`FIXED_BYTES`].
const READ_BYTES: usize = 1 << 20;
/// Most chunks of an old file that are remembered for a lookup. Ours: some 100 MB, for 128 GiB of content.
const CHUNKS_KNOWN: usize = 2 << 20;
/// Ours: most kept ranges of a comparison, 24 MiB. A peer can repeat chunks without end.
const KEPT_MAX: usize = 1 << 20;

/// A file of this machine that is compared with the peer's file of the same name.
#[derive(Debug)]
pub struct Chunked {
    file: Box<dyn ReadFile>,
    path: Vec<u8>,
    end: ChunksEnd,
}

/// Result of a comparison of two files.
#[derive(Debug)]
pub struct Matches {
    /// Ranges of the new file that the old file has, ascending, with both offsets.
    kept: Vec<Moved>,
    /// Hash of these ranges, if known.
    hash: Option<[u8; 32]>,
    /// The new file.
    new: ChunksEnd,
}

/// Which end has the new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewFile {
    /// This machine, which sends.
    Here,
    /// The peer, which sends.
    AtPeer,
}

/// Version of a file: changes with size, modification time and change time.
fn version_of(size: u64, modified_ns: Option<i64>, changed: FileTime) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&size.to_le_bytes()).update(&modified_ns.unwrap_or(i64::MIN).to_le_bytes());
    hasher.update(&changed.seconds.to_le_bytes()).update(&changed.nanoseconds.to_le_bytes());
    front(&hasher.finalize())
}

/// Announces only the changed ranges of a file, if this is the version that was compared.
pub(super) fn apply_delta(delta: Delta, entry: &mut Entry, changed: FileTime) {
    let EntryKind::File(size) = entry.kind else { return };
    if version_of(size, entry.modified_ns, changed) != delta.version {
        return;
    }
    let more = entry.more.get_or_insert_default();
    if more.data.is_none() {
        (more.data, more.kept) = (Some(delta.data), Some(delta.kept));
    }
}

fn front(hash: &blake3::Hash) -> [u8; 16] {
    *hash.as_bytes().first_chunk().expect("32 bytes begin with 16")
}

impl Chunked {
    /// Opens a file below the root of `disk`, or without a disk with the rights of this process's user.
    ///
    /// # Errors
    /// If the path is no regular file, or cannot be read.
    pub fn open(disk: Option<Arc<dyn Disk>>, place: Vec<u8>) -> Result<Self, Failure> {
        let tree = disk.map_or(Tree::Local, Tree::Disk);
        let path = PathBuf::from(OsString::from_vec(place.clone()));
        let file = tree.open(&path)?;
        let fail = |error: io::Error| read_failure(&place, &error);
        let Metadata { kind, size, mtime, ctime, .. } = file.metadata().map_err(fail)?;
        if kind != Kind::File {
            return Err(unreadable(&path, "is no regular file"));
        }
        let end = ChunksEnd { size, version: version_of(size, modified_ns(mtime), ctime) };
        Ok(Self { file, path: place, end })
    }

    /// Size and version of the file when it was opened.
    pub const fn end(&self) -> ChunksEnd {
        self.end
    }

    /// Calls `take` for each chunk with its content, until `take` returns false.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn each(
        &self,
        chunking: Chunking,
        take: impl FnMut(Chunk, &[u8]) -> bool,
    ) -> Result<(), Failure> {
        let result = match chunking {
            Chunking::Fixed => self.each_fixed(take),
            Chunking::Content => self.each_content(take),
        };
        result.map_err(|error| read_failure(&self.path, &error))
    }

    fn reader(&self) -> FileReader<'_> {
        FileReader { file: &*self.file, at: 0, buffer: Vec::new(), is_over: &|| false }
    }

    fn each_fixed(&self, mut take: impl FnMut(Chunk, &[u8]) -> bool) -> io::Result<()> {
        let mut reader = self.reader();
        let mut content = Vec::new();
        loop {
            content.clear();
            reader.by_ref().take(READ_BYTES as u64).read_to_end(&mut content)?;
            if !content.chunks(FIXED_BYTES).all(|chunk| take(hashed(chunk), chunk)) {
                return Ok(());
            }
            if content.len() < READ_BYTES {
                return Ok(());
            }
        }
    }

    fn each_content(&self, mut take: impl FnMut(Chunk, &[u8]) -> bool) -> io::Result<()> {
        let [least, mean, most] = CONTENT_BYTES;
        for chunk in StreamCDC::new(self.reader(), least, mean, most) {
            let content = chunk?.data;
            if !take(hashed(&content), &content) {
                break;
            }
        }
        Ok(())
    }

    /// Compares the file with the peer's chunks. `next` returns the chunks and then the end of the peer's file, which
    /// has `peer_bytes`.
    ///
    /// # Errors
    /// Those of `next`, if the chunks are more than the peer's file, and if the file cannot be read.
    pub fn compare<E: From<Failure>>(
        &self,
        chunking: Chunking,
        new: NewFile,
        peer_bytes: u64,
        mut next: impl FnMut() -> Result<Result<Chunk, ChunksEnd>, E>,
    ) -> Result<Matches, E> {
        let mut left = peer_bytes;
        // A peer could send chunks without end.
        let next = || {
            let next = next()?;
            if let Ok(Chunk { bytes, .. }) = next {
                left = left.checked_sub(bytes.max(1).into()).ok_or_else(|| {
                    let text = "the file of the other end grew since it was listed";
                    Failure::new(FailureCode::Changed, text)
                })?;
            }
            Ok(next)
        };
        match chunking {
            Chunking::Fixed => self.compare_in_place(new, next),
            Chunking::Content => self.compare_moved(new, next),
        }
    }

    fn compare_in_place<E: From<Failure>>(
        &self,
        new: NewFile,
        mut next: impl FnMut() -> Result<Result<Chunk, ChunksEnd>, E>,
    ) -> Result<Matches, E> {
        let (mut kept, mut hasher) = (Vec::new(), blake3::Hasher::new());
        let (mut at, mut end, mut error) = (0, None, None);
        self.each(Chunking::Fixed, |chunk, content| {
            match next() {
                Ok(Ok(other)) => {
                    if other == chunk {
                        let range = Moved { to: at, from: at, bytes: chunk.bytes.into() };
                        if keep(&mut kept, range) {
                            hasher.update(content);
                        }
                    }
                    at += u64::from(chunk.bytes);
                }
                Ok(Err(last)) => end = Some(last),
                Err(failed) => error = Some(failed),
            }
            end.is_none() && error.is_none()
        })?;
        if let Some(error) = error {
            return Err(error);
        }
        let end = match end {
            Some(end) => end,
            None => rest(next)?,
        };
        let new = if new == NewFile::Here { self.end } else { end };
        Ok(Matches { kept, hash: Some(*hasher.finalize().as_bytes()), new })
    }

    fn compare_moved<E: From<Failure>>(
        &self,
        new: NewFile,
        mut next: impl FnMut() -> Result<Result<Chunk, ChunksEnd>, E>,
    ) -> Result<Matches, E> {
        let (mut old, mut kept) = (OldChunks::default(), Vec::new());
        let mut hasher = blake3::Hasher::new();
        if new == NewFile::Here {
            while let Ok(chunk) = next()? {
                old.add(chunk);
            }
            let mut at = 0;
            self.each(Chunking::Content, |chunk, content| {
                if let Some(from) = old.find(chunk) {
                    let range = Moved { to: at, from, bytes: chunk.bytes.into() };
                    if keep(&mut kept, range) {
                        hasher.update(content);
                    }
                }
                at += u64::from(chunk.bytes);
                true
            })?;
            return Ok(Matches { kept, hash: Some(*hasher.finalize().as_bytes()), new: self.end });
        }
        self.each(Chunking::Content, |chunk, _| old.add(chunk))?;
        let mut at = 0;
        let end = loop {
            match next()? {
                Ok(chunk) => {
                    if let Some(from) = old.find(chunk) {
                        keep(&mut kept, Moved { to: at, from, bytes: chunk.bytes.into() });
                    }
                    at += u64::from(chunk.bytes);
                }
                Err(end) => break end,
            }
        };
        Ok(Matches { kept, hash: None, new: end })
    }

    /// Returns the delta for these matches; `None` if nothing is kept.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn delta(&self, new: NewFile, matches: Matches) -> Result<Option<Delta>, Failure> {
        let Matches { mut kept, mut hash, new: ChunksEnd { size, version } } = matches;
        // Small ranges are sent, too, until the list is short enough.
        let mut least = FIXED_BYTES as u64;
        while kept.len() >= MAX_DELTA_EXTENTS
            || kept.iter().filter(|range| range.to != range.from).count() > MAX_MOVED
        {
            kept.retain(|range| range.bytes > least);
            (least, hash) = (least * 2, None);
        }
        if kept.is_empty() || kept.last().is_some_and(|range| range.to + range.bytes > size) {
            return Ok(None);
        }
        let hash = match hash {
            Some(hash) => hash,
            None => {
                let offset = |range: &Moved| match new {
                    NewFile::Here => range.to,
                    NewFile::AtPeer => range.from,
                };
                let ranges = kept.iter().map(|range| (offset(range), range.bytes));
                hash_of_ranges(&*self.file, ranges, &|| false)
                    .map_err(|error| read_failure(&self.path, &error))?
            }
        };
        let mut data = Vec::new();
        let mut at = 0;
        for range in kept.iter().chain([&Moved { to: size, from: size, bytes: 0 }]) {
            if range.to > at {
                data.push(Extent { offset: at, bytes: range.to - at });
            }
            at = range.to + range.bytes;
        }
        kept.retain(|range| range.to != range.from);
        Ok(Some(Delta { version, data, kept: Kept { hash, moved: kept } }))
    }
}

impl Matches {
    /// Bytes of the new file that the old file has.
    pub fn kept_bytes(&self) -> u64 {
        self.kept.iter().map(|range| range.bytes).sum()
    }

    /// Bytes of the new file.
    pub const fn new_bytes(&self) -> u64 {
        self.new.size
    }
}

/// Offsets of the chunks of an old file.
#[derive(Default)]
struct OldChunks {
    offsets: HashMap<Chunk, u64>,
    at: u64,
}

impl OldChunks {
    /// Adds the next chunk; returns whether there is room for more.
    fn add(&mut self, chunk: Chunk) -> bool {
        if self.offsets.len() < CHUNKS_KNOWN {
            self.offsets.entry(chunk).or_insert(self.at);
        }
        self.at += u64::from(chunk.bytes);
        self.offsets.len() < CHUNKS_KNOWN
    }

    fn find(&self, chunk: Chunk) -> Option<u64> {
        self.offsets.get(&chunk).copied()
    }
}

fn hashed(content: &[u8]) -> Chunk {
    let bytes = u32::try_from(content.len()).unwrap_or(u32::MAX);
    Chunk { bytes, hash: front(&blake3::hash(content)) }
}

/// Adds a kept range; ranges that continue each other become one. Returns false if there are too many.
fn keep(kept: &mut Vec<Moved>, range: Moved) -> bool {
    let is_full = kept.len() == KEPT_MAX;
    match kept.last_mut() {
        Some(last) if (last.to + last.bytes, last.from + last.bytes) == (range.to, range.from) => {
            last.bytes += range.bytes;
        }
        _ if is_full => return false,
        _ => kept.push(range),
    }
    true
}

/// Skips the peer's further chunks; returns the end of the peer's file.
fn rest<E>(mut next: impl FnMut() -> Result<Result<Chunk, ChunksEnd>, E>) -> Result<ChunksEnd, E> {
    loop {
        if let Err(end) = next()? {
            return Ok(end);
        }
    }
}

/// BLAKE3 hash of these ranges of a file, as offsets and lengths, one after the other; an error once `is_over` returns
/// true.
pub(super) fn hash_of_ranges(
    file: &dyn ReadFile,
    ranges: impl Iterator<Item = (u64, u64)>,
    is_over: &dyn Fn() -> bool,
) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    for (offset, bytes) in ranges {
        let mut reader = FileReader { file, at: offset, buffer: Vec::new(), is_over };
        let read = io::copy(&mut reader.by_ref().take(bytes), &mut hasher)?;
        if read < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(*hasher.finalize().as_bytes())
}

/// Reader of a file from an offset on.
struct FileReader<'a> {
    file: &'a dyn ReadFile,
    at: u64,
    buffer: Vec<u8>,
    is_over: &'a dyn Fn() -> bool,
}

impl Read for FileReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if (self.is_over)() {
            return Err(cancelled());
        }
        self.buffer.clear();
        let most = into.len().min(READ_BYTES);
        if self.buffer.capacity() != most {
            self.buffer = Vec::with_capacity(most);
        }
        let read = self.file.read_at(&mut self.buffer, self.at)?.min(into.len());
        into[..read].copy_from_slice(&self.buffer[..read]);
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::memory::MemoryDisk;
    use crate::root::RootPath;

    fn content(seed: u64, bytes: usize) -> Vec<u8> {
        let mut reader = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
        let mut content = vec![0; bytes];
        reader.fill(&mut content);
        content
    }

    fn open(content: &[u8]) -> Chunked {
        let disk = MemoryDisk::new(0);
        disk.put(&RootPath::new(["f"]).unwrap(), content).unwrap();
        Chunked::open(Some(Arc::new(disk)), b"f".to_vec()).unwrap()
    }

    /// Compares from both ends; returns the delta, which must be the same.
    fn delta(old: &[u8], new: &[u8], chunking: Chunking) -> Option<Delta> {
        let (old, new) = (open(old), open(new));
        let list = |file: &Chunked| {
            let mut chunks = Vec::new();
            file.each(chunking, |chunk, _| {
                chunks.push(Ok::<_, Failure>(Ok(chunk)));
                true
            })
            .unwrap();
            chunks.push(Ok(Err(file.end())));
            chunks.into_iter()
        };
        let of = |here: &Chunked, there: &Chunked, side| {
            let mut chunks = list(there);
            let bytes = there.end().size;
            let matches = here.compare(chunking, side, bytes, || chunks.next().unwrap()).unwrap();
            here.delta(side, matches).unwrap()
        };
        let up = of(&new, &old, NewFile::Here);
        assert_eq!(of(&old, &new, NewFile::AtPeer), up);
        up
    }

    #[test]
    fn chunks_without_end_are_refused() {
        let file = open(&content(1, 100_000));
        for bytes in [0, 1, 1 << 16] {
            for (chunking, side) in [
                (Chunking::Fixed, NewFile::Here),
                (Chunking::Content, NewFile::Here),
                (Chunking::Content, NewFile::AtPeer),
            ] {
                let mut sent = 0_u32;
                let endless = || {
                    sent += 1;
                    let hash = *blake3::hash(&sent.to_le_bytes()).as_bytes().first_chunk().unwrap();
                    Ok::<_, Failure>(Ok(Chunk { bytes, hash }))
                };
                let refused = file.compare(chunking, side, 10_000, endless).err();
                assert_eq!(refused.map(|failure| failure.code), Some(FailureCode::Changed));
            }
        }
    }

    fn sent(delta: &Delta) -> u64 {
        delta.data.iter().map(|extent| extent.bytes).sum()
    }

    /// The new file from the old file and the sent ranges.
    fn rebuilt(old: &[u8], new: &[u8], delta: &Delta) -> Vec<u8> {
        let at = |offset: u64| usize::try_from(offset).unwrap();
        let mut built = vec![0; new.len()];
        let same = built.len().min(old.len());
        built[..same].copy_from_slice(&old[..same]);
        for &Moved { to, from, bytes } in &delta.kept.moved {
            built[at(to)..at(to + bytes)].copy_from_slice(&old[at(from)..at(from + bytes)]);
        }
        for &Extent { offset, bytes } in &delta.data {
            let range = at(offset)..at(offset + bytes);
            built[range.clone()].copy_from_slice(&new[range]);
        }
        built
    }

    #[test]
    fn a_change_in_place_sends_the_chunks_around_it() {
        let old = content(1, 3_000_000);
        let mut new = old.clone();
        new[1_000_000..1_050_000].fill(7);
        for new in [&new[..], &new[..2_500_001], &[&new[..], &old[..77_777]].concat()] {
            let delta = delta(&old, new, Chunking::Fixed).unwrap();
            assert_eq!(rebuilt(&old, new, &delta), new);
            assert!(sent(&delta) < 50_000 + 77_777 + 4 * 16_384, "{}", sent(&delta));
            assert!(delta.kept.moved.is_empty());
        }
        assert_eq!(delta(&old, &content(2, 3_000_000), Chunking::Fixed), None);
        assert_eq!(delta(&[], &old, Chunking::Fixed), None);
        assert_eq!(delta(&old, &[], Chunking::Fixed), None);
        assert_eq!(sent(&delta(&old, &old, Chunking::Fixed).unwrap()), 0);
    }

    #[test]
    fn an_insertion_sends_the_content_around_it() {
        let old = content(1, 5_000_000);
        let inserted = content(3, 100_000);
        let swapped = [&old[2_500_000..], &old[..2_500_000]].concat();
        let front = [&inserted[..], &old].concat();
        let middle = [&old[..3_000_001], &inserted[..], &old[3_000_001..]].concat();
        let removed = [&old[..1_000_000], &old[1_100_000..]].concat();
        for new in [front, middle, removed, swapped] {
            let delta = delta(&old, &new, Chunking::Content).unwrap();
            assert_eq!(rebuilt(&old, &new, &delta), new);
            assert!(sent(&delta) <= 100_000 + 4 * 256 * 1024, "{}", sent(&delta));
        }
        assert_eq!(delta(&old, &content(2, 3_000_000), Chunking::Content), None);
    }

    #[test]
    fn a_file_with_too_many_changes_sends_small_ranges_too() {
        let old = content(1, 3 * MAX_DELTA_EXTENTS * FIXED_BYTES / 2);
        let mut new = old.clone();
        for page in new.chunks_mut(FIXED_BYTES).step_by(2).take(MAX_DELTA_EXTENTS / 2 + 100) {
            page[0] ^= 1;
        }
        let found = delta(&old, &new, Chunking::Fixed).unwrap();
        assert!(found.data.len() <= MAX_DELTA_EXTENTS);
        assert!(rebuilt(&old, &new, &found) == new);
    }

    #[test]
    fn a_peer_cannot_fill_the_memory_with_kept_ranges() {
        let mut kept = Vec::new();
        let mut from = 0;
        let added = (0..2 * KEPT_MAX as u64).filter(|to| {
            from ^= 7;
            keep(&mut kept, Moved { to: *to, from, bytes: 1 })
        });
        assert_eq!((added.count(), kept.len()), (KEPT_MAX, KEPT_MAX));
        let last = kept[KEPT_MAX - 1];
        assert!(keep(&mut kept, Moved { to: last.to + 1, from: last.from + 1, bytes: 5 }));
    }

    #[test]
    fn the_version_changes_with_each_part() {
        let time = FileTime { seconds: 5, nanoseconds: 7 };
        let version = version_of(1, Some(2), time);
        assert_ne!(version, version_of(2, Some(2), time));
        assert_ne!(version, version_of(1, Some(3), time));
        assert_ne!(version, version_of(1, None, time));
        assert_ne!(version, version_of(1, Some(2), FileTime { nanoseconds: 8, ..time }));
    }
}
