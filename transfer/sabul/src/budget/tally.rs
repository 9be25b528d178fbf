//! Byte counter with borrowed memory, for needs that vary in small steps: queues of the control
//! connection, and entries that wait for their content.

use std::sync::{Arc, Mutex, MutexGuard};

use super::{MemoryBudget, NoMemory, Pool};
use crate::lock::lock;

/// Bytes that each tally may hold without borrowing; part of the loan of its session or channel
/// endpoint.
const ALLOWANCE: usize = 16 << 10;
/// Step of borrowing and returning, in bytes; large steps spare the lock of the pool.
const STEP: usize = 64 << 10;

/// Counts held bytes and borrows the memory for them; dropping the value returns all.
#[derive(Debug)]
pub(crate) struct Tally {
    pool: Arc<Pool>,
    state: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    bytes: usize,
    /// A multiple of [`STEP`].
    borrowed: usize,
}

impl Tally {
    pub(crate) fn new(budget: &MemoryBudget) -> Self {
        Self { pool: Arc::clone(&budget.pool), state: Mutex::default() }
    }

    /// Adds held bytes.
    ///
    /// # Errors
    /// If the pool has no memory left; the bytes must not be held then.
    pub(crate) fn add(&self, bytes: usize) -> Result<(), NoMemory> {
        let mut held = self.lock();
        let total = held.bytes.saturating_add(bytes);
        let needed = total.saturating_sub(ALLOWANCE).div_ceil(STEP) * STEP;
        if needed > held.borrowed {
            self.pool.take(&mut self.pool.lock(), needed - held.borrowed)?;
            held.borrowed = needed;
        }
        held.bytes = total;
        Ok(())
    }

    /// Adds bytes that are held as long as the returned value exists.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, NoMemory> {
        self.add(bytes)?;
        Ok(Held { bytes, tally: Arc::clone(self) })
    }

    /// Removes held bytes.
    pub(crate) fn remove(&self, bytes: usize) {
        let mut held = self.lock();
        held.bytes = held.bytes.saturating_sub(bytes);
        let needed = held.bytes.saturating_sub(ALLOWANCE).div_ceil(STEP) * STEP;
        // One step is kept while any bytes are held, so that a queue that fills and drains borrows
        // only once.
        let kept = if held.bytes == 0 { 0 } else { needed + STEP };
        if held.borrowed > kept {
            let mut state = self.pool.lock();
            state.lent -= held.borrowed - kept;
            state.wake();
            held.borrowed = kept;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        lock(&self.state)
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let borrowed = self.lock().borrowed;
        let mut state = self.pool.lock();
        state.lent -= borrowed;
        state.wake();
    }
}

/// Held bytes of a tally; dropping the value removes them.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: usize,
    tally: Arc<Tally>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.tally.remove(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::END_LEAST;

    #[test]
    fn a_tally_borrows_its_bytes_in_steps_and_returns_them() {
        let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
        let tally = Tally::new(&budget);
        tally.add(ALLOWANCE).unwrap();
        assert_eq!(budget.lent(), 0);
        tally.add(1).unwrap();
        assert_eq!(budget.lent(), STEP);
        tally.add(10 * STEP).unwrap();
        assert_eq!(budget.lent(), 11 * STEP);
        tally.remove(9 * STEP);
        assert_eq!(budget.lent(), 3 * STEP, "what it needs and one step");
        tally.remove(STEP + 1 + ALLOWANCE);
        assert_eq!(budget.lent(), 0);
        tally.add(STEP * 4).unwrap();
        drop(tally);
        assert_eq!(budget.lent(), 0);
    }

    #[test]
    fn a_tally_fails_if_the_pool_has_no_memory() {
        let budget = MemoryBudget::of(MemoryBudget::BYTES_MIN);
        let (one, other) = (Tally::new(&budget), Tally::new(&budget));
        one.add(MemoryBudget::BYTES_MIN - END_LEAST).unwrap();
        assert!(budget.bytes() - budget.lent() < END_LEAST + STEP, "all but for one transfer");
        other.add(ALLOWANCE).unwrap();
        other.add(1).unwrap_err();
        one.add(STEP).unwrap_err();
        one.remove(2 * STEP);
        other.add(1).unwrap();
        assert!(budget.lent() <= budget.bytes());
    }
}
