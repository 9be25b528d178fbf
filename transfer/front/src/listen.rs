//! Listen addresses.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Default port of listeners.
const PORT: u16 = 4850;
/// All addresses of this machine, including IPv4.
pub const DEFAULT: &str = "[::]:4850";

/// Parses `ADDR:PORT`, `ADDR` or `PORT`.
///
/// # Errors
///
/// Returns the valid forms.
pub fn parse(text: &str) -> Result<SocketAddr, &'static str> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let port = text.strip_prefix(':').unwrap_or(text).parse();
    let port = port.map(|port| SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port));
    text.parse()
        .or(port)
        .or_else(|_| bare.parse().map(|ip: IpAddr| SocketAddr::new(ip, PORT)))
        .map_err(
            |_| "write an address of this machine, a port or both: 192.0.2.1:4850, [::]:4850, 4850",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_address_may_be_an_address_a_port_or_both() {
        for (text, address) in [
            (DEFAULT, "[::]:4850"),
            ("7", "[::]:7"),
            (":7", "[::]:7"),
            ("0.0.0.0", "0.0.0.0:4850"),
            ("192.0.2.1:9", "192.0.2.1:9"),
            ("[::1]", "[::1]:4850"),
            ("::1", "[::1]:4850"),
        ] {
            assert_eq!(parse(text), Ok(address.parse().unwrap()), "{text}");
        }
        for text in ["", "here", "70000", "1.2.3:4", "[::1]:x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
