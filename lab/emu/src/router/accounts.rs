//! Traffic counters for each direction of each conversation.

use std::collections::{BTreeMap, HashMap};

use sabul_net::Way;
use sabul_units::Instant;

use super::{Amount, TupleSnapshot};
use sabul_tun::{Bundle, Carried, Protocol, Tuple};

/// Most conversations counted singly; later conversations count for their pair of hosts only.
const TUPLES_MAX: usize = 20_000;

/// Position of a conversation's direction in [`Accounts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AccountId(u32);

/// All counters of a router since its last restart.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    ids: HashMap<(usize, Way, Tuple), AccountId>,
    accounts: Vec<Account>,
    /// Common account of the conversations beyond [`TUPLES_MAX`], by pair and direction.
    others: HashMap<(usize, Way), AccountId>,
    /// Sums by pair: forward, back.
    pairs: Vec<[Amount; 2]>,
    /// Number of accounts by pair: forward, back.
    opened: Vec<[u32; 2]>,
}

#[derive(Debug)]
struct Account {
    snapshot: TupleSnapshot,
    /// Number of earlier accounts of the same pair and direction.
    ordinal: u32,
    sent: Sequence,
    arrived: Arrivals,
}

impl Accounts {
    pub(super) fn new(pairs: usize) -> Self {
        Self {
            pairs: vec![[Amount::default(); 2]; pairs],
            opened: vec![[0; 2]; pairs],
            ..Self::default()
        }
    }

    /// Returns the account of a bundle that has left a host.
    pub(super) fn find(
        &mut self,
        pair: usize,
        way: Way,
        now: Instant,
        bundle: &Bundle,
    ) -> AccountId {
        let tuple = bundle.tuple();
        if let Some(id) = self.ids.get(&(pair, way, tuple)) {
            return *id;
        }
        if self.ids.len() >= TUPLES_MAX {
            if let Some(id) = self.others.get(&(pair, way)) {
                return *id;
            }
            let id = self.open(pair, way, now, Tuple { protocol: Protocol::Other(255), ..tuple });
            self.others.insert((pair, way), id);
            return id;
        }
        let id = self.open(pair, way, now, tuple);
        self.ids.insert((pair, way, tuple), id);
        id
    }

    fn open(&mut self, pair: usize, way: Way, now: Instant, tuple: Tuple) -> AccountId {
        let id = AccountId(u32::try_from(self.accounts.len()).unwrap_or(u32::MAX));
        let opened = &mut self.opened[pair][way as usize];
        let ordinal = *opened;
        *opened = opened.saturating_add(1);
        self.accounts.push(Account {
            snapshot: TupleSnapshot {
                pair,
                way,
                tuple,
                amount: Amount::default(),
                first: now,
                last: now,
            },
            ordinal,
            sent: Sequence::default(),
            arrived: Arrivals::default(),
        });
        id
    }

    /// Returns the flow number for queue disciplines: the pair in the low bits, above it the
    /// conversation, as the simulator numbers plans and copies.
    pub(super) fn flow_number(&self, id: AccountId) -> u32 {
        let account = &self.accounts[id.0 as usize];
        let pair = u32::try_from(account.snapshot.pair).unwrap_or(u32::MAX);
        pair.wrapping_add(account.ordinal << 16)
    }

    /// Counts a segment that has left its host.
    pub(super) fn sent(&mut self, id: AccountId, now: Instant, carried: &Carried) {
        let account = &mut self.accounts[id.0 as usize];
        account.snapshot.last = now;
        let is_again = carried.payload_bytes > 0
            && carried.sequence.is_some_and(|from| account.sent.note(from, carried.payload_bytes));
        let TupleSnapshot { pair, way, amount, .. } = &mut account.snapshot;
        for amount in [amount, &mut self.pairs[*pair][*way as usize]] {
            amount.sent_packets += 1;
            amount.sent_bytes += u64::from(carried.ip_bytes);
            amount.sent_payload_bytes += u64::from(carried.payload_bytes);
            amount.data_packets += u64::from(carried.payload_bytes > 0);
            amount.resent_packets += u64::from(is_again);
        }
    }

    /// Counts a segment that is delivered to the receiving host.
    pub(super) fn arrived(&mut self, id: AccountId, carried: &Carried) {
        let account = &mut self.accounts[id.0 as usize];
        let fresh = match carried.sequence {
            Some(from) => account.arrived.note(from, carried.payload_bytes),
            None => u64::from(carried.payload_bytes),
        };
        let TupleSnapshot { pair, way, amount, .. } = &mut account.snapshot;
        for amount in [amount, &mut self.pairs[*pair][*way as usize]] {
            amount.arrived_packets += 1;
            amount.arrived_bytes += u64::from(carried.ip_bytes);
            amount.arrived_payload_bytes += u64::from(carried.payload_bytes);
            amount.arrived_data_packets += u64::from(carried.payload_bytes > 0);
            amount.fresh_bytes += fresh;
        }
    }

    pub(super) fn tuples(&self) -> Vec<TupleSnapshot> {
        self.accounts.iter().map(|account| account.snapshot).collect()
    }

    pub(super) fn pairs(&self) -> Vec<[Amount; 2]> {
        self.pairs.clone()
    }
}

/// Unwraps 32-bit sequence numbers to 64 bits, relative to earlier numbers.
#[derive(Debug, Default)]
struct Unwrapped {
    /// Highest unwrapped number so far; `None` before the first.
    near: Option<u64>,
}

impl Unwrapped {
    fn of(&mut self, number: u32) -> u64 {
        // The first number starts well above zero, so that reordered earlier numbers are not
        // negative.
        let near = *self.near.get_or_insert_with(|| (1 << 32) + u64::from(number));
        #[expect(clippy::cast_possible_truncation, reason = "the low half is used")]
        let distance = number.wrapping_sub(near as u32).cast_signed();
        let unwrapped = near.saturating_add_signed(i64::from(distance));
        self.near = Some(near.max(unwrapped));
        unwrapped
    }
}

/// Highest sequence number of a TCP sender.
#[derive(Debug, Default)]
struct Sequence {
    numbers: Unwrapped,
    end: u64,
}

impl Sequence {
    /// Records sent bytes; returns true if the first byte was sent before.
    fn note(&mut self, from: u32, bytes: u32) -> bool {
        let from = self.numbers.of(from);
        let is_again = from < self.end;
        self.end = self.end.max(from + u64::from(bytes));
        is_again
    }
}

/// Received ranges of a TCP stream.
#[derive(Debug, Default)]
struct Arrivals {
    numbers: Unwrapped,
    /// All bytes before this have arrived, or were sent before the router's start; `None` before
    /// the first byte.
    next: Option<u64>,
    /// Ranges that have arrived beyond `next`: start to end, disjoint.
    beyond: BTreeMap<u64, u64>,
}

impl Arrivals {
    /// Records arrived bytes; returns the number of new bytes.
    fn note(&mut self, from: u32, bytes: u32) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let from = self.numbers.of(from);
        let next = *self.next.get_or_insert(from);
        let (mut start, mut end) = (from.max(next), from + u64::from(bytes));
        if end <= start {
            return 0;
        }
        if start == next && self.beyond.is_empty() {
            self.next = Some(end);
            return end - start;
        }
        let mut fresh = end - start;
        // Merges all overlapping or adjacent ranges.
        while let Some((&known_start, &known_end)) =
            self.beyond.range(..=end).next_back().filter(|(_, known_end)| **known_end >= start)
        {
            let overlap = known_end.min(end).saturating_sub(known_start.max(start));
            fresh = fresh.saturating_sub(overlap);
            self.beyond.remove(&known_start);
            (start, end) = (start.min(known_start), end.max(known_end));
        }
        if start <= next {
            self.next = Some(end);
        } else {
            self.beyond.insert(start, end);
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_are_numbered_separately_for_each_pair_and_direction() {
        let mut accounts = Accounts::new(2);
        let tuple = Tuple {
            protocol: Protocol::Udp,
            source: std::net::Ipv4Addr::LOCALHOST.into(),
            destination: std::net::Ipv4Addr::LOCALHOST.into(),
            source_port: 1,
            destination_port: 2,
        };
        let ways = [(1, Way::Forward), (1, Way::Back), (1, Way::Forward), (0, Way::Forward)];
        let numbers = ways.map(|(pair, way)| {
            let id = accounts.open(pair, way, Instant::ZERO, tuple);
            accounts.flow_number(id)
        });
        assert_eq!(numbers, [1, 1, 1 + (1 << 16), 0]);
    }

    #[test]
    fn each_stream_byte_counts_as_new_only_once() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.note(1000, 100), 100);
        assert_eq!(arrivals.note(1000, 100), 0, "the same again");
        assert_eq!(arrivals.note(1200, 100), 100, "beyond a hole");
        assert_eq!(arrivals.note(1400, 100), 100, "beyond another");
        assert_eq!(arrivals.note(1250, 200), 100, "1300..1400 is new");
        assert_eq!(arrivals.note(1050, 100), 50, "1100..1150 is new");
        assert_eq!(arrivals.note(1100, 400), 50, "1150..1200 was the last hole");
        assert_eq!(arrivals.next, Some((1 << 32) + 1500));
        assert!(arrivals.beyond.is_empty());
        assert_eq!(arrivals.note(1500, 0), 0);
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.note(u32::MAX - 99, 100), 100);
        assert_eq!(arrivals.note(50, 50), 50, "beyond a hole, and beyond the wrap");
        assert_eq!(arrivals.note(0, 50), 50);
        assert_eq!(arrivals.note(u32::MAX - 49, 150), 0);
        let mut sent = Sequence::default();
        assert!(!sent.note(u32::MAX - 99, 100));
        assert!(!sent.note(0, 100));
        assert!(sent.note(u32::MAX - 9, 20), "its first byte went out before");
        assert!(!sent.note(100, 1));
    }

    #[test]
    fn random_arrivals_agree_with_a_reference_list() {
        use sabul_units::{Random as _, SeededRandom};
        let mut random = SeededRandom::new(7);
        for _ in 0..50 {
            let mut arrivals = Arrivals::default();
            let mut seen = vec![false; 2000];
            // Counting begins with the first arrival.
            assert_eq!(arrivals.note(0, 1), 1);
            seen[0] = true;
            for _ in 0..300 {
                let from = usize::try_from(random.next_u64() % 1900).unwrap();
                let bytes = usize::try_from(random.next_u64() % 100).unwrap();
                let wanted = seen[from..from + bytes].iter().filter(|is_seen| !**is_seen).count();
                seen[from..from + bytes].fill(true);
                let (from, bytes) = (u32::try_from(from).unwrap(), u32::try_from(bytes).unwrap());
                assert_eq!(arrivals.note(from, bytes), wanted as u64);
            }
        }
    }
}
