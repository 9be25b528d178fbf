//! One direction of a path: a drop-tail queue, a serialiser and a pipe.
//!
//! Model: a packet waits in the queue until those before it have left, takes `size × 8 ÷ rate` in
//! the serialiser (the fraction of a picosecond carries over to the next packet of the same busy
//! period, so no rate drifts), and is delivered one `delay` after its last bit left. Loss, outages,
//! duplication, damage and reordering happen behind the serialiser: a packet lost on the wire has
//! used its share of the rate, and a second copy costs nothing.
//! Time:        inputs come in order of time; the link catches up with whatever happened between
//!     two of them at the exact instants, so it does not matter how often it is polled.
//! Chance:      each kind of event draws from its own stream, once for every packet that the queue
//!     accepts: turning one kind on does not move another's luck.
//! Invariants:  arrived + duplicated = delivered + dropped + in transit; deliveries come in order
//!     of (time, arrival).
//! Not here:    bytes. A damaged packet is only marked ([`crate::corrupt_bytes`] is for its owner).

use std::collections::VecDeque;
use std::fmt;

use sabul_units::{Instant, Random, SeededRandom, Span};

use crate::{LinkConfig, QueueLimit};

#[cfg(test)]
mod tests;

/// Picoseconds that a bit takes at 1 bit/s, times the bits in a byte.
const BYTE_AT_ONE_BPS: u64 = 8_000_000_000_000;

/// What becomes of a packet, known as soon as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It will be delivered.
    Queued,
    /// The queue had no room for it.
    DroppedFull,
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
    /// Packets that found the queue full.
    pub dropped_full: u64,
    /// Packets lost by chance.
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
    /// The most packets that waited at once.
    pub queue_max_packets: u64,
    /// The most bytes that waited at once.
    pub queue_max_bytes: u64,
    /// Packets waiting, averaged over the time from the first arrival to the latest input.
    pub queue_mean_packets: f64,
}

impl LinkStats {
    /// Packets dropped, whatever the cause.
    pub fn dropped(&self) -> u64 {
        self.dropped_full + self.dropped_loss + self.dropped_outage + self.dropped_too_large
    }
}

/// One direction of a path, carrying packets of type `P`.
#[derive(Clone)]
pub struct Link<P> {
    config: LinkConfig,
    luck: Luck,
    now: Instant,
    first_arrival: Option<Instant>,

    /// When the serialiser has sent everything accepted so far, and the fraction of a picosecond
    /// by which that is later, in units of 1 ÷ rate picoseconds.
    busy_until: Instant,
    busy_fraction: u64,
    queue: VecDeque<Waiting<P>>,
    queue_bytes: u64,
    /// Packets × picoseconds spent in the queue until `queue_changed`.
    queue_area: u128,
    queue_changed: Instant,

    /// Both are in order of time, because every packet in one spends the same time there.
    pipe: VecDeque<Flight<P>>,
    held: VecDeque<Flight<P>>,
    next_outage: usize,
    stats: LinkStats,
}

#[derive(Clone)]
struct Luck {
    loss: SeededRandom,
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

/// A packet behind the serialiser.
#[derive(Clone)]
struct Flight<P> {
    at: Instant,
    arrival: u64,
    size: u32,
    copies: u8,
    held: bool,
    corrupted: bool,
    payload: P,
}

impl<P: Clone> Link<P> {
    /// An idle link whose luck is drawn from streams forked off `random`.
    pub fn new(config: LinkConfig, random: &SeededRandom) -> Self {
        let luck = Luck {
            loss: random.fork("loss"),
            duplicate: random.fork("duplicate"),
            corrupt: random.fork("corrupt"),
            reorder: random.fork("reorder"),
        };
        Self {
            config,
            luck,
            now: Instant::ZERO,
            first_arrival: None,
            busy_until: Instant::ZERO,
            busy_fraction: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            queue_area: 0,
            queue_changed: Instant::ZERO,
            pipe: VecDeque::new(),
            held: VecDeque::new(),
            next_outage: 0,
            stats: LinkStats::default(),
        }
    }

    /// A packet of `size_bytes`, headers included, reaches the queue.
    ///
    /// # Panics
    /// If `now` is before an earlier input's.
    pub fn push(&mut self, now: Instant, size_bytes: u32, payload: P) -> Verdict {
        self.advance(now);
        self.stats.arrived += 1;
        self.first_arrival.get_or_insert(now);
        if self.config.mtu().is_some_and(|mtu| size_bytes > mtu) {
            self.stats.dropped_too_large += 1;
            return Verdict::DroppedTooLarge;
        }
        let is_idle = self.busy_until <= now;
        if !is_idle && !self.has_room(size_bytes) {
            self.stats.dropped_full += 1;
            return Verdict::DroppedFull;
        }

        let start = if is_idle { now } else { self.busy_until };
        let finish = self.serialise(start, is_idle, size_bytes);
        let (verdict, flight) = self.fate(finish, size_bytes, payload);
        if is_idle {
            self.enter_pipe(flight);
        } else {
            self.account_queue(now);
            self.queue.push_back(Waiting { start, size: size_bytes, flight });
            self.queue_bytes += u64::from(size_bytes);
            let stats = &mut self.stats;
            stats.queue_max_packets = stats.queue_max_packets.max(self.queue.len() as u64);
            stats.queue_max_bytes = stats.queue_max_bytes.max(self.queue_bytes);
        }
        verdict
    }

    /// When [`poll`](Self::poll) is worth calling next: in the past for deliveries that were not
    /// polled yet, and possibly in vain.
    pub fn next_deadline(&self) -> Option<Instant> {
        let pipe = match self.pipe.front() {
            Some(flight) => Some(flight.at),
            // What is in the serialiser now is lost or held back; see what the queue sends next.
            None => self.queue.front().map(|waiting| waiting.start),
        };
        let held = self.held.front().map(|flight| flight.at);
        match (pipe, held) {
            (Some(pipe), Some(held)) => Some(pipe.min(held)),
            (one, other) => one.or(other),
        }
    }

    /// The next packet that has arrived by `now`; call again until there is none.
    ///
    /// # Panics
    /// If `now` is before an earlier input's.
    pub fn poll(&mut self, now: Instant) -> Option<Delivery<P>> {
        self.advance(now);
        let key = |lane: &VecDeque<Flight<P>>| lane.front().map(|f| (f.at, f.arrival));
        let lane = match (key(&self.pipe), key(&self.held)) {
            (Some(pipe), Some(held)) if held < pipe => &mut self.held,
            (None, Some(_)) => &mut self.held,
            _ => &mut self.pipe,
        };
        let front = lane.front_mut().filter(|flight| flight.at <= now)?;
        let (at, corrupted) = (front.at, front.corrupted);
        self.stats.delivered += 1;
        self.stats.delivered_bytes += u64::from(front.size);
        let payload = if front.copies > 1 {
            front.copies -= 1;
            front.payload.clone()
        } else {
            lane.pop_front()?.payload
        };
        Some(Delivery { payload, at, corrupted })
    }

    /// Packets waiting for the serialiser at the latest input.
    pub fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes waiting for the serialiser at the latest input.
    pub fn queue_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// Deliveries still to come for packets already pushed, second copies included.
    pub fn in_transit(&self) -> u64 {
        let queued = self.queue.iter().filter_map(|waiting| waiting.flight.as_ref());
        let flights = queued.chain(&self.pipe).chain(&self.held);
        flights.map(|flight| u64::from(flight.copies)).sum()
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
        let area = self.queue_area + self.queue_area_until(self.now);
        let queue_mean_packets =
            if elapsed == Span::ZERO { 0.0 } else { area as f64 / elapsed.0 as f64 };
        LinkStats { queue_mean_packets, ..self.stats }
    }

    /// Lets everything that left the queue by `now` do so at its own time.
    fn advance(&mut self, now: Instant) {
        assert!(now >= self.now, "link time went back from {:?} to {now:?}", self.now);
        self.now = now;
        while let Some(start) =
            self.queue.front().map(|waiting| waiting.start).filter(|&s| s <= now)
        {
            self.account_queue(start);
            if let Some(waiting) = self.queue.pop_front() {
                self.queue_bytes -= u64::from(waiting.size);
                self.enter_pipe(waiting.flight);
            }
        }
    }

    fn has_room(&self, size: u32) -> bool {
        match self.config.queue() {
            QueueLimit::Packets(limit) => (self.queue.len() as u64) < limit,
            QueueLimit::Bytes(limit) => self.queue_bytes + u64::from(size) <= limit,
            QueueLimit::Unlimited => true,
        }
    }

    /// Occupies the serialiser from `start`; returns when the last bit has left.
    fn serialise(&mut self, start: Instant, is_idle: bool, size: u32) -> Instant {
        let Some(rate) = self.config.rate() else {
            self.busy_until = start;
            return start;
        };
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

    /// Draws what happens to a packet behind the serialiser.
    fn fate(&mut self, finish: Instant, size: u32, payload: P) -> (Verdict, Option<Flight<P>>) {
        let (config, luck) = (&self.config, &mut self.luck);
        let is_lost = luck.loss.chance(config.loss());
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
        let flight = Flight {
            at: finish + config.delay() + extra,
            arrival: self.stats.arrived,
            size,
            copies: 1 + u8::from(is_doubled),
            held,
            corrupted,
            payload,
        };
        (Verdict::Queued, Some(flight))
    }

    fn enter_pipe(&mut self, flight: Option<Flight<P>>) {
        match flight {
            Some(flight) if flight.held => self.held.push_back(flight),
            Some(flight) => self.pipe.push_back(flight),
            None => {}
        }
    }

    /// Closes the books on the present queue length, before it changes at `at`.
    fn account_queue(&mut self, at: Instant) {
        self.queue_area += self.queue_area_until(at);
        self.queue_changed = at;
    }

    fn queue_area_until(&self, at: Instant) -> u128 {
        self.queue.len() as u128 * u128::from(at.since(self.queue_changed).0)
    }
}

impl<P> fmt::Debug for Link<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("now", &self.now)
            .field("queue", &self.queue.len())
            .field("queue_bytes", &self.queue_bytes)
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
