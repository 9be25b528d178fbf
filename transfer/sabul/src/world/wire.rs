//! Simulated TCP and TLS connection between two hosts: an ordered, delayed byte stream.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::lock::lock;
use crate::tls::ChannelSecrets;

/// Maximum number of bytes in transit per direction; beyond this, the writer blocks.
const WINDOW: usize = 256 << 10;

#[derive(Debug, Default)]
struct Pipe {
    /// Bytes in transit, with their arrival times.
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// The writer has closed the stream.
    is_closed: bool,
    /// The connection is reset.
    is_broken: bool,
    /// No byte arrives before this time; TCP retransmissions would deliver lost bytes then.
    held_until: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

type Shared = Arc<Mutex<Pipe>>;

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Wire {
    incoming: Shared,
    outgoing: Shared,
    delay: Duration,
    sleep: Pin<Box<Sleep>>,
    /// Equal at both ends, like a value exported from a TLS connection.
    secret: [u8; 32],
}

/// Handle for faults of a connection.
#[derive(Clone, Debug)]
pub(crate) struct FaultHandle([Shared; 2]);

impl FaultHandle {
    /// Resets the connection: both ends receive an error.
    pub(crate) fn cut(&self) {
        for pipe in &self.0 {
            let mut pipe = lock(pipe);
            pipe.is_broken = true;
            wake(&mut pipe);
        }
    }

    /// Delays all bytes until this time.
    pub(crate) fn hold(&self, until: Instant) {
        for pipe in &self.0 {
            let mut pipe = lock(pipe);
            pipe.held_until = Some(until);
            for chunk in &mut pipe.chunks {
                chunk.0 = chunk.0.max(until);
            }
        }
    }
}

fn wake(pipe: &mut Pipe) {
    for waker in [pipe.reader.take(), pipe.writer.take()].into_iter().flatten() {
        waker.wake();
    }
}

impl Wire {
    /// Creates both ends of a connection with a one-way delay of `delay`, and a fault handle.
    pub(crate) fn pair(delay: Duration, secret: [u8; 32]) -> (Self, Self, FaultHandle) {
        let [there, back]: [Shared; 2] = std::array::from_fn(|_| Shared::default());
        let end = |incoming: &Shared, outgoing: &Shared| Self {
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            delay,
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            secret,
        };
        let grip = FaultHandle([Arc::clone(&there), Arc::clone(&back)]);
        (end(&back, &there), end(&there, &back), grip)
    }

    pub(crate) fn channel_secrets(&self, channel: u32, key: u32) -> ChannelSecrets {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&channel.to_be_bytes());
        if key > 0 {
            hasher.update(&key.to_be_bytes());
        }
        let mut out = hasher.finalize_xof();
        let mut secrets =
            ChannelSecrets { connection_id: 0, to_listener: [0; 32], to_connector: [0; 32] };
        let mut id = [0; 8];
        out.fill(&mut id);
        secrets.connection_id = u64::from_be_bytes(id);
        out.fill(&mut secrets.to_listener);
        out.fill(&mut secrets.to_connector);
        secrets
    }

    pub(crate) const fn proof_exporter(&self) -> [u8; 32] {
        self.secret
    }
}

fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer")
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let incoming = Arc::clone(&self.incoming);
        let mut pipe = lock(&incoming);
        loop {
            if pipe.is_broken {
                return Poll::Ready(Err(reset()));
            }
            let Some(&(due, _)) = pipe.chunks.front() else {
                if pipe.is_closed {
                    return Poll::Ready(Ok(()));
                }
                pipe.reader = Some(cx.waker().clone());
                return Poll::Pending;
            };
            if due > Instant::now() {
                pipe.reader = Some(cx.waker().clone());
                self.sleep.as_mut().reset(due);
                if self.sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                continue;
            }
            let Some((due, mut bytes)) = pipe.chunks.pop_front() else { continue };
            let count = bytes.len().min(buffer.remaining());
            buffer.put_slice(&bytes[..count]);
            pipe.bytes -= count;
            if count < bytes.len() {
                bytes.drain(..count);
                pipe.chunks.push_front((due, bytes));
            }
            if let Some(waker) = pipe.writer.take() {
                waker.wake();
            }
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut pipe = lock(&self.outgoing);
        if pipe.is_broken || pipe.is_closed {
            return Poll::Ready(Err(reset()));
        }
        let count = bytes.len().min(WINDOW - pipe.bytes);
        if count == 0 {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let arrival = Instant::now() + self.delay;
        let last = pipe.chunks.back().map_or(arrival, |(due, _)| *due);
        let held = pipe.held_until.unwrap_or(arrival);
        pipe.chunks.push_back((arrival.max(last).max(held), bytes[..count].to_vec()));
        pipe.bytes += count;
        if let Some(waker) = pipe.reader.take() {
            waker.wake();
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.outgoing);
        pipe.is_closed = true;
        wake(&mut pipe);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Wire {
    /// Resets the connection, as the kernel does for the socket of a killed process.
    fn drop(&mut self) {
        let mut pipe = lock(&self.outgoing);
        if !pipe.is_closed {
            pipe.is_broken = true;
        }
        wake(&mut pipe);
        let mut pipe = lock(&self.incoming);
        pipe.is_broken = true;
        wake(&mut pipe);
    }
}
