//! Blocks over TLS connections, for paths that do not pass UDP.
//!
//! ```text
//! sender to receiver:  | number of the block, 4 | length, 4 | block |
//! receiver to sender:  | number of the first missing block, 4 | number of the first block without room, 4 |
//! ```
//! A length of `0xffff_ffff` ends the blocks, once all have arrived: from that number on UDP carries them.
//! An idle sender sends a length of zero twice a second, and a receiver repeats its numbers.
//! All connections take blocks from one queue, so a slow connection takes fewer. The receiver puts the blocks in order.
//! An acknowledgement goes out on every connection, so that a connection that stalls does not hold up the others.
//! Invariants:  the sender keeps a block until the receiver has all blocks up to it; no block beyond the announced room
//!              is sent.
//! Not here:    congestion control, which is the kernel's; who dials ([`crate::joins`]).

mod receiver;
mod sender;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sabul_units::Span;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::driver::Wake;
use super::handover::DriverEnd;
use super::shared::{ChannelError, Shared};
use crate::ceiling::Ceiling;
use crate::connection::Connection;

pub(super) use receiver::receive;
pub(super) use sender::send;

/// Interval of statistics, limits and room.
const TICK: Duration = Duration::from_millis(20);
/// How long a failed connection waits for the end of the transfer: the peer may be done already.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time without a header on a connection: an idle end shows that it lives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(500);
/// Bytes of the header of a block, and of an acknowledgement.
const HEADER: usize = 8;

/// Start parameters of the connections.
#[derive(Debug)]
pub(crate) struct TcpStart {
    /// Connections to the peer that have joined the transfer.
    pub(crate) connections: Vec<Connection>,
    /// Longest block in bytes.
    pub(crate) block_bytes: u32,
    /// Rate limit of the transfer, in bit/s.
    pub(crate) rate_limit_bps: Option<u64>,
    /// Rate limit shared with other transfers.
    pub(crate) ceiling: Option<Ceiling>,
    /// Longest silence of the peer.
    pub(crate) silence: Duration,
    /// RTT, if known.
    pub(crate) rtt: Option<Span>,
    /// Name of the carrier for the user: `tcp` or `ssh`.
    pub(crate) carrier: &'static str,
    /// Reason for these connections, for the user.
    pub(crate) reason: &'static str,
}

/// Length in the header that ends the blocks over TCP: the next block comes over UDP.
const END: u32 = u32::MAX;
/// How long connections stay open behind their last header.
const LINGER: Duration = Duration::from_secs(5);

/// Result of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Running,
    /// All blocks have arrived, and no more follow.
    Complete,
    /// Another carrier takes over, and all blocks of this one have arrived.
    Drained,
}

/// Share of the content that TLS, TCP and IP headers add, in 1/1024: 52 bytes in each packet of 1500, 22 in each
/// record.
const HEADERS_1024: u64 = 38;

/// Bytes on the path for this content, with all headers.
pub(crate) const fn with_headers(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 1024 * HEADERS_1024)
}

/// Two 32-bit numbers, as in both headers.
const fn pair(bytes: [u8; HEADER]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = bytes;
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

fn header(first: u32, second: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..4].copy_from_slice(&first.to_be_bytes());
    bytes[4..].copy_from_slice(&second.to_be_bytes());
    bytes
}

/// Makes the waker of connections: all their tasks look at the shared state again.
pub(super) fn waker() -> (Arc<Notify>, Wake) {
    let notify = Arc::new(Notify::new());
    let to_wake = Arc::clone(&notify);
    (notify, Wake(Arc::new(move || to_wake.notify_waiters())))
}

fn silent(time: Duration) -> ChannelError {
    let text = format!("the peer sent nothing for {:.0} s", time.as_secs_f64());
    ChannelError::Tcp(io::Error::new(io::ErrorKind::TimedOut, text))
}

fn closed() -> ChannelError {
    ChannelError::Tcp(io::Error::from(io::ErrorKind::UnexpectedEof))
}

/// Runs the tasks of all connections until the application stops the channel, or a connection fails. Calls `tick` at
/// intervals and after each wake-up.
async fn run(
    mut tasks: JoinSet<Result<(), ChannelError>>,
    shared: &Shared,
    wake: &Notify,
    mut tick: impl FnMut() -> Result<Progress, ChannelError>,
) -> Result<DriverEnd, ChannelError> {
    let mut failure: Option<(ChannelError, Instant)> = None;
    loop {
        let mut woken = std::pin::pin!(wake.notified());
        woken.as_mut().enable();
        if shared.lock().is_stopped {
            return Ok(DriverEnd::Over);
        }
        let progress = tick()?;
        if progress == Progress::Complete {
            // The peer may close the connections before its result arrives on the control connection.
            failure = None;
        }
        if progress == Progress::Drained {
            // The last header must arrive: closing the connections could overtake it.
            tokio::spawn(async move {
                tokio::time::sleep(LINGER).await;
                drop(tasks);
            });
            return Ok(DriverEnd::HandOver);
        }
        if let Some((error, _)) = failure.take_if(|(_, since)| since.elapsed() >= END_TIMEOUT) {
            return Err(error);
        }
        tokio::select! {
            biased;
            Some(ended) = tasks.join_next() => {
                let error = match ended {
                    Ok(Ok(())) => closed(),
                    Ok(Err(error @ ChannelError::Blocks(_))) => return Err(error),
                    Ok(Err(error)) => error,
                    Err(_) => return Err(ChannelError::Broken),
                };
                failure.get_or_insert_with(|| (error, Instant::now()));
            }
            () = &mut woken => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}
