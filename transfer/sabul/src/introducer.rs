//! Introducer: a listener that both ends behind NATs can reach.
//!
//! A server registers a name and keeps its connection, which carries numbered streams ([`Relay`]). A caller that knows
//! the name gets a stream to the server. Both ends run TLS with each other inside of the stream, so the introducer reads no
//! message and cannot pose as the server. Each end asks for the outside address of its UDP sockets ([`Reflector`]) and sends the
//! address to the other end inside of that TLS. The introducer names no address to anyone else.
//!
//! ```text
//! stream to the server: | IP address of the caller, 16 | port, 2 | bytes of the caller …
//! ```
//! Not here:    the right to register (`listener/entry.rs`).

mod registrations;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sabul_wire::control::{Failure, FailureCode, Message, UdpAddress};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use crate::budget::{Loan, MemoryBudget, SESSION_BYTES};
use crate::config::IntroducerConfig;
use crate::connection::Connection;
use crate::lock::lock;
use crate::metered::{Bucket, Limit, Meter, pass};
use crate::outside::{Permission, Reflector};
use crate::relay::{Relay, Settings, Stream};
use crate::source::source;
use registrations::{Begun, Registrations, refused};

/// Time that a caller waits for a server that registers again.
const REGISTRATION_WAIT: Duration = Duration::from_secs(2);
/// Timeout for the answer to a caller or a server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Ours: time until the server of a call has sent its first bytes. A server answers the first message of TLS, so a silent
/// caller holds no place for longer.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of a stream without data. Ours: control messages of a copy take 1 kB/s, a listing of ten thousand files 1 MB.
const CONTROL: Limit = Limit { burst: 8 << 20, rate: 256 << 10 };
/// Most bytes on their way in one direction of a stream, which is memory of the introducer: without and with a relay of data.
const WINDOW_CONTROL: usize = 256 << 10;
const WINDOW_DATA: usize = 1 << 20;
/// Ours: calls take at most this fraction (1/n) of the memory budget, so direct sessions find memory.
const CALLS_PART: usize = 2;
/// Bytes of the address at the beginning of a stream.
pub(crate) const CALLER_LEN: usize = 18;

/// Registrations, and answers about outside addresses.
#[derive(Debug)]
pub(crate) struct Introducer {
    config: IntroducerConfig,
    pub(crate) reflector: Arc<Reflector>,
    registrations: Mutex<Registrations>,
    /// A server has registered.
    registered: Notify,
    /// Bytes of streams with data so far.
    relayed: AtomicU64,
}

/// Removes a registration when the connection of the server ends.
struct Registered<'a>(&'a Introducer, [u8; 16], u64);

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1, self.2);
    }
}

/// Counts a stream until its end.
struct Call<'a>(&'a Introducer, Begun);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.lock().finish(&self.1);
    }
}

/// Counts a caller that waits for a registration.
struct Waiting<'a>(&'a Introducer, IpAddr);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().end_wait(self.1);
    }
}

/// A caller and the request of the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) peer: SocketAddr,
    /// Name of the server.
    pub(crate) name: [u8; 16],
    pub(crate) carries_data: bool,
}

impl Introducer {
    pub(crate) fn new(config: IntroducerConfig) -> Self {
        Self {
            config,
            reflector: Arc::default(),
            registrations: Mutex::default(),
            registered: Notify::new(),
            relayed: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Registrations> {
        lock(&self.registrations)
    }

    /// Ends all registrations, before the tasks of the calls are dropped. A server would otherwise take the end of a call
    /// for the end of the caller.
    pub(crate) fn close(&self) {
        self.lock().end("the introducer has ended");
    }

    const fn window_max(&self) -> usize {
        if self.config.relay { WINDOW_DATA } else { WINDOW_CONTROL }
    }

    /// Memory of a call, in bytes.
    const fn call_bytes(&self) -> usize {
        2 * self.window_max()
    }

    /// Borrows the memory of a call.
    fn borrow(&self, memory: &MemoryBudget) -> Result<Vec<Loan>, Failure> {
        let loans = (0..self.call_bytes().div_ceil(SESSION_BYTES)).map(|_| memory.session());
        loans.collect::<Result<_, _>>().map_err(Failure::from)
    }

    /// Permits the other end of a connection to ask for outside addresses.
    fn permit(&self, connection: &Connection) -> Result<Permission, Failure> {
        let secrets = connection.outside_secrets();
        let secrets = secrets.map_err(|it| Failure::new(FailureCode::Internal, it.to_string()))?;
        Ok(self.reflector.permit(secrets))
    }

    /// Registers a server until its connection ends. A later registration of the same name by the same user replaces
    /// this one.
    ///
    /// # Errors
    /// If the registration is refused; the connection is returned too, for the reason.
    pub(crate) async fn register(
        &self,
        mut connection: Connection,
        name: [u8; 16],
        user: String,
    ) -> Result<(), (Connection, Failure)> {
        let checked = self.lock().check(&name, &user);
        let permission = match checked.and_then(|()| self.permit(&connection)) {
            Ok(permission) => permission,
            Err(failure) => return Err((connection, failure)),
        };
        let answer = timeout(ANSWER_TIMEOUT, connection.write(&Message::Registered));
        if !matches!(answer.await, Ok(Ok(()))) {
            return Ok(());
        }
        let settings = Settings {
            window_max: self.window_max(),
            ended: "the server is gone from the introducer",
        };
        // The server opens no streams.
        let (relay, _tasks) = Relay::with(settings, connection.clone(), connection, None);
        let inserted = self.lock().insert(name, user, relay.clone(), Instant::now());
        let Ok(number) = inserted else {
            // Another server registered in the meantime. The next attempt returns the reason.
            return Ok(());
        };
        let _registered = Registered(self, name, number);
        self.registered.notify_waiters();
        relay.ended().await;
        drop(permission);
        Ok(())
    }

    /// Passes the bytes of a caller to a server and back, until one of them ends. A caller that sends no more still receives
    /// what the server sends.
    ///
    /// # Errors
    /// If the call is refused; the connection is returned too, for the reason.
    pub(crate) async fn call(
        &self,
        mut connection: Connection,
        caller: Caller,
        memory: &MemoryBudget,
    ) -> Result<(), (Connection, Failure)> {
        if caller.carries_data && !self.config.relay {
            let text =
                "the introducer relays no data; its administrator can permit it with --relay";
            return Err((connection, refused(text)));
        }
        let found = self.wait_for(caller, memory).await;
        let (call, _loans) = match found.and_then(|found| Ok((found, self.borrow(memory)?))) {
            Ok(found) => found,
            Err(failure) => return Err((connection, failure)),
        };
        let permission = match self.permit(&connection) {
            Ok(permission) => permission,
            Err(failure) => return Err((connection, failure)),
        };
        let Ok(Ok(stream)) = timeout(ANSWER_TIMEOUT, open(&call.1.relay, caller.peer)).await else {
            let text = "the server does not answer the introducer; try again";
            return Err((connection, refused(text)));
        };
        let answer = timeout(ANSWER_TIMEOUT, connection.write(&Message::Called));
        if !matches!(answer.await, Ok(Ok(()))) {
            return Ok(());
        }
        let limits = match caller.carries_data {
            true => Vec::new(),
            false => vec![Arc::new(Bucket::new(CONTROL)), Arc::clone(&call.1.control)],
        };
        let (bytes, ended) = carry(connection, stream, limits).await;
        drop(permission);
        let peer = caller.peer;
        if caller.carries_data {
            let total = self.relayed.fetch_add(bytes, Ordering::Relaxed) + bytes;
            info!(%peer, bytes, total, "data relayed");
        }
        info!(%peer, bytes, error = ended.err().map(tracing::field::display), "a call has ended");
        Ok(())
    }

    /// Begins a call to the server of this name, also if the server registers a moment later.
    async fn wait_for(&self, caller: Caller, memory: &MemoryBudget) -> Result<Call<'_>, Failure> {
        let missing =
            "the server of this ticket is not registered at the introducer; start it with --via";
        let from = source(caller.peer.ip());
        let calls_max = (memory.bytes() / CALLS_PART / self.call_bytes()).max(1);
        let found = async {
            let mut place = None;
            loop {
                let mut registered = std::pin::pin!(self.registered.notified());
                registered.as_mut().enable();
                let begun = self.lock().begin(&caller.name, from, calls_max, Instant::now())?;
                if let Some(begun) = begun {
                    return Ok(Call(self, begun));
                }
                if place.is_none() {
                    if !self.lock().begin_wait(from) {
                        return Err(refused(missing));
                    }
                    place = Some(Waiting(self, from));
                }
                registered.await;
            }
        };
        timeout(REGISTRATION_WAIT, found).await.unwrap_or_else(|_| Err(refused(missing)))
    }
}

/// Opens a stream to a server, which begins with the address of the caller.
async fn open(relay: &Relay, peer: SocketAddr) -> io::Result<Stream> {
    let mut stream = relay.open().await?;
    let UdpAddress { ip, port } = peer.into();
    stream.write_all(&ip).await?;
    stream.write_all(&port.to_be_bytes()).await?;
    Ok(stream)
}

/// Passes bytes both ways until the server's bytes end, and returns the number of all bytes. A server that sends nothing
/// for [`FIRST_BYTES_TIMEOUT`] has ended.
async fn carry(
    caller: Connection,
    server: Stream,
    limits: Vec<Arc<Bucket>>,
) -> (u64, io::Result<()>) {
    let (up, down) = (Meter::new(limits.clone()), Meter::new(limits));
    let (from_server, to_server) = tokio::io::split(server);
    let to_server = async {
        // The server may still send after the end of this direction.
        match pass(caller.clone(), to_server, &up).await {
            Ok(()) => std::future::pending().await,
            Err(error) => Err::<(), _>(error),
        }
    };
    let silent = async {
        sleep(FIRST_BYTES_TIMEOUT).await;
        if down.bytes() > 0 {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = to_server => ended,
        ended = pass(from_server, caller.clone(), &down) => ended,
        () = silent => Err(io::Error::new(io::ErrorKind::TimedOut, "the server sent nothing")),
    };
    (up.bytes() + down.bytes(), ended)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, DuplexStream};
    use tokio::sync::mpsc;

    use super::*;
    use crate::connection;
    use crate::relay::Tasks;

    /// A call: the end of the caller, the end of the server, and the call itself.
    struct Carried {
        caller: DuplexStream,
        server: Stream,
        call: tokio::task::JoinHandle<(u64, io::Result<()>)>,
        _tasks: (Tasks, Tasks),
    }

    async fn carried() -> Carried {
        let (caller, near) = tokio::io::duplex(1 << 16);
        let (a, b) = tokio::io::duplex(1 << 16);
        let ((a_in, a_out), (b_in, b_out)) = (tokio::io::split(a), tokio::io::split(b));
        let (sender, mut opened) = mpsc::unbounded_channel();
        let (relay, near_tasks) = Relay::start(a_in, a_out, None);
        let (_, far_tasks) = Relay::start(b_in, b_out, Some(sender));
        let stream = relay.open().await.unwrap();
        let server = opened.recv().await.unwrap();
        let connection = Connection::over(connection::Stream::Pipe(near));
        let call = tokio::spawn(carry(connection, stream, Vec::new()));
        Carried { caller, server, call, _tasks: (near_tasks, far_tasks) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_with_the_bytes_of_the_server_or_if_none_come() {
        // The caller stays in both cases.
        let mut answered = carried().await;
        answered.server.write_all(b"bytes").await.unwrap();
        sleep(FIRST_BYTES_TIMEOUT * 60).await;
        assert!(!answered.call.is_finished());
        answered.server.write_all(b" and more").await.unwrap();
        answered.server.shutdown().await.unwrap();
        let (bytes, ended) = answered.call.await.unwrap();
        assert_eq!((bytes, ended.unwrap()), (14, ()));
        let mut received = Vec::new();
        answered.caller.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"bytes and more");
        let began = Instant::now();
        let silent = carried().await;
        let (bytes, ended) = silent.call.await.unwrap();
        assert_eq!((bytes, ended.unwrap_err().kind()), (0, io::ErrorKind::TimedOut));
        assert!((9..12).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_sends_no_more_still_receives() {
        let mut carried = carried().await;
        carried.caller.write_all(b"question").await.unwrap();
        carried.caller.shutdown().await.unwrap();
        let mut question = Vec::new();
        carried.server.read_to_end(&mut question).await.unwrap();
        assert_eq!(question, b"question");
        carried.server.write_all(b"answer").await.unwrap();
        carried.server.shutdown().await.unwrap();
        let mut answer = Vec::new();
        carried.caller.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
        carried.call.await.unwrap().1.unwrap();
    }
}
