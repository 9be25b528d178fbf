//! Path of a relay: one link and its packets.

use std::net::SocketAddr;
use std::sync::Arc;

use sabul_net::{Damage, Link, LinkConfig, PacketMeta, RouteId, Topology, Transit, Verdict, Way};
use sabul_units::{Instant, SeededRandom, Span};

use super::store::Piece;

/// Settings of a relay.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Address for connectors; port 0 selects a port that is free for both UDP and TCP.
    pub listen: SocketAddr,
    /// The listener's address, for UDP and TCP.
    pub target: SocketAddr,
    /// The path from connector to listener. Its clock, which outages refer to, starts with the
    /// relay.
    pub forward: LinkConfig,
    /// The path from listener to connector, on the same clock.
    pub back: LinkConfig,
    /// Seed of loss, duplication, reordering and corruption.
    pub seed: u64,
    /// Drops all UDP, as a firewall that passes only TCP.
    pub udp_blocked: bool,
}

/// Flow of a packet; the serial number distinguishes clients that used the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowId {
    pub(super) slot: usize,
    pub(super) serial: u64,
}

/// A datagram on the links.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) flow: FlowId,
    pub(super) piece: Piece,
}

/// The path: one link with one route, forward from connector to listener.
#[derive(Debug)]
pub(super) struct RelayPath {
    pub(super) network: Topology<Packet>,
    route: RouteId,
}

impl RelayPath {
    pub(super) fn new(config: &RelayConfig) -> Self {
        let random = SeededRandom::new(config.seed);
        let random = [random.fork("relay/forward"), random.fork("relay/back")];
        let mut network = Topology::new(Damage::Arrives);
        let link = network.add_link(config.forward.clone(), config.back.clone(), &random);
        let route = network.add_route(Arc::from([link]), Span::ZERO);
        Self { network, route }
    }

    /// Puts a packet of `size` bytes onto the link.
    pub(super) fn push(&mut self, at: Instant, way: Way, size: u32, packet: Packet) -> Verdict {
        let meta = PacketMeta { size, ..PacketMeta::default() };
        self.network.push(at, self.route, way, meta, packet)
    }

    pub(super) fn link(&self, way: Way) -> &Link<Transit<Packet>> {
        self.network.link(0, way)
    }
}

/// Returns the size of the IP and UDP headers, in bytes.
pub(super) fn header_bytes(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 20 + 8,
        SocketAddr::V6(_) => 40 + 8,
    }
}
