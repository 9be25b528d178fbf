//! Event loop of the relay: wait, receive, deliver due packets, report.

use std::io::{self, Read};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use sabul_net::{Arrival, Output, Way};
use sabul_units::{Instant, Span};

use super::path::{Packet, RelayConfig, RelayPath};
use super::stats::Shared;
use super::tcp::Tcp;
use super::udp::{Due, Udp};

use crate::clock::{Clock, thread_cpu_seconds, timespec};
use crate::lateness::LatenessMeter;

/// Sleep of a busy relay between two rounds. Waking adds about 50 µs on a virtual machine, so at 1
/// Gb/s some ten full packets leave together. A longer sleep costs less processor time and spaces
/// packets worse: `examples/relay_ceiling.rs` measures both.
const TICK: Duration = Duration::from_micros(75);

/// Least time between two reports.
const REPORT_INTERVAL: Span = Span::from_millis(10);

#[derive(Debug)]
pub(super) struct Engine {
    udp: Udp,
    tcp: Tcp,
    path: RelayPath,
    clock: Clock,
    meter: LatenessMeter,
    shared: Arc<Shared>,
    next_report: Instant,
    has_news: bool,
    wakened: UnixStream,
    stop: Arc<AtomicBool>,
    ready: Vec<Source>,
}

/// Object of a ready file descriptor.
#[derive(Clone, Copy, Debug)]
enum Source {
    Waker,
    Clients,
    Upstream(usize),
}

impl Engine {
    pub(super) fn new(
        config: &RelayConfig,
        udp: UdpSocket,
        tcp: Tcp,
        clock: Clock,
        wakened: UnixStream,
        shared: Arc<Shared>,
        stop: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        wakened.set_nonblocking(true)?;
        request_punctual_wakeups();
        Ok(Self {
            udp: Udp::new(config, udp)?,
            tcp,
            path: RelayPath::new(config),
            clock,
            meter: LatenessMeter::new(),
            shared,
            next_report: Instant::ZERO,
            has_news: false,
            wakened,
            stop,
            ready: Vec::new(),
        })
    }

    /// Relays until stopped.
    pub(super) fn run(mut self) {
        let clock = self.clock;
        while !self.stop.load(Ordering::Acquire) {
            let woke = clock.now();
            let mut has_moved = self.receive(clock);
            has_moved |= self.deliver(clock);
            let now = clock.now();
            self.has_news |= has_moved;
            if self.has_news && now >= self.next_report {
                self.report(now);
            }
            if has_moved {
                // More packets probably follow: receive them in a batch at the next tick.
                let rest = TICK.saturating_sub(now.since(woke).into());
                if !rest.is_zero() {
                    std::thread::sleep(rest);
                }
                self.wait(now, Wait::Not);
            } else {
                self.wait(now, Wait::UntilDue);
            }
        }
    }

    /// Polls the sockets, at most until the next packet is due.
    fn wait(&mut self, now: Instant, wait: Wait) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let (clients, upstreams) = self.udp.sockets();
        let mut sources = vec![Source::Waker, Source::Clients];
        let mut fds =
            vec![PollFd::new(&self.wakened, PollFlags::IN), PollFd::new(clients, PollFlags::IN)];
        for (slot, upstream) in upstreams.enumerate() {
            sources.push(Source::Upstream(slot));
            fds.push(PollFd::new(upstream, PollFlags::IN));
        }

        let timeout = match wait {
            Wait::Not => Some(Span::ZERO),
            Wait::UntilDue => {
                let report = self.has_news.then_some(self.next_report);
                let due = Instant::earliest([self.path.network.deadline(), report]);
                due.map(|due| due.since(now))
            }
        };
        // After an interrupted or failed call nothing is ready; the next round polls again.
        let found = poll(&mut fds, timeout.map(timespec).as_ref()).unwrap_or(0);
        if found > 0 {
            let with_events = fds.iter().map(PollFd::revents).zip(&sources);
            let with_events = with_events.filter(|(events, _)| !events.is_empty());
            ready.extend(with_events.map(|(_, source)| *source));
        }
        self.ready = ready;
    }

    /// Reads all ready sockets into the links; returns whether anything was read.
    fn receive(&mut self, clock: Clock) -> bool {
        let mut any = false;
        let ready = std::mem::take(&mut self.ready);
        let (udp, path) = (&mut self.udp, &mut self.path);
        for source in &ready {
            any |= match source {
                Source::Clients => udp.receive_forward(path, clock),
                Source::Upstream(slot) => udp.receive_back(*slot, path, clock),
                Source::Waker => {
                    let _ = self.wakened.read(&mut [0; 8]);
                    false
                }
            };
        }
        self.ready = ready;
        any
    }

    /// Delivers everything due; returns whether anything was due.
    fn deliver(&mut self, clock: Clock) -> bool {
        let now = clock.now();
        let mut any = false;
        while let Some(output) = self.path.network.poll(now).ready() {
            let Output::Arrived(packet) = output else { continue };
            any = true;
            let Arrival { way, at, is_damaged, payload, .. } = packet;
            let Packet { flow, piece } = payload;
            let due = Due { at, is_damaged };
            self.udp.deliver(way, flow, &piece, due, clock, &mut self.meter);
        }
        self.udp.flush(clock, &mut self.meter);
        any
    }

    fn report(&mut self, now: Instant) {
        self.next_report = now + REPORT_INTERVAL;
        self.has_news = false;
        let mut report = self.shared.lock();
        self.udp.report(&mut report);
        let stats = &mut report.stats;
        stats.tcp_connections = self.tcp.accepted();
        stats.forward = self.path.link(Way::Forward).stats();
        stats.back = self.path.link(Way::Back).stats();
        stats.elapsed = now.elapsed();
        stats.cpu_seconds = thread_cpu_seconds();
        stats.lateness = self.meter.summary();
    }
}

#[derive(Clone, Copy, Debug)]
enum Wait {
    Not,
    UntilDue,
}

/// Requests punctual wake-ups from the kernel. A refusal only reduces accuracy, which is measured.
fn request_punctual_wakeups() {
    #[cfg(target_os = "linux")]
    {
        use std::num::NonZeroU64;
        // By default the kernel may wake a thread 50 µs late.
        let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
        // On Linux this applies to the calling thread only; needs privileges.
        let _ = rustix::process::setpriority_process(None, -20);
    }
}
