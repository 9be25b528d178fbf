//! Flow window of the sender. [SABUL §II-D]
//!
//! The tightest of three bounds applies: the configured number of packets, the blocks for which the receiver has
//! room, and a bound on packets in flight. The last bound shrinks when the receiver's own socket overflows. Through
//! the last bound a slow receiver slows the sender by flow control, never by
//! congestion control. The published growth from one packet is the slow start of `sabul2003`.

use sabul_units::{Instant, Packets, Span};

/// Ours: with fewer packets in flight, the window itself would slow the receiver further.
const IN_FLIGHT_MIN: u64 = 16;

/// The flow window of one sender.
#[derive(Clone, Copy, Debug)]
pub struct FlowWindow {
    unacknowledged_max: u64,
    block_limit: u32,
    in_flight_max: u64,
    /// When `in_flight_max` may grow next.
    next_growth: Instant,
}

impl FlowWindow {
    /// Creates a window of at most `unacknowledged_max` packets and initially `block_limit` blocks.
    pub const fn new(now: Instant, unacknowledged_max: Packets, block_limit: u32) -> Self {
        let (unacknowledged_max, in_flight_max) = (unacknowledged_max.0, u64::MAX);
        Self { unacknowledged_max, block_limit, in_flight_max, next_growth: now }
    }

    /// Sets the limit in packets after a change of the packet size.
    pub const fn set_unacknowledged_max(&mut self, packets: Packets) {
        self.unacknowledged_max = packets.0;
    }

    /// Whether one more packet of new data may be sent.
    pub const fn allows(&self, unacknowledged: Packets, in_flight: Packets) -> bool {
        unacknowledged.0 < self.unacknowledged_max && in_flight.0 < self.in_flight_max
    }

    /// Whether the bound set by drops at the receiver's socket forbids one more packet.
    pub const fn is_shrunk_below(&self, in_flight: Packets) -> bool {
        in_flight.0 >= self.in_flight_max
    }

    /// Whether the receiver has room for this block.
    pub const fn has_room_for(&self, block: u32) -> bool {
        block < self.block_limit
    }

    /// Raises the block limit; the limit never falls.
    pub fn open_to(&mut self, limit: u32) {
        self.block_limit = self.block_limit.max(limit);
    }

    /// Reduces the bound on packets in flight after drops at the receiver's socket. `in_flight` is
    /// the number at that time; the bound does not grow before `until`.
    pub fn shrink(&mut self, until: Instant, in_flight: Packets) {
        let reference = in_flight.0.min(self.in_flight_max);
        self.in_flight_max = (reference / 4 * 3).max(IN_FLIGHT_MIN);
        self.next_growth = until;
    }

    /// Grows the bound on packets in flight, at most once a round trip.
    pub fn grow(&mut self, now: Instant, rtt: Span) {
        if now >= self.next_growth {
            // One eighth each round trip: double after about six.
            self.in_flight_max = self.in_flight_max.saturating_add(self.in_flight_max / 8 + 1);
            self.next_growth = now + rtt;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn each_of_the_three_window_bounds_takes_effect() {
        let mut window = FlowWindow::new(at(0), Packets(100), 2);
        assert!(window.allows(Packets(99), Packets(99)));
        assert!(!window.allows(Packets(100), Packets(0)));
        assert!(window.has_room_for(1) && !window.has_room_for(2));
        window.open_to(5);
        window.open_to(3);
        assert!(window.has_room_for(4), "room is never taken back");
        window.shrink(at(10), Packets(80));
        assert!(
            window.allows(Packets(80), Packets(59)) && !window.allows(Packets(80), Packets(60))
        );
        assert!(!window.is_shrunk_below(Packets(59)) && window.is_shrunk_below(Packets(60)));
        window.grow(at(9), Span::from_millis(10));
        assert!(!window.allows(Packets(80), Packets(60)), "not before a round trip");
        window.grow(at(10), Span::from_millis(10));
        window.grow(at(11), Span::from_millis(10));
        assert!(
            window.allows(Packets(80), Packets(67)) && !window.allows(Packets(80), Packets(68))
        );
        for _ in 0..100 {
            window.shrink(at(10), Packets(1));
        }
        assert!(window.allows(Packets(0), Packets(IN_FLIGHT_MIN - 1)), "never shut");
    }
}
