//! One controller for several channels of one path, at the same time or one after another. To others they are one flow.
//!
//! Source:      ours; the idea is an ensemble of connections with common state [RFC9040].
//! Model:       each channel has a member. Counts of the controller are sums over all members. The controller's number of
//!              a packet is the number of packets that all members had sent before; a member interpolates it between the
//!              counts at its events. With n members that have packets in flight:
//!                  gap    = n × gap of the controller, at the member's packet size
//!                  window = window of the controller / n, at least one packet
//!              A member that begins after a pause of [`PAUSE`] has half of that for an RTT. After [`IDLE_MAX`] without
//!              members the next member builds a new controller.
//!              While the controller searches with trains, only the first member sends data; the others send a packet an
//!              RTT, which does not count.
//! Invariants:  a timeout of one member is none of the flow while another member has answers.
//! Not here:    congestion headers and channel rules other than the standard rules: one channel each.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sabul_units::{Bytes, Gap, Instant, Packets, Span};

use crate::channel::ChannelRules;
use crate::controller::{
    Acked, Constants, Context, Controller, IntervalReport, LossReport, Moment, SendLimits,
    SentNumber,
};
use crate::guard::Guarded;
use crate::memory::PathFacts;
use crate::params::ConfigError;
use crate::phase::Phase;
use crate::policy::Policy;

/// Gap of a member that waits for the end of a search, before the first RTT sample.
const WAIT_UNKNOWN: Span = Span::from_millis(100);
/// Most points of a member's numbers; older points are dropped, and their numbers become the oldest point.
const POINTS_MAX: usize = 4096;

/// Time without packets after which a member begins at half of the rate. Ours: the load of a path changes in seconds.
const PAUSE: Span = Span::from_secs(1);
/// Time without packets after which the measurements are too old to begin with. Ours: BBR also keeps its smallest RTT for
/// ten seconds; TCP may keep its window for minutes.
const IDLE_MAX: Span = Span::from_secs(10);

/// A controller that several channels use.
#[derive(Clone, Debug, Default)]
pub struct SharedController {
    flow: Arc<Mutex<Option<Flow>>>,
    /// See [`Self::of_one_at_a_time`].
    is_of_one: bool,
}

/// A number of a member, and the number in the flow at the same time.
#[derive(Clone, Copy, Debug)]
struct Point {
    own: u64,
    flow: u64,
}

/// Newest counts of a member.
#[derive(Debug, Default)]
struct MemberState {
    acked: Acked,
    points: VecDeque<Point>,
    packet_bytes: Bytes,
    /// A timeout since the newest answer.
    is_silent: bool,
}

/// Pause of the flow before its newest member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// None, or the pause has ended.
    None,
    /// The path was idle for a short time.
    Short,
    /// The path was idle for longer than [`PAUSE`].
    Long,
}

impl MemberState {
    /// Adds a point for the number of the next transmission, and returns the number of packets sent since the last point.
    /// Before the first point, the member has sent `known` packets.
    fn sent(&mut self, next: SentNumber, known: u64, flow_next: u64) -> u64 {
        let first = Point { own: next.0.saturating_sub(known), flow: flow_next };
        if self.points.is_empty() {
            self.points.push_back(first);
        }
        let last = self.points.back().map_or(first.own, |point| point.own);
        let sent = next.0.saturating_sub(last);
        if sent > 0 {
            self.points.push_back(Point { own: next.0, flow: flow_next + sent });
        }
        if self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
        sent
    }

    /// Returns the number in the flow of this member's number.
    fn in_flow(&self, number: SentNumber) -> SentNumber {
        let after = self.points.partition_point(|point| point.own < number.0);
        let before = after.checked_sub(1).and_then(|at| self.points.get(at));
        let flow = match (before, self.points.get(after)) {
            (_, Some(point)) if point.own == number.0 => point.flow,
            (Some(from), Some(to)) => {
                let (done, of) = (number.0 - from.own, to.own - from.own);
                from.flow + (to.flow - from.flow) * done / of
            }
            (None, Some(point)) | (Some(point), None) => point.flow,
            (None, None) => 0,
        };
        SentNumber(flow)
    }

    /// Drops points that no later number needs.
    fn settle(&mut self, number: SentNumber) {
        while self.points.get(1).is_some_and(|second| second.own <= number.0) {
            self.points.pop_front();
        }
    }
}

/// Sums of the counts of one interval.
#[derive(Debug, Default)]
struct IntervalSums {
    sent: u64,
    resent: u64,
    lost: u64,
    is_below_rate: bool,
}

/// The controller with the counts of all members.
#[derive(Debug)]
struct Flow {
    controller: Guarded,
    members: BTreeMap<u64, MemberState>,
    next_member: u64,
    totals: Acked,
    interval: IntervalSums,
    rtt_min: Option<Span>,
    packet_bytes: Bytes,
    policy: Policy,
    has_memory: bool,
    /// Time of the newest event.
    newest: Instant,
    pause: Pause,
    /// A channel with a controller of its own has begun beside a member.
    is_crowded: bool,
}

impl Flow {
    fn is_first(&self, member: u64) -> bool {
        self.members.keys().next() == Some(&member)
    }

    /// Whether only the first member may send.
    fn is_searching(&self) -> bool {
        matches!(self.controller.phase(), Phase::Search(_))
    }

    /// Whether the facts of this member count.
    fn counts(&self, member: u64) -> bool {
        self.is_first(member) || !self.is_searching()
    }

    /// Whether a member has packets in flight, or has not had an event yet.
    fn is_active(state: &MemberState) -> bool {
        state.points.is_empty() || state.acked.in_flight.0 > 0
    }

    /// Whether no channel uses the controller, and no later channel can: the measurements are too old or were made beside
    /// channels with controllers of their own, or the controller has failed.
    fn is_over(&self, now: Instant) -> bool {
        let is_old = now.since(self.newest) > IDLE_MAX;
        let is_unusable = is_old || self.is_crowded || self.controller.fault().is_some();
        self.members.is_empty() && is_unusable
    }

    fn moment(&mut self, cx: &Context<'_>) -> Moment {
        self.newest = self.newest.max(cx.now);
        self.packet_bytes = cx.packet_bytes;
        let rtt = cx.rtt.map(|mut rtt| {
            rtt.min = self.rtt_min.map_or(rtt.min, |min| min.min(rtt.min));
            self.rtt_min = Some(rtt.min);
            rtt
        });
        Moment::new(cx.now, rtt, cx.packet_bytes)
    }

    fn limits(&self, member: u64) -> SendLimits {
        let limits = self.controller.limits();
        let Some(state) = self.members.get(&member) else { return limits };
        if self.members.len() == 1 && self.pause != Pause::Long {
            return limits;
        }
        if !self.counts(member) {
            let gap = Gap(self.rtt_min.unwrap_or(WAIT_UNKNOWN).max(Span::from_millis(1)));
            return SendLimits { gap, window: Some(Packets(1)), hold_until: limits.hold_until };
        }
        if self.is_searching() {
            return limits;
        }
        let others = self.members.iter().filter(|(other, _)| **other != member);
        let active = others.filter(|(_, state)| Self::is_active(state)).count() as u64 + 1;
        let count = if self.pause == Pause::Long { 2 * active } else { active };
        let flow = self.packet_bytes.0.max(1);
        let own = if state.packet_bytes.0 > 0 { state.packet_bytes.0 } else { flow };
        SendLimits {
            gap: Gap((limits.gap.0 * count).mul_ratio(own, flow)),
            window: limits.window.map(|window| Packets(window.0.div_ceil(count).max(1))),
            hold_until: limits.hold_until,
        }
    }

    fn on_ack(&mut self, member: u64, acked: &Acked, cx: &Context<'_>) {
        let (is_counted, moment) = (self.counts(member), self.moment(cx));
        let Some(state) = self.members.get_mut(&member) else { return };
        state.is_silent = false;
        state.packet_bytes = cx.packet_bytes;
        let before = std::mem::replace(&mut state.acked, *acked);
        let totals = &mut self.totals;
        let known = acked.total.0 + acked.lost.0 + acked.in_flight.0;
        totals.next.0 += state.sent(acked.next, known, totals.next.0);
        if !is_counted {
            return;
        }
        totals.newly = acked.newly;
        totals.marked = acked.marked;
        totals.total.0 += acked.newly.0;
        totals.lost.0 += acked.lost.0.saturating_sub(before.lost.0);
        totals.acks_lost += acked.acks_lost.saturating_sub(before.acks_lost);
        totals.delivered.0 += acked.delivered.0.saturating_sub(before.delivered.0);
        totals.largest = totals.largest.max(state.in_flow(acked.largest));
        totals.cumulative_ack = totals.cumulative_ack.max(state.in_flow(acked.cumulative_ack));
        state.settle(acked.cumulative_ack);
        // Without the last ACKs before a pause, the first epoch after the pause contains the pause.
        let contains_pause = self.pause != Pause::None && totals.in_flight.0 > 0;
        self.pause = Pause::None;
        // Other members may use the rate that this member leaves.
        let others = self.members.iter().filter(|(other, _)| **other != member);
        let are_limited =
            others.map(|(_, state)| state.acked).all(|it| it.is_app_limited || it.in_flight.0 == 0);
        totals.is_app_limited = (acked.is_app_limited && are_limited) || contains_pause;
        totals.is_room_limited = acked.is_room_limited;
        totals.sent_at = acked.sent_at;
        totals.arrived_at = totals.arrived_at.max(acked.arrived_at);
        let in_flight = self.members.values().map(|state| state.acked.in_flight.0);
        totals.in_flight = Packets(in_flight.sum());
        self.controller.on_ack(&self.totals, &moment);
    }

    fn on_loss(&mut self, member: u64, loss: &LossReport, cx: &Context<'_>) {
        let (is_counted, moment) = (self.counts(member), self.moment(cx));
        let Some(state) = self.members.get_mut(&member).filter(|_| is_counted) else { return };
        state.is_silent = false;
        let next = SentNumber(loss.largest_sent.0 + 1);
        let known = next.0.saturating_sub(loss.first_lost.0);
        self.totals.next.0 += state.sent(next, known, self.totals.next.0);
        let loss = LossReport {
            first_lost: state.in_flow(loss.first_lost),
            largest_sent: self.totals.next.before(),
            ..*loss
        };
        self.controller.on_loss(&loss, &moment);
    }

    fn on_timeout(&mut self, member: u64, cx: &Context<'_>) {
        let moment = self.moment(cx);
        let Some(state) = self.members.get_mut(&member) else { return };
        state.is_silent = true;
        let mut waiting = self.members.values().filter(|state| state.acked.in_flight.0 > 0);
        if waiting.all(|state| state.is_silent) {
            self.members.values_mut().for_each(|state| state.is_silent = false);
            self.controller.on_timeout(&moment);
        }
    }

    fn on_interval(&mut self, member: u64, report: &IntervalReport, cx: &Context<'_>) {
        if !self.counts(member) {
            return;
        }
        let sums = &mut self.interval;
        sums.sent += report.sent.0;
        sums.resent += report.resent.0;
        sums.lost += report.lost.0;
        sums.is_below_rate |= report.is_below_rate;
        if self.is_first(member) {
            let IntervalSums { sent, resent, lost, is_below_rate } =
                std::mem::take(&mut self.interval);
            let counts = [sent, resent, lost].map(Packets);
            let report =
                IntervalReport::new(counts[0], counts[1], counts[2], report.elapsed, is_below_rate);
            let moment = self.moment(cx);
            self.controller.on_interval(&report, &moment);
        }
    }

    fn on_policy(&mut self, policy: Policy, cx: &Context<'_>) {
        if std::mem::replace(&mut self.policy, policy) != policy {
            let moment = self.moment(cx);
            self.controller.on_policy(policy, &moment);
        }
    }

    fn on_memory(&mut self, facts: &PathFacts, cx: &Context<'_>) {
        if !std::mem::replace(&mut self.has_memory, true) {
            let moment = self.moment(cx);
            self.controller.on_memory(facts, &moment);
        }
    }
}

impl SharedController {
    /// Serves one channel at a time: a channel beside another one, or with a controller that cannot be shared, has a
    /// controller of its own. A controller that was used beside others has measured its share of the path, so it serves
    /// no later channel.
    pub fn of_one_at_a_time() -> Self {
        Self { is_of_one: true, ..Self::default() }
    }

    /// Adds a channel that begins now; the first channel builds the controller.
    ///
    /// # Errors
    /// If the controller cannot be built. If it serves channels at the same time, also if it writes congestion headers or
    /// needs channel rules of its own.
    pub fn member(
        &self,
        now: Instant,
        build: impl FnOnce() -> Result<Guarded, ConfigError>,
    ) -> Result<Guarded, ConfigError> {
        let mut shared = self.lock();
        let flow = match &mut *shared {
            Some(flow) if self.is_of_one && !flow.members.is_empty() => {
                flow.is_crowded = true;
                return build();
            }
            Some(flow) if !flow.is_over(now) => flow,
            other => {
                let controller = build()?;
                match check(&controller) {
                    Err(_) if self.is_of_one => return Ok(controller),
                    checked => checked?,
                }
                other.insert(Flow::new(controller, now))
            }
        };
        let member = flow.add(now);
        let (name, family) = (flow.controller.name(), flow.controller.family());
        drop(shared);
        Ok(Guarded::around(name, family, Box::new(Member { flow: self.clone(), member })))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Flow>> {
        // The guard of the controller catches panics, so the counts are complete.
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that several channels can use the controller.
fn check(controller: &Guarded) -> Result<(), ConfigError> {
    if controller.constants().rules == ChannelRules::STANDARD && controller.header().is_none() {
        return Ok(());
    }
    Err(ConfigError {
        setting: "controller of several channels".to_owned(),
        value: controller.name().to_owned(),
        allowed: "a controller without congestion headers and with standard channel rules"
            .to_owned(),
    })
}

impl Flow {
    fn new(controller: Guarded, now: Instant) -> Self {
        Self {
            controller,
            members: BTreeMap::new(),
            next_member: 0,
            totals: Acked::default(),
            interval: IntervalSums::default(),
            rtt_min: None,
            packet_bytes: Bytes(0),
            policy: Policy::default(),
            has_memory: false,
            newest: now,
            pause: Pause::None,
            is_crowded: false,
        }
    }

    /// Adds a member that begins now; returns its number.
    fn add(&mut self, now: Instant) -> u64 {
        let has_begun = self.totals.next.0 > 0;
        if has_begun && !self.members.values().any(Self::is_active) {
            let is_long = now.since(self.newest) > PAUSE;
            self.pause = if is_long { Pause::Long } else { Pause::Short };
        }
        let member = self.next_member;
        self.next_member += 1;
        self.members.insert(member, MemberState::default());
        member
    }
}

/// A channel's part of the controller.
#[derive(Debug)]
struct Member {
    flow: SharedController,
    member: u64,
}

impl Member {
    fn with<T>(&self, read: impl FnOnce(&mut Flow) -> T, or: T) -> T {
        self.flow.lock().as_mut().map_or(or, read)
    }

    /// Passes an event. A fault of the controller becomes a fault of each member: the guard of the member catches the
    /// panic.
    fn pass(&self, event: impl FnOnce(&mut Flow)) {
        let fault = self.with(
            |flow| {
                event(flow);
                flow.controller.fault().map(|fault| fault.what.clone())
            },
            None,
        );
        if let Some(fault) = fault {
            std::panic::resume_unwind(Box::new(fault));
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.with(|flow| drop(flow.members.remove(&self.member)), ());
    }
}

impl Controller for Member {
    fn limits(&self) -> SendLimits {
        let none =
            SendLimits { gap: Gap(WAIT_UNKNOWN), window: Some(Packets(1)), hold_until: None };
        self.with(|flow| flow.limits(self.member), none)
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        self.pass(|flow| flow.on_loss(self.member, loss, cx));
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.pass(|flow| flow.on_timeout(self.member, cx));
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        self.pass(|flow| flow.on_ack(self.member, acked, cx));
    }

    fn on_interval(&mut self, report: &IntervalReport, cx: &mut Context<'_>) {
        self.pass(|flow| flow.on_interval(self.member, report, cx));
    }

    fn on_policy(&mut self, policy: Policy, cx: &mut Context<'_>) {
        self.pass(|flow| flow.on_policy(policy, cx));
    }

    fn on_memory(&mut self, facts: &PathFacts, cx: &mut Context<'_>) {
        self.pass(|flow| flow.on_memory(facts, cx));
    }

    fn path(&self, packet_bytes: Bytes) -> Option<PathFacts> {
        self.with(|flow| flow.controller.path(packet_bytes), None)
    }

    fn constants(&self) -> Constants {
        let constants = self.with(|flow| flow.controller.constants(), Constants::default());
        Constants { is_shared: true, ..constants }
    }

    fn syn_interval(&self) -> Span {
        let interval = |flow: &mut Flow| flow.controller.syn_interval();
        self.with(interval, crate::controller::SYN_INTERVAL)
    }

    fn phase(&self) -> Phase {
        let phase = |flow: &mut Flow| {
            let is_waiting = !flow.counts(self.member);
            if is_waiting { Phase::Waiting } else { flow.controller.phase() }
        };
        self.with(phase, Phase::Waiting)
    }
}

#[cfg(test)]
mod tests;
