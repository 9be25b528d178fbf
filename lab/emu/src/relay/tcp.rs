//! TCP half of the relay: byte streams, forwarded with the path's delay.
//!
//! Model: the relay ends each connection and connects to the target for the connector. Bytes of
//!     the connector enter the path one RTT after the connect, and the relay connects to the target
//!     half an RTT later, so the first reply takes two RTTs, as on a real path. Each read of up to
//!     64 KiB is written one delay after it was read, and never inside an outage. Back-pressure:
//!     a full queue of reads stops reading.
//! Not modelled: rate, queue, loss and retransmission. Measure TCP with kernel sockets across a
//!     real interface. The relay is for UDP; a session only needs its control connection beside.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use sabul_net::{LinkConfig, Way};
use sabul_units::{Instant, Span};
use socket2::SockRef;

use super::path::RelayConfig;
use crate::clock::Clock;

/// Most reads of a direction that wait for their delay: 8 MiB.
const READS_MAX: usize = 128;
const READ_BYTES: usize = 64 * 1024;
/// Pause of accepting after the kernel refused a connection (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for the target to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// TCP half of a running relay; dropping the value closes all connections.
#[derive(Debug)]
pub(super) struct Tcp {
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    listener: TcpListener,
    target: SocketAddr,
    forward: LinkConfig,
    back: LinkConfig,
    clock: Clock,
    is_over: AtomicBool,
    accepted: AtomicU64,
    /// All sockets, to end their threads.
    sockets: Mutex<Vec<Weak<TcpStream>>>,
}

/// The result of one read, and the time at which the bytes enter the path.
#[derive(Debug)]
enum Step {
    Bytes(Instant, Vec<u8>),
    End(Instant),
    Reset(Instant),
}

impl Tcp {
    /// Accepts connections from now on.
    pub(super) fn start(
        config: &RelayConfig,
        listener: TcpListener,
        clock: Clock,
    ) -> io::Result<Self> {
        listener.set_nonblocking(false)?;
        let shared = Arc::new(Shared {
            listener,
            target: config.target,
            forward: config.forward.clone(),
            back: config.back.clone(),
            clock,
            is_over: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            sockets: Mutex::default(),
        });
        let owner = Arc::clone(&shared);
        let accepting = Some(spawn(move || owner.accept())?);
        Ok(Self { shared, accepting })
    }

    /// Returns the number of accepted connections.
    pub(super) fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // Ends the accept that waits.
        let _ = SockRef::from(&self.shared.listener).shutdown(Shutdown::Both);
        for socket in self.shared.sockets().drain(..).filter_map(|socket| socket.upgrade()) {
            // A connection that has ended already needs no shutdown.
            let _ = socket.shutdown(Shutdown::Both);
        }
        if let Some(accepting) = self.accepting.take() {
            // A panic of the thread has been printed by its hook.
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn sockets(&self) -> MutexGuard<'_, Vec<Weak<TcpStream>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn accept(self: Arc<Self>) {
        while !self.is_over() {
            match self.listener.accept() {
                Ok((client, _)) => {
                    self.accepted.fetch_add(1, Ordering::Relaxed);
                    let shared = Arc::clone(&self);
                    // Without a thread the connection closes, as at a host that has no memory.
                    let _ = spawn(move || drop(shared.carry(client)));
                }
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    }

    /// Carries one connection until both directions have ended.
    fn carry(self: Arc<Self>, client: TcpStream) -> io::Result<()> {
        client.set_nonblocking(false)?;
        let client = self.prepare(client)?;
        let (forward, back) = (self.forward.delay(), self.back.delay());
        let connected = self.clock.now() + forward + back;
        let reads = Self::read(Arc::clone(&client), self.clock, connected)?;
        let arrived = self.arrival(Way::Forward, connected);
        self.sleep_until(arrived);
        let Ok(target) = TcpStream::connect_timeout(&self.target, CONNECT_TIMEOUT) else {
            return reset(&client);
        };
        let target = self.prepare(target)?;
        let answers = Self::read(Arc::clone(&target), self.clock, Instant::ZERO)?;
        let other = Arc::clone(&self);
        spawn(move || other.write(Way::Back, &answers, &client))?;
        self.write(Way::Forward, &reads, &target);
        Ok(())
    }

    /// Registers a socket, so that the end of the relay ends the socket's threads.
    fn prepare(&self, socket: TcpStream) -> io::Result<Arc<TcpStream>> {
        socket.set_nodelay(true)?;
        let socket = Arc::new(socket);
        let mut sockets = self.sockets();
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Arc::downgrade(&socket));
        drop(sockets);
        if self.is_over() {
            socket.shutdown(Shutdown::Both)?;
        }
        Ok(socket)
    }

    /// Reads a socket on a thread of its own. Bytes enter the path no sooner than at `earliest`.
    fn read(from: Arc<TcpStream>, clock: Clock, earliest: Instant) -> io::Result<Receiver<Step>> {
        let (reads, queue): (SyncSender<Step>, _) = sync_channel(READS_MAX);
        spawn(move || {
            let mut buffer = vec![0; READ_BYTES];
            loop {
                let read = (&*from).read(&mut buffer);
                let at = clock.now().max(earliest);
                let step = match read {
                    Ok(0) => Step::End(at),
                    Ok(bytes) => Step::Bytes(at, buffer[..bytes].to_vec()),
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(_) => Step::Reset(at),
                };
                let is_last = !matches!(step, Step::Bytes(..));
                if reads.send(step).is_err() || is_last {
                    break;
                }
            }
        })?;
        Ok(queue)
    }

    /// Writes the reads of the other end, each one delay later.
    fn write(&self, way: Way, reads: &Receiver<Step>, mut to: &TcpStream) {
        for step in reads {
            let (Step::Bytes(at, _) | Step::End(at) | Step::Reset(at)) = step;
            self.sleep_until(self.arrival(way, at));
            let outcome = match step {
                Step::Bytes(_, bytes) => to.write_all(&bytes),
                Step::End(_) => to.shutdown(Shutdown::Write),
                Step::Reset(_) => reset(to),
            };
            if outcome.is_err() {
                break;
            }
        }
    }

    /// Returns when bytes that enter the path at `at` arrive: after outages and the delay.
    fn arrival(&self, way: Way, mut at: Instant) -> Instant {
        let link = match way {
            Way::Forward => &self.forward,
            Way::Back => &self.back,
        };
        for outage in link.outages() {
            if at >= outage.at && at < outage.end() {
                at = outage.end();
            }
        }
        at + link.delay()
    }

    fn sleep_until(&self, at: Instant) {
        let rest: Span = at.since(self.clock.now());
        thread::sleep(rest.into());
    }
}

/// Makes the end of a socket's last owner a reset, and ends the thread that reads the socket.
fn reset(socket: &TcpStream) -> io::Result<()> {
    SockRef::from(socket).set_linger(Some(Duration::ZERO))?;
    socket.shutdown(Shutdown::Read)
}

fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name("sabul-relay-tcp".to_owned()).spawn(run)
}
