//! Bytes of a stream that this machine passes on, and their limits.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep};

use crate::lock::lock;

/// Bytes that are read at a time.
const PIECE: usize = 16 << 10;

/// Limit of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Bytes at once.
    pub(crate) burst: u64,
    /// Bytes per second.
    pub(crate) rate: u64,
}

impl Limit {
    const fn time_of(self, bytes: u64) -> Duration {
        Duration::from_micros(bytes.saturating_mul(1_000_000) / self.rate)
    }
}

/// Token bucket of bytes, shared by any number of streams. Streams that wait for the bucket share its rate equally: each
/// waits for one piece at a time.
#[derive(Debug)]
pub(crate) struct Bucket {
    limit: Limit,
    full_at: Mutex<Instant>,
}

impl Bucket {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { limit, full_at: Mutex::new(Instant::now()) }
    }

    /// Takes bytes, and returns the time until they may be sent.
    pub(crate) fn take(&self, bytes: u64, now: Instant) -> Duration {
        let mut full_at = lock(&self.full_at);
        *full_at = (*full_at).max(now) + self.limit.time_of(bytes);
        full_at.saturating_duration_since(now + self.limit.time_of(self.limit.burst))
    }

    /// Whether the bucket is as a new one.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        *lock(&self.full_at) <= now
    }
}

/// Bytes in one direction of a stream so far.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    limits: Vec<Arc<Bucket>>,
    bytes: AtomicU64,
}

impl Meter {
    /// A meter whose bytes count in all these buckets.
    pub(crate) fn new(limits: Vec<Arc<Bucket>>) -> Self {
        Self { limits, bytes: AtomicU64::new(0) }
    }

    /// Returns the bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes and waits until they may be sent.
    async fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let now = Instant::now();
        let wait = self.limits.iter().map(|limit| limit.take(bytes, now)).max();
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            sleep(wait).await;
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
        meter.count(bytes as u64).await;
        to.write_all(&piece[..bytes]).await?;
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn streams_share_a_bucket_that_fills_up_again() {
        let limit = Limit { burst: 1 << 20, rate: 1 << 20 };
        let bucket = Arc::new(Bucket::new(limit));
        let stream = async |bytes: usize| {
            let meter = Meter::new(vec![Arc::clone(&bucket)]);
            pass(&vec![7; bytes][..], tokio::io::sink(), &meter).await.unwrap();
            assert_eq!(meter.bytes(), bytes as u64);
        };
        let expect = |began: Instant, least: f64| {
            let took = began.elapsed().as_secs_f64();
            assert!((least..least + 0.05).contains(&took), "{took} s instead of {least}");
        };
        let began = Instant::now();
        stream(1 << 20).await;
        expect(began, 0.0);
        // Each of two streams gets half of the rate.
        tokio::join!(stream(1 << 20), stream(1 << 20));
        expect(began, 2.0);
        assert!(!bucket.is_full(Instant::now()));
        sleep(Duration::from_secs(60)).await;
        assert!(bucket.is_full(Instant::now()));
        let began = Instant::now();
        stream(2 << 20).await;
        expect(began, 1.0);
    }
}
