//! Source address of connections and datagrams, as used for limits per source.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the IPv4 address, or the /64 network of an IPv6 address, since a host can use any
/// address within its /64.
pub(crate) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_and_an_ipv4_address_each_count_as_one_source() {
        let same = |a: &str, b: &str| source(a.parse().unwrap()) == source(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }
}
