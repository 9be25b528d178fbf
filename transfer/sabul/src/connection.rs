//! TLS connection between two ends, shared by a reading and a writing task.

pub(crate) mod incoming;
mod socket;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use sabul_wire::control::Message;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::relay;
use crate::timeouts::Timeouts;
use crate::tls::{
    CHANNEL_LABEL, ChannelSecrets, JOIN_LABEL, JoinSecrets, LOGIN_LABEL, PROOF_LABEL, TlsError,
    exporter,
};
use incoming::{Incoming, ReadError};

/// A connection to the peer, shared by the reader and the writer task.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Mutex<Stream>>);

/// Transport of control messages.
#[derive(Debug)]
pub(crate) enum Stream {
    Tls(Box<TlsStream<TcpStream>>),
    /// TLS through the connection of ssh.
    Relayed(Box<TlsStream<relay::Stream>>),
    /// Simulated connection between two hosts in virtual time.
    #[cfg(test)]
    World(crate::world::Wire),
}

impl Connection {
    pub(crate) fn new(stream: impl Into<TlsStream<TcpStream>>) -> Self {
        Self::over(Stream::Tls(Box::new(stream.into())))
    }

    /// A connection through ssh.
    pub(crate) fn relayed(stream: impl Into<TlsStream<relay::Stream>>) -> Self {
        Self::over(Stream::Relayed(Box::new(stream.into())))
    }

    /// Whether the connection goes through ssh.
    pub(crate) fn is_relayed(&self) -> bool {
        matches!(&*self.lock(), Stream::Relayed(_))
    }

    pub(crate) fn over(stream: Stream) -> Self {
        Self(Arc::new(Mutex::new(stream)))
    }

    fn lock(&self) -> MutexGuard<'_, Stream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `poll` with the underlying stream.
    fn with<T>(&self, poll: impl FnOnce(Pin<&mut dyn Duplex>) -> T) -> T {
        match &mut *self.lock() {
            Stream::Tls(stream) => poll(Pin::new(stream.as_mut())),
            Stream::Relayed(stream) => poll(Pin::new(stream.as_mut())),
            #[cfg(test)]
            Stream::World(wire) => poll(Pin::new(wire)),
        }
    }

    /// Exports bytes that only the two ends of this TLS session can compute.
    fn export<S, const N: usize>(
        stream: &TlsStream<S>,
        label: &[u8],
        context: &[u8],
    ) -> Result<[u8; N], TlsError> {
        match stream {
            TlsStream::Client(stream) => exporter(&**stream.get_ref().1, label, context),
            TlsStream::Server(stream) => exporter(&**stream.get_ref().1, label, context),
        }
    }

    /// Exports the secrets of a transfer's UDP channel; `changes` is the number of changes to TCP before.
    pub(crate) fn channel_secrets(
        &self,
        transfer: u32,
        changes: u32,
    ) -> Result<ChannelSecrets, TlsError> {
        let context = ChannelSecrets::context(transfer, changes);
        match &*self.lock() {
            Stream::Tls(stream) => {
                Self::export(stream, CHANNEL_LABEL, &context).map(ChannelSecrets::new)
            }
            Stream::Relayed(stream) => {
                Self::export(stream, CHANNEL_LABEL, &context).map(ChannelSecrets::new)
            }
            #[cfg(test)]
            Stream::World(wire) => Ok(wire.channel_secrets(transfer, changes)),
        }
    }

    /// Exports the secrets with which further connections join a transfer.
    pub(crate) fn join_secrets(&self, transfer: u32) -> Result<JoinSecrets, TlsError> {
        let context = transfer.to_be_bytes();
        match &*self.lock() {
            Stream::Tls(stream) => Self::export(stream, JOIN_LABEL, &context).map(JoinSecrets::new),
            Stream::Relayed(stream) => {
                Self::export(stream, JOIN_LABEL, &context).map(JoinSecrets::new)
            }
            #[cfg(test)]
            Stream::World(_) => Err(TlsError::Other("not simulated".to_owned())),
        }
    }

    /// Exports the value over which the proof of a ticket's secret is computed.
    pub(crate) fn proof_exporter(&self) -> Result<[u8; 32], TlsError> {
        match &*self.lock() {
            Stream::Tls(stream) => Self::export(stream, PROOF_LABEL, b""),
            Stream::Relayed(stream) => Self::export(stream, PROOF_LABEL, b""),
            #[cfg(test)]
            Stream::World(wire) => Ok(wire.proof_exporter()),
        }
    }

    /// Exports the value that a key signs.
    pub(crate) fn login_exporter(&self) -> Result<[u8; 32], TlsError> {
        match &*self.lock() {
            Stream::Tls(stream) => Self::export(stream, LOGIN_LABEL, b""),
            Stream::Relayed(stream) => Self::export(stream, LOGIN_LABEL, b""),
            #[cfg(test)]
            Stream::World(_) => Err(TlsError::Other("not simulated".to_owned())),
        }
    }

    /// Sets TCP keepalive and the TCP user timeout, so that the kernel also detects a dead peer.
    pub(crate) fn watch_over(&self, timeouts: Timeouts) {
        match &*self.lock() {
            Stream::Tls(stream) => socket::watch_over(stream.get_ref().0, timeouts),
            // Pings detect a dead peer.
            Stream::Relayed(_) => {}
            #[cfg(test)]
            Stream::World(_) => {}
        }
    }

    /// Reads the next message, whose body may have at most `limit` bytes; `None` after a clean close. A longer message
    /// is rejected before its body is read.
    pub(crate) async fn read_at_most(&mut self, limit: usize) -> io::Result<Option<Message>> {
        Incoming::new(self).next(limit).await.map_err(|error| match error {
            ReadError::Io(error) => error,
            ReadError::Malformed(text) => io::Error::new(io::ErrorKind::InvalidData, text),
        })
    }

    /// Writes one message and flushes.
    pub(crate) async fn write(&mut self, message: &Message) -> io::Result<()> {
        let mut bytes = Vec::new();
        message
            .encode(&mut bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.write_all(&bytes).await?;
        self.flush().await
    }
}

/// A bidirectional byte stream.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(cx))
    }
}
