//! Sender-side index of the content that the receiver has from earlier attempts.

use std::collections::BTreeMap;
use std::io;

use sabul_content::{CHUNK, Layout, Printable};
use sabul_wire::control::{Checkpoint, Held, Whole};
use tracing::debug;

use super::prefix::hash_of;
use crate::disk::ReadFile;

/// Files of up to this size are reported by hash instead of name. Ours: reading a changed file
/// again costs little, and there may be millions of such files.
pub(super) const WHOLE_BYTES_MAX: u64 = 16 << 20;

/// Maximum number of files named in the log.
const FILES_LOGGED: usize = 20;

/// Content reported by the receiver, by path of the entry.
#[derive(Debug, Default)]
pub struct Have {
    files: BTreeMap<Vec<u8>, Vec<Checkpoint>>,
    /// Messages with complete small files, in order of arrival. Lookups expect names in ascending
    /// order; files out of order are not found.
    wholes: Vec<Vec<Whole>>,
    is_complete: bool,
}

/// Content that the receiver has of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The content up to these checkpoints.
    Checkpoints(Vec<Checkpoint>),
    /// The complete file, with the first 8 bytes of its hash.
    Whole([u8; 8]),
}

/// Report record of a small file with this hash.
pub(super) fn whole(path: &[u8], hash: &[u8; 32]) -> Whole {
    Whole { name: name_of(path), content: front(hash) }
}

/// Short hash that identifies the path of an entry.
pub(super) fn name_of(path: &[u8]) -> [u8; 8] {
    front(blake3::hash(path).as_bytes())
}

fn front(hash: &[u8; 32]) -> [u8; 8] {
    *hash.first_chunk().expect("32 bytes begin with 8")
}

impl Have {
    /// Adds the content of one message.
    pub fn add(&mut self, files: Vec<Held>, wholes: Vec<Whole>, is_last: bool) {
        if !self.is_complete {
            self.wholes.extend(Some(wholes).filter(|wholes| !wholes.is_empty()));
            self.files.extend(files.into_iter().map(|held| (held.path, held.checkpoints)));
            self.is_complete = is_last;
        }
        if is_last {
            let wholes: usize = self.wholes.iter().map(Vec::len).sum();
            debug!(files = self.files.len(), wholes, "resume: partial data of the receiver");
            for (path, checkpoints) in self.files.iter().take(FILES_LOGGED) {
                let bytes = checkpoints.last().map_or(0, |checkpoint| checkpoint.bytes);
                debug!(file = %Printable(path), bytes, "resume: a file goes on there, if it is the same");
            }
        }
    }

    /// Whether the last message was received.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether the receiver reported checkpoints of this file.
    pub(super) fn has_checkpoints(&self, path: &[u8]) -> bool {
        self.files.contains_key(path)
    }

    /// Whether the receiver has the complete small file with this hash.
    pub(super) fn has_whole(&self, path: &[u8], size: u64, hash: &[u8; 32]) -> bool {
        self.whole(path, size) == Some(front(hash))
    }

    /// First 8 bytes of the hash of a complete small file at the receiver, if any.
    pub(super) fn whole(&self, path: &[u8], size: u64) -> Option<[u8; 8]> {
        if self.wholes.is_empty() || !(1..=WHOLE_BYTES_MAX).contains(&size) {
            return None;
        }
        let name = name_of(path);
        let begins = |some: &Vec<Whole>| some.first().is_some_and(|first| first.name <= name);
        let some = self.wholes.get(self.wholes.partition_point(begins).checked_sub(1)?)?;
        let place = some.binary_search_by_key(&name, |whole| whole.name).ok()?;
        some.get(place).map(|whole| whole.content)
    }

    /// Removes and returns the content that the receiver has of a file, limited to the file's size.
    pub(super) fn take(&mut self, path: &[u8], size: u64) -> Option<Known> {
        let Some(mut checkpoints) = self.files.remove(path) else {
            return self.whole(path, size).map(Known::Whole);
        };
        let mut places = vec![0];
        // A hostile receiver may send checkpoints in any order and with any start.
        checkpoints.retain(|checkpoint| {
            let is_next = places.last().is_some_and(|last| checkpoint.bytes > *last)
                && checkpoint.bytes <= size
                && (checkpoint.bytes.is_multiple_of(CHUNK) || checkpoint.bytes == size)
                && places.contains(&checkpoint.from);
            places.extend(is_next.then_some(checkpoint.bytes));
            is_next
        });
        (!checkpoints.is_empty()).then_some(Known::Checkpoints(checkpoints))
    }
}

/// Reads a complete small file; returns its checkpoint if the hash begins with `content`.
pub(super) fn same_whole(
    file: &dyn ReadFile,
    layout: &Layout,
    size: u64,
    content: [u8; 8],
) -> io::Result<Option<Checkpoint>> {
    let (bytes, hash) = hash_of(file, layout, size)?;
    let is_same = bytes == size && front(&hash) == content;
    Ok(is_same.then_some(Checkpoint { from: 0, bytes, hash }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::memory::MemoryDisk;
    use crate::root::RootPath;

    #[test]
    fn unordered_checkpoints_and_checkpoints_beyond_the_file_are_ignored() {
        let checkpoint = |from, bytes| Checkpoint { from, bytes, hash: [0; 32] };
        let bytes = |list: &[u64]| list.iter().map(|&bytes| checkpoint(0, bytes)).collect();
        let mut have = Have::default();
        let held = |path: &str, checkpoints| Held { path: path.into(), checkpoints };
        let files = vec![
            held("a", bytes(&[0, 2048, 1024, 2048, 2500, 3072, 9216])),
            held("b", bytes(&[0])),
        ];
        have.add(files, vec![], false);
        let chain = vec![
            checkpoint(0, 2048),
            checkpoint(1024, 3072),
            checkpoint(2048, 4096),
            checkpoint(3072, 5120),
        ];
        have.add(vec![held("e", chain)], vec![], false);
        have.add(vec![held("c", bytes(&[8200]))], vec![], true);
        have.add(vec![held("d", bytes(&[1]))], vec![], true);
        let take = |have: &mut Have, path: &[u8]| match have.take(path, 8200)? {
            Known::Checkpoints(checkpoints) => {
                Some(checkpoints.iter().map(|checkpoint| checkpoint.bytes).collect::<Vec<_>>())
            }
            Known::Whole(_) => None,
        };
        assert_eq!(take(&mut have, b"a"), Some(vec![2048, 3072]));
        assert_eq!(take(&mut have, b"a"), None, "once");
        assert_eq!(take(&mut have, b"b"), None);
        assert_eq!(take(&mut have, b"c"), Some(vec![8200]));
        assert_eq!(
            take(&mut have, b"e"),
            Some(vec![2048, 4096]),
            "a stretch begins at a checkpoint"
        );
        assert_eq!(take(&mut have, b"d"), None, "behind the last");
    }

    #[test]
    fn a_complete_small_file_is_recognised_by_its_hash() {
        let disk = MemoryDisk::new(0);
        let path = RootPath::new(["f"]).unwrap();
        disk.put(&path, b"content").unwrap();
        let file = disk.open_read(&path).unwrap();
        let mut have = Have::default();
        let reported = |path: &[u8], content: &[u8]| whole(path, blake3::hash(content).as_bytes());
        let mut wholes = vec![reported(b"f", b"content"), reported(b"g", b"other")];
        wholes.sort_by_key(|whole| whole.name);
        have.add(vec![], wholes, true);
        let Some(Known::Whole(content)) = have.take(b"f", 7) else { panic!("it is there") };
        assert_eq!(same_whole(&*file, &Layout::PLAIN, 7, content).unwrap().unwrap().bytes, 7);
        let Some(Known::Whole(other)) = have.take(b"g", 7) else { panic!("it is there") };
        assert!(same_whole(&*file, &Layout::PLAIN, 7, other).unwrap().is_none(), "it has changed");
        assert!(same_whole(&*file, &Layout::PLAIN, 6, content).unwrap().is_none(), "it has grown");
        assert!(same_whole(&*file, &Layout::PLAIN, 8, content).unwrap().is_none(), "it has shrunk");
    }

    #[test]
    fn each_of_many_small_files_is_found_by_name_and_hash() {
        let path = |number: u32| format!("d/{number}").into_bytes();
        let reported = |number: u32| whole(&path(number), blake3::hash(&path(number)).as_bytes());
        let mut wholes: Vec<Whole> = (0..1000).map(reported).collect();
        wholes.sort_by_key(|whole| whole.name);
        let mut have = Have::default();
        for some in wholes.chunks(70) {
            have.add(vec![], some.to_vec(), false);
        }
        have.add(vec![], vec![], true);
        for number in 0..1000 {
            let content = Some(Known::Whole(reported(number).content));
            assert_eq!(have.take(&path(number), 5), content, "{number}");
            let has = |other: u32, size| {
                have.has_whole(&path(other), size, blake3::hash(&path(number)).as_bytes())
            };
            assert!(has(number, 5) && has(number, WHOLE_BYTES_MAX));
            assert!(!has(number, 0) && !has(number, WHOLE_BYTES_MAX + 1));
            assert!(!has(number + 1000, 5) && !has((number + 1) % 1000, 5));
        }
        let mut hostile = Have::default();
        wholes.reverse();
        hostile.add(vec![], wholes, true);
        let found = (0..1000).filter(|number| hostile.whole(&path(*number), 5).is_some()).count();
        assert!(found < 1000, "those out of order are sent again");
    }
}
