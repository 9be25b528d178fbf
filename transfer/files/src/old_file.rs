//! Old file of a part's final name: the rights that the new file takes over, and whether the part may replace the file.

use sabul_wire::control::{Entry, Failure, Replaces};

use super::identity::check_replaced;
use crate::acl;
use crate::disk::Disk;
use crate::part::KEPT_MODE;
use crate::root::{Kind, LinkTarget, Metadata, RootPath};

/// Old file of a part's final name.
#[derive(Clone, Debug)]
pub(super) struct OldFile {
    /// Whether the new file takes over owner and mode.
    pub(super) is_kept: bool,
    /// Metadata at the creation of the part, if owner and mode are taken over. The group counts as other users until its
    /// access control list is read.
    pub(super) found: Option<Metadata>,
    /// Object that the part may replace; `None` for any.
    replaces: Option<Replaces>,
}

impl OldFile {
    /// Examines the old file. With `preserve`, the new file gets the announced owner and mode.
    pub(super) fn of(disk: &dyn Disk, target: &RootPath, entry: &Entry, preserve: bool) -> Self {
        let is_kept = !preserve || entry.mode.is_none();
        let examine = || disk.stat(target, LinkTarget::Itself).ok();
        let found = is_kept.then(examine).flatten().filter(|old| old.kind == Kind::File);
        let found = found.map(|old| Metadata { mode: acl::without_list(old.mode), ..old });
        let replaces = entry.more.as_ref().and_then(|more| more.replaces.clone());
        Self { is_kept, found, replaces }
    }

    /// Mode of a new part. Users without access to the old file have no access to the part. If the metadata of the
    /// source is preserved, nobody else has access until owner and group are set.
    pub(super) fn mode_of_part(&self, entry: &Entry) -> u32 {
        let old = self.found.as_ref();
        match self.is_kept {
            true => entry.mode.unwrap_or(0o666) & old.map_or(0o777, |old| old.mode | 0o600),
            false => KEPT_MODE,
        }
    }

    /// Checks that the part may replace the object that has its final name now.
    ///
    /// # Errors
    /// As [`check_replaced`].
    pub(super) fn check(
        &self,
        disk: &dyn Disk,
        target: &RootPath,
        now: &Metadata,
    ) -> Result<(), Failure> {
        check_replaced(disk, target, Some(now), self.replaces.as_ref())
    }
}
