//! Rows of partitions on disk, as Arrow IPC streams in a private directory.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, LargeBinaryBuilder, UInt32Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, BooleanArray, LargeBinaryArray, RecordBatch, UInt32Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::interleave::interleave;
use tempfile::TempDir;

use crate::error::JoinError;
use crate::partition::{Side, memory_of};
use crate::pending::batch_of;

/// Rows of a written batch. Ours: a cleanup holds a few such batches beside its budget.
const ROWS: usize = 4096;

/// Private directory of spilled rows (mode 0700); removed with this value.
#[derive(Debug)]
pub(crate) struct SpillDir {
    dir: TempDir,
    files: u64,
}

/// Spilled rows of one table in one partition.
#[derive(Clone, Debug)]
pub(crate) struct SpillFile {
    path: PathBuf,
    pub(crate) rows: usize,
    /// Estimated memory of the rows.
    pub(crate) bytes: usize,
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

impl SpillDir {
    pub(crate) fn new(parent: &Path) -> Result<Self, JoinError> {
        let dir = tempfile::Builder::new().prefix(".sabul-join-").tempdir_in(parent);
        let what = format!("create a directory for rows beyond --memory in {}", parent.display());
        Ok(Self { dir: dir.map_err(JoinError::io(what))?, files: 0 })
    }

    /// Returns an empty file.
    pub(crate) fn file(&mut self) -> SpillFile {
        self.files += 1;
        SpillFile { path: self.dir.path().join(self.files.to_string()), rows: 0, bytes: 0 }
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
        let failed = || JoinError::io(format!("write spilled rows to {}", self.path.display()));
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        let file = file.map_err(failed())?;
        let before = file.metadata().map_err(failed())?.len();
        let mut writer = StreamWriter::try_new(BufWriter::new(file), schema)?;
        let (mut rows, mut bytes) = (0, 0);
        for batch in batches {
            let batch = batch?;
            rows += batch.num_rows();
            bytes += memory_of(&batch);
            writer.write(&batch)?;
        }
        let mut file = writer.into_inner()?;
        file.flush().map_err(failed())?;
        let after = file.get_ref().metadata().map_err(failed())?.len();
        self.rows += rows;
        self.bytes += bytes;
        Ok(after - before)
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
        if self.rows == 0 {
            return Ok(());
        }
        let failed = || JoinError::io(format!("read spilled rows from {}", self.path.display()));
        let mut file = BufReader::new(File::open(&self.path).map_err(failed())?);
        while !file.fill_buf().map_err(failed())?.is_empty() {
            for batch in StreamReader::try_new(&mut file, None)? {
                let batch = batch?;
                visit(&batch, batch.column(batch.num_columns() - 3).as_binary::<i64>())?;
            }
        }
        Ok(())
    }

    /// Removes the file early; the directory removes the rest.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
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
