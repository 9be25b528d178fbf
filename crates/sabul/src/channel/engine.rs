//! What turns a channel's end: a thread with a socket, or whatever stands in for both.
//!
//! An end never waits by itself. It takes a turn, says how long there is nothing to do, and its
//! driver waits. So the same two ends run on threads over UDP, and in virtual time over links that
//! exist in memory only.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use sabul_udp::{Ecn, RecvBuffers, SendOutcome, UdpSocket, Wait};
use sabul_units::{Instant, Random};

use super::link::Entropy;
use super::shared::{ChannelError, OnEnd, Shared};

/// A connected socket for datagrams, with a way to end its wait.
pub(crate) trait Datagrams: Send + Debug {
    /// Sends datagrams of `segment` bytes back to back, of which the last may be shorter.
    fn send(&self, datagrams: &[u8], segment: usize) -> io::Result<SendOutcome>;
    /// Receives what is there, at most one batch; says how many.
    fn recv(&self, buffers: &mut RecvBuffers) -> io::Result<usize>;
    /// Blocks until something in `wait` is so, the waker is used, or the time is over.
    fn wait(&self, wait: Wait, timeout: Duration) -> io::Result<()>;
    /// Ends a wait from anywhere.
    fn waker(&self) -> Wake;
    /// How often the receive buffer was too full for what arrived.
    fn overflow_drops(&self) -> u64;
    /// Largest IP packet that this machine would send to the peer, where it tells.
    fn path_mtu(&self) -> Option<u32>;
    /// Its own address.
    fn local_addr(&self) -> SocketAddr;
    /// Its peer's.
    fn peer_addr(&self) -> Option<SocketAddr>;
    /// One sentence about what this machine should change, where there is something.
    fn hint(&self) -> Option<String>;
    /// Randomness that a peer cannot foresee.
    fn random(&self) -> Box<dyn Random + Send>;
    /// The socket, if it is one of a world in virtual time.
    #[cfg(test)]
    fn in_world(&self) -> Option<&crate::world::Socket> {
        None
    }
}

impl Datagrams for UdpSocket {
    fn send(&self, datagrams: &[u8], segment: usize) -> io::Result<SendOutcome> {
        Self::send(self, datagrams, segment, None, Ecn::NotEct)
    }

    fn recv(&self, buffers: &mut RecvBuffers) -> io::Result<usize> {
        Self::recv(self, buffers)
    }

    fn wait(&self, wait: Wait, timeout: Duration) -> io::Result<()> {
        Self::wait(self, wait, Some(timeout)).map(drop)
    }

    fn waker(&self) -> Wake {
        let waker = Self::waker(self);
        Wake(Arc::new(move || waker.wake()))
    }

    fn overflow_drops(&self) -> u64 {
        Self::overflow_drops(self).unwrap_or(0)
    }

    fn path_mtu(&self) -> Option<u32> {
        Self::path_mtu(self)
    }

    fn local_addr(&self) -> SocketAddr {
        Self::local_addr(self)
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Self::peer_addr(self)
    }

    fn hint(&self) -> Option<String> {
        self.capabilities().hint
    }

    fn random(&self) -> Box<dyn Random + Send> {
        Box::new(Entropy)
    }
}

/// Ends the wait of one socket; clones do the same.
#[derive(Clone)]
pub(crate) struct Wake(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl Wake {
    pub(crate) fn wake(&self) {
        (self.0)();
    }
}

impl Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wake")
    }
}

/// What there is to wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    /// Before anything else, nothing but the waker counts until then.
    pub(crate) rest: Option<Instant>,
    /// What ends the wait before its time.
    pub(crate) wait: Wait,
    /// When it is over.
    pub(crate) until: Instant,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turned {
    /// There is more to do.
    Again,
    /// Nothing until then.
    Wait(Pause),
    /// The end has done its work.
    Over,
}

/// An end of a channel.
pub(crate) trait Engine: Send {
    /// What to receive into.
    fn buffers(&self) -> RecvBuffers;
    /// Does what can be done now.
    fn turn(&mut self, buffers: &mut RecvBuffers) -> Result<Turned, ChannelError>;
    /// The socket to wait for.
    fn socket(&self) -> &dyn Datagrams;
    /// Time from now until then.
    fn until(&self, deadline: Instant) -> Duration;
    /// It is over: writes down the last figures.
    fn ended(&mut self);
}

/// An end with what its driver needs to run it.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) on_end: OnEnd,
}

impl Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Job {
    /// Runs the end on this thread, which is for nothing else.
    pub(crate) fn run(self) {
        // Precise sleeps keep packets evenly spaced and ACKs punctual; without them the channel
        // is only burstier.
        let _ = sabul_udp::set_timer_slack_min();
        let Self { mut engine, shared, on_end, .. } = self;
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            let result = run(&mut *engine);
            engine.ended();
            result
        }));
        shared.stop();
        on_end(result.unwrap_or(Err(ChannelError::Broken)));
    }
}

fn run(engine: &mut dyn Engine) -> Result<(), ChannelError> {
    let mut buffers = engine.buffers();
    loop {
        match engine.turn(&mut buffers)? {
            Turned::Again => {}
            Turned::Wait(Pause { rest, wait: wait_for, until }) => {
                let wait = |wait, until| engine.socket().wait(wait, engine.until(until));
                let rested = rest.map_or(Ok(()), |rest| wait(Wait::NOTHING, rest));
                rested.and_then(|()| wait(wait_for, until)).map_err(ChannelError::Io)?;
            }
            Turned::Over => return Ok(()),
        }
    }
}
