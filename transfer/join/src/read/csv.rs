//! Comma-separated values with a header line.

use std::io::{BufRead, Cursor};
use std::sync::Arc;

use arrow_array::{Array as _, RecordBatch, new_null_array};
use arrow_csv::ReaderBuilder;
use arrow_csv::reader::Format;
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::part::{Consumer, ROWS, guarded, project};
use crate::error::JoinError;

/// Bytes at the start of a file from which types are inferred.
pub const CSV_HEAD: u64 = 1 << 20;

/// Values of a decoded batch, including columns that are not needed. Ours: the decoder reserves some 16 bytes for each.
const VALUES: usize = 4 << 20;

/// Largest number of bytes of the rows of a batch. Ours: rows of 64 KiB.
const BATCH_MAX: u64 = 512 << 20;

/// Infers the schema from the first bytes of a file. `is_whole` marks that the bytes are the whole
/// file: then a column without values has the type NULL, otherwise text.
///
/// # Errors
/// If the bytes are not CSV with a header line.
pub fn csv_schema(head: &[u8], is_whole: bool) -> Result<SchemaRef, JoinError> {
    let end = if is_whole { head.len() } else { end_of_rows(head) };
    let format = Format::default().with_header(true);
    let (schema, _) = guarded(|| Ok(format.infer_schema(Cursor::new(&head[..end]), None)?))?;
    if is_whole {
        return Ok(Arc::new(schema));
    }
    Ok(Arc::new(texts_for_nulls(&schema)))
}

/// Returns the end of the last whole row. A line end between quotes is part of a value.
fn end_of_rows(head: &[u8]) -> usize {
    let (mut is_quoted, mut end) = (false, 0);
    for (at, byte) in head.iter().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\n' if !is_quoted => end = at + 1,
            _ => {}
        }
    }
    if end == 0 { head.len() } else { end }
}

fn texts_for_nulls(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Null => Arc::new(Field::new(field.name(), DataType::Utf8, true)),
        _ => Arc::clone(field),
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Decodes these columns of a stream. Returns whether more batches are needed.
///
/// # Errors
/// If the header or the type of a value differs from the schema, or the stream fails.
pub fn csv(
    stream: impl BufRead,
    schema: &SchemaRef,
    columns: &[&str],
    send: Consumer<'_>,
) -> Result<bool, JoinError> {
    guarded(|| decode(stream, schema, columns, send))
}

fn decode(
    mut stream: impl BufRead,
    schema: &SchemaRef,
    columns: &[&str],
    send: Consumer<'_>,
) -> Result<bool, JoinError> {
    let at = columns.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>()?;
    let rows = (VALUES / schema.fields().len().max(1)).clamp(1, ROWS);
    // The decoder drops the values of a column of NULLs.
    let mut decoder = ReaderBuilder::new(Arc::new(texts_for_nulls(schema)))
        .with_header(true)
        .with_header_validation(true)
        .with_batch_size(rows)
        .with_projection(at)
        .build_decoder();
    let mut bytes = 0;
    loop {
        let content = stream.fill_buf().map_err(JoinError::io("read CSV"))?;
        let used = decoder.decode(content)?;
        stream.consume(used);
        bytes += used as u64;
        if bytes > BATCH_MAX {
            let text = format!("{rows} rows have more than {BATCH_MAX} bytes; is a quote missing?");
            return Err(JoinError::Table(text));
        }
        if used == 0 || decoder.capacity() == 0 {
            bytes = 0;
            let Some(batch) = decoder.flush()? else {
                if used == 0 {
                    return Ok(true);
                }
                continue;
            };
            if !send(with_nulls(project(&batch, columns)?, schema)?)? {
                return Ok(false);
            }
        }
    }
}

/// Returns the batch with the type NULL for columns of this type in the schema.
fn with_nulls(batch: RecordBatch, schema: &Schema) -> Result<RecordBatch, JoinError> {
    let mut fields = Vec::new();
    let mut columns = batch.columns().to_vec();
    for (field, column) in batch.schema().fields().iter().zip(&mut columns) {
        let field = Arc::new(schema.field_with_name(field.name())?.clone());
        if *field.data_type() == DataType::Null {
            if column.null_count() < column.len() {
                return Err(JoinError::Table(format!(
                    "column '{}' has values, but has no value in the first file of the table",
                    field.name()
                )));
            }
            *column = new_null_array(&DataType::Null, column.len());
        }
        fields.push(field);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}
