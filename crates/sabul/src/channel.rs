//! A channel's end: one thread that moves blocks between memory and a connected UDP socket.
//!
//! The protocol is `sabul-proto`'s; this module gives it a clock, a socket and keys. Whole blocks
//! cross the thread boundary, nothing per packet does. The application side of a sending end is
//! [`SenderHandle`], of a receiving end [`ReceiverHandle`].

mod blocks;
mod buffers;
pub(crate) mod engine;
mod link;
mod mtu;
mod receiver;
mod room;
mod sender;
mod silence;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabul_proto::ReportRule;
use sabul_units::{PacketNumber, Span};
use sabul_wire::ConnectionId;
use sabul_wire::LossPolicy;
use sabul_wire::control::ChannelParams;

use self::engine::{Datagrams, Job, Wake};
use crate::budget::BlockLoan;
use crate::events::Teller;
use crate::seal::{Opener, Sealer};
use buffers::Buffers;

/// Most reports that wait for the thread of a sending end.
const REPORTS_MAX: usize = 1024;

/// What both ends of a channel start from.
#[derive(Debug)]
pub(crate) struct ChannelStart {
    /// Connected to the peer; the peer has proven that it receives there.
    pub(crate) socket: Box<dyn Datagrams>,
    /// Names the channel in every datagram.
    pub(crate) connection: ConnectionId,
    /// Seals what this end sends.
    pub(crate) sealer: Sealer,
    /// First packet number that `sealer` has not used.
    pub(crate) next_number: PacketNumber,
    /// Opens what the peer sends.
    pub(crate) opener: Opener,
    /// Largest packet number that `opener` has opened, where there is one.
    pub(crate) largest_opened: Option<PacketNumber>,
    /// Round trip seen while the path was opened.
    pub(crate) rtt: Option<Span>,
    /// Who hears what its controller does and which timers fire.
    pub(crate) events: Option<Teller>,
    /// How the channel behaves.
    pub(crate) params: ChannelParams,
    /// Silence after which a peer that owes something counts as gone.
    pub(crate) silence: Span,
}

/// What a channel has done so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelStats {
    /// Payload bytes acknowledged (sender) or delivered in order to the application (receiver).
    pub bytes: u64,
    /// DATA packets sent (sender) or received (receiver), retransmissions included.
    pub packets: u64,
    /// Retransmissions (sender) or duplicates (receiver) among them.
    pub packets_repeated: u64,
    /// Packets reported lost on the path.
    pub packets_lost: u64,
    /// Packets that the receiver's own socket dropped.
    pub packets_overflowed: u64,
    /// Smallest round trip in milliseconds; zero before the first sample.
    pub rtt_ms_min: f64,
    /// Averaged round trip in milliseconds; zero before the first sample.
    pub rtt_ms: f64,
    /// Rate that the controller allows, in bit/s; none without pacing.
    pub rate_bps: Option<f64>,
    /// Inter-packet gap in nanoseconds; zero without pacing.
    pub gap_ns: f64,
    /// Size of a full packet in bytes, IP header included.
    pub mtu: u32,
    /// What the controller is doing.
    pub phase: String,
    /// Shares of the time in which each of these held the sender back, in 0..=1.
    pub limiter: Vec<(&'static str, f64)>,
    /// Datagrams refused: forged, replayed or malformed.
    pub packets_refused: u64,
    /// One sentence about what this machine should change, where there is something.
    pub hint: Option<String>,
}

/// Why a channel ended before its work was done.
#[derive(Debug)]
pub(crate) enum ChannelError {
    /// Nothing was heard from the peer for this long.
    Silent(Duration),
    /// The socket failed.
    Io(std::io::Error),
    /// The application stopped it.
    Stopped,
    /// The controller's name or parameters are not usable.
    Config(sabul_cc::ConfigError),
    /// The controller did what none may do.
    Controller(sabul_cc::Fault),
    /// The peer sent what no correct peer sends.
    Peer(&'static str),
    /// The thread of the channel met a fault of this program; standard error has the details.
    Broken,
    /// The transfer has more blocks than a channel has numbers for.
    TooManyBlocks,
    /// The keys of the channel are used up or unusable.
    Seal(crate::seal::SealError),
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(time) => write!(
                f,
                "nothing was heard from the peer over UDP for {:.0} s; check that it still runs \
                 and that the path between passes UDP",
                time.as_secs_f64()
            ),
            Self::Io(error) => write!(f, "the UDP socket failed: {error}"),
            Self::Stopped => f.write_str("the transfer was stopped"),
            Self::Config(error) => error.fmt(f),
            Self::Controller(fault) => fault.fmt(f),
            Self::Peer(what) => write!(f, "the peer broke the protocol: {what}"),
            Self::Broken => {
                f.write_str("a fault of this program ended the channel; please report it")
            }
            Self::TooManyBlocks => f.write_str(
                "the transfer has more than 4294967294 blocks; send it with larger blocks, or in parts",
            ),
            Self::Seal(error) => write!(f, "a packet could not be sealed: {error}"),
        }
    }
}

impl std::error::Error for ChannelError {}

/// Which numbers reports name, and when they leave.
fn reporting(params: &ChannelParams) -> Result<(LossPolicy, ReportRule), ChannelError> {
    let unknown = ChannelError::Peer("it asks for channel rules that are not known here");
    let (policy, rules) = crate::config::rules(params).ok_or(unknown)?;
    Ok(ReportRule::of_rules(rules, policy))
}

/// What both sides of the thread boundary share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Signalled when a buffer becomes free or the channel ends.
    changed: Condvar,
    waker: Wake,
}

#[derive(Debug, Default)]
struct State {
    /// Blocks for the peer, or blocks on their way to the application are not here: see `deliver`.
    outgoing: VecDeque<Vec<u8>>,
    /// Reports that came over the control connection.
    reports: VecDeque<Vec<u8>>,
    /// Used buffers of a receiving end, on their way back.
    free: Vec<Vec<u8>>,
    /// The buffers of a sending end.
    buffers: Option<Buffers>,
    /// The application waits for one of them.
    is_awaited: bool,
    /// No more blocks will come.
    is_finished: bool,
    /// The application wants out, or the thread has ended.
    is_stopped: bool,
    stats: ChannelStats,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves plain queues behind, which stay usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
        self.waker.wake();
    }
}

/// The channel has ended; nothing more can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

/// The application's side of a sending end. Clones share the channel.
#[derive(Clone, Debug)]
pub(crate) struct SenderHandle {
    shared: Arc<Shared>,
    block_bytes: usize,
}

/// Called once, when the application has stopped the channel or it has failed.
pub(crate) type OnEnd = Box<dyn FnOnce(Result<(), ChannelError>) + Send>;
/// Called with each complete block, in order.
pub(crate) type Deliver = Box<dyn FnMut(Vec<u8>) + Send>;
/// Called with each report where reports travel on the control connection.
pub(crate) type Report = Box<dyn FnMut(Vec<u8>) + Send>;

impl SenderHandle {
    /// A sending end, and the work of its driver.
    pub(crate) fn new(
        start: ChannelStart,
        memory: BlockLoan,
        on_end: OnEnd,
    ) -> Result<(Self, Job), ChannelError> {
        let buffers = Some(Buffers::new(memory));
        let shared = Arc::new(Shared {
            state: Mutex::new(State { buffers, ..State::default() }),
            changed: Condvar::new(),
            waker: start.socket.waker(),
        });
        let block_bytes = start.params.block_bytes as usize;
        let engine = Box::new(sender::Turn::new(start, Arc::clone(&shared))?);
        let job = Job { name: "sabul-send", engine, shared: Arc::clone(&shared), on_end };
        Ok((Self { shared, block_bytes }, job))
    }

    /// An empty buffer with room for one block; waits until one is free.
    pub(crate) fn buffer(&self) -> Result<Vec<u8>, Ended> {
        let mut state = self.shared.lock();
        loop {
            if state.is_stopped {
                return Err(Ended);
            }
            if let Some(buffer) = state.buffers.as_mut().and_then(Buffers::take) {
                state.is_awaited = false;
                return Ok(buffer);
            }
            state.is_awaited = true;
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`SenderHandle::buffer`], without waiting.
    #[cfg(test)]
    pub(crate) fn try_buffer(&self) -> Result<Option<Vec<u8>>, Ended> {
        let mut state = self.shared.lock();
        if state.is_stopped {
            return Err(Ended);
        }
        let buffer = state.buffers.as_mut().and_then(Buffers::take);
        state.is_awaited = buffer.is_none();
        Ok(buffer)
    }

    /// Hands over the next block. One that is not full takes the room of a full one at the receiver.
    pub(crate) fn block(&self, block: Vec<u8>) -> Result<(), Ended> {
        debug_assert!(!block.is_empty() && block.len() <= self.block_bytes);
        let mut state = self.shared.lock();
        if state.is_stopped {
            return Err(Ended);
        }
        state.outgoing.push_back(block);
        if let Some(buffers) = &mut state.buffers {
            buffers.read();
        }
        drop(state);
        self.shared.waker.wake();
        Ok(())
    }

    /// No more blocks will come. The channel lives on, and lets the peer know, until it is stopped:
    /// the peer may need long to work off what it has.
    pub(crate) fn finish(&self) {
        self.shared.lock().is_finished = true;
        self.shared.waker.wake();
    }

    /// Takes a report that came over the control connection.
    pub(crate) fn report(&self, report: Vec<u8>) {
        let mut state = self.shared.lock();
        // The thread takes all in each turn; a flood that outruns it loses some, as a path may.
        if state.reports.len() < REPORTS_MAX {
            state.reports.push_back(report);
        }
        drop(state);
        self.shared.waker.wake();
    }

    /// Ends the channel at once.
    pub(crate) fn stop(&self) {
        self.shared.stop();
    }

    /// What it has done so far.
    pub(crate) fn stats(&self) -> ChannelStats {
        self.shared.lock().stats.clone()
    }
}

/// The application's side of a receiving end. Clones share the channel.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverHandle {
    shared: Arc<Shared>,
}

impl ReceiverHandle {
    /// A receiving end, and the work of its driver. It runs until [`ReceiverHandle::stop`] or
    /// failure; `on_end` is called once either way.
    pub(crate) fn new(
        start: ChannelStart,
        memory: BlockLoan,
        deliver: Deliver,
        report: Report,
        on_end: OnEnd,
    ) -> Result<(Self, Job), ChannelError> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            waker: start.socket.waker(),
        });
        let engine =
            Box::new(receiver::Turn::new(start, memory, Arc::clone(&shared), deliver, report)?);
        let job = Job { name: "sabul-recv", engine, shared: Arc::clone(&shared), on_end };
        Ok((Self { shared }, job))
    }

    /// Gives a delivered block's buffer back; only then may the peer send another block.
    pub(crate) fn recycle(&self, buffer: Vec<u8>) {
        self.shared.lock().free.push(buffer);
        self.shared.waker.wake();
    }

    /// Everything wanted has arrived: sends a last ACK and ends the channel.
    pub(crate) fn stop(&self) {
        self.shared.stop();
    }

    /// What it has done so far.
    pub(crate) fn stats(&self) -> ChannelStats {
        self.shared.lock().stats.clone()
    }
}

#[cfg(test)]
#[path = "channel/tests.rs"]
mod tests;
