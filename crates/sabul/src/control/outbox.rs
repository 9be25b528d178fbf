//! What waits to be written, in bytes; and the task that writes it and asks for signs of life.

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
use crate::patience::Patience;

/// Most bytes of small messages that wait to be written. Ours: reports of minutes; a peer that lets
/// more gather does not read.
const BACKLOG_MAX: usize = 8 << 20;
/// Most bytes of answers about files that wait to be written; not below one message. Ours:
/// enough to fill a write, little to cancel.
const BULK_OUT: u32 = 1 << 20;
/// What a message takes in the queue beside its bytes, in bytes.
const ITEM_BYTES: usize = 96;
/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 64 << 10;
/// Bytes that the peer has to take within the time that it may be silent.
const STEP_BYTES: usize = 16 << 10;
/// How long the end of a session waits for its last words to leave.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(2);

/// An encoded message on its way out, with its place in the queue.
#[derive(Debug)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    is_last: bool,
    place: Place,
}

/// Gives its place and its memory back when the message has been written or dropped.
#[derive(Debug)]
struct Place {
    bytes: usize,
    memory: Arc<Tally>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Small(Arc<AtomicUsize>),
    Bulk(#[expect(dead_code, reason = "held until the message is written")] OwnedSemaphorePermit),
}

impl Drop for Place {
    fn drop(&mut self) {
        self.memory.remove(self.bytes);
        if let Kind::Small(backlog) = &self.kind {
            backlog.fetch_sub(self.bytes, Ordering::AcqRel);
        }
    }
}

/// Why a message was not queued.
#[derive(Debug)]
pub(super) enum NotSent {
    /// It cannot be written.
    Unfit(DecodeError),
    /// Too much waits already.
    Full,
    /// There is no memory for it.
    NoMemory(NoMemory),
    /// The writing task is gone.
    Gone,
}

/// The queue of messages to be written. Clones share it; when all are gone, the connection is
/// closed.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    queue: mpsc::UnboundedSender<Outgoing>,
    backlog: Arc<AtomicUsize>,
    bulk: Arc<Semaphore>,
    memory: Arc<Tally>,
}

/// An [`Outbox`] that does not keep the connection open.
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

    /// Queues an answer about files, when there is room.
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

    /// For bytes that are in the tally.
    fn place(&self, bytes: usize, kind: Kind) -> Place {
        Place { bytes, memory: Arc::clone(&self.memory), kind }
    }

    /// Bytes of small messages that wait.
    #[cfg(test)]
    pub(super) fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Acquire)
    }
}

/// Why a session ends whose peer lets too much gather.
pub(super) fn overfull() -> Failure {
    let text = format!(
        "the other end does not read what it is told: {} MiB of messages wait",
        BACKLOG_MAX >> 20
    );
    Failure::new(FailureCode::Timeout, text)
}

fn stuck(patience: Duration) -> Failure {
    let text = format!(
        "the other end took nothing off the control connection for {:.0} s; check that it still \
         runs, and try again",
        patience.as_secs_f64()
    );
    Failure::new(FailureCode::Timeout, text)
}

/// Writes until every [`Outbox`] is gone, [`Message::Close`] is written, or the session is over;
/// then says why, where the peer does not know, and closes.
pub(super) async fn write_all<W: AsyncWrite + Unpin>(
    connection: W,
    mut messages: mpsc::UnboundedReceiver<Outgoing>,
    router: Arc<Router>,
    patience: Patience,
) {
    let mut writing = Writing { connection, bytes: Vec::new(), at: 0, patience };
    let ending = tokio::select! {
        biased;
        () = router.broken() => None,
        ending = writing.run(&mut messages, &router) => ending,
    };
    if let Some(ending) = ending {
        router.end(ending);
    }
    // Whatever waits is of no use any more; threads that wait for room learn it.
    messages.close();
    drop(messages);
    let farewell = async {
        if let Some(failure) = router.last_words() {
            let farewell = Message::Cancel { transfer: None, failure };
            // It has only short texts.
            let _ = farewell.encode(&mut writing.bytes);
        }
        writing.write_out().await.ok()?;
        // The peer learns that nothing was cut off; if it is gone already, there is nobody to tell.
        writing.connection.shutdown().await.ok()
    };
    let _ = timeout(FAREWELL_PATIENCE, farewell).await;
}

/// What is being written; nothing is lost when a call is given up in the middle.
#[derive(Debug)]
struct Writing<W> {
    connection: W,
    bytes: Vec<u8>,
    /// How many of `bytes` the connection has taken.
    at: usize,
    patience: Patience,
}

impl<W: AsyncWrite + Unpin> Writing<W> {
    /// Writes what comes. Gives the reason for which the session has to end, if there is one.
    async fn run(
        &mut self,
        messages: &mut mpsc::UnboundedReceiver<Outgoing>,
        router: &Router,
    ) -> Option<Ending> {
        let interval = self.patience.silence / 3;
        let mut next_ping = Instant::now() + interval;
        let mut is_last = false;
        while !is_last {
            // The places are given back when the bytes are written.
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
                    router.ask();
                    encode(&Message::Ping, &mut self.bytes);
                }
            }
            match self.write_out().await {
                Ok(()) => {}
                Err(Stopped::Stuck) => return Some(Ending::Failure(stuck(self.patience.silence))),
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
            match timeout(self.patience.silence, written).await {
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

/// Why nothing more can be written.
#[derive(Debug)]
enum Stopped {
    /// The connection says so; its reader knows why.
    Broken,
    /// The peer takes nothing.
    Stuck,
}

fn encode(message: &Message, bytes: &mut Vec<u8>) {
    if let Err(error) = message.encode(bytes) {
        warn!(?error, "a message was too long and was not sent");
    }
}
