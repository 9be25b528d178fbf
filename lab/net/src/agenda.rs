//! Event queue: at most one pending time per actor, in order of (time, insertion).
//!
//! Packets wait in the queues of links, and each link can compute its next departure. An event
//! therefore only names the actor to run. A new time replaces the old one, so there are no stale
//! events. The queue is as long as the number of actors, however many packets are in flight.

use sabul_units::Instant;

/// Children per node: a wider heap is shallower, and its children share a cache line.
const ARITY: usize = 4;
/// Position of an actor without a pending time.
const ABSENT: u32 = u32::MAX;

/// An actor: an entity with at most one pending time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Actor(pub(crate) u32);

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    /// Insertion number: of two entries with equal times, the older runs first.
    order: u64,
    actor: u32,
}

impl Entry {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.order)
    }
}

/// A heap of pending times, indexed by actor.
#[derive(Clone, Debug)]
pub(crate) struct Agenda {
    heap: Vec<Entry>,
    /// Position of each actor in the heap.
    position: Vec<u32>,
    inserted: u64,
}

impl Agenda {
    /// Creates an empty agenda.
    pub(crate) const fn new() -> Self {
        Self { heap: Vec::new(), position: Vec::new(), inserted: 0 }
    }

    /// Adds an actor without a pending time.
    pub(crate) fn add_actor(&mut self) -> Actor {
        self.position.push(ABSENT);
        Actor(u32::try_from(self.position.len() - 1).expect("fewer than 2^32 actors"))
    }

    /// Sets the only pending time of an actor; `None` for no time. The same time again keeps its
    /// order.
    pub(crate) fn set(&mut self, actor: Actor, at: Option<Instant>) {
        let place = self.position[actor.0 as usize];
        match (at, place) {
            (Some(at), ABSENT) => {
                let entry = self.entry(actor, at);
                self.heap.push(entry);
                self.sift_up(self.heap.len() - 1);
            }
            (Some(at), place) => {
                let place = place as usize;
                let old = self.heap[place].at;
                if at == old {
                    return;
                }
                self.heap[place] = self.entry(actor, at);
                if at < old {
                    self.sift_up(place);
                } else {
                    self.sift_down(place);
                }
            }
            (None, ABSENT) => {}
            (None, place) => self.remove(place as usize),
        }
    }

    /// Returns the first pending time and its actor.
    pub(crate) fn first(&self) -> Option<(Instant, Actor)> {
        self.heap.first().map(|first| (first.at, Actor(first.actor)))
    }

    /// Removes and returns the first entry, if its time is not after `until`.
    pub(crate) fn pop_until(&mut self, until: Instant) -> Option<(Instant, Actor)> {
        let first = *self.heap.first().filter(|first| first.at <= until)?;
        self.remove(0);
        Some((first.at, Actor(first.actor)))
    }

    fn entry(&mut self, actor: Actor, at: Instant) -> Entry {
        self.inserted += 1;
        Entry { at, order: self.inserted, actor: actor.0 }
    }

    fn remove(&mut self, place: usize) {
        let gone = self.heap[place];
        self.position[gone.actor as usize] = ABSENT;
        let Some(last) = self.heap.pop() else { return };
        if place < self.heap.len() {
            self.heap[place] = last;
            if last.key() < gone.key() {
                self.sift_up(place);
            } else {
                self.sift_down(place);
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "no more entries than actors")]
    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.position[entry.actor as usize] = place as u32;
    }

    fn sift_up(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent].key() <= entry.key() {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sift_down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child].key()) else { break };
            if entry.key() <= self.heap[least].key() {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sabul_units::{Random, SeededRandom};

    const FOR_EVER: Instant = Instant(u64::MAX);

    #[test]
    fn events_are_ordered_by_time_then_insertion() {
        let mut agenda = Agenda::new();
        let actors: Vec<_> = (0..4).map(|_| agenda.add_actor()).collect();
        for (actor, at) in [(2, 5), (0, 7), (1, 5), (3, 5)] {
            agenda.set(actors[actor], Some(Instant(at)));
        }
        // A different time is a new insertion; the same time again changes nothing.
        agenda.set(actors[2], Some(Instant(9)));
        agenda.set(actors[2], Some(Instant(5)));
        agenda.set(actors[1], Some(Instant(5)));
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop_until(FOR_EVER))
            .map(|(at, actor)| (at.0, actor.0))
            .collect();
        assert_eq!(order, [(5, 1), (5, 3), (5, 2), (7, 0)]);
    }

    #[test]
    fn any_mix_of_settings_pops_like_a_sorted_list() {
        let mut rng = SeededRandom::new(1);
        let mut agenda = Agenda::new();
        let mut model: Vec<Option<(Instant, u64)>> = vec![None; 50];
        let actors: Vec<_> = model.iter().map(|_| agenda.add_actor()).collect();
        for step in 0..20_000 {
            let index = usize::try_from(rng.below(50)).unwrap();
            match rng.below(4) {
                0 => {
                    agenda.set(actors[index], None);
                    model[index] = None;
                }
                1 => {
                    let least = (0..50).filter(|i| model[*i].is_some()).min_by_key(|i| model[*i]);
                    let popped =
                        agenda.pop_until(FOR_EVER).map(|(at, actor)| (at, actor.0 as usize));
                    assert_eq!(popped, least.map(|i| (model[i].unwrap().0, i)), "step {step}");
                    if let Some(i) = least {
                        model[i] = None;
                    }
                }
                _ => {
                    let at = Instant(rng.below(100));
                    agenda.set(actors[index], Some(at));
                    if model[index].is_none_or(|(old, _)| old != at) {
                        model[index] = Some((at, step));
                    }
                }
            }
        }
    }
}
