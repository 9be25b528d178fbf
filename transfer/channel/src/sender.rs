//! Sending end of a channel: selects the next packet and its time.
//!
//! Source: [SABUL §II-D]. Lost pieces leave first, then new data while the flow window allows, each
//! packet at the time that rate control sets. A rate control event happens every SYN interval, or
//! with every SYN report of a peer that sends SYN reports. Expiry after [UDT4 §3.5].
//! To read:     `poll` (the next packet, all decisions in order), then `feedback` (reports of the
//!              receiver).
//! States:      of blocks: `stream`; of numbers: `ledger`.
//! Not here:    payload bytes, keys and sockets; the response of the rate to losses (`sabul-cc`).

mod control_packets;
mod feedback;
mod ledger;
mod losses;
pub(crate) mod pace;
mod peer_error;
mod poll;
mod rate;
mod silence;
mod skips;
mod stream;
mod waits;

use std::num::{NonZeroU32, NonZeroU64};

use sabul_cc::events::Event;
use sabul_cc::{ConfigError, Fault, Guarded, PathFacts, Phase, Policy, RttEstimate, SendLimits};
use sabul_units::{
    Bytes, CongestionHeader, Instant, PacketNumber, Packets, Random, Rate, SeqNo, Span,
};
use sabul_wire::{LossPolicy, Mark};

use crate::fired::Fired;
use crate::flow_window::FlowWindow;
use crate::reports::ReportRule;
use crate::rules::SenderRules;
use control_packets::ControlPackets;
use feedback::ReportState;
use ledger::{Ledger, PieceRange};
use losses::Losses;
use pace::Pace;
use rate::RateControl;
use silence::Silence;
use skips::Skips;
use stream::Stream;
use waits::Waits;

pub use peer_error::PeerError;
pub use rate::congestion_bytes;
pub use silence::Expiry;
pub use waits::{Cause, Limiter, WaitReason};

/// Fewest packets of the flow window. Ours: with one, each packet would wait for the ACK of the packet before.
const WINDOW_PACKETS_MIN: u64 = 2;

/// Settings of a sender.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Kind of number that loss reports list: sequence numbers or packet numbers.
    pub policy: LossPolicy,
    /// Size of a full block in bytes.
    pub block_bytes: u32,
    /// Flow window: most unacknowledged bytes. At first it holds at least two full packets.
    pub window_bytes: u64,
    /// Payload bytes of a full DATA packet, without the controller's congestion header.
    pub payload_bytes: NonZeroU32,
    /// Initial flow-control limit: number of blocks for which the receiver has room at the start.
    pub block_limit: u32,
    /// First packet number.
    pub first_number: PacketNumber,
    /// When the peer sends reports; sender and receiver use the same rule.
    pub reports: ReportRule,
    /// Timeout behaviour when neither ACK nor NAK arrives.
    pub expiry: Expiry,
}

impl SenderConfig {
    /// Rejects a flow window that holds fewer than two full packets.
    ///
    /// # Errors
    /// If the window is smaller; the error has the least size.
    pub fn check_window(&self) -> Result<(), ConfigError> {
        let least = WINDOW_PACKETS_MIN * u64::from(self.payload_bytes.get());
        if self.window_bytes >= least {
            return Ok(());
        }
        Err(ConfigError {
            setting: "flow window".to_owned(),
            value: format!("{} bytes", self.window_bytes),
            allowed: format!("{least} bytes or more, which are {WINDOW_PACKETS_MIN} packets"),
        })
    }

    /// Returns the flow window in packets of this size. Packets that grow later leave at least two.
    fn window(&self, payload_bytes: NonZeroU32) -> Packets {
        let packets = self.window_bytes / NonZeroU64::from(payload_bytes);
        Packets(packets.max(WINDOW_PACKETS_MIN))
    }
}

/// A DATA packet to build and send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPacket {
    /// Packet number; new for each transmission.
    pub number: PacketNumber,
    /// Sequence number; the same in each retransmission, which may carry fewer bytes.
    pub seq: SeqNo,
    /// Block number.
    pub block: u32,
    /// Offset of the piece in the block, in bytes.
    pub offset: u32,
    /// Length of the piece in bytes.
    pub length: u32,
    /// Whether the piece reaches the end of the block.
    pub ends_block: bool,
}

impl DataPacket {
    const fn new(number: PacketNumber, seq: SeqNo, range: PieceRange) -> Self {
        let PieceRange { block, offset, length, ends_block } = range;
        Self { number, seq, block, offset, length, ends_block }
    }
}

/// A packet for the caller to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// A piece of a block.
    Data(DataPacket),
    /// Confirms an ACK; serial zero requests an ACK.
    Ack2 {
        /// Packet number of this packet.
        number: PacketNumber,
        /// Serial number of the confirmed ACK.
        serial: u64,
    },
    /// Reports that everything before a number has been sent; only under rules that use marks.
    Mark {
        /// Packet number of this packet.
        number: PacketNumber,
        /// Contents of the mark.
        mark: Mark,
    },
    /// A DATA packet without data that carries a congestion header ([`Sender::probe_header`]) and
    /// requests an ACK.
    RateProbe {
        /// Packet number of this packet.
        number: PacketNumber,
    },
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// DATA packets sent.
    pub sent: u64,
    /// Payload bytes of these DATA packets.
    pub sent_bytes: u64,
    /// Retransmissions among these DATA packets.
    pub resent: u64,
    /// Packets reported lost on the path, each counted once.
    pub lost: u64,
    /// Losses that a later NAK listed again; historical policy only.
    pub repeats: u64,
    /// Packets reported lost that were drops at the receiver's socket.
    pub lost_at_receiver: u64,
    /// Packets that the receiver's socket dropped, as the receiver reported.
    pub overflowed: u64,
    /// DATA packets that arrived, duplicates included.
    pub arrived: u64,
    /// How often the newest packet to arrive was full at the present payload size.
    pub full_arrived: u64,
    /// Payload bytes that arrived, duplicates included.
    pub delivered: u64,
    /// Expiries: timeouts without an ACK or NAK.
    pub expiries: u64,
}

/// The sending end of a channel.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    stats: SenderStats,
    stream: Stream,
    ledger: Ledger,
    skips: Skips,
    window: FlowWindow,
    /// Channel rules of a related protocol.
    rules: Option<Box<dyn SenderRules>>,
    rate: RateControl,
    pace: Pace,
    losses: Losses,
    silence: Silence,
    report_state: ReportState,
    control_packets: ControlPackets,
    waits: Waits,
}

impl Sender {
    /// Creates a sender at the start of a channel.
    ///
    /// # Errors
    /// If the flow window holds fewer than two full packets.
    pub fn new(
        now: Instant,
        config: SenderConfig,
        controller: Guarded,
    ) -> Result<Self, ConfigError> {
        config.check_window()?;
        let payload_bytes = config.payload_bytes.get();
        let burst = controller.constants().burst;
        let is_driven_by_peer = config.reports.syn_interval.is_some();
        let has_headers = controller.header().is_some();
        Ok(Self {
            stats: SenderStats::default(),
            stream: Stream::new(payload_bytes),
            ledger: Ledger::new(config.first_number),
            skips: Skips::none(),
            window: FlowWindow::new(now, config.window(config.payload_bytes), config.block_limit),
            rules: config.reports.rules.sender.map(|new| new()),
            rate: RateControl::new(now, controller, payload_bytes, is_driven_by_peer),
            pace: Pace::new(now, burst),
            losses: Losses::new(now),
            silence: Silence::new(now, config.expiry),
            report_state: ReportState::default(),
            control_packets: ControlPackets::new(now, has_headers),
            waits: Waits::default(),
            config,
        })
    }

    /// Adds an RTT sample measured during the handshake.
    pub fn seed_rtt(&mut self, sample: Span) {
        self.rate.note_rtt(sample);
    }

    /// Starts to skip packet numbers now and then, at positions drawn from `random`, to detect a
    /// peer that acknowledges packets it did not receive. No effect where reports do not name
    /// packet numbers.
    pub fn skip_numbers(&mut self, random: Box<dyn Random + Send>) {
        if self.config.policy == LossPolicy::Current {
            self.skips.start(self.ledger.numbers.next(), random);
        }
    }

    /// Sets an upper limit on the sending rate, IP headers included, whatever the controller
    /// allows.
    pub const fn limit_rate(&mut self, limit: Option<Rate>) {
        self.pace.set_cap(limit);
    }

    /// Sets the policy toward competing flows. No effect where the controller follows no policy.
    pub fn set_policy(&mut self, now: Instant, policy: Policy) {
        self.rate.set_policy(now, policy);
    }

    /// Passes the controller path facts that an earlier flow measured, perhaps on the same path.
    /// Call before the first block. No effect where the controller keeps no path memory.
    pub fn remember(&mut self, now: Instant, facts: &PathFacts) {
        self.rate.remember(now, facts);
    }

    /// Returns path facts measured so far, as input for a later flow.
    pub fn path(&self) -> Option<PathFacts> {
        self.rate.controller().path(self.packet_bytes())
    }

    /// Sets the number of the first block. Call before the first block.
    pub fn start_at_block(&mut self, first: u32) {
        self.stream.start_at(first);
    }

    /// Appends a block of `length` bytes. A shorter block also takes the receiver's room of a full
    /// block.
    pub fn push_block(&mut self, length: u32) {
        debug_assert!(length > 0 && length <= self.config.block_bytes);
        self.stream.push(length);
    }

    /// Records whether the application has more data than memory. While set, an empty queue counts
    /// as a lack of room, not as a lack of data.
    pub const fn hold_source(&mut self, is_held: bool) {
        self.stream.hold(is_held);
    }

    /// Sets the payload size of packets sent from now on. Larger pieces are cut again on
    /// retransmission. The flow window then holds at least two packets, whatever its bytes.
    pub fn set_payload_bytes(&mut self, bytes: NonZeroU32) {
        self.stream.set_payload_bytes(bytes.get());
        self.rate.set_payload_bytes(bytes.get());
        self.window.set_unacknowledged_max(self.config.window(bytes));
    }

    /// Returns how many blocks are completely acknowledged, which is also the number of the first
    /// block that is not.
    pub const fn released_blocks(&self) -> u32 {
        self.stream.first()
    }

    /// Number of blocks that are not completely cut into pieces.
    pub fn uncut_blocks(&self) -> usize {
        self.stream.uncut()
    }

    /// Whether every block so far has been acknowledged.
    pub fn is_idle(&self) -> bool {
        self.stream.is_empty()
    }

    /// Counts since the start.
    pub const fn stats(&self) -> SenderStats {
        self.stats
    }

    /// Number of times that the circuit breaker opened; `None` without a breaker.
    pub fn breaker_opened(&self) -> Option<u64> {
        self.rate.controller().breaker_opened()
    }

    /// The RTT estimate; `None` before the first sample.
    pub const fn rtt(&self) -> Option<RttEstimate> {
        self.rate.rtt()
    }

    /// The controller's present limits: gap, window and freeze.
    pub const fn limits(&self) -> SendLimits {
        *self.rate.limits()
    }

    /// DATA packets in flight: sent after the newest packet that arrived.
    pub const fn in_flight(&self) -> u64 {
        self.ledger.numbers.in_flight()
    }

    /// Returns the congestion header for the DATA packet that [`Self::poll`] has just returned, or
    /// `None` where the channel has no such headers. The length of the header never changes.
    pub fn congestion_header(&self) -> Option<CongestionHeader> {
        self.rate.controller().header().map(CongestionHeader::new)
    }

    /// Returns the congestion header for a [`Transmit::RateProbe`]. The header claims no rate, so routers
    /// do not count an extra flow.
    pub fn probe_header(&self) -> Option<CongestionHeader> {
        let fields = self.rate.controller().header()?;
        Some(CongestionHeader::new(fields.for_probe()))
    }

    /// Returns whether a controller with congestion headers continues without routers.
    pub fn is_fallback(&self) -> bool {
        self.phase() == Phase::Fallback
    }

    /// The controller's present phase.
    pub fn phase(&self) -> Phase {
        self.rate.controller().phase()
    }

    /// The controller's violation of its contract, if any. The caller must then end the channel.
    pub fn fault(&self) -> Option<&Fault> {
        self.rate.controller().fault()
    }

    /// Starts to record the controller's events for [`Self::next_event`] and fired timers for
    /// [`Self::next_fired`].
    pub fn listen(&mut self) {
        self.rate.controller_mut().listen();
        self.waits.fired.listen();
    }

    /// Removes and returns the controller's oldest recorded event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.rate.controller_mut().next_event()
    }

    /// Removes and returns the oldest recorded timer event.
    pub fn next_fired(&mut self) -> Option<Fired> {
        self.waits.fired.next()
    }

    /// When the latest report arrived, SYN reports and pair times excepted; before the first report,
    /// when the sender was created.
    pub const fn last_received(&self) -> Instant {
        self.silence.last_received()
    }

    /// Time spent so far under each cause of waiting.
    pub fn limiters(&self) -> [Limiter; 9] {
        self.waits.limiters()
    }

    /// Takes a packet number for a datagram of another kind. Loss reports do not count this number.
    ///
    /// # Errors
    /// If too many numbers wait for an acknowledgement.
    pub fn take_number(&mut self) -> Result<PacketNumber, PeerError> {
        self.check_kept()?;
        Ok(self.ledger.numbers.push_other())
    }

    /// Size of a full packet on the wire.
    pub const fn packet_bytes(&self) -> Bytes {
        self.rate.packet_bytes()
    }

    /// Checks the invariants that hold between any two calls.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check_invariants(&self) {
        self.stream.check_invariants();
        self.ledger.check_invariants();
        if let Some(rules) = &self.rules {
            rules.check_invariants(self.ledger.pieces.range());
        }
        assert!(self.stats.resent <= self.stats.sent);
        let may_expire = self.silence.expires().is_some();
        assert!(!may_expire || !self.ledger.pieces.is_empty(), "only outstanding data expires");
    }
}

#[cfg(test)]
#[path = "sender/tests.rs"]
mod tests;
