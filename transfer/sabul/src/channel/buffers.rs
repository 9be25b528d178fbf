//! Send buffers of a channel: as many as the path needs, plus read-ahead.
//!
//! A new buffer is borrowed only while fewer than `AHEAD` blocks are read but not yet started. The
//! number of buffers is therefore that of the blocks in flight plus `AHEAD`. Buffers that are
//! unused for some seconds are returned. While others wait for memory, buffers beyond this end's
//! share are returned too.
//! Invariants:  there are never more buffers than borrowed blocks.

use sabul_units::{Instant, Span};

use crate::budget::BlockLoan;

/// Blocks of read-ahead; bridges the pauses of a disk.
const AHEAD: usize = 8;
/// Buffers unused for this long are returned.
const UNNEEDED_AFTER: Span = Span::from_secs(4);

/// Buffers of a sending endpoint.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: BlockLoan,
    /// All buffers, free or in use.
    existing: usize,
    free: Vec<Vec<u8>>,
    /// Blocks read but not yet started.
    ahead: usize,
    /// Least number of spare buffers since this time.
    spare: (Instant, usize),
    /// Buffers to return as they become free.
    surplus: usize,
}

impl Buffers {
    pub(super) const fn new(memory: BlockLoan) -> Self {
        Self {
            memory,
            existing: 0,
            free: Vec::new(),
            ahead: 0,
            spare: (Instant::ZERO, usize::MAX),
            surplus: 0,
        }
    }

    /// Returns an empty buffer to read one block, if a buffer or memory is available.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let may_borrow = self.ahead < AHEAD;
        self.take_or_borrow(may_borrow)
    }

    /// Returns an empty buffer for the copy of a block, if a buffer or memory is available.
    pub(super) fn take_for_copy(&mut self) -> Option<Vec<u8>> {
        self.take_or_borrow(true)
    }

    fn take_or_borrow(&mut self, may_borrow: bool) -> Option<Vec<u8>> {
        self.note_spare();
        if let Some(buffer) = self.free.pop() {
            return Some(buffer);
        }
        if self.existing >= self.memory.blocks() && (!may_borrow || self.memory.borrow(1) == 0) {
            return None;
        }
        self.existing += 1;
        Some(Vec::with_capacity(self.memory.block_bytes() as usize))
    }

    /// Counts a block that has been read.
    pub(super) const fn read(&mut self) {
        self.ahead += 1;
    }

    /// Sets the number of blocks read but not yet started. Returns whether one more may be read
    /// than before.
    pub(super) const fn set_ahead(&mut self, blocks: usize) -> bool {
        let may_read_more = blocks < AHEAD && blocks < self.ahead;
        self.ahead = blocks;
        may_read_more
    }

    /// Takes back the empty buffer of an acknowledged block.
    pub(super) fn put_back(&mut self, now: Instant, buffer: Vec<u8>) {
        if self.surplus > 0 || self.memory.excess() > 0 {
            self.surplus = self.surplus.saturating_sub(1);
            self.existing -= 1;
            self.memory.give_back(1);
        } else {
            self.free.push(buffer);
        }
        self.note_spare();
        if now >= self.spare.0 + UNNEEDED_AFTER {
            self.surplus = if self.spare.1 == usize::MAX { 0 } else { self.spare.1 };
            self.spare = (now, usize::MAX);
        }
    }

    fn note_spare(&mut self) {
        let spare = self.free.len() + self.ahead.saturating_sub(AHEAD);
        self.spare.1 = self.spare.1.min(spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{BLOCKS_MIN, CHANNEL_BYTES, MemoryBudget};

    const MIB: usize = 1 << 20;
    const BLOCK: u32 = 1 << 20;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Span::from_millis(millis)
    }

    /// Reads ahead until no buffer is available.
    fn read(buffers: &mut Buffers) -> usize {
        let mut count = 0;
        while buffers.take().is_some() {
            buffers.read();
            count += 1;
        }
        count
    }

    #[test]
    fn reading_ahead_is_limited_by_the_data_in_flight() {
        let budget = MemoryBudget::of(512 * MIB);
        let mut buffers = Buffers::new(budget.channel(BLOCK).unwrap());
        assert_eq!(read(&mut buffers), AHEAD);
        assert_eq!(budget.lent(), AHEAD * MIB + CHANNEL_BYTES);
        // Three are in flight: three more may be read.
        assert!(buffers.set_ahead(AHEAD - 3));
        assert_eq!(read(&mut buffers), 3);
        assert!(!buffers.set_ahead(AHEAD));
        // One is acknowledged, and its buffer is reused before another is borrowed.
        buffers.put_back(at(1), Vec::new());
        assert_eq!(read(&mut buffers), 1);
        assert_eq!(budget.lent(), (AHEAD + 3) * MIB + CHANNEL_BYTES);
    }

    #[test]
    fn buffers_grow_with_the_data_in_flight_until_memory_is_exhausted() {
        let budget = MemoryBudget::of(64 * MIB);
        let mut buffers = Buffers::new(budget.channel(BLOCK).unwrap());
        for _ in 0..100 {
            read(&mut buffers);
            buffers.set_ahead(0);
        }
        assert_eq!(budget.lent(), 55 * MIB + CHANNEL_BYTES, "all but the reserve");
        drop(buffers);
        assert_eq!(budget.lent(), 0);
    }

    #[test]
    fn unneeded_send_buffers_are_returned() {
        let budget = MemoryBudget::of(512 * MIB);
        let mut buffers = Buffers::new(budget.channel(BLOCK).unwrap());
        for _ in 0..20 {
            read(&mut buffers);
            buffers.set_ahead(0);
        }
        let before = buffers.existing;
        assert!(before >= 100);
        // From now on two blocks are in flight at a time.
        let mut ahead = 0;
        for _ in 0..before {
            buffers.put_back(at(0), Vec::new());
        }
        for round in 1..2000 {
            ahead += read(&mut buffers);
            ahead -= 2;
            buffers.set_ahead(ahead);
            buffers.put_back(at(round * 20), Vec::new());
            buffers.put_back(at(round * 20), Vec::new());
        }
        assert!(buffers.existing <= AHEAD + 4, "{}", buffers.existing);
        assert!(budget.lent() <= (AHEAD + 5) * MIB, "{}", budget.lent());
    }

    #[test]
    fn the_largest_sender_returns_buffers_while_others_wait() {
        let budget = MemoryBudget::of(64 * MIB);
        let mut buffers = Buffers::new(budget.channel(BLOCK).unwrap());
        for _ in 0..20 {
            read(&mut buffers);
            buffers.set_ahead(0);
        }
        let mut others: Vec<_> = (0..3).map(|_| budget.channel(BLOCK).unwrap()).collect();
        // The others have smaller blocks.
        for _ in 0..400 {
            if buffers.existing > BLOCKS_MIN {
                buffers.put_back(at(1), Vec::new());
            }
            for other in &mut others {
                other.borrow(1);
            }
        }
        let share = 64 * 7 / 8 / 4;
        assert!(buffers.memory.blocks() <= share + 2, "{}", buffers.memory.blocks());
    }
}
