//! What an end of a channel and the application share, and how both speak of it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabul_cc::Policy;
use sabul_proto::ReportRule;
use sabul_units::{PacketNumber, Span};
use sabul_wire::control::ChannelParams;
use sabul_wire::{ConnectionId, LossPolicy};

use super::buffers::Buffers;
use super::engine::{Datagrams, Wake};
use crate::ceiling::Ceiling;
use crate::events::Teller;
use crate::paths::PathTo;
use crate::seal::{Opener, Sealer};

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
    /// How what it sends stands beside other traffic.
    pub(crate) policy: Policy,
    /// What it sends is part of this.
    pub(crate) ceiling: Option<Ceiling>,
    /// What earlier transfers saw of the path, and where this one writes what it sees.
    pub(crate) path: Option<PathTo>,
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
    /// Shares of the time in which each of these held the sender back, in 0..=1; only those above 0.
    pub limiter: Vec<(&'static str, f64)>,
    /// Datagrams refused: forged, replayed or malformed.
    pub packets_refused: u64,
    /// How long the peer has sent nothing over UDP, while something was due from it.
    pub silence: Duration,
    /// Silence after which the channel ends; zero before it begins.
    pub silence_limit: Duration,
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
pub(super) fn reporting(params: &ChannelParams) -> Result<(LossPolicy, ReportRule), ChannelError> {
    let unknown = ChannelError::Peer("it asks for channel rules that are not known here");
    let (policy, rules) = crate::rules::rules(params).ok_or(unknown)?;
    Ok(ReportRule::of_rules(rules, policy))
}

/// What both sides of the thread boundary share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) state: Mutex<State>,
    /// Signalled when a buffer becomes free or the channel ends.
    pub(super) changed: Condvar,
    pub(super) waker: Wake,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Blocks for the peer, or blocks on their way to the application are not here: see `deliver`.
    pub(super) outgoing: VecDeque<Vec<u8>>,
    /// Reports that came over the control connection.
    pub(super) reports: VecDeque<Vec<u8>>,
    /// Used buffers of a receiving end, on their way back.
    pub(super) free: Vec<Vec<u8>>,
    /// The buffers of a sending end.
    pub(super) buffers: Option<Buffers>,
    /// The application waits for one of them.
    pub(super) is_awaited: bool,
    /// No more blocks will come.
    pub(super) is_finished: bool,
    /// The application wants out, or the thread has ended.
    pub(super) is_stopped: bool,
    pub(super) heard: Heard,
    /// How the sender goes on, where that has changed.
    pub(super) steer: Option<Course>,
    pub(super) stats: ChannelStats,
}

/// How long a receiving end has heard nothing of its sender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    silence_ms: Arc<AtomicU64>,
}

impl Heard {
    /// To a fifth of a second.
    pub(crate) fn silence(&self) -> Duration {
        Duration::from_millis(self.silence_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn set_silence(&self, silence: Duration) {
        let millis = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
        self.silence_ms.store(millis, Ordering::Relaxed);
    }
}

/// How a sender goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    /// How it stands beside other traffic.
    pub(crate) policy: Policy,
    /// Its highest rate in bit/s.
    pub(crate) rate_limit_bps: Option<u64>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves plain queues behind, which stay usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
        self.waker.wake();
    }
}

/// Called once, when the application has stopped the channel or it has failed.
pub(crate) type OnEnd = Box<dyn FnOnce(Result<(), ChannelError>) + Send>;
/// Called with each complete block, in order.
pub(crate) type Deliver = Box<dyn FnMut(Vec<u8>) + Send>;
/// Called with each report where reports travel on the control connection.
pub(crate) type Report = Box<dyn FnMut(Vec<u8>) + Send>;
