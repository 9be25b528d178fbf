//! Network topology: links in both directions, the routes over them, and one event queue.
//!
//! Model:      a packet pushed onto a route passes its links in order (on the way back in reverse).
//!             It then waits for the route's access delay and leaves through [`Topology::poll`].
//!             Actors run in order of their due times; at equal times, in the order in which the
//!             times were set.
//! Contract:   the contract of all state machines (ADR 21). Pushes and changes of timers are
//!             inputs. An input that is earlier than a link's latest time counts as at that time.
//! Damage:     a damaged packet either ends at its link or continues and arrives marked
//!             ([`Damage`]); packets without bytes need the former, packets with bytes the latter.
//! Invariants: each actor (a link's direction, an access delay, a timer of the caller) has at most
//! one time on the agenda; no link creates or loses packets without counting them
//! ([`Topology::audit`] checks this). Packets on a removed route never arrive, also when another
//! route takes its place.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use sabul_units::{Instant, Polled, SeededRandom, Span};

use crate::agenda::{Actor, Agenda};
use crate::config::LinkConfig;
use crate::drops::{DropEvent, DropReason};
use crate::link::{Link, LinkSnapshot, LinkStats, Verdict};
use crate::packet::PacketMeta;
use crate::router::Headed;

#[cfg(test)]
mod tests;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From the sending or connecting end: the direction of the data.
    Forward,
    /// The direction back.
    Back,
}

impl Way {
    /// Both directions.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Back];

    /// Returns the opposite direction.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Forward => Self::Back,
            Self::Back => Self::Forward,
        }
    }
}

/// One value for each [`Way`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Both<T>(pub [T; 2]);

impl<T> Index<Way> for Both<T> {
    type Output = T;

    fn index(&self, way: Way) -> &T {
        &self.0[way as usize]
    }
}

impl<T> IndexMut<Way> for Both<T> {
    fn index_mut(&mut self, way: Way) -> &mut T {
        &mut self.0[way as usize]
    }
}

/// A link in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPlan {
    /// Name.
    pub id: String,
    /// Direction of the data.
    pub forward: LinkConfig,
    /// Direction back.
    pub back: LinkConfig,
}

/// Treatment of packets that a link damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The packet ends at that link. For packets without bytes, which no receiver would accept.
    Ends,
    /// The packet continues and arrives marked as damaged.
    Arrives,
}

/// Identifier of a route in a [`Topology`]. Places are reused, identifiers are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteId {
    slot: u32,
    reuse: u32,
}

impl RouteId {
    /// Position among the present routes; the position of a removed route is reused.
    pub const fn slot(self) -> usize {
        self.slot as usize
    }
}

/// A timer of the caller, on the same agenda as the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer(Actor);

/// Output of a [`Topology`]; `T` is the type of the caller's timer tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<P, T> {
    /// A packet has reached the end of its route.
    Arrived(Arrival<P>),
    /// A timer of the caller has fired.
    Due(T),
}

/// Event that a [`Topology`] waits for: the first on the agenda.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyWait<T> {
    /// A push or a timer setting; the agenda is empty.
    Push,
    /// An event of one direction of the link at this position.
    Link(usize, Way),
    /// The end of an access delay.
    AccessDelay(Way),
    /// A timer of the caller.
    Timer(T),
}

/// A packet at the end of its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// The route of the packet.
    pub route: RouteId,
    /// Direction of the packet.
    pub way: Way,
    /// Arrival time; not later than the `now` of the poll, or than the time of a later push.
    pub at: Instant,
    /// Whether a queue on the way set the ECN mark.
    pub is_marked: bool,
    /// Whether the packet was damaged on the way.
    pub is_damaged: bool,
    /// The pushed payload.
    pub payload: P,
}

/// Record of a packet put onto a link, the first of its route or a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<P> {
    /// Position of the link.
    pub link: usize,
    /// Direction of the link.
    pub way: Way,
    /// Time.
    pub at: Instant,
    /// The link's verdict.
    pub verdict: Verdict,
    /// The pushed payload.
    pub payload: P,
}

/// A packet in the network.
#[derive(Clone, Debug)]
pub struct Transit<P> {
    route: RouteId,
    meta: PacketMeta,
    /// Position of its present link within the route.
    hop: u16,
    is_marked: bool,
    is_damaged: bool,
    payload: P,
}

#[derive(Debug)]
struct Direction<P> {
    link: Link<Transit<P>>,
    actor: Actor,
}

/// Packets waiting for the access delay, in order of time.
type Pipe<P> = VecDeque<(Instant, Transit<P>)>;

/// Slot of a route; reused after the route is removed.
#[derive(Debug)]
struct RouteSlot<P> {
    /// Number of reuses of the slot.
    reuse: u32,
    /// Links in order; the way back uses the reverse order.
    path: Arc<[usize]>,
    access_delay: Span,
    pipes: Both<Pipe<P>>,
    actors: Both<Actor>,
}

/// Purpose of an actor.
#[derive(Clone, Copy, Debug)]
enum Role<T> {
    /// A direction of a link, by index.
    Link(u32),
    /// The access delay of the route in a slot.
    Pipe(u32, Way),
    Owner(T),
}

/// The actor that is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    Nobody,
    Link(u32),
    Pipe(RouteId, Way),
}

/// Links in both directions, routes over them, and the event queue.
pub struct Topology<P, T = ()> {
    /// Forward and back direction of each link in turn.
    directions: Vec<Direction<P>>,
    slots: Vec<RouteSlot<P>>,
    free: Vec<u32>,
    damage: Damage,
    agenda: Agenda,
    /// Indexed by actor.
    roles: Vec<Role<T>>,
    running: Running,
    /// Time of the latest turn.
    now: Instant,
    turns: u64,
    is_audited: bool,
    entries: Option<Vec<Entry<P>>>,
    drops: Option<Vec<DropEvent>>,
}

impl<P: Clone, T: Copy> Topology<P, T> {
    /// Creates an empty topology.
    pub const fn new(damage: Damage) -> Self {
        Self {
            directions: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            damage,
            agenda: Agenda::new(),
            roles: Vec::new(),
            running: Running::Nobody,
            now: Instant::ZERO,
            turns: 0,
            is_audited: false,
            entries: None,
            drops: None,
        }
    }

    /// Creates a topology of idle links, each with its own random stream: the fork `link/<id>`.
    pub fn of_links(plans: &[LinkPlan], random: &SeededRandom, damage: Damage) -> Self {
        let mut topology = Self::new(damage);
        for plan in plans {
            let random = random.fork(&format!("link/{}", plan.id));
            let random = [random.fork("forward"), random.fork("back")];
            topology.add_link(plan.forward.clone(), plan.back.clone(), &random);
        }
        topology
    }

    /// Adds a link whose directions use these random streams; returns its position.
    pub fn add_link(
        &mut self,
        forward: LinkConfig,
        back: LinkConfig,
        random: &[SeededRandom; 2],
    ) -> usize {
        for (config, random) in [forward, back].into_iter().zip(random) {
            let index = u32::try_from(self.directions.len()).expect("fewer than 2^32 links");
            let actor = self.add_actor(Role::Link(index));
            self.directions.push(Direction { link: Link::new(config, random), actor });
        }
        self.links() - 1
    }

    /// Adds a route over these links in order, and back over the same links. The access delay
    /// follows the last link in either direction.
    ///
    /// # Panics
    /// If the path is empty or contains a link that does not exist.
    pub fn add_route(&mut self, path: Arc<[usize]>, access_delay: Span) -> RouteId {
        assert!(!path.is_empty(), "a route has links");
        assert!(u16::try_from(path.len()).is_ok(), "a route has fewer than 2^16 links");
        assert!(path.iter().all(|link| *link < self.links()), "its links exist");
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            (slot.path, slot.access_delay) = (path, access_delay);
            return RouteId { slot: index, reuse: slot.reuse };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 routes at a time");
        let actors = Way::BOTH.map(|way| self.add_actor(Role::Pipe(index, way)));
        self.slots.push(RouteSlot {
            reuse: 0,
            path,
            access_delay,
            pipes: Both([Pipe::new(), Pipe::new()]),
            actors: Both(actors),
        });
        RouteId { slot: index, reuse: 0 }
    }

    /// Removes a route. Packets on the route still use their share of the links and are then lost.
    /// No effect on a route already removed.
    pub fn remove_route(&mut self, route: RouteId) {
        let Some(slot) = self.slots.get_mut(route.slot()) else { return };
        if slot.reuse != route.reuse {
            return;
        }
        slot.reuse += 1;
        for way in Way::BOTH {
            slot.pipes[way].clear();
            self.agenda.set(slot.actors[way], None);
        }
        self.free.push(route.slot);
    }

    /// Adds an unarmed timer; [`poll`](Self::poll) returns `tag` when the timer fires.
    pub fn add_timer(&mut self, tag: T) -> Timer {
        Timer(self.add_actor(Role::Owner(tag)))
    }

    /// Sets the time of a timer, in place of any earlier time; `None` disarms the timer.
    pub fn set_timer(&mut self, timer: Timer, at: Option<Instant>) {
        self.agenda.set(timer.0, at);
    }

    /// Pushes a packet onto the first link of a route. On a removed route the packet is lost, as
    /// during an outage.
    #[inline]
    pub fn push(
        &mut self,
        at: Instant,
        route: RouteId,
        way: Way,
        meta: PacketMeta,
        payload: P,
    ) -> Verdict {
        let slot = &self.slots[route.slot()];
        if slot.reuse != route.reuse {
            return Verdict::DroppedOutage;
        }
        let hop = match way {
            Way::Forward => 0,
            Way::Back => slot.path.len() - 1,
        };
        let link = slot.path[hop];
        #[expect(clippy::cast_possible_truncation, reason = "checked where the route was made")]
        let hop = hop as u16;
        let transit = Transit { route, meta, hop, is_marked: false, is_damaged: false, payload };
        self.enter(at, link, way, transit)
    }

    /// Returns the next event until `now`, or the next deadline.
    #[inline(always)] // As for `leave_link`; a caller polls in one place.
    pub fn poll(&mut self, now: Instant) -> Polled<Output<P, T>, TopologyWait<T>> {
        loop {
            let arrival = match self.running {
                Running::Link(index) => self.leave_link(index as usize),
                Running::Pipe(route, way) => self.leave_pipe(route, way),
                Running::Nobody => match self.next_turn(now) {
                    Some(Some(tag)) => return Polled::Ready(Output::Due(tag)),
                    Some(None) => continue,
                    None => {
                        let (until, because) = self.first_due();
                        return Polled::Wait { until, because };
                    }
                },
            };
            if let Some(arrival) = arrival {
                return Polled::Ready(Output::Arrived(arrival));
            }
            self.running = Running::Nobody;
        }
    }

    /// Returns the deadline that [`poll`](Self::poll) would return, without processing events. The
    /// deadline is in the past while an event is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.running {
            Running::Nobody => self.agenda.first().map(|(at, _)| at),
            Running::Link(_) | Running::Pipe(..) => Some(self.now),
        }
    }

    /// Time of the latest event that [`poll`](Self::poll) processed.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Number of events processed: of links, access delays and timers.
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// Number of links.
    pub fn links(&self) -> usize {
        self.directions.len() / 2
    }

    /// Returns a direction of a link.
    pub fn link(&self, link: usize, way: Way) -> &Link<Transit<P>> {
        &self.directions[link * 2 + way as usize].link
    }

    /// Returns a snapshot of a direction of a link at `now`.
    pub fn snapshot(&mut self, link: usize, way: Way, now: Instant) -> LinkSnapshot {
        self.directions[link * 2 + way as usize].link.snapshot(now)
    }

    /// Resets the longest queue of a direction of a link to its present queue.
    pub fn restart_queue_max(&mut self, link: usize, way: Way) {
        self.directions[link * 2 + way as usize].link.restart_queue_max();
    }

    /// Starts to record every packet put onto a link, for [`take_entries`](Self::take_entries).
    pub fn record(&mut self) {
        self.entries.get_or_insert_default();
    }

    /// Returns the packets put onto links since the last call, in order; empty without
    /// [`record`](Self::record).
    pub fn take_entries(&mut self) -> Vec<Entry<P>> {
        self.entries.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Starts to record every packet that a link drops, for [`take_drops`](Self::take_drops).
    pub fn note_drops(&mut self) {
        self.drops.get_or_insert_default();
    }

    /// Returns the drops since the last call, in order; empty without
    /// [`note_drops`](Self::note_drops).
    pub fn take_drops(&mut self) -> Vec<DropEvent> {
        self.drops.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// From now on, checks the packet counts of each link after every event. Slow.
    pub fn audit(&mut self) {
        self.is_audited = true;
    }

    // ---- inside ---------------------------------------------------------------------------------

    fn add_actor(&mut self, role: Role<T>) -> Actor {
        self.roles.push(role);
        self.agenda.add_actor()
    }

    /// Starts the next turn that is due by `until`; returns the tag if the turn is a timer's.
    /// `None` if no turn is due.
    fn next_turn(&mut self, until: Instant) -> Option<Option<T>> {
        let (at, actor) = self.agenda.pop_until(until)?;
        self.now = at;
        self.turns += 1;
        match self.roles[actor.0 as usize] {
            Role::Owner(tag) => return Some(Some(tag)),
            Role::Link(index) => self.running = Running::Link(index),
            Role::Pipe(slot, way) => {
                let reuse = self.slots[slot as usize].reuse;
                self.running = Running::Pipe(RouteId { slot, reuse }, way);
            }
        }
        Some(None)
    }

    /// Returns the first deadline on the agenda and its reason.
    #[cold]
    fn first_due(&self) -> (Option<Instant>, TopologyWait<T>) {
        let Some((at, actor)) = self.agenda.first() else {
            return (None, TopologyWait::Push);
        };
        let because = match self.roles[actor.0 as usize] {
            Role::Link(index) => TopologyWait::Link(index as usize / 2, way_of(index as usize)),
            Role::Pipe(_, way) => TopologyWait::AccessDelay(way),
            Role::Owner(tag) => TopologyWait::Timer(tag),
        };
        (Some(at), because)
    }

    /// Returns the next packet at the end of this link and of its route; other packets continue.
    #[inline(always)] // As for everything on a packet's path: a call would copy the packet through memory.
    fn leave_link(&mut self, index: usize) -> Option<Arrival<P>> {
        let way = way_of(index);
        loop {
            let before = self.drops.is_some().then(|| self.before(index));
            let link = &mut self.directions[index].link;
            // The caller may have pushed at a later time since this turn began.
            let delivery = link.next_delivery(self.now.max(link.now()));
            if let Some(before) = before {
                self.drop_since(index, self.now, &before, None);
            }
            let Some(delivery) = delivery else {
                let Direction { link, actor } = &self.directions[index];
                self.agenda.set(*actor, link.deadline());
                if self.is_audited {
                    self.check_link(index);
                }
                return None;
            };
            let mut transit = delivery.payload;
            transit.is_marked |= delivery.is_marked;
            transit.is_damaged |= delivery.corrupted;
            if delivery.corrupted && self.damage == Damage::Ends {
                continue;
            }
            let arrival = self.pass_on(delivery.at, way, transit);
            if arrival.is_some() {
                return arrival;
            }
        }
    }

    /// Moves a packet on from the end of a link; returns it at the end of its route.
    #[inline(always)]
    fn pass_on(&mut self, at: Instant, way: Way, mut transit: Transit<P>) -> Option<Arrival<P>> {
        let slot = &mut self.slots[transit.route.slot()];
        if slot.reuse != transit.route.reuse {
            return None;
        }
        let next = match way {
            Way::Forward => Some(transit.hop + 1).filter(|hop| usize::from(*hop) < slot.path.len()),
            Way::Back => transit.hop.checked_sub(1),
        };
        if let Some(hop) = next {
            transit.hop = hop;
            let link = slot.path[usize::from(hop)];
            self.enter(at, link, way, transit);
            return None;
        }
        if slot.access_delay == Span::ZERO {
            return Some(arrival(at, way, transit));
        }
        let due = at + slot.access_delay;
        let pipe = &mut slot.pipes[way];
        if pipe.is_empty() {
            self.agenda.set(slot.actors[way], Some(due));
        }
        pipe.push_back((due, transit));
        None
    }

    /// Returns the next packet whose access delay is over.
    #[inline(always)]
    fn leave_pipe(&mut self, route: RouteId, way: Way) -> Option<Arrival<P>> {
        let slot = &mut self.slots[route.slot()];
        // The caller may have removed the route after an arrival.
        if slot.reuse != route.reuse {
            return None;
        }
        let pipe = &mut slot.pipes[way];
        let next = pipe.front().map(|(due, _)| *due);
        if next.is_some_and(|due| due <= self.now) {
            return pipe.pop_front().map(|(due, transit)| arrival(due, way, transit));
        }
        self.agenda.set(slot.actors[way], next);
        None
    }

    /// Puts a packet onto a link.
    fn enter(&mut self, at: Instant, link: usize, way: Way, transit: Transit<P>) -> Verdict {
        let index = link * 2 + way as usize;
        let before = self.drops.is_some().then(|| self.before(index));
        let direction = &mut self.directions[index];
        // Another push may have been at a later time.
        let at = at.max(direction.link.now());
        let copy = self.entries.is_some().then(|| transit.payload.clone());
        let flow = transit.meta.flow;
        let verdict = direction.link.push_packet(at, transit.meta, transit);
        self.agenda.set(direction.actor, direction.link.deadline());
        if let Some(before) = before {
            self.drop_since(index, at, &before, (verdict != Verdict::Queued).then_some(flow));
        }
        if let (Some(entries), Some(payload)) = (&mut self.entries, copy) {
            entries.push(Entry { link, way, at, verdict, payload });
        }
        verdict
    }

    /// Counters of a direction of a link. Boxed, to keep the packet path small.
    #[cold]
    fn before(&self, index: usize) -> Box<LinkStats> {
        Box::new(self.directions[index].link.stats())
    }

    /// Records drops of a direction of a link since `before`.
    #[cold]
    fn drop_since(&mut self, index: usize, at: Instant, before: &LinkStats, flow: Option<u32>) {
        let (link, way) = (index / 2, way_of(index));
        let now = self.directions[index].link.stats();
        if let Some(drops) = &mut self.drops {
            let all = DropReason::since(before, &now);
            drops.extend(all.map(|(why, packets)| DropEvent { link, way, at, why, flow, packets }));
        }
    }

    fn check_link(&self, index: usize) {
        let link = &self.directions[index].link;
        let stats = link.stats();
        assert_eq!(
            stats.arrived + stats.duplicated,
            stats.delivered + stats.dropped() + link.in_transit(),
            "a link makes and loses nothing unseen"
        );
    }
}

impl<P: Clone + Headed, T: Copy> Topology<P, T> {
    /// Lets routers process the congestion headers of packets on all present links.
    pub fn find_headers(&mut self) {
        for direction in &mut self.directions {
            direction.link.find_headers(|transit| transit.payload.congestion());
        }
    }
}

/// Returns the direction of the entry at this index.
const fn way_of(index: usize) -> Way {
    if index.is_multiple_of(2) { Way::Forward } else { Way::Back }
}

#[inline(always)]
fn arrival<P>(at: Instant, way: Way, transit: Transit<P>) -> Arrival<P> {
    let Transit { route, is_marked, is_damaged, payload, .. } = transit;
    Arrival { route, way, at, is_marked, is_damaged, payload }
}

impl<P, T> fmt::Debug for Topology<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology")
            .field("now", &self.now)
            .field("links", &(self.directions.len() / 2))
            .field("routes", &(self.slots.len() - self.free.len()))
            .field("turns", &self.turns)
            .finish_non_exhaustive()
    }
}
