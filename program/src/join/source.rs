//! Tables of `sabul join`: their files on this or another machine, and their batches.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::io::{self, BufReader, Read};
use std::iter::Peekable;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf as _, Bytes};
use globset::{GlobBuilder, GlobMatcher};
use sabul::internal::Location;
use sabul_join::read::{self, Format, LocalFile, ParquetFile};
use sabul_join::{Feed, JoinError, RecordBatch, SchemaRef};
use tokio::runtime::Handle;

use super::remote::{FILES_MAX, Server, Stop};
use super::{SharedRanges, cli_error};
use crate::args::JoinArgs;
use crate::error::CliError;

/// Ranges of a table on their way at the same time. Ours: hides the pauses between ranges.
const IN_FLIGHT: usize = 4;
/// Bytes of such ranges. Ours: four row groups of usual size. A larger row group is read by itself.
const BYTES_IN_FLIGHT: u64 = 256 << 20;
/// Bytes of a range of a CSV or Arrow file. Ours: a second at 64 Mbit/s.
const RANGE: u64 = 8 << 20;

/// A table.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) files: Vec<TableFile>,
    pub(super) rows: AtomicU64,
    pub(super) bytes: Arc<AtomicU64>,
    schema: SchemaRef,
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
#[derive(Clone)]
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
    let mut names = BTreeSet::new();
    args.at
        .tables
        .iter()
        .enumerate()
        .map(|(at, (place, ticket))| {
            let (files, path, server) = match Location::parse(place)? {
                Location::Local(path) => {
                    (local(Path::new(&path))?, path.into_encoded_bytes(), None)
                }
                Location::Remote(remote) => {
                    let mut channel = args.at.reach.channel.clone();
                    channel.ticket = ticket.clone().or(channel.ticket);
                    let path = remote.path.clone();
                    let server = Server::new(remote.server, path, channel, args, stop, runtime);
                    let server = Arc::new(server);
                    (server.files()?, remote.path, Some(server))
                }
            };
            let mut source = Source::of(&path, files, totals, stop)?;
            source.server = server;
            while !names.insert(source.name.clone()) {
                source.name = format!("{}{}", source.name, at + 1);
            }
            Ok(source)
        })
        .collect()
}

/// Pattern of the last component of a path, if it has one; and the directory.
pub(super) fn pattern(path: &[u8]) -> Result<Option<(Vec<u8>, GlobMatcher)>, CliError> {
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
    let glob = glob.map_err(|error| CliError::usage(format!("pattern '{text}': {error}")))?;
    Ok(Some((directory.to_owned(), glob.compile_matcher())))
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
        let schema = files[0].schema().map_err(|error| files[0].error(error)).map_err(cli_error)?;
        Ok(Self {
            name: table_name(&shown),
            files,
            rows: AtomicU64::new(0),
            bytes,
            schema,
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
        for file in &self.files {
            let more =
                file.read(&self.schema(), columns, &mut send).map_err(|it| file.error(it))?;
            if !more {
                break;
            }
        }
        match &self.server {
            // A file that changed between two ranges would give rows of two versions.
            Some(server) => server.check_unchanged(),
            None => Ok(()),
        }
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

    fn schema(&self) -> Result<SchemaRef, JoinError> {
        match self.format {
            Format::Parquet => Ok(ParquetFile::open(&*self.ranges)?.schema()),
            Format::Csv => {
                let end = self.ranges.size().min(read::CSV_HEAD);
                let head = self
                    .ranges
                    .read(0..end)
                    .map_err(|error| JoinError::Io { what: "read the header".to_owned(), error })?;
                read::csv_schema(&head, end == self.ranges.size())
            }
            Format::Arrow => read::arrow_schema(self.stream(1)),
        }
    }

    /// Returns the content as a stream.
    fn stream(&self, in_flight: usize) -> BufReader<Stream> {
        let size = self.ranges.size();
        let parts = (0..size.div_ceil(RANGE)).map(move |at| {
            let start = at * RANGE;
            (RANGE, start..size.min(start.saturating_add(RANGE)))
        });
        let ranges = Arc::clone(&self.ranges);
        let parts = Ahead::new(parts, in_flight, move |range| ranges.read(range));
        BufReader::new(Stream { parts, current: Bytes::new() })
    }

    fn read(
        &self,
        schema: &SchemaRef,
        columns: &[&str],
        send: &mut dyn FnMut(RecordBatch) -> Result<bool, JoinError>,
    ) -> Result<bool, JoinError> {
        match self.format {
            Format::Csv => read::csv(self.stream(IN_FLIGHT), schema, columns, send),
            Format::Arrow => read::arrow(self.stream(IN_FLIGHT), columns, send),
            Format::Parquet => {
                let file = Arc::new(ParquetFile::open(&*self.ranges)?);
                let owned: Vec<String> = columns.iter().map(|&it| it.to_owned()).collect();
                let (of, ranges) = (Arc::clone(&file), Arc::clone(&self.ranges));
                let fetch = move |group| {
                    let columns: Vec<&str> = owned.iter().map(String::as_str).collect();
                    of.fetch(&*ranges, group, &columns)
                };
                let weights: Vec<u64> =
                    (0..file.row_groups()).map(|group| file.weight(group, columns)).collect();
                let groups = weights.into_iter().zip(0..);
                let groups = Ahead::new(groups, IN_FLIGHT, fetch);
                for (group, chunks) in groups.enumerate() {
                    if !file.decode(chunks?, group, columns, send)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}

/// Results of a function for each item, in order; some items are worked on ahead, each by a thread.
struct Ahead<I, T> {
    /// Bytes of the result, and the item.
    items: Peekable<Box<dyn Iterator<Item = (u64, I)> + Send>>,
    running: VecDeque<(u64, std::thread::JoinHandle<T>)>,
    bytes: u64,
    in_flight: usize,
    work: Arc<dyn Fn(I) -> T + Send + Sync>,
}

impl<I: Send + 'static, T: Send + 'static> Ahead<I, T> {
    fn new(
        items: impl Iterator<Item = (u64, I)> + Send + 'static,
        in_flight: usize,
        work: impl Fn(I) -> T + Send + Sync + 'static,
    ) -> Self {
        let items: Box<dyn Iterator<Item = (u64, I)> + Send> = Box::new(items);
        let (items, running) = (items.peekable(), VecDeque::new());
        Self { items, running, bytes: 0, in_flight, work: Arc::new(work) }
    }
}

impl<I: Send + 'static, T: Send + 'static> Iterator for Ahead<I, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        while self.running.len() < self.in_flight {
            let rest = BYTES_IN_FLIGHT.saturating_sub(self.bytes);
            let is_first = self.running.is_empty();
            let Some((bytes, item)) = self.items.next_if(|(bytes, _)| is_first || *bytes <= rest)
            else {
                break;
            };
            let work = Arc::clone(&self.work);
            self.bytes += bytes;
            self.running.push_back((bytes, std::thread::spawn(move || work(item))));
        }
        let (bytes, first) = self.running.pop_front()?;
        self.bytes -= bytes;
        Some(first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

/// Content of a file as a stream.
struct Stream {
    parts: Ahead<Range<u64>, io::Result<Bytes>>,
    current: Bytes,
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.current.is_empty() {
            match self.parts.next() {
                Some(part) => self.current = part?,
                None => return Ok(0),
            }
        }
        let count = into.len().min(self.current.len());
        self.current.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}
