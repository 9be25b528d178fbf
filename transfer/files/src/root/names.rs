//! Renames to unused names: a file that appears under the new name is never replaced. A rename can also require that no
//! other user can change the file.
//!
//! `renameat2` does so in one step. File systems without support get a hard link and an unlink instead. Directories,
//! and file systems without hard links, get a look-up before a plain rename; a file that appears between these two
//! steps is lost on such file systems only.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::resolve::Links;
use super::{
    Kind, Metadata, RootDir, RootError, RootPath, examine, examine_at, fail, foreign_write,
};

impl RootDir {
    /// Moves a file, link or folder to an unused name below another folder. No link is followed.
    ///
    /// # Errors
    /// If the new name exists, or the system refuses.
    pub fn move_to(&self, from: &RootPath, other: &Self, to: &RootPath) -> Result<(), RootError> {
        let old_parent =
            self.in_parent("rename", from, Links::Refuse, |parent, _| rustix::io::dup(parent))?;
        other.in_parent("rename to", to, Links::Refuse, |parent, to| {
            let from = from.name().ok_or(Errno::INVAL)?;
            rename_unused((old_parent.as_fd(), from), (parent, to))
        })
    }

    /// Moves a regular file to an unused name below another folder, if `is_wanted` accepts its content and no other user
    /// can change the file or its name meanwhile. No link is followed.
    ///
    /// # Errors
    /// With [`RootError::Foreign`] if other users can change the file, it changes, or `is_wanted` rejects it; if the new
    /// name exists, or the system refuses.
    pub fn move_own(
        &self,
        from: &RootPath,
        other: &Self,
        to: &RootPath,
        is_wanted: &dyn Fn(&File) -> io::Result<bool>,
    ) -> Result<(), RootError> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (folder, file) = self.in_parent("open", from, Links::Refuse, |parent, name| {
            let file = rustix::fs::openat(parent, name, OFlags::RDONLY | flags, Mode::empty())?;
            Ok((rustix::io::fcntl_dupfd_cloexec(parent, 0)?, File::from(file)))
        })?;
        let look = || examine(file.as_fd()).map_err(|errno| fail("examine", from, errno));
        let found = look()?;
        let above = examine(folder.as_fd()).map_err(|errno| fail("examine", from, errno))?;
        let refuse = || RootError::Foreign(from.to_string());
        if !is_out_of_reach(&found, &above, rustix::process::geteuid().as_raw()) {
            return Err(refuse());
        }
        let wanted = is_wanted(&file).map_err(|source| RootError::Io {
            operation: "read",
            path: from.to_string(),
            source,
        })?;
        if !wanted || look()? != found {
            return Err(refuse());
        }
        let old = (folder.as_fd(), from.name().unwrap_or_default());
        let is_same = other.in_parent("rename to", to, Links::Refuse, |parent, name| {
            rename_unused(old, (parent, name))?;
            let is_same = examine_at(parent, name, AtFlags::SYMLINK_NOFOLLOW)?.id == found.id;
            if !is_same {
                rename_unused((parent, name), old)?;
            }
            Ok(is_same)
        })?;
        if is_same { Ok(()) } else { Err(refuse()) }
    }
}

/// Whether only this user can change the content of a file and its name in a folder. The sticky bit of a folder does not
/// count, because the owner of a file may rename it all the same.
fn is_out_of_reach(file: &Metadata, folder: &Metadata, user: u32) -> bool {
    let is_only_of =
        |it: &Metadata| it.owner == user && it.mode & foreign_write(it.owner, it.group) == 0;
    file.kind == Kind::File && file.names == 1 && is_only_of(file) && is_only_of(folder)
}

/// Renames a path of this process's user to an unused path.
///
/// # Errors
/// If the new path exists, or the system refuses.
pub(crate) fn rename_to_unused(from: &Path, to: &Path) -> Result<(), Errno> {
    rename_unused((rustix::fs::CWD, from), (rustix::fs::CWD, to))
}

/// Renames a name of a folder to an unused name of another folder.
fn rename_unused<P: rustix::path::Arg + Copy>(
    from: (BorrowedFd<'_>, P),
    to: (BorrowedFd<'_>, P),
) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags) {
            // The file system or the kernel does not support the flag.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            result => return result,
        }
    }
    rename_in_steps(from, to)
}

/// As [`rename_unused`], for file systems without an atomic rename to an unused name.
fn rename_in_steps<P: rustix::path::Arg + Copy>(
    from: (BorrowedFd<'_>, P),
    to: (BorrowedFd<'_>, P),
) -> Result<(), Errno> {
    // Without a flag, a hard link to a symbolic link is made, not to its target.
    match rustix::fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty()) {
        Ok(()) => rustix::fs::unlinkat(from.0, from.1, AtFlags::empty()),
        // A folder, another user's file that may not be linked, or a file system without hard links.
        Err(Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::OPNOTSUPP | Errno::MLINK) => {
            if rustix::fs::statat(to.0, to.1, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                return Err(Errno::EXIST);
            }
            rustix::fs::renameat(from.0, from.1, to.0, to.1)
        }
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;
    use crate::root::RootLink;

    #[test]
    fn only_a_file_that_no_other_user_can_change_is_moved() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let root = RootDir::open(dir.path(), RootLink::Follow).unwrap();
        let path = |name: &str| RootPath::new(name.split('/')).unwrap();
        let mode = |name: &str, mode| {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/f"), "content").unwrap();
        let moved = |wanted: &dyn Fn(&File) -> io::Result<bool>| {
            root.move_own(&path("d/f"), &root, &path("new"), wanted)
        };
        let refused = |what: &str, wanted: &dyn Fn(&File) -> io::Result<bool>| {
            let error = moved(wanted).unwrap_err();
            assert!(matches!(error, RootError::Foreign(_)), "{what}: {error}");
            assert!(at("d/f").exists() && !at("new").exists(), "{what}");
        };
        for (file, folder) in [(0o646, 0o755), (0o644, 0o757), (0o644, 0o1757)] {
            mode("d/f", file);
            mode("d", folder);
            refused("writable by others", &|_| Ok(true));
        }
        mode("d", 0o755);
        refused("another content", &|_| Ok(false));
        refused("changed while it is read", &|_| {
            mode("d/f", 0o600);
            Ok(true)
        });
        fs::hard_link(at("d/f"), at("d/g")).unwrap();
        refused("a second name", &|_| Ok(true));
        fs::remove_file(at("d/g")).unwrap();
        // The name leads to another file before the rename, without a change of the file that was read.
        fs::write(at("other"), "other").unwrap();
        let exchange = |_: &File| {
            let open = File::open(at("d/f"))?;
            fs::rename(at("d/f"), at("d/old"))?;
            fs::rename(at("other"), at("d/f"))?;
            drop(open);
            Ok(true)
        };
        assert!(matches!(moved(&exchange).unwrap_err(), RootError::Foreign(_)));
        assert!(!at("new").exists() && fs::read(at("d/f")).unwrap() == b"other");
        moved(&|_| Ok(true)).unwrap();
        assert_eq!(fs::read(at("new")).unwrap(), b"other");
        assert_eq!(fs::metadata(at("new")).unwrap().nlink(), 1);
    }

    #[test]
    fn the_private_group_of_a_user_counts_as_the_user() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "content").unwrap();
        let of = |path: &Path| Metadata::of(&File::open(path).unwrap()).unwrap();
        let file = of(&dir.path().join("f"));
        let folder = of(dir.path());
        let safe = |user, group, mode| {
            let owned = |it: Metadata| Metadata { owner: 1000, group, mode, ..it };
            is_out_of_reach(&owned(file), &owned(folder), user)
        };
        assert!(safe(1000, 1000, 0o775) && safe(1000, 100, 0o755));
        assert!(!safe(1000, 100, 0o775) && !safe(1000, 1000, 0o777) && !safe(0, 0, 0o755));
        let of_root = |mode| {
            let owned = |it: Metadata| Metadata { owner: 0, group: 0, mode, ..it };
            is_out_of_reach(&owned(file), &owned(folder), 0)
        };
        assert!(of_root(0o755) && !of_root(0o775));
    }

    #[test]
    fn a_rename_to_an_unused_name_keeps_what_is_there() {
        type Rename = fn(&Path, &Path) -> Result<(), Errno>;
        let in_steps: Rename =
            |from, to| rename_in_steps((rustix::fs::CWD, from), (rustix::fs::CWD, to));
        for (what, rename) in [("one step", rename_to_unused as Rename), ("steps", in_steps)] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            for name in ["a", "b"] {
                fs::write(at(name), name).unwrap();
            }
            for name in ["d", "e"] {
                fs::create_dir(at(name)).unwrap();
            }
            std::os::unix::fs::symlink("gone", at("l")).unwrap();
            for (from, to) in [("a", "b"), ("a", "d"), ("d", "b"), ("d", "e"), ("a", "l")] {
                let result = rename(&at(from), &at(to));
                assert_eq!(result, Err(Errno::EXIST), "{what}: {from} to {to}");
            }
            assert_eq!(fs::read(at("b")).unwrap(), b"b", "{what}");
            for (from, to) in [("a", "n"), ("l", "m"), ("d", "e/f")] {
                rename(&at(from), &at(to)).unwrap();
                assert!(at(from).symlink_metadata().is_err(), "{what}: {from}");
            }
            assert_eq!(fs::read(at("n")).unwrap(), b"a", "{what}");
            assert_eq!(fs::read_link(at("m")).unwrap(), Path::new("gone"), "{what}");
            assert_eq!(rename(&at("none"), &at("x")), Err(Errno::NOENT), "{what}");
        }
    }
}
