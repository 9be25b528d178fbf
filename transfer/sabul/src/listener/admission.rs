//! Admission control for unauthenticated connections: limits on number, time and handshake rate.
//!
//! An unauthenticated connection costs little, so many are allowed, but few per source. As the slots fill up, the
//! timeout becomes shorter and more newcomers are dropped at random. When all slots are taken, the connection that has
//! been silent for the longest is evicted. A newcomer from another source is therefore admitted even while one host, or
//! a thousand hosts, fill the slots with silent connections.
//! When the slots of a source are taken, its own oldest silent connection is evicted, at a bounded rate. One host
//! therefore does not lock out other hosts behind the same address.
//! Handshakes cost processor time, so their rate is bounded per source and in total. Connections that have sent their
//! first message wait in a queue for the handshake; newcomers are rejected while this queue is long.
//!
//! Source:      ours; the early drop after OpenSSH's `MaxStartups`, the limits of a source after its
//!              `PerSourceMaxStartups`; the rates are token buckets.
//! Invariants:  the number of connections is the sum of the sources' counts and never exceeds `SLOTS`.
//! Not here:    sockets and tasks; time is an argument.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use sabul_units::{Random, SeededRandom};
use tokio::time::Instant;

use crate::rate::Rate;
use crate::source::source;

/// Most unauthenticated connections; each is a socket and a few kilobytes.
pub(super) const SLOTS: usize = 1024;
/// Most of these from one source: an IPv4 address or an IPv6 /64 network.
pub(super) const PER_SOURCE: usize = 8;
/// Number of connections from which newcomers are dropped at random: with probability zero at first, one half when all
/// slots are taken.
const EARLY_DROP_FROM: usize = SLOTS / 2;
/// Timeout of the handshake while there is room ...
const GREETING_TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// ... and when all slots are taken; linear in between.
const GREETING_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// Ours: least silent time before a connection is evicted for another of its source. Honest connectors send within an
/// RTT; without this time, 64 simultaneous connections from one address would evict each other.
const SILENT_MIN: Duration = Duration::from_millis(250);
/// Number of connections from which the timeout becomes shorter.
const CROWDED_MIN: usize = SLOTS / 8;
/// Handshakes per source: interval and burst. Also the rate of evictions within one source.
const SOURCE_RATE: Rate = Rate { interval: Duration::from_millis(4), burst: 64 };
/// Handshakes in total.
const TOTAL_RATE: Rate = Rate { interval: Duration::from_millis(2), burst: 256 };
/// Ours: connections that wait for a handshake, a quarter of a second's work. Beyond the burst, no connection waits
/// longer.
const LINE_MAX: usize = 128;

/// An unauthenticated connection.
#[derive(Clone, Copy, Debug)]
struct Caller {
    source: IpAddr,
    since: Instant,
    has_spoken: bool,
    is_in_line: bool,
}

/// Decision about a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Admitted, with this number.
    Enter {
        number: u64,
        /// Evicted connection.
        instead_of: Option<u64>,
    },
    /// All slots of the source are taken.
    SourceIsFull,
    /// Dropped at random, because many connections are pending.
    RandomDrop,
    /// Too many connections wait for a handshake.
    LineIsFull,
}

/// Admission control of unauthenticated connections.
#[derive(Debug)]
pub(super) struct Admission {
    random: SeededRandom,
    callers: BTreeMap<u64, Caller>,
    sources: BTreeMap<IpAddr, usize>,
    next: u64,
    /// Connections that wait for a handshake.
    line: usize,
    /// Times at which the token buckets of handshakes will be full; those of sources only while not full.
    full_at: Option<Instant>,
    source_full_at: BTreeMap<IpAddr, Instant>,
    /// The same for evictions within a source.
    evicted_full_at: BTreeMap<IpAddr, Instant>,
}

impl Admission {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: SeededRandom::new(seed),
            callers: BTreeMap::new(),
            sources: BTreeMap::new(),
            next: 0,
            line: 0,
            full_at: None,
            source_full_at: BTreeMap::new(),
            evicted_full_at: BTreeMap::new(),
        }
    }

    /// Decides about a new connection.
    pub(super) fn call(&mut self, now: Instant, address: IpAddr) -> Verdict {
        let source = source(address);
        if self.line >= LINE_MAX {
            return Verdict::LineIsFull;
        }
        if self.sources.get(&source).is_some_and(|count| *count >= PER_SOURCE) {
            return match self.dispensable_of(now, source) {
                Some(number) => {
                    self.leave(number);
                    self.enter(now, source, Some(number))
                }
                None => Verdict::SourceIsFull,
            };
        }
        let crowd = self.callers.len().saturating_sub(EARLY_DROP_FROM) as u64;
        if self.random.below(2 * (SLOTS - EARLY_DROP_FROM) as u64) < crowd {
            return Verdict::RandomDrop;
        }
        let instead_of = (self.callers.len() >= SLOTS).then(|| self.dispensable()).flatten();
        if let Some(number) = instead_of {
            self.leave(number);
        }
        self.enter(now, source, instead_of)
    }

    fn enter(&mut self, now: Instant, source: IpAddr, instead_of: Option<u64>) -> Verdict {
        let number = self.next;
        self.next += 1;
        let caller = Caller { source, since: now, has_spoken: false, is_in_line: false };
        self.callers.insert(number, caller);
        *self.sources.entry(source).or_insert(0) += 1;
        Verdict::Enter { number, instead_of }
    }

    /// Selects the connection to evict for another of its source: the oldest that has been silent for [`SILENT_MIN`],
    /// or else the oldest after [`GREETING_TIMEOUT_MIN`]. `None` while the eviction rate is used up.
    fn dispensable_of(&mut self, now: Instant, source: IpAddr) -> Option<u64> {
        let full_at = self.evicted_full_at.get(&source).copied();
        if !SOURCE_RATE.wait(full_at, now).is_zero() {
            return None;
        }
        let own = || self.callers.iter().filter(|(_, caller)| caller.source == source);
        let oldest =
            || own().next().filter(|(_, oldest)| now >= oldest.since + GREETING_TIMEOUT_MIN);
        let is_silent = |caller: &Caller| !caller.has_spoken && now >= caller.since + SILENT_MIN;
        let number = *own().find(|(_, caller)| is_silent(caller)).or_else(oldest)?.0;
        self.evicted_full_at.insert(source, SOURCE_RATE.taken(full_at, now));
        Some(number)
    }

    /// Selects the connection to evict when all slots are taken: the oldest silent one, or else the oldest.
    fn dispensable(&self) -> Option<u64> {
        let silent = self.callers.iter().find(|(_, caller)| !caller.has_spoken);
        silent.or_else(|| self.callers.iter().next()).map(|(number, _)| *number)
    }

    /// Records that a connection has sent its complete first message and waits for the handshake.
    pub(super) fn speaks(&mut self, number: u64) {
        if let Some(caller) = self.callers.get_mut(&number) {
            self.line += usize::from(!caller.is_in_line);
            (caller.has_spoken, caller.is_in_line) = (true, true);
        }
    }

    /// Applies the handshake rate of the source. Returns the time until the next try if the rate is used up. A source
    /// thus delays only its own handshakes.
    pub(super) fn line_up(&mut self, now: Instant, number: u64) -> Result<(), Duration> {
        let Some(caller) = self.callers.get(&number) else { return Ok(()) };
        let of_source = self.source_full_at.get(&caller.source).copied();
        ready(SOURCE_RATE.wait(of_source, now))?;
        self.source_full_at.insert(caller.source, SOURCE_RATE.taken(of_source, now));
        Ok(())
    }

    /// Applies the total handshake rate to the connection at the front of the queue.
    pub(super) fn begin(&mut self, now: Instant, number: u64) -> Result<(), Duration> {
        if !self.callers.contains_key(&number) {
            return Ok(());
        }
        self.begin_introduced(now)?;
        if let Some(caller) = self.callers.get_mut(&number) {
            self.line -= usize::from(std::mem::take(&mut caller.is_in_line));
        }
        Ok(())
    }

    /// Applies the total handshake rate to a connection through an introducer, which takes no slot here.
    pub(super) fn begin_introduced(&mut self, now: Instant) -> Result<(), Duration> {
        ready(TOTAL_RATE.wait(self.full_at, now))?;
        self.full_at = Some(TOTAL_RATE.taken(self.full_at, now));
        Ok(())
    }

    /// Removes a connection that has closed or is authenticated.
    pub(super) fn leave(&mut self, number: u64) {
        let Some(caller) = self.callers.remove(&number) else { return };
        self.line -= usize::from(caller.is_in_line);
        if let Some(count) = self.sources.get_mut(&caller.source) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&caller.source);
            }
        }
    }

    /// Current timeout of a handshake.
    fn greeting_timeout(&self) -> Duration {
        let crowd = self.callers.len().saturating_sub(CROWDED_MIN);
        let crowd = u32::try_from(crowd).unwrap_or(u32::MAX);
        let range = u32::try_from(SLOTS - CROWDED_MIN).unwrap_or(u32::MAX);
        GREETING_TIMEOUT_MAX
            - (GREETING_TIMEOUT_MAX - GREETING_TIMEOUT_MIN) * crowd.min(range) / range
    }

    /// Removes and returns connections beyond the timeout, and drops buckets that are full.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<u64> {
        self.source_full_at.retain(|_, full_at| *full_at > now);
        self.evicted_full_at.retain(|_, full_at| *full_at > now);
        let greeting_timeout = self.greeting_timeout();
        let late = self.callers.iter().filter(|(_, caller)| now >= caller.since + greeting_timeout);
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        late.iter().for_each(|number| self.leave(*number));
        late
    }
}

const fn ready(wait: Duration) -> Result<(), Duration> {
    if wait.is_zero() { Ok(()) } else { Err(wait) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0A00_0000 + number).into()
    }

    fn millis(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// A door with this many silent connections from as many sources.
    fn crowded(now: Instant, callers: usize) -> Admission {
        let mut admission = Admission::new(1);
        let mut address = 0;
        while admission.callers.len() < callers {
            address += 1;
            admission.call(now, v4(address));
        }
        admission
    }

    #[test]
    fn a_source_has_few_slots_and_takes_none_from_other_sources() {
        let now = Instant::now();
        let mut admission = Admission::new(1);
        for number in 0..PER_SOURCE as u64 {
            assert_eq!(admission.call(now, v4(1)), Verdict::Enter { number, instead_of: None });
        }
        (0..PER_SOURCE as u64).for_each(|number| admission.speaks(number));
        for _ in 0..1000 {
            assert_eq!(admission.call(now, v4(1)), Verdict::SourceIsFull);
        }
        assert!(matches!(admission.call(now, v4(2)), Verdict::Enter { .. }));
        admission.leave(3);
        assert!(matches!(admission.call(now, v4(1)), Verdict::Enter { .. }));
    }

    #[test]
    fn the_oldest_silent_connection_of_a_full_source_is_evicted() {
        let mut now = Instant::now();
        let mut admission = Admission::new(1);
        let stranger = admission.call(now, v4(2));
        assert_eq!(stranger, Verdict::Enter { number: 0, instead_of: None });
        for _ in 0..PER_SOURCE {
            admission.call(now, v4(1));
        }
        admission.speaks(1);
        assert_eq!(admission.call(now, v4(1)), Verdict::SourceIsFull, "they may be about to speak");
        now += SILENT_MIN;
        let evicted = |admission: &mut Admission, now| match admission.call(now, v4(1)) {
            Verdict::Enter { instead_of, .. } => instead_of,
            _ => None,
        };
        assert_eq!(
            evicted(&mut admission, now),
            Some(2),
            "1 has spoken, and 0 is of another source"
        );
        assert_eq!(admission.sources[&v4(1)], PER_SOURCE);
        let gone = (0..1000).filter_map(|_| evicted(&mut admission, now)).count();
        assert_eq!(gone, PER_SOURCE - 2, "all that were silent for long enough");
        // All have sent their first message: the oldest is evicted, but not before the shortest timeout.
        let numbers: Vec<u64> =
            admission.callers.keys().copied().filter(|number| *number > 0).collect();
        numbers.iter().for_each(|number| admission.speaks(*number));
        now += GREETING_TIMEOUT_MIN - SILENT_MIN - millis(1);
        assert_eq!(evicted(&mut admission, now), None);
        now += millis(1);
        assert_eq!(evicted(&mut admission, now), Some(1), "the oldest");
        admission.sweep(now + Duration::from_secs(10));
        assert!(admission.evicted_full_at.is_empty());
    }

    #[test]
    fn an_honest_client_gets_in_although_its_address_is_full() {
        let mut now = Instant::now();
        let (mut admission, mut random) = (Admission::new(3), SeededRandom::new(5));
        let (mut honest, mut served) = (None, 0);
        for ms in 0..20_000_u32 {
            // A silent connection each millisecond. An honest one tries about each 10 ms, sends at once and needs 200
            // ms.
            now += millis(1);
            admission.sweep(now);
            // Random order of the two within this millisecond.
            let is_late = random.below(2) == 0;
            if is_late {
                admission.call(now, v4(1));
            }
            match honest {
                Some((number, until)) if ms == until => {
                    assert!(admission.callers.contains_key(&number), "nobody evicts it");
                    admission.leave(number);
                    (honest, served) = (None, served + 1);
                }
                None if random.below(10) == 0 => {
                    if let Verdict::Enter { number, .. } = admission.call(now, v4(1)) {
                        admission.speaks(number);
                        honest = Some((number, ms + 200));
                    }
                }
                _ => {}
            }
            if !is_late {
                admission.call(now, v4(1));
            }
        }
        assert!(served > 20, "{served}: one a second");
    }

    #[test]
    fn new_connections_are_refused_while_many_wait_for_a_handshake() {
        let now = Instant::now();
        let mut admission = Admission::new(1);
        let mut numbers = Vec::new();
        for address in 0..1000 {
            match admission.call(now, v4(address)) {
                Verdict::Enter { number, .. } => {
                    admission.speaks(number);
                    admission.speaks(number);
                    numbers.push(number);
                }
                verdict => assert_eq!(verdict, Verdict::LineIsFull),
            }
        }
        assert_eq!(numbers.len(), LINE_MAX);
        admission.begin(now, numbers[0]).unwrap();
        admission.leave(numbers[1]);
        for address in [2000, 2001] {
            assert!(matches!(admission.call(now, v4(address)), Verdict::Enter { .. }));
        }
        numbers.iter().for_each(|number| admission.leave(*number));
        assert_eq!(admission.line, 0);
    }

    #[test]
    fn the_handshake_timeout_shrinks_as_slots_fill() {
        let now = Instant::now();
        let mut admission = crowded(now, 10);
        assert_eq!(admission.greeting_timeout(), GREETING_TIMEOUT_MAX);
        assert!(admission.sweep(now + millis(9_999)).is_empty());
        assert_eq!(admission.sweep(now + millis(10_000)).len(), 10);
        assert!(admission.callers.is_empty() && admission.sources.is_empty());
        let mut admission = crowded(now, SLOTS);
        assert_eq!(admission.greeting_timeout(), GREETING_TIMEOUT_MIN);
        assert!(admission.sweep(now + millis(1_999)).is_empty());
        assert_eq!(admission.sweep(now + millis(2_000)).len(), SLOTS);
        let half = crowded(now, (SLOTS + CROWDED_MIN) / 2).greeting_timeout();
        assert_eq!(half, (GREETING_TIMEOUT_MAX + GREETING_TIMEOUT_MIN) / 2);
    }

    #[test]
    fn at_capacity_the_oldest_silent_connection_is_evicted() {
        let now = Instant::now();
        let mut admission = crowded(now, SLOTS);
        let oldest = *admission.callers.keys().next().unwrap();
        admission.speaks(oldest);
        let (mut entered, mut dropped, mut gone) = (0, 0, Vec::new());
        for newcomer in 0..1000 {
            match admission.call(now, v4(0x1_0000 + newcomer)) {
                Verdict::Enter { instead_of, .. } => {
                    entered += 1;
                    gone.extend(instead_of);
                }
                Verdict::RandomDrop => dropped += 1,
                other => panic!("each has a source of its own: {other:?}"),
            }
            assert_eq!(admission.callers.len(), SLOTS);
        }
        assert!((400..600).contains(&dropped), "{dropped}");
        assert_eq!(entered, gone.len());
        assert!(gone.is_sorted(), "oldest first");
        assert!(!gone.contains(&oldest), "it has spoken");
    }

    #[test]
    fn no_connection_is_randomly_refused_while_half_the_slots_are_free() {
        let now = Instant::now();
        let mut admission = Admission::new(7);
        for number in 0..u32::try_from(EARLY_DROP_FROM).unwrap() {
            assert!(matches!(
                admission.call(now, v4(number)),
                Verdict::Enter { instead_of: None, .. }
            ));
        }
    }

    #[test]
    fn an_honest_client_gets_in_during_a_flood_of_silent_connections() {
        for sources in [1, 5_000] {
            let mut now = Instant::now();
            let mut admission = Admission::new(3);
            let mut waited = Vec::new();
            for round in 0..20_000_u32 {
                // A thousand per second, for 20 s.
                now += millis(1);
                admission.sweep(now);
                admission.call(now, v4(round % sources));
                if round % 500 == 499 {
                    // The honest connector retries each 50 ms at least, and needs 200 ms to authenticate.
                    let mut tries = 0;
                    let number = loop {
                        tries += 1;
                        match admission.call(now, v4(0x10_0000 + round)) {
                            Verdict::Enter { number, .. } => break number,
                            _ => assert!(tries < 20),
                        }
                    };
                    admission.speaks(number);
                    waited.push(tries);
                    admission.leave(number);
                }
            }
            let mean = waited.iter().sum::<u32>() as f64 / waited.len() as f64;
            assert!(mean < 4.0, "{sources} sources: {mean} tries");
        }
    }

    #[test]
    fn handshakes_are_rate_limited_per_source_and_in_total() {
        let mut now = Instant::now();
        let mut admission = Admission::new(1);
        let mut numbers = Vec::new();
        for address in 0..100 {
            match admission.call(now, v4(address)) {
                Verdict::Enter { number, .. } => numbers.push(number),
                other => panic!("{other:?}"),
            }
        }
        let begun = |admission: &mut Admission, now, numbers: &[u64]| {
            let tries = numbers.iter().cycle().take(10_000);
            let mut both =
                |number| admission.line_up(now, number).and_then(|()| admission.begin(now, number));
            tries.map(|number| both(*number)).filter(Result::is_ok).count()
        };
        assert_eq!(begun(&mut admission, now, &numbers[..1]), 64, "one source at once");
        assert_eq!(admission.line_up(now, numbers[0]), Err(millis(4)));
        assert_eq!(begun(&mut admission, now, &numbers), 256 - 64, "all sources at once");
        now += Duration::from_secs(1);
        assert_eq!(begun(&mut admission, now, &numbers[..1]), 64);
        now += millis(100);
        assert_eq!(begun(&mut admission, now, &numbers[..1]), 25, "250 a second");
        admission.sweep(now + Duration::from_secs(10));
        assert!(admission.source_full_at.is_empty());
    }
}
