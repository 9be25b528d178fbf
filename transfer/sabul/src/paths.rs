//! Cache of path parameters (rate, RTT, goodput by number of channels) of earlier transfers, used for the next one.
//!
//! Source:      [CAREFUL-RESUME], of which this keeps the saved parameters and their lifetime.
//! Model:       the newest parameters per peer address, for at most [`AGE_MAX`]. They are a hint: after a first RTT
//!              like the stored one, the next flow tries half of the stored rate, and measures.
//! Bounds:      [`PEERS_MAX`] peers; the oldest entries are evicted first.
//! Not here:    use of the parameters by a controller (`sabul-cc`); storage in files (the program's).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use sabul_cc::PathFacts;
use sabul_units::{Rate, Span};

use crate::channels::{ChannelRates, MeasuredChannels};
use crate::lock::lock;

/// Ours: the number of peers that a busy server has in a while; each takes about 100 bytes.
const PEERS_MAX: usize = 4096;
/// Ours: links and their load change from day to day.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Path parameters measured by a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownPath {
    /// Highest delivery rate in the last seconds of the transfer, of whole IP packets.
    pub rate: Rate,
    /// Smallest RTT.
    pub rtt: Duration,
    /// End of the transfer.
    pub seen: SystemTime,
    /// Results by number of channels.
    channels: ChannelRates,
}

impl KnownPath {
    /// Makes the parameters of a path that a transfer measured until `seen`.
    pub const fn new(rate: Rate, rtt: Duration, seen: SystemTime) -> Self {
        Self { rate, rtt, seen, channels: ChannelRates::NONE }
    }

    /// Returns these parameters with the result of a transfer over several channels, or over one.
    #[must_use]
    pub fn with_channels(mut self, measured: MeasuredChannels) -> Self {
        self.channels.note(measured);
        self
    }

    /// Returns the results of the last transfers, at most one for each number of channels.
    pub fn channels(&self) -> impl Iterator<Item = MeasuredChannels> {
        self.channels.all()
    }
}

/// Cache of the paths to peers to which this process has sent; clones share the cache.
///
/// A transfer to a known address starts faster. After the first RTT it sends at half of the stored rate, unless this
/// RTT differs from the stored one. Used by controllers that support it, such as `sabul2026`.
#[derive(Clone, Debug, Default)]
pub struct PathMemory {
    paths: Arc<Mutex<BTreeMap<IpAddr, KnownPath>>>,
}

impl PathMemory {
    /// Returns all entries that are not too old, in the order of addresses.
    pub fn paths(&self) -> Vec<(IpAddr, KnownPath)> {
        let now = SystemTime::now();
        let paths = self.lock();
        paths
            .iter()
            .filter(|(_, path)| is_fresh(path, now))
            .map(|(peer, path)| (*peer, *path))
            .collect()
    }

    /// Stores the parameters of the path to a peer. Ignores parameters older than the stored ones, older than the
    /// lifetime, or from the future. Ignores loopback addresses: their RTT is too small to matter.
    pub fn note(&self, peer: IpAddr, path: KnownPath) {
        let peer = peer.to_canonical();
        if peer.is_loopback() || !is_fresh(&path, SystemTime::now()) {
            return;
        }
        let mut paths = self.lock();
        let known = paths.get(&peer).copied();
        if known.is_some_and(|known| known.seen > path.seen) {
            return;
        }
        // A channel measures rate and RTT only.
        let has_channels = path.channels().next().is_some();
        let of = if has_channels { Some(path) } else { known };
        let channels = of.map(|of| of.channels).unwrap_or_default();
        paths.insert(peer, KnownPath { channels, ..path });
        while paths.len() > PEERS_MAX {
            let oldest = paths.iter().min_by_key(|(_, path)| path.seen).map(|(peer, _)| *peer);
            oldest.and_then(|peer| paths.remove(&peer));
        }
    }

    /// Stores the result of a transfer over a known path.
    pub(crate) fn note_channels(&self, peer: IpAddr, measured: MeasuredChannels) {
        if let Some(path) = self.lock().get_mut(&peer.to_canonical()) {
            path.channels.note(measured);
        }
    }

    /// Returns the results of transfers to a peer, by number of channels.
    pub(crate) fn channels(&self, peer: IpAddr) -> ChannelRates {
        self.lock().get(&peer.to_canonical()).map(|path| path.channels).unwrap_or_default()
    }

    /// Returns the view of one peer.
    pub(crate) fn of(&self, peer: IpAddr) -> PathTo {
        PathTo { memory: self.clone(), peer: peer.to_canonical() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, KnownPath>> {
        // After a panic elsewhere the map is still valid.
        lock(&self.paths)
    }
}

/// Whether the entry is neither from the future (a wrong clock) nor too old.
fn is_fresh(path: &KnownPath, now: SystemTime) -> bool {
    now.duration_since(path.seen).is_ok_and(|age| age <= AGE_MAX)
}

/// View of the cache for one peer.
#[derive(Clone, Debug)]
pub(crate) struct PathTo {
    memory: PathMemory,
    peer: IpAddr,
}

impl PathTo {
    /// Returns the stored parameters to start with.
    pub(crate) fn facts(&self) -> Option<PathFacts> {
        let known = *self.memory.lock().get(&self.peer)?;
        is_fresh(&known, SystemTime::now())
            .then(|| PathFacts { rate: known.rate, rtt: Span::from(known.rtt) })
    }

    /// Stores the parameters measured by a transfer.
    pub(crate) fn note(&self, facts: PathFacts) {
        let PathFacts { rate, rtt } = facts;
        let path = KnownPath::new(rate, rtt.into(), SystemTime::now());
        self.memory.note(self.peer, path);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn seen(rate_bps: u64, ago: Duration) -> KnownPath {
        KnownPath::new(Rate(rate_bps), Duration::from_millis(40), SystemTime::now() - ago)
    }

    #[test]
    fn a_path_is_remembered_for_a_day_under_both_address_forms() {
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
    fn results_by_number_of_channels_stay_with_newer_rates() {
        let memory = PathMemory::default();
        let peer = Ipv4Addr::new(192, 0, 2, 7).into();
        let measured = MeasuredChannels::new(1, Rate(9), true, SystemTime::now());
        memory.note_channels(peer, measured);
        assert_eq!(memory.paths(), [], "the path is not known");
        memory.note(peer, seen(5, Duration::from_secs(60)));
        memory.note_channels(peer, measured);
        memory.note(peer, seen(6, Duration::ZERO));
        assert_eq!(memory.of(peer).facts().unwrap().rate, Rate(6));
        assert_eq!(memory.channels(peer).all().collect::<Vec<_>>(), [measured]);
        let other = MeasuredChannels::new(2, Rate(8), false, SystemTime::now());
        memory.note(peer, seen(7, Duration::ZERO).with_channels(other));
        assert_eq!(memory.channels(peer).all().collect::<Vec<_>>(), [other]);
    }

    #[test]
    fn the_least_recently_seen_peer_is_evicted() {
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
