//! Applications at both ends of a flow: a source and a sink, each with an optional rate limit.

use std::collections::VecDeque;

use sabul_channel::{Receiver, Sender};
use sabul_units::{Bytes, Instant, Rate};

use sabul_run::scenario::{PACED_BLOCK_BYTES, SINK_BLOCKS};

/// Block size in bytes where no application is slow.
const BLOCK_BYTES: u32 = 1 << 20;
/// Blocks kept ready behind the first unacknowledged block: 1 GiB, more than any path holds.
const BLOCKS_READY: u32 = 1024;

/// Source of the sender's blocks.
#[derive(Debug)]
pub(crate) struct Source {
    rate: Option<Rate>,
    block_bytes: u32,
    /// Bytes not yet given to the sender; `None` for an endless flow.
    left: Option<u64>,
    pushed_blocks: u32,
    /// When the next block is available.
    next_at: Instant,
}

impl Source {
    /// Creates a source of `bytes`, or endless.
    pub(crate) fn new(
        now: Instant,
        rate: Option<Rate>,
        bytes: Option<u64>,
        is_paced: bool,
    ) -> Self {
        let block_bytes = if is_paced { PACED_BLOCK_BYTES } else { BLOCK_BYTES };
        Self { rate, block_bytes, left: bytes, pushed_blocks: 0, next_at: now }
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.left == Some(0)
    }

    /// Pushes the available blocks; returns when the next is available if the source is the limit.
    pub(crate) fn push_blocks(&mut self, now: Instant, sender: &mut Sender) -> Option<Instant> {
        while self.pushed_blocks - sender.released_blocks() < BLOCKS_READY {
            let left = self.left.unwrap_or(u64::MAX);
            let length = self.block_bytes.min(u32::try_from(left).unwrap_or(u32::MAX));
            if length == 0 {
                return None;
            }
            if let Some(rate) = self.rate {
                if self.next_at > now {
                    return Some(self.next_at);
                }
                self.next_at = self.next_at + rate.time_for(Bytes(length.into()));
            }
            if let Some(left) = &mut self.left {
                *left -= u64::from(length);
            }
            sender.push_block(length);
            self.pushed_blocks += 1;
        }
        None
    }
}

/// Sink of the receiver's blocks, in order.
#[derive(Debug)]
pub(crate) struct Sink {
    rate: Option<Rate>,
    block_bytes: u32,
    bytes: Option<u64>,
    /// Number of the first incomplete block, and the bytes received of this block and later ones.
    complete: u32,
    filled: VecDeque<u32>,
    /// When the sink will have consumed each complete block.
    taken_at: VecDeque<Instant>,
    busy_until: Instant,
    opened: u32,
}

impl Sink {
    pub(crate) fn new(
        now: Instant,
        rate: Option<Rate>,
        block_bytes: u32,
        bytes: Option<u64>,
    ) -> Self {
        Self {
            rate,
            block_bytes,
            bytes,
            complete: 0,
            filled: VecDeque::new(),
            taken_at: VecDeque::new(),
            busy_until: now,
            opened: SINK_BLOCKS,
        }
    }

    /// Number of blocks for which there is room at the start.
    pub(crate) fn block_limit(&self) -> u32 {
        if self.rate.is_some() { SINK_BLOCKS } else { u32::MAX }
    }

    /// Records a received piece of a block.
    pub(crate) fn take(&mut self, now: Instant, block: u32, length: u32) {
        let Some(rate) = self.rate else { return };
        let index = (block - self.complete) as usize;
        if self.filled.len() <= index {
            self.filled.resize(index + 1, 0);
        }
        self.filled[index] += length;
        while let Some(filled) = self.filled.front().copied() {
            let before = u64::from(self.complete) * u64::from(self.block_bytes);
            let rest = self.bytes.map_or(u64::MAX, |bytes| bytes - before);
            if u64::from(filled) < rest.min(self.block_bytes.into()) {
                return;
            }
            self.filled.pop_front();
            self.complete += 1;
            self.busy_until = self.busy_until.max(now) + rate.time_for(Bytes(filled.into()));
            self.taken_at.push_back(self.busy_until);
        }
    }

    /// Frees the room of consumed blocks; returns when the next block will be consumed.
    pub(crate) fn open(&mut self, now: Instant, receiver: &mut Receiver) -> Option<Instant> {
        while self.taken_at.front().is_some_and(|at| *at <= now) {
            self.taken_at.pop_front();
            self.opened += 1;
            receiver.open_to(self.opened);
        }
        self.taken_at.front().copied()
    }
}
