//! How much may be unacknowledged. [SABUL §II-D]
//!
//! Three bounds, the tightest binds: the configured number of packets, the blocks for which the
//! receiver has room, and a bound on packets in flight that shrinks when the receiver's own socket
//! overflows. The last is how a slow receiver slows the sender: through flow control, never
//! through congestion control. The published growth from one packet is `sabul2003`'s slow start.

use sabul_units::Packets;

/// Ours: fewer packets in flight than this would make a slow receiver slower.
const IN_FLIGHT_MIN: u64 = 16;

/// The flow window of one sender.
#[derive(Clone, Copy, Debug)]
pub struct FlowWindow {
    unacknowledged_max: u64,
    block_limit: u32,
    in_flight_max: u64,
}

impl FlowWindow {
    /// At most `unacknowledged_max` packets, and `block_limit` blocks to begin with.
    pub const fn new(unacknowledged_max: Packets, block_limit: u32) -> Self {
        Self { unacknowledged_max: unacknowledged_max.0, block_limit, in_flight_max: u64::MAX }
    }

    /// Packets changed their size, so another number of them holds as many bytes.
    pub const fn set_unacknowledged_max(&mut self, packets: Packets) {
        self.unacknowledged_max = packets.0;
    }

    /// Whether one more packet of new data fits.
    pub const fn allows(&self, unacknowledged: Packets, in_flight: Packets) -> bool {
        unacknowledged.0 < self.unacknowledged_max && in_flight.0 < self.in_flight_max
    }

    /// Whether the receiver has room for this block.
    pub const fn has_room_for(&self, block: u32) -> bool {
        block < self.block_limit
    }

    /// The receiver has room for all blocks below `limit`; it never takes room back.
    pub fn open_to(&mut self, limit: u32) {
        self.block_limit = self.block_limit.max(limit);
    }

    /// The receiver's socket dropped packets while this many were in flight.
    pub fn shrink(&mut self, in_flight: Packets) {
        let reference = in_flight.0.min(self.in_flight_max);
        self.in_flight_max = (reference / 4 * 3).max(IN_FLIGHT_MIN);
    }

    /// A round trip passed without such drops.
    pub const fn grow(&mut self) {
        // An eighth each round trip: back to double within six.
        self.in_flight_max = self.in_flight_max.saturating_add(self.in_flight_max / 8 + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_three_bounds_binds() {
        let mut window = FlowWindow::new(Packets(100), 2);
        assert!(window.allows(Packets(99), Packets(99)));
        assert!(!window.allows(Packets(100), Packets(0)));
        assert!(window.has_room_for(1) && !window.has_room_for(2));
        window.open_to(5);
        window.open_to(3);
        assert!(window.has_room_for(4), "room is never taken back");
        window.shrink(Packets(80));
        assert!(
            window.allows(Packets(80), Packets(59)) && !window.allows(Packets(80), Packets(60))
        );
        window.grow();
        assert!(
            window.allows(Packets(80), Packets(67)) && !window.allows(Packets(80), Packets(68))
        );
        for _ in 0..100 {
            window.shrink(Packets(1));
        }
        assert!(window.allows(Packets(0), Packets(IN_FLIGHT_MIN - 1)), "never shut");
    }
}
