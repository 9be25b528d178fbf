//! Link: one direction of a path, with a queue, a serialiser and a propagation delay.
//!
//! Model:       a packet waits in the queue until earlier packets have left. The serialiser takes
//!              `(size + framing) × 8 ÷ rate`. The fraction of a picosecond carries over to the
//!              next packet of the same busy period, so no rate drifts. Delivery is one `delay`
//!              (and some jitter) after the last bit left. Loss, outages, duplication, damage,
//!              jitter and reordering happen behind the serialiser. A packet lost on the wire has
//!              therefore used its share of the rate, and a second copy costs nothing.
//! Queue:       drop-tail, RED and ECN marking decide at arrival and are served in order, so that
//!              all times are known at arrival. The other disciplines ([`crate::Discipline`])
//!              return a packet when the serialiser becomes free, and only then is the packet's
//!              fate drawn. At equal times a packet leaves before another arrives.
//! Time:        inputs must be in order of time. Between two inputs the link processes its own
//!              events at their exact times, so results do not depend on how often it is polled.
//! Chance:      each kind of event draws from its own random stream, once for every packet that
//!              enters the serialiser. Enabling one kind does not change the draws of another.
//! Invariants:  arrived + duplicated = delivered + dropped + in transit; deliveries are in order of
//!              (time, departure); behind the serialiser only packets held back are overtaken.
//! Not here:    payload bytes. A damaged packet is only marked; the caller applies
//!              [`crate::corrupt_bytes`].

use std::collections::VecDeque;
use std::fmt;

use sabul_units::{Instant, Polled, Probability, Random, SeededRandom, Span};

use crate::config::{LinkConfig, QueueLimit};
use crate::discipline::Discipline;
use crate::forge::Forger;
use crate::impairments::Impairments;
use crate::packet::PacketMeta;
use crate::queue::{Judgement, QueueDiscipline, Queued, RedGate, Scheduler};
use crate::router::{AttachedRouter, Find, RouterAccount};
use crate::shape::{Bucket, Shape};
use crate::trace::Player;

#[cfg(test)]
mod tests;

/// Picoseconds per byte at 1 bit/s.
const BYTE_AT_ONE_BPS: u64 = 8_000_000_000_000;

/// Fate of a packet, as far as known at arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet will be delivered. Where the discipline decides at departure (CoDel, FQ-CoDel,
    /// DRR), the packet is only queued: the link may still drop it later.
    Queued,
    /// The queue had no room for the packet.
    DroppedFull,
    /// The discipline or the policer dropped the packet before the queue was full.
    DroppedEarly,
    /// The packet will be lost on the wire.
    DroppedLoss,
    /// The packet will leave the serialiser during an outage.
    DroppedOutage,
    /// The packet was larger than the MTU.
    DroppedTooLarge,
}

/// A delivered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// The pushed payload.
    pub payload: P,
    /// Arrival time; never later than the `now` of the poll.
    pub at: Instant,
    /// Whether the packet was damaged on the way.
    pub corrupted: bool,
    /// Whether this link set the ECN mark (CE). The caller keeps earlier marks.
    pub is_marked: bool,
}

/// Event that a link waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkWait {
    /// A push; the link is empty.
    Arrival,
    /// The serialiser takes the next packet; no packet arrives before.
    Queue,
    /// The end of a packet's propagation delay.
    Delay,
}

/// Counters of a link since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkStats {
    /// Packets pushed.
    pub arrived: u64,
    /// Packets delivered, second copies included.
    pub delivered: u64,
    /// Bytes delivered, second copies included.
    pub delivered_bytes: u64,
    /// Packets dropped because the queue was full: the new packet, or others in its place.
    pub dropped_full: u64,
    /// Packets that the discipline or the policer dropped while there was room.
    pub dropped_early: u64,
    /// Packets lost at random, in bursts or independently.
    pub dropped_loss: u64,
    /// Packets lost to an outage.
    pub dropped_outage: u64,
    /// Packets over the MTU.
    pub dropped_too_large: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Packets held back so that others overtake them.
    pub reordered: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// Packets that this link marked with ECN, including packets lost afterwards.
    pub marked: u64,
    /// The most packets that waited at once.
    pub queue_max_packets: u64,
    /// The most bytes that waited at once.
    pub queue_max_bytes: u64,
    /// Packets waiting, averaged over the time from the first arrival to the latest input.
    pub queue_mean_packets: f64,
}

/// Snapshot of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkSnapshot {
    /// Counters.
    pub stats: LinkStats,
    /// Packets waiting.
    pub queue_packets: usize,
    /// Packets × picoseconds spent waiting so far.
    pub queue_packet_time: u128,
}

impl LinkStats {
    /// Bytes delivered, including `framing` bytes for each packet: the share of the rate used.
    pub fn carried_bytes(&self, framing: u32) -> u64 {
        self.delivered_bytes + self.delivered * u64::from(framing)
    }

    /// Packets dropped for any reason.
    pub fn dropped(&self) -> u64 {
        let queue = self.dropped_full + self.dropped_early + self.dropped_too_large;
        queue + self.dropped_loss + self.dropped_outage
    }
}

/// One direction of a path, carrying packets of type `P`.
pub struct Link<P> {
    config: LinkConfig,
    fault_model: FaultModel,
    now: Instant,
    first_arrival: Option<Instant>,

    policer: Option<Box<Bucket>>,
    router: Option<Box<AttachedRouter<P>>>,
    serialiser: Serialiser,
    stage: Stage<P>,
    /// Packets in order, each with its departure time.
    queue: VecDeque<Waiting<P>>,
    backlog: Backlog,

    /// Packets behind the serialiser, in order of time; packets held back are separate.
    pipe: VecDeque<Flight<P>>,
    held: VecDeque<Flight<P>>,
    next_outage: usize,
    stats: LinkStats,
}

#[derive(Clone)]
struct Serialiser {
    /// When everything accepted so far will have left, and the fraction of a picosecond to add, in
    /// units of 1 ÷ rate picoseconds.
    busy_until: Instant,
    busy_fraction: u64,
    /// Whether the serialiser is free and the scheduler had no packet for it.
    is_resting: bool,
    /// Replacement of the constant rate.
    shape: Option<Box<Shape>>,
}

/// Waiting packets, in any kind of queue.
#[derive(Clone, Default)]
struct Backlog {
    packets: usize,
    bytes: u64,
    /// Packets × picoseconds spent waiting until `changed`.
    area: u128,
    changed: Instant,
}

/// Queue discipline; all but the last serve the queue in order.
#[derive(Clone)]
enum Stage<P> {
    DropTail,
    Red(Box<RedGate>),
    /// Marks from this number of waiting packets on.
    EcnThreshold(u64),
    /// The scheduler holds the packets, and `queue` stays empty.
    Scheduler(Box<Scheduler<P>>),
}

#[derive(Clone)]
struct FaultModel {
    loss: SeededRandom,
    impairments: Option<Box<Impairments>>,
    duplicate: SeededRandom,
    corrupt: SeededRandom,
    reorder: SeededRandom,
}

/// A packet in the queue. A packet without a flight uses its share of the rate and is then lost.
#[derive(Clone)]
struct Waiting<P> {
    start: Instant,
    size: u32,
    flight: Option<Flight<P>>,
}

/// A packet in the serialiser.
#[derive(Clone, Copy)]
struct Leaving {
    size: u32,
    number: u64,
    is_marked: bool,
}

/// A packet behind the serialiser.
#[derive(Clone)]
struct Flight<P> {
    at: Instant,
    arrival: u64,
    size: u32,
    copies: u8,
    held: bool,
    corrupted: bool,
    is_marked: bool,
    payload: P,
}

impl<P: Clone> Link<P> {
    /// Creates an idle link with random streams forked from `random`.
    pub fn new(config: LinkConfig, random: &SeededRandom) -> Self {
        let fault_model = FaultModel {
            loss: random.fork("loss"),
            impairments: Impairments::new(&config, random).map(Box::new),
            duplicate: random.fork("duplicate"),
            corrupt: random.fork("corrupt"),
            reorder: random.fork("reorder"),
        };
        let shape = shape(&config, random).map(Box::new);
        let router = seat(&config, random).map(Box::new);
        let policer = config.policer().map(|it| Box::new(Bucket::new(it.rate, it.bytes)));
        let random = random.fork("queue");
        let stage = match (config.discipline(), Scheduler::new(&config, random.clone())) {
            (_, Some(scheduler)) => Stage::Scheduler(Box::new(scheduler)),
            (Discipline::Red(red), _) => {
                Stage::Red(Box::new(RedGate::new(*red, config.rate(), random)))
            }
            (Discipline::EcnThreshold(ecn), _) => Stage::EcnThreshold(ecn.mark_packets),
            _ => Stage::DropTail,
        };
        Self {
            config,
            fault_model,
            stage,
            now: Instant::ZERO,
            first_arrival: None,
            policer,
            router,
            serialiser: Serialiser {
                busy_until: Instant::ZERO,
                busy_fraction: 0,
                is_resting: true,
                shape,
            },
            queue: VecDeque::new(),
            backlog: Backlog::default(),
            pipe: VecDeque::new(),
            held: VecDeque::new(),
            next_outage: 0,
            stats: LinkStats::default(),
        }
    }

    /// Sets the function that finds congestion headers for the link's router. Without it the router
    /// processes no headers.
    pub(crate) fn find_headers(&mut self, find: Find<P>) {
        if let Some(seat) = &mut self.router {
            seat.set_find(find);
        }
    }

    /// Returns the state of the link's router, if any.
    pub fn router(&self) -> Option<RouterAccount> {
        let router = self.router.as_ref()?.router()?;
        Some(RouterAccount { stats: router.stats(), signalled_rate: router.signalled_rate() })
    }

    /// Pushes a packet of flow 0 without ECN; `size_bytes` includes headers.
    ///
    /// # Panics
    /// If `now` is before an earlier input's.
    #[inline]
    pub fn push(&mut self, now: Instant, size_bytes: u32, payload: P) -> Verdict {
        self.push_packet(now, PacketMeta { size: size_bytes, ..PacketMeta::default() }, payload)
    }

    /// Pushes a packet.
    ///
    /// # Panics
    /// If `now` is before an earlier input's.
    #[inline]
    pub fn push_packet(&mut self, now: Instant, packet: PacketMeta, mut payload: P) -> Verdict {
        self.advance(now);
        self.stats.arrived += 1;
        self.first_arrival.get_or_insert(now);
        let size = packet.size;
        if self.config.mtu().is_some_and(|mtu| size > mtu) {
            self.stats.dropped_too_large += 1;
            return Verdict::DroppedTooLarge;
        }
        if self.policer.as_mut().is_some_and(|policer| !policer.admits(now, size)) {
            self.stats.dropped_early += 1;
            return Verdict::DroppedEarly;
        }
        if let Some(seat) = &mut self.router {
            seat.arrived(now, size, self.backlog.bytes, &mut payload);
        }
        let judgement = match &self.stage {
            Stage::DropTail => Judgement::Pass,
            Stage::Scheduler(_) => return self.schedule(now, packet, payload),
            Stage::Red(_) | Stage::EcnThreshold(_) => self.judge(now, packet.is_ecn_capable),
        };
        if judgement == Judgement::Drop {
            self.stats.dropped_early += 1;
            return Verdict::DroppedEarly;
        }
        let is_idle = self.serialiser.busy_until <= now;
        if !is_idle && !self.has_room(size) {
            self.stats.dropped_full += 1;
            return Verdict::DroppedFull;
        }

        let start = if is_idle { now } else { self.serialiser.busy_until };
        let finish = self.serialiser.send(&self.config, start, is_idle, size);
        let is_marked = judgement == Judgement::Mark;
        if is_marked {
            self.stats.marked += 1;
        }
        let leaving = Leaving { size, number: self.stats.arrived, is_marked };
        let (verdict, flight) = self.fate(finish, leaving, payload);
        if is_idle {
            self.enter_pipe(now, size, flight);
        } else {
            self.backlog.account(now);
            self.queue.push_back(Waiting { start, size, flight });
            self.set_queue(self.backlog.packets + 1, self.backlog.bytes + u64::from(size));
        }
        verdict
    }

    /// Returns the deadline that [`poll`](Self::poll) would return, without advancing time. The
    /// deadline is in the past while deliveries wait for a poll.
    pub fn deadline(&self) -> Option<Instant> {
        let pipe = match self.pipe.front() {
            // With large jitter, a packet that will be held back may still arrive before this one.
            Some(flight) if self.may_overtake() => {
                Some(self.next_start().map_or(flight.at, |start| start.min(flight.at)))
            }
            Some(flight) => Some(flight.at),
            // The packet in the serialiser is lost or held back; the queue determines the next
            // event.
            None => self.next_start(),
        };
        let held = self.held.front().map(|flight| flight.at);
        match (pipe, held) {
            (Some(pipe), Some(held)) => Some(pipe.min(held)),
            (one, other) => one.or(other),
        }
    }

    /// Whether a waiting packet may arrive before one that has left the queue.
    fn may_overtake(&self) -> bool {
        self.fault_model.impairments.is_some() && self.config.reorder() > Probability::ZERO
    }

    /// When the next waiting packet leaves the queue.
    #[cold]
    fn next_start(&self) -> Option<Instant> {
        match self.stage {
            Stage::Scheduler(_) => (self.backlog.packets > 0).then_some(self.serialiser.busy_until),
            _ => self.queue.front().map(|waiting| waiting.start),
        }
    }

    /// Returns the next packet that has arrived by `now`, or the next deadline. A poll at a
    /// deadline may return another wait.
    ///
    /// # Panics
    /// If `now` is before an earlier input's.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Polled<Delivery<P>, LinkWait> {
        match self.next_delivery(now) {
            Some(delivery) => Polled::Ready(delivery),
            None => {
                let until = self.deadline();
                Polled::Wait { until, because: self.wait(until) }
            }
        }
    }

    /// [`poll`](Self::poll) for [`crate::Topology`], which reads the deadline only to update its
    /// agenda. Returning both in one value would copy every packet.
    #[inline]
    pub(crate) fn next_delivery(&mut self, now: Instant) -> Option<Delivery<P>> {
        self.advance(now);
        let key = |lane: &VecDeque<Flight<P>>| lane.front().map(|f| (f.at, f.arrival));
        let lane = match (key(&self.pipe), key(&self.held)) {
            (Some(pipe), Some(held)) if held < pipe => &mut self.held,
            (None, Some(_)) => &mut self.held,
            _ => &mut self.pipe,
        };
        let front = lane.front_mut().filter(|flight| flight.at <= now)?;
        let Flight { at, corrupted, is_marked, .. } = *front;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += u64::from(front.size);
        let payload = if front.copies > 1 {
            front.copies -= 1;
            front.payload.clone()
        } else {
            lane.pop_front()?.payload
        };
        Some(Delivery { payload, at, corrupted, is_marked })
    }

    /// Returns the reason for a wait until `until`.
    #[inline]
    fn wait(&self, until: Option<Instant>) -> LinkWait {
        match until {
            None => LinkWait::Arrival,
            Some(_) if self.pipe.is_empty() && self.held.is_empty() => LinkWait::Queue,
            Some(_) => LinkWait::Delay,
        }
    }

    /// Packets that waited for the serialiser at the latest input.
    pub fn queue_len(&self) -> usize {
        self.backlog.packets
    }

    /// Bytes that waited for the serialiser at the latest input.
    pub fn queue_bytes(&self) -> u64 {
        self.backlog.bytes
    }

    /// Number of deliveries to come for packets already pushed, second copies included. A packet
    /// whose fate is drawn at departure counts as one until then.
    pub fn in_transit(&self) -> u64 {
        let queued = self.queue.iter().filter_map(|waiting| waiting.flight.as_ref());
        let flights = queued.chain(&self.pipe).chain(&self.held);
        let undecided = (self.backlog.packets - self.queue.len()) as u64;
        undecided + flights.map(|flight| u64::from(flight.copies)).sum::<u64>()
    }

    /// The settings of the link.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Time of the latest input, and the earliest allowed time of the next.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Counters and averages so far.
    pub fn stats(&self) -> LinkStats {
        let elapsed = self.first_arrival.map_or(Span::ZERO, |first| self.now.since(first));
        let area = self.backlog.area_until(self.now);
        let queue_mean_packets =
            if elapsed == Span::ZERO { 0.0 } else { area as f64 / elapsed.0 as f64 };
        LinkStats { queue_mean_packets, ..self.stats }
    }

    /// Packets × picoseconds spent in the queue until the latest input.
    pub fn queue_packet_time(&self) -> u128 {
        self.backlog.area_until(self.now)
    }

    /// Counters and averages after all events until `now`.
    ///
    /// # Panics
    /// If `now` is before an earlier input's.
    pub fn stats_at(&mut self, now: Instant) -> LinkStats {
        self.advance(now);
        self.stats()
    }

    /// Returns a snapshot after all events until `now`, or until the latest input if that is later.
    pub fn snapshot(&mut self, now: Instant) -> LinkSnapshot {
        LinkSnapshot {
            stats: self.stats_at(now.max(self.now)),
            queue_packets: self.queue_len(),
            queue_packet_time: self.queue_packet_time(),
        }
    }

    /// Resets the longest queue to the present queue.
    pub fn restart_queue_max(&mut self) {
        self.stats.queue_max_packets = self.queue_len() as u64;
        self.stats.queue_max_bytes = self.backlog.bytes;
    }

    /// Moves all packets that left the queue by `now`, each at its own time.
    #[inline(always)] // As for `fate`: together a tenth of the time per packet.
    fn advance(&mut self, now: Instant) {
        assert!(now >= self.now, "link time went back from {:?} to {now:?}", self.now);
        self.now = now;
        if self.is_scheduled() {
            return self.serve(now);
        }
        while let Some(start) =
            self.queue.front().map(|waiting| waiting.start).filter(|&s| s <= now)
        {
            self.backlog.account(start);
            if let Some(waiting) = self.queue.pop_front() {
                self.backlog.packets -= 1;
                self.backlog.bytes -= u64::from(waiting.size);
                self.enter_pipe(start, waiting.size, waiting.flight);
            }
        }
    }

    fn is_scheduled(&self) -> bool {
        matches!(self.stage, Stage::Scheduler(_))
    }

    /// Returns the discipline's decision about an arrival, independent of room.
    #[inline(never)]
    fn judge(&mut self, now: Instant, is_ecn_capable: bool) -> Judgement {
        let queued = self.backlog.packets as u64;
        match &mut self.stage {
            Stage::Red(red) => {
                red.judge(queued, now.since(self.serialiser.busy_until), is_ecn_capable)
            }
            Stage::EcnThreshold(from) if is_ecn_capable && queued >= *from => Judgement::Mark,
            _ => Judgement::Pass,
        }
    }

    fn has_room(&self, size: u32) -> bool {
        let bytes = self.backlog.bytes + u64::from(size);
        self.config.queue().allows(self.backlog.packets as u64 + 1, bytes)
    }

    /// Passes a packet to the scheduler. A link at rest takes the packet at once, without a limit.
    #[cold]
    #[inline(never)]
    fn schedule(&mut self, now: Instant, meta: PacketMeta, payload: P) -> Verdict {
        self.backlog.account(now);
        let limit =
            if self.serialiser.is_resting { QueueLimit::Unlimited } else { self.config.queue() };
        let number = self.stats.arrived;
        let packet = Queued { meta, since: now, number, is_marked: false, payload };
        let Stage::Scheduler(scheduler) = &mut self.stage else { return Verdict::DroppedFull };
        let admission = scheduler.enqueue(packet, limit);
        self.stats.dropped_full += admission.dropped;
        if self.serialiser.is_resting {
            let serialiser = &mut self.serialiser;
            (serialiser.busy_until, serialiser.busy_fraction) = (now, 0);
            serialiser.is_resting = false;
            if let Some(shape) = &mut serialiser.shape {
                shape.rest(now);
            }
            self.serve(now);
        } else {
            let (packets, bytes) = (scheduler.len(), scheduler.bytes());
            self.set_queue(packets, bytes);
        }
        if admission.is_accepted { Verdict::Queued } else { Verdict::DroppedFull }
    }

    /// Serves the scheduler each time that the serialiser becomes free, until `now`.
    #[cold]
    #[inline(never)]
    fn serve(&mut self, now: Instant) {
        while !self.serialiser.is_resting && self.serialiser.busy_until <= now {
            let start = self.serialiser.busy_until;
            self.backlog.account(start);
            let Stage::Scheduler(scheduler) = &mut self.stage else { return };
            let departure = scheduler.dequeue(start);
            (self.backlog.packets, self.backlog.bytes) = (scheduler.len(), scheduler.bytes());
            self.stats.dropped_early += departure.dropped;
            let Some(packet) = departure.packet else {
                self.serialiser.is_resting = true;
                return;
            };
            let Queued { meta: PacketMeta { size, .. }, number, is_marked, payload, .. } = packet;
            self.stats.marked += u64::from(is_marked);
            let finish = self.serialiser.send(&self.config, start, false, size);
            let (_, flight) = self.fate(finish, Leaving { size, number, is_marked }, payload);
            self.enter_pipe(start, size, flight);
        }
    }

    /// Draws what happens to a packet behind the serialiser.
    #[inline(always)] // A call would copy the flight through memory.
    fn fate(
        &mut self,
        finish: Instant,
        leaving: Leaving,
        payload: P,
    ) -> (Verdict, Option<Flight<P>>) {
        let (config, fault_model) = (&self.config, &mut self.fault_model);
        let (is_hit, late) =
            fault_model.impairments.as_mut().map_or((false, Span::ZERO), |r| r.draw(config));
        let is_lost = fault_model.loss.chance(config.loss()) || is_hit;
        let is_doubled = fault_model.duplicate.chance(config.duplicate());
        let corrupted = fault_model.corrupt.chance(config.corrupt());
        let held = fault_model.reorder.chance(config.reorder());

        // Packets finish in order: an outage that ended before this packet affects no later packet.
        let outages = config.outages();
        while outages.get(self.next_outage).is_some_and(|outage| outage.end() <= finish) {
            self.next_outage += 1;
        }
        if outages.get(self.next_outage).is_some_and(|outage| outage.at <= finish) {
            self.stats.dropped_outage += 1;
            return (Verdict::DroppedOutage, None);
        }
        if is_lost {
            self.stats.dropped_loss += 1;
            return (Verdict::DroppedLoss, None);
        }
        self.stats.duplicated += u64::from(is_doubled);
        self.stats.corrupted += u64::from(corrupted);
        self.stats.reordered += u64::from(held);
        let extra = if held { config.reorder_by() } else { Span::ZERO };
        let at = match &mut fault_model.impairments {
            None => finish + config.delay() + extra,
            Some(impairments) => {
                let delay = impairments.delay(config, finish) + late;
                impairments.in_order(finish + delay + extra, held)
            }
        };
        let flight = Flight {
            at,
            arrival: leaving.number,
            size: leaving.size,
            copies: 1 + u8::from(is_doubled),
            held,
            corrupted,
            is_marked: leaving.is_marked,
            payload,
        };
        (Verdict::Queued, Some(flight))
    }

    /// Moves a packet from the serialiser to the propagation delay.
    #[inline]
    fn enter_pipe(&mut self, start: Instant, size: u32, mut flight: Option<Flight<P>>) {
        if let (Some(seat), Some(flight)) = (&mut self.router, &mut flight) {
            seat.departs(start, size, self.backlog.bytes, &mut flight.payload);
        }
        match flight {
            Some(flight) if flight.held => self.held.push_back(flight),
            Some(flight) => self.pipe.push_back(flight),
            None => {}
        }
    }

    /// Sets the queue after an arrival.
    fn set_queue(&mut self, packets: usize, bytes: u64) {
        (self.backlog.packets, self.backlog.bytes) = (packets, bytes);
        self.stats.queue_max_packets = self.stats.queue_max_packets.max(packets as u64);
        self.stats.queue_max_bytes = self.stats.queue_max_bytes.max(bytes);
    }
}

/// Creates the router and the forger of a link; the router's identifier is random.
fn seat<P>(config: &LinkConfig, random: &SeededRandom) -> Option<AttachedRouter<P>> {
    #[expect(clippy::cast_possible_truncation, reason = "some bits of it")]
    let id = |random: &SeededRandom| random.fork("router").next_u64() as u32;
    let router = config.router().zip(config.rate());
    let router = router.and_then(|(plan, rate)| plan.build(rate, id(random)));
    let forger = config.forge().map(|how| Forger::new(how, random.fork("forge")));
    AttachedRouter::new(router, forger, config.framing())
}

/// Returns the replacement of the link's constant rate, if any.
fn shape(config: &LinkConfig, random: &SeededRandom) -> Option<Shape> {
    let rate = config.rate()?;
    let burst = config.shaper().map(|shaper| Shape::burst(rate, shaper));
    let walk = || Some(Shape::walk(rate, config.rate_walk()?, random.fork("rate")));
    let steps = || Shape::steps(rate, config.rate_steps());
    let trace = || config.trace().cloned().map(|trace| Shape::Trace(Player::new(trace)));
    burst.or_else(walk).or_else(steps).or_else(trace)
}

impl Serialiser {
    /// Sends a packet of `size` bytes from `start`; returns when the last bit has left.
    #[inline]
    fn send(&mut self, config: &LinkConfig, start: Instant, is_idle: bool, size: u32) -> Instant {
        let Some(rate) = config.rate() else {
            self.busy_until = start;
            return start;
        };
        let size = size + config.framing();
        if let Some(shape) = &mut self.shape {
            if is_idle {
                shape.rest(start);
            }
            self.busy_until = shape.finish(start, size);
            return self.busy_until;
        }
        let carried = if is_idle { 0 } else { self.busy_fraction };
        let whole = u64::from(size)
            .checked_mul(BYTE_AT_ONE_BPS)
            .and_then(|scaled| scaled.checked_add(carried));
        let (ps, fraction) = match whole {
            Some(scaled) => (scaled / rate.0, scaled % rate.0),
            None => wide_division(size, carried, rate.0),
        };
        self.busy_fraction = fraction;
        self.busy_until = start + Span(ps);
        self.busy_until
    }
}

impl Backlog {
    /// Adds the time at the present length, before the length changes at `at`.
    #[inline]
    fn account(&mut self, at: Instant) {
        self.area += self.area_since(at);
        self.changed = at;
    }

    /// Packets × picoseconds from the last change until `at`.
    #[inline]
    fn area_since(&self, at: Instant) -> u128 {
        self.packets as u128 * u128::from(at.since(self.changed).0)
    }

    /// Packets × picoseconds spent waiting until `at`.
    #[inline]
    fn area_until(&self, at: Instant) -> u128 {
        self.area + self.area_since(at)
    }
}

impl<P> fmt::Debug for Link<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("now", &self.now)
            .field("queue", &self.backlog.packets)
            .field("queue_bytes", &self.backlog.bytes)
            .field("flying", &(self.pipe.len() + self.held.len()))
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// Picoseconds and remainder for sizes beyond 2 MB, whose product exceeds 64 bits.
#[cold]
#[expect(clippy::cast_possible_truncation, reason = "capped; a remainder is below the rate")]
fn wide_division(size: u32, carried: u64, rate: u64) -> (u64, u64) {
    let scaled = u128::from(size) * u128::from(BYTE_AT_ONE_BPS) + u128::from(carried);
    let ps = (scaled / u128::from(rate)).min(u128::from(u64::MAX));
    (ps as u64, (scaled % u128::from(rate)) as u64)
}
