//! Send queue of the control connection, bounded in bytes, and its writer task, which also sends
//! pings.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sabul_wire::DecodeError;
use sabul_wire::control::{Failure, FailureCode, Message};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use super::ending::Ending;
use super::router::Router;
use crate::budget::{NoMemory, Tally};
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
/// How long the end of a session waits for its last messages to be written.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

/// An encoded message in the queue, with its queue space.
#[derive(Debug)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    is_last: bool,
    place: Reservation,
}

/// Queue space of a message. Frees space and memory when the message has been written or dropped.
#[derive(Debug)]
struct Reservation {
    bytes: usize,
    memory: Arc<Tally>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Small(Arc<AtomicUsize>),
    Bulk(#[expect(dead_code, reason = "held until the message is written")] OwnedSemaphorePermit),
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.remove(self.bytes);
        if let Kind::Small(backlog) = &self.kind {
            backlog.fetch_sub(self.bytes, Ordering::AcqRel);
        }
    }
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
        bytes.shrink_to_fit();
        let size = bytes.len() + ITEM_BYTES;
        self.memory.add(size).map_err(NotSent::NoMemory)?;
        let waiting = self.backlog.fetch_add(size, Ordering::AcqRel);
        let place = self.place(size, Kind::Small(Arc::clone(&self.backlog)));
        if waiting + size > BACKLOG_MAX {
            return Err(NotSent::Full);
        }
        let outgoing = Outgoing { bytes, is_last: *message == Message::Close, place };
        self.queue.send(outgoing).map_err(|_| NotSent::Gone)
    }

    /// Queues an answer about files once there is room.
    pub(super) async fn put_bulk(&self, message: &Message) -> Result<(), NotSent> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).map_err(NotSent::Unfit)?;
        bytes.shrink_to_fit();
        let size = u32::try_from(bytes.len()).map_or(BULK_OUT, |size| size.min(BULK_OUT));
        let bulk = Arc::clone(&self.bulk);
        let permit = bulk.acquire_many_owned(size).await.map_err(|_| NotSent::Gone)?;
        let size = bytes.len() + ITEM_BYTES;
        self.memory.add(size).map_err(NotSent::NoMemory)?;
        let outgoing =
            Outgoing { bytes, is_last: false, place: self.place(size, Kind::Bulk(permit)) };
        self.queue.send(outgoing).map_err(|_| NotSent::Gone)
    }

    /// Makes the queue space for bytes that the tally has counted already.
    fn place(&self, bytes: usize, kind: Kind) -> Reservation {
        Reservation { bytes, memory: Arc::clone(&self.memory), kind }
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

/// Writes until every [`Outbox`] is dropped, [`Message::Close`] is written, or the session is over.
/// Then sends the reason, unless the peer has it, and closes.
pub(super) async fn write_all<W: AsyncWrite + Unpin>(
    connection: W,
    mut messages: mpsc::UnboundedReceiver<Outgoing>,
    router: Arc<Router>,
    timeouts: Timeouts,
) {
    let mut writing = Writing { connection, bytes: Vec::new(), at: 0, timeouts };
    let ending = tokio::select! {
        biased;
        () = router.broken() => None,
        ending = writing.run(&mut messages, &router) => ending,
    };
    if let Some(ending) = ending {
        router.end(ending);
    }
    // Queued messages are useless now. Threads that wait for room return with an error.
    messages.close();
    drop(messages);
    let farewell = async {
        if let Some(failure) = router.last_words() {
            let farewell = Message::Cancel { transfer: None, failure };
            // The message has only short texts.
            let _ = farewell.encode(&mut writing.bytes);
        }
        writing.write_out().await.ok()?;
        // The shutdown shows the peer that no data was cut off; a peer that is gone does not
        // matter.
        writing.connection.shutdown().await.ok()
    };
    let _ = timeout(FAREWELL_TIMEOUT, farewell).await;
}

/// Write buffer. Cancel-safe: no data is lost when a call is dropped.
#[derive(Debug)]
struct Writing<W> {
    connection: W,
    bytes: Vec<u8>,
    /// Number of bytes already written.
    at: usize,
    timeouts: Timeouts,
}

impl<W: AsyncWrite + Unpin> Writing<W> {
    /// Writes messages as they are queued. Returns the reason if the session has to end.
    async fn run(
        &mut self,
        messages: &mut mpsc::UnboundedReceiver<Outgoing>,
        router: &Router,
    ) -> Option<Ending> {
        let interval = self.timeouts.silence / 3;
        let mut next_ping = Instant::now() + interval;
        let mut is_last = false;
        while !is_last {
            // Queue space is freed when the bytes are written.
            let mut places = Vec::new();
            tokio::select! {
                biased;
                first = messages.recv() => {
                    let mut next = Some(first?);
                    while let Some(message) = next.take() {
                        self.bytes.extend(message.bytes);
                        places.push(message.place);
                        is_last = message.is_last;
                        if !is_last && self.bytes.len() < WRITE_BYTES {
                            next = messages.try_recv().ok();
                        }
                    }
                }
                () = sleep_until(next_ping) => {
                    next_ping = Instant::now() + interval;
                    router.count_ping();
                    encode(&Message::Ping, &mut self.bytes);
                }
            }
            match self.write_out().await {
                Ok(()) => {}
                Err(Stopped::Stuck) => return Some(Ending::Failure(stuck(self.timeouts.silence))),
                Err(Stopped::Broken) => return None,
            }
        }
        None
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
                    return Err(Stopped::Broken);
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
    /// The connection failed; the reader has the cause.
    Broken,
    /// The peer accepts no data.
    Stuck,
}

fn encode(message: &Message, bytes: &mut Vec<u8>) {
    if let Err(error) = message.encode(bytes) {
        warn!(?error, "a message was too long and was not sent");
    }
}
