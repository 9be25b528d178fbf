//! The settings of a link, checked once and valid everywhere after that.

use sabul_cc::routers::ROUTER_NAMES;
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

/// The least size every IPv4 link must carry. [RFC 791 §3.2]
const MTU_MIN: u32 = 68;
/// The largest IP packet: a 40-byte IPv6 header and 65 535 bytes behind it. [RFC 8200 §3]
const MTU_MAX: u32 = 65_575;
/// Far beyond any frame of a real link.
const FRAMING_MAX: u32 = 1_000;

/// Most bytes in a queue of a file.
const QUEUE_BYTES_MAX: u64 = 1_000_000_000_000;
const CHANCE: Range = Range::of(0.0, 1.0);

/// What the keys of a `[[link]]` fill: both directions, and a queue that is not sized yet.
#[derive(Clone, Debug, Default)]
pub struct LinkDraft {
    /// The way data goes.
    pub forward: LinkConfigBuilder,
    /// The way back.
    pub back: LinkConfigBuilder,
    /// The queue in bandwidth-delay products, where no other size of it is given.
    pub queue_bdp: f64,
}

impl LinkDraft {
    fn both(&mut self, change: impl Fn(&mut LinkConfigBuilder)) {
        change(&mut self.forward);
        change(&mut self.back);
    }
}

/// Algorithms in routers that files name.
const ROUTERS: &[&str] = &{
    let mut names = ["none"; ROUTER_NAMES.len() + 1];
    let mut n = 0;
    while n < ROUTER_NAMES.len() {
        names[n + 1] = ROUTER_NAMES[n];
        n += 1;
    }
    names
};

/// Keys of a `[[link]]`, in the order in which they take effect. The settings of its discipline, which
/// come after them, are with [each discipline](crate::DISCIPLINES).
pub const LINK: &[Key<LinkDraft>] = &[
    Key::<LinkDraft>::new("id", Takes::Own("a name"), "").required("a name"),
    Key::<LinkDraft>::new(
        "rate_mbps",
        Takes::Mbps(RATE_MBPS, |link, rate| link.both(|way| way.rate = Some(rate))),
        "serialisation of whole packets, IP header included",
    )
    .required("the rate in megabits per second")
    .against(&["trace"]),
    Key::<LinkDraft>::new(
        "trace",
        Takes::Own("the path of a file, from the folder of the scenario"),
        "times at which packets leave, in the format of mahimahi, on the way of the data: [traces](#traces)",
    )
    .against(&["rate_mbps", "shaper", "rate_walk", "rate_steps"]),
    Key::<LinkDraft>::new(
        "back_rate_mbps",
        Takes::Mbps(RATE_MBPS, |link, rate| link.back.rate = Some(rate)),
        "rate of the way back",
    )
    .or_else("`rate_mbps`, or the mean of the `trace`"),
    Key::<LinkDraft>::new(
        "delay_ms",
        Takes::Millis(DELAY_MS, |link, delay| link.both(|way| way.delay = delay)),
        "one way, after the last bit left; the same both ways",
    )
    .required("the delay one way, in milliseconds"),
    Key::<LinkDraft>::new(
        "queue_packets",
        Takes::Whole(1, PACKETS_MAX, |link, n| link.both(|way| way.queue = QueueLimit::Packets(n))),
        "room in front of the link, the packet being sent not counted",
    )
    .against(&["queue_bytes", "queue_bdp"]),
    Key::<LinkDraft>::new(
        "queue_bytes",
        Takes::Whole(1, QUEUE_BYTES_MAX, |link, n| {
            link.both(|way| way.queue = QueueLimit::Bytes(n));
        }),
        "the same in bytes",
    )
    .against(&["queue_packets", "queue_bdp"]),
    Key::<LinkDraft>::new(
        "queue_bdp",
        Takes::Number(Range::over(0.0, 1_000.0), |link, share| link.queue_bdp = share),
        "the same in bandwidth-delay products",
    )
    .or(1.0)
    .against(&["queue_packets", "queue_bytes"]),
    Key::<LinkDraft>::new(
        "discipline",
        Takes::Word(DISCIPLINE_NAMES, |link, name| {
            link.forward.discipline = Discipline::named(name, link.forward.rate);
        }),
        "who leaves the queue next, who is marked, who is dropped: [disciplines](links.md#disciplines)",
    )
    .or_word("droptail"),
    Key::<LinkDraft>::new(
        "policer",
        Takes::Table(|| names(POLICER), POLICER_EXAMPLE),
        "drops what exceeds a rate by more than a bucket, before the queue: [rates](#rates-that-are-not-constant)",
    )
    .or_else("none"),
    Key::<LinkDraft>::new(
        "shaper",
        Takes::Table(|| names(SHAPER), SHAPER_EXAMPLE),
        "a faster rate while a bucket lasts, after the queue: [rates](#rates-that-are-not-constant)",
    )
    .or_else("none")
    .against(&["rate_walk", "rate_steps", "trace"]),
    Key::<LinkDraft>::new(
        "rate_walk",
        Takes::Table(|| names(RATE_WALK), WALK_EXAMPLE),
        "a rate that wanders: [rates](#rates-that-are-not-constant)",
    )
    .or_else("none")
    .against(&["shaper", "rate_steps", "trace"]),
    Key::<LinkDraft>::new(
        "rate_steps",
        Takes::Own(RATE_STEPS_EXAMPLE),
        "another rate from a time on, in order; both ways unless there is a `back_rate_mbps`: [steps](#steps)",
    )
    .or_else("none")
    .against(&["shaper", "rate_walk", "trace"]),
    Key::<LinkDraft>::new(
        "delay_steps",
        Takes::Own(DELAY_STEPS_EXAMPLE),
        "another delay from a time on, in order, both ways; packets are never reordered: [steps](#steps)",
    )
    .or_else("none"),
    Key::<LinkDraft>::new(
        "loss",
        Takes::Chance(CHANCE, |link, p| link.forward.loss = p),
        "chance that a packet is lost, each by itself",
    )
    .or(0.0),
    Key::<LinkDraft>::new("loss_back", Takes::Chance(CHANCE, |link, p| link.back.loss = p), "the same on the way back")
        .or(0.0),
    Key::<LinkDraft>::new(
        "burst_loss",
        Takes::Table(|| names(BURST_LOSS), BURST_EXAMPLE),
        "losses in bursts, on top of `loss`: [bursts](#bursts)",
    )
    .or_else("none"),
    Key::<LinkDraft>::new(
        "reorder",
        Takes::Chance(CHANCE, |link, p| link.forward.reorder = p),
        "chance that a packet is held back",
    )
    .or(0.0),
    Key::<LinkDraft>::new(
        "reorder_ms",
        Takes::Millis(Range::of(1e-6, DELAY_MS.high), |link, by| link.forward.reorder_by = by),
        "for how long",
    )
    .or(1.0),
    Key::<LinkDraft>::new(
        "duplicate",
        Takes::Chance(CHANCE, |link, p| link.forward.duplicate = p),
        "chance that a packet comes twice",
    )
    .or(0.0),
    Key::<LinkDraft>::new(
        "corrupt",
        Takes::Chance(CHANCE, |link, p| link.forward.corrupt = p),
        "chance that a packet is damaged",
    )
    .or(0.0),
    Key::<LinkDraft>::new(
        "jitter_ms",
        Takes::Millis(DELAY_MS, |link, most| link.forward.jitter = most),
        "a packet comes later by up to this, drawn evenly; order is kept",
    )
    .or(0.0),
    Key::<LinkDraft>::new(
        "outage",
        Takes::Own(OUTAGE_EXAMPLE),
        "nothing passes, both ways; in order, apart: [outages](#outages)",
    )
    .or_else("none"),
    Key::<LinkDraft>::new(
        "mtu",
        Takes::Whole32(MTU_MIN, MTU_MAX, |link, bytes| link.both(|way| way.mtu = Some(bytes))),
        "in bytes; larger packets vanish, both ways",
    )
    .or_else("none"),
    Key::<LinkDraft>::new(
        "framing_bytes",
        Takes::Whole32(0, FRAMING_MAX, |link, bytes| link.both(|way| way.framing = bytes)),
        "what each packet takes of the rate besides its IP bytes, both ways; 38 for Ethernet",
    )
    .or(0.0),
    Key::<LinkDraft>::new(
        "router",
        Takes::Word(ROUTERS, |link, name| {
            link.forward.shaping.router = (name != "none").then(|| RouterPlan::new(name));
        }),
        "the router half of that controller, on the way of the data: [routers](links.md#routers)",
    )
    .or_word("none"),
    Key::<LinkDraft>::new(
        "router_rate_mbps",
        Takes::Mbps(RATE_MBPS, |link, rate| {
            if let Some(router) = &mut link.forward.shaping.router {
                router.believes = Some(rate);
            }
        }),
        "the rate that the router takes the link to have",
    )
    .or_else("`rate_mbps`"),
    Key::<LinkDraft>::new("router_params", Takes::Map, "the router's own settings, such as { eta = 0.9 }")
        .or_else("the router's"),
    Key::<LinkDraft>::new(
        "forge",
        Takes::Word(FORGERIES, |link, name| link.forward.shaping.forge = Forgery::named(name)),
        "what somebody writes into congestion headers behind the router, on the way of the data: [routers](links.md#routers)",
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
        "chance, at each packet, that a good spell turns bad",
    )
    .required(BURST_EXAMPLE),
    Key::<BurstLoss>::new(
        "to_good",
        Takes::Chance(Range::over(0.0, 1.0), |bursts, p| bursts.to_good = p),
        "chance, at each packet, that a bad spell turns good",
    )
    .required(BURST_EXAMPLE),
    Key::<BurstLoss>::new(
        "loss_good",
        Takes::Chance(CHANCE, |bursts, p| bursts.loss_good = p),
        "loss while good",
    )
    .or(0.0),
    Key::<BurstLoss>::new(
        "loss_bad",
        Takes::Chance(CHANCE, |bursts, p| bursts.loss_bad = p),
        "loss while bad",
    )
    .required(BURST_EXAMPLE),
];

const OUTAGE_EXAMPLE: &str = "a list such as [{ at_s = 10, for_s = 1 }]";

/// Keys of one of a link's `outage`s.
pub const OUTAGE: &[Key<Outage>] = &[
    Key::<Outage>::new(
        "at_s",
        Takes::Seconds(Range::of(0.0, SECONDS_MAX), |outage, at| outage.at = Instant::ZERO + at),
        "when it begins",
    )
    .required(OUTAGE_EXAMPLE),
    Key::<Outage>::new(
        "for_s",
        Takes::Seconds(Range::of(1e-9, SECONDS_MAX), |outage, lasts| outage.lasts = lasts),
        "how long it lasts",
    )
    .required(OUTAGE_EXAMPLE),
];

/// A time during which nothing passes the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it starts, on the clock that drives the link.
    pub at: Instant,
    /// How long it lasts.
    pub lasts: Span,
}

impl Outage {
    /// The first instant at which packets pass again.
    pub fn end(&self) -> Instant {
        self.at + self.lasts
    }
}

/// The settings of one direction of a path.
///
/// The default passes everything at once and untouched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkConfig {
    settings: LinkConfigBuilder,
}

impl LinkConfig {
    /// Starts from a link without limits.
    pub fn builder() -> LinkConfigBuilder {
        LinkConfigBuilder::default()
    }
    /// The same settings, to change some of them.
    pub fn to_builder(&self) -> LinkConfigBuilder {
        self.settings.clone()
    }
    /// What each packet takes of the rate beyond its own bytes: frame, preamble and gap below IP.
    pub fn framing(&self) -> u32 {
        self.settings.framing
    }
    /// The serialiser's rate over whole packets, IP headers and [`framing`](Self::framing) included; `None` takes no time at all.
    pub fn rate(&self) -> Option<Rate> {
        self.settings.rate
    }
    /// The one-way propagation delay.
    pub fn delay(&self) -> Span {
        self.settings.delay
    }
    /// When the one-way delay changes, and to what.
    pub fn delay_steps(&self) -> &[DelayStep] {
        &self.settings.shaping.delay_steps
    }
    /// The smallest one-way delay of all times.
    pub fn delay_min(&self) -> Span {
        let steps = self.delay_steps().iter().map(|step| step.delay);
        steps.fold(self.delay(), Span::min)
    }
    /// When the rate changes, and to what.
    pub fn rate_steps(&self) -> &[RateStep] {
        &self.settings.shaping.rate_steps
    }
    /// The times at which packets may leave, in place of a constant rate.
    pub fn trace(&self) -> Option<&Trace> {
        self.settings.shaping.trace.as_ref()
    }
    /// The highest rate that the settings name; `None` without a rate.
    pub fn rate_max(&self) -> Option<Rate> {
        let steps = self.rate_steps().iter().map(|step| step.rate);
        self.rate().map(|rate| steps.fold(rate, Rate::max))
    }
    /// Bit/s that the link can carry on average between two times, by its steps or trace, without outages, policer,
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
    /// The room in front of the serialiser.
    pub fn queue(&self) -> QueueLimit {
        self.settings.queue
    }
    /// Who leaves that queue next, and who is marked or dropped.
    pub fn discipline(&self) -> &Discipline {
        &self.settings.discipline
    }
    /// The most that a packet's way takes longer than [`delay`](Self::delay).
    pub fn jitter(&self) -> Span {
        self.settings.jitter
    }
    /// The chance that a packet is lost on the wire, after it took its turn in the serialiser.
    pub fn loss(&self) -> Probability {
        self.settings.loss
    }
    /// Losses in bursts, on top of [`loss`](Self::loss).
    pub fn burst_loss(&self) -> Option<BurstLoss> {
        self.settings.burst_loss
    }
    /// The chance that a packet that passes is delivered twice.
    pub fn duplicate(&self) -> Probability {
        self.settings.duplicate
    }
    /// The chance that a packet that passes is marked as damaged.
    pub fn corrupt(&self) -> Probability {
        self.settings.corrupt
    }
    /// The chance that a packet that passes is held back by [`reorder_by`](Self::reorder_by).
    pub fn reorder(&self) -> Probability {
        self.settings.reorder
    }
    /// How much longer a reordered packet is on its way; later ones overtake it.
    pub fn reorder_by(&self) -> Span {
        self.settings.reorder_by
    }
    /// The same link at its rate and delay all the time, as for measuring what it is otherwise: without outages,
    /// policer, shaper, walk, steps, trace, router and forger.
    #[must_use]
    pub fn steady(&self) -> Self {
        let settings = self.to_builder().with_outages(Vec::new()).with_policer(None);
        let settings = settings.with_shaper(None).with_rate_walk(None).with_router(None);
        let settings = settings.with_rate_steps(Vec::new()).with_delay_steps(Vec::new());
        let settings = settings.with_trace(None);
        Self { settings: settings.with_forge(None) }
    }
    /// What drops packets before the queue that exceed a rate.
    pub fn policer(&self) -> Option<TokenBucket> {
        self.settings.shaping.policer
    }
    /// What lets packets leave faster while tokens last.
    pub fn shaper(&self) -> Option<TokenBucket> {
        self.settings.shaping.shaper
    }
    /// How the rate wanders.
    pub fn rate_walk(&self) -> Option<RateWalk> {
        self.settings.shaping.rate_walk
    }
    /// The router in front of it.
    pub fn router(&self) -> Option<&RouterPlan> {
        self.settings.shaping.router.as_ref()
    }
    /// What somebody writes into the congestion headers that pass.
    pub fn forge(&self) -> Option<Forgery> {
        self.settings.shaping.forge
    }
    /// When nothing passes: in order, without overlap.
    pub fn outages(&self) -> &[Outage] {
        &self.settings.outages
    }
    /// The largest packet that passes, in bytes with headers; larger ones vanish in silence.
    pub fn mtu(&self) -> Option<u32> {
        self.settings.mtu
    }
}

/// Collects the settings of a link; [`build`](Self::build) checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl Default for LinkConfigBuilder {
    fn default() -> Self {
        Self {
            rate: None,
            delay: Span::ZERO,
            jitter: Span::ZERO,
            queue: QueueLimit::Unlimited,
            discipline: Discipline::DropTail,
            loss: Probability::ZERO,
            burst_loss: None,
            duplicate: Probability::ZERO,
            corrupt: Probability::ZERO,
            reorder: Probability::ZERO,
            reorder_by: Span::ZERO,
            outages: Vec::new(),
            mtu: None,
            framing: 0,
            shaping: Shaping::default(),
        }
    }
}

impl LinkConfigBuilder {
    /// The discipline so far, whose settings its own keys fill.
    pub fn discipline_mut(&mut self) -> &mut Discipline {
        &mut self.discipline
    }
    /// The rate so far.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }
    /// The delay so far.
    pub fn delay(&self) -> Span {
        self.delay
    }
    /// The room in front of the serialiser so far.
    pub fn queue(&self) -> QueueLimit {
        self.queue
    }
    /// The largest packet so far.
    pub fn mtu(&self) -> Option<u32> {
        self.mtu
    }
    /// The rate in bit/s over whole packets: 1 kbit/s to 1 Tbit/s, or `None` for no limit (default).
    pub fn with_rate(mut self, rate: Option<Rate>) -> Self {
        self.rate = rate;
        self
    }
    /// The one-way delay: 0 (default) to 3600 s.
    pub fn with_delay(mut self, delay: Span) -> Self {
        self.delay = delay;
        self
    }
    /// Other delays, each from a time on, in order; none by default.
    pub fn with_delay_steps(mut self, steps: Vec<DelayStep>) -> Self {
        self.shaping.delay_steps = steps;
        self
    }
    /// The most by which a packet is later than the delay, drawn evenly from nothing to this: 0
    /// (default) to 3600 s. Packets stay in order, except those held back on purpose.
    pub fn with_jitter(mut self, jitter: Span) -> Self {
        self.jitter = jitter;
        self
    }
    /// The room in front of the serialiser: 1 or more, or unlimited (default).
    pub fn with_queue(mut self, queue: QueueLimit) -> Self {
        self.queue = queue;
        self
    }
    /// What happens in the queue; drop-tail by default. Each discipline says what its settings
    /// may be.
    pub fn with_discipline(mut self, discipline: Discipline) -> Self {
        self.discipline = discipline;
        self
    }
    /// The chance of loss on the wire; none by default.
    pub fn with_loss(mut self, loss: Probability) -> Self {
        self.loss = loss;
        self
    }
    /// Losses in bursts, on top of the even ones; none by default. Both kinds of spell must end
    /// with a chance above 0.
    pub fn with_burst_loss(mut self, burst_loss: Option<BurstLoss>) -> Self {
        self.burst_loss = burst_loss;
        self
    }
    /// The chance of a second delivery; none by default.
    pub fn with_duplicate(mut self, duplicate: Probability) -> Self {
        self.duplicate = duplicate;
        self
    }
    /// The chance of damage; none by default.
    pub fn with_corrupt(mut self, corrupt: Probability) -> Self {
        self.corrupt = corrupt;
        self
    }
    /// The chance that a packet is held `by` that much longer (above 0, at most 3600 s); none by
    /// default.
    pub fn with_reorder(mut self, reorder: Probability, by: Span) -> Self {
        self.reorder = reorder;
        self.reorder_by = by;
        self
    }
    /// Times during which nothing passes, in order and apart from each other; none by default.
    pub fn with_outages(mut self, outages: Vec<Outage>) -> Self {
        self.outages = outages;
        self
    }
    /// The largest packet in bytes, headers included: 68 to 65 575, or `None` for no limit
    /// (default).
    pub fn with_mtu(mut self, mtu: Option<u32>) -> Self {
        self.mtu = mtu;
        self
    }
    /// Sets what each packet takes of the rate beyond its own bytes.
    pub fn with_framing(mut self, bytes: u32) -> Self {
        self.framing = bytes;
        self
    }

    /// A policer before the queue; none by default.
    pub fn with_policer(mut self, policer: Option<TokenBucket>) -> Self {
        self.shaping.policer = policer;
        self
    }
    /// A shaper in place of the constant rate; none by default, and not together with a walk.
    pub fn with_shaper(mut self, shaper: Option<TokenBucket>) -> Self {
        self.shaping.shaper = shaper;
        self
    }
    /// A rate that wanders in place of the constant one; none by default.
    pub fn with_rate_walk(mut self, rate_walk: Option<RateWalk>) -> Self {
        self.shaping.rate_walk = rate_walk;
        self
    }

    /// Other rates, each from a time on, in order; none by default, and not together with a shaper or walk.
    pub fn with_rate_steps(mut self, steps: Vec<RateStep>) -> Self {
        self.shaping.rate_steps = steps;
        self
    }

    /// Times at which packets may leave, in place of a constant rate; none by default. The rate becomes the mean of
    /// the trace, and stays so where the trace is taken away.
    pub fn with_trace(mut self, trace: Option<Trace>) -> Self {
        self.rate = trace.as_ref().map(Trace::mean_rate).or(self.rate);
        self.shaping.trace = trace;
        self
    }

    /// A router in front of the queue, on a link that has a rate; none by default.
    pub fn with_router(mut self, router: Option<RouterPlan>) -> Self {
        self.shaping.router = router;
        self
    }
    /// Somebody who writes that into congestion headers, behind the router; nobody by default.
    pub fn with_forge(mut self, forge: Option<Forgery>) -> Self {
        self.shaping.forge = forge;
        self
    }
    /// The router so far.
    pub fn router(&self) -> Option<&RouterPlan> {
        self.shaping.router.as_ref()
    }

    /// The finished settings.
    ///
    /// # Errors
    /// If a value is outside its range; none is moved into range silently.
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
    fn a_refusal_says_what_it_was_and_what_to_use() {
        let error = LinkConfig::builder().with_mtu(Some(20)).build().unwrap_err();
        let text = error.to_string();
        for part in ["mtu", "20 bytes", "68 to 65575"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
