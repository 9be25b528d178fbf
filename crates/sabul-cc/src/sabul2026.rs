//! SABUL of today: paced, bounded by the queue that stands, and deaf to losses that are not its own.
//!
//! Source: ours. The law is that of a delay whose height says how many share a link [FRCC]; the excess
//! packets of a probe and the drains in which all join are [FRCC]'s and [BBR3]'s; the rest is argued on
//! `docs/algorithms/sabul2026.md`.
//! Model, once an epoch (a round trip, at least a SYN interval), D what arrives a second, C the link's rate:
//!     count   = C / D                                        flows like this one on the link
//!     aim     = base + omega + theta × (count - 1)           round trip at which all have a like share
//!     window  = window × aim / (base + queue)                where no queue stands: D may be held back
//!     window += (S × aim × again - window) / 2               where one does: S is what was sent to have D arrive
//!     again   = 1 + twice × (aim / (base + queue) - 1)       twice = base / 100 ms, at most 1
//!     window >= share × C × (base + queue)                   beside one who fills the queue: `rival.rs`
//!     gap     = (base + newest queue) / window               and no more than window + an ACK's worth on the way
//! States:      Search --rate found--> Cruise
//!              Cruise --two to three seconds, and no queue--> Probe --three epochs--> Settle | Probe
//!              Settle --two epochs--> Cruise
//!              Cruise --more lost than chance explains--> Test --it stays | it went away--> Cruise
//!              Cruise --five seconds without an empty queue | another drains--> Drain --round trip--> Cruise
//!              a flow that gives way --another's queue stands--> Cruise with half the window, three seconds' rest
//! Invariants:  `WINDOW_MIN` <= window <= `WINDOW_MAX`; only the law, a test's verdict, silence, an
//!              epoch that lost more than half, and giving way shrink it.
//! Not here:    a share of its own beside one who fills the queue and empties it himself, as BBR does: the page
//!              says how much it has there.

mod link;
mod losses;
mod path;
mod policy;
mod rival;
mod room;
mod start;

use sabul_units::{Bytes, Gap, Instant, Packets, Rate, Span};

use self::link::Link;
use self::losses::{Losses, Verdict};
use self::path::{Epoch, Path};
use self::policy::Manner;
use self::rival::{Rival, Seen};
use self::room::Room;
use self::start::Start;
use crate::controller::{
    Acked, Context, Controller, IntervalReport, LossReport, SendLimits, ack_interval,
};
use crate::entry::{Entry, Family};
use crate::memory::PathFacts;
use crate::params::{ConfigError, ParamSpec, ParamValues, Unit};
use crate::policy::Policy;
use crate::reason::Reason;
use crate::search::SearchStep;

/// Ours: with fewer packets in flight a single loss would leave nothing to learn from.
const WINDOW_MIN: f64 = 4.0;
/// Ours: far beyond any path, and exact in floating point.
const WINDOW_MAX: f64 = 1e9;
/// Ours: theta is at most this part of the base round trip, and of the room in front of the link, which N
/// flows fill to N - 1 parts.
const THETA_BASE_PART: f64 = 1.0 / 5.0;
const THETA_ROOM_PART: f64 = 1.0 / 8.0;
/// Ours: the queue that keeps the link busy, in seconds: so many jitters, as what a late machine does not send is
/// taken from the queue; at least the time of one packet, which the base round trip of smaller ones does not have in it; within
/// these bounds, and at most these parts of the base round trip and of the room.
const OMEGA_JITTERS: f64 = 2.0;
const OMEGA_MIN: f64 = 0.0003;
const OMEGA_MAX: f64 = 0.008;
const OMEGA_BASE_PART: f64 = 1.0 / 8.0;
const OMEGA_ROOM_PART: f64 = 1.0 / 4.0;
/// Ours: base round trip up to which ACKs that are late hold back what they would let go; beyond it they may be late
/// by half of the rest.
const LATE_BASE: f64 = 0.004;
/// [FRCC] has no bound; ours is far above what the law was tried with.
const COUNT_MAX: f64 = 64.0;
/// [FRCC] Largest change of the window in one epoch.
const STEP: f64 = 1.3;
/// Ours: the share of the way that the window goes in one epoch. What arrives tells of the window of two
/// epochs ago, so with a whole step the even and the odd epochs would each go their own way.
const WEIGHT: f64 = 0.5;
/// Ours: base round trip from which the law counts twice, so that long round trips need no longer to agree.
const TWICE_BASE: f64 = 0.1;
/// Ours: what a probe adds to the window at first and, each doubling the one before while it finds room, at last.
const PROBE_PART: f64 = 1.0 / 16.0;
const PROBE_PART_MAX: f64 = 0.5;
/// Ours: wall clock, so that no round trip probes more often than another. [BBR3 §5.3.3.8] has the same.
const PROBE_WAIT: Span = Span::from_secs(2);
const PROBE_WAIT_MORE_NS: u64 = 1_000_000_000;
/// Ours: epochs in which a probe's packets spread over the round trip; the one after is measured.
const PROBE_SETTLES: u32 = 2;
/// Ours: after a drain the queue is no measure for this long.
const DRAIN_REST: Span = Span::from_millis(500);
/// [BBR3 §2] Longest time without an empty queue. A flow that came late drains this soon after its search, and one
/// whose drain left a queue does so again.
const DRAIN_AGE: Span = Span::from_secs(5);
const FIRST_DRAIN: Span = Span::from_millis(500);
/// Ours: least time between two drains.
const DRAIN_SPACING: Span = Span::from_secs(1);
/// Ours: the part of the window that a test of losses leaves, and that is left where they were its own.
const TEST_PART: f64 = 0.85;
/// Ours: no path is believed to lose more than this by chance; what loses more is overrun.
const LOST_MAX: f64 = 0.5;
/// Ours: this flow is alone if it has at least this part of the link.
const ALONE_PART: f64 = 0.8;

pub(crate) const ENTRY: Entry = Entry {
    name: "sabul2026",
    summary: "SABUL of today: paced, bounded by the queue that stands, deaf to losses that are not its own",
    source: "ours, on [FRCC] and [BBR3]; docs/algorithms/sabul2026.md",
    params: PARAMS,
    family: Family::Rate,
    is_adaptive: true,
    follows_policy: true,
    remembers_path: true,
    build,
};

const PARAMS: &[ParamSpec] = &[ParamSpec {
    name: "theta_ms",
    unit: Unit::Millis,
    default: "2",
    range: (0.1, 100.0),
    doc: "Queueing delay that each further flow of this kind adds; less where the round trip or the \
          room in front of the link is short",
    source: "ours, calculated: two flows whose bases differ by 1.3 ms then still have Jain 0.98",
}];

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Cruise,
    /// `extra` packets more than the window, until the epoch after `settles` more is measured against
    /// the rate and queue of before.
    Probe {
        extra: f64,
        settles: u32,
        rate: f64,
        queue: f64,
    },
    /// The window of before, for so many epochs, while what a probe left is being heard of.
    Settle(u32),
    /// This part of the window, less than what arrives: the share that was lost before either stays or goes away.
    Test {
        is_standing: bool,
        part: f64,
        lost: f64,
        rate: f64,
    },
    /// This window until then, so that the queue empties and shows the base round trip.
    Drain {
        window: f64,
        until: Instant,
    },
    /// The window again, while what the drain left of the queue is still being heard of.
    Refill,
}

#[derive(Debug)]
struct Sabul2026 {
    start: Start,
    state: State,
    /// Packets.
    window: f64,
    hold_until: Option<Instant>,
    path: Path,
    link: Link,
    losses: Losses,
    /// Seconds.
    theta: f64,
    manner: Manner,
    probe_at: Instant,
    probe_part: f64,
    room: Room,
    rival: Rival,
    /// When the queue was last seen empty.
    emptied_at: Instant,
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let mut controller = Sabul2026::new(params.number("theta_ms") / 1e3);
    controller.start.begin();
    Ok(Box::new(controller))
}

fn packets_per_second(rate: Rate, packet_bytes: Bytes) -> f64 {
    rate.0 as f64 / (8.0 * packet_bytes.0.max(1) as f64)
}

impl Sabul2026 {
    /// One that knows nothing of the path yet, and does not search.
    const fn new(theta: f64) -> Self {
        Self {
            start: Start::none(),
            state: State::Cruise,
            window: WINDOW_MIN,
            hold_until: None,
            path: Path::new(),
            link: Link::new(),
            losses: Losses::new(),
            theta,
            manner: Manner::of(Policy::Fair),
            probe_at: Instant::ZERO,
            probe_part: PROBE_PART,
            room: Room::new(),
            rival: Rival::none(),
            emptied_at: Instant::ZERO,
        }
    }

    /// Seconds of queue that each further flow adds.
    fn theta(&self) -> f64 {
        let base = self.path.base();
        let room = self.losses.room(base);
        self.manner.theta(self.theta).min(base * THETA_BASE_PART).min(room * THETA_ROOM_PART)
    }

    /// Seconds of queue that keep the link busy.
    fn omega(&self) -> f64 {
        let base = self.path.base();
        let room = self.losses.room(base);
        let link = self.link.rate();
        let packet = if link > 0.0 { 1.0 / link } else { 0.0 };
        let least = (OMEGA_JITTERS * self.path.jitter()).max(packet).clamp(OMEGA_MIN, OMEGA_MAX);
        let omega = self.manner.omega(least);
        omega.min(base * OMEGA_BASE_PART).min(room * OMEGA_ROOM_PART)
    }

    /// How many flows like this one share the link, if `rate` is what arrives of it.
    fn count(&self, rate: f64) -> f64 {
        if rate > 0.0 { (self.link.rate() / rate).clamp(1.0, COUNT_MAX) } else { COUNT_MAX }
    }

    /// The window that the state allows.
    fn allowed(&self) -> f64 {
        let window = match self.state {
            State::Cruise | State::Settle(_) | State::Refill => self.window,
            State::Probe { extra, .. } => self.window + extra,
            State::Test { part, .. } => self.window * part,
            State::Drain { window, .. } => window,
        };
        window.clamp(WINDOW_MIN, WINDOW_MAX)
    }

    const fn set_window(&mut self, packets: f64) {
        self.window = packets.clamp(WINDOW_MIN, WINDOW_MAX);
    }

    fn take_step(&mut self, step: SearchStep, cx: &mut Context<'_>) {
        let (rate, hold) = match step {
            SearchStep::Continue => return,
            SearchStep::Found { rate, hold } => (rate, hold),
            SearchStep::Overrun { rate } => {
                cx.tell(Reason::SearchCutShort);
                self.end_search(rate.max(self.carried(cx.packet_bytes).mul_ratio(1, 2)), cx);
                return;
            }
        };
        cx.tell(Reason::RateFound);
        self.link.note(packets_per_second(rate, cx.packet_bytes), cx.now);
        self.end_search(rate, cx);
        self.hold_until = hold.map(|span| cx.now + span);
        if hold.is_none() && self.is_alone(packets_per_second(rate, cx.packet_bytes)) {
            // No queue has shown that this is all: trains that a machine stretched say less than the link carries.
            self.probe_at = cx.now;
        }
    }

    /// The most that arrived in the last seconds; nothing before the first search.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate that was seen"
    )]
    fn carried(&self, packet_bytes: Bytes) -> Rate {
        Rate((self.link.carried() * 8.0 * packet_bytes.0 as f64) as u64)
    }

    /// Whether one who has this rate has the link to himself, by what its trains have shown.
    fn is_alone(&self, rate: f64) -> bool {
        self.link.is_trained() && rate >= ALONE_PART * self.link.rate()
    }

    /// Goes on at this rate. Trains that arrived faster were the link's rate, whoever else used it.
    fn end_search(&mut self, rate: Rate, cx: &mut Context<'_>) {
        let trained = self.start.end();
        let rate = packets_per_second(rate, cx.packet_bytes);
        let trained = trained.map(|found| packets_per_second(found, cx.packet_bytes));
        self.link.train(trained, cx.now);
        self.set_window(rate * (self.path.base() + self.omega()));
        self.schedule_probe(cx);
        if !self.link.is_trained() {
            self.start.ask_again(self.probe_at);
        }
        // Who came late has taken the others' queue for part of the path.
        self.emptied_at =
            cx.now - if self.is_alone(rate) { Span::ZERO } else { DRAIN_AGE - FIRST_DRAIN };
    }

    fn schedule_probe(&mut self, cx: &mut Context<'_>) {
        let more = Span::from_nanos(cx.random.below(PROBE_WAIT_MORE_NS));
        self.probe_at = cx.now + PROBE_WAIT + more;
        self.probe_part = PROBE_PART;
    }

    fn on_epoch(&mut self, epoch: &Epoch, cx: &mut Context<'_>) {
        self.link.note(epoch.carried, cx.now);
        // The search has a part in it.
        if !self.start.note_epoch() {
            return;
        }
        if epoch.lost > LOST_MAX {
            cx.tell(Reason::LossEpoch);
            self.set_window(self.window / 2.0);
            self.state = State::Cruise;
            return;
        }
        let is_suspect = self.losses.note(epoch);
        if self.yields(cx) {
            return;
        }
        match self.state {
            State::Cruise if is_suspect => {
                cx.tell(Reason::Own("suspect-losses"));
                self.losses.start_test(epoch, cx.now);
                self.start_test(epoch.lost, epoch);
            }
            State::Cruise if self.losses.is_due(cx.now) && !epoch.is_limited => {
                cx.tell(Reason::Own("losses-again"));
                let lost = self.losses.start_test_of_all(epoch, cx.now);
                self.start_test(lost, epoch);
            }
            State::Cruise => self.cruise(epoch, cx),
            State::Probe { extra, settles, rate, queue } if settles > 0 => {
                self.state = State::Probe { extra, settles: settles - 1, rate, queue };
            }
            State::Probe { extra, rate, queue, .. } => {
                self.end_probe(extra, rate, queue, epoch, cx);
            }
            State::Settle(epochs) => {
                self.state = if epochs > 1 { State::Settle(epochs - 1) } else { State::Cruise };
            }
            State::Test { is_standing: false, part, lost, rate } => {
                let (lost, rate) = (lost.max(epoch.lost), rate.max(epoch.rate));
                self.state = State::Test { is_standing: true, part, lost, rate };
            }
            State::Test { is_standing: true, part, lost, rate } => {
                self.end_test(part, lost, rate, epoch, cx);
            }
            State::Drain { until, .. } => {
                if cx.now >= until {
                    self.state = State::Refill;
                }
            }
            State::Refill => {
                self.path.end_drain();
                self.state = State::Cruise;
                self.emptied_at = cx.now;
                self.probe_at = self.probe_at.max(cx.now + DRAIN_REST);
            }
        }
    }

    /// Whether it gives way to whoever's queue stands.
    fn yields(&mut self, cx: &mut Context<'_>) -> bool {
        let (queue, omega, jitter) = (self.path.queue(), self.omega(), self.path.jitter());
        let own = match self.state {
            State::Drain { .. } | State::Refill => return false,
            State::Probe { .. } => {
                self.manner.settle(cx.now + Span::from_secs_f64(self.path.base() + queue) * 4);
                queue
            }
            State::Cruise | State::Settle(_) | State::Test { .. } => omega,
        };
        let Some(part) = self.manner.keep(cx.now, queue, own, jitter) else {
            return false;
        };
        cx.tell(Reason::Own("yield"));
        self.set_window(self.window * part);
        self.state = State::Cruise;
        true
    }

    /// Looks for somebody who fills the queue and does not hear it.
    fn watch(&mut self, epoch: &Epoch, cx: &mut Context<'_>) {
        let was_known = self.rival.is_known();
        let seen = Seen {
            least: self.path.least_queue(),
            omega: self.omega(),
            theta: self.theta(),
            count: self.count(epoch.rate),
        };
        if self.rival.judge(&seen, cx.now) {
            self.emptied_at = cx.now - (DRAIN_AGE - FIRST_DRAIN);
        }
        if self.rival.is_known() != was_known {
            cx.tell(Reason::Own(if was_known { "rival-gone" } else { "rival" }));
        }
    }

    fn cruise(&mut self, epoch: &Epoch, cx: &mut Context<'_>) {
        let queue = self.path.queue();
        self.watch(epoch, cx);
        if !epoch.is_limited && !self.manner.rests(cx.now) {
            self.follow(epoch, cx.now);
        }
        if self.start.is_due(cx.now) {
            self.start.begin();
            // What is on the way would be taken for a train.
            let round = Span::from_secs_f64(2.0 * (self.path.base() + queue));
            self.hold_until = Some(cx.now + round);
            return;
        }
        let is_rested = cx.now > self.emptied_at + DRAIN_SPACING;
        if is_rested && self.path.has_fallen() {
            // Somebody drains: who joins sees the path without a queue too.
            self.rival.note_fall(cx.now);
            let own = self.window - 2.0 * self.path.queue_before() * epoch.rate;
            self.start_drain(own.max(self.window / 2.0), epoch, cx);
            return;
        }
        if queue <= self.omega() + self.theta() / 4.0 {
            self.emptied_at = cx.now;
        }
        if cx.now > self.emptied_at + DRAIN_AGE {
            self.start_drain(self.window / 2.0, epoch, cx);
        } else if cx.now > self.probe_at && !epoch.is_limited {
            if queue <= self.omega() * 1.5 && self.manner.may_probe(self.count(epoch.rate), cx.now)
            {
                self.start_probe(epoch);
            } else {
                self.schedule_probe(cx);
            }
        }
    }

    /// The law: the queue that stands says how many share the link.
    fn follow(&mut self, epoch: &Epoch, now: Instant) {
        let (base, queue) = (self.path.base(), self.path.queue());
        let count = self.count(epoch.rate);
        let ask = self.manner.ask(self.theta(), base, count, queue > self.omega());
        let aim = base + self.omega() + ask;
        // A queue that jitter may have made up is none, unless the room for one is as small.
        let noise = self.path.jitter().min(self.losses.room(base) * OMEGA_ROOM_PART);
        let target = if queue > self.omega().max(noise) / 2.0 {
            self.room.note_queue(now);
            // What chance takes has to be sent too.
            let sent = epoch.rate / (1.0 - self.losses.chance().min(LOST_MAX));
            let twice = (base / TWICE_BASE).min(1.0);
            sent * aim * (1.0 + twice * (aim / (base + queue) - 1.0))
        } else {
            let full = if self.link.is_trained() { self.link.rate() * aim } else { f64::INFINITY };
            let by_law = self.window * aim / (base + queue);
            let more = if self.manner.takes_room() { self.room.step(now) } else { 0.0 };
            (by_law * (1.0 + more)).min(full).max(by_law)
        };
        let target = target.clamp(self.window / STEP, self.window * STEP);
        self.set_window(self.window + WEIGHT * (target - self.window));
        if self.manner.keeps_share() {
            let share = self.rival.share(self.link.is_trained(), now);
            // Never far beyond what arrives, whatever the link is thought to carry.
            let rate = (share * self.link.rate()).min(epoch.rate * STEP);
            self.set_window(self.window.max(rate * (base + queue)));
        }
    }

    fn start_probe(&mut self, epoch: &Epoch) {
        let extra = (self.probe_part * epoch.rate * self.path.base())
            .max(4.0 * self.path.jitter() * epoch.rate)
            .min(self.losses.room(self.path.base()) * epoch.rate / 4.0)
            .max(2.0);
        let queue = self.path.queue();
        self.state = State::Probe { extra, settles: PROBE_SETTLES, rate: epoch.rate, queue };
    }

    /// More arrives, and does not wait: there is room, and perhaps for twice as much.
    fn end_probe(
        &mut self,
        extra: f64,
        rate: f64,
        queue: f64,
        epoch: &Epoch,
        cx: &mut Context<'_>,
    ) {
        self.state = State::Cruise;
        let rise = self.path.queue() - queue;
        let more = epoch.rate - rate;
        let expected = rate * extra / self.window;
        let is_standing = rise > self.path.jitter().max(extra / self.link.rate().max(1.0) / 4.0);
        if epoch.is_limited || is_standing || more < expected / 2.0 {
            self.state = State::Settle(PROBE_SETTLES);
            self.schedule_probe(cx);
            return;
        }
        cx.tell(Reason::Own("room"));
        self.set_window(self.window + extra);
        self.probe_part = (self.probe_part * 2.0).min(PROBE_PART_MAX);
        self.start_probe(epoch);
    }

    /// Sends less than what arrives, whatever takes this share of it.
    const fn start_test(&mut self, lost: f64, epoch: &Epoch) {
        let excess = (lost - self.losses.chance()).max(0.0);
        let part = TEST_PART * (1.0 - excess);
        self.state = State::Test { is_standing: false, part, lost, rate: epoch.rate };
    }

    fn end_test(&mut self, part: f64, lost: f64, rate: f64, epoch: &Epoch, cx: &mut Context<'_>) {
        match self.losses.judge(lost, epoch) {
            Verdict::Open => {}
            Verdict::Chance => {
                cx.tell(Reason::Own("losses-stay"));
                self.state = State::Cruise;
            }
            Verdict::Ours => {
                cx.tell(Reason::LossEpoch);
                // Who had the link to itself knows how much it carries.
                let is_alone = rate >= ALONE_PART * self.link.rate();
                let carried = if is_alone { rate * self.path.base() } else { 0.0 };
                self.set_window((self.window * part).max(carried.min(self.window)));
                if !is_alone {
                    self.rival.note_overflow(1.0 / self.count(epoch.rate), cx.now);
                }
                self.schedule_probe(cx);
                self.room.wait(self.probe_at);
                self.state = State::Cruise;
            }
        }
    }

    fn start_drain(&mut self, window: f64, epoch: &Epoch, cx: &mut Context<'_>) {
        cx.tell(Reason::Own("drain"));
        let (base, queue) = (self.path.base(), self.path.queue());
        self.rival.note_drain(queue, cx.now);
        let round = Span::from_secs_f64((base + queue).max(2.0 * queue));
        self.state = State::Drain { window, until: cx.now + round + self.syn_interval() };
        self.path.start_drain(epoch.rate >= ALONE_PART * self.link.rate());
    }
}

impl Controller for Sabul2026 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "4 to 2 × 10^9")]
    fn limits(&self) -> SendLimits {
        if let Some(search) = &self.start.search {
            return SendLimits { hold_until: self.hold_until, ..search.limits() };
        }
        let (window, base) = (self.allowed(), self.path.base());
        let gap = (base + self.path.queue_now()) / window;
        // What has arrived counts as on the way until the next ACK.
        let late = self.path.lateness().min((base - LATE_BASE).max(0.0) / 2.0);
        let waiting = (ack_interval(Span::from_secs_f64(base)).as_secs_f64() + late) / gap;
        SendLimits {
            gap: Gap(Span::from_secs_f64(gap)),
            window: Some(Packets((window + waiting.clamp(2.0, WINDOW_MAX)) as u64)),
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
        let epoch = self.path.on_ack(acked, cx, self.syn_interval());
        let is_held = self.hold_until.is_some_and(|until| cx.now < until);
        if let Some(search) = &mut self.start.search {
            if is_held {
                return;
            }
            let step = search.on_ack(acked, cx);
            let step = self.manner.start(search.train_rate()).unwrap_or(step);
            self.take_step(step, cx);
        } else if let Some(epoch) = epoch {
            self.on_epoch(&epoch, cx);
        }
    }

    fn on_loss(&mut self, loss: &LossReport, _cx: &mut Context<'_>) {
        if let Some(search) = &mut self.start.search {
            search.on_loss(loss);
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        if let Some(search) = &self.start.search {
            cx.tell(Reason::SearchCutShort);
            let rate = search.fallback(cx);
            self.end_search(rate, cx);
        }
        // [RFC5681 §3.1] is harsher; here silence halves, and goes on halving.
        self.set_window(self.window / 2.0);
        self.state = State::Cruise;
    }

    fn tells_chance(&self) -> bool {
        true
    }

    fn on_policy(&mut self, policy: Policy, _cx: &mut Context<'_>) {
        self.manner = Manner::of(policy);
    }

    fn on_memory(&mut self, facts: &PathFacts, _cx: &mut Context<'_>) {
        if let Some(search) = self.start.search.as_mut().filter(|_| self.manner.may_remember()) {
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
        Some(PathFacts { rate, rtt: Span::from_secs_f64(self.path.known_base()?) })
    }

    fn phase(&self) -> &'static str {
        match (&self.start.search, self.state) {
            (Some(search), _) => search.phase(),
            (None, State::Cruise) => "cruise",
            (None, State::Probe { .. }) => "probe",
            (None, State::Settle(_)) => "settle",
            (None, State::Test { .. }) => "test",
            (None, State::Drain { .. }) => "drain",
            (None, State::Refill) => "refill",
        }
    }
}

#[cfg(test)]
mod tests;
