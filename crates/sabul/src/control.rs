//! The control connection after its handshake: messages in, messages out, and who gets which.
//!
//! One task writes, one reads. What a transfer's sender produces in bulk (manifests, ends of
//! entries) waits for room on its way out and for credit of the other end's writer; everything else
//! is small and rare and never waits, so two ends that both send cannot block each other. The
//! reader never waits for a transfer. What waits anywhere is bounded in bytes, and a peer that makes
//! it grow beyond the bound ends its session.

mod incoming;
mod life;
mod mailbox;
mod outbox;
mod socket;

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use sabul_wire::control::{
    BULK_CREDIT, CONTROL_VERSION, Direction, Failure, FailureCode, MAX_MESSAGE, MAX_NAME, MAX_OPEN,
    MAX_SOURCES, Message, Open,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsStream;
use tracing::{debug, warn};

use crate::budget::{MemoryBudget, Tally};
use crate::error::Error;
use crate::machine::Machine;
use crate::patience::Patience;
use crate::seal::Suite;
use crate::tls::{ChannelSecrets, TlsError};
use incoming::{Incoming, ReadError};
use life::Watch;
use mailbox::Slot;
use outbox::{NotSent, Outbox, WeakOutbox};

pub(crate) use mailbox::{Event, Input, Intake, Mailbox, Role};

/// Transfers that the peer may have under way in one session; memory bounds those of the process.
const PEER_TRANSFERS_MAX: usize = 64;
/// Requests that may wait before this side has said that it takes any: they can be early, all that the
/// peer may have under way, as those of `perf --streams 64` right after it has connected.
const EARLY_MAX: usize = PEER_TRANSFERS_MAX;
/// Most weight of requests that wait, in bytes.
const REQUESTS_WEIGHT_MAX: usize = 2 << 20;
/// How long the end of a session waits for the peer to close too.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

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

    /// Has the system, too, notice a peer that is gone.
    fn watch_over(&self, patience: Patience) {
        match &*self.lock() {
            Stream::Tls(stream) => socket::watch_over(stream.get_ref().0, patience),
            #[cfg(test)]
            Stream::World(_) => {}
        }
    }

    /// The next message, whose body may have at most `limit` bytes; none where the peer has closed
    /// in order. A longer one is refused before it is read.
    pub(crate) async fn read_at_most(&mut self, limit: usize) -> io::Result<Option<Message>> {
        Incoming::new(self).next(limit).await.map_err(|error| match error {
            ReadError::Io(error) => error,
            ReadError::Malformed(text) => io::Error::new(io::ErrorKind::InvalidData, text),
        })
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

/// Puts messages on the control connection.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    outbox: Outbox,
    router: Arc<Router>,
    runtime: Handle,
}

impl Control {
    /// Starts the tasks that write and read. They end, and close the connection, after
    /// [`Message::Close`], when every [`Control`] is gone, or when the session is over for another
    /// reason; what had to be written before is written, and then the receiver gets a signal.
    pub(crate) fn start(
        connection: Connection,
        router: Arc<Router>,
        patience: Patience,
        machine: &Machine,
    ) -> (Self, oneshot::Receiver<()>) {
        connection.watch_over(patience);
        let (outbox, messages) = Outbox::new(Tally::new(&router.memory));
        let reading = Arc::clone(&router).run(connection.clone(), outbox.downgrade(), patience);
        let mut reader = machine.spawn(reading);
        let writing = outbox::write_all(connection, messages, Arc::clone(&router), patience);
        let writer = machine.spawn(writing);
        let (done, written) = oneshot::channel();
        let ended = Arc::clone(&router);
        machine.spawn(async move {
            // Closing while there is something to read would make the peer lose our last words.
            let _ = writer.await;
            let _ = done.send(());
            if tokio::time::timeout(CLOSE_PATIENCE, &mut reader).await.is_err() {
                reader.abort();
                ended.end(Ending::Gone("nothing more could be written".to_owned()));
            }
        });
        (Self { outbox, router, runtime: Handle::current() }, written)
    }

    /// Sends without waiting. A dead connection is noticed by the reader; one that the peer does not
    /// read is the end of the session.
    pub(crate) fn send(&self, message: Message) {
        match self.outbox.put(&message) {
            Ok(()) | Err(NotSent::Gone) => {}
            Err(NotSent::Unfit(error)) => warn!(?error, "a message was too long and was not sent"),
            Err(NotSent::Full) => self.router.end(Ending::Failure(outbox::overfull())),
            Err(NotSent::NoMemory(refusal)) => {
                self.router.end(Ending::Failure(outbox::out_of_memory(refusal)));
            }
        }
    }

    /// Asks for a transfer.
    ///
    /// # Errors
    /// If the request is more than the peer would take.
    pub(crate) fn ask(&self, open: Open) -> Result<(), Error> {
        match self.outbox.put(&Message::Open(open)) {
            Err(NotSent::Unfit(_)) => Err(Error::Config(format!(
                "the request cannot be sent: it may name {MAX_SOURCES} sources with {} KiB in all, \
                 names of {MAX_NAME} bytes, and streams and settings without control characters; ask \
                 for less at once",
                MAX_OPEN >> 10
            ))),
            _ => Ok(()),
        }
    }

    /// For the messages about entries of the transfer of this mailbox.
    pub(crate) fn bulk(&self, mailbox: &Mailbox) -> Bulk {
        Bulk { control: self.clone(), credit: Arc::clone(&mailbox.credit) }
    }

    /// The runtime that the connection lives on.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

/// Sends the messages about entries of one transfer, as many as the other end has room for.
#[derive(Clone, Debug)]
pub(crate) struct Bulk {
    control: Control,
    credit: Arc<Semaphore>,
}

impl Bulk {
    /// Sends one and waits for room; for threads, not for tasks. Tells whether that made sense.
    pub(crate) fn send(&self, message: &Message) -> bool {
        self.control.runtime.block_on(self.send_when_room(message))
    }

    /// As [`Bulk::send`], for tasks.
    pub(crate) async fn send_when_room(&self, message: &Message) -> bool {
        let weight = message.weight().min(BULK_CREDIT);
        let Ok(credit) = self.credit.acquire_many(weight).await else { return false };
        credit.forget();
        let sent = self.control.outbox.put_bulk(message).await;
        match &sent {
            Err(NotSent::Unfit(error)) => warn!(?error, "a message was too long and was not sent"),
            Err(NotSent::NoMemory(refusal)) => {
                self.control.router.end(Ending::Failure(outbox::out_of_memory(*refusal)));
            }
            _ => {}
        }
        sent.is_ok()
    }
}

/// Why a session has ended, or why it never began.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// The peer closed, or this side did.
    Closed,
    /// The connection broke.
    Gone(String),
    /// The peer has said nothing for this long.
    Silent(Duration),
    /// There was no transfer for this long.
    Idle(Duration),
    /// The peer ended it for this reason.
    Told(Failure),
    /// This side ended it for this reason.
    Failure(Failure),
}

impl Ending {
    /// What a failure to read means.
    fn of(error: &ReadError) -> Self {
        match error {
            ReadError::Malformed(text) => Self::Failure(broke(text)),
            ReadError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Self::Gone("it was closed".to_owned())
            }
            ReadError::Io(error) => Self::Gone(error.to_string()),
        }
    }

    pub(crate) fn to_error(&self) -> Error {
        match self {
            Self::Closed => Error::PeerGone("the peer has closed the session".to_owned()),
            Self::Gone(why) => Error::PeerGone(format!(
                "the control connection to the peer broke ({why}); check that the peer still runs, \
                 and try again"
            )),
            Self::Silent(_) | Self::Idle(_) | Self::Told(_) | Self::Failure(_) => {
                let failure = self.failure().unwrap_or_else(|| broke("it ended the session"));
                Error::from_failure(failure)
            }
        }
    }

    /// The reason, where it is one that has a name.
    fn failure(&self) -> Option<Failure> {
        match self {
            Self::Closed | Self::Gone(_) => None,
            Self::Silent(time) => Some(Failure::new(
                FailureCode::Timeout,
                format!(
                    "nothing was heard from the other end for {:.0} s, not even an answer to pings: it \
                     was stopped, fell asleep or lost its network; check that it runs, and try again",
                    time.as_secs_f64()
                ),
            )),
            Self::Idle(time) => Some(Failure::new(
                FailureCode::Timeout,
                format!(
                    "the session had no transfer for {:.0} s and was ended; connect anew",
                    time.as_secs_f64()
                ),
            )),
            Self::Told(failure) | Self::Failure(failure) => Some(failure.clone()),
        }
    }
}

/// What the peer asks for, in order.
#[derive(Debug)]
pub(crate) struct Requests {
    queue: mpsc::UnboundedReceiver<(Open, Mailbox)>,
    router: Arc<Router>,
}

impl Requests {
    /// The next request; none once there will be no more. Before the first call, this side takes
    /// only a few.
    pub(crate) async fn next(&mut self) -> Option<(Open, Mailbox)> {
        self.router.lock().is_serving = true;
        let (open, mailbox) = self.queue.recv().await?;
        let mut state = self.router.lock();
        state.requests_waiting -= 1;
        state.requests_weight -= open.weight() as usize;
        drop(state);
        Some((open, mailbox))
    }
}

/// Sorts what comes in by transfer.
#[derive(Debug)]
pub(crate) struct Router {
    state: Mutex<RouterState>,
    /// Where the memory of the session's queues comes from.
    memory: MemoryBudget,
    /// The suite that the listener chose, once known.
    suite: watch::Sender<Option<Suite>>,
    /// The session has ended for a reason other than that it was closed.
    broken: watch::Sender<bool>,
}

#[derive(Debug)]
struct RouterState {
    slots: BTreeMap<u32, Slot>,
    ending: Option<Ending>,
    requests: Option<mpsc::UnboundedSender<(Open, Mailbox)>>,
    /// Somebody takes requests.
    is_serving: bool,
    requests_waiting: usize,
    requests_weight: usize,
    /// The parity of numbers that the peer gives: odd for connectors, even for listeners.
    peer_parity: u32,
    peer_last: Option<u32>,
}

impl Router {
    pub(crate) fn new(
        peer_parity: u32,
        suite: Option<Suite>,
        memory: MemoryBudget,
    ) -> (Arc<Self>, Requests) {
        let (requests, opened) = mpsc::unbounded_channel();
        let state = RouterState {
            slots: BTreeMap::new(),
            ending: None,
            requests: Some(requests),
            is_serving: false,
            requests_waiting: 0,
            requests_weight: 0,
            peer_parity,
            peer_last: None,
        };
        let router = Arc::new(Self {
            state: Mutex::new(state),
            memory,
            suite: watch::Sender::new(suite),
            broken: watch::Sender::new(false),
        });
        (Arc::clone(&router), Requests { queue: opened, router })
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

    /// Waits until the session is over for another reason than that it was closed.
    async fn broken(&self) {
        // An error says that the router is gone, which cannot be while it is borrowed.
        let _ = self.broken.subscribe().wait_for(|is_broken| *is_broken).await;
    }

    /// What to tell the peer at the end.
    fn last_words(&self) -> Option<Failure> {
        match self.ending()? {
            Ending::Closed | Ending::Gone(_) | Ending::Told(_) => None,
            ending => ending.failure(),
        }
    }

    /// A mailbox for a transfer of this side.
    pub(crate) fn register(self: &Arc<Self>, number: u32, role: Role) -> Result<Mailbox, Error> {
        let mut state = self.lock();
        if let Some(ending) = &state.ending {
            return Err(ending.to_error());
        }
        Ok(self.add(&mut state, number, role, false))
    }

    fn add(
        self: &Arc<Self>,
        state: &mut RouterState,
        number: u32,
        role: Role,
        is_peers: bool,
    ) -> Mailbox {
        let (tell, events) = mpsc::unbounded_channel();
        let (input, inputs) = std::sync::mpsc::channel();
        let intake = Arc::new(Intake::new(Tally::new(&self.memory)));
        let credit = Arc::new(Semaphore::new(BULK_CREDIT as usize));
        let waiting = Arc::<AtomicUsize>::default();
        let slot = Slot {
            events: tell.clone(),
            input: input.clone(),
            intake: Arc::clone(&intake),
            credit: Arc::clone(&credit),
            waiting: Arc::clone(&waiting),
            role,
            is_peers,
            is_accepted: false,
            is_over: false,
        };
        state.slots.insert(number, slot);
        let router = Arc::clone(self);
        Mailbox { number, events, tell, inputs, input, intake, credit, waiting, router }
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
            let is_broken = !matches!(ending, Ending::Closed);
            state.ending = Some(ending);
            drop(state);
            self.broken.send_replace(is_broken);
        }
    }

    /// Reads until the session ends.
    async fn run<R: AsyncRead + Unpin>(
        self: Arc<Self>,
        connection: R,
        outbox: WeakOutbox,
        patience: Patience,
    ) {
        let mut incoming = Incoming::new(connection);
        let mut watch = Watch::new(patience, Instant::now());
        let mut is_closed = false;
        let ending = loop {
            let message = tokio::select! {
                biased;
                message = incoming.next(MAX_MESSAGE) => Some(message),
                () = sleep_until(watch.next_look()) => None,
            };
            let now = Instant::now();
            if now >= watch.next_look() {
                let is_busy = !self.lock().slots.is_empty();
                if let Some(ending) = watch.look(now, incoming.seen(), is_busy) {
                    break if is_closed { Ending::Closed } else { ending };
                }
            }
            match message {
                None => {}
                Some(Ok(None)) if is_closed => break Ending::Closed,
                Some(Ok(None)) => break Ending::Gone("it was closed".to_owned()),
                Some(Err(_)) if is_closed => break Ending::Closed,
                Some(Err(error)) => break Ending::of(&error),
                Some(Ok(Some(Message::Close))) => {
                    is_closed = true;
                    self.close_requests();
                }
                Some(Ok(Some(Message::Cancel { transfer: None, failure }))) => {
                    break Ending::Told(failure);
                }
                Some(Ok(Some(message))) => {
                    if let Err(failure) = self.route(message, &outbox) {
                        break Ending::Failure(failure);
                    }
                }
            }
        };
        self.end(ending);
    }

    fn route(self: &Arc<Self>, message: Message, outbox: &WeakOutbox) -> Result<(), Failure> {
        let number = match &message {
            Message::Welcome { version, suite, .. } => {
                return self.on_welcome(*version, *suite);
            }
            Message::Open(_) => {
                let Message::Open(open) = message else { return Ok(()) };
                return self.on_open(open, outbox);
            }
            Message::Ping => return answer(outbox, &Message::Pong),
            Message::Pong | Message::Cancel { transfer: None, .. } => return Ok(()),
            Message::Hello { .. } | Message::Close => {
                return Err(broke("a greeting came in the middle of the session"));
            }
            Message::Manifest { transfer, .. }
            | Message::ManifestEnd { transfer, .. }
            | Message::EntryEnd { transfer, .. }
            | Message::Accept { transfer, .. }
            | Message::Progress { transfer, .. }
            | Message::EntryFailed { transfer, .. }
            | Message::Feedback { transfer, .. }
            | Message::Stop { transfer }
            | Message::Credit { transfer, .. }
            | Message::Cancel { transfer: Some(transfer), .. } => *transfer,
            Message::Done(done) => done.transfer,
        };
        // What comes late for a transfer that has ended is of no use to anybody.
        match self.lock().slots.get_mut(&number) {
            Some(slot) => slot.take(message),
            None => Ok(()),
        }
    }

    /// The listener says once which cipher it has chosen: another choice would use packet numbers of
    /// a key twice.
    fn on_welcome(&self, version: u16, suite: u8) -> Result<(), Failure> {
        if self.lock().peer_parity != 0 || self.suite.borrow().is_some() {
            return Err(broke("a greeting came in the middle of the session"));
        }
        if version != CONTROL_VERSION {
            let text = format!(
                "the listener speaks version {version} and this end {CONTROL_VERSION}: use the same \
                 release on both sides"
            );
            return Err(Failure::new(FailureCode::Version, text));
        }
        let suite = Suite::from_code(suite)
            .ok_or_else(|| broke("the listener chose a cipher that was not offered"))?;
        self.suite.send_replace(Some(suite));
        Ok(())
    }

    fn on_open(self: &Arc<Self>, open: Open, outbox: &WeakOutbox) -> Result<(), Failure> {
        let number = open.transfer;
        let weight = open.weight() as usize;
        let mut state = self.lock();
        if number % 2 != state.peer_parity || state.peer_last.is_some_and(|last| number <= last) {
            return Err(broke("a transfer was opened with a number that is not free"));
        }
        state.peer_last = Some(number);
        let transfers = state.slots.values().filter(|slot| slot.is_peers).count();
        let is_crowded = transfers >= PEER_TRANSFERS_MAX
            || state.requests_weight + weight > REQUESTS_WEIGHT_MAX
            || (!state.is_serving && state.requests_waiting >= EARLY_MAX);
        let refusal = match state.requests.clone() {
            Some(requests) if !is_crowded => {
                let role = match open.direction {
                    Direction::Push => Role::Receiver,
                    Direction::Pull => Role::Sender,
                };
                let mailbox = self.add(&mut state, number, role, true);
                state.requests_waiting += 1;
                state.requests_weight += weight;
                drop(state);
                let Err(mpsc::error::SendError((_, mailbox))) = requests.send((open, mailbox))
                else {
                    return Ok(());
                };
                drop(mailbox);
                "nobody takes requests on this side"
            }
            Some(_) => "too many transfers at once; wait for some to end",
            None => "nobody takes requests on this side",
        };
        let failure = Failure::new(FailureCode::Refused, refusal);
        answer(outbox, &Message::Cancel { transfer: Some(number), failure })
    }
}

/// Tells the peer something; one that does not read what it makes us say ends its session.
fn answer(outbox: &WeakOutbox, message: &Message) -> Result<(), Failure> {
    match outbox.upgrade().map(|outbox| outbox.put(message)) {
        Some(Err(NotSent::Full)) => Err(outbox::overfull()),
        _ => Ok(()),
    }
}

fn broke(what: &str) -> Failure {
    Failure::new(FailureCode::Protocol, format!("the peer broke the protocol: {what}"))
}

#[cfg(test)]
#[path = "control/tests.rs"]
mod tests;
