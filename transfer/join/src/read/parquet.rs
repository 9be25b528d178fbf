//! Parquet: the footer, then column chunks of needed columns by row group.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use bytes::{Buf as _, Bytes};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::FOOTER_SIZE;
use parquet::file::metadata::{FooterTail, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::footer;
use super::pages::Pages;
use super::part::{Consumer, PART_MAX, check_rows, guarded, project};
use super::ranges::Ranges;
use crate::error::JoinError;

/// Bytes read first from the end of a file, at least and at most, and their part of the file. Ours: holds the footer of
/// most files, because that of a large file with a hundred columns is about this part.
const TAIL: u64 = 64 << 10;
const TAIL_MAX: u64 = 2 << 20;
const TAIL_PART: u64 = 8192;
/// Memory of a footer: this part of the budget of rows, and the least limit. Ours: a chunk of a column needs about 600
/// bytes, so 128 MiB are for 200,000 chunks.
const FOOTER_PART: usize = 4;
const FOOTER_MIN: usize = 128 << 20;
/// Largest gap between two column chunks that are read as one range. Ours: far below rate times RTT of
/// a path for which a range of its own costs less.
const GAP: u64 = 64 << 10;

/// A Parquet file: its footer, and the ranges of its column chunks.
#[derive(Clone, Debug)]
pub struct ParquetFile {
    metadata: ArrowReaderMetadata,
    size: u64,
}

/// Column chunks of a row group in memory.
#[derive(Clone, Debug)]
pub struct Chunks {
    size: u64,
    parts: Vec<(u64, Bytes)>,
}

/// Returns the range at the end of a file of this size that [`ParquetFile::open`] reads first.
pub fn parquet_tail(size: u64) -> Range<u64> {
    let bytes = (size / TAIL_PART).clamp(TAIL, TAIL_MAX);
    size.saturating_sub(bytes)..size
}

impl ParquetFile {
    /// Reads the footer. `budget` is the memory of the rows of the join, in bytes; a footer may need a quarter of it, and
    /// 128 MiB.
    ///
    /// # Errors
    /// If the file is not Parquet, cannot be read, or its footer needs more memory.
    pub fn open(file: &dyn Ranges, budget: usize) -> Result<Self, JoinError> {
        guarded(|| Self::parse(file, (budget / FOOTER_PART).max(FOOTER_MIN)))
    }

    fn parse(file: &dyn Ranges, memory_max: usize) -> Result<Self, JoinError> {
        let size = file.size();
        let tail = parquet_tail(size);
        let read = |range| file.read(range).map_err(JoinError::io("read the Parquet footer"));
        let mut bytes = read(tail.clone())?;
        let end = bytes.last_chunk().ok_or_else(|| {
            JoinError::Table(format!(
                "not Parquet: {size} bytes, a file has at least {FOOTER_SIZE}"
            ))
        })?;
        let end = FooterTail::try_new(end)?;
        let needed = end.metadata_length() as u64 + FOOTER_SIZE as u64;
        if end.is_encrypted_footer() {
            let text = "the Parquet footer is encrypted, which is not supported; decrypt the file";
            return Err(JoinError::Table(text.to_owned()));
        }
        if needed > size {
            return Err(JoinError::Table(format!(
                "the Parquet footer of {needed} bytes is not in the file of {size} bytes; the file is cut or damaged"
            )));
        }
        footer::check_size(needed, memory_max)?;
        if needed > tail.end - tail.start {
            bytes = read(size - needed..size)?;
        }
        let bytes = bytes
            .slice(bytes.len() - FOOTER_SIZE - end.metadata_length()..bytes.len() - FOOTER_SIZE);
        footer::check(&bytes, memory_max)?;
        let metadata = Arc::new(ParquetMetaDataReader::decode_metadata(&bytes)?);
        let rows = metadata.row_groups().iter().map(|group| group.num_rows().cast_unsigned());
        check_rows(rows.fold(0, u64::saturating_add), size)?;
        let metadata = ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new())?;
        Ok(Self { metadata, size })
    }

    /// Returns the schema of all columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(self.metadata.schema())
    }

    /// Returns the memory of the footer, in bytes.
    pub fn footer_bytes(&self) -> usize {
        self.metadata.metadata().memory_size()
    }

    /// Returns the number of row groups.
    pub fn row_groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    fn mask(&self, columns: &[&str]) -> ProjectionMask {
        let fields = self.metadata.schema().fields().iter().enumerate();
        let roots = fields.filter(|(_, field)| columns.contains(&field.name().as_str()));
        ProjectionMask::roots(self.metadata.parquet_schema(), roots.map(|(at, _)| at))
    }

    /// Returns the byte ranges of these columns in a row group, ascending.
    ///
    /// # Errors
    /// If the footer has ranges outside of the file.
    pub fn ranges(&self, row_group: usize, columns: &[&str]) -> Result<Vec<Range<u64>>, JoinError> {
        let mask = self.mask(columns);
        let group = self.metadata.metadata().row_group(row_group);
        let mut ranges = Vec::new();
        for (at, chunk) in group.columns().iter().enumerate() {
            if !mask.leaf_included(at) {
                continue;
            }
            let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
            let range = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
            let range = range.and_then(|(start, length)| Some(start..start.checked_add(length)?));
            match range.filter(|range| range.end <= self.size) {
                Some(range) => ranges.push(range),
                None => {
                    let text = format!(
                        "column chunk {at} of row group {row_group} is outside of the file"
                    );
                    return Err(JoinError::Table(text));
                }
            }
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged = Vec::<Range<u64>>::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end.saturating_add(GAP) => {
                    last.end = last.end.max(range.end);
                }
                _ => merged.push(range),
            }
        }
        let bytes: u64 = merged.iter().map(|range| range.end - range.start).sum();
        if bytes > PART_MAX {
            return Err(JoinError::Table(format!(
                "row group {row_group} has {bytes} bytes in the needed columns, at most {PART_MAX} are \
                 supported; write the file with smaller row groups"
            )));
        }
        Ok(merged)
    }

    /// Returns the column chunks of a row group. `read` returns the bytes of each range of [`Self::ranges`], in order.
    ///
    /// # Errors
    /// As [`Self::ranges`], or if a read fails.
    pub fn fetch(
        &self,
        row_group: usize,
        columns: &[&str],
        mut read: impl FnMut(&Range<u64>) -> io::Result<Bytes>,
    ) -> Result<Chunks, JoinError> {
        let mut parts = Vec::new();
        for range in self.ranges(row_group, columns)? {
            let what = format!("read bytes {} to {}", range.start, range.end);
            parts.push((range.start, read(&range).map_err(JoinError::io(what))?));
        }
        Ok(Chunks { size: self.size, parts })
    }

    /// Decodes these columns of a row group. Returns whether more batches are needed.
    ///
    /// # Errors
    /// If the content cannot be decoded.
    pub fn decode(
        &self,
        chunks: Chunks,
        row_group: usize,
        columns: &[&str],
        send: Consumer<'_>,
    ) -> Result<bool, JoinError> {
        guarded(|| {
            let mask = self.mask(columns);
            let rows = self.batch_rows(&chunks, row_group, &mask)?;
            let builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(chunks, self.metadata.clone());
            let reader = builder
                .with_projection(mask)
                .with_row_groups(vec![row_group])
                .with_batch_size(rows)
                .build()?;
            for batch in reader {
                if !send(project(&batch?, columns)?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }
}

impl ParquetFile {
    /// Returns the rows of a decoded batch: few if rows may be long.
    fn batch_rows(
        &self,
        chunks: &Chunks,
        row_group: usize,
        mask: &ProjectionMask,
    ) -> Result<usize, JoinError> {
        let chunks = Arc::new(chunks.clone());
        let mut pages = Pages::default();
        let group = self.metadata.metadata().row_group(row_group);
        let columns = group.columns().iter().enumerate();
        for (_, column) in columns.filter(|(at, _)| mask.leaf_included(*at)) {
            let (start, length) = column.byte_range();
            let chunk = chunks.get_bytes(start, usize::try_from(length).unwrap_or(usize::MAX))?;
            let reader = SerializedPageReader::new(Arc::clone(&chunks), column, 0, None)?;
            pages.add(column.column_descr(), &chunk, reader)?;
        }
        pages.check_rows(group.num_rows())?;
        Ok(pages.rows())
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.size
    }
}

impl Chunks {
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let part = self.parts.iter().find_map(|(first, bytes)| {
            let skipped = usize::try_from(start.checked_sub(*first)?).ok()?;
            (skipped < bytes.len()).then(|| bytes.slice(skipped..))
        });
        part.ok_or_else(|| ParquetError::EOF(format!("byte {start} is in no column chunk")))
    }
}

impl ChunkReader for Chunks {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self.from(start)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} leave the column chunk"
            )));
        }
        Ok(bytes.slice(..length))
    }
}
