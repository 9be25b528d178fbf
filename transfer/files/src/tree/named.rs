//! A named source directory, held open against links that other users swap in during a walk.
//!
//! Every path is resolved below the open directory without following links (`root.rs`), and names of the directory that
//! is walked are looked up in its descriptor. So neither the last name nor a directory above it can lead elsewhere.
//! If links are followed, the target of a link is computed first, must be in the named directory, and is then resolved
//! in the same way. A link swapped in between can therefore only select another file of the named directory.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use sabul_content::Printable;
use sabul_wire::control::{Failure, FailureCode};

use super::{Children, FactKind, Facts, names_of, root_path};
use crate::disk::{DiskFile, ReadFile};
use crate::entry_error::read_failure;
use crate::root::read::Folder;
use crate::root::{FileId, Kind, Metadata, RootDir, RootError, RootLink, RootPath};

/// A directory that the user named as a source.
#[derive(Debug)]
pub(crate) struct NamedRoot {
    path: PathBuf,
    link: RootLink,
    id: FileId,
    /// Links whose target is in the directory are followed.
    follows: bool,
    /// `None` after [`Self::release`]; the directory is then opened for each call.
    held: Mutex<Option<Arc<RootDir>>>,
    /// Directory whose names are looked up.
    near: Mutex<Option<(PathBuf, Arc<Folder>)>>,
}

impl NamedRoot {
    /// Opens a directory. `link` is about the last name of its path only.
    ///
    /// # Errors
    /// If the path is not a directory, or cannot be opened.
    pub(crate) fn open(path: &Path, link: RootLink, follows: bool) -> Result<Self, Failure> {
        let (root, found) = open_root(path, link).map_err(|errno| failure(path, errno))?;
        let (held, near) = (Mutex::new(Some(Arc::new(root))), Mutex::new(None));
        Ok(Self { path: path.to_path_buf(), link, id: found.id, follows, held, near })
    }

    /// Closes the descriptor of the directory that was walked last.
    pub(crate) fn leave(&self) {
        *lock(&self.near) = None;
    }

    /// Closes all descriptors, to bound their number. Later calls open the directory again and compare its identity.
    pub(crate) fn release(&self) {
        self.leave();
        *lock(&self.held) = None;
    }

    /// Looks up a path, as [`super::Tree::examine_source`].
    pub(super) fn examine_source(&self, path: &Path) -> Result<Facts, Failure> {
        let mut found = self.examine(path)?;
        if found.kind == Kind::Symlink && self.follows {
            found = match self.target(path) {
                Ok(target) => self
                    .root()
                    .and_then(|root| root.stat_plain(&target))
                    .map_err(|errno| failure(path, errno))?,
                Err(Errno::XDEV) => return Ok(Facts::new(FactKind::LinkOut, &found)),
                // Including a link that leads to itself.
                Err(errno) => return Err(read_failure(path.as_os_str().as_bytes(), &errno.into())),
            };
        }
        let identity = (found.id.device, found.id.inode);
        let kind = match found.kind {
            Kind::File => FactKind::File(found.size),
            Kind::Directory => FactKind::Directory(self.follows.then_some(identity)),
            Kind::Symlink => FactKind::Link,
            Kind::Other => FactKind::Other(super::SPECIAL),
        };
        Ok(Facts::new(kind, &found))
    }

    /// The metadata of a path; a link is not followed.
    pub(super) fn examine(&self, path: &Path) -> Result<Metadata, Failure> {
        self.in_folder(path, Folder::examine).map_err(|errno| failure(path, errno))
    }

    /// The target text of a symbolic link.
    pub(super) fn read_link(&self, path: &Path) -> Result<Vec<u8>, Failure> {
        self.in_folder(path, Folder::read_link).map_err(|errno| failure(path, errno))
    }

    /// Opens a file to read it; its kind is not checked.
    pub(super) fn open_file(&self, path: &Path) -> Result<Box<dyn ReadFile>, Failure> {
        let opened = match self.near_name(path) {
            Some((folder, name)) => match folder.read(name) {
                Err(Errno::LOOP) => self.resolve(path, RootDir::read_plain),
                result => result,
            },
            None => self.resolve(path, RootDir::read_plain),
        };
        opened.map(|file| Box::new(file) as Box<dyn ReadFile>).map_err(|errno| failure(path, errno))
    }

    /// Opens a directory to read its metadata.
    pub(super) fn open_directory(&self, path: &Path) -> Result<Box<dyn DiskFile>, Failure> {
        self.resolve(path, RootDir::list_plain)
            .map(|folder| Box::new(fs::File::from(folder)) as Box<dyn DiskFile>)
            .map_err(|errno| failure(path, errno))
    }

    /// Opens a directory to walk its names; returns the names, and the metadata of the directory that was opened.
    pub(super) fn enter(&self, path: &Path) -> Result<(Children, Metadata), Failure> {
        let fail = |errno| failure(path, errno);
        let folder = self.resolve(path, RootDir::list_plain).map_err(fail)?;
        let found = folder.metadata().map_err(fail)?;
        let near = folder.duplicate().map_err(fail)?;
        *lock(&self.near) = Some((path.to_path_buf(), Arc::new(near)));
        Ok((names_of(folder, path)?, found))
    }

    /// Returns to a directory whose names are looked up next.
    ///
    /// # Errors
    /// If the directory has another identity than before.
    pub(crate) fn come_near(&self, path: &Path, id: FileId) -> Result<(), Failure> {
        if lock(&self.near).as_ref().is_some_and(|(near, _)| near.as_os_str() == path.as_os_str()) {
            return Ok(());
        }
        if self.approach(path)?.id != id {
            self.leave();
            return Err(replaced(path));
        }
        Ok(())
    }

    /// Opens a directory whose names are looked up next; returns its metadata.
    pub(super) fn approach(&self, path: &Path) -> Result<Metadata, Failure> {
        self.folder(path).and_then(|folder| folder.metadata()).map_err(|errno| failure(path, errno))
    }

    /// Opens a directory whose names are looked up next.
    fn folder(&self, path: &Path) -> Result<Arc<Folder>, Errno> {
        let folder = Arc::new(self.resolve(path, RootDir::enter_plain)?);
        *lock(&self.near) = Some((path.to_path_buf(), Arc::clone(&folder)));
        Ok(folder)
    }

    /// The directory whose names are looked up and the last name of the path, if the path is there.
    fn near_name<'a>(&self, path: &'a Path) -> Option<(Arc<Folder>, &'a [u8])> {
        let near = lock(&self.near);
        let (folder_path, folder) = near.as_ref()?;
        let folder_bytes = folder_path.as_os_str().as_bytes();
        let rest = path.as_os_str().as_bytes().strip_prefix(folder_bytes)?;
        let name = match folder_bytes.ends_with(b"/") {
            true => rest,
            false => rest.strip_prefix(b"/")?,
        };
        (!name.is_empty() && !name.contains(&b'/')).then(|| (Arc::clone(folder), name))
    }

    /// Runs `act` with the open directory of a path and the last name of the path.
    fn in_folder<T>(
        &self,
        path: &Path,
        act: impl FnOnce(&Folder, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if let Some((folder, name)) = self.near_name(path) {
            return act(&folder, name);
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::INVAL);
        };
        act(&*self.folder(parent)?, name.as_bytes())
    }

    /// Runs `act` with the place of a path, or of the target of the links in the path.
    fn resolve<T>(
        &self,
        path: &Path,
        act: impl Fn(&RootDir, &RootPath) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let root = self.root()?;
        match act(&root, &below(&self.path, path)?) {
            Err(Errno::LOOP) if self.follows => act(&root, &self.target(path)?),
            result => result,
        }
    }

    /// The place to which the links of a path lead; `XDEV` if the place is not in this directory.
    fn target(&self, path: &Path) -> Result<RootPath, Errno> {
        let real = |path: &Path| fs::canonicalize(path).map_err(|error| errno_of(&error));
        below(&real(&self.path)?, &real(path)?)
    }

    fn root(&self) -> Result<Arc<RootDir>, Errno> {
        if let Some(root) = &*lock(&self.held) {
            return Ok(Arc::clone(root));
        }
        let (root, found) = open_root(&self.path, self.link)?;
        // Another directory has the name now.
        if found.id == self.id { Ok(Arc::new(root)) } else { Err(Errno::LOOP) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_root(path: &Path, link: RootLink) -> Result<(RootDir, Metadata), Errno> {
    let root = RootDir::open(path, link).map_err(|error| match &error {
        RootError::NotADirectory(_) => Errno::NOTDIR,
        _ => error.io_error().map_or(Errno::LOOP, errno_of),
    })?;
    let found = root.stat_plain(&RootPath::root())?;
    Ok((root, found))
}

/// The place of a path below `root`; `XDEV` if the path is elsewhere.
fn below(root: &Path, path: &Path) -> Result<RootPath, Errno> {
    let below = path.strip_prefix(root).map_err(|_| Errno::XDEV)?;
    root_path(below).map_err(|_| Errno::NAMETOOLONG)
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn failure(path: &Path, errno: Errno) -> Failure {
    match errno {
        Errno::LOOP | Errno::XDEV => replaced(path),
        _ => read_failure(path.as_os_str().as_bytes(), &errno.into()),
    }
}

/// Failure of a path that leads elsewhere than at its lookup.
fn replaced(path: &Path) -> Failure {
    let text = format!(
        "'{}' or a directory above it was replaced while it was read; copy it again",
        Printable(path.as_os_str().as_bytes())
    );
    Failure::new(FailureCode::Changed, text)
}
