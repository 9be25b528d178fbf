//! Parts of a table that are decoded as a whole, and their limits.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;

use crate::error::JoinError;

/// Rows of a decoded batch.
pub(super) const ROWS: usize = 8192;
/// Largest part of a table that is decoded as a whole: a row group of Parquet, a message of Arrow.
/// Ours: a larger part is an error, not the end of the memory.
pub(super) const PART_MAX: u64 = 2 << 30;

/// Rows of a table beyond its bytes: at first, and for each byte. Ours: columns of NULLs, of one run or of values without
/// length have no bytes of rows, so a small file could name 2^62 rows. Parquet with only one value has 20,000 rows in a
/// page of 40 bytes. Arrow with only one run has a million rows in a message of 400 bytes.
const ROWS_FREE: u64 = 16 << 20;
const ROWS_PER_BYTE: u64 = 4096;

/// Checks the rows of a table against its bytes.
///
/// # Errors
/// If there are too many rows.
pub(super) fn check_rows(rows: u64, bytes: u64) -> Result<(), JoinError> {
    let most = bytes.saturating_mul(ROWS_PER_BYTE).saturating_add(ROWS_FREE);
    if rows <= most {
        return Ok(());
    }
    Err(JoinError::Table(format!(
        "{bytes} bytes name {rows} rows, at most {most} are supported for this size; if the file is right, write it with \
         a column that has another value in each row"
    )))
}

/// Receiver of decoded batches; returns whether more batches are needed.
pub type Consumer<'a> = &'a mut dyn FnMut(RecordBatch) -> Result<bool, JoinError>;

thread_local! {
    /// Whether this thread is inside [`guarded`].
    static IS_DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread decodes a table or encodes the result. A panic is then returned as an error, so a panic hook need not print it.
pub fn is_decoding() -> bool {
    IS_DECODING.get()
}

/// Runs a decoder. The libraries panic on some malformed content.
pub(super) fn guarded<T>(decode: impl FnOnce() -> Result<T, JoinError>) -> Result<T, JoinError> {
    guarded_as("the content is malformed", decode)
}

/// Runs a function of the libraries; `text` is the error for a panic.
pub(crate) fn guarded_as<T>(
    text: &str,
    run: impl FnOnce() -> Result<T, JoinError>,
) -> Result<T, JoinError> {
    let was_decoding = IS_DECODING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    IS_DECODING.set(was_decoding);
    result.unwrap_or_else(|_| Err(JoinError::Table(text.to_owned())))
}

/// Returns these columns of a batch, in this order.
pub(super) fn project(batch: &RecordBatch, columns: &[&str]) -> Result<RecordBatch, JoinError> {
    let schema = batch.schema();
    let at = columns.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>()?;
    Ok(batch.project(&at)?)
}
