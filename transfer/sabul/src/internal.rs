//! Parts for the program `sabul` and the laboratory. Not part of the public API: any version may
//! change or remove these names.

use std::path::Path;
use std::sync::Arc;

use sabul_files::SourceSet;
use sabul_files::root::{RootDir, RootError, RootLink};

pub use sabul_content::{Printable, steers};
pub use sabul_files::gitignore::rules as ignore_rules;
pub use sabul_files::glob::escape as escape_pattern;
pub use sabul_files::{
    Chmod, Kept, PartOwner, Probe, Rules, SharedFolder, SharedPart, start_of_name,
};
pub use sabul_udp::{return_free_memory, return_large_buffers_at_once};
pub use sabul_wire::control::{CONTROL_VERSION as PROTOCOL_VERSION, MAX_RULES};

pub use crate::address::{Host, Location, Remote, Server};
pub use crate::aggregate::AggregateInterval;
pub use crate::connector::connect_to;
pub use crate::descriptors::{LISTENER_FILES_MIN, allow_many_files, files_limit};
pub use crate::listener::Bound;
pub use crate::retry::Retry;

/// Returns the sources below a directory of this machine; no link leads out of the directory.
///
/// # Errors
/// If the directory cannot be opened.
pub fn sources_beneath(
    directory: &Path,
    sources: Vec<Vec<u8>>,
    recursive: bool,
) -> Result<SourceSet, RootError> {
    let root = RootDir::open(directory, RootLink::Follow)?;
    Ok(SourceSet::in_disk(Arc::new(root), sources, recursive))
}

/// Comparison of two trees, and selection of the entries to copy.
pub mod compare {
    pub use sabul_files::{
        Awaited, Chunked, CompareOptions, Comparison, DELTA_FROM, Difference, Matches, NamedSet,
        NewFile, ReadParts, Selected, Selection, Skipped, ahead::OwnEntries, attributes_differ,
        differing_attributes, facts_of, facts_with, is_journal, is_part, mode_of, recognized,
    };

    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    pub use sabul_files::RenameOf;
    use sabul_files::root::{RootDir, RootError, RootLink};
    pub use sabul_wire::control::Replaces;
    pub use sabul_wire::control::{
        Chunking, Delta, ListOptions, MAX_NAMED, Named, NamedContent, RunDigests,
    };
    use sabul_wire::control::{Facts, Failure, FailureCode, Identity, NewMetadata};

    /// Directory of this machine for changes whose names the other machine lists. No name and no link leads out of the
    /// directory.
    #[derive(Debug)]
    pub struct LocalTree(RootDir);

    impl LocalTree {
        /// Opens the directory, which must have this identity, if there is one.
        ///
        /// # Errors
        /// If the directory cannot be opened, with [`FailureCode::Changed`] if it has another identity.
        pub fn open(directory: &Path, id: Option<Identity>) -> Result<Self, Failure> {
            let root = RootDir::open(directory, RootLink::Follow).map_err(failure)?;
            let root = root.named(directory.as_os_str().as_bytes());
            sabul_files::check_root(&root, id)?;
            Ok(Self(root))
        }

        /// Renames the compared file with this BLAKE3 hash below the directory, if no other user can change the file. An
        /// existing file stays.
        ///
        /// # Errors
        /// If the name was not changed.
        pub fn take_over(
            &self,
            from: &[u8],
            to: &[u8],
            hash: &[u8; 32],
            seen: &Facts,
        ) -> Result<(), Failure> {
            let conditions = RenameOf { seen: Some(*seen), below: None };
            sabul_files::take_over(Some(&self.0), from, to, hash, conditions, &|| false)
        }

        /// Moves an entry to an unused name below another directory, if it is the entry that was seen.
        ///
        /// # Errors
        /// If the entry was not moved.
        pub fn move_to(
            &self,
            from: &[u8],
            other: &Self,
            to: &[u8],
            seen: Option<&Facts>,
        ) -> Result<(), Failure> {
            sabul_files::move_between(&self.0, from, &other.0, to, seen)
        }

        /// Makes a directory below the directory, with missing directories above. New directories get these permission
        /// bits less the umask, and the owner's bits.
        ///
        /// # Errors
        /// If the directory was not made.
        pub fn make(&self, path: &[u8], mode: u32) -> Result<(), Failure> {
            let make = sabul_files::NameChange::Make { parents: true, mode, below: None };
            make.apply(Some(&self.0), path, &|| false).map(drop)
        }

        /// Removes the compared file, link or empty directory below the directory.
        ///
        /// # Errors
        /// If the entry was not removed; with [`FailureCode::Refused`] if a directory is not empty.
        pub fn remove(&self, path: &[u8], seen: &Facts) -> Result<(), Failure> {
            let remove = sabul_files::NameChange::Remove { recursive: false, seen: Some(*seen) };
            remove.apply(Some(&self.0), path, &|| false).map(drop)
        }

        /// Sets metadata of a file or directory below the directory; `change.path` is relative.
        ///
        /// # Errors
        /// If the metadata was not set.
        pub fn set_metadata(&self, change: &NewMetadata) -> Result<(), Failure> {
            sabul_files::set_metadata(Some(&self.0), change)
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
    fn failure(error: RootError) -> Failure {
        Failure::new(FailureCode::Unwritable, error.to_string())
    }
}

/// Decisions about a replica.
pub mod replica {
    pub use sabul_files::replica::*;
}

/// Sealing of datagrams.
pub mod seal {
    pub use crate::seal::*;
}

/// Start of a server through ssh, and the far end of that.
pub mod ssh {
    pub use crate::ssh::parts::*;
}

/// Parts of a ticket.
pub mod ticket {
    pub use crate::ticket::{MAX_ADDRESSES, proof};
}

/// TLS of control connections.
pub mod tls {
    pub use crate::tls::*;
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use sabul_wire::control::NewMetadata;

    use super::compare::{LocalTree, facts_of};

    #[test]
    fn listed_names_and_links_lead_nowhere_outside_the_destination() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["destination", "outside"] {
            fs::create_dir(at(name)).unwrap();
        }
        for name in ["destination/old", "outside/private"] {
            fs::write(at(name), name).unwrap();
        }
        symlink(at("outside"), at("destination/link")).unwrap();
        let tree = LocalTree::open(&at("destination"), None).unwrap();
        let old = facts_of(&at("destination/old"), true).unwrap();
        let hash = old.hash.unwrap();
        let outside = at("outside/new").to_str().unwrap().to_owned();
        for to in ["../outside/new", "link/new", "link", "a/../../outside/new", &outside, ""] {
            assert!(tree.take_over(b"old", to.as_bytes(), &hash, &old).is_err(), "{to}");
        }
        let names = fs::read_dir(at("outside")).unwrap().count();
        assert_eq!(
            (names, fs::read(at("destination/old")).unwrap()),
            (1, b"destination/old".into())
        );
        let changed = |path: &str| {
            let seen = facts_of(&at("destination").join(path), false);
            let seen = seen.unwrap_or_else(|| facts_of(&at("outside/private"), false).unwrap());
            let path = path.as_bytes().to_vec();
            let change =
                NewMetadata { path, mode: Some(0o777), modified_ns: None, owner: None, seen };
            tree.set_metadata(&change)
        };
        fs::create_dir(at("destination/inside")).unwrap();
        fs::write(at("destination/inside/key"), "content").unwrap();
        symlink("inside", at("destination/swapped")).unwrap();
        let key = facts_of(&at("destination/inside/key"), false).unwrap();
        let trash = LocalTree::open(&at("outside"), None).unwrap();
        for path in
            ["../outside/private", "link/private", "swapped/key", "../destination/inside/key"]
        {
            changed(path).unwrap_err();
            tree.remove(path.as_bytes(), &key).unwrap_err();
            tree.move_to(path.as_bytes(), &trash, b"moved", Some(&key)).unwrap_err();
        }
        changed("link").unwrap_err();
        assert!(at("destination/inside/key").exists() && at("outside/private").exists());
        tree.make(b"../outside/made", 0o700).unwrap_err();
        tree.make(b"link/made", 0o700).unwrap_err();
        tree.make(b"a/b", 0o700).unwrap();
        tree.take_over(b"old", b"a/b/new", &[0; 32], &old).unwrap_err();
        tree.take_over(b"old", b"a/b/new", &hash, &old).unwrap();
        changed("a/b/new").unwrap();
        changed("").unwrap();
        assert_eq!(fs::read(at("destination/a/b/new")).unwrap(), b"destination/old");
    }
}
