//! Several UDP channels that carry the blocks of one transfer at the same time, each over its own path.
//!
//! Source:      ours; [SABUL §IV] names striped file transfer as a use.
//! Model:       the sender appends to each block its number in the transfer. A channel takes the next block of the
//!              queue when it has sent its last one, so each channel carries blocks in proportion to its rate. Blocks
//!              of a channel that ends return to the queue. A block that its channel has not delivered in time, or the last
//!              blocks of the transfer, are sent a second time over a channel that is faster. The receiver delivers blocks in the order of their numbers,
//!              and drops a block that arrives twice.
//! Invariants:  an undelivered block is in the queue, or one open channel sends it; a block that waits for another
//!              path uses room of the path over which it arrived.
//! Not here:    opening and closing of paths (`transfer/run/paths.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabul_wire::control::BLOCK_NUMBER_LEN;

use super::buffers::Buffers;
use super::driver::{Job, Wake};
use super::handover::Reception;
use super::shared::{
    ChannelError, ChannelStart, ChannelStats, Deliver, OnEnd, RateSettings, Shared, State,
};
use super::{ReceiverHandle, SenderHandle, handed_over, receiver, sender};
use crate::budget::BlockLoan;

/// Returns the number at the end of a block.
pub(super) fn number(block: &[u8]) -> Option<u32> {
    block.last_chunk::<BLOCK_NUMBER_LEN>().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Puts blocks back into the queue, in the order of their numbers.
pub(super) fn put_back(queue: &mut VecDeque<Vec<u8>>, blocks: impl IntoIterator<Item = Vec<u8>>) {
    for block in blocks {
        let place = queue.partition_point(|other| number(other) < number(&block));
        queue.insert(place, block);
    }
}

/// Adds the statistics of a path to those of the transfer.
fn add(total: &mut ChannelStats, path: &ChannelStats) {
    if total.carrier.is_empty() {
        total.clone_from(path);
        return;
    }
    total.paths += path.paths;
    total.bytes += path.bytes;
    total.packets += path.packets;
    total.packets_retransmitted += path.packets_retransmitted;
    total.packets_lost += path.packets_lost;
    total.packets_overflowed += path.packets_overflowed;
    total.packets_refused += path.packets_refused;
    total.rtt_ms_min = total.rtt_ms_min.min(path.rtt_ms_min);
    total.rtt_ms = total.rtt_ms.max(path.rtt_ms);
    total.rate_bps = total.rate_bps.zip(path.rate_bps).map(|(one, other)| one + other);
    total.mtu = total.mtu.min(path.mtu);
    total.silence = total.silence.min(path.silence);
    if total.hint.is_none() {
        total.hint.clone_from(&path.hint);
    }
}

/// Statistics of all paths: the counts of all, the other figures of the open ones.
fn sum(ended: &ChannelStats, open: &BTreeMap<u8, Arc<Shared>>) -> ChannelStats {
    let mut total = ChannelStats::default();
    for path in open.values() {
        add(&mut total, &path.lock().stats);
    }
    if total.carrier.is_empty() {
        return ended.clone();
    }
    for (of_open, of_ended) in [
        (&mut total.bytes, ended.bytes),
        (&mut total.packets, ended.packets),
        (&mut total.packets_retransmitted, ended.packets_retransmitted),
        (&mut total.packets_lost, ended.packets_lost),
        (&mut total.packets_overflowed, ended.packets_overflowed),
        (&mut total.packets_refused, ended.packets_refused),
    ] {
        *of_open += of_ended;
    }
    total
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Open paths of a sending end.
#[derive(Debug, Default)]
pub(super) struct SendPaths {
    open: BTreeMap<u8, Arc<Shared>>,
    /// Statistics of paths that have ended.
    ended: ChannelStats,
    /// Settings of the transfer, if they were changed.
    settings: Option<RateSettings>,
}

impl SendPaths {
    /// Forwards the settings; each path has an equal part of the limit.
    fn share_settings(&self) {
        let Some(mut settings) = self.settings else { return };
        let paths = self.open.len().max(1) as u64;
        settings.rate_limit_bps = settings.rate_limit_bps.map(|limit| (limit / paths).max(1));
        for path in self.open.values() {
            path.lock().steer = Some(settings);
            path.wake();
        }
    }
}

impl SenderHandle {
    /// Makes a sending end without a path.
    pub(crate) fn of_paths(memory: BlockLoan, block_bytes: u32, settings: RateSettings) -> Self {
        let state = State { buffers: Some(Buffers::new(memory)), ..State::default() };
        let settings = Some(settings);
        let paths = Arc::new(Mutex::new(SendPaths { settings, ..SendPaths::default() }));
        let of_waker = Arc::clone(&paths);
        let waker = Wake(Arc::new(move || {
            for path in lock(&of_waker).open.values() {
                path.wake();
            }
        }));
        let shared = Shared::new(state, waker);
        Self { shared, block_bytes: block_bytes as usize, paths: Some(paths) }
    }

    /// Adds a path; the returned [`Job`] runs its driver.
    pub(crate) fn add_path(
        &self,
        path: u8,
        start: ChannelStart,
        on_end: OnEnd,
    ) -> Result<Job, ChannelError> {
        let paths = self.paths.as_ref().ok_or(ChannelError::Broken)?;
        let shared = Shared::of_path(&self.shared, start.socket.waker());
        let endpoint = Box::new(sender::SenderEndpoint::new(start, Arc::clone(&shared))?);
        let mut paths = lock(paths);
        if self.is_stopped() {
            return Err(ChannelError::Stopped);
        }
        paths.open.insert(path, Arc::clone(&shared));
        paths.share_settings();
        drop(paths);
        Ok(Job { name: "sabul-send", endpoint, shared, on_end })
    }

    /// Ends a path. Its unacknowledged blocks return to the queue.
    pub(crate) async fn end_path(&self, path: u8) {
        let Some(paths) = &self.paths else { return };
        let Some(shared) = lock(paths).open.remove(&path) else { return };
        drop(handed_over(&shared).await);
        let stats = shared.lock().stats.clone();
        let mut paths = lock(paths);
        add(&mut paths.ended, &stats);
        paths.share_settings();
    }

    /// Statistics of each open path.
    pub(crate) fn path_stats(&self) -> Vec<(u8, ChannelStats)> {
        let Some(paths) = &self.paths else { return Vec::new() };
        lock(paths).open.iter().map(|(&path, shared)| (path, shared.lock().stats.clone())).collect()
    }

    pub(super) fn sum_of_paths(&self) -> Option<ChannelStats> {
        let paths = lock(self.paths.as_ref()?);
        Some(sum(&paths.ended, &paths.open))
    }

    pub(super) fn stop_paths(&self) {
        for path in self.paths.iter().flat_map(|paths| lock(paths).open.clone().into_values()) {
            path.stop();
        }
    }

    /// Forwards settings to the paths. Returns whether the transfer has paths.
    pub(super) fn steer_paths(&self, settings: RateSettings) -> bool {
        let Some(paths) = &self.paths else { return false };
        let mut paths = lock(paths);
        paths.settings = Some(settings);
        paths.share_settings();
        true
    }
}

/// Blocks of a receiving end with several paths.
pub(super) struct Merge {
    /// Number of the next block.
    next: u32,
    /// Blocks behind a missing block, with the path whose room each one uses.
    waiting: BTreeMap<u32, (Option<u8>, Vec<u8>)>,
    /// Paths of the blocks that the application has not returned.
    delivered: VecDeque<Option<u8>>,
    open: BTreeMap<u8, Arc<Shared>>,
    ended: ChannelStats,
    deliver: Deliver,
}

impl fmt::Debug for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merge").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Merge {
    fn new(deliver: Deliver) -> Self {
        Self {
            next: 0,
            waiting: BTreeMap::new(),
            delivered: VecDeque::new(),
            open: BTreeMap::new(),
            ended: ChannelStats::default(),
            deliver,
        }
    }

    /// Takes a block that arrived over this path.
    fn take(&mut self, path: u8, mut block: Vec<u8>) {
        let Some(number) = number(&block) else {
            // The transfer rejects a block without a number as malformed.
            return self.pass(Some(path), block);
        };
        block.truncate(block.len() - BLOCK_NUMBER_LEN);
        if number < self.next || self.waiting.contains_key(&number) {
            return self.give_room(path, block);
        }
        self.waiting.insert(number, (Some(path), block));
        if number != self.next {
            return self.count_waiting();
        }
        while let Some((owner, block)) = self.waiting.remove(&self.next) {
            self.next = self.next.saturating_add(1);
            self.pass(owner, block);
        }
        self.count_waiting();
    }

    fn pass(&mut self, owner: Option<u8>, block: Vec<u8>) {
        self.delivered.push_back(owner);
        (self.deliver)(block);
    }

    /// Updates the number of waiting blocks of each path, from which the path derives its room.
    fn count_waiting(&self) {
        for (path, shared) in &self.open {
            let is_own = |(owner, _): &&(Option<u8>, Vec<u8>)| *owner == Some(*path);
            shared.lock().waiting = self.waiting.values().filter(is_own).count();
        }
    }

    /// Returns the buffer of a block to its path, which can then receive another block.
    fn give_room(&self, path: u8, buffer: Vec<u8>) {
        if let Some(shared) = self.open.get(&path) {
            shared.lock().free.push(buffer);
            shared.wake();
        }
    }

    /// Takes back the buffer of the oldest delivered block.
    fn recycle(&mut self, buffer: Vec<u8>) {
        if let Some(Some(path)) = self.delivered.pop_front() {
            self.give_room(path, buffer);
        }
    }

    /// Ends a path. The other paths get room for the blocks that it has not delivered: their own room may be full of
    /// later blocks.
    fn end(&mut self, path: u8) -> Option<Arc<Shared>> {
        let shared = self.open.remove(&path)?;
        let mut owners = Vec::new();
        for (owner, _) in self.waiting.values_mut() {
            owners.extend(owner.take());
        }
        for owner in owners {
            self.give_room(owner, Vec::new());
        }
        self.count_waiting();
        self.share_silence(&shared);
        Some(shared)
    }

    /// Updates the silence of the sender over all paths.
    fn share_silence(&self, of: &Arc<Shared>) {
        let paths = self.open.values().map(|path| path.lock().peer_silence.clone()).collect();
        of.queue().lock().peer_silence.set_paths(paths);
    }
}

impl ReceiverHandle {
    /// Makes a receiving end without a path.
    pub(crate) fn of_paths(deliver: Deliver) -> Self {
        let shared = Shared::new(State::default(), Wake::none());
        Self { shared, merge: Some(Arc::new(Mutex::new(Merge::new(deliver)))) }
    }

    /// Adds a path with this memory; the returned [`Job`] runs its driver.
    pub(crate) fn add_path(
        &self,
        path: u8,
        start: ChannelStart,
        memory: BlockLoan,
        on_end: OnEnd,
    ) -> Result<Job, ChannelError> {
        let merge = self.merge.as_ref().ok_or(ChannelError::Broken)?;
        let shared = Shared::of_path(&self.shared, start.socket.waker());
        let of_path = Arc::clone(merge);
        let deliver = Box::new(move |block| lock(&of_path).take(path, block));
        let reception = Reception::new(memory, deliver);
        // Reports have no path on the control connection.
        let report = Box::new(|_| ());
        let endpoint =
            receiver::ReceiverEndpoint::new(start, reception, Arc::clone(&shared), report)?;
        let mut merge = lock(merge);
        if self.shared.lock().is_stopped {
            return Err(ChannelError::Stopped);
        }
        merge.open.insert(path, Arc::clone(&shared));
        merge.share_silence(&shared);
        drop(merge);
        Ok(Job { name: "sabul-recv", endpoint: Box::new(endpoint), shared, on_end })
    }

    /// Ends a path. The sender sends its missing blocks over other paths.
    pub(crate) fn end_path(&self, path: u8) {
        let Some(merge) = &self.merge else { return };
        let Some(shared) = lock(merge).end(path) else { return };
        shared.stop();
        let stats = shared.lock().stats.clone();
        add(&mut lock(merge).ended, &stats);
    }

    pub(super) fn recycle_to_path(&self, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        match &self.merge {
            Some(merge) => {
                lock(merge).recycle(buffer);
                Ok(())
            }
            None => Err(buffer),
        }
    }

    pub(super) fn sum_of_paths(&self) -> Option<ChannelStats> {
        let merge = lock(self.merge.as_ref()?);
        Some(sum(&merge.ended, &merge.open))
    }

    pub(super) fn stop_paths(&self) {
        for path in self.merge.iter().flat_map(|merge| lock(merge).open.clone().into_values()) {
            path.stop();
        }
    }
}
