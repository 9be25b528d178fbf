//! What a receiver reports under the rules of SABUL's relatives.
//!
//! Four rules, one kind of report: a stretch of the data and what is missing of it. They differ in when
//! it leaves. *Rounds*: all of it, when the sender's mark has come and the path has been quiet.
//! *Requests*: each gap at once, everything outstanding with each mark and each 350 ms. *Cyclic*: some
//! of it with every 64th packet, going round. *Buffers*: each buffer when its last packet has come, or
//! should have.
//! Invariants:  what is reported missing has not come; lists are made when they are sent, so none grows
//!              while it waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sabul_cc::{BUFFER_PACKETS, ChannelRules, SYN_INTERVAL};
use sabul_units::{Instant, SeqNo, Span};
use sabul_wire::{ERROR_RATE_MAX, Feedback, MAX_RANGES, Mark, Missing, NumberRange};

use super::{RTT_UNKNOWN, Receiver};

/// Ours: a mark this far beyond what has come is no honest one.
const MARK_AHEAD_MAX: u64 = 1 << 40;
/// [RBUDP] A few times between packets: what a mark has overtaken comes within it.
const QUIET_PACKETS: u64 = 4;
/// Ours: no longer than this.
const QUIET_MAX: Span = Span::from_millis(10);
/// Weight of the newest distance between two packets, 1/64: longer than most bursts.
const SPACING_WEIGHT: u64 = 64;
/// [FOBS] A report leaves with each so many packets; the number is ours.
const CYCLIC_PACKETS: u64 = 64;
/// Ours: lists of one such report.
const CYCLIC_LISTS: u32 = 1;
/// [TSUNAMI] What is outstanding is asked for again this often, which is looked at each so many blocks.
const UPDATE_INTERVAL: Span = Span::from_millis(350);
const UPDATE_BLOCKS: u64 = 50;
/// [TSUNAMI] Most numbers asked for at once.
const BATCH_NUMBERS: u64 = 2048;
/// [TSUNAMI] Most numbers of one gap that are asked for: its table has no more.
const GAP_NUMBERS: u64 = 65_536;
/// [TSUNAMI] Weight of the old error rate, and what an update full of requests counts.
const ERROR_WEIGHT_OLD: f64 = 0.25;
const ERROR_SCALE: f64 = 50_000.0;
/// Ours: silence in between counts as distance, too, and must not put a timer off for ever.
const TIMER_MAX: Span = Span::from_secs(1);
/// Ours: buffers whose timers run at once, so that one packet far ahead has a bounded answer.
const BUFFERS_MAX: usize = 512;

/// Numbers still to be listed.
#[derive(Clone, Copy, Debug)]
struct Listing {
    serial: u64,
    from: u64,
    below: u64,
    /// Lists that may still be sent of it.
    lists: u32,
}

/// What these rules keep in mind; of no use under the standard ones.
#[derive(Debug)]
pub(super) struct Bulk {
    /// Reports to send as they are.
    ready: VecDeque<Feedback>,
    listing: Option<Listing>,
    last_piece: Option<Instant>,
    /// Mean time between two packets.
    spacing: Span,
    /// Rounds: a mark to answer, and when.
    mark: Option<(Mark, Instant)>,
    /// Cyclic: where the next report begins.
    list_from: u64,
    /// Requests: numbers asked for and blocks received in this period, and when it began.
    asked: u64,
    received: u64,
    period_start: Instant,
    error: f64,
    /// Buffers: when each incomplete one is overdue.
    due: BTreeMap<u64, Instant>,
    queue: BTreeSet<(Instant, u64)>,
}

impl Bulk {
    pub(super) const fn new() -> Self {
        Self {
            ready: VecDeque::new(),
            listing: None,
            last_piece: None,
            spacing: Span::ZERO,
            mark: None,
            list_from: 0,
            asked: 0,
            received: 0,
            period_start: Instant::ZERO,
            error: 0.0,
            due: BTreeMap::new(),
            queue: BTreeSet::new(),
        }
    }

    fn set_due(&mut self, buffer: u64, due: Option<Instant>) {
        if let Some(old) = self.due.remove(&buffer) {
            self.queue.remove(&(old, buffer));
        }
        if let Some(due) = due
            && self.due.len() < BUFFERS_MAX
        {
            self.due.insert(buffer, due);
            self.queue.insert((due, buffer));
        }
    }
}

/// The numbers of a buffer.
const fn numbers_of(buffer: u64) -> NumberRange {
    let first = buffer * BUFFER_PACKETS;
    NumberRange { first, last: first + BUFFER_PACKETS - 1 }
}

impl Receiver {
    /// The sender has sent everything before the mark's end, and nothing more for now.
    pub fn handle_mark(&mut self, now: Instant, mark: Mark) {
        let rules = self.config.reports.channel;
        if matches!(rules, ChannelRules::Standard | ChannelRules::Cyclic)
            || mark.end.0 > self.next_seq.0.saturating_add(MARK_AHEAD_MAX)
        {
            return;
        }
        if mark.end > self.next_seq {
            // The tail is lost, or late.
            let tail = NumberRange { first: self.next_seq.0, last: mark.end.0 - 1 };
            self.missing_seqs.insert(tail);
            self.next_seq = mark.end;
            if rules == ChannelRules::Buffers {
                self.note_gap(now, tail);
            }
        }
        // Where nothing is missing, that is all the sender waits for.
        (self.ack_wanted, self.next_ack) = (true, now);
        match rules {
            ChannelRules::Rounds => {
                let due = now + self.quiet();
                self.bulk.mark = Some((mark, due));
            }
            ChannelRules::Requests => self.ask_again(),
            ChannelRules::Buffers => self.look_at_buffers(now),
            ChannelRules::Standard | ChannelRules::Cyclic => {}
        }
    }

    /// Whether an ACK leaves on account of the packet that has just been counted.
    pub(super) const fn is_ack_due(&self) -> bool {
        match self.config.reports.channel {
            ChannelRules::Cyclic => self.stats.packets.is_multiple_of(CYCLIC_PACKETS),
            _ => true,
        }
    }

    /// How long the path must be quiet after a mark.
    fn quiet(&self) -> Span {
        (self.bulk.spacing * QUIET_PACKETS).min(QUIET_MAX)
    }

    /// Numbers are missing that nobody knew of.
    pub(super) fn note_gap(&mut self, now: Instant, gap: NumberRange) {
        match self.config.reports.channel {
            ChannelRules::Requests => {
                let last = gap.last.min(gap.first.saturating_add(GAP_NUMBERS - 1));
                self.ask(vec![NumberRange { last, ..gap }]);
            }
            ChannelRules::Buffers => {
                // What follows them has come: nothing of those before is expected any more.
                let first = gap.first / BUFFER_PACKETS;
                let last = (gap.last / BUFFER_PACKETS).min(first + BUFFERS_MAX as u64);
                for buffer in first..=last {
                    let behind = numbers_of(buffer).last.saturating_sub(gap.last);
                    self.start_timer(now, buffer, behind);
                }
            }
            ChannelRules::Standard | ChannelRules::Rounds | ChannelRules::Cyclic => {}
        }
    }

    /// A piece has come, and the gap before it and the piece itself are noted.
    pub(super) fn note_piece(&mut self, now: Instant, seq: SeqNo) {
        if let Some(last) = self.bulk.last_piece.replace(now) {
            let spacing = self.bulk.spacing;
            self.bulk.spacing =
                spacing - spacing / SPACING_WEIGHT + now.since(last) / SPACING_WEIGHT;
        }
        match self.config.reports.channel {
            ChannelRules::Standard => {}
            ChannelRules::Rounds => {
                let due = now + self.quiet();
                if let Some((_, at)) = &mut self.bulk.mark {
                    *at = due;
                }
            }
            ChannelRules::Requests => self.count_block(now),
            ChannelRules::Cyclic => {
                if self.is_ack_due() {
                    self.list_cyclic();
                }
            }
            ChannelRules::Buffers => self.note_in_buffer(now, seq),
        }
    }

    /// What is due by the clock.
    pub(super) fn run_bulk(&mut self, now: Instant) {
        if let Some((mark, due)) = self.bulk.mark
            && (due <= now || self.ack_seq() >= mark.end)
        {
            self.bulk.mark = None;
            (self.ack_wanted, self.next_ack) = (true, now);
            let from = self.ack_seq().0.min(mark.end.0);
            let listing = Listing { serial: mark.serial, from, below: mark.end.0, lists: u32::MAX };
            self.bulk.listing = Some(listing);
        }
        while let Some(&(due, buffer)) = self.bulk.queue.first() {
            if due > now {
                return;
            }
            self.answer_for(now, buffer);
        }
    }

    /// The next list to send.
    pub(super) fn next_list(&mut self) -> Option<Feedback> {
        if let Some(report) = self.bulk.ready.pop_front() {
            return Some(report);
        }
        let listing = self.bulk.listing.take()?;
        let missing = self.list(listing);
        if missing.below.0 < listing.below && listing.lists > 1 {
            let (from, lists) = (missing.below.0, listing.lists - 1);
            self.bulk.listing = Some(Listing { from, lists, ..listing });
        }
        if self.config.reports.channel == ChannelRules::Cyclic {
            self.bulk.list_from = missing.below.0;
        }
        Some(Feedback::Missing(missing))
    }

    /// Whether there is one.
    pub(super) fn has_list(&self) -> bool {
        !self.bulk.ready.is_empty() || self.bulk.listing.is_some()
    }

    pub(super) fn bulk_deadline(&self) -> Option<Instant> {
        let mark = self.bulk.mark.map(|(_, due)| due);
        Instant::earliest([mark, self.bulk.queue.first().map(|(due, _)| *due)])
    }

    /// As much of the stretch as one report takes. DEV-062: published are bitmaps.
    fn list(&mut self, listing: Listing) -> Missing {
        let Listing { serial, from, below, .. } = listing;
        let mut ranges = Vec::new();
        if from < below {
            let stretch = NumberRange { first: from, last: below - 1 };
            ranges.extend(self.missing_seqs.overlap(stretch).take(MAX_RANGES));
        }
        let end = match ranges.last() {
            Some(last) if ranges.len() == MAX_RANGES => last.last + 1,
            _ => below,
        };
        self.stats.reported += ranges.iter().map(|range| range.count()).sum::<u64>();
        Missing { serial, from: SeqNo(from), below: SeqNo(end), ranges }
    }

    /// Cyclic: a report begins where the last one ended, and goes round.
    fn list_cyclic(&mut self) {
        let (first, below) = (self.ack_seq().0, self.next_seq.0);
        let from =
            if self.bulk.list_from >= below { first } else { self.bulk.list_from.max(first) };
        self.bulk.listing = Some(Listing { serial: 0, from, below, lists: CYCLIC_LISTS });
    }

    /// Requests: asks for these numbers, at most one report's worth of ranges.
    fn ask(&mut self, ranges: Vec<NumberRange>) {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return;
        };
        let (from, below) = (SeqNo(first.first), SeqNo(last.last + 1));
        let count: u64 = ranges.iter().map(|range| range.count()).sum();
        self.bulk.asked = self.bulk.asked.saturating_add(count);
        self.stats.reported += count;
        self.bulk.ready.push_back(Feedback::Missing(Missing { serial: 0, from, below, ranges }));
    }

    /// Requests: asks for everything outstanding, as far as one batch goes.
    fn ask_again(&mut self) {
        let mut left = BATCH_NUMBERS;
        let mut all = Vec::new();
        for range in self.missing_seqs.iter() {
            if left == 0 {
                break;
            }
            let last = range.last.min(range.first + left - 1);
            left -= last - range.first + 1;
            all.push(NumberRange { last, ..range });
        }
        for ranges in all.chunks(MAX_RANGES) {
            self.ask(ranges.to_vec());
        }
    }

    /// Requests: a block has come; ends the period where it is time.
    #[expect(clippy::cast_precision_loss, reason = "counts of a third of a second")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100 000")]
    fn count_block(&mut self, now: Instant) {
        if self.stats.packets == 1 {
            self.bulk.period_start = now;
        }
        self.bulk.received += 1;
        if !self.stats.packets.is_multiple_of(UPDATE_BLOCKS)
            || now.since(self.bulk.period_start) <= UPDATE_INTERVAL
        {
            return;
        }
        self.ask_again();
        // DEV-063: the receive ring, whose fill counts in the original, never overflows here.
        let asked = self.bulk.asked as f64 / (1 + self.bulk.asked + self.bulk.received) as f64;
        self.bulk.error =
            ERROR_WEIGHT_OLD * self.bulk.error + (1.0 - ERROR_WEIGHT_OLD) * ERROR_SCALE * asked;
        let rate = (self.bulk.error as u32).min(ERROR_RATE_MAX);
        self.bulk.ready.push_back(Feedback::ErrorRate(rate));
        (self.bulk.asked, self.bulk.received) = (0, 0);
        self.bulk.period_start = now;
    }

    /// Buffers: sets the timer of a piece's buffer, or answers for it.
    fn note_in_buffer(&mut self, now: Instant, seq: SeqNo) {
        let buffer = seq.0 / BUFFER_PACKETS;
        let numbers = numbers_of(buffer);
        let is_seen = self.next_seq.0 > numbers.last;
        let is_complete = is_seen && self.missing_seqs.overlap(numbers).next().is_none();
        if is_complete || seq.0 == numbers.last {
            self.bulk.set_due(buffer, Some(now));
        } else {
            self.start_timer(now, buffer, numbers.last - seq.0);
        }
    }

    /// Buffers: the data timer, unless it runs; so many packets are still to come.
    fn start_timer(&mut self, now: Instant, buffer: u64, packets: u64) {
        if !self.bulk.due.contains_key(&buffer) {
            let due = now + self.time_for(packets) + self.rtt_slack();
            self.bulk.set_due(buffer, Some(due));
        }
    }

    /// Buffers: those that a mark says are sent are answered for, unless that is under way.
    fn look_at_buffers(&mut self, now: Instant) {
        // The one that the mark cuts short has a timer for packets that will not come.
        let last = self.next_seq.0.saturating_sub(1) / BUFFER_PACKETS;
        if self.bulk.due.contains_key(&last) {
            self.bulk.set_due(last, Some(now));
        }
        let first = self.ack_seq();
        if first < self.next_seq {
            let first = first.0 / BUFFER_PACKETS;
            if !self.bulk.due.contains_key(&first) {
                self.bulk.set_due(first, Some(now));
            }
        }
    }

    /// Buffers: all is here, or this is missing. [RFC998] OK and RESEND
    fn answer_for(&mut self, now: Instant, buffer: u64) {
        let numbers = numbers_of(buffer);
        let below = self.next_seq.0.min(numbers.last + 1);
        self.bulk.set_due(buffer, None);
        if below <= numbers.first {
            return;
        }
        let listing = Listing { serial: 0, from: numbers.first, below, lists: 1 };
        let missing = self.list(listing);
        let count: u64 = missing.ranges.iter().map(|range| range.count()).sum();
        if count > 0 {
            // What is sent again comes after a round trip, behind what is on its way.
            let rtt = self.rtt.map_or(RTT_UNKNOWN, |rtt| rtt.smoothed);
            let due = now + rtt + self.time_for(count) + self.rtt_slack();
            self.bulk.set_due(buffer, Some(due));
        } else if self.ack_seq() < self.next_seq {
            // Where a gap was longer than there are timers, this is the next to have one.
            self.start_timer(now, self.ack_seq().0 / BUFFER_PACKETS, 0);
        }
        if count > 0 || below > numbers.last {
            (self.ack_wanted, self.next_ack) = (true, now);
            self.bulk.ready.push_back(Feedback::Missing(missing));
        }
    }

    /// Half as long again as so many packets take on average. DEV-065: published is the sender's rate.
    fn time_for(&self, packets: u64) -> Span {
        (self.bulk.spacing * packets).mul_ratio(3, 2).min(TIMER_MAX)
    }

    fn rtt_slack(&self) -> Span {
        SYN_INTERVAL + self.rtt.map_or(Span::ZERO, |rtt| rtt.variance * 4)
    }

    /// What must hold between any two calls.
    pub(super) fn check_bulk(&self) {
        assert_eq!(self.bulk.due.len(), self.bulk.queue.len(), "each timer is in both orders");
        assert!(self.bulk.due.len() <= BUFFERS_MAX);
        assert!((0.0..=f64::from(ERROR_RATE_MAX)).contains(&self.bulk.error));
    }
}
