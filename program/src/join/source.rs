//! Tables of `sabul join`: their files on this or another machine, and their batches.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use globset::{GlobBuilder, GlobSet};
use sabul::internal::Location;
use sabul_join::read::{self, Format, LocalFile, ParquetFile};
use sabul_join::{Feed, JoinError, RecordBatch, SchemaRef};
use tokio::runtime::Handle;

use super::parts::{Contents, Part, cut};
use super::remote::{FILES_MAX, Server, Stop};
use super::{SharedRanges, cli_error};
use crate::args::JoinArgs;
use crate::error::CliError;

/// Bytes at the ends of files whose content is one request, and memory of their footers. Ours: 256 small files.
const TAILS_MAX: u64 = 16 << 20;
const FOOTERS_MAX: usize = 64 << 20;

/// First bytes of an Arrow file, which have its schema in general.
const HEAD: u64 = 64 << 10;
const HEAD_MAX: u64 = 16 << 20;

/// Receiver of batches; returns whether more are needed.
type Send<'a> = &'a mut dyn FnMut(RecordBatch) -> Result<bool, JoinError>;

/// A table.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) files: Vec<TableFile>,
    pub(super) rows: AtomicU64,
    pub(super) bytes: Arc<AtomicU64>,
    schema: SchemaRef,
    /// Footer of the first file, if this is Parquet.
    first: Option<ParquetFile>,
    /// Memory of the rows of the join, in bytes; footers may need a part of it.
    budget: usize,
    server: Option<Arc<Server>>,
    stop: Stop,
    totals: Arc<Totals>,
}

/// Counts of all tables, for the progress line.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) bytes: AtomicU64,
    pub(super) rows: AtomicU64,
    pub(super) joined: AtomicU64,
}

/// A file of a table.
pub(super) struct TableFile {
    /// Name for messages.
    name: String,
    format: Format,
    ranges: SharedRanges,
}

/// Counts the bytes that are read.
struct Counted {
    inner: SharedRanges,
    bytes: Arc<AtomicU64>,
    totals: Arc<Totals>,
}

/// A file whose end is in memory.
struct Tailed<'a> {
    inner: &'a dyn read::Ranges,
    tail: Bytes,
}

impl read::Ranges for Tailed<'_> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let start = self.size() - self.tail.len() as u64;
        match range.start.checked_sub(start).map(usize::try_from) {
            Some(Ok(skipped)) if range.end == self.size() => Ok(self.tail.slice(skipped..)),
            _ => self.inner.read(range),
        }
    }
}

impl read::Ranges for Counted {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let bytes = self.inner.read(range)?;
        for count in [&self.bytes, &self.totals.bytes] {
            count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(bytes)
    }
}

/// Opens all tables: lists their files and reads their schemas.
pub(super) fn open(
    args: &JoinArgs,
    stop: &Stop,
    totals: &Arc<Totals>,
    runtime: &Handle,
) -> Result<Vec<Source>, CliError> {
    let dialling = Arc::default();
    let budget = usize::try_from(args.memory).unwrap_or(usize::MAX);
    let open = |(place, ticket): &(OsString, Option<PathBuf>)| {
        let (files, path, server) = match Location::parse(place)? {
            Location::Local(path) => (local(Path::new(&path))?, path.into_encoded_bytes(), None),
            Location::Remote(remote) => {
                let mut channel = args.at.reach.channel.clone();
                channel.ticket = ticket.clone().or(channel.ticket);
                let path = remote.path.clone();
                let server =
                    Server::new(remote.server, path, channel, args, stop, runtime, &dialling);
                let server = Arc::new(server);
                (server.files()?, remote.path, Some(server))
            }
        };
        let mut source = Source::of(&path, files, budget, totals, stop)?;
        source.server = server;
        Ok(source)
    };
    // The first failure ends the work on the other tables.
    let failure = Mutex::new(None);
    let fail = |error: CliError| {
        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        stop.set();
    };
    let open = |table| open(table).map_err(fail).ok();
    let sources = std::thread::scope(|scope| {
        let tables = args.at.tables.iter().map(|table| scope.spawn(|| open(table)));
        let tables: Vec<_> = tables.collect();
        tables.into_iter().map(|table| table.join().ok().flatten()).collect::<Option<Vec<Source>>>()
    });
    let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failed = || CliError::failed("a reader of a table failed");
    let mut sources = sources.ok_or_else(|| failure.unwrap_or_else(failed))?;
    let mut names = BTreeSet::new();
    for (at, source) in sources.iter_mut().enumerate() {
        while !names.insert(source.name.clone()) {
            source.name = format!("{}{}", source.name, at + 1);
        }
    }
    Ok(sources)
}

/// Pattern of the last component of a path, if it has one; and the directory.
pub(super) fn pattern(path: &[u8]) -> Result<Option<(Vec<u8>, GlobSet)>, CliError> {
    let cut = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (directory, last) = path.split_at(cut);
    if directory.iter().any(|byte| b"*?[".contains(byte)) {
        return Err(CliError::usage("only the last part of a path can be a pattern"));
    }
    if !last.iter().any(|byte| b"*?[".contains(byte)) {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(last);
    let glob = GlobBuilder::new(&text).literal_separator(true).build();
    // A set of one pattern returns an error where the pattern alone panics: braces may be nested too deeply.
    let glob = glob.and_then(|glob| GlobSet::new([glob]));
    let glob = glob.map_err(|error| CliError::usage(format!("pattern '{text}': {error}")))?;
    Ok(Some((directory.to_owned(), glob)))
}

fn local(path: &Path) -> Result<Vec<(String, SharedRanges)>, CliError> {
    use std::os::unix::ffi::OsStrExt as _;
    let bytes = path.as_os_str().as_bytes();
    let found = if path.is_file() { None } else { pattern(bytes)? };
    let paths = if path.is_file() {
        vec![path.to_owned()]
    } else {
        let directory = match &found {
            Some((directory, _)) if directory.is_empty() => Path::new("."),
            Some((directory, _)) => Path::new(OsStr::from_bytes(directory)),
            None => path,
        };
        let entries = std::fs::read_dir(directory).map_err(|error| {
            CliError::failed(format!(
                "cannot read '{}': {error}; check the name",
                directory.display()
            ))
        })?;
        let mut paths = Vec::new();
        for entry in entries {
            let entry =
                entry.map_err(|error| CliError::failed(format!("read a directory: {error}")))?;
            let name = entry.file_name();
            let is_wanted = match &found {
                Some((_, glob)) => glob.is_match(Path::new(&name)),
                None => Format::of_name(&name.to_string_lossy()).is_some(),
            };
            if is_wanted && entry.path().is_file() {
                paths.push(entry.path());
            }
        }
        paths.sort();
        paths
    };
    let files = paths.iter().map(|path| {
        let file = LocalFile::open(path).map_err(cli_error)?;
        Ok::<_, CliError>((path.display().to_string(), Arc::new(file) as SharedRanges))
    });
    files.collect()
}

impl Source {
    /// Makes a table of these files, and reads the schema of the first.
    fn of(
        place: &[u8],
        files: Vec<(String, SharedRanges)>,
        budget: usize,
        totals: &Arc<Totals>,
        stop: &Stop,
    ) -> Result<Self, CliError> {
        let shown = String::from_utf8_lossy(place).into_owned();
        if files.is_empty() || files.len() > FILES_MAX {
            let count = if files.is_empty() { "no" } else { "too many" };
            return Err(CliError::failed(format!(
                "'{shown}' has {count} files of a table, expected 1 to {FILES_MAX}"
            )));
        }
        let bytes = Arc::<AtomicU64>::default();
        let files = files.into_iter().map(|(name, inner)| {
            let format = Format::of_name(&name).ok_or_else(|| {
                CliError::usage(format!(
                    "'{name}': the format of a table is its extension; known: .parquet, .csv, .arrow"
                ))
            })?;
            let (bytes, totals) = (Arc::clone(&bytes), Arc::clone(totals));
            let ranges = Arc::new(Counted { inner, bytes, totals });
            Ok::<_, CliError>(TableFile { name, format, ranges })
        });
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let schema = files[0].schema(budget).map_err(|error| files[0].error(error));
        let (schema, first) = schema.map_err(cli_error)?;
        Ok(Self {
            name: table_name(&shown),
            files,
            rows: AtomicU64::new(0),
            bytes,
            schema,
            first,
            budget,
            server: None,
            stop: stop.clone(),
            totals: Arc::clone(totals),
        })
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Sends the batches of all files.
    pub(super) fn read(&self, columns: &[&str], feed: &Feed) -> Result<(), JoinError> {
        let mut send = |batch: RecordBatch| {
            self.stop.check()?;
            for count in [&self.rows, &self.totals.rows] {
                count.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
            }
            Ok(feed.send(batch))
        };
        let mut next = 0;
        while next < self.files.len() {
            let opened = self.open_files(self.request_from(next))?;
            let start = next;
            next += opened.len();
            if !self.read_files(start, opened, columns, &mut send)? {
                break;
            }
        }
        match &self.server {
            // A file that changed between two ranges would give rows of two versions.
            Some(server) => server.check_unchanged(),
            None => Ok(()),
        }
    }

    /// Returns the files from this number on whose footers are one request.
    fn request_from(&self, start: usize) -> Range<usize> {
        let mut tails = 0;
        let count = self.files[start..].iter().take_while(|file| {
            let tail = read::parquet_tail(file.ranges.size());
            tails += tail.end - tail.start;
            tails <= TAILS_MAX
        });
        start..start + count.count().max(1)
    }

    /// Sends the batches of consecutive files with these footers. Returns whether more batches are needed.
    fn read_files(
        &self,
        start: usize,
        opened: Vec<Option<ParquetFile>>,
        columns: &[&str],
        send: Send<'_>,
    ) -> Result<bool, JoinError> {
        let mut parts = Vec::new();
        for (at, parquet) in (start..).zip(&opened) {
            match parquet {
                Some(parquet) => {
                    for group in 0..parquet.row_groups() {
                        let ranges = parquet.ranges(group, columns);
                        let ranges = ranges.map_err(|error| self.files[at].error(error))?;
                        parts.extend(ranges.into_iter().flat_map(|range| cut(at, range)));
                    }
                }
                None => parts.extend(cut(at, 0..self.files[at].ranges.size())),
            }
        }
        let mut contents = self.contents(parts);
        for (at, parquet) in (start..).zip(opened) {
            let file = &self.files[at];
            let more = file.read(at, parquet, (&self.schema, columns), &mut contents, send);
            if !more.map_err(|error| file.error(error))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the footers of those of these files that are Parquet; of fewer files if the footers need much memory.
    fn open_files(&self, files: Range<usize>) -> Result<Vec<Option<ParquetFile>>, JoinError> {
        let tail = |at: usize| {
            let file = &self.files[at];
            let is_known = at == 0 && self.first.is_some();
            let is_wanted = file.format == Format::Parquet && !is_known;
            is_wanted.then(|| read::parquet_tail(file.ranges.size()))
        };
        let parts = files.clone().filter_map(|at| Some(cut(at, tail(at)?))).flatten();
        let mut contents = self.contents(parts.collect());
        let mut open = |at: usize| {
            let file = &self.files[at];
            let Some(tail) = tail(at) else { return Ok(self.first.clone().filter(|_| at == 0)) };
            let tail = contents.range(at, &tail);
            let tail = tail.map_err(|error| file.error(footer_error(error)))?;
            let tailed = Tailed { inner: &*file.ranges, tail };
            ParquetFile::open(&tailed, self.budget).map(Some).map_err(|error| file.error(error))
        };
        let (mut opened, mut bytes) = (Vec::new(), 0);
        for at in files {
            let file = open(at)?;
            bytes += file.as_ref().map_or(0, ParquetFile::footer_bytes);
            opened.push(file);
            if bytes > FOOTERS_MAX {
                break;
            }
        }
        Ok(opened)
    }

    /// Reads parts of the files, in this order.
    fn contents(&self, parts: Vec<Part>) -> Contents {
        if let Some(server) = &self.server {
            let (own, totals) = (Arc::clone(&self.bytes), Arc::clone(&self.totals));
            let contents = server.contents(&parts).inspect(move |part| {
                let bytes = part.as_ref().map_or(0, Bytes::len) as u64;
                own.fetch_add(bytes, Ordering::Relaxed);
                totals.bytes.fetch_add(bytes, Ordering::Relaxed);
            });
            return Contents::new(parts, contents);
        }
        let files: Vec<_> = self.files.iter().map(|file| Arc::clone(&file.ranges)).collect();
        let read = parts.clone().into_iter().map(move |part| files[part.file].read(part.range));
        Contents::new(parts, read)
    }

    /// Closes the connection.
    pub(super) fn close(self, in_order: bool) -> Result<(), CliError> {
        let Self { files, server, .. } = self;
        drop(files);
        match server.and_then(Arc::into_inner) {
            Some(server) => server.close(in_order),
            None => Ok(()),
        }
    }
}

/// Returns the file name without extension and pattern; letters, digits and `_` only.
fn table_name(path: &str) -> String {
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let stem = last.split('.').next().unwrap_or_default();
    let name: String = stem.chars().map(|it| if it.is_alphanumeric() { it } else { '_' }).collect();
    let name = name.trim_matches('_');
    if name.is_empty() { "table".to_owned() } else { name.to_owned() }
}

impl TableFile {
    /// Adds the name of the file to an error.
    fn error(&self, error: JoinError) -> JoinError {
        match error {
            JoinError::Table(text) => JoinError::Table(format!("{}: {text}", self.name)),
            JoinError::Io { what, error } => {
                JoinError::Io { what: format!("{}: {what}", self.name), error }
            }
            other => other,
        }
    }

    /// Returns the schema, and the footer if this is Parquet.
    fn schema(&self, budget: usize) -> Result<(SchemaRef, Option<ParquetFile>), JoinError> {
        let size = self.ranges.size();
        let schema = match self.format {
            Format::Parquet => {
                let file = ParquetFile::open(&*self.ranges, budget)?;
                return Ok((file.schema(), Some(file)));
            }
            Format::Csv => {
                let head = self.head(size.min(read::CSV_HEAD))?;
                read::csv_schema(&head, head.len() as u64 == size)?
            }
            Format::Arrow => {
                let head = self.head(size.min(HEAD))?;
                // A long schema needs more bytes.
                read::arrow_schema(&*head)
                    .or_else(|_| read::arrow_schema(&*self.head(size.min(HEAD_MAX))?))?
            }
        };
        Ok((schema, None))
    }

    fn head(&self, bytes: u64) -> Result<Bytes, JoinError> {
        let head = self.ranges.read(0..bytes);
        head.map_err(|error| JoinError::Io { what: "read the header".to_owned(), error })
    }

    /// Sends the batches of this file, whose number in the table is `at`. Returns whether more batches are needed.
    fn read(
        &self,
        at: usize,
        parquet: Option<ParquetFile>,
        (schema, columns): (&SchemaRef, &[&str]),
        contents: &mut Contents,
        send: Send<'_>,
    ) -> Result<bool, JoinError> {
        let more = match (self.format, parquet) {
            (_, Some(file)) => {
                for group in 0..file.row_groups() {
                    let chunks = file.fetch(group, columns, |range| contents.range(at, range))?;
                    if !file.decode(chunks, group, columns, send)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Format::Csv, None) => {
                read::csv(BufReader::new(contents.stream(at)), schema, columns, send)?
            }
            (_, None) => read::arrow(BufReader::new(contents.stream(at)), columns, send)?,
        };
        if more {
            // The footer of an Arrow file.
            contents.skip(at).map_err(|error| JoinError::Io { what: "read".to_owned(), error })?;
        }
        Ok(more)
    }
}

fn footer_error(error: io::Error) -> JoinError {
    JoinError::Io { what: "read the Parquet footer".to_owned(), error }
}
