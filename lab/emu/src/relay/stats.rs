//! Statistics of a relay and its path.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sabul_net::LinkStats;
use sabul_units::Span;

use crate::lateness::Lateness;

/// Statistics of a relay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayStats {
    /// The link from connector to listener.
    pub forward: LinkStats,
    /// The link from listener to connector.
    pub back: LinkStats,
    /// Time since the start.
    pub elapsed: Span,
    /// Processor time of the relay's thread, in seconds.
    pub cpu_seconds: f64,
    /// Lateness relative to the path's schedule. If the relay was late by a large part of the
    /// path's delay, results reflect the machine, not the path.
    pub lateness: Lateness,
    /// Datagrams dropped because UDP is blocked.
    pub udp_blocked: u64,
    /// Datagrams that the kernel dropped because the relay read too slowly: such a run is invalid.
    /// (Linux only; zero elsewhere.)
    pub socket_drops: u64,
    /// Datagrams dropped at the relay's own memory limit: such a run is invalid.
    pub memory_drops: u64,
    /// Datagrams that the kernel refused to send, for example because the port is closed.
    pub send_failures: u64,
    /// Client addresses seen; an address that returns after eviction counts again.
    pub udp_flows: u64,
    /// TCP connections accepted.
    pub tcp_connections: u64,
}

/// The latest report of the relay's thread.
#[derive(Debug, Default)]
pub(super) struct Shared {
    report: Mutex<Report>,
}

#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) stats: RelayStats,
    /// Inode numbers of the relay's UDP sockets.
    pub(super) sockets: BTreeSet<u64>,
}

impl Shared {
    /// Returns the report for writing.
    pub(super) fn lock(&self) -> MutexGuard<'_, Report> {
        // Plain numbers remain valid after a panic of the other side.
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> RelayStats {
        let (mut stats, sockets) = {
            let report = self.lock();
            (report.stats.clone(), report.sockets.clone())
        };
        stats.socket_drops = ["udp", "udp6"]
            .iter()
            .filter_map(|table| {
                std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).ok()
            })
            .map(|table| drops_of(&sockets, &table))
            .sum();
        stats
    }
}

/// Sums the drop counters of the given sockets in the kernel's table of UDP sockets. Columns: slot,
/// addresses, state, queues, timers, timeouts, user, timeout, inode, …, drops.
fn drops_of(sockets: &BTreeSet<u64>, table: &str) -> u64 {
    const INODE: usize = 9;
    let drops = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let inode = columns.get(INODE)?.parse().ok()?;
        let drops = columns.last()?.parse::<u64>().ok()?;
        sockets.contains(&inode).then_some(drops)
    };
    table.lines().skip(1).filter_map(drops).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_drops_of_the_relays_sockets_count() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\
                        uid  timeout inode ref pointer drops\n\
            1: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 \
                        77 2 0000000000000000 5\n\
            2: 0100007F:0036 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 \
                        78 2 0000000000000000 9\n\
            odd\n";
        assert_eq!(drops_of(&BTreeSet::from([77]), table), 5);
        assert_eq!(drops_of(&BTreeSet::from([77, 78]), table), 14);
        assert_eq!(drops_of(&BTreeSet::new(), table), 0);
    }
}
