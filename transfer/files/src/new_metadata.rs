//! Changes of metadata of existing files and directories, without their content.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use sabul_content::Printable;
use sabul_wire::control::{Facts, Failure, FailureCode, NewMetadata, Owner, SeenKind};

use super::entry_error::{root_write_failure, write_failure};
use super::identity::{facts, is_as_seen, is_same, open_marked};
use super::metadata::adjust_metadata;
use super::tree::root_path;
use crate::acl;
use crate::disk::{Disk, DiskFile};
use crate::root::{Kind, LinkTarget, Metadata, RootError};

/// Sets metadata of a file or directory, below a root or with the rights of this process's user if `disk` is `None`.
/// Below a root, or below the mark `/./` of the path, no symbolic link is followed; otherwise only the last component may
/// not be a link. An owner that cannot be set is no failure.
///
/// # Errors
/// If the metadata was not set, with [`FailureCode::Changed`] if the entry is not the one that was compared.
pub fn set_metadata(disk: Option<&dyn Disk>, change: &NewMetadata) -> Result<(), Failure> {
    if let Some((root, rest)) = open_marked(disk, &change.path, None)? {
        return set_metadata(Some(&root), &NewMetadata { path: rest.to_vec(), ..change.clone() });
    }
    let path = Path::new(OsStr::from_bytes(&change.path));
    let file = match disk {
        Some(disk) => {
            let path = root_path(path)?;
            let found = disk.stat(&path, LinkTarget::Itself).map_err(root_write_failure)?;
            let opened = match found.kind {
                Kind::Directory => disk.open_dir(&path),
                Kind::File => disk.open_own(&path),
                Kind::Symlink | Kind::Other => {
                    return Err(root_write_failure(RootError::NotAFile(path.to_string())));
                }
            };
            opened.map_err(root_write_failure)?
        }
        None => {
            let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
            let mut options = OpenOptions::new();
            let options = options.read(true).custom_flags(flags.bits().cast_signed());
            let file = options.open(path).map_err(|error| write_failure(&change.path, &error))?;
            Box::new(file) as Box<dyn DiskFile>
        }
    };
    let fail = |error| write_failure(&change.path, &error);
    let refused = |why: String| {
        let shown = disk.and_then(|disk| Some(disk.shown(&root_path(path).ok()?)));
        let shown = shown.unwrap_or_else(|| Printable(&change.path).to_string());
        Failure::of_file(FailureCode::Changed, "set the metadata of", shown, why)
    };
    let now = file.metadata().map_err(fail)?;
    let user = rustix::process::geteuid().as_raw();
    let has_identity =
        change.seen.id.map_or(Ok(true), |id| is_same(id, &now, &*file)).map_err(fail)?;
    if let Some(why) = refusal(change, &now, has_identity, user) {
        return Err(refused(why));
    }
    if widens_mask(&*file, change, &now) {
        let why = "has an access control list, whose rights the new permission bits would widen; remove the list, or \
                   copy with -a";
        return Err(refused(why.to_owned()));
    }
    let mode = change.mode.map(|mode| mode & kept_bits(change.seen.kind));
    adjust_metadata(&*file, change.owner, mode, change.modified_ns).map_err(fail)
}

/// Why the process of this user must not change an open entry: another user may have moved another file to the name since
/// the comparison, or linked another file there before.
fn refusal(change: &NewMetadata, now: &Metadata, has_identity: bool, user: u32) -> Option<String> {
    if has_identity && is_as_wanted(change, &facts(now)) {
        return None;
    }
    if !has_identity || !is_as_seen(&change.seen, &facts(now)) {
        return Some("is not the entry that was compared; run the command again".to_owned());
    }
    let is_given = change.owner.is_some() || change.mode.is_some();
    let keeps_owner = now.owner == change.owner.map_or(user, |owner| owner.user);
    let is_shared = now.kind == Kind::File && now.names > 1;
    (is_shared && is_given && !keeps_owner).then(|| {
        format!("is a file of another user with {} names; remove it and copy it again", now.names)
    })
}

/// Whether the new permission bits widen the mask of an access control list that is not the list of the comparison.
fn widens_mask(file: &dyn DiskFile, change: &NewMetadata, now: &Metadata) -> bool {
    if change.mode.is_none_or(|mode| mode & !now.mode & acl::GROUP == 0) {
        return false;
    }
    match change.seen.attributes.and_then(|seen| seen.lists) {
        Some(lists) => {
            let found = file.seen_attributes().ok().flatten();
            found.and_then(|found| found.lists) != Some(lists)
        }
        None => !matches!(file.access_list(), Ok(None)),
    }
}

/// Permission bits that are set. The sticky bit has no meaning for files.
const fn kept_bits(kind: SeenKind) -> u32 {
    match kind {
        SeenKind::Directory => 0o1777,
        _ => 0o777,
    }
}

/// Whether an entry has the new metadata already: a file gets it through another of its names.
fn is_as_wanted(change: &NewMetadata, now: &Facts) -> bool {
    let seen = &change.seen;
    let owner = change.owner.unwrap_or(Owner { user: seen.owner, group: seen.group });
    let wanted = Facts {
        mode: change.mode.map_or(seen.mode, |mode| mode & kept_bits(seen.kind)),
        modified_ns: change.modified_ns.or(seen.modified_ns),
        owner: owner.user,
        group: owner.group,
        ..*seen
    };
    is_as_seen(&wanted, now)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::Arc;

    use super::*;
    use crate::listing::facts_of;
    use crate::root::{RootDir, RootLink};

    #[test]
    fn mode_and_time_change_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "content").unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("link")).unwrap();
        let root: Arc<dyn Disk> = Arc::new(RootDir::open(dir.path(), RootLink::Follow).unwrap());
        for (disk, mode) in [(Some(&*root), 0o600), (None, 0o640)] {
            for name in ["f", "d"] {
                let place = dir.path().join(name);
                let path = match disk {
                    Some(_) => name.into(),
                    None => place.clone().into_os_string().into_encoded_bytes(),
                };
                let mode = if name == "d" { mode | 0o100 } else { mode };
                let modified_ns = Some(i64::from(mode) * 1_000_000_000 + 5);
                let seen = facts_of(&place, false).unwrap();
                let change = NewMetadata { path, mode: Some(mode), modified_ns, owner: None, seen };
                set_metadata(disk, &change).unwrap();
                let found = fs::metadata(place).unwrap();
                assert_eq!(found.mode() & 0o7777, mode);
                assert_eq!((found.mtime(), found.mtime_nsec()), (i64::from(mode), 5));
            }
        }
        for name in ["link", "none", "../f"] {
            let (path, modified_ns) = (name.into(), Some(0));
            let seen = facts_of(&dir.path().join("f"), false).unwrap();
            let change = NewMetadata { path, mode: None, modified_ns, owner: None, seen };
            set_metadata(Some(&*root), &change).unwrap_err();
        }
        assert_ne!(fs::metadata(dir.path().join("f")).unwrap().mtime(), 0);
        // A link that stays inside leads to the file of another owner all the same.
        fs::create_dir(dir.path().join("other")).unwrap();
        fs::write(dir.path().join("other/key"), "content").unwrap();
        std::os::unix::fs::symlink("other", dir.path().join("swapped")).unwrap();
        let marked = format!("{}/./swapped/key", dir.path().display());
        let seen = facts_of(&dir.path().join("other/key"), false).unwrap();
        for (disk, name) in [(Some(&*root), "swapped/key"), (None, &marked)] {
            let (path, modified_ns) = (name.into(), Some(0));
            let change = NewMetadata { path, mode: Some(0o666), modified_ns, owner: None, seen };
            set_metadata(disk, &change).unwrap_err();
        }
        assert_ne!(fs::metadata(dir.path().join("other/key")).unwrap().mtime(), 0);
        let marked = format!("{}/./other/key", dir.path().display());
        let (path, modified_ns) = (marked.into(), Some(0));
        set_metadata(None, &NewMetadata { path, mode: None, modified_ns, owner: None, seen })
            .unwrap();
        assert_eq!(fs::metadata(dir.path().join("other/key")).unwrap().mtime(), 0);
    }

    #[test]
    fn only_the_entry_that_was_compared_changes() {
        let dir = tempfile::tempdir().unwrap();
        let root = RootDir::open(dir.path(), RootLink::Follow).unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("f"), "content").unwrap();
        fs::create_dir(at("d")).unwrap();
        let file = facts_of(&at("f"), false).unwrap();
        let folder = facts_of(&at("d"), false).unwrap();
        let set = |path: &str, seen| {
            let (path, mode) = (path.into(), Some(0o604));
            let change = NewMetadata { path, mode, modified_ns: None, owner: None, seen };
            set_metadata(Some(&root), &change)
        };
        let time = Some(1);
        for (path, seen) in [
            ("f", folder),
            ("f", Facts { owner: file.owner + 1, ..file }),
            ("f", Facts { group: file.group + 1, ..file }),
            ("f", Facts { mode: file.mode ^ 1, ..file }),
            ("f", Facts { size: 1, ..file }),
            ("f", Facts { modified_ns: time, ..file }),
            ("d", file),
            ("d", Facts { owner: file.owner + 1, ..folder }),
        ] {
            let failure = set(path, seen).unwrap_err();
            assert_eq!(failure.code, FailureCode::Changed, "{failure}");
        }
        assert_eq!(facts_of(&at("f"), false), Some(file));
        assert_eq!(facts_of(&at("d"), false), Some(folder));
        set("f", file).unwrap();
        set("d", Facts { size: 1, modified_ns: time, ..folder }).unwrap();
        assert_eq!(facts_of(&at("f"), false).unwrap().mode, 0o604);
    }

    #[test]
    fn a_shared_file_gets_no_other_owner() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "content").unwrap();
        let file = Metadata::of(&fs::File::open(dir.path().join("f")).unwrap()).unwrap();
        let owned = |owner, names| Metadata { owner, names, ..file };
        let change = |owner: Option<u32>, mode| {
            let owner = owner.map(|user| Owner { user, group: 0 });
            NewMetadata {
                path: b"f".to_vec(),
                mode,
                modified_ns: Some(1),
                owner,
                seen: facts(&file),
            }
        };
        for (user, now, change, is_refused) in [
            (0, owned(0, 2), change(Some(7), None), true),
            (0, owned(7, 2), change(Some(8), None), true),
            (0, owned(7, 2), change(None, Some(0o644)), true),
            (0, owned(7, 2), change(Some(7), Some(0o644)), false),
            (0, owned(7, 2), change(None, None), false),
            (0, owned(0, 1), change(Some(7), None), false),
            (7, owned(7, 2), change(None, Some(0o644)), false),
        ] {
            let change = NewMetadata { seen: facts(&now), ..change };
            let why = refusal(&change, &now, true, user);
            assert_eq!(why.is_some(), is_refused, "{change:?} {}: {why:?}", now.owner);
        }
    }

    #[test]
    fn a_file_with_two_names_is_adjusted_under_both() {
        let dir = tempfile::tempdir().unwrap();
        let root = RootDir::open(dir.path(), RootLink::Follow).unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a"), "content").unwrap();
        fs::hard_link(at("a"), at("b")).unwrap();
        fs::write(at("other"), "content").unwrap();
        let seen = ["a", "b"].map(|name| facts_of(&at(name), false).unwrap());
        let change = |name: &str, seen| {
            let (path, modified_ns) = (name.into(), Some(5));
            NewMetadata { path, mode: Some(0o604), modified_ns, owner: None, seen }
        };
        for (name, seen) in ["a", "b"].into_iter().zip(seen) {
            set_metadata(Some(&root), &change(name, seen)).unwrap();
        }
        assert_eq!(facts_of(&at("b"), false).unwrap().mode, 0o604);
        // Another file does not count, although it has the new metadata.
        set_metadata(Some(&root), &change("other", facts_of(&at("other"), false).unwrap()))
            .unwrap();
        fs::rename(at("other"), at("b")).unwrap();
        let failure = set_metadata(Some(&root), &change("b", seen[1])).unwrap_err();
        assert_eq!(failure.code, FailureCode::Changed);
    }
}
