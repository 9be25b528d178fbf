//! Byte streams between applications, over the same blocks and hashes as files.

use std::fmt;
use std::future::Future;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::error::Error;
use crate::transfer::{Progress, Report, Transfer};
use sabul_files::{FLUSH_AFTER, Source, SourceSet};

/// Bytes of the pipe between the application and the reader or writer thread. Ours: enough for few wake-ups.
const PIPE_BYTES: usize = 256 << 10;
/// Name of the only entry of a stream between applications; the application's name of the stream is in the request.
pub(crate) const ENTRY_NAME: &[u8] = b"stream";

/// Application end of a sent stream.
pub(crate) struct SourcePipe {
    pipe: DuplexStream,
    is_complete: Arc<AtomicBool>,
}

/// Makes the source of an entry with this name, and the end that the application writes.
pub(crate) fn source(runtime: Handle, name: Vec<u8>) -> Result<(SourcePipe, SourceSet), Error> {
    let (pipe, far) = duplex(PIPE_BYTES);
    let is_complete = Arc::new(AtomicBool::new(false));
    let is_ended = Arc::clone(&is_complete);
    let reader = PipeReader { runtime, pipe: far, is_complete: is_ended, since: None };
    let source = Source::Stream { name, reader: Box::new(reader) };
    let set = SourceSet::local(vec![source], false)?;
    Ok((SourcePipe { pipe, is_complete }, set))
}

/// Makes the writer of a received stream, and the end that the application reads.
pub(crate) fn sink(runtime: Handle) -> (DuplexStream, PipeWriter) {
    let (pipe, far) = duplex(PIPE_BYTES);
    (pipe, PipeWriter { runtime, pipe: far })
}

/// Thread end of a sent stream.
struct PipeReader {
    runtime: Handle,
    pipe: DuplexStream,
    is_complete: Arc<AtomicBool>,
    /// Time of the first byte that may still wait in a partly filled block.
    since: Option<Instant>,
}

impl Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let pipe = &mut self.pipe;
        let since = &mut self.since;
        let read = self.runtime.block_on(async {
            let deadline = since.unwrap_or_else(Instant::now) + FLUSH_AFTER;
            let read = timeout_at(deadline, pipe.read(buffer)).await.ok()?;
            since.get_or_insert_with(Instant::now);
            Some(read)
        });
        let Some(read) = read else {
            *since = None;
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let read = read?;
        if read == 0 && !buffer.is_empty() && !self.is_complete.load(Ordering::Acquire) {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the application dropped the stream before its end",
            ));
        }
        Ok(read)
    }
}

/// Thread end of a received stream.
#[derive(Debug)]
pub(crate) struct PipeWriter {
    runtime: Handle,
    pipe: DuplexStream,
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.runtime.block_on(self.pipe.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.runtime.block_on(self.pipe.flush())
    }
}

/// A stream to the peer. Written data is sent within 200 ms. `shutdown` ends the stream; [`SendStream::finish`] waits
/// until the peer has all data. A stream dropped before its end fails at the peer.
pub struct SendStream {
    source: SourcePipe,
    transfer: Transfer,
}

impl fmt::Debug for SendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendStream").field("transfer", &self.transfer).finish_non_exhaustive()
    }
}

impl SendStream {
    pub(crate) fn new(source: SourcePipe, transfer: Transfer) -> Self {
        Self { source, transfer }
    }

    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        self.transfer.progress()
    }

    /// Cancels the stream.
    pub fn cancel(&self) {
        self.transfer.cancel();
    }

    /// Ends the stream if still open, and waits until the peer has all data.
    ///
    /// # Errors
    /// If the peer does not have all data, verified.
    pub async fn finish(mut self) -> Result<Report, Error> {
        // If the pipe is broken, the error of the transfer is more precise.
        let _ = self.shutdown().await;
        complete(self.transfer.outcome().await)
    }
}

/// Fails the whole transfer if its only entry failed.
fn complete(outcome: Result<Report, Error>) -> Result<Report, Error> {
    let mut report = outcome?;
    if report.entries_failed == 0 {
        return Ok(report);
    }
    Err(report.failures.pop().map_or(Error::Cancelled, |(_, why)| why.into()))
}

impl AsyncWrite for SendStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.source.pipe).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.source.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.source.is_complete.store(true, Ordering::Release);
        Pin::new(&mut self.source.pipe).poll_shutdown(cx)
    }
}

type Outcome = Pin<Box<dyn Future<Output = Result<Report, Error>> + Send>>;

/// A stream from the peer. The end of the stream is reported only if all data arrived and was verified; otherwise
/// reading fails.
pub struct ReceiveStream {
    pipe: DuplexStream,
    transfer: Transfer,
    /// Pending result of the transfer, after the end of the pipe.
    ending: Option<Outcome>,
    /// Result of the transfer, once known.
    report: Option<Report>,
}

impl fmt::Debug for ReceiveStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveStream").field("transfer", &self.transfer).finish_non_exhaustive()
    }
}

impl ReceiveStream {
    pub(crate) fn new(pipe: DuplexStream, transfer: Transfer) -> Self {
        Self { pipe, transfer, ending: None, report: None }
    }

    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        self.transfer.progress()
    }

    /// Cancels the stream.
    pub fn cancel(&self) {
        self.transfer.cancel();
    }

    /// Returns the report after the stream was read to its end.
    ///
    /// # Errors
    /// If the stream failed, or if it was not read to its end, which cancels it.
    pub async fn finish(self) -> Result<Report, Error> {
        let Self { mut pipe, transfer, ending, report } = self;
        match (report, ending) {
            (Some(report), _) => return Ok(report),
            (None, Some(ending)) => return complete(ending.await),
            (None, None) => {}
        }
        // The last byte may have been read without reaching the end of the pipe.
        if !matches!(pipe.read(&mut [0]).await, Ok(0)) {
            transfer.cancel();
        }
        drop(pipe);
        complete(transfer.outcome().await)
    }
}

impl AsyncRead for ReceiveStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ending.is_none() && this.report.is_none() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.pipe).poll_read(cx, buffer))?;
            if buffer.filled().len() > before || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let shared_progress = Arc::clone(this.transfer.shared_progress());
            this.ending = Some(Box::pin(async move { shared_progress.outcome().await }));
        }
        if let Some(ending) = &mut this.ending {
            let outcome = complete(ready!(ending.as_mut().poll(cx)));
            this.ending = None;
            this.report = Some(outcome.map_err(io::Error::other)?);
        }
        Poll::Ready(Ok(()))
    }
}
