//! The join operator: batches in, joined batches out.
//!
//! Each row goes to one of [`PARTITIONS`] by the hash of its key. An arriving row is joined with the
//! rows of the other tables in the partition, and stored while another table may still send a match.
//! Partitions share the batches of stored rows until memory is half of the budget, and then have copies of their own.
//! Over the memory budget the largest partition moves to disk with the number of its generation. After
//! the inputs [`cleanup`] joins each spilled partition: only combinations of rows from different
//! generations are missing, because rows of one generation were in memory together.

mod arrival;
mod cleanup;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take;

use self::arrival::Arrival;
use crate::error::JoinError;
use crate::keys::KeyEncoder;
use crate::partition::{Partition, batch_memory};
use crate::pending::{Pending, Sink, batch_of};
use crate::pieces::each_piece;
use crate::plan::{JoinType, Plan};
use crate::spill::{SpillFile, SpillStore, batches_of, schema_of};

/// Hash partitions. Ours: one partition is at most 1 % of evenly distributed data.
const PARTITIONS: usize = 128;

/// Most threads that join a batch. Ours: decoders and the encoder of the result need threads, too.
const THREADS_MAX: usize = 4;

/// Share of the budget that stays after a spill, so that not each batch spills again. Ours: 3/4.
const fn after_spill(budget: usize) -> usize {
    budget / 4 * 3
}

/// Counts of a join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rows that arrived, before the condition.
    pub rows_in: u64,
    /// Rows returned.
    pub rows_out: u64,
    /// Bytes written to disk, because memory was over the budget.
    pub spilled_bytes: u64,
    /// Time from the start to the first returned row.
    pub first_row: Option<Duration>,
    /// Largest estimated memory of stored rows, in bytes.
    pub memory_max: usize,
}

/// A streaming join.
#[derive(Debug)]
pub struct Join {
    plan: Arc<Plan>,
    encoder: KeyEncoder,
    hasher: RandomState,
    slots: Vec<Slot>,
    is_open: Vec<bool>,
    /// Memory of the batches of each table that the partitions share; `None` once each partition has copies.
    shared: Option<Vec<usize>>,
    budget: usize,
    spill: Option<SpillStore>,
    spill_directory: PathBuf,
    /// Joined rows of each thread.
    pending: Vec<Pending>,
    summary: Summary,
}

/// A partition: rows in memory, rows on disk.
#[derive(Debug)]
struct Slot {
    memory: Partition,
    generation: u32,
    /// Rows on disk, for each table; empty before the first spill.
    files: Vec<SpillFile>,
}

impl Join {
    /// Creates a join that keeps about `budget` bytes of rows in memory, and more rows in a file
    /// without a name in `spill_directory`.
    ///
    /// # Errors
    /// If the key types have no row format.
    pub fn new(plan: Plan, budget: usize, spill_directory: &Path) -> Result<Self, JoinError> {
        let plan = Arc::new(plan);
        let tables = plan.inputs.len();
        let slot = || Slot { memory: Partition::new(tables), generation: 0, files: Vec::new() };
        Ok(Self {
            encoder: KeyEncoder::new(plan.key_types.clone())?,
            hasher: RandomState::new(),
            slots: (0..PARTITIONS).map(|_| slot()).collect(),
            is_open: vec![true; tables],
            shared: Some(vec![0; tables]),
            budget,
            spill: None,
            spill_directory: spill_directory.to_owned(),
            pending: (0..threads()).map(|_| Pending::new(Arc::clone(&plan))).collect(),
            summary: Summary::default(),
            plan,
        })
    }

    /// Joins a batch of a table. Its columns are those of [`Plan::needed`].
    ///
    /// # Errors
    /// If the batch does not fit the plan, a key cannot be converted, or a write fails.
    pub fn push(
        &mut self,
        table: usize,
        batch: RecordBatch,
        sink: Sink<'_>,
    ) -> Result<(), JoinError> {
        self.summary.rows_in += batch.num_rows() as u64;
        each_piece(batch, &mut |piece| self.push_piece(table, piece, sink))
    }

    fn push_piece(
        &mut self,
        table: usize,
        batch: RecordBatch,
        sink: Sink<'_>,
    ) -> Result<(), JoinError> {
        let plan = Arc::clone(&self.plan);
        let input = &plan.inputs[table];
        let batch = input.filter(batch)?;
        let keys = self.encoder.encode(&batch, &input.keys)?;
        let kept = Arc::new(input.keep(&batch)?);
        let mut rows = vec![Vec::new(); PARTITIONS];
        for row in 0..batch.num_rows() {
            match keys.get(row) {
                Some(key) => {
                    let hash = self.hasher.hash_one(key.as_ref());
                    rows[partition_of(hash)].push((row, hash));
                }
                None if table == 0 && plan.kind != JoinType::Inner => {
                    self.pending[0].unmatched(&kept, row, sink)?;
                }
                None => {}
            }
        }
        let is_needed = self.is_needed(table);
        if let Some(shared) = self.shared.as_mut().filter(|_| is_needed) {
            shared[table] += batch_memory(&kept);
        }
        let arrival = Arrival {
            kind: plan.kind,
            table,
            kept: &kept,
            keys: &keys,
            rows: &rows,
            is_needed,
            is_shared: self.shared.is_some(),
        };
        arrival.join_all(&mut self.slots, &mut self.pending, sink)?;
        self.keep_budget()
    }

    /// Whether later rows of other tables may match rows of this table.
    fn is_needed(&self, table: usize) -> bool {
        self.is_open.iter().enumerate().any(|(other, is_open)| other != table && *is_open)
    }

    /// Ends a table. Rows that no later row can match leave memory.
    ///
    /// # Errors
    /// If the sink fails.
    pub fn end(&mut self, table: usize, sink: Sink<'_>) -> Result<(), JoinError> {
        self.is_open[table] = false;
        let decides = self.plan.kind != JoinType::Inner && table == 1;
        let open: Vec<_> = (0..self.is_open.len()).filter(|&table| self.is_open[table]).collect();
        for slot in self.slots.iter_mut().filter(|slot| slot.files.is_empty()) {
            if decides {
                let side = &slot.memory.sides[0];
                for (row, _) in
                    side.rows.iter().zip(&side.matched).filter(|(_, matched)| !**matched)
                {
                    let batch = &side.batches[row.batch as usize];
                    self.pending[0].unmatched(batch, row.row as usize, sink)?;
                }
                self.pending[0].flush(sink)?;
            }
            match open[..] {
                [] => slot.memory = Partition::new(self.is_open.len()),
                // The rows of the only open table wait for no other rows.
                [last] => slot.memory.clear(last),
                _ => {}
            }
        }
        match (&mut self.shared, &open[..]) {
            (Some(shared), []) => shared.fill(0),
            (Some(shared), [last]) => shared[*last] = 0,
            _ => {}
        }
        Ok(())
    }

    /// Joins the spilled partitions after the end of all tables, and returns the counts.
    ///
    /// # Errors
    /// If a table has not ended, or the disk or the sink fails.
    pub fn finish(mut self, sink: Sink<'_>) -> Result<Summary, JoinError> {
        if self.is_open.contains(&true) {
            return Err(JoinError::Source("a table has not ended".to_owned()));
        }
        for at in 0..self.slots.len() {
            if !self.slots[at].files.is_empty() {
                self.spill(at)?;
            }
        }
        for at in 0..self.slots.len() {
            let files = std::mem::take(&mut self.slots[at].files);
            if !files.is_empty() {
                self.clean(files, 0, sink)?;
            }
        }
        let rows_out = self.pending.iter().map(|it| it.rows_out).sum();
        let first_row = self.pending.iter().filter_map(|it| it.first).min();
        Ok(Summary { rows_out, first_row, ..self.summary })
    }

    /// Returns the estimated memory of all stored rows.
    fn used(&self) -> usize {
        let shared: usize = self.shared.iter().flatten().sum();
        shared + self.slots.iter().map(|slot| slot.memory.bytes()).sum::<usize>()
    }

    /// Moves the largest partitions to disk while memory is over the budget.
    fn keep_budget(&mut self) -> Result<(), JoinError> {
        let mut used = self.used();
        if used > self.budget / 2 && self.shared.take().is_some() {
            // Each copy exists beside the shared batches until the last one is made.
            self.slots.iter_mut().try_for_each(|slot| slot.memory.divide())?;
            used = self.used();
        }
        self.summary.memory_max = self.summary.memory_max.max(used);
        if used <= self.budget {
            return Ok(());
        }
        while used > after_spill(self.budget) {
            let sizes = self.slots.iter().map(|slot| slot.memory.bytes()).enumerate();
            let Some((at, bytes)) = sizes.max_by_key(|(_, bytes)| *bytes) else { break };
            self.spill(at)?;
            used -= bytes;
        }
        Ok(())
    }

    /// Moves the rows of a partition to disk, and starts a new generation.
    fn spill(&mut self, at: usize) -> Result<(), JoinError> {
        let store = match &mut self.spill {
            Some(store) => store,
            none => none.insert(SpillStore::new(&self.spill_directory)?),
        };
        let slot = &mut self.slots[at];
        if slot.files.is_empty() {
            slot.files = self.is_open.iter().map(|_| store.file()).collect();
        }
        let memory = std::mem::replace(&mut slot.memory, Partition::new(self.is_open.len()));
        slot.generation += 1;
        for ((side, file), input) in memory.sides.iter().zip(&mut slot.files).zip(&self.plan.inputs)
        {
            if side.rows.is_empty() {
                continue;
            }
            let schema = schema_of(&input.kept_schema);
            let batches = batches_of(side, &schema, |row| memory.key_of(side.rows[row]));
            self.summary.spilled_bytes += file.append(&schema, batches)?;
        }
        Ok(())
    }
}

/// Returns the threads that join a batch.
fn threads() -> usize {
    if cfg!(test) {
        return THREADS_MAX;
    }
    std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX)
}

/// Returns the partition of a hash. The index of a partition uses the other bits.
const fn partition_of(hash: u64) -> usize {
    (hash >> 40) as usize % PARTITIONS
}

/// Returns the rows at these positions.
fn rows_at(batch: &RecordBatch, at: &UInt32Array) -> Result<RecordBatch, JoinError> {
    let columns = batch.columns().iter().map(|column| take(column, at, None));
    batch_of(batch.schema(), columns.collect::<Result<_, _>>()?, at.values().len())
}
