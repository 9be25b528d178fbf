//! Whoever waits for an experiment: hears how far it is, and may end it.

use std::fmt;
use std::sync::Arc;

type Hear = Arc<dyn Fn(&str) + Send + Sync>;
type Ask = Arc<dyn Fn() -> bool + Send + Sync>;

/// Told how far an experiment is, and asked whether to go on. Clones are the same.
#[derive(Clone, Default)]
pub struct Observer {
    notes: Option<Hear>,
    interrupt: Option<Ask>,
    hears_samples: bool,
}

impl Observer {
    /// Wants to know nothing, and never ends anything.
    pub fn silent() -> Self {
        Self::default()
    }

    /// Gets a line whenever there is one.
    #[must_use]
    pub fn with_notes(self, hear: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { notes: Some(Arc::new(hear)), ..self }
    }

    /// Gets a line a second, too, while a run goes on in the lab.
    #[must_use]
    pub fn with_samples(self, hears_samples: bool) -> Self {
        Self { hears_samples, ..self }
    }

    /// Is asked from time to time whether runs in the lab are to end.
    #[must_use]
    pub fn with_interrupt(self, is_asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { interrupt: Some(Arc::new(is_asked)), ..self }
    }

    pub(crate) fn note(&self, line: impl fmt::Display) {
        if let Some(hear) = &self.notes {
            hear(&line.to_string());
        }
    }

    pub(crate) const fn hears_samples(&self) -> bool {
        self.hears_samples && self.notes.is_some()
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.as_ref().is_some_and(|is_asked| is_asked())
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("hears_samples", &self.hears_samples)
            .finish_non_exhaustive()
    }
}
