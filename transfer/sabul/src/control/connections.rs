//! Connections that carry the control messages of a session, one after another.
//!
//! A session outlives its connection. When the connection breaks, the connector dials another one, and each end says
//! how many messages it has received; the other end repeats the rest. A connector also dials beside a connection that
//! does not answer, or whose local address is gone, and changes when the new connection is ready. A connection that the
//! peer has closed (FIN) is no break, because the peer's program has ended.
//! States:      Carrying --break--> Waiting --connection within the silence timeout--> Carrying
//!              Carrying --another connection is ready--> Carrying
//! Invariants:  each counted message is processed once, in order.
//! Not here:    the proof of the connector (`resume.rs`), dialling (`redial.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sabul_wire::control::{Failure, MAX_GREETING, Message};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, info};

use super::CLOSE_TIMEOUT;
use super::ending::Ending;
use super::outbox::{Outgoing, WeakOutbox, WriteEnd, Writing};
use super::reading::{ReadEnd, Reading};
use super::router::Router;
use super::sent::Sent;
use crate::connection::Connection;
use crate::redial::{Redial, is_local};
use crate::resume::{Registration, Successor};
use crate::ticket;
use crate::timeouts::Timeouts;

/// Time without any byte while an answer to a ping is due, after which another connection is dialled. Ours: no path
/// that works is silent for so long; a connection too many costs a handshake.
const SUSPECT_AFTER: Duration = Duration::from_secs(3);
/// Interval of the checks of answers and of the local address.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Pause between attempts to dial; doubles up to the maximum.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Refused attempts in a row after which the listener is gone.
const REFUSALS_MAX: u32 = 2;
/// Timeout of the listener's answer on a new connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Source of the connections after the first.
#[derive(Debug)]
pub(crate) enum Succession {
    /// The session ends with its connection.
    None,
    /// This end dials.
    Dial(Redial),
    /// The peer dials.
    Wait(Registration),
}

/// Why a connection no longer carries messages.
#[derive(Debug)]
enum Stop {
    /// The session is over, or ends for this reason.
    Over(Option<Ending>),
    /// All messages are written, or nobody sends any more.
    Written,
    /// The connection broke.
    Broken(String),
    /// Another connection is ready.
    Replaced(Next),
}

/// Another connection.
#[derive(Debug)]
enum Next {
    /// TLS is complete, and the peer does not know the purpose yet.
    Dialled(Connection),
    /// The peer has proved that it is the connector of the session.
    Arrived(Successor),
}

/// Everything that carries the messages of a session.
pub(super) struct Connections {
    connection: Connection,
    router: Arc<Router>,
    outbox: WeakOutbox,
    messages: mpsc::UnboundedReceiver<Outgoing>,
    timeouts: Timeouts,
    succession: Succession,
    reading: Reading,
    sent: Sent,
    /// Number of the last attempt to replace a connection.
    attempt: u32,
}

impl Connections {
    pub(super) fn new(
        connection: Connection,
        router: Arc<Router>,
        outbox: WeakOutbox,
        messages: mpsc::UnboundedReceiver<Outgoing>,
        timeouts: Timeouts,
        succession: Succession,
    ) -> Self {
        connection.watch_over(timeouts);
        let bytes = Arc::clone(&router.received_bytes);
        let reading = Reading::new(connection.clone(), bytes, timeouts);
        Self {
            connection,
            router,
            outbox,
            messages,
            timeouts,
            succession,
            reading,
            sent: Sent::default(),
            attempt: 0,
        }
    }

    /// Carries messages until the session is over, every outbox is dropped, or [`Message::Close`] is written. Then
    /// `written` gets a signal.
    pub(super) async fn run(mut self, written: oneshot::Sender<()>) {
        let mut writing = Writing::new(self.connection.clone(), self.timeouts);
        let (mut is_read, mut stop) = (false, self.carry(&mut writing).await);
        loop {
            let next = match stop {
                Stop::Written => break,
                Stop::Over(ending) => {
                    is_read = ending.is_some();
                    let is_closed = matches!(ending, Some(Ending::Closed));
                    ending.into_iter().for_each(|ending| self.router.end(ending));
                    if is_closed {
                        // The peer still reads: messages that are queued now arrive.
                        let Self { messages, sent, router, .. } = &mut self;
                        tokio::select! {
                            biased;
                            () = router.broken() => {}
                            _ = writing.run(messages, sent, router) => {}
                        }
                    }
                    break;
                }
                Stop::Broken(why) => {
                    self.router.is_cut().store(true, Ordering::Release);
                    match self.after_break(&why).await {
                        Some(next) => next,
                        None => {
                            self.router.end(Ending::Gone(why));
                            is_read = true;
                            break;
                        }
                    }
                }
                Stop::Replaced(next) => next,
            };
            stop = match self.change(next).await {
                Ok(()) => {
                    self.router.is_cut().store(false, Ordering::Release);
                    writing = Writing::new(self.connection.clone(), self.timeouts);
                    self.carry(&mut writing).await
                }
                Err(stop) => stop,
            };
        }
        // Queued messages are useless now. Threads that wait for room return with an error.
        self.messages.close();
        while self.messages.try_recv().is_ok() {}
        writing.finish(&self.router).await;
        let _ = written.send(());
        if !is_read {
            // Closing with unread data would make the peer lose the last messages.
            let reading = self.router.read(&mut self.reading, &self.outbox);
            self.router.end(match timeout(CLOSE_TIMEOUT, reading).await {
                Ok(ReadEnd::Ended(ending)) => ending,
                Ok(ReadEnd::Broken(why)) => Ending::Gone(why),
                Err(_) => Ending::Gone("nothing more could be written".to_owned()),
            });
        }
    }

    /// Reads and writes over the present connection.
    async fn carry(&mut self, writing: &mut Writing<Connection>) -> Stop {
        let Self { connection, router, outbox, messages, succession, reading, sent, .. } = self;
        let stop = tokio::select! {
            biased;
            () = router.broken() => Stop::Over(None),
            written = writing.run(messages, sent, router) => match written {
                WriteEnd::Done => Stop::Written,
                WriteEnd::Failed(ending) => {
                    router.end(ending);
                    Stop::Over(None)
                }
                WriteEnd::Broken(why) => Stop::Broken(why),
            },
            read = router.read(reading, outbox) => match read {
                ReadEnd::Ended(ending) => Stop::Over(Some(ending)),
                ReadEnd::Broken(why) => Stop::Broken(why),
            },
            next = succession.beside(connection, router, outbox) => Stop::Replaced(next),
        };
        // The kernel reports an error once: after a failed write the reader finds the end of the stream.
        match (stop, writing.broken()) {
            (Stop::Over(Some(Ending::Gone(_))), Some(why)) => Stop::Broken(why.to_owned()),
            (stop, _) => stop,
        }
    }

    /// Waits for another connection after a break; `None` if none comes in time, or the session is over.
    async fn after_break(&mut self, why: &str) -> Option<Next> {
        // A listener that has not accepted the connector has no session to continue.
        if self.reading.is_closed || self.router.suite().borrow().is_none() {
            return None;
        }
        let deadline = Instant::now() + self.timeouts.silence;
        let next = match &mut self.succession {
            Succession::None => return None,
            Succession::Dial(redial) => {
                info!(why, "the control connection broke; dialling again");
                timeout_at(deadline, redial_until(redial, || true))
            }
            Succession::Wait(registration) => {
                info!(why, "the control connection broke; waiting for the connector");
                let arrived = timeout_at(deadline, registration.next());
                return tokio::select! {
                    biased;
                    () = self.router.over() => None,
                    arrived = arrived => arrived.ok().flatten().map(Next::Arrived),
                };
            }
        };
        tokio::select! {
            biased;
            () = self.router.over() => None,
            next = next => next.ok().flatten().map(Next::Dialled),
        }
    }

    /// Makes `next` the connection of the session: both ends say how many messages they have received.
    async fn change(&mut self, next: Next) -> Result<(), Stop> {
        let (connection, received) = match next {
            Next::Arrived(Successor { mut connection, received }) => {
                self.sent.begin(received).map_err(|failure| self.violated(failure))?;
                let resumed = Message::Resumed { received: self.reading.received() };
                let broken = |error: std::io::Error| Stop::Broken(error.to_string());
                let answer = timeout(ANSWER_TIMEOUT, connection.write(&resumed)).await;
                answer
                    .map_err(|_| Stop::Broken("it took no answer".to_owned()))?
                    .map_err(broken)?;
                (connection, received)
            }
            Next::Dialled(connection) => self.resume(connection).await?,
        };
        connection.watch_over(self.timeouts);
        self.connection.close_socket();
        self.reading.begin(connection.clone(), Arc::clone(&self.router.received_bytes));
        self.connection = connection;
        info!(received, "another control connection continues the session");
        Ok(())
    }

    /// Continues the session over a connection that this end has dialled.
    async fn resume(&mut self, mut connection: Connection) -> Result<(Connection, u64), Stop> {
        let Succession::Dial(redial) = &self.succession else {
            return Err(Stop::Broken("no connection was expected".to_owned()));
        };
        let broken = |error: &dyn std::fmt::Display| Stop::Broken(error.to_string());
        self.attempt += 1;
        let exporter = connection.proof_exporter().map_err(|error| broken(&error))?;
        let secrets = redial.secrets();
        let resume = Message::Resume {
            id: secrets.id,
            proof: ticket::proof(&secrets.key, &exporter),
            attempt: self.attempt,
            received: self.reading.received(),
        };
        let exchange = async {
            connection.write(&resume).await?;
            connection.read_at_most(MAX_GREETING).await
        };
        let answer = timeout(ANSWER_TIMEOUT, exchange).await;
        match answer.map_err(|_| broken(&"no answer"))?.map_err(|error| broken(&error))? {
            Some(Message::Resumed { received }) => {
                self.sent.begin(received).map_err(|failure| self.violated(failure))?;
                Ok((connection, received))
            }
            Some(Message::Cancel { failure, .. }) => {
                Err(Stop::Over(Some(Ending::Gone(failure.message))))
            }
            _ => Err(broken(&"the new connection was closed")),
        }
    }

    fn violated(&self, failure: Failure) -> Stop {
        Stop::Over(Some(Ending::Failure(failure)))
    }
}

impl Succession {
    /// Returns another connection while the present one still seems to exist.
    async fn beside(&mut self, present: &Connection, router: &Router, outbox: &WeakOutbox) -> Next {
        // Before that, the listener has no session. The router lives as long as this call.
        let _ = router.suite().wait_for(Option::is_some).await;
        match self {
            Self::None => std::future::pending().await,
            Self::Dial(redial) => loop {
                suspect(present, router, outbox, &redial.address_changed).await;
                let bytes = router.received_bytes();
                debug!("no answer on the control connection; dialling another one");
                let is_needed = || router.received_bytes() == bytes;
                if let Some(connection) = redial_until(redial, is_needed).await {
                    return Next::Dialled(connection);
                }
            },
            Self::Wait(registration) => match registration.next().await {
                Some(successor) => Next::Arrived(successor),
                None => std::future::pending().await,
            },
        }
    }
}

/// Waits until the connection has not answered for [`SUSPECT_AFTER`], or its local address is gone. A change of an
/// address that a UDP channel found causes a ping.
async fn suspect(
    connection: &Connection,
    router: &Router,
    outbox: &WeakOutbox,
    address_changed: &Notify,
) {
    let local = connection.local_ip();
    let mut silent_since = None::<(Instant, u64)>;
    loop {
        tokio::select! {
            biased;
            () = address_changed.notified() => {
                if !router.is_answer_due() && let Some(outbox) = outbox.upgrade() {
                    router.count_ping();
                    // A queue without room is full of messages that show the same.
                    let _ = outbox.put(&Message::Ping);
                }
            }
            () = sleep_until(Instant::now() + CHECK_INTERVAL) => {}
        }
        if local.is_some_and(|local| !is_local(local)) {
            return;
        }
        let bytes = router.received_bytes();
        silent_since = match silent_since {
            _ if !router.is_answer_due() => None,
            Some((since, before)) if before == bytes => {
                if since.elapsed() >= SUSPECT_AFTER {
                    return;
                }
                Some((since, before))
            }
            _ => Some((Instant::now(), bytes)),
        };
    }
}

/// Dials while `is_needed`. Returns `None` if the connection is not needed any more, or the listener is gone.
async fn redial_until(redial: &Redial, is_needed: impl Fn() -> bool) -> Option<Connection> {
    let (mut pause, mut refusals) = (PAUSE, 0);
    while is_needed() {
        match redial.dial().await {
            Ok(connection) => return is_needed().then_some(connection),
            Err(error) => {
                debug!(%error, "the control connection could not be replaced");
                let is_refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
                refusals = if is_refused { refusals + 1 } else { 0 };
                if refusals >= REFUSALS_MAX {
                    return None;
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    None
}
