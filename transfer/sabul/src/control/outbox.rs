//! Send queue of the control connection, bounded in bytes, and its writer, which also sends pings.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sabul_wire::DecodeError;
use sabul_wire::control::{Failure, FailureCode, Message};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, warn};

use super::ending::Ending;
use super::router::Router;
use super::sent::{Kept, Sent};
use crate::budget::{NoMemory, Tally};
use crate::connection::packing::packed;
use crate::timeouts::Timeouts;

/// Most bytes of queued small messages. Ours: minutes of reports; a peer with a longer queue does
/// not read.
const BACKLOG_MAX: usize = 8 << 20;
/// Most bytes of queued answers about files; at least one message. Ours: enough to fill a write,
/// little to discard.
const BULK_OUT: u32 = 1 << 20;
/// Memory of a queued message besides its bytes.
const ITEM_BYTES: usize = 96;
/// Bytes gathered into one write.
const WRITE_BYTES: usize = 64 << 10;
/// The peer must accept this many bytes within the silence timeout.
const STEP_BYTES: usize = 16 << 10;
/// How long the reader may find the reason after a write has failed.
const REASON_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the end of a session waits for its last messages to be written.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

/// An encoded message in the queue, with its queue space.
#[derive(Debug)]
pub(super) struct Outgoing {
    kept: Kept,
    /// The peer counts this message.
    is_counted: bool,
    place: Place,
}

/// Queue space of a message. Frees the space when the message has been written or dropped.
#[derive(Debug)]
enum Place {
    Small(usize, Arc<AtomicUsize>),
    Bulk(#[expect(dead_code, reason = "held until the message is written")] OwnedSemaphorePermit),
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Small(bytes, backlog) = self {
            backlog.fetch_sub(*bytes, Ordering::AcqRel);
        }
    }
}

/// Whether both ends count this message, so that another connection can repeat it.
fn is_counted(message: &Message) -> bool {
    !matches!(message, Message::Hello { .. } | Message::Login { .. } | Message::Received { .. })
}

/// Cause of a message that was not queued.
#[derive(Debug)]
pub(super) enum NotSent {
    /// The message cannot be encoded.
    Unfit(DecodeError),
    /// The queue is full.
    Full,
    /// There is no memory for the message.
    NoMemory(NoMemory),
    /// The writer task has ended.
    Gone,
}

/// Queue of messages to write. Clones share the queue; when all clones are dropped, the connection
/// is closed.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    queue: mpsc::UnboundedSender<Outgoing>,
    backlog: Arc<AtomicUsize>,
    bulk: Arc<Semaphore>,
    memory: Arc<Tally>,
}

/// Weak reference to an [`Outbox`], which does not keep the connection open.
#[derive(Clone, Debug)]
pub(super) struct WeakOutbox {
    queue: mpsc::WeakUnboundedSender<Outgoing>,
    backlog: Arc<AtomicUsize>,
    bulk: Arc<Semaphore>,
    memory: Arc<Tally>,
}

impl WeakOutbox {
    pub(super) fn upgrade(&self) -> Option<Outbox> {
        let (backlog, bulk) = (Arc::clone(&self.backlog), Arc::clone(&self.bulk));
        let memory = Arc::clone(&self.memory);
        self.queue.upgrade().map(|queue| Outbox { queue, backlog, bulk, memory })
    }
}

impl Outbox {
    pub(super) fn new(memory: Tally) -> (Self, mpsc::UnboundedReceiver<Outgoing>) {
        let (queue, messages) = mpsc::unbounded_channel();
        let bulk = Arc::new(Semaphore::new(BULK_OUT as usize));
        (Self { queue, backlog: Arc::default(), bulk, memory: Arc::new(memory) }, messages)
    }

    /// Memory of the session, for its queue and other needs.
    pub(super) const fn memory(&self) -> &Arc<Tally> {
        &self.memory
    }

    pub(super) fn downgrade(&self) -> WeakOutbox {
        let (backlog, bulk) = (Arc::clone(&self.backlog), Arc::clone(&self.bulk));
        WeakOutbox {
            queue: self.queue.downgrade(),
            backlog,
            bulk,
            memory: Arc::clone(&self.memory),
        }
    }

    /// Queues a small message, without waiting.
    pub(super) fn put(&self, message: &Message) -> Result<(), NotSent> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).map_err(NotSent::Unfit)?;
        let mut bytes = packed(bytes);
        bytes.shrink_to_fit();
        let size = bytes.len() + ITEM_BYTES;
        let memory = self.memory.hold(size).map_err(NotSent::NoMemory)?;
        let waiting = self.backlog.fetch_add(size, Ordering::AcqRel);
        let place = Place::Small(size, Arc::clone(&self.backlog));
        if waiting + size > BACKLOG_MAX {
            return Err(NotSent::Full);
        }
        let kept = Kept::new(bytes, *message == Message::Close, Some(memory));
        let outgoing = Outgoing { kept, is_counted: is_counted(message), place };
        self.queue.send(outgoing).map_err(|_| NotSent::Gone)
    }

    /// Queues an answer about files once there is room.
    pub(super) async fn put_bulk(&self, message: &Message) -> Result<(), NotSent> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).map_err(NotSent::Unfit)?;
        let mut bytes = packed(bytes);
        bytes.shrink_to_fit();
        let size = u32::try_from(bytes.len()).map_or(BULK_OUT, |size| size.min(BULK_OUT));
        let bulk = Arc::clone(&self.bulk);
        let permit = bulk.acquire_many_owned(size).await.map_err(|_| NotSent::Gone)?;
        let size = bytes.len() + ITEM_BYTES;
        let memory = self.memory.hold(size).map_err(NotSent::NoMemory)?;
        let kept = Kept::new(bytes, false, Some(memory));
        let outgoing = Outgoing { kept, is_counted: true, place: Place::Bulk(permit) };
        self.queue.send(outgoing).map_err(|_| NotSent::Gone)
    }

    /// Bytes of queued small messages.
    #[cfg(test)]
    pub(super) fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Acquire)
    }
}

/// Failure of a session whose queue is full.
pub(super) fn overfull() -> Failure {
    let text = format!("the other end does not read its messages: {} MiB wait", BACKLOG_MAX >> 20);
    Failure::new(FailureCode::Timeout, text)
}

fn stuck(limit: Duration) -> Failure {
    let text = format!(
        "the other end took nothing off the control connection for {:.0} s; check that it still \
         runs, and try again",
        limit.as_secs_f64()
    );
    Failure::new(FailureCode::Timeout, text)
}

/// Result of [`Writing::run`].
#[derive(Debug)]
pub(super) enum WriteEnd {
    /// Every [`Outbox`] is dropped, or [`Message::Close`] is written.
    Done,
    /// The session has to end.
    Failed(Ending),
    /// The connection failed.
    Broken(String),
}

/// Writer of one connection. Cancel-safe: a dropped call has put every message that it took into [`Sent`].
#[derive(Debug)]
pub(super) struct Writing<W> {
    connection: W,
    bytes: Vec<u8>,
    /// Number of bytes already written.
    at: usize,
    timeouts: Timeouts,
    /// Why the connection cannot be written.
    broken: Option<String>,
}

impl<W: AsyncWrite + Unpin> Writing<W> {
    pub(super) fn new(connection: W, timeouts: Timeouts) -> Self {
        Self { connection, bytes: Vec::new(), at: 0, timeouts, broken: None }
    }

    /// Why the connection cannot be written, if a write has failed.
    pub(super) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Writes the messages of `sent` that this connection has not carried, and then messages as they are queued.
    pub(super) async fn run(
        &mut self,
        messages: &mut mpsc::UnboundedReceiver<Outgoing>,
        sent: &mut Sent,
        router: &Router,
    ) -> WriteEnd {
        let interval = self.timeouts.silence / 3;
        let mut next_ping = Instant::now() + interval;
        let mut acknowledged = router.acknowledged();
        let mut acknowledged_at = Instant::now();
        loop {
            let count = *acknowledged.borrow_and_update();
            if let Err(failure) = sent.acknowledge(count) {
                return WriteEnd::Failed(Ending::Failure(failure));
            }
            let mut is_last = sent.gather(&mut self.bytes, WRITE_BYTES);
            // Queue space is freed when the bytes are written.
            let mut places = Vec::new();
            if self.bytes.is_empty() {
                let limit = acknowledged_at + self.timeouts.silence;
                tokio::select! {
                    biased;
                    first = messages.recv(), if !sent.is_full() => {
                        let Some(first) = first else { return WriteEnd::Done };
                        let mut next = Some(first);
                        while let Some(Outgoing { kept, is_counted, place }) = next.take() {
                            places.push(place);
                            is_last = kept.is_last;
                            if is_counted {
                                sent.push(kept);
                                sent.gather(&mut self.bytes, usize::MAX);
                            } else {
                                self.bytes.extend(&kept.bytes);
                            }
                            if !is_last && self.bytes.len() < WRITE_BYTES && !sent.is_full() {
                                next = messages.try_recv().ok();
                            }
                        }
                    }
                    // The router lives as long as the writer.
                    _ = acknowledged.changed() => {
                        acknowledged_at = Instant::now();
                        continue;
                    }
                    () = sleep_until(next_ping) => {
                        next_ping = Instant::now() + interval;
                        router.count_ping();
                        let mut ping = Vec::new();
                        encode(&Message::Ping, &mut ping);
                        sent.push(Kept::new(ping, false, None));
                        continue;
                    }
                    () = sleep_until(limit), if sent.is_full() => {
                        return WriteEnd::Failed(Ending::Failure(stuck(self.timeouts.silence)));
                    }
                }
            }
            match self.write_out().await {
                Ok(()) if is_last => return WriteEnd::Done,
                Ok(()) => {}
                Err(Stopped::Stuck) => {
                    return WriteEnd::Failed(Ending::Failure(stuck(self.timeouts.silence)));
                }
                Err(Stopped::Broken(error)) => {
                    // The last messages of the peer, with its reason, may still be readable.
                    self.broken = Some(error.to_string());
                    sleep(REASON_TIMEOUT).await;
                    return WriteEnd::Broken(error.to_string());
                }
            }
        }
    }

    /// Sends the reason of the end, unless the peer has it, and closes.
    pub(super) async fn finish(&mut self, router: &Router) {
        let farewell = async {
            if let Some(failure) = router.final_failure() {
                let farewell = Message::Cancel { transfer: None, failure };
                // The message has only short texts.
                let _ = farewell.encode(&mut self.bytes);
            }
            self.write_out().await.ok()?;
            // The shutdown shows the peer that no data was cut off; a peer that is gone does not matter.
            self.connection.shutdown().await.ok()
        };
        let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
    }

    async fn write_out(&mut self) -> Result<(), Stopped> {
        while self.at < self.bytes.len() {
            let step = self.bytes.len().min(self.at + STEP_BYTES);
            let written = async {
                while self.at < step {
                    match self.connection.write(&self.bytes[self.at..step]).await? {
                        0 => return Err(io::ErrorKind::WriteZero.into()),
                        count => self.at += count,
                    }
                }
                self.connection.flush().await
            };
            match timeout(self.timeouts.silence, written).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    debug!(%error, "control connection cannot be written");
                    return Err(Stopped::Broken(error));
                }
                Err(_) => return Err(Stopped::Stuck),
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(WRITE_BYTES);
        self.at = 0;
        Ok(())
    }
}

/// Cause of a failed write.
#[derive(Debug)]
enum Stopped {
    /// The connection failed.
    Broken(io::Error),
    /// The peer accepts no data.
    Stuck,
}

fn encode(message: &Message, bytes: &mut Vec<u8>) {
    if let Err(error) = message.encode(bytes) {
        warn!(?error, "a message was too long and was not sent");
    }
}
