//! Files of another machine as ranges, over one session that is dialled again after a loss.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sabul::files::{LocalDestination, Range as FileRange, Seen, SeenKind, View};
use sabul::internal::ssh::{Bridge, UploadObserver};
use sabul::internal::{Retry, Server as Place};
use sabul::{Failure, FailureCode, Session};
use sabul_content::Printable;
use sabul_join::JoinError;
use sabul_join::read::{Format, Ranges};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::SharedRanges;
use super::source::pattern;
use crate::args::{ChannelArgs, SshArgs};
use crate::error::CliError;
use crate::exit::End;
use crate::files::dial;
use crate::interrupt::Interrupt;
use crate::output;
use crate::upload::UploadProgress;

/// Server of one table.
pub(super) struct Server {
    place: Place,
    /// File, directory or pattern.
    path: Vec<u8>,
    channel: ChannelArgs,
    ssh: SshArgs,
    retry: Duration,
    is_quiet: bool,
    stop: Stop,
    runtime: Handle,
    connection: Mutex<Option<Arc<Connection>>>,
    /// One thread dials at a time.
    dialling: Mutex<()>,
    files: Mutex<Vec<Listed>>,
}

/// A connection.
struct Connection {
    session: Session,
    bridge: Option<Bridge>,
}

/// A file at the time of its listing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    path: Vec<u8>,
    size: u64,
    modified_ns: Option<i64>,
}

/// Largest number of files of a table.
pub(super) const FILES_MAX: usize = 100_000;

/// End of the command before the end of its tables: an interrupt, or a failure of another table.
#[derive(Clone)]
pub(super) struct Stop {
    interrupt: Interrupt,
    failed: Arc<watch::Sender<bool>>,
}

impl Stop {
    pub(super) fn new(interrupt: Interrupt) -> Self {
        Self { interrupt, failed: Arc::new(watch::Sender::new(false)) }
    }

    pub(super) fn set(&self) {
        self.failed.send_replace(true);
    }

    /// Fails after an interrupt or a failure.
    pub(super) fn check(&self) -> Result<(), JoinError> {
        if self.interrupt.is_seen() || *self.failed.borrow() {
            return Err(JoinError::Source("interrupted".to_owned()));
        }
        Ok(())
    }

    /// Returns the result of work in a runtime, which an end cancels.
    fn limit<T>(
        &self,
        runtime: &Handle,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        let mut failed = self.failed.subscribe();
        runtime.block_on(async {
            tokio::select! {
                result = work => result,
                () = self.interrupt.wait() => Err(CliError::interrupted("interrupted")),
                _ = failed.wait_for(|failed| *failed) => Err(CliError::interrupted("interrupted")),
            }
        })
    }
}

/// A file of another machine.
struct RemoteFile {
    server: Arc<Server>,
    path: Vec<u8>,
    size: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Returns a server that is not connected yet.
    pub(super) fn new(
        place: Place,
        path: Vec<u8>,
        channel: ChannelArgs,
        args: &crate::args::JoinArgs,
        stop: &Stop,
        runtime: &Handle,
    ) -> Self {
        Self {
            place,
            path,
            channel,
            ssh: args.at.reach.ssh.clone(),
            retry: args.retry.unwrap_or_default(),
            is_quiet: args.quiet || args.json,
            stop: stop.clone(),
            runtime: runtime.clone(),
            connection: Mutex::default(),
            dialling: Mutex::default(),
            files: Mutex::default(),
        }
    }

    /// Returns the connection, which is dialled if there is none.
    fn connection(&self) -> Result<Arc<Connection>, CliError> {
        let _dialling = lock(&self.dialling);
        if let Some(connection) = &*lock(&self.connection) {
            return Ok(Arc::clone(connection));
        }
        let observer: Arc<dyn UploadObserver> =
            Arc::new(UploadProgress::new(self.is_quiet, !self.is_quiet));
        let interrupt = &self.stop.interrupt;
        let dialled = dial(&self.channel, &self.ssh, &self.place, interrupt, None, &observer);
        let (session, bridge) = self.stop.limit(&self.runtime, dialled)?;
        let connection = Arc::new(Connection { session, bridge });
        *lock(&self.connection) = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Does work in the session; repeats after a lost connection as `--retry` allows.
    fn with<T>(&self, work: impl AsyncFn(&Session) -> Result<T, CliError>) -> Result<T, CliError> {
        let mut retry = Retry::new(self.retry);
        loop {
            retry.begin();
            let connection = self.connection();
            let used = connection.as_ref().ok().map(Arc::clone);
            let result = connection
                .and_then(|connection| self.stop.limit(&self.runtime, work(&connection.session)));
            let error = match result {
                Err(error) => error,
                result => return result,
            };
            let pause = match error.end() {
                End::Error(kind) => retry.on_failure(kind),
                _ => None,
            };
            let Some(pause) = pause else { return Err(error) };
            // Other threads may have replaced the lost connection already.
            let mut current = lock(&self.connection);
            if let (Some(used), Some(now)) = (&used, &*current)
                && Arc::ptr_eq(used, now)
            {
                *current = None;
            }
            drop(current);
            if !self.is_quiet {
                output::error(format_args!(
                    "{error}; next attempt in {:.1} s",
                    pause.as_secs_f64()
                ));
            }
            let sleep = async {
                tokio::time::sleep(pause).await;
                Ok(())
            };
            self.stop.limit(&self.runtime, sleep)?;
        }
    }

    /// Lists the files of the table.
    pub(super) fn files(self: &Arc<Self>) -> Result<Vec<(String, SharedRanges)>, CliError> {
        let mut files = self.list()?;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        *lock(&self.files) = files.clone();
        let files = files.into_iter().map(|Listed { path, size, .. }| {
            let name = Printable(&path).to_string();
            (name, Arc::new(RemoteFile { server: Arc::clone(self), path, size }) as SharedRanges)
        });
        Ok(files.collect())
    }

    /// Returns the regular files at the path: a file, those of a directory whose extension is that of
    /// a table, or those that fit a pattern.
    fn list(&self) -> Result<Vec<Listed>, CliError> {
        let pattern = pattern(&self.path)?;
        let place = match &pattern {
            Some((directory, _)) if directory.is_empty() => b".".to_vec(),
            Some((directory, _)) => directory.clone(),
            None => self.path.clone(),
        };
        let is_wanted = |path: &[u8]| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let name = String::from_utf8_lossy(name);
            match &pattern {
                Some((_, glob)) => glob.is_match(Path::new(&*name)),
                None => path == self.path || Format::of_name(&name).is_some(),
            }
        };
        self.with(async |session| {
            let mut listing = session.list(vec![place.clone()], View::Content, Vec::new())?;
            let mut found = Vec::new();
            while let Some(Seen { path, outcome }) = listing.next().await? {
                let facts = outcome.map_err(|failure| failed(&path, &failure))?;
                if facts.kind == SeenKind::File && is_wanted(&path) {
                    let (size, modified_ns) = (facts.size, facts.modified_ns);
                    found.push(Listed { path, size, modified_ns });
                }
                if found.len() > FILES_MAX {
                    break;
                }
            }
            Ok(found)
        })
    }

    /// Fails if a file has another size or time than at its listing.
    pub(super) fn check_unchanged(&self) -> Result<(), JoinError> {
        let before = lock(&self.files).clone();
        let now = self.list().map_err(|error| JoinError::Io {
            what: "list the files again".to_owned(),
            error: io::Error::other(error),
        })?;
        let now: BTreeMap<_, _> = now.into_iter().map(|it| (it.path.clone(), it)).collect();
        for file in before {
            let path = Printable(&file.path);
            let what = match now.get(&file.path) {
                Some(now) if *now == file => continue,
                Some(_) => "changed",
                None => "disappeared",
            };
            let text = format!("{path} {what} while the table was read; run the command again");
            return Err(JoinError::Source(text));
        }
        Ok(())
    }

    async fn get(
        &self,
        session: &Session,
        path: &[u8],
        range: &Range<u64>,
    ) -> Result<Bytes, CliError> {
        let length = range.end - range.start;
        let of_file = FileRange { offset: range.start, length: Some(length) };
        let options =
            self.channel.transfer_options(self.channel.controller())?.range(Some(of_file));
        let content = Collected { limit: length, bytes: Arc::default() };
        let to = LocalDestination::Writer(Box::new(content.clone()));
        let report =
            session.get(vec![path.to_owned()], false, to, &options).await?.finish().await?;
        if let Some((_, failure)) = report.failures.first() {
            return Err(failed(path, failure));
        }
        let bytes = std::mem::take(&mut *lock(&content.bytes));
        if bytes.len() as u64 != length {
            return Err(CliError::failed(format!(
                "{}: {} bytes arrived of the range {} to {}; the file changed, run the command again",
                Printable(path),
                bytes.len(),
                range.start,
                range.end
            )));
        }
        Ok(bytes.into())
    }

    /// Closes the connection; without `in_order` the peer reports a broken connection.
    pub(super) fn close(self, in_order: bool) -> Result<(), CliError> {
        let connection = lock(&self.connection).take().and_then(Arc::into_inner);
        let Some(Connection { session, bridge }) = connection else { return Ok(()) };
        self.runtime.block_on(async {
            session.close().await;
            if let (Some(bridge), true) = (bridge, in_order) {
                bridge.close().await;
            }
        });
        Ok(())
    }
}

/// Failure of one file.
fn failed(path: &[u8], failure: &Failure) -> CliError {
    let text = format!("{}: {failure}", Printable(path));
    match failure.code {
        FailureCode::Verification => CliError::unverified(text),
        _ => CliError::failed(text),
    }
}

impl Ranges for RemoteFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let server = &self.server;
        let read = server.with(async |session| server.get(session, &self.path, &range).await);
        read.map_err(io::Error::other)
    }
}

/// Content of a range in memory. The bytes are used only after the transfer has verified them.
#[derive(Clone, Debug)]
struct Collected {
    limit: u64,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl io::Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut content = lock(&self.bytes);
        if (content.len() + bytes.len()) as u64 > self.limit {
            return Err(io::Error::other("the server sent more bytes than the range has"));
        }
        content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
