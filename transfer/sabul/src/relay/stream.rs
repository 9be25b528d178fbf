//! A byte stream of a relay, as TLS uses it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::watch;

/// A byte stream of a relay. Dropping it ends the stream.
#[derive(Debug)]
pub(crate) struct Stream {
    inner: DuplexStream,
    /// Reason for the end of the relay.
    over: watch::Receiver<Option<String>>,
}

impl Stream {
    pub(super) fn new(inner: DuplexStream, over: watch::Receiver<Option<String>>) -> Self {
        Self { inner, over }
    }

    /// Returns the reason for the end of the relay as an error.
    fn failure(&self) -> Option<io::Error> {
        let why = self.over.borrow().clone()?;
        Some(io::Error::new(io::ErrorKind::ConnectionAborted, why))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, has_room) = (buffer.filled().len(), buffer.remaining() > 0);
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let is_end = has_room && buffer.filled().len() == before;
        match (polled, self.failure()) {
            (Poll::Ready(Ok(())), Some(error)) if is_end => Poll::Ready(Err(error)),
            (polled, _) => polled,
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        match (polled, self.failure()) {
            (Poll::Ready(Err(_)), Some(error)) => Poll::Ready(Err(error)),
            (polled, _) => polled,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
