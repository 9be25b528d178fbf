//! File of the peer that is read like a local file, with read-ahead.
//!
//! Reads become requests for ranges. The first request at a new position is short, so that readers of single records
//! receive little else. Each request that continues the one before is four times as long, so that a reader of a whole
//! file waits for few round trips. A seek out of the requested range cancels the request.

use std::fmt;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sabul_content::Printable;
use sabul_wire::control::{Facts, Failure, FailureCode, Range};
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};

use super::Session;
use super::ends::FileEnd;
use super::ranges::RangeReads;
use crate::config::TransferOptions;
use crate::error::Error;

/// Bytes at the end of a file that come with its facts. Ours: most footers of Parquet and directories of ZIP files fit.
const TAIL_BYTES: u64 = 64 << 10;
/// Bytes of a range, each verified as a whole before it is returned. Ours: 1 % of a second at 1 Gb/s.
const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes of the first request at a position. Ours: about one round trip of 20 ms at 100 Mb/s.
const FIRST_BYTES: u64 = 256 << 10;
/// Most bytes of a request. Ours: as many ranges as one request has.
const REQUEST_BYTES: u64 = 4096 * CHUNK_BYTES;

/// A file of the peer, for reading. All reads are of one version of the file: a read fails after the file got another size
/// or modification time. Dropping the value cancels the read-ahead.
pub struct RemoteFile {
    session: Session,
    path: Vec<u8>,
    options: TransferOptions,
    facts: Facts,
    position: u64,
    /// End of the file, from its opening.
    tail: Chunk,
    /// The chunk that arrived last.
    chunk: Chunk,
    request: Option<Request>,
    /// End and length of the last request.
    last: (u64, u64),
}

/// Part of a file.
#[derive(Default)]
struct Chunk {
    offset: u64,
    content: Vec<u8>,
}

impl Chunk {
    /// The bytes from this position on; empty if the chunk does not have them.
    fn from(&self, position: u64) -> &[u8] {
        let skipped = position.checked_sub(self.offset).and_then(|it| usize::try_from(it).ok());
        skipped.and_then(|skipped| self.content.get(skipped..)).unwrap_or_default()
    }
}

/// A running request for chunks.
struct Request {
    /// Offset of the next chunk.
    next: u64,
    end: u64,
    arrival: Arrival,
}

/// The next chunk, and the rest of its request.
type Arrival = Pin<Box<dyn Future<Output = Result<(Vec<u8>, RangeReads), Error>> + Send>>;

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        f.debug_struct("RemoteFile").field("path", &path).finish_non_exhaustive()
    }
}

impl Session {
    /// Opens a file of the peer for reading. One request returns the facts of the file and its last 64 KiB, which are kept.
    /// The path is named as in [`Session::stat_with_tail`].
    ///
    /// # Errors
    /// As [`Session::stat_with_tail`].
    pub async fn open(
        &self,
        path: Vec<u8>,
        options: &TransferOptions,
    ) -> Result<RemoteFile, Error> {
        let end = self.stat_with_tail(path.clone(), TAIL_BYTES, options).await?;
        let FileEnd { facts, tail } = end;
        let offset = facts.size.saturating_sub(TAIL_BYTES);
        Ok(RemoteFile {
            session: self.clone(),
            path,
            options: options.clone(),
            facts,
            position: 0,
            tail: Chunk { offset, content: tail },
            chunk: Chunk::default(),
            request: None,
            last: (0, 0),
        })
    }
}

impl RemoteFile {
    /// Returns the metadata of the file when it was opened, without hash and attributes.
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the size of the file in bytes.
    pub const fn size(&self) -> u64 {
        self.facts.size
    }

    /// Returns the bytes at the present position that are here.
    fn present(&self) -> &[u8] {
        match self.chunk.from(self.position) {
            [] => self.tail.from(self.position),
            some => some,
        }
    }

    /// Requests the bytes from the present position on, which is in front of the tail.
    fn start(&mut self) -> Request {
        let (end, length) = self.last;
        let is_continued = self.position == end;
        let wanted = if is_continued { length.saturating_mul(4) } else { 0 };
        let wanted = wanted.clamp(FIRST_BYTES, REQUEST_BYTES);
        let (start, end) =
            (self.position, self.tail.offset.min(self.position.saturating_add(wanted)));
        self.last = (end, wanted);
        let size = self.facts.size;
        let mut ranges = Vec::new();
        let mut offset = start;
        while offset < end {
            let length = CHUNK_BYTES.min(end - offset);
            // Counted from the end, because only such ranges come with the facts of the file.
            ranges.push((self.path.clone(), Range { offset: size - offset, length: Some(length) }));
            offset += length;
        }
        let (session, options) = (self.session.clone(), self.options.clone());
        let (facts, path) = (self.facts, self.path.clone());
        let arrival = Box::pin(async move {
            let reads = RangeReads::from_end(&session, ranges, &options).await?;
            next_chunk(reads, &facts, &path).await
        });
        Request { next: start, end, arrival }
    }

    /// Waits for the chunk with the present position.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let position = self.position;
        let comes = |request: &Request| {
            let next = request.next..request.end.min(request.next + CHUNK_BYTES);
            next.contains(&position)
        };
        let mut request = match self.request.take() {
            Some(request) if comes(&request) => request,
            _ => self.start(),
        };
        let Poll::Ready(arrived) = request.arrival.as_mut().poll(cx) else {
            self.request = Some(request);
            return Poll::Pending;
        };
        let (content, reads) = arrived?;
        let length = CHUNK_BYTES.min(request.end - request.next);
        if content.len() as u64 != length {
            return Poll::Ready(Err(changed(&self.path).into()));
        }
        self.chunk = Chunk { offset: request.next, content };
        let next = request.next + length;
        let (facts, path) = (self.facts, self.path.clone());
        let arrival = Box::pin(async move { next_chunk(reads, &facts, &path).await });
        self.request = (next < request.end).then_some(Request { next, arrival, ..request });
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for RemoteFile {
    /// Reads at the present position. An error has a [`sabul::Error`](crate::Error) as its source.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.position >= this.facts.size || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        while this.present().is_empty() {
            ready!(this.poll_chunk(cx)).map_err(io::Error::other)?;
        }
        let present = this.present();
        let count = present.len().min(buffer.remaining());
        buffer.put_slice(&present[..count]);
        this.position += count as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for RemoteFile {
    /// Sets the position of the next read. A position behind the end is no error; reads there return nothing.
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(by) => self.facts.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = position.ok_or_else(|| {
            let text = "a seek to a position before the start of the file, or above 2^64";
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}

/// Returns the next chunk, if it is of the same version of the file.
async fn next_chunk(
    mut reads: RangeReads,
    facts: &Facts,
    path: &[u8],
) -> Result<(Vec<u8>, RangeReads), Error> {
    let Some(read) = reads.next_read().await? else {
        return Err(Failure::violation("it sent fewer ranges than were requested").into());
    };
    let content = read.content?;
    let version = |facts: &Facts| (facts.size, facts.modified_ns);
    match read.facts {
        Some(now) if version(&now) == version(facts) => Ok((content, reads)),
        _ => Err(changed(path).into()),
    }
}

fn changed(path: &[u8]) -> Failure {
    let why = "changed since it was opened; open it again";
    Failure::of_file(FailureCode::Changed, "read", Printable(path), why)
}
