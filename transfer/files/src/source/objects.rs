//! Objects of a store as entries of a walk.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use sabul_wire::control::{Entry, EntryKind, More};

use super::super::tree::Tree;
use super::{Found, SourceSet, Walk, failed};
use crate::store::object::{self, Object};

impl SourceSet {
    /// Creates the set of all objects of a store.
    pub fn store(source: Arc<dyn object::ObjectSource>) -> Self {
        Self { tree: Tree::Store(source), ..Self::of_paths(Vec::new(), true) }
    }
}

impl Walk {
    /// The entry of an object; `None` if the object is excluded.
    pub(super) fn visit_object(&self, object: Object) -> Option<Found> {
        let name = object.path.as_bytes().to_vec();
        if !self.takes(&name, false) {
            return None;
        }
        let path = PathBuf::from(OsStr::from_bytes(&name));
        let (kind, part) = match self.ranges.part_of(EntryKind::File(object.size), &path) {
            Ok(part) => part,
            Err(failure) => return Some(failed(name, path, failure)),
        };
        let more = object.data.filter(|_| self.ranges.are_none());
        let more = more.map(|data| Box::new(More { data: Some(data), ..More::default() }));
        let modified_ns = Some(object.modified_ns.unwrap_or(0));
        let entry = Entry { path: name, kind, mode: Some(0o644), modified_ns, more };
        let size = object.size;
        let state = self.ranges.state;
        let found = Found { part, size, state, ..Found::object(entry, path, self.tree.clone()) };
        Some(self.ranges.with_facts(found))
    }
}
