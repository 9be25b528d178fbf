//! Arrow IPC, file or stream.
//!
//! The sizes of messages are checked before the decoder of the library allocates memory for them.

use std::io::{BufRead, ErrorKind, Read as _};

use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::root_as_message;
use arrow_schema::SchemaRef;

use super::part::{Consumer, PART_MAX, guarded, project};
use crate::error::JoinError;

/// First bytes of a file; a stream follows.
const MAGIC: &[u8] = b"ARROW1\0\0";
/// Largest size of the magic with its padding.
const PADDED_MAX: usize = 64;
/// Mark before the size of a message.
const CONTINUATION: [u8; 4] = [0xff; 4];
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
        if let Some(message) = message(&mut stream, is_file)? {
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
        let mut decoder = StreamDecoder::new();
        loop {
            let message = message(&mut stream, is_file)?;
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

/// Reads the next message with its body. Returns `None` at the end, which has a mark in a file.
fn message(stream: &mut impl BufRead, is_file: bool) -> Result<Option<Vec<u8>>, JoinError> {
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
    let body = root_as_message(&message[CONTINUATION.len() + size.len()..])
        .map_err(|error| JoinError::Table(format!("not an Arrow message: {error}")))?
        .bodyLength();
    append(stream, u64::try_from(body).unwrap_or(u64::MAX), &mut message)?;
    Ok(Some(message))
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
