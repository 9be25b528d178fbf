//! Progress of the directory scan of a sender, sent while the scan runs.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::machine::Machine;
use sabul_files::{Scan, SourceSet, Totals};

/// Interval of reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Task that reports the totals of a scan; dropping the value stops both.
#[derive(Debug)]
pub(super) struct Ahead(JoinHandle<()>);

impl Ahead {
    /// Starts a scan of the set. Returns `None` if the set cannot be counted in advance, or if there are no threads.
    pub(super) fn start(
        machine: &Machine,
        set: &SourceSet,
        report: impl Fn(Totals) + Send + 'static,
    ) -> Option<Self> {
        if !set.can_be_counted() || !matches!(machine, Machine::Threads(_)) {
            return None;
        }
        let scan = Scan::start(set);
        Some(Self(machine.spawn(async move {
            let mut ticks = interval(REPORT_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut reported = None;
            loop {
                ticks.tick().await;
                let totals = scan.totals();
                if reported.replace(totals) != Some(totals) {
                    report(totals);
                }
                if totals.is_all {
                    return;
                }
            }
        })))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.0.abort();
    }
}
