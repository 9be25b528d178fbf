//! FIFO queue of transfers that wait for memory.
//!
//! There are two queues, so that a transfer opened by this side never stands before a transfer opened by a peer. The
//! opener reserves its memory before it sends the request. With one queue, two processes that request from each other
//! could wait forever.
//!
//! Invariants:  only the first of a queue takes memory; a dropped place leaves the queue at once.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use super::{BlockLoan, Pool, State};

/// The side that opened a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initiator {
    /// This side.
    Here,
    /// The peer.
    Peer,
}

/// Waiting transfers in order.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiters: VecDeque<(u64, Arc<Notify>)>,
    next: u64,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    fn join(&mut self, notified: Arc<Notify>) -> u64 {
        self.next += 1;
        self.waiters.push_back((self.next, notified));
        self.next
    }

    fn index(&self, number: u64) -> Result<usize, usize> {
        self.waiters.binary_search_by_key(&number, |(number, _)| *number)
    }

    fn leave(&mut self, number: u64) {
        if let Ok(index) = self.index(number) {
            self.waiters.remove(index);
        }
    }

    /// Wakes the first, because there may be memory now.
    pub(super) fn wake_first(&self) {
        if let Some((_, notified)) = self.waiters.front() {
            notified.notify_one();
        }
    }
}

/// A place in the queue; dropping the value leaves the queue.
#[derive(Debug)]
pub(crate) struct QueuePosition {
    pool: Arc<Pool>,
    initiator: Initiator,
    number: u64,
    notified: Arc<Notify>,
}

impl QueuePosition {
    /// Appends a place to the queue.
    pub(super) fn last(pool: &Arc<Pool>, initiator: Initiator) -> Self {
        let notified = Arc::<Notify>::default();
        let number = pool.lock().line(initiator).join(Arc::clone(&notified));
        Self { pool: Arc::clone(pool), initiator, number, notified }
    }

    /// Lends memory for a channel endpoint, in blocks of at most `block_bytes`, if this place is first and there is
    /// enough. Otherwise returns the position, from 1.
    pub(crate) fn take(&self, block_bytes: u32) -> Result<BlockLoan, usize> {
        let mut state = self.pool.lock();
        let index = self.place(&mut state);
        if index > 1 {
            return Err(index);
        }
        self.pool.lend(&mut state, block_bytes, self.initiator).map_err(|_| index)
    }

    /// Waits until this place may have become first or memory may be free.
    pub(crate) async fn notified(&self) {
        self.notified.notified().await;
    }

    fn place(&self, state: &mut State) -> usize {
        let (Ok(index) | Err(index)) = state.line(self.initiator).index(self.number);
        index + 1
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.line(self.initiator).leave(self.number);
        state.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::budget::{BLOCKS_LEAST, END_LEAST, MemoryBudget, SESSION_BYTES, Tally};

    const BLOCK: u32 = 1 << 20;

    /// The smallest budget, and loans that leave no memory for another endpoint.
    fn full() -> (MemoryBudget, Vec<BlockLoan>) {
        let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
        let mut loans = Vec::new();
        while let Ok(loan) = budget.channel(BLOCK) {
            loans.push(loan);
        }
        assert!(loans.len() > 8, "{}", loans.len());
        (budget, loans)
    }

    fn places(line: &[QueuePosition]) -> Vec<usize> {
        line.iter().map(|place| place.take(BLOCK).unwrap_err()).collect()
    }

    #[test]
    fn waiting_transfers_get_memory_in_order_of_arrival() {
        let (budget, mut loans) = full();
        let mut line: Vec<_> = (0..4).map(|_| budget.line_up(Initiator::Peer)).collect();
        assert_eq!(places(&line), [1, 2, 3, 4]);
        loans.pop();
        assert_eq!(line[1].take(BLOCK).unwrap_err(), 2, "there is memory, and it is not its turn");
        let first = line.remove(0);
        let served = first.take(BLOCK).unwrap();
        drop(first);
        assert_eq!(places(&line), [1, 2, 3]);
        drop(served);
        assert!(line[0].take(BLOCK).is_ok());
    }

    #[test]
    fn a_dropped_waiting_place_is_removed_from_the_line() {
        let (budget, _loans) = full();
        let mut line: Vec<_> = (0..5).map(|_| budget.line_up(Initiator::Peer)).collect();
        line.remove(2);
        line.remove(0);
        assert_eq!(places(&line), [1, 2, 3]);
        drop(line);
        assert_eq!(budget.pool.lock().waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_waiter_is_woken_when_memory_returns_or_it_becomes_first() {
        let (budget, mut loans) = full();
        let (first, second) = (budget.line_up(Initiator::Peer), budget.line_up(Initiator::Peer));
        let soon = |place: &QueuePosition| {
            let notified = Arc::clone(&place.notified);
            async move { tokio::time::timeout(Duration::from_millis(1), notified.notified()).await }
        };
        assert!(soon(&first).await.is_err(), "nothing has changed");
        loans.pop();
        assert!(soon(&first).await.is_ok());
        assert!(soon(&second).await.is_err());
        drop(first);
        assert!(soon(&second).await.is_ok());
        assert!(second.take(BLOCK).is_ok());
    }

    #[test]
    fn while_a_transfer_waits_no_loan_grows_and_all_shrink() {
        let budget = MemoryBudget::of(64 << 20);
        let mut rich = budget.channel(BLOCK).unwrap();
        while rich.borrow(rich.blocks()) > 0 {}
        let mut others = Vec::new();
        while let Ok(loan) = budget.channel(BLOCK) {
            others.push(loan);
        }
        let place = budget.line_up(Initiator::Peer);
        assert_eq!(place.take(BLOCK).unwrap_err(), 1);
        assert_eq!(rich.borrow(1), 0);
        rich.give_back(rich.excess());
        let (share, bytes) = ((56 << 20) / (others.len() + 2), BLOCK as usize);
        assert!(rich.blocks() <= (share / bytes).max(BLOCKS_LEAST), "{}", rich.blocks());
        assert!(place.take(BLOCK).is_ok());
    }

    #[test]
    fn local_transfers_leave_memory_for_the_first_request_of_a_peer() {
        let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
        let own = budget.line_up(Initiator::Here);
        let mut loans = Vec::new();
        while let Ok(loan) = own.take(BLOCK) {
            loans.push(loan);
        }
        // Sessions and queues also take all memory that they can get.
        let mut sessions = Vec::new();
        while let Ok(session) = budget.session() {
            sessions.push(session);
        }
        let tally = Tally::new(&budget);
        while tally.add(SESSION_BYTES).is_ok() {}
        assert!(budget.bytes() - budget.lent() >= END_LEAST);
        let place = budget.line_up(Initiator::Peer);
        let served = place.take(BLOCK).unwrap();
        assert!(place.take(BLOCK).is_err(), "one, and no more");
        drop(served);
        assert!(place.take(BLOCK).is_ok(), "and the next after it");
    }
}
