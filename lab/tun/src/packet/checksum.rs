//! Internet checksum, from partial sums.
//!
//! Source: RFC 1071. Sums are of 16-bit words in network order, the last word padded with zero.
//! Every part but the last must have an even length.

use std::net::IpAddr;

/// Returns the unfolded sum of some bytes, at most 64 KiB and some headers.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    // Two words at a time: 2^16 = 1 modulo 2^16 - 1, so the upper word counts the same.
    let (quads, rest) = bytes.as_chunks::<4>();
    let whole: u64 = quads.iter().map(|quad| u64::from(u32::from_be_bytes(*quad))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    whole + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum to 16 bits.
pub(super) fn fold(sum: u64) -> u16 {
    let mut rest = sum;
    while rest > 0xFFFF {
        rest = (rest & 0xFFFF) + (rest >> 16);
    }
    u16::try_from(rest).expect("folded until it fits")
}

/// Returns the sum of the pseudo-header of TCP and UDP without the length; RFC 9293 §3.1, RFC 8200
/// §8.1.
pub(super) fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8) -> u32 {
    let address = |address: IpAddr| match address {
        IpAddr::V4(v4) => sum(&v4.octets()),
        IpAddr::V6(v6) => sum(&v6.octets()),
    };
    fold(address(source) + address(destination) + u64::from(protocol)).into()
}
