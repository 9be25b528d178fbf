//! Parts of a table that are decoded as a whole, and their limits.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;

use crate::error::JoinError;

/// Rows of a decoded batch.
pub(super) const ROWS: usize = 8192;
/// Largest part of a table that is decoded as a whole: a row group of Parquet, a message of Arrow.
/// Ours: a larger part is an error, not the end of the memory.
pub(super) const PART_MAX: u64 = 2 << 30;

/// Receiver of decoded batches; returns whether more batches are needed.
pub type Consumer<'a> = &'a mut dyn FnMut(RecordBatch) -> Result<bool, JoinError>;

/// Runs a decoder. The libraries panic on some malformed content.
pub(super) fn guarded<T>(decode: impl FnOnce() -> Result<T, JoinError>) -> Result<T, JoinError> {
    let malformed = |_| Err(JoinError::Table("the content is malformed".to_owned()));
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(malformed)
}

/// Returns these columns of a batch, in this order.
pub(super) fn project(batch: &RecordBatch, columns: &[&str]) -> Result<RecordBatch, JoinError> {
    let schema = batch.schema();
    let at = columns.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>()?;
    Ok(batch.project(&at)?)
}
