//! Addresses for a ticket: the addresses at which other machines can reach this listener.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use crate::ticket::MAX_ADDRESSES;

/// Returns the addresses for the ticket of a listener at `address`, the most likely first: `address` itself, or for an
/// unspecified address those of all interfaces that are up. Loopback is included only if there is no other address.
pub(super) fn reachable(address: SocketAddr) -> Vec<String> {
    let ips = if address.ip().is_unspecified() {
        ordered(facing(address), own_addresses(), address.is_ipv6())
    } else {
        vec![address.ip()]
    };
    ips.into_iter().map(|ip| SocketAddr::new(ip, address.port()).to_string()).collect()
}

/// Returns a name or address to advertise, with the listener's port unless the text has a port.
pub(super) fn with_port(advertised: &str, port: u16) -> String {
    let bare = advertised.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    match bare.unwrap_or(advertised).parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port).to_string(),
        Err(_) if advertised.contains(':') => advertised.to_owned(),
        Err(_) => format!("{advertised}:{port}"),
    }
}

/// Local address on each default route. Connecting a UDP socket sends nothing; the destinations are reserved for
/// documentation.
fn facing(address: SocketAddr) -> Vec<IpAddr> {
    let routes = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let routes = routes.into_iter().take(if address.is_ipv6() { 2 } else { 1 });
    routes
        .filter_map(|(local, remote)| {
            let socket = UdpSocket::bind(local).ok()?;
            socket.connect(remote).ok()?;
            Some(socket.local_addr().ok()?.ip())
        })
        .collect()
}

/// Addresses of the interfaces that are up, in the kernel's order; empty if the kernel does not list them.
fn own_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else { return Vec::new() };
    interfaces
        .filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
        })
        .collect()
}

/// `facing` first, then `own` with IPv4 before IPv6 and private IPv6 addresses last; without duplicates, at most as
/// many as a ticket holds.
fn ordered(facing: Vec<IpAddr>, mut own: Vec<IpAddr>, with_ipv6: bool) -> Vec<IpAddr> {
    own.sort_by_key(|ip| match ip {
        IpAddr::V4(ip) => u8::from(ip.is_link_local()) * 2,
        IpAddr::V6(ip) => 1 + u8::from(ip.is_unique_local()) * 2,
    });
    let mut ips = Vec::new();
    for ip in facing.into_iter().chain(own) {
        // A link-local IPv6 address is useless without the interface of the other machine.
        let is_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let is_usable = !ip.is_loopback() && !ip.is_unspecified() && !is_local;
        if is_usable && (with_ipv6 || ip.is_ipv4()) && !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    ips.truncate(MAX_ADDRESSES);
    if ips.is_empty() {
        ips.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    ips
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn every_address_is_named_once_and_the_default_route_is_first() {
        let own = ["127.0.0.1", "::1", "10.55.0.1", "fe80::1", "fd00::1", "2001:db8::2"];
        let own = ips(&[&own[..], &["169.254.1.1", "10.99.0.2"]].concat());
        let all = ordered(ips(&["10.99.0.2", "2001:db8::2"]), own.clone(), true);
        let wanted = ["10.99.0.2", "2001:db8::2", "10.55.0.1", "169.254.1.1", "fd00::1"];
        assert_eq!(all, ips(&wanted));
        // Without a default route, all addresses are still listed.
        let all = ordered(Vec::new(), own.clone(), false);
        assert_eq!(all, ips(&["10.55.0.1", "10.99.0.2", "169.254.1.1"]));
    }

    #[test]
    fn loopback_is_listed_only_if_there_is_no_other_address() {
        assert_eq!(ordered(Vec::new(), ips(&["127.0.0.1", "::1"]), true), ips(&["127.0.0.1"]));
        assert_eq!(ordered(Vec::new(), Vec::new(), true), ips(&["127.0.0.1"]));
    }

    #[test]
    fn a_ticket_never_has_more_addresses_than_fit() {
        let many = (0..40).map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))).collect();
        assert_eq!(ordered(Vec::new(), many, true).len(), MAX_ADDRESSES);
    }

    #[test]
    fn a_name_without_a_port_uses_the_port_of_the_listener() {
        for (text, wanted) in [
            ("dtn.example.org", "dtn.example.org:7"),
            ("dtn.example.org:4850", "dtn.example.org:4850"),
            ("192.0.2.1", "192.0.2.1:7"),
            ("2001:db8::1", "[2001:db8::1]:7"),
            ("[2001:db8::1]", "[2001:db8::1]:7"),
            ("[2001:db8::1]:9", "[2001:db8::1]:9"),
        ] {
            assert_eq!(with_port(text, 7), wanted);
        }
    }
}
