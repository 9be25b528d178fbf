//! Sessions: requests of files, listings and measurements.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sabul::files::{
    LocalDestination, Range, RangeReads, RemoteDestination, Seen, Source, SourceSet, View,
};
use sabul::settings::{Direction, MeasureLimit};
use sabul::{Bytes, Failure, TransferOptions};
use sabul_front::format;

use crate::dial::keep_paths;
use crate::error::Fault;
use crate::options::Options;
use crate::runtime::{OfProcess, run};
use crate::transfer::Transfer;
use crate::upload::{self, Upload};

/// A session with a server.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Session {
    inner: OfProcess<Mutex<Option<sabul::Session>>>,
}

/// Ranges of a request, one by one. A dropped object cancels the request.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Reads {
    inner: OfProcess<Arc<tokio::sync::Mutex<RangeReads>>>,
}

#[pymethods]
impl Reads {
    /// Waits for the next range and returns its number and content or error; `None` at the end.
    fn next<'py>(&self, py: Python<'py>, waits: bool) -> PyResult<Bound<'py, PyAny>> {
        let inner = Arc::clone(self.inner.get()?);
        run(py, waits, async move {
            let part = inner.lock().await.next().await?;
            let part = part.map(|(number, content)| (number, content.map(BytesOut)));
            Ok(part.map(|(number, content)| (number, RangeOut(content.map_err(Fault::from)))))
        })
    }
}

/// A requested range: path, offset, length, and modification time in nanoseconds.
type RangeOfFile = (Vec<u8>, u64, Option<u64>, Option<i64>);
/// Facts of a listed path: kind, size, permission bits, modification time, owner, group.
type FactsRow = (&'static str, u64, u32, Option<i64>, u32, u32);
/// A listed path, and its facts or the reason why there are none: word of the failure class and message.
type Row = (BytesOut, Option<FactsRow>, Option<(&'static str, String)>);

/// Bytes that become a `bytes` object.
pub(crate) struct BytesOut(pub(crate) Vec<u8>);

impl<'py> IntoPyObject<'py> for BytesOut {
    type Target = PyBytes;
    type Output = Bound<'py, PyBytes>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(PyBytes::new(py, &self.0))
    }
}

/// Content of a range that becomes a `bytes` object, or the failure as an exception object.
struct RangeOut(Result<BytesOut, Fault>);

impl<'py> IntoPyObject<'py> for RangeOut {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(match self.0 {
            Ok(content) => content.into_pyobject(py)?.into_any(),
            Err(fault) => PyErr::from(fault).into_value(py).into_bound(py).into_any(),
        })
    }
}

impl Session {
    pub(crate) fn new(session: sabul::Session) -> Self {
        Self { inner: OfProcess::new(Mutex::new(Some(session))) }
    }

    fn session(&self) -> Result<sabul::Session, Fault> {
        let open = self.inner.get()?.lock().unwrap_or_else(PoisonError::into_inner).clone();
        open.ok_or_else(|| Fault::usage("the session is closed; connect again"))
    }
}

#[pymethods]
impl Session {
    /// Address of the other end of the control connection.
    #[getter]
    fn peer(&self) -> PyResult<String> {
        Ok(self.session()?.peer_addr().to_string())
    }

    /// Sends files and directories.
    fn put<'py>(
        &self,
        py: Python<'py>,
        sources: Vec<PathBuf>,
        destination: Vec<u8>,
        recursive: bool,
        options: Options,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        let sources = sources.into_iter().map(Source::Path).collect();
        let sources = SourceSet::local(sources, recursive).map_err(Fault::from)?;
        let min_rate = options.min_rate_bps;
        let options = options.transfer_options()?;
        run(py, waits, async move {
            let mut to = RemoteDestination::path(destination);
            to.into_directory = sources.needs_directory() || is_directory(&to.path);
            Ok(Transfer::new(session.put(sources, to, &options).await?, &options, min_rate))
        })
    }

    /// Receives files and directories.
    fn get<'py>(
        &self,
        py: Python<'py>,
        sources: Vec<Vec<u8>>,
        destination: PathBuf,
        recursive: bool,
        options: Options,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        let min_rate = options.min_rate_bps;
        let options = options.transfer_options()?;
        run(py, waits, async move {
            let into_directory = sources.len() > 1
                || sources.iter().any(|source| is_directory(source))
                || destination.as_os_str().as_bytes().ends_with(b"/");
            let to = LocalDestination::Path { path: destination, into_directory };
            let transfer = session.get(sources, recursive, to, &options).await?;
            Ok(Transfer::new(transfer, &options, min_rate))
        })
    }

    /// Sends bytes that the caller writes, as one file. Missing directories of the file are created.
    fn upload<'py>(
        &self,
        py: Python<'py>,
        destination: Vec<u8>,
        options: Options,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        if is_directory(&destination) {
            return Err(
                Fault::usage("the content has no file name: name a file, not a directory").into()
            );
        }
        let min_rate = options.min_rate_bps;
        let options = options.transfer_options()?;
        run(py, waits, async move {
            let (sender, reader) = upload::pipe();
            let (to, name) = split_name(destination);
            let source = Source::Stream { name, reader: Box::new(reader) };
            let set = SourceSet::local(vec![source], false)?;
            let transfer = session.put(set, to, &options).await?;
            Ok((Upload::new(sender), Transfer::new(transfer, &options, min_rate)))
        })
    }

    /// Returns a byte range of a file; without a length, up to the end.
    fn read<'py>(
        &self,
        py: Python<'py>,
        path: Vec<u8>,
        offset: u64,
        length: Option<u64>,
        options: Options,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        let is_whole = offset == 0 && length.is_none();
        let range = (!is_whole).then_some(Range { offset, length });
        let options = options.transfer_options()?.range(range);
        run(py, waits, async move { read(&session, path, &options).await.map(BytesOut) })
    }

    /// Returns the facts of a file and its last bytes, of one version; links are followed.
    fn stat_with_tail<'py>(
        &self,
        py: Python<'py>,
        path: Vec<u8>,
        bytes: u64,
        options: Options,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        let options = options.transfer_options()?;
        run(py, waits, async move {
            let found = session.stat_with_tail(path.clone(), bytes, &options).await?;
            Ok((
                row(Seen { path, outcome: Ok(found.facts), rules: Vec::new() }),
                BytesOut(found.tail),
            ))
        })
    }

    /// Returns byte ranges of files, in one request: path, offset, length or none up to the end, and modification time of
    /// the file if the reader has seen the file. The error of a range takes its place.
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<RangeOfFile>,
        options: Options,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        let options = options.transfer_options()?;
        run(py, waits, async move { read_ranges(&session, ranges, &options).await })
    }

    /// As `read_ranges`, but returns an object that yields the ranges one by one.
    fn open_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<RangeOfFile>,
        options: Options,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        let options = options.transfer_options()?;
        run(py, waits, async move {
            let (ranges, times) = named(ranges);
            let reads = session.read_ranges_as_seen(ranges, times, &options).await?;
            Ok(Reads { inner: OfProcess::new(Arc::new(tokio::sync::Mutex::new(reads))) })
        })
    }

    /// Lists paths: `itself`, `content`, `all` below them, or the `target` of links.
    fn list<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<Vec<u8>>,
        view: &str,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        let view = match view {
            "itself" => View::Itself,
            "content" => View::Content,
            "all" => View::All,
            "target" => View::Files,
            _ => return Err(Fault::usage(format!("listing '{view}' is unknown")).into()),
        };
        run(py, waits, async move {
            let mut listing = session.list(paths, view, Vec::new())?;
            let mut rows = Vec::new();
            while let Some(seen) = listing.next().await? {
                rows.push(row(seen));
            }
            Ok(rows)
        })
    }

    /// Creates directories.
    fn make_folders<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<Vec<u8>>,
        parents: bool,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        run(py, waits, async move { done(session.make_folders(paths, parents).await?.failures) })
    }

    /// Removes files and directories.
    fn remove<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<Vec<u8>>,
        recursive: bool,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        run(py, waits, async move { done(session.remove(paths, recursive).await?.failures) })
    }

    /// Renames a file or directory.
    fn rename<'py>(
        &self,
        py: Python<'py>,
        old: Vec<u8>,
        new: Vec<u8>,
        replace: bool,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        run(py, waits, async move { Ok(session.rename(old, new, replace).await?) })
    }

    /// Measures the path for this time or number of bytes, from memory to memory.
    fn measure<'py>(
        &self,
        py: Python<'py>,
        seconds: Option<f64>,
        bytes: Option<u64>,
        reverse: bool,
        options: Options,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let session = self.session()?;
        let min_rate = options.min_rate_bps;
        let options = options.transfer_options()?;
        let time = seconds.map(Duration::try_from_secs_f64).transpose();
        let time = time.map_err(|_| Fault::usage("seconds is no time; use a number above 0"))?;
        let limit = MeasureLimit::default().bytes(bytes.map(Bytes)).time(time);
        let direction = if reverse { Direction::Receive } else { Direction::Send };
        run(py, waits, async move {
            let transfer = session.measure(direction, limit, &options).await?;
            Ok(Transfer::new(transfer, &options, min_rate))
        })
    }

    /// Closes the session. Running transfers are cancelled.
    fn close<'py>(&self, py: Python<'py>, waits: bool) -> PyResult<Bound<'py, PyAny>> {
        // A child process leaves the session to its parent.
        let open = match self.inner.get() {
            Ok(slot) => slot.lock().unwrap_or_else(PoisonError::into_inner).take(),
            Err(_) => None,
        };
        run(py, waits, async move {
            if let Some(session) = open {
                session.close().await;
                // Only a panic of the task is an error here.
                let _ = tokio::task::spawn_blocking(keep_paths).await;
            }
            Ok(())
        })
    }
}

/// Whether a path is written as a directory; the empty path is the root.
fn is_directory(path: &[u8]) -> bool {
    let last = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    matches!(last, b"" | b"." | b"..")
}

/// Splits the path of a file into its directory and its name. As a destination with a name, an existing directory
/// of this path would take the file.
fn split_name(mut path: Vec<u8>) -> (RemoteDestination, Vec<u8>) {
    let name_at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let name = path.split_off(name_at);
    (RemoteDestination::directory(path), name)
}

/// Fails with the first failure.
fn done(failures: Vec<(usize, Failure)>) -> Result<(), Fault> {
    match failures.into_iter().next() {
        Some((_, failure)) => Err(failure.into()),
        None => Ok(()),
    }
}

fn row(seen: Seen) -> Row {
    let path = BytesOut(seen.path);
    match seen.outcome {
        Ok(facts) => {
            let kind = format::word(facts.kind);
            let row = (kind, facts.size, facts.mode, facts.modified_ns, facts.owner, facts.group);
            (path, Some(row), None)
        }
        Err(failure) => (path, None, Some((failure.code.word(), failure.message))),
    }
}

/// Memory that receives the content of a file.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn read(
    session: &sabul::Session,
    path: Vec<u8>,
    options: &TransferOptions,
) -> Result<Vec<u8>, Fault> {
    let memory = Memory::default();
    let to = LocalDestination::Writer(Box::new(memory.clone()));
    let transfer = session.get(vec![path], false, to, options).await?;
    let report = transfer.finish().await?;
    if let Some((_, failure)) = report.failures.into_iter().next() {
        return Err(failure.into());
    }
    Ok(std::mem::take(&mut *memory.0.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Ranges by path, and for each the modification time that its file must have.
type Named = (Vec<(Vec<u8>, Range)>, Vec<Option<i64>>);

/// Splits requested ranges into paths with ranges, and modification times.
fn named(ranges: Vec<RangeOfFile>) -> Named {
    let ranges = ranges.into_iter();
    ranges.map(|(path, offset, length, time)| ((path, Range { offset, length }), time)).unzip()
}

async fn read_ranges(
    session: &sabul::Session,
    ranges: Vec<RangeOfFile>,
    options: &TransferOptions,
) -> Result<Vec<RangeOut>, Fault> {
    let mut found = Vec::new();
    found.resize_with(ranges.len(), || RangeOut(Ok(BytesOut(Vec::new()))));
    let (ranges, times) = named(ranges);
    let mut reads = session.read_ranges_as_seen(ranges, times, options).await?;
    while let Some((number, content)) = reads.next().await? {
        found[number] = RangeOut(content.map(BytesOut).map_err(Fault::from));
    }
    Ok(found)
}
