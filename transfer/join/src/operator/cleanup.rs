//! Join of a spilled partition after the end of the inputs.
//!
//! A partition within the budget is joined by one hash table. A larger partition is split by another
//! hash. A partition that does not split, such as one key, is joined by nested blocks: for each block
//! of the other tables the first table is read once.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use arrow_array::UInt32Array;

use super::{Join, rows_at};
use crate::error::JoinError;
use crate::partition::{Partition, Probe};
use crate::pending::Sink;
use crate::plan::JoinType;
use crate::spill::{SpillFile, Spilled, schema_of};

/// Parts of a split. Ours: with two levels 256 parts of a partition that is 1/128 of the data.
const PARTS: usize = 16;

/// Levels of splits before nested blocks. Ours.
const LEVELS: u32 = 4;

impl Join {
    /// Joins the rows of a spilled partition.
    pub(super) fn clean(
        &mut self,
        files: Vec<SpillFile>,
        level: u32,
        sink: Sink<'_>,
    ) -> Result<(), JoinError> {
        let is_inner = self.plan.kind == JoinType::Inner;
        if files[0].rows == 0 || (is_inner && files.iter().any(|file| file.rows == 0)) {
            return Ok(());
        }
        let bytes: usize = files[1..].iter().map(|file| file.bytes).sum();
        if bytes > self.budget && level < LEVELS {
            let parts = self.split(&files, level)?;
            files.iter().for_each(SpillFile::remove);
            for part in parts {
                let size: usize = part[1..].iter().map(|file| file.bytes).sum();
                // One key, or few: another hash does not make the part smaller.
                let next = if size > bytes / 10 * 9 { LEVELS } else { level + 1 };
                self.clean(part, next, sink)?;
            }
            return Ok(());
        }
        let mut matched = vec![false; if is_inner { 0 } else { files[0].rows }];
        self.blocks(&files, &mut Vec::new(), &mut matched, sink)?;
        if !is_inner {
            self.decide(&files[0], &matched, sink)?;
        }
        files.iter().for_each(SpillFile::remove);
        Ok(())
    }

    /// Divides the rows of each table into parts by a hash of this level.
    fn split(&mut self, files: &[SpillFile], level: u32) -> Result<Vec<Vec<SpillFile>>, JoinError> {
        let Some(store) = self.spill.clone() else { return Ok(Vec::new()) };
        let mut parts: Vec<Vec<SpillFile>> =
            (0..PARTS).map(|_| files.iter().map(|_| store.file()).collect()).collect();
        for (table, file) in files.iter().enumerate() {
            let schema = schema_of(&self.plan.inputs[table].kept_schema);
            file.read_whole(|batch, keys| {
                let mut rows = vec![Vec::new(); PARTS];
                for (row, key) in (0_u32..).zip(keys.iter()) {
                    let hash = self.hasher.hash_one((level, key.unwrap_or_default()));
                    rows[(hash >> 32) as usize % PARTS].push(row);
                }
                for (part, rows) in
                    rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty())
                {
                    let batch = rows_at(batch, &UInt32Array::from(rows))?;
                    self.summary.spilled_bytes +=
                        parts[part][table].append(&schema, [Ok(batch)])?;
                }
                Ok(())
            })?;
        }
        Ok(parts)
    }

    /// Joins each combination of blocks of the tables after the first with the first table. `chosen`
    /// has the blocks of the tables so far.
    fn blocks(
        &mut self,
        files: &[SpillFile],
        chosen: &mut Vec<Vec<Spilled>>,
        matched: &mut [bool],
        sink: Sink<'_>,
    ) -> Result<(), JoinError> {
        let table = chosen.len() + 1;
        let Some(file) = files.get(table) else {
            return self.scan(&files[0], chosen, matched, sink);
        };
        let limit = self.budget / (files.len() - 1);
        let (mut block, mut bytes) = (Vec::new(), 0);
        file.read(|spilled| {
            bytes += spilled.bytes;
            block.push(spilled);
            if bytes > limit {
                bytes = 0;
                chosen.push(std::mem::take(&mut block));
                self.blocks(files, chosen, matched, sink)?;
                chosen.pop();
            }
            Ok(())
        })?;
        if !block.is_empty() {
            chosen.push(block);
            self.blocks(files, chosen, matched, sink)?;
            chosen.pop();
        }
        Ok(())
    }

    /// Joins the first table with these blocks of the other tables.
    fn scan(
        &mut self,
        first: &SpillFile,
        chosen: &[Vec<Spilled>],
        matched: &mut [bool],
        sink: Sink<'_>,
    ) -> Result<(), JoinError> {
        let mut memory = Partition::new(self.plan.inputs.len());
        for (table, block) in (1..).zip(chosen) {
            for spilled in block {
                let batch = memory.add_batch(table, Arc::clone(&spilled.batch))?;
                for row in 0..spilled.batch.num_rows() {
                    let key = spilled.keys.value(row);
                    let hash = self.hasher.hash_one(key);
                    let generation = spilled.generations.value(row);
                    let entry = memory.find(hash, key);
                    memory.add((table, batch, row), (entry, hash, key), generation, false)?;
                }
            }
        }
        let kind = self.plan.kind;
        let mut before = 0;
        first.read(|spilled| {
            for row in 0..spilled.batch.num_rows() {
                let key = spilled.keys.value(row);
                let Some(entry) = memory.find(self.hasher.hash_one(key), key) else { continue };
                let generation = Some(spilled.generations.value(row));
                let probe = Probe { table: 0, batch: &spilled.batch, row, generation };
                let is_matched = memory.probe(entry, probe, kind, (&mut self.pending[0], sink))?;
                if let Some(matched) = matched.get_mut(before + row) {
                    *matched |= is_matched;
                }
            }
            before += spilled.batch.num_rows();
            self.pending[0].flush(sink)
        })
    }

    /// Returns the rows of the first table without a match.
    fn decide(
        &mut self,
        first: &SpillFile,
        matched: &[bool],
        sink: Sink<'_>,
    ) -> Result<(), JoinError> {
        let mut matched = matched.iter();
        first.read(|spilled| {
            for (row, now) in (0..spilled.batch.num_rows()).zip(matched.by_ref()) {
                if !now && !spilled.matched.value(row) {
                    self.pending[0].unmatched(&spilled.batch, row, sink)?;
                }
            }
            self.pending[0].flush(sink)
        })
    }
}
