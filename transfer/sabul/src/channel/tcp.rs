//! Blocks over TLS connections, for paths that do not pass UDP.
//!
//! ```text
//! sender to receiver:  | number of the block, 4 | length, 4 | block |
//! receiver to sender:  | number of the first missing block, 4 | number of the first block without room, 4 |
//!                      | bytes of blocks received on these connections, 8 |
//! ```
//! A length of `0xffff_ffff` ends the blocks, once all have arrived: from that number on UDP carries them.
//! An idle sender sends a length of zero twice a second, and a receiver repeats its numbers.
//! All connections take blocks from one queue, so a slow connection takes fewer. The receiver puts the blocks in order.
//! An acknowledgement goes out on every connection, so that a connection that stalls does not hold up the others.
//! A connection that fails, or is silent for [`CONNECTION_SILENCE`] while another one is not, is closed. The sender then
//! sends its blocks over the others; the receiver drops blocks that it has. The last connection is kept.
//! Invariants:  the sender keeps a block until the receiver has all blocks up to it; no block beyond the announced room
//!              is sent.
//! Not here:    congestion control, which is the kernel's; who dials ([`crate::joins`]).

mod receiver;
mod sender;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sabul_units::Span;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::info;

use super::driver::Wake;
use super::handover::DriverEnd;
use super::shared::{ChannelError, Shared};
use crate::ceiling::Ceiling;
use crate::connection::Connection;
use crate::lock::lock;

pub(super) use receiver::receive;
pub(super) use sender::send;

/// Interval of statistics, limits and room.
const TICK: Duration = Duration::from_millis(20);
/// How long a failed connection waits for the end of the transfer: the peer may be done already.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Silence after which a connection counts as stalled while another one has traffic. Two keep-alive headers are missing then.
const CONNECTION_SILENCE: Duration = Duration::from_secs(1);
/// Longest time without a header on a connection: an idle end shows that it lives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(500);
/// Bytes of the header of a block.
const HEADER: usize = 8;
/// Bytes of an acknowledgement.
const ACK: usize = 16;
/// Interval at which the receiver reports received bytes; the sender compares the rate over this time with UDP.
const RECEIVED_INTERVAL: Duration = Duration::from_millis(100);

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
    /// UDP takes over, and the connections are closed although blocks are on their way.
    Abandoned,
}

/// Share of the content that TLS, TCP and IP headers add, in 1/1024: 52 bytes in each packet of 1500, 22 in each
/// record.
const HEADERS_1024: u64 = 38;

/// Bytes on the path for this content, with all headers.
pub(crate) const fn with_headers(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 1024 * HEADERS_1024)
}

/// Two 32-bit numbers.
const fn pair(bytes: [u8; HEADER]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = bytes;
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ack {
    /// First missing block.
    next: u32,
    /// First block without room.
    limit: u32,
    /// Bytes of blocks received on these connections, complete or not.
    received: u64,
}

impl Ack {
    fn encode(self) -> [u8; ACK] {
        let mut bytes = [0; ACK];
        bytes[..HEADER].copy_from_slice(&header(self.next, self.limit));
        bytes[HEADER..].copy_from_slice(&self.received.to_be_bytes());
        bytes
    }

    fn decode(bytes: [u8; ACK]) -> Self {
        let (mut numbers, mut received) = ([0; HEADER], [0; 8]);
        numbers.copy_from_slice(&bytes[..HEADER]);
        received.copy_from_slice(&bytes[HEADER..]);
        let (next, limit) = pair(numbers);
        Self { next, limit, received: u64::from_be_bytes(received) }
    }
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

/// States of the connections of a transfer, by index.
#[derive(Debug)]
struct ConnectionStates(Mutex<Vec<ConnectionState>>);

#[derive(Debug)]
struct ConnectionState {
    /// Time of the last bytes from the peer.
    last_received: Instant,
    is_open: bool,
}

impl ConnectionStates {
    fn new(count: usize) -> Self {
        let open = || ConnectionState { last_received: Instant::now(), is_open: true };
        Self(Mutex::new((0..count).map(|_| open()).collect()))
    }

    fn note(&self, index: usize) {
        if let Some(state) = lock(&self.0).get_mut(index) {
            state.last_received = Instant::now();
        }
    }

    fn is_open(&self, index: usize) -> bool {
        lock(&self.0).get(index).is_some_and(|state| state.is_open)
    }

    /// Closes a connection unless no other one is open. Returns whether the connection is closed.
    fn close(&self, index: usize) -> bool {
        let mut states = lock(&self.0);
        let others = states.iter().enumerate().filter(|(at, state)| *at != index && state.is_open);
        if others.count() == 0 {
            return false;
        }
        if let Some(state) = states.get_mut(index) {
            state.is_open = false;
        }
        true
    }

    /// Whether these indices include all open connections.
    fn all_open_in(&self, indices: &[usize]) -> bool {
        let states = lock(&self.0);
        let mut open = states.iter().enumerate().filter(|(_, state)| state.is_open);
        open.all(|(index, _)| indices.contains(&index))
    }

    /// Returns an open connection that is silent although another one is not.
    fn stalled(&self) -> Option<usize> {
        let states = lock(&self.0);
        let silence = |state: &ConnectionState| state.last_received.elapsed();
        let open = || states.iter().enumerate().filter(|(_, state)| state.is_open);
        let has_traffic = open().any(|(_, state)| silence(state) < CONNECTION_SILENCE / 2);
        let mut silent = open().filter(|(_, state)| silence(state) > CONNECTION_SILENCE);
        silent.next().map(|(index, _)| index).filter(|_| has_traffic)
    }
}

/// Tasks of all connections, with the index of their connection.
#[derive(Debug, Default)]
struct Tasks {
    set: JoinSet<(usize, Result<(), ChannelError>)>,
    aborts: Vec<(usize, AbortHandle)>,
}

impl Tasks {
    fn spawn(
        &mut self,
        index: usize,
        task: impl Future<Output = Result<(), ChannelError>> + Send + 'static,
    ) {
        let abort = self.set.spawn(async move { (index, task.await) });
        self.aborts.push((index, abort));
    }

    /// Ends the tasks of a connection, which closes the connection.
    fn end(&self, index: usize) {
        self.aborts.iter().filter(|(of, _)| *of == index).for_each(|(_, abort)| abort.abort());
    }
}

/// One end of the connections.
trait End {
    fn states(&self) -> &ConnectionStates;
    /// Applies settings and publishes statistics, at intervals and after each wake-up.
    fn tick(&self) -> Result<Progress, ChannelError>;
    /// Moves the blocks of a closed connection to the others.
    fn closed(&self, index: usize);
    /// Returns connections that the peer no longer uses.
    fn abandoned(&self) -> Vec<usize> {
        Vec::new()
    }
}

/// Runs the tasks of all connections until the application stops the channel, or the last connection fails.
async fn run(
    mut tasks: Tasks,
    end: &impl End,
    shared: &Shared,
    wake: &Notify,
) -> Result<DriverEnd, ChannelError> {
    let mut failure: Option<(ChannelError, Instant)> = None;
    // Returns false if no other connection is open.
    let close = |tasks: &Tasks, index: usize, why: &str| {
        let (was_open, is_closed) = (end.states().is_open(index), end.states().close(index));
        if is_closed && was_open {
            tasks.end(index);
            end.closed(index);
            info!(connection = index, why, "a TCP connection is closed; the others carry the data");
        }
        is_closed
    };
    loop {
        let mut woken = std::pin::pin!(wake.notified());
        woken.as_mut().enable();
        if shared.lock().is_stopped {
            return Ok(DriverEnd::Over);
        }
        for index in end.abandoned() {
            close(&tasks, index, "its block arrives on another connection");
        }
        if let Some(index) = end.states().stalled() {
            close(&tasks, index, "no answer");
        }
        let progress = end.tick()?;
        if progress == Progress::Complete || shared.lock().resume_at.is_some() {
            // The peer may close the connections before its message arrives on the control connection.
            failure = None;
        }
        if progress == Progress::Abandoned {
            tasks.set.shutdown().await;
            return Ok(DriverEnd::HandOver);
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
            Some(ended) = tasks.set.join_next() => {
                let error = match ended {
                    Ok((_, Err(error @ ChannelError::Blocks(_)))) => return Err(error),
                    Ok((index, ended)) => {
                        let error = ended.err().unwrap_or_else(closed);
                        if close(&tasks, index, &error.to_string()) {
                            continue;
                        }
                        error
                    }
                    Err(error) if error.is_cancelled() => continue,
                    Err(_) => return Err(ChannelError::Broken),
                };
                failure.get_or_insert_with(|| (error, Instant::now()));
            }
            () = &mut woken => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}
