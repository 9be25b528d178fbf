//! Settings of a comparison, and the comparison of the metadata of one entry.

use sabul_wire::control::{Facts, RunDigests, SeenKind};

use crate::acl;
use crate::attributes::{attributes_differ, mode_of};
use crate::listing::ReadParts;
use crate::root::foreign_write;
use crate::rules::Rules;

/// Which differences count.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    /// Files of equal size are equal, whatever their times.
    pub size_only: bool,
    /// Files of equal size are equal if their hashes are, whatever their times.
    pub content: bool,
    /// A newer file at the destination stays.
    pub keep_newer: bool,
    /// Only entries that exist at the destination are copied.
    pub existing: bool,
    /// Only entries that do not exist at the destination are copied.
    pub ignore_existing: bool,
    /// An entry of the destination that cannot be examined stays, with its content.
    pub keeps_unknown: bool,
    /// Times that differ by at most this many nanoseconds are equal.
    pub window_ns: i64,
    /// Permission bits count.
    pub modes: bool,
    /// Owner and group count.
    pub owners: bool,
    /// Extended attributes are read. They count where the file systems of both ends keep them.
    pub attributes: bool,
    /// Directories that exist are compared, too. Otherwise only a missing directory is a difference.
    pub directories: bool,
    /// Entries that exist only at the destination are removed later, which changes the times of their directories.
    pub removes: bool,
    /// The comparison goes on after the end of the source, for the entries that exist only at the destination.
    pub extras: bool,
    /// If a listing is not in the order of a walk, all further entries of the source are copied. Otherwise the
    /// comparison ends.
    pub copies_disordered: bool,
    /// Names of several sources in the order of the walk; empty for a single source.
    pub order: Vec<Vec<u8>>,
    /// Metadata of the destination itself, which is not in its listing, if known.
    pub top: Option<Facts>,
    /// Rules of the source. Entries at the destination that the rule files of the source exclude stay as they are.
    pub rules: Rules,
}

impl CompareOptions {
    /// Whether an entry needs no copy, if this is its metadata at both ends.
    pub fn is_same(&self, source: &Facts, old: &Facts) -> bool {
        let are_directories = [source.kind, old.kind] == [SeenKind::Directory; 2];
        (are_directories && !self.directories) || !self.differs(source, old)
    }

    /// Whether an entry need not be copied except for its permission bits, owner and time, if this is its metadata at both
    /// ends. The group bits of a mode depend on the access control list, so they are not set without the list.
    pub fn has_same_content(&self, source: &Facts, old: &Facts) -> bool {
        !self.content_differs(source, old) && !attributes_differ(source, old)
    }

    /// Permission bits of a directory without those that it loses; `None` if it loses none, or if directories or modes do
    /// not count. The owner's bits stay. With another group, its bits are at most those of other users.
    pub fn narrowed(&self, source: &Facts, old: &Facts) -> Option<u32> {
        let is_other_group = self.owners && source.group != old.group;
        let mode = mode_of(source, Some(old));
        let mode = if is_other_group { acl::without_list(mode) } else { mode };
        let lost = old.mode & 0o077 & !mode;
        (self.modes && self.directories && lost != 0).then_some(old.mode & !lost)
    }

    /// Parts of files that the listings of both ends read.
    pub fn parts(&self) -> ReadParts {
        ReadParts { content: self.content, attributes: self.attributes, states: false }
    }

    /// Facts that digests of runs cover in this comparison, if so many entries at the beginning are listed completely.
    /// Entries other than directories with equal facts do not differ, unless `has_digest` is false.
    pub fn digests(&self, after: u64) -> RunDigests {
        RunDigests { after, times: !self.size_only, modes: self.modes, owners: self.owners }
    }

    /// Whether an entry is equal to an entry with the same metadata.
    pub(crate) fn has_digest(&self, facts: &Facts) -> bool {
        !self.differs(facts, facts)
    }

    /// Whether an adjustment of this file would give rights to others, although another user may have put the file there.
    /// `above` are the directories above the file, below the destination. Such a file is copied, so that a file of root
    /// under the name of another file does not change. A file with several names gets no other owner either.
    pub fn would_give_away<'a>(
        &self,
        source: &Facts,
        old: &Facts,
        above: impl IntoIterator<Item = &'a Facts>,
    ) -> bool {
        let gets_owner = self.owners && (source.owner, source.group) != (old.owner, old.group);
        let gets_rights = self.modes && mode_of(source, Some(old)) & !old.mode & 0o777 != 0;
        // Only root and the owner of the file change names here.
        let is_safe = |folder: &Facts| {
            [0, old.owner].contains(&folder.owner)
                && folder.mode & foreign_write(folder.owner, folder.group) == 0
        };
        let is_top_safe = self.top.as_ref().map_or(!gets_owner, is_safe);
        let are_safe = is_top_safe && above.into_iter().all(is_safe);
        (gets_owner && old.is_shared) || ((gets_owner || gets_rights) && !are_safe)
    }

    /// Whether kind, size, and hash or time differ.
    fn content_differs(&self, source: &Facts, old: &Facts) -> bool {
        let is_directory = source.kind == SeenKind::Directory;
        let is_file = source.kind == SeenKind::File;
        source.kind != old.kind
            || (!is_directory && source.size != old.size)
            || match self.content && is_file {
                true => source.hash.is_none() || source.hash != old.hash,
                // Two link texts of equal length differ only in their times here.
                false if source.kind == SeenKind::Link => source.modified_ns != old.modified_ns,
                false => self.time_differs(source, old),
            }
    }

    fn time_differs(&self, source: &Facts, old: &Facts) -> bool {
        !self.size_only && !is_same_time(source, old, self.window_ns)
    }

    pub(crate) fn differs(&self, source: &Facts, old: &Facts) -> bool {
        self.content_differs(source, old)
            || attributes_differ(source, old)
            || self.time_differs(source, old)
            || (self.modes
                && source.kind != SeenKind::Link
                && (mode_of(source, Some(old)) ^ old.mode) & 0o777 != 0)
            || (self.owners && (source.owner, source.group) != (old.owner, old.group))
    }
}

/// Whether two times are equal. A time at the destination without a fraction of a second is compared in seconds: its
/// file system may keep no more.
pub(super) fn is_same_time(source: &Facts, old: &Facts, window_ns: i64) -> bool {
    const SECOND: i64 = 1_000_000_000;
    match (source.modified_ns, old.modified_ns) {
        (Some(source), Some(old)) => {
            source.abs_diff(old) <= window_ns.unsigned_abs()
                || (old.rem_euclid(SECOND) == 0
                    && source.div_euclid(SECOND) == old.div_euclid(SECOND))
        }
        // A time that cannot be represented is equal to no other, not even to another such time.
        (None, _) | (_, None) => false,
    }
}
