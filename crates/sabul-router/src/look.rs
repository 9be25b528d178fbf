//! What a router has done, and how it stands.

use sabul_units::{Bytes, Instant, Rate, Span};
use schemars::JsonSchema;
use serde::Serialize;

/// What one class of packets has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClassCounts {
    /// Packets that came.
    pub arrived_packets: u64,
    /// Packets that left.
    pub sent_packets: u64,
    /// Their bytes, IP headers included.
    pub sent_bytes: u64,
    /// Packets that found their queue full.
    pub dropped_packets: u64,
    /// Packets that wait now.
    pub queue_packets: u64,
    /// Bytes that wait now.
    pub queue_bytes: u64,
    /// The most bytes that waited at once.
    pub queue_max_bytes: u64,
}

/// How a router stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Look {
    /// Seconds since it started.
    pub at_s: f64,
    /// The rate of the link that it was given, in bits a second.
    pub rate_bps: u64,
    /// What the explicit class shares out now, in bits a second.
    pub explicit_capacity_bps: u64,
    /// What the plain class asks for now, in bits a second.
    pub plain_demand_bps: u64,
    /// The rate that the algorithm tells flows now, in bits a second; none where it has no such thing.
    pub told_bps: Option<u64>,
    /// Packets with a header of the router's algorithm.
    pub explicit: ClassCounts,
    /// All others.
    pub plain: ClassCounts,
    /// Headers that the router has written.
    pub headers_written: u64,
    /// Packets with a header of a later version or form, which go on as they came.
    pub headers_later: u64,
    /// Packets with a header of another algorithm.
    pub headers_foreign: u64,
    /// Frames that were no IP packets.
    pub malformed_frames: u64,
    /// Frames that the device behind the bottleneck did not take.
    pub refused_frames: u64,
    /// Frames that went the other way, which has no bottleneck here.
    pub back_frames: u64,
    /// Their bytes.
    pub back_bytes: u64,
    /// Frames the other way that the device did not take.
    pub back_refused_frames: u64,
    /// Processor time of the forwarding thread, in seconds.
    pub cpu_seconds: f64,
    /// The longest by which a packet left late, in milliseconds.
    pub late_max_ms: f64,
    /// What the first header of a later version said: its version and form.
    #[serde(skip)]
    pub first_later: Option<(u8, u8)>,
    /// The algorithm of the first header of another one.
    #[serde(skip)]
    pub first_foreign: Option<&'static str>,
}

impl Look {
    /// What both classes have sent.
    pub const fn sent_packets(&self) -> u64 {
        self.explicit.sent_packets + self.plain.sent_packets
    }

    /// The bytes that both classes have sent.
    pub const fn sent_bytes(&self) -> u64 {
        self.explicit.sent_bytes + self.plain.sent_bytes
    }

    /// What was sent since an earlier look, in bits a second; nothing between looks at the same time.
    pub fn sent_since(&self, earlier: &Self) -> Rate {
        let bytes = self.sent_bytes().saturating_sub(earlier.sent_bytes());
        let span = Span::from_secs_f64((self.at_s - earlier.at_s).max(0.0));
        if span == Span::ZERO { Rate(0) } else { Rate::from_size_over(Bytes(bytes), span) }
    }

    pub(crate) fn at(now: Instant) -> f64 {
        now.elapsed().as_secs_f64()
    }
}
