//! Ring buffers of unacknowledged pieces and of transmissions.

use std::collections::VecDeque;

use sabul_units::{Instant, PacketNumber, SeqNo};
use sabul_wire::NumberRange;

use crate::interval_set::IntervalSet;

/// Location of a piece in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceRange {
    pub(super) block: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) ends_block: bool,
}

impl PieceRange {
    /// Keeps the first `most` bytes; returns the part cut off, if any.
    pub(super) const fn shorten(&mut self, most: u32) -> Option<Self> {
        if self.length <= most {
            return None;
        }
        let rest = Self { offset: self.offset + most, length: self.length - most, ..*self };
        self.length = most;
        self.ends_block = false;
        Some(rest)
    }
}

/// An unacknowledged piece of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) range: PieceRange,
    /// Whether a loss report has named the piece before (historical policy).
    pub(super) was_reported: bool,
    /// Packet number of its newest transmission.
    pub(super) number: PacketNumber,
}

/// Unacknowledged pieces by sequence number.
#[derive(Debug)]
pub(super) struct Pieces {
    first: SeqNo,
    ring: VecDeque<Piece>,
}

impl Pieces {
    pub(super) const fn new() -> Self {
        Self { first: SeqNo(0), ring: VecDeque::new() }
    }
    /// The first unacknowledged sequence number.
    pub(super) const fn first(&self) -> SeqNo {
        self.first
    }
    /// The next sequence number.
    pub(super) fn next(&self) -> SeqNo {
        SeqNo(self.first.0 + self.ring.len() as u64)
    }
    pub(super) fn len(&self) -> u64 {
        self.ring.len() as u64
    }
    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
    /// All unacknowledged numbers. Call only if not empty; an empty range would be inverted.
    pub(super) fn range(&self) -> NumberRange {
        NumberRange { first: self.first.0, last: self.next().0.saturating_sub(1) }
    }
    pub(super) fn push(&mut self, range: PieceRange, number: PacketNumber) {
        self.ring.push_back(Piece { range, was_reported: false, number });
    }
    pub(super) fn get_mut(&mut self, seq: SeqNo) -> Option<&mut Piece> {
        let index = seq.0.checked_sub(self.first.0)?;
        self.ring.get_mut(usize::try_from(index).ok()?)
    }
    /// Records a retransmission under `number` of at most `most` bytes. The piece keeps its
    /// sequence number and its front. Returns the piece and the part cut off.
    pub(super) fn resent(
        &mut self,
        seq: SeqNo,
        number: PacketNumber,
        most: u32,
    ) -> Option<(PieceRange, Option<PieceRange>)> {
        let piece = self.get_mut(seq)?;
        piece.number = number;
        let rest = piece.range.shorten(most);
        Some((piece.range, rest))
    }
    /// Forgets everything before `seq`.
    pub(super) fn acknowledge(&mut self, seq: SeqNo) {
        let count = seq.0.saturating_sub(self.first.0).min(self.ring.len() as u64);
        self.ring.drain(..usize::try_from(count).unwrap_or(self.ring.len()));
        self.first = SeqNo(self.first.0 + count);
    }
}

/// One transmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Sequence number of its data; `None` for other packets and once lost.
    pub(super) seq: Option<SeqNo>,
    /// `None` for other kinds of packets.
    pub(super) sent_at: Option<Instant>,
}

/// Transmissions by packet number, from the oldest that may still matter.
#[derive(Debug)]
pub(super) struct Numbers {
    first: PacketNumber,
    ring: VecDeque<Sent>,
    /// Numbers that loss reports have named; a report that repeats numbers adds no work.
    reported: IntervalSet,
    /// Count of all numbers ever in `reported`.
    named: u64,
    /// Every number below has arrived or precedes a number that has arrived.
    resolved: PacketNumber,
    /// DATA packets at or above `settled`.
    in_flight: u64,
}

impl Numbers {
    pub(super) const fn new(first: PacketNumber) -> Self {
        Self {
            first,
            ring: VecDeque::new(),
            reported: IntervalSet::new(),
            named: 0,
            resolved: first,
            in_flight: 0,
        }
    }
    pub(super) fn next(&self) -> PacketNumber {
        PacketNumber(self.first.0 + self.ring.len() as u64)
    }
    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }
    pub(super) fn push(&mut self, seq: SeqNo, sent_at: Instant) -> PacketNumber {
        let number = self.next();
        self.ring.push_back(Sent { seq: Some(seq), sent_at: Some(sent_at) });
        self.in_flight += 1;
        number
    }
    pub(super) fn push_other(&mut self) -> PacketNumber {
        let number = self.next();
        self.ring.push_back(Sent { seq: None, sent_at: None });
        number
    }
    /// Records a probe without data that gives an RTT sample and counts as in flight.
    pub(super) fn push_probe(&mut self, sent_at: Instant) -> PacketNumber {
        let number = self.next();
        self.ring.push_back(Sent { seq: None, sent_at: Some(sent_at) });
        self.in_flight += 1;
        number
    }
    pub(super) fn get(&self, number: PacketNumber) -> Option<&Sent> {
        let index = number.0.checked_sub(self.first.0)?;
        self.ring.get(usize::try_from(index).ok()?)
    }
    /// DATA packets in flight: sent after the newest packet that has arrived.
    pub(super) const fn in_flight(&self) -> u64 {
        self.in_flight
    }
    /// Records that number `largest` has arrived; earlier packets are no longer in flight.
    pub(super) fn arrived(&mut self, largest: PacketNumber) {
        while self.resolved <= largest && self.resolved < self.next() {
            let is_data = self.get(self.resolved).is_some_and(|sent| sent.sent_at.is_some());
            self.in_flight -= u64::from(is_data);
            self.resolved = self.resolved.next();
        }
    }
    /// Takes the piece out of a lost transmission; `None` if it carried no data or was already
    /// taken.
    pub(super) fn take_piece(&mut self, number: u64) -> Option<SeqNo> {
        let index = number.checked_sub(self.first.0)?;
        self.ring.get_mut(usize::try_from(index).ok()?)?.seq.take()
    }
    /// Count of numbers that loss reports have named, each counted once.
    pub(super) const fn named(&self) -> u64 {
        self.named
    }
    /// Forgets the oldest transmissions up to `largest` that carry no unacknowledged data.
    pub(super) fn trim(&mut self, largest: PacketNumber, acknowledged: SeqNo) {
        while let Some(sent) = self.ring.front() {
            if self.first > largest || sent.seq.is_some_and(|seq| seq >= acknowledged) {
                break;
            }
            self.ring.pop_front();
            self.first = self.first.next();
        }
        self.reported.remove_below(self.first.0);
    }
    /// Returns the remembered numbers of a loss report that no earlier report named.
    pub(super) fn report(&mut self, range: NumberRange) -> Vec<NumberRange> {
        let first = range.first.max(self.first.0);
        let last = range.last.min(self.next().0.saturating_sub(1));
        if first > last {
            return Vec::new();
        }
        let known = NumberRange { first, last };
        let new = self.reported.lacking(known);
        self.named += new.iter().map(|part| part.count()).sum::<u64>();
        self.reported.insert(known);
        new
    }
}
