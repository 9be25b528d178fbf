//! State shared by a channel endpoint and the application, with the types of their interface.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use sabul_cc::Policy;
use sabul_channel::ReportRule;
use sabul_units::{PacketNumber, Span};
use sabul_wire::control::ChannelParams;
use sabul_wire::{ConnectionId, LossPolicy};
use tokio::sync::{Notify, oneshot};

use super::buffers::Buffers;
use super::clock::Clock;
use super::driver::{Datagrams, Wake};
pub(crate) use super::error::ChannelError;
use super::flows::CommonFlow;
pub(crate) use super::handover::{Deliver, OnEnd};
use super::handover::{HandedOver, Reception};
use crate::ceiling::Ceiling;
use crate::events::TransferEventSink;
use crate::lock::lock;
use crate::paths::PathTo;
use crate::seal::{Opener, Sealer};

/// An open path, with the state left by its handshake.
#[derive(Debug)]
pub(crate) struct OpenPath {
    /// Socket connected to the peer, whose address has been validated.
    pub(crate) socket: Box<dyn Datagrams>,
    /// Channel id in every datagram.
    pub(crate) connection: ConnectionId,
    /// Encrypts packets of this end.
    pub(crate) sealer: Sealer,
    /// First packet number that `sealer` has not used.
    pub(crate) next_number: PacketNumber,
    /// Decrypts packets of the peer.
    pub(crate) opener: Opener,
    /// Largest packet number up to which all packets of the peer belong to the handshake, if any.
    pub(crate) largest_opened: Option<PacketNumber>,
    /// RTT measured by the handshake.
    pub(crate) rtt: Option<Span>,
    /// Datagrams of the peer after the handshake, which the handshake has received.
    pub(crate) early: Vec<Vec<u8>>,
}

/// Start parameters of a channel endpoint.
#[derive(Debug)]
pub(crate) struct ChannelStart {
    /// The path of the channel.
    pub(crate) open: OpenPath,
    /// Receiver of controller events and timer events.
    pub(crate) events: Option<TransferEventSink>,
    /// Common state with other channels of the same path, if any.
    pub(crate) flow: Option<CommonFlow>,
    /// Settings of the channel.
    pub(crate) params: ChannelParams,
    /// Policy towards competing traffic, for data sent by this end.
    pub(crate) policy: Policy,
    /// Rate limits shared with other transfers, or with other paths of the transfer, for data sent by this end.
    pub(crate) ceilings: Vec<Ceiling>,
    /// Path parameters of earlier transfers; also stores those of this transfer.
    pub(crate) path: Option<PathTo>,
    /// Time after which a peer counts as gone whose data or reports are due.
    pub(crate) silence: Span,
    /// Notified when this end finds that its address has changed.
    pub(crate) address_changed: Arc<Notify>,
}

impl ChannelStart {
    /// Returns the clock of the channel.
    pub(super) fn clock(&self) -> Clock {
        self.flow.as_ref().map_or_else(Clock::start, |flow| flow.clock)
    }
}

/// Statistics of a channel.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ChannelStats {
    /// Payload bytes acknowledged (sender) or delivered in order to the application (receiver).
    pub bytes: u64,
    /// DATA packets sent (sender) or received (receiver), retransmissions included.
    pub packets: u64,
    /// Retransmissions (sender) or duplicates (receiver) among `packets`.
    pub packets_retransmitted: u64,
    /// Packets reported lost on the path.
    pub packets_lost: u64,
    /// Packets dropped by the receiver's own socket.
    pub packets_overflowed: u64,
    /// Smallest RTT in milliseconds; zero before the first sample.
    pub rtt_ms_min: f64,
    /// Smoothed RTT in milliseconds; zero before the first sample.
    pub rtt_ms: f64,
    /// Rate allowed by the controller, in bit/s; `None` without pacing.
    pub rate_bps: Option<f64>,
    /// Inter-packet gap in nanoseconds; zero without pacing.
    pub gap_ns: f64,
    /// Size of a full IP packet in bytes.
    pub mtu: u32,
    /// Phase of the controller.
    pub phase: String,
    /// Limiting factors of the sender and the share of time of each, in 0..=1; only shares above 0.
    pub limiter: Vec<(&'static str, f64)>,
    /// Rejected datagrams: forged, replayed or malformed.
    pub packets_refused: u64,
    /// Time since the last UDP packet of the peer, while a packet was due.
    pub silence: Duration,
    /// Time since the last UDP packet of the receiver, while blocks wait for its acknowledgement.
    pub(crate) unanswered: Duration,
    /// Bytes that have arrived at the receiver, of a sender: as `bytes`, with incomplete blocks over TCP.
    pub(crate) received: u64,
    /// Time in which the path was the limit, of a sender.
    pub(crate) path_limited: Duration,
    /// Silence after which the channel ends; zero before the channel begins.
    pub silence_limit: Duration,
    /// Advice on the configuration of this machine, one sentence, if any.
    pub hint: Option<String>,
    /// Carrier of the blocks: `udp`, `tcp` or `ssh`; empty before the channel begins.
    pub carrier: &'static str,
    /// Reason for a carrier other than UDP, a clause; empty for UDP.
    pub carrier_reason: &'static str,
    /// Number of UDP channels that carry the blocks at the same time; zero for another carrier.
    pub paths: usize,
}

/// Returns the kind of number in reports, and the rule for their timing.
pub(super) fn reporting(params: &ChannelParams) -> Result<(LossPolicy, ReportRule), ChannelError> {
    sabul_channel::rules::of_code(params.rules).ok_or(ChannelError::Rules(params.rules))
}

/// State shared across the thread boundary.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) state: Mutex<State>,
    /// Signalled when a buffer becomes free or the channel ends.
    pub(super) changed: Condvar,
    /// Wakes the carrier.
    pub(super) waker: Mutex<Wake>,
    /// Queue of the blocks, if the carrier is a path of a transfer with several paths.
    queue: Option<Arc<Self>>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Blocks to send. Received blocks are not here: see [`Deliver`].
    pub(super) outgoing: VecDeque<Vec<u8>>,
    /// Number of the first of `outgoing`.
    pub(super) taken: u32,
    /// Number after the last block that an earlier carrier took.
    pub(super) taken_before: u32,
    /// Bytes that an earlier carrier has delivered.
    pub(super) bytes_before: u64,
    /// First block that UDP carries: a receiver has closed the TCP connections, and a sender does so.
    pub(super) resume_at: Option<u32>,
    /// A receiving end over TCP hands over without waiting for the blocks of the sender.
    pub(super) abandons: bool,
    /// Where the endpoint puts its state when another carrier takes over.
    pub(super) hand_over: Option<oneshot::Sender<HandedOver>>,
    /// State of a receiving endpoint of a path that has failed.
    pub(super) left: Option<Reception>,
    /// Reports that arrived over the control connection.
    pub(super) reports: VecDeque<Vec<u8>>,
    /// Used buffers that return to a receiving endpoint.
    pub(super) free: Vec<Vec<u8>>,
    /// Buffers of a sending endpoint.
    pub(super) buffers: Option<Buffers>,
    /// The application waits for a buffer.
    pub(super) is_awaited: bool,
    /// No more blocks follow.
    pub(super) is_finished: bool,
    /// The application stopped the channel, or the thread has ended.
    pub(super) is_stopped: bool,
    pub(super) peer_silence: PeerSilence,
    /// New settings of the sender, if changed.
    pub(super) steer: Option<RateSettings>,
    /// Settings of the sender, if they were changed.
    pub(super) settings: Option<RateSettings>,
    /// First block without room at the receiver, as known to an earlier carrier.
    pub(super) limit_before: u32,
    /// Number of the next block of a transfer with several paths.
    pub(super) next_number: u32,
    /// A path has nothing to send and takes copies of blocks that other paths have not sent yet.
    pub(super) is_path_idle: bool,
    /// Time from taking a block to its acknowledgement, smoothed, by path.
    pub(super) block_times: BTreeMap<ConnectionId, Span>,
    /// Received blocks of this path that wait for a block of another path.
    pub(super) waiting: usize,
    pub(super) stats: ChannelStats,
}

/// Silence of the sender, as measured by a receiving endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerSilence {
    silence_ms: Arc<AtomicU64>,
    /// The same on each path of a transfer with several paths.
    paths: Arc<Mutex<Vec<Self>>>,
}

impl PeerSilence {
    /// Returns the silence, accurate to 0.2 s; of several paths the shortest.
    pub(crate) fn silence(&self) -> Duration {
        let paths = lock(&self.paths);
        let least = paths.iter().map(Self::silence).min();
        least.unwrap_or_else(|| Duration::from_millis(self.silence_ms.load(Ordering::Relaxed)))
    }

    pub(crate) fn set_silence(&self, silence: Duration) {
        let millis = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
        self.silence_ms.store(millis, Ordering::Relaxed);
    }

    /// Replaces the paths.
    pub(super) fn set_paths(&self, paths: Vec<Self>) {
        *lock(&self.paths) = paths;
    }
}

/// Rate settings of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateSettings {
    /// Policy towards competing traffic.
    pub(crate) policy: Policy,
    /// Upper limit of the rate, in bit/s.
    pub(crate) rate_limit_bps: Option<u64>,
}

impl Shared {
    pub(super) fn new(state: State, waker: Wake) -> Arc<Self> {
        let (state, waker) = (Mutex::new(state), Mutex::new(waker));
        Arc::new(Self { state, changed: Condvar::new(), waker, queue: None })
    }

    /// State of one of several paths that take the blocks of `queue`.
    pub(super) fn of_path(queue: &Arc<Self>, waker: Wake) -> Arc<Self> {
        let (state, waker) = (Mutex::default(), Mutex::new(waker));
        Arc::new(Self { state, changed: Condvar::new(), waker, queue: Some(Arc::clone(queue)) })
    }

    /// Queue of the blocks: that of the transfer, or the channel's own.
    pub(super) fn queue(self: &Arc<Self>) -> Arc<Self> {
        Arc::clone(self.queue.as_ref().unwrap_or(self))
    }

    /// Whether the carrier is one of several paths.
    pub(super) const fn is_path(&self) -> bool {
        self.queue.is_some()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic elsewhere the queues are still valid.
        lock(&self.state)
    }

    pub(super) fn wake(&self) {
        lock(&self.waker).wake();
    }

    /// Sets the waker of the next carrier.
    pub(super) fn set_waker(&self, waker: Wake) {
        *lock(&self.waker) = waker;
    }

    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        // Nobody takes over any more.
        state.hand_over = None;
        drop(state);
        self.changed.notify_all();
        self.wake();
    }
}

/// Called with each report when the control connection carries the reports.
pub(crate) type Report = Box<dyn FnMut(Vec<u8>) + Send>;
