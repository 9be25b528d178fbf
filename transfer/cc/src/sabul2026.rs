//! Paced, delay-based controller with a CUBIC fallback; the default of this crate.
//!
//! Source: ours. The queueing delay encodes the number of flows on a link [FRCC]; probes and drains are of [FRCC] and
//! [BBR3]. Reasons: `docs/algorithms/sabul2026.md`.
//! Model, once an epoch (one RTT, at least a SYN interval); D packets/s arrive, C is the link's rate in packets/s:
//!     count        = C / D                                       number of flows like this flow on the link
//!     target_delay = base + omega + theta × spread(count)        RTT at equal shares; C unknown: half a packet queued
//!     target       = window × target_delay / (base + queue)      without a standing queue: the sender may limit D
//!     target       = sent × target_delay × (1 + second_order × (target_delay / (base + queue) - 1))
//!                                                                with a standing queue; sent = D / (1 - random_loss)
//!     second_order = base / 100 ms, at most 1
//!     window      += (target - window) / 2
//!     window      >= CUBIC's                                     beside a competitor (`competitor`)
//!     window       = CUBIC's                                     where the queue is too short for the target (below)
//!     gap          = (base + queue_now) / window                 in flight at most window + an ACK's worth
//! Congestion (`losses`): losses beyond random loss, beside a standing queue or ended by a test at a lower rate.
//!     The window then falls to 0.85 of the arrived packets, and the queue is drained. Only CUBIC's window counts for
//!     ten seconds if the queue holds less than 1/0.6 of the law's target queue, or if no queue was seen.
//! States:      Search --rate found--> Cruise --others on the link, at most twice--> Search (`check`) --trains--> Cruise
//!              Cruise --two to three seconds, and no queue--> Probe --three epochs--> Settle | Probe
//!              Cruise --congestion--> Drain | Settle --> Cruise
//!              Cruise --losses that may be random--> Test --losses stay | losses end--> Cruise
//!              Cruise --five seconds without an empty queue | another flow drains--> Drain --RTT--> Refill --> Cruise
//!              low policy --another flow's queue stands--> Cruise with half the window, no growth for three seconds
//! Invariants:  `WINDOW_MIN` <= window <= `WINDOW_MAX`; each estimate (random loss, room, competitor) is measured again
//!              and can be withdrawn.
//! Not here:    the circuit breaker (`breaker`), which bounds every controller.

mod check;
mod competitor;
mod cubic;
mod headroom;
mod link;
mod loss_context;
mod loss_record;
mod loss_test;
mod losses;
mod path;
mod policy;
mod probing;
mod sawtooth;
mod start;
mod ways;

use sabul_units::{Bytes, Gap, Instant, Packets, Rate, Span};

use self::competitor::{CompetitorDetector, QueueObservation};
use self::cubic::{CubicWindow, Fallback};
use self::headroom::Headroom;
use self::link::{Link, Share, packets_per_second};
use self::loss_test::LossTest;
use self::losses::{Losses, Meaning, RANDOM_LOSS_MAX};
use self::path::{Drains, Epoch, Path};
use self::policy::{PolicyGains, spread};
use self::probing::Probing;
use self::start::Start;
use crate::controller::{
    Acked, Constants, Context, Controller, IntervalReport, LossReport, SendLimits,
};
use crate::entry::{Entry, Family};
use crate::memory::PathFacts;
use crate::params::{ConfigError, ParamSpec, ParamValues, Unit};
use crate::phase::Phase;
use crate::policy::Policy;
use crate::reason::Reason;
use crate::search::SearchStep;

/// Ours: four RTTs between two packets. The gap implements windows below one packet.
const WINDOW_MIN: f64 = 0.25;
/// Ours: far above any path's BDP, and exact in floating point.
const WINDOW_MAX: f64 = 1e9;
/// Ours: largest theta, as a part of the base RTT.
const THETA_BASE_PART: f64 = 1.0 / 5.0;
/// Ours: omega, the queue in seconds that keeps the link busy: two jitters, because a late machine empties the queue;
/// at least a packet's time, which a base RTT of smaller packets lacks; bounded by these times and parts of base RTT
/// and room.
const OMEGA_JITTERS: f64 = 2.0;
const OMEGA_MIN: f64 = 0.0003;
const OMEGA_MAX: f64 = 0.008;
const OMEGA_BASE_PART: f64 = 1.0 / 8.0;
const OMEGA_QUEUE_PART: f64 = 1.0 / 4.0;
/// Ours: up to this base RTT in seconds, no packets are added for late ACKs. Above, the window may grow by half of
/// the excess.
const LATE_BASE: f64 = 0.004;
/// Ours: largest number of flows counted, which bounds the queue; [FRCC] has no bound.
const COUNT_MAX: f64 = 256.0;
/// [FRCC] Largest change of the window in one epoch.
const WINDOW_STEP_MAX: f64 = 1.3;
/// Ours: part of the distance to the target per epoch. Feedback reflects the window of two epochs ago, so even and
/// odd epochs would diverge with full steps.
const WEIGHT: f64 = 0.5;
/// Ours: base RTT in seconds from which the law has full gain, so that long RTTs converge as fast as short RTTs.
const SECOND_ORDER_BASE: f64 = 0.1;
/// Ours: no probe for this long after a drain, because the queue is not yet representative.
const DRAIN_REST: Span = Span::from_millis(500);
/// [BBR3 §2] Longest time without an empty queue. A flow that joined late drains `FIRST_DRAIN` after its search, and
/// again if a drain left a queue.
const DRAIN_AGE: Span = Span::from_secs(5);
const FIRST_DRAIN: Span = Span::from_millis(500);
/// Ours: least time between two drains.
const DRAIN_SPACING: Span = Span::from_secs(1);
/// Ours: part of the window kept after congestion where no competitor is known.
const WINDOW_KEPT: f64 = 0.85;
/// Ours: part of this flow's packets on an empty link that a drain leaves.
const DRAIN_PART: f64 = 0.8;
/// Ours: an overflow is evidence of a competitor if the law's target queue is below this part of the room.
const TARGET_PART_MAX: f64 = 0.6;
/// Ours: an overflow is evidence of a competitor if a queue stood before it: at least this part of the law's target queue
/// and this part of the room. A new flow's train overflows an empty queue, too.
const STOOD_TARGET_PART: f64 = 0.6;
const STOOD_QUEUE_PART: f64 = 0.12;
const _: () = assert!(
    STOOD_TARGET_PART <= TARGET_PART_MAX,
    "a queue that stands is below the limit for evidence"
);
/// Ours: target queue in packets while the link's rate is unknown, as in [FAST]; all flows then have the same rate,
/// half a packet per queueing delay.
const BLIND_PACKETS: f64 = 0.5;
/// Ours: least time between two searches.
const SEARCH_WAIT: Span = Span::from_secs(5);
/// Ours: initial window beside a new competitor, at least this part of the largest rate of the last half to whole minute.
const CARRIED_PART: f64 = 0.6;
/// Ours: how long the CUBIC window limits the flow after congestion that the law cannot avoid.
const BOUND_AGE: Span = Span::from_secs(10);
/// Ours: recent loss beyond random loss above which a flow neither probes nor restores its window after a timeout.
const LOST_LIGHT: f64 = 0.01;
/// Ours: largest number of flows for which random loss can be separated from the loss of many competing flows.
const FEW: f64 = 8.0;
/// Ours: part of the link's rate from which this flow counts as alone.
const ALONE_PART: f64 = 0.8;

pub(crate) const ENTRY: Entry = Entry::new("sabul2026", Family::Rate, build)
    .summary("Current SABUL: paces, keeps a bounded standing queue, tolerates random loss")
    .source("ours, on [FRCC] and [BBR3]; docs/algorithms/sabul2026.md")
    .params(PARAMS)
    .with_policies()
    .with_path_memory();

const PARAMS: &[ParamSpec] = &[ParamSpec::new("theta_ms", Unit::Millis, "1", (0.1, 100.0))
    .doc("Queueing delay that each of the first four sabul2026 flows adds; smaller on paths with a short RTT")
    .source("ours, by experiment: twice as much overflows half a product of queue with 16 flows at 40 ms")];

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Cruise,
    /// More packets than the window, to see whether the link carries them.
    Probe(Probe),
    /// The previous window for this many epochs, until feedback on the probe has arrived.
    Settle(u32),
    /// A part of the window, below the arrival rate, to see whether the losses stay or fall.
    Test(LossTest),
    /// This `window` until `until`, so that the queue empties and shows the base RTT.
    Drain {
        window: f64,
        until: Instant,
    },
    /// The full window again, while RTTs still reflect the drain.
    Refill,
}

impl State {
    /// Returns whether the lines `States` of the header permit this transition. A timeout leads from each state to
    /// `Cruise`.
    const fn may_become(&self, next: &Self) -> bool {
        match self {
            Self::Cruise => !matches!(next, Self::Refill),
            Self::Probe(_) => matches!(next, Self::Cruise | Self::Probe(_) | Self::Settle(_)),
            Self::Settle(_) => matches!(next, Self::Cruise | Self::Settle(_)),
            Self::Test(_) => matches!(next, Self::Cruise | Self::Test(_)),
            Self::Drain { .. } => matches!(next, Self::Cruise | Self::Refill),
            Self::Refill => matches!(next, Self::Cruise),
        }
    }
}

/// A probe. After `epochs_left` more epochs, the next epoch is compared with the rate and queue before the probe.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Probe {
    /// Packets above the window.
    extra_packets: f64,
    epochs_left: u32,
    /// Arrival rate before the probe.
    rate_pps: f64,
    /// Queueing delay before the probe.
    queue_s: f64,
}

#[derive(Debug)]
struct Sabul2026 {
    start: Start,
    state: State,
    window_packets: f64,
    hold_until: Option<Instant>,
    path: Path,
    link: Link,
    losses: Losses,
    theta_s: f64,
    gains: PolicyGains,
    probing: Probing,
    headroom: Headroom,
    competitor: CompetitorDetector,
    fallback: Fallback,
    drains: Drains,
    share: Share,
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let mut controller = Sabul2026::new(params.number("theta_ms") / 1e3);
    controller.start.begin();
    Ok(Box::new(controller))
}

impl Sabul2026 {
    /// Creates a controller without path estimates and without a search.
    const fn new(theta_s: f64) -> Self {
        Self {
            start: Start::none(),
            state: State::Cruise,
            window_packets: WINDOW_MIN,
            hold_until: None,
            path: Path::new(),
            link: Link::new(),
            losses: Losses::new(),
            theta_s,
            gains: PolicyGains::of(Policy::Fair),
            probing: Probing::new(),
            headroom: Headroom::new(),
            competitor: CompetitorDetector::none(),
            fallback: Fallback { cubic: None, bound_until: Instant::ZERO },
            drains: Drains { emptied_at: Instant::ZERO, began_at: Instant::ZERO },
            share: Share::new(),
        }
    }

    /// Returns theta: seconds of queue that each further flow adds.
    fn theta_s(&self) -> f64 {
        self.gains.theta_s(self.theta_s).min(self.path.base_s() * THETA_BASE_PART)
    }

    /// Returns omega: seconds of queue that keep the link busy.
    fn omega_s(&self) -> f64 {
        let base = self.path.base_s();
        let queue_limit = self.losses.queue_limit_s(base);
        let link = self.link.rate_pps();
        let packet = if link > 0.0 { 1.0 / link } else { 0.0 };
        let least = (OMEGA_JITTERS * self.path.jitter_s()).max(packet).clamp(OMEGA_MIN, OMEGA_MAX);
        let omega = self.gains.omega_s(least);
        omega.min(base * OMEGA_BASE_PART).min(queue_limit * OMEGA_QUEUE_PART)
    }

    /// Returns the number of flows like this flow on the link, for an arrival rate in packets/s.
    fn count(&self, rate: f64) -> f64 {
        if rate > 0.0 { (self.link.rate_pps() / rate).clamp(1.0, COUNT_MAX) } else { COUNT_MAX }
    }

    /// Returns the window of the current state, in packets.
    fn allowed(&self) -> f64 {
        let window = match self.state {
            State::Cruise | State::Settle(_) | State::Refill => self.window_packets,
            State::Probe(probe) => self.window_packets + probe.extra_packets,
            State::Test(test) => self.window_packets * test.part,
            State::Drain { window, .. } => window,
        };
        window.clamp(WINDOW_MIN, WINDOW_MAX)
    }

    fn enter(&mut self, next: State) {
        debug_assert!(self.state.may_become(&next), "{:?} -> {next:?}", self.state);
        self.state = next;
    }

    /// Checks the lines `Invariants` of the headers.
    fn check_invariants(&self) {
        let (window, loss) = (self.window_packets, self.losses.random_loss());
        debug_assert!((WINDOW_MIN..=WINDOW_MAX).contains(&window), "a window of {window} packets");
        debug_assert!((0.0..=RANDOM_LOSS_MAX).contains(&loss), "a random loss of {loss}");
        debug_assert!(self.path.base_s() > 0.0, "a base RTT of {} s", self.path.base_s());
        debug_assert!(self.path.queue_s() >= 0.0, "a queue of {} s", self.path.queue_s());
    }

    const fn set_window(&mut self, packets: f64) {
        self.window_packets = packets.clamp(WINDOW_MIN, WINDOW_MAX);
    }

    fn take_step(&mut self, step: SearchStep, cx: &mut Context<'_>) {
        let (rate, hold) = match step {
            SearchStep::Continue => return,
            SearchStep::Found { rate, hold } => (rate, hold),
            SearchStep::Overrun { rate } => {
                cx.log_reason(Reason::SearchCutShort);
                self.end_search(rate.max(self.carried(cx.packet_bytes).mul_ratio(1, 2)), cx);
                return;
            }
        };
        cx.log_reason(Reason::RateFound);
        self.link.note(packets_per_second(rate, cx.packet_bytes), cx.now);
        self.end_search(rate, cx);
        self.hold_until = hold.map(|span| cx.now + span);
        if hold.is_none() && self.is_alone(packets_per_second(rate, cx.packet_bytes)) {
            // The search saw no queue, so the link may be faster: a late machine stretches trains, and their rate is
            // too low.
            self.probing.at = cx.now;
        }
    }

    /// Returns the largest arrival rate of the last seconds; zero before the end of the first search.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate that was seen"
    )]
    fn carried(&self, packet_bytes: Bytes) -> Rate {
        Rate((self.link.carried_pps() * 8.0 * packet_bytes.0 as f64) as u64)
    }

    /// Returns whether a flow with this rate is alone on the link; false before a train has measured the link.
    fn is_alone(&self, rate: f64) -> bool {
        self.link.is_trained() && rate >= ALONE_PART * self.link.rate_pps()
    }

    /// Continues at this rate. Trains that arrived faster have measured the link's rate, with or without other flows.
    fn end_search(&mut self, rate: Rate, cx: &mut Context<'_>) {
        let trained = self.start.end();
        let rate = packets_per_second(rate, cx.packet_bytes);
        let trained = trained.map(|found| packets_per_second(found, cx.packet_bytes));
        self.link.train(trained, cx.now);
        self.set_window(rate * (self.path.base_s() + self.omega_s()));
        self.probing.schedule(cx);
        if !self.link.is_trained() {
            self.start.retry_search(self.probing.at + SEARCH_WAIT);
        }
        // A flow that joins late measures an inflated base RTT, because the other flows' queue is already there.
        self.drains.emptied_at =
            cx.now - if self.is_alone(rate) { Span::ZERO } else { DRAIN_AGE - FIRST_DRAIN };
    }

    fn on_epoch(&mut self, epoch: &Epoch, cx: &mut Context<'_>) {
        self.link.note(epoch.carried_pps, cx.now);
        // The first epochs still include packets of the search.
        if !self.start.note_epoch() {
            return;
        }
        self.end_silence();
        self.share.note(epoch, self.path.base_s() + self.path.queue_s());
        let (meaning, is_queued) = self.note_losses(epoch, cx);
        if self.yield_if_needed(cx) {
            return;
        }
        if let Some(cubic) = &mut self.fallback.cubic
            && meaning == Meaning::Random
        {
            let rtt = self.path.base_s() + self.path.queue_s();
            cubic.grow((rtt, self.path.stretch()), self.losses.recent(), epoch.is_limited, cx.now);
        }
        if self.respond_to_losses(meaning, is_queued, epoch, cx) {
            return;
        }
        match self.state {
            State::Cruise => self.cruise(epoch, cx),
            State::Probe(probe) if probe.epochs_left > 0 => {
                self.enter(State::Probe(Probe { epochs_left: probe.epochs_left - 1, ..probe }));
            }
            State::Probe(probe) => self.end_probe(&probe, epoch, cx),
            State::Settle(epochs) => {
                self.enter(if epochs > 1 { State::Settle(epochs - 1) } else { State::Cruise });
            }
            State::Test(test) if test.settles_left > 0 => {
                self.enter(State::Test(test.settle(epoch)));
            }
            State::Test(test) => self.end_test(&test, epoch, cx),
            State::Drain { until, .. } => {
                if cx.now >= until {
                    self.enter(State::Refill);
                }
            }
            State::Refill => {
                self.path.end_drain();
                self.enter(State::Cruise);
                self.drains.emptied_at = cx.now;
                self.probing.at = self.probing.at.max(cx.now + DRAIN_REST);
            }
        }
    }

    /// Responds to this epoch's losses; returns whether they decide the next state.
    fn respond_to_losses(
        &mut self,
        meaning: Meaning,
        is_queued: bool,
        epoch: &Epoch,
        cx: &mut Context<'_>,
    ) -> bool {
        match self.state {
            State::Cruise if meaning == Meaning::Congestion => {
                self.on_congestion(epoch, is_queued, cx);
            }
            State::Probe(_) if meaning == Meaning::Congestion => {
                self.losses.note_overflow(epoch);
                self.enter(State::Settle(probing::SETTLE_EPOCHS));
                self.probing.schedule(cx);
            }
            State::Cruise if meaning == Meaning::Unclear => {
                cx.log_reason(Reason::Own("suspect-losses"));
                self.losses.start_test(cx.now);
                self.start_test(epoch.lost, epoch);
            }
            State::Cruise if self.losses.is_due(cx.now) && !epoch.is_limited => {
                cx.log_reason(Reason::Own("losses-again"));
                let lost = self.losses.start_test_of_all(epoch, cx.now);
                self.start_test(lost, epoch);
            }
            _ => return false,
        }
        true
    }

    /// Responds to congestion: a queue overflowed, or a policer without a queue dropped packets.
    fn on_congestion(&mut self, epoch: &Epoch, is_queued: bool, cx: &mut Context<'_>) {
        self.start.before_silence = None;
        cx.log_reason(Reason::LossEpoch);
        if is_queued {
            let count = self.count(self.share.recent_pps().max(epoch.rate_pps));
            let full_target = self.omega_s() + self.theta_s() * spread(count);
            let longest = epoch.longest_s - self.path.base_s();
            let least = self.path.least_queue_s();
            if full_target >= TARGET_PART_MAX * longest {
                // The queue has no room for the law's signal.
                self.fallback.bound_until = cx.now + BOUND_AGE;
                self.fallback
                    .cubic
                    .get_or_insert_with(|| CubicWindow::new(self.window_packets, cx.now));
            } else if !self.competitor.is_detected()
                && count > 1.0 / ALONE_PART
                && least > (STOOD_TARGET_PART * full_target).max(STOOD_QUEUE_PART * longest)
            {
                self.competitor.note_overflow(cx.now);
                if self.competitor.is_detected() {
                    cx.log_reason(Reason::Own("competitor"));
                }
            }
            self.losses.note_overflow(epoch);
        } else {
            self.fallback.bound_until = cx.now + BOUND_AGE;
            // The arrival rate of a flow that something else limits is not the rate of the path.
            let carried = epoch.rate_pps * self.path.base_s();
            let carried = if epoch.is_limited { self.window_packets } else { carried };
            self.fallback.cubic.get_or_insert_with(|| CubicWindow::new(carried, cx.now));
        }
        let left = self.window_packets * WINDOW_KEPT * (1.0 - epoch.lost);
        self.set_window(left);
        if let Some(cubic) = &mut self.fallback.cubic {
            let beta = if is_queued { cubic::BETA } else { WINDOW_KEPT };
            cubic.shrink(beta.min(1.0 - epoch.lost), cx.now);
            self.bind(cx.now);
        }
        self.probing.schedule(cx);
        self.headroom.wait(self.probing.at);
        if is_queued
            && !self.competitor.is_detected()
            && cx.now > self.drains.began_at + DRAIN_SPACING
        {
            // All flows of this kind see the overflow and drain together.
            self.start_drain(epoch, cx);
            self.competitor.clear_drain();
        } else {
            self.enter(State::Settle(1));
        }
    }

    /// Returns the window that the flow keeps beside a competitor, in packets; zero without a competitor.
    fn kept(&self) -> f64 {
        let is_kept = self.competitor.is_detected() && self.gains.keeps_share();
        self.fallback.cubic.filter(|_| is_kept).map_or(0.0, |cubic| cubic.window())
    }

    /// After a timeout: restores half of the previous window, and all of it an epoch later, unless a queue stands.
    fn end_silence(&mut self) {
        let Some(before) = self.start.before_silence else { return };
        if self.path.queue_s() > 2.0 * self.omega_s() || self.window_packets >= before {
            self.start.before_silence = None;
        } else {
            self.set_window(if self.window_packets < before / 2.0 { before / 2.0 } else { before });
        }
    }

    /// Reduces the window if the low policy detects another flow's queue; returns whether the window was reduced.
    fn yield_if_needed(&mut self, cx: &mut Context<'_>) -> bool {
        let (queue, omega, jitter) = (self.path.queue_s(), self.omega_s(), self.path.jitter_s());
        let own = match self.state {
            State::Drain { .. } | State::Refill => return false,
            State::Probe(_) => {
                self.gains
                    .suspend_growth(cx.now + Span::from_secs_f64(self.path.base_s() + queue) * 4);
                queue
            }
            State::Cruise | State::Settle(_) | State::Test(_) => omega,
        };
        let Some(part) = self.gains.keep(cx.now, queue, own, jitter) else {
            return false;
        };
        cx.log_reason(Reason::Own("yield"));
        self.set_window(self.window_packets * part);
        self.enter(State::Cruise);
        true
    }

    /// Updates the detection of flows that fill the queue without a response to delay.
    fn watch(&mut self, epoch: &Epoch, cx: &mut Context<'_>) {
        let was_detected = self.competitor.is_detected();
        let observation = QueueObservation {
            least: self.path.least_queue_s(),
            omega: self.omega_s(),
            theta: self.theta_s(),
            thetas: spread(self.count(epoch.rate_pps)),
        };
        let most = observation.omega + observation.theta * spread(COUNT_MAX);
        if self.link.is_trained() {
            self.competitor.note_level(observation.least > most, cx.now);
        }
        let count = self.link.is_trained().then(|| self.count(epoch.rate_pps));
        self.competitor.note_queue(self.path.queue_s(), self.path.has_fallen(), count, cx.now);
        if self.competitor.judge(&observation, cx.now) {
            self.drains.emptied_at = cx.now - (DRAIN_AGE - FIRST_DRAIN);
        }
        if self.competitor.is_detected() != was_detected {
            cx.log_reason(Reason::Own(if was_detected { "competitor-gone" } else { "competitor" }));
        }
        if self.competitor.is_detected() && self.fallback.cubic.is_none() {
            let rtt = self.path.base_s() + self.path.queue_s();
            let carried = CARRIED_PART * self.link.carried_before_pps() * rtt;
            self.fallback.cubic = Some(CubicWindow::new(self.window_packets.max(carried), cx.now));
        } else if !self.competitor.is_detected() && self.fallback.bound(cx.now).is_none() {
            self.fallback.cubic = None;
        }
    }

    fn cruise(&mut self, epoch: &Epoch, cx: &mut Context<'_>) {
        let queue = self.path.queue_s();
        self.watch(epoch, cx);
        if !epoch.is_limited && !self.gains.rests(cx.now) {
            self.follow(cx.now);
        }
        if self.start.is_due(cx.now) && self.losses.recent() > LOST_LIGHT {
            // A full queue drops trains, so a search would measure nothing.
            self.start.retry_search(cx.now + SEARCH_WAIT);
        } else if self.start.is_due(cx.now) {
            self.start.begin();
            // Packets in flight would count as part of a train.
            let round = Span::from_secs_f64(2.0 * (self.path.base_s() + queue));
            self.hold_until = Some(cx.now + round);
            return;
        }
        if self.begin_check(cx) {
            return;
        }
        let is_rested = cx.now > self.drains.emptied_at + DRAIN_SPACING;
        if is_rested && !self.competitor.is_detected() && self.path.has_fallen() {
            // Another flow drains. Draining together shows every flow the path without a queue.
            self.start_drain(epoch, cx);
            return;
        }
        if queue <= self.omega_s() + self.theta_s() / 4.0 {
            self.drains.emptied_at = cx.now;
        }
        if cx.now > self.drains.emptied_at + DRAIN_AGE {
            self.start_drain(epoch, cx);
        } else if cx.now > self.probing.at && !epoch.is_limited {
            let packet = 1.0 / self.link.rate_pps().max(1.0);
            if self.losses.recent() < LOST_LIGHT
                && queue <= self.path.empty_queue_s(self.omega_s(), packet)
                && self.gains.may_probe(self.count(epoch.rate_pps), cx.now)
            {
                self.start_probe(epoch);
            } else {
                self.probing.schedule(cx);
            }
        }
    }

    /// Applies the law: the standing queue encodes the number of flows on the link.
    fn follow(&mut self, now: Instant) {
        let (base, queue) = (self.path.base_s(), self.path.queue_s());
        let rate = self.share.rate_pps();
        let target_queue = if self.link.is_trained() {
            self.gains.target_queue(self.theta_s(), base, self.count(rate), queue > self.omega_s())
        } else {
            BLIND_PACKETS / rate.max(1.0)
        };
        let target_delay = base + self.omega_s() + target_queue;
        // A queue that jitter explains does not count, unless the room for a queue is as small.
        let noise = self.path.jitter_s().min(self.losses.queue_limit_s(base) * OMEGA_QUEUE_PART);
        let target = if queue > self.omega_s().max(noise) / 2.0 {
            self.headroom.note_queue(now);
            // Random loss is compensated, but never while the queue is above the target.
            let random_loss =
                if base + queue <= target_delay { self.losses.random_loss() } else { 0.0 };
            let sent = rate / (1.0 - random_loss.min(RANDOM_LOSS_MAX));
            let second_order = (base / SECOND_ORDER_BASE).min(1.0);
            sent * target_delay * (1.0 + second_order * (target_delay / (base + queue) - 1.0))
        } else {
            let full = if self.link.is_trained() {
                self.link.rate_pps() * target_delay
            } else {
                f64::INFINITY
            };
            let by_law = self.window_packets * target_delay / (base + queue);
            let more = if self.gains.takes_headroom() { self.headroom.step(now) } else { 0.0 };
            (by_law * (1.0 + more)).min(full).max(by_law)
        };
        let target = target
            .clamp(self.window_packets / WINDOW_STEP_MAX, self.window_packets * WINDOW_STEP_MAX);
        self.set_window(self.window_packets + WEIGHT * (target - self.window_packets));
        self.bind(now);
    }

    /// Bounds the window by CUBIC's, or raises it beside a competitor. A flow that yields is never raised.
    fn bind(&mut self, now: Instant) {
        let most = if self.gains.keeps_share() { f64::INFINITY } else { self.window_packets };
        let kept = self.window_packets.max(self.kept());
        self.set_window(self.fallback.bound(now).map_or(kept, |bound| bound.min(most)));
    }

    fn start_probe(&mut self, epoch: &Epoch) {
        let extra = (self.probing.part * epoch.rate_pps * self.path.base_s())
            .max(4.0 * self.path.jitter_s() * epoch.rate_pps)
            .min(self.losses.queue_limit_s(self.path.base_s()) * epoch.rate_pps / 4.0)
            .max(2.0);
        self.enter(State::Probe(Probe {
            extra_packets: extra,
            epochs_left: probing::SETTLE_EPOCHS,
            rate_pps: epoch.rate_pps,
            queue_s: self.path.queue_s(),
        }));
    }

    /// Ends a probe. If more arrives without queueing, the window grows and a probe of twice the size follows.
    fn end_probe(&mut self, probe: &Probe, epoch: &Epoch, cx: &mut Context<'_>) {
        self.enter(State::Cruise);
        let extra = probe.extra_packets;
        let rise = self.path.queue_s() - probe.queue_s;
        let more = epoch.rate_pps - probe.rate_pps;
        let expected = probe.rate_pps * extra / self.window_packets;
        let is_standing =
            rise > self.path.jitter_s().max(extra / self.link.rate_pps().max(1.0) / 4.0);
        if !epoch.is_limited {
            // A flow alone delays its packets by all that it adds.
            let is_alone = rise > extra / self.link.rate_pps().max(1.0) / 2.0;
            self.start.checks.note_probe(is_alone, cx);
        }
        if epoch.is_limited || is_standing || more < expected / 2.0 {
            self.enter(State::Settle(probing::SETTLE_EPOCHS));
            self.probing.schedule(cx);
            return;
        }
        cx.log_reason(Reason::Own("room"));
        self.set_window(self.window_packets + extra);
        self.probing.grow();
        self.start_probe(epoch);
    }

    /// Starts a drain, which removes this flow's part of the queue for one RTT.
    fn start_drain(&mut self, epoch: &Epoch, cx: &mut Context<'_>) {
        cx.log_reason(Reason::Own("drain"));
        let (base, queue) = (self.path.base_s(), self.path.queue_s());
        self.competitor.note_drain(queue, cx.now);
        self.drains.began_at = cx.now;
        let window =
            (epoch.rate_pps * (base - 3.0 * queue).max(DRAIN_PART * base)).min(self.window_packets);
        let round = Span::from_secs_f64((base + queue).max(2.0 * queue));
        self.enter(State::Drain { window, until: cx.now + round + self.syn_interval() });
        self.path.start_drain(epoch.rate_pps >= ALONE_PART * self.link.rate_pps());
    }
}

impl Controller for Sabul2026 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "4 to 2 × 10^9")]
    fn limits(&self) -> SendLimits {
        if let Some(search) = &self.start.search {
            return SendLimits { hold_until: self.hold_until, ..search.limits() };
        }
        let (window, base) = (self.allowed(), self.path.base_s());
        let gap = (base + self.path.queue_now_s()) / window;
        // Arrived packets count as in flight until the next ACK.
        let late = self.path.lateness_s().min((base - LATE_BASE).max(0.0) / 2.0);
        let waiting = (self.path.ack_interval_s() + late + self.path.longest_back_s()) / gap;
        SendLimits {
            gap: Gap(Span::from_secs_f64(gap)),
            window: Some(Packets((window + waiting.clamp(2.0, WINDOW_MAX)).max(1.0) as u64)),
            hold_until: self.hold_until,
        }
    }

    fn on_interval(&mut self, report: &IntervalReport, cx: &mut Context<'_>) {
        if let Some(search) = &mut self.start.search {
            let step = search.on_interval(report, cx);
            self.take_step(step, cx);
        }
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        self.path.resolve(cx.now < self.fallback.bound_until);
        let epoch = self.path.on_ack(acked, cx, self.syn_interval());
        let is_held = self.hold_until.is_some_and(|until| cx.now < until);
        if self.start.checks.is_running() {
            if !is_held {
                self.check(acked, cx);
            }
        } else if let Some(search) = &mut self.start.search {
            if is_held {
                return;
            }
            let step = search.on_ack(acked, cx);
            let step = self.gains.start(search.train_rate()).unwrap_or(step);
            self.take_step(step, cx);
        } else if let Some(epoch) = epoch {
            self.on_epoch(&epoch, cx);
            self.check_invariants();
        }
    }

    fn on_loss(&mut self, loss: &LossReport, _cx: &mut Context<'_>) {
        if let Some(search) = &mut self.start.search {
            search.on_loss(loss);
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.end_check(cx);
        if let Some(search) = &self.start.search {
            cx.log_reason(Reason::SearchCutShort);
            let rate = search.after_timeout(cx);
            self.end_search(rate, cx);
        }
        // [RFC5681 §3.1] reduces further; here each timeout halves the window.
        let rate = self.window_packets / (self.path.base_s() + self.path.queue_s());
        let may_be_few = self.link.is_trained() && rate * FEW >= self.link.rate_pps();
        if self.start.before_silence.is_some() || (may_be_few && self.losses.recent() < LOST_LIGHT)
        {
            self.start.before_silence.get_or_insert(self.window_packets);
        } else {
            // Among many flows a timeout means heavy loss.
            self.fallback.bound_until = cx.now + BOUND_AGE;
            self.fallback
                .cubic
                .get_or_insert_with(|| CubicWindow::new(self.window_packets, cx.now))
                .shrink(cubic::BETA, cx.now);
        }
        // The next epochs report losses from before the timeout.
        self.start.unsettle();
        self.set_window(self.window_packets / 2.0);
        self.enter(State::Cruise);
    }

    fn constants(&self) -> Constants {
        Constants { tolerates_random_loss: true, ..Constants::default() }
    }

    fn on_policy(&mut self, policy: Policy, _cx: &mut Context<'_>) {
        self.gains = PolicyGains::of(policy);
    }

    fn on_memory(&mut self, facts: &PathFacts, _cx: &mut Context<'_>) {
        if let Some(search) = self.start.search.as_mut().filter(|_| self.gains.may_remember()) {
            search.remember(*facts);
        }
    }

    fn path(&self, packet_bytes: Bytes) -> Option<PathFacts> {
        let rate = match &self.start.search {
            Some(search) => search.offered(packet_bytes)?,
            None => {
                let carried = self.carried(packet_bytes);
                (self.link.is_trained() && carried > Rate(0)).then_some(carried)?
            }
        };
        Some(PathFacts { rate, rtt: Span::from_secs_f64(self.path.known_base_s()?) })
    }

    fn phase(&self) -> Phase {
        match (&self.start.search, self.state) {
            (Some(search), _) => search.phase(),
            (None, State::Cruise) => self.gains.phase(),
            (None, State::Probe(_)) => Phase::Named("probe"),
            (None, State::Settle(_)) => Phase::Named("settle"),
            (None, State::Test(_)) => Phase::Named("test"),
            (None, State::Drain { .. }) => Phase::Named("drain"),
            (None, State::Refill) => Phase::Named("refill"),
        }
    }
}

#[cfg(test)]
mod tests;
