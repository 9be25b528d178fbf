//! Proof of a database over TCP: its first message has to request SCRAM, in which the database proves, too, that it knows
//! the password. Any user of this machine can listen at the port of a database or tunnel that is down, and workers
//! carry out the jobs that a database has.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready as is_ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Kind, length and code of a message that requests an authentication. [PostgreSQL 15, 55.7]
const REQUEST_BYTES: usize = 9;
const REQUEST: u8 = b'R';
/// Code of a request for SASL, of which SCRAM-SHA-256 is the only supported kind.
const SASL: [u8; 4] = 10_i32.to_be_bytes();

/// Connector that refuses a server without proof. The client calls it as it calls TLS, so it has the whole stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proving;

impl<S: AsyncRead + AsyncWrite + Unpin> MakeTlsConnect<S> for Proving {
    type Stream = Proven<S>;
    type TlsConnect = Self;
    type Error = io::Error;

    fn make_tls_connect(&mut self, _: &str) -> io::Result<Self> {
        Ok(*self)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsConnect<S> for Proving {
    type Stream = Proven<S>;
    type Error = io::Error;
    type Future = Ready<io::Result<Proven<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        ready(Ok(Proven { stream, start: Vec::with_capacity(REQUEST_BYTES) }))
    }
}

/// Connection whose first message is checked.
#[derive(Debug)]
pub(super) struct Proven<S> {
    stream: S,
    /// The first bytes of the server.
    start: Vec<u8>,
}

impl<S> Proven<S> {
    /// Records further bytes of the server.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let missing = REQUEST_BYTES - self.start.len();
        self.start.extend_from_slice(&bytes[..missing.min(bytes.len())]);
        // The client reads a message when it is complete, so not before these bytes.
        match self.start[..] {
            [REQUEST, _, _, _, _, ref code @ ..] if code.len() == SASL.len() && code != SASL => {
                Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "it does not prove that it knows the password, as another program at this port would not; a \
                     database needs scram-sha-256 in its pg_hba.conf",
                ))
            }
            _ => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Proven<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        is_ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if self.start.len() < REQUEST_BYTES {
            self.take(&buffer.filled()[before..])?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Proven<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Proven<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a server that begins with these bytes, in pieces of this size, is refused.
    fn is_refused(bytes: &[u8], piece: usize) -> bool {
        let mut proven = Proven { stream: (), start: Vec::new() };
        let mut pieces = bytes.chunks(piece);
        pieces.any(|piece| proven.start.len() < REQUEST_BYTES && proven.take(piece).is_err())
    }

    #[test]
    fn only_a_server_that_requests_scram_is_accepted() {
        let request = |code: i32| [&b"R\0\0\0\x08"[..], &code.to_be_bytes(), b"Z\0"].concat();
        for piece in [1, 5, 8, 9, 100] {
            // Accepted without a proof, a password in the clear, MD5, GSS, an unknown code.
            for code in [0, 3, 5, 7, 11, -1] {
                assert!(is_refused(&request(code), piece), "{code}, {piece}");
            }
            assert!(!is_refused(&request(10), piece), "{piece}");
            // An error before the authentication, such as too many connections.
            assert!(!is_refused(b"E\0\0\0\x08Sx\0\0\0", piece), "{piece}");
        }
    }
}
