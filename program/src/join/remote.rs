//! Files of another machine as ranges, over one session that is dialled again after a loss.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sabul::files::{Range as FileRange, RangeReads, Seen, SeenKind, View};
use sabul::internal::ssh::{Bridge, UploadObserver};
use sabul::internal::{Retry, Server as Place};
use sabul::{Failure, FailureCode, Session};
use sabul_content::Printable;
use sabul_join::JoinError;
use sabul_join::read::{Format, Ranges};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::SharedRanges;
use super::parts::Part;
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
    /// Places that may ask for a password are dialled one after another.
    dialling: Arc<Mutex<()>>,
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
        dialling: &Arc<Mutex<()>>,
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
            dialling: Arc::clone(dialling),
            files: Mutex::default(),
        }
    }

    /// Returns the connection, which is dialled if there is none.
    fn connection(&self) -> Result<Arc<Connection>, CliError> {
        if let Some(connection) = &*lock(&self.connection) {
            return Ok(Arc::clone(connection));
        }
        let is_ssh = !matches!(self.place, Place::Ticket | Place::Here);
        let _dialling = is_ssh.then(|| lock(&self.dialling));
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
    fn with<T>(
        &self,
        mut work: impl FnMut(&Session) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let mut retry = Retry::new(self.retry);
        loop {
            retry.begin();
            let result = self.connection().and_then(|connection| work(&connection.session));
            let error = match result {
                Err(error) => error,
                result => return result,
            };
            let pause = match error.end() {
                End::Error(kind) => retry.on_failure(kind),
                _ => None,
            };
            let Some(pause) = pause else { return Err(error) };
            *lock(&self.connection) = None;
            if !self.is_quiet {
                output::error(format_args!(
                    "{error}; next attempt in {:.1} s",
                    pause.as_secs_f64()
                ));
            }
            self.wait(async {
                tokio::time::sleep(pause).await;
                Ok(())
            })?;
        }
    }

    fn wait<T>(&self, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
        self.stop.limit(&self.runtime, work)
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
        let list = async |session: &Session| {
            let mut listing = session.list(vec![place.clone()], View::Content, Vec::new())?;
            let mut found = Vec::new();
            while let Some(Seen { path, outcome, .. }) = listing.next().await? {
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
        };
        self.with(|session| self.wait(list(session)))
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

    /// Reads parts of the files in one request, and requests the rest again after a lost connection.
    pub(super) fn contents(
        self: &Arc<Self>,
        parts: &[Part],
    ) -> impl Iterator<Item = io::Result<Bytes>> + 'static {
        let files = lock(&self.files);
        let wanted = parts.iter().map(|part| (files[part.file].path.clone(), part.range.clone()));
        let wanted = wanted.collect();
        Reading { server: Arc::clone(self), wanted, early: BTreeMap::new(), next: 0, reads: None }
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
        let wanted = vec![(self.path.clone(), range)];
        let server = Arc::clone(&self.server);
        let mut reading = Reading { server, wanted, early: BTreeMap::new(), next: 0, reads: None };
        reading.next().unwrap_or_else(|| Ok(Bytes::new()))
    }
}

/// A request for ranges of files, each with the path of the file.
struct Reading {
    server: Arc<Server>,
    wanted: Vec<(Vec<u8>, Range<u64>)>,
    /// Ranges that arrived before those ahead of them.
    early: BTreeMap<usize, Bytes>,
    /// Number of the next range.
    next: usize,
    /// The transfer, and the number of its first range.
    reads: Option<(RangeReads, usize)>,
}

impl Reading {
    /// Waits for the next range to arrive.
    fn receive(&mut self) -> Result<(usize, Bytes), CliError> {
        let server = Arc::clone(&self.server);
        let (number, content) = server.with(|session| {
            let result = server.wait(self.receive_from(session));
            if result.is_err() {
                self.reads = None;
                self.early.clear();
            }
            result
        })?;
        let Some((path, range)) = self.wanted.get(number) else {
            return Err(CliError::failed("the server sent a range that was not requested"));
        };
        let content = content.map_err(|failure| failed(path, &failure))?;
        if content.len() as u64 != range.end - range.start {
            return Err(CliError::failed(format!(
                "{}: {} bytes arrived of the range {} to {}; the file changed, run the command again",
                Printable(path),
                content.len(),
                range.start,
                range.end
            )));
        }
        Ok((number, content.into()))
    }

    async fn receive_from(
        &mut self,
        session: &Session,
    ) -> Result<(usize, Result<Vec<u8>, Failure>), CliError> {
        let (reads, first) = match &mut self.reads {
            Some(reads) => reads,
            none => {
                let channel = &self.server.channel;
                let options = channel.transfer_options(channel.controller())?;
                let rest = self.wanted[self.next..].iter().map(|(path, range)| {
                    let length = Some(range.end - range.start);
                    (path.clone(), FileRange { offset: range.start, length })
                });
                none.insert((session.read_ranges(rest.collect(), &options).await?, self.next))
            }
        };
        let missing = || CliError::failed("the server sent fewer ranges than were requested");
        let (number, content) = reads.next().await?.ok_or_else(missing)?;
        Ok((*first + number, content))
    }
}

impl Iterator for Reading {
    type Item = io::Result<Bytes>;

    /// Returns the next range, or `None` after the last one.
    fn next(&mut self) -> Option<Self::Item> {
        self.wanted.get(self.next)?;
        while !self.early.contains_key(&self.next) {
            match self.receive() {
                Ok((number, content)) => drop(self.early.insert(number, content)),
                Err(error) => return Some(Err(io::Error::other(error))),
            }
        }
        self.next += 1;
        if self.next == self.wanted.len()
            && let Some((mut reads, _)) = self.reads.take()
        {
            // Nothing follows, so the call returns at once, and the transfer ends in order.
            let _ = self.server.runtime.block_on(reads.next());
        }
        self.early.remove(&(self.next - 1)).map(Ok)
    }
}
