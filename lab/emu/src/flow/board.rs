//! Shared state of a flow: written by its threads, read by its owner.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sabul_run::meter::{Counters, Gauges};
use sabul_units::Instant;

/// Event of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FlowEvent {
    /// A copy started.
    Started { copy: u64, at: Instant },
    /// All bytes of a copy were delivered.
    Completed { copy: u64, at: Instant },
    /// A copy ended, with its final counters.
    Retired { copy: u64, at: Instant, counters: Counters, gauges: Gauges },
}

/// Copies, events and failure of one flow.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Copies that have started and whose end has not been reported, by number.
    copies: BTreeMap<u64, Copy>,
    events: Vec<FlowEvent>,
    failure: Option<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Copy {
    counters: Counters,
    gauges: Option<Gauges>,
    is_complete: bool,
    is_over: bool,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic elsewhere the plain numbers remain usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the start of a copy.
    pub(super) fn start(&self, copy: u64, at: Instant) {
        let mut state = self.lock();
        state.copies.insert(copy, Copy::default());
        state.events.push(FlowEvent::Started { copy, at });
    }

    /// Updates counters of a running copy, and gauges if given.
    pub(super) fn update(&self, copy: u64, counters: Counters, gauges: Option<Gauges>) {
        if let Some(copy) = self.lock().running(copy) {
            copy.counters = counters;
            copy.gauges = gauges.or(copy.gauges);
        }
    }

    /// Records that all bytes of a running copy have arrived.
    pub(super) fn complete(&self, copy: u64, at: Instant) {
        let mut state = self.lock();
        if let Some(found) = state.running(copy)
            && !found.is_complete
        {
            found.is_complete = true;
            state.events.push(FlowEvent::Completed { copy, at });
        }
    }

    /// Records the end of a copy.
    pub(super) fn retire(&self, copy: u64, at: Instant) {
        let mut state = self.lock();
        if let Some(found) = state.running(copy) {
            found.is_over = true;
            let Copy { counters, gauges, .. } = *found;
            let gauges = gauges.unwrap_or_default();
            state.events.push(FlowEvent::Retired { copy, at, counters, gauges });
        }
    }

    /// Records the end of all copies.
    pub(super) fn retire_all(&self, at: Instant) {
        let running: Vec<u64> = self.lock().copies.keys().copied().collect();
        for copy in running {
            self.retire(copy, at);
        }
    }

    /// Records a failure of the flow; only the first failure is kept.
    pub(super) fn fail(&self, why: impl Into<String>) {
        self.lock().failure.get_or_insert_with(|| why.into());
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Returns the sum of the counters of copies whose end has not been reported, and the gauges of
    /// the oldest running copy.
    pub(super) fn snapshot(&self) -> (Counters, Option<Gauges>) {
        let state = self.lock();
        let mut total = Counters::default();
        for copy in state.copies.values() {
            total.add(copy.counters);
        }
        let oldest = state.copies.values().find(|copy| !copy.is_over);
        (total, oldest.and_then(|copy| copy.gauges))
    }

    /// Returns the counters of each copy whose end has not been reported.
    pub(super) fn copies(&self) -> Vec<(u64, Counters)> {
        self.lock().copies.iter().map(|(number, copy)| (*number, copy.counters)).collect()
    }

    pub(super) fn take_events(&self) -> Vec<FlowEvent> {
        let mut state = self.lock();
        state.copies.retain(|_, copy| !copy.is_over);
        std::mem::take(&mut state.events)
    }
}

impl State {
    fn running(&mut self, copy: u64) -> Option<&mut Copy> {
        self.copies.get_mut(&copy).filter(|copy| !copy.is_over)
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::Span;

    use super::*;

    fn fresh(fresh_bytes: u64) -> Counters {
        Counters { fresh_bytes, ..Counters::default() }
    }

    /// In any order of looks and events, every byte is in exactly one of the two.
    #[test]
    fn a_finished_flow_counts_in_look_until_its_end_event_is_taken() {
        let board = Board::default();
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        board.start(0, at(1));
        board.start(1, at(2));
        board.update(0, fresh(100), Some(Gauges { in_flight: 7, ..Gauges::default() }));
        board.update(1, fresh(10), Some(Gauges { in_flight: 8, ..Gauges::default() }));
        assert_eq!(board.snapshot().1.map(|gauges| gauges.in_flight), Some(7));
        board.complete(0, at(3));
        board.complete(0, at(4));
        board.retire(0, at(5));
        board.update(0, fresh(999), None);
        let (counters, gauges) = board.snapshot();
        assert_eq!(counters, fresh(110));
        assert_eq!(board.copies(), [(0, fresh(100)), (1, fresh(10))]);
        assert_eq!(gauges.map(|gauges| gauges.in_flight), Some(8), "the oldest that runs");
        let events = board.take_events();
        assert_eq!(events.len(), 4, "{events:?}");
        assert_eq!(events[2], FlowEvent::Completed { copy: 0, at: at(3) });
        let FlowEvent::Retired { copy: 0, counters, .. } = events[3] else { panic!("{events:?}") };
        assert_eq!(counters, fresh(100));
        assert_eq!(board.snapshot().0, fresh(10));
        board.retire_all(at(6));
        board.retire_all(at(7));
        assert_eq!(board.take_events().len(), 1);
        assert_eq!(board.snapshot(), (Counters::default(), None));
    }

    #[test]
    fn the_first_failure_is_kept() {
        let board = Board::default();
        board.fail("one");
        board.fail("two");
        assert_eq!(board.failure().as_deref(), Some("one"));
    }
}
