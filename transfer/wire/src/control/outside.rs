//! Addresses of an end behind a NAT.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Most addresses of an end. Ours: one of each family outside, and those of its own interfaces.
pub const MAX_OUTSIDE: usize = 8;

/// Address for UDP; IPv4 addresses are mapped to IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpAddress {
    /// IP address.
    pub ip: [u8; 16],
    /// Port.
    pub port: u16,
}

impl From<SocketAddr> for UdpAddress {
    fn from(address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self { ip: ip.octets(), port: address.port() }
    }
}

impl From<UdpAddress> for SocketAddr {
    fn from(address: UdpAddress) -> Self {
        Self::new(Ipv6Addr::from(address.ip).to_canonical(), address.port)
    }
}
