//! What the receiver has from earlier attempts, and how much of it is what would be sent.

use std::collections::BTreeMap;
use std::io;

use sabul_wire::control::{Held, Mark};

use crate::disk::DiskFile;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// What the receiver has told, by path of the entry.
#[derive(Debug, Default)]
pub struct Have {
    files: BTreeMap<Vec<u8>, Vec<Mark>>,
    is_complete: bool,
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
    pub fn add(&mut self, files: Vec<Held>, is_last: bool) {
        if !self.is_complete {
            self.files.extend(files.into_iter().map(|held| (held.path, held.marks)));
            self.is_complete = is_last;
        }
    }

    /// Whether the receiver has told all.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// What the receiver has of a file, at most up to its size.
    pub(super) fn take(&mut self, path: &[u8], size: u64) -> Option<Vec<Mark>> {
        let mut marks = self.files.remove(path)?;
        let mut last = 0;
        // Hostile ones may be in any order.
        marks.retain(|mark| {
            let is_next = mark.bytes > last && mark.bytes <= size;
            last = if is_next { mark.bytes } else { last };
            is_next
        });
        (!marks.is_empty()).then_some(marks)
    }
}

/// Reads a file up to the last mark that it agrees with; nothing where it agrees with none.
pub(super) fn same(file: &dyn DiskFile, marks: &[Mark]) -> io::Result<Option<Same>> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = Vec::with_capacity(READ_BYTES);
    let mut at = 0;
    let mut same = None;
    for mark in marks {
        while at < mark.bytes {
            buffer.clear();
            match file.read_at(&mut buffer, at) {
                Ok(0) => return Ok(same),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            buffer.truncate(usize::try_from(mark.bytes - at).unwrap_or(usize::MAX));
            hasher.update(&buffer);
            at += buffer.len() as u64;
        }
        if *hasher.finalize().as_bytes() != mark.hash {
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
            let same = same(&*file, &marks).unwrap();
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
        have.add(vec![held("a", bytes(&[0, 5, 3, 5, 7, 9])), held("b", bytes(&[0]))], false);
        have.add(vec![held("c", bytes(&[1]))], true);
        have.add(vec![held("d", bytes(&[1]))], true);
        let take = |have: &mut Have, path: &[u8]| {
            Some(have.take(path, 8)?.iter().map(|mark| mark.bytes).collect::<Vec<_>>())
        };
        assert_eq!(take(&mut have, b"a"), Some(vec![5, 7]));
        assert_eq!(take(&mut have, b"a"), None, "once");
        assert_eq!(take(&mut have, b"b"), None);
        assert_eq!(take(&mut have, b"c"), Some(vec![1]));
        assert_eq!(take(&mut have, b"d"), None, "behind the last");
    }
}
