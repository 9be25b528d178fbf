//! What the sender makes of an ACK, a NAK and a SYN report.

use sabul_cc::{Acked, ChannelRules};
use sabul_units::{Bytes, Instant, Packets, SeqNo, Span};
use sabul_wire::{Ack, DATA_OVERHEAD, Feedback, LossPolicy, Nak, NumberRange};

use super::{ACK2_INTERVAL, Expiry, IP_UDP_BYTES, PeerError, RTT_UNKNOWN, Sender};
use crate::rtt;

/// Ours: a receive buffer joins up to this many datagrams into one, and counts their drop as one.
const OVERFLOW_JOINED: u64 = 64;

/// Ours: transmissions remembered for a peer that never acknowledges the oldest. Also what an opener
/// two key epochs behind could still follow.
const NUMBERS_MAX: usize = 1 << 21;

impl Sender {
    /// Takes a report of the receiver, whichever carrier brought it.
    ///
    /// # Errors
    /// If it acknowledges or misses what was never sent; nothing of it is taken over then.
    pub fn handle_feedback(&mut self, now: Instant, feedback: &Feedback) -> Result<(), PeerError> {
        if self.ledger.numbers.len() > NUMBERS_MAX {
            return Err(PeerError("it reports losses without end and acknowledges nothing"));
        }
        match feedback {
            Feedback::Ack(ack) => self.handle_ack(now, ack)?,
            Feedback::Nak(nak) => self.handle_nak(now, nak)?,
            // It says nothing about the data: what waits for an answer waits on.
            Feedback::Syn { received } => return self.handle_syn(now, *received),
            Feedback::Missing(missing) => self.handle_missing(now, missing)?,
            Feedback::ErrorRate(rate) => self.handle_error_rate(now, *rate)?,
        }
        self.last_heard = now;
        Ok(())
    }

    fn handle_ack(&mut self, now: Instant, ack: &Ack) -> Result<(), PeerError> {
        let nothing_arrived = ack.packets == 0;
        if ack.seq > self.ledger.pieces.next()
            || (!nothing_arrived && ack.largest >= self.ledger.numbers.next())
        {
            return Err(PeerError("it acknowledged what was never sent"));
        }
        if ack.missing.last().is_some_and(|range| range.last >= self.ledger.numbers.next().0) {
            return Err(PeerError("it misses what was never sent"));
        }
        if ack.packets > self.stats.sent
            || ack.bytes > self.stats.sent_bytes
            || ack.marked > ack.packets
        {
            return Err(PeerError("it received more than was sent"));
        }
        if ack.serial <= self.ack_serial {
            // Overtaken by a newer one, which said more.
            return Ok(());
        }
        self.skips.check(ack)?;
        self.ack_serial = ack.serial;
        if ack.packets > 0 {
            self.skips.note(now, &ack.missing, Some(ack.largest), self.ledger.numbers.next());
        }
        if now >= self.next_ack2 || !ack.missing.is_empty() {
            self.ack2_due = Some(ack.serial);
            self.next_ack2 = now + ACK2_INTERVAL;
        }
        self.window.open_to(ack.block_limit);
        if self.largest_arrived.is_none_or(|largest| ack.largest > largest) && !nothing_arrived {
            self.largest_arrived = Some(ack.largest);
            self.ledger.numbers.arrived(ack.largest);
            let seq = self.ledger.numbers.get(ack.largest).and_then(|sent| sent.seq);
            let newest = seq.and_then(|seq| self.ledger.pieces.get_mut(seq));
            let is_full =
                newest.is_some_and(|piece| piece.place.length >= self.stream.payload_bytes());
            self.stats.full_arrived += u64::from(is_full);
            if let Some(sent_at) =
                self.ledger.numbers.get(ack.largest).and_then(|sent| sent.sent_at)
            {
                let sample = now.since(sent_at).saturating_sub(ack.delay);
                self.rtt = Some(rtt::update(self.rtt, sample.max(Span::from_micros(1))));
            }
        }
        self.note_overflow(now, ack);
        let is_news = ack.seq > self.ledger.pieces.first() || ack.packets > self.stats.arrived;
        if ack.seq > self.ledger.pieces.first() {
            self.ledger.acknowledge(ack.seq);
            self.stream.release(ack.seq);
            self.note_acknowledged(now, ack.seq);
        }
        self.expiry_count = 0;
        // The answer to a ping says that the path lives, not that the tail has arrived: it may bring
        // expiry forward but never puts it off.
        let latest = if is_news { None } else { self.expiry_at };
        self.expiry_at = (!self.ledger.pieces.is_empty())
            .then(|| (now + self.expiry_period()).min(latest.unwrap_or(Instant::MAX)));

        // Losses first: the rate must not rise on an ACK that lists them.
        self.lose_numbers(now, &ack.missing);
        if let Some(largest) = self.largest_arrived {
            // Only the standard rules ask what a lost transmission carried.
            let is_standard = self.pick.rules == ChannelRules::Standard;
            let keep = if is_standard { self.ledger.pieces.first() } else { SeqNo(u64::MAX) };
            self.ledger.numbers.trim(largest, keep);
        }
        let newly = ack.packets.saturating_sub(self.stats.arrived);
        let marked = ack.marked.saturating_sub(self.marked);
        self.stats.arrived = self.stats.arrived.max(ack.packets);
        self.marked = self.marked.max(ack.marked);
        self.stats.delivered = self.stats.delivered.max(ack.bytes);
        self.delivered_wire = self
            .stats
            .delivered
            .saturating_add(self.stats.arrived.saturating_mul(DATA_OVERHEAD as u64 + IP_UDP_BYTES));
        if newly > 0 {
            let mut acked = Acked::default();
            acked.newly = Packets(newly);
            acked.total = Packets(self.stats.arrived);
            acked.in_flight = Packets(self.ledger.numbers.in_flight());
            acked.marked = Packets(marked);
            acked.largest = ack.largest.0;
            acked.lost = Packets(self.stats.lost);
            acked.is_app_limited = ack.largest < self.app_limited_until;
            acked.next = self.ledger.numbers.next().0;
            acked.delivered = Bytes(self.delivered_wire);
            acked.arrived_at = ack.arrived_at;
            self.controller.on_ack(&acked, &self.context(now));
            self.refresh_limits();
        }
        Ok(())
    }

    fn handle_nak(&mut self, now: Instant, nak: &Nak) -> Result<(), PeerError> {
        if self.pick.rules != ChannelRules::Standard {
            return Err(PeerError("it sends loss reports, which nobody asked for"));
        }
        if nak.policy != self.config.policy {
            return Err(PeerError("it reports losses by the other kind of number"));
        }
        let next = match nak.policy {
            LossPolicy::Historical => self.ledger.pieces.next().0,
            LossPolicy::Current => self.ledger.numbers.next().0,
        };
        if nak.ranges.last().is_some_and(|range| range.last >= next) {
            return Err(PeerError("it misses what was never sent"));
        }
        match nak.policy {
            LossPolicy::Historical => self.lose_seqs(now, &nak.ranges),
            LossPolicy::Current => {
                self.skips.note(now, &nak.ranges, None, self.ledger.numbers.next());
                self.lose_numbers(now, &nak.ranges);
            }
        }
        if self.config.expiry == Expiry::Everything {
            // [SABUL2] An ERR is an answer, too.
            self.expiry_count = 0;
            self.expiry_at = (!self.ledger.pieces.is_empty()).then(|| now + self.expiry_period());
        }
        Ok(())
    }

    /// [OVV04 §2] Rate control runs when a SYN report arrives, not when the receiver sent it; its
    /// count is not used for anything. [SABUL2]
    fn handle_syn(&mut self, now: Instant, received: u64) -> Result<(), PeerError> {
        if self.config.reports.syn_interval.is_none() {
            return Err(PeerError("it sends SYN reports, which nobody asked for"));
        }
        let total = self.syn_received.checked_add(received);
        let Some(total) = total.filter(|total| *total <= self.stats.sent) else {
            return Err(PeerError("it received more than was sent"));
        };
        self.syn_received = total;
        self.tick(now);
        Ok(())
    }

    /// Current policy: transmissions are lost.
    fn lose_numbers(&mut self, now: Instant, ranges: &[NumberRange]) {
        if let Some(report) = self.ledger.lose_numbers(ranges) {
            self.report_loss(now, report);
        }
    }

    /// Historical policy: pieces are missing.
    pub(super) fn lose_seqs(&mut self, now: Instant, ranges: &[NumberRange]) {
        let has_loss_list = self.pick.rules != ChannelRules::Cyclic;
        if let Some(report) = self.ledger.lose_seqs(ranges, has_loss_list) {
            self.report_loss(now, report);
        }
    }

    fn note_overflow(&mut self, now: Instant, ack: &Ack) {
        let rtt = self.rtt.map_or(RTT_UNKNOWN, |rtt| rtt.smoothed);
        if ack.overflowed > self.stats.overflowed {
            let newly = ack.overflowed - self.stats.overflowed;
            self.stats.overflowed = ack.overflowed;
            // No more than may be lost: what has left, has not come and is not known to be lost.
            let stats = &self.stats;
            let settled = stats.arrived.max(ack.packets) + stats.lost + stats.lost_at_receiver;
            self.overflow_credit = self
                .overflow_credit
                .saturating_add(newly.saturating_mul(OVERFLOW_JOINED))
                .min(stats.sent.saturating_sub(settled));
            // The loss report may come a reordering window later.
            self.overflow_credit_until = now + rtt * 2 + ACK2_INTERVAL;
            self.window.shrink(Packets(self.ledger.numbers.in_flight()));
            self.next_window_growth = now + rtt;
        } else if now >= self.next_window_growth {
            self.window.grow();
            self.next_window_growth = now + rtt;
        }
    }
}
