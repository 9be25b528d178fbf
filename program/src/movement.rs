//! Times at which destinations last received something, so that a destination that receives nothing stops no other one.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

/// Ours: a destination that passes nothing on for this long is replaced. Longer than a flush of slow disks, and than the
/// comparison of a million files.
const STALLED_AFTER: Duration = Duration::from_secs(120);

/// Last change of each destination, with the numbers of entries and bytes then.
#[derive(Debug)]
pub(crate) struct Movements(Mutex<Vec<(u64, u64, Instant)>>);

impl Movements {
    pub(crate) fn new(destinations: usize) -> Self {
        Self(Mutex::new(vec![(0, 0, Instant::now()); destinations]))
    }

    /// Records that a copy to a destination begins.
    pub(crate) fn begin(&self, destination: usize) {
        self.set(destination, |_, _| Some((0, 0)));
    }

    /// Records an event of the copy to a destination.
    pub(crate) fn add(&self, destination: usize, event: &Value) {
        let number = |name: &str| event[name].as_u64().unwrap_or(0);
        let now = (number("entries"), number("bytes"));
        let is_end = event["event"] == "done";
        self.set(destination, |entries, bytes| (is_end || now != (entries, bytes)).then_some(now));
    }

    fn set(&self, destination: usize, change: impl FnOnce(u64, u64) -> Option<(u64, u64)>) {
        if let Ok(mut all) = self.0.lock()
            && let Some((entries, bytes, time)) = all.get_mut(destination)
            && let Some(now) = change(*entries, *bytes)
        {
            ((*entries, *bytes), *time) = (now, Instant::now());
        }
    }

    /// Waits until a destination has received nothing for two minutes.
    pub(crate) async fn stalled(&self, destination: usize) {
        loop {
            let last = self.0.lock().ok().and_then(|all| all.get(destination).map(|it| it.2));
            let Some(last) = last else { return std::future::pending().await };
            let until = last + STALLED_AFTER;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_destination_stalls_without_new_bytes_or_entries() {
        let movements = Movements::new(2);
        for at in 1..=30 {
            sleep(Duration::from_secs(10)).await;
            let (bytes, entries) = if at <= 15 { (at, 0) } else { (15, at) };
            let event = json!({"event": "progress", "bytes": bytes, "entries": entries});
            movements.add(0, &event);
            movements.add(0, &event);
            let soon = timeout(Duration::ZERO, movements.stalled(0)).await;
            assert!(soon.is_err(), "{at}");
        }
        // The other one never got anything.
        timeout(Duration::ZERO, movements.stalled(1)).await.unwrap();
        movements.begin(1);
        let began = Instant::now();
        movements.stalled(0).await;
        assert_eq!(began.elapsed(), STALLED_AFTER);
        movements.add(0, &json!({"event": "done", "bytes": 15, "entries": 30}));
        timeout(Duration::from_secs(100), movements.stalled(0)).await.unwrap_err();
        movements.stalled(1).await;
    }
}
