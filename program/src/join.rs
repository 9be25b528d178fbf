//! `sabul join`: tables of several machines are joined while they arrive (SABUL §IV).

mod parts;
mod remote;
mod source;

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sabul_front::json::{Document, JoinJson, JoinedTableJson};
use sabul_join::{
    Feed, Join, JoinError, JoinType, Plan, RecordBatch, Request, Table, Writer, inputs,
};
use sabul_units::{count, show_bytes};
use tempfile::NamedTempFile;
use tokio::runtime::Handle;

use crate::args::{JoinArgs, JoinKind};
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::progress::Meter;
use crate::{exit, json, output};
use remote::Stop;
use source::{Source, Totals};

impl JoinKind {
    const fn join_type(self) -> JoinType {
        match self {
            Self::Inner => JoinType::Inner,
            Self::Left => JoinType::Left,
            Self::Anti => JoinType::Anti,
        }
    }
}

/// Interval between two progress lines.
const INTERVAL: Duration = Duration::from_secs(2);

/// Runs the command and returns the exit code.
pub(crate) async fn run(args: JoinArgs) -> Result<u8, CliError> {
    let start = Instant::now();
    if args.json && args.output == Path::new("-") {
        let text = "-o -: the result goes to stdout; leave out --json, or name a file";
        return Err(CliError::usage(text));
    }
    let interrupt = Interrupt::listen()?;
    let (is_json, is_quiet) = (args.json, args.quiet);
    let handle = Handle::current();
    let stop = Stop::new(interrupt.clone());
    let totals = Arc::<Totals>::default();
    // Decoding and the join block; transfers of the tables need this runtime.
    let seen = Arc::clone(&totals);
    let work = tokio::task::spawn_blocking(move || joined(&args, &stop, &seen, &handle));
    let result = follow(work, &totals, is_quiet || is_json).await;
    let result = match result {
        Err(_) if interrupt.is_seen() => Err(CliError::interrupted("interrupted")),
        result => result,
    };
    let (mut document, error) = match result {
        Ok(document) => (document, None),
        Err(error) => (JoinJson::default(), Some(error)),
    };
    document.seconds = start.elapsed().as_secs_f64();
    if let Some(error) = &error {
        document.exit = error.code();
        document.errors = vec![json::error(error)];
    }
    if is_json {
        json::print(&Document::of(&document))?;
    }
    if let Some(error) = error {
        return Err(error);
    }
    if !is_quiet && !is_json {
        output::note(summary(&document));
    }
    Ok(exit::DONE)
}

/// Shows progress until the end of the join.
async fn follow(
    mut work: tokio::task::JoinHandle<Result<JoinJson, CliError>>,
    totals: &Totals,
    is_quiet: bool,
) -> Result<JoinJson, CliError> {
    let meter = Meter::new(is_quiet, false);
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + INTERVAL, INTERVAL);
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            _ = ticks.tick() => meter.say(format!(
                "{} read, {} in, {} joined",
                show_bytes(totals.bytes.load(Ordering::Relaxed)),
                count(totals.rows.load(Ordering::Relaxed), "row"),
                count(totals.joined.load(Ordering::Relaxed), "row"),
            )),
        }
    };
    meter.clear();
    result.map_err(|_| CliError::failed("the join failed"))?
}

/// Returns the line for users.
fn summary(document: &JoinJson) -> String {
    let rows_in: u64 = document.tables.iter().map(|table| table.rows).sum();
    let read: u64 = document.tables.iter().map(|table| table.bytes).sum();
    let first = document.first_row_s.map(|it| format!(", the first after {it:.1} s"));
    let spilled = match document.spilled_bytes {
        0 => String::new(),
        bytes => format!("; {} of rows written to disk", show_bytes(bytes)),
    };
    format!(
        "{} from {} ({} read) in {:.1} s{}; {} written{spilled}",
        count(document.rows, "row"),
        count(rows_in, "row"),
        show_bytes(read),
        document.seconds,
        first.unwrap_or_default(),
        show_bytes(document.bytes),
    )
}

/// Joins the tables into the result file.
fn joined(
    args: &JoinArgs,
    stop: &Stop,
    totals: &Arc<Totals>,
    runtime: &Handle,
) -> Result<JoinJson, CliError> {
    let mut output = Output::create(&args.output)?;
    let sources = source::open(args, stop, totals, runtime)?;
    let tables =
        sources.iter().map(|source| Table { name: source.name.clone(), schema: source.schema() });
    let request = Request {
        tables: tables.collect(),
        on: args.on.clone(),
        kind: args.kind.join_type(),
        condition: args.condition.clone(),
        select: args.select.clone(),
    };
    let plan = Plan::new(&request).map_err(cli_error)?;
    let memory = usize::try_from(args.memory).unwrap_or(usize::MAX);
    output.begin(&plan)?;
    let (feeds, inputs) = inputs(sources.len());
    let running = start(sources, feeds, &plan);
    let join = Join::new(plan, memory, &output.directory).map_err(cli_error)?;
    let summary = sabul_join::run(join, &inputs, &mut |batch| {
        stop.check()?;
        totals.joined.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        output.write(batch)
    });
    if summary.is_err() {
        stop.set();
    }
    // Senders that wait for the join end.
    drop(inputs);
    let mut tables = Vec::new();
    for thread in running {
        let source = thread.join().map_err(|_| CliError::failed("a reader of a table failed"))?;
        tables.push(JoinedTableJson {
            name: source.name.clone(),
            files: source.files.len() as u64,
            rows: source.rows.load(Ordering::Relaxed),
            bytes: source.bytes.load(Ordering::Relaxed),
        });
        source.close(summary.is_ok())?;
    }
    let summary = summary.map_err(cli_error)?;
    let bytes = output.finish()?;
    Ok(JoinJson {
        tables,
        rows: summary.rows_out,
        bytes,
        first_row_s: summary.first_row.map(|time| time.as_secs_f64()),
        spilled_bytes: summary.spilled_bytes,
        ..JoinJson::default()
    })
}

/// Starts a thread for each table.
fn start(sources: Vec<Source>, feeds: Vec<Feed>, plan: &Plan) -> Vec<JoinHandle<Source>> {
    let sources = sources.into_iter().zip(feeds).enumerate();
    let threads = sources.map(|(at, (source, feed))| {
        let columns: Vec<String> = plan.needed(at).iter().map(|&it| it.to_owned()).collect();
        std::thread::spawn(move || read(source, feed, &columns))
    });
    threads.collect()
}

/// Sends all batches of a table to the join.
fn read(source: Source, feed: Feed, columns: &[String]) -> Source {
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    match source.read(&columns, &feed) {
        Ok(()) => feed.end(),
        Err(error) => feed.fail(error),
    }
    source
}

/// The result: stdout, or a file.
struct Output {
    /// Directory of spilled rows.
    directory: PathBuf,
    /// The file and its name once complete; `None` for stdout.
    file: Option<(NamedTempFile, PathBuf)>,
    encoder: Option<Encoder>,
}

/// Batches that wait for the encoder. Ours: one is encoded while the next is joined.
const WAITING: usize = 2;

/// Thread that encodes the result, because the join itself needs a processor core.
struct Encoder {
    /// `None` ends the result. Without this end the result of a failed join has no footer.
    batches: SyncSender<Option<RecordBatch>>,
    thread: JoinHandle<Result<u64, JoinError>>,
}

impl Encoder {
    fn start(mut writer: Writer) -> Self {
        let (batches, queue) = mpsc::sync_channel::<Option<RecordBatch>>(WAITING);
        let thread = std::thread::spawn(move || {
            for batch in queue {
                match batch {
                    Some(batch) => writer.write(&batch)?,
                    None => return writer.finish(),
                }
            }
            Ok(0)
        });
        Self { batches, thread }
    }

    /// Waits until everything is written. Returns the bytes of the result.
    fn finish(self) -> Result<u64, JoinError> {
        // A thread that has ended with an error receives nothing.
        let _ = self.batches.send(None);
        let ended = || JoinError::Source("the writer of the result failed".to_owned());
        self.thread.join().map_err(|_| ended())?
    }
}

impl Output {
    /// Prepares the result at this path, or in stdout for `-`.
    fn create(path: &Path) -> Result<Self, CliError> {
        if path == Path::new("-") {
            return Ok(Self { directory: std::env::temp_dir(), file: None, encoder: None });
        }
        if path.is_dir() {
            return Err(CliError::usage(format!(
                "-o {}: is a directory; name a file",
                path.display()
            )));
        }
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        if !directory.is_dir() {
            return Err(CliError::destination(format!(
                "-o {}: the directory {} does not exist; make it first",
                path.display(),
                directory.display()
            )));
        }
        let file = tempfile::Builder::new()
            .prefix(".sabul-join-")
            .suffix(".sabul-part")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .tempfile_in(&directory);
        let file = file
            .map_err(|error| disk(&format!("create a file in {}", directory.display()), &error))?;
        Ok(Self { directory, file: Some((file, path.to_owned())), encoder: None })
    }

    fn begin(&mut self, plan: &Plan) -> Result<(), CliError> {
        let file = match &self.file {
            Some((file, _)) => file.as_file().try_clone(),
            None => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        };
        let file = file.map_err(|error| disk("write the result", &error))?;
        let writer = match self.file {
            Some(_) => Writer::parquet(file, plan.schema()),
            None => Writer::stream(file, &plan.schema()),
        };
        self.encoder = Some(Encoder::start(writer.map_err(cli_error)?));
        Ok(())
    }

    fn write(&mut self, batch: RecordBatch) -> Result<(), JoinError> {
        let is_sent = self.encoder.as_ref().is_none_or(|it| it.batches.send(Some(batch)).is_ok());
        match self.encoder.take_if(|_| !is_sent) {
            // The thread has ended with an error.
            Some(encoder) => encoder.finish().map(drop),
            None => Ok(()),
        }
    }

    /// Completes the result; a file gets its name, on the disk too. Returns the size of the result.
    fn finish(mut self) -> Result<u64, CliError> {
        let bytes = self.encoder.take().map_or(Ok(0), Encoder::finish).map_err(cli_error)?;
        let Some((file, path)) = self.file else { return Ok(bytes) };
        file.as_file().sync_all().map_err(|error| disk("write the result", &error))?;
        let what = format!("rename the result to {}", path.display());
        file.persist(&path).map_err(|error| disk(&what, &error.error))?;
        let synced = File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| disk("write the directory of the result", &error))?;
        Ok(bytes)
    }
}

/// Error of a file that is written.
fn disk(what: &str, error: &io::Error) -> CliError {
    use io::ErrorKind as Kind;
    let text = format!("{what}: {error}");
    match error.kind() {
        Kind::StorageFull
        | Kind::QuotaExceeded
        | Kind::PermissionDenied
        | Kind::ReadOnlyFilesystem => CliError::destination(text),
        _ => CliError::failed(text),
    }
}

/// Returns the error of the program for an error of the join.
fn cli_error(error: JoinError) -> CliError {
    match error {
        JoinError::Refused(text) => CliError::usage(text),
        JoinError::Io { what, error } if error.kind() == io::ErrorKind::StorageFull => {
            disk(&what, &error)
        }
        JoinError::Io { what, error } => {
            let text = format!("{what}: {error}");
            // The error of a session, which has its own exit code.
            let inner = error.into_inner().and_then(|inner| inner.downcast::<CliError>().ok());
            inner.map_or_else(|| CliError::failed(&*text), |inner| inner.in_words(text.clone()))
        }
        other => CliError::failed(other.to_string()),
    }
}

/// Ranges of a file that may be shared by threads.
type SharedRanges = Arc<dyn sabul_join::read::Ranges>;
