//! The control connection after its handshake: messages in, messages out, and who gets which.
//!
//! One task writes, one reads. What a transfer's sender produces in bulk (manifests, ends of
//! entries) waits for room on its way out and on its way in; everything else is small and rare
//! and never waits, so two ends that both send cannot block each other.

mod incoming;

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use sabul_wire::control::{Failure, FailureCode, MAX_MESSAGE, Message, Open};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_rustls::TlsStream;
use tracing::{debug, warn};

use crate::error::Error;
use crate::machine::Machine;
use crate::seal::Suite;
use crate::tls::{ChannelSecrets, TlsError};

/// Bulk messages that wait to be written; ours: enough to fill a write, little to cancel.
const BULK_OUT: usize = 64;
/// Entries that wait in bulk messages for one transfer's writer; not below the entries of one
/// message. Ours: a few megabytes at most.
const BULK_IN: usize = 8192;
/// Transfers that the peer may have under way in one session.
const PEER_TRANSFERS_MAX: usize = 256;
/// How long the end of a session waits for the peer to close too.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 64 << 10;

use incoming::Incoming;

/// The control connection, shared by the reading and the writing task.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Mutex<Stream>>);

/// What carries control messages.
#[derive(Debug)]
pub(crate) enum Stream {
    Tls(Box<TlsStream<TcpStream>>),
    /// Between two hosts of a world in virtual time.
    #[cfg(test)]
    World(crate::world::Wire),
}

impl Connection {
    pub(crate) fn new(stream: impl Into<TlsStream<TcpStream>>) -> Self {
        Self::over(Stream::Tls(Box::new(stream.into())))
    }

    pub(crate) fn over(stream: Stream) -> Self {
        Self(Arc::new(Mutex::new(stream)))
    }

    fn lock(&self) -> MutexGuard<'_, Stream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls what carries the messages.
    fn with<T>(&self, poll: impl FnOnce(Pin<&mut dyn Duplex>) -> T) -> T {
        match &mut *self.lock() {
            Stream::Tls(stream) => poll(Pin::new(stream.as_mut())),
            #[cfg(test)]
            Stream::World(wire) => poll(Pin::new(wire)),
        }
    }

    /// The secrets of a channel of this connection.
    pub(crate) fn channel_secrets(&self, channel: u32) -> Result<ChannelSecrets, TlsError> {
        match &*self.lock() {
            Stream::Tls(stream) => match &**stream {
                TlsStream::Client(stream) => ChannelSecrets::export(&**stream.get_ref().1, channel),
                TlsStream::Server(stream) => ChannelSecrets::export(&**stream.get_ref().1, channel),
            },
            #[cfg(test)]
            Stream::World(wire) => Ok(wire.channel_secrets(channel)),
        }
    }

    /// What the proof of a ticket's secret is computed over.
    pub(crate) fn proof_exporter(&self) -> Result<[u8; 32], TlsError> {
        match &*self.lock() {
            Stream::Tls(stream) => match &**stream {
                TlsStream::Client(stream) => crate::tls::proof_exporter(&**stream.get_ref().1),
                TlsStream::Server(stream) => crate::tls::proof_exporter(&**stream.get_ref().1),
            },
            #[cfg(test)]
            Stream::World(wire) => Ok(wire.proof_exporter()),
        }
    }

    /// The next message; none where the peer has closed in order.
    pub(crate) async fn read(&mut self) -> io::Result<Option<Message>> {
        self.read_at_most(MAX_MESSAGE).await
    }

    /// The next message, whose body may have at most `limit` bytes; none where the peer has closed
    /// in order. A longer one is refused before it is read.
    pub(crate) async fn read_at_most(&mut self, limit: usize) -> io::Result<Option<Message>> {
        Incoming::new(self).next(limit).await
    }

    /// Writes one message at once.
    pub(crate) async fn write(&mut self, message: &Message) -> io::Result<()> {
        let mut bytes = Vec::new();
        message
            .encode(&mut bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.write_all(&bytes).await?;
        self.flush().await
    }
}

/// Bytes both ways.
trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|stream| stream.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|stream| stream.poll_shutdown(cx))
    }
}

/// A message on its way out, with its place among the bulk.
type Outgoing = (Message, Option<OwnedSemaphorePermit>);

/// Puts messages on the control connection.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    queue: mpsc::UnboundedSender<Outgoing>,
    bulk: Arc<Semaphore>,
    runtime: Handle,
}

impl Control {
    /// Starts the tasks that write and read. They end, and close the connection, after
    /// [`Message::Close`] or when every [`Control`] is gone; what had to be written before is
    /// written, and then the receiver gets a signal.
    pub(crate) fn start(
        connection: Connection,
        router: Arc<Router>,
        machine: &Machine,
    ) -> (Self, oneshot::Receiver<()>) {
        let (queue, messages) = mpsc::unbounded_channel();
        let mut reader = machine.spawn(router.run(connection.clone(), queue.downgrade()));
        let writer = machine.spawn(write_all(connection, messages));
        let (done, written) = oneshot::channel();
        machine.spawn(async move {
            // Closing while there is something to read would make the peer lose our last words.
            let _ = writer.await;
            let _ = done.send(());
            if tokio::time::timeout(CLOSE_PATIENCE, &mut reader).await.is_err() {
                reader.abort();
            }
        });
        let bulk = Arc::new(Semaphore::new(BULK_OUT));
        (Self { queue, bulk, runtime: Handle::current() }, written)
    }

    /// Sends without waiting. A dead connection is noticed by the reader.
    pub(crate) fn send(&self, message: Message) {
        let _ = self.queue.send((message, None));
    }

    /// Sends one of many messages and waits for room; for threads, not for tasks. Tells whether
    /// the connection still stands.
    pub(crate) fn send_bulk(&self, message: Message) -> bool {
        let permit = self.runtime.block_on(Arc::clone(&self.bulk).acquire_owned());
        permit.is_ok_and(|permit| self.queue.send((message, Some(permit))).is_ok())
    }

    /// Sends one of many messages and waits for room; for tasks.
    #[cfg(test)]
    pub(crate) async fn send_bulk_async(&self, message: Message) -> bool {
        let permit = Arc::clone(&self.bulk).acquire_owned().await;
        permit.is_ok_and(|permit| self.queue.send((message, Some(permit))).is_ok())
    }

    /// The runtime that the connection lives on.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

async fn write_all(mut connection: Connection, mut messages: mpsc::UnboundedReceiver<Outgoing>) {
    let mut bytes = Vec::new();
    let mut is_last = false;
    while !is_last && let Some((message, permit)) = messages.recv().await {
        let mut permits = vec![permit];
        is_last = message == Message::Close;
        encode(&message, &mut bytes);
        while !is_last
            && bytes.len() < WRITE_BYTES
            && let Ok((message, permit)) = messages.try_recv()
        {
            is_last = message == Message::Close;
            encode(&message, &mut bytes);
            permits.push(permit);
        }
        let written = async {
            connection.write_all(&bytes).await?;
            connection.flush().await
        };
        if let Err(error) = written.await {
            debug!(%error, "control connection cannot be written");
            return;
        }
        bytes.clear();
    }
    // The peer learns that nothing was cut off; if it is gone already, there is nobody to tell.
    let _ = connection.shutdown().await;
}

fn encode(message: &Message, bytes: &mut Vec<u8>) {
    if let Err(error) = message.encode(bytes) {
        // Batches are bounded far below the limit, so only an enormous name gets here.
        warn!(?error, "a message was too long and was not sent");
    }
}

/// Why a session has ended, or why it never began.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// The peer closed, or this side did.
    Closed,
    /// The connection broke.
    Gone(String),
    /// One of the two ended it for this reason.
    Failure(Failure),
}

impl Ending {
    pub(crate) fn to_error(&self) -> Error {
        match self {
            Self::Closed => Error::PeerGone("the peer has closed the session".to_owned()),
            Self::Gone(why) => Error::PeerGone(format!(
                "the control connection to the peer broke ({why}); check that the peer still runs, \
                 and try again"
            )),
            Self::Failure(failure) => Error::from_failure(failure.clone()),
        }
    }
}

/// What happens to a transfer.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message about it that is not for its writer.
    Control(Message),
    /// The session is over.
    Ended(Ending),
    /// The application wants it to end.
    Abort,
    /// Its channel has ended.
    Channel(Result<(), crate::channel::ChannelError>),
    /// All was read and handed to the channel, or the channel was stopped meanwhile.
    Sent(Option<crate::files::SendSummary>),
    /// All was written, or cannot be.
    Written(Result<crate::transfer::Written, Failure>),
    /// The reader or the writer ended without a word: a fault of this program.
    Broken,
}

/// What the writing thread of a receiving transfer takes in.
#[derive(Debug)]
pub(crate) enum Input {
    /// The next block.
    Block(Vec<u8>),
    /// A message about entries, with its place in the queue.
    Message(
        Message,
        #[expect(dead_code, reason = "held until the message is done with")] OwnedSemaphorePermit,
    ),
    /// Nothing more is wanted.
    Stop,
}

/// A transfer's end of the router.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) number: u32,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    /// To give to those who have events to tell.
    pub(crate) tell: mpsc::UnboundedSender<Event>,
    pub(crate) inputs: std::sync::mpsc::Receiver<Input>,
    /// To give to the channel.
    pub(crate) input: std::sync::mpsc::Sender<Input>,
    router: Arc<Router>,
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.router.lock().slots.remove(&self.number);
    }
}

#[derive(Debug)]
struct Slot {
    events: mpsc::UnboundedSender<Event>,
    input: std::sync::mpsc::Sender<Input>,
    room: Arc<Semaphore>,
    is_peers: bool,
}

/// Sorts what comes in by transfer.
#[derive(Debug)]
pub(crate) struct Router {
    state: Mutex<RouterState>,
    /// The suite that the listener chose, once known.
    suite: watch::Sender<Option<Suite>>,
}

#[derive(Debug)]
struct RouterState {
    slots: HashMap<u32, Slot>,
    ending: Option<Ending>,
    requests: Option<mpsc::UnboundedSender<(Open, Mailbox)>>,
    /// The parity of numbers that the peer gives: odd for connectors, even for listeners.
    peer_parity: u32,
    peer_last: Option<u32>,
}

impl Router {
    pub(crate) fn new(
        peer_parity: u32,
        suite: Option<Suite>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<(Open, Mailbox)>) {
        let (requests, opened) = mpsc::unbounded_channel();
        let state = RouterState {
            slots: HashMap::new(),
            ending: None,
            requests: Some(requests),
            peer_parity,
            peer_last: None,
        };
        let router = Self { state: Mutex::new(state), suite: watch::Sender::new(suite) };
        (Arc::new(router), opened)
    }

    fn lock(&self) -> MutexGuard<'_, RouterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The suite of the session's channels, as far as it is known.
    pub(crate) fn suite(&self) -> watch::Receiver<Option<Suite>> {
        self.suite.subscribe()
    }

    /// Why the session is over, if it is.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.lock().ending.clone()
    }

    /// A mailbox for a transfer of this side.
    pub(crate) fn register(self: &Arc<Self>, number: u32) -> Result<Mailbox, Error> {
        let mut state = self.lock();
        if let Some(ending) = &state.ending {
            return Err(ending.to_error());
        }
        Ok(self.add(&mut state, number, false))
    }

    fn add(self: &Arc<Self>, state: &mut RouterState, number: u32, is_peers: bool) -> Mailbox {
        let (tell, events) = mpsc::unbounded_channel();
        let (input, inputs) = std::sync::mpsc::channel();
        let room = Arc::new(Semaphore::new(BULK_IN));
        let slot = Slot { events: tell.clone(), input: input.clone(), room, is_peers };
        state.slots.insert(number, slot);
        Mailbox { number, events, tell, inputs, input, router: Arc::clone(self) }
    }

    /// No more transfers will be asked for by the peer.
    fn close_requests(&self) {
        self.lock().requests = None;
    }

    /// The session is over; every transfer learns why. Only the first reason counts.
    pub(crate) fn end(&self, ending: Ending) {
        let mut state = self.lock();
        state.requests = None;
        if state.ending.is_none() {
            debug!(?ending, "session ended");
            for slot in state.slots.values() {
                let _ = slot.events.send(Event::Ended(ending.clone()));
            }
            state.ending = Some(ending);
        }
    }

    /// Reads until the session ends.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut connection: Connection,
        control: mpsc::WeakUnboundedSender<Outgoing>,
    ) {
        let mut is_closed = false;
        let ending = loop {
            match connection.read().await {
                Ok(None) if is_closed => break Ending::Closed,
                Ok(None) => break Ending::Gone("it was closed".to_owned()),
                Err(_) if is_closed => break Ending::Closed,
                Err(error) => break Ending::Gone(error.to_string()),
                Ok(Some(Message::Close)) => {
                    is_closed = true;
                    self.close_requests();
                }
                Ok(Some(message)) => {
                    if let Err(failure) = self.route(message, &control).await {
                        break Ending::Failure(failure);
                    }
                }
            }
        };
        self.end(ending);
    }

    async fn route(
        self: &Arc<Self>,
        message: Message,
        control: &mpsc::WeakUnboundedSender<Outgoing>,
    ) -> Result<(), Failure> {
        let number = match &message {
            Message::Welcome { suite, .. } => {
                let suite = Suite::from_code(*suite)
                    .ok_or_else(|| broke("the listener chose a cipher that was not offered"))?;
                self.suite.send_replace(Some(suite));
                return Ok(());
            }
            Message::Open(_) => {
                let Message::Open(open) = message else { return Ok(()) };
                return self.on_open(open, control);
            }
            Message::Cancel { transfer: None, failure } => return Err(failure.clone()),
            Message::Hello { .. } | Message::Close => {
                return Err(broke("a greeting came in the middle of the session"));
            }
            Message::Manifest { transfer, .. }
            | Message::ManifestEnd { transfer, .. }
            | Message::EntryEnd { transfer, .. } => {
                let weight = match &message {
                    Message::Manifest { entries, .. } => entries.len().clamp(1, BULK_IN),
                    _ => 1,
                };
                let target = {
                    let state = self.lock();
                    let slot = state.slots.get(transfer);
                    slot.map(|slot| (slot.input.clone(), Arc::clone(&slot.room)))
                };
                if let Some((input, room)) = target {
                    let weight = u32::try_from(weight).unwrap_or(1);
                    if let Ok(permit) = room.acquire_many_owned(weight).await {
                        // A transfer that has just ended takes nothing more.
                        let _ = input.send(Input::Message(message, permit));
                    }
                }
                return Ok(());
            }
            Message::Accept { transfer }
            | Message::Progress { transfer, .. }
            | Message::EntryFailed { transfer, .. }
            | Message::Feedback { transfer, .. }
            | Message::Stop { transfer }
            | Message::Cancel { transfer: Some(transfer), .. } => *transfer,
            Message::Done(done) => done.transfer,
        };
        // What comes late for a transfer that has ended is of no use to anybody.
        if let Some(slot) = self.lock().slots.get(&number) {
            let _ = slot.events.send(Event::Control(message));
        }
        Ok(())
    }

    fn on_open(
        self: &Arc<Self>,
        open: Open,
        control: &mpsc::WeakUnboundedSender<Outgoing>,
    ) -> Result<(), Failure> {
        let number = open.transfer;
        let mut state = self.lock();
        if number % 2 != state.peer_parity || state.peer_last.is_some_and(|last| number <= last) {
            return Err(broke("a transfer was opened with a number that is not free"));
        }
        state.peer_last = Some(number);
        let is_crowded =
            state.slots.values().filter(|slot| slot.is_peers).count() >= PEER_TRANSFERS_MAX;
        let requests = state.requests.clone();
        let refusal = match requests {
            Some(requests) if !is_crowded => {
                let mailbox = self.add(&mut state, number, true);
                drop(state);
                match requests.send((open, mailbox)) {
                    Ok(()) => return Ok(()),
                    Err(_) => "nobody takes requests on this side",
                }
            }
            Some(_) => "too many transfers at once; wait for some to end",
            None => "nobody takes requests on this side",
        };
        if let Some(control) = control.upgrade() {
            let failure = Failure::new(FailureCode::Refused, refusal);
            let _ = control.send((Message::Cancel { transfer: Some(number), failure }, None));
        }
        Ok(())
    }
}

fn broke(what: &str) -> Failure {
    Failure::new(FailureCode::Protocol, format!("the peer broke the protocol: {what}"))
}
