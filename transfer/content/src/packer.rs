//! Block packer of the sender: fills blocks with file data and with the table that describes the
//! data.
//!
//! ```text
//! record, begin, fill … until is_full; then take, and give a buffer for the next block
//! ```
//! Invariants: no block exceeds its maximum size; each data byte of a block is described by the
//! table of the same block; other records may be split and continue in the next block's table.

use sabul_wire::block::{BLOCK_END, MAX_PART, Record, end_block};

/// Packs the blocks of one transfer.
#[derive(Debug)]
pub struct Packer {
    /// Maximum block size in bytes.
    block_bytes: usize,
    /// Data of the current block; has no capacity until [`Packer::give`] supplies a buffer.
    block: Vec<u8>,
    /// Encoded records that are not in a block yet.
    table: Vec<u8>,
    /// The part that is being filled; not in the table yet.
    part: Option<Part>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    index: u64,
    offset: u64,
    bytes: u64,
    /// The part is written to the table even if it has no bytes.
    is_news: bool,
}

impl Packer {
    /// Minimum block size in bytes.
    pub const BLOCK_MIN: usize = BLOCK_END + MAX_PART + 1;

    /// Creates a packer for blocks of at most `block_bytes` bytes.
    ///
    /// # Panics
    /// Below [`Self::BLOCK_MIN`].
    pub fn new(block_bytes: usize) -> Self {
        assert!(block_bytes >= Self::BLOCK_MIN, "a block has room for data");
        Self { block_bytes, block: Vec::new(), table: Vec::new(), part: None }
    }

    /// Whether no data and no record are pending.
    pub fn is_empty(&self) -> bool {
        let is_reported = self.part.is_none_or(|part| part.bytes == 0 && !part.is_news);
        self.block.is_empty() && self.table.is_empty() && is_reported
    }

    /// Whether [`Self::give`] must be called before data is filled in or a block is taken.
    pub const fn needs_buffer(&self) -> bool {
        self.block.capacity() == 0
    }

    /// Supplies the buffer of the next block.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        // The callback of `fill` appends into capacity that must already be allocated.
        buffer.clear();
        buffer.reserve_exact(self.block_bytes);
        self.block = buffer;
    }

    /// Whether the block must be taken before more data is filled in. After a record, check this
    /// first.
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Remaining room for data, in bytes.
    fn room(&self) -> usize {
        let part = if self.part.is_some() { MAX_PART } else { 0 };
        let rest = self.block_bytes.saturating_sub(BLOCK_END + self.table.len() + part);
        rest.saturating_sub(self.block.len())
    }

    /// Appends a record other than a part to the table.
    ///
    /// # Panics
    /// If the record exceeds the size limits of entries and failures.
    pub fn record(&mut self, record: &Record) {
        self.end_part();
        record.encode(&mut self.table).expect("a record keeps its limits");
    }

    /// Starts a part: the next data is content of the entry announced last, from `offset` on. A
    /// part with an offset above zero is recorded even if it stays empty.
    pub fn begin(&mut self, index: u64, offset: u64) {
        self.end_part();
        self.part = Some(Part { index, offset, bytes: 0, is_news: offset > 0 });
    }

    /// Appends at most `most` bytes that `read` adds to the block, and returns the appended bytes.
    /// Returns an empty slice if the block is full or no part was started.
    ///
    /// # Errors
    /// Returns the error of `read`; the block is then unchanged.
    pub fn fill<E>(
        &mut self,
        most: u64,
        read: impl FnOnce(&mut Vec<u8>, usize) -> Result<(), E>,
    ) -> Result<&[u8], E> {
        let start = self.block.len();
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(self.room());
        let Some(part) = self.part.as_mut().filter(|_| most > 0) else { return Ok(&[]) };
        let result = read(&mut self.block, most);
        self.block.truncate(if result.is_ok() { start + most } else { start });
        result?;
        part.bytes += (self.block.len() - start) as u64;
        Ok(&self.block[start..])
    }

    fn end_part(&mut self) {
        if let Some(Part { index, offset, bytes, is_news }) = self.part.take()
            && (bytes > 0 || is_news)
        {
            let part = Record::Part { index, offset, bytes };
            part.encode(&mut self.table).expect("a part is short");
        }
    }

    /// Returns the block filled so far. The current part continues in the next block.
    ///
    /// # Panics
    /// Without a buffer.
    pub fn take(&mut self) -> Vec<u8> {
        assert!(!self.needs_buffer(), "a buffer was given");
        let part = self.part;
        self.end_part();
        self.part = part.map(|part| {
            let offset = part.offset + part.bytes;
            Part { index: part.index, offset, bytes: 0, is_news: false }
        });
        let mut block = std::mem::take(&mut self.block);
        let data = block.len();
        let room = self.block_bytes - BLOCK_END - data;
        let rest = self.table.split_off(room.min(self.table.len()));
        end_block(&mut block, data, &self.table);
        self.table = rest;
        block
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use sabul_wire::block::{Records, split_block};
    use sabul_wire::control::{Entry, EntryKind};

    use super::*;

    const BLOCK_BYTES: usize = 100;

    fn entry(name: usize) -> Record {
        let path = vec![b'n'; name];
        let kind = EntryKind::File(250);
        Record::Entry(Entry { path, kind, mode: None, modified_ns: None, more: None })
    }

    /// Takes blocks while they are full.
    fn send(packer: &mut Packer, blocks: &mut Vec<Vec<u8>>) {
        while packer.is_full() {
            flush(packer, blocks);
        }
    }

    fn flush(packer: &mut Packer, blocks: &mut Vec<Vec<u8>>) {
        if packer.needs_buffer() {
            packer.give(vec![9; 3]);
        }
        let block = packer.take();
        assert!(block.len() <= BLOCK_BYTES, "{}", block.len());
        blocks.push(block);
    }

    fn fill(packer: &mut Packer, mut content: &[u8], blocks: &mut Vec<Vec<u8>>) {
        while !content.is_empty() {
            send(packer, blocks);
            if packer.needs_buffer() {
                packer.give(Vec::new());
            }
            let read = |into: &mut Vec<u8>, most: usize| {
                assert!(most > 0);
                into.extend_from_slice(content);
                Ok::<_, Infallible>(())
            };
            let filled = packer.fill(content.len() as u64, read).unwrap().len();
            content = &content[filled..];
        }
    }

    /// Decodes blocks into records, each with the data of its part.
    fn said(blocks: &[Vec<u8>]) -> Vec<(Record, Vec<u8>)> {
        let (mut records, mut said) = (Records::default(), Vec::new());
        for block in blocks {
            let (mut data, mut table) = split_block(block).unwrap();
            while let Some(record) = records.next(&mut table).unwrap() {
                let bytes = match record {
                    Record::Part { bytes, .. } => usize::try_from(bytes).unwrap(),
                    _ => 0,
                };
                let (now, rest) = data.split_at(bytes);
                said.push((record, now.to_vec()));
                data = rest;
            }
            assert!(data.is_empty(), "all data is in a part");
        }
        assert_eq!(records.begun_bytes(), 0);
        said
    }

    #[test]
    fn content_and_names_of_any_length_round_trip_through_blocks() {
        let content: Vec<u8> = (0..250).collect();
        for name in 0..300 {
            let (mut packer, mut blocks) = (Packer::new(BLOCK_BYTES), Vec::new());
            for index in 0..3 {
                packer.record(&entry(name));
                send(&mut packer, &mut blocks);
                packer.begin(index, 0);
                fill(&mut packer, &content[..name.min(250)], &mut blocks);
                packer.record(&Record::End { index, outcome: Ok([1; 32]) });
                send(&mut packer, &mut blocks);
            }
            while !packer.is_empty() {
                flush(&mut packer, &mut blocks);
            }
            let said = said(&blocks);
            let parts = |index| {
                let mut found = Vec::new();
                for (record, data) in &said {
                    if let Record::Part { index: it, offset, .. } = record
                        && *it == index
                    {
                        assert_eq!(*offset, found.len() as u64);
                        assert!(!data.is_empty());
                        found.extend_from_slice(data);
                    }
                }
                found
            };
            assert!((0..3).all(|index| parts(index) == content[..name.min(250)]), "{name}");
            let others = said.iter().filter(|(record, _)| !matches!(record, Record::Part { .. }));
            assert_eq!(others.count(), 6, "{name}");
        }
    }

    #[test]
    fn a_nonzero_start_offset_is_recorded_once_even_without_bytes() {
        let (mut packer, mut blocks) = (Packer::new(BLOCK_BYTES), Vec::new());
        packer.begin(7, 250);
        assert!(!packer.is_empty());
        flush(&mut packer, &mut blocks);
        assert!(packer.is_empty());
        packer.begin(8, 0);
        assert!(packer.is_empty());
        packer.begin(9, 5);
        fill(&mut packer, &[1; 100], &mut blocks);
        flush(&mut packer, &mut blocks);
        let said: Vec<_> = said(&blocks).into_iter().map(|(record, _)| record).collect();
        let first = BLOCK_BYTES as u64 - (BLOCK_END + MAX_PART) as u64;
        let expected = [
            Record::Part { index: 7, offset: 250, bytes: 0 },
            Record::Part { index: 9, offset: 5, bytes: first },
            Record::Part { index: 9, offset: 5 + first, bytes: 100 - first },
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn failed_reads_leave_no_bytes_and_excess_bytes_are_dropped() {
        let mut packer = Packer::new(BLOCK_BYTES);
        packer.give(Vec::new());
        packer.begin(0, 0);
        let broken = packer.fill(9, |into, _| {
            into.extend([7; 5]);
            Err("broken")
        });
        assert_eq!(broken, Err("broken"));
        assert!(packer.is_empty());
        let filled = packer.fill(9, |into, _| {
            into.extend([7; 50]);
            Ok::<_, Infallible>(())
        });
        assert_eq!(filled.unwrap(), [7; 9]);
        let said = said(&[packer.take()]);
        assert_eq!(said, [(Record::Part { index: 0, offset: 0, bytes: 9 }, vec![7; 9])]);
    }
}
