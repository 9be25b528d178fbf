//! Observer of an experiment: receives progress messages and may interrupt the experiment.

use std::fmt;
use std::sync::Arc;

type LineCallback = Arc<dyn Fn(&str) + Send + Sync>;
type InterruptCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// Callbacks for progress and interruption. Clones share the callbacks.
#[derive(Clone, Default)]
pub struct Observer {
    notes: Option<LineCallback>,
    interrupt: Option<InterruptCheck>,
    has_samples: bool,
}

impl Observer {
    /// Returns an observer without callbacks.
    pub fn silent() -> Self {
        Self::default()
    }

    /// Adds a callback for progress messages, one line each.
    #[must_use]
    pub fn with_notes(self, callback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { notes: Some(Arc::new(callback)), ..self }
    }

    /// Also reports one line per second during a run in the lab.
    #[must_use]
    pub fn with_samples(self, has_samples: bool) -> Self {
        Self { has_samples, ..self }
    }

    /// Adds a callback that is polled and returns whether to interrupt the experiment.
    #[must_use]
    pub fn with_interrupt(self, is_requested: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { interrupt: Some(Arc::new(is_requested)), ..self }
    }

    pub(crate) fn note(&self, line: impl fmt::Display) {
        if let Some(callback) = &self.notes {
            callback(&line.to_string());
        }
    }

    pub(crate) const fn has_samples(&self) -> bool {
        self.has_samples && self.notes.is_some()
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|is_requested| is_requested())
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("has_samples", &self.has_samples).finish_non_exhaustive()
    }
}
