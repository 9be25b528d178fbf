//! Link settings, validated once when built.

use std::sync::LazyLock;

use sabul_lab_cc::routers;
use sabul_units::key::{Key, Range, Takes, names};
use sabul_units::{Instant, Probability, Rate, Span};

use crate::discipline::{BurstLoss, DISCIPLINE_NAMES, Discipline};
use crate::forge::{FORGERIES, Forgery};
use crate::router::RouterPlan;
use crate::setting::{DELAY_MAX, PACKETS_MAX, RATE_MAX, RATE_MIN, SECONDS_MAX};

use crate::shape::{
    POLICER, POLICER_EXAMPLE, RATE_WALK, RateWalk, SHAPER, SHAPER_EXAMPLE, Shaping, TokenBucket,
    WALK_EXAMPLE,
};

use crate::steps::{DELAY_STEPS_EXAMPLE, DelayStep, RATE_STEPS_EXAMPLE, RateStep, bits_between};

use crate::trace::Trace;

pub use crate::setting::{DELAY_MS, LinkError, QueueLimit, RATE_MBPS};

/// Minimum size that every IPv4 link must carry. [RFC 791 §3.2]
const MTU_MIN: u32 = 68;
/// Largest IP packet: a 40-byte IPv6 header and 65 535 bytes of payload. [RFC 8200 §3]
const MTU_MAX: u32 = 65_575;
/// Far above the framing of any real link.
const FRAMING_MAX: u32 = 1_000;

/// Largest queue in bytes that a file may set.
const QUEUE_BYTES_MAX: u64 = 1_000_000_000_000;
const CHANCE: Range = Range::of(0.0, 1.0);

/// Target of the keys of a `[[link]]`: both directions, and a queue size that may depend on the
/// flows.
#[derive(Clone, Debug, Default)]
pub struct LinkDraft {
    /// Direction of the data.
    pub forward: LinkConfigBuilder,
    /// Direction back to the sender.
    pub back: LinkConfigBuilder,
    /// Queue in bandwidth-delay products, where the file gives no other queue size.
    pub queue_bdp: f64,
}

impl LinkDraft {
    fn both(&mut self, change: impl Fn(&mut LinkConfigBuilder)) {
        change(&mut self.forward);
        change(&mut self.back);
    }
}

/// Returns the names of router algorithms in files.
fn router_names() -> &'static [&'static str] {
    static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| [&["none"], &*routers::names()].concat());
    &NAMES
}

/// Keys of a `[[link]]`, in the order in which they take effect. The keys of its discipline follow;
/// [each discipline](crate::DISCIPLINES) has its own.
pub const LINK: &[Key<LinkDraft>] = &[
    Key::<LinkDraft>::new("id", Takes::Own("a name")).required("a name"),
    Key::<LinkDraft>::new(
        "rate_mbps",
        Takes::Mbps(RATE_MBPS, |link, rate| link.both(|way| way.rate = Some(rate))),
    )
    .doc("link rate for whole packets including the IP header")
    .required("the rate in megabits per second")
    .against(&["trace"]),
    Key::<LinkDraft>::new(
        "trace",
        Takes::Own("a file path, relative to the folder of the scenario"),
    )
    .doc(
        "departure times of packets in the data direction, in mahimahi's format: \
              [traces](#traces)",
    )
    .against(&["rate_mbps", "shaper", "rate_walk", "rate_steps"]),
    Key::<LinkDraft>::new(
        "back_rate_mbps",
        Takes::Mbps(RATE_MBPS, |link, rate| link.back.rate = Some(rate)),
    )
    .doc("rate in the reverse direction")
    .or_else("`rate_mbps`, or the mean rate of the `trace`"),
    Key::<LinkDraft>::new(
        "delay_ms",
        Takes::Millis(DELAY_MS, |link, delay| link.both(|way| way.delay = delay)),
    )
    .doc("one-way delay after the last bit of a packet has left; equal in both directions")
    .required("the one-way delay in milliseconds"),
    Key::<LinkDraft>::new(
        "queue_packets",
        Takes::Whole(1, PACKETS_MAX, |link, n| link.both(|way| way.queue = QueueLimit::Packets(n))),
    )
    .doc("queue limit in packets, without the packet in transmission")
    .against(&["queue_bytes", "queue_bdp"]),
    Key::<LinkDraft>::new(
        "queue_bytes",
        Takes::Whole(1, QUEUE_BYTES_MAX, |link, n| {
            link.both(|way| way.queue = QueueLimit::Bytes(n));
        }),
    )
    .doc("queue limit in bytes")
    .against(&["queue_packets", "queue_bdp"]),
    Key::<LinkDraft>::new(
        "queue_bdp",
        Takes::Number(Range::over(0.0, 1_000.0), |link, share| link.queue_bdp = share),
    )
    .doc("queue limit in bandwidth-delay products")
    .or(1.0)
    .against(&["queue_packets", "queue_bytes"]),
    Key::<LinkDraft>::new(
        "discipline",
        Takes::Word(DISCIPLINE_NAMES, |link, name| {
            link.forward.discipline = Discipline::named(name, link.forward.rate);
        }),
    )
    .doc("queue discipline for order, ECN marks and drops: [disciplines](links.md#disciplines)")
    .or_word("droptail"),
    Key::<LinkDraft>::new("policer", Takes::Table(|| names(POLICER), POLICER_EXAMPLE))
        .doc(
            "token bucket before the queue; drops packets above its rate: \
              [rates](#rates-that-are-not-constant)",
        )
        .or_else("none"),
    Key::<LinkDraft>::new("shaper", Takes::Table(|| names(SHAPER), SHAPER_EXAMPLE))
        .doc(
            "token bucket after the queue; permits a higher rate while tokens last: \
              [rates](#rates-that-are-not-constant)",
        )
        .or_else("none")
        .against(&["rate_walk", "rate_steps", "trace"]),
    Key::<LinkDraft>::new("rate_walk", Takes::Table(|| names(RATE_WALK), WALK_EXAMPLE))
        .doc("random walk of the rate: [rates](#rates-that-are-not-constant)")
        .or_else("none")
        .against(&["shaper", "rate_steps", "trace"]),
    Key::<LinkDraft>::new("rate_steps", Takes::Own(RATE_STEPS_EXAMPLE))
        .doc(
            "changes of the rate in order of time; in both directions unless `back_rate_mbps` is \
              given: [steps](#steps)",
        )
        .or_else("none")
        .against(&["shaper", "rate_walk", "trace"]),
    Key::<LinkDraft>::new("delay_steps", Takes::Own(DELAY_STEPS_EXAMPLE))
        .doc(
            "changes of the delay in order of time, in both directions, without reordering: \
              [steps](#steps)",
        )
        .or_else("none"),
    Key::<LinkDraft>::new("loss", Takes::Chance(CHANCE, |link, p| link.forward.loss = p))
        .doc("independent loss probability of each packet")
        .or(0.0),
    Key::<LinkDraft>::new("loss_back", Takes::Chance(CHANCE, |link, p| link.back.loss = p))
        .doc("independent loss probability of each packet in the reverse direction")
        .or(0.0),
    Key::<LinkDraft>::new("burst_loss", Takes::Table(|| names(BURST_LOSS), BURST_EXAMPLE))
        .doc("losses in bursts, in addition to `loss`: [bursts](#bursts)")
        .or_else("none"),
    Key::<LinkDraft>::new("reorder", Takes::Chance(CHANCE, |link, p| link.forward.reorder = p))
        .doc("probability that a packet gets an extra delay of `reorder_ms`")
        .or(0.0),
    Key::<LinkDraft>::new(
        "reorder_ms",
        Takes::Millis(Range::of(1e-6, DELAY_MS.high), |link, by| link.forward.reorder_by = by),
    )
    .doc("extra delay of reordered packets")
    .or(1.0),
    Key::<LinkDraft>::new("duplicate", Takes::Chance(CHANCE, |link, p| link.forward.duplicate = p))
        .doc("probability that a packet is duplicated")
        .or(0.0),
    Key::<LinkDraft>::new("corrupt", Takes::Chance(CHANCE, |link, p| link.forward.corrupt = p))
        .doc("probability that a packet is corrupted")
        .or(0.0),
    Key::<LinkDraft>::new(
        "jitter_ms",
        Takes::Millis(DELAY_MS, |link, most| link.forward.jitter = most),
    )
    .doc("maximum extra delay of a packet, uniformly distributed; packets keep their order")
    .or(0.0),
    Key::<LinkDraft>::new("outage", Takes::Own(OUTAGE_EXAMPLE))
        .doc(
            "times without any traffic in both directions, in order, without overlap: \
              [outages](#outages)",
        )
        .or_else("none"),
    Key::<LinkDraft>::new(
        "mtu",
        Takes::Whole32(MTU_MIN, MTU_MAX, |link, bytes| link.both(|way| way.mtu = Some(bytes))),
    )
    .doc("maximum packet size in bytes; larger packets are dropped in both directions")
    .or_else("none"),
    Key::<LinkDraft>::new(
        "framing_bytes",
        Takes::Whole32(0, FRAMING_MAX, |link, bytes| link.both(|way| way.framing = bytes)),
    )
    .doc(
        "bytes of link capacity per packet in addition to its IP bytes, in both directions; \
              38 for Ethernet",
    )
    .or(0.0),
    Key::<LinkDraft>::new(
        "router",
        Takes::Name(router_names, |link, name| {
            link.forward.shaping.router = (name != "none").then(|| RouterPlan::new(name));
        }),
    )
    .doc("router half of this controller, in the data direction: [routers](links.md#routers)")
    .or_word("none"),
    Key::<LinkDraft>::new(
        "router_rate_mbps",
        Takes::Mbps(RATE_MBPS, |link, rate| {
            if let Some(router) = &mut link.forward.shaping.router {
                router.assumed_rate = Some(rate);
            }
        }),
    )
    .doc("link rate that the router assumes")
    .or_else("`rate_mbps`"),
    Key::<LinkDraft>::new("router_params", Takes::Map)
        .doc("parameters of the router half, such as { eta = 0.9 }")
        .or_else("default of the router"),
    Key::<LinkDraft>::new(
        "forge",
        Takes::Word(FORGERIES, |link, name| link.forward.shaping.forge = Forgery::named(name)),
    )
    .doc(
        "forged values in congestion headers behind the router, in the data direction: \
              [routers](links.md#routers)",
    )
    .or_word("none"),
];

const BURST_EXAMPLE: &str =
    "{ to_bad = 0.001, to_good = 0.1, loss_good = 0, loss_bad = 1 }, all probabilities";

/// Keys of a link's `burst_loss`.
pub const BURST_LOSS: &[Key<BurstLoss>] = &[
    Key::<BurstLoss>::new(
        "to_bad",
        Takes::Chance(Range::over(0.0, 1.0), |bursts, p| bursts.to_bad = p),
    )
    .doc("probability per packet of a change from the good to the bad state")
    .required(BURST_EXAMPLE),
    Key::<BurstLoss>::new(
        "to_good",
        Takes::Chance(Range::over(0.0, 1.0), |bursts, p| bursts.to_good = p),
    )
    .doc("probability per packet of a change from the bad to the good state")
    .required(BURST_EXAMPLE),
    Key::<BurstLoss>::new("loss_good", Takes::Chance(CHANCE, |bursts, p| bursts.loss_good = p))
        .doc("loss probability in the good state")
        .or(0.0),
    Key::<BurstLoss>::new("loss_bad", Takes::Chance(CHANCE, |bursts, p| bursts.loss_bad = p))
        .doc("loss probability in the bad state")
        .required(BURST_EXAMPLE),
];

const OUTAGE_EXAMPLE: &str = "a list such as [{ at_s = 10, for_s = 1 }]";

/// Keys of one `outage` of a link.
pub const OUTAGE: &[Key<Outage>] = &[
    Key::<Outage>::new(
        "at_s",
        Takes::Seconds(Range::of(0.0, SECONDS_MAX), |outage, at| outage.at = Instant::ZERO + at),
    )
    .doc("start time of the outage")
    .required(OUTAGE_EXAMPLE),
    Key::<Outage>::new(
        "for_s",
        Takes::Seconds(Range::of(1e-9, SECONDS_MAX), |outage, lasts| outage.lasts = lasts),
    )
    .doc("duration of the outage")
    .required(OUTAGE_EXAMPLE),
];

/// A time during which no packet passes the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Start, on the clock that drives the link.
    pub at: Instant,
    /// Duration.
    pub lasts: Span,
}

impl Outage {
    /// Returns the first instant at which packets pass again.
    pub fn end(&self) -> Instant {
        self.at + self.lasts
    }
}

/// The settings of one direction of a path.
///
/// The default link has no limits, no delay and no faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkConfig {
    settings: LinkConfigBuilder,
}

impl LinkConfig {
    /// Returns a builder for a link without limits.
    pub fn builder() -> LinkConfigBuilder {
        LinkConfigBuilder::default()
    }
    /// Returns a builder for a link of this rate and one-way delay, with a drop-tail queue of this many
    /// packets.
    pub fn droptail(rate: Rate, delay: Span, packets: u64) -> LinkConfigBuilder {
        let queue = QueueLimit::Packets(packets);
        LinkConfigBuilder::default().with_rate(Some(rate)).with_delay(delay).with_queue(queue)
    }
    /// Returns a builder with these settings.
    pub fn to_builder(&self) -> LinkConfigBuilder {
        self.settings.clone()
    }
    /// Bytes that each packet adds on the wire: frame, preamble and gap below IP.
    pub fn framing(&self) -> u32 {
        self.settings.framing
    }
    /// Serialiser rate over whole packets, IP headers and [`framing`](Self::framing) included;
    /// `None` for no serialisation time.
    pub fn rate(&self) -> Option<Rate> {
        self.settings.rate
    }
    /// The one-way propagation delay.
    pub fn delay(&self) -> Span {
        self.settings.delay
    }
    /// Changes of the one-way delay.
    pub fn delay_steps(&self) -> &[DelayStep] {
        &self.settings.shaping.delay_steps
    }
    /// Smallest one-way delay at any time.
    pub fn delay_min(&self) -> Span {
        let steps = self.delay_steps().iter().map(|step| step.delay);
        steps.fold(self.delay(), Span::min)
    }
    /// Changes of the rate.
    pub fn rate_steps(&self) -> &[RateStep] {
        &self.settings.shaping.rate_steps
    }
    /// Trace of times at which packets may leave, in place of a constant rate.
    pub fn trace(&self) -> Option<&Trace> {
        self.settings.shaping.trace.as_ref()
    }
    /// Highest configured rate; `None` without a rate.
    pub fn rate_max(&self) -> Option<Rate> {
        let steps = self.rate_steps().iter().map(|step| step.rate);
        self.rate().map(|rate| steps.fold(rate, Rate::max))
    }
    /// Mean rate in bit/s between two times according to steps or trace, without outages, policer,
    /// shaper and walk; `None` without a rate.
    pub fn mean_rate(&self, from: Instant, until: Instant) -> Option<f64> {
        let rate = self.rate()?;
        let span = until.since(from);
        let bits = match self.trace() {
            _ if span == Span::ZERO => return Some(rate.0 as f64),
            Some(trace) => trace.bits_between(from, until),
            None if self.rate_steps().is_empty() => return Some(rate.0 as f64),
            None => bits_between(rate, self.rate_steps(), from, until),
        };
        Some(bits / span.as_secs_f64())
    }
    /// Queue limit in front of the serialiser.
    pub fn queue(&self) -> QueueLimit {
        self.settings.queue
    }
    /// Queue discipline.
    pub fn discipline(&self) -> &Discipline {
        &self.settings.discipline
    }
    /// Maximum delay in addition to [`delay`](Self::delay).
    pub fn jitter(&self) -> Span {
        self.settings.jitter
    }
    /// Probability that a packet is lost on the wire, behind the serialiser.
    pub fn loss(&self) -> Probability {
        self.settings.loss
    }
    /// Losses in bursts, on top of [`loss`](Self::loss).
    pub fn burst_loss(&self) -> Option<BurstLoss> {
        self.settings.burst_loss
    }
    /// Probability that a passing packet is delivered twice.
    pub fn duplicate(&self) -> Probability {
        self.settings.duplicate
    }
    /// Probability that a passing packet is marked as damaged.
    pub fn corrupt(&self) -> Probability {
        self.settings.corrupt
    }
    /// Probability that a passing packet is held back by [`reorder_by`](Self::reorder_by).
    pub fn reorder(&self) -> Probability {
        self.settings.reorder
    }
    /// Additional delay of a reordered packet; later packets overtake it.
    pub fn reorder_by(&self) -> Span {
        self.settings.reorder_by
    }
    /// Returns the same link with a constant rate and delay, as a reference for measurements:
    /// without outages, policer, shaper, walk, steps, trace, router and forger.
    #[must_use]
    pub fn steady(&self) -> Self {
        let settings = self.to_builder().with_outages(Vec::new()).with_policer(None);
        let settings = settings.with_shaper(None).with_rate_walk(None).with_router(None);
        let settings = settings.with_rate_steps(Vec::new()).with_delay_steps(Vec::new());
        let settings = settings.with_trace(None);
        Self { settings: settings.with_forge(None) }
    }
    /// Policer: drops packets before the queue that exceed a rate.
    pub fn policer(&self) -> Option<TokenBucket> {
        self.settings.shaping.policer
    }
    /// Shaper: raises the rate while tokens last.
    pub fn shaper(&self) -> Option<TokenBucket> {
        self.settings.shaping.shaper
    }
    /// Random walk of the rate.
    pub fn rate_walk(&self) -> Option<RateWalk> {
        self.settings.shaping.rate_walk
    }
    /// Router in front of the link.
    pub fn router(&self) -> Option<&RouterPlan> {
        self.settings.shaping.router.as_ref()
    }
    /// Forgery of the passing congestion headers.
    pub fn forge(&self) -> Option<Forgery> {
        self.settings.shaping.forge
    }
    /// Outages, in order and without overlap.
    pub fn outages(&self) -> &[Outage] {
        &self.settings.outages
    }
    /// Largest packet that passes, in bytes with headers; larger packets are dropped silently.
    pub fn mtu(&self) -> Option<u32> {
        self.settings.mtu
    }
}

/// Builder of link settings; [`build`](Self::build) validates them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct LinkConfigBuilder {
    rate: Option<Rate>,
    delay: Span,
    jitter: Span,
    queue: QueueLimit,
    discipline: Discipline,
    loss: Probability,
    burst_loss: Option<BurstLoss>,
    duplicate: Probability,
    corrupt: Probability,
    reorder: Probability,
    reorder_by: Span,
    outages: Vec<Outage>,
    mtu: Option<u32>,
    framing: u32,
    shaping: Shaping,
}

impl LinkConfigBuilder {
    /// Returns the present discipline, for the discipline's own keys.
    pub fn discipline_mut(&mut self) -> &mut Discipline {
        &mut self.discipline
    }
    /// Returns the present rate.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }
    /// Returns the present delay.
    pub fn delay(&self) -> Span {
        self.delay
    }
    /// Returns the present queue limit.
    pub fn queue(&self) -> QueueLimit {
        self.queue
    }
    /// Returns the present MTU.
    pub fn mtu(&self) -> Option<u32> {
        self.mtu
    }
    /// Sets the rate in bit/s over whole packets: 1 kbit/s to 1 Tbit/s, or `None` for no limit
    /// (default).
    pub fn with_rate(mut self, rate: Option<Rate>) -> Self {
        self.rate = rate;
        self
    }
    /// Sets the one-way delay: 0 (default) to 3600 s.
    pub fn with_delay(mut self, delay: Span) -> Self {
        self.delay = delay;
        self
    }
    /// Sets changes of the delay, in order; none by default.
    pub fn with_delay_steps(mut self, steps: Vec<DelayStep>) -> Self {
        self.shaping.delay_steps = steps;
        self
    }
    /// Sets the maximum jitter: each packet's extra delay is uniform between zero and this value, 0
    /// (default) to 3600 s. Packets stay in order, except those held back for reordering.
    pub fn with_jitter(mut self, jitter: Span) -> Self {
        self.jitter = jitter;
        self
    }
    /// Sets the queue limit: 1 or more, or unlimited (default).
    pub fn with_queue(mut self, queue: QueueLimit) -> Self {
        self.queue = queue;
        self
    }
    /// Sets the queue discipline; drop-tail by default. Each discipline documents its settings.
    pub fn with_discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = discipline;
        self
    }
    /// Sets the loss probability on the wire; zero by default.
    pub fn with_loss(mut self, loss: Probability) -> Self {
        self.loss = loss;
        self
    }
    /// Sets burst losses, in addition to independent losses; none by default. Both transition
    /// probabilities must be above 0.
    pub fn with_burst_loss(mut self, burst_loss: Option<BurstLoss>) -> Self {
        self.burst_loss = burst_loss;
        self
    }
    /// Sets the probability of a second delivery; zero by default.
    pub fn with_duplicate(mut self, duplicate: Probability) -> Self {
        self.duplicate = duplicate;
        self
    }
    /// Sets the probability of damage; zero by default.
    pub fn with_corrupt(mut self, corrupt: Probability) -> Self {
        self.corrupt = corrupt;
        self
    }
    /// Sets the probability that a packet is held back by `by` (above 0, at most 3600 s); zero by
    /// default.
    pub fn with_reorder(mut self, reorder: Probability, by: Span) -> Self {
        self.reorder = reorder;
        self.reorder_by = by;
        self
    }
    /// Sets outages, in order and without overlap; none by default.
    pub fn with_outages(mut self, outages: Vec<Outage>) -> Self {
        self.outages = outages;
        self
    }
    /// Sets the MTU in bytes, headers included: 68 to 65 575, or `None` for no limit (default).
    pub fn with_mtu(mut self, mtu: Option<u32>) -> Self {
        self.mtu = mtu;
        self
    }
    /// Sets the bytes that each packet adds on the wire; zero by default.
    pub fn with_framing(mut self, bytes: u32) -> Self {
        self.framing = bytes;
        self
    }

    /// Sets a policer before the queue; none by default.
    pub fn with_policer(mut self, policer: Option<TokenBucket>) -> Self {
        self.shaping.policer = policer;
        self
    }
    /// Sets a shaper in place of the constant rate; none by default, and not together with a walk.
    pub fn with_shaper(mut self, shaper: Option<TokenBucket>) -> Self {
        self.shaping.shaper = shaper;
        self
    }
    /// Sets a random walk in place of the constant rate; none by default.
    pub fn with_rate_walk(mut self, rate_walk: Option<RateWalk>) -> Self {
        self.shaping.rate_walk = rate_walk;
        self
    }

    /// Sets changes of the rate, in order; none by default, and not together with a shaper or walk.
    pub fn with_rate_steps(mut self, steps: Vec<RateStep>) -> Self {
        self.shaping.rate_steps = steps;
        self
    }

    /// Sets a trace in place of a constant rate; none by default. The rate becomes the trace's mean
    /// rate, and keeps this value if the trace is removed.
    pub fn with_trace(mut self, trace: Option<Trace>) -> Self {
        self.rate = trace.as_ref().map(Trace::mean_rate).or(self.rate);
        self.shaping.trace = trace;
        self
    }

    /// Sets a router in front of the queue, on a link that has a rate; none by default.
    pub fn with_router(mut self, router: Option<RouterPlan>) -> Self {
        self.shaping.router = router;
        self
    }
    /// Sets a forger of congestion headers behind the router; none by default.
    pub fn with_forge(mut self, forge: Option<Forgery>) -> Self {
        self.shaping.forge = forge;
        self
    }
    /// Returns the present router.
    pub fn router(&self) -> Option<&RouterPlan> {
        self.shaping.router.as_ref()
    }

    /// Validates the settings.
    ///
    /// # Errors
    /// If a value is outside its range; no value is moved into range silently.
    pub fn build(self) -> Result<LinkConfig, LinkError> {
        let refuse = |setting, value, allowed| Err(LinkError { setting, value, allowed });
        if let Some(rate) = self.rate
            && !(RATE_MIN..=RATE_MAX).contains(&rate)
        {
            return refuse("rate", rate.to_string(), "1 kbit/s to 1 Tbit/s, or no rate");
        }
        if self.delay > DELAY_MAX {
            return refuse("delay", format!("{:?}", self.delay), "0 to 3600 s");
        }
        if let QueueLimit::Packets(0) | QueueLimit::Bytes(0) = self.queue {
            return refuse("queue", format!("{:?}", self.queue), "1 or more, or unlimited");
        }
        if self.jitter > DELAY_MAX {
            return refuse("jitter", format!("{:?}", self.jitter), "0 to 3600 s");
        }
        self.discipline.check()?;
        if let Some(burst_loss) = self.burst_loss {
            burst_loss.check()?;
        }
        let by = self.reorder_by;
        if by > DELAY_MAX || (by == Span::ZERO && self.reorder > Probability::ZERO) {
            return refuse("reorder_by", format!("{by:?}"), "more than 0 and at most 3600 s");
        }
        if self.framing > FRAMING_MAX {
            return refuse("framing", format!("{} bytes", self.framing), "0 to 1000 bytes");
        }
        if let Some(mtu) = self.mtu
            && !(MTU_MIN..=MTU_MAX).contains(&mtu)
        {
            return refuse("mtu", format!("{mtu} bytes"), "68 to 65575 bytes, or no limit");
        }
        self.shaping.check(self.rate)?;
        if let Some(router) = &self.shaping.router {
            router.check(self.rate)?;
        }
        let apart = self.outages.windows(2).all(|pair| pair[0].end() <= pair[1].at);
        if !apart || self.outages.iter().any(|outage| outage.lasts == Span::ZERO) {
            let allowed = "outages in order, without overlap, each longer than 0";
            return refuse("outages", format!("{:?}", self.outages), allowed);
        }
        Ok(LinkConfig { settings: self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discipline::FqCodel;

    fn refused(builder: LinkConfigBuilder) -> &'static str {
        builder.build().unwrap_err().setting
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let new = LinkConfig::builder;
        let half = Probability::per_mille(500);
        let out = |at, lasts| Outage { at: Instant(at), lasts: Span(lasts) };
        assert_eq!(refused(new().with_rate(Some(Rate(999)))), "rate");
        assert_eq!(refused(new().with_rate(Some(Rate(1_000_000_000_001)))), "rate");
        assert_eq!(refused(new().with_delay(Span::from_secs(3_601))), "delay");
        assert_eq!(refused(new().with_jitter(Span::from_secs(3_601))), "jitter");
        assert_eq!(refused(new().with_queue(QueueLimit::Packets(0))), "queue");
        assert_eq!(refused(new().with_queue(QueueLimit::Bytes(0))), "queue");
        assert_eq!(refused(new().with_reorder(half, Span::ZERO)), "reorder_by");
        assert_eq!(refused(new().with_reorder(half, Span::from_secs(3_601))), "reorder_by");
        let fq = FqCodel { queues: 0, ..FqCodel::default() };
        assert_eq!(refused(new().with_discipline(Discipline::FqCodel(fq))), "fq_queues");
        let none = Probability::ZERO;
        let burst = BurstLoss { to_bad: half, to_good: none, loss_good: none, loss_bad: half };
        assert_eq!(refused(new().with_burst_loss(Some(burst))), "burst_loss.to_good");
        assert_eq!(refused(new().with_framing(1_001)), "framing");
        let router = |name| Some(RouterPlan::new(name));
        assert_eq!(refused(new().with_router(router("jetmax"))), "router");
        let rated = || new().with_rate(Some(Rate::from_mbps(1)));
        assert_eq!(refused(rated().with_router(router("jetmox"))), "router");
        assert!(rated().with_router(router("jetmax")).build().is_ok());
        assert_eq!(refused(new().with_mtu(Some(67))), "mtu");
        assert_eq!(refused(new().with_mtu(Some(65_576))), "mtu");
        let rate = |at, rate| RateStep { at: Instant(at), rate };
        let delay = |at, delay| DelayStep { at: Instant(at), delay };
        let mbps = Rate::from_mbps;
        let steps = || vec![rate(5, mbps(1)), rate(9, mbps(2))];
        assert!(rated().with_rate_steps(steps()).build().is_ok());
        assert_eq!(refused(new().with_rate_steps(steps())), "rate_steps");
        assert_eq!(refused(rated().with_rate_steps(vec![rate(5, Rate(999))])), "rate_steps");
        let same = vec![rate(5, mbps(1)), rate(5, mbps(2))];
        assert_eq!(refused(rated().with_rate_steps(same)), "rate_steps");
        let walk = RateWalk { low: mbps(1), every: Span::from_millis(1) };
        let both = rated().with_rate_walk(Some(walk)).with_rate_steps(steps());
        assert_eq!(refused(both), "rate_walk");
        let back = vec![delay(9, Span::ZERO), delay(5, Span::ZERO)];
        assert_eq!(refused(new().with_delay_steps(back)), "delay_steps");
        let long = vec![delay(9, Span::from_secs(3_601))];
        assert_eq!(refused(new().with_delay_steps(long)), "delay_steps");
        assert_eq!(refused(new().with_outages(vec![out(5, 0)])), "outages");
        assert_eq!(refused(new().with_outages(vec![out(5, 2), out(6, 2)])), "outages");
        assert_eq!(refused(new().with_outages(vec![out(9, 1), out(5, 1)])), "outages");
    }

    #[test]
    fn the_ends_of_each_range_are_accepted_unchanged() {
        for (rate, mtu) in [(RATE_MIN, MTU_MIN), (RATE_MAX, MTU_MAX)] {
            let outages = vec![
                Outage { at: Instant(5), lasts: Span(2) },
                Outage { at: Instant(7), lasts: Span(1) },
            ];
            let config = LinkConfig::builder()
                .with_rate(Some(rate))
                .with_mtu(Some(mtu))
                .with_delay(DELAY_MAX)
                .with_jitter(DELAY_MAX)
                .with_discipline(Discipline::FqCodel(FqCodel::default()))
                .with_queue(QueueLimit::Packets(1))
                .with_reorder(Probability::ONE, DELAY_MAX)
                .with_outages(outages.clone())
                .build()
                .unwrap();
            assert_eq!((config.rate(), config.mtu()), (Some(rate), Some(mtu)));
            assert_eq!((config.delay(), config.reorder_by()), (DELAY_MAX, DELAY_MAX));
            assert_eq!(config.jitter(), DELAY_MAX);
            assert_eq!(config.discipline(), &Discipline::FqCodel(FqCodel::default()));
            assert_eq!(config.outages(), outages);
            assert_eq!(config.to_builder().build().unwrap(), config);
        }
    }

    #[test]
    fn a_config_error_names_the_key_the_value_and_the_range() {
        let error = LinkConfig::builder().with_mtu(Some(20)).build().unwrap_err();
        let text = error.to_string();
        for part in ["mtu", "20 bytes", "68 to 65575"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
