//! Path MTU discovery: padded probes of all likely sizes at once.
//!
//! After [RFC8899]. The packet size grows when a probe of a larger size is acknowledged. The size shrinks when the path
//! is a black hole for it [RFC8899 §4.3]: no packet of this size arrives any more. Probes of a smaller size are then
//! acknowledged, and probes of the present size are not. Packet loss alone never shrinks the size, however high.
//! Probes carry no data, and their loss is no congestion signal.
//! States:      searching → settled → (raise timer) searching; any → checking → settled, or fallen and searching below
//!              the size that failed

use std::num::NonZeroU32;

use sabul_units::{Instant, Span};
use sabul_wire::{DATA_OVERHEAD, MAX_CONGESTION_HEADER};

/// Datagram payload that every path carries: 1280, the least MTU of IPv6, less its headers.
pub(super) const DATAGRAM_BASE: u32 = 1232;
/// IP packet sizes in practice: least of IPv6, tunnels, PPPoE, Ethernet, FDDI, jumbo, loopback.
const PACKETS: [u32; 12] =
    [1360, 1400, 1420, 1440, 1460, 1492, 1500, 4352, 9000, 16_384, 32_768, 65_535];
/// Smallest limit that a user may set: the size that every IPv4 host must accept [RFC791 §3.2].
pub(super) const MTU_MIN: u32 = 576;
/// Bytes of a datagram besides the payload.
#[expect(clippy::cast_possible_truncation, reason = "below 100")]
const OVERHEAD: u32 = {
    assert!(
        DATA_OVERHEAD + MAX_CONGESTION_HEADER < 200,
        "a DATA packet has room for data at any allowed MTU"
    );
    DATA_OVERHEAD as u32
};
/// Probes of a size without an acknowledgement before the size is given up.
const TRIES: u8 = 3;
/// Least time between two rounds of probes; otherwise two RTTs.
const ROUND_MIN: Span = Span::from_millis(50);
/// Assumed RTT before the first measurement.
const RTT_UNKNOWN: Span = Span::from_millis(200);
/// Ours: a check begins when no full-size packet arrives for this time or for three RTTs.
const SUSPECT_AFTER: Span = Span::from_secs(1);
/// Ours: and when this many DATA packets were sent meanwhile.
const SUSPECT_PACKETS: u64 = 3;
/// Ours: acknowledged probes of the smaller size, with none of the present size, that prove a black hole. With 30 %
/// loss both ways, six come first by chance once in 64 checks. A check begins only when no DATA packet has arrived for
/// a second.
const BLACK_HOLE_ANSWERS: u8 = 6;
/// Ours: rounds of a check after which the path counts as down and is probed rarely.
const CHECK_ROUNDS: u8 = 20;
/// Ours: time between two rounds of such a path.
const CHECK_SLOW: Span = Span::from_millis(500);
/// [RFC8899 §5.1.1] PMTU_RAISE_TIMER: larger sizes are probed again after this time.
const RAISE_AFTER: Span = Span::from_secs(600);
/// Ours: a size that has just failed is not probed for this time.
const RETRY_AFTER: Span = Span::from_secs(60);

/// Counts of the sender's DATA packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Packets sent.
    pub(super) sent: u64,
    /// Full-size packets reported as arrived.
    pub(super) full: u64,
}

/// Check of whether the present size still passes.
#[derive(Clone, Copy, Debug)]
struct Check {
    rounds: u8,
    /// Acknowledged probes of each fallback size.
    answers: [u8; 2],
    next_round: Instant,
}

/// Search for the largest packet of a path, and its supervision.
#[derive(Debug)]
pub(super) struct MtuSearch {
    /// Datagram size and number of probes; ascending, all larger than the size in use.
    candidates: Vec<(u32, u8)>,
    header_bytes: u32,
    /// Length of the congestion header of a DATA packet.
    congestion_bytes: u32,
    limit: Option<u32>,
    datagram: u32,
    next_round: Instant,
    /// Time of the next search for larger sizes.
    raise_at: Option<Instant>,
    /// Time at which the size in use was last proven, and the counts at that time.
    proof: (Instant, Traffic),
    seen: Traffic,
    check: Option<Check>,
}

impl MtuSearch {
    /// Makes a search. `local` is the MTU of this end's interface, `limit` the largest packet allowed.
    pub(super) fn new(is_ipv6: bool, local: Option<u32>, limit: Option<u32>) -> Self {
        let header_bytes = if is_ipv6 { 48 } else { 28 };
        let mut search = Self {
            candidates: Vec::new(),
            header_bytes,
            congestion_bytes: 0,
            limit,
            datagram: limit.map_or(DATAGRAM_BASE, |limit| DATAGRAM_BASE.min(limit - header_bytes)),
            next_round: Instant::ZERO,
            raise_at: None,
            proof: (Instant::ZERO, Traffic::default()),
            seen: Traffic::default(),
            check: None,
        };
        search.list(local, u32::MAX);
        search
    }

    /// Starts again on another path.
    pub(super) fn restart(&mut self, now: Instant, local: Option<u32>) {
        let (is_ipv6, congestion_bytes, seen) =
            (self.header_bytes == 48, self.congestion_bytes, self.seen);
        let fresh = Self::new(is_ipv6, local, self.limit);
        *self = Self { congestion_bytes, seen, proof: (now, seen), ..fresh };
    }

    /// Makes candidates of all sizes above the size in use and below `below`.
    fn list(&mut self, local: Option<u32>, below: u32) {
        let headers = self.header_bytes;
        let largest = local.unwrap_or(1500).min(self.limit.unwrap_or(u32::MAX)).min(65_535);
        let base = DATAGRAM_BASE + headers;
        let mut sizes: Vec<u32> = PACKETS.into_iter().chain([base, largest]).collect();
        sizes.retain(|size| *size <= largest && *size > self.packet() && *size < below);
        sizes.sort_unstable();
        sizes.dedup();
        self.candidates = sizes.into_iter().map(|size| (size - headers, 0)).collect();
    }

    /// Sets the length of the congestion header of DATA packets.
    pub(super) const fn set_congestion(&mut self, bytes: u32) {
        self.congestion_bytes = bytes;
    }

    /// Payload bytes of a packet of the size in use.
    pub(super) const fn payload(&self) -> NonZeroU32 {
        let bytes = self.datagram - OVERHEAD - self.congestion_bytes;
        NonZeroU32::new(bytes).expect("a DATA packet has room for data at any allowed MTU")
    }

    /// Size of the IP packets in use.
    pub(super) const fn packet(&self) -> u32 {
        self.datagram + self.header_bytes
    }

    /// Fallback sizes, the preferred one first.
    const fn falls(&self) -> [u32; 2] {
        [DATAGRAM_BASE, MTU_MIN - self.header_bytes]
    }

    /// The preferred fallback size below the size in use, if any.
    fn smaller(&self) -> Option<u32> {
        self.falls().into_iter().find(|size| *size < self.datagram)
    }

    /// Whether [`Self::raise`] is due.
    pub(super) fn is_raise_due(&self, now: Instant) -> bool {
        self.raise_at.is_some_and(|at| now >= at)
    }

    /// Restarts the search for larger sizes; `local` is the current MTU of the interface.
    pub(super) fn raise(&mut self, now: Instant, local: Option<u32>) {
        self.list(local, u32::MAX);
        self.next_round = now;
        self.raise_at = self.candidates.is_empty().then(|| now + RAISE_AFTER);
    }

    /// Records the counts of DATA packets, and starts a check when full-size packets no longer arrive.
    pub(super) fn watch(&mut self, now: Instant, traffic: Traffic, rtt: Option<Span>) {
        let (since, before) = self.proof;
        self.seen = traffic;
        if traffic.full > before.full {
            (self.proof, self.check) = ((now, traffic), None);
        }
        if self.smaller().is_none() || traffic.sent < self.proof.1.sent + SUSPECT_PACKETS {
            return;
        }
        let timeout = (rtt.unwrap_or(RTT_UNKNOWN) * 3).max(SUSPECT_AFTER);
        if self.check.is_none() && now.since(since) >= timeout {
            self.check = Some(Check { rounds: 0, answers: [0; 2], next_round: now });
        }
    }

    /// Returns the datagram sizes to probe now; the RTT sets the time between rounds.
    pub(super) fn poll(&mut self, now: Instant, rtt: Option<Span>) -> Vec<u32> {
        let round = (rtt.unwrap_or(RTT_UNKNOWN) * 2).max(ROUND_MIN);
        let mut sizes = Vec::new();
        let (falls, datagram) = (self.falls(), self.datagram);
        if let Some(check) = self.check.as_mut().filter(|check| now >= check.next_round) {
            check.rounds = check.rounds.saturating_add(1);
            let pause = if check.rounds < CHECK_ROUNDS { round } else { round.max(CHECK_SLOW) };
            check.next_round = now + pause;
            sizes.extend(falls.into_iter().filter(|size| *size < datagram));
            sizes.push(datagram);
        }
        if now >= self.next_round && !self.candidates.is_empty() {
            self.next_round = now + round;
            self.candidates.retain(|(_, tries)| *tries < TRIES);
            for (size, tries) in &mut self.candidates {
                *tries += 1;
                sizes.push(*size);
            }
        }
        if self.candidates.is_empty() && self.raise_at.is_none() {
            self.raise_at = Some(now + RAISE_AFTER);
        }
        sizes
    }

    /// Time of the next poll.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let search = (!self.candidates.is_empty()).then_some(self.next_round);
        let check = self.check.map(|check| check.next_round);
        Instant::earliest([search, check, self.raise_at])
    }

    /// Handles a datagram size that the local machine refused, because the first hop has a smaller MTU. `local` is the
    /// current MTU of the interface. Returns whether packets have to shrink.
    pub(super) fn refused(&mut self, now: Instant, size: u32, local: Option<u32>) -> bool {
        if size > self.datagram {
            self.candidates.retain(|(candidate, _)| *candidate < size);
            return false;
        }
        let fits = local.map(|mtu| mtu.saturating_sub(self.header_bytes));
        let smaller = self.smaller();
        // `local` may also stem from a forged router message, so the size never falls below the base.
        let fits = fits.filter(|fits| *fits < size && smaller.is_some_and(|least| *fits >= least));
        match fits.or(smaller) {
            Some(fits) => {
                self.fall(now, fits);
                true
            }
            None => false,
        }
    }

    /// Handles an acknowledged probe of this size; returns whether the size in use has changed.
    pub(super) fn confirmed(&mut self, now: Instant, size: u32) -> bool {
        if self.candidates.iter().any(|(candidate, _)| *candidate == size) && size > self.datagram {
            self.datagram = size;
            self.candidates.retain(|(candidate, _)| *candidate > size);
            (self.proof, self.check) = ((now, self.seen), None);
            return true;
        }
        let falls = self.falls();
        let Some(check) = &mut self.check else { return false };
        if size == self.datagram {
            // The size passes, so the data is lost for another reason.
            (self.proof, self.check) = ((now, self.seen), None);
            return false;
        }
        for (answers, _) in check.answers.iter_mut().zip(falls).filter(|(_, fall)| *fall == size) {
            *answers = answers.saturating_add(1);
        }
        match check.answers {
            [base, _] if base >= BLACK_HOLE_ANSWERS => self.fall(now, falls[0]),
            // Not even the base size has passed.
            [0, least] if least >= BLACK_HOLE_ANSWERS => self.fall(now, falls[1]),
            _ => return false,
        }
        true
    }

    /// Falls back to `size`, and searches between it and the size that failed.
    fn fall(&mut self, now: Instant, size: u32) {
        let failed = self.packet();
        self.datagram = size;
        self.list(Some(failed), failed);
        self.next_round = now;
        self.raise_at = Some(now + RETRY_AFTER);
        (self.proof, self.check) = ((now, self.seen), None);
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::{Probability, Random, SeededRandom};

    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn the_largest_answered_size_is_used() {
        let mut search = MtuSearch::new(false, Some(1500), None);
        assert_eq!(search.packet(), 1260, "what any path carries");
        let sizes = search.poll(Instant::ZERO, None);
        assert_eq!(sizes, [1332, 1372, 1392, 1412, 1432, 1464, 1472]);
        assert!(search.confirmed(at_ms(9), 1392));
        assert_eq!(search.packet(), 1420);
        assert!(!search.confirmed(at_ms(9), 1372), "an answer to a smaller one is no news");
        assert!(!search.confirmed(at_ms(9), 8972), "never a size that was not asked");
        assert_eq!(search.poll(at_ms(1000), None), [1412, 1432, 1464, 1472]);
    }

    #[test]
    fn an_mtu_size_is_abandoned_after_three_probes_and_a_limit_applies() {
        let mut search = MtuSearch::new(true, Some(65_536), Some(9000));
        for round in 0..3 {
            assert_eq!(search.poll(at_ms(round * 1000), None).last(), Some(&8952));
        }
        assert!(search.poll(at_ms(9000), None).is_empty());
        assert_eq!(search.deadline(), Some(at_ms(609_000)), "until larger ones are tried again");
        let mut small = MtuSearch::new(false, Some(1500), Some(1280));
        assert_eq!(small.packet(), 1260);
        assert_eq!(small.poll(Instant::ZERO, None), [1252]);
    }

    /// A sender on a path with MTU `mtu` and loss `loss` each way, from `from` to `to` milliseconds: 100 packets a
    /// second of the size in use, RTT 20 ms.
    struct Path {
        search: MtuSearch,
        traffic: Traffic,
        random: SeededRandom,
        answers: Vec<(u64, u32)>,
    }

    impl Path {
        fn new(search: MtuSearch) -> Self {
            let random = SeededRandom::new(7);
            Self { search, traffic: Traffic::default(), random, answers: Vec::new() }
        }

        fn run(&mut self, from: u64, to: u64, mtu: u32, loss: u64) {
            let rtt = Some(Span::from_millis(20));
            for ms in from..to {
                let mut passes =
                    |size: u32| size <= mtu && !self.random.chance(Probability::per_mille(loss));
                if ms % 10 == 0 {
                    self.traffic.sent += 1;
                    if passes(self.search.packet()) {
                        self.traffic.full += 1;
                    }
                }
                if self.search.is_raise_due(at_ms(ms)) {
                    self.search.raise(at_ms(ms), Some(1500));
                }
                self.search.watch(at_ms(ms), self.traffic, rtt);
                for size in self.search.poll(at_ms(ms), rtt) {
                    if passes(size + 28) && passes(80) {
                        self.answers.push((ms + 20, size));
                    }
                }
                while let Some(at) = self.answers.iter().position(|(due, _)| *due <= ms) {
                    let (_, size) = self.answers.remove(at);
                    self.search.confirmed(at_ms(ms), size);
                }
            }
        }
    }

    #[test]
    fn a_shrinking_path_mtu_is_detected_and_a_growing_one_used_again() {
        let mut path = Path::new(MtuSearch::new(false, Some(1500), None));
        path.run(0, 1000, 1500, 0);
        assert_eq!(path.search.packet(), 1500);
        path.run(1000, 4000, 1400, 0);
        assert_eq!(path.search.packet(), 1400, "down to the base and up again");
        path.run(4000, 50_000, 1500, 0);
        assert_eq!(path.search.packet(), 1400, "what has just failed is left alone for a minute");
        path.run(50_000, 70_000, 1500, 0);
        assert_eq!(path.search.packet(), 1500);
        // Not even the base size passes.
        path.run(70_000, 76_000, 1000, 0);
        assert_eq!(path.search.packet(), MTU_MIN);
        path.run(76_000, 140_000, 1300, 0);
        assert_eq!(path.search.packet(), 1260);
        // Six hundred seconds after the last search without a larger size.
        path.run(140_000, 900_000, 1500, 0);
        assert_eq!(path.search.packet(), 1500);
    }

    #[test]
    fn loss_or_an_outage_is_not_mistaken_for_an_mtu_black_hole() {
        let mut path = Path::new(MtuSearch::new(false, Some(1500), None));
        path.run(0, 1000, 1500, 0);
        for start in [1000, 200_000, 400_000] {
            path.run(start, start + 100_000, 1500, 300);
            assert_eq!(path.search.packet(), 1500, "30 % each way");
            // An outage of ten seconds; afterwards the path is unchanged.
            path.run(start + 100_000, start + 110_000, 1500, 1000);
            path.run(start + 110_000, start + 112_000, 1500, 0);
            assert_eq!(path.search.packet(), 1500);
        }
    }

    #[test]
    fn a_size_refused_locally_shrinks_at_once_but_not_below_the_base() {
        let searched = || {
            let mut search = MtuSearch::new(false, Some(1500), None);
            search.poll(at_ms(0), None);
            assert!(search.confirmed(at_ms(1), 1472));
            search
        };
        for (local, packet) in
            [(Some(1300), 1300), (Some(600), 1260), (Some(1500), 1260), (None, 1260)]
        {
            let mut search = searched();
            assert!(search.refused(at_ms(2), 1472, local));
            assert_eq!(search.packet(), packet, "{local:?}");
            assert!(!search.refused(at_ms(3), 1472, local), "sealed before it was known");
            assert_eq!(search.packet(), packet);
        }
        let mut search = searched();
        search.refused(at_ms(2), 1472, Some(1400));
        assert_eq!(search.poll(at_ms(3), None), [1392, 1412, 1432, 1464], "above 1400, below 1500");
        // A probe that is too large proves nothing about the size in use.
        assert!(!search.refused(at_ms(3), 1412, Some(1400)));
        assert_eq!(search.packet(), 1400);
        let mut least = MtuSearch::new(false, Some(1500), Some(MTU_MIN));
        assert!(!least.refused(at_ms(0), 548, Some(100)), "nothing is smaller");
    }
}
