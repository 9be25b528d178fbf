//! BBR version 3: paces at the measured delivery rate; losses bound the packets in flight.
//!
//! Source: [BBR3]; section numbers stand at the code.
//! Model:       max_bw   = largest delivery rate of this probing cycle and the previous cycle
//!              bw       = min(max_bw, bw_short)
//!              rtt_min  = smallest RTT of ten seconds; BDP = bw × rtt_min
//!              gap      = packet / (0.99 × gain × bw)
//!              cwnd     = cwnd_gain × BDP + ACK aggregation, at least 4, at most the bounds
//!              long     = packets in flight at a probe that lost more than 2 %; raised by probing
//!              short    = delivered bw and inflight while losses occur, until the next probe
//! States, with gain and cwnd_gain:
//!              Search (ours, `start=search`) --rate found--> Drain
//!              Startup (2.77, 2) --three rounds without a quarter more, or a round of loss--> Drain
//!              Drain (0.5, 2) --BDP in flight, or after three rounds--> Down
//!              Down (0.9, 2) --room below the bounds--> Cruise (1, 2)
//!              Down | Cruise --two to three seconds, or as many rounds as Reno would--> Refill (1, 2)
//!              Refill --a round--> Up (1.25, 2.25) --full, or loss, or the bound of last time--> Down
//!              any --rtt_min five seconds old--> ProbeRtt (1, 0.5) --200 ms and a round--> Cruise
//! Invariants:  1 <= window; a rate only from samples; bounds never below 4 packets in effect.
//! Not here:    ECN; undo after a false loss report; the offload quantum and the restart after idle
//!              time, which no callback reports. DEV-051, DEV-052.

mod chance;
mod flight;
mod path;

use sabul_units::{Bytes, Gap, Instant, Packets, Span};

use self::chance::{Chance, shows_queue};
use self::flight::{Flight, LossRound};
use self::path::{FullPipe, Lumps, RateFilter, RttFilter};
use super::delivery::{Delivery, Sample};
use super::window::INITIAL_WINDOW;
use crate::controller::{
    Acked, Constants, Context, Controller, IntervalReport, LossReport, SendLimits, SentNumber,
};
use crate::entry::{Entry, Family};
use crate::params::{ConfigError, ParamSpec, ParamValues};
use crate::phase::Phase;
use crate::reason::Reason;
use crate::search::{RateSearch, SearchStep};

/// [BBR3 §5.6.2] Pacing leaves one per cent unused, so that queues drain eventually.
const MARGIN: f64 = 0.99;
/// [BBR3 §2] A probe that loses more than this share of the packets in flight was too high.
const LOSS_MAX: f64 = 0.02;
/// [BBR3 §2] Least part that one round of losses leaves, as in CUBIC.
const BETA: f64 = 0.7;
/// [BBR3 §2] Part of the bound left to other flows while cruising.
const HEADROOM: f64 = 0.15;
/// [BBR3 §2] Smallest window that keeps data and ACKs moving.
const CWND_MIN: f64 = 4.0;
/// [BBR3 §5.6.4.2] Packets added to the window while probing upwards.
const CWND_UP: f64 = 2.0;
/// [BBR3 §2] Startup ends after a round with this many losses; DEV-051.
const STARTUP_LOST: f64 = 6.0;
/// [BBR3 §5.3.2] Rounds after which Drain ends in any case.
const DRAIN_ROUNDS: u64 = 3;
/// [BBR3 §2] Length of an RTT probe.
const PROBE_RTT: Span = Span::from_millis(200);
/// [BBR3 §5.3.3.8] Least time between two bandwidth probes, and the largest random addition.
const PROBE_WAIT: Span = Span::from_secs(2);
const PROBE_WAIT_MORE_NS: u64 = 1_000_000_000;
/// [BBR3 §5.3.3.8] Most rounds between two bandwidth probes.
const RENO_ROUNDS: f64 = 63.0;
/// [BBR3 §5.3.3.9] Most doublings of the slope at which a probe raises its bound.
const UP_ROUNDS: u32 = 30;
/// [BBR3 §5.6.2] RTT used for the first gap, before a measurement.
const RTT_FIRST: Span = Span::from_millis(1);
/// Ours: the window is the limit if at most this many of its packets are free.
const SLACK: f64 = 2.0;

pub(crate) const ENTRY: Entry = Entry::new("bbr3", Family::PacedWindow, build)
    .summary("BBR version 3: as bbr1, but loss limits the data in flight and the probes")
    .source("[BBR3] Cardwell, Swett, Beshay (editors), Internet-Draft of 2026")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    ParamSpec::word("start", &["search", "startup"], "search")
        .doc("Start of the flow: 'search' finds the rate in a few RTTs; 'startup', as in the draft, \
              multiplies the rate by up to 2.77 per RTT")
        .source("startup: [BBR3 §5.3.1]; search: ours"),
    ParamSpec::word("loss", &["measured", "draft"], "measured")
        .doc("Losses that limit the rate: 'measured' counts losses above the random loss of the path, in all \
              rounds; 'draft' counts all losses in the short term, and more than 2 % in a probe")
        .source("draft: [BBR3 §5.5.10]; measured: ours, DEV-053"),
    INITIAL_WINDOW,
];

/// Parameter values: whether random loss is measured.
const IS_MEASURED: [(&str, bool); 2] = [("measured", true), ("draft", false)];
/// Parameter values: whether the flow starts with the search.
const IS_SEARCHING: [(&str, bool); 2] = [("search", true), ("startup", false)];

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Startup,
    /// Holds the round in which the state began.
    Drain(u64),
    Down,
    Cruise,
    Refill,
    Up,
    /// `until` is set once at most its window is in flight; a round must pass as well.
    ProbeRtt {
        until: Option<Instant>,
        is_round_over: bool,
    },
}

impl State {
    /// [BBR3 §5.6.1] Returns the pacing gain and the window gain.
    const fn gains(self) -> (f64, f64) {
        match self {
            Self::Startup => (2.77, 2.0),
            Self::Drain(_) => (0.5, 2.0),
            Self::Down => (0.9, 2.0),
            Self::Cruise | Self::Refill => (1.0, 2.0),
            Self::Up => (1.25, 2.25),
            Self::ProbeRtt { .. } => (1.0, 0.5),
        }
    }

    const fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// Returns whether the state sends faster than the delivery rate. Losses then show nothing
    /// about the short term.
    const fn is_accelerating(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }
}

/// Bounds set by losses, in packets and packets a second; infinite where nothing is bounded.
#[derive(Debug)]
struct Bounds {
    inflight_long: f64,
    inflight_short: f64,
    bw_short: f64,
}

/// Newest bandwidth probe. [BBR3 §5.3.3]
#[derive(Debug)]
struct Probe {
    /// Start of Down, time until the next probe, and rounds since the start.
    started: Instant,
    wait: Span,
    rounds: f64,
    /// True while packets that arrive now were sent by the probe.
    is_sampling: bool,
    /// True while Down still receives feedback on packets sent in Up.
    is_stopping: bool,
    was_too_high: bool,
    was_precautionary: bool,
    /// In Up: doublings of the slope so far, arrivals per added packet, and arrivals counted so
    /// far.
    up_rounds: u32,
    acked_per_packet: f64,
    acked: f64,
}

/// Window in packets.
#[derive(Debug)]
struct Window {
    initial: f64,
    cwnd: f64,
    /// Window to restore after a timeout or [`State::ProbeRtt`].
    before: f64,
}

#[derive(Debug)]
struct Bbr3 {
    state: State,
    /// The rate search, which sets the limits until it has found a rate.
    search: Option<RateSearch>,
    delivery: Delivery,
    rtt: RttFilter,
    max_bw: RateFilter,
    full: FullPipe,
    lumps: Lumps,
    bounds: Bounds,
    probe: Probe,
    losses: LossRound,
    /// `None` under the draft's rules.
    chance: Option<Chance>,
    /// Pacing rate in packets a second.
    pace: f64,
    window: Window,
    flight: Flight,
    /// Largest number sent at a timeout; `None` once a later packet has arrived.
    timeout_point: Option<SentNumber>,
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let mut bbr = Bbr3::new(params.number(INITIAL_WINDOW.name));
    bbr.chance = params.choice("loss", &IS_MEASURED).then(Chance::default);
    bbr.search = params.choice("start", &IS_SEARCHING).then(RateSearch::new);
    Ok(Box::new(bbr))
}

impl Bbr3 {
    fn new(cwnd: f64) -> Self {
        Self {
            state: State::Startup,
            search: None,
            delivery: Delivery::new(),
            rtt: RttFilter::default(),
            max_bw: RateFilter::default(),
            full: FullPipe::default(),
            lumps: Lumps::new(),
            bounds: Bounds {
                inflight_long: f64::INFINITY,
                inflight_short: f64::INFINITY,
                bw_short: f64::INFINITY,
            },
            probe: Probe {
                started: Instant::ZERO,
                wait: PROBE_WAIT,
                rounds: 0.0,
                is_sampling: false,
                is_stopping: false,
                was_too_high: false,
                was_precautionary: false,
                up_rounds: 0,
                acked_per_packet: f64::INFINITY,
                acked: 0.0,
            },
            losses: LossRound::default(),
            chance: None,
            pace: first_pace(cwnd, RTT_FIRST),
            window: Window { initial: cwnd, cwnd, before: 0.0 },
            flight: Flight::default(),
            timeout_point: None,
        }
    }

    /// Processes a step of the search. After a success, train samples are dropped and the search's
    /// queue is drained as after Startup.
    fn take_step(&mut self, step: SearchStep, cx: &mut Context<'_>) {
        let rate = match step {
            SearchStep::Continue => return,
            SearchStep::Found { rate, .. } => rate,
            SearchStep::Overrun { .. } => {
                self.abandon_search(cx);
                return;
            }
        };
        cx.log_reason(Reason::RateFound);
        self.search = None;
        let bw = rate.0 as f64 / (8.0 * cx.packet_bytes.0.max(1) as f64);
        self.max_bw = RateFilter::default();
        self.max_bw.keep(bw);
        self.full.is_reached = true;
        self.state = State::Drain(self.delivery.rounds());
        self.set_pace(cx);
        self.window.cwnd = self.budget(self.state.gains().1 * self.product(bw));
    }

    /// Ends a search that losses or a timeout cut short; Startup continues.
    fn abandon_search(&mut self, cx: &mut Context<'_>) {
        if self.search.take().is_some() {
            cx.log_reason(Reason::SearchCutShort);
            self.set_pace(cx);
            self.window.cwnd = self.window.cwnd.max(self.budget(self.product(self.bw())));
        }
    }

    /// [BBR3 §5.5.10.3] Returns the bandwidth in packets a second; zero before the first sample.
    const fn bw(&self) -> f64 {
        self.max_bw.max().min(self.bounds.bw_short)
    }

    /// Returns `bw` × smallest RTT, in packets.
    fn product(&self, bw: f64) -> f64 {
        bw * self.rtt.min.unwrap_or(Span::ZERO).as_secs_f64()
    }

    /// [BBR3 §5.6.4.2] Returns the packets in flight that `product` requires.
    fn budget(&self, product: f64) -> f64 {
        product.max(CWND_MIN) + if self.state == State::Up { CWND_UP } else { 0.0 }
    }

    /// [BBR3 §5.3.3.8]
    fn target(&self) -> f64 {
        self.product(self.bw()).min(self.window.cwnd)
    }

    /// [BBR3 §5.3.3.9] Returns the bound less the headroom for other flows.
    fn inflight_with_headroom(&self) -> f64 {
        let long = self.bounds.inflight_long;
        if long.is_infinite() { long } else { (long - (HEADROOM * long).max(1.0)).max(CWND_MIN) }
    }

    fn is_at_bound(&self) -> bool {
        self.window.cwnd >= self.bounds.inflight_long
            && self.flight.before + SLACK >= self.window.cwnd
    }

    /// [BBR3 §5.5.10.2] Returns whether the losses exceed those of a path with room.
    fn is_too_much(&self, sample: Sample) -> bool {
        let (share, spread) = self.by_chance(sample.in_flight);
        sample.lost > (share + LOSS_MAX.max(spread)) * sample.in_flight
    }

    /// DEV-053: returns whether the losses exceed random loss.
    fn is_news(&self, sample: Sample) -> bool {
        let (share, spread) = self.by_chance(sample.in_flight);
        sample.lost > (share + spread) * sample.in_flight
    }

    /// Returns the share of random loss, and its deviation for this number of packets.
    fn by_chance(&self, packets: f64) -> (f64, f64) {
        self.chance.as_ref().map_or((0.0, 0.0), |chance| (chance.share(), chance.spread(packets)))
    }

    /// [BBR3 §5.5.10.2] Evaluates the newest losses of a probe, DEV-051; returns true if they end
    /// Up.
    fn judge_probe(&mut self, newly_lost: f64, sample: Sample, cx: &mut Context<'_>) -> bool {
        let is_judged = self.probe.is_sampling && self.timeout_point.is_none();
        if newly_lost <= 0.0 || !is_judged || !self.is_too_much(sample) {
            return false;
        }
        cx.log_reason(Reason::LossBound);
        // Once per probe, and no lower than CUBIC would go.
        self.probe.was_too_high = true;
        self.probe.is_sampling = false;
        if !self.delivery.is_app_limited() {
            self.bounds.inflight_long = sample.in_flight.max(BETA * self.target());
        }
        let is_up = self.state == State::Up;
        if is_up {
            self.enter_down(cx);
        }
        is_up
    }

    /// [BBR3 §5.5.10.3] Records the newest round; at its end, evaluates its losses.
    fn note_round(&mut self, sample: Sample, is_over: bool, cx: &mut Context<'_>) {
        self.losses.keep(sample);
        if is_over {
            if self.losses.lost > 0.0 {
                self.end_round_of_loss(sample, cx);
            }
            self.losses.lost = 0.0;
        }
    }

    fn end_round_of_loss(&mut self, sample: Sample, cx: &mut Context<'_>) {
        if self.state == State::Startup {
            // [BBR3 §5.3.1.3]; DEV-053: chance needs more rounds, but a full queue raises the RTT.
            let rtt_min = self.rtt.min.unwrap_or(Span::ZERO);
            let is_full = cx.rtt.is_none_or(|rtt| shows_queue(rtt.latest, rtt_min));
            let is_ours = self.chance.is_none() || is_full;
            if is_ours && self.losses.lost >= STARTUP_LOST && self.is_too_much(sample) {
                cx.log_reason(Reason::LossBound);
                self.full.is_reached = true;
                let product = self.product(self.bw());
                self.bounds.inflight_long = product.max(self.losses.inflight_latest);
            }
        } else if !self.state.is_accelerating() && (self.chance.is_none() || self.is_news(sample)) {
            // [BBR3 §5.5.10.3]; DEV-053.
            cx.log_reason(Reason::LossBound);
            let bounds = &mut self.bounds;
            bounds.bw_short = bounds.bw_short.min(self.max_bw.max()) * BETA;
            bounds.bw_short = bounds.bw_short.max(self.losses.bw_latest);
            let short = if bounds.inflight_short.is_finite() {
                bounds.inflight_short
            } else {
                self.window.cwnd
            };
            bounds.inflight_short = (BETA * short).max(self.losses.inflight_latest);
        }
    }

    /// Takes the transitions at the end of a round or at a state's goal.
    fn step(&mut self, newly: f64, is_new_round: bool, sample: Sample, cx: &mut Context<'_>) {
        if self.state == State::Startup && self.full.is_reached {
            self.state = State::Drain(self.delivery.rounds());
        }
        if let State::Drain(since) = self.state
            && (self.flight.packets <= self.budget(self.product(self.bw()))
                || self.delivery.rounds() > since + DRAIN_ROUNDS)
        {
            self.enter_down(cx);
        }
        if !self.full.is_reached || self.adapt_long_bound(newly, is_new_round, sample) {
            return;
        }
        self.probe.rounds += f64::from(u8::from(is_new_round));
        match self.state {
            State::Down | State::Cruise => {
                // DEV-052: no probe with the small window after a timeout.
                let is_time = cx.now > self.probe.started + self.probe.wait
                    || self.probe.rounds >= self.target().min(RENO_ROUNDS);
                if is_time && self.timeout_point.is_none() {
                    self.enter_refill();
                } else if self.flight.packets
                    <= self
                        .inflight_with_headroom()
                        .min(self.budget(self.product(self.max_bw.max())))
                {
                    self.state = State::Cruise;
                }
            }
            State::Refill if is_new_round => self.enter_up(sample),
            State::Up => self.end_probe_in_time(sample, cx),
            _ => {}
        }
    }

    /// [BBR3 §5.3.3.9] Raises the bound unless losses forbid it; returns true if the state changed.
    fn adapt_long_bound(&mut self, newly: f64, is_new_round: bool, sample: Sample) -> bool {
        if self.probe.is_stopping && is_new_round {
            self.probe.is_sampling = false;
            self.probe.is_stopping = false;
            if self.state.is_probe_bw() {
                if !self.delivery.is_app_limited() {
                    self.max_bw.advance();
                }
                if self.probe.was_precautionary && !self.probe.was_too_high {
                    self.enter_refill();
                    return true;
                }
            }
        }
        if !self.is_too_much(sample) && self.bounds.inflight_long.is_finite() {
            self.bounds.inflight_long = self.bounds.inflight_long.max(sample.in_flight);
            if self.state == State::Up && self.is_at_bound() {
                self.probe.acked += newly;
                let packets = (self.probe.acked / self.probe.acked_per_packet).floor();
                self.probe.acked -= packets * self.probe.acked_per_packet;
                self.bounds.inflight_long += packets;
                if is_new_round {
                    self.raise_slope();
                }
            }
        }
        false
    }

    /// [BBR3 §5.3.3.5] One more packet in the first round, two in the second, four in the third.
    fn raise_slope(&mut self) {
        self.probe.acked_per_packet =
            (self.window.cwnd / f64::from(1u32 << self.probe.up_rounds)).max(1.0);
        self.probe.up_rounds = (self.probe.up_rounds + 1).min(UP_ROUNDS);
    }

    /// [BBR3 §5.3.3.7] Ends a probe that has lost little.
    fn end_probe_in_time(&mut self, sample: Sample, cx: &mut Context<'_>) {
        if self.probe.was_too_high && self.flight.before >= self.bounds.inflight_long.floor() {
            self.probe.was_precautionary = true;
        } else if self.is_at_bound() {
            // The bound, not the path, limits the rate.
            self.full.reset(sample.rate.unwrap_or(0.0));
            return;
        } else if !self.full.is_now {
            return;
        }
        self.probe.was_too_high = false;
        self.enter_down(cx);
    }

    fn enter_down(&mut self, cx: &mut Context<'_>) {
        self.losses.clear();
        // [BBR3 §5.3.3.8]
        self.probe.rounds = f64::from(u8::from(cx.random.below(2) == 1));
        self.probe.wait = PROBE_WAIT + Span::from_nanos(cx.random.below(PROBE_WAIT_MORE_NS));
        self.probe.started = cx.now;
        self.probe.is_stopping = true;
        self.delivery.start_round();
        self.state = State::Down;
    }

    const fn enter_refill(&mut self) {
        self.clear_short_term();
        self.probe.up_rounds = 0;
        self.probe.acked = 0.0;
        self.probe.was_precautionary = false;
        self.probe.is_stopping = false;
        self.delivery.start_round();
        self.state = State::Refill;
    }

    fn enter_up(&mut self, sample: Sample) {
        self.probe.is_sampling = true;
        self.delivery.start_round();
        self.full.reset(sample.rate.unwrap_or(0.0));
        self.state = State::Up;
        self.raise_slope();
    }

    const fn clear_short_term(&mut self) {
        (self.bounds.bw_short, self.bounds.inflight_short) = (f64::INFINITY, f64::INFINITY);
    }

    /// [BBR3 §5.3.4]
    fn probe_rtt(&mut self, is_due: bool, is_new_round: bool, cx: &mut Context<'_>) {
        let now = cx.now;
        if is_due && !matches!(self.state, State::ProbeRtt { .. }) {
            self.save_cwnd();
            self.probe.is_stopping = true;
            self.delivery.start_round();
            self.state = State::ProbeRtt { until: None, is_round_over: false };
        }
        let floor = self.probe_rtt_cwnd();
        let State::ProbeRtt { until, is_round_over } = &mut self.state else { return };
        // So few packets do not show the rate of the path.
        self.delivery.limit_by_application();
        let Some(end) = *until else {
            if self.flight.packets <= floor {
                *until = Some(now + PROBE_RTT);
                self.delivery.start_round();
            }
            return;
        };
        *is_round_over |= is_new_round;
        if *is_round_over && now > end {
            self.rtt.probed(now);
            self.window.cwnd = self.window.cwnd.max(self.window.before);
            self.clear_short_term();
            if self.full.is_reached {
                self.enter_down(cx);
                self.state = State::Cruise;
            } else {
                self.state = State::Startup;
            }
        }
    }

    fn probe_rtt_cwnd(&self) -> f64 {
        (State::ProbeRtt { until: None, is_round_over: false }.gains().1 * self.product(self.bw()))
            .max(CWND_MIN)
    }

    /// [BBR3 §5.6.4.4] Saves the last window that no timeout or RTT probe had lowered.
    const fn save_cwnd(&mut self) {
        let is_lowered =
            self.timeout_point.is_some() || matches!(self.state, State::ProbeRtt { .. });
        self.window.before =
            if is_lowered { self.window.before.max(self.window.cwnd) } else { self.window.cwnd };
    }

    /// [BBR3 §5.6.2]
    fn set_pace(&mut self, cx: &Context<'_>) {
        let bw = self.bw();
        if bw > 0.0 {
            // DEV-053: the pacing rate compensates random loss.
            let pace = MARGIN * self.state.gains().0 * bw / (1.0 - self.by_chance(0.0).0);
            if self.full.is_reached || pace > self.pace {
                self.pace = pace;
            }
        } else if let Some(rtt) = cx.rtt {
            self.pace = first_pace(self.window.initial, rtt.smoothed);
        }
    }

    /// [BBR3 §5.6.4.6]
    fn set_cwnd(&mut self, newly: f64, total: f64) {
        let bw = self.bw();
        let most = if bw > 0.0 {
            self.budget(self.state.gains().1 * self.product(bw) + self.lumps.extra())
        } else {
            self.window.initial
        };
        if self.full.is_reached {
            self.window.cwnd = (self.window.cwnd + newly).min(most);
        } else if self.window.cwnd < most || total < self.window.initial {
            self.window.cwnd += newly;
        }
        self.window.cwnd = self.window.cwnd.max(CWND_MIN);
        if matches!(self.state, State::ProbeRtt { .. }) {
            self.window.cwnd = self.window.cwnd.min(self.probe_rtt_cwnd());
        }
        let bound = match self.state {
            State::Startup | State::Drain(_) => f64::INFINITY,
            State::Down | State::Refill | State::Up => self.bounds.inflight_long,
            State::Cruise | State::ProbeRtt { .. } => self.inflight_with_headroom(),
        };
        self.window.cwnd =
            self.window.cwnd.min(bound.min(self.bounds.inflight_short).max(CWND_MIN));
    }
}

/// [BBR3 §5.6.2] Returns the pacing rate before the first sample.
fn first_pace(cwnd: f64, rtt: Span) -> f64 {
    State::Startup.gains().0 * cwnd / rtt.max(Span::from_micros(1)).as_secs_f64()
}

impl Controller for Bbr3 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
    fn limits(&self) -> SendLimits {
        if let Some(search) = &self.search {
            return search.limits();
        }
        let gap = Gap(Span::from_secs_f64(1.0 / self.pace));
        SendLimits {
            gap,
            window: Some(Packets(self.window.cwnd.clamp(1.0, 1e9) as u64)),
            hold_until: None,
        }
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        let step = self.search.as_mut().map(|search| search.on_ack(acked, cx));
        let newly = acked.newly.0 as f64;
        let newly_lost = self.flight.note_ack(acked);
        let acked = Acked { lost: Packets(self.flight.lost), ..*acked };
        let is_new_round = self.delivery.on_ack(&acked, self.rtt.min.unwrap_or(Span::ZERO));
        if let Some(chance) = &mut self.chance {
            if let Some(rtt) = cx.rtt {
                chance.note(newly, newly_lost, rtt.latest);
            }
            if is_new_round {
                chance.end_round(self.rtt.min.unwrap_or(Span::ZERO));
            }
        }
        let sample = self.delivery.newest();
        let is_app_limited = self.delivery.is_app_limited();
        if let Some(step) = step {
            if let Some(rtt) = cx.rtt {
                self.rtt.keep(rtt.latest, cx.now);
            }
            self.take_step(step, cx);
            return;
        }
        if self.timeout_point.is_some_and(|point| acked.cumulative_ack > point) {
            self.timeout_point = None;
            self.window.cwnd = self.window.cwnd.max(self.window.before);
        }
        let is_loss_round_over = self.losses.note_ack(&acked, newly_lost);
        if let Some(rate) = sample.rate
            && (!is_app_limited || rate >= self.max_bw.max())
        {
            self.max_bw.keep(rate);
        }
        // A probe that ends here begins a round.
        let is_new_round = !self.judge_probe(newly_lost, sample, cx) && is_new_round;
        self.note_round(sample, is_loss_round_over, cx);
        let bw = self.bw();
        if bw > 0.0 {
            let (round, is_full) = (self.delivery.rounds(), self.full.is_reached);
            self.lumps.keep(newly, bw, self.window.cwnd, cx.now, round, is_full);
        }
        if let Some(rate) = sample.rate.filter(|_| is_new_round && !is_app_limited) {
            let was_reached = self.full.is_reached;
            self.full.check(rate);
            if self.full.is_reached && !was_reached {
                cx.log_reason(Reason::PipeFull);
            }
        }
        self.step(newly, is_new_round, sample, cx);
        if let Some(rtt) = cx.rtt {
            let is_due = self.rtt.keep(rtt.latest, cx.now);
            self.probe_rtt(is_due, is_new_round, cx);
        }
        if is_loss_round_over {
            self.losses.restart(sample);
        }
        self.set_pace(cx);
        self.set_cwnd(newly, acked.total.0 as f64);
    }

    fn on_interval(&mut self, report: &IntervalReport, cx: &mut Context<'_>) {
        if let Some(search) = &mut self.search {
            let step = search.on_interval(report, cx);
            self.take_step(step, cx);
        }
    }

    fn on_loss(&mut self, loss: &LossReport, _cx: &mut Context<'_>) {
        // The next ACK, which reports arrivals too, evaluates the losses.
        self.flight.note_loss(loss);
        if let Some(search) = &mut self.search {
            search.on_loss(loss);
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.abandon_search(cx);
        self.save_cwnd();
        self.timeout_point = Some(self.delivery.next().before());
        // [BBR3] One more packet than in flight. All packets count as lost at a timeout: a TCP host
        // reports this at its timer, and the channel's sender has had no feedback for two periods.
        self.window.cwnd = 1.0;
    }

    fn constants(&self) -> Constants {
        Constants { tolerates_random_loss: self.chance.is_some(), ..Constants::default() }
    }

    fn phase(&self) -> Phase {
        if let Some(search) = &self.search {
            return search.phase();
        }
        match self.state {
            State::Startup => Phase::Named("startup"),
            State::Drain(_) => Phase::Named("drain"),
            State::Down => Phase::Named("down"),
            State::Cruise => Phase::Named("cruise"),
            State::Refill => Phase::Named("refill"),
            State::Up => Phase::Named("up"),
            State::ProbeRtt { .. } => Phase::Named("probe-rtt"),
        }
    }
}

#[cfg(test)]
mod tests;
