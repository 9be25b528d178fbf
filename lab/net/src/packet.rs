//! Packet properties that links use.

/// Properties of a packet that links use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketMeta {
    /// Size in bytes, headers included.
    pub size: u32,
    /// Flow number, for disciplines that distinguish flows.
    pub flow: u32,
    /// Whether the packet may be marked with ECN instead of being dropped.
    pub is_ecn_capable: bool,
}
