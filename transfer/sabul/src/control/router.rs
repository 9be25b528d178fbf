//! Routing of received messages to the transfers of a session, and the peer's requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use sabul_wire::control::{
    BULK_CREDIT, CONTROL_VERSION, Direction, Failure, FailureCode, HAVE_WEIGHT_MAX, MAX_MESSAGE,
    Message, Open, UdpAddress,
};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::ending::Ending;
use super::mailbox::{Event, Intake, Mailbox, Role, Slot};
use super::outbox::{NotSent, WeakOutbox, overfull};
use super::reading::{ReadEnd, Reading};
use crate::budget::{MemoryBudget, Tally};
use crate::error::Error;
use crate::lock::lock;
use crate::outside::Outside;
use crate::passes::Issuer;
use crate::seal::Suite;

/// Most concurrent transfers of a peer in one session; the memory budget limits those of the process.
const PEER_TRANSFERS_MAX: usize = 64;
/// Most requests queued before this side takes any. Requests can come early: `perf --streams 64` sends 64 right after
/// it has connected.
pub(super) const EARLY_MAX: usize = PEER_TRANSFERS_MAX;
/// Most weight of queued requests, in bytes. A synchronisation sends requests for changes of up to 3 MiB at once.
pub(super) const REQUESTS_WEIGHT_MAX: usize = 4 << 20;
/// Queue of the peer's requests.
#[derive(Debug)]
pub(crate) struct Requests {
    queue: mpsc::UnboundedReceiver<(Open, Mailbox)>,
    router: Arc<Router>,
}

impl Requests {
    /// Returns the next request; `None` once no more can come. Before the first call, the number of queued requests is
    /// limited.
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

/// Router of received messages by transfer number.
#[derive(Debug)]
pub(crate) struct Router {
    state: Mutex<RouterState>,
    /// Source of the memory of the session's queues.
    pub(super) memory: MemoryBudget,
    /// AEAD suite chosen by the listener, once known.
    suite: watch::Sender<Option<Suite>>,
    /// The session has ended for another reason than a close.
    broken: watch::Sender<bool>,
    /// The control connection broke, and no other one has replaced it.
    is_cut: Arc<AtomicBool>,
    ping_counts: watch::Sender<PingCounts>,
    /// Bytes received over all connections of the session.
    pub(super) received_bytes: Arc<AtomicU64>,
    /// Number of messages that the peer has received.
    acknowledged: watch::Sender<u64>,
    /// Where UDP may reach the listener, in a session through an introducer.
    outside: watch::Sender<Option<Outside>>,
    /// Port of a listener that opens its NAT on request, in a session through an introducer.
    punches: OnceLock<Punches>,
}

/// Sends hello acks of a channel to addresses, within limits.
type PunchFn = Box<dyn Fn(u64, &[SocketAddr]) + Send + Sync>;

/// A port that opens its NAT on request.
pub(crate) struct Punches(pub(crate) PunchFn);

impl std::fmt::Debug for Punches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Punches")
    }
}

/// Counts of pings and pongs since the beginning of the session.
#[derive(Clone, Copy, Debug, Default)]
struct PingCounts {
    pings: u64,
    answered: u64,
    /// The session is over.
    is_over: bool,
}

#[derive(Debug)]
pub(super) struct RouterState {
    pub(super) slots: BTreeMap<u32, Slot>,
    ending: Option<Ending>,
    requests: Option<mpsc::UnboundedSender<(Open, Mailbox)>>,
    /// The application takes requests.
    is_serving: bool,
    pub(super) requests_waiting: usize,
    pub(super) requests_weight: usize,
    /// Parity of the peer's transfer numbers: odd for connectors, even for listeners.
    peer_parity: u32,
    peer_last: Option<u32>,
}

impl Issuer for Router {
    fn is_over(&self) -> bool {
        self.ending().is_some()
    }

    fn over(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Self::over(self))
    }
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
            is_cut: Arc::default(),
            ping_counts: watch::Sender::default(),
            received_bytes: Arc::default(),
            acknowledged: watch::Sender::default(),
            outside: watch::Sender::default(),
            punches: OnceLock::new(),
        });
        (Arc::clone(&router), Requests { queue: opened, router })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RouterState> {
        lock(&self.state)
    }

    /// The suite of the session's channels, once known.
    pub(crate) fn suite(&self) -> watch::Receiver<Option<Suite>> {
        self.suite.subscribe()
    }

    /// Where UDP may reach the listener, once known.
    pub(crate) fn outside(&self) -> watch::Receiver<Option<Outside>> {
        self.outside.subscribe()
    }

    /// Lets the peer request hello acks, at a listener.
    pub(crate) fn accept_punches(&self, punches: Punches) {
        // Set once, at the start of the session.
        let _ = self.punches.set(punches);
    }

    /// Why the session is over, if it is over.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.lock().ending.clone()
    }

    /// Flag of a session that waits for another control connection.
    pub(super) const fn is_cut(&self) -> &Arc<AtomicBool> {
        &self.is_cut
    }

    /// Waits until the session is over for another reason than a close.
    pub(super) async fn broken(&self) {
        // An error means that the router was dropped, which is impossible while it is borrowed.
        let _ = self.broken.subscribe().wait_for(|is_broken| *is_broken).await;
    }

    /// Waits until the session is over.
    pub(crate) async fn over(&self) {
        // An error means that the router was dropped, which is impossible while it is borrowed.
        let _ = self.ping_counts.subscribe().wait_for(|ping_counts| ping_counts.is_over).await;
    }

    /// Counts a ping to the peer; returns the number of pings so far.
    pub(super) fn count_ping(&self) -> u64 {
        self.ping_counts.send_modify(|ping_counts| ping_counts.pings += 1);
        self.ping_counts.borrow().pings
    }

    /// Whether the peer has not answered a ping yet.
    pub(super) fn is_answer_due(&self) -> bool {
        let counts = *self.ping_counts.borrow();
        counts.pings > counts.answered
    }

    /// Bytes received over all connections of the session.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Number of messages that the peer has received.
    pub(super) fn acknowledged(&self) -> watch::Receiver<u64> {
        self.acknowledged.subscribe()
    }

    /// Waits until the peer has answered this many pings or the session is over; returns whether it has answered or
    /// closed in order. Answers keep the order of the messages, so everything sent before that ping was processed.
    pub(super) async fn is_answered(&self, times: u64) -> bool {
        let mut ping_counts = self.ping_counts.subscribe();
        let found = ping_counts
            .wait_for(|ping_counts| ping_counts.answered >= times || ping_counts.is_over)
            .await;
        let is_answered = found.is_ok_and(|ping_counts| ping_counts.answered >= times);
        is_answered || matches!(self.ending(), Some(Ending::Closed))
    }

    /// Failure to report to the peer at the end.
    pub(super) fn final_failure(&self) -> Option<Failure> {
        match self.ending()? {
            Ending::Closed | Ending::Gone(_) | Ending::Reported(_) => None,
            ending => ending.failure(),
        }
    }

    /// Registers a transfer of this side and returns its mailbox.
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
        let (event_sender, events) = mpsc::unbounded_channel();
        let (input, inputs) = std::sync::mpsc::channel();
        let intake = Arc::new(Intake::new(Tally::new(&self.memory)));
        let credit = Arc::new(Semaphore::new(BULK_CREDIT as usize));
        let waiting = Arc::<AtomicUsize>::default();
        let slot = Slot {
            events: event_sender.clone(),
            input: input.clone(),
            intake: Arc::clone(&intake),
            credit: Arc::clone(&credit),
            waiting: Arc::clone(&waiting),
            role,
            is_peers,
            have_left: HAVE_WEIGHT_MAX,
            is_accepted: false,
            is_over: false,
        };
        state.slots.insert(number, slot);
        let router = Arc::clone(self);
        Mailbox { number, events, event_sender, inputs, input, intake, credit, waiting, router }
    }

    /// Records that the peer will request no more transfers.
    fn close_requests(&self) {
        self.lock().requests = None;
    }

    /// Ends the session and sends the reason to every transfer. Only the first reason counts.
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
            self.ping_counts.send_modify(|ping_counts| ping_counts.is_over = true);
        }
    }

    /// Reads messages until the session ends or the connection breaks.
    pub(super) async fn read(
        self: &Arc<Self>,
        reading: &mut Reading,
        outbox: &WeakOutbox,
    ) -> ReadEnd {
        loop {
            let message = tokio::select! {
                biased;
                message = reading.incoming.next(MAX_MESSAGE) => Some(message),
                () = sleep_until(reading.watch.next_check()) => None,
            };
            let now = Instant::now();
            if now >= reading.watch.next_check() {
                let is_busy = !self.lock().slots.is_empty();
                let ending = reading.watch.check(now, reading.incoming.seen(), is_busy);
                if let Some(ending) = ending {
                    return ReadEnd::Ended(if reading.is_closed { Ending::Closed } else { ending });
                }
            }
            let ending = match message {
                None => continue,
                Some(Ok(None) | Err(_)) if reading.is_closed => Ending::Closed,
                Some(Ok(None)) => Ending::Gone("it was closed".to_owned()),
                Some(Err(error)) if error.is_break() => return ReadEnd::Broken(error.to_string()),
                Some(Err(error)) => Ending::of(&error),
                Some(Ok(Some(Message::Received { count }))) => {
                    self.acknowledged.send_if_modified(|known| {
                        let is_news = count > *known;
                        *known = count.max(*known);
                        is_news
                    });
                    continue;
                }
                Some(Ok(Some(message))) => {
                    if let Some(count) = reading.count(&message) {
                        // A peer that does not read has a full queue, and the next answer ends the session.
                        let _ = answer(outbox, &Message::Received { count });
                    }
                    match message {
                        Message::Close => {
                            reading.is_closed = true;
                            self.close_requests();
                            continue;
                        }
                        Message::Cancel { transfer: None, failure } => Ending::Reported(failure),
                        message => match self.route(message, outbox) {
                            Ok(()) => continue,
                            Err(failure) => Ending::Failure(failure),
                        },
                    }
                }
            };
            return ReadEnd::Ended(ending);
        }
    }

    fn route(self: &Arc<Self>, message: Message, outbox: &WeakOutbox) -> Result<(), Failure> {
        let number = match &message {
            Message::Welcome { version, suite, .. } => return self.on_welcome(*version, *suite),
            Message::Open(_) => {
                let Message::Open(open) = message else { return Ok(()) };
                return self.on_open(open, outbox);
            }
            Message::Ping => return answer(outbox, &Message::Pong),
            Message::Pong => {
                self.ping_counts.send_modify(|ping_counts| ping_counts.answered += 1);
                return Ok(());
            }
            Message::Cancel { transfer: None, .. } => return Ok(()),
            Message::Outside { addresses, is_symmetric } => {
                return self.on_outside(addresses, *is_symmetric);
            }
            Message::Punch { channel, addresses } => return self.on_punch(*channel, addresses),
            Message::Hello { .. }
            | Message::Offer { .. }
            | Message::Choose { .. }
            | Message::Login { .. }
            | Message::Join { .. }
            | Message::Joined
            | Message::Resume { .. }
            | Message::Resumed { .. }
            | Message::Received { .. }
            | Message::Register { .. }
            | Message::Registered
            | Message::Call { .. }
            | Message::Called
            | Message::Close => {
                return Err(Failure::violation("the peer sent a greeting during the session"));
            }
            Message::Accept { transfer, .. }
            | Message::Progress { transfer, .. }
            | Message::EntryFailed { transfer, .. }
            | Message::Feedback { transfer, .. }
            | Message::Stop { transfer }
            | Message::Settled { transfer }
            | Message::Credit { transfer, .. }
            | Message::Steer { transfer, .. }
            | Message::Waiting { transfer, .. }
            | Message::Have { transfer, .. }
            | Message::Totals { transfer, .. }
            | Message::PathOpen { transfer, .. }
            | Message::PathClosed { transfer, .. }
            | Message::Prefer { transfer, .. }
            | Message::Seen { transfer, .. }
            | Message::Names { transfer, .. }
            | Message::Chunks { transfer, .. }
            | Message::Delta { transfer, .. }
            | Message::ToHash { transfer, .. }
            | Message::Digests { transfer, .. }
            | Message::Hashed { transfer, .. }
            | Message::Statement { transfer, .. }
            | Message::Signed { transfer, .. }
            | Message::Cancel { transfer: Some(transfer), .. } => *transfer,
            Message::Done(done) => done.transfer,
        };
        // Messages for a transfer that has ended are dropped.
        match self.lock().slots.get_mut(&number) {
            Some(slot) => slot.take(message),
            None => Ok(()),
        }
    }

    /// Accepts the listener's choice of the cipher only once: another choice would reuse packet numbers of a key.
    fn on_welcome(&self, version: u16, suite: u8) -> Result<(), Failure> {
        if self.lock().peer_parity != 0 || self.suite.borrow().is_some() {
            return Err(Failure::violation("the peer sent a greeting during the session"));
        }
        if version != CONTROL_VERSION {
            let text = format!(
                "the listener has protocol version {version} and this end {CONTROL_VERSION}: use the same \
                 release on both sides"
            );
            return Err(Failure::new(FailureCode::Version, text));
        }
        let suite = Suite::from_code(suite).ok_or_else(|| {
            Failure::violation("the listener selected a cipher that was not offered")
        })?;
        self.suite.send_replace(Some(suite));
        Ok(())
    }

    fn on_outside(
        &self,
        addresses: &[UdpAddress],
        is_symmetric: Option<bool>,
    ) -> Result<(), Failure> {
        if self.lock().peer_parity != 0 {
            return Err(Failure::violation("the connector sent addresses of a listener"));
        }
        let addresses = addresses.iter().copied().map(SocketAddr::from).collect();
        self.outside.send_replace(Some(Outside { addresses, is_symmetric }));
        Ok(())
    }

    fn on_punch(&self, channel: u64, addresses: &[UdpAddress]) -> Result<(), Failure> {
        let Some(Punches(punch)) = self.punches.get() else {
            return Err(Failure::violation("the peer sent its address without an introducer"));
        };
        let addresses: Vec<_> = addresses.iter().copied().map(SocketAddr::from).collect();
        punch(channel, &addresses);
        Ok(())
    }

    fn on_open(self: &Arc<Self>, open: Open, outbox: &WeakOutbox) -> Result<(), Failure> {
        let number = open.transfer;
        let weight = open.weight() as usize;
        let mut state = self.lock();
        if number % 2 != state.peer_parity || state.peer_last.is_some_and(|last| number <= last) {
            return Err(Failure::violation(
                "the peer opened a transfer with an invalid or used number",
            ));
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
                "this side accepts no requests"
            }
            Some(_) => "too many transfers at once; wait for some to end",
            None => "this side accepts no requests",
        };
        let failure = Failure::new(FailureCode::Refused, refusal);
        answer(outbox, &Message::Cancel { transfer: Some(number), failure })
    }
}

/// Sends a message to the peer. A peer that does not read these answers ends its session.
fn answer(outbox: &WeakOutbox, message: &Message) -> Result<(), Failure> {
    match outbox.upgrade().map(|outbox| outbox.put(message)) {
        Some(Err(NotSent::Full)) => Err(overfull()),
        _ => Ok(()),
    }
}
