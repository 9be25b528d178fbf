//! Relay: a UDP and TCP proxy with an emulated path.
//!
//! One thread carries all datagrams. While packets move, the thread wakes every 75 µs, receives pending
//! packets, and sends due packets in batches of equal segments. Arrival times are the kernel's
//! receive times, so a late wake-up does not change them. Packets are never sent early; their
//! lateness is measured and reported ([`Lateness`]).
//!
//! Not modelled: the relay handles UDP datagrams and TCP byte streams, not IP packets. A damaged
//!     datagram is delivered with wrong bytes, as if its checksum had been right. TCP has the path's
//!     delay only (`tcp.rs`). ECN and IP options are not carried.

mod engine;
mod path;
mod socket;
mod stats;
mod store;
mod tcp;
mod udp;

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use engine::Engine;
pub use path::RelayConfig;
pub use stats::RelayStats;
use stats::Shared;
use tcp::Tcp;

use crate::clock::Clock;

/// A relay could not be started.
#[derive(Debug)]
pub struct RelayError {
    action: &'static str,
    address: SocketAddr,
    source: io::Error,
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, address, source } = self;
        write!(f, "relay cannot {action} at {address}: {source}; try another listen address")
    }
}

impl std::error::Error for RelayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A running relay; dropping the relay closes its sockets and ends its thread.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    waker: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Binds the sockets and starts relaying.
    ///
    /// # Errors
    /// If the address cannot be bound for both UDP and TCP, or no thread can be started.
    pub fn start(config: RelayConfig) -> Result<Self, RelayError> {
        let listen = config.listen;
        let fail = |action| move |source| RelayError { action, address: listen, source };
        let (udp, tcp) = socket::bind_pair(listen).map_err(fail("bind UDP and TCP"))?;
        let address = tcp.local_addr().map_err(fail("learn its port"))?;
        let (waker, wakened) = UnixStream::pair().map_err(fail("make its waker"))?;
        let shared = Arc::new(Shared::default());
        let stop = Arc::new(AtomicBool::new(false));
        let clock = Clock::start();
        let tcp = Tcp::start(&config, tcp, clock).map_err(fail("start a thread for TCP"))?;

        let (parts, flag) = (Arc::clone(&shared), Arc::clone(&stop));
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("sabul-relay".to_owned())
            .spawn(move || match Engine::new(&config, udp, tcp, clock, wakened, parts, flag) {
                Ok(engine) => {
                    // The receiver waits just below; an error means that the caller is gone.
                    if ready.send(Ok(())).is_ok() {
                        engine.run();
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            })
            .map_err(fail("start its thread"))?;
        let gone = || io::Error::other("its thread ended at once");
        started.recv().unwrap_or_else(|_| Err(gone())).map_err(fail("prepare its sockets"))?;
        Ok(Self { address, shared, stop, waker, thread: Some(thread) })
    }

    /// Returns the address to connect to instead of the target's, for UDP and TCP.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns statistics, at most about 10 ms old.
    pub fn stats(&self) -> RelayStats {
        self.shared.read()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A full pipe means that wake-ups are already pending.
        let _ = self.waker.write(&[0]);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by its hook.
            let _ = thread.join();
        }
    }
}
