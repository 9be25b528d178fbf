//! Additional file data: hard links, and the extended attributes of archive mode.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use sabul_wire::control::{Failure, More};

use super::entry_error::read_failure;
use super::tree::{FactKind, Facts, modified_ns};
use crate::disk::ReadFile;

/// Maximum memory for names of files with several links. Ours: half a million names; beyond this, linked
/// files are sent as separate files.
const NAMES_BYTES_MAX: usize = 64 << 20;
/// Approximate memory of such a name beyond its bytes.
const NAME_OVERHEAD: usize = 112;

/// Files with several names that a walk has found.
#[derive(Debug, Default)]
pub(super) struct HardLinkIndex {
    /// By device and inode.
    first: BTreeMap<(u64, u64), First>,
    bytes: usize,
}

/// First name of a file in the transfer.
#[derive(Debug)]
struct First {
    name: Box<[u8]>,
    version: Version,
}

/// Version of a file. The system gives the inode number of a removed file to a new file, so two names with one number
/// lead to the same file only if the version is the same, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    size: u64,
    modified_ns: Option<i64>,
    /// Birth time, or the change time if the system reports no birth time. A new link changes the change time; the file
    /// is then sent twice.
    since_ns: Option<i64>,
}

impl Version {
    fn of(facts: &Facts) -> Self {
        let size = match facts.kind {
            FactKind::File(size) => size,
            _ => 0,
        };
        let born_ns = Some(facts.id.born_ns).filter(|born_ns| *born_ns != 0);
        let since_ns = born_ns.or_else(|| modified_ns(facts.changed));
        Self { size, modified_ns: facts.modified_ns, since_ns }
    }
}

impl HardLinkIndex {
    /// The name under which this file was found before; `None` records this name as the first name.
    pub(super) fn first_name(&mut self, facts: &Facts, name: &[u8]) -> Option<Vec<u8>> {
        if facts.names < 2 {
            return None;
        }
        let (key, version) = ((facts.id.device, facts.id.inode), Version::of(facts));
        let new = First { name: name.into(), version };
        match self.first.get_mut(&key) {
            Some(first) if first.version == version => return Some(first.name.to_vec()),
            Some(first) => {
                self.bytes = self.bytes.saturating_sub(first.name.len()) + name.len();
                *first = new;
            }
            None if self.bytes < NAMES_BYTES_MAX => {
                self.bytes += name.len() + NAME_OVERHEAD;
                self.first.insert(key, new);
            }
            None => {}
        }
        None
    }
}

/// Adds the extended attributes of a file or directory.
pub(super) fn add_attributes(
    file: &dyn ReadFile,
    path: &Path,
    more: &mut More,
) -> Result<(), Failure> {
    let found =
        file.attributes().map_err(|error| read_failure(path.as_os_str().as_bytes(), &error))?;
    more.attributes = found.list;
    more.attributes_left = found.left;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::{FileId, FileTime};

    fn facts(born_ns: i64, size: u64, modified_ns: i64, changed: i64) -> Facts {
        Facts {
            kind: FactKind::File(size),
            id: FileId { device: 1, inode: 2, born_ns },
            names: 2,
            allocated: size,
            mode: 0o644,
            modified_ns: Some(modified_ns),
            changed: FileTime { seconds: changed, nanoseconds: 0 },
            owner: 0,
            group: 0,
        }
    }

    #[test]
    fn a_new_file_with_the_inode_number_of_a_removed_file_is_no_hard_link() {
        let first = facts(7, 5, 3, 1);
        for other in [facts(8, 5, 3, 1), facts(7, 6, 3, 1), facts(7, 5, 4, 1)] {
            let mut index = HardLinkIndex::default();
            assert_eq!(index.first_name(&first, b"a"), None);
            assert_eq!(index.first_name(&other, b"e"), None);
            // Further names of the new file are links to it.
            assert_eq!(index.first_name(&other, b"f"), Some(b"e".to_vec()));
        }
        let mut index = HardLinkIndex::default();
        assert_eq!(index.first_name(&first, b"a"), None);
        let linked_again = facts(7, 5, 3, 2);
        assert_eq!(index.first_name(&linked_again, b"b"), Some(b"a".to_vec()));
    }

    #[test]
    fn without_birth_times_only_names_with_the_same_change_time_are_hard_links() {
        let mut index = HardLinkIndex::default();
        assert_eq!(index.first_name(&facts(0, 5, 3, 1), b"a"), None);
        assert_eq!(index.first_name(&facts(0, 5, 3, 1), b"b"), Some(b"a".to_vec()));
        assert_eq!(index.first_name(&facts(0, 5, 3, 2), b"c"), None);
    }
}
