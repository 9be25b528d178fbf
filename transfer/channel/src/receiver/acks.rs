//! ACK timer, and a log of ACKs until the sender confirms them.
//!
//! Source: [SABUL §II-C]: an ACK each SYN interval when something new has arrived.
//! States:      nothing new ⇄ needed, until the next may leave

use std::collections::VecDeque;

use sabul_units::{Instant, Span};
use sabul_wire::NumberRange;

/// Ours: most ACKs awaiting confirmation; older ACKs are dropped, so their losses are listed again.
const LOG_MAX: usize = 256;

/// An ACK that has been sent.
#[derive(Debug)]
struct Logged {
    serial: u64,
    sent_at: Instant,
    listed: Vec<NumberRange>,
}

#[derive(Debug)]
pub(super) struct Acks {
    is_wanted: bool,
    next: Instant,
    serial: u64,
    log: VecDeque<Logged>,
    /// Packets dropped by the socket, and how many of these have been reported.
    overflowed: u64,
    overflow_reported: u64,
}

impl Acks {
    pub(super) const fn new() -> Self {
        Self {
            is_wanted: false,
            next: Instant::ZERO,
            serial: 0,
            log: VecDeque::new(),
            overflowed: 0,
            overflow_reported: 0,
        }
    }

    /// Requests an ACK at the next regular time.
    pub(super) const fn need(&mut self) {
        self.is_wanted = true;
    }

    /// Requests an ACK at once.
    pub(super) const fn need_now(&mut self, now: Instant) {
        self.is_wanted = true;
        self.next = now;
    }

    pub(super) fn note_overflow(&mut self, total: u64) {
        self.overflowed = self.overflowed.max(total);
    }

    pub(super) const fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Whether the socket has dropped packets that no ACK has reported.
    pub(super) const fn has_unreported_overflow(&self) -> bool {
        self.overflowed > self.overflow_reported
    }

    /// When the next ACK leaves, if an ACK is needed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.is_wanted.then_some(self.next)
    }

    /// Records an ACK that lists `listed`; returns its serial number.
    pub(super) fn send(&mut self, now: Instant, interval: Span, listed: Vec<NumberRange>) -> u64 {
        self.is_wanted = false;
        self.overflow_reported = self.overflowed;
        self.next = now + interval;
        self.serial += 1;
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(Logged { serial: self.serial, sent_at: now, listed });
        self.serial
    }

    /// Processes a confirmation: removes older ACKs and returns when this ACK left and its list.
    pub(super) fn confirm(&mut self, serial: u64) -> Option<(Instant, Vec<NumberRange>)> {
        while self.log.front().is_some_and(|logged| logged.serial <= serial) {
            let logged = self.log.pop_front()?;
            // Only the confirmed ACK itself is known to have arrived.
            if logged.serial == serial {
                return Some((logged.sent_at, logged.listed));
            }
        }
        None
    }
}
