//! What the sender knows of each segment in flight.
//!
//! Source: [RFC6675 §4]: IsLost, SetPipe and NextSeg. The RFC walks over everything outstanding at
//! each ACK; here each rule is a number that only moves forward:
//!     top           the three highest segments that were selectively acknowledged
//!     lost_below    everything below that has not arrived is lost (IsLost: three above have)
//!     resend_from   everything below has been considered for a retransmission (HighRxt + 1)
//!     pipe          copies that may still be on the path
//!     copies        what was sent again, in order: lost as well once three segments have arrived that
//!                   were first sent later, as [LINUX tcp_input.c] has it since 2.6; the RFC waits for
//!                   the timer
//! so an ACK costs O(log blocks) and each segment is passed once by each number.
//! Invariants:  segment numbers start at 1 and are consecutive; pipe is the sum over the segments
//!              that have not arrived of (not lost) + (sent again).
//! Not here:    time, bytes that were never sent, when a recovery begins (`sender`).
//!
//! IsLost counts segments. [RFC6675 §4] counts runs of segments or bytes beyond two full ones, which
//! is the same where segments are full.

use std::collections::VecDeque;

use sabul_proto::IntervalSet;
use sabul_wire::NumberRange;

/// [RFC6675 §2] DupThresh.
const DUP_THRESH: usize = 3;

const ARRIVED: u8 = 1;
const LOST: u8 = 2;
const RESENT: u8 = 4;

/// A segment that is not cumulatively acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    /// Place of its first byte in the stream.
    pub(super) seq: u64,
    pub(super) length: u32,
    flags: u8,
    /// The next new segment when it was last sent again.
    resent_before: u64,
}

impl Outstanding {
    const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
    /// Its copies that may be on the path. [RFC6675 §4] SetPipe.
    const fn pipe(self) -> u64 {
        if self.has(ARRIVED) { 0 } else { !self.has(LOST) as u64 + self.has(RESENT) as u64 }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Scoreboard {
    mss: u32,
    ring: VecDeque<Outstanding>,
    /// Number of the ring's front.
    first: u64,
    /// Place in the stream after the last segment sent.
    end: u64,
    /// Numbers that were selectively acknowledged.
    arrived: IntervalSet,
    /// The highest of them, descending; zero where there are fewer.
    top: [u64; DUP_THRESH],
    lost_below: u64,
    resend_from: u64,
    /// Number and [`Outstanding::resent_before`] of each copy that may be on the path.
    copies: VecDeque<(u64, u64)>,
    /// Segments whose copies are lost.
    lost_copies: VecDeque<u64>,
    pipe: u64,
}

impl Scoreboard {
    pub(super) const fn new(mss: u32) -> Self {
        Self {
            mss,
            ring: VecDeque::new(),
            first: 1,
            end: 0,
            arrived: IntervalSet::new(),
            top: [0; DUP_THRESH],
            lost_below: 0,
            resend_from: 0,
            copies: VecDeque::new(),
            lost_copies: VecDeque::new(),
            pipe: 0,
        }
    }

    /// Number of the first segment that is not cumulatively acknowledged.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// Number of the next new segment.
    pub(super) fn next(&self) -> u64 {
        self.first + self.ring.len() as u64
    }

    /// Number of the highest segment that has arrived, cumulatively acknowledged or not.
    pub(super) fn highest(&self) -> u64 {
        self.top[0].max(self.first - 1)
    }

    /// Place in the stream of the first byte that is not cumulatively acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.ring.front().map_or(self.end, |front| front.seq)
    }

    /// Place in the stream after everything sent.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Segments sent and not cumulatively acknowledged.
    pub(super) fn outstanding(&self) -> u64 {
        self.ring.len() as u64
    }

    /// Copies that may be on the path.
    pub(super) const fn pipe(&self) -> u64 {
        self.pipe
    }

    fn get(&self, number: u64) -> Option<Outstanding> {
        let index = number.checked_sub(self.first)?;
        self.ring.get(usize::try_from(index).ok()?).copied()
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Outstanding> {
        let index = number.checked_sub(self.first)?;
        self.ring.get_mut(usize::try_from(index).ok()?)
    }

    /// A new segment of this length leaves.
    pub(super) fn push(&mut self, length: u32) -> Outstanding {
        let segment = Outstanding { seq: self.end, length, flags: 0, resent_before: 0 };
        self.ring.push_back(segment);
        self.end += u64::from(length);
        self.pipe += 1;
        segment
    }

    /// Segment `number` leaves again.
    pub(super) fn resend(&mut self, number: u64) -> Option<Outstanding> {
        let next = self.next();
        let segment = self.get_mut(number)?;
        let before = segment.pipe();
        segment.flags |= RESENT;
        segment.resent_before = next;
        let segment = *segment;
        self.pipe += segment.pipe() - before;
        self.copies.push_back((number, next));
        Some(segment)
    }

    /// Number of the segment that starts at this place in the stream; the next new one at its end.
    fn number_at(&self, seq: u64) -> Option<u64> {
        if seq == self.end {
            return Some(self.next());
        }
        // Right unless a shorter segment lies before it.
        let full = usize::try_from(seq.checked_sub(self.acknowledged())? / u64::from(self.mss));
        let guess = full.ok()?;
        let index = if self.ring.get(guess).is_some_and(|segment| segment.seq == seq) {
            guess
        } else {
            self.ring.binary_search_by_key(&seq, |segment| segment.seq).ok()?
        };
        Some(self.first + index as u64)
    }

    /// Everything before this place has arrived; how many segments had not been known to.
    pub(super) fn acknowledge(&mut self, ack: u64) -> u64 {
        let mut newly = 0;
        while let Some(front) = self.ring.front().copied() {
            if front.seq + u64::from(front.length) > ack {
                break;
            }
            newly += u64::from(!front.has(ARRIVED));
            self.pipe -= front.pipe();
            self.ring.pop_front();
            self.first += 1;
        }
        self.arrived.remove_below(self.first);
        newly
    }

    /// The bytes from `start` to before `end` have arrived; how many segments had not been known to.
    ///
    /// A block that does not consist of whole segments is not ours, and says nothing.
    pub(super) fn arrive(&mut self, start: u64, end: u64) -> u64 {
        let (Some(first), Some(after)) = (self.number_at(start), self.number_at(end)) else {
            return 0;
        };
        if first >= after {
            return 0;
        }
        let block = NumberRange { first, last: after - 1 };
        let (mut number, mut newly) = (first, 0);
        // Step over the runs that are known already: ACKs repeat their blocks.
        while number < after {
            let known = self.arrived.iter_from(number).next();
            let until = known.map_or(after, |run| run.first.min(after));
            while number < until {
                self.mark_arrived(number);
                newly += 1;
                number += 1;
            }
            number = known.map_or(after, |run| run.last + 1);
        }
        if newly > 0 {
            self.arrived.insert(block);
        }
        newly
    }

    fn mark_arrived(&mut self, number: u64) {
        if let Some(segment) = self.get_mut(number) {
            let pipe = segment.pipe();
            segment.flags |= ARRIVED;
            self.pipe -= pipe;
        }
        // A new one among the highest moves the lower of them down.
        let mut moved = number;
        for top in &mut self.top {
            if moved > *top {
                std::mem::swap(top, &mut moved);
            }
        }
    }

    /// Takes for lost what three later segments have overtaken; how many these are.
    pub(super) fn lose_overtaken(&mut self) -> u64 {
        let bound = self.top[DUP_THRESH - 1];
        let mut lost = 0;
        for number in self.lost_below.max(self.first)..bound {
            lost += u64::from(self.lose(number));
        }
        self.lost_below = self.lost_below.max(bound);
        lost + self.lose_overtaken_copies(bound)
    }

    /// What was sent again before the third highest that has arrived was sent at all.
    fn lose_overtaken_copies(&mut self, bound: u64) -> u64 {
        let mut lost = 0;
        while let Some(&(number, next)) = self.copies.front().filter(|(_, next)| *next <= bound) {
            self.copies.pop_front();
            let Some(segment) = self.get_mut(number) else { continue };
            // Else it has arrived, or was sent once more.
            if segment.has(RESENT) && !segment.has(ARRIVED) && segment.resent_before == next {
                segment.flags &= !RESENT;
                self.pipe -= 1;
                self.lost_copies.push_back(number);
                lost += 1;
            }
        }
        lost
    }

    fn lose(&mut self, number: u64) -> bool {
        let Some(segment) = self.get_mut(number) else {
            return false;
        };
        if segment.has(ARRIVED | LOST) {
            return false;
        }
        segment.flags |= LOST;
        self.pipe -= 1;
        true
    }

    /// After a timeout everything that has not arrived is lost, repeats included; how many copies.
    ///
    /// DEV-014: what was selectively acknowledged stays so. [RFC2018 §8] forgets it, because a
    /// receiver may have thrown it away; ours never does.
    pub(super) fn lose_all(&mut self) -> u64 {
        for segment in self.ring.iter_mut().filter(|segment| !segment.has(ARRIVED)) {
            segment.flags = LOST;
        }
        self.lost_below = self.next();
        self.resend_from = self.first;
        self.copies.clear();
        self.lost_copies.clear();
        std::mem::take(&mut self.pipe)
    }

    /// Whether the first segment outstanding is lost. [RFC6675 §5] IsLost (HighACK + 1).
    pub(super) fn is_first_lost(&self) -> bool {
        self.ring.front().is_some_and(|front| front.has(LOST))
    }

    /// Whether the first segment outstanding was sent again.
    pub(super) fn is_first_resent(&self) -> bool {
        self.ring.front().is_some_and(|front| front.has(RESENT))
    }

    /// The first lost segment that this recovery has not sent again yet. [RFC6675 §4] NextSeg rule 1.
    pub(super) fn next_lost(&mut self) -> Option<u64> {
        while let Some(number) = self.lost_copies.front().copied() {
            if self.get(number).is_some_and(|segment| !segment.has(ARRIVED | RESENT)) {
                return Some(number);
            }
            self.lost_copies.pop_front();
        }
        self.next_missing(self.lost_below)
    }

    /// The first segment below the highest that arrived, lost or not. [RFC6675 §4] NextSeg rule 3.
    pub(super) fn next_hole(&mut self) -> Option<u64> {
        self.next_missing(self.top[0])
    }

    fn next_missing(&mut self, bound: u64) -> Option<u64> {
        self.resend_from = self.resend_from.max(self.first);
        while self.resend_from < bound {
            let segment = self.get(self.resend_from)?;
            if !segment.has(ARRIVED) {
                return Some(self.resend_from);
            }
            self.resend_from += 1;
        }
        None
    }

    /// The segment that [`next_lost`](Self::next_lost) or [`next_hole`](Self::next_hole) named has
    /// left: the next one is another.
    pub(super) fn pass(&mut self, number: u64) {
        self.resend_from = self.resend_from.max(number + 1);
    }

    /// The highest segment that has not arrived. [RFC6675 §4] NextSeg rule 4.
    pub(super) fn last_missing(&self) -> Option<u64> {
        let last = self.next() - 1;
        let run = self.arrived.iter_from(last).next().filter(|run| run.first <= last);
        let missing = run.map_or(last, |run| run.first - 1);
        (missing >= self.first).then_some(missing)
    }

    /// What must hold between any two calls.
    ///
    /// # Panics
    /// If it does not.
    pub(super) fn check_invariants(&self) {
        self.arrived.check_invariants();
        let pipe: u64 = self.ring.iter().map(|segment| segment.pipe()).sum();
        assert_eq!(self.pipe, pipe, "pipe is counted as it changes");
        let mut seq = self.acknowledged();
        for (number, segment) in (self.first..).zip(&self.ring) {
            assert_eq!(segment.seq, seq, "segments follow each other");
            assert!((1..=self.mss).contains(&segment.length));
            seq += u64::from(segment.length);
            let arrived = segment.has(ARRIVED);
            assert_eq!(arrived, self.arrived.contains(number), "both accounts say what arrived");
            if !arrived {
                assert_eq!(segment.has(LOST), number < self.lost_below, "IsLost of {number}");
            }
        }
        assert_eq!(seq, self.end);
        assert!(self.ring.front().is_none_or(|front| !front.has(ARRIVED)), "the first is missing");
        assert!(self.top.is_sorted_by(|a, b| a > b || *b == 0), "{:?}", self.top);
    }
}

#[cfg(test)]
mod tests;
