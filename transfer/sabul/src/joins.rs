//! Further TLS connections of a session: the connector dials them, and the listener assigns them to a transfer.
//!
//! Both ends export an identifier and a key from the control connection for each transfer. The first message of a
//! further connection has the identifier and a MAC with this key over a value exported from that connection. So only
//! the connector of the session can join, and a MAC is valid on one connection. The connector confirms after
//! dialling, because it may need no further connection by then.
//! Invariants:  a transfer gets its connections once, when all of them have joined; each borrows the memory of a
//!              session.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sabul_wire::control::{MAX_JOINING, Message};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::budget::{Loan, MemoryBudget};
use crate::calls::Introduced;
use crate::connection::{Carried, Connection, Hop};
use crate::control::Event;
use crate::dial::prepare;
use crate::error::{Error, Source};
use crate::lock::lock;
use crate::relay::Relay;
use crate::ticket;
use crate::tls::{self, JoinSecrets, TlsError};

/// Longest time until a joined connection is answered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections dialled at the same time: a listener limits concurrent handshakes of one address.
const AT_ONCE: usize = 4;
/// Pause before a busy listener is dialled again.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
/// Longest time until the connector commits.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer, in bytes.
const ANSWER_MAX: usize = 64;

/// Transfers of a listener that further connections may join.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joins(Arc<Mutex<HashMap<u64, Expected>>>);

/// A transfer that connections may join.
#[derive(Debug)]
struct Expected {
    secrets: JoinSecrets,
    attempt: u32,
    joined: Vec<Option<Connection>>,
    /// Memory of the connections, held as long as the registration.
    loans: Vec<Loan>,
    /// All connections have joined.
    is_complete: bool,
    event_sender: mpsc::UnboundedSender<Event>,
}

/// Registration of a transfer; dropping the value removes it.
#[derive(Debug)]
pub(crate) struct Registration {
    joins: Joins,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.joins.lock().remove(&self.id);
    }
}

/// All connections of a transfer, and the queue of its events.
struct Complete {
    connections: Vec<Connection>,
    event_sender: mpsc::UnboundedSender<Event>,
}

/// First message of a connection that joins, with the value that its proof covers.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) id: u64,
    pub(crate) proof: [u8; 32],
    pub(crate) exporter: [u8; 32],
    pub(crate) attempt: u32,
    pub(crate) index: u8,
    pub(crate) count: u8,
}

impl Joins {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Expected>> {
        lock(&self.0)
    }

    /// Lets connections join a transfer. When all have joined, the transfer gets [`Event::Joined`].
    pub(crate) fn expect(
        &self,
        secrets: JoinSecrets,
        event_sender: mpsc::UnboundedSender<Event>,
    ) -> Registration {
        let id = secrets.id;
        let expected = Expected {
            secrets,
            attempt: 0,
            joined: Vec::new(),
            loans: Vec::new(),
            is_complete: false,
            event_sender,
        };
        self.lock().insert(id, expected);
        Registration { joins: self.clone(), id }
    }

    /// Adds a connection to its transfer, and answers all connections of the transfer once they are complete.
    pub(crate) async fn join(
        &self,
        joining: Joining,
        mut connection: Connection,
        memory: &MemoryBudget,
    ) -> Result<(), &'static str> {
        self.check(&joining)?;
        let loan = memory.session().map_err(|_| "memory is short")?;
        let committed = tokio::time::timeout(COMMIT_TIMEOUT, connection.read_at_most(ANSWER_MAX));
        if !matches!(committed.await, Ok(Ok(Some(Message::Joined)))) {
            return Err("the connector does not need it");
        }
        let complete = self.add(&joining, connection, loan)?;
        let Some(Complete { mut connections, event_sender }) = complete else { return Ok(()) };
        for connection in &mut connections {
            let answered = tokio::time::timeout(ANSWER_TIMEOUT, connection.write(&Message::Joined));
            if !matches!(answered.await, Ok(Ok(()))) {
                if let Some(expected) = self.lock().get_mut(&joining.id) {
                    expected.is_complete = false;
                }
                return Err("a connection that joined a transfer was closed");
            }
        }
        // A transfer that is over needs no connections.
        let _ = event_sender.send(Event::Joined(connections));
        Ok(())
    }

    fn check(&self, joining: &Joining) -> Result<(), &'static str> {
        let &Joining { id, proof, exporter, attempt, index, count } = joining;
        let transfers = self.lock();
        let expected = transfers.get(&id).ok_or("it joins a transfer that does not exist")?;
        if !ticket::verify_proof(&expected.secrets.key, &exporter, &proof) {
            return Err("it has no valid proof for the transfer that it joins");
        }
        if index >= count || count > MAX_JOINING {
            return Err("it joins a transfer with an invalid number of connections");
        }
        if expected.is_complete || attempt < expected.attempt {
            return Err(
                "it joins a transfer that has all its connections, or by an earlier attempt",
            );
        }
        Ok(())
    }

    /// Returns the connections of the transfer if this one was the last to join.
    fn add(
        &self,
        joining: &Joining,
        connection: Connection,
        loan: Loan,
    ) -> Result<Option<Complete>, &'static str> {
        let &Joining { id, attempt, index, count, .. } = joining;
        let mut transfers = self.lock();
        let expected = transfers.get_mut(&id).ok_or("it joins a transfer that has ended")?;
        if expected.is_complete || attempt < expected.attempt {
            return Err(
                "it joins a transfer that has all its connections, or by an earlier attempt",
            );
        }
        if attempt > expected.attempt || expected.joined.len() != usize::from(count) {
            expected.attempt = attempt;
            expected.joined = Vec::new();
            expected.joined.resize(count.into(), None);
            expected.loans = Vec::new();
        }
        let place = &mut expected.joined[usize::from(index)];
        if place.is_some() {
            return Err("it joins a transfer under a used index");
        }
        *place = Some(connection);
        expected.loans.push(loan);
        if expected.joined.iter().any(Option::is_none) {
            return Ok(None);
        }
        expected.is_complete = true;
        let complete = std::mem::take(&mut expected.joined).into_iter().flatten().collect();
        Ok(Some(Complete { connections: complete, event_sender: expected.event_sender.clone() }))
    }
}

impl Registration {
    /// Lets connections join once more.
    pub(crate) fn renew(&self) {
        if let Some(expected) = self.joins.lock().get_mut(&self.id) {
            expected.is_complete = false;
            expected.loans.clear();
        }
    }
}

/// Way to the listener of a session.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    Tcp(SocketAddr),
    Ssh(Relay),
    /// With the counter of the bytes.
    Introducer(Arc<Introduced>, Arc<AtomicU64>),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(peer) => write!(f, "TCP connection to {peer}"),
            Self::Ssh(_) => f.write_str("connection through ssh"),
            Self::Introducer(..) => f.write_str("connection through the introducer"),
        }
    }
}

impl Way {
    /// Dials one connection, with TLS.
    async fn dial(&self, fingerprint: [u8; 32]) -> io::Result<Result<Connection, TlsError>> {
        Ok(match self {
            Self::Tcp(peer) => {
                let stream = TcpStream::connect(peer).await?;
                prepare(&stream)?;
                tls::connect(stream, fingerprint).await.map(Connection::new)
            }
            Self::Ssh(relay) => {
                let stream: Carried = Box::new(relay.open().await?);
                let stream = tls::connect(stream, fingerprint).await;
                stream.map(|stream| Connection::relayed(stream, Hop::Ssh))
            }
            Self::Introducer(introduced, relayed) => {
                let stream = introduced.call_for_data(relayed).await?;
                let stream = tls::connect(stream, fingerprint).await;
                stream.map(|stream| Connection::relayed(stream, Hop::Introducer))
            }
        })
    }
}

/// Dials `count` TLS connections to the listener of a session, and introduces them to a transfer.
///
/// # Errors
/// If a connection cannot be made within `timeout`.
pub(crate) async fn dial(
    way: &Way,
    fingerprint: [u8; 32],
    count: u8,
    attempt: u32,
    secrets: JoinSecrets,
    timeout: Duration,
) -> Result<Vec<Connection>, Error> {
    let text = |why: &dyn fmt::Display| format!("no further {way} could be made: {why}");
    let secrets = Arc::new(secrets);
    let all = async {
        let (mut tasks, mut connections, mut dialled) = (JoinSet::new(), Vec::new(), 0);
        while connections.len() < usize::from(count) {
            while tasks.len() < AT_ONCE && dialled < count {
                let place = (attempt, dialled, count);
                tasks.spawn(dial_one(way.clone(), fingerprint, Arc::clone(&secrets), place));
                dialled += 1;
            }
            let Some(done) = tasks.join_next().await else { break };
            connections.push(done??);
        }
        Ok::<_, Source>(connections)
    };
    match tokio::time::timeout(timeout, all).await {
        Ok(Ok(connections)) => Ok(connections),
        Ok(Err(error)) => Err(Error::gone(text(&error), error)),
        Err(_) => {
            let why = format!("no answer within {:.0} s", timeout.as_secs_f64());
            Err(Error::PeerGone(text(&why).into()))
        }
    }
}

/// Dials one connection. A listener that is busy is dialled again until the caller gives up.
async fn dial_one(
    way: Way,
    fingerprint: [u8; 32],
    secrets: Arc<JoinSecrets>,
    (attempt, index, count): (u32, u8, u8),
) -> Result<Connection, Source> {
    let mut connection = loop {
        match way.dial(fingerprint).await? {
            Err(TlsError::Busy | TlsError::Closed) => tokio::time::sleep(BUSY_PAUSE).await,
            other => break other?,
        }
    };
    let exporter = connection.proof_exporter()?;
    let proof = ticket::proof(&secrets.key, &exporter);
    let message = Message::Join { id: secrets.id, proof, attempt, index, count };
    connection.write(&message).await?;
    Ok(connection)
}

/// Commits to these connections. Returns once the listener has answered on all of them.
///
/// # Errors
/// If the listener closes a connection or does not answer.
pub(crate) async fn commit(connections: &mut [Connection]) -> Result<(), Error> {
    let text = |why: &dyn fmt::Display| format!("the listener let no connection join: {why}");
    let failed = |why: &str| Error::PeerGone(text(&why).into());
    let broken = |error: io::Error| Error::gone(text(&error), error);
    for connection in connections.iter_mut() {
        connection.write(&Message::Joined).await.map_err(broken)?;
    }
    for connection in connections {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, connection.read_at_most(ANSWER_MAX));
        match answer.await {
            Ok(Ok(Some(Message::Joined))) => {}
            Ok(Ok(_)) => return Err(failed("it was closed")),
            Ok(Err(error)) => return Err(broken(error)),
            Err(_) => return Err(failed("no answer")),
        }
    }
    Ok(())
}
