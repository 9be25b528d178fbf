//! Calls to a server through its introducer.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use sabul_wire::control::{CONTROL_VERSION, MAX_SMALL, Message};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::connection::{Carried, Connection, Hop};
use crate::dial::connect_to_name;
use crate::error::Error;
use crate::lock::lock;
use crate::outside::Outside;
use crate::ticket::Introduction;
use crate::tls::{self, JoinSecrets};

/// Longest time from the begin of a call to its answer, beside that of the network: the introducer waits for a server that
/// registers again.
const CALL_TIMEOUT: Duration = Duration::from_secs(13);

/// Way of a session through an introducer.
#[derive(Debug)]
pub(crate) struct Introduced {
    pub(crate) introduction: Introduction,
    /// The introducer, for TCP and UDP.
    pub(crate) introducer: SocketAddr,
    /// Secrets of the last call without data.
    pub(crate) secrets: Mutex<Arc<JoinSecrets>>,
    /// Outside address and kind of NAT of this end.
    pub(crate) own: watch::Sender<Option<Outside>>,
    /// Whether the data may go through the introducer.
    pub(crate) relay: bool,
    pub(crate) timeout: Duration,
    pub(crate) local: Option<IpAddr>,
}

impl Introduced {
    /// Secrets for questions about outside addresses.
    pub(crate) fn secrets(&self) -> Arc<JoinSecrets> {
        Arc::clone(&lock(&self.secrets))
    }

    async fn dial(&self, carries_data: bool) -> Result<Connection, Error> {
        let Introduction { address, fingerprint, name } = &self.introduction;
        let failed = |source| Error::Unreachable { address: address.clone(), source };
        let dialling = async {
            let stream = connect_to_name(address, self.local).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            let stream = tls::connect(stream, *fingerprint).await;
            stream.map_err(|error| Error::from_tls(error, address))
        };
        let stream = timeout(self.timeout, dialling).await;
        let stream = stream.map_err(|_| failed(io::ErrorKind::TimedOut.into()))??;
        let mut connection = Connection::new(stream);
        call(&mut connection, address, *name, carries_data).await?;
        Ok(connection)
    }

    /// Makes another call, for data. Adds all bytes to `relayed`.
    pub(crate) async fn call_for_data(&self, relayed: &Arc<AtomicU64>) -> io::Result<Carried> {
        let inner = self.dial(true).await.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Box::new(Outer { inner, bytes: Arc::clone(relayed) }))
    }

    /// Makes another call for the control connection, with TLS to the listener that has this fingerprint.
    pub(crate) async fn call_again(&self, fingerprint: [u8; 32]) -> io::Result<Connection> {
        let other = |error: &dyn fmt::Display| io::Error::other(error.to_string());
        let inner = self.dial(false).await.map_err(|error| other(&error))?;
        let secrets = inner.outside_secrets().map_err(|error| other(&error))?;
        *lock(&self.secrets) = Arc::new(secrets);
        let stream: Carried = Box::new(Outer::new(inner));
        let handshake = timeout(self.timeout, tls::connect(stream, fingerprint));
        let stream = handshake.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        let stream = stream.map_err(|error| other(&error))?;
        Ok(Connection::relayed(stream, Hop::Introducer))
    }
}

/// Connection to an introducer during a call. Its end without a close of TLS is the end of the introducer and not of the
/// server, so a session continues over another call.
#[derive(Debug)]
pub(crate) struct Outer {
    inner: Connection,
    /// Bytes in both directions.
    bytes: Arc<AtomicU64>,
}

impl Outer {
    pub(crate) fn new(inner: Connection) -> Self {
        Self { inner, bytes: Arc::default() }
    }
}

fn broken(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::ErrorKind::ConnectionReset.into(),
        _ => error,
    }
}

impl AsyncRead for Outer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        self.bytes.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        polled.map_err(broken)
    }
}

impl AsyncWrite for Outer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        if let Poll::Ready(Ok(written)) = &polled {
            self.bytes.fetch_add(*written as u64, Ordering::Relaxed);
        }
        polled.map_err(broken)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx).map_err(broken)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx).map_err(broken)
    }
}

/// Calls the server with this name over a connection to its introducer.
pub(crate) async fn call(
    connection: &mut Connection,
    address: &str,
    name: [u8; 16],
    carries_data: bool,
) -> Result<(), Error> {
    let text = |why: &dyn fmt::Display| format!("the introducer {address}: {why}");
    let gone = |why: &str| Error::PeerGone(text(&why).into());
    let exchange = async {
        let message = Message::Call { version: CONTROL_VERSION, name, carries_data };
        connection.write(&message).await?;
        connection.read_at_most(MAX_SMALL).await
    };
    let answer = timeout(CALL_TIMEOUT, exchange).await;
    let answer = answer.map_err(|_| gone("no answer"))?;
    match answer.map_err(|error| Error::gone(text(&error), error))? {
        Some(Message::Called) => Ok(()),
        Some(Message::Cancel { failure, .. }) => Err(Error::gone(text(&failure), failure)),
        Some(_) => Err(gone("unexpected message")),
        None => Err(gone("it closed the connection")),
    }
}
