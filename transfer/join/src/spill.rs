//! Rows of partitions on disk, as Arrow IPC streams in one file without a name.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::builder::{BooleanBuilder, LargeBinaryBuilder, UInt32Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, BooleanArray, LargeBinaryArray, RecordBatch, UInt32Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::interleave::interleave;
use rustix::fs::{FallocateFlags, fallocate};

use crate::error::JoinError;
use crate::partition::{Side, memory_of};
use crate::pending::batch_of;

/// Rows of a written batch. Ours: a cleanup holds a few such batches beside its budget.
const ROWS: usize = 4096;

/// The file of all spilled rows. Nobody else can open the file, because the file has no name, and the kernel frees the
/// space with the last reference.
#[derive(Clone, Debug)]
pub(crate) struct SpillStore(Arc<Store>);

#[derive(Debug)]
struct Store {
    file: File,
    /// Bytes written so far.
    end: AtomicU64,
    /// Directory of the file, for messages.
    directory: String,
}

/// Spilled rows of one table in one partition.
#[derive(Debug)]
pub(crate) struct SpillFile {
    store: SpillStore,
    /// Positions of the IPC streams.
    streams: Vec<Range<u64>>,
    pub(crate) rows: usize,
    /// Estimated memory of the rows.
    pub(crate) bytes: usize,
}

/// Writes at the end of the store.
struct Appender<'a>(&'a Store);

/// Reads a part of the store.
struct Part<'a> {
    store: &'a Store,
    rest: Range<u64>,
}

/// A batch that was read back: kept columns, keys, generations, matches.
pub(crate) struct Spilled {
    pub(crate) batch: Arc<RecordBatch>,
    pub(crate) keys: LargeBinaryArray,
    pub(crate) generations: UInt32Array,
    pub(crate) matched: BooleanArray,
    /// Estimated memory in a partition.
    pub(crate) bytes: usize,
}

impl SpillStore {
    pub(crate) fn new(directory: &Path) -> Result<Self, JoinError> {
        let file = tempfile::tempfile_in(directory);
        let directory = directory.display().to_string();
        let what = format!("create a file for rows beyond --memory in {directory}");
        let file = file.map_err(JoinError::io(what))?;
        Ok(Self(Arc::new(Store { file, end: AtomicU64::new(0), directory })))
    }

    /// Returns an empty file.
    pub(crate) fn file(&self) -> SpillFile {
        SpillFile { store: self.clone(), streams: Vec::new(), rows: 0, bytes: 0 }
    }
}

impl Write for Appender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.file.write_at(bytes, self.0.end.load(Ordering::Relaxed))?;
        self.0.end.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Part<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.rest.end - self.rest.start).unwrap_or(usize::MAX);
        let length = into.len().min(rest);
        let read = self.store.file.read_at(&mut into[..length], self.rest.start)?;
        if read == 0 && length > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.rest.start += read as u64;
        Ok(read)
    }
}

/// Returns the schema of spilled rows.
pub(crate) fn schema_of(kept: &Schema) -> SchemaRef {
    let mut fields: Vec<_> = kept.fields().iter().cloned().collect();
    // Names do not matter: columns are read by position.
    fields.push(Arc::new(Field::new("key", DataType::LargeBinary, false)));
    fields.push(Arc::new(Field::new("generation", DataType::UInt32, false)));
    fields.push(Arc::new(Field::new("matched", DataType::Boolean, false)));
    Arc::new(Schema::new(fields))
}

/// Returns batches of all rows of a side, in the schema of spilled rows. `key` returns the key of a
/// row.
pub(crate) fn batches_of<'a>(
    side: &'a Side,
    schema: &'a SchemaRef,
    key: impl Fn(usize) -> &'a [u8] + 'a,
) -> impl Iterator<Item = Result<RecordBatch, JoinError>> + 'a {
    (0..side.rows.len()).step_by(ROWS).map(move |start| {
        let rows = &side.rows[start..side.rows.len().min(start + ROWS)];
        let picks: Vec<_> = rows.iter().map(|it| (it.batch as usize, it.row as usize)).collect();
        let kept = schema.fields().len() - 3;
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(kept + 3);
        for column in 0..kept {
            let arrays: Vec<_> = side.batches.iter().map(|it| it.column(column).as_ref()).collect();
            columns.push(interleave(&arrays, &picks)?);
        }
        let (mut keys, mut generations, mut matched) =
            (LargeBinaryBuilder::new(), UInt32Builder::new(), BooleanBuilder::new());
        for (at, row) in rows.iter().enumerate() {
            keys.append_value(key(start + at));
            generations.append_value(row.generation);
            matched.append_value(side.matched.get(start + at).copied().unwrap_or(false));
        }
        columns.push(Arc::new(keys.finish()));
        columns.push(Arc::new(generations.finish()));
        columns.push(Arc::new(matched.finish()));
        batch_of(Arc::clone(schema), columns, rows.len())
    })
}

impl SpillFile {
    /// Appends batches as one IPC stream; returns the written bytes.
    pub(crate) fn append(
        &mut self,
        schema: &Schema,
        batches: impl IntoIterator<Item = Result<RecordBatch, JoinError>>,
    ) -> Result<u64, JoinError> {
        let store = &*self.store.0;
        let failed =
            || JoinError::io(format!("write spilled rows to a file in {}", store.directory));
        let start = store.end.load(Ordering::Relaxed);
        let mut writer = StreamWriter::try_new(BufWriter::new(Appender(store)), schema)?;
        let (mut rows, mut bytes) = (0, 0);
        for batch in batches {
            let batch = batch?;
            rows += batch.num_rows();
            bytes += memory_of(&batch);
            writer.write(&batch)?;
        }
        writer.into_inner()?.flush().map_err(failed())?;
        let end = store.end.load(Ordering::Relaxed);
        self.streams.push(start..end);
        self.rows += rows;
        self.bytes += bytes;
        Ok(end - start)
    }

    /// Calls `visit` with each batch, in the order of writing.
    pub(crate) fn read(
        &self,
        mut visit: impl FnMut(Spilled) -> Result<(), JoinError>,
    ) -> Result<(), JoinError> {
        self.read_whole(|batch, _| visit(Spilled::of(batch)?))
    }

    /// Calls `visit` with each batch in the schema of spilled rows, and its keys.
    pub(crate) fn read_whole(
        &self,
        mut visit: impl FnMut(&RecordBatch, &LargeBinaryArray) -> Result<(), JoinError>,
    ) -> Result<(), JoinError> {
        let store = &*self.store.0;
        let failed =
            || JoinError::io(format!("read spilled rows from a file in {}", store.directory));
        for stream in &self.streams {
            let mut part = BufReader::new(Part { store, rest: stream.clone() });
            part.fill_buf().map_err(failed())?;
            for batch in StreamReader::try_new(part, None)? {
                let batch = batch?;
                visit(&batch, batch.column(batch.num_columns() - 3).as_binary::<i64>())?;
            }
        }
        Ok(())
    }

    /// Frees the space early, where the file system can; the end of the store frees the rest.
    pub(crate) fn remove(&self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for stream in &self.streams {
            let _ = fallocate(&self.store.0.file, flags, stream.start, stream.end - stream.start);
        }
    }
}

impl Spilled {
    fn of(batch: &RecordBatch) -> Result<Self, JoinError> {
        let kept = batch.num_columns() - 3;
        let schema = Arc::new(batch.schema().project(&(0..kept).collect::<Vec<_>>())?);
        let columns = batch.columns()[..kept].to_vec();
        Ok(Self {
            bytes: memory_of(batch),
            keys: batch.column(kept).as_binary::<i64>().clone(),
            generations: batch.column(kept + 1).as_primitive::<UInt32Type>().clone(),
            matched: batch.column(kept + 2).as_boolean().clone(),
            batch: Arc::new(batch_of(schema, columns, batch.num_rows())?),
        })
    }
}
