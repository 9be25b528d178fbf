//! When an ACK leaves, and which ones the sender has seen.
//!
//! Source: [SABUL §II-C]: an ACK each SYN interval when something new has arrived.
//! States:      nothing new ⇄ wanted, until the next may leave

use std::collections::VecDeque;

use sabul_units::{Instant, Span};
use sabul_wire::NumberRange;

/// Ours: ACKs whose confirmation is still awaited; older ones are given up and reported anew.
const LOG_MAX: usize = 256;

/// An ACK that has left.
#[derive(Debug)]
struct Logged {
    serial: u64,
    sent_at: Instant,
    listed: Vec<NumberRange>,
}

/// The ACKs of one receiver.
#[derive(Debug)]
pub(super) struct Acks {
    is_wanted: bool,
    next: Instant,
    serial: u64,
    log: VecDeque<Logged>,
    /// Packets that the socket has dropped, and how many of them have been told.
    overflowed: u64,
    overflow_told: u64,
}

impl Acks {
    pub(super) const fn new() -> Self {
        Self {
            is_wanted: false,
            next: Instant::ZERO,
            serial: 0,
            log: VecDeque::new(),
            overflowed: 0,
            overflow_told: 0,
        }
    }

    /// There is something new to tell.
    pub(super) const fn want(&mut self) {
        self.is_wanted = true;
    }

    /// There is something that cannot wait.
    pub(super) const fn want_now(&mut self, now: Instant) {
        self.is_wanted = true;
        self.next = now;
    }

    pub(super) fn note_overflow(&mut self, total: u64) {
        self.overflowed = self.overflowed.max(total);
    }

    pub(super) const fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// The socket has dropped packets that no ACK has told of.
    pub(super) const fn has_untold_overflow(&self) -> bool {
        self.overflowed > self.overflow_told
    }

    /// When the next may leave, if one is wanted.
    pub(super) fn due(&self) -> Option<Instant> {
        self.is_wanted.then_some(self.next)
    }

    /// One leaves now and lists these; gives its serial number.
    pub(super) fn send(&mut self, now: Instant, interval: Span, listed: Vec<NumberRange>) -> u64 {
        self.is_wanted = false;
        self.overflow_told = self.overflowed;
        self.next = now + interval;
        self.serial += 1;
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(Logged { serial: self.serial, sent_at: now, listed });
        self.serial
    }

    /// The sender has seen this one; older ones are forgotten. Gives when it left and what it listed.
    pub(super) fn confirm(&mut self, serial: u64) -> Option<(Instant, Vec<NumberRange>)> {
        while self.log.front().is_some_and(|logged| logged.serial <= serial) {
            let logged = self.log.pop_front()?;
            // Only the very ACK that was answered is known to have arrived.
            if logged.serial == serial {
                return Some((logged.sent_at, logged.listed));
            }
        }
        None
    }
}
