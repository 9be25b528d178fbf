//! Arrow IPC, file or stream.
//!
//! The sizes of messages are checked before the decoder of the library allocates memory for them.

use std::io::{BufRead, ErrorKind, Read as _};

use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::{Field, KeyValue, Message, Schema, root_as_message};
use arrow_schema::SchemaRef;

use super::part::{Consumer, PART_MAX, check_rows, guarded, project};
use crate::error::JoinError;

/// First bytes of a file; a stream follows.
const MAGIC: &[u8] = b"ARROW1\0\0";
/// Largest size of the magic with its padding.
const PADDED_MAX: usize = 64;
/// Mark before the size of a message.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Memory of the parsed schema: most, and that of a field beside its texts. Ours: that of 100,000 fields.
const SCHEMA_MAX: usize = 64 << 20;
const FIELD: usize = 512;
/// End of a stream.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Reads the schema at the start of a stream or file.
///
/// # Errors
/// If the stream is not Arrow IPC.
pub fn arrow_schema(mut stream: impl BufRead) -> Result<SchemaRef, JoinError> {
    guarded(|| {
        let is_file = skip_magic(&mut stream)?;
        let mut decoder = StreamDecoder::new();
        if let Some(message) = message(&mut stream, is_file, &mut Totals::default())? {
            decoder.decode(&mut Buffer::from_vec(message))?;
        }
        // A message without a body is decoded when more bytes follow.
        decoder.decode(&mut Buffer::from(END))?;
        decoder.schema().ok_or_else(|| JoinError::Table("an Arrow schema is missing".to_owned()))
    })
}

/// Decodes these columns of a stream or file. Returns whether more batches are needed.
///
/// # Errors
/// If the stream is not Arrow IPC, or fails.
pub fn arrow(
    mut stream: impl BufRead,
    columns: &[&str],
    send: Consumer<'_>,
) -> Result<bool, JoinError> {
    guarded(|| {
        let is_file = skip_magic(&mut stream)?;
        let (mut decoder, mut totals) = (StreamDecoder::new(), Totals::default());
        loop {
            let message = message(&mut stream, is_file, &mut totals)?;
            let is_end = message.is_none();
            let mut bytes = message.map_or_else(|| Buffer::from(END), Buffer::from_vec);
            while !bytes.is_empty() {
                if let Some(batch) = decoder.decode(&mut bytes)?
                    && !send(project(&batch, columns)?)?
                {
                    return Ok(false);
                }
            }
            if is_end {
                return Ok(true);
            }
        }
    })
}

/// Skips the first bytes of a file: the magic, padded with zeros to 8 bytes or to 64. Returns whether
/// this is a file.
fn skip_magic(stream: &mut impl BufRead) -> Result<bool, JoinError> {
    let start = stream.fill_buf().map_err(JoinError::io("read Arrow"))?;
    if !start.starts_with(MAGIC) {
        return Ok(false);
    }
    stream.consume(MAGIC.len());
    for _ in 1..PADDED_MAX / MAGIC.len() {
        let start = stream.fill_buf().map_err(JoinError::io("read Arrow"))?;
        if !start.starts_with(&[0; MAGIC.len()]) {
            break;
        }
        stream.consume(MAGIC.len());
    }
    Ok(true)
}

/// Bytes and rows of the messages so far.
#[derive(Debug, Default)]
struct Totals {
    bytes: u64,
    rows: u64,
}

impl Totals {
    /// Adds a message of this size. Rows are the longest column or content of lists.
    fn add(&mut self, bytes: u64, message: Message<'_>) -> Result<(), JoinError> {
        let dictionary = || message.header_as_dictionary_batch().and_then(|it| it.data());
        let Some(batch) = message.header_as_record_batch().or_else(dictionary) else {
            return Ok(());
        };
        let columns = batch.nodes().into_iter().flatten().map(|node| node.length());
        // Negative numbers count as very large ones.
        let lengths = columns.chain([batch.length()]).map(i64::cast_unsigned);
        self.rows = self.rows.saturating_add(lengths.max().unwrap_or(0));
        self.bytes = self.bytes.saturating_add(bytes);
        check_rows(self.rows, self.bytes)
    }
}

/// Reads the next message with its body. Returns `None` at the end, which has a mark in a file.
fn message(
    stream: &mut impl BufRead,
    is_file: bool,
    totals: &mut Totals,
) -> Result<Option<Vec<u8>>, JoinError> {
    if !is_file && stream.fill_buf().map_err(JoinError::io("read Arrow"))?.is_empty() {
        return Ok(None);
    }
    let mut size = [0; 4];
    read(stream, &mut size)?;
    if size == CONTINUATION {
        read(stream, &mut size)?;
    }
    let head = u32::from_le_bytes(size);
    if head == 0 {
        return Ok(None);
    }
    let mut message = [CONTINUATION, size].concat();
    append(stream, u64::from(head), &mut message)?;
    let root = root_as_message(&message[CONTINUATION.len() + size.len()..])
        .map_err(|error| JoinError::Table(format!("not an Arrow message: {error}")))?;
    root.header_as_schema().map(check_schema).transpose()?;
    let body = u64::try_from(root.bodyLength()).unwrap_or(u64::MAX);
    totals.add(body.saturating_add(message.len() as u64), root)?;
    append(stream, body, &mut message)?;
    Ok(Some(message))
}

/// Returns the memory of the parsed schema in this message, 0 if there is none. Fields of a message may share texts and
/// fields, the parsed ones have copies.
///
/// # Errors
/// If the schema needs too much memory.
pub(super) fn schema_memory(message: &[u8]) -> Result<usize, JoinError> {
    let skipped = if message.starts_with(&CONTINUATION) { 8 } else { 0 };
    let message = message.get(skipped..).and_then(|message| root_as_message(message).ok());
    match message.and_then(|message| message.header_as_schema()) {
        Some(schema) => check_schema(schema),
        None => Ok(0),
    }
}

fn check_schema(schema: Schema<'_>) -> Result<usize, JoinError> {
    let fields = schema.fields().into_iter().flatten().map(field_memory);
    let memory = fields.fold(texts(schema.custom_metadata()), usize::saturating_add);
    if memory > SCHEMA_MAX {
        return Err(JoinError::Table(format!(
            "an Arrow schema may need {} MiB of memory, at most {} MiB are supported; write the file with fewer columns or \
             shorter names",
            memory >> 20,
            SCHEMA_MAX >> 20
        )));
    }
    Ok(memory)
}

/// Returns the memory of a field with its children. The verifier of messages limits depth and number of the fields.
fn field_memory(field: Field<'_>) -> usize {
    let name = field.name().map_or(0, str::len);
    let zone = field.type_as_timestamp().and_then(|kind| kind.timezone()).map_or(0, str::len);
    let own = [FIELD, name, zone, texts(field.custom_metadata())];
    let children = field.children().into_iter().flatten().map(field_memory);
    own.into_iter().chain(children).fold(0, usize::saturating_add)
}

/// Returns the memory of keys and values.
fn texts<'a>(pairs: Option<impl IntoIterator<Item = KeyValue<'a>>>) -> usize {
    let pairs = pairs.into_iter().flatten();
    let lengths = pairs.flat_map(|pair| [pair.key(), pair.value()]);
    lengths.fold(0, |all, text| all.saturating_add(FIELD / 4 + text.map_or(0, str::len)))
}

fn read(stream: &mut impl BufRead, into: &mut [u8]) -> Result<(), JoinError> {
    stream.read_exact(into).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => JoinError::Table("the Arrow data are cut".to_owned()),
        _ => JoinError::Io { what: "read Arrow".to_owned(), error },
    })
}

/// Appends exactly `count` bytes. Memory grows with the bytes that arrive.
fn append(stream: &mut impl BufRead, count: u64, to: &mut Vec<u8>) -> Result<(), JoinError> {
    if count > PART_MAX {
        let text = format!("an Arrow message has {count} bytes, at most {PART_MAX} are supported");
        return Err(JoinError::Table(text));
    }
    let read = stream.take(count).read_to_end(to).map_err(JoinError::io("read Arrow"))?;
    if (read as u64) < count {
        let text = format!("an Arrow message ends after {read} of {count} bytes");
        return Err(JoinError::Table(text));
    }
    Ok(())
}
