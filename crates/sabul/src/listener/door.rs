//! Who may be saying who it is, how long, and who has to make room: callers without a proof yet.
//!
//! A caller without a proof costs little, so there is room for many; few of them may come from one
//! source, and the fuller it gets, the less patience there is and the more newcomers are turned
//! away by chance. Where it is full, the caller that has said nothing for the longest makes room.
//! So whoever calls from elsewhere gets in while a host, or a thousand, fill the room with silence. Where
//! the places of a source are taken, its own oldest silent caller makes room, at a bounded rate, so that
//! one host does not shut out the others behind its address.
//! Handshakes cost processor time, so their rate is bounded for each source and in all. Callers that have
//! spoken wait in line for a handshake; while that line is long, newcomers are turned away.
//!
//! Source:      ours; the early drop after OpenSSH's `MaxStartups`, the bounds of a source after its
//!              `PerSourceMaxStartups`; the rates are token buckets.
//! Invariants:  as many callers as the sources' counts add up to, never more than `SLOTS`.
//! Not here:    sockets and tasks; time is an argument.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use sabul_units::{Random, SeededRandom};
use tokio::time::Instant;

use crate::source::source;

/// Callers that may be greeting at once; each is a socket and a few kilobytes.
pub(super) const SLOTS: usize = 1024;
/// How many of them may come from one source: an IPv4 address or an IPv6 network of 64 bits.
pub(super) const PER_SOURCE: usize = 8;
/// From so many callers on, newcomers are turned away by chance: none at first, every other one
/// when full.
const EARLY_DROP_FROM: usize = SLOTS / 2;
/// How long a caller may take to say who it is while there is room ...
const PATIENCE_MAX: Duration = Duration::from_secs(10);
/// ... and when there is none. In between it falls in a straight line.
const PATIENCE_MIN: Duration = Duration::from_secs(2);
/// Ours: how long a caller must have said nothing before it makes room for another of its source. Honest callers speak within
/// an RTT; without this time, 64 callers that came at once from one address shut each other out.
const SILENT_MIN: Duration = Duration::from_millis(250);
/// Patience falls from so many callers on.
const PATIENT_UNTIL: usize = SLOTS / 8;
/// Handshakes for one source: the interval between them, and how many may come at once. Also the rate at
/// which callers of one source make room for others of that source.
const SOURCE_RATE: Rate = Rate { interval: Duration::from_millis(4), burst: 64 };
/// Handshakes in all.
const TOTAL_RATE: Rate = Rate { interval: Duration::from_millis(2), burst: 256 };
/// Ours: callers that have spoken and wait for a handshake, a quarter of a second's work. More than the burst
/// never wait long.
const LINE_MAX: usize = 128;

/// A rate of handshakes, or of callers that make room.
#[derive(Clone, Copy, Debug)]
struct Rate {
    interval: Duration,
    burst: u32,
}

impl Rate {
    /// How long until one more may begin. `full_at` is when the bucket will be full again.
    fn wait(self, full_at: Option<Instant>, now: Instant) -> Duration {
        let full_at = full_at.unwrap_or(now).max(now);
        (full_at + self.interval).saturating_duration_since(now + self.interval * self.burst)
    }

    /// When the bucket will be full again, once one more has begun.
    fn taken(self, full_at: Option<Instant>, now: Instant) -> Instant {
        full_at.unwrap_or(now).max(now) + self.interval
    }
}

/// A caller at the door.
#[derive(Clone, Copy, Debug)]
struct Caller {
    source: IpAddr,
    since: Instant,
    has_spoken: bool,
    is_in_line: bool,
}

/// What becomes of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may greet, under this number.
    Enter {
        number: u64,
        /// This caller has to go.
        instead_of: Option<u64>,
    },
    /// Too many others from its source are greeting.
    SourceIsFull,
    /// Bad luck, since there are many callers.
    Unlucky,
    /// Too many callers wait for a handshake.
    LineIsFull,
}

/// The callers that are greeting.
#[derive(Debug)]
pub(super) struct Door {
    random: SeededRandom,
    callers: BTreeMap<u64, Caller>,
    sources: BTreeMap<IpAddr, usize>,
    next: u64,
    /// How many wait for a handshake.
    line: usize,
    /// When the buckets of handshakes will be full again; those of sources only while they are not.
    full_at: Option<Instant>,
    source_full_at: BTreeMap<IpAddr, Instant>,
    /// The same of callers that made room for others of their source.
    evicted_full_at: BTreeMap<IpAddr, Instant>,
}

impl Door {
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

    /// Somebody calls.
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
            return Verdict::Unlucky;
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

    /// Which caller makes room for another of its source: the oldest that has said nothing for [`SILENT_MIN`], or else
    /// the oldest where it has had the least patience. None while the rate of that is used up.
    fn dispensable_of(&mut self, now: Instant, source: IpAddr) -> Option<u64> {
        let full_at = self.evicted_full_at.get(&source).copied();
        if !SOURCE_RATE.wait(full_at, now).is_zero() {
            return None;
        }
        let own = || self.callers.iter().filter(|(_, caller)| caller.source == source);
        let oldest = || own().next().filter(|(_, oldest)| now >= oldest.since + PATIENCE_MIN);
        let is_silent = |caller: &Caller| !caller.has_spoken && now >= caller.since + SILENT_MIN;
        let number = *own().find(|(_, caller)| is_silent(caller)).or_else(oldest)?.0;
        self.evicted_full_at.insert(source, SOURCE_RATE.taken(full_at, now));
        Some(number)
    }

    /// Who goes first: the oldest that has said nothing, or else the oldest.
    fn dispensable(&self) -> Option<u64> {
        let silent = self.callers.iter().find(|(_, caller)| !caller.has_spoken);
        silent.or_else(|| self.callers.iter().next()).map(|(number, _)| *number)
    }

    /// A caller has sent the first message of its handshake, whole, and waits in line for the listener's part.
    pub(super) fn speaks(&mut self, number: u64) {
        if let Some(caller) = self.callers.get_mut(&number) {
            self.line += usize::from(!caller.is_in_line);
            (caller.has_spoken, caller.is_in_line) = (true, true);
        }
    }

    /// Whether a handshake with this caller may stand at the front of the line, or how long to wait before asking
    /// again: the rate of its source, so that a source holds up nobody but itself.
    pub(super) fn line_up(&mut self, now: Instant, number: u64) -> Result<(), Duration> {
        let Some(caller) = self.callers.get(&number) else { return Ok(()) };
        let of_source = self.source_full_at.get(&caller.source).copied();
        ready(SOURCE_RATE.wait(of_source, now))?;
        self.source_full_at.insert(caller.source, SOURCE_RATE.taken(of_source, now));
        Ok(())
    }

    /// The same of the one at the front: the rate in all.
    pub(super) fn begin(&mut self, now: Instant, number: u64) -> Result<(), Duration> {
        let Some(caller) = self.callers.get_mut(&number) else { return Ok(()) };
        ready(TOTAL_RATE.wait(self.full_at, now))?;
        self.line -= usize::from(std::mem::take(&mut caller.is_in_line));
        self.full_at = Some(TOTAL_RATE.taken(self.full_at, now));
        Ok(())
    }

    /// A caller is no longer here, or has proven who it is.
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

    /// How long a caller may take now.
    fn patience(&self) -> Duration {
        let crowd = self.callers.len().saturating_sub(PATIENT_UNTIL);
        let crowd = u32::try_from(crowd).unwrap_or(u32::MAX);
        let range = u32::try_from(SLOTS - PATIENT_UNTIL).unwrap_or(u32::MAX);
        PATIENCE_MAX - (PATIENCE_MAX - PATIENCE_MIN) * crowd.min(range) / range
    }

    /// Takes out those who have taken too long, and forgets what no longer counts.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<u64> {
        self.source_full_at.retain(|_, full_at| *full_at > now);
        self.evicted_full_at.retain(|_, full_at| *full_at > now);
        let patience = self.patience();
        let late = self.callers.iter().filter(|(_, caller)| now >= caller.since + patience);
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        late.iter().for_each(|number| self.leave(*number));
        late
    }
}

/// No wait, or the wait.
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

    /// A door with so many silent callers of as many sources.
    fn crowded(now: Instant, callers: usize) -> Door {
        let mut door = Door::new(1);
        let mut address = 0;
        while door.callers.len() < callers {
            address += 1;
            door.call(now, v4(address));
        }
        door
    }

    #[test]
    fn a_source_has_few_places_and_takes_none_from_others() {
        let now = Instant::now();
        let mut door = Door::new(1);
        for number in 0..PER_SOURCE as u64 {
            assert_eq!(door.call(now, v4(1)), Verdict::Enter { number, instead_of: None });
        }
        (0..PER_SOURCE as u64).for_each(|number| door.speaks(number));
        for _ in 0..1000 {
            assert_eq!(door.call(now, v4(1)), Verdict::SourceIsFull);
        }
        assert!(matches!(door.call(now, v4(2)), Verdict::Enter { .. }));
        door.leave(3);
        assert!(matches!(door.call(now, v4(1)), Verdict::Enter { .. }));
    }

    #[test]
    fn the_oldest_silent_caller_of_a_full_source_makes_room_for_another_of_it() {
        let mut now = Instant::now();
        let mut door = Door::new(1);
        let stranger = door.call(now, v4(2));
        assert_eq!(stranger, Verdict::Enter { number: 0, instead_of: None });
        for _ in 0..PER_SOURCE {
            door.call(now, v4(1));
        }
        door.speaks(1);
        assert_eq!(door.call(now, v4(1)), Verdict::SourceIsFull, "they may be about to speak");
        now += SILENT_MIN;
        let evicted = |door: &mut Door, now| match door.call(now, v4(1)) {
            Verdict::Enter { instead_of, .. } => instead_of,
            _ => None,
        };
        assert_eq!(evicted(&mut door, now), Some(2), "1 has spoken, and 0 is of another source");
        assert_eq!(door.sources[&v4(1)], PER_SOURCE);
        let gone = (0..1000).filter_map(|_| evicted(&mut door, now)).count();
        assert_eq!(gone, PER_SOURCE - 2, "all that were silent for long enough");
        // All have spoken: the oldest goes, but not before the least patience.
        let numbers: Vec<u64> = door.callers.keys().copied().filter(|number| *number > 0).collect();
        numbers.iter().for_each(|number| door.speaks(*number));
        now += PATIENCE_MIN - SILENT_MIN - millis(1);
        assert_eq!(evicted(&mut door, now), None);
        now += millis(1);
        assert_eq!(evicted(&mut door, now), Some(1), "the oldest");
        door.sweep(now + Duration::from_secs(10));
        assert!(door.evicted_full_at.is_empty());
    }

    #[test]
    fn an_honest_caller_gets_in_though_others_behind_its_address_fill_its_places() {
        let mut now = Instant::now();
        let (mut door, mut random) = (Door::new(3), SeededRandom::new(5));
        let (mut honest, mut served) = (None, 0);
        for ms in 0..20_000_u32 {
            // A silent caller each millisecond; an honest one tries each 10 ms or so, speaks at once and needs 200 ms.
            now += millis(1);
            door.sweep(now);
            // Whichever of both comes first in this millisecond.
            let is_late = random.below(2) == 0;
            if is_late {
                door.call(now, v4(1));
            }
            match honest {
                Some((number, until)) if ms == until => {
                    assert!(door.callers.contains_key(&number), "nobody evicts it");
                    door.leave(number);
                    (honest, served) = (None, served + 1);
                }
                None if random.below(10) == 0 => {
                    if let Verdict::Enter { number, .. } = door.call(now, v4(1)) {
                        door.speaks(number);
                        honest = Some((number, ms + 200));
                    }
                }
                _ => {}
            }
            if !is_late {
                door.call(now, v4(1));
            }
        }
        assert!(served > 20, "{served}: one a second");
    }

    #[test]
    fn newcomers_are_turned_away_while_many_wait_for_a_handshake() {
        let now = Instant::now();
        let mut door = Door::new(1);
        let mut numbers = Vec::new();
        for address in 0..1000 {
            match door.call(now, v4(address)) {
                Verdict::Enter { number, .. } => {
                    door.speaks(number);
                    door.speaks(number);
                    numbers.push(number);
                }
                verdict => assert_eq!(verdict, Verdict::LineIsFull),
            }
        }
        assert_eq!(numbers.len(), LINE_MAX);
        door.begin(now, numbers[0]).unwrap();
        door.leave(numbers[1]);
        for address in [2000, 2001] {
            assert!(matches!(door.call(now, v4(address)), Verdict::Enter { .. }));
        }
        numbers.iter().for_each(|number| door.leave(*number));
        assert_eq!(door.line, 0);
    }

    #[test]
    fn patience_falls_as_the_places_fill() {
        let now = Instant::now();
        let mut door = crowded(now, 10);
        assert_eq!(door.patience(), PATIENCE_MAX);
        assert!(door.sweep(now + millis(9_999)).is_empty());
        assert_eq!(door.sweep(now + millis(10_000)).len(), 10);
        assert!(door.callers.is_empty() && door.sources.is_empty());
        let mut door = crowded(now, SLOTS);
        assert_eq!(door.patience(), PATIENCE_MIN);
        assert!(door.sweep(now + millis(1_999)).is_empty());
        assert_eq!(door.sweep(now + millis(2_000)).len(), SLOTS);
        let half = crowded(now, (SLOTS + PATIENT_UNTIL) / 2).patience();
        assert_eq!(half, (PATIENCE_MAX + PATIENCE_MIN) / 2);
    }

    #[test]
    fn when_it_is_full_the_oldest_silent_caller_makes_room() {
        let now = Instant::now();
        let mut door = crowded(now, SLOTS);
        let oldest = *door.callers.keys().next().unwrap();
        door.speaks(oldest);
        let (mut entered, mut unlucky, mut gone) = (0, 0, Vec::new());
        for newcomer in 0..1000 {
            match door.call(now, v4(0x1_0000 + newcomer)) {
                Verdict::Enter { instead_of, .. } => {
                    entered += 1;
                    gone.extend(instead_of);
                }
                Verdict::Unlucky => unlucky += 1,
                other => panic!("each has a source of its own: {other:?}"),
            }
            assert_eq!(door.callers.len(), SLOTS);
        }
        assert!((400..600).contains(&unlucky), "{unlucky}");
        assert_eq!(entered, gone.len());
        assert!(gone.is_sorted(), "oldest first");
        assert!(!gone.contains(&oldest), "it has spoken");
    }

    #[test]
    fn nobody_is_turned_away_by_chance_while_half_is_free() {
        let now = Instant::now();
        let mut door = Door::new(7);
        for number in 0..u32::try_from(EARLY_DROP_FROM).unwrap() {
            assert!(matches!(door.call(now, v4(number)), Verdict::Enter { instead_of: None, .. }));
        }
    }

    #[test]
    fn an_honest_caller_gets_in_while_silent_ones_come_from_one_or_many_sources() {
        for sources in [1, 5_000] {
            let mut now = Instant::now();
            let mut door = Door::new(3);
            let mut waited = Vec::new();
            for round in 0..20_000_u32 {
                // A thousand a second, for 20 s.
                now += millis(1);
                door.sweep(now);
                door.call(now, v4(round % sources));
                if round % 500 == 499 {
                    // It calls, tries again each 50 ms at least, and needs 200 ms to prove itself.
                    let mut tries = 0;
                    let number = loop {
                        tries += 1;
                        match door.call(now, v4(0x10_0000 + round)) {
                            Verdict::Enter { number, .. } => break number,
                            _ => assert!(tries < 20),
                        }
                    };
                    door.speaks(number);
                    waited.push(tries);
                    door.leave(number);
                }
            }
            let mean = waited.iter().sum::<u32>() as f64 / waited.len() as f64;
            assert!(mean < 4.0, "{sources} sources: {mean} tries");
        }
    }

    #[test]
    fn handshakes_have_a_rate_for_each_source_and_in_all() {
        let mut now = Instant::now();
        let mut door = Door::new(1);
        let mut numbers = Vec::new();
        for address in 0..100 {
            match door.call(now, v4(address)) {
                Verdict::Enter { number, .. } => numbers.push(number),
                other => panic!("{other:?}"),
            }
        }
        let begun = |door: &mut Door, now, numbers: &[u64]| {
            let tries = numbers.iter().cycle().take(10_000);
            let mut both =
                |number| door.line_up(now, number).and_then(|()| door.begin(now, number));
            tries.map(|number| both(*number)).filter(Result::is_ok).count()
        };
        assert_eq!(begun(&mut door, now, &numbers[..1]), 64, "one source at once");
        assert_eq!(door.line_up(now, numbers[0]), Err(millis(4)));
        assert_eq!(begun(&mut door, now, &numbers), 256 - 64, "all sources at once");
        now += Duration::from_secs(1);
        assert_eq!(begun(&mut door, now, &numbers[..1]), 64);
        now += millis(100);
        assert_eq!(begun(&mut door, now, &numbers[..1]), 25, "250 a second");
        door.sweep(now + Duration::from_secs(10));
        assert!(door.source_full_at.is_empty());
    }
}
