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

/// Place in a row, as the decoder sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Before the first byte of a value: only here a quote opens a quoted value.
    #[default]
    Start,
    /// In a value without quotes. A quote is part of the value.
    Plain,
    Quoted,
    /// After a quote in a quoted value: the end of the value, or the first half of a doubled quote.
    Closed,
}

impl At {
    const fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Quoted, b'"') => Self::Closed,
            (Self::Quoted, _) | (Self::Start | Self::Closed, b'"') => Self::Quoted,
            (_, b',' | b'\n' | b'\r') => Self::Start,
            _ => Self::Plain,
        }
    }
}

/// Returns the error for content that ends in a quoted value: the rows after the quote would be one value.
fn unclosed() -> JoinError {
    JoinError::Table("the content ends inside of a quoted value; is a quote missing?".to_owned())
}

/// Byte order mark, which the decoder skips.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Follows the quotes of a file from its start.
#[derive(Debug, Default)]
struct Quotes {
    at: At,
    /// Bytes of the mark at the start of the file; the length of the mark after other bytes.
    mark: usize,
}

impl Quotes {
    fn take(&mut self, byte: u8) {
        if MARK.get(self.mark) == Some(&byte) {
            self.mark += 1;
            return;
        }
        if (1..MARK.len()).contains(&self.mark) {
            self.at = At::Plain;
        }
        self.mark = MARK.len();
        self.at = self.at.after(byte);
    }
}

/// Infers the schema from the first bytes of a file. `is_whole` marks that the bytes are the whole
/// file: then a column without values has the type NULL, otherwise text.
///
/// # Errors
/// If the bytes are not CSV with a header line.
pub fn csv_schema(head: &[u8], is_whole: bool) -> Result<SchemaRef, JoinError> {
    let (end, at) = end_of_rows(head);
    if is_whole && at == At::Quoted {
        return Err(unclosed());
    }
    let end = if is_whole { head.len() } else { end };
    let format = Format::default().with_header(true);
    let (schema, _) = guarded(|| Ok(format.infer_schema(Cursor::new(&head[..end]), None)?))?;
    if is_whole {
        return Ok(Arc::new(schema));
    }
    Ok(Arc::new(texts_for_nulls(&schema)))
}

/// Returns the end of the last whole row, and the place at the end of the bytes. A line end between quotes is part of a
/// value.
fn end_of_rows(head: &[u8]) -> (usize, At) {
    let (mut quotes, mut end) = (Quotes::default(), 0);
    for (place, byte) in head.iter().enumerate() {
        quotes.take(*byte);
        if *byte == b'\n' && quotes.at == At::Start {
            end = place + 1;
        }
    }
    (if end == 0 { head.len() } else { end }, quotes.at)
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
    let (mut bytes, mut quotes) = (0, Quotes::default());
    loop {
        let content = stream.fill_buf().map_err(JoinError::io("read CSV"))?;
        let used = decoder.decode(content)?;
        content[..used].iter().for_each(|byte| quotes.take(*byte));
        stream.consume(used);
        if used == 0 && quotes.at == At::Quoted {
            return Err(unclosed());
        }
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
