//! Bytes of a stream that this machine passes on, and their limit.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until};

/// Bytes that are read at a time.
const PIECE: usize = 16 << 10;

/// Limit of the bytes of a stream, both directions together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Bytes at once.
    pub(crate) burst: u64,
    /// Bytes per second.
    pub(crate) rate: u64,
}

/// Bytes of a stream so far.
#[derive(Debug)]
pub(crate) struct Meter {
    limit: Option<Limit>,
    bytes: AtomicU64,
    began: Instant,
}

impl Meter {
    pub(crate) fn new(limit: Option<Limit>) -> Self {
        Self { limit, bytes: AtomicU64::new(0), began: Instant::now() }
    }

    /// Returns the bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes and waits until they may be sent.
    async fn count(&self, bytes: usize) {
        let total = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let Some(limit) = self.limit else { return };
        let beyond = total.saturating_sub(limit.burst);
        if beyond > 0 {
            sleep_until(self.began + Duration::from_millis(beyond * 1000 / limit.rate)).await;
        }
    }
}

/// Passes on bytes in one direction until its end.
pub(crate) async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    meter: &Meter,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let bytes = from.read(&mut piece).await?;
        if bytes == 0 {
            return to.shutdown().await;
        }
        meter.count(bytes).await;
        to.write_all(&piece[..bytes]).await?;
        to.flush().await?;
    }
}
