//! Send queue of blocks, cut into pieces on demand.
//!
//! States:      each block: uncut → being cut → cut to the end → released
//! Invariants:  blocks are cut in order; a block is released when its last piece is acknowledged
//!              and all rests cut off its pieces have left.

use std::collections::VecDeque;

use sabul_units::SeqNo;

use super::ledger::PieceRange;
use super::waits::WaitReason;

#[derive(Clone, Copy, Debug)]
struct Block {
    length: u32,
    /// Sequence number after the largest of its pieces, once the block is cut to the end.
    end: Option<SeqNo>,
    /// Number of entries in [`Stream::rests`] that belong to the block.
    rests: u32,
}

/// Blocks that are not completely acknowledged.
#[derive(Debug)]
pub(super) struct Stream {
    blocks: VecDeque<Block>,
    /// Number of the block at the front of `blocks`.
    first: u32,
    /// Where the next new piece is cut: index into `blocks`, offset.
    cut: (usize, u32),
    /// Parts cut off pieces that no longer fitted, and not yet sent.
    rests: VecDeque<PieceRange>,
    /// Payload bytes of a full packet.
    payload_bytes: u32,
    /// Whether the application has more data but no memory for it.
    is_held: bool,
}

impl Stream {
    pub(super) const fn new(payload_bytes: u32) -> Self {
        Self {
            blocks: VecDeque::new(),
            first: 0,
            cut: (0, 0),
            rests: VecDeque::new(),
            payload_bytes,
            is_held: false,
        }
    }

    pub(super) fn start_at(&mut self, first: u32) {
        debug_assert!(self.blocks.is_empty(), "no block has a number yet");
        self.first = first;
    }

    pub(super) const fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Returns the reason to wait when all blocks are cut.
    pub(super) const fn why_empty(&self) -> WaitReason {
        if self.is_held { WaitReason::Window } else { WaitReason::Application }
    }

    pub(super) fn push(&mut self, length: u32) {
        self.blocks.push_back(Block { length, end: None, rests: 0 });
    }

    pub(super) const fn payload_bytes(&self) -> u32 {
        self.payload_bytes
    }

    pub(super) const fn set_payload_bytes(&mut self, bytes: u32) {
        self.payload_bytes = bytes;
    }

    /// Number of the first block that is not released.
    pub(super) const fn first(&self) -> u32 {
        self.first
    }

    /// Whether every block is released.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Blocks that are not cut to the end.
    pub(super) fn uncut(&self) -> usize {
        self.blocks.len() - self.cut.0
    }

    /// Number of the block from which the next new piece is cut.
    #[inline]
    pub(super) fn next_block(&self) -> Option<u32> {
        let is_there = self.cut.0 < self.blocks.len();
        is_there.then(|| self.first + u32::try_from(self.cut.0).unwrap_or(u32::MAX))
    }

    /// Whether a part cut off a piece waits to be sent.
    pub(super) fn has_rest(&self) -> bool {
        !self.rests.is_empty()
    }

    /// Cuts the next new piece; returns `None` if all blocks are cut.
    #[inline]
    pub(super) fn cut(&mut self) -> Option<PieceRange> {
        let block = self.next_block()?;
        let (index, offset) = self.cut;
        let whole = self.blocks.get(index)?.length;
        let length = (whole - offset).min(self.payload_bytes);
        let ends_block = offset + length == whole;
        if ends_block {
            self.cut = (index + 1, 0);
        } else {
            self.cut.1 += length;
        }
        Some(PieceRange { block, offset, length, ends_block })
    }

    /// Queues the part cut off a piece that no longer fitted.
    pub(super) fn push_rest(&mut self, rest: PieceRange) {
        if let Some(block) = self.block_mut(rest.block) {
            block.rests += 1;
            self.rests.push_back(rest);
        }
    }

    /// Returns the oldest cut-off part, or as much of it as fits a packet.
    #[inline]
    pub(super) fn pop_rest(&mut self) -> Option<PieceRange> {
        let mut rest = self.rests.pop_front()?;
        if let Some(more) = rest.shorten(self.payload_bytes) {
            self.rests.push_front(more);
        } else if let Some(block) = self.block_mut(rest.block) {
            block.rests -= 1;
        }
        Some(rest)
    }

    /// Records the sequence number of a piece.
    #[inline]
    pub(super) fn note_number(&mut self, range: PieceRange, seq: SeqNo) {
        if let Some(block) = self.block_mut(range.block)
            && (range.ends_block || block.end.is_some())
        {
            block.end = Some(seq.next());
        }
    }

    /// Releases complete blocks; everything before `seq` is acknowledged.
    pub(super) fn release(&mut self, seq: SeqNo) {
        let is_done = |block: &Block| block.rests == 0 && block.end.is_some_and(|end| end <= seq);
        while self.blocks.front().is_some_and(is_done) {
            self.blocks.pop_front();
            self.first += 1;
            self.cut.0 -= 1;
        }
    }

    fn block_mut(&mut self, block: u32) -> Option<&mut Block> {
        self.blocks.get_mut(block.checked_sub(self.first)? as usize)
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.cut.0 <= self.blocks.len(), "nothing is cut beyond the last block");
        assert!(self.blocks.iter().take(self.cut.0).all(|block| block.end.is_some()));
        let rests: u32 = self.blocks.iter().map(|block| block.rests).sum();
        assert_eq!(rests as usize, self.rests.len(), "each rest keeps its block");
    }
}
