//! One hash partition in memory: rows of all tables, and an index from key to rows.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_select::interleave::interleave;
use hashbrown::HashTable;

use crate::error::JoinError;
use crate::pending::{Pending, Sink, batch_of};
use crate::plan::JoinType;

/// End of a chain of rows.
const NONE: u32 = u32::MAX;

/// Memory of a row beside its columns, in bytes: [`Row`], mark, and slack of vectors. Ours.
const ROW_COST: usize = 40;

/// Memory of a key beside its bytes: hash, end, heads, index, and slack of vectors. Ours.
const ENTRY_COST: usize = 56;

/// Memory of a column of a batch beside its buffers. Ours.
const COLUMN_COST: usize = 64;

/// Rows of one partition.
#[derive(Debug)]
pub(crate) struct Partition {
    index: HashTable<u32>,
    hashes: Vec<u64>,
    key_bytes: Vec<u8>,
    key_ends: Vec<usize>,
    /// Newest row of each table with a key, at `entry * tables + table`.
    heads: Vec<u32>,
    pub(crate) sides: Vec<Side>,
}

/// Rows of one table.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub(crate) batches: Vec<Arc<RecordBatch>>,
    pub(crate) rows: Vec<Row>,
    /// Whether each row had a match; only for the first table.
    pub(crate) matched: Vec<bool>,
    /// Estimated memory.
    bytes: usize,
}

/// A stored row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) batch: u32,
    pub(crate) row: u32,
    /// Next older row of the same table and key.
    next: u32,
    entry: u32,
    /// Rows of one partition and one generation were in memory together, so they are joined already.
    pub(crate) generation: u32,
}

/// A row that is compared with the stored rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe<'a> {
    pub(crate) table: usize,
    pub(crate) batch: &'a Arc<RecordBatch>,
    pub(crate) row: usize,
    /// Generation of the row if combinations of a single generation are joined already.
    pub(crate) generation: Option<u32>,
}

impl Partition {
    pub(crate) fn new(tables: usize) -> Self {
        Self {
            index: HashTable::new(),
            hashes: Vec::new(),
            key_bytes: Vec::new(),
            key_ends: Vec::new(),
            heads: Vec::new(),
            sides: (0..tables).map(|_| Side::default()).collect(),
        }
    }

    /// Returns the estimated memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let rows: usize = self.sides.iter().map(|side| side.bytes).sum();
        rows + self.key_bytes.len() + self.hashes.len() * ENTRY_COST
    }

    pub(crate) fn key(&self, entry: u32) -> &[u8] {
        let at = entry as usize;
        let start = if at == 0 { 0 } else { self.key_ends[at - 1] };
        &self.key_bytes[start..self.key_ends[at]]
    }

    pub(crate) fn key_of(&self, row: Row) -> &[u8] {
        self.key(row.entry)
    }

    /// Returns the entry of a key.
    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.index.find(hash, |&entry| self.key(entry) == key).copied()
    }

    /// Adds a key that [`Self::find`] does not find.
    fn add_key(&mut self, hash: u64, key: &[u8]) -> Result<u32, JoinError> {
        let entry = position(self.hashes.len())?;
        self.hashes.push(hash);
        self.key_bytes.extend_from_slice(key);
        self.key_ends.push(self.key_bytes.len());
        self.heads.resize(self.heads.len() + self.sides.len(), NONE);
        let hashes = &self.hashes;
        self.index.insert_unique(hash, entry, |&entry| hashes[entry as usize]);
        Ok(entry)
    }

    /// Stores the columns of rows that are added next, as a batch of this partition alone; returns the position of the
    /// batch.
    pub(crate) fn add_batch(
        &mut self,
        table: usize,
        batch: Arc<RecordBatch>,
    ) -> Result<u32, JoinError> {
        self.sides[table].bytes += batch_memory(&batch);
        self.add_shared(table, batch)
    }

    /// Stores a batch that has rows of other partitions, too, and does not count as memory of this partition.
    pub(crate) fn add_shared(
        &mut self,
        table: usize,
        batch: Arc<RecordBatch>,
    ) -> Result<u32, JoinError> {
        let side = &mut self.sides[table];
        side.batches.push(batch);
        position(side.batches.len() - 1)
    }

    /// Copies the rows of shared batches into one batch of this partition for each table.
    pub(crate) fn divide(&mut self) -> Result<(), JoinError> {
        for side in &mut self.sides {
            let Some(first) = side.batches.first() else { continue };
            let schema = first.schema();
            let places: Vec<_> =
                side.rows.iter().map(|row| (row.batch as usize, row.row as usize)).collect();
            let columns = (0..schema.fields().len()).map(|column| {
                let arrays: Vec<&dyn Array> =
                    side.batches.iter().map(|batch| batch.column(column).as_ref()).collect();
                interleave(&arrays, &places)
            });
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let own = Arc::new(batch_of(schema, columns, places.len())?);
            side.bytes += batch_memory(&own);
            side.batches = vec![own];
            for (at, row) in side.rows.iter_mut().enumerate() {
                (row.batch, row.row) = (0, position(at)?);
            }
        }
        Ok(())
    }

    /// Adds a row of a stored batch. `entry` is the result of [`Self::find`] for its key.
    pub(crate) fn add(
        &mut self,
        (table, batch, row): (usize, u32, usize),
        (entry, hash, key): (Option<u32>, u64, &[u8]),
        generation: u32,
        is_matched: bool,
    ) -> Result<(), JoinError> {
        let entry = entry.map_or_else(|| self.add_key(hash, key), Ok)?;
        let head = entry as usize * self.sides.len() + table;
        let side = &mut self.sides[table];
        let at = position(side.rows.len())?;
        let next = std::mem::replace(&mut self.heads[head], at);
        side.rows.push(Row { batch, row: position(row)?, next, entry, generation });
        if table == 0 {
            side.matched.push(is_matched);
        }
        side.bytes += ROW_COST;
        Ok(())
    }

    /// Joins a row with the stored rows of the other tables. Returns whether a combination exists
    /// whose rows are not of one generation.
    pub(crate) fn probe(
        &mut self,
        entry: u32,
        probe: Probe<'_>,
        kind: JoinType,
        (pending, sink): (&mut Pending, Sink<'_>),
    ) -> Result<bool, JoinError> {
        let tables = self.sides.len();
        let heads = &self.heads[entry as usize * tables..][..tables];
        if (0..tables).any(|table| table != probe.table && heads[table] == NONE) {
            return Ok(false);
        }
        let mut current = heads.to_vec();
        let mut found = false;
        loop {
            let others = (0..tables).filter(|&table| table != probe.table);
            let is_joined = probe.generation.is_some_and(|generation| {
                others.clone().all(|table| {
                    self.sides[table].rows[current[table] as usize].generation == generation
                })
            });
            if !is_joined {
                found = true;
                if probe.table > 0
                    && let Some(matched) = self.sides[0].matched.get_mut(current[0] as usize)
                {
                    *matched = true;
                }
                if kind != JoinType::Anti {
                    for table in others {
                        let side = &self.sides[table];
                        let row = side.rows[current[table] as usize];
                        let batch = &side.batches[row.batch as usize];
                        pending.pick(table, batch, row.row as usize);
                    }
                    pending.pick(probe.table, probe.batch, probe.row);
                    pending.complete(sink)?;
                } else if probe.table == 0 {
                    return Ok(true);
                }
            }
            if !self.advance(entry, probe.table, &mut current) {
                return Ok(found);
            }
        }
    }

    /// Moves to the next combination of rows; returns whether one exists.
    fn advance(&self, entry: u32, fixed: usize, current: &mut [u32]) -> bool {
        let tables = self.sides.len();
        for table in (0..tables).rev().filter(|&table| table != fixed) {
            let next = self.sides[table].rows[current[table] as usize].next;
            if next != NONE {
                current[table] = next;
                return true;
            }
            current[table] = self.heads[entry as usize * tables + table];
        }
        false
    }

    /// Removes the rows of a table.
    pub(crate) fn clear(&mut self, table: usize) {
        let tables = self.sides.len();
        self.sides[table] = Side::default();
        self.heads.iter_mut().skip(table).step_by(tables).for_each(|head| *head = NONE);
    }
}

/// Returns the estimated memory of a stored batch. Batches can be small: the parts of an arriving batch, or few rows that
/// satisfy a condition.
pub(crate) fn batch_memory(batch: &RecordBatch) -> usize {
    batch.get_array_memory_size() + (batch.num_columns() + 1) * COLUMN_COST
}

/// Returns a position as 32 bits. A partition is far smaller, or its budget is.
fn position(at: usize) -> Result<u32, JoinError> {
    u32::try_from(at).ok().filter(|&at| at != NONE).ok_or_else(|| {
        JoinError::Table(
            "a partition has more than 4 billion rows; use a smaller --memory".to_owned(),
        )
    })
}

/// Returns the memory that a batch of spilled rows needs in a partition. The batch has the key as a
/// column, and its buffers can be parts of larger buffers.
pub(crate) fn memory_of(batch: &RecordBatch) -> usize {
    let sizes = batch.columns().iter().map(|column| {
        column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
    });
    sizes.sum::<usize>() + batch.num_rows() * (ROW_COST + ENTRY_COST)
}
