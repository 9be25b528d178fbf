//! A whole network: links in both directions, the routes over them, and one agenda.
//!
//! Model:      a packet pushed onto a route passes its links in order (on the way back in reverse), waits
//!     out the route's access delay behind the last, and comes out of [`Topology::poll`]. Whoever is due
//!     first acts first; of those due at one time, whoever asked first.
//! Contract:   that of all machines (ADR 21). Pushes and settings of timers are inputs. Times that lie
//!     before what a link knows already count as the link's own time.
//! Damage:     a packet that a link damaged either ends there or goes on and arrives as such
//!     ([`Damage`]), as packets without bytes and with bytes need it.
//! Invariants: each actor (a link's direction, an access delay, a timer of the owner's) has at most one
//!     time on the agenda; a link makes and loses nothing unseen ([`Topology::audit`] checks that). What
//!     is on a route that was removed never arrives, also when another route takes its place.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use sabul_units::{Instant, Polled, SeededRandom, Span};

use crate::agenda::{Actor, Agenda};
use crate::config::LinkConfig;
use crate::drops::{Drop, DropReason};
use crate::link::{Link, LinkLook, LinkStats, Verdict};
use crate::packet::PacketMeta;
use crate::router::Headed;

#[cfg(test)]
mod tests;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From the sending or dialling end: the way of the data.
    Forward,
    /// The way back.
    Back,
}

impl Way {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Back];

    /// The opposite way.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Forward => Self::Back,
            Self::Back => Self::Forward,
        }
    }
}

/// One thing for each [`Way`].
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
    /// Its name.
    pub id: String,
    /// The way data goes.
    pub forward: LinkConfig,
    /// The way back.
    pub back: LinkConfig,
}

/// What becomes of a packet that a link damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It ends at the end of that link: no receiver takes it, and it has no bytes to be wrong.
    Ends,
    /// It goes on, and arrives marked as damaged.
    Arrives,
}

/// A route of a [`Topology`]. Places are used again, identities are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteId {
    place: u32,
    reuse: u32,
}

impl RouteId {
    /// Its position among the routes that exist at a time: that of a removed one is used again.
    pub const fn place(self) -> usize {
        self.place as usize
    }
}

/// Somebody of the owner's who waits for a time, on the same agenda as the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer(Actor);

/// What comes out of a [`Topology`]; `T` is what the owner calls its timers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<P, T> {
    /// A packet is at the end of its route.
    Arrived(Arrival<P>),
    /// A timer of the owner's is due.
    Due(T),
}

/// What a [`Topology`] waits for: who is due first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyWait<T> {
    /// Nobody: that a packet is pushed or a timer set.
    Push,
    /// A direction of the link at this position.
    Link(usize, Way),
    /// The access delay of a route.
    AccessDelay(Way),
    /// A timer of the owner's.
    Timer(T),
}

/// A packet at the end of its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// The route that it came by.
    pub route: RouteId,
    /// Which way it came.
    pub way: Way,
    /// When it was due here; not later than the time that was polled with, or a push's if that was
    /// later.
    pub at: Instant,
    /// Whether a queue on the way gave it the ECN mark.
    pub is_marked: bool,
    /// Whether its bytes were damaged on the way.
    pub is_damaged: bool,
    /// What was pushed.
    pub payload: P,
}

/// A packet that was put onto a link, the first of its route or a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<P> {
    /// Position of the link.
    pub link: usize,
    /// Which direction of it.
    pub way: Way,
    /// When.
    pub at: Instant,
    /// What the link made of it.
    pub verdict: Verdict,
    /// What was pushed.
    pub payload: P,
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Transit<P> {
    route: RouteId,
    meta: PacketMeta,
    /// Position in the route of the link it is on.
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

/// What waits out the access delay, in order of time.
type Pipe<P> = VecDeque<(Instant, Transit<P>)>;

/// Where a route is kept; used again when it is gone.
#[derive(Debug)]
struct Place<P> {
    /// How often it was.
    reuse: u32,
    /// Links in order; the way back mirrors them.
    path: Arc<[usize]>,
    access_delay: Span,
    pipes: Both<Pipe<P>>,
    actors: Both<Actor>,
}

/// What an actor is.
#[derive(Clone, Copy, Debug)]
enum Role<T> {
    /// A link's direction, by position.
    Link(u32),
    /// The access delay of the route at a place.
    Pipe(u32, Way),
    Owner(T),
}

/// Who acts just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Nobody,
    Link(u32),
    Pipe(RouteId, Way),
}

/// Links in both directions, routes over them, and the times at which something happens.
pub struct Topology<P, T = ()> {
    /// Forward and back of each link in turn.
    directions: Vec<Direction<P>>,
    places: Vec<Place<P>>,
    free: Vec<u32>,
    damage: Damage,
    agenda: Agenda,
    /// By actor.
    roles: Vec<Role<T>>,
    turn: Turn,
    /// When the latest turn began.
    now: Instant,
    turns: u64,
    is_audited: bool,
    entries: Option<Vec<Entry<P>>>,
    drops: Option<Vec<Drop>>,
}

impl<P: Clone, T: Copy> Topology<P, T> {
    /// Nothing yet.
    pub const fn new(damage: Damage) -> Self {
        Self {
            directions: Vec::new(),
            places: Vec::new(),
            free: Vec::new(),
            damage,
            agenda: Agenda::new(),
            roles: Vec::new(),
            turn: Turn::Nobody,
            now: Instant::ZERO,
            turns: 0,
            is_audited: false,
            entries: None,
            drops: None,
        }
    }

    /// These links, idle, each with its own stream of chance: the fork `link/<id>`.
    pub fn of_links(plans: &[LinkPlan], random: &SeededRandom, damage: Damage) -> Self {
        let mut topology = Self::new(damage);
        for plan in plans {
            let random = random.fork(&format!("link/{}", plan.id));
            let random = [random.fork("forward"), random.fork("back")];
            topology.add_link(plan.forward.clone(), plan.back.clone(), &random);
        }
        topology
    }

    /// One more link, whose directions draw their chance from these; its position.
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

    /// One more route, over these links in order, and back over the same. Its access delay lies behind
    /// the last link of either way.
    ///
    /// # Panics
    /// If the path is empty or names a link that is not there.
    pub fn add_route(&mut self, path: Arc<[usize]>, access_delay: Span) -> RouteId {
        assert!(!path.is_empty(), "a route has links");
        assert!(u16::try_from(path.len()).is_ok(), "a route has fewer than 2^16 links");
        assert!(path.iter().all(|link| *link < self.links()), "its links exist");
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            (place.path, place.access_delay) = (path, access_delay);
            return RouteId { place: index, reuse: place.reuse };
        }
        let index = u32::try_from(self.places.len()).expect("fewer than 2^32 routes at a time");
        let actors = Way::BOTH.map(|way| self.add_actor(Role::Pipe(index, way)));
        self.places.push(Place {
            reuse: 0,
            path,
            access_delay,
            pipes: Both([Pipe::new(), Pipe::new()]),
            actors: Both(actors),
        });
        RouteId { place: index, reuse: 0 }
    }

    /// The route is gone; what is on the way over it still takes its share of the links and then is
    /// lost. A route that is gone already stays so.
    pub fn remove_route(&mut self, route: RouteId) {
        let Some(place) = self.places.get_mut(route.place()) else { return };
        if place.reuse != route.reuse {
            return;
        }
        place.reuse += 1;
        for way in Way::BOTH {
            place.pipes[way].clear();
            self.agenda.set(place.actors[way], None);
        }
        self.free.push(route.place);
    }

    /// Somebody of the owner's, who waits for nothing yet; [`poll`](Self::poll) calls it `tag`.
    pub fn add_timer(&mut self, tag: T) -> Timer {
        Timer(self.add_actor(Role::Owner(tag)))
    }

    /// The timer is due at this time and no other; never, for none.
    pub fn set_timer(&mut self, timer: Timer, at: Option<Instant>) {
        self.agenda.set(timer.0, at);
    }

    /// Puts a packet onto the first link of a route's way. On a route that is gone it is lost, as one
    /// without a network.
    #[inline]
    pub fn push(
        &mut self,
        at: Instant,
        route: RouteId,
        way: Way,
        meta: PacketMeta,
        payload: P,
    ) -> Verdict {
        let place = &self.places[route.place()];
        if place.reuse != route.reuse {
            return Verdict::DroppedOutage;
        }
        let hop = match way {
            Way::Forward => 0,
            Way::Back => place.path.len() - 1,
        };
        let link = place.path[hop];
        #[expect(clippy::cast_possible_truncation, reason = "checked where the route was made")]
        let hop = hop as u16;
        let transit = Transit { route, meta, hop, is_marked: false, is_damaged: false, payload };
        self.enter(at, link, way, transit)
    }

    /// The next thing that has happened by `now`, or until when nothing does.
    #[inline(always)] // As for `leave_link`; an owner has one place that polls.
    pub fn poll(&mut self, now: Instant) -> Polled<Output<P, T>, TopologyWait<T>> {
        loop {
            let arrival = match self.turn {
                Turn::Link(index) => self.leave_link(index as usize),
                Turn::Pipe(route, way) => self.leave_pipe(route, way),
                Turn::Nobody => match self.next_turn(now) {
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
            self.turn = Turn::Nobody;
        }
    }

    /// The time that [`poll`](Self::poll) would wait for, without a turn for anybody: in the past where
    /// somebody is due.
    pub fn deadline(&self) -> Option<Instant> {
        match self.turn {
            Turn::Nobody => self.agenda.first().map(|(at, _)| at),
            Turn::Link(_) | Turn::Pipe(..) => Some(self.now),
        }
    }

    /// The time of what [`poll`](Self::poll) found last.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// How often somebody had a turn: a link's direction, an access delay, a timer.
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.directions.len() / 2
    }

    /// A direction of a link.
    pub fn link(&self, link: usize, way: Way) -> &Link<Transit<P>> {
        &self.directions[link * 2 + way as usize].link
    }

    /// How a direction of a link stands now.
    pub fn look(&mut self, link: usize, way: Way, now: Instant) -> LinkLook {
        self.directions[link * 2 + way as usize].link.look(now)
    }

    /// Forgets the longest queue so far of a direction of a link, but not the present one.
    pub fn restart_queue_max(&mut self, link: usize, way: Way) {
        self.directions[link * 2 + way as usize].link.restart_queue_max();
    }

    /// Notes from now on every packet that is put onto a link, for [`take_entries`](Self::take_entries).
    pub fn record(&mut self) {
        self.entries.get_or_insert_default();
    }

    /// What was put onto links since the last call, in order; nothing without [`record`](Self::record).
    pub fn take_entries(&mut self) -> Vec<Entry<P>> {
        self.entries.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Notes from now on every packet that a link drops, for [`take_drops`](Self::take_drops).
    pub fn note_drops(&mut self) {
        self.drops.get_or_insert_default();
    }

    /// What was dropped since the last call, in order; nothing without
    /// [`note_drops`](Self::note_drops).
    pub fn take_drops(&mut self) -> Vec<Drop> {
        self.drops.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Checks each link whenever it had its turn from now on. Slow.
    pub fn audit(&mut self) {
        self.is_audited = true;
    }

    // ---- inside ---------------------------------------------------------------------------------

    fn add_actor(&mut self, role: Role<T>) -> Actor {
        self.roles.push(role);
        self.agenda.add_actor()
    }

    /// Whoever is due next by `until` has its turn; the timer that it is, if it is one. None if nobody
    /// is.
    fn next_turn(&mut self, until: Instant) -> Option<Option<T>> {
        let (at, actor) = self.agenda.pop_until(until)?;
        self.now = at;
        self.turns += 1;
        match self.roles[actor.0 as usize] {
            Role::Owner(tag) => return Some(Some(tag)),
            Role::Link(index) => self.turn = Turn::Link(index),
            Role::Pipe(place, way) => {
                let reuse = self.places[place as usize].reuse;
                self.turn = Turn::Pipe(RouteId { place, reuse }, way);
            }
        }
        Some(None)
    }

    /// When who is due.
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

    /// The next packet that is at the end of this link and of its route; the others go on.
    #[inline(always)] // As for all that a packet passes: a call would copy it through memory.
    fn leave_link(&mut self, index: usize) -> Option<Arrival<P>> {
        let way = way_of(index);
        loop {
            let before = self.drops.is_some().then(|| self.before(index));
            let link = &mut self.directions[index].link;
            // Its owner may have pushed at a later time since its turn began.
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

    /// A packet has come to the end of a link, and perhaps of its route.
    #[inline(always)]
    fn pass_on(&mut self, at: Instant, way: Way, mut transit: Transit<P>) -> Option<Arrival<P>> {
        let place = &mut self.places[transit.route.place()];
        if place.reuse != transit.route.reuse {
            return None;
        }
        let next = match way {
            Way::Forward => {
                Some(transit.hop + 1).filter(|hop| usize::from(*hop) < place.path.len())
            }
            Way::Back => transit.hop.checked_sub(1),
        };
        if let Some(hop) = next {
            transit.hop = hop;
            let link = place.path[usize::from(hop)];
            self.enter(at, link, way, transit);
            return None;
        }
        if place.access_delay == Span::ZERO {
            return Some(arrival(at, way, transit));
        }
        let due = at + place.access_delay;
        let pipe = &mut place.pipes[way];
        if pipe.is_empty() {
            self.agenda.set(place.actors[way], Some(due));
        }
        pipe.push_back((due, transit));
        None
    }

    /// The next packet whose access delay is over.
    #[inline(always)]
    fn leave_pipe(&mut self, route: RouteId, way: Way) -> Option<Arrival<P>> {
        let place = &mut self.places[route.place()];
        // What arrived may have ended the route.
        if place.reuse != route.reuse {
            return None;
        }
        let pipe = &mut place.pipes[way];
        let next = pipe.front().map(|(due, _)| *due);
        if next.is_some_and(|due| due <= self.now) {
            return pipe.pop_front().map(|(due, transit)| arrival(due, way, transit));
        }
        self.agenda.set(place.actors[way], next);
        None
    }

    /// Puts a packet onto a link.
    fn enter(&mut self, at: Instant, link: usize, way: Way, transit: Transit<P>) -> Verdict {
        let index = link * 2 + way as usize;
        let before = self.drops.is_some().then(|| self.before(index));
        let direction = &mut self.directions[index];
        // Somebody else may have pushed here already, at a later time.
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

    /// What a direction of a link has done so far. In a box, since a packet passes where it is kept.
    #[cold]
    fn before(&self, index: usize) -> Box<LinkStats> {
        Box::new(self.directions[index].link.stats())
    }

    /// Notes what a direction of a link has dropped since `before`.
    #[cold]
    fn drop_since(&mut self, index: usize, at: Instant, before: &LinkStats, flow: Option<u32>) {
        let (link, way) = (index / 2, way_of(index));
        let now = self.directions[index].link.stats();
        if let Some(drops) = &mut self.drops {
            let all = DropReason::since(before, &now);
            drops.extend(all.map(|(why, packets)| Drop { link, way, at, why, flow, packets }));
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
    /// From now on routers see the congestion headers of what passes the links that there are.
    pub fn find_headers(&mut self) {
        for direction in &mut self.directions {
            direction.link.find_headers(|transit| transit.payload.congestion());
        }
    }
}

/// Which way the direction of a link at this position leads.
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
            .field("routes", &(self.places.len() - self.free.len()))
            .field("turns", &self.turns)
            .finish_non_exhaustive()
    }
}
