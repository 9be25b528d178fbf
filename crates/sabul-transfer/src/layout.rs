//! Where in a file the bytes of its stream belong: its data, and the holes between.
//!
//! Of a file with holes the stream has its data alone, one stretch behind the other. So that the hash of such a file
//! says where each byte belongs, it is that of its map and of the hash of the stream:
//!
//! ```text
//! "sabul holes 2\n" | length of the file (8) | number of stretches (8) | offset (8), bytes (8) of each | BLAKE3 of the stream (32)
//! ```
//! All little-endian. The hash of a file without holes is that of its content alone.

use sabul_wire::control::{Entry, EntryKind, Extent};

/// What is hashed of a file with holes begins with this.
const HEAD: &[u8] = b"sabul holes 2\n";

/// Where the bytes of a stream go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    map: Option<Box<Map>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Map {
    /// Length of the file in bytes.
    size: u64,
    /// In order, each with the bytes of the stream before it.
    runs: Vec<(u64, Extent)>,
    stream_bytes: u64,
}

impl Layout {
    /// Of a file without holes: each byte is where it is in the stream.
    pub const PLAIN: Self = Self { map: None };

    /// Of a file of this length in bytes with data in these places and holes between. The stretches are in order,
    /// apart from each other and within the file; none where they are not.
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

    /// Of an entry that was checked.
    pub fn of(entry: &Entry) -> Self {
        let data = entry.more.as_ref().and_then(|more| more.data.as_ref());
        match (entry.kind, data) {
            (EntryKind::File(size), Some(data)) => {
                Self::with_holes(size, data).unwrap_or(Self::PLAIN)
            }
            _ => Self::PLAIN,
        }
    }

    /// Whether it has holes.
    pub const fn has_holes(&self) -> bool {
        self.map.is_some()
    }

    /// The length of the file and where it has data; nothing of one without holes.
    pub fn holes(&self) -> Option<(u64, Vec<Extent>)> {
        let map = self.map.as_ref()?;
        Some((map.size, map.runs.iter().map(|&(_, extent)| extent).collect()))
    }

    /// The length in bytes of a file with so many bytes of stream.
    pub fn file_bytes(&self, stream_bytes: u64) -> u64 {
        self.map.as_ref().map_or(stream_bytes, |map| map.size)
    }

    /// Where the byte of the stream with this number goes, and how many from it on go side by side. At the end of the
    /// stream that is the end of the file, and none.
    pub fn place(&self, at: u64) -> (u64, u64) {
        let Some(map) = &self.map else { return (at, u64::MAX - at) };
        if at >= map.stream_bytes {
            return (map.size, 0);
        }
        let index = map.runs.partition_point(|&(before, _)| before <= at);
        let (before, extent) = map.runs[index.saturating_sub(1)];
        (extent.offset + (at - before), extent.bytes - (at - before))
    }

    /// How far into the file so many bytes from the beginning of the stream reach.
    pub fn reach(&self, bytes: u64) -> u64 {
        match bytes.checked_sub(1) {
            Some(last) if self.has_holes() => {
                let (place, run) = self.place(last);
                place + run.min(1)
            }
            _ => bytes,
        }
    }

    /// The hash of a file whose stream has this one.
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
    fn each_byte_of_the_stream_has_its_place() {
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
    fn stretches_out_of_order_side_by_side_or_beyond_the_end_are_no_layout() {
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
    fn the_same_bytes_in_other_places_have_another_hash() {
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
