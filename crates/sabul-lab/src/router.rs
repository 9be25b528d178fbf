//! The router: one thread that carries packets between hosts over the links of a path, in real time.
//!
//! Model: what a host sends appears on its device, is cut into the segments that a network card would
//! send, and enters the first link of its path. Links and routes are the very ones of the simulator
//! (`sabul-path`); what has come to the end of its route is written to the other host's device.
//! Neighbouring segments that come out together go in one write, as a network card would
//! hand them up.
//! Time:   arrivals count from when the router reads them, which under load is up to one [`TICK`] late;
//!     departures happen at or after their due time, never before, and by how much is measured.
//! Limits: a pair of hosts is a point-to-point path: whatever one sends reaches the other, wherever it
//!     is addressed to.

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
use sabul_path::{LinkLook, LinkPlan, Way};
use sabul_units::{Instant, Span};

use crate::clock::Clock;
use crate::error::LabError;
use crate::events::Teller;
use crate::lateness::Lateness;
use engine::Engine;
use sabul_tun::Device;
use sabul_tun::Tuple;

/// How long a busy router sleeps between two rounds. Shorter keeps the schedule better and leaves less
/// of the machine to what it measures.
const TICK: Duration = Duration::from_micros(30);
/// The router answers within a round; one that does not has died.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two hosts and the path between them.
#[derive(Clone, Debug)]
pub(crate) struct PairPlan {
    /// Where data comes from.
    pub(crate) near: Arc<Device>,
    /// Where it goes.
    pub(crate) far: Arc<Device>,
    /// Links in order, as positions; the way back mirrors them.
    pub(crate) path: Vec<usize>,
    /// One-way delay added behind the last link, in both directions.
    pub(crate) access_delay: Span,
}

/// What a router carries.
#[derive(Debug)]
pub(crate) struct RouterPlan {
    /// The links.
    pub(crate) links: Vec<LinkPlan>,
    /// The hosts.
    pub(crate) pairs: Vec<PairPlan>,
    /// Where all chance comes from.
    pub(crate) seed: u64,
}

/// How much went one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Packets that left the sending host, after segmentation.
    pub sent_packets: u64,
    /// Their bytes, IP headers included.
    pub sent_bytes: u64,
    /// Their bytes above TCP or UDP.
    pub sent_payload_bytes: u64,
    /// Those that carried payload.
    pub data_packets: u64,
    /// Those whose payload begins with bytes that were sent before (TCP only).
    pub resent_packets: u64,
    /// Packets handed to the receiving host, second copies included.
    pub arrived_packets: u64,
    /// Their bytes, IP headers included.
    pub arrived_bytes: u64,
    /// Their bytes above TCP or UDP.
    pub arrived_payload_bytes: u64,
    /// Those that carried payload.
    pub arrived_data_packets: u64,
    /// Payload bytes that had not arrived before: TCP counts each byte of its stream once, everything
    /// else counts as it comes.
    pub fresh_bytes: u64,
}

/// One direction of a conversation, as the router saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TupleLook {
    /// Position of the two hosts.
    pub pair: usize,
    /// Which way it goes.
    pub way: Way,
    /// Whose it is; protocol 255 is what began after the twenty thousandth conversation.
    pub tuple: Tuple,
    /// How much it was.
    pub amount: Amount,
    /// When its first packet left the sending host.
    pub first: Instant,
    /// When its last packet did.
    pub last: Instant,
}

/// Everything the router knows.
#[derive(Clone, Debug, Default)]
pub struct RouterLook {
    /// When this was true.
    pub at: Instant,
    /// Both directions of each link, in the order of the plan.
    pub links: Vec<[LinkLook; 2]>,
    /// Both directions of each pair of hosts.
    pub pairs: Vec<[Amount; 2]>,
    /// How late packets left, compared with the path's schedule.
    pub lateness: Lateness,
    /// Frames of a host that were no IP packets.
    pub malformed: u64,
    /// Frames that the receiving host's device refused.
    pub refused: u64,
    /// Longest time between two rounds while packets were on the way.
    pub longest_pause: Span,
    /// Processor time of the router's thread since the restart, in seconds.
    pub cpu_seconds: f64,
    /// Packets that a recording left out because the disk could not follow.
    pub unrecorded: u64,
}

/// What the router is asked.
#[derive(Debug)]
enum Question {
    Restart { links: Vec<LinkPlan>, seed: u64, capture: Option<PathBuf>, answer: Sender<Started> },
    TellDrops(Teller),
    Look(Sender<RouterLook>),
    Tuples(Sender<Vec<TupleLook>>),
    RestartQueueMax,
    Stop(Sender<Option<LabError>>),
}

type Started = Result<Clock, LabError>;

/// A running router; dropping it ends its thread.
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
    /// Starts to route; its time begins now.
    pub(crate) fn start(plan: RouterPlan) -> Result<Self, LabError> {
        let fail = |what: &str| LabError::system(format!("{what} of the router"));
        let (waker, wakened) = UnixStream::pair().map_err(fail("make the waker"))?;
        wakened.set_nonblocking(true).map_err(fail("prepare the waker"))?;
        waker.set_nonblocking(true).map_err(fail("prepare the waker"))?;
        let (questions, asked) = unbounded();
        let (ready, started) = bounded(1);
        let thread = std::thread::Builder::new()
            .name("lab-router".to_owned())
            .spawn(move || run(&plan, wakened, &asked, &ready))
            .map_err(fail("start the thread"))?;
        started.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(gone()))?;
        Ok(Self { questions, waker, thread: Some(thread) })
    }

    /// Begins anew with fresh links (as many as before), counts and clock: all that is on the way is
    /// gone. With a directory, everything that enters a link from now on is recorded there. Returns the
    /// new clock.
    pub(crate) fn restart(
        &self,
        links: Vec<LinkPlan>,
        seed: u64,
        capture: Option<PathBuf>,
    ) -> Result<Clock, LabError> {
        self.ask(|answer| Question::Restart { links, seed, capture, answer }).ok_or_else(gone)?
    }

    /// Tells from the next restart on what links drop.
    pub(crate) fn tell_drops(&self, teller: Teller) {
        self.tell(Question::TellDrops(teller));
    }

    /// How everything stands now.
    pub(crate) fn look(&self) -> RouterLook {
        self.ask(Question::Look).unwrap_or_default()
    }

    /// All conversations, in the order in which they began.
    pub(crate) fn tuples(&self) -> Vec<TupleLook> {
        self.ask(Question::Tuples).unwrap_or_default()
    }

    /// Lets the links' longest queues be measured anew.
    pub(crate) fn restart_queue_max(&self) {
        self.tell(Question::RestartQueueMax);
    }

    /// Ends it, and says whether a recording is whole.
    pub(crate) fn stop(mut self) -> Result<(), LabError> {
        let fault = self.ask(Question::Stop).unwrap_or_else(|| Some(gone()));
        self.join();
        fault.map_or(Ok(()), Err)
    }

    fn ask<T>(&self, question: impl FnOnce(Sender<T>) -> Question) -> Option<T> {
        let (answer, wanted): (_, Receiver<T>) = bounded(1);
        self.tell(question(answer));
        wanted.recv_timeout(PATIENCE).ok()
    }

    fn tell(&self, question: Question) {
        // A router that has died answers nothing, which the one who asks finds out.
        let _ = self.questions.send(question);
        // A full pipe means that it has wake-ups to read already.
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
            self.tell(Question::Stop(answer));
            self.join();
        }
    }
}

fn gone() -> LabError {
    let source = std::io::Error::other("its thread has ended");
    LabError::System { action: "reach the router".to_owned(), source }
}

/// The router's thread.
fn run(
    plan: &RouterPlan,
    wakened: UnixStream,
    asked: &Receiver<Question>,
    ready: &Sender<Started>,
) {
    ask_for_punctuality();
    match Engine::new(plan, wakened) {
        Ok(mut engine) => {
            // Whoever started us waits just now, or is gone together with the other end of `asked`.
            let _ = ready.send(Ok(engine.clock()));
            engine.run(asked);
        }
        Err(source) => {
            let action = "wait for packets".to_owned();
            let _ = ready.send(Err(LabError::System { action, source }));
        }
    }
}

/// Asks the kernel to run this thread on time; whatever it refuses costs accuracy, which is measured.
fn ask_for_punctuality() {
    use thread_priority::{
        RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
        set_thread_priority_and_policy, thread_native_id,
    };
    // By default the kernel may be 50 µs late.
    let _ = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN));
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let lowest = ThreadPriority::from_posix(thread_priority::ScheduleParams { sched_priority: 1 });
    if set_thread_priority_and_policy(thread_native_id(), lowest, policy).is_err() {
        // On Linux this concerns the calling thread only.
        let _ = rustix::process::setpriority_process(None, -20);
    }
}
