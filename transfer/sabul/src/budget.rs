//! Memory budget of all sessions and channels of a process, lent in blocks.
//!
//! A session borrows a little. A channel endpoint borrows at least [`BLOCKS_MIN`] blocks, and more if its path needs
//! them and the budget lends them. A transfer without memory waits in a queue (`budget/line.rs`) until others return
//! memory or end; a started transfer always has [`BLOCKS_LEAST`] blocks. Memory of a session's queues is borrowed as
//! messages arrive. If the budget has none left, the session or the affected transfer ends with that reason.
//!
//! Model:       the last eighth is reserved for ends with less than their share, so that newcomers find memory. A share
//!              is an equal part of the rest for each channel endpoint, including waiting ones. While less than that
//!              eighth is free, an end with more than its share returns what it can. While any transfer waits, no end
//!              grows into that eighth. The last sixteenth is reserved for sessions and queues.
//! Invariants:  lent memory is the sum of all loans and never exceeds the budget; a dropped loan is returned whole.
//!              While no transfer of a peer runs, there is memory for one, so the queue always advances.
//! Not here:    how much an end needs (`channel/room.rs`, `channel.rs`).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

mod line;
mod machine;
mod tally;

use sabul_units::Bytes;
use sabul_wire::control::{Failure, FailureCode};

use crate::descriptors;
use crate::lock::lock;
use line::Line;
pub(crate) use line::{Initiator, QueuePosition};
pub(crate) use tally::{Held, Tally};

/// Initial blocks of a channel endpoint; with fewer, one end would wait for the other.
pub(crate) const BLOCKS_MIN: usize = 4;
/// Blocks that an endpoint keeps while others wait for memory: one to fill and one in use.
pub(crate) const BLOCKS_LEAST: usize = 2;
/// Memory of an idle session: two tasks, TLS, its buffers and queues.
pub(crate) const SESSION_BYTES: usize = 64 << 10;
/// Memory of a channel endpoint besides its blocks: datagram buffers, tables, two threads.
pub(crate) const CHANNEL_BYTES: usize = 384 << 10;
/// Smallest block size in bytes to which blocks are reduced when memory is short.
const BLOCK_BYTES_SHORT: u32 = 64 << 10;
/// A share holds at least this many blocks at first, so that loans can grow in steps.
const BLOCKS_OF_SHARE: usize = 16;
/// A newcomer takes at most this fraction (1/n) of the free memory, as long as smaller blocks can help.
const FREE_PART: usize = 4;
/// Extra memory of a newcomer, when memory is not short, is at most this fraction (1/n) of the free memory.
const SPARE_PART: usize = 32;
/// Initial room of a receiver in bytes. Ours: 1 Gb/s over 100 ms has 12.5 MB in flight.
pub(crate) const ROOM_FIRST: usize = 16 << 20;
/// Fraction (1/n) reserved for ends with less than their share.
const RESERVE_PART: usize = 8;
/// Fraction (1/n) reserved for sessions and queues.
const QUEUES_PART: usize = 16;
/// Least memory of a new channel endpoint, in bytes.
pub(crate) const END_LEAST: usize = CHANNEL_BYTES + BLOCKS_MIN * BLOCK_BYTES_SHORT as usize;
// A transfer opened by this side leaves room for a transfer opened by a peer.
const _: () = assert!(MemoryBudget::BYTES_MIN / QUEUES_PART >= END_LEAST);
/// A socket buffer is this fraction (1/n) of a share ...
const SOCKET_PART: usize = 64;
/// ... within these bounds, in bytes.
const SOCKET_BYTES: std::ops::RangeInclusive<usize> = 256 << 10..=16 << 20;

/// Memory limit shared by sessions and transfers; clones share the limit.
///
/// The default budget is shared by all users in the process that set no other.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    bytes: usize,
    /// Memory of each endpoint, if the budget is not shared.
    each: Option<usize>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lent: usize,
    /// Channel endpoints with a loan.
    ends: usize,
    /// Endpoints that serve a transfer opened by a peer.
    accepted: usize,
    /// Further paths of sending endpoints.
    paths: usize,
    /// Queues of waiting transfers, by the side that opened them.
    own: Line,
    peers: Line,
}

impl State {
    /// Endpoints that should have a share.
    fn claims(&self) -> usize {
        self.ends + self.waiting()
    }

    fn waiting(&self) -> usize {
        self.own.len() + self.peers.len()
    }

    const fn line(&mut self, initiator: Initiator) -> &mut Line {
        match initiator {
            Initiator::Here => &mut self.own,
            Initiator::Peer => &mut self.peers,
        }
    }

    /// Wakes the first of each queue after memory was returned.
    fn wake(&self) {
        self.peers.wake_first();
        self.own.wake_first();
    }
}

/// The budget has not enough memory left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory {
    bytes: usize,
    lent: usize,
    ends: usize,
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no memory for more: {}; wait for some to end, or give that end a larger --memory",
            self.use_of_memory()
        )
    }
}

impl NoMemory {
    /// Returns how much of the budget is lent, for messages.
    pub(crate) fn use_of_memory(self) -> String {
        let Self { bytes, lent, ends } = self;
        format!("{ends} transfers and all sessions here have {} of {} MiB", lent >> 20, bytes >> 20)
    }
}

impl From<NoMemory> for Failure {
    fn from(shortage: NoMemory) -> Self {
        Self::new(FailureCode::Refused, shortage.to_string())
    }
}

impl Default for MemoryBudget {
    /// A quarter of the memory available to the machine or its control group, 256 MiB to 16 GiB; at most half of it.
    /// Every call in a process returns the same budget.
    fn default() -> Self {
        static OF_PROCESS: OnceLock<MemoryBudget> = OnceLock::new();
        OF_PROCESS
            .get_or_init(|| Self::of(machine::share(machine::available()).max(Self::BYTES_MIN)))
            .clone()
    }
}

/// A memory budget below [`MemoryBudget::BYTES_MIN`] was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetTooSmall(pub Bytes);

impl fmt::Display for BudgetTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Bytes(bytes)) = self;
        let least = MemoryBudget::BYTES_MIN >> 20;
        write!(f, "a memory budget of {bytes} bytes is too small; give at least {least} MiB")
    }
}

impl std::error::Error for BudgetTooSmall {}

impl MemoryBudget {
    /// The smallest useful budget, in bytes.
    pub const BYTES_MIN: usize = 16 << 20;

    /// Makes a budget of this size.
    ///
    /// # Errors
    /// If the size is below [`Self::BYTES_MIN`].
    pub fn new(size: Bytes) -> Result<Self, BudgetTooSmall> {
        if size.0 < Self::BYTES_MIN as u64 {
            return Err(BudgetTooSmall(size));
        }
        Ok(Self::of(usize::try_from(size.0).unwrap_or(usize::MAX)))
    }

    /// As [`Self::new`], for sizes that were checked.
    pub(crate) fn of(bytes: usize) -> Self {
        debug_assert!(bytes >= Self::BYTES_MIN, "{bytes} bytes are too few");
        Self::with(bytes, None)
    }

    /// Makes a budget that lends exactly this size to each channel endpoint, without a total limit. For
    /// comparable measurements.
    pub fn each(size: Bytes) -> Self {
        Self::with(usize::MAX, Some(usize::try_from(size.0).unwrap_or(usize::MAX)))
    }

    fn with(bytes: usize, each: Option<usize>) -> Self {
        Self { pool: Arc::new(Pool { bytes, each, state: Mutex::default() }) }
    }

    /// Returns the size of the budget in bytes.
    pub fn bytes(&self) -> usize {
        self.pool.bytes
    }

    /// Returns the lent memory in bytes.
    pub fn lent(&self) -> usize {
        self.pool.lock().lent
    }

    /// Lends the memory of a session.
    pub(crate) fn session(&self) -> Result<Loan, NoMemory> {
        let mut state = self.pool.lock();
        self.pool.take(&mut state, SESSION_BYTES)?;
        Ok(Loan { pool: Arc::clone(&self.pool), bytes: SESSION_BYTES, of: Borrower::Session })
    }

    /// Lends the memory of another path of a sending endpoint, besides the blocks, which all paths share.
    pub(crate) fn path(&self) -> Result<Loan, NoMemory> {
        self.pool.lend_path(&mut self.pool.lock())
    }

    /// Whether this many further sessions would find memory.
    pub(crate) fn has_room_for_sessions(&self, sessions: usize) -> bool {
        let state = self.pool.lock();
        self.pool.spare(&state) >= sessions.saturating_mul(SESSION_BYTES)
    }

    /// Lends the initial memory of a channel endpoint without waiting, in blocks of at most `block_bytes`, a power of
    /// two.
    pub(crate) fn channel(&self, block_bytes: u32) -> Result<BlockLoan, NoMemory> {
        self.pool.lend(&mut self.pool.lock(), block_bytes, Initiator::Peer)
    }

    /// Number of channel endpoints with memory.
    pub(crate) fn ends(&self) -> usize {
        self.pool.lock().ends
    }

    /// Number of further paths of sending endpoints.
    #[cfg(test)]
    pub(crate) fn paths(&self) -> usize {
        self.pool.lock().paths
    }

    /// Adds a transfer to the queue for memory.
    pub(crate) fn line_up(&self, initiator: Initiator) -> QueuePosition {
        QueuePosition::last(&self.pool, initiator)
    }

    /// Returns the buffer size of a channel's socket in bytes. The kernel holds that memory, and fills it only while
    /// the channel's thread is late.
    pub(crate) fn socket_bytes(&self) -> usize {
        let share = self.pool.share(self.pool.lock().ends + 1);
        (share / SOCKET_PART).clamp(*SOCKET_BYTES.start(), *SOCKET_BYTES.end())
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn refusal(&self, state: &State) -> NoMemory {
        NoMemory { bytes: self.bytes, lent: state.lent, ends: state.ends }
    }

    /// Free memory for sessions and queues. The memory for one transfer of a peer is kept, less what a running
    /// transfer returns in any case.
    const fn spare(&self, state: &State) -> usize {
        let kept = if state.accepted == 0 { END_LEAST } else { END_LEAST - CHANNEL_BYTES };
        self.bytes.saturating_sub(state.lent).saturating_sub(kept)
    }

    /// Free memory for channel endpoints.
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

    /// Lends the initial memory of a channel endpoint, in blocks of at most `block_bytes`, a power of two.
    fn lend(
        self: &Arc<Self>,
        state: &mut State,
        block_bytes: u32,
        initiator: Initiator,
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
        let is_first = initiator == Initiator::Peer && state.accepted == 0;
        let free = if is_first { self.bytes - state.lent } else { self.free_for_ends(state) };
        let channels = state.ends + state.paths;
        if bytes > free || (state.ends > 0 && channels >= descriptors::channels_max()) {
            return Err(self.refusal(state));
        }
        state.lent += bytes;
        state.ends += 1;
        state.accepted += usize::from(initiator == Initiator::Peer);
        let loan = Loan { pool: Arc::clone(self), bytes, of: Borrower::End(initiator) };
        Ok(BlockLoan { loan, block_bytes, blocks })
    }

    /// Lends to another path of a sending endpoint.
    fn lend_path(self: &Arc<Self>, state: &mut State) -> Result<Loan, NoMemory> {
        let channels = state.ends + state.paths;
        if CHANNEL_BYTES > self.free_for_ends(state) || channels >= descriptors::channels_max() {
            return Err(self.refusal(state));
        }
        state.lent += CHANNEL_BYTES;
        state.paths += 1;
        Ok(Loan { pool: Arc::clone(self), bytes: CHANNEL_BYTES, of: Borrower::Path })
    }

    const fn reserve(&self) -> usize {
        self.bytes / RESERVE_PART
    }

    /// Share of each of `ends` channel endpoints.
    fn share(&self, ends: usize) -> usize {
        (self.bytes - self.reserve()) / ends.max(1)
    }
}

/// Use of borrowed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Borrower {
    Session,
    /// A channel endpoint of a transfer that this side opened.
    End(Initiator),
    /// Another path of a sending endpoint.
    Path,
}

/// Borrowed memory; dropping the value returns it.
#[derive(Debug)]
pub(crate) struct Loan {
    pool: Arc<Pool>,
    bytes: usize,
    of: Borrower,
}

impl Loan {
    /// Borrows more for a channel endpoint. An endpoint with more than its share cannot use the reserve.
    fn grow(&mut self, bytes: usize) -> bool {
        if self.pool.each.is_some() {
            return false;
        }
        let mut state = self.pool.lock();
        let is_rich = self.bytes + bytes > self.pool.share(state.claims());
        // Waiting transfers may need memory that is smaller than the reserve.
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

    /// Free memory of the budget, in bytes.
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

    /// Bytes beyond the share of this loan, while others may need memory.
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
        state.ends -= usize::from(matches!(self.of, Borrower::End(_)));
        state.accepted -= usize::from(self.of == Borrower::End(Initiator::Peer));
        state.paths -= usize::from(self.of == Borrower::Path);
        state.wake();
    }
}

/// The blocks of a channel endpoint.
#[derive(Debug)]
pub(crate) struct BlockLoan {
    loan: Loan,
    block_bytes: u32,
    blocks: usize,
}

impl BlockLoan {
    /// Size of one block in bytes.
    pub(crate) const fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Number of blocks.
    pub(crate) const fn blocks(&self) -> usize {
        self.blocks
    }

    /// Reduces the block size, because the other end has less memory.
    pub(crate) fn shrink_blocks(&mut self, block_bytes: u32) {
        debug_assert!(block_bytes <= self.block_bytes);
        let before = self.loan.bytes;
        self.block_bytes = block_bytes.min(self.block_bytes);
        self.loan.give_back(before - CHANNEL_BYTES - self.blocks * self.block_bytes as usize);
    }

    /// Borrows up to `wanted` more blocks; returns the number of borrowed blocks.
    pub(crate) fn borrow(&mut self, wanted: usize) -> usize {
        let mut got = wanted;
        while got > 0 && !self.loan.grow(got.saturating_mul(self.block_bytes as usize)) {
            got /= 2;
        }
        self.blocks += got;
        got
    }

    /// Borrows blocks for [`ROOM_FIRST`] bytes in total, as far as they are a small part of the free memory. Returns the
    /// number of blocks.
    pub(crate) fn borrow_first(&mut self) -> u32 {
        let blocks = ROOM_FIRST / (self.block_bytes as usize).max(1);
        let spare = self.loan.free() / SPARE_PART / (self.block_bytes as usize).max(1);
        self.borrow(blocks.saturating_sub(self.blocks).min(spare));
        u32::try_from(self.blocks).unwrap_or(u32::MAX)
    }

    /// Returns blocks, but keeps at least [`BLOCKS_LEAST`].
    pub(crate) fn give_back(&mut self, blocks: usize) {
        let blocks = blocks.min(self.blocks.saturating_sub(BLOCKS_LEAST));
        self.blocks -= blocks;
        self.loan.give_back(blocks * self.block_bytes as usize);
    }

    /// Number of blocks that others may need.
    pub(crate) fn excess(&self) -> usize {
        let excess = self.loan.excess().div_ceil(self.block_bytes as usize);
        excess.min(self.blocks.saturating_sub(BLOCKS_LEAST))
    }
}

#[cfg(test)]
mod tests;
