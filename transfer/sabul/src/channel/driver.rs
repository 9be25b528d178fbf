//! Interface between a channel endpoint and its driver loop: a thread with a socket, or a
//! simulation.
//!
//! An endpoint never waits by itself. Its `drive` does the work due now and returns a pause; the
//! driver waits. The same endpoints therefore run on threads over UDP, and in virtual time over
//! links in memory.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use sabul_udp::{Ecn, RecvBuffers, SendOutcome, UdpSocket, Wait};
use sabul_units::{Instant, Random};

use super::handover::{DriverEnd, HandedOver, Reception};
use super::link::Entropy;
use super::shared::{ChannelError, OnEnd, Shared};

/// Connected datagram socket whose wait can be interrupted.
pub(crate) trait Datagrams: Send + Debug {
    /// Sends datagrams of `segment` bytes back to back, of which the last may be shorter.
    fn send(&self, datagrams: &[u8], segment: usize) -> io::Result<SendOutcome>;
    /// Receives at most one batch without waiting; returns the number of datagrams.
    fn recv(&self, buffers: &mut RecvBuffers) -> io::Result<usize>;
    /// Waits for a condition in `wait`, the waker, or the timeout.
    fn wait(&self, wait: Wait, timeout: Duration) -> io::Result<()>;
    /// Returns a handle that interrupts a wait from any thread.
    fn waker(&self) -> Wake;
    /// Number of drops because of a full receive buffer.
    fn overflow_drops(&self) -> u64;
    /// Largest IP packet that this machine would send to the peer, if the system reports one.
    fn path_mtu(&self) -> Option<u32>;
    /// Local address.
    fn local_addr(&self) -> SocketAddr;
    /// Address of the peer.
    fn peer_addr(&self) -> Option<SocketAddr>;
    /// Advice on the configuration of this machine, one sentence, if any.
    fn hint(&self) -> Option<String>;
    /// Random numbers that a peer cannot predict.
    fn random(&self) -> Box<dyn Random + Send>;
    /// Sends a datagram to another address than the peer's, to validate it.
    fn challenge(&self, _datagram: &[u8], _to: SocketAddr) -> io::Result<()> {
        Ok(())
    }
    /// Returns a socket to the peer's new address, which has been validated; `None` if there is none.
    fn toward(&self, _peer: SocketAddr) -> Option<Box<dyn Datagrams>> {
        None
    }
    /// Returns a socket from another local address if the present one is gone, or if the peer is silent and the system
    /// now prefers another one.
    fn renewed(&self, _is_silent: bool) -> Option<Box<dyn Datagrams>> {
        None
    }
    /// Address of the peer, if this end is the listener, whose peer may change its address.
    fn moving_peer(&self) -> Option<SocketAddr> {
        None
    }
    /// The simulated socket, in a world in virtual time.
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

/// Interrupts the wait of one socket; clones do the same.
#[derive(Clone)]
pub(crate) struct Wake(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl Wake {
    /// The waker of a channel that has no carrier yet.
    pub(crate) fn none() -> Self {
        Self(Arc::new(|| ()))
    }

    pub(crate) fn wake(&self) {
        (self.0)();
    }
}

impl Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wake")
    }
}

/// Pause of a driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    /// First part of the pause, until this time: only the waker ends this part.
    pub(crate) rest: Option<Instant>,
    /// Conditions that end the second part early.
    pub(crate) wait: Wait,
    /// End of the pause.
    pub(crate) until: Instant,
}

/// Result of [`ChannelEndpoint::drive`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum DriveResult {
    /// More work is due now.
    Again,
    /// No work is due until the end of this pause.
    Wait(Pause),
    /// The endpoint is finished.
    Over,
    /// Another carrier takes over.
    HandOver,
}

/// Endpoint of a channel.
pub(crate) trait ChannelEndpoint: Send {
    /// Returns the receive buffers.
    fn buffers(&self) -> RecvBuffers;
    /// Does the work that is due now.
    fn drive(&mut self, buffers: &mut RecvBuffers) -> Result<DriveResult, ChannelError>;
    /// Returns the socket to wait for.
    fn socket(&self) -> &dyn Datagrams;
    /// Time from now until `deadline`.
    fn until(&self, deadline: Instant) -> Duration;
    /// Publishes the final statistics.
    fn ended(&mut self);
    /// Returns unacknowledged blocks to the queue, or the state of the receiving end.
    fn hand_over(self: Box<Self>) -> Option<Reception>;
}

/// An endpoint with everything that its driver needs.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) endpoint: Box<dyn ChannelEndpoint>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) on_end: OnEnd,
}

impl Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Job {
    /// Runs the endpoint on this thread until it ends; the thread must be dedicated.
    pub(crate) fn run(self) {
        // Precise sleeps keep packets evenly spaced and ACKs punctual. Without them traffic is only
        // burstier.
        let _ = sabul_udp::set_timer_slack_min();
        let Self { mut endpoint, shared, on_end, .. } = self;
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            let result = run(&mut *endpoint);
            endpoint.ended();
            result
        }));
        let result = result.unwrap_or(Err(ChannelError::Broken));
        end(|| endpoint.hand_over(), &shared, on_end, result);
    }
}

/// Ends a carrier: passes the state that `hand_over` returns to the next carrier, or reports the end of the channel.
pub(crate) fn end(
    hand_over: impl FnOnce() -> Option<Reception>,
    shared: &Shared,
    on_end: OnEnd,
    result: Result<DriverEnd, ChannelError>,
) {
    // The other end of `next` waits for the reception that is left.
    let next = shared.lock().hand_over.take();
    if shared.is_path() && result.is_err() {
        // Other paths take the blocks and the memory.
        let left = hand_over();
        shared.lock().left = left;
    } else if let (Ok(DriverEnd::HandOver), Some(next)) = (&result, next) {
        let reception = hand_over();
        let Err(HandedOver { on_end, .. }) = next.send(HandedOver { on_end, reception }) else {
            return;
        };
        shared.stop();
        return on_end(Err(ChannelError::Stopped));
    }
    shared.stop();
    on_end(result.map(drop));
}

fn run(endpoint: &mut dyn ChannelEndpoint) -> Result<DriverEnd, ChannelError> {
    let mut buffers = endpoint.buffers();
    loop {
        match endpoint.drive(&mut buffers)? {
            DriveResult::Again => {}
            DriveResult::Wait(Pause { rest, wait: wait_for, until }) => {
                let wait = |wait, until| endpoint.socket().wait(wait, endpoint.until(until));
                let rested = rest.map_or(Ok(()), |rest| wait(Wait::NOTHING, rest));
                rested.and_then(|()| wait(wait_for, until)).map_err(ChannelError::Io)?;
            }
            DriveResult::Over => return Ok(DriverEnd::Over),
            DriveResult::HandOver => return Ok(DriverEnd::HandOver),
        }
    }
}
