//! What to send: local files and directories, a stream, or what a listener's root holds.
//!
//! The walk is lazy and sorted by bytes, so that two runs send the same order and memory grows
//! with the widest directory, not with the tree. Links are followed, as scp does; a link to a
//! directory that contains it is reported. Below a listener's root, links to files are followed as
//! far as they stay inside, and links to directories are reported. Nothing but regular files is ever opened: opening a
//! FIFO or a device can wait for ever or act on hardware.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul_transfer::{Printable, RelativePath};
use sabul_wire::control::{Entry, EntryKind, Failure, FailureCode};

use super::{jail_read_failure, read_failure};
use crate::jail::{FileTime, Jail, JailPath, Kind, LinkTarget};

/// Name of the entry that carries standard input, until the destination names it.
const STDIN_NAME: &[u8] = b"stdin";

/// What nobody can copy.
const SPECIAL: &str = "a device, pipe or socket; only files and directories are copied";

/// One thing to send.
pub enum Source {
    /// A file or directory. A trailing `/` means the content of a directory, as in rsync.
    Path(PathBuf),
    /// Bytes until the end of the reader, under a name.
    Stream {
        /// Name of the entry; one plain component.
        name: Vec<u8>,
        /// Where the bytes come from.
        reader: Box<dyn Read + Send>,
    },
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Stream { name, .. } => {
                f.debug_struct("Stream").field("name", &Printable(name)).finish_non_exhaustive()
            }
        }
    }
}

impl Source {
    /// A source as written on a command line: a path, or `-` for standard input.
    pub fn from_argument(argument: &OsStr) -> Self {
        if argument == "-" {
            Self::Stream { name: STDIN_NAME.to_vec(), reader: Box::new(io::stdin()) }
        } else {
            Self::Path(argument.into())
        }
    }
}

/// Everything that one transfer sends.
#[derive(Debug)]
pub struct SourceSet {
    tree: Tree,
    roots: Vec<PathBuf>,
    stream: Option<(Vec<u8>, Stream)>,
    recursive: bool,
}

/// Where paths are looked up.
#[derive(Debug)]
pub(super) enum Tree {
    /// This machine, as the user sees it.
    Local,
    /// A listener's root, which nothing leaves.
    Jail(Arc<Jail>),
}

/// The reader of a stream entry.
pub(super) struct Stream(pub(super) Box<dyn Read + Send>);

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}

impl SourceSet {
    /// Sources on this machine.
    ///
    /// # Errors
    /// If there is more than one stream, or its name is none.
    pub fn local(sources: Vec<Source>, recursive: bool) -> Result<Self, Failure> {
        let (mut roots, mut stream) = (Vec::new(), None);
        for source in sources {
            match source {
                Source::Path(path) => roots.push(path),
                Source::Stream { name, reader } => {
                    let bad = |message| Failure::new(FailureCode::BadSetting, message);
                    RelativePath::new(&*name).map_err(|error| bad(error.to_string()))?;
                    if stream.replace((name, Stream(reader))).is_some() {
                        return Err(bad("only one source can be a stream; give '-' once".into()));
                    }
                }
            }
        }
        Ok(Self { tree: Tree::Local, roots, stream, recursive })
    }

    /// Sources below a listener's root, as a peer asks for them. A `/` in front is the root.
    pub fn in_jail(jail: Arc<Jail>, sources: Vec<Vec<u8>>, recursive: bool) -> Self {
        let roots = sources.into_iter().map(|path| OsString::from_vec(path).into()).collect();
        Self { tree: Tree::Jail(jail), roots, stream: None, recursive }
    }

    /// Whether the destination has to be a directory: with several sources, or when the content
    /// of a directory is sent.
    pub fn needs_directory(&self) -> bool {
        let count = self.roots.len() + usize::from(self.stream.is_some());
        count > 1 || self.roots.iter().any(|root| is_content(root.as_os_str().as_bytes()))
    }

    /// The walk, the tree it happens in, and the stream that comes last.
    pub(super) fn into_parts(self) -> (Walk, Option<(Vec<u8>, Stream)>) {
        let Self { tree, roots, stream, recursive } = self;
        (Walk { tree, roots: roots.into_iter(), recursive, stack: Vec::new() }, stream)
    }
}

/// Whether a source stands for what is in a directory: it ends in `/`, `.` or `..`.
fn is_content(path: &[u8]) -> bool {
    matches!(path.rsplit(|&byte| byte == b'/').next(), None | Some(b"" | b"." | b".."))
}

/// Something to send, or to say that it cannot be sent.
#[derive(Debug)]
pub(super) struct Found {
    /// As announced; an empty file where there is a failure.
    pub(super) entry: Entry,
    /// Where to open it.
    pub(super) path: PathBuf,
    /// Why it cannot be sent.
    pub(super) failure: Option<Failure>,
}

/// A walk under way.
#[derive(Debug)]
pub(super) struct Walk {
    tree: Tree,
    roots: std::vec::IntoIter<PathBuf>,
    recursive: bool,
    stack: Vec<Level>,
}

/// A directory whose children are being visited.
#[derive(Debug)]
struct Level {
    path: PathBuf,
    /// Name of the directory in the transfer; empty where its content goes to the top.
    name: Vec<u8>,
    children: std::vec::IntoIter<Vec<u8>>,
    /// Device and inode, where links to directories are followed.
    identity: Option<(u64, u64)>,
}

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            let Some(level) = self.stack.last_mut() else {
                let root = self.roots.next()?;
                match self.start(root) {
                    Some(found) => return Some(found),
                    None => continue,
                }
            };
            let Some(child) = level.children.next() else {
                self.stack.pop();
                continue;
            };
            let path = level.path.join(OsStr::from_bytes(&child));
            let mut name = level.name.clone();
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend(child);
            return Some(self.visit(path, name));
        }
    }
}

impl Walk {
    /// Opens a file of this walk for reading, without ever waiting for it.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn open(&self, path: &Path) -> Result<File, Failure> {
        self.tree.open(path)
    }

    /// Begins one source; nothing where the content of a directory begins.
    fn start(&mut self, root: PathBuf) -> Option<Found> {
        let bytes = root.as_os_str().as_bytes();
        let name = last_component(bytes);
        if !is_content(bytes) {
            return Some(self.visit(root, name));
        }
        let result = match self.tree.facts(&root, true) {
            Ok(Facts { kind: FactKind::Directory(identity), .. }) => {
                self.enter(&root, Vec::new(), identity)
            }
            Ok(_) => Err(unreadable(&root, "is not a directory; leave out the '/' at its end")),
            Err(failure) => Err(failure),
        };
        result.err().map(|failure| failed(name, root, failure))
    }

    fn visit(&mut self, path: PathBuf, name: Vec<u8>) -> Found {
        match self.try_visit(&path, &name) {
            Ok((kind, Facts { mode, modified_ns, .. })) => {
                let entry = Entry { path: name, kind, mode: Some(mode), modified_ns };
                Found { entry, path, failure: None }
            }
            Err(failure) => failed(name, path, failure),
        }
    }

    fn try_visit(&mut self, path: &Path, name: &[u8]) -> Result<(EntryKind, Facts), Failure> {
        let facts = self.tree.facts(path, self.stack.is_empty())?;
        RelativePath::new(name)
            .map_err(|error| Failure::new(FailureCode::Unreadable, error.to_string()))?;
        let kind = match facts.kind {
            FactKind::Directory(identity) => {
                self.enter(path, name.to_vec(), identity)?;
                EntryKind::Directory
            }
            FactKind::File(size) => {
                // Opened now so that a file without permission costs a message and not its size in
                // zeros; closed again so that a batch may exceed the limit of open files.
                self.tree.open(path)?;
                EntryKind::File(size)
            }
            FactKind::Other(what) => return Err(unreadable(path, &format!("is {what}"))),
        };
        Ok((kind, facts))
    }

    /// Goes on with the children of a directory, which have `name` in front of theirs.
    fn enter(
        &mut self,
        path: &Path,
        name: Vec<u8>,
        identity: Option<(u64, u64)>,
    ) -> Result<(), Failure> {
        if !self.recursive {
            return Err(unreadable(path, "is a directory; copy it with -r"));
        }
        if identity.is_some() && self.stack.iter().any(|level| level.identity == identity) {
            return Err(unreadable(path, "is a link to a directory that contains it"));
        }
        let children = self.tree.list(path)?.into_iter();
        self.stack.push(Level { path: path.to_path_buf(), name, children, identity });
        Ok(())
    }
}

/// What the walk needs to know of a file or directory.
struct Facts {
    kind: FactKind,
    mode: u32,
    modified_ns: Option<i64>,
}

enum FactKind {
    File(u64),
    /// With device and inode where a link may have led here.
    Directory(Option<(u64, u64)>),
    /// Something that is not copied.
    Other(&'static str),
}

impl Tree {
    /// What a path leads to. What the user named is followed wherever it goes; see the module's
    /// head for the rest.
    fn facts(&self, path: &Path, is_root: bool) -> Result<Facts, Failure> {
        match self {
            Self::Local => fs::metadata(path)
                .map(|metadata| local_facts(&metadata))
                .map_err(|error| read_failure(path.as_os_str().as_bytes(), &error)),
            Self::Jail(jail) => {
                let fail = |error| jail_read_failure(&error);
                let path = jail_path(path)?;
                let metadata = jail.stat(&path, LinkTarget::Follow).map_err(fail)?;
                let is_link = || {
                    let itself = jail.stat(&path, LinkTarget::Itself);
                    itself.map(|it| it.kind == Kind::Symlink).map_err(fail)
                };
                let kind = match metadata.kind {
                    Kind::File => FactKind::File(metadata.size),
                    Kind::Directory if !is_root && is_link()? => FactKind::Other(
                        "a link to a directory; name it as a source of its own to copy that",
                    ),
                    Kind::Directory => FactKind::Directory(None),
                    Kind::Symlink | Kind::Other => FactKind::Other(SPECIAL),
                };
                let FileTime { seconds, nanoseconds } = metadata.mtime;
                let modified_ns = nanoseconds_since_epoch(seconds, nanoseconds.into());
                Ok(Facts { kind, mode: metadata.mode, modified_ns })
            }
        }
    }

    fn open(&self, path: &Path) -> Result<File, Failure> {
        match self {
            Self::Local => {
                // The file may have been replaced since it was looked at; a FIFO must not hold us.
                let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
                OpenOptions::new()
                    .read(true)
                    .custom_flags(flags.bits().cast_signed())
                    .open(path)
                    .map_err(|error| read_failure(path.as_os_str().as_bytes(), &error))
            }
            Self::Jail(jail) => {
                jail.open_read(&jail_path(path)?).map_err(|error| jail_read_failure(&error))
            }
        }
    }

    /// The names in a directory, sorted by their bytes.
    fn list(&self, path: &Path) -> Result<Vec<Vec<u8>>, Failure> {
        match self {
            Self::Local => {
                let names = || -> io::Result<Vec<_>> {
                    fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().into_vec())).collect()
                };
                let mut names =
                    names().map_err(|error| read_failure(path.as_os_str().as_bytes(), &error))?;
                names.sort_unstable();
                Ok(names)
            }
            Self::Jail(jail) => jail
                .read_dir(&jail_path(path)?)
                .map(|entries| entries.into_iter().map(|entry| entry.name).collect())
                .map_err(|error| jail_read_failure(&error)),
        }
    }
}

fn jail_path(path: &Path) -> Result<JailPath, Failure> {
    let names = path.as_os_str().as_bytes().split(|&byte| byte == b'/');
    JailPath::new(names.filter(|name| !matches!(*name, b"" | b".")))
        .map_err(|error| jail_read_failure(&error))
}

fn unreadable(path: &Path, why: &str) -> Failure {
    let message = format!("'{}' {why}", Printable(path.as_os_str().as_bytes()));
    Failure::new(FailureCode::Unreadable, message)
}

fn failed(name: Vec<u8>, path: PathBuf, failure: Failure) -> Found {
    // The receiver is told as well, so it needs some name that it can accept.
    let name = if RelativePath::new(&*name).is_ok() { name } else { b"unnamed".to_vec() };
    let entry = Entry { path: name, kind: EntryKind::File(0), mode: None, modified_ns: None };
    Found { entry, path, failure: Some(failure) }
}

/// What comes behind the last slash, those at the end aside.
fn last_component(path: &[u8]) -> Vec<u8> {
    path.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()).unwrap_or(path).to_vec()
}

fn local_facts(metadata: &Metadata) -> Facts {
    let file_type = metadata.file_type();
    let kind = if file_type.is_file() {
        FactKind::File(metadata.len())
    } else if file_type.is_dir() {
        FactKind::Directory(Some((metadata.dev(), metadata.ino())))
    } else {
        FactKind::Other(SPECIAL)
    };
    Facts { kind, mode: metadata.mode() & 0o7777, modified_ns: modified_ns(metadata) }
}

/// Modification time in nanoseconds since 1970; none beyond the years 1678 to 2262.
pub(super) fn modified_ns(metadata: &Metadata) -> Option<i64> {
    nanoseconds_since_epoch(metadata.mtime(), metadata.mtime_nsec())
}

fn nanoseconds_since_epoch(seconds: i64, nanoseconds: i64) -> Option<i64> {
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}
