//! Blocks under construction at the receiver, in order of delivery.
//!
//! A payload is opened straight into its place, before it is known to be authentic. So a place is
//! handed out only while nothing authentic is in it: whatever a forger leaves there is overwritten
//! by the real packet, and nothing leaves this table before every byte of it is authentic.

use std::collections::VecDeque;

use sabul_proto::IntervalSet;
use sabul_wire::NumberRange;

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    /// Everything before this is filled.
    prefix: u32,
    /// What is filled beyond.
    beyond: IntervalSet,
    /// Its length, once the packet that ends it has come.
    length: Option<u32>,
}

impl Block {
    fn overlaps(&self, place: NumberRange) -> bool {
        place.first < u64::from(self.prefix) || self.beyond.overlap(place).next().is_some()
    }

    fn is_complete(&self) -> bool {
        self.length == Some(self.prefix) && self.beyond.is_empty()
    }
}

/// The blocks that are being received.
#[derive(Debug)]
pub(super) struct Blocks {
    block_bytes: usize,
    /// Number of the front block.
    first: u32,
    blocks: VecDeque<Block>,
    free: Vec<Vec<u8>>,
}

const fn place(offset: u32, length: usize) -> NumberRange {
    NumberRange { first: offset as u64, last: offset as u64 + length as u64 - 1 }
}

impl Blocks {
    pub(super) const fn new(block_bytes: usize) -> Self {
        Self { block_bytes, first: 0, blocks: VecDeque::new(), free: Vec::new() }
    }

    /// Takes an empty buffer for a later block.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() >= self.block_bytes {
            self.free.push(buffer);
        }
    }

    /// The place for `length` bytes, unless authentic bytes are in it, the block has been delivered,
    /// or it reaches past the block. The receiver core has bounded `block`.
    pub(super) fn space(&mut self, block: u32, offset: u32, length: usize) -> Option<&mut [u8]> {
        let index = usize::try_from(block.checked_sub(self.first)?).ok()?;
        let end = (offset as usize).checked_add(length)?;
        if length == 0 || end > self.block_bytes {
            return None;
        }
        while self.blocks.len() <= index {
            self.blocks.push_back(Block::default());
        }
        let slot = &mut self.blocks[index];
        if slot.overlaps(place(offset, length))
            || slot.length.is_some_and(|block| end > block as usize)
        {
            return None;
        }
        if slot.bytes.is_empty() {
            slot.bytes = self.free.pop().unwrap_or_default();
            slot.bytes.resize(self.block_bytes, 0);
        }
        slot.bytes.get_mut(offset as usize..end)
    }

    /// The place that [`Blocks::space`] gave now holds authentic bytes.
    pub(super) fn fill(&mut self, block: u32, offset: u32, length: u32, ends_block: bool) {
        let Some(slot) = self.blocks.get_mut((block - self.first) as usize) else {
            return;
        };
        if ends_block {
            slot.length = Some(offset + length);
        }
        if offset == slot.prefix {
            slot.prefix += length;
            loop {
                let touching = slot.beyond.iter().next();
                let Some(range) = touching.filter(|range| range.first == slot.prefix.into()) else {
                    break;
                };
                slot.prefix += u32::try_from(range.count()).unwrap_or(0);
                slot.beyond.remove_range(range);
            }
        } else {
            slot.beyond.insert(place(offset, length as usize));
        }
    }

    /// The next block in order, when it is complete.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        if !self.blocks.front()?.is_complete() {
            return None;
        }
        let mut block = self.blocks.pop_front()?;
        self.first += 1;
        block.bytes.truncate(block.prefix as usize);
        Some(block.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(blocks: &mut Blocks, block: u32, offset: u32, bytes: &[u8], ends: bool) {
        blocks.space(block, offset, bytes.len()).unwrap().copy_from_slice(bytes);
        blocks.fill(block, offset, u32::try_from(bytes.len()).unwrap(), ends);
    }

    #[test]
    fn blocks_come_out_in_order_however_their_pieces_arrive() {
        let mut blocks = Blocks::new(8);
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
    fn no_place_is_given_where_authentic_bytes_are() {
        let mut blocks = Blocks::new(8);
        put(&mut blocks, 0, 0, b"ab", false);
        put(&mut blocks, 0, 5, b"f", false);
        for (offset, length) in [(0, 1), (1, 4), (4, 2), (5, 1), (0, 8)] {
            assert!(blocks.space(0, offset, length).is_none(), "{offset}+{length}");
        }
        assert!(blocks.space(0, 2, 3).is_some());
        assert!(blocks.space(0, 7, 2).is_none(), "past the block");
        assert!(blocks.space(0, u32::MAX, 2).is_none());
        put(&mut blocks, 0, 6, b"g", true);
        assert!(blocks.space(0, 7, 1).is_none(), "past the block's end");
        put(&mut blocks, 0, 2, b"cde", false);
        assert_eq!(blocks.pop().as_deref(), Some(&b"abcdefg"[..]));
        assert!(blocks.space(0, 0, 1).is_none(), "delivered");
    }
}
