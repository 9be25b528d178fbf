//! One direction of a path: a queue, a serialiser and a pipe.
//!
//! Model: a packet waits in the queue until those before it have left, takes `(size + framing) × 8 ÷ rate`
//! in the serialiser (the fraction of a picosecond carries over to the next packet of the same busy
//! period, so no rate drifts), and is delivered one `delay` (and some jitter) after its last bit
//! left. Loss, outages, duplication, damage, jitter and reordering happen behind the serialiser: a
//! packet lost on the wire has used its share of the rate, and a second copy costs nothing.
//! Queue:       drop-tail, RED and ECN marking decide at arrival and are served in order, so that
//!     all times are known then. The other disciplines ([`crate::Discipline`]) are asked for a
//!     packet at the instant the serialiser becomes free; its fate is drawn only then. At equal
//!     times a packet leaves before another arrives.
//! Time:        inputs come in order of time; the link catches up with whatever happened between
//!     two of them at the exact instants, so it does not matter how often it is polled.
//! Chance:      each kind of event draws from its own stream, once for every packet that enters the
//!     serialiser: turning one kind on does not move another's luck.
//! Invariants:  arrived + duplicated = delivered + dropped + in transit; deliveries come in order
//!     of (time, departure); only packets held back are overtaken behind the serialiser.
//! Not here:    bytes. A damaged packet is only marked ([`crate::corrupt_bytes`] is for its owner).

use std::collections::VecDeque;
use std::fmt;

use sabul_units::{Instant, Polled, Probability, Random, SeededRandom, Span};

use crate::config::{LinkConfig, QueueLimit};
use crate::discipline::Discipline;
use crate::forge::Forger;
use crate::packet::PacketMeta;
use crate::queue::{Judgement, QueueDiscipline, Queued, RedGate, Scheduler};
use crate::rough::Rough;
use crate::router::{Find, RouterAccount, Seat};
use crate::shape::{Bucket, Shape};
use crate::trace::Player;

#[cfg(test)]
mod tests;

/// Picoseconds that a bit takes at 1 bit/s, times the bits in a byte.
const BYTE_AT_ONE_BPS: u64 = 8_000_000_000_000;

/// What becomes of a packet, as far as it is known when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It will be delivered. Where the discipline decides at departure (CoDel, FQ-CoDel, DRR) this
    /// promises only a place in the queue: the link may still drop it later.
    Queued,
    /// The queue had no room for it.
    DroppedFull,
    /// The discipline dropped it before the queue was full, or the policer did.
    DroppedEarly,
    /// It will be lost on the wire.
    DroppedLoss,
    /// It will leave the serialiser during an outage.
    DroppedOutage,
    /// It was larger than the MTU.
    DroppedTooLarge,
}

/// A packet at the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// What was pushed.
    pub payload: P,
    /// When it arrives; never later than the `now` it was polled with.
    pub at: Instant,
    /// Whether its bytes were damaged on the way.
    pub corrupted: bool,
    /// Whether this link gave it the ECN mark (CE); a mark from before is the owner's to keep.
    pub is_marked: bool,
}

/// What a link waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkWait {
    /// That a packet is pushed; the link is empty.
    Arrival,
    /// That the serialiser takes the next packet, though none will arrive before.
    Queue,
    /// A packet behind the serialiser.
    Delay,
}

/// What a link has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkStats {
    /// Packets pushed.
    pub arrived: u64,
    /// Packets delivered, second copies included.
    pub delivered: u64,
    /// Bytes delivered, second copies included.
    pub delivered_bytes: u64,
    /// Packets dropped because the queue was full: the newcomer, or others in its stead.
    pub dropped_full: u64,
    /// Packets that the discipline or the policer dropped while there was room.
    pub dropped_early: u64,
    /// Packets lost by chance, in bursts or not.
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
    /// Packets that this link gave the ECN mark, whatever became of them afterwards.
    pub marked: u64,
    /// The most packets that waited at once.
    pub queue_max_packets: u64,
    /// The most bytes that waited at once.
    pub queue_max_bytes: u64,
    /// Packets waiting, averaged over the time from the first arrival to the latest input.
    pub queue_mean_packets: f64,
}

/// A direction of a link at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkLook {
    /// Counts so far.
    pub stats: LinkStats,
    /// Packets waiting.
    pub queue_packets: usize,
    /// Packets × picoseconds spent waiting so far.
    pub queue_packet_time: u128,
}

impl LinkStats {
    /// Bytes delivered with so many bytes of framing each: what they took of the rate.
    pub fn carried_bytes(&self, framing: u32) -> u64 {
        self.delivered_bytes + self.delivered * u64::from(framing)
    }

    /// Packets dropped, whatever the cause.
    pub fn dropped(&self) -> u64 {
        let queue = self.dropped_full + self.dropped_early + self.dropped_too_large;
        queue + self.dropped_loss + self.dropped_outage
    }
}

/// One direction of a path, carrying packets of type `P`.
pub struct Link<P> {
    config: LinkConfig,
    luck: Luck,
    now: Instant,
    first_arrival: Option<Instant>,

    policer: Option<Box<Bucket>>,
    router: Option<Box<Seat<P>>>,
    serialiser: Serialiser,
    stage: Stage<P>,
    /// Packets in order, each with the time at which it will leave.
    queue: VecDeque<Waiting<P>>,
    backlog: Backlog,

    /// Packets behind the serialiser, those held back apart; both in order of time.
    pipe: VecDeque<Flight<P>>,
    held: VecDeque<Flight<P>>,
    next_outage: usize,
    stats: LinkStats,
}

/// What sends one packet after the other.
#[derive(Clone)]
struct Serialiser {
    /// When it has sent everything accepted so far, and the fraction of a picosecond by which that is
    /// later, in units of 1 ÷ rate picoseconds.
    busy_until: Instant,
    busy_fraction: u64,
    /// It became free and the scheduler had nothing for it.
    is_resting: bool,
    /// What takes the place of a constant rate.
    shape: Option<Box<Shape>>,
}

/// What waits, wherever that is.
#[derive(Clone, Default)]
struct Backlog {
    packets: usize,
    bytes: u64,
    /// Packets × picoseconds spent waiting until `changed`.
    area: u128,
    changed: Instant,
}

/// What decides about the queue; all but the last serve it in order.
#[derive(Clone)]
enum Stage<P> {
    DropTail,
    Red(Box<RedGate>),
    /// Marks from so many waiting packets on.
    EcnThreshold(u64),
    /// Packets wait in there and `queue` stays empty.
    Scheduler(Box<Scheduler<P>>),
}

#[derive(Clone)]
struct Luck {
    loss: SeededRandom,
    rough: Option<Box<Rough>>,
    duplicate: SeededRandom,
    corrupt: SeededRandom,
    reorder: SeededRandom,
}

/// A packet in the queue; one without a flight uses its share of the rate and is lost then.
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
    /// An idle link whose luck is drawn from streams forked off `random`.
    pub fn new(config: LinkConfig, random: &SeededRandom) -> Self {
        let luck = Luck {
            loss: random.fork("loss"),
            rough: Rough::new(&config, random).map(Box::new),
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
            luck,
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

    /// Where payloads have congestion headers, which the link's router reads and rewrites; without this it sees
    /// none.
    pub(crate) fn find_headers(&mut self, find: Find<P>) {
        if let Some(seat) = &mut self.router {
            seat.set_find(find);
        }
    }

    /// What the link's router says and has seen, where it has one.
    pub fn router(&self) -> Option<RouterAccount> {
        let router = self.router.as_ref()?.router()?;
        Some(RouterAccount { stats: router.stats(), told: router.told() })
    }

    /// A packet of `size_bytes`, headers included, of flow 0 and without ECN, reaches the queue.
    ///
    /// # Panics
    /// If `now` is before an earlier input's.
    #[inline]
    pub fn push(&mut self, now: Instant, size_bytes: u32, payload: P) -> Verdict {
        self.push_packet(now, PacketMeta { size: size_bytes, ..PacketMeta::default() }, payload)
    }

    /// A packet reaches the queue.
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

    /// The time that [`poll`](Self::poll) would wait for, without letting time pass: in the past where
    /// there are deliveries that were not polled yet.
    pub fn deadline(&self) -> Option<Instant> {
        let pipe = match self.pipe.front() {
            // With much jitter, one that will be held back may still arrive before it.
            Some(flight) if self.may_overtake() => {
                Some(self.next_start().map_or(flight.at, |start| start.min(flight.at)))
            }
            Some(flight) => Some(flight.at),
            // What is in the serialiser now is lost or held back; see what the queue sends next.
            None => self.next_start(),
        };
        let held = self.held.front().map(|flight| flight.at);
        match (pipe, held) {
            (Some(pipe), Some(held)) => Some(pipe.min(held)),
            (one, other) => one.or(other),
        }
    }

    /// Whether a packet that waits may arrive before one that does not.
    fn may_overtake(&self) -> bool {
        self.luck.rough.is_some() && self.config.reorder() > Probability::ZERO
    }

    /// When the next packet that waits will leave the queue.
    #[cold]
    fn next_start(&self) -> Option<Instant> {
        match self.stage {
            Stage::Scheduler(_) => (self.backlog.packets > 0).then_some(self.serialiser.busy_until),
            _ => self.queue.front().map(|waiting| waiting.start),
        }
    }

    /// The next packet that has arrived by `now`, or until when there is none; where a wait is over there
    /// may be none yet.
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

    /// [`poll`](Self::poll) for [`crate::Topology`], which asks for the time only when it sets its agenda:
    /// the answer in one value costs every packet a copy.
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

    /// What a link waits for that has nothing to do until then.
    #[inline]
    fn wait(&self, until: Option<Instant>) -> LinkWait {
        match until {
            None => LinkWait::Arrival,
            Some(_) if self.pipe.is_empty() && self.held.is_empty() => LinkWait::Queue,
            Some(_) => LinkWait::Delay,
        }
    }

    /// Packets waiting for the serialiser at the latest input.
    pub fn queue_len(&self) -> usize {
        self.backlog.packets
    }

    /// Bytes waiting for the serialiser at the latest input.
    pub fn queue_bytes(&self) -> u64 {
        self.backlog.bytes
    }

    /// Deliveries still to come for packets already pushed, second copies included; of packets
    /// whose fate is drawn at departure, each counts once until then.
    pub fn in_transit(&self) -> u64 {
        let queued = self.queue.iter().filter_map(|waiting| waiting.flight.as_ref());
        let flights = queued.chain(&self.pipe).chain(&self.held);
        let undecided = (self.backlog.packets - self.queue.len()) as u64;
        undecided + flights.map(|flight| u64::from(flight.copies)).sum::<u64>()
    }

    /// The settings this link was made with.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// The time of the latest input: the earliest that the next one may have.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Counts and averages so far.
    pub fn stats(&self) -> LinkStats {
        let elapsed = self.first_arrival.map_or(Span::ZERO, |first| self.now.since(first));
        let area = self.backlog.area_until(self.now);
        let queue_mean_packets =
            if elapsed == Span::ZERO { 0.0 } else { area as f64 / elapsed.0 as f64 };
        LinkStats { queue_mean_packets, ..self.stats }
    }

    /// Packets × picoseconds that packets have spent in the queue until the latest input.
    pub fn queue_packet_time(&self) -> u128 {
        self.backlog.area_until(self.now)
    }

    /// Counts and averages after everything that happens until `now`.
    ///
    /// # Panics
    /// If `now` is before an earlier input's.
    pub fn stats_at(&mut self, now: Instant) -> LinkStats {
        self.advance(now);
        self.stats()
    }

    /// How it stands after everything that happens until `now`, or until the latest input.
    pub fn look(&mut self, now: Instant) -> LinkLook {
        LinkLook {
            stats: self.stats_at(now.max(self.now)),
            queue_packets: self.queue_len(),
            queue_packet_time: self.queue_packet_time(),
        }
    }

    /// Forgets the longest queue so far, but not the present one.
    pub fn restart_queue_max(&mut self) {
        self.stats.queue_max_packets = self.queue_len() as u64;
        self.stats.queue_max_bytes = self.backlog.bytes;
    }

    /// Lets everything that left the queue by `now` do so at its own time.
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

    /// What the discipline thinks of an arrival, room or no room.
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

    /// Hands a packet to the scheduler; one that finds the link at rest needs no room, and is asked
    /// for again at once.
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

    /// Lets the scheduler fill the serialiser each time that is free by `now`.
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
        let (config, luck) = (&self.config, &mut self.luck);
        let (is_hit, late) = luck.rough.as_mut().map_or((false, Span::ZERO), |r| r.draw(config));
        let is_lost = luck.loss.chance(config.loss()) || is_hit;
        let is_doubled = luck.duplicate.chance(config.duplicate());
        let corrupted = luck.corrupt.chance(config.corrupt());
        let held = luck.reorder.chance(config.reorder());

        // Packets finish in order, so an outage that is over for this one is over for good.
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
        let at = match &mut luck.rough {
            None => finish + config.delay() + extra,
            Some(rough) => {
                let delay = rough.delay(config, finish) + late;
                rough.in_order(finish + delay + extra, held)
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

    /// The serialiser has taken a packet of that size.
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

    /// What waits after an arrival.
    fn set_queue(&mut self, packets: usize, bytes: u64) {
        (self.backlog.packets, self.backlog.bytes) = (packets, bytes);
        self.stats.queue_max_packets = self.stats.queue_max_packets.max(packets as u64);
        self.stats.queue_max_bytes = self.stats.queue_max_bytes.max(bytes);
    }
}

/// The router of a link, whose number among routers is drawn, and its forger.
fn seat<P>(config: &LinkConfig, random: &SeededRandom) -> Option<Seat<P>> {
    #[expect(clippy::cast_possible_truncation, reason = "some bits of it")]
    let id = |random: &SeededRandom| random.fork("router").next_u64() as u32;
    let router = config.router().zip(config.rate());
    let router = router.and_then(|(plan, rate)| plan.build(rate, id(random)));
    let forger = config.forge().map(|how| Forger::new(how, random.fork("forge")));
    Seat::new(router, forger, config.framing())
}

/// What a link has in place of a constant rate.
fn shape(config: &LinkConfig, random: &SeededRandom) -> Option<Shape> {
    let rate = config.rate()?;
    let burst = config.shaper().map(|shaper| Shape::burst(rate, shaper));
    let walk = || Some(Shape::walk(rate, config.rate_walk()?, random.fork("rate")));
    let steps = || Shape::steps(rate, config.rate_steps());
    let trace = || config.trace().cloned().map(|trace| Shape::Trace(Player::new(trace)));
    burst.or_else(walk).or_else(steps).or_else(trace)
}

impl Serialiser {
    /// Is occupied by a packet of this size from `start`; returns when the last bit has left.
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
    /// Closes the books on the present length, before it changes at `at`.
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

/// Picoseconds and remainder for sizes beyond 2 MB, whose product leaves 64 bits.
#[cold]
#[expect(clippy::cast_possible_truncation, reason = "capped; a remainder is below the rate")]
fn wide_division(size: u32, carried: u64, rate: u64) -> (u64, u64) {
    let scaled = u128::from(size) * u128::from(BYTE_AT_ONE_BPS) + u128::from(carried);
    let ps = (scaled / u128::from(rate)).min(u128::from(u64::MAX));
    (ps as u64, (scaled % u128::from(rate)) as u64)
}
