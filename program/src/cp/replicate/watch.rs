//! Changes of a directory, as the kernel reports them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::error::CliError;
use crate::output;

/// Ours: a pass begins after this time without a change, so that the files of one action are copied together.
const QUIET: Duration = Duration::from_millis(50);
/// Ours: a pass begins at most this time after the first change.
const DELAY_MAX: Duration = Duration::from_millis(500);

/// Receiver of changes below a directory. Clones see the same changes.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    seen: watch::Receiver<u64>,
    rescan: Duration,
    _watcher: Option<Arc<RecommendedWatcher>>,
}

impl Changes {
    /// Watches a directory. Without enough watches, changes are found by comparisons.
    pub(super) fn of(directory: &Path, rescan: Duration) -> Result<Self, CliError> {
        let (sender, seen) = watch::channel(0);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.as_ref().map_or(true, is_change) {
                sender.send_modify(|count| *count += 1);
            }
        });
        let mut watcher = watcher
            .map_err(|error| CliError::failed(format!("cannot watch for changes: {error}")))?;
        let watched = watcher.watch(directory, RecursiveMode::Recursive);
        if let Err(error) = watched {
            output::note(format_args!(
                "cannot watch '{}' completely: {error}; changes are found each {} s (raise fs.inotify.max_user_watches)",
                directory.display(),
                rescan.as_secs()
            ));
        }
        Ok(Self { seen, rescan, _watcher: Some(Arc::new(watcher)) })
    }

    /// Time after which everything is compared.
    pub(super) const fn rescan(&self) -> Duration {
        self.rescan
    }

    /// Begins a pass: later changes need another one.
    pub(super) fn begin(&mut self) {
        self.seen.mark_unchanged();
    }

    /// Waits for a change, and until the changes pause.
    pub(super) async fn wait(&mut self) {
        if self.seen.changed().await.is_err() {
            // The watcher never ends before its receivers.
            return std::future::pending().await;
        }
        let until = Instant::now() + DELAY_MAX;
        while Instant::now() < until
            && matches!(timeout(QUIET, self.seen.changed()).await, Ok(Ok(())))
        {}
        sleep(Duration::ZERO).await;
    }
}

/// Whether an event can change a copy. A file that is only opened or read does not.
fn is_change(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}
