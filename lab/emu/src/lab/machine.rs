//! Checks whether a run's results reflect the path or this machine.

use std::time::Duration;

use sabul_run::scenario::Scenario;
use sabul_units::Span;

use crate::calibrate::Calibration;
use crate::error::LabError;
use crate::flow::Ends;
use crate::router::RouterSnapshot;

/// Ours: 99 % of packets have to leave within this of their due time; beyond that a run was
/// disturbed.
const LATE: Span = Span::from_micros(100);
/// A p99 lateness beyond 1/50 of the RTT (and beyond [`LATE_FLOOR`]) changes the path: the
/// tolerance of the calibration.
const LATE_SHARE: u64 = 50;
/// See [`LATE_SHARE`].
const LATE_FLOOR: Span = Span::from_micros(300);
/// Ours: a router that did not run for this long was starved, because no busy program sleeps 20 ms.
const PAUSE: Span = Span::from_millis(20);
/// Ours: share of processor time that other virtual machines may have taken.
const STEAL: f64 = 0.02;
/// Ours: with a smaller idle share, processors may limit the flows.
const IDLE: f64 = 0.05;

/// Processor times of the whole machine, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Machine {
    total: u64,
    idle: u64,
    steal: u64,
}

/// Shares of the processors' time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Usage {
    idle: f64,
    steal: f64,
}

impl Machine {
    /// Returns the current times; zeros where the system does not report times.
    pub(super) fn now() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::of(&text).unwrap_or_default()
    }

    /// `cpu user nice system idle iowait irq softirq steal guest guest_nice`, guests being part of
    /// user time.
    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> = line.split_whitespace().map_while(|time| time.parse().ok()).collect();
        let at = |index: usize| times.get(index).copied().unwrap_or(0);
        Some(Self { total: times.iter().take(8).sum(), idle: at(3) + at(4), steal: at(7) })
    }

    /// Returns the usage since then.
    pub(super) fn used(self) -> Usage {
        Self::now().since(self)
    }

    fn since(self, earlier: Self) -> Usage {
        let total = self.total.saturating_sub(earlier.total);
        if total == 0 {
            return Usage { idle: 1.0, steal: 0.0 };
        }
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / total as f64;
        Usage { idle: share(self.idle, earlier.idle), steal: share(self.steal, earlier.steal) }
    }
}

/// Faults and remarks of a run.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) faults: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Verdict {
    pub(super) fn new(scenario: &Scenario, snapshot: &RouterSnapshot, usage: Usage) -> Self {
        let mut verdict = Self::default();
        verdict.note_lateness(shortest_rtt(scenario), snapshot);
        verdict.note_machine(usage);
        verdict
    }

    fn note_lateness(&mut self, rtt: Span, snapshot: &RouterSnapshot) {
        let late = snapshot.lateness;
        let bound = (rtt / LATE_SHARE).max(LATE_FLOOR);
        let p99 = Duration::from(late.p99);
        if late.p99 > bound {
            self.faults.push(format!(
                "the router was starved: 1 % of the packets left over {p99:?} late, and 2 % of the \
                 shortest round trip is {:?}; run it on a quieter machine or at a lower rate",
                Duration::from(bound)
            ));
        } else if late.p99 > LATE {
            self.notes.push(format!(
                "disturbed: 1 % of the packets left the path over {p99:?} late (100 µs are meant)"
            ));
        }
        if snapshot.longest_pause > PAUSE {
            self.notes.push(format!(
                "disturbed: once the router did not run for {:?}",
                Duration::from(snapshot.longest_pause)
            ));
        }
        if snapshot.refused > 0 {
            self.faults.push(format!("the hosts' devices refused {} packets", snapshot.refused));
        }
        if snapshot.malformed > 0 {
            self.notes
                .push(format!("{} frames of the hosts were no IP packets", snapshot.malformed));
        }
        if snapshot.unrecorded > 0 {
            self.notes.push(format!("the recordings lack {} packets", snapshot.unrecorded));
        }
    }

    fn note_machine(&mut self, usage: Usage) {
        if usage.steal > STEAL {
            self.faults.push(format!(
                "other guests of this machine took {:.1} % of its processors' time",
                usage.steal * 100.0
            ));
        }
        if usage.idle < IDLE {
            self.notes.push(format!(
                "the processors were idle for {:.1} % of the time only: flows may have been limited by \
                 them and not by the path",
                usage.idle * 100.0
            ));
        }
    }

    /// Adds the results of the calibrations.
    pub(super) fn note_calibrations(&mut self, calibrations: &[Calibration], is_skipped: bool) {
        if is_skipped {
            self.notes
                .push("not calibrated: the path was not checked against its settings".to_owned());
        }
        for calibration in calibrations {
            for check in calibration.checks.iter().filter(|check| !check.is_met) {
                self.faults.push(format!(
                    "path {}: {} is {:.4} instead of {:.4} (±{:.4})",
                    calibration.path, check.quantity, check.measured, check.wanted, check.tolerance
                ));
            }
        }
    }

    /// Adds packets lost in the hosts' own devices: the machine caused that loss, not the path.
    pub(super) fn note_hosts(&mut self, flow: &str, ends: &Ends) -> Result<(), LabError> {
        for host in [&ends.near, &ends.far] {
            let (unsent, unread) = host.drops()?;
            if unsent > 0 {
                self.faults.push(format!(
                    "a host of flow '{flow}' lost {unsent} packets before the path, because the router \
                     was too slow to read them"
                ));
            }
            if unread > 0 {
                self.notes
                    .push(format!("a host of flow '{flow}' dropped {unread} arriving packets"));
            }
        }
        Ok(())
    }
}

/// Returns the shortest base RTT of all flows.
fn shortest_rtt(scenario: &Scenario) -> Span {
    let rtts = scenario.flows.iter().map(|flow| {
        let access = flow.access_delay + flow.access_delay;
        flow.path.iter().fold(access, |sum, link| {
            let link = &scenario.links[*link];
            sum + link.forward.delay_min() + link.back.delay_min()
        })
    });
    rtts.min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_times_are_read_and_compared() {
        let then = Machine::of("cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 1 1\n").unwrap();
        assert_eq!((then.total, then.idle, then.steal), (1000, 800, 0));
        let now = Machine::of("cpu  150 0 120 710 110 0 0 10 50 0\n").unwrap();
        // 100 ticks passed, 20 of them idle or waiting for disks, 10 stolen.
        assert_eq!(now.since(then), Usage { idle: 0.2, steal: 0.1 });
        assert_eq!(then.since(then), Usage { idle: 1.0, steal: 0.0 });
        assert!(Machine::of("nonsense").is_none());
    }

    #[test]
    fn the_lateness_limit_depends_on_the_round_trip() {
        let judge = |late_us: u64, rtt_ms: u64| {
            let mut snapshot = RouterSnapshot::default();
            snapshot.lateness.p99 = Span::from_micros(late_us);
            let mut verdict = Verdict::default();
            verdict.note_lateness(Span::from_millis(rtt_ms), &snapshot);
            (verdict.faults.len(), verdict.notes.len())
        };
        assert_eq!(judge(100, 1), (0, 0));
        assert_eq!(judge(105, 1), (0, 1), "disturbed");
        assert_eq!(judge(305, 1), (1, 0), "over 0.3 ms, and over 2 % of 1 ms");
        assert_eq!(judge(1_995, 100), (0, 1), "under 2 % of 100 ms");
        assert_eq!(judge(2_005, 100), (1, 0));
    }
}
