//! Lists of the chunks of a file, for the comparison of an old and a new file.

use std::sync::atomic::{AtomicBool, Ordering};

use sabul_files::Chunked;
use sabul_wire::control::{Chunk, Chunking, ChunksEnd, Failure, MAX_CHUNKS, Message};
use tokio::sync::mpsc;

use crate::control::Bulk;
use crate::error::Error;

/// Chunks of a file of the peer, one by one. Dropping the value cancels the list.
#[derive(Debug)]
pub struct ChunkList {
    pub(super) chunks: mpsc::Receiver<Result<Result<Chunk, ChunksEnd>, Error>>,
}

impl ChunkList {
    /// Returns the next chunk, or after the last chunk the end of the file.
    ///
    /// # Errors
    /// If the peer refuses or the session is over; no chunk follows.
    pub async fn next(&mut self) -> Result<Result<Chunk, ChunksEnd>, Error> {
        self.chunks.recv().await.unwrap_or(Err(Error::Cancelled))
    }
}

/// Returns the chunks of a message, and whether they are the last; `None` for other messages.
pub(super) fn unpack_chunks(message: Message) -> Option<(Vec<Result<Chunk, ChunksEnd>>, bool)> {
    match message {
        Message::Chunks { chunks, end, .. } => {
            let chunks = chunks.into_iter().map(Ok).chain(end.map(Err)).collect();
            Some((chunks, end.is_some()))
        }
        _ => None,
    }
}

/// Sends all chunks, until the end or until `stop` is set. Returns the reason why the file cannot be read.
pub(super) fn send_chunks(
    file: &Chunked,
    chunking: Chunking,
    transfer: u32,
    bulk: &Bulk,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut chunks = Vec::with_capacity(MAX_CHUNKS);
    let mut is_open = true;
    file.each(chunking, |chunk, _| {
        chunks.push(chunk);
        if chunks.len() == MAX_CHUNKS {
            let chunks = std::mem::take(&mut chunks);
            is_open = bulk.send(&Message::Chunks { transfer, chunks, end: None });
        }
        is_open && !stop.load(Ordering::Acquire)
    })?;
    if is_open && !stop.load(Ordering::Acquire) {
        bulk.send(&Message::Chunks { transfer, chunks, end: Some(file.end()) });
    }
    Ok(())
}
