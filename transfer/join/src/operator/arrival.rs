//! Rows of an arriving batch: joined with the stored rows of the other tables, and stored.
//!
//! Threads share the partitions of a batch. Each thread has joined rows of its own, so the order of the result depends
//! on the threads.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{RecordBatch, UInt32Array};

use super::{PARTITIONS, Slot, rows_at};
use crate::error::JoinError;
use crate::keys::Keys;
use crate::partition::Probe;
use crate::pending::{Pending, Sink};
use crate::plan::JoinType;

/// Rows of a batch that occupy one thread. Ours: about a millisecond, many times the start of a thread. The batches of
/// tests are small.
const ROWS: usize = if cfg!(test) { 4 } else { 1024 };

/// A batch of a table.
pub(super) struct Arrival<'a> {
    pub(super) kind: JoinType,
    pub(super) table: usize,
    /// Kept columns.
    pub(super) kept: &'a Arc<RecordBatch>,
    pub(super) keys: &'a Keys,
    /// Position and hash of the rows of each partition.
    pub(super) rows: &'a [Vec<(usize, u64)>],
    /// Whether later rows may match these rows.
    pub(super) is_needed: bool,
    /// Whether the partitions share the batch.
    pub(super) is_shared: bool,
}

impl Arrival<'_> {
    /// Joins the rows of all partitions.
    pub(super) fn join_all(
        &self,
        slots: &mut [Slot],
        pending: &mut [Pending],
        sink: Sink<'_>,
    ) -> Result<(), JoinError> {
        let threads = (self.kept.num_rows() / ROWS).clamp(1, pending.len());
        if threads == 1 {
            return self.join_some(slots, 0, &mut pending[0], sink);
        }
        let sink = Mutex::new(sink);
        let each = PARTITIONS.div_ceil(threads);
        std::thread::scope(|scope| {
            let parts = slots.chunks_mut(each).zip(pending).enumerate();
            let threads = parts.map(|(at, (slots, pending))| {
                let sink = &sink;
                scope.spawn(move || {
                    let mut send = |batch| {
                        let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                        sink(batch)
                    };
                    self.join_some(slots, at * each, pending, &mut send)
                })
            });
            let threads: Vec<_> = threads.collect();
            let results = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            // All threads end before the first error is returned.
            results.collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// Joins the rows of consecutive partitions, of which `first` is the number of the first.
    fn join_some(
        &self,
        slots: &mut [Slot],
        first: usize,
        pending: &mut Pending,
        sink: Sink<'_>,
    ) -> Result<(), JoinError> {
        for (slot, rows) in slots.iter_mut().zip(&self.rows[first..]) {
            if !rows.is_empty() {
                self.join(slot, rows, pending, sink)?;
            }
        }
        pending.flush(sink)
    }

    /// Joins the rows of one partition.
    fn join(
        &self,
        slot: &mut Slot,
        rows: &[(usize, u64)],
        pending: &mut Pending,
        sink: Sink<'_>,
    ) -> Result<(), JoinError> {
        let Self { kind, table, kept, keys, is_shared, .. } = *self;
        let is_stored = self.is_needed || !slot.files.is_empty();
        let batch = if is_shared {
            Arc::clone(kept)
        } else {
            let rows = rows.iter().map(|(row, _)| u32::try_from(*row).unwrap_or(u32::MAX));
            Arc::new(rows_at(kept, &UInt32Array::from_iter_values(rows))?)
        };
        let stored = match is_stored {
            false => None,
            true if is_shared => Some(slot.memory.add_shared(table, Arc::clone(&batch))?),
            true => Some(slot.memory.add_batch(table, Arc::clone(&batch))?),
        };
        for (at, &(from, hash)) in rows.iter().enumerate() {
            let Some(key) = keys.get(from) else { continue };
            let key = key.as_ref();
            let row = if is_shared { from } else { at };
            let probe = Probe { table, batch: &batch, row, generation: None };
            let entry = slot.memory.find(hash, key);
            let is_matched = match entry {
                Some(entry) => slot.memory.probe(entry, probe, kind, (pending, sink))?,
                None => false,
            };
            if let Some(stored) = stored {
                let place = (table, stored, row);
                slot.memory.add(place, (entry, hash, key), slot.generation, is_matched)?;
            } else if !is_matched && table == 0 && kind != JoinType::Inner {
                pending.unmatched(&batch, row, sink)?;
            }
        }
        Ok(())
    }
}
