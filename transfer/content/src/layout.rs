//! Sparse file layout: maps offsets in the transferred byte stream to offsets in the file.
//!
//! The stream of a sparse file has only the data extents of the file, one after the other. The hash
//! of a sparse file covers the extent map and the hash of the stream, so the position of each byte
//! is verified too. The hashed bytes are:
//!
//! ```text
//! "sabul holes 2\n" | file length (8) | number of extents (8)
//!                   | offset (8), bytes (8) of each extent | BLAKE3 of the stream (32)
//! ```
//! All integers are little-endian. The hash of a file without holes is the BLAKE3 hash of its
//! content.

use sabul_wire::control::{Entry, EntryKind, Extent};

/// Prefix of the hashed bytes of a sparse file; it separates this hash from other hashes.
const HEAD: &[u8] = b"sabul holes 2\n";

/// Mapping from stream offsets to file offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    map: Option<Box<Map>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Map {
    /// Length of the file in bytes.
    size: u64,
    /// Extents in order, each with the number of stream bytes before the extent.
    runs: Vec<(u64, Extent)>,
    stream_bytes: u64,
}

impl Layout {
    /// The layout of a file without holes: stream offset and file offset are equal.
    pub const PLAIN: Self = Self { map: None };

    /// Returns the layout of a sparse file with a length of `size` bytes and these data extents.
    /// Returns `None` unless the extents are in order, not empty, not adjacent and inside the file.
    pub fn with_holes(size: u64, data: &[Extent]) -> Option<Self> {
        let (mut end, mut stream_bytes) = (0_u64, 0_u64);
        let mut runs = Vec::with_capacity(data.len());
        for &extent in data {
            let follows = runs.is_empty() || extent.offset > end;
            let next = extent.offset.checked_add(extent.bytes)?;
            if extent.bytes == 0 || !follows || next > size {
                return None;
            }
            runs.push((stream_bytes, extent));
            (end, stream_bytes) = (next, stream_bytes + extent.bytes);
        }
        Some(Self { map: Some(Box::new(Map { size, runs, stream_bytes })) })
    }

    /// Returns the layout of a validated entry.
    pub fn of(entry: &Entry) -> Self {
        let data = entry.more.as_ref().and_then(|more| more.data.as_ref());
        match (entry.kind, data) {
            (EntryKind::File(size), Some(data)) => {
                Self::with_holes(size, data).unwrap_or(Self::PLAIN)
            }
            _ => Self::PLAIN,
        }
    }

    /// Whether the file is sparse.
    pub const fn has_holes(&self) -> bool {
        self.map.is_some()
    }

    /// The file length and the data extents; `None` for a file without holes.
    pub fn holes(&self) -> Option<(u64, Vec<Extent>)> {
        let map = self.map.as_ref()?;
        Some((map.size, map.runs.iter().map(|&(_, extent)| extent).collect()))
    }

    /// The file length in bytes, given the length of the stream in bytes.
    pub fn file_bytes(&self, stream_bytes: u64) -> u64 {
        self.map.as_ref().map_or(stream_bytes, |map| map.size)
    }

    /// Returns the file offset of stream byte `at`, and the number of contiguous bytes from there.
    /// At the end of the stream, returns the file length and zero.
    pub fn place(&self, at: u64) -> (u64, u64) {
        let Some(map) = &self.map else { return (at, u64::MAX - at) };
        if at >= map.stream_bytes {
            return (map.size, 0);
        }
        let index = map.runs.partition_point(|&(before, _)| before <= at);
        let (before, extent) = map.runs[index.saturating_sub(1)];
        (extent.offset + (at - before), extent.bytes - (at - before))
    }

    /// The file offset that is reached after the first `bytes` bytes of the stream.
    pub fn reach(&self, bytes: u64) -> u64 {
        match bytes.checked_sub(1) {
            Some(last) if self.has_holes() => {
                let (place, run) = self.place(last);
                place + run.min(1)
            }
            _ => bytes,
        }
    }

    /// The hash of the file, given the hash of its stream.
    pub fn hash(&self, stream: [u8; 32]) -> [u8; 32] {
        let Some(map) = &self.map else { return stream };
        let mut hasher = blake3::Hasher::new();
        hasher.update(HEAD).update(&map.size.to_le_bytes());
        hasher.update(&(map.runs.len() as u64).to_le_bytes());
        for (_, extent) in &map.runs {
            hasher.update(&extent.offset.to_le_bytes()).update(&extent.bytes.to_le_bytes());
        }
        *hasher.update(&stream).finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn extent(offset: u64, bytes: u64) -> Extent {
        Extent { offset, bytes }
    }

    #[test]
    fn each_stream_byte_maps_to_its_file_offset() {
        let layout =
            Layout::with_holes(100, &[extent(0, 3), extent(10, 2), extent(90, 5)]).unwrap();
        // The stream is 0 1 2 | 10 11 | 90 … 94.
        for (at, place) in
            [(0, (0, 3)), (2, (2, 1)), (3, (10, 2)), (4, (11, 1)), (5, (90, 5)), (9, (94, 1))]
        {
            assert_eq!(layout.place(at), place, "{at}");
        }
        assert_eq!(layout.place(10), (100, 0));
        assert_eq!([0, 1, 3, 4, 5, 6, 10].map(|at| layout.reach(at)), [0, 1, 3, 11, 12, 91, 95]);
        assert_eq!((layout.file_bytes(10), Layout::PLAIN.file_bytes(10)), (100, 10));
        assert_eq!(Layout::PLAIN.place(7), (7, u64::MAX - 7));
        assert_eq!(Layout::PLAIN.reach(7), 7);
        let empty = Layout::with_holes(1 << 40, &[]).unwrap();
        assert_eq!((empty.place(0), empty.reach(0)), ((1 << 40, 0), 0));
    }

    #[test]
    fn unordered_adjacent_or_out_of_range_extents_are_refused() {
        for data in [
            &[extent(5, 0)][..],
            &[extent(5, 6)],
            &[extent(u64::MAX, 1)],
            &[extent(2, u64::MAX)],
            &[extent(4, 1), extent(0, 1)],
            &[extent(0, 3), extent(2, 1)],
            &[extent(0, 3), extent(3, 1)],
            &[extent(0, 3), extent(0, 3)],
        ] {
            assert_eq!(Layout::with_holes(10, data), None, "{data:?}");
        }
        assert!(Layout::with_holes(10, &[extent(0, 3), extent(4, 6)]).is_some());
    }

    #[test]
    fn the_hash_depends_on_the_offsets_of_the_data() {
        let stream = *blake3::hash(b"abc").as_bytes();
        let hash = |layout: Layout| layout.hash(stream);
        let holes = |size, data: &[Extent]| Layout::with_holes(size, data).unwrap();
        let hashes = [
            hash(Layout::PLAIN),
            hash(holes(10, &[extent(0, 3)])),
            hash(holes(10, &[extent(1, 3)])),
            hash(holes(11, &[extent(1, 3)])),
            hash(holes(10, &[extent(0, 1), extent(4, 2)])),
        ];
        for (at, one) in hashes.iter().enumerate() {
            assert!(hashes[at + 1..].iter().all(|other| other != one), "{at}");
        }
        assert_eq!(hashes[0], stream, "without holes it is that of the content");
    }
}
