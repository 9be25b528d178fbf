//! Accounting of sent packets: pieces by sequence number, transmissions by packet number, and the
//! loss list.
//!
//! States:      each packet number: in flight → arrived or lost; each sequence number: in flight →
//!              on the loss list → in flight … → acknowledged
//! Invariants:  the loss list holds only unacknowledged sequence numbers.

use sabul_cc::{LossReport, SentNumber};
use sabul_units::{Instant, PacketNumber, Packets, SeqNo};
use sabul_wire::NumberRange;

use super::records::{Numbers, PieceRange, Pieces};
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

    /// Forgets everything before `seq`, which has arrived.
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
