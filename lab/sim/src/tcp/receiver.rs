//! TCP receiver: reassembly, delayed ACKs, SACK blocks and ECN echo.
//!
//! Source: [RFC5681 §4.2] (delayed ACKs), [RFC2018 §4] and [RFC2883 §4] (which blocks), [RFC7323
//! §4] (which time to echo), [RFC3168 §6.1.3] and [RFC8257 §3.2] (marks).
//! Model:       every second segment in order is acknowledged, a single segment after 40 ms.
//!              Segments out of order, segments that fill a hole and duplicates are acknowledged at
//!              once.
//! Invariants:  every byte in the out-of-order queue is beyond the cumulative acknowledgement.

use sabul_channel::{IntervalSet, ReceiverWait};
use sabul_units::{Instant, Polled, Span};
use sabul_wire::NumberRange;

use super::packets::{SACK_BLOCKS, Segment, TcpAck};

/// [RFC5681 §4.2] allows up to 500 ms; Linux uses 40 ms.
const ACK_DELAY: Span = Span::from_millis(40);
/// [RFC5681 §4.2] An ACK for at least every second full segment.
const ACK_SEGMENTS: u32 = 2;

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpReceiverStats {
    /// Segments that arrived.
    pub segments: u64,
    /// Segments without new data.
    pub duplicates: u64,
    /// Segments with a router's mark.
    pub marked: u64,
    /// Bytes that arrived on the wire, headers and duplicates included.
    pub wire_bytes: u64,
    /// ACKs sent.
    pub acks: u64,
}

/// The receiving end of a TCP connection.
#[derive(Clone, Debug, Default)]
pub struct TcpReceiver {
    /// Everything before this offset has arrived.
    next: u64,
    /// Bytes that arrived out of order.
    waiting: IntervalSet,
    /// First bytes of the blocks in ACKs, newest first.
    recent: [Option<u64>; SACK_BLOCKS],
    /// In-order segments that no ACK has answered.
    unanswered: u32,
    is_due: bool,
    /// Whether the newest segment was a duplicate.
    has_duplicate: bool,
    deadline: Option<Instant>,
    /// [RFC7323 §4] TS.Recent and Last.ACK.sent.
    echo: Instant,
    last_ack: u64,
    /// A mark that the sender has not answered yet; with `reports_each_mark`, the newest segment's
    /// mark.
    is_marked: bool,
    reports_each_mark: bool,
    /// An ACK for the segments that were waiting when marking began or ended.
    early: Option<TcpAck>,
    stats: TcpReceiverStats,
}

impl TcpReceiver {
    /// Creates a receiver at the start of the stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a receiver whose ACKs report exactly whether the answered segments were marked
    /// (DCTCP). [RFC8257 §3.2]
    pub fn with_accurate_ecn() -> Self {
        Self { reports_each_mark: true, ..Self::default() }
    }

    /// Processes a segment, which a router may have marked. Call [`poll`](Self::poll) after each
    /// segment.
    pub fn accept(&mut self, now: Instant, segment: &Segment, is_marked: bool) {
        self.stats.segments += 1;
        self.stats.wire_bytes += u64::from(segment.wire_bytes());
        self.stats.marked += u64::from(is_marked);
        if self.reports_each_mark {
            if is_marked != self.is_marked && self.unanswered > 0 {
                self.early = Some(self.answer());
            }
            self.is_marked = is_marked;
        } else {
            self.is_marked = is_marked || (self.is_marked && !segment.is_window_reduced);
        }
        if segment.sent_at >= self.echo && segment.seq <= self.last_ack {
            self.echo = segment.sent_at;
        }
        let first = segment.seq.max(self.next);
        let range = NumberRange { first, last: segment.end().saturating_sub(1) };
        if segment.end() <= first || self.holds(range) {
            self.stats.duplicates += 1;
            self.has_duplicate = true;
            self.is_due = true;
        } else if first > self.next {
            self.waiting.insert(range);
            self.note_recent(first);
            self.is_due = true;
        } else {
            let had_holes = !self.waiting.is_empty();
            self.next = segment.end();
            self.absorb();
            self.unanswered += 1;
            if had_holes || self.unanswered >= ACK_SEGMENTS {
                self.is_due = true;
            } else {
                self.deadline.get_or_insert(now + ACK_DELAY);
            }
        }
    }

    /// Returns the ACK to send, or the time until which there is none.
    pub fn poll(&mut self, now: Instant) -> Polled<TcpAck, ReceiverWait> {
        if let Some(ack) = self.early.take() {
            return Polled::Ready(ack);
        }
        if !self.is_due && self.deadline.is_none_or(|deadline| now < deadline) {
            let because = self.deadline.map_or(ReceiverWait::Arrival, |_| ReceiverWait::Ack);
            return Polled::Wait { until: self.deadline, because };
        }
        Polled::Ready(self.answer())
    }

    /// Builds an ACK of everything that has arrived.
    fn answer(&mut self) -> TcpAck {
        self.is_due = false;
        self.deadline = None;
        self.unanswered = 0;
        self.last_ack = self.next;
        self.stats.acks += 1;
        let mut ack = TcpAck::new(self.next, self.echo, self.is_marked);
        if std::mem::take(&mut self.has_duplicate) {
            ack = ack.with_duplicate();
        }
        if !self.waiting.is_empty() {
            for block in self.recent.into_iter().flatten() {
                if let Some(range) = self.block_of(block) {
                    ack = ack.with_block(range.first, range.last + 1);
                }
            }
        }
        ack
    }

    /// Bytes that have arrived in order.
    pub const fn delivered(&self) -> u64 {
        self.next
    }

    /// Counts since the start.
    pub const fn stats(&self) -> TcpReceiverStats {
        self.stats
    }

    fn holds(&self, range: NumberRange) -> bool {
        self.block_of(range.first).is_some_and(|block| block.last >= range.last)
    }

    /// Returns the block that contains this byte.
    fn block_of(&self, byte: u64) -> Option<NumberRange> {
        self.waiting.iter_from(byte).next().filter(|block| block.first <= byte)
    }

    /// Advances over data that arrived out of order.
    fn absorb(&mut self) {
        // A segment may overlap a block, or end where a block starts.
        while self.waiting.first().is_some_and(|first| first <= self.next) {
            let Some(block) = self.waiting.iter().next() else { break };
            self.next = self.next.max(block.last + 1);
            self.waiting.remove_below(block.last + 1);
        }
        for recent in &mut self.recent {
            *recent = recent.filter(|first| *first >= self.next);
        }
    }

    /// [RFC2018 §4] The block that has just grown comes first, then earlier reported blocks.
    fn note_recent(&mut self, byte: u64) {
        let newest = self.block_of(byte).map_or(byte, |block| block.first);
        let mut kept = [Some(newest), None, None];
        let mut count = 1;
        for old in self.recent.into_iter().flatten() {
            // The newest segment may have joined two blocks; a joined block is listed once.
            let first = self.block_of(old).map(|block| block.first);
            if count < SACK_BLOCKS && first.is_some_and(|first| first != newest) {
                kept[count] = first;
                count += 1;
            }
        }
        self.recent = kept;
    }

    /// Checks the invariants that hold between any two calls.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check_invariants(&self) {
        self.waiting.check_invariants();
        assert!(
            self.waiting.first().is_none_or(|first| first > self.next),
            "what waits is beyond a hole"
        );
        assert!(self.last_ack <= self.next, "nothing is acknowledged that has not arrived");
        assert!(self.stats.duplicates <= self.stats.segments);
        assert!(self.unanswered < ACK_SEGMENTS || self.is_due, "a second segment is answered");
        for first in self.recent.into_iter().flatten() {
            let block = self.block_of(first);
            assert!(block.is_some(), "a block that ACKs name is there: {first}, {self:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    /// Returns the `n`-th segment of 1000 bytes, sent at `n` ms.
    fn segment(n: u64) -> Segment {
        Segment {
            seq: n * u64::from(MSS),
            sent_at: at(n),
            length: MSS,
            is_resent: false,
            is_ecn_capable: true,
            is_window_reduced: false,
        }
    }

    fn take(receiver: &mut TcpReceiver, now: Instant, n: u64) -> Option<TcpAck> {
        receiver.accept(now, &segment(n), false);
        receiver.check_invariants();
        receiver.poll(now).ready()
    }

    fn blocks(ack: Option<TcpAck>) -> Vec<(u64, u64)> {
        ack.unwrap().blocks().map(|(start, end)| (start / 1000, end / 1000)).collect()
    }

    #[test]
    fn every_second_segment_is_acknowledged_and_a_single_one_after_40_ms() {
        let mut receiver = TcpReceiver::new();
        assert_eq!(take(&mut receiver, at(100), 0), None);
        // The echo is of the first of the two, so that the sample includes the wait. [RFC7323 §4]
        let both = take(&mut receiver, at(101), 1);
        assert_eq!(both, Some(TcpAck::new(2000, at(0), false)));
        let wait = Polled::Wait { until: None, because: ReceiverWait::Arrival };
        assert_eq!(receiver.poll(at(102)), wait);
        assert_eq!(take(&mut receiver, at(102), 2), None);
        let wait = Polled::Wait { until: Some(at(142)), because: ReceiverWait::Ack };
        assert_eq!(receiver.poll(at(141)), wait);
        assert_eq!(receiver.poll(at(142)), Polled::Ready(TcpAck::new(3000, at(2), false)));
        assert_eq!(receiver.poll(at(500)).ready(), None);
    }

    #[test]
    fn out_of_order_filling_and_repeated_segments_are_answered_at_once() {
        let mut receiver = TcpReceiver::new();
        let early = take(&mut receiver, at(1), 1);
        assert_eq!(early.map(|ack| ack.ack), Some(0));
        assert_eq!(blocks(early), [(1, 2)]);
        assert_eq!(blocks(take(&mut receiver, at(2), 3)), [(3, 4), (1, 2)]);
        // Half of the holes are filled.
        let filled = take(&mut receiver, at(3), 0);
        assert_eq!(filled.map(|ack| ack.ack), Some(2000));
        assert_eq!(blocks(filled), [(3, 4)]);
        assert_eq!(take(&mut receiver, at(4), 2).map(|ack| ack.ack), Some(4000));
        assert_eq!(take(&mut receiver, at(5), 1).map(|ack| ack.ack), Some(4000));
        assert_eq!(receiver.stats().duplicates, 1);
        assert_eq!(receiver.delivered(), 4000);
    }

    #[test]
    fn sack_blocks_are_listed_newest_first_and_merged() {
        let mut receiver = TcpReceiver::new();
        for (n, expected) in [
            (2, vec![(2, 3)]),
            (4, vec![(4, 5), (2, 3)]),
            (8, vec![(8, 9), (4, 5), (2, 3)]),
            (6, vec![(6, 7), (8, 9), (4, 5)]),
            (9, vec![(8, 10), (6, 7), (4, 5)]),
            // 5 joins 4 and 6.
            (5, vec![(4, 7), (8, 10)]),
            // 2 was dropped from the list; it is listed again once its block grows.
            (3, vec![(2, 7), (8, 10)]),
            (7, vec![(2, 10)]),
            (11, vec![(11, 12), (2, 10)]),
            (12, vec![(11, 13), (2, 10)]),
            (10, vec![(2, 13)]),
        ] {
            assert_eq!(blocks(take(&mut receiver, at(1), n)), expected, "after {n}");
        }
    }

    #[test]
    fn an_ecn_mark_is_echoed_until_the_sender_sets_cwr() {
        let mut receiver = TcpReceiver::new();
        receiver.accept(at(1), &segment(0), true);
        assert!(take(&mut receiver, at(2), 1).unwrap().is_marked);
        take(&mut receiver, at(3), 2);
        assert!(take(&mut receiver, at(4), 3).unwrap().is_marked);
        let answered = Segment { is_window_reduced: true, ..segment(4) };
        receiver.accept(at(5), &answered, false);
        assert!(!take(&mut receiver, at(6), 5).unwrap().is_marked);
        // The answering segment may itself be marked again.
        receiver.accept(at(7), &Segment { is_window_reduced: true, ..segment(6) }, true);
        assert!(take(&mut receiver, at(8), 7).unwrap().is_marked);
    }

    #[test]
    fn with_per_mark_echo_an_ack_covers_only_marked_or_unmarked_segments() {
        let mut receiver = TcpReceiver::with_accurate_ecn();
        let mut accept = |n, is_marked| {
            receiver.accept(at(n), &segment(n), is_marked);
            receiver.check_invariants();
            let acks = std::iter::from_fn(|| receiver.poll(at(n)).ready());
            acks.map(|ack| (ack.ack / 1000, ack.is_marked)).collect::<Vec<_>>()
        };
        assert_eq!(accept(0, false), []);
        // The first waits no longer, because the second is marked.
        assert_eq!(accept(1, true), [(1, false)]);
        assert_eq!(accept(2, true), [(3, true)]);
        assert_eq!(accept(3, true), []);
        assert_eq!(accept(4, false), [(4, true)]);
        assert_eq!(accept(5, false), [(6, false)]);
    }

    #[test]
    fn the_timestamp_echo_is_of_the_segment_that_advanced_the_ack() {
        let mut receiver = TcpReceiver::new();
        // 0 is lost; 1 and 2 arrive, sent at 1 and 2 ms.
        assert_eq!(take(&mut receiver, at(11), 1).unwrap().echo, at(0));
        assert_eq!(take(&mut receiver, at(12), 2).unwrap().echo, at(0));
        // 0 is sent again at 50 ms.
        let again = Segment { sent_at: at(50), is_resent: true, ..segment(0) };
        receiver.accept(at(60), &again, false);
        assert_eq!(receiver.poll(at(60)), Polled::Ready(TcpAck::new(3000, at(50), false)));
    }
}
