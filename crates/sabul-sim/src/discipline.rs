//! Which packet leaves a queue next, and which is marked or dropped on the way.

use std::collections::BTreeMap;

use sabul_units::{Probability, Span};

/// The queue discipline of a link, with its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// First in, first out; what finds the queue full is dropped.
    #[default]
    DropTail,
    /// Random early detection.
    Red(Red),
    /// Controlled delay.
    Codel(Codel),
    /// Deficit round robin over hashed flows, each under CoDel.
    FqCodel(FqCodel),
    /// Deficit round robin over flows with weights.
    Drr(Drr),
    /// Drop-tail that marks ECN-capable packets while the queue is long.
    EcnThreshold(EcnThreshold),
}

/// Settings of random early detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Red {
    /// Averaged queue below which nothing happens, in packets.
    pub min_packets: u64,
    /// Averaged queue at which the probability is `max_probability`, in packets.
    pub max_packets: u64,
    /// Probability of a mark or drop at `max_packets`.
    pub max_probability: Probability,
    /// Weight of the newest sample in the averaged queue.
    pub weight: Probability,
    /// Whether the probability climbs to one over the next `max_packets` instead of at once.
    pub is_gentle: bool,
    /// Whether ECN-capable packets are marked instead of dropped.
    pub is_marking: bool,
}

/// Settings of controlled delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Standing delay that is accepted.
    pub target: Span,
    /// How long it may be exceeded; about the longest round trip.
    pub interval: Span,
    /// Whether ECN-capable packets are marked instead of dropped.
    pub is_marking: bool,
}

/// Settings of flow queueing with controlled delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodel {
    /// What each queue is under.
    pub codel: Codel,
    /// Bytes a flow may send in its turn.
    pub quantum_bytes: u32,
    /// Number of queues that flows are hashed to.
    pub queues: u32,
}

/// Settings of weighted deficit round robin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drr {
    /// Bytes that a flow of weight one may send in its turn.
    pub quantum_bytes: u32,
    /// Weight by flow number; a flow not named has weight one.
    pub weights: BTreeMap<u32, u32>,
    /// Whether the queue limit holds for each flow alone, as in the model of [OVV-T §III-A];
    /// otherwise it is shared, and the longest queue loses a packet.
    pub is_dedicated: bool,
}

/// Settings of marking at a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcnThreshold {
    /// Queue length, in packets, from which on arrivals are marked.
    pub mark_packets: u64,
}

/// A two-state model of losses that come in bursts. [Gilbert 1960, Elliott 1963]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLoss {
    /// Chance, at each packet, that a good spell turns bad.
    pub to_bad: Probability,
    /// Chance, at each packet, that a bad spell turns good.
    pub to_good: Probability,
    /// Loss while good.
    pub loss_good: Probability,
    /// Loss while bad.
    pub loss_bad: Probability,
}
