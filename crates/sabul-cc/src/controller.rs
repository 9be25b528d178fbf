//! The trait every algorithm implements, and the facts it is told.

use std::fmt;

use sabul_units::{
    Bytes, CongestionFields, CongestionHeader, Gap, Instant, Packets, Random, Rate, Span,
};

use crate::channel::{BulkReport, ChannelRules};
use crate::memory::PathFacts;
use crate::policy::Policy;
use crate::reason::{Reason, Reasons};

/// [SABUL §II-E] The SYN interval, in which rate control ticks: 0.01 s, the authors' trade-off
/// between efficiency and fairness.
pub const SYN_INTERVAL: Span = Span::from_millis(10);

/// Ours: an ACK goes out four times a round trip where that is shorter than the SYN interval, but not
/// more often than this.
pub(crate) const ACK_INTERVAL_MIN: Span = Span::from_micros(250);

/// How long after an ACK a receiver under the standard rules may send the next, where the smallest
/// round trip is known: four times a round trip, at least each SYN interval. DEV-005: [SABUL §II-D] has
/// one each SYN interval, whatever the round trip.
pub fn ack_interval(rtt_min: Span) -> Span {
    (rtt_min / 4).max(ACK_INTERVAL_MIN).min(SYN_INTERVAL)
}

/// What the sender may do; the tightest part binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendLimits {
    /// Least spacing between starts of DATA packets; [`Gap::NONE`] leaves pacing off.
    pub gap: Gap,
    /// Most DATA packets unacknowledged at once; `None` leaves it to the flow window.
    pub window: Option<Packets>,
    /// No DATA at all before this time (SABUL's freeze).
    pub hold_until: Option<Instant>,
}

/// What is known of the round trip.
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

/// The circumstances of a fact, as who drives a controller knows them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Moment {
    /// The core's clock.
    pub now: Instant,
    /// The round trip, once there is a sample.
    pub rtt: Option<RttEstimate>,
    /// Size of a full DATA packet on the wire, IP header included.
    pub packet_bytes: Bytes,
}

impl Moment {
    /// The circumstances of one fact.
    pub const fn new(now: Instant, rtt: Option<RttEstimate>, packet_bytes: Bytes) -> Self {
        Self { now, rtt, packet_bytes }
    }
}

/// What comes with every fact.
#[non_exhaustive]
pub struct Context<'a> {
    /// The core's clock.
    pub now: Instant,
    /// The round trip, once there is a sample.
    pub rtt: Option<RttEstimate>,
    /// Size of a full DATA packet on the wire, IP header included.
    pub packet_bytes: Bytes,
    /// Chance: a stream of this controller's own, from the seed that its host has.
    pub random: &'a mut dyn Random,
    /// Where reasons go, while somebody listens.
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
    /// What a controller is told with a fact.
    pub fn new(moment: &Moment, random: &'a mut dyn Random) -> Self {
        let Moment { now, rtt, packet_bytes } = *moment;
        Self { now, rtt, packet_bytes, random, reasons: None }
    }

    /// The same, and reasons are kept here.
    pub(crate) fn heard(self, reasons: Option<&'a mut Reasons>) -> Self {
        Self { reasons, ..self }
    }

    /// Says why limits change with this fact, or from now on. Of no effect while nobody listens.
    #[inline]
    pub fn tell(&mut self, reason: Reason) {
        if let Some(reasons) = &mut self.reasons {
            reasons.tell(reason);
        }
    }
}

#[cfg(test)]
impl Context<'static> {
    /// For tests of what chance has no part in: each draw is the middle of its range.
    pub(crate) fn without_chance(moment: &Moment) -> Self {
        struct Middle;
        impl Random for Middle {
            fn next_u64(&mut self) -> u64 {
                1 << 63
            }
        }
        // What has no size takes no memory, leaked or not.
        Self::new(moment, Box::leak(Box::new(Middle)))
    }
}

/// The number of something that was sent: a packet's, a piece's or a segment's, in the one space that the
/// controller's host counts in. Later ones are larger. It is no count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SentNumber(pub u64);

impl SentNumber {
    /// The number before this one; before the first there is none less.
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

/// A loss report arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LossReport {
    /// Packets reported lost for the first time.
    pub first_time: Packets,
    /// Packets in this report that earlier reports had named already.
    pub repeats: Packets,
    /// The smallest number that the report lists; of reports told together, that of the one furthest on.
    pub first_lost: SentNumber,
    /// The largest number of the same kind sent so far.
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

/// What routers wrote into headers, as the receiver tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The header of the newest packet that had one.
    pub header: CongestionHeader,
    /// XCP: the sum of what all packets since the ACK before were given, in bytes a second.
    pub delta: i64,
}

/// An ACK moved the account forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Acked {
    /// Packets that arrived since the ACK before.
    pub newly: Packets,
    /// Packets that arrived since the start.
    pub total: Packets,
    /// Packets sent and neither known to have arrived nor known to be lost.
    pub in_flight: Packets,
    /// Packets marked by ECN since the ACK before.
    pub marked: Packets,
    /// Largest number that has arrived, whatever is missing below it.
    pub largest: SentNumber,
    /// All numbers up to this one are settled: each has arrived, or is lost for good and what it
    /// carried goes by another number. Whatever began when a number was the newest (a recovery, a
    /// round) is over once it is settled. At most [`Self::largest`].
    pub settled: SentNumber,
    /// Packets that later arrivals have shown to be lost on the path since the start, whether a
    /// [`LossReport`] has told of them yet or not.
    pub lost: Packets,
    /// ACKs that have not arrived since the start, by their serial numbers; zero where ACKs have no numbers.
    pub acks_lost: u64,
    /// The application had less to send than the window allowed when the newest packet left, so what
    /// arrives says only that the path is at least so fast.
    pub is_app_limited: bool,
    /// The receiver, the flow window or this end's own memory had room for less than the window allowed
    /// when the newest packet left: the rate at which it arrives is all that there will be.
    pub is_room_limited: bool,
    /// The number that the next transmission will have.
    pub next: SentNumber,
    /// Wire bytes that have arrived since the start, IP headers included.
    pub delivered: Bytes,
    /// When the packet of the largest number left, by the core's clock, where the host keeps that.
    pub sent_at: Option<Instant>,
    /// Receiver's clock when the newest of them arrived; a TCP host's own clock when the ACK did.
    pub arrived_at: Span,
    /// What routers say, where packets have a congestion header and the receiver knows it.
    pub echo: Option<Echo>,
}

/// One SYN interval ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IntervalReport {
    /// DATA packets sent in it, retransmissions included.
    pub sent: Packets,
    /// Retransmissions among them.
    pub resent: Packets,
    /// Packets first reported lost in it.
    pub lost: Packets,
    /// How long it really was.
    pub elapsed: Span,
    /// For part of it something else than the gap held the sender back: nothing to send, no room, a full
    /// window, or a machine that was late. So less left than the gap allows.
    pub is_below_rate: bool,
}

impl IntervalReport {
    /// The account of one interval.
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

/// The sender half of an algorithm. Callbacks without a use keep their empty default body.
///
/// What drives one holds it behind a guard (`guard`), which hands on each call.
pub trait Controller: fmt::Debug + Send {
    /// What the sender may do from now on. Pure: two calls in a row agree.
    fn limits(&self) -> SendLimits;
    /// A NAK arrived. Losses that the receiver's own socket caused are not among them.
    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>);
    /// Nothing was heard for a whole expiry period while data was outstanding.
    fn on_timeout(&mut self, cx: &mut Context<'_>);
    /// Packets that counted as lost at the newest decrease, by a report or in silence, have arrived after all. Only
    /// TCP hosts report that.
    fn on_undo(&mut self, _cx: &mut Context<'_>) {}
    /// An ACK arrived.
    fn on_ack(&mut self, _acked: &Acked, _cx: &mut Context<'_>) {}
    /// One SYN interval ended.
    fn on_interval(&mut self, _report: &IntervalReport, _cx: &mut Context<'_>) {}
    /// A report arrived that only [`Self::rules`] other than the standard ones have.
    fn on_report(&mut self, _report: &BulkReport, _cx: &mut Context<'_>) {}
    /// How the flow stands beside others from now on. Told before the first packet unless it is fair, and when it
    /// changes; an entry says whether its controllers follow.
    fn on_policy(&mut self, _policy: Policy, _cx: &mut Context<'_>) {}
    /// What an earlier flow saw of what may be the same path. Told before the first packet and after the policy, or
    /// never. An entry says whether its controllers make use of it.
    fn on_memory(&mut self, _facts: &PathFacts, _cx: &mut Context<'_>) {}
    /// What it knows of the path by now, for a later flow, where a full packet has this size; `None` until it has seen
    /// how much the path carries.
    fn path(&self, _packet_bytes: Bytes) -> Option<PathFacts> {
        None
    }
    /// What the algorithm needs of the channel. Asked once, before the first packet.
    fn rules(&self) -> ChannelRules {
        ChannelRules::Standard
    }
    /// How many packets leave back to back each time, as many gaps after the burst before. Asked
    /// once, before the first packet.
    fn burst(&self) -> Packets {
        Packets(1)
    }
    /// Whether it tells losses that the path makes by chance from those that come of sending too much,
    /// and leaves its rate as it is at the first. Asked once, by the [suite](crate::conformance).
    fn tells_chance(&self) -> bool {
        false
    }
    /// Whether it counts marks, so that a TCP receiver has to tell of each once [RFC8257 §3.2], and not
    /// until it is answered [RFC3168 §6.1.3]. Asked once, before the first packet.
    fn counts_marks(&self) -> bool {
        false
    }
    /// What to write into the congestion header of each DATA packet from now on; asked like [`Self::limits`]. A
    /// controller has one form of header from its beginning, or none.
    fn header(&self) -> Option<CongestionFields> {
        None
    }
    /// How long the controller's own interval is.
    fn syn_interval(&self) -> Span {
        SYN_INTERVAL
    }
    /// One word for what it is doing, for traces.
    fn phase(&self) -> &'static str {
        "steady"
    }
}

impl SendLimits {
    /// The rate that the gap gives packets of this size; `None` without pacing.
    pub fn rate(&self, packet_bytes: Bytes) -> Option<Rate> {
        self.gap.rate(packet_bytes)
    }
}
