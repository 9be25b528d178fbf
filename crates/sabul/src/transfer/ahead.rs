//! Tells how much there is to send while that is still counted.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::files::{Scan, SourceSet, Totals};
use crate::machine::Machine;

/// How often it is told.
const TELL_INTERVAL: Duration = Duration::from_millis(100);

/// A scan whose finds are told; both end when this is dropped.
#[derive(Debug)]
pub(super) struct Ahead(JoinHandle<()>);

impl Ahead {
    /// Counts what is in this set; nothing where that is not what is sent, or where there are no threads.
    pub(super) fn start(
        machine: &Machine,
        set: &SourceSet,
        tell: impl Fn(Totals) + Send + 'static,
    ) -> Option<Self> {
        if !set.can_be_counted() || !matches!(machine, Machine::Threads(_)) {
            return None;
        }
        let scan = Scan::start(set);
        Some(Self(machine.spawn(async move {
            let mut ticks = interval(TELL_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut told = None;
            loop {
                ticks.tick().await;
                let totals = scan.totals();
                if told.replace(totals) != Some(totals) {
                    tell(totals);
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
