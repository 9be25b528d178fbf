//! The source below which a walk looks up names.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul_wire::control::Failure;

use crate::root::{FileId, RootLink};
use crate::tree::{Links, NamedRoot, Tree};

/// Maximum number of sources whose directories are kept open. Ours: the entries of a batch are opened when the walk may
/// be at a later source.
const OPEN_MAX: usize = 16;

/// The source below which names are looked up.
#[derive(Debug, Default)]
pub(super) struct Base {
    /// The last source, if it is a local directory and links out of it are not followed.
    below: Option<Tree>,
    source: Option<PathBuf>,
    /// The chosen name is below this source, and not a source itself.
    pub(super) is_above: bool,
    recent: VecDeque<Arc<NamedRoot>>,
}

impl Base {
    /// Makes a directory the source. `link` is about the last name of its path only.
    ///
    /// # Errors
    /// If a local directory cannot be opened.
    pub(super) fn set(
        &mut self,
        tree: &Tree,
        source: &Path,
        links: Links,
        link: RootLink,
    ) -> Result<(), Failure> {
        if self.source.as_deref().is_some_and(|it| it.as_os_str() == source.as_os_str()) {
            return Ok(());
        }
        (self.source, self.below) = (None, None);
        if let Some(last) = self.recent.back() {
            last.leave();
        }
        if matches!(tree, Tree::Local) && links != Links::Follow {
            let root = Arc::new(NamedRoot::open(source, link, links == Links::Inside)?);
            self.below = Some(Tree::Named(Arc::clone(&root)));
            self.recent.push_back(root);
            if self.recent.len() > OPEN_MAX
                && let Some(oldest) = self.recent.pop_front()
            {
                oldest.release();
            }
        }
        self.source = Some(source.to_path_buf());
        Ok(())
    }

    /// Path of the source.
    pub(super) fn source(&self) -> Option<&Path> {
        self.source.as_deref()
    }

    /// The tree of names below the source; `tree` is that of the walk.
    pub(super) fn tree<'a>(&'a self, tree: &'a Tree) -> &'a Tree {
        self.below.as_ref().unwrap_or(tree)
    }

    /// Returns to a directory that was entered before.
    ///
    /// # Errors
    /// If the directory was replaced.
    pub(super) fn come_near(&self, path: &Path, id: Option<FileId>) -> Result<(), Failure> {
        match (&self.below, id) {
            (Some(Tree::Named(root)), Some(id)) => root.come_near(path, id),
            _ => Ok(()),
        }
    }
}
