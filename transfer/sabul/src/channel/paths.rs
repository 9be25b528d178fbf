//! Several UDP channels that carry the blocks of one transfer at the same time, each over its own path.
//!
//! Source:      ours; [SABUL §IV] names striped file transfer as a use.
//! Model:       the sender appends to each block its number in the transfer. A channel takes the next block of the
//!              queue when it has sent its last one, so each channel carries blocks in proportion to its rate. Blocks
//!              of a channel that ends return to the queue. A faster channel sends a block again that its channel has
//!              not delivered in time. The same holds for the last blocks of the transfer. The receiver
//!              delivers blocks in the order of their numbers, and drops a block that arrives twice.
//! Invariants:  an undelivered block is in the queue, or one open channel sends it; a block that waits for another
//!              path uses room of the path over which it arrived; after the end of that path, the block keeps its
//!              part of the path's memory.
//! Not here:    opening and closing of paths (`transfer/run/paths.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use sabul_units::Rate;
use sabul_wire::control::BLOCK_NUMBER_LEN;

use super::buffers::Buffers;
use super::driver::{Job, Wake};
use super::handover::Reception;
use super::shared::{
    ChannelError, ChannelStart, ChannelStats, Deliver, OnEnd, RateSettings, Shared, State,
};
use super::{ReceiverHandle, SenderHandle, handed_over, receiver, sender};
use crate::budget::BlockLoan;
use crate::ceiling::Ceiling;
use crate::lock::lock;

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

/// Statistics of all paths: the counts of all, the other figures of the open ones.
fn sum(ended: &ChannelStats, open: &BTreeMap<u8, Arc<Shared>>) -> ChannelStats {
    let of_open = open.values().map(|path| path.lock().stats.clone());
    // A path without statistics has just opened.
    let joined = of_open.filter(|stats| !stats.carrier.is_empty()).reduce(|mut total, path| {
        total.add_counts(&path);
        total.paths += path.paths;
        total.rtt_ms_min = total.rtt_ms_min.min(path.rtt_ms_min);
        total.rtt_ms = total.rtt_ms.max(path.rtt_ms);
        total.rate_bps = total.rate_bps.zip(path.rate_bps).map(|(one, other)| one + other);
        total.mtu = total.mtu.min(path.mtu);
        total.silence = total.silence.min(path.silence);
        total.hint = total.hint.or(path.hint);
        total
    });
    let mut total = joined.unwrap_or_default();
    total.add_counts(ended);
    total
}

/// Open paths of a sending end.
#[derive(Debug, Default)]
pub(super) struct SendPaths {
    open: BTreeMap<u8, Arc<Shared>>,
    /// Statistics of paths that have ended.
    ended: ChannelStats,
    /// Settings of the transfer, if they were changed.
    settings: Option<RateSettings>,
    /// The transfer's rate limit. While a common controller searches for the rate, only the first path sends, so equal
    /// parts would leave most of the limit unused.
    limit: Ceiling,
}

impl SendPaths {
    /// Forwards the settings; the paths share the limit by their use.
    fn share_settings(&self) {
        let Some(settings) = self.settings else { return };
        self.limit.set(settings.rate_limit_bps.map(Rate));
        let settings = RateSettings { rate_limit_bps: None, ..settings };
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
        // The first channel has the limit from its first packet on.
        let limit = Ceiling::default();
        limit.set(settings.rate_limit_bps.map(Rate));
        let paths = SendPaths { settings: Some(settings), limit, ..SendPaths::default() };
        let paths = Arc::new(Mutex::new(paths));
        // A path refers to the queue, so the queue must not keep the paths.
        let of_waker = Arc::downgrade(&paths);
        let waker = Wake(Arc::new(move || {
            if let Some(paths) = of_waker.upgrade() {
                lock(&paths).open.values().for_each(|path| path.wake());
            }
        }));
        let shared = Shared::new(state, waker);
        Self { shared, block_bytes: block_bytes as usize, paths: Some(paths) }
    }

    /// Adds a path; the returned [`Job`] runs its driver.
    pub(crate) fn add_path(
        &self,
        path: u8,
        mut start: ChannelStart,
        on_end: OnEnd,
    ) -> Result<Job, ChannelError> {
        let paths = self.paths.as_ref().ok_or(ChannelError::Broken)?;
        start.params.rate_limit_bps = None;
        start.ceilings.push(lock(paths).limit.clone());
        let shared = Shared::of_path(&self.shared, start.open.socket.waker());
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
        paths.ended.add_counts(&stats);
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
    waiting: BTreeMap<u32, (Option<Arc<Shared>>, Vec<u8>)>,
    /// Paths of the blocks that the application has not returned.
    delivered: VecDeque<Option<Arc<Shared>>>,
    /// Blocks that use the room of no path, and the memory for them.
    without_path: usize,
    memory: Vec<BlockLoan>,
    open: BTreeMap<u8, Arc<Shared>>,
    ended: ChannelStats,
    deliver: Deliver,
}

impl fmt::Debug for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merge").field("next", &self.next).finish_non_exhaustive()
    }
}

/// Returns the buffer of a block to its path, which can then receive another block.
fn give_room(path: &Shared, buffer: Vec<u8>) {
    path.lock().free.push(buffer);
    path.wake();
}

impl Merge {
    fn new(deliver: Deliver) -> Self {
        Self {
            next: 0,
            waiting: BTreeMap::new(),
            delivered: VecDeque::new(),
            without_path: 0,
            memory: Vec::new(),
            open: BTreeMap::new(),
            ended: ChannelStats::default(),
            deliver,
        }
    }

    /// Takes a block that arrived over this path.
    fn take(&mut self, path: &Arc<Shared>, mut block: Vec<u8>) {
        let Some(number) = number(&block) else {
            // The transfer rejects a block without a number as malformed.
            return self.pass(Some(Arc::clone(path)), block);
        };
        block.truncate(block.len() - BLOCK_NUMBER_LEN);
        if number < self.next || self.waiting.contains_key(&number) {
            return give_room(path, block);
        }
        if number != self.next {
            // From the number of waiting blocks, the path derives its room.
            path.lock().waiting += 1;
            self.waiting.insert(number, (Some(Arc::clone(path)), block));
            return;
        }
        self.next = self.next.saturating_add(1);
        self.pass(Some(Arc::clone(path)), block);
        while let Some((owner, block)) = self.waiting.remove(&self.next) {
            self.next = self.next.saturating_add(1);
            if let Some(owner) = &owner {
                owner.lock().waiting -= 1;
            }
            self.pass(owner, block);
        }
    }

    fn pass(&mut self, owner: Option<Arc<Shared>>, block: Vec<u8>) {
        self.delivered.push_back(owner);
        (self.deliver)(block);
    }

    /// Takes back the buffer of the oldest delivered block.
    fn recycle(&mut self, buffer: Vec<u8>) {
        match self.delivered.pop_front() {
            Some(Some(path)) => give_room(&path, buffer),
            Some(None) => {
                self.without_path -= 1;
                if self.without_path == 0 {
                    self.memory.clear();
                }
            }
            None => {}
        }
    }

    /// Ends a path with this memory. Its blocks here keep their part of the memory. The other paths get the rest as
    /// room, for the blocks that the path has not received: their own room may be full of later blocks.
    fn end(&mut self, path: u8, memory: Option<BlockLoan>) {
        let Some(shared) = self.open.remove(&path) else { return };
        self.ended.add_counts(&shared.lock().stats);
        self.share_silence(&shared);
        let Some(mut memory) = memory else { return };
        let waiting = self.waiting.values_mut().map(|(owner, _)| owner);
        let mut used = 0;
        for owner in self.delivered.iter_mut().chain(waiting) {
            if owner.as_ref().is_some_and(|owner| Arc::ptr_eq(owner, &shared)) {
                *owner = None;
                used += 1;
            }
        }
        let rest = memory.blocks().saturating_sub(used);
        let others = self.waiting.values_mut().filter_map(|(owner, _)| owner.take());
        for other in others.take(rest) {
            other.lock().waiting -= 1;
            give_room(&other, Vec::new());
            used += 1;
        }
        memory.give_back(memory.blocks().saturating_sub(used));
        if used > 0 {
            self.without_path += used;
            self.memory.push(memory);
        }
    }

    /// Updates the silence of the sender over all paths.
    fn share_silence(&self, of: &Arc<Shared>) {
        let paths = self.open.values().map(|path| path.lock().peer_silence.clone()).collect();
        of.queue().lock().peer_silence.set_paths(paths);
    }
}

/// Takes back the buffer of the oldest delivered block.
pub(super) fn recycle(merge: &Mutex<Merge>, buffer: Vec<u8>) {
    lock(merge).recycle(buffer);
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
        let shared = Shared::of_path(&self.shared, start.open.socket.waker());
        let (into, from) = (Arc::clone(merge), Arc::clone(&shared));
        let deliver = Box::new(move |block| lock(&into).take(&from, block));
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
    pub(crate) async fn end_path(&self, path: u8) {
        let Some(merge) = &self.merge else { return };
        let Some(shared) = lock(merge).open.get(&path).cloned() else { return };
        let reception = handed_over(&shared).await.and_then(|handed| handed.reception);
        shared.stop();
        let reception = reception.or_else(|| shared.lock().left.take());
        lock(merge).end(path, reception.map(|reception| reception.room.into_memory()));
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

#[cfg(test)]
mod tests {
    use sabul_units::{Instant, Span};

    use super::*;
    use crate::budget::MemoryBudget;

    const BLOCK: u32 = 1 << 16;

    /// Blocks that a merge has delivered.
    type Delivered = Arc<Mutex<Vec<Vec<u8>>>>;

    /// A merge with these paths, and the delivered blocks.
    fn merge(paths: u8) -> (Merge, Vec<Arc<Shared>>, Delivered) {
        let delivered = Delivered::default();
        let into = Arc::clone(&delivered);
        let mut merge = Merge::new(Box::new(move |block| lock(&into).push(block)));
        let queue = Shared::new(State::default(), Wake::none());
        let shared: Vec<_> = (0..paths).map(|_| Shared::of_path(&queue, Wake::none())).collect();
        merge.open.extend((0..paths).zip(shared.iter().cloned()));
        (merge, shared, delivered)
    }

    fn block(number: u32) -> Vec<u8> {
        [&b"block"[..], &number.to_be_bytes()].concat()
    }

    fn room(path: &Shared) -> usize {
        path.lock().free.len()
    }

    #[test]
    fn blocks_are_delivered_in_order_and_once_and_their_room_returns_to_their_path() {
        let (mut merge, paths, delivered) = merge(2);
        for (path, number) in [(0, 1), (1, 3), (1, 1), (0, 0), (1, 0), (0, 2), (1, 4)] {
            merge.take(&paths[path], block(number));
        }
        assert_eq!(lock(&delivered).len(), 5);
        assert_eq!((room(&paths[0]), room(&paths[1])), (0, 2), "of the doubles");
        for buffer in lock(&delivered).drain(..) {
            assert_eq!(buffer, b"block");
            merge.recycle(buffer);
        }
        assert_eq!((room(&paths[0]), room(&paths[1])), (3, 4));
        merge.take(&paths[0], b"ab".to_vec());
        assert_eq!(lock(&delivered).pop().as_deref(), Some(&b"ab"[..]), "rejected later");
    }

    #[test]
    fn a_block_changes_the_count_of_its_path_without_a_search_of_all_blocks() {
        let (mut merge, paths, delivered) = merge(2);
        let waiting = |path: &Shared| path.lock().waiting;
        // A search would correct these counts.
        paths.iter().for_each(|path| path.lock().waiting = 1000);
        merge.take(&paths[0], block(1));
        merge.take(&paths[1], block(2));
        merge.take(&paths[1], block(4));
        merge.take(&paths[1], block(4));
        assert_eq!((waiting(&paths[0]), waiting(&paths[1])), (1001, 1002));
        merge.take(&paths[0], block(0));
        assert_eq!((waiting(&paths[0]), waiting(&paths[1])), (1000, 1001));
        assert_eq!(lock(&delivered).len(), 3);
        let memory = MemoryBudget::of(MemoryBudget::BYTES_MIN).channel(BLOCK).unwrap();
        merge.end(0, Some(memory));
        assert_eq!(waiting(&paths[1]), 1000, "block 4 uses other room");
    }

    #[test]
    fn after_the_end_of_a_path_the_others_get_room_within_its_memory() {
        let (mut merge, paths, delivered) = merge(3);
        let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
        // Block 0 is missing.
        (1..=60).for_each(|number| merge.take(&paths[0], block(number)));
        assert_eq!(paths[0].lock().waiting, 60);
        merge.end(1, None);
        assert_eq!(room(&paths[0]), 0, "no memory");
        let loan = budget.channel(BLOCK).unwrap();
        let blocks = loan.blocks();
        merge.end(2, Some(loan));
        assert_eq!(room(&paths[0]), blocks);
        assert!(budget.lent() >= blocks * BLOCK as usize, "{} for {blocks}", budget.lent());
        merge.take(&paths[0], block(0));
        let buffers: Vec<_> = lock(&delivered).drain(..).collect();
        assert_eq!(buffers.len(), 61);
        buffers.into_iter().for_each(|buffer| merge.recycle(buffer));
        assert_eq!(room(&paths[0]), 61, "each block once");
        assert_eq!(budget.lent(), 0);
    }

    /// A sender that closes a path and opens it again, without the block that all others wait for, must not make the
    /// receiver hold blocks that no loan covers.
    #[test]
    fn blocks_of_an_ended_path_keep_its_memory() {
        let (mut merge, mut paths, delivered) = merge(1);
        let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
        // Some are delivered, and the application has not returned them.
        let (missing, mut next) = (10, 0);
        for _ in 0..3 {
            let path = paths.pop().unwrap();
            let mut loan = budget.channel(BLOCK).unwrap();
            loan.borrow(8);
            let blocks = loan.blocks();
            for _ in 0..blocks {
                next += u32::from(next == missing);
                merge.take(&path, block(next));
                next += 1;
            }
            merge.end(0, Some(loan));
            assert_eq!(Arc::strong_count(&path), 1, "nothing keeps the descriptor of its socket");
            let held = merge.waiting.len() + lock(&delivered).len();
            assert!(budget.lent() >= held * BLOCK as usize, "{} for {held}", budget.lent());
            paths.push(Shared::of_path(&path.queue(), Wake::none()));
            merge.open.insert(0, Arc::clone(&paths[0]));
        }
        merge.take(&paths[0], block(missing));
        let buffers: Vec<_> = lock(&delivered).drain(..).collect();
        assert_eq!(buffers.len(), next as usize);
        buffers.into_iter().for_each(|buffer| merge.recycle(buffer));
        assert_eq!((room(&paths[0]), budget.lent()), (1, 0));
    }

    #[test]
    fn a_path_that_fails_leaves_its_memory() {
        let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
        let loan = budget.channel(BLOCK).unwrap();
        let (_, paths, _) = merge(1);
        let reception = Reception::new(loan, Box::new(|_| ()));
        let failed = Err(ChannelError::Broken);
        super::super::driver::end(|| Some(reception), &paths[0], Box::new(|_| ()), failed);
        assert!(budget.lent() > 0);
        drop(paths);
        assert_eq!(budget.lent(), 0);
    }

    #[test]
    fn the_paths_share_the_limit_of_the_transfer_by_use() {
        let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
        let settings =
            RateSettings { policy: sabul_cc::Policy::default(), rate_limit_bps: Some(80_000_000) };
        let handle = SenderHandle::of_paths(budget.channel(BLOCK).unwrap(), BLOCK, settings);
        let paths = handle.paths.as_ref().unwrap();
        let path = Shared::of_path(&handle.shared, Wake::none());
        lock(paths).open.insert(0, Arc::clone(&path));
        assert_eq!(lock(paths).limit.join().share_bps(), Some(80_000_000), "from the beginning");
        assert!(handle.steer_paths(settings));
        assert_eq!(path.lock().steer.unwrap().rate_limit_bps, None);
        // The first of eight paths sends, the others wait for the result of the search.
        let mut members: Vec<_> = (0..8).map(|_| lock(paths).limit.join()).collect();
        for round in 0..10 {
            let now = Instant::ZERO + Span::from_millis(100 * round);
            for (number, member) in members.iter_mut().enumerate() {
                member.update(now, if number == 0 { 1_000_000 * round } else { 0 });
            }
        }
        assert!(members[0].share_bps().unwrap() > 60_000_000, "{members:?}");
    }

    #[test]
    fn a_sending_end_returns_its_memory() {
        let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
        let settings =
            RateSettings { policy: sabul_cc::Policy::default(), rate_limit_bps: Some(1_000_000) };
        let handle = SenderHandle::of_paths(budget.channel(BLOCK).unwrap(), BLOCK, settings);
        let path = Shared::of_path(&handle.shared, Wake::none());
        lock(handle.paths.as_ref().unwrap()).open.insert(0, Arc::clone(&path));
        handle.block(handle.buffer().unwrap()).unwrap();
        handle.stop();
        drop((handle, path));
        assert_eq!(budget.lent(), 0);
    }
}
