//! Additional file data sent in archive mode: hard links and extended attributes.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use sabul_wire::control::{Failure, More};

use super::entry_error::read_failure;
use super::tree::Facts;
use crate::disk::ReadFile;

/// Maximum memory for names of files with several links. Ours: a million names; beyond this, linked
/// files are sent as separate files.
const NAMES_BYTES_MAX: usize = 64 << 20;
/// Approximate memory of such a name beyond its bytes.
const NAME_OVERHEAD: usize = 64;

/// Files with several names that a walk has found.
#[derive(Debug, Default)]
pub(super) struct HardLinkIndex {
    /// First name in the transfer, by device and inode.
    first: BTreeMap<(u64, u64), Box<[u8]>>,
    bytes: usize,
}

impl HardLinkIndex {
    /// The name under which this file was found before; `None` records this name as the first name.
    pub(super) fn first_name(&mut self, facts: &Facts, name: &[u8]) -> Option<Vec<u8>> {
        if facts.names < 2 {
            return None;
        }
        let key = (facts.id.device, facts.id.inode);
        if let Some(first) = self.first.get(&key) {
            return Some(first.to_vec());
        }
        if self.bytes < NAMES_BYTES_MAX {
            self.bytes += name.len() + NAME_OVERHEAD;
            self.first.insert(key, name.into());
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
