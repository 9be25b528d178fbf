//! SACK scoreboard: the state of each segment in flight.
//!
//! Source: [RFC6675 §4] (pipe), [RFC8985 §6.2 step 5] (which segments are lost).
//! Model:       each transmission has a serial number. `order` lists transmissions that may be on the
//!              path, by departure, so an ACK examines only those that left too long ago.
//!              due      lost segments not yet sent again; sent from the lowest number on
//!              pipe     copies that may be on the path
//!              An ACK costs O(log blocks), and each transmission is passed once.
//! Invariants:  segment numbers start at 1 and are consecutive; pipe is the sum over the segments
//!              that have not arrived of (not lost) + (sent again).
//! Not here:    when a segment is late (`rack`), unsent bytes, and the beginning of recoveries
//!              (`sender`).

use std::collections::VecDeque;

use sabul_channel::IntervalSet;
use sabul_units::Instant;
use sabul_wire::NumberRange;

const ARRIVED: u8 = 1;
const LOST: u8 = 2;
/// A retransmitted copy may be on the path.
const RESENT: u8 = 4;

/// A segment that is not cumulatively acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    /// Stream offset of its first byte.
    pub(super) seq: u64,
    pub(super) length: u32,
    flags: u8,
    /// Departure time and serial number of its newest copy.
    pub(super) sent_at: Instant,
    pub(super) serial: u64,
    /// Number of the next new segment at its last retransmission; zero before the first.
    resent_before: u64,
}

impl Outstanding {
    const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether it was ever retransmitted.
    pub(super) const fn was_resent(self) -> bool {
        self.resent_before > 0
    }

    /// Copies that may be on the path. [RFC6675 §4] SetPipe.
    const fn pipe(self) -> u64 {
        if self.has(ARRIVED) { 0 } else { !self.has(LOST) as u64 + self.has(RESENT) as u64 }
    }
}

#[derive(Debug)]
pub(super) struct Scoreboard {
    mss: u32,
    ring: VecDeque<Outstanding>,
    /// Number of the ring's front segment.
    first: u64,
    /// Stream offset after the last segment sent.
    end: u64,
    /// Numbers that were selectively acknowledged.
    arrived: IntervalSet,
    /// The highest number in `arrived` so far.
    top: u64,
    /// Serial and segment number of each transmission that may be on the path, by departure. Stale
    /// entries differ from the segment's present serial number or state.
    order: VecDeque<(u64, u64)>,
    serial: u64,
    due: IntervalSet,
    /// Lost segments that have not arrived.
    lost: u64,
    /// Largest [`Outstanding::resent_before`] of the copies lost since the last call.
    lost_copy: Option<u64>,
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
            top: 0,
            order: VecDeque::new(),
            serial: 0,
            due: IntervalSet::new(),
            lost: 0,
            lost_copy: None,
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
        self.top.max(self.first - 1)
    }

    /// Stream offset of the first byte that is not cumulatively acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.ring.front().map_or(self.end, |front| front.seq)
    }

    /// Stream offset after everything sent.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Segments sent and not cumulatively acknowledged.
    pub(super) fn outstanding(&self) -> u64 {
        self.ring.len() as u64
    }

    /// Segments selectively but not cumulatively acknowledged.
    pub(super) const fn sacked(&self) -> u64 {
        self.arrived.count()
    }

    /// Segments that have not arrived.
    pub(super) fn missing(&self) -> u64 {
        self.outstanding() - self.sacked()
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

    /// Records a new segment of this length.
    pub(super) fn push(&mut self, now: Instant, length: u32) -> Outstanding {
        self.serial += 1;
        let serial = self.serial;
        let seq = self.end;
        let segment = Outstanding { seq, length, flags: 0, sent_at: now, serial, resent_before: 0 };
        self.order.push_back((serial, self.next()));
        self.ring.push_back(segment);
        self.end += u64::from(length);
        self.pipe += 1;
        segment
    }

    /// Records a retransmission of segment `number`.
    ///
    /// # Panics
    /// If the segment is not outstanding.
    pub(super) fn resend(&mut self, now: Instant, number: u64) -> Outstanding {
        let (next, serial) = (self.next(), self.serial + 1);
        let segment = self.get_mut(number).expect("an outstanding segment is sent again");
        let before = segment.pipe();
        segment.flags |= RESENT;
        (segment.sent_at, segment.serial, segment.resent_before) = (now, serial, next);
        let segment = *segment;
        self.serial = serial;
        self.pipe += segment.pipe() - before;
        self.order.push_back((serial, number));
        self.due.remove(number);
        segment
    }

    /// Returns the segment that starts at this stream offset; at the end, the next new segment.
    fn number_at(&self, seq: u64) -> Option<u64> {
        if seq == self.end {
            return Some(self.next());
        }
        // Correct unless a shorter segment precedes it.
        let full = usize::try_from(seq.checked_sub(self.acknowledged())? / u64::from(self.mss));
        let guess = full.ok()?;
        let index = if self.ring.get(guess).is_some_and(|segment| segment.seq == seq) {
            guess
        } else {
            self.ring.binary_search_by_key(&seq, |segment| segment.seq).ok()?
        };
        Some(self.first + index as u64)
    }

    /// Records a cumulative acknowledgement up to this offset. Returns the number of newly
    /// acknowledged segments and calls `deliver` for each, with its number.
    pub(super) fn acknowledge(
        &mut self,
        ack: u64,
        deliver: &mut impl FnMut(u64, Outstanding),
    ) -> u64 {
        let mut newly = 0;
        while let Some(front) = self.ring.front().copied() {
            if front.seq + u64::from(front.length) > ack {
                break;
            }
            if !front.has(ARRIVED) {
                newly += 1;
                self.lost -= u64::from(front.has(LOST));
                deliver(self.first, front);
            }
            self.pipe -= front.pipe();
            self.ring.pop_front();
            self.first += 1;
        }
        self.arrived.remove_below(self.first);
        self.due.remove_below(self.first);
        newly
    }

    /// Records a selective acknowledgement of the bytes from `start` to before `end`. Returns the
    /// number of newly acknowledged segments.
    ///
    /// A block that does not consist of whole segments is ignored: no correct receiver sends it.
    pub(super) fn arrive(
        &mut self,
        start: u64,
        end: u64,
        deliver: &mut impl FnMut(u64, Outstanding),
    ) -> u64 {
        let (Some(first), Some(after)) = (self.number_at(start), self.number_at(end)) else {
            return 0;
        };
        if first >= after {
            return 0;
        }
        let block = NumberRange { first, last: after - 1 };
        let (mut number, mut newly) = (first, 0);
        // Skip runs that are already known: ACKs repeat their blocks.
        while number < after {
            let known = self.arrived.iter_from(number).next();
            let until = known.map_or(after, |run| run.first.min(after));
            while number < until {
                self.mark_arrived(number, deliver);
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

    fn mark_arrived(&mut self, number: u64, deliver: &mut impl FnMut(u64, Outstanding)) {
        if let Some(segment) = self.get_mut(number) {
            deliver(number, *segment);
            let (pipe, was_lost) = (segment.pipe(), segment.has(LOST));
            segment.flags |= ARRIVED;
            self.pipe -= pipe;
            self.lost -= u64::from(was_lost);
            self.due.remove(number);
        }
        self.top = self.top.max(number);
    }

    /// Marks segments lost that left before transmission `newest` and are late. Returns the number
    /// of copies lost, and the departure of the first transmission that is not late yet. [RFC8985
    /// §6.2 step 5]
    pub(super) fn lose_late(
        &mut self,
        newest: u64,
        is_late: impl Fn(Instant) -> bool,
    ) -> (u64, Option<Instant>) {
        let mut lost = 0;
        while let Some(&(serial, number)) = self.order.front().filter(|(of, _)| *of < newest) {
            let current = self.get(number).filter(|one| one.serial == serial && one.pipe() > 0);
            if let Some(segment) = current {
                if !is_late(segment.sent_at) {
                    return (lost, Some(segment.sent_at));
                }
                lost += self.lose(number);
            }
            self.order.pop_front();
        }
        (lost, None)
    }

    /// Marks all copies of a segment lost; returns their number.
    fn lose(&mut self, number: u64) -> u64 {
        let Some(segment) = self.get_mut(number) else { return 0 };
        let (pipe, was_lost) = (segment.pipe(), segment.has(LOST));
        let resent_before = segment.has(RESENT).then_some(segment.resent_before);
        segment.flags = LOST;
        self.lost_copy = self.lost_copy.max(resent_before);
        self.pipe -= pipe;
        self.lost += u64::from(!was_lost);
        self.due.insert(NumberRange { first: number, last: number });
        pipe
    }

    /// After a timeout, marks everything lost that has not arrived, retransmissions included;
    /// returns the number of copies.
    ///
    /// DEV-014: selective acknowledgements are kept. [RFC2018 §8] discards them, because a receiver
    /// may have discarded the data; our receiver never does.
    pub(super) fn lose_all(&mut self) -> u64 {
        let lost = self.pipe;
        for number in self.first..self.next() {
            if self.get(number).is_some_and(|segment| !segment.has(ARRIVED)) {
                self.lose(number);
            }
        }
        self.order.clear();
        self.lost_copy = None;
        lost
    }

    /// Reverts all losses: each segment that has not arrived, and its copy, may be on the path.
    pub(super) fn find_all(&mut self) {
        self.due = IntervalSet::new();
        (self.lost, self.pipe) = (0, 0);
        self.lost_copy = None;
        self.order.clear();
        for (number, segment) in (self.first..).zip(&mut self.ring) {
            if !segment.has(ARRIVED) {
                segment.flags &= !LOST;
                self.pipe += segment.pipe();
                self.order.push_back((segment.serial, number));
            }
        }
        self.order.make_contiguous().sort_unstable();
    }

    /// Takes the largest `resent_before` of the copies lost since the last call.
    pub(super) const fn take_lost_copy(&mut self) -> Option<u64> {
        self.lost_copy.take()
    }

    /// The first lost segment that has not arrived, retransmitted or not.
    pub(super) fn first_lost(&self) -> Option<u64> {
        if self.lost == 0 {
            return None;
        }
        let has_lost = |segment: &Outstanding| segment.has(LOST) && !segment.has(ARRIVED);
        (self.first..).zip(&self.ring).find(|(_, one)| has_lost(one)).map(|(number, _)| number)
    }

    /// The first lost segment not yet retransmitted. [RFC6675 §4] NextSeg rule 1.
    pub(super) fn next_lost(&self) -> Option<u64> {
        self.due.first()
    }

    /// Checks the invariants that hold between any two calls.
    ///
    /// # Panics
    /// If an invariant does not hold.
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
            let is_due = !arrived && segment.has(LOST) && !segment.has(RESENT);
            assert_eq!(
                is_due,
                self.due.contains(number),
                "segment {number} waits to be sent again"
            );
            if segment.pipe() > 0 {
                let entry = (segment.serial, number);
                assert!(self.order.binary_search(&entry).is_ok(), "{entry:?} is on the path");
            }
        }
        let lost = self.ring.iter().filter(|one| one.has(LOST) && !one.has(ARRIVED)).count();
        assert_eq!(self.lost, lost as u64);
        assert_eq!(seq, self.end);
        assert!(self.ring.front().is_none_or(|front| !front.has(ARRIVED)), "the first is missing");
    }
}

#[cfg(test)]
mod tests;
