//! TLS connection between two ends, shared by a reading and a writing task.

pub(crate) mod incoming;
pub(crate) mod packing;
mod socket;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use sabul_wire::control::Message;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::lock::lock;
use crate::timeouts::Timeouts;
use crate::tls::{
    CHANNEL_LABEL, ChannelSecrets, JOIN_LABEL, JoinSecrets, LOGIN_LABEL, OUTSIDE_LABEL,
    PROOF_LABEL, RESUME_LABEL, TlsError, exporter,
};
use incoming::{Incoming, ReadError};

/// A connection to the peer, shared by the reader and the writer task.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Mutex<Stream>>);

/// Bytes of a connection inside of another one.
pub(crate) type Carried = Box<dyn Duplex>;

/// Host that passes on the bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    /// The host of ssh, which runs one of the ends.
    Ssh,
    /// An introducer.
    Introducer,
}

/// Transport of control messages.
#[derive(Debug)]
pub(crate) enum Stream {
    Tls(Box<TlsStream<TcpStream>>),
    /// TLS through another connection.
    Relayed(Box<TlsStream<Carried>>, Hop),
    /// The state of TLS after the end of its TCP connection; only for [`Connection::export`].
    Closed(Option<Box<rustls::Connection>>),
    /// Simulated connection between two hosts in virtual time.
    #[cfg(test)]
    World(crate::world::Wire),
    /// Bytes in memory.
    #[cfg(test)]
    Pipe(tokio::io::DuplexStream),
}

impl Connection {
    pub(crate) fn new(stream: impl Into<TlsStream<TcpStream>>) -> Self {
        Self::over(Stream::Tls(Box::new(stream.into())))
    }

    /// A connection inside of another one.
    pub(crate) fn relayed(stream: impl Into<TlsStream<Carried>>, hop: Hop) -> Self {
        Self::over(Stream::Relayed(Box::new(stream.into()), hop))
    }

    /// The host that passes on the bytes; `None` for a TCP connection between both ends.
    pub(crate) fn hop(&self) -> Option<Hop> {
        match &*self.lock() {
            Stream::Relayed(_, hop) => Some(*hop),
            _ => None,
        }
    }

    pub(crate) fn over(stream: Stream) -> Self {
        Self(Arc::new(Mutex::new(stream)))
    }

    fn lock(&self) -> MutexGuard<'_, Stream> {
        lock(&self.0)
    }

    /// Calls `poll` with the underlying stream.
    fn with<T>(&self, poll: impl FnOnce(Pin<&mut dyn Duplex>) -> T) -> T {
        match &mut *self.lock() {
            Stream::Tls(stream) => poll(Pin::new(stream.as_mut())),
            Stream::Relayed(stream, _) => poll(Pin::new(stream.as_mut())),
            Stream::Closed(_) => poll(Pin::new(&mut tokio::io::empty())),
            #[cfg(test)]
            Stream::World(wire) => poll(Pin::new(wire)),
            #[cfg(test)]
            Stream::Pipe(pipe) => poll(Pin::new(pipe)),
        }
    }

    /// Exports bytes that only the two ends of this TLS session can compute.
    fn export<const N: usize>(&self, label: &[u8], context: &[u8]) -> Result<[u8; N], TlsError> {
        match &*self.lock() {
            Stream::Tls(stream) => Self::export_from(stream, label, context),
            Stream::Relayed(stream, _) => Self::export_from(stream, label, context),
            Stream::Closed(tls) => match tls.as_deref() {
                Some(rustls::Connection::Client(tls)) => exporter(tls, label, context),
                Some(rustls::Connection::Server(tls)) => exporter(tls, label, context),
                None => Err(TlsError::Closed),
            },
            #[cfg(test)]
            _ => Err(TlsError::Other("not simulated".to_owned())),
        }
    }

    fn export_from<S, const N: usize>(
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
        #[cfg(test)]
        if let Stream::World(wire) = &*self.lock() {
            return Ok(wire.channel_secrets(transfer, changes));
        }
        let context = ChannelSecrets::context(transfer, changes);
        self.export(CHANNEL_LABEL, &context).map(ChannelSecrets::new)
    }

    /// Exports the secrets with which further connections join a transfer.
    pub(crate) fn join_secrets(&self, transfer: u32) -> Result<JoinSecrets, TlsError> {
        self.export(JOIN_LABEL, &transfer.to_be_bytes()).map(JoinSecrets::new)
    }

    /// Exports the secrets with which another connection replaces this one.
    pub(crate) fn resume_secrets(&self) -> Result<JoinSecrets, TlsError> {
        self.export(RESUME_LABEL, b"").map(JoinSecrets::new)
    }

    /// Exports the value over which the proof of a ticket's secret is computed.
    pub(crate) fn proof_exporter(&self) -> Result<[u8; 32], TlsError> {
        #[cfg(test)]
        if let Stream::World(wire) = &*self.lock() {
            return Ok(wire.proof_exporter());
        }
        self.export(PROOF_LABEL, b"")
    }

    /// Exports the value that a key signs.
    pub(crate) fn login_exporter(&self) -> Result<[u8; 32], TlsError> {
        self.export(LOGIN_LABEL, b"")
    }

    /// Exports the secrets with which an end asks an introducer for its outside address.
    pub(crate) fn outside_secrets(&self) -> Result<JoinSecrets, TlsError> {
        self.export(OUTSIDE_LABEL, b"").map(JoinSecrets::new)
    }

    /// Local address of the TCP connection.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        match &*self.lock() {
            Stream::Tls(stream) => stream.get_ref().0.local_addr().ok().map(|local| local.ip()),
            _ => None,
        }
    }

    /// Closes the TCP connection, and keeps the state of TLS for [`Self::export`].
    pub(crate) fn close_socket(&self) {
        let mut stream = self.lock();
        let ended = match std::mem::replace(&mut *stream, Stream::Closed(None)) {
            Stream::Tls(tls) => match *tls {
                TlsStream::Client(tls) => rustls::Connection::Client(tls.into_inner().1),
                TlsStream::Server(tls) => rustls::Connection::Server(tls.into_inner().1),
            },
            other => {
                *stream = other;
                return;
            }
        };
        *stream = Stream::Closed(Some(Box::new(ended)));
    }

    /// Sets TCP keepalive and the TCP user timeout, so that the kernel also detects a dead peer.
    pub(crate) fn watch_over(&self, timeouts: Timeouts) {
        // Pings detect a dead peer of other connections.
        if let Stream::Tls(stream) = &*self.lock() {
            socket::watch_over(stream.get_ref().0, timeouts);
        }
    }

    /// Lets the kernel send like CUBIC or Reno, if the connection is a TCP connection between both ends.
    pub(crate) fn choose_loss_based_control(&self) {
        if let Stream::Tls(stream) = &*self.lock() {
            socket::choose_loss_based_control(stream.get_ref().0);
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
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug> Duplex for T {}

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
