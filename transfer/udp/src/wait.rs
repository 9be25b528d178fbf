//! Waiting for datagrams, room, a deadline, or another thread.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};

use crate::socket::UdpSocket;

/// Readiness to wait for, besides the waker and the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wait {
    /// End when a datagram can be received.
    pub readable: bool,
    /// End when a datagram can be sent.
    pub writable: bool,
}

impl Wait {
    /// No socket event: only the waker and the timeout end the wait.
    pub const NOTHING: Self = Self { readable: false, writable: false };
    /// A datagram to receive.
    pub const READABLE: Self = Self { readable: true, writable: false };
    /// Room to send.
    pub const WRITABLE: Self = Self { readable: false, writable: true };
    /// A datagram to receive, or room to send.
    pub const BOTH: Self = Self { readable: true, writable: true };
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ready {
    /// A datagram (or an error to collect) can be received; set only if waited for.
    pub readable: bool,
    /// A datagram can be sent (or an error can be collected); set only if waited for.
    pub writable: bool,
    /// A [`Waker`] was used since the last wait.
    pub woken: bool,
}

impl Ready {
    /// Whether the wait ended by its timeout.
    pub const fn timed_out(self) -> bool {
        !(self.readable || self.writable || self.woken)
    }
}

/// Ends the wait of one [`UdpSocket`] from any thread; clones do the same.
///
/// Wakes coalesce: many wakes before the waiter runs cost one system call and end one wait. A wake
/// while no thread waits ends the next wait at once, so no wake is lost. Store the work for the
/// waiter before the wake.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Wakeup>);

#[derive(Debug)]
struct Wakeup {
    /// Whether the descriptor is readable because of a wake that the waiter has not yet handled.
    pending: AtomicBool,
    read: OwnedFd,
    /// The pipe's other end; on Linux one eventfd is both.
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
}

impl Waker {
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let read = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Wakeup { pending: AtomicBool::new(false), read })))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe()?;
        for end in [&read, &write] {
            rustix::io::ioctl_fionbio(end, true)?;
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        }
        Ok(Self(Arc::new(Wakeup { pending: AtomicBool::new(false), read, write })))
    }

    /// Ends the present wait, or else the next one.
    pub fn wake(&self) {
        if self.0.pending.swap(true, Ordering::AcqRel) {
            return;
        }
        #[cfg(target_os = "linux")]
        let end = &self.0.read;
        #[cfg(not(target_os = "linux"))]
        let end = &self.0.write;
        // The write cannot fail for lack of space: `pending` allows at most one wake in the
        // descriptor.
        let _ = retry_on_intr(|| rustix::io::write(end, &1u64.to_ne_bytes()));
    }

    /// Clears a wake. The order matters: a wake between the two steps leaves no signal behind. The
    /// present wait covers this wake, because the waiter has not looked for work yet.
    fn clear(&self) {
        let _ = retry_on_intr(|| rustix::io::read(&self.0.read, &mut [0u8; 8]));
        self.0.pending.swap(false, Ordering::AcqRel);
    }
}

impl UdpSocket {
    /// Returns a handle that ends this socket's [`wait`](Self::wait) from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Blocks until an event of `wait`, a wake by a [`Waker`], or the end of `timeout`; without a
    /// timeout, without limit. Signals to the process do not end the wait.
    ///
    /// The timeout has nanosecond resolution. The kernel may end the wait late by the thread's
    /// timer slack (50 µs unless [`set_timer_slack_min`] was called), or by 0.1 % of the timeout if
    /// that is more.
    ///
    /// # Errors
    /// If the system is out of memory.
    pub fn wait(&self, wait: Wait, timeout: Option<Duration>) -> io::Result<Ready> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, wait.readable);
        events.set(PollFlags::OUT, wait.writable);
        let mut fds = [
            PollFd::from_borrowed_fd(self.waker.0.read.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.socket.as_fd(), events),
        ];
        // A socket error ends a poll whatever the events, so a socket without events is left out.
        let count = if events.is_empty() { 1 } else { 2 };
        let start = Instant::now();
        let mut left = timeout;
        while let Err(error) = poll(&mut fds[..count], left.map(timespec).as_ref()) {
            if error != Errno::INTR {
                return Err(error.into());
            }
            left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        }
        let socket = fds[1].revents();
        // A pending error is collected by the next receive or send.
        let failed = socket.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        let woken = !fds[0].revents().is_empty();
        if woken {
            self.waker.clear();
        }
        Ok(Ready {
            readable: wait.readable && (failed || socket.contains(PollFlags::IN)),
            writable: wait.writable && (failed || socket.contains(PollFlags::OUT)),
            woken,
        })
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Sets the timer slack of the calling thread to 1 ns, so that waits end up to 50 µs closer to
/// their deadline. The cost is more timer interrupts. The time to wake a thread, some 5 to 25 µs,
/// remains. No effect on systems other than Linux.
///
/// # Errors
/// If the system refuses; Linux does not refuse this for the calling thread.
pub fn set_timer_slack_min() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN))?;
    Ok(())
}
