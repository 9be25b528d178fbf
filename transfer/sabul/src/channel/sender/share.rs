//! Blocks that one of several paths takes from the queue, and copies of those that another path delivers sooner.

use sabul_cc::Phase;
use sabul_units::{Instant, Span};

use super::super::buffers::Buffers;
use super::super::paths;
use super::super::shared::State;
use super::SenderEndpoint;

/// Blocks that one of several paths takes before they are due; a path that takes more than it needs delays the
/// transfer.
const AHEAD_OF_PATH: usize = 2;
/// A block of a path is late after this time and twice the time that the fastest of the other paths needs for a block.
const LATE: Span = Span::from_millis(500);

impl SenderEndpoint {
    /// Whether one of several paths takes another block: it has sent its blocks, none of them is late, and the path does
    /// not wait for another channel of its flow.
    pub(super) fn takes_block(&self) -> bool {
        self.sender.uncut_blocks() < AHEAD_OF_PATH
            && !self.path_blocks.is_late
            && self.sender.phase() != Phase::Waiting
    }

    /// Puts a copy of a block into the queue that another path delivers sooner. Returns whether the queue has a copy.
    pub(super) fn share_blocks(&mut self, now: Instant, state: &mut State) -> bool {
        let own = self.link.connection;
        let others = state.block_times.iter().filter(|(path, _)| **path != own);
        let late = others.map(|(_, time)| *time).min().map(|time| LATE + time * 2);
        let is_late = |taken: &Instant| late.is_some_and(|late| now.since(*taken) > late);
        let path_blocks = &mut self.path_blocks;
        path_blocks.is_late = path_blocks.taken_at.front().is_some_and(is_late);
        let late = path_blocks.taken_at.iter().take_while(|taken| is_late(taken)).count();
        // At the end of the blocks a path without blocks takes those that another path has not sent completely.
        let is_end = state.is_finished && state.outgoing.is_empty();
        let uncut = self.sender.uncut_blocks();
        let is_idle = std::mem::replace(&mut state.is_path_idle, is_end && uncut == 0);
        let rest = if is_idle && is_end { self.blocks.len() - uncut } else { self.blocks.len() };
        let mut wanted = (0..late).chain(rest..self.blocks.len());
        let has_copy = |block: &Vec<u8>| path_blocks.copied.contains(&paths::number(block));
        let Some(index) = wanted.find(|&index| !has_copy(&self.blocks[index])) else {
            return false;
        };
        let Some(mut copy) = state.buffers.as_mut().and_then(Buffers::take_for_copy) else {
            return false;
        };
        copy.extend_from_slice(&self.blocks[index]);
        path_blocks.copied.insert(paths::number(&copy));
        paths::put_back(&mut state.outgoing, [copy]);
        true
    }
}
