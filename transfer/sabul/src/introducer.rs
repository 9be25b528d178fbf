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

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabul_wire::control::{Failure, FailureCode, Message, UdpAddress};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::info;

use crate::config::IntroducerConfig;
use crate::connection::Connection;
use crate::metered::{Limit, Meter, pass};
use crate::outside::{Permission, Reflector};
use crate::relay::{Relay, Settings};

/// Registrations of one key or ticket, and of all.
const PER_USER_MAX: usize = 16;
const REGISTRATIONS_MAX: usize = 4096;
/// Streams of a registration at the same time; fewer than a relay permits.
const CALLS_MAX: usize = 48;
/// Calls of a registration: at once, and interval of further ones.
const CALLS_BURST: u32 = 60;
const CALL_INTERVAL: Duration = Duration::from_secs(1);
/// Time that a caller waits for a server that registers again.
const REGISTRATION_WAIT: Duration = Duration::from_secs(2);
/// Ours: callers that wait for a registration at the same time. They have proven nothing, so they get no memory of the
/// budget; each keeps a TLS connection.
const WAITING_MAX: usize = 64;
/// Timeout for the answer to a caller or a server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of a stream without data. Ours: control messages of a copy take 1 kB/s, a listing of ten thousand files 1 MB.
const CONTROL: Limit = Limit { burst: 8 << 20, rate: 256 << 10 };
/// Most bytes on their way in one direction of a stream, which is memory of the introducer: without and with a relay of data.
const WINDOW_CONTROL: usize = 256 << 10;
const WINDOW_DATA: usize = 1 << 20;
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
    /// Callers that may wait for a registration at the same time.
    waiting: Semaphore,
    /// Bytes of streams with data so far.
    relayed: AtomicU64,
}

#[derive(Debug, Default)]
struct Registrations {
    by_name: HashMap<[u8; 16], Registration>,
    last: u64,
}

/// A registered server.
#[derive(Debug)]
struct Registration {
    number: u64,
    /// Key or ticket by which the server was authenticated.
    user: String,
    relay: Relay,
    calls: usize,
    /// Time from which all of [`CALLS_BURST`] are permitted.
    full_at: Instant,
}

/// Removes a registration when the connection of the server ends.
struct Registered<'a>(&'a Introducer, [u8; 16], u64);

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut registrations = self.0.lock();
        let is_its = |it: &Registration| it.number == self.2;
        if registrations.by_name.get(&self.1).is_some_and(is_its) {
            registrations.by_name.remove(&self.1);
        }
    }
}

/// Counts a stream until its end.
struct Call<'a>(&'a Introducer, [u8; 16], u64);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(it) = self.0.lock().by_name.get_mut(&self.1).filter(|it| it.number == self.2) {
            it.calls -= 1;
        }
    }
}

fn refused(text: &str) -> Failure {
    Failure::new(FailureCode::Refused, text)
}

impl Registrations {
    /// Whether a server of this user may register the name.
    fn check(&self, name: &[u8; 16], user: &str) -> Result<(), Failure> {
        if let Some(present) = self.by_name.get(name) {
            return match present.user == user {
                true => Ok(()),
                false => Err(refused("the name is registered by another key or ticket")),
            };
        }
        let of_user = self.by_name.values().filter(|it| it.user == user).count();
        if of_user >= PER_USER_MAX {
            let text = format!(
                "this key or ticket has {PER_USER_MAX} registered servers, which is the limit; use another one"
            );
            return Err(refused(&text));
        }
        if self.by_name.len() >= REGISTRATIONS_MAX {
            return Err(refused("the introducer has no room for another server; try again later"));
        }
        Ok(())
    }

    /// Registers a server and returns its number. An earlier registration of the name by the same user ends.
    fn insert(&mut self, name: [u8; 16], user: String, relay: Relay) -> Result<u64, Failure> {
        self.check(&name, &user)?;
        self.last += 1;
        let (number, full_at) = (self.last, Instant::now());
        let registration = Registration { number, user, relay, calls: 0, full_at };
        if let Some(earlier) = self.by_name.insert(name, registration) {
            earlier.relay.end("the server registered again");
        }
        Ok(number)
    }
}

impl Introducer {
    pub(crate) fn new(config: IntroducerConfig) -> Self {
        Self {
            config,
            reflector: Arc::default(),
            registrations: Mutex::default(),
            registered: Notify::new(),
            waiting: Semaphore::new(WAITING_MAX),
            relayed: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Registrations> {
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all registrations, before the tasks of the calls are dropped. A server would otherwise take the end of a call
    /// for the end of the caller.
    pub(crate) fn close(&self) {
        for registration in self.lock().by_name.values() {
            registration.relay.end("the introducer has ended");
        }
    }

    const fn window_max(&self) -> usize {
        if self.config.relay { WINDOW_DATA } else { WINDOW_CONTROL }
    }

    /// Memory of a call, in bytes.
    pub(crate) const fn call_bytes(&self) -> usize {
        2 * self.window_max()
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
        let inserted = self.lock().insert(name, user, relay.clone());
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

    /// Begins a call to a registered server.
    fn begin(&self, name: &[u8; 16]) -> Result<Option<(Relay, Call<'_>)>, Failure> {
        let mut registrations = self.lock();
        let Some(registration) = registrations.by_name.get_mut(name) else { return Ok(None) };
        let now = Instant::now();
        let full_at = registration.full_at.max(now) + CALL_INTERVAL;
        if full_at > now + CALL_INTERVAL * CALLS_BURST || registration.calls >= CALLS_MAX {
            return Err(refused("the server has too many callers; try again in a minute"));
        }
        registration.full_at = full_at;
        registration.calls += 1;
        let number = registration.number;
        Ok(Some((registration.relay.clone(), Call(self, *name, number))))
    }

    /// Passes the bytes of a caller to a server and back, until one of them ends.
    ///
    /// # Errors
    /// If the call is refused; the connection is returned too, for the reason.
    pub(crate) async fn call<L>(
        &self,
        mut connection: Connection,
        peer: SocketAddr,
        name: [u8; 16],
        carries_data: bool,
        borrow: impl FnOnce() -> Result<L, Failure>,
    ) -> Result<(), (Connection, Failure)> {
        if carries_data && !self.config.relay {
            let text =
                "the introducer relays no data; its administrator can permit it with --relay";
            return Err((connection, refused(text)));
        }
        let found = self.wait_for(&name).await;
        let ((relay, _call), _loans) = match found.and_then(|found| Ok((found, borrow()?))) {
            Ok(found) => found,
            Err(failure) => return Err((connection, failure)),
        };
        let permission = match self.permit(&connection) {
            Ok(permission) => permission,
            Err(failure) => return Err((connection, failure)),
        };
        let opening = async {
            let mut stream = relay.open().await?;
            let UdpAddress { ip, port } = peer.into();
            stream.write_all(&ip).await?;
            stream.write_all(&port.to_be_bytes()).await?;
            Ok::<_, io::Error>(stream)
        };
        let Ok(Ok(stream)) = timeout(ANSWER_TIMEOUT, opening).await else {
            let text = "the server does not answer the introducer; try again";
            return Err((connection, refused(text)));
        };
        let answer = timeout(ANSWER_TIMEOUT, connection.write(&Message::Called));
        if !matches!(answer.await, Ok(Ok(()))) {
            return Ok(());
        }
        let meter = Meter::new((!carries_data).then_some(CONTROL));
        let (from_server, to_server) = tokio::io::split(stream);
        let ended = tokio::try_join!(
            pass(connection.clone(), to_server, &meter),
            pass(from_server, connection, &meter)
        );
        drop(permission);
        let bytes = meter.bytes();
        if carries_data {
            let total = self.relayed.fetch_add(bytes, Ordering::Relaxed) + bytes;
            info!(%peer, bytes, total, "data relayed");
        }
        info!(%peer, bytes, error = ended.err().map(tracing::field::display), "a call has ended");
        Ok(())
    }

    /// Returns the server of this name, also if the server registers a moment later.
    async fn wait_for(&self, name: &[u8; 16]) -> Result<(Relay, Call<'_>), Failure> {
        let missing =
            "the server of this ticket is not registered at the introducer; start it with --via";
        let found = async {
            let mut place = None;
            loop {
                let mut registered = std::pin::pin!(self.registered.notified());
                registered.as_mut().enable();
                if let Some(found) = self.begin(name)? {
                    return Ok(found);
                }
                if place.is_none() {
                    place = Some(self.waiting.try_acquire().map_err(|_| refused(missing))?);
                }
                registered.await;
            }
        };
        timeout(REGISTRATION_WAIT, found).await.unwrap_or_else(|_| Err(refused(missing)))
    }
}
