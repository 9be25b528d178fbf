//! The [`Controller`] trait of every algorithm, and the arguments of its callbacks.

use std::fmt;

use sabul_units::{
    Bytes, CongestionFields, CongestionHeader, Gap, Instant, Packets, Random, Rate, Span,
};

use crate::channel::{BulkReport, ChannelRules};
use crate::memory::PathFacts;
use crate::phase::Phase;
use crate::policy::Policy;
use crate::reason::{Reason, Reasons};

/// [SABUL §II-E] Interval of rate control: 0.01 s, the authors' trade-off between efficiency and
/// fairness.
pub const SYN_INTERVAL: Span = Span::from_millis(10);

/// Ours: least interval between ACKs; bounds the ACK rate where a quarter of the RTT is shorter.
pub(crate) const ACK_INTERVAL_MIN: Span = Span::from_micros(250);

/// Returns the least interval between ACKs of a receiver under the standard rules: a quarter of the
/// smallest RTT, between 250 µs and [`SYN_INTERVAL`]. DEV-005: [SABUL §II-D] has one ACK each SYN
/// interval, whatever the RTT.
pub fn ack_interval(rtt_min: Span) -> Span {
    (rtt_min / 4).max(ACK_INTERVAL_MIN).min(SYN_INTERVAL)
}

/// Limits on the sender; the tightest limit applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendLimits {
    /// Least time between the starts of DATA packets; [`Gap::NONE`] turns pacing off.
    pub gap: Gap,
    /// Most DATA packets in flight (with sequence numbers: unacknowledged); `None` leaves the bound to the flow window.
    pub window: Option<Packets>,
    /// No DATA packet leaves before this time (SABUL's freeze).
    pub hold_until: Option<Instant>,
}

/// RTT estimate of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttEstimate {
    /// The newest sample.
    pub latest: Span,
    /// Exponential average. [RFC6298 §2]
    pub smoothed: Span,
    /// Mean deviation. [RFC6298 §2]
    pub variance: Span,
    /// The smallest sample so far.
    pub min: Span,
}

/// Time, RTT and packet size at a callback, as the driver of the controller has them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Moment {
    /// The core's clock.
    pub now: Instant,
    /// RTT estimate; `None` before the first sample.
    pub rtt: Option<RttEstimate>,
    /// Size of a full DATA packet on the wire, IP header included.
    pub packet_bytes: Bytes,
}

impl Moment {
    /// Joins the three values.
    pub const fn new(now: Instant, rtt: Option<RttEstimate>, packet_bytes: Bytes) -> Self {
        Self { now, rtt, packet_bytes }
    }
}

/// Argument of every callback: the [`Moment`], random numbers, and a sink for reasons.
#[non_exhaustive]
pub struct Context<'a> {
    /// The core's clock.
    pub now: Instant,
    /// RTT estimate; `None` before the first sample.
    pub rtt: Option<RttEstimate>,
    /// Size of a full DATA packet on the wire, IP header included.
    pub packet_bytes: Bytes,
    /// Random stream of this controller, derived from the host's seed.
    pub random: &'a mut dyn Random,
    /// Log of reasons; `None` while no listener is attached.
    reasons: Option<&'a mut Reasons>,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("now", &self.now)
            .field("rtt", &self.rtt)
            .field("packet_bytes", &self.packet_bytes)
            .finish_non_exhaustive()
    }
}

impl<'a> Context<'a> {
    /// Builds a context that drops all reasons.
    pub fn new(moment: &Moment, random: &'a mut dyn Random) -> Self {
        let Moment { now, rtt, packet_bytes } = *moment;
        Self { now, rtt, packet_bytes, random, reasons: None }
    }

    /// Returns the same context with this log of reasons.
    pub(crate) fn with_reasons(self, reasons: Option<&'a mut Reasons>) -> Self {
        Self { reasons, ..self }
    }

    /// Records why limits change with this event, or from now on. No effect without a listener.
    #[inline]
    pub fn log_reason(&mut self, reason: Reason) {
        if let Some(reasons) = &mut self.reasons {
            reasons.record(reason);
        }
    }
}

impl Context<'_> {
    /// Builds a context for tests without randomness: each draw is the middle of its range.
    pub fn without_chance(moment: &Moment) -> Self {
        struct Middle;
        impl Random for Middle {
            fn next_u64(&mut self) -> u64 {
                1 << 63
            }
        }
        // `Middle` is zero-sized, so leaking it costs nothing.
        Self::new(moment, Box::leak(Box::new(Middle)))
    }
}

/// Number of a transmission, a piece or a TCP segment, in the one number space of the controller's
/// host. Later numbers are larger. Not a count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SentNumber(pub u64);

impl SentNumber {
    /// Returns the preceding number; 0 for the first number.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Debug for SentNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Loss report (NAK) from the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LossReport {
    /// Packets reported lost for the first time.
    pub first_time: Packets,
    /// Packets in this report that earlier reports listed already.
    pub repeats: Packets,
    /// Smallest number in the report; of merged reports, the largest such number.
    pub first_lost: SentNumber,
    /// Largest number sent so far, in the same number space.
    pub largest_sent: SentNumber,
}

impl LossReport {
    /// A report of `first_time` new and `repeats` old losses.
    pub const fn new(
        first_time: Packets,
        repeats: Packets,
        first_lost: SentNumber,
        largest_sent: SentNumber,
    ) -> Self {
        Self { first_time, repeats, first_lost, largest_sent }
    }
}

/// Router feedback that the receiver returns in an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Congestion header of the newest packet that had a header.
    pub header: CongestionHeader,
    /// XCP: sum of the rate changes granted to all packets since the previous ACK, in bytes per
    /// second.
    pub delta: i64,
}

/// State after an ACK that reports progress. End its construction with `..Acked::default()`, because
/// more fields may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Acked {
    /// Packets that arrived since the previous ACK.
    pub newly: Packets,
    /// Packets that arrived since the start.
    pub total: Packets,
    /// Packets sent and neither known to have arrived nor known to be lost.
    pub in_flight: Packets,
    /// Packets with an ECN mark since the previous ACK.
    pub marked: Packets,
    /// Largest number that has arrived, with or without gaps below it.
    pub largest: SentNumber,
    /// All numbers up to this number are settled: each has arrived, or is lost for good and its
    /// data goes by another number. A recovery or a round that began at a number ends when that
    /// number is settled. At most [`Self::largest`].
    pub cumulative_ack: SentNumber,
    /// Packets that later arrivals have shown to be lost on the path since the start, including
    /// losses that no [`LossReport`] lists yet.
    pub lost: Packets,
    /// Lost ACKs since the start, by gaps in their serial numbers; zero where ACKs have no numbers.
    pub acks_lost: u64,
    /// True if the application had less to send than the window allowed, or a rate limit of the
    /// user applied, when the newest packet left. The arrival rate is then only a lower bound of
    /// the path's rate.
    pub is_app_limited: bool,
    /// True if the receiver, the flow window or the sender's own memory had less room than the
    /// window when the newest packet left. The arrival rate will not rise beyond that limit.
    pub is_room_limited: bool,
    /// Number of the next transmission.
    pub next: SentNumber,
    /// Wire bytes that have arrived since the start, IP headers included.
    pub delivered: Bytes,
    /// Time on the core's clock when the packet of the largest number left, where the host records
    /// that.
    pub sent_at: Option<Instant>,
    /// Receiver's clock when the newest packet arrived; on a TCP host, its own clock when the ACK
    /// arrived.
    pub arrived_at: Span,
    /// Router feedback, if packets have a congestion header and the receiver supports that header.
    pub echo: Option<Echo>,
}

/// Counts of one SYN interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IntervalReport {
    /// DATA packets sent in the interval, retransmissions included.
    pub sent: Packets,
    /// Retransmissions among them.
    pub resent: Packets,
    /// Packets first reported lost in the interval.
    pub lost: Packets,
    /// Measured length of the interval.
    pub elapsed: Span,
    /// True if the sender was held back for part of the interval by something else than the gap: no
    /// data, no room, a full window, or a late machine. Fewer packets left than the gap allows.
    pub is_below_rate: bool,
}

impl IntervalReport {
    /// Joins the counts of one interval.
    pub const fn new(
        sent: Packets,
        resent: Packets,
        lost: Packets,
        elapsed: Span,
        is_below_rate: bool,
    ) -> Self {
        Self { sent, resent, lost, elapsed, is_below_rate }
    }
}

/// Constants of an algorithm and its parameters. End the construction with `..Constants::default()`,
/// because more fields may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// Channel rules that the algorithm needs.
    pub rules: ChannelRules,
    /// Number of packets that leave back to back; as many gaps separate two bursts.
    pub burst: Packets,
    /// Whether the algorithm separates random loss from congestion loss and keeps its rate at random
    /// loss. Used by the [suite](crate::conformance).
    pub tolerates_random_loss: bool,
    /// Whether the algorithm counts ECN marks. A TCP receiver then reports each mark once
    /// [RFC8257 §3.2], instead of repeating the report until the sender responds [RFC3168 §6.1.3].
    pub needs_accurate_ecn: bool,
    /// Whether events of other channels change the limits: the controller is shared. The host then reads the limits
    /// again from time to time.
    pub is_shared: bool,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            rules: ChannelRules::STANDARD,
            burst: Packets(1),
            tolerates_random_loss: false,
            needs_accurate_ecn: false,
            is_shared: false,
        }
    }
}

/// Sender half of an algorithm. Optional callbacks have an empty default body.
///
/// Drivers hold a controller in a `Guarded`, which forwards each call.
pub trait Controller: fmt::Debug + Send {
    /// Returns the limits from now on. Pure: two calls in a row return equal values.
    fn limits(&self) -> SendLimits;
    /// A NAK arrived. Losses that the receiver's own socket caused are not included.
    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>);
    /// An expiry period passed without feedback while data was unacknowledged.
    fn on_timeout(&mut self, cx: &mut Context<'_>);
    /// Packets counted as lost at the newest decrease, by a report or a timeout, have arrived after
    /// all. Only TCP hosts call this.
    fn on_undo(&mut self, _cx: &mut Context<'_>) {}
    /// An ACK arrived.
    fn on_ack(&mut self, _acked: &Acked, _cx: &mut Context<'_>) {}
    /// One SYN interval ended.
    fn on_interval(&mut self, _report: &IntervalReport, _cx: &mut Context<'_>) {}
    /// A report arrived that exists only under [channel rules](Constants::rules) other than the standard rules.
    fn on_report(&mut self, _report: &BulkReport, _cx: &mut Context<'_>) {}
    /// Sets the flow's share beside other flows from now on. Called before the first packet unless
    /// the policy is fair, and at each change. `Entry::follows_policy` is true for controllers
    /// that use the policy.
    fn on_policy(&mut self, _policy: Policy, _cx: &mut Context<'_>) {}
    /// Passes measurements of an earlier flow on what may be the same path. Called at most once,
    /// before the first packet and after the policy. `Entry::remembers_path` is true for
    /// controllers that use the measurements.
    fn on_memory(&mut self, _facts: &PathFacts, _cx: &mut Context<'_>) {}
    /// Returns the measured rate and RTT for a later flow, for full packets of this size; `None`
    /// until the controller has measured the path's rate.
    fn path(&self, _packet_bytes: Bytes) -> Option<PathFacts> {
        None
    }
    /// Returns the constants of the algorithm. Read once, before the first packet.
    fn constants(&self) -> Constants {
        Constants::default()
    }
    /// Returns the congestion header fields of each DATA packet from now on; read like
    /// [`Self::limits`]. The form of the header (or its absence) never changes during a
    /// controller's life.
    fn header(&self) -> Option<CongestionFields> {
        None
    }
    /// Returns the length of the controller's own interval.
    fn syn_interval(&self) -> Span {
        SYN_INTERVAL
    }
    /// Returns the current phase; read like [`Self::limits`].
    fn phase(&self) -> Phase {
        Phase::Named("steady")
    }
}

impl SendLimits {
    /// Returns the rate of this gap for packets of this size; `None` without pacing.
    pub fn rate(&self, packet_bytes: Bytes) -> Option<Rate> {
        self.gap.rate(packet_bytes)
    }
}
