//! Entries that another transfer still writes at this machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabul_content::RelativePath;
use sabul_wire::control::{Entry, EntryKind};

use super::{Found, Step, Walk};
use crate::followed::{Awaited, Followed, PAUSE};
use crate::pool::SMALL_BYTES;
use crate::tree::{FactKind, Links};

impl Walk {
    /// Continues to an awaited entry as soon as it is as announced, or its file can be read.
    pub(super) fn step_awaited(&mut self, awaited: Box<Awaited>) -> Step {
        let Some(chosen) = &self.chosen else { return Step::End };
        // Read first: an entry that gets its name before the end of the transfer is found below.
        let is_written = chosen.is_written();
        let is_over = is_written.load(Ordering::Acquire);
        if !is_over && !self.is_there(&awaited) {
            if let Some(found) = self.follow(&awaited, is_written) {
                return Step::Found(found);
            }
            if let Some(chosen) = &mut self.chosen {
                chosen.wait_for(awaited);
            }
            std::thread::sleep(PAUSE);
            return Step::Pause;
        }
        let Some(mut found) = self.visit_chosen(awaited.name.clone()) else { return Step::Pause };
        // A directory gets its metadata last.
        if found.failure.is_none() && found.entry.kind == EntryKind::Directory {
            (found.entry.mode, found.entry.modified_ns) = (awaited.mode, awaited.modified_ns);
        }
        Step::Found(found)
    }

    /// Whether the entry is complete.
    fn is_there(&mut self, awaited: &Awaited) -> bool {
        let Some(path) = self.place_of(awaited) else { return false };
        let named = self.base.source().filter(|_| self.base.is_above);
        let found = self.place().examine_source(&path, named, self.links);
        found.is_ok_and(|facts| match facts.kind {
            FactKind::File(size) => awaited.is_file_of(size, facts.modified_ns),
            FactKind::Directory(_) => awaited.size.is_none(),
            _ => false,
        })
    }

    /// Path of an entry whose source is there; later lookups are below this source.
    fn place_of(&mut self, awaited: &Awaited) -> Option<PathBuf> {
        RelativePath::new(&*awaited.name).ok()?;
        let places = self.chosen.as_ref()?.places(&awaited.name);
        let (path, source) = places.into_iter().next()?;
        if let Some(source) = &source {
            self.set_base(source).ok()?;
        }
        self.base.is_above = source.is_some();
        Some(path)
    }

    /// Opens the part of an awaited file. Owners and attributes are known only of complete files.
    fn follow(&mut self, awaited: &Awaited, is_written: Arc<AtomicBool>) -> Option<Found> {
        let size = awaited.size.filter(|&size| awaited.begins_early && size > SMALL_BYTES)?;
        if self.links == Links::Keep || !self.ranges.are_none() {
            return None;
        }
        let path = self.place_of(awaited)?;
        let followed = Followed::open(self.place(), path.clone(), awaited, is_written)?;
        let entry = Entry {
            path: awaited.name.clone(),
            kind: EntryKind::File(size),
            mode: awaited.mode,
            modified_ns: awaited.modified_ns,
            more: None,
        };
        let found = Found::object(entry, path, self.place().clone());
        Some(Found { followed: Some(Arc::new(followed)), size, ..found })
    }
}
