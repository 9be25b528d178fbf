//! Simulated path of the conformance suite: one drop-tail queue of known rate and delay.

use std::collections::VecDeque;

use sabul_units::{Bytes, Gap, Instant, Packets, Probability, Random, SeededRandom, Span};

use crate::channel::BulkReport;
use crate::controller::{
    Acked, IntervalReport, LossReport, Moment, RttEstimate, SendLimits, SentNumber,
};
use crate::guard::Guarded;
use crate::phase::Phase;

/// Size of each packet.
pub const PACKET: Bytes = Bytes(1500);
/// Resolution of the path's clock.
const STEP: Span = Span::from_micros(10);
/// Interval of a receiver's error-rate reports. [TSUNAMI]
const REPORT_INTERVAL: Span = Span::from_millis(350);

/// Path parameters of one check.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Transmission time of one packet.
    pub service: Span,
    /// RTT without queueing.
    pub rtt: Span,
    /// Places of the queue, in packets.
    pub queue: u64,
    /// Random loss before the queue.
    pub loss: Probability,
    /// Queue length in packets from which packets are marked.
    pub mark: Option<u64>,
    /// Change during the run.
    pub change: Option<(Instant, Change)>,
}

/// Change of the path or the application from a time on.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// New transmission time of one packet.
    Service(Span),
    /// The application offers one packet per this time, instead of unlimited data.
    Application(Span),
}

/// Results of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Packets sent in each tenth of a second.
    pub sent: Vec<u64>,
    /// Packets that arrived in each tenth of a second.
    pub arrived: Vec<u64>,
    /// Largest window, and most packets that window and gap allow per smallest RTT, in each tenth
    /// of a second.
    pub allowed: Vec<(u64, u64)>,
    lost: u64,
    /// Longest queue, in packets, before the controller's phase was "steady".
    pub start_queue_max: u64,
    /// First time of the phase "steady", and the limits at that time.
    pub steady: Option<(Instant, SendLimits)>,
    /// First illegal value of the controller.
    pub illegal: Option<String>,
}

/// Returns the moment of a callback with this RTT and smallest RTT.
pub fn moment(now: Instant, rtt: Span, base: Span) -> Moment {
    let variance = Span::ZERO;
    Moment::new(now, Some(RttEstimate { latest: rtt, smoothed: rtt, variance, min: base }), PACKET)
}

/// Returns the reason if the controller's current values are illegal.
#[inline]
pub(super) fn illegal(controller: &Guarded) -> Option<String> {
    if let Some(fault) = controller.fault() {
        return Some(fault.to_string());
    }
    let again = controller.outputs_repeat();
    (!again).then(|| "two calls of limits in a row disagree".to_owned())
}

/// Fate of one packet, decided when the packet is sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: SentNumber,
    /// Arrival time on the receiver's clock; `None` if the packet was lost.
    arrives: Option<Instant>,
    /// Earliest time at which feedback reaches the sender.
    ack_arrived: Instant,
    is_marked: bool,
}

/// Drives a controller over `path` for `seconds`.
pub fn run(controller: &mut Guarded, path: Path, seconds: u64) -> Trace {
    let end = Instant::ZERO + Span::from_secs(seconds);
    let mut drive = Drive::new(controller, path, seconds);
    while drive.now < end {
        drive.change();
        drive.send();
        drive.take_acks();
        drive.take_accounts();
        drive.end_interval();
        drive.now = drive.now + STEP;
    }
    drive.trace
}

/// Run of a controller over a path.
struct Drive<'a> {
    controller: &'a mut Guarded,
    path: Path,
    rng: SeededRandom,
    trace: Trace,
    now: Instant,
    flying: VecDeque<Sent>,
    /// Number of the next packet, earliest send time, and time when the queue is empty.
    next: u64,
    send_at: Instant,
    free_at: Instant,
    arrived: u64,
    ack_at: Instant,
    interval: Interval,
    accounts: Accounts,
    application: Application,
}

/// Data that the application has offered.
struct Application {
    written: u64,
    /// Time of the next packet from the application.
    write_at: Instant,
    /// Packets below this number left while the application limited the sender.
    limited_until: SentNumber,
}

/// Counts since the last interval report.
struct Interval {
    ends: Instant,
    sent: u64,
    lost: u64,
    has_run_dry: bool,
}

/// State of a receiver that sends no NAKs.
struct Accounts {
    due: Instant,
    lost_reported: u64,
    arrived_reported: u64,
}

impl<'a> Drive<'a> {
    fn new(controller: &'a mut Guarded, path: Path, seconds: u64) -> Self {
        let now = Instant::ZERO;
        let slots = usize::try_from(seconds * 10).unwrap_or(usize::MAX);
        let trace = Trace {
            sent: vec![0; slots],
            arrived: vec![0; slots],
            allowed: vec![(0, 0); slots],
            lost: 0,
            start_queue_max: 0,
            steady: None,
            illegal: None,
        };
        Self {
            rng: SeededRandom::new(1).fork("conformance"),
            trace,
            now,
            flying: VecDeque::new(),
            next: 0,
            send_at: now,
            free_at: now,
            arrived: 0,
            ack_at: now + ack_interval(path),
            interval: Interval::until(now + controller.syn_interval()),
            accounts: Accounts {
                due: now + REPORT_INTERVAL,
                lost_reported: 0,
                arrived_reported: 0,
            },
            application: Application { written: 0, write_at: now, limited_until: SentNumber(0) },
            controller,
            path,
        }
    }

    /// Applies the change of the path, or offers new application data.
    fn change(&mut self) {
        let Some((_, change)) = self.path.change.filter(|(at, _)| *at <= self.now) else {
            return;
        };
        match change {
            Change::Service(service) => self.path.service = service,
            Change::Application(every) => {
                let Application { written, write_at, .. } = &mut self.application;
                *write_at = (*write_at).max(self.now - STEP);
                *written = self.next.max(*written);
                while *write_at <= self.now {
                    *written += 1;
                    *write_at = *write_at + every;
                }
            }
        }
    }

    /// Returns whether the application has no data to send.
    fn has_run_dry(&self) -> bool {
        let is_slow = |(at, change)| at <= self.now && matches!(change, Change::Application(_));
        self.path.change.is_some_and(is_slow) && self.next >= self.application.written
    }

    /// Sends the packets that the limits allow now.
    fn send(&mut self) {
        let limits = self.controller.limits();
        if let Some(what) = illegal(self.controller) {
            self.trace.illegal = Some(format!("{what} at {:?}", self.now));
        }
        if self.trace.steady.is_none() && self.controller.phase() == Phase::Named("steady") {
            self.trace.steady = Some((self.now, limits));
        }
        let window = limits.window.map_or(100_000, |window| window.0.min(100_000));
        self.note_allowed(window, limits.gap);
        while self.send_at <= self.now
            && limits.hold_until.is_none_or(|hold| hold <= self.now)
            && (self.flying.len() as u64) < window
        {
            if self.has_run_dry() {
                self.application.limited_until = SentNumber(self.next);
                self.interval.has_run_dry = true;
                break;
            }
            let Path { service, rtt, queue, loss, mark, .. } = self.path;
            let queued = self.free_at.since(self.now).0 / service.0;
            if self.controller.phase() != Phase::Named("steady") {
                self.trace.start_queue_max = self.trace.start_queue_max.max(queued);
            }
            let lost = queued >= queue || self.rng.chance(loss);
            if queued < queue {
                self.free_at = self.free_at.max(self.now) + service;
            }
            let arrives = self.free_at + rtt / 2;
            let ack_arrived = arrives + rtt / 2;
            let arrives = (!lost).then_some(arrives);
            let is_marked = mark.is_some_and(|mark| queued >= mark);
            let number = SentNumber(self.next);
            self.flying.push_back(Sent { number, arrives, ack_arrived, is_marked });
            count(&mut self.trace.sent, self.now);
            self.next += 1;
            self.interval.sent += 1;
            // Lateness of up to one step of this loop is compensated.
            self.send_at = self.send_at.max(self.now - STEP) + limits.gap.0;
        }
    }

    /// Records the most packets that window and gap allow per RTT.
    fn note_allowed(&mut self, window: u64, gap: Gap) {
        let round = window.min(self.path.rtt.0 / gap.0.0.max(1));
        let slot = usize::try_from(self.now.0 / Span::from_millis(100).0).unwrap_or(usize::MAX);
        if let Some(most) = self.trace.allowed.get_mut(slot) {
            *most = (window.max(most.0), round.max(most.1));
        }
    }

    fn ack_arrived(&self) -> Option<Sent> {
        self.flying.front().copied().filter(|sent| sent.ack_arrived <= self.now)
    }

    fn moment(&self) -> Moment {
        let queueing = self.free_at.since(self.now);
        moment(self.now, self.path.rtt + queueing, self.path.rtt)
    }

    /// Processes feedback: at once after a pause, then once each ACK interval.
    fn take_acks(&mut self) {
        if self.now < self.ack_at || self.ack_arrived().is_none() {
            return;
        }
        self.ack_at = self.now + ack_interval(self.path);
        let (mut newly, mut marked, mut last) = (0, 0, None);
        while let Some(sent) = self.ack_arrived() {
            self.flying.pop_front();
            if let Some(at) = sent.arrives {
                newly += 1;
                last = Some((sent.number, at));
                marked += u64::from(sent.is_marked);
                count(&mut self.trace.arrived, at);
            } else {
                self.trace.lost += 1;
                self.interval.lost += 1;
                let largest = SentNumber(self.next).before();
                let report = LossReport::new(Packets(1), Packets(0), sent.number, largest);
                let moment = self.moment();
                self.controller.on_loss(&report, &moment);
            }
        }
        if let Some((largest, at)) = last {
            self.arrived += newly;
            let acked = Acked {
                sent_at: None,
                echo: None,
                acks_lost: 0,
                is_room_limited: false,
                newly: Packets(newly),
                total: Packets(self.arrived),
                in_flight: Packets(self.flying.len() as u64),
                marked: Packets(marked),
                largest,
                // Missing pieces below it are sent again under other numbers.
                cumulative_ack: largest,
                lost: Packets(self.trace.lost),
                is_app_limited: largest < self.application.limited_until,
                next: SentNumber(self.next),
                delivered: Bytes(self.arrived * PACKET.0),
                arrived_at: at.elapsed(),
            };
            let moment = self.moment();
            self.controller.on_ack(&acked, &moment);
        }
    }

    /// Sends reports to a controller whose rules have no NAKs: the losses since the last report,
    /// unfiltered.
    fn take_accounts(&mut self) {
        if self.now < self.accounts.due || self.controller.constants().rules.has_naks {
            return;
        }
        let (lost, came) = (
            self.trace.lost - self.accounts.lost_reported,
            self.arrived - self.accounts.arrived_reported,
        );
        self.accounts = Accounts {
            due: self.now + REPORT_INTERVAL,
            lost_reported: self.trace.lost,
            arrived_reported: self.arrived,
        };
        let share = lost * 100_000 / (1 + lost + came);
        let moment = moment(self.now, self.path.rtt, self.path.rtt);
        let account = BulkReport::Account { sent: Packets(lost + came), arrived: Packets(came) };
        self.controller.on_report(&account, &moment);
        let error_rate = BulkReport::ErrorRate(u32::try_from(share).unwrap_or(100_000));
        self.controller.on_report(&error_rate, &moment);
    }

    fn end_interval(&mut self) {
        if self.now < self.interval.ends {
            return;
        }
        let syn = self.controller.syn_interval();
        let Interval { ends, sent, lost, has_run_dry } = self.interval;
        // All lost packets have been sent again, before new data.
        let [sent, resent, lost] = [sent, lost.min(sent), lost].map(Packets);
        let report = IntervalReport::new(sent, resent, lost, syn, has_run_dry);
        self.controller.on_interval(&report, &moment(self.now, self.path.rtt, self.path.rtt));
        self.interval = Interval::until(ends + syn);
    }
}

impl Interval {
    const fn until(ends: Instant) -> Self {
        Self { ends, sent: 0, lost: 0, has_run_dry: false }
    }
}

/// Counts one packet in this tenth of a second.
fn count(slots: &mut [u64], at: Instant) {
    let slot = usize::try_from(at.0 / Span::from_millis(100).0).unwrap_or(usize::MAX);
    if let Some(count) = slots.get_mut(slot) {
        *count += 1;
    }
}

/// Returns the receiver's ACK interval: a SYN interval, or a quarter of a shorter RTT.
fn ack_interval(path: Path) -> Span {
    Span::from_millis(10).min(path.rtt / 4)
}
