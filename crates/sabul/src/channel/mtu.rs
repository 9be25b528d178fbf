//! Path MTU discovery: padded probes of all likely sizes at once.
//!
//! After [RFC8899]: the size in use only grows, and only when a probe of that size has been
//! answered; lost data never lowers it, so loss is never mistaken for a black hole. Probes are no
//! data, and their loss is no congestion.

use sabul_units::{Instant, Span};
use sabul_wire::DATA_OVERHEAD;

/// Datagram payload that every path carries: 1280, the least MTU of IPv6, less its headers.
pub(super) const DATAGRAM_BASE: u32 = 1232;
/// IP packet sizes met in practice: IPv6's least, tunnels, PPPoE, Ethernet, FDDI, jumbo, loopback.
const PACKETS: [u32; 12] =
    [1360, 1400, 1420, 1440, 1460, 1492, 1500, 4352, 9000, 16_384, 32_768, 65_535];
/// Smallest limit that a user may set: the least that IPv4 hosts must accept [RFC791 §3.2].
pub(super) const MTU_MIN: u32 = 576;
/// Bytes of a datagram that are not payload of a block.
#[expect(clippy::cast_possible_truncation, reason = "below 100")]
const OVERHEAD: u32 = {
    assert!(DATA_OVERHEAD < 100, "a DATA packet has room for data at any allowed MTU");
    DATA_OVERHEAD as u32
};
/// Times that an unanswered size is tried.
const TRIES: u8 = 3;

/// The search for one path's largest packet.
#[derive(Debug)]
pub(super) struct MtuSearch {
    /// Datagram size, tries made; ascending.
    candidates: Vec<(u32, u8)>,
    header_bytes: u32,
    datagram: u32,
    next_round: Instant,
}

impl MtuSearch {
    /// `local` is the MTU of this end's interface, `limit` the largest packet allowed.
    pub(super) fn new(is_ipv6: bool, local: Option<u32>, limit: Option<u32>) -> Self {
        let header_bytes = if is_ipv6 { 48 } else { 28 };
        let largest = local.unwrap_or(1500).min(limit.unwrap_or(u32::MAX)).min(65_535);
        let mut sizes: Vec<u32> = PACKETS.into_iter().chain([largest]).collect();
        sizes.retain(|size| *size <= largest && *size > DATAGRAM_BASE + header_bytes);
        sizes.sort_unstable();
        sizes.dedup();
        let candidates = sizes.into_iter().map(|size| (size - header_bytes, 0)).collect();
        let base = limit.map_or(DATAGRAM_BASE, |limit| DATAGRAM_BASE.min(limit - header_bytes));
        Self { candidates, header_bytes, datagram: base, next_round: Instant::ZERO }
    }

    /// Bytes of a block that fit a packet of the size in use.
    pub(super) const fn payload(&self) -> u32 {
        self.datagram - OVERHEAD
    }

    /// IP packet size in use.
    pub(super) const fn packet(&self) -> u32 {
        self.datagram + self.header_bytes
    }

    /// Datagram sizes to probe now; `rtt` spaces the rounds.
    pub(super) fn poll(&mut self, now: Instant, rtt: Option<Span>) -> Vec<u32> {
        if now < self.next_round || self.candidates.is_empty() {
            return Vec::new();
        }
        let rtt = rtt.unwrap_or(Span::from_millis(200));
        self.next_round = now + (rtt * 2).max(Span::from_millis(50));
        self.candidates.retain(|(_, tries)| *tries < TRIES);
        self.candidates
            .iter_mut()
            .map(|(size, tries)| {
                *tries += 1;
                *size
            })
            .collect()
    }

    /// When to poll again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.candidates.is_empty()).then_some(self.next_round)
    }

    /// The machine refused a probe of this size: the path's first hop is smaller.
    pub(super) fn refused(&mut self, size: u32) {
        self.candidates.retain(|(candidate, _)| *candidate < size);
    }

    /// A probe of this size was answered; says whether packets may grow.
    pub(super) fn confirmed(&mut self, size: u32) -> bool {
        let was_asked = self.candidates.iter().any(|(candidate, _)| *candidate == size);
        if !was_asked || size <= self.datagram {
            return false;
        }
        self.datagram = size;
        self.candidates.retain(|(candidate, _)| *candidate > size);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_answered_size_is_used() {
        let mut search = MtuSearch::new(false, Some(1500), None);
        assert_eq!(search.packet(), 1260, "what any path carries");
        let sizes = search.poll(Instant::ZERO, None);
        assert_eq!(sizes, [1332, 1372, 1392, 1412, 1432, 1464, 1472]);
        assert!(search.confirmed(1392));
        assert_eq!(search.packet(), 1420);
        assert!(!search.confirmed(1372), "never smaller again");
        assert!(!search.confirmed(8972), "never a size that was not asked");
        let later = Instant::ZERO + Span::from_secs(1);
        assert_eq!(search.poll(later, None), [1412, 1432, 1464, 1472]);
    }

    #[test]
    fn a_size_is_given_up_after_three_tries_and_a_limit_holds() {
        let mut search = MtuSearch::new(true, Some(65_536), Some(9000));
        for round in 0..3 {
            let now = Instant::ZERO + Span::from_secs(round);
            assert_eq!(search.poll(now, None).last(), Some(&8952));
        }
        assert!(search.poll(Instant::ZERO + Span::from_secs(9), None).is_empty());
        assert_eq!(search.deadline(), None);
        let mut small = MtuSearch::new(false, Some(1500), Some(1280));
        assert_eq!(small.packet(), 1260);
        assert_eq!(small.poll(Instant::ZERO, None), [1252]);
    }
}
