//! Set of recent packet numbers: a bitmap of fixed size that moves with the largest number.
//!
//! A path that loses many packets leaves many ranges, and a hostile sender leaves the most possible. The bitmap takes
//! the same memory for all of them: 130 KiB, from the first gap on.
//! Model:       number n has bit n mod [`WINDOW`]. A bit of `summary` is set if any bit of a word is set, so a search
//!              reads few words.
//! Invariants:  every number of the set is below `end`, and at most [`WINDOW`] below.

use sabul_wire::NumberRange;

/// Numbers that the set can hold.
pub(crate) const WINDOW: u64 = 1 << 20;
const WORD_BITS: u64 = u64::BITS as u64;
/// Numbers of one word of `summary`.
const SUMMARY_NUMBERS: u64 = WORD_BITS * WORD_BITS;

#[derive(Debug)]
pub(super) struct RecentSet {
    /// Empty before the first insertion.
    words: Vec<u64>,
    summary: Vec<u64>,
    /// Number after the window.
    end: u64,
    count: u64,
}

/// Index of the word of a number, and the bit in the word.
const fn place(number: u64) -> (usize, u64) {
    let slot = number % WINDOW;
    ((slot / WORD_BITS) as usize, slot % WORD_BITS)
}

/// First number after `number` that begins a group of `size` numbers.
const fn next_group(number: u64, size: u64) -> u64 {
    (number / size).saturating_add(1).saturating_mul(size)
}

impl RecentSet {
    pub(super) const fn new() -> Self {
        Self { words: Vec::new(), summary: Vec::new(), end: 0, count: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    const fn start(&self) -> u64 {
        self.end.saturating_sub(WINDOW)
    }

    /// Moves the window: `end` is the number after its last. Numbers below the window leave the set.
    #[inline]
    pub(super) fn advance(&mut self, end: u64) {
        debug_assert!(end >= self.end);
        if self.count > 0 && end > self.end {
            self.leave(end);
        }
        self.end = end;
    }

    fn leave(&mut self, end: u64) {
        let below = end.saturating_sub(WINDOW).min(self.end);
        let start = self.start();
        if below > start {
            self.remove_range(NumberRange { first: start, last: below - 1 });
        }
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        let is_inside = self.count > 0 && number < self.end && number >= self.start();
        is_inside && self.words[word] >> bit & 1 == 1
    }

    /// Adds the numbers of `range` that are in the window.
    pub(super) fn insert(&mut self, range: NumberRange) {
        if self.words.is_empty() {
            self.words.resize(place(WINDOW - 1).0 + 1, 0);
            self.summary.resize(self.words.len().div_ceil(u64::BITS as usize), 0);
        }
        self.change(range, |word, mask| *word |= mask);
    }

    /// Removes `number`; returns whether the number was in the set.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let is_there = self.contains(number);
        if is_there {
            self.remove_range(NumberRange { first: number, last: number });
        }
        is_there
    }

    pub(super) fn remove_range(&mut self, range: NumberRange) {
        if self.count > 0 {
            self.change(range, |word, mask| *word &= !mask);
        }
    }

    /// Changes the bits of the part of `range` in the window, word by word.
    fn change(&mut self, range: NumberRange, change: impl Fn(&mut u64, u64)) {
        let mut at = range.first.max(self.start());
        let below = range.last.saturating_add(1).min(self.end);
        while at < below {
            let next = next_group(at, WORD_BITS).min(below);
            let (index, bit) = place(at);
            let mask = u64::MAX >> (WORD_BITS - (next - at)) << bit;
            let word = &mut self.words[index];
            let before = word.count_ones();
            change(word, mask);
            self.count = self.count + u64::from(word.count_ones()) - u64::from(before);
            let (group, bit) = (index / u64::BITS as usize, index % u64::BITS as usize);
            self.summary[group] &= !(1 << bit);
            self.summary[group] |= u64::from(*word != 0) << bit;
            at = next;
        }
    }

    /// Returns the first number of the set at or after `from`.
    fn next_in(&self, from: u64) -> Option<u64> {
        let mut at = from.max(self.start());
        while self.count > 0 && at < self.end {
            let (index, bit) = place(at);
            let rest = self.words[index] >> bit;
            if rest != 0 {
                // The later bits of the last word may belong to the start of the window.
                return Some(at + u64::from(rest.trailing_zeros()))
                    .filter(|found| *found < self.end);
            }
            let (group, bit) = (index / u64::BITS as usize, index % u64::BITS as usize);
            // Words after this one.
            let words = self.summary[group] >> bit >> 1;
            at = match words {
                0 => next_group(at, SUMMARY_NUMBERS),
                _ => next_group(at, WORD_BITS) + u64::from(words.trailing_zeros()) * WORD_BITS,
            };
        }
        None
    }

    /// Returns the first number at or after `from` that is not in the set; `from` is in the window.
    fn next_out(&self, from: u64) -> u64 {
        let mut at = from;
        while at < self.end {
            let (index, bit) = place(at);
            let ones = u64::from((self.words[index] >> bit).trailing_ones());
            if bit + ones < WORD_BITS {
                return (at + ones).min(self.end);
            }
            at += ones;
        }
        self.end
    }

    /// Returns the ranges of the numbers at or after `from`, ascending.
    pub(super) fn iter_from(&self, from: u64) -> impl Iterator<Item = NumberRange> + '_ {
        let mut from = from;
        std::iter::from_fn(move || {
            let first = self.next_in(from)?;
            from = self.next_out(first);
            Some(NumberRange { first, last: from - 1 })
        })
    }

    /// Returns the parts of `range` that are in the set.
    pub(super) fn overlap(&self, range: NumberRange) -> impl Iterator<Item = NumberRange> + '_ {
        self.iter_from(range.first)
            .take_while(move |part| part.first <= range.last)
            .map(move |part| NumberRange { first: part.first, last: part.last.min(range.last) })
    }

    pub(super) fn check_invariants(&self) {
        let count: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        assert_eq!(count, self.count);
        let counted: u64 = self.iter_from(0).map(NumberRange::count).sum();
        assert_eq!(counted, self.count, "all numbers are in the window");
        for (index, word) in self.words.iter().enumerate() {
            let (group, bit) = (index / u64::BITS as usize, index % u64::BITS as usize);
            assert_eq!(self.summary[group] >> bit & 1 == 1, *word != 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::{Random as _, SeededRandom};

    use super::*;
    use crate::interval_set::IntervalSet;

    fn range(first: u64, last: u64) -> NumberRange {
        NumberRange { first, last }
    }

    #[test]
    fn the_bitmap_equals_a_set_of_ranges_whose_old_numbers_are_removed() {
        let mut random = SeededRandom::new(7);
        let (mut bitmap, mut ranges, mut end) = (RecentSet::new(), IntervalSet::new(), 0_u64);
        for step in 0..3_000 {
            let draw = random.next_u64();
            let size = [1, 3, 70, 5_000, WINDOW / 2, WINDOW * 3][(draw % 6) as usize];
            let length = draw / 6 % size + 1;
            let first = end.saturating_sub(random.next_u64() % (WINDOW + 100));
            let inside = range(first, (first + length - 1).min(end.max(1) - 1).max(first));
            match random.next_u64() % 4 {
                // A gap and the packet behind.
                0 => {
                    let gap = range(end, end + length - 1);
                    end += length;
                    bitmap.advance(end);
                    bitmap.insert(gap);
                    ranges.insert(gap);
                    ranges.remove_below(end.saturating_sub(WINDOW));
                }
                1 => {
                    bitmap.remove_range(inside);
                    ranges.remove_range(inside);
                }
                2 => assert_eq!(bitmap.remove(first), ranges.remove(first), "step {step}"),
                _ => {
                    let both = [bitmap.contains(first), ranges.contains(first)];
                    assert_eq!(both[0], both[1], "step {step}");
                    let parts = |of: &mut dyn Iterator<Item = NumberRange>| of.collect::<Vec<_>>();
                    let found = parts(&mut bitmap.overlap(inside).take(300));
                    // The first part of the set of ranges may begin before the range.
                    assert_eq!(found, parts(&mut ranges.overlap(inside).take(300)), "step {step}");
                }
            }
            assert_eq!(bitmap.count, ranges.count(), "step {step}");
            if step % 100 == 0 {
                bitmap.check_invariants();
            }
        }
        assert!(bitmap.iter_from(0).eq(ranges.iter()));
    }

    #[test]
    fn the_most_possible_gaps_take_no_more_memory_than_one() {
        let mut set = RecentSet::new();
        let bytes = |set: &RecentSet| 8 * (set.words.capacity() + set.summary.capacity());
        assert_eq!(bytes(&set), 0);
        set.advance(3 * WINDOW);
        set.insert(range(0, 3 * WINDOW));
        assert_eq!(set.count, WINDOW);
        let of_one = bytes(&set);
        assert!(of_one <= 130 << 10, "{of_one}");
        let removed = (0..3 * WINDOW).step_by(2).filter(|number| set.remove(*number)).count();
        assert_eq!(removed as u64, WINDOW / 2);
        assert_eq!(set.iter_from(0).count() as u64, WINDOW / 2);
        assert_eq!(bytes(&set), of_one);
        set.check_invariants();
    }
}
