//! The tree in which a walk looks up a name: that of its source, or the whole file system.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use sabul_wire::control::Failure;

use super::{Walk, is_content};
use crate::root::RootLink;
use crate::tree::{Links, Tree};

impl Walk {
    /// Looks up the next names below this source.
    pub(super) fn set_base(&mut self, source: &Path) -> Result<(), Failure> {
        // With links kept, a source that is a link is sent as a link, so a source that is entered is no link.
        let is_itself = self.links == Links::Keep && !is_content(source.as_os_str().as_bytes());
        let link = if is_itself { RootLink::Refuse } else { RootLink::Follow };
        self.base.set(&self.tree, source, self.links, link)
    }

    /// Whether the visited name is below a source.
    pub(super) fn is_below(&self) -> bool {
        if self.chosen.is_some() { self.base.is_above } else { !self.stack.is_empty() }
    }

    /// The tree in which the visited name is looked up.
    pub(super) fn place(&self) -> &Tree {
        if self.is_below() { self.base.tree(&self.tree) } else { &self.tree }
    }
}
