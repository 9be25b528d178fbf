//! BLAKE3 tree hash of content that does not arrive in order.
//!
//! The beginning of a resumed file is read after the rest. BLAKE3 hashes content as a tree over
//! chunks of 1024 bytes, and inner nodes can be computed in any order. A [`Tree`] covers a
//! contiguous range that begins at a chunk. It keeps the roots of the largest subtrees in the
//! range, at most two for each power of two. Two adjacent ranges can be joined. A range that begins
//! at offset zero yields the BLAKE3 hash of the content.
//! A range that begins elsewhere has no node in the tree. Ours: its hash here is BLAKE3 of
//! the start offset, the end offset and the subtree hashes.

use blake3::hazmat::{
    ChainingValue, HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

/// Chunk size in bytes; each range begins at a multiple of this.
pub const CHUNK: u64 = blake3::CHUNK_LEN as u64;

/// Hash state of a contiguous range of content.
#[derive(Clone, Debug)]
pub struct Tree {
    from: u64,
    at: u64,
    /// Adjacent subtrees, starting at `from`. The last two may be unmerged siblings, because their
    /// parent may be the root of the whole tree.
    subtrees: Vec<Subtree>,
    /// The current chunk, which may be full; `None` before its first byte.
    chunk: Option<blake3::Hasher>,
}

#[derive(Clone, Copy, Debug)]
struct Subtree {
    /// First chunk. The number of chunks is a power of two that divides the first chunk's number.
    start: u64,
    chunks: u64,
    value: ChainingValue,
}

impl Tree {
    /// Creates an empty range that begins at `from`.
    ///
    /// # Panics
    /// If `from` is not a multiple of [`CHUNK`].
    pub fn new(from: u64) -> Self {
        assert!(from.is_multiple_of(CHUNK), "a stretch begins with a chunk");
        Self { from, at: from, subtrees: Vec::new(), chunk: None }
    }

    /// Start offset of the range in bytes.
    pub const fn from(&self) -> u64 {
        self.from
    }

    /// End offset of the range in bytes.
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// Appends bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.open_bytes() == CHUNK {
                self.end_chunk();
            }
            let chunks = match self.open_bytes() {
                0 => self.subtree_in(bytes.len() as u64),
                _ => 0,
            };
            let most = if chunks > 0 { chunks * CHUNK } else { CHUNK - self.open_bytes() };
            let (now, rest) = bytes.split_at(index(most).min(bytes.len()));
            if chunks > 0 {
                let value = chunk_at(self.at).update(now).finalize_non_root();
                self.push(Subtree { start: self.at / CHUNK, chunks, value });
            } else {
                self.chunk.get_or_insert_with(|| chunk_at(self.at)).update(now);
            }
            self.at += now.len() as u64;
            bytes = rest;
        }
    }

    /// Bytes in the current chunk.
    fn open_bytes(&self) -> u64 {
        self.chunk.as_ref().map_or(0, blake3::Hasher::count)
    }

    /// Appends the adjacent range `next`, which begins where this range ends.
    ///
    /// # Panics
    /// If `next` begins elsewhere.
    pub fn join(&mut self, next: &Self) {
        assert_eq!(self.at, next.from, "one stretch follows the other");
        if next.at == next.from {
            return;
        }
        self.end_chunk();
        for subtree in &next.subtrees {
            self.push(*subtree);
        }
        (self.at, self.chunk) = (next.at, next.chunk.clone());
    }

    /// Returns the range without an incomplete last chunk. Returns an empty range if the rest is
    /// one subtree at offset zero: its root hash cannot be computed from the non-root hash that was
    /// kept.
    #[must_use]
    pub fn whole_chunks(&self) -> Self {
        let over = self.open_bytes() % CHUNK;
        let at = self.at - over;
        if over > 0 && self.from == 0 && self.subtrees.len() == 1 {
            return Self::new(0);
        }
        let chunk = self.chunk.clone().filter(|_| over == 0);
        Self { from: self.from, at, subtrees: self.subtrees.clone(), chunk }
    }

    /// Splits at the end of the last whole chunk. Keeps the bytes after the split and returns the
    /// range before the split.
    #[must_use]
    pub fn cut(&mut self) -> Self {
        let before = self.whole_chunks();
        if before.at > self.from {
            let chunk = self.chunk.take().filter(|_| self.at > before.at);
            *self = Self { from: before.at, at: self.at, subtrees: Vec::new(), chunk };
        }
        before
    }

    /// The hash of the range: BLAKE3 of the content if the range begins at zero, else the
    /// project-specific hash.
    pub fn hash(&self) -> [u8; 32] {
        if self.from > 0 {
            return self.digest();
        }
        if self.subtrees.is_empty() {
            let chunk = self.chunk.as_ref().map(blake3::Hasher::finalize);
            return *chunk.unwrap_or_else(|| blake3::hash(b"")).as_bytes();
        }
        let mut all = self.clone();
        all.end_chunk();
        let mut rest = all.subtrees;
        let mut right = rest.pop().map_or([0; 32], |last| last.value);
        while let Some(left) = rest.pop() {
            if rest.is_empty() {
                return *merge_subtrees_root(&left.value, &right, Mode::Hash).as_bytes();
            }
            right = merge_subtrees_non_root(&left.value, &right, Mode::Hash);
        }
        right
    }

    fn digest(&self) -> [u8; 32] {
        let mut all = self.clone();
        all.end_chunk();
        all.merge();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.from.to_le_bytes()).update(&self.at.to_le_bytes());
        for subtree in &all.subtrees {
            hasher.update(&subtree.value);
        }
        *hasher.finalize().as_bytes()
    }

    /// Chunks in the largest subtree that begins here and fits in `bytes`. At offset zero the
    /// subtree must be smaller than `bytes`, because its root may be the root of the whole tree.
    fn subtree_in(&self, bytes: u64) -> u64 {
        let here = self.at / CHUNK;
        let most = if here == 0 { (bytes - 1) / CHUNK } else { bytes / CHUNK };
        if most == 0 {
            return 0;
        }
        let largest = 1 << most.ilog2();
        if here == 0 { largest } else { largest.min(1 << here.trailing_zeros()) }
    }

    /// Finishes the current chunk, which is not the last chunk.
    fn end_chunk(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            let start = (self.at - chunk.count()) / CHUNK;
            self.push(Subtree { start, chunks: 1, value: chunk.finalize_non_root() });
        }
    }

    fn push(&mut self, next: Subtree) {
        self.merge();
        self.subtrees.push(next);
    }

    /// Merges sibling subtrees whose parent is not the root of the whole tree.
    fn merge(&mut self) {
        while let [.., left, right] = &self.subtrees[..]
            && left.chunks == right.chunks
            && left.start.is_multiple_of(2 * left.chunks)
        {
            let value = merge_subtrees_non_root(&left.value, &right.value, Mode::Hash);
            let merged = Subtree { start: left.start, chunks: 2 * left.chunks, value };
            self.subtrees.truncate(self.subtrees.len() - 2);
            self.subtrees.push(merged);
        }
    }
}

fn chunk_at(offset: u64) -> blake3::Hasher {
    let mut chunk = blake3::Hasher::new();
    chunk.set_input_offset(offset);
    chunk
}

/// A byte count as a slice index; the bytes are in memory, so the conversion cannot overflow.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: u64) -> Vec<u8> {
        (0..bytes).map(|at| (at / 7 + at % 251).to_le_bytes()[0]).collect()
    }

    fn tree(from: u64, content: &[u8], step: usize) -> Tree {
        let mut tree = Tree::new(from);
        content.chunks(step).for_each(|piece| tree.update(piece));
        tree
    }

    #[test]
    fn the_tree_hash_equals_blake3_for_any_piece_sizes() {
        for bytes in
            (0..6).chain(1020..1030).chain(2040..2060).chain([3072, 4096, 5000, 65536, 70_001])
        {
            let content = content(bytes);
            let expected = *blake3::hash(&content).as_bytes();
            for step in [1, 1000, 1024, 1500, 4096, 100_000] {
                assert_eq!(tree(0, &content, step).hash(), expected, "{bytes} by {step}");
            }
        }
    }

    #[test]
    fn the_tree_hash_does_not_depend_on_when_the_beginning_is_added() {
        let content = content(40 * CHUNK + 77);
        for end in [17, CHUNK * 8, CHUNK * 9, CHUNK * 33 + 1, CHUNK * 40 + 77] {
            let content = &content[..index(end)];
            let expected = *blake3::hash(content).as_bytes();
            for cut in (0..=end / CHUNK).map(|chunk| chunk * CHUNK) {
                let (before, after) = content.split_at(index(cut));
                let mut whole = tree(0, before, 1500);
                whole.join(&tree(cut, after, 3000));
                assert_eq!((whole.from(), whole.at()), (0, end));
                assert_eq!(whole.hash(), expected, "{end} at {cut}");
                // The joined range still accepts more bytes.
                whole.update(b"more");
                assert_eq!(whole.hash(), *blake3::hash(&[content, b"more"].concat()).as_bytes());
            }
        }
    }

    #[test]
    fn the_hash_of_a_range_does_not_depend_on_its_pieces() {
        let content = content(20 * CHUNK);
        for from in 1..20 {
            let stretch = &content[index(from * CHUNK)..];
            let expected = tree(from * CHUNK, stretch, 1 << 20).hash();
            for cut in (from..=20).map(|chunk| chunk * CHUNK) {
                let (before, after) = stretch.split_at(index(cut - from * CHUNK));
                let mut joined = tree(from * CHUNK, before, 700);
                joined.join(&tree(cut, after, 1 << 20));
                assert_eq!(joined.hash(), expected, "{from} at {cut}");
            }
        }
        let hash = |from, content: &[u8]| tree(from, content, 999).hash();
        assert_ne!(hash(CHUNK, &content), hash(2 * CHUNK, &content), "elsewhere it is another");
        assert_ne!(hash(CHUNK, &content[..5000]), hash(CHUNK, &content[..5001]));
    }

    #[test]
    fn bytes_after_the_last_whole_chunk_can_be_dropped() {
        let content = content(5 * CHUNK);
        for bytes in 0..=5 * CHUNK {
            let whole = tree(0, &content[..index(bytes)], 1 << 20).whole_chunks();
            let is_first = [1, 2, 4].contains(&(bytes / CHUNK)) && bytes % CHUNK > 0;
            assert_eq!(whole.at(), if is_first { 0 } else { bytes - bytes % CHUNK });
            assert_eq!(whole.hash(), *blake3::hash(&content[..index(whole.at())]).as_bytes());
            let mut rest = tree(0, &content[..index(bytes)], 999);
            let mut joined = rest.cut();
            assert_eq!((rest.from(), rest.at()), (joined.at(), bytes));
            joined.join(&rest);
            assert_eq!(joined.hash(), *blake3::hash(&content[..index(bytes)]).as_bytes());
        }
    }

    #[test]
    fn the_tree_keeps_few_nodes_for_large_content() {
        let whole = tree(0, &content(3000 * CHUNK), 10_000);
        assert!(whole.subtrees.len() < 14, "{}", whole.subtrees.len());
        let stretch = tree(CHUNK, &content(3000 * CHUNK), 10_000);
        assert!(stretch.subtrees.len() < 24, "{}", stretch.subtrees.len());
    }
}
