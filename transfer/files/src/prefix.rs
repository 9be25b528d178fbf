//! Prefix verifier: reads the kept part of a resumed file while the rest is in transit.
//!
//! Both ends verify the prefix. The sender compares the checkpoints with its file. The receiver checks
//! that the content of an earlier attempt is still there. Prefix and rest together yield the hash
//! that must match on both ends.

use std::collections::BTreeSet;
use std::io;

use sabul_content::{CHUNK, Layout, Tree};
use sabul_wire::control::Checkpoint;

use crate::disk::ReadFile;

/// Read size in bytes.
const READ_BYTES: usize = 1 << 20;
/// Bytes of the prefix read per byte of the rest. Ours: at 1 Gb/s this takes a quarter of a
/// processor; the remaining prefix is read at once when the rest is complete.
const PACE: u64 = 4;

/// Verification state of a file's prefix.
#[derive(Debug)]
pub(super) struct PrefixVerifier {
    layout: Layout,
    /// Hash states of the bytes read: adjacent ranges, each from the start of a checkpoint's range.
    read: Vec<Tree>,
    /// Checkpoints in ascending order, and the number of checkpoints that match so far.
    checkpoints: Vec<Checkpoint>,
    reached: usize,
    /// Starts of the checkpoints' ranges, in order.
    cuts: BTreeSet<u64>,
    until: u64,
    /// Hash state up to the last matching checkpoint.
    agreed: Tree,
    /// A checkpoint does not match, so later checkpoints do not count.
    differs: bool,
}

impl PrefixVerifier {
    /// Starts the verification of a file that resumes at the last of these checkpoints. Bytes before the
    /// first range of the checkpoints are not read.
    pub(super) fn new(layout: Layout, checkpoints: Vec<Checkpoint>) -> Self {
        let cuts: BTreeSet<u64> = checkpoints.iter().map(|checkpoint| checkpoint.from).collect();
        let from = cuts.first().copied().unwrap_or(0);
        // No sender or receiver writes checkpoints at other offsets.
        let is_bad = |place: &u64| !place.is_multiple_of(CHUNK);
        let differs = cuts.iter().any(is_bad);
        let start = Tree::new(if differs { 0 } else { from });
        Self {
            layout,
            read: vec![start.clone()],
            until: checkpoints.last().map_or(0, |checkpoint| checkpoint.bytes),
            cuts,
            checkpoints,
            reached: 0,
            agreed: start,
            differs,
        }
    }

    /// Reads in proportion to `bytes`, the bytes of the rest that were transferred.
    pub(super) fn keep_pace(&mut self, file: &dyn ReadFile, bytes: u64) -> io::Result<()> {
        self.advance_to(file, self.at().saturating_add(bytes.saturating_mul(PACE)))
    }

    /// Reads up to the offset `end`, no further than the last checkpoint. After an error, another call continues.
    pub(super) fn advance_to(&mut self, file: &dyn ReadFile, end: u64) -> io::Result<()> {
        while !self.is_done() && self.at() < end {
            let Some(checkpoint) = self.checkpoints.get(self.reached).copied() else { break };
            let Some(tree) = self.read.last_mut() else { break };
            let cut = self.cuts.range(tree.at() + 1..).next().copied().unwrap_or(u64::MAX);
            let to = checkpoint.bytes.min(end).min(cut);
            read_on(file, &self.layout, to, tree)?;
            if tree.at() < to {
                self.differs = true;
                break;
            }
            if to == checkpoint.bytes {
                self.check(checkpoint);
            }
            if to == cut {
                self.read.push(Tree::new(cut));
            }
        }
        Ok(())
    }

    /// Number of checkpoints that match so far.
    pub(super) const fn reached(&self) -> usize {
        self.reached
    }

    fn check(&mut self, checkpoint: Checkpoint) {
        let stretch = self.joined(checkpoint.from);
        let hash = stretch.map(|stretch| self.layout.hash(stretch.hash()));
        if hash != Some(checkpoint.hash) {
            self.differs = true;
            return;
        }
        self.reached += 1;
        if let Some(agreed) = self.joined(self.agreed.from()) {
            self.agreed = agreed;
        }
    }

    /// Hash state of all bytes read from `from` on; `None` unless a checkpoint's range begins there.
    fn joined(&self, from: u64) -> Option<Tree> {
        let mut stretches = self.read.iter().skip_while(|tree| tree.from() < from);
        let mut all = stretches.next().filter(|tree| tree.from() == from)?.clone();
        stretches.for_each(|tree| all.join(tree));
        Some(all)
    }

    /// Offset up to which the file was read.
    pub(super) fn at(&self) -> u64 {
        self.read.last().map_or(0, Tree::at)
    }

    /// Whether there is nothing left to read.
    pub(super) fn is_done(&self) -> bool {
        self.differs || self.at() >= self.until
    }

    /// Whether a checkpoint does not match the file.
    pub(super) const fn differs(&self) -> bool {
        self.differs
    }

    /// Offset at which the file resumes, as far as verified.
    pub(super) fn resume_offset(&self) -> u64 {
        if self.differs { self.agreed.at() } else { self.until }
    }

    /// Hash state up to the last matching checkpoint.
    pub(super) fn into_agreed(self) -> Tree {
        self.agreed
    }

    /// Reads the rest; returns the hash state up to the last matching checkpoint.
    pub(super) fn finish(&mut self, file: &dyn ReadFile) -> io::Result<&Tree> {
        self.advance_to(file, u64::MAX)?;
        Ok(&self.agreed)
    }
}

/// Reads on in a file of this layout, up to the stream offset `to` or to the end of the file.
pub(super) fn read_on(
    file: &dyn ReadFile,
    layout: &Layout,
    to: u64,
    tree: &mut Tree,
) -> io::Result<()> {
    read_from(file, layout, 0, to, tree)
}

/// As [`read_on`]; the stream begins at byte `start` of the file.
pub(super) fn read_from(
    file: &dyn ReadFile,
    layout: &Layout,
    start: u64,
    to: u64,
    tree: &mut Tree,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    while tree.at() < to {
        let (place, run) = layout.place(tree.at());
        let most = run.min(to - tree.at());
        let most = usize::try_from(most).map_or(READ_BYTES, |most| most.min(READ_BYTES));
        buffer.clear();
        // The buffer's capacity limits each read: a file may have many small extents.
        if buffer.capacity() > most {
            buffer = Vec::new();
        }
        buffer.reserve_exact(most);
        match file.read_at(&mut buffer, start + place) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        buffer.truncate(most);
        tree.update(&buffer);
    }
    Ok(())
}

/// Number of bytes read, at most `bytes`, and their hash, which includes the layout as in an
/// entry's hash.
pub(super) fn hash_of(
    file: &dyn ReadFile,
    layout: &Layout,
    bytes: u64,
) -> io::Result<(u64, [u8; 32])> {
    let mut tree = Tree::new(0);
    read_on(file, layout, bytes, &mut tree)?;
    Ok((tree.at(), layout.hash(tree.hash())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::memory::MemoryDisk;
    use crate::root::RootPath;

    fn content(chunks: u64) -> Vec<u8> {
        (0..chunks * CHUNK).map(|at| (at / 100).to_le_bytes()[0]).collect()
    }

    fn checkpoint(content: &[u8], from: u64, bytes: u64) -> Checkpoint {
        let place = |at| usize::try_from(at).unwrap();
        let mut tree = Tree::new(from);
        tree.update(&content[place(from)..place(bytes)]);
        Checkpoint { from, bytes, hash: tree.hash() }
    }

    fn agreed(content: &[u8], checkpoints: &[Checkpoint]) -> (u64, bool) {
        let disk = MemoryDisk::new(0);
        let path = RootPath::new(["f"]).unwrap();
        disk.put(&path, content).unwrap();
        let file = disk.open_read(&path).unwrap();
        for step in [1, 700, 5000, u64::MAX] {
            let mut prefix = PrefixVerifier::new(Layout::PLAIN, checkpoints.to_vec());
            while !prefix.is_done() {
                prefix.advance_to(&*file, prefix.at().saturating_add(step)).unwrap();
            }
            let tree = prefix.finish(&*file).unwrap().clone();
            assert_eq!(tree.hash(), checkpoint(content, tree.from(), tree.at()).hash);
            if step == u64::MAX {
                return (tree.at(), prefix.differs());
            }
        }
        unreachable!("the last step is the largest");
    }

    #[test]
    fn a_file_agrees_up_to_the_checkpoint_before_the_first_change() {
        let old = content(9);
        let mut checkpoints = vec![checkpoint(&old, 0, 2048), checkpoint(&old, 0, 4096)];
        // Checkpoints of a second and a third attempt.
        checkpoints.extend([
            checkpoint(&old, 4096, 5120),
            checkpoint(&old, 4096, 6144),
            checkpoint(&old, 5120, 7168),
        ]);
        assert_eq!(agreed(&old, &checkpoints), (7168, false));
        for (changed, expected) in
            [(0, 0), (2048, 2048), (4095, 2048), (4096, 4096), (5120, 5120), (6500, 6144)]
        {
            let mut new = old.clone();
            new[changed] ^= 1;
            assert_eq!(agreed(&new, &checkpoints), (expected, true), "{changed}");
        }
        assert_eq!(agreed(&old[..5000], &checkpoints), (4096, true), "it has shrunk");
        assert_eq!(agreed(&old, &[]), (0, false));
    }

    #[test]
    fn checkpoints_are_checked_in_sparse_files_and_only_within_their_ranges() {
        let old = content(3);
        let holes = [sabul_wire::control::Extent { offset: 0, bytes: 3072 }];
        let layout = Layout::with_holes(9000, &holes).unwrap();
        let disk = MemoryDisk::new(0);
        let path = RootPath::new(["f"]).unwrap();
        disk.put(&path, &old).unwrap();
        let file = disk.open_read(&path).unwrap();
        let stream = checkpoint(&old, 0, 3072);
        for (hash, is_same) in [(layout.hash(stream.hash), true), (stream.hash, false)] {
            let checkpoints = vec![Checkpoint { hash, ..stream }];
            let mut prefix = PrefixVerifier::new(layout.clone(), checkpoints);
            prefix.finish(&*file).unwrap();
            assert_eq!(prefix.differs(), !is_same);
        }
        // Bytes before the first range are not read.
        assert_eq!(agreed(&old, &[checkpoint(&old, 1024, 2048)]), (2048, false));
    }
}
