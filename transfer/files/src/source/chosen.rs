//! Entries of chosen names.

use std::path::{Path, PathBuf};

use sabul_content::{Printable, RelativePath};
use sabul_wire::control::{Failure, FailureCode};

use super::{Found, Step, Walk, failed};
use crate::delta::apply_delta;
use crate::root::LinkTarget;
use crate::selection::Selected;

impl Walk {
    /// Continues to the next chosen name.
    pub(super) fn step_chosen(&mut self) -> Step {
        let Some(chosen) = &mut self.chosen else { return Step::End };
        match chosen.next() {
            Selected::Name(name) => match self.visit_chosen(name) {
                Some(found) => Step::Found(found),
                None => Step::Pause,
            },
            Selected::Changed(name, delta) => match self.visit_chosen(name) {
                Some(mut found) => {
                    if found.failure.is_none() && found.part.is_none() {
                        apply_delta(*delta, &mut found.entry, found.changed);
                    }
                    Step::Found(found)
                }
                None => Step::Pause,
            },
            Selected::Awaited(awaited) => self.step_awaited(awaited),
            Selected::NotYet => Step::Pause,
            Selected::End => Step::End,
        }
    }

    /// Examines the entry of a chosen name.
    pub(crate) fn visit_chosen(&mut self, name: Vec<u8>) -> Option<Found> {
        let chosen = self.chosen.as_ref()?;
        if let Some(failure) = chosen.failure(&name) {
            return Some(failed(name, PathBuf::new(), failure.clone()));
        }
        let mut places = chosen.places(&name);
        if let Err(error) = RelativePath::new(&*name) {
            let failure = Failure::new(FailureCode::Unreadable, error.to_string());
            return Some(failed(name, PathBuf::new(), failure));
        }
        if places.len() > 1 {
            let is_there = |path: &Path| self.tree.examine(path, LinkTarget::Itself).is_ok();
            let at = places.iter().position(|(path, _)| is_there(path)).unwrap_or_default();
            places.swap(0, at);
        }
        let Some((path, source)) = places.into_iter().next() else {
            let text = format!("'{}' is in no requested source", Printable(&name));
            return Some(failed(name, PathBuf::new(), Failure::new(FailureCode::NotFound, text)));
        };
        if let Some(source) = &source
            && let Err(failure) = self.set_base(source)
        {
            return Some(failed(name, path, failure));
        }
        self.base.is_above = source.is_some();
        let mut found = self.visit(path, name)?;
        if let (Some(chosen), None) = (&mut self.chosen, &found.failure) {
            chosen.sent(&mut found.entry, found.size);
        }
        Some(found)
    }

    /// Whether only chosen names are sent.
    pub(crate) const fn is_chosen(&self) -> bool {
        self.chosen.is_some()
    }
}
