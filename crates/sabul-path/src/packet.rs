//! A packet, as far as links look at it.

/// What a link needs to know of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketMeta {
    /// Bytes, headers included.
    pub size: u32,
    /// The number of its flow, for disciplines that tell flows apart.
    pub flow: u32,
    /// Whether it may be given the ECN mark instead of being dropped.
    pub is_ecn_capable: bool,
}
