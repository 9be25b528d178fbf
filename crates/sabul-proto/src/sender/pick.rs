//! Which piece leaves next, and at what time: SABUL's rule and those of its relatives.
//!
//! Source: [SABUL §II-D] for losses first, then new data. [`ChannelRules`] names the others. They have
//! most in common: what is reported goes first (*requests*, *buffers*, *rounds*), and when nothing
//! may be sent any more, a mark tells the receiver so. *Rounds* then wait for its list. *Cyclic* keeps
//! a cursor instead of a loss list and begins again where the others would wait.
//! States:      sending → marked → (rounds: waiting →) sending

use sabul_cc::{BUFFER_PACKETS, BulkReport, ChannelRules};
use sabul_units::{Instant, Packets, SeqNo, Span};
use sabul_wire::{LossPolicy, Mark, Missing, NumberRange};

use super::pace::From;
use super::records::Place;
use super::{DataPacket, PeerError, Sender, Timer, Transmit, WaitReason};
use crate::interval_set::IntervalSet;

/// Ours: transmissions remembered under rules that do not wait for acknowledgements.
const NUMBERS_MAX: usize = 1 << 20;
/// [TSUNAMI] The terminating block is repeated after ten times the longest gap.
const MARK_INTERVAL_REQUESTS: Span = Span::from_millis(100);
/// Ours: a sender that runs into its window with each ACK does not mark each time.
const MARK_INTERVAL_BUFFERS: Span = Span::from_millis(10);

/// What the rules keep in mind; of no use under the standard ones.
#[derive(Debug)]
pub(super) struct Pick {
    pub(super) rules: ChannelRules,
    /// The newest mark.
    mark: Mark,
    mark_due: bool,
    /// No earlier than this.
    next_mark: Instant,
    /// Data has left since the newest mark.
    is_unmarked: bool,
    /// Rounds: nothing leaves before the mark is answered.
    is_waiting: bool,
    /// Rounds: the first packet of one sets the time for all.
    is_round_new: bool,
    round_sent: u64,
    round_missing: u64,
    /// Cyclic: what is not known to have arrived, and where the pass is.
    open: IntervalSet,
    cursor: u64,
    /// Cyclic: what the controller has been told of.
    told: (u64, u64),
    /// Buffers: all before this one have been judged.
    judged: u64,
}

impl Pick {
    pub(super) const fn new(rules: ChannelRules) -> Self {
        Self {
            rules,
            mark: Mark { serial: 0, end: SeqNo(0) },
            mark_due: false,
            next_mark: Instant::ZERO,
            is_unmarked: false,
            is_waiting: false,
            is_round_new: true,
            round_sent: 0,
            round_missing: 0,
            open: IntervalSet::new(),
            cursor: 0,
            told: (0, 0),
            judged: 0,
        }
    }

    /// Cyclic: what is not known to have arrived.
    pub(super) const fn open(&self) -> &IntervalSet {
        &self.open
    }
}

impl Sender {
    pub(super) fn next_data(&mut self, now: Instant) -> Result<DataPacket, (WaitReason, Instant)> {
        let idle_check = self.due(Timer::Ping).unwrap_or(Instant::MAX);
        if std::mem::take(&mut self.is_probe_due) {
            // One packet past every limit, so that the peer has something to answer.
            let first = self.ledger.pieces.first();
            let seq = self.ledger.next_lost().unwrap_or(first);
            if let Some(packet) = self.resend(now, seq) {
                return Ok(packet);
            }
        }
        let new = self.stream.next_block();
        if self.ledger.loss_list.is_empty()
            && !self.stream.has_rest()
            && new.is_none()
            && self.pick.open.is_empty()
        {
            return Err((WaitReason::Application, idle_check));
        }
        if self.pick.is_waiting
            || (self.pick.rules != ChannelRules::Standard
                && self.ledger.numbers.len() >= NUMBERS_MAX)
        {
            return Err((WaitReason::Window, idle_check));
        }
        if let Some(hold) = self.rate.limits().hold_until.filter(|hold| *hold > now) {
            return Err((WaitReason::Freeze, hold));
        }
        if self.pace.next() > now {
            return Err((WaitReason::Pacing, self.pace.next()));
        }
        // [SABUL §II-D] The loss list first; it is not subject to the flow window.
        while let Some(seq) = self.ledger.next_lost() {
            if let Some(packet) = self.resend(now, seq) {
                self.pace(now);
                return Ok(packet);
            }
        }
        if let Some(rest) = self.stream.pop_rest() {
            let packet = self.send_new(now, rest);
            self.pace(now);
            return Ok(packet);
        }
        if self.pick.rules == ChannelRules::Cyclic
            && let Some(packet) = self.next_of_pass(now)
        {
            return Ok(packet);
        }
        match self.cut(new) {
            Ok(piece) => {
                // Cyclic: a pass ends where new data begins; what was cut off on the way does not end it.
                self.pick.cursor = self.ledger.pieces.next().0 + 1;
                let packet = self.send_new(now, piece);
                self.pace(now);
                Ok(packet)
            }
            Err(why) => {
                self.pick.cursor = 0;
                self.next_of_pass(now).ok_or((why, idle_check))
            }
        }
    }

    /// Cuts the next new piece, if it may be sent.
    fn cut(&mut self, block: Option<u32>) -> Result<Place, WaitReason> {
        let Some(block) = block else {
            return Err(WaitReason::Application);
        };
        if !self.window.has_room_for(block) {
            return Err(WaitReason::Receiver);
        }
        let unacknowledged = self.ledger.pieces.len();
        let in_flight = self.ledger.numbers.in_flight();
        let controlled = match self.config.policy {
            // DEV-001: [SABUL §II-D] counts what is not acknowledged; a lost packet stalls that, so
            // the current policy counts what may still be on the path.
            LossPolicy::Historical => unacknowledged,
            LossPolicy::Current => in_flight,
        };
        if !self.window.allows(Packets(unacknowledged), Packets(in_flight))
            || self.rate.limits().window.is_some_and(|window| controlled >= window.0)
        {
            return Err(WaitReason::Window);
        }
        self.stream.cut().ok_or(WaitReason::Application)
    }

    /// Cyclic: the next piece that is not known to have arrived.
    fn next_of_pass(&mut self, now: Instant) -> Option<DataPacket> {
        let next = self.pick.open.iter_from(self.pick.cursor).next()?;
        let seq = next.first.max(self.pick.cursor);
        self.pick.cursor = seq + 1;
        let packet = self.resend(now, SeqNo(seq))?;
        self.pace(now);
        Some(packet)
    }

    fn pace(&mut self, now: Instant) {
        // [RBUDP] The times of a round count from its start.
        let from = match self.pick.rules {
            ChannelRules::Rounds => {
                From::Row { is_first: std::mem::take(&mut self.pick.is_round_new) }
            }
            _ => From::Due,
        };
        self.pace.note_sent(now, self.rate.limits().gap.0, self.rate.packet_bytes(), from);
    }

    /// Sends a piece that has had no sequence number so far.
    fn send_new(&mut self, now: Instant, place: Place) -> DataPacket {
        let (number, seq) = self.ledger.send(now, place);
        self.stream.note_number(place, seq);
        if self.pick.rules == ChannelRules::Cyclic {
            self.pick.open.insert(NumberRange { first: seq.0, last: seq.0 });
        }
        self.note_sent(now, place.length, false);
        DataPacket::new(number, seq, place)
    }

    /// Sends a piece again, unless it has been acknowledged meanwhile.
    fn resend(&mut self, now: Instant, seq: SeqNo) -> Option<DataPacket> {
        let (number, place) = self.ledger.send_again(now, seq, &mut self.stream)?;
        self.note_sent(now, place.length, true);
        Some(DataPacket::new(number, seq, place))
    }

    /// A mark, where the rules want one now; else when they may. DEV-061: in a datagram, repeated;
    /// published are a message over TCP, the last block again, or a flag.
    pub(super) fn next_mark(&mut self, now: Instant, why: WaitReason) -> Result<Transmit, Instant> {
        let pick = &mut self.pick;
        let interval = match pick.rules {
            ChannelRules::Standard | ChannelRules::Cyclic => return Err(Instant::MAX),
            ChannelRules::Rounds => Span::ZERO,
            ChannelRules::Requests => MARK_INTERVAL_REQUESTS,
            ChannelRules::Buffers => MARK_INTERVAL_BUFFERS,
        };
        let is_at_end =
            matches!(why, WaitReason::Application | WaitReason::Receiver | WaitReason::Window)
                && self.ledger.loss_list.is_empty()
                && !self.stream.has_rest()
                && !self.ledger.pieces.is_empty();
        if !is_at_end {
            return Err(Instant::MAX);
        }
        if !pick.mark_due && (pick.is_unmarked || pick.rules == ChannelRules::Requests) {
            if now < pick.next_mark {
                return Err(pick.next_mark);
            }
            pick.mark = Mark { serial: pick.mark.serial + 1, end: self.ledger.pieces.next() };
            pick.is_waiting = pick.rules == ChannelRules::Rounds;
            pick.is_unmarked = false;
            pick.mark_due = true;
        }
        if !std::mem::take(&mut pick.mark_due) {
            return Err(Instant::MAX);
        }
        pick.next_mark = now + interval;
        Ok(Transmit::Mark { mark: pick.mark, number: self.ledger.numbers.push_other() })
    }

    /// Nothing was heard: says the newest mark again, if nothing has left since.
    pub(super) const fn repeat_mark(&mut self) {
        self.pick.mark_due |= self.pick.mark.serial > 0 && !self.pick.is_unmarked;
    }

    /// A DATA packet has left.
    pub(super) const fn note_picked(&mut self) {
        self.pick.is_unmarked = true;
        self.pick.mark_due = false;
        self.pick.round_sent += 1;
    }

    /// Everything before `seq` has arrived.
    pub(super) fn note_acknowledged(&mut self, now: Instant, seq: SeqNo) {
        match self.pick.rules {
            ChannelRules::Cyclic => self.pick.open.remove_below(seq.0),
            ChannelRules::Rounds if self.pick.is_waiting && seq >= self.pick.mark.end => {
                self.end_round(now);
            }
            _ => {}
        }
    }

    fn end_round(&mut self, now: Instant) {
        self.pick.is_waiting = false;
        self.pick.is_round_new = true;
        let sent = std::mem::take(&mut self.pick.round_sent);
        let missing = std::mem::take(&mut self.pick.round_missing);
        self.tell_account(now, sent, sent.saturating_sub(missing));
    }

    fn tell_account(&mut self, now: Instant, sent: u64, arrived: u64) {
        let report = BulkReport::Account { sent: Packets(sent), arrived: Packets(arrived) };
        self.rate.on_report(now, &report);
    }

    /// What is missing of a stretch; everything else in it has arrived.
    pub(super) fn handle_missing(
        &mut self,
        now: Instant,
        missing: &Missing,
    ) -> Result<(), PeerError> {
        if self.pick.rules == ChannelRules::Standard {
            return Err(PeerError("it lists what is missing, which nobody asked for"));
        }
        let is_inside = missing.ranges.last().is_none_or(|range| range.last < missing.below.0);
        if missing.below > self.ledger.pieces.next()
            || missing.serial > self.pick.mark.serial
            || !is_inside
        {
            return Err(PeerError("it misses what was never sent"));
        }
        let count: u64 = missing.ranges.iter().map(|range| range.count()).sum();
        match self.pick.rules {
            ChannelRules::Standard => {}
            ChannelRules::Requests => self.lose_seqs(now, &missing.ranges),
            ChannelRules::Rounds => {
                if !self.pick.is_waiting || missing.serial != self.pick.mark.serial {
                    // The answer to a mark that was said twice.
                    return Ok(());
                }
                self.lose_seqs(now, &missing.ranges);
                self.pick.round_missing += count;
                if missing.below >= self.pick.mark.end {
                    self.end_round(now);
                }
            }
            ChannelRules::Cyclic => {
                let mut from = missing.from.0;
                for range in &missing.ranges {
                    if range.first > from {
                        self.pick
                            .open
                            .remove_range(NumberRange { first: from, last: range.first - 1 });
                    }
                    from = range.last + 1;
                }
                if missing.below.0 > from {
                    self.pick
                        .open
                        .remove_range(NumberRange { first: from, last: missing.below.0 - 1 });
                }
                self.lose_seqs(now, &missing.ranges);
                let told = (self.stats.sent - self.ledger.numbers.in_flight(), self.stats.arrived);
                let sent = told.0.saturating_sub(self.pick.told.0);
                let arrived = told.1.saturating_sub(self.pick.told.1).min(sent);
                self.pick.told = told;
                self.tell_account(now, sent, arrived);
            }
            ChannelRules::Buffers => {
                self.lose_seqs(now, &missing.ranges);
                let buffer = missing.from.0 / BUFFER_PACKETS;
                if buffer >= self.pick.judged {
                    self.pick.judged = buffer + 1;
                    let sent = missing.below.0.saturating_sub(missing.from.0);
                    self.tell_account(now, sent, sent.saturating_sub(count));
                }
            }
        }
        Ok(())
    }

    /// The receiver's error rate.
    pub(super) fn handle_error_rate(&mut self, now: Instant, rate: u32) -> Result<(), PeerError> {
        if self.pick.rules != ChannelRules::Requests {
            return Err(PeerError("it tells an error rate, which nobody asked for"));
        }
        self.rate.on_report(now, &BulkReport::ErrorRate(rate));
        Ok(())
    }
}
