//! What earlier transfers saw of the paths to peers, for the next one to begin with.
//!
//! Source:      [CAREFUL-RESUME], of which this keeps the saved parameters and their lifetime.
//! Model:       the newest facts of each peer's address, for at most [`AGE_MAX`]. They are a hint: the next flow
//!              tries half of it after a first round trip that was like the remembered one, and measures.
//! Bounds:      [`PEERS_MAX`] peers; the ones heard of longest ago go first.
//! Not here:    what a controller makes of it (`sabul-cc`); files (the program's).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use sabul_cc::PathFacts;
use sabul_units::{Rate, Span};

/// Ours: as many as a busy server meets in a while; each takes about 100 bytes.
const PEERS_MAX: usize = 4096;
/// Ours: links and who uses them change from day to day.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A path as a transfer saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownPath {
    /// What arrived at best in the last seconds of that transfer, in bit/s of IP packets.
    pub rate_bps: u64,
    /// Its smallest round trip.
    pub rtt: Duration,
    /// When it ended.
    pub seen: SystemTime,
}

/// The paths to peers that this process has sent to; clones share it.
///
/// A transfer to an address that is known starts faster: half of what the path carried leaves after the first round
/// trip, unless that was unlike the one of then. For controllers that remember paths, as `sabul2026`.
#[derive(Clone, Debug, Default)]
pub struct PathMemory {
    paths: Arc<Mutex<BTreeMap<IpAddr, KnownPath>>>,
}

impl PathMemory {
    /// All that is known and not too old, in the order of addresses.
    pub fn paths(&self) -> Vec<(IpAddr, KnownPath)> {
        let now = SystemTime::now();
        let paths = self.lock();
        paths
            .iter()
            .filter(|(_, path)| is_fresh(path, now))
            .map(|(peer, path)| (*peer, *path))
            .collect()
    }

    /// The path to a peer was seen like that. What was seen earlier than what is known already changes nothing, nor does
    /// what is too old or of the future, nor what never leaves this machine: there a round trip is not worth it.
    pub fn note(&self, peer: IpAddr, path: KnownPath) {
        let peer = peer.to_canonical();
        if peer.is_loopback() || !is_fresh(&path, SystemTime::now()) {
            return;
        }
        let mut paths = self.lock();
        if paths.get(&peer).is_some_and(|known| known.seen > path.seen) {
            return;
        }
        paths.insert(peer, path);
        while paths.len() > PEERS_MAX {
            let oldest = paths.iter().min_by_key(|(_, path)| path.seen).map(|(peer, _)| *peer);
            oldest.and_then(|peer| paths.remove(&peer));
        }
    }

    /// What concerns one peer.
    pub(crate) fn of(&self, peer: IpAddr) -> PathTo {
        PathTo { memory: self.clone(), peer: peer.to_canonical() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, KnownPath>> {
        // A panic elsewhere leaves a plain map behind, which stays usable.
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Not from the future, whoever's clock was wrong, and not too long ago.
fn is_fresh(path: &KnownPath, now: SystemTime) -> bool {
    now.duration_since(path.seen).is_ok_and(|age| age <= AGE_MAX)
}

/// The path to one peer.
#[derive(Clone, Debug)]
pub(crate) struct PathTo {
    memory: PathMemory,
    peer: IpAddr,
}

impl PathTo {
    /// What to begin with.
    pub(crate) fn facts(&self) -> Option<PathFacts> {
        let known = *self.memory.lock().get(&self.peer)?;
        is_fresh(&known, SystemTime::now())
            .then(|| PathFacts { rate: Rate(known.rate_bps), rtt: Span::from(known.rtt) })
    }

    /// A transfer saw this.
    pub(crate) fn note(&self, facts: PathFacts) {
        let PathFacts { rate, rtt } = facts;
        let path = KnownPath { rate_bps: rate.0, rtt: rtt.into(), seen: SystemTime::now() };
        self.memory.note(self.peer, path);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn seen(rate_bps: u64, ago: Duration) -> KnownPath {
        KnownPath { rate_bps, rtt: Duration::from_millis(40), seen: SystemTime::now() - ago }
    }

    #[test]
    fn a_path_is_known_for_a_day_and_by_either_form_of_its_address() {
        let memory = PathMemory::default();
        let four = Ipv4Addr::new(192, 0, 2, 7);
        memory.note(four.to_ipv6_mapped().into(), seen(5, Duration::from_secs(60)));
        assert_eq!(memory.of(four.into()).facts().unwrap().rate, Rate(5));
        memory.note(Ipv4Addr::LOCALHOST.into(), seen(5, Duration::from_secs(60)));
        assert_eq!(memory.of(Ipv4Addr::LOCALHOST.into()).facts(), None);
        memory.note(four.into(), seen(6, Duration::from_secs(120)));
        assert_eq!(memory.of(four.into()).facts().unwrap().rate, Rate(5), "older news");
        let old = PathMemory::default();
        old.note(four.into(), seen(5, AGE_MAX + Duration::from_secs(60)));
        let clockless = Ipv4Addr::new(192, 0, 2, 8).into();
        old.note(
            clockless,
            KnownPath { seen: SystemTime::now() + AGE_MAX, ..seen(5, Duration::ZERO) },
        );
        assert_eq!(old.of(four.into()).facts(), None);
        assert_eq!(old.paths(), vec![], "neither the old one nor that of the future");
        old.note(clockless, seen(7, Duration::from_secs(1)));
        assert_eq!(old.of(clockless).facts().unwrap().rate, Rate(7), "which is in nobody's way");
    }

    #[test]
    fn the_peer_heard_of_longest_ago_makes_room() {
        let memory = PathMemory::default();
        for n in 0..=PEERS_MAX {
            let peer = Ipv4Addr::from_bits(u32::try_from(n).unwrap());
            memory.note(peer.into(), seen(5, Duration::from_secs(n as u64)));
        }
        let last = Ipv4Addr::from_bits(u32::try_from(PEERS_MAX).unwrap());
        assert_eq!(memory.paths().len(), PEERS_MAX);
        assert_eq!(memory.of(last.into()).facts(), None);
        assert!(memory.of(Ipv4Addr::from_bits(0).into()).facts().is_some());
    }
}
