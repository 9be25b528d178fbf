//! What the receiver has from earlier attempts, and how much of it is what would be sent.

use std::collections::{BTreeMap, HashMap};
use std::io;

use sabul_transfer::Layout;
use sabul_wire::control::{Held, Mark, Whole};

use super::part::hash_on;
use crate::disk::DiskFile;

/// Files of up to so many bytes are told of without their names. Ours: to read one again because it has changed costs
/// little, and there may be millions.
pub(super) const WHOLE_BYTES_MAX: u64 = 1 << 20;

/// What the receiver has told, by path of the entry.
#[derive(Debug, Default)]
pub struct Have {
    files: BTreeMap<Vec<u8>, Vec<Mark>>,
    /// Small files that are there whole.
    wholes: HashMap<[u8; 8], [u8; 8]>,
    is_complete: bool,
}

/// What the receiver has of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// What is before these places.
    Marks(Vec<Mark>),
    /// All, and this is how the hash of its content begins.
    Whole([u8; 8]),
}

/// How a small file is told of that has this hash.
pub(super) fn whole(path: &[u8], hash: &[u8; 32]) -> Whole {
    Whole { name: front(blake3::hash(path).as_bytes()), content: front(hash) }
}

fn front(hash: &[u8; 32]) -> [u8; 8] {
    *hash.first_chunk().expect("32 bytes begin with 8")
}

/// The start of a file that need not be sent.
#[derive(Debug)]
pub(super) struct Same {
    pub(super) offset: u64,
    /// Has taken in all before.
    pub(super) hasher: blake3::Hasher,
}

impl Have {
    /// Takes what came in one message.
    pub fn add(&mut self, files: Vec<Held>, wholes: Vec<Whole>, is_last: bool) {
        if !self.is_complete {
            self.wholes.extend(wholes.into_iter().map(|whole| (whole.name, whole.content)));
            self.files.extend(files.into_iter().map(|held| (held.path, held.marks)));
            self.is_complete = is_last;
        }
    }

    /// Whether the receiver has told all.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// What the receiver has of a file, at most up to its size.
    pub(super) fn take(&mut self, path: &[u8], size: u64) -> Option<Known> {
        let Some(mut marks) = self.files.remove(path) else {
            if self.wholes.is_empty() || !(1..=WHOLE_BYTES_MAX).contains(&size) {
                return None;
            }
            return self.wholes.remove(&front(blake3::hash(path).as_bytes())).map(Known::Whole);
        };
        let mut last = 0;
        // Hostile ones may be in any order.
        marks.retain(|mark| {
            let is_next = mark.bytes > last && mark.bytes <= size;
            last = if is_next { mark.bytes } else { last };
            is_next
        });
        (!marks.is_empty()).then_some(Known::Marks(marks))
    }
}

/// Reads a small file whole; nothing where its content is another.
pub(super) fn same_whole(
    file: &dyn DiskFile,
    layout: &Layout,
    size: u64,
    content: [u8; 8],
) -> io::Result<Option<Same>> {
    let mut hasher = layout.hasher();
    let bytes = hash_on(file, layout, &mut hasher, 0, size)?;
    let is_same = bytes == size && front(hasher.finalize().as_bytes()) == content;
    Ok(is_same.then_some(Same { offset: size, hasher }))
}

/// Reads a file up to the last mark that it agrees with; nothing where it agrees with none.
pub(super) fn same(
    file: &dyn DiskFile,
    layout: &Layout,
    marks: &[Mark],
) -> io::Result<Option<Same>> {
    let mut hasher = layout.hasher();
    let mut at = 0;
    let mut same = None;
    for mark in marks {
        at = hash_on(file, layout, &mut hasher, at, mark.bytes)?;
        if at != mark.bytes || *hasher.finalize().as_bytes() != mark.hash {
            return Ok(same);
        }
        same = Some(Same { offset: at, hasher: hasher.clone() });
    }
    Ok(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::memory::MemoryDisk;
    use crate::jail::JailPath;

    fn mark(content: &[u8]) -> Mark {
        Mark { bytes: content.len() as u64, hash: blake3::hash(content).into() }
    }

    #[test]
    fn a_file_that_changed_in_the_middle_is_the_same_up_to_the_mark_before() {
        let disk = MemoryDisk::new(0);
        let path = JailPath::new(["f"]).unwrap();
        disk.put(&path, b"0123456789").unwrap();
        let file = disk.open_read(&path).unwrap();
        for (marks, offset) in [
            (vec![mark(b"012"), mark(b"012345")], Some(6)),
            (vec![mark(b"012"), mark(b"01234X")], Some(3)),
            (vec![mark(b"01X"), mark(b"012345")], None),
            (vec![mark(b"0123456789")], Some(10)),
            (vec![mark(b"012"), mark(b"0123456789abc")], Some(3)),
            (vec![], None),
        ] {
            let same = same(&*file, &Layout::PLAIN, &marks).unwrap();
            assert_eq!(same.as_ref().map(|same| same.offset), offset);
            if let Some(Same { offset, hasher }) = same {
                let content = &b"0123456789"[..usize::try_from(offset).unwrap()];
                assert_eq!(hasher.finalize(), blake3::hash(content));
            }
        }
    }

    #[test]
    fn marks_in_no_order_or_beyond_the_file_do_not_count() {
        let bytes =
            |list: &[u64]| list.iter().map(|&bytes| Mark { bytes, hash: [0; 32] }).collect();
        let mut have = Have::default();
        let held = |path: &str, marks| Held { path: path.into(), marks };
        let files = vec![held("a", bytes(&[0, 5, 3, 5, 7, 9])), held("b", bytes(&[0]))];
        have.add(files, vec![], false);
        have.add(vec![held("c", bytes(&[1]))], vec![], true);
        have.add(vec![held("d", bytes(&[1]))], vec![], true);
        let take = |have: &mut Have, path: &[u8]| match have.take(path, 8)? {
            Known::Marks(marks) => Some(marks.iter().map(|mark| mark.bytes).collect::<Vec<_>>()),
            Known::Whole(_) => None,
        };
        assert_eq!(take(&mut have, b"a"), Some(vec![5, 7]));
        assert_eq!(take(&mut have, b"a"), None, "once");
        assert_eq!(take(&mut have, b"b"), None);
        assert_eq!(take(&mut have, b"c"), Some(vec![1]));
        assert_eq!(take(&mut have, b"d"), None, "behind the last");
    }

    #[test]
    fn a_small_file_that_is_there_whole_is_known_by_its_hash() {
        let disk = MemoryDisk::new(0);
        let path = JailPath::new(["f"]).unwrap();
        disk.put(&path, b"content").unwrap();
        let file = disk.open_read(&path).unwrap();
        let mut have = Have::default();
        let told = |path: &[u8], content: &[u8]| whole(path, blake3::hash(content).as_bytes());
        have.add(vec![], vec![told(b"f", b"content"), told(b"g", b"other")], true);
        let Some(Known::Whole(content)) = have.take(b"f", 7) else { panic!("it is there") };
        assert_eq!(have.take(b"f", 7), None, "once");
        assert_eq!(same_whole(&*file, &Layout::PLAIN, 7, content).unwrap().unwrap().offset, 7);
        let Some(Known::Whole(other)) = have.take(b"g", 7) else { panic!("it is there") };
        assert!(same_whole(&*file, &Layout::PLAIN, 7, other).unwrap().is_none(), "it has changed");
        assert!(same_whole(&*file, &Layout::PLAIN, 6, content).unwrap().is_none(), "it has grown");
        assert!(same_whole(&*file, &Layout::PLAIN, 8, content).unwrap().is_none(), "it has shrunk");
    }
}
