//! Interval set: an ordered set of numbers as disjoint ranges, used as the loss list of both ends.
//!
//! Losses occur in runs, so there are few ranges. Every operation on one number costs O(log
//! ranges). [SABUL §II-D] keeps the numbers "sorted ascendingly".

use std::collections::BTreeMap;

use sabul_wire::NumberRange;

/// Disjoint, non-adjacent ranges of numbers, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    /// First number → last number of each range.
    ranges: BTreeMap<u64, u64>,
    count: u64,
}

impl IntervalSet {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new(), count: 0 }
    }

    /// How many numbers are in the set.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// How many ranges the set has.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The smallest number.
    pub fn first(&self) -> Option<u64> {
        self.ranges.first_key_value().map(|(first, _)| *first)
    }

    /// Whether `number` is in the set.
    pub fn contains(&self, number: u64) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    /// Returns the ranges that end at or after `from`, ascending.
    pub fn iter_from(&self, from: u64) -> impl Iterator<Item = NumberRange> + '_ {
        let start = match self.ranges.range(..=from).next_back() {
            Some((first, last)) if *last >= from => *first,
            _ => from,
        };
        self.ranges.range(start..).map(|(first, last)| NumberRange { first: *first, last: *last })
    }

    /// Returns all ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = NumberRange> + '_ {
        self.iter_from(0)
    }

    /// Returns the parts of `range` that are in the set.
    pub fn overlap(&self, range: NumberRange) -> impl Iterator<Item = NumberRange> + '_ {
        self.iter_from(range.first).take_while(move |part| part.first <= range.last).map(
            move |part| NumberRange {
                first: part.first.max(range.first),
                last: part.last.min(range.last),
            },
        )
    }

    /// Returns the parts of `range` that are not in the set, ascending.
    pub fn lacking(&self, range: NumberRange) -> Vec<NumberRange> {
        let mut parts = Vec::new();
        let mut from = range.first;
        for held in self.overlap(range) {
            if held.first > from {
                parts.push(NumberRange { first: from, last: held.first - 1 });
            }
            from = held.last.saturating_add(1);
        }
        if from <= range.last {
            parts.push(NumberRange { first: from, ..range });
        }
        parts
    }

    /// Whether removing `number` would split a range into two.
    pub fn would_split(&self, number: u64) -> bool {
        let range = self.ranges.range(..=number).next_back();
        range.is_some_and(|(first, last)| *first < number && number < *last)
    }

    /// Adds every number of `range`; numbers already in the set stay.
    pub fn insert(&mut self, range: NumberRange) {
        let (mut first, mut last) = (range.first, range.last);
        // Merge the ranges that overlap or touch.
        let below = self.ranges.range(..=first).next_back().map(|(f, l)| (*f, *l));
        if let Some((f, l)) = below.filter(|(_, l)| l.saturating_add(1) >= first) {
            self.take(f, l);
            first = f;
            last = last.max(l);
        }
        while let Some((f, l)) = self.ranges.range(first..).next().map(|(f, l)| (*f, *l)) {
            if f > last.saturating_add(1) {
                break;
            }
            self.take(f, l);
            last = last.max(l);
        }
        self.put(first, last);
    }

    /// Removes `number`; returns whether it was in the set.
    pub fn remove(&mut self, number: u64) -> bool {
        let found = self.ranges.range(..=number).next_back().map(|(f, l)| (*f, *l));
        let Some((first, last)) = found.filter(|(_, last)| *last >= number) else {
            return false;
        };
        self.take(first, last);
        if first < number {
            self.put(first, number - 1);
        }
        if number < last {
            self.put(number + 1, last);
        }
        true
    }

    /// Removes every number of `range`.
    pub fn remove_range(&mut self, range: NumberRange) {
        loop {
            let next = self.iter_from(range.first).next();
            let Some(part) = next.filter(|part| part.first <= range.last) else {
                return;
            };
            self.take(part.first, part.last);
            if part.first < range.first {
                self.put(part.first, range.first - 1);
            }
            if part.last > range.last {
                self.put(range.last + 1, part.last);
                return;
            }
        }
    }

    /// Removes and returns the smallest number.
    pub fn pop_first(&mut self) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let (first, last) = self.ranges.pop_first()?;
        self.count -= last - first + 1;
        if first < last {
            self.put(first + 1, last);
        }
        Some(first)
    }

    /// Removes all numbers below `bound`.
    pub fn remove_below(&mut self, bound: u64) {
        while let Some((first, last)) = self.ranges.first_key_value().map(|(f, l)| (*f, *l)) {
            if first >= bound {
                return;
            }
            self.take(first, last);
            if last >= bound {
                self.put(bound, last);
                return;
            }
        }
    }

    fn take(&mut self, first: u64, last: u64) {
        self.ranges.remove(&first);
        self.count -= last - first + 1;
    }

    fn put(&mut self, first: u64, last: u64) {
        self.ranges.insert(first, last);
        self.count += last - first + 1;
    }

    /// Checks the invariants that hold between any two calls.
    ///
    /// # Panics
    /// If ranges overlap or touch, or the count is wrong.
    pub fn check_invariants(&self) {
        let mut count = 0;
        let mut below: Option<u64> = None;
        for (first, last) in &self.ranges {
            assert!(first <= last, "a range runs forward");
            assert!(below.is_none_or(|b| b + 1 < *first), "ranges neither overlap nor touch");
            below = Some(*last);
            count += last - first + 1;
        }
        assert_eq!(count, self.count, "the count is the sum of the ranges");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sabul_units::{Random, SeededRandom};

    use super::*;

    #[test]
    fn an_interval_set_matches_a_reference_set() {
        for seed in 0..20 {
            let mut rng = SeededRandom::new(seed);
            let (mut set, mut model) = (IntervalSet::new(), BTreeSet::new());
            for _ in 0..2000 {
                let first = rng.below(300);
                let range = NumberRange { first, last: first + rng.below(20) };
                match rng.below(8) {
                    0..3 => {
                        set.insert(range);
                        model.extend(range.first..=range.last);
                    }
                    3..5 => assert_eq!(set.remove(first), model.remove(&first)),
                    5 => {
                        set.remove_range(range);
                        model.retain(|n| !(range.first..=range.last).contains(n));
                    }
                    6 => assert_eq!(set.pop_first(), model.pop_first()),
                    _ => {
                        let bound = rng.below(60);
                        set.remove_below(bound);
                        model.retain(|n| *n >= bound);
                    }
                }
                set.check_invariants();
                assert_eq!(set.contains(first), model.contains(&first));
                let inside: Vec<u64> = set.overlap(range).flat_map(|r| r.first..=r.last).collect();
                let expected: Vec<u64> = model.range(range.first..=range.last).copied().collect();
                assert_eq!(inside, expected, "seed {seed}");
                let outside: Vec<u64> =
                    set.lacking(range).into_iter().flat_map(|r| r.first..=r.last).collect();
                let expected: Vec<u64> =
                    (range.first..=range.last).filter(|n| !model.contains(n)).collect();
                assert_eq!(outside, expected, "seed {seed}");
                let neighbours = first.checked_sub(1).is_some_and(|n| model.contains(&n))
                    && model.contains(&(first + 1));
                assert_eq!(set.would_split(first), neighbours && model.contains(&first));
            }
            let all: Vec<u64> = set.iter().flat_map(|r| r.first..=r.last).collect();
            assert_eq!(all, model.into_iter().collect::<Vec<_>>(), "seed {seed}");
        }
    }

    #[test]
    fn an_interval_set_with_a_million_gaps_stays_fast() {
        // Every other number is missing. O(log ranges) per operation takes well under a second; a
        // list walked from the front would take hours.
        let mut set = IntervalSet::new();
        for hole in 0..1_000_000u64 {
            set.insert(NumberRange { first: hole * 2, last: hole * 2 });
        }
        assert_eq!(set.range_count(), 1_000_000);
        for hole in (0..1_000_000u64).rev() {
            assert!(set.remove(hole * 2));
        }
        assert!(set.is_empty());
    }
}
