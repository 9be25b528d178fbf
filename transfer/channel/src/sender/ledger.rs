//! Accounting of sent packets: pieces by sequence number, transmissions by packet number, and the
//! loss list.
//!
//! States:      each packet number: in flight → arrived or lost; each sequence number: in flight →
//!              on the loss list → in flight … → acknowledged
//! Invariants:  the loss list holds only unacknowledged sequence numbers.

use std::collections::VecDeque;

use sabul_cc::{LossReport, SentNumber};
use sabul_units::{Instant, PacketNumber, Packets, SeqNo};
use sabul_wire::NumberRange;

use super::stream::Stream;
use crate::interval_set::IntervalSet;

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) pieces: Pieces,
    pub(super) numbers: Numbers,
    pub(super) loss_list: IntervalSet,
}

impl Ledger {
    pub(super) const fn new(first: PacketNumber) -> Self {
        Self { pieces: Pieces::new(), numbers: Numbers::new(first), loss_list: IntervalSet::new() }
    }

    /// Records the first transmission of a piece; returns its numbers.
    #[inline]
    pub(super) fn send(&mut self, now: Instant, range: PieceRange) -> (PacketNumber, SeqNo) {
        let seq = self.pieces.next();
        let number = self.numbers.push(seq, now);
        self.pieces.push(range, number);
        (number, seq)
    }

    /// Records a retransmission; returns `None` if the piece has been acknowledged meanwhile. A
    /// piece that no longer fits keeps its number and its front. The rest goes back to the stream
    /// and leaves under new numbers. A place therefore only shrinks, and any arriving transmission
    /// of a number covers its whole place.
    pub(super) fn send_again(
        &mut self,
        now: Instant,
        seq: SeqNo,
        stream: &mut Stream,
    ) -> Option<(PacketNumber, PieceRange)> {
        let number = self.numbers.next();
        let (range, rest) = self.pieces.resent(seq, number, stream.payload_bytes())?;
        if let Some(rest) = rest {
            stream.push_rest(rest);
        }
        self.numbers.push(seq, now);
        Some((number, range))
    }

    /// Removes and returns the first number of the loss list.
    #[inline]
    pub(super) fn next_lost(&mut self) -> Option<SeqNo> {
        self.loss_list.pop_first().map(SeqNo)
    }

    /// Current policy: records lost transmissions. Returns a report of those that no earlier report
    /// named.
    pub(super) fn lose_numbers(&mut self, ranges: &[NumberRange]) -> Option<LossReport> {
        let (mut lost, mut first_lost) = (0, None);
        for range in ranges {
            let new = self.numbers.report(*range);
            for number in new.into_iter().flat_map(|part| part.first..=part.last) {
                let Some(seq) = self.numbers.take_piece(number) else {
                    continue;
                };
                lost += 1;
                first_lost = first_lost.or(Some(number));
                // A piece is sent again only if its newest transmission is lost.
                let newest =
                    self.pieces.get_mut(seq).is_some_and(|p| p.number == PacketNumber(number));
                if newest {
                    self.loss_list.insert(NumberRange { first: seq.0, last: seq.0 });
                }
            }
        }
        let largest = self.numbers.next().0.saturating_sub(1);
        first_lost.map(|first| {
            LossReport::new(Packets(lost), Packets(0), SentNumber(first), SentNumber(largest))
        })
    }

    /// Historical policy: records missing pieces and puts them onto the loss list where the rules
    /// have one.
    pub(super) fn lose_seqs(
        &mut self,
        ranges: &[NumberRange],
        has_loss_list: bool,
    ) -> Option<LossReport> {
        let (mut lost, mut repeats, mut first_lost) = (0, 0, None);
        for range in ranges {
            for seq in range.first.max(self.pieces.first().0)..=range.last {
                let Some(piece) = self.pieces.get_mut(SeqNo(seq)) else {
                    continue;
                };
                if std::mem::replace(&mut piece.was_reported, true) {
                    repeats += 1;
                } else {
                    lost += 1;
                }
                first_lost = first_lost.or(Some(seq));
                if has_loss_list {
                    self.loss_list.insert(NumberRange { first: seq, last: seq });
                }
            }
        }
        let largest = self.pieces.next().0.saturating_sub(1);
        first_lost.map(|first| {
            let [lost, repeats] = [lost, repeats].map(Packets);
            LossReport::new(lost, repeats, SentNumber(first), SentNumber(largest))
        })
    }

    /// [SABUL2] Everything above the highest number on the loss list is lost.
    pub(super) fn lose_above_list(&mut self) {
        let NumberRange { first, last } = self.pieces.range();
        let first = self.loss_list.iter().last().map_or(first, |listed| listed.last + 1);
        if first <= last {
            self.loss_list.insert(NumberRange { first, last });
        }
    }

    /// [UDT4 §3.5] Everything outstanding is lost, unless the loss list already has entries.
    pub(super) fn lose_all(&mut self) {
        if self.loss_list.is_empty() {
            self.loss_list.insert(self.pieces.range());
        }
    }

    /// Removes everything before `seq`, which has arrived.
    pub(super) fn acknowledge(&mut self, seq: SeqNo) {
        self.pieces.acknowledge(seq);
        self.loss_list.remove_below(seq.0);
    }

    /// Whether all numbers of `set` are unacknowledged.
    pub(super) fn covers(&self, set: &IntervalSet) -> bool {
        let range = self.pieces.range();
        set.iter().all(|r| r.first >= range.first && r.last <= range.last)
    }

    pub(super) fn check_invariants(&self) {
        self.loss_list.check_invariants();
        assert!(self.covers(&self.loss_list), "the loss list holds only unacknowledged numbers");
    }
}

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
    /// The largest length of `ring` so far.
    most: usize,
}

impl Pieces {
    pub(super) const fn new() -> Self {
        Self { first: SeqNo(0), ring: VecDeque::new(), most: 0 }
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
    /// The largest number of unacknowledged pieces so far.
    pub(super) const fn most(&self) -> usize {
        self.most
    }
    /// All unacknowledged numbers. Call only if not empty; an empty range would be inverted.
    pub(super) fn range(&self) -> NumberRange {
        NumberRange { first: self.first.0, last: self.next().0.saturating_sub(1) }
    }
    pub(super) fn push(&mut self, range: PieceRange, number: PacketNumber) {
        self.ring.push_back(Piece { range, was_reported: false, number });
        self.most = self.most.max(self.ring.len());
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
    /// Removes everything before `seq`.
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
    /// Removes the oldest transmissions up to `largest` that carry no unacknowledged data.
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
