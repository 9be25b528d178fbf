//! One memory for all sessions and channels of a process, lent in blocks.
//!
//! A session borrows a little, an end of a channel at least [`BLOCKS_MIN`] blocks, and more as far as
//! its path needs it and the budget lends. A transfer without that waits in line (`budget/line.rs`) until
//! others give back or end; a transfer that has begun always has [`BLOCKS_LEAST`] blocks. What waits in a
//! session's queues is borrowed as it comes: where nothing is left for it, the session or the transfer
//! that it waits for ends with that reason.
//!
//! Model:       the last eighth is for those who have less than their share, so that newcomers find
//!              something; a share is what each end of a channel would have of the rest, those in line
//!              counted. While less than that eighth is free, an end with more than its share gives back
//!              what it can. While anybody waits in line, no end grows into that eighth. The last sixteenth is for
//!              sessions and queues: ends leave it alone.
//! Invariants:  what is lent is the sum of all loans and never more than the budget; a loan that is
//!              dropped is given back whole. While no transfer runs that a peer has asked for, there is
//!              memory for one: so the line always moves.
//! Not here:    how much an end needs (`channel/room.rs`, `channel.rs`).

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

mod line;
mod machine;
mod tally;

use crate::descriptors;
use line::Line;
pub(crate) use line::{Asker, Place};
pub(crate) use tally::Tally;

/// Fewest blocks at an end of a channel at first; fewer would make one end wait for the other.
pub(crate) const BLOCKS_MIN: usize = 4;
/// Fewest blocks that an end keeps while others wait for memory: one that fills and one that is used.
pub(crate) const BLOCKS_LEAST: usize = 2;
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
/// One part in so many is for sessions and queues.
const QUEUES_PART: usize = 16;
/// Least memory of a new end of a channel, in bytes.
pub(crate) const END_LEAST: usize = CHANNEL_BYTES + BLOCKS_MIN * BLOCK_BYTES_SHORT as usize;
// So that a transfer that this side asks for leaves room for one that a peer asks for.
const _: () = assert!(MemoryBudget::BYTES_MIN / QUEUES_PART >= END_LEAST);
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
    /// How many of them serve a transfer that a peer has asked for.
    accepted: usize,
    /// Transfers that wait, of either asker.
    own: Line,
    peers: Line,
}

impl State {
    /// Ends that should have a share.
    fn claims(&self) -> usize {
        self.ends + self.waiting()
    }

    fn waiting(&self) -> usize {
        self.own.len() + self.peers.len()
    }

    const fn line(&mut self, asker: Asker) -> &mut Line {
        match asker {
            Asker::Here => &mut self.own,
            Asker::Peer => &mut self.peers,
        }
    }

    /// Something was given back.
    fn wake(&self) {
        self.peers.wake_first();
        self.own.wake_first();
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
        Ok(Loan { pool: Arc::clone(&self.pool), bytes: SESSION_BYTES, end: None })
    }

    /// Whether so many sessions more would find memory.
    pub(crate) fn has_room_for_sessions(&self, sessions: usize) -> bool {
        let state = self.pool.lock();
        self.pool.spare(&state) >= sessions.saturating_mul(SESSION_BYTES)
    }

    /// What an end of a channel needs at first, without waiting, in blocks of at most so many bytes, a power of two.
    #[cfg(test)]
    pub(crate) fn channel(&self, block_bytes: u32) -> Result<BlockLoan, NoMemory> {
        self.pool.lend(&mut self.pool.lock(), block_bytes, Asker::Peer)
    }

    /// Ends of channels that have memory.
    pub(crate) fn ends(&self) -> usize {
        self.pool.lock().ends
    }

    /// A transfer waits in line for memory.
    pub(crate) fn line_up(&self, asker: Asker) -> Place {
        Place::last(&self.pool, asker)
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

    fn refusal(&self, state: &State) -> NoMemory {
        NoMemory { bytes: self.bytes, lent: state.lent, ends: state.ends }
    }

    /// What sessions and queues may have. While no transfer runs that a peer has asked for, there is memory for one.
    const fn spare(&self, state: &State) -> usize {
        let kept = if state.accepted == 0 { END_LEAST } else { 0 };
        self.bytes.saturating_sub(state.lent).saturating_sub(kept)
    }

    /// What ends of channels may have.
    const fn free_for_ends(&self, state: &State) -> usize {
        self.bytes.saturating_sub(state.lent).saturating_sub(self.bytes / QUEUES_PART)
    }

    /// Lends to a session or a queue.
    fn take(&self, state: &mut State, bytes: usize) -> Result<(), NoMemory> {
        if bytes > self.spare(state) {
            return Err(self.refusal(state));
        }
        state.lent += bytes;
        Ok(())
    }

    /// Lends what an end of a channel needs at first, in blocks of at most so many bytes, a power of two.
    fn lend(
        self: &Arc<Self>,
        state: &mut State,
        block_bytes: u32,
        asker: Asker,
    ) -> Result<BlockLoan, NoMemory> {
        let (mut block_bytes, mut blocks) = (block_bytes, BLOCKS_MIN);
        if let Some(each) = self.each {
            blocks = (each / (block_bytes as usize).max(1)).max(BLOCKS_MIN);
        } else {
            let share = self.share(state.claims() + 1);
            let free = self.free_for_ends(state);
            let room = |block: u32| {
                let blocks = block as usize;
                blocks * BLOCKS_OF_SHARE <= share
                    && CHANNEL_BYTES + blocks * BLOCKS_MIN <= free / FREE_PART
            };
            while block_bytes > BLOCK_BYTES_SHORT && !room(block_bytes) {
                block_bytes /= 2;
            }
        }
        let bytes = CHANNEL_BYTES.saturating_add(blocks.saturating_mul(block_bytes as usize));
        let is_first = asker == Asker::Peer && state.accepted == 0;
        let free = if is_first { self.bytes - state.lent } else { self.free_for_ends(state) };
        if bytes > free || (state.ends > 0 && state.ends >= descriptors::channels_max()) {
            return Err(self.refusal(state));
        }
        state.lent += bytes;
        state.ends += 1;
        state.accepted += usize::from(asker == Asker::Peer);
        let loan = Loan { pool: Arc::clone(self), bytes, end: Some(asker) };
        Ok(BlockLoan { loan, block_bytes, blocks })
    }

    const fn reserve(&self) -> usize {
        self.bytes / RESERVE_PART
    }

    /// What each of so many ends of channels would have.
    fn share(&self, ends: usize) -> usize {
        (self.bytes - self.reserve()) / ends.max(1)
    }
}

/// Something borrowed; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Loan {
    pool: Arc<Pool>,
    bytes: usize,
    /// The asker of the transfer whose end this is.
    end: Option<Asker>,
}

impl Loan {
    /// Borrows more for an end of a channel. Who has more than its share leaves the reserve alone.
    fn grow(&mut self, bytes: usize) -> bool {
        if self.pool.each.is_some() {
            return false;
        }
        let mut state = self.pool.lock();
        let is_rich = self.bytes + bytes > self.pool.share(state.claims());
        // Less than the reserve may be all that those in line wait for.
        let is_kept = is_rich || state.waiting() > 0;
        let kept = if is_kept { self.pool.reserve() } else { self.pool.bytes / QUEUES_PART };
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
        if bytes > 0 {
            self.bytes -= bytes;
            let mut state = self.pool.lock();
            state.lent -= bytes;
            state.wake();
        }
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
        state.ends -= usize::from(self.end.is_some());
        state.accepted -= usize::from(self.end == Some(Asker::Peer));
        state.wake();
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

    /// Gives some back; never so many that fewer than [`BLOCKS_LEAST`] are left.
    pub(crate) fn give_back(&mut self, blocks: usize) {
        let blocks = blocks.min(self.blocks.saturating_sub(BLOCKS_LEAST));
        self.blocks -= blocks;
        self.loan.give_back(blocks * self.block_bytes as usize);
    }

    /// How many of them others may need.
    pub(crate) fn excess(&self) -> usize {
        let excess = self.loan.excess().div_ceil(self.block_bytes as usize);
        excess.min(self.blocks.saturating_sub(BLOCKS_LEAST))
    }
}

#[cfg(test)]
mod tests;
