//! One memory for all sessions and channels of a process, lent in blocks.
//!
//! A session borrows a little, an end of a channel at least [`BLOCKS_MIN`] blocks, and more as far as
//! its path needs it and the budget lends. Who cannot have that waits a moment for others to give
//! back, and is refused at the start if that does not help; nobody who has begun is ever without
//! blocks. What waits in a session's queues is borrowed as it comes: where nothing is left for it, the
//! session or the transfer that it waits for ends with that reason.
//!
//! Model:       the last eighth is for those who have less than their share, so that newcomers find
//!              something; a share is what each end of a channel would have of the rest. While
//!              less than that eighth is free, who has more than its share gives back what it can.
//! Invariants:  what is lent is the sum of all loans and never more than the budget; a loan that is
//!              dropped is given back whole.
//! Not here:    how much an end needs (`channel/room.rs`, `channel.rs`).

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

mod machine;
mod tally;

pub(crate) use tally::Tally;

/// Fewest blocks at an end of a channel; fewer would make one end wait for the other.
pub(crate) const BLOCKS_MIN: usize = 4;
/// What an idle session takes: two tasks, TLS, its buffers and queues.
pub(crate) const SESSION_BYTES: usize = 64 << 10;
/// What an end of a channel takes besides its blocks: buffers for datagrams, tables, two threads.
pub(crate) const CHANNEL_BYTES: usize = 384 << 10;
/// Blocks are made smaller, down to this many bytes, where memory is short.
const BLOCK_BYTES_SHORT: u32 = 64 << 10;
/// A share holds at least so many blocks at first, so that what is lent can grow in steps.
const BLOCKS_OF_SHARE: usize = 16;
/// A newcomer takes at most one part in so many of what is free, as long as smaller blocks can help.
const FREE_PART: usize = 4;
/// What a newcomer may use at once beyond what it needs, where memory is not short, is at most one part in so
/// many of what is free.
const SPARE_PART: usize = 32;
/// One part in so many is for those with less than their share.
const RESERVE_PART: usize = 8;
/// A socket buffer is one part in so many of a share ...
const SOCKET_PART: usize = 64;
/// ... within these bounds, in bytes.
const SOCKET_BYTES: std::ops::RangeInclusive<usize> = 256 << 10..=16 << 20;

/// Memory for all sessions and transfers of those who share it; clones share it.
///
/// The default one is shared by everybody in the process who asks for no other.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    bytes: usize,
    /// What each end of a channel gets at once, where it is not shared.
    each: Option<usize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lent: usize,
    /// Ends of channels that have a loan.
    ends: usize,
    /// Ends that wait for one.
    waiting: usize,
}

impl State {
    /// Ends that should have a share.
    const fn claims(&self) -> usize {
        self.ends + self.waiting
    }
}

/// There is not enough left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory {
    bytes: usize,
    lent: usize,
    ends: usize,
}

impl std::fmt::Display for NoMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bytes, lent, ends } = self;
        write!(
            f,
            "no memory for more: {ends} transfers and all sessions here have {} of {} MiB; wait for \
             some to end, or give that end a larger --memory",
            lent >> 20,
            bytes >> 20
        )
    }
}

impl Default for MemoryBudget {
    /// A quarter of what the machine or its control group has available, 256 MiB to 16 GiB; never
    /// more than half of it. Everybody in the process gets the same one.
    fn default() -> Self {
        static OF_PROCESS: OnceLock<MemoryBudget> = OnceLock::new();
        OF_PROCESS.get_or_init(|| Self::new(machine::share(machine::available()))).clone()
    }
}

impl MemoryBudget {
    /// The smallest budget that is of use, in bytes.
    pub const BYTES_MIN: usize = 16 << 20;

    /// A budget of so many bytes; at least [`Self::BYTES_MIN`].
    pub fn new(bytes: usize) -> Self {
        Self::with(bytes.max(Self::BYTES_MIN), None)
    }

    /// Memory of so many bytes for each end of a channel, at once and never more, whatever there
    /// is: for measurements that are compared with others. It bounds no process.
    pub fn each(bytes: usize) -> Self {
        Self::with(usize::MAX, Some(bytes))
    }

    fn with(bytes: usize, each: Option<usize>) -> Self {
        Self { pool: Arc::new(Pool { bytes, each, state: Mutex::default() }) }
    }

    /// All of it, in bytes.
    pub fn bytes(&self) -> usize {
        self.pool.bytes
    }

    /// What is lent now, in bytes.
    pub fn lent(&self) -> usize {
        self.pool.lock().lent
    }

    /// What a session needs.
    pub(crate) fn session(&self) -> Result<Loan, NoMemory> {
        let mut state = self.pool.lock();
        self.pool.take(&mut state, SESSION_BYTES)?;
        Ok(Loan { pool: Arc::clone(&self.pool), bytes: SESSION_BYTES, is_end: false })
    }

    /// What an end of a channel needs at first, in blocks of at most so many bytes, a power of two.
    pub(crate) fn channel(&self, block_bytes: u32) -> Result<BlockLoan, NoMemory> {
        let pool = &self.pool;
        let mut state = pool.lock();
        let (mut block_bytes, mut blocks) = (block_bytes, BLOCKS_MIN);
        if let Some(each) = pool.each {
            blocks = (each / (block_bytes as usize).max(1)).max(BLOCKS_MIN);
        } else {
            let share = pool.share(state.claims() + 1);
            let room = |block: u32, state: &State| {
                let blocks = block as usize;
                let free = pool.bytes.saturating_sub(state.lent);
                blocks * BLOCKS_OF_SHARE <= share
                    && CHANNEL_BYTES + blocks * BLOCKS_MIN <= free / FREE_PART
            };
            while block_bytes > BLOCK_BYTES_SHORT && !room(block_bytes, &state) {
                block_bytes /= 2;
            }
        }
        let bytes = CHANNEL_BYTES.saturating_add(blocks.saturating_mul(block_bytes as usize));
        pool.take(&mut state, bytes)?;
        state.ends += 1;
        drop(state);
        let loan = Loan { pool: Arc::clone(pool), bytes, is_end: true };
        Ok(BlockLoan { loan, block_bytes, blocks })
    }

    /// An end of a channel waits for memory: until this is dropped, others count with it and give
    /// back what is beyond their share then.
    pub(crate) fn wait(&self) -> Waiting {
        self.pool.lock().waiting += 1;
        Waiting { pool: Arc::clone(&self.pool) }
    }

    /// How large the buffers of a channel's socket may be, in bytes. The kernel has that memory, and
    /// fills it only while the channel's thread does not come round.
    pub(crate) fn socket_bytes(&self) -> usize {
        let share = self.pool.share(self.pool.lock().ends + 1);
        (share / SOCKET_PART).clamp(*SOCKET_BYTES.start(), *SOCKET_BYTES.end())
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, state: &mut State, bytes: usize) -> Result<(), NoMemory> {
        if bytes > self.bytes.saturating_sub(state.lent) {
            return Err(NoMemory { bytes: self.bytes, lent: state.lent, ends: state.ends });
        }
        state.lent += bytes;
        Ok(())
    }

    const fn reserve(&self) -> usize {
        self.bytes / RESERVE_PART
    }

    /// What each of so many ends of channels would have.
    fn share(&self, ends: usize) -> usize {
        (self.bytes - self.reserve()) / ends.max(1)
    }
}

/// An end of a channel that waits for memory.
#[derive(Debug)]
pub(crate) struct Waiting {
    pool: Arc<Pool>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.pool.lock().waiting -= 1;
    }
}

/// Something borrowed; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Loan {
    pool: Arc<Pool>,
    bytes: usize,
    is_end: bool,
}

impl Loan {
    /// Borrows more for an end of a channel. Who has more than its share leaves the reserve alone.
    fn grow(&mut self, bytes: usize) -> bool {
        if self.pool.each.is_some() {
            return false;
        }
        let mut state = self.pool.lock();
        let is_rich = self.bytes + bytes > self.pool.share(state.claims());
        let kept = if is_rich { self.pool.reserve() } else { 0 };
        let free = self.pool.bytes.saturating_sub(state.lent).saturating_sub(kept);
        if bytes > free {
            return false;
        }
        state.lent += bytes;
        self.bytes += bytes;
        true
    }

    /// What nobody has, in bytes.
    fn free(&self) -> usize {
        self.pool.bytes.saturating_sub(self.pool.lock().lent)
    }

    fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.pool.lock().lent -= bytes;
    }

    /// What it has beyond its share, while others may need it; in bytes.
    fn excess(&self) -> usize {
        let state = self.pool.lock();
        if self.pool.each.is_some() || self.pool.bytes - state.lent >= self.pool.reserve() {
            return 0;
        }
        self.bytes.saturating_sub(self.pool.share(state.claims()))
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.lent -= self.bytes;
        state.ends -= usize::from(self.is_end);
    }
}

/// The blocks that an end of a channel has.
#[derive(Debug)]
pub(crate) struct BlockLoan {
    loan: Loan,
    block_bytes: u32,
    blocks: usize,
}

impl BlockLoan {
    /// Bytes of one block.
    pub(crate) const fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// How many there are.
    pub(crate) const fn blocks(&self) -> usize {
        self.blocks
    }

    /// Makes them smaller, since the other end has less memory.
    pub(crate) fn shrink_blocks(&mut self, block_bytes: u32) {
        debug_assert!(block_bytes <= self.block_bytes);
        let before = self.loan.bytes;
        self.block_bytes = block_bytes.min(self.block_bytes);
        self.loan.give_back(before - CHANNEL_BYTES - self.blocks * self.block_bytes as usize);
    }

    /// Borrows up to so many more; how many there are is the answer.
    pub(crate) fn borrow(&mut self, wanted: usize) -> usize {
        let mut got = wanted;
        while got > 0 && !self.loan.grow(got.saturating_mul(self.block_bytes as usize)) {
            got /= 2;
        }
        self.blocks += got;
        got
    }

    /// Borrows up to this number of blocks in all, as far as that is a small part of what is free.
    pub(crate) fn borrow_spare(&mut self, blocks: usize) {
        let spare = self.loan.free() / SPARE_PART / (self.block_bytes as usize).max(1);
        self.borrow(blocks.saturating_sub(self.blocks).min(spare));
    }

    /// Gives some back; never so many that fewer than [`BLOCKS_MIN`] are left.
    pub(crate) fn give_back(&mut self, blocks: usize) {
        let blocks = blocks.min(self.blocks.saturating_sub(BLOCKS_MIN));
        self.blocks -= blocks;
        self.loan.give_back(blocks * self.block_bytes as usize);
    }

    /// How many of them others may need.
    pub(crate) fn excess(&self) -> usize {
        let excess = self.loan.excess().div_ceil(self.block_bytes as usize);
        excess.min(self.blocks.saturating_sub(BLOCKS_MIN))
    }
}

#[cfg(test)]
mod tests;
