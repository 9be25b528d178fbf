//! Receive window auto-tuning: the announced room grows with the data rate, within the lent memory.
//!
//! Source:      ours, like the receive buffer auto-tuning of TCP. There is room for twice the data that the
//!              application took in one RTT, so a sender can double its rate in each RTT.
//! Model:       an interval is one RTT, at least 20 ms, so that a short path has room for the pauses of a disk. The
//!              room doubles when the blocks returned within one interval exceed half of the room. Data behind
//!              missing packets count too: a block returns after its last retransmission. The room halves when, for
//!              some seconds, no interval had an eighth of the room. While others wait for memory, the room falls to
//!              this end's share. Blocks count when the application returns them, not when they arrive: a larger room
//!              does not help a slow disk.
//! Invariants:  announced blocks that have not returned never exceed the lent blocks; an announcement is never
//!              withdrawn.
//! Not here:    the buffers themselves (`blocks.rs`).

use sabul_units::{Instant, Span};

use crate::budget::{BLOCKS_LEAST, BLOCKS_MIN, BlockLoan};

/// Shortest interval.
const INTERVAL_MIN: Span = Span::from_millis(20);
/// Assumed RTT before the first measurement.
const RTT_UNKNOWN: Span = Span::from_millis(100);
/// Room unused for this long is returned.
const UNNEEDED_AFTER: Span = Span::from_secs(4);

/// Receive window of a channel, in blocks.
#[derive(Debug)]
pub(super) struct Room {
    memory: BlockLoan,
    /// Room that the path needs, in blocks.
    target: usize,
    /// Blocks returned since the start.
    returned: u32,
    /// Blocks announced since the start.
    limit: u32,
    /// Start of the current interval, and the returned blocks at that time.
    interval: (Instant, u32),
    /// Most blocks of an interval since this time.
    most: (Instant, usize),
}

impl Room {
    /// As `new`, with up to [`crate::budget::ROOM_FIRST`] from the start if that is a small part of the free memory.
    pub(super) fn with_spare(mut memory: BlockLoan, now: Instant) -> Self {
        memory.borrow_first();
        Self::new(memory, now)
    }

    pub(super) fn new(memory: BlockLoan, now: Instant) -> Self {
        let target = memory.blocks();
        Self {
            memory,
            target,
            returned: 0,
            limit: u32::try_from(target).unwrap_or(u32::MAX),
            interval: (now, 0),
            most: (now, 0),
        }
    }

    /// Returns the memory.
    pub(super) fn into_memory(self) -> BlockLoan {
        self.memory
    }

    /// Continues with another clock, whose time is `now`.
    pub(super) fn restart(&mut self, now: Instant) {
        self.interval = (now, self.returned);
        self.most = (now, 0);
    }

    /// Limit of block numbers to announce, counted from the start of the channel.
    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Counts returned buffers.
    pub(super) fn returned(&mut self, blocks: u32) {
        self.returned = self.returned.saturating_add(blocks);
        self.update_limit();
    }

    /// Number of used buffers worth keeping, when `begun` blocks have been started since the beginning.
    pub(super) fn keep(&self, started: u32) -> usize {
        self.memory.blocks().saturating_sub(started.saturating_sub(self.returned) as usize)
    }

    /// Adjusts the room to the rate of returned blocks and to the memory. Data behind missing packets fill `held`
    /// blocks.
    pub(super) fn review(&mut self, now: Instant, rtt: Option<Span>, held: usize) {
        let (since, before) = self.interval;
        let came = (self.returned - before) as usize;
        let length = rtt.unwrap_or(RTT_UNKNOWN).max(INTERVAL_MIN);
        if came.max(held).saturating_mul(2) > self.target {
            self.interval = (now, self.returned);
            self.most = (now, 0);
            self.grow();
        } else if now >= since + length {
            self.interval = (now, self.returned);
            self.most.1 = self.most.1.max(came);
        }
        let excess = self.memory.excess();
        if excess > 0 {
            self.target = self.memory.blocks().saturating_sub(excess).max(BLOCKS_LEAST);
            self.update_limit();
        } else if now >= self.most.0 + UNNEEDED_AFTER + length {
            if self.most.1.saturating_mul(8) < self.target {
                self.target = (self.target / 2).max(BLOCKS_MIN);
                self.update_limit();
            }
            self.most = (now, 0);
        }
    }

    fn grow(&mut self) {
        // The lent blocks may exceed the target while announced blocks are outstanding.
        let wanted = self.target.saturating_mul(2);
        self.memory.borrow(wanted.saturating_sub(self.memory.blocks()));
        self.target = wanted.min(self.memory.blocks());
        self.update_limit();
    }

    /// Announces blocks up to the target, and returns memory beyond the announced blocks.
    fn update_limit(&mut self) {
        let target = u32::try_from(self.target).unwrap_or(u32::MAX);
        self.limit = self.limit.max(self.returned.saturating_add(target));
        let announced = (self.limit - self.returned) as usize;
        self.memory.give_back(self.memory.blocks().saturating_sub(announced));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{MemoryBudget, ROOM_FIRST};

    const MIB: usize = 1 << 20;
    const BLOCK: u32 = 1 << 20;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Span::from_millis(millis)
    }

    /// Simulates a path with `rate` bytes per millisecond and this RTT; each block returns at once. Returns the bytes
    /// that arrived.
    fn flow(room: &mut Room, from: u64, millis: u64, rate: u64, rtt: u64, mut bytes: u64) -> u64 {
        let start = bytes;
        for now in from..from + millis {
            // The sender has at most the room in flight per RTT.
            let permitted = room.target as u64 * u64::from(BLOCK) / rtt.max(1);
            bytes += rate.min(permitted);
            let done = u32::try_from(bytes / u64::from(BLOCK)).unwrap();
            room.returned(done - room.returned);
            room.review(at(now), Some(Span::from_millis(rtt)), 0);
            assert!((room.limit - room.returned) as usize <= room.memory.blocks());
        }
        bytes - start
    }

    #[test]
    fn receive_space_grows_to_the_need_of_a_long_fast_path() {
        let budget = MemoryBudget::of(1024 * MIB);
        let mut room = Room::new(budget.channel(BLOCK).unwrap(), at(0));
        assert_eq!(room.limit(), 4);
        // 10 Gb/s over 200 ms: 250 MB are in flight.
        flow(&mut room, 0, 4000, 1_250_000, 200, 0);
        let came = flow(&mut room, 4000, 1000, 1_250_000, 200, 5_000_000_000);
        assert_eq!(came, 1_250_000_000, "nothing waits for room any more");
        assert!((239..=954).contains(&room.target), "{}", room.target);
    }

    #[test]
    fn a_new_channel_starts_with_space_for_a_gigabit_path_if_memory_allows() {
        let budget = MemoryBudget::of(1024 * MIB);
        let mut room = Room::with_spare(budget.channel(BLOCK).unwrap(), at(0));
        assert_eq!(room.limit() as usize * MIB, ROOM_FIRST);
        let scarce = MemoryBudget::of(96 * MIB);
        let held = Room::with_spare(scarce.channel(BLOCK).unwrap(), at(0));
        assert!(scarce.lent() <= 8 * MIB, "{}", scarce.lent());
        drop(held);
        // Unneeded memory is returned.
        flow(&mut room, 0, 60_000, 1000, 100, 0);
        assert!(budget.lent() <= 9 * MIB, "{}", budget.lent());
    }

    #[test]
    fn a_short_path_gets_little_receive_space() {
        let budget = MemoryBudget::of(1024 * MIB);
        let mut room = Room::new(budget.channel(BLOCK).unwrap(), at(0));
        flow(&mut room, 0, 3000, 125_000, 1, 0);
        assert!(room.target <= 8, "1 Gb/s: {}", room.target);
    }

    #[test]
    fn a_slow_disk_behind_a_fast_path_gets_no_more_receive_space() {
        let budget = MemoryBudget::of(1024 * MIB);
        let mut room = Room::new(budget.channel(BLOCK).unwrap(), at(0));
        for now in 0..10_000 {
            // A block returns each 100 ms, and the room is always full.
            room.returned(u32::from(now % 100 == 0));
            room.review(at(now), Some(Span::from_millis(10)), 0);
        }
        assert_eq!(room.memory.blocks(), 4);
    }

    #[test]
    fn data_after_missing_packets_gets_more_receive_space_at_once() {
        let budget = MemoryBudget::of(1024 * MIB);
        let mut room = Room::new(budget.channel(BLOCK).unwrap(), at(0));
        room.review(at(1), Some(Span::from_millis(100)), 2);
        assert_eq!(room.limit(), 4);
        room.review(at(2), Some(Span::from_millis(100)), 3);
        assert_eq!((room.limit(), room.returned), (8, 0), "although nothing came back");
        room.review(at(3), Some(Span::from_millis(100)), 4);
        assert_eq!(room.limit(), 8);
    }

    #[test]
    fn unneeded_receive_space_is_returned() {
        let budget = MemoryBudget::of(1024 * MIB);
        let mut room = Room::new(budget.channel(BLOCK).unwrap(), at(0));
        flow(&mut room, 0, 3000, 1_250_000, 100, 0);
        let before = budget.lent();
        assert!(before > 119 * MIB, "{before}");
        let bytes = u64::from(room.returned) * u64::from(BLOCK);
        flow(&mut room, 3000, 60_000, 10_000, 100, bytes);
        assert!(budget.lent() <= 16 * MIB, "{}", budget.lent());
        assert_eq!(room.memory.blocks(), (room.limit - room.returned) as usize);
    }

    #[test]
    fn the_largest_receiver_yields_memory_but_keeps_announced_space() {
        let budget = MemoryBudget::of(256 * MIB);
        let mut room = Room::new(budget.channel(BLOCK).unwrap(), at(0));
        flow(&mut room, 0, 3000, 1_250_000, 500, 0);
        assert!(budget.lent() > 200 * MIB);
        let mut others: Vec<_> = (0..7).map(|_| budget.channel(BLOCK).unwrap()).collect();
        let announced = room.limit();
        room.review(at(3001), None, 0);
        assert_eq!(room.limit(), announced);
        let bytes = u64::from(room.returned) * u64::from(BLOCK);
        for now in 0..80 {
            for other in &mut others {
                other.borrow(4);
            }
            flow(&mut room, 3100 + now * 100, 100, 50_000, 500, bytes + now * 5_000_000);
        }
        assert!(room.memory.blocks() <= 64, "{}", room.memory.blocks());
        for other in &others {
            let megabytes = other.blocks() * other.block_bytes() as usize / MIB;
            assert!(megabytes >= 12, "{megabytes}");
        }
    }

    #[test]
    fn used_buffers_are_kept_only_for_available_receive_space() {
        let budget = MemoryBudget::of(64 * MIB);
        let mut room = Room::new(budget.channel(BLOCK).unwrap(), at(0));
        assert_eq!(room.keep(0), 4);
        assert_eq!(room.keep(3), 1);
        room.returned(3);
        assert_eq!(room.keep(3), 4);
        assert_eq!(room.limit(), 7);
    }
}
