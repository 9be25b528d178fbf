//! Start-up search for the path's rate, within a few RTTs.
//!
//! Source: ours. Neither bandwidth nor RTT is configured; both are measured from ACKs.
//! Model:       the bottleneck spaces packets that arrive faster than its rate, so the arrival rate
//!              of a short train estimates the rate (packet-train dispersion). Trains grow as far
//!              as the estimate allows. The last and longest train measures other flows: a train
//!              sent at S arrives at C S / (S + others). Then the path is filled with the remaining
//!              part of the estimate; this part doubles each time that all of it arrives without
//!              delay, up to the estimate. The arrival rate is the result. If an earlier flow
//!              measured the path, the second train is half of its BDP [CAREFUL-RESUME].
//! States:      Ramp --train is a quarter of a BDP--> Fill
//!              Fill --all of the estimate arrives | delay rises--> done
//!              either --many losses--> done; Fill --no room for more, three times--> done
//! Bounds:      at most twice (estimate × smallest RTT) in flight, so at most one BDP queues if the
//!              estimate is right; if the estimate is wrong, the rise of the delay stops the fill.
//!              Below a millisecond of RTT, timers are coarser than the path: one millisecond
//!              queues.
//! Not here:    control after the start (`sabul2003`, `sabul2026`, `bbr3`).

use std::collections::VecDeque;

use sabul_units::{Bytes, Gap, Packets, Rate, Span};

use crate::controller::{
    Acked, Context, IntervalReport, LossReport, RttEstimate, SendLimits, SentNumber, ack_interval,
};
use crate::memory::PathFacts;
use crate::phase::Phase;

/// First train. Ours: enough packets to measure a spacing, and 48 kB, about the start of browsers' TCP.
const FIRST_TRAIN: u64 = 32;
/// Largest growth of a train per round; [`GROWTH_BLIND`] without an estimate.
const GROWTH_MAX: u64 = 16;
const GROWTH_BLIND: u64 = 4;
/// Ours: longest train, as time at the link's rate, before a train has measured other flows.
const TRAIN_BLIND: Span = Span::from_millis(8);
/// Ours: with fewer packets in flight a single loss would leave nothing to measure.
const WINDOW_MIN: u64 = 4;
/// Ours: bound where nothing slows packets down; the flow window is smaller.
const WINDOW_MAX: u64 = 1 << 24;
/// Least packets between two ACKs for an arrival rate. On a path with losses also this part of a train: retransmissions
/// arrive between two trains, so their rate does not measure the link.
const SAMPLE_PACKETS: u64 = 16;
const SAMPLE_OF_TRAIN: u64 = 16;
/// Ours: an estimate over less time may be the clock of a host, because hosts hand over packets in batches. REFUTED is
/// the largest ratio of such an estimate to the bound of a later train; other flows may exceed the link for a moment.
const SHORT: Span = Span::from_micros(600);
const REFUTED: f64 = 1.3;
/// Queueing delay that ends the fill: this part of the smallest RTT, at least the floor.
const DELAY_PART: u64 = 16;
const DELAY_FLOOR: Span = Span::from_millis(1);
/// Ours: largest lateness of a sender's batch.
const WAKE_UP: Span = Span::from_micros(500);
/// Ours: ratio of a train's rate to the estimated rate of the link.
const PUSH: (u64, u64) = (9, 8);
/// Ours: a train of this part of the BDP measures other flows, and delays them by no more.
const ENOUGH: u64 = 4;
/// Ours: a train measures other flows if its samples have this part of the train.
const REPORTED_PART: u64 = 8;
/// Ours: least part of the link at the start of a fill. A gentle search, whose controller estimates the
/// number of flows, has a smaller part: with an eighth, new flows alone overflow a link with 48 flows. BLIND
/// applies if no train measured other flows; from ALL on, no other flow is assumed.
const FREE_MIN: f64 = 0.125;
const FREE_MIN_GENTLE: f64 = 1.0 / 32.0;
const FREE_BLIND: f64 = 0.5;
const FREE_ALL: f64 = 0.85;
/// Ours: the offered rate counts as carried if this part arrives, random loss deducted.
const CARRIED: f64 = 0.9;
/// Losses end the search if a round has at least MIN and a given part. For a train the part is more
/// than half: no path loses that much at random, and a train ends by itself. For a fill the part is
/// a tenth more than the trains' loss and so many deviations. The first train, which is not paced,
/// is longer than the path if it lost a quarter and found a queue.
const LOSSES_MIN: u64 = 8;
const LOST_OF_TRAIN: f64 = 0.5;
const LOST_OF_FIRST: f64 = 0.25;
const LOST_OF_FILL: f64 = 0.1;
const DEVIATIONS: f64 = 4.0;

/// Ours: a fill ends after this many rounds in a row limited by room. A receiver grows its room on demand, so
/// the first limit may be the initial room.
const ROOM_ROUNDS: u32 = 3;

/// Result of a search step for the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchStep {
    /// Continue the search.
    Continue,
    /// Continue at this rate, after a pause that drains the queue.
    Found {
        /// Rate of the path.
        rate: Rate,
        /// Length of the pause.
        hold: Option<Span>,
    },
    /// Losses have ended the search early: continue at this rate, which is a guess.
    Overrun {
        /// Guess of the rate.
        rate: Rate,
    },
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    delivered: Bytes,
    arrived_at: Span,
    total: Packets,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Trains of `window` packets, one per RTT.
    Ramp,
    /// Continuous sending at `part` of the estimate; the first arrival of a packet sent in the fill sets
    /// `from`.
    Fill { part: f64, from: Option<Mark> },
}

/// Mean arrival rate of a round's trains.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    sum_bps: f64,
    samples: u32,
    /// Packets of all samples; a packet counts in each sample that has it.
    packets: u64,
    /// Largest rate of samples with a quarter of the train.
    largest: Option<Rate>,
}

impl Passed {
    /// Takes in a rate at which so many packets of a train of `window` packets arrived.
    fn note(&mut self, rate: Rate, packets: u64, window: u64) {
        self.sum_bps += rate.0 as f64;
        self.samples += 1;
        self.packets += packets;
        if packets >= window / ENOUGH {
            self.largest = self.largest.max(Some(rate));
        }
    }

    fn mean_bps(self) -> Option<f64> {
        (self.samples > 0).then(|| self.sum_bps / f64::from(self.samples))
    }
}

/// Packets whose arrival or loss has been reported.
#[derive(Clone, Copy, Debug)]
struct ReportedPackets {
    arrived: u64,
    lost: u64,
}

impl ReportedPackets {
    const NONE: Self = Self { arrived: 0, lost: 0 };

    const fn all(self) -> u64 {
        self.arrived + self.lost
    }
}

/// Statistics of all completed trains.
#[derive(Clone, Copy, Debug)]
struct Trains {
    reported: ReportedPackets,
    /// Counts of the last train alone.
    last: ReportedPackets,
    /// Packets of the last train.
    last_sent: u64,
    /// Time in which the packets of the estimate arrived.
    estimated_over: Span,
    /// First number after the trains. Losses below this number belong to trains, however late the report.
    end: SentNumber,
}

impl Trains {
    const NONE: Self = Self {
        reported: ReportedPackets::NONE,
        last: ReportedPackets::NONE,
        last_sent: 0,
        estimated_over: Span::ZERO,
        end: SentNumber(0),
    };

    /// Adds losses of completed trains.
    const fn lose(&mut self, packets: u64) {
        self.reported.lost += packets;
        self.last.lost += packets;
    }

    /// Completes this train; the next train begins at `next`.
    const fn end(&mut self, train: ReportedPackets, next: SentNumber) {
        self.reported.arrived += train.arrived;
        self.reported.lost += train.lost;
        self.last_sent = next.0.saturating_sub(self.end.0);
        (self.last, self.end) = (train, next);
    }
}

/// Measurements of a fill at an ACK.
#[derive(Clone, Copy, Debug)]
struct Filled {
    /// Arrival rate since the measurement began.
    rate: Rate,
    /// Smallest of the last four RTTs.
    least: Span,
    /// True if a queue delays all packets.
    delayed: bool,
    is_round_over: bool,
    /// True if the measurement has lasted half an RTT.
    is_half_over: bool,
}

/// Settings from the controller that uses the search.
#[derive(Debug)]
struct Owner {
    /// Measurements of an earlier flow, until the first train is complete.
    memory: Option<PathFacts>,
    /// True if the controller estimates the number of flows, so a small initial rate grows fast.
    is_gentle: bool,
}

/// State of the search; see the module.
#[derive(Debug)]
pub struct RateSearch {
    stage: Stage,
    gap: Gap,
    window: u64,
    /// The round, or the measurement of the fill, ends when this packet number has arrived.
    round_end: Option<SentNumber>,
    /// Newest ACKs, just enough for [`SAMPLE_PACKETS`] arrivals.
    recent: VecDeque<Mark>,
    /// Largest arrival rate of a train.
    estimate: Option<Rate>,
    /// Largest arrival rate before the fill.
    trained: Option<Rate>,
    passed: Passed,
    /// True if the estimate is the link's rate and not the sending rate of trains.
    is_ceiling: bool,
    /// RTTs of the last four ACKs.
    delays: [Span; 4],
    round: ReportedPackets,
    is_below_rate: bool,
    trains: Trains,
    /// Fills in a row that were limited by room.
    without_room: u32,
    owner: Owner,
}

impl Default for RateSearch {
    fn default() -> Self {
        Self::new()
    }
}

impl RateSearch {
    /// Creates a search that uses little of a shared link, for a controller that estimates the number of
    /// flows.
    pub const fn gentle() -> Self {
        let mut search = Self::new();
        search.owner.is_gentle = true;
        search
    }

    /// Creates a search that uses the whole link.
    pub const fn new() -> Self {
        Self {
            stage: Stage::Ramp,
            gap: Gap::NONE,
            window: FIRST_TRAIN,
            round_end: None,
            recent: VecDeque::new(),
            estimate: None,
            trained: None,
            passed: Passed { sum_bps: 0.0, samples: 0, packets: 0, largest: None },
            is_ceiling: false,
            delays: [Span::ZERO; 4],
            round: ReportedPackets::NONE,
            is_below_rate: false,
            trains: Trains::NONE,
            without_room: 0,
            owner: Owner { memory: None, is_gentle: false },
        }
    }

    /// Sets measurements of an earlier flow on what may be the same path.
    pub const fn remember(&mut self, facts: PathFacts) {
        self.owner.memory = Some(facts);
    }

    /// Returns the limits of the search.
    pub const fn limits(&self) -> SendLimits {
        SendLimits { gap: self.gap, window: Some(Packets(self.window)), hold_until: None }
    }

    /// Returns the largest arrival rate of a train: the link's rate, with or without other flows.
    pub const fn train_rate(&self) -> Option<Rate> {
        self.trained
    }

    /// Returns the rate of the fill; `None` while trains are sent.
    pub fn offered(&self, packet_bytes: Bytes) -> Option<Rate> {
        matches!(self.stage, Stage::Fill { .. }).then(|| self.gap.rate(packet_bytes)).flatten()
    }

    /// Returns a one-word name of the stage: `ramp` or `fill`.
    pub const fn phase(&self) -> Phase {
        match self.stage {
            Stage::Ramp => Phase::Search("ramp"),
            Stage::Fill { .. } => Phase::Search("fill"),
        }
    }

    /// Processes the end of a SYN interval.
    pub fn on_interval(&mut self, report: &IntervalReport, _cx: &mut Context<'_>) -> SearchStep {
        self.is_below_rate |= report.is_below_rate;
        SearchStep::Continue
    }

    /// Processes a loss report.
    pub fn on_loss(&mut self, loss: &LossReport) {
        if loss.first_lost < self.trains.end {
            self.trains.lose(loss.first_time.0);
        } else {
            self.round.lost += loss.first_time.0;
        }
    }

    /// Returns whether the losses exceed those of a path with room. Losses are reported at once and arrivals
    /// by the next ACK, so this is checked only then.
    fn is_overrun(&self) -> bool {
        let is_too_much =
            |of: ReportedPackets, most: f64| of.lost >= LOSSES_MIN && of.lost as f64 >= most;
        let half = |of: ReportedPackets| is_too_much(of, of.all() as f64 * LOST_OF_TRAIN);
        match self.stage {
            Stage::Ramp => {
                // Losses of a part of a train may be reported before the arrivals of the rest.
                let known_half = |of: ReportedPackets, sent: u64| of.all() >= sent / 2 && half(of);
                known_half(self.trains.last, self.trains.last_sent)
                    || known_half(self.round, self.window)
            }
            Stage::Fill { .. } => {
                let reported = self.round.all() as f64;
                let expected = reported * self.chance();
                is_too_much(
                    self.round,
                    reported * LOST_OF_FILL + expected + DEVIATIONS * expected.sqrt(),
                )
            }
        }
    }

    /// Returns whether the path and its queue hold less than the first train, so longer trains would show
    /// nothing.
    fn is_first_train_too_long(&self) -> bool {
        let ReportedPackets { lost, .. } = self.trains.last;
        let is_too_much =
            lost >= LOSSES_MIN && lost as f64 >= self.trains.last.all() as f64 * LOST_OF_FIRST;
        is_too_much && self.trains.reported.all() <= FIRST_TRAIN
    }

    /// Returns the part of the trains' packets that was lost.
    fn chance(&self) -> f64 {
        self.trains.reported.lost as f64 / self.trains.reported.all().max(1) as f64
    }

    /// Returns the best guess so far, for a search that ends early.
    pub fn fallback(&self, cx: &Context<'_>) -> Rate {
        self.guess(self.window, cx)
    }

    /// Returns the best guess so far, for a search that a timeout ends. Reports of the last train are missing, so only
    /// packets that are known to have arrived count as carried; at least those of the first train.
    pub fn after_timeout(&self, cx: &Context<'_>) -> Rate {
        self.guess(self.round.arrived.max(FIRST_TRAIN), cx)
    }

    /// Returns a guess for a path that carries at most `most` packets in an RTT.
    fn guess(&self, most: u64, cx: &Context<'_>) -> Rate {
        let by_window = cx.rtt.map(|rtt| {
            let rate_of =
                |packets| Rate::from_size_over(Bytes(cx.packet_bytes.0 * packets), rtt.smoothed);
            // Lost packets were not carried.
            self.passed_of(rate_of(self.window)).min(rate_of(most))
        });
        let guess = match (self.offered(cx.packet_bytes), self.estimate, by_window) {
            (Some(offered), ..) => self.passed_of(offered),
            (_, Some(estimate), Some(by_window)) => estimate.min(by_window),
            (_, Some(rate), None) | (_, None, Some(rate)) => rate,
            (_, None, None) => Rate::from_mbps(1),
        };
        guess.mul_ratio(9, 10)
    }

    /// Returns the part of this rate that arrived, by the counts of the round.
    fn passed_of(&self, rate: Rate) -> Rate {
        rate.mul_ratio(self.round.arrived + 1, self.round.all() + 1)
    }

    /// Returns an upper bound of the link's rate C while the link is full. `arrived` relates to C at least as
    /// `offered` to all traffic, and other flows send at most C. Hence C <= arrived × offered / (offered -
    /// arrived), even if a train that a machine sent in one burst measured more.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate, at least 0"
    )]
    fn most(&self, arrived: Rate, cx: &Context<'_>) -> Option<Rate> {
        let offered = self.gap.rate(cx.packet_bytes).filter(|offered| *offered > arrived)?;
        let (arrived, offered) = (arrived.0 as f64, offered.0 as f64);
        Some(Rate((arrived * offered / (offered - arrived)) as u64))
    }

    /// Lowers the trained rate to the upper bound.
    fn bound_train(&mut self, arrived: Rate, cx: &Context<'_>) {
        if let Some(most) = self.most(arrived, cx) {
            self.trained = self.trained.map(|trained| trained.min(most));
        }
    }

    /// Checks the trained rate against a fill of a small part of the link for less than an RTT. Other flows
    /// that the trains had slowed may have exceeded C at that time. If the bound is below half of the trained
    /// rate, the trained rate is dropped.
    fn doubt_train(&mut self, arrived: Rate, cx: &Context<'_>) {
        let most = self.most(arrived, cx).unwrap_or(Rate(u64::MAX));
        self.trained = self.trained.filter(|trained| trained.0 / 2 <= most.0);
    }

    /// Processes an ACK; returns whether the search goes on.
    pub fn on_ack(&mut self, acked: &Acked, cx: &Context<'_>) -> SearchStep {
        let here =
            Mark { delivered: acked.delivered, arrived_at: acked.arrived_at, total: acked.total };
        self.round.arrived += acked.newly.0;
        let sample = self.sample(here);
        if self.is_overrun() {
            let rate = self.fallback(cx);
            if let Some(offered) = self.offered(cx.packet_bytes) {
                self.bound_train(self.passed_of(offered), cx);
            }
            return SearchStep::Overrun { rate };
        }
        let Some(rtt) = cx.rtt else {
            return SearchStep::Continue;
        };
        // A queue delays all four, a late machine only some.
        self.delays.rotate_left(1);
        self.delays[3] = rtt.latest;
        let least = self.delays.into_iter().min().unwrap_or(rtt.latest);
        let delayed = least > rtt.min + (rtt.min / DELAY_PART).max(DELAY_FLOOR);
        if delayed && self.is_first_train_too_long() {
            let rate = self.estimate.unwrap_or_else(|| self.fallback(cx)).mul_ratio(9, 10);
            return SearchStep::Overrun { rate };
        }
        // Arrivals spread over an RTT are spaced by the window, unless a queue spaces them.
        let sample = sample.filter(|(_, time)| delayed || *time <= rtt.min / 2);
        let is_round_over = self.round_end.is_some_and(|end| acked.cumulative_ack >= end);
        match self.stage {
            Stage::Ramp => {
                if let Some((rate, time)) = sample {
                    let packets = rate.bytes_in(time).0 / cx.packet_bytes.0.max(1);
                    self.passed.note(rate, packets, self.window);
                    if self.estimate.is_none_or(|estimate| rate > estimate) {
                        (self.estimate, self.trains.estimated_over) = (Some(rate), time);
                    }
                }
                self.trained = self.estimate;
                self.ramp(acked, rtt, delayed, cx);
                SearchStep::Continue
            }
            Stage::Fill { part, from: None } => {
                if is_round_over {
                    self.stage = Stage::Fill { part, from: Some(here) };
                    self.start_round(acked.next);
                }
                SearchStep::Continue
            }
            Stage::Fill { part, from: Some(from) } => {
                let measured_for = here.arrived_at.saturating_sub(from.arrived_at);
                match rate_between(from, here).filter(|_| measured_for >= rtt.min / 4) {
                    Some(rate) => {
                        let is_half_over = measured_for >= rtt.min / 2;
                        let seen = Filled { rate, least, delayed, is_round_over, is_half_over };
                        self.judge_fill(part, seen, acked, rtt, cx)
                    }
                    None => SearchStep::Continue,
                }
            }
        }
    }

    /// Replaces an estimate that a short train gave by the bound of a paced train, if the bound is far below.
    fn bound_estimate(&mut self, cx: &Context<'_>) {
        if self.trains.estimated_over >= SHORT {
            return;
        }
        let most = self.passed.largest.and_then(|arrived| self.most(arrived, cx));
        let is_refuted = |estimate: Rate, most: Rate| estimate.0 as f64 > REFUTED * most.0 as f64;
        self.estimate = match (self.estimate, most) {
            (Some(estimate), Some(most)) if is_refuted(estimate, most) => Some(most),
            (estimate, _) => estimate,
        };
        self.trained = self.estimate;
    }

    /// Ends a round of the ramp: a longer train follows, or the fill.
    fn ramp(&mut self, acked: &Acked, rtt: RttEstimate, delayed: bool, cx: &Context<'_>) {
        // The first train ends at the newest number sent when its first ACK arrives.
        let end = *self.round_end.get_or_insert_with(|| acked.next.before());
        let can_fill = delayed && self.estimate.is_some();
        if acked.cumulative_ack < end && !can_fill {
            return;
        }
        let memory = self.owner.memory.take().filter(|_| !delayed && self.round.lost == 0);
        if memory.is_some_and(|facts| self.recall(facts, rtt, cx)) {
            self.start_round(acked.next);
            return;
        }
        self.bound_estimate(cx);
        match self.estimate.map(|rate| (rate, packets_in(rate, rtt, cx))) {
            Some((_, packets)) if delayed || packets <= self.window * ENOUGH => {
                let is_reported =
                    self.gap == Gap::NONE || self.passed.packets >= self.window / REPORTED_PART;
                if is_reported || self.round.arrived >= self.window {
                    let free = self.free(cx);
                    self.start_round(acked.next);
                    self.fill(free, rtt, cx);
                }
                return;
            }
            Some((rate, packets)) => {
                let mut grown = packets.div_ceil(ENOUGH).min(self.window * GROWTH_MAX);
                if self.owner.is_gentle && self.gap == Gap::NONE {
                    // The first train cannot measure other flows.
                    let short = rate.bytes_in(TRAIN_BLIND).0 / cx.packet_bytes.0.max(1);
                    grown = grown.min(short.max(FIRST_TRAIN));
                }
                self.window = grown.clamp(WINDOW_MIN, WINDOW_MAX);
                self.gap = rate.mul_ratio(PUSH.0, PUSH.1).gap(cx.packet_bytes);
            }
            // A train of a remembered rate; its arrivals are still to come.
            None if self.gap != Gap::NONE && self.round.arrived < self.window => return,
            None if delayed => {}
            // A train shows nothing if a rate limit or the application keeps most of it back.
            None if self.trains.last_sent > 0
                && acked.next.0.saturating_sub(end.0) < self.window / 2 => {}
            // Almost nothing of the train arrived: something delays it, and a longer train would show no
            // more.
            None if self.round.arrived * 1024 < self.window => {}
            None => self.window = (self.window * GROWTH_BLIND).min(WINDOW_MAX),
        }
        self.start_round(acked.next);
    }

    /// Sizes the next train by remembered measurements, if that is longer than usual growth and the first
    /// train does not contradict them. Returns whether they were used. The train is measured like any other.
    fn recall(&mut self, facts: PathFacts, rtt: RttEstimate, cx: &Context<'_>) -> bool {
        let packets = PathFacts::first(packets_in(facts.rate, rtt, cx)).min(WINDOW_MAX);
        let is_refuted = self.estimate.is_some_and(|rate| facts.is_refuted_by(rate));
        let is_used = facts.may_be(rtt.min) && !is_refuted && packets > self.window * GROWTH_BLIND;
        if is_used {
            self.window = packets;
            self.gap = facts.rate.mul_ratio(PUSH.0, PUSH.1).gap(cx.packet_bytes);
        }
        is_used
    }

    /// Returns the part of the link that other flows leave, from the arrival rate of a faster train. Also
    /// sets `is_ceiling`.
    fn free(&mut self, cx: &Context<'_>) -> f64 {
        let least = if self.owner.is_gentle { FREE_MIN_GENTLE } else { FREE_MIN };
        let is_lossy = self.trains.reported.lost + self.round.lost > 0;
        let blind = if self.owner.is_gentle && is_lossy { least } else { FREE_BLIND };
        let (Some(link), Some(arrived)) = (self.estimate, self.passed.mean_bps()) else {
            return blind;
        };
        // An unpaced train arrives at the link's rate, with or without other flows.
        let Some(sent) = self.gap.rate(cx.packet_bytes) else {
            self.is_ceiling = true;
            return blind;
        };
        let (link, sent) = (link.0 as f64, sent.0 as f64);
        self.is_ceiling = arrived * 1.05 < sent;
        let others = sent * (link / arrived - 1.0);
        let free = 1.0 - others / link;
        if free >= FREE_ALL { 1.0 } else { free.max(least) }
    }

    /// Evaluates a fill: decides whether the arrival rate is the rate that the path carries.
    fn judge_fill(
        &mut self,
        part: f64,
        seen: Filled,
        acked: &Acked,
        rtt: RttEstimate,
        cx: &Context<'_>,
    ) -> SearchStep {
        let Filled { rate, least, delayed, is_round_over, is_half_over } = seen;
        let is_long = least > rtt.min + rtt.min / 2 + DELAY_FLOOR;
        if delayed && (is_round_over || is_long || part < 1.0) {
            // Full: the arrival rate is the path's rate. The queue drains during the pause.
            if part < 1.0 {
                self.doubt_train(rate, cx);
            } else {
                self.bound_train(rate, cx);
            }
            let hold = least.saturating_sub(rtt.min).min(rtt.min);
            return SearchStep::Found { rate: rate.mul_ratio(99, 100), hold: Some(hold) };
        }
        // A short delay means a full path or a late machine. The rest of the round decides.
        if delayed || !(is_half_over || is_round_over) {
            return SearchStep::Continue;
        }
        let offered = self.gap.rate(cx.packet_bytes).unwrap_or(rate);
        let is_carried = rate.0 as f64 >= CARRIED * (1.0 - self.chance()) * offered.0 as f64;
        if is_carried && part < 1.0 {
            self.start_round(acked.next);
            self.fill(part * 2.0, rtt, cx);
        } else if is_carried && self.is_ceiling {
            return SearchStep::Found { rate: rate.mul_ratio(99, 100), hold: None };
        } else if is_round_over {
            // Less arrives than was offered, but loss does not explain the difference: a host is slow.
            let lost = self.round.lost as f64 / self.round.all().max(1) as f64;
            let missing = 1.0 - rate.0 as f64 / offered.0.max(1) as f64;
            if !is_carried && !self.is_below_rate && lost > missing / 2.0 {
                return SearchStep::Found { rate: rate.mul_ratio(98, 100), hold: None };
            }
            let is_without_room = acked.is_room_limited && !is_carried;
            self.without_room = if is_without_room { self.without_room + 1 } else { 0 };
            if self.without_room == ROOM_ROUNDS {
                return SearchStep::Found { rate, hold: None };
            }
            self.estimate = Some(rate.mul_ratio(3, 2).max(self.estimate.unwrap_or(rate)));
            self.start_round(acked.next);
            self.fill(1.0, rtt, cx);
        }
        SearchStep::Continue
    }

    /// Returns the arrival rate and time of the shortest run of ACKs that ends here and has enough packets. A
    /// short run contains little of the pause between trains.
    fn sample(&mut self, here: Mark) -> Option<(Rate, Span)> {
        self.recent.push_back(here);
        let is_lossy = self.trains.reported.lost + self.round.lost > 0;
        let part = if is_lossy { self.window / SAMPLE_OF_TRAIN } else { 0 };
        let least = SAMPLE_PACKETS.max(part);
        let enough = |from: &Mark| here.total.0.saturating_sub(from.total.0) >= least;
        while self.recent.get(1).is_some_and(enough) {
            self.recent.pop_front();
        }
        let from = *self.recent.front().filter(|from| enough(from))?;
        Some((rate_between(from, here)?, here.arrived_at.saturating_sub(from.arrived_at)))
    }

    fn start_round(&mut self, next: SentNumber) {
        self.round_end = Some(next);
        // The head of the next train ended the round, so the time of the next train begins there.
        let head = self.recent.pop_back();
        self.recent.clear();
        self.recent.extend(head);
        if matches!(self.stage, Stage::Ramp) {
            self.trains.end(self.round, next);
        }
        self.round = ReportedPackets::NONE;
        self.is_below_rate = false;
        self.passed = Passed::default();
    }

    /// Starts to send at this part of the estimate.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1/8 to 1")]
    fn fill(&mut self, part: f64, rtt: RttEstimate, cx: &Context<'_>) {
        let part = part.min(1.0);
        let offered =
            self.estimate.unwrap_or(Rate::from_mbps(1)).mul_ratio((part * 1024.0) as u64, 1024);
        self.stage = Stage::Fill { part, from: None };
        self.window = packets_in(offered, rtt, cx).saturating_mul(2).clamp(WINDOW_MIN, WINDOW_MAX);
        self.gap = offered.gap(cx.packet_bytes);
    }
}

/// Returns the packets in flight on a full path: one RTT, the ACK interval, and the lateness of a machine
/// that sends in batches.
fn packets_in(rate: Rate, rtt: RttEstimate, cx: &Context<'_>) -> u64 {
    let horizon = rtt.min + ack_interval(rtt.min) + WAKE_UP;
    (rate.bytes_in(horizon).0 / cx.packet_bytes.0.max(1)).max(1)
}

/// Returns the arrival rate between two ACKs, if enough packets arrived over a measurable time.
fn rate_between(from: Mark, to: Mark) -> Option<Rate> {
    let time = to.arrived_at.saturating_sub(from.arrived_at);
    let packets = to.total.0.saturating_sub(from.total.0);
    (packets >= SAMPLE_PACKETS && time > Span::ZERO)
        .then(|| Rate::from_size_over(Bytes(to.delivered.0.saturating_sub(from.delivered.0)), time))
}

#[cfg(test)]
mod tests;
