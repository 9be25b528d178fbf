//! Receive reassembly buffer: blocks under construction, in order of delivery.
//!
//! A payload is decrypted straight into its position, before its authenticity is known. A position
//! is therefore offered only while it holds no authentic bytes. The real packet overwrites anything
//! that a forged packet leaves there, and a block is delivered only when every byte is authentic.

use std::collections::VecDeque;

use sabul_channel::IntervalSet;
use sabul_wire::NumberRange;

/// Ours: most holes of a block: one per this many bytes, and a few more. Pieces of honest senders
/// at the least MTU make no more; a piece that would exceed the limit counts as lost.
const HOLE_BYTES: usize = 512;
const HOLES_MIN: usize = 8;

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    /// Bytes before this offset are filled.
    prefix: u32,
    /// Filled ranges beyond `prefix`.
    beyond: IntervalSet,
    /// Length of the block, once the packet that ends it has arrived.
    length: Option<u32>,
}

impl Block {
    /// Number of filled bytes in the range.
    fn filled(&self, place: NumberRange) -> u64 {
        let in_prefix = u64::from(self.prefix).clamp(place.first, place.last + 1) - place.first;
        in_prefix + self.beyond.overlap(place).map(NumberRange::count).sum::<u64>()
    }

    /// Whether filling the range adds a hole.
    fn makes_hole(&self, place: NumberRange) -> bool {
        place.first > u64::from(self.prefix)
            && !self.beyond.contains(place.first - 1)
            && !self.beyond.contains(place.last + 1)
    }

    fn is_complete(&self) -> bool {
        self.length == Some(self.prefix) && self.beyond.is_empty()
    }
}

/// State of a range of a block.
#[derive(Debug)]
pub(super) enum Space<'a> {
    /// No authentic bytes: the payload may be decrypted here.
    Empty(&'a mut [u8]),
    /// All bytes are filled, under another sequence number from before a piece was cut into smaller
    /// ones. The packet counts; its payload is not used.
    Filled,
    /// Partly filled, or outside the block: the packet counts as lost. An honest sender has
    /// retransmitted the piece by then, smaller and under a newer number.
    Refused,
}

/// Blocks under construction.
#[derive(Debug)]
pub(super) struct Blocks {
    block_bytes: usize,
    /// Number of the front block.
    first: u32,
    blocks: VecDeque<Block>,
    free: Vec<Vec<u8>>,
    /// Bytes received in blocks that were not delivered yet.
    held: u64,
}

const fn place(offset: u32, length: usize) -> NumberRange {
    NumberRange { first: offset as u64, last: offset as u64 + length as u64 - 1 }
}

impl Blocks {
    /// Makes the buffer of a channel whose first block has this number.
    pub(super) const fn starting_at(first: u32, block_bytes: usize) -> Self {
        Self { block_bytes, first, blocks: VecDeque::new(), free: Vec::new(), held: 0 }
    }

    /// Takes back a buffer for a later block, best with its original length.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() >= self.block_bytes {
            self.free.push(buffer);
        }
    }

    /// Drops free buffers beyond this number.
    pub(super) fn keep_free(&mut self, buffers: usize) {
        self.free.truncate(buffers);
    }

    /// Number of the first block that is not delivered.
    pub(super) const fn first(&self) -> u32 {
        self.first
    }

    /// Number of blocks started since the beginning of the channel.
    pub(super) fn started(&self) -> u32 {
        self.first.saturating_add(u32::try_from(self.blocks.len()).unwrap_or(u32::MAX))
    }

    /// Returns how many blocks the data behind missing packets would fill, rounded down.
    pub(super) fn held(&self) -> usize {
        usize::try_from(self.held / self.block_bytes as u64).unwrap_or(usize::MAX)
    }

    /// Returns how many holes the blocks before `limit` that are not delivered can have.
    pub(super) fn holes_before(&self, limit: u32) -> usize {
        (limit.saturating_sub(self.first) as usize).saturating_mul(self.holes_of_block())
    }

    const fn holes_of_block(&self) -> usize {
        self.block_bytes / HOLE_BYTES + HOLES_MIN
    }

    /// Returns the range for `length` bytes. The receiver core has checked `block`.
    pub(super) fn space(&mut self, block: u32, offset: u32, length: usize) -> Space<'_> {
        let end = (offset as usize).saturating_add(length);
        if length == 0 || end > self.block_bytes {
            return Space::Refused;
        }
        // Delivered blocks are complete.
        let Some(index) = block.checked_sub(self.first) else {
            return Space::Filled;
        };
        let index = index as usize;
        while self.blocks.len() <= index {
            self.blocks.push_back(Block::default());
        }
        let holes = self.holes_of_block();
        let slot = &mut self.blocks[index];
        if slot.length.is_some_and(|block| end > block as usize) {
            return Space::Refused;
        }
        match slot.filled(place(offset, length)) {
            0 => {}
            filled if filled == length as u64 => return Space::Filled,
            _ => return Space::Refused,
        }
        if slot.beyond.range_count() >= holes && slot.makes_hole(place(offset, length)) {
            return Space::Refused;
        }
        if slot.bytes.is_empty() {
            // New buffers are zeroed lazily by the kernel. Reused buffers are not zeroed: every
            // byte is overwritten before delivery.
            slot.bytes = self.free.pop().unwrap_or_else(|| vec![0; self.block_bytes]);
            slot.bytes.resize(self.block_bytes, 0);
        }
        Space::Empty(&mut slot.bytes[offset as usize..end])
    }

    /// Marks the range returned by [`Blocks::space`] as filled with authentic bytes.
    pub(super) fn fill(&mut self, block: u32, offset: u32, length: u32, ends_block: bool) {
        let Some(slot) = self.blocks.get_mut((block - self.first) as usize) else {
            return;
        };
        self.held += u64::from(length);
        if ends_block {
            slot.length = Some(offset + length);
        }
        if offset == slot.prefix {
            slot.prefix += length;
            loop {
                let touching = slot.beyond.iter().next();
                let Some(range) = touching.filter(|range| range.first == u64::from(slot.prefix))
                else {
                    break;
                };
                slot.prefix += u32::try_from(range.count()).unwrap_or(0);
                slot.beyond.remove_range(range);
            }
        } else {
            slot.beyond.insert(place(offset, length as usize));
        }
    }

    /// Removes and returns the next block in order, once complete.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        if !self.blocks.front()?.is_complete() {
            return None;
        }
        let mut block = self.blocks.pop_front()?;
        self.first += 1;
        let length = block.prefix as usize;
        self.held -= length as u64;
        if length <= self.block_bytes / 2 {
            // Copied, so that a sender of many short blocks does not cause repeated zeroing of the
            // buffers' rest.
            let short = block.bytes[..length].to_vec();
            self.free.push(block.bytes);
            return Some(short);
        }
        block.bytes.truncate(length);
        Some(block.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_in_proportion_to_the_announced_room() {
        let mut blocks = Blocks::starting_at(7, 4096);
        assert_eq!(blocks.holes_before(9), 2 * (8 + 8));
        put(&mut blocks, 7, 0, &[1; 4096], true);
        assert!(blocks.pop().is_some());
        assert_eq!((blocks.holes_before(9), blocks.holes_before(8)), (8 + 8, 0));
        let blocks = Blocks::starting_at(0, 1 << 20);
        // 625 MB in flight in packets of 1200 bytes, one in twenty of them lost.
        assert!(blocks.holes_before(625) > 625_000_000 / 1200 / 20);
    }

    fn put(blocks: &mut Blocks, block: u32, offset: u32, bytes: &[u8], ends: bool) {
        let Space::Empty(space) = blocks.space(block, offset, bytes.len()) else {
            panic!("{block} {offset} is taken");
        };
        space.copy_from_slice(bytes);
        blocks.fill(block, offset, u32::try_from(bytes.len()).unwrap(), ends);
    }

    #[test]
    fn blocks_are_returned_in_order_for_any_arrival_order_of_pieces() {
        let mut blocks = Blocks::starting_at(0, 8);
        put(&mut blocks, 1, 0, b"tail", true);
        put(&mut blocks, 0, 6, b"gh", true);
        put(&mut blocks, 0, 3, b"def", false);
        assert_eq!(blocks.pop(), None);
        put(&mut blocks, 0, 0, b"abc", false);
        assert_eq!(blocks.pop().as_deref(), Some(&b"abcdefgh"[..]));
        assert_eq!(blocks.pop().as_deref(), Some(&b"tail"[..]));
        assert_eq!(blocks.pop(), None);
    }

    #[test]
    fn bytes_after_a_missing_piece_are_buffered_until_it_arrives() {
        let mut blocks = Blocks::starting_at(0, 100);
        put(&mut blocks, 0, 50, &[1; 50], true);
        put(&mut blocks, 1, 0, &[2; 100], true);
        assert_eq!((blocks.held, blocks.held()), (150, 1));
        put(&mut blocks, 0, 0, &[3; 50], false);
        assert_eq!(blocks.held, 200);
        assert!(blocks.pop().is_some() && blocks.pop().is_some());
        assert_eq!(blocks.held, 0);
    }

    #[test]
    fn pieces_that_would_make_too_many_gaps_count_as_lost() {
        let mut blocks = Blocks::starting_at(0, 1 << 16);
        let most = (1 << 16) / HOLE_BYTES + HOLES_MIN;
        let fits =
            |blocks: &mut Blocks, offset| matches!(blocks.space(0, offset, 1), Space::Empty(_));
        let mut offset = 2;
        while fits(&mut blocks, offset) {
            put(&mut blocks, 0, offset, b"x", false);
            offset += 2;
            assert!(offset < 1 << 16, "there is no bound");
        }
        assert_eq!(blocks.blocks[0].beyond.range_count(), most);
        assert!(fits(&mut blocks, offset - 3), "what fills a hole is welcome");
        assert!(fits(&mut blocks, 0), "and what comes next");
        put(&mut blocks, 0, 0, b"ab", false);
        assert!(fits(&mut blocks, offset), "one hole less");
    }

    #[test]
    fn a_short_block_allocates_only_its_length_and_its_buffer_is_reused() {
        let mut blocks = Blocks::starting_at(0, 1 << 16);
        put(&mut blocks, 0, 0, b"a", true);
        let short = blocks.pop().unwrap();
        assert!(short == b"a" && short.capacity() < 100);
        assert_eq!(blocks.free[0].len(), 1 << 16, "as long as it was, so nothing is zeroed again");
        let address = blocks.free[0].as_ptr();
        blocks.recycle(short);
        assert_eq!(blocks.free.len(), 1, "the copy is not kept");
        put(&mut blocks, 1, 0, b"bc", true);
        assert_eq!(blocks.blocks[0].bytes.as_ptr(), address);
        assert_eq!(blocks.pop().as_deref(), Some(&b"bc"[..]), "nothing of the block before");
    }

    #[test]
    fn no_buffer_space_is_returned_over_authentic_bytes() {
        let mut blocks = Blocks::starting_at(0, 8);
        put(&mut blocks, 0, 0, b"ab", false);
        put(&mut blocks, 0, 5, b"f", false);
        for (offset, length) in [(1, 4), (4, 2), (0, 8)] {
            let space = blocks.space(0, offset, length);
            assert!(matches!(space, Space::Refused), "{offset}+{length}: {space:?}");
        }
        for (offset, length) in [(0, 1), (0, 2), (5, 1)] {
            let space = blocks.space(0, offset, length);
            assert!(matches!(space, Space::Filled), "{offset}+{length}: {space:?}");
        }
        assert!(matches!(blocks.space(0, 2, 3), Space::Empty(_)));
        assert!(matches!(blocks.space(0, 7, 2), Space::Refused), "past the block");
        assert!(matches!(blocks.space(0, u32::MAX, 2), Space::Refused));
        put(&mut blocks, 0, 6, b"g", true);
        assert!(matches!(blocks.space(0, 7, 1), Space::Refused), "past the block's end");
        put(&mut blocks, 0, 2, b"cde", false);
        assert!(matches!(blocks.space(0, 1, 5), Space::Filled), "whatever pieces filled it");
        assert_eq!(blocks.pop().as_deref(), Some(&b"abcdefg"[..]));
        assert!(matches!(blocks.space(0, 0, 1), Space::Filled), "delivered");
    }
}
