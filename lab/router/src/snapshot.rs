//! Snapshot and counters of a router.

use sabul_units::{Bytes, Instant, Rate, Span};
use schemars::JsonSchema;
use serde::Serialize;

/// Counters of one class of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClassCounts {
    /// Packets that arrived.
    pub arrived_packets: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent, IP headers included.
    pub sent_bytes: u64,
    /// Packets dropped by a full queue.
    pub dropped_packets: u64,
    /// Packets in the queue now.
    pub queue_packets: u64,
    /// Bytes in the queue now.
    pub queue_bytes: u64,
    /// Largest number of bytes in the queue.
    pub queue_max_bytes: u64,
}

/// Snapshot of a router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RouterSnapshot {
    /// Seconds since the start.
    pub at_s: f64,
    /// Configured rate of the link, in bit/s.
    pub rate_bps: u64,
    /// Current capacity of the explicit class, in bit/s.
    pub explicit_capacity_bps: u64,
    /// Current demand of the plain class, in bit/s.
    pub plain_demand_bps: u64,
    /// Rate that the algorithm currently reports to flows, in bit/s; absent for algorithms without
    /// such a rate.
    #[serde(rename = "told_bps")]
    pub signalled_bps: Option<u64>,
    /// Packets with a header of the router's algorithm.
    pub explicit: ClassCounts,
    /// All other packets.
    pub plain: ClassCounts,
    /// Headers rewritten by the router.
    pub headers_written: u64,
    /// Packets with a header of a later version or form, forwarded unchanged.
    pub headers_later: u64,
    /// Packets with a header of another algorithm.
    pub headers_foreign: u64,
    /// Frames that were not IP packets.
    pub malformed_frames: u64,
    /// Frames that the device behind the bottleneck refused.
    pub refused_frames: u64,
    /// Frames in the back direction, which has no bottleneck here.
    pub back_frames: u64,
    /// Bytes in the back direction.
    pub back_bytes: u64,
    /// Frames in the back direction that the device refused.
    pub back_refused_frames: u64,
    /// Processor time of the forwarding thread, in seconds.
    pub cpu_seconds: f64,
    /// Largest lateness of a departure, in milliseconds.
    pub late_max_ms: f64,
    /// Version and form of the first header of a later version.
    #[serde(skip)]
    pub first_later: Option<(u8, u8)>,
    /// Algorithm of the first header of another algorithm.
    #[serde(skip)]
    pub first_foreign: Option<&'static str>,
}

impl RouterSnapshot {
    /// Returns the packets sent by both classes.
    pub const fn sent_packets(&self) -> u64 {
        self.explicit.sent_packets + self.plain.sent_packets
    }

    /// Returns the bytes sent by both classes.
    pub const fn sent_bytes(&self) -> u64 {
        self.explicit.sent_bytes + self.plain.sent_bytes
    }

    /// Returns the rate sent since an earlier snapshot; zero between snapshots of the same time.
    pub fn sent_since(&self, earlier: &Self) -> Rate {
        let bytes = self.sent_bytes().saturating_sub(earlier.sent_bytes());
        let span = Span::from_secs_f64((self.at_s - earlier.at_s).max(0.0));
        if span == Span::ZERO { Rate(0) } else { Rate::from_size_over(Bytes(bytes), span) }
    }

    pub(crate) fn at(now: Instant) -> f64 {
        now.elapsed().as_secs_f64()
    }
}
