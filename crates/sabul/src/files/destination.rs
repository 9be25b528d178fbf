//! Writing files below a root: part files, then an atomic rename.
//!
//! Content goes to `<name>.sabul-part` beside the final name, so a reader sees the old file or
//! the whole new one and nothing between; a part that stayed from an earlier run is replaced.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;
use sabul_transfer::Printable;
use sabul_wire::control::{Entry, EntryKind, Failure, FailureCode};

use super::receive::{Receiver, Sink};
use super::{jail_write_failure, write_failure};
use crate::jail::{
    FileTime, Jail, JailError, JailPath, Kind, LinkTarget, MAX_NAME, Metadata, RootLink, set_mode,
    set_mtime,
};

/// What the name of a file under construction ends in.
const PART_SUFFIX: &[u8] = b".sabul-part";
/// Files of at least this many bytes get their space before their content, so that a full disk is
/// found early and the file is in few pieces. Ours: below it, the extra call costs more.
const PREALLOCATE_BYTES: u64 = 1 << 20;

/// Receives entries into a directory tree.
pub type FileReceiver = Receiver<FileSink>;

/// Where files go and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// Relative to the root; empty for the root itself.
    pub path: Vec<u8>,
    /// The path is a directory to put entries in, made where missing; so is one that ends in `/`.
    /// Otherwise, entries go into the path if it is a directory, and else take its name.
    pub into_directory: bool,
    /// Keep modification times and permission bits, without the bits that lend rights (setuid,
    /// setgid) or the sticky bit. Otherwise files are new and the umask applies to their bits.
    pub preserve: bool,
    /// Have each file on the disk before it gets its name.
    pub sync: bool,
}

impl FileReceiver {
    /// Receives a transfer into a place below the root of `jail`.
    ///
    /// # Errors
    /// If the destination leaves the root or cannot be what it has to be.
    pub fn new(jail: Arc<Jail>, destination: &Destination, transfer: u32) -> Result<Self, Failure> {
        let place = Place::resolve(&jail, destination)?;
        let &Destination { preserve, sync, .. } = destination;
        let (parts, directories) = (BTreeMap::new(), Vec::new());
        let sink = FileSink { jail, place, preserve, sync, parts, directories };
        Ok(Self::with_sink(sink, transfer))
    }
}

/// The jail and the destination in it for a path of this machine as its user writes it. The path
/// may lead through links; what is received may not.
///
/// # Errors
/// If there is no directory to begin with, and none can be made.
pub fn local_destination(path: &Path, into_directory: bool) -> Result<(Jail, Vec<u8>), Failure> {
    let bytes = path.as_os_str().as_bytes();
    let fail = |error: io::Error| write_failure(bytes, &error);
    let is_directory = fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
    if !is_directory && (into_directory || bytes.ends_with(b"/")) {
        fs::create_dir_all(path).map_err(fail)?;
    } else if !is_directory {
        let name = path.file_name().ok_or_else(|| fail(io::ErrorKind::NotFound.into()))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let jail = Jail::open(parent.unwrap_or_else(|| Path::new(".")), RootLink::Follow);
        return Ok((jail.map_err(|error| jail_write_failure(&error))?, name.as_bytes().to_vec()));
    }
    let jail = Jail::open(path, RootLink::Follow).map_err(|error| jail_write_failure(&error))?;
    Ok((jail, Vec::new()))
}

/// Writes entries as files below a root.
#[derive(Debug)]
pub struct FileSink {
    jail: Arc<Jail>,
    place: Place,
    preserve: bool,
    sync: bool,
    /// Files under construction, by index.
    parts: BTreeMap<u64, Part>,
    /// Directories whose times and bits are set last, since writing into them changes the ones
    /// and may need others than the other.
    directories: Vec<(u64, JailPath, Entry)>,
}

/// A file under construction.
#[derive(Debug)]
struct Part {
    /// Open until the last byte.
    file: Option<File>,
    path: JailPath,
    target: JailPath,
    written: u64,
}

/// How names of entries become paths below the root.
#[derive(Debug)]
enum Place {
    /// Below this directory.
    Inside(JailPath),
    /// This in place of the first component, which must be the same for all.
    Instead { path: JailPath, first: Option<Vec<u8>> },
}

impl Place {
    fn resolve(jail: &Jail, destination: &Destination) -> Result<Self, Failure> {
        let bytes = &destination.path;
        let names = bytes.split(|&byte| byte == b'/');
        let fail = |error: JailError| jail_write_failure(&error);
        let path =
            JailPath::new(names.filter(|name| !matches!(*name, b"" | b"."))).map_err(fail)?;
        let is_directory_wanted = destination.into_directory || bytes.ends_with(b"/");
        match jail.stat(&path, LinkTarget::Follow) {
            Ok(metadata) if metadata.kind == Kind::Directory => Ok(Self::Inside(path)),
            Ok(_) if is_directory_wanted => {
                Err(jail_write_failure(&JailError::NotADirectory(path.to_string())))
            }
            Ok(metadata) if metadata.kind == Kind::Other => {
                Err(jail_write_failure(&JailError::NotAFile(path.to_string())))
            }
            Err(error) if error.is_not_found() && is_directory_wanted => {
                jail.create_dir_all(&path).map_err(fail)?;
                Ok(Self::Inside(path))
            }
            Err(error) if !error.is_not_found() => Err(fail(error)),
            Ok(_) | Err(_) => Ok(Self::Instead { path, first: None }),
        }
    }

    /// The path of an entry below the root.
    fn target(&mut self, entry: &Entry) -> Result<JailPath, Failure> {
        let mut names = entry.path.split(|&byte| byte == b'/');
        let start = match self {
            Self::Inside(directory) => directory.clone(),
            Self::Instead { path, first } => {
                let head = names.next().unwrap_or_default();
                if first.get_or_insert_with(|| head.to_vec()) != head {
                    let message = format!(
                        "'{path}' is no directory, so only one source can go there; \
                         '{}' is another",
                        Printable(&entry.path)
                    );
                    return Err(Failure::new(FailureCode::Unwritable, message));
                }
                path.clone()
            }
        };
        names
            .try_fold(start, |path, name| path.join(name))
            .map_err(|error| jail_write_failure(&error))
    }
}

/// The name beside `target` under which it is built.
fn part_path(target: &JailPath) -> Result<JailPath, Failure> {
    let (Some(parent), Some(name)) = (target.parent(), target.name()) else {
        return Err(jail_write_failure(&JailError::IsADirectory(target.to_string())));
    };
    if name.ends_with(PART_SUFFIX) {
        let message = format!(
            "'{target}' has a name that is reserved for files under construction; rename it"
        );
        return Err(Failure::new(FailureCode::Refused, message));
    }
    let part = if name.len() + PART_SUFFIX.len() <= MAX_NAME {
        [name, PART_SUFFIX].concat()
    } else {
        // Too long with the suffix: the start of the name, and a hash of all of it.
        let hash = blake3::hash(name).to_hex();
        let keep = MAX_NAME - PART_SUFFIX.len() - 17;
        [&name[..keep], b"~", &hash.as_bytes()[..16], PART_SUFFIX].concat()
    };
    parent.join(part).map_err(|error| jail_write_failure(&error))
}

impl FileSink {
    fn part(&mut self, index: u64) -> Result<&mut Part, Failure> {
        self.parts.get_mut(&index).ok_or_else(|| {
            Failure::new(FailureCode::Internal, format!("entry {index} is written but not begun"))
        })
    }

    /// Gives a complete part its times and bits, and closes it.
    fn seal(&mut self, index: u64, entry: &Entry) -> Result<(), Failure> {
        let (preserve, sync) = (self.preserve, self.sync);
        let part = self.part(index)?;
        let Some(file) = part.file.take() else { return Ok(()) };
        let seal = || {
            if preserve {
                keep_metadata(&file, entry)?;
            }
            if sync { file.sync_all() } else { Ok(()) }
        };
        seal().map_err(|error| write_failure(part.target.as_bytes(), &error))
    }
}

/// Takes from a new directory, which has what the umask left, the bits that `mode` lacks; those of
/// its owner aside, which are needed to fill it.
fn narrow(directory: &File, mode: u32) -> io::Result<()> {
    let now = Metadata::of(directory)?.mode;
    // Setting bits also drops an inherited setgid, so it is not done without need.
    if now & 0o777 & !(mode | 0o700) == 0 {
        Ok(())
    } else {
        set_mode(directory, now & (mode | 0o700))
    }
}

/// Sets modification time and permission bits as announced.
fn keep_metadata(file: &File, entry: &Entry) -> io::Result<()> {
    if let Some(mode) = entry.mode {
        set_mode(file, mode)?;
    }
    if let Some(ns) = entry.modified_ns {
        const SECOND: i64 = 1_000_000_000;
        // The remainder of a euclidean division is not negative and below a second.
        let nanoseconds = u32::try_from(ns.rem_euclid(SECOND)).unwrap_or(0);
        set_mtime(file, FileTime { seconds: ns.div_euclid(SECOND), nanoseconds })?;
    }
    Ok(())
}

/// Reserves space. A file system that cannot is fine.
fn preallocate(file: &File, size: u64) -> io::Result<()> {
    // Asked first: a reservation that fails may have taken all the space there was meanwhile.
    if let Ok(disk) = fstatvfs(file)
        && size > disk.f_bavail.saturating_mul(disk.f_frsize)
    {
        return Err(io::ErrorKind::StorageFull.into());
    }
    loop {
        return match fallocate(file, FallocateFlags::empty(), 0, size) {
            Err(Errno::INTR) => continue,
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
            _ => Ok(()),
        };
    }
}

impl Sink for FileSink {
    fn make_directory(&mut self, index: u64, entry: &Entry) -> Result<(), Failure> {
        let path = self.place.target(entry)?;
        let fail = |error: JailError| jail_write_failure(&error);
        let is_new = match self.jail.stat(&path, LinkTarget::Itself) {
            Err(error) if error.is_not_found() => true,
            Err(error) => return Err(fail(error)),
            Ok(_) => false,
        };
        self.jail.create_dir_all(&path).map_err(fail)?;
        if is_new && let Some(mode) = entry.mode {
            let directory = self.jail.open_dir(&path).map_err(fail)?;
            narrow(&directory, mode).map_err(|error| write_failure(path.as_bytes(), &error))?;
        }
        if self.preserve {
            self.directories.push((index, path, entry.clone()));
        }
        Ok(())
    }

    fn create(&mut self, index: u64, entry: &Entry) -> Result<(), Failure> {
        let target = self.place.target(entry)?;
        let path = part_path(&target)?;
        let file = self
            .jail
            .create_part(&path, entry.mode.unwrap_or(0o666))
            .map_err(|error| jail_write_failure(&error))?;
        let size = entry.kind.size();
        let reserved = match size {
            Some(size) if size >= PREALLOCATE_BYTES => preallocate(&file, size),
            _ => Ok(()),
        };
        let result = reserved.map_err(|error| write_failure(target.as_bytes(), &error));
        self.parts.insert(index, Part { file: Some(file), path, target, written: 0 });
        result?;
        if size == Some(0) { self.seal(index, entry) } else { Ok(()) }
    }

    fn write(&mut self, index: u64, entry: &Entry, content: &[u8]) -> Result<(), Failure> {
        let part = self.part(index)?;
        if let Some(file) = &mut part.file {
            file.write_all(content)
                .map_err(|error| write_failure(part.target.as_bytes(), &error))?;
        }
        part.written += content.len() as u64;
        // Closed with its last byte, so that files that wait for their hash need no descriptor.
        if entry.kind == EntryKind::File(part.written) { self.seal(index, entry) } else { Ok(()) }
    }

    fn finish(&mut self, index: u64, entry: &Entry) -> Result<(), Failure> {
        self.seal(index, entry)?;
        let part = &self.parts[&index];
        self.jail.rename(&part.path, &part.target).map_err(|error| jail_write_failure(&error))?;
        self.parts.remove(&index);
        Ok(())
    }

    fn discard(&mut self, index: u64) {
        if let Some(part) = self.parts.remove(&index) {
            // A part that cannot be removed is replaced by the next attempt.
            let _ = self.jail.remove_file(&part.path);
        }
    }

    fn complete(&mut self) -> Vec<(u64, Vec<u8>, Failure)> {
        let mut failures = Vec::new();
        // Children first: setting the parent's bits may close the way to them.
        for (index, path, entry) in self.directories.drain(..).rev() {
            let result = match self.jail.open_dir(&path) {
                Ok(directory) => keep_metadata(&directory, &entry)
                    .map_err(|error| write_failure(path.as_bytes(), &error)),
                Err(error) => Err(jail_write_failure(&error)),
            };
            if let Err(failure) = result {
                failures.push((index, entry.path, failure));
            }
        }
        failures
    }

    fn abort(&mut self) {
        while let Some((_, part)) = self.parts.pop_first() {
            let _ = self.jail.remove_file(&part.path);
        }
    }
}
