//! Router of a lab: one thread that forwards packets between hosts over the links of a path, in
//! real time.
//!
//! Model: a host's packets appear on its device, are split into the segments that a network card
//!     would send, and enter the first link of their path. Links and routes are those of the
//!     simulator (`sabul-net`). At the end of a route, packets are written to the other host's
//!     device. Neighbouring segments that leave together are written at once, as a network card
//!     with receive offload would deliver them.
//! Time: the arrival time is the time when the router reads a packet, which under load is up to one
//!     [`TICK`] late. Departures happen at or after their due time, never before; their lateness is
//!     measured.
//! Limits: a pair of hosts is a point-to-point path: every packet of one host reaches the other,
//!     whatever its destination address.

mod accounts;
mod engine;
#[cfg(test)]
#[cfg(feature = "namespaces")]
mod tests;

use std::fmt;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use sabul_net::{LinkPlan, LinkSnapshot, Way};
use sabul_units::{Instant, Span};

use crate::clock::Clock;
use crate::error::LabError;
use crate::events::EventSender;
use crate::lateness::Lateness;
use engine::Engine;
use sabul_tun::Device;
use sabul_tun::Tuple;

/// Sleep of a busy router between two rounds. A shorter sleep keeps the schedule better and uses
/// more processor time.
const TICK: Duration = Duration::from_micros(30);
/// Timeout for an answer of the router, which normally answers within a round; a router that does
/// not answer has died.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Two hosts and the path between them.
#[derive(Clone, Debug)]
pub(crate) struct PairPlan {
    /// Device of the sending host.
    pub(crate) near: Arc<Device>,
    /// Device of the receiving host.
    pub(crate) far: Arc<Device>,
    /// Links in order, as positions; the back direction uses the reverse order.
    pub(crate) path: Vec<usize>,
    /// One-way delay added behind the last link, in both directions.
    pub(crate) access_delay: Span,
}

/// Links and hosts of a router.
#[derive(Debug)]
pub(crate) struct RouterPlan {
    /// The links.
    pub(crate) links: Vec<LinkPlan>,
    /// The pairs of hosts.
    pub(crate) pairs: Vec<PairPlan>,
    /// Seed of all random streams.
    pub(crate) seed: u64,
}

/// Traffic counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Packets that left the sending host, after segmentation.
    pub sent_packets: u64,
    /// Bytes of the packets sent, IP headers included.
    pub sent_bytes: u64,
    /// Payload bytes above TCP or UDP of the packets sent.
    pub sent_payload_bytes: u64,
    /// Packets sent with payload.
    pub data_packets: u64,
    /// Packets whose payload begins with bytes that were sent before (TCP only).
    pub resent_packets: u64,
    /// Packets delivered to the receiving host, duplicates included.
    pub arrived_packets: u64,
    /// Bytes of the packets delivered, IP headers included.
    pub arrived_bytes: u64,
    /// Payload bytes above TCP or UDP of the packets delivered.
    pub arrived_payload_bytes: u64,
    /// Packets delivered with payload.
    pub arrived_data_packets: u64,
    /// New payload bytes: TCP counts each byte of its stream once, all other protocols count every
    /// payload byte.
    pub fresh_bytes: u64,
}

/// One direction of a conversation, as counted by the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TupleSnapshot {
    /// Position of the pair of hosts.
    pub pair: usize,
    /// Direction.
    pub way: Way,
    /// Addresses, ports and protocol. Protocol 255 stands for all conversations after the first 20
    /// 000.
    pub tuple: Tuple,
    /// Traffic counters.
    pub amount: Amount,
    /// Time when the first packet left the sending host.
    pub first: Instant,
    /// Time when the last packet left the sending host.
    pub last: Instant,
}

/// Snapshot of the router.
#[derive(Clone, Debug, Default)]
pub struct RouterSnapshot {
    /// Time of the snapshot.
    pub at: Instant,
    /// Both directions of each link, in the order of the plan.
    pub links: Vec<[LinkSnapshot; 2]>,
    /// Both directions of each pair of hosts.
    pub pairs: Vec<[Amount; 2]>,
    /// Lateness of departures relative to the path's schedule.
    pub lateness: Lateness,
    /// Frames of a host that were not IP packets.
    pub malformed: u64,
    /// Frames that the receiving host's device refused.
    pub refused: u64,
    /// Longest time between two rounds while packets were in flight.
    pub longest_pause: Span,
    /// Processor time of the router's thread since the restart, in seconds.
    pub cpu_seconds: f64,
    /// Packets that a capture left out because the disk was too slow.
    pub unrecorded: u64,
}

/// Request to the router's thread.
#[derive(Debug)]
enum Question {
    Restart { links: Vec<LinkPlan>, seed: u64, capture: Option<PathBuf>, answer: Sender<Started> },
    ReportDrops(EventSender),
    Snapshot(Sender<RouterSnapshot>),
    Tuples(Sender<Vec<TupleSnapshot>>),
    RestartQueueMax,
    Stop(Sender<Option<LabError>>),
}

type Started = Result<Clock, LabError>;

/// A running router; dropping the router ends its thread.
pub(crate) struct Router {
    questions: Sender<Question>,
    waker: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}

impl Router {
    /// Starts the router's thread; its clock starts now.
    pub(crate) fn start(plan: RouterPlan) -> Result<Self, LabError> {
        let fail = |what: &str| LabError::system(format!("{what} of the router"));
        let (waker, wakened) = UnixStream::pair().map_err(fail("make the waker"))?;
        wakened.set_nonblocking(true).map_err(fail("prepare the waker"))?;
        waker.set_nonblocking(true).map_err(fail("prepare the waker"))?;
        let (questions, incoming) = unbounded();
        let (ready, started) = bounded(1);
        let thread = std::thread::Builder::new()
            .name("lab-router".to_owned())
            .spawn(move || run(&plan, wakened, &incoming, &ready))
            .map_err(fail("start the thread"))?;
        started.recv_timeout(TIMEOUT).unwrap_or_else(|_| Err(gone()))?;
        Ok(Self { questions, waker, thread: Some(thread) })
    }

    /// Restarts with new links (as many as before), counters and clock; packets in flight are
    /// discarded. With a directory, everything that enters a link from now on is captured there.
    /// Returns the new clock.
    pub(crate) fn restart(
        &self,
        links: Vec<LinkPlan>,
        seed: u64,
        capture: Option<PathBuf>,
    ) -> Result<Clock, LabError> {
        self.query(|answer| Question::Restart { links, seed, capture, answer }).ok_or_else(gone)?
    }

    /// Sends drop events of the links to `teller`, from the next restart on.
    pub(crate) fn report_drops(&self, event_sender: EventSender) {
        self.send(Question::ReportDrops(event_sender));
    }

    /// Returns a snapshot.
    pub(crate) fn snapshot(&self) -> RouterSnapshot {
        self.query(Question::Snapshot).unwrap_or_default()
    }

    /// Returns all conversations, in the order of their first packets.
    pub(crate) fn tuples(&self) -> Vec<TupleSnapshot> {
        self.query(Question::Tuples).unwrap_or_default()
    }

    /// Restarts the measurement of the links' longest queues.
    pub(crate) fn restart_queue_max(&self) {
        self.send(Question::RestartQueueMax);
    }

    /// Ends the router. Returns an error if a capture is incomplete.
    pub(crate) fn stop(mut self) -> Result<(), LabError> {
        let fault = self.query(Question::Stop).unwrap_or_else(|| Some(gone()));
        self.join();
        fault.map_or(Ok(()), Err)
    }

    fn query<T>(&self, question: impl FnOnce(Sender<T>) -> Question) -> Option<T> {
        let (answer, wanted): (_, Receiver<T>) = bounded(1);
        self.send(question(answer));
        wanted.recv_timeout(TIMEOUT).ok()
    }

    fn send(&self, question: Question) {
        // A router that has died sends no answer, so the caller's receive fails.
        let _ = self.questions.send(question);
        // A full pipe means that wake-ups are already pending.
        let _ = (&self.waker).write(&[0]);
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by its hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let (answer, _) = bounded(1);
            self.send(Question::Stop(answer));
            self.join();
        }
    }
}

fn gone() -> LabError {
    let source = std::io::Error::other("its thread has ended");
    LabError::System { action: "reach the router".to_owned(), source }
}

/// Main function of the router's thread.
fn run(
    plan: &RouterPlan,
    wakened: UnixStream,
    incoming: &Receiver<Question>,
    ready: &Sender<Started>,
) {
    set_timer_slack();
    match Engine::new(plan, wakened) {
        Ok(mut engine) => {
            // The caller waits for this, or is gone together with the other end of `incoming`.
            let _ = ready.send(Ok(engine.clock()));
            engine.run(incoming);
        }
        Err(source) => {
            let action = "wait for packets".to_owned();
            let _ = ready.send(Err(LabError::System { action, source }));
        }
    }
}

/// Requests punctual scheduling from the kernel. A refusal only reduces accuracy, which is
/// measured.
fn set_timer_slack() {
    use thread_priority::{
        RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
        set_thread_priority_and_policy, thread_native_id,
    };
    // By default the kernel may wake a thread 50 µs late.
    let _ = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN));
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let lowest = ThreadPriority::from_posix(thread_priority::ScheduleParams { sched_priority: 1 });
    if set_thread_priority_and_policy(thread_native_id(), lowest, policy).is_err() {
        // On Linux this applies to the calling thread only.
        let _ = rustix::process::setpriority_process(None, -20);
    }
}
