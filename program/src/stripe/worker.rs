//! Destination host of a pair: reads chunks of files from its source host and writes them into shared parts.

use std::collections::{BTreeSet, HashMap};
use std::io::BufRead as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sabul::files::{Facts, View};
use sabul::internal::compare::{ListOptions, Named, NamedContent};
use sabul::internal::ssh::UploadObserver;
use sabul::internal::{Kept, Location, PartOwner, Probe, SharedFolder, SharedPart};
use sabul::{Error, Failure, FailureCode, Session, TransferOptions};
use tokio::sync::{mpsc, watch};

use super::chunks::Chunks;
use super::messages::{Answer, Names, Order};
use crate::args::CopyArgs;
use crate::cp::transfer_options;
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::upload::UploadProgress;
use crate::{exit, files, json};

/// Attempts to open a part that another host created, and the pause between. Ours: a network file system shows a new name to
/// another client within some seconds.
const OPEN_ATTEMPTS: u32 = 20;
const OPEN_PAUSE: Duration = Duration::from_millis(500);
/// Ours: a sixth of the silence after which a host counts as lost.
pub(super) const ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Ours: a host without an order for this long ends. Its caller gives it up after 60 s, and may then write its files anew.
const ORDERS_MAX: Duration = Duration::from_secs(45);

/// Work of an order; returns the answer.
type Work = Pin<Box<dyn Future<Output = Result<Option<Answer>, Fault>> + Send>>;

/// A file of which this host writes chunks.
#[derive(Clone, Debug)]
struct File {
    names: Names,
    bytes: u64,
    /// State of the source at the beginning.
    state: [u8; 32],
    part: Arc<SharedPart>,
}

/// A file that this host created.
#[derive(Debug)]
struct Owned {
    owner: PartOwner,
    /// State of the source at the beginning.
    state: [u8; 32],
    names: Names,
}

/// Destination of the files.
#[derive(Clone, Debug)]
struct Target {
    folder: SharedFolder,
    /// Name of the only file, if the destination is the file.
    name: Option<Vec<u8>>,
}

/// A fetch, and the chunks that it leaves out.
#[derive(Debug)]
struct Fetch {
    file: u32,
    chunks: Range<usize>,
    left_out: watch::Sender<Vec<Range<usize>>>,
}

/// Error of an order: of its file, or of the session.
#[derive(Debug)]
enum Fault {
    File(Failure),
    Session(Error),
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::File(failure)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Failed(failure) => Self::File(failure),
            error => Self::Session(error),
        }
    }
}

#[derive(Debug)]
struct Worker {
    session: Session,
    options: TransferOptions,
    /// Destination as named by the user.
    to: PathBuf,
    sync: bool,
    kept: Kept,
    /// Links are listed as links.
    archive: bool,
    /// Names of one file stay names of one file, which only a copy by one host does.
    keeps_links: bool,
    target: OnceLock<Target>,
    probe: Mutex<Option<Probe>>,
    /// Files in the order of their orders; `None` until the part is open.
    files: Mutex<HashMap<u32, watch::Receiver<Option<File>>>>,
    owned: Mutex<HashMap<u32, Owned>>,
    fetches: Mutex<Vec<Fetch>>,
    /// Errors that end this host.
    fatal: mpsc::UnboundedSender<CliError>,
}

/// Runs the host until its standard input ends.
pub(super) async fn run(mut args: CopyArgs) -> Result<u8, CliError> {
    args.channel.read_ticket_line()?;
    let mut orders = read_orders();
    let interrupt = Interrupt::listen()?;
    let [first, .., to] = &args.places[..] else {
        return Err(CliError::usage("give a source and a destination"));
    };
    let Location::Remote(source) = Location::parse(first)? else {
        return Err(CliError::usage("the source is not on another machine"));
    };
    let observer: Arc<dyn UploadObserver> = Arc::new(UploadProgress::new(true, false));
    let dialled =
        files::dial(&args.channel, &args.ssh, &source.server, &interrupt, None, &observer);
    let (session, _) = dialled.await?;
    let (fatal, mut faults) = mpsc::unbounded_channel();
    let worker = Arc::new(Worker {
        session: session.clone(),
        options: transfer_options(&args)?,
        to: PathBuf::from(to),
        sync: !args.no_sync,
        kept: match (args.archive, args.preserve) {
            (true, _) => Kept::Owner,
            (false, true) => Kept::Mode,
            (false, false) => Kept::Nothing,
        },
        archive: args.archive,
        keeps_links: args.archive || args.hard_links,
        target: OnceLock::new(),
        probe: Mutex::default(),
        files: Mutex::default(),
        owned: Mutex::default(),
        fetches: Mutex::default(),
        fatal,
    });
    json::print(&Answer::Ready)?;
    let mut alive = tokio::time::interval(ALIVE_INTERVAL);
    let mut ordered = Instant::now();
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => {
                    check_silence(ordered.elapsed())?;
                    ordered = Instant::now();
                    worker.accept(order);
                }
                None => break,
            },
            _ = alive.tick() => {
                check_silence(ordered.elapsed())?;
                json::print(&Answer::Alive)?;
            }
            Some(fault) = faults.recv() => return Err(fault),
            () = interrupt.wait() => return Err(CliError::interrupted("interrupted")),
        }
    }
    // Parts without a final name are removed.
    drop(worker);
    session.close().await;
    Ok(exit::DONE)
}

/// Ends a host that was stopped, or cut off from its caller: another host may write its files anew.
fn check_silence(time: Duration) -> Result<(), CliError> {
    if time <= ORDERS_MAX {
        return Ok(());
    }
    Err(CliError::lost(format!(
        "no order came for {} s; this host ends, and the other pairs go on",
        time.as_secs()
    )))
}

/// Reads orders from standard input on a thread of its own.
fn read_orders() -> mpsc::UnboundedReceiver<Order> {
    let (sender, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let order = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            let Some(order) = order else { break };
            if sender.send(order).is_err() {
                break;
            }
        }
    });
    orders
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs blocking calls on a thread that may block.
async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(act).await.unwrap_or_else(|_| {
        Err(Failure::new(FailureCode::Internal, "a call to the file system ended with a fault"))
    })
}

impl Worker {
    /// Begins an order. Files and fetches are registered one after another, so that a later order finds them; the rest
    /// runs at the same time.
    fn accept(self: &Arc<Self>, order: Order) {
        let worker = Arc::clone(self);
        let (file, work): (u32, Work) = match order {
            Order::Alive => return,
            Order::Settle => return drop(lock(&self.probe).take()),
            Order::Prepare { is_single, names } => {
                tokio::spawn(async move { worker.meet(worker.prepare(is_single, names).await) });
                return;
            }
            Order::Join { is_single, probe, names, state } => {
                let work =
                    async move { worker.meet(worker.join(is_single, probe, (names, state)).await) };
                tokio::spawn(work);
                return;
            }
            Order::Begin { file, names } => {
                let opened = self.register(file);
                (file, Box::pin(async move { worker.begin(file, names, opened).await }))
            }
            Order::Open { file, names, bytes, part, state } => {
                let opened = self.register(file);
                let work = async move {
                    let part = worker.open(&names, bytes, part).await?;
                    let file = File { names: names.clone(), bytes, state, part };
                    opened.send_replace(Some(file));
                    // Fetches compare the state, too, and need not wait for this message.
                    worker.check(&names, state, OTHER).await?;
                    Ok(None)
                };
                (file, Box::pin(work))
            }
            Order::Fetch { file, first, end } => {
                let (sender, left_out) = watch::channel(Vec::new());
                let chunks = first..end;
                lock(&self.fetches).push(Fetch { file, chunks: chunks.clone(), left_out: sender });
                (file, Box::pin(async move { worker.fetch(file, chunks, left_out).await }))
            }
            Order::Shorten { file, first, end } => return self.shorten(file, &(first..end)),
            Order::Flush { file } => (file, Box::pin(async move { worker.flush(file).await })),
            Order::Publish { file } => (file, Box::pin(async move { worker.publish(file).await })),
            Order::Discard { file } => (file, Box::pin(async move { worker.discard(file).await })),
        };
        let worker = Arc::clone(self);
        tokio::spawn(async move { worker.finish(file, work.await) });
    }

    /// Registers a file that an order opens.
    fn register(&self, file: u32) -> watch::Sender<Option<File>> {
        let (opened, state) = watch::channel(None);
        lock(&self.files).insert(file, state);
        opened
    }

    /// Prints the answer of an order.
    fn finish(&self, file: u32, done: Result<Option<Answer>, Fault>) {
        match done {
            Ok(None) => {}
            Ok(Some(answer)) => self.print(&answer),
            Err(Fault::File(failure)) => {
                self.print(&Answer::Failed { file, error: failure.to_string() });
            }
            Err(Fault::Session(error)) => {
                let _ = self.fatal.send(error.into());
            }
        }
    }

    fn print(&self, answer: &Answer) {
        if let Err(error) = json::print(answer) {
            let _ = self.fatal.send(error);
        }
    }

    /// Opens the destination directory; with `makes`, a missing one is made.
    async fn aim(&self, is_single: bool, makes: bool) -> Result<Target, Failure> {
        let to = self.to.clone();
        let is_private = self.kept != Kept::Nothing;
        let target = blocking(move || {
            let (directory, name) = place(&to, is_single);
            if makes {
                make_directory(&directory, is_private)?;
            }
            Ok(Target { folder: SharedFolder::open(&directory)?, name })
        });
        let target = target.await?;
        Ok(self.target.get_or_init(|| target).clone())
    }

    /// Prints whether this host takes part.
    fn meet(&self, met: Result<Answer, Fault>) {
        match met {
            Ok(answer) => self.print(&answer),
            Err(Fault::File(failure)) => self.print(&Answer::Apart { error: failure.to_string() }),
            Err(Fault::Session(error)) => {
                let _ = self.fatal.send(error.into());
            }
        }
    }

    async fn prepare(&self, is_single: bool, names: Names) -> Result<Answer, Fault> {
        let folder = self.aim(is_single, true).await?.folder;
        let (probe, name) = blocking(move || folder.probe()).await?;
        *lock(&self.probe) = Some(probe);
        let state = match self.examine(&names).await {
            Ok((_, state)) => Some(state),
            // The copy of the file fails for this reason.
            Err(Fault::File(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(Answer::Prepared { probe: String::from_utf8_lossy(&name).into_owned(), state })
    }

    async fn join(
        &self,
        is_single: bool,
        probe: String,
        (names, state): (Names, Option<[u8; 32]>),
    ) -> Result<Answer, Fault> {
        if let Some(state) = state {
            self.check(&names, state, OTHER).await?;
        }
        for attempt in 0..OPEN_ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(OPEN_PAUSE).await;
            }
            // The first host has made the directory.
            let Ok(Target { folder, .. }) = self.aim(is_single, false).await else { continue };
            let probe = probe.clone();
            if blocking(move || folder.sees(probe.as_bytes())).await? {
                return Ok(Answer::Joined);
            }
        }
        let text = format!(
            "a file of the first destination host is not in its '{}', so the two hosts do not share a file system; \
             mount the file system there, or take the pair out of the stripe file",
            self.to.display()
        );
        Err(Failure::new(FailureCode::NotFound, text).into())
    }

    /// The destination, and the path of a file below.
    fn target(&self, names: &Names) -> Result<(SharedFolder, Vec<u8>), Failure> {
        let Some(Target { folder, name }) = self.target.get() else {
            return Err(Failure::new(FailureCode::Internal, "the destination is not open"));
        };
        Ok((folder.clone(), name.clone().unwrap_or_else(|| names.to.clone().into_bytes())))
    }

    /// Metadata and state of a source. No link below a named directory leads out of the directory, as in other copies.
    async fn examine(&self, names: &Names) -> Result<(Facts, [u8; 32]), Fault> {
        let (place, below) = names.place();
        let named = |path: &str| Named { path: path.into(), content: NamedContent::Nothing };
        let options = ListOptions {
            literal: true,
            states: true,
            names: below.map(|below| vec![named(below)]),
            ..ListOptions::default()
        };
        let view = if self.archive { View::Archive } else { View::Tree };
        let mut listing = self.session.list_for_copy(vec![place.into_bytes()], view, options)?;
        let mut failed = None;
        while let Some(seen) = listing.next().await? {
            let is_wanted = below.is_none_or(|below| seen.path == below.as_bytes());
            match seen.outcome {
                Ok(facts) if is_wanted => {
                    let why = || Failure::new(FailureCode::Changed, "it is no regular file now");
                    return Ok((facts, facts.hash.ok_or_else(why)?));
                }
                Ok(_) => {}
                Err(failure) => failed = Some(failure),
            }
        }
        let missing = || Failure::new(FailureCode::NotFound, "it is not at the source now");
        Err(failed.unwrap_or_else(missing).into())
    }

    /// Checks that a source has the state of the beginning.
    async fn check(&self, names: &Names, state: [u8; 32], when: &str) -> Result<(), Fault> {
        if self.examine(names).await?.1 == state {
            return Ok(());
        }
        let text = format!(
            "'{}' {when} (size, times or inode number); check that all source hosts share the file system, and copy it \
             again",
            names.from()
        );
        Err(Failure::new(FailureCode::Changed, text).into())
    }

    async fn begin(
        &self,
        file: u32,
        names: Names,
        opened: watch::Sender<Option<File>>,
    ) -> Result<Option<Answer>, Fault> {
        let (source, state) = self.examine(&names).await?;
        if self.keeps_links && source.is_shared {
            return Ok(Some(Answer::Left { file }));
        }
        let (folder, to) = self.target(&names)?;
        let kept = self.kept;
        let created = blocking(move || folder.create(&to, &source, kept));
        let (part, owner, path) = created.await?;
        let bytes = source.size;
        opened.send_replace(Some(File {
            names: names.clone(),
            bytes,
            state,
            part: Arc::new(part),
        }));
        lock(&self.owned).insert(file, Owned { owner, state, names });
        let part = String::from_utf8_lossy(&path).into_owned();
        Ok(Some(Answer::Begun { file, bytes, part, state }))
    }

    async fn open(
        &self,
        names: &Names,
        bytes: u64,
        path: String,
    ) -> Result<Arc<SharedPart>, Fault> {
        let (folder, to) = self.target(names)?;
        let mut attempt = 1;
        loop {
            let (folder, to, path) = (folder.clone(), to.clone(), path.clone());
            let opened = blocking(move || folder.open_part(&to, bytes, path.as_bytes())).await;
            match opened {
                Err(_) if attempt < OPEN_ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(OPEN_PAUSE).await;
                }
                opened => return Ok(Arc::new(opened?)),
            }
        }
    }

    /// The file, once an earlier order has opened it.
    async fn opened(&self, file: u32) -> Result<File, Fault> {
        let state = lock(&self.files).get(&file).cloned();
        let opened = match state {
            Some(mut state) => state.wait_for(Option::is_some).await.ok().and_then(|it| it.clone()),
            None => None,
        };
        opened.ok_or_else(|| not_open().into())
    }

    async fn fetch(
        &self,
        file: u32,
        chunks: Range<usize>,
        left_out: watch::Receiver<Vec<Range<usize>>>,
    ) -> Result<Option<Answer>, Fault> {
        let fetched = self.read(file, chunks, left_out).await;
        // The receiver of this fetch is closed now.
        lock(&self.fetches).retain(|fetch| !fetch.left_out.is_closed());
        fetched.map(|()| None)
    }

    /// Reads and writes chunks until all are written that are not left out.
    async fn read(
        &self,
        file: u32,
        chunks: Range<usize>,
        mut left_out: watch::Receiver<Vec<Range<usize>>>,
    ) -> Result<(), Fault> {
        let opened = self.opened(file).await?;
        let mut missing: BTreeSet<usize> = chunks.collect();
        leave_out(&mut missing, &left_out.borrow_and_update());
        let chunks: Vec<usize> = missing.iter().copied().collect();
        let from = opened.names.from().into_bytes();
        let range = |&chunk: &usize| {
            let (offset, length) = Chunks::place(opened.bytes, chunk);
            (from.clone(), sabul::files::Range { offset, length: Some(length) })
        };
        let ranges = chunks.iter().map(range).collect();
        let state = Some(opened.state);
        let reading = self.session.read_ranges_in_state(ranges, state, &self.options);
        let mut reads = reading.await?;
        while !missing.is_empty() {
            let read = tokio::select! {
                read = reads.next() => read?,
                Ok(()) = left_out.changed() => {
                    leave_out(&mut missing, &left_out.borrow_and_update());
                    continue;
                }
            };
            let Some((number, content)) = read else { break };
            let (Some(&chunk), content) = (chunks.get(number), content?) else { continue };
            if !missing.contains(&chunk) {
                continue;
            }
            let (offset, length) = Chunks::place(opened.bytes, chunk);
            if content.len() as u64 != length {
                let reason = "became shorter while it was copied";
                return Err(Failure::new(FailureCode::Changed, reason).into());
            }
            let part = Arc::clone(&opened.part);
            blocking(move || part.write(&content, offset)).await?;
            missing.remove(&chunk);
            self.print(&Answer::Written { file, chunk });
        }
        Ok(())
    }

    /// Lets earlier fetches leave out chunks.
    fn shorten(&self, file: u32, chunks: &Range<usize>) {
        let fetches = lock(&self.fetches);
        let has_some =
            |fetch: &&Fetch| fetch.chunks.start < chunks.end && chunks.start < fetch.chunks.end;
        for fetch in fetches.iter().filter(|fetch| fetch.file == file).filter(has_some) {
            fetch.left_out.send_modify(|left_out| left_out.push(chunks.clone()));
        }
    }

    /// Ends all fetches of a file, and waits for their last writes.
    async fn stop(&self, file: u32) {
        let ends: Vec<_> = lock(&self.fetches)
            .iter()
            .filter(|fetch| fetch.file == file)
            .map(|fetch| fetch.left_out.clone())
            .collect();
        for end in ends {
            end.send_modify(|left_out| left_out.push(0..usize::MAX));
            // The receiver ends with the fetch.
            end.closed().await;
        }
    }

    async fn flush(&self, file: u32) -> Result<Option<Answer>, Fault> {
        let opened = self.opened(file).await?;
        // Copies of chunks that another host delivered first are of no use any more.
        self.stop(file).await;
        if self.sync {
            let part = Arc::clone(&opened.part);
            blocking(move || part.sync()).await?;
        }
        self.check(&opened.names, opened.state, CHANGED).await?;
        lock(&self.files).remove(&file);
        Ok(Some(Answer::Flushed { file }))
    }

    async fn publish(&self, file: u32) -> Result<Option<Answer>, Fault> {
        let Some(Owned { owner, state, names }) = lock(&self.owned).remove(&file) else {
            return Err(not_open().into());
        };
        self.check(&names, state, CHANGED).await?;
        let sync = self.sync;
        blocking(move || owner.publish(sync)).await?;
        Ok(Some(Answer::Published { file }))
    }

    async fn discard(&self, file: u32) -> Result<Option<Answer>, Fault> {
        self.stop(file).await;
        lock(&self.files).remove(&file);
        lock(&self.owned).remove(&file);
        Ok(None)
    }
}

/// Reason for a source host that differs from the first one.
const OTHER: &str = "is in another state at this source host than at the first";
/// Reason for a source whose state is not that of the beginning.
const CHANGED: &str = "changed while it was copied";

fn leave_out(missing: &mut BTreeSet<usize>, left_out: &[Range<usize>]) {
    missing.retain(|chunk| !left_out.iter().any(|chunks| chunks.contains(chunk)));
}

/// The destination directory, and the name of the only file if the destination is the file.
fn place(to: &Path, is_single: bool) -> (PathBuf, Option<Vec<u8>>) {
    let is_directory = to.as_os_str().as_bytes().ends_with(b"/") || to.is_dir() || !is_single;
    match (is_directory, to.file_name()) {
        (false, Some(name)) => {
            let above = to.parent().filter(|above| !above.as_os_str().is_empty());
            let above = above.unwrap_or_else(|| Path::new(".")).to_owned();
            (above, Some(name.as_bytes().to_vec()))
        }
        _ => (to.to_owned(), None),
    }
}

fn not_open() -> Failure {
    Failure::new(FailureCode::NotFound, "its part is not open")
}

/// Makes the destination directory, if it is missing.
fn make_directory(directory: &Path, is_private: bool) -> Result<(), Failure> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(if is_private { 0o700 } else { 0o777 });
    builder.create(directory).map_err(|error| {
        let text = format!("cannot make '{}': {error}", directory.display());
        Failure::new(FailureCode::Unwritable, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_chunks_of_a_shorter_order_are_left_out() {
        let mut missing: BTreeSet<usize> = (0..100).collect();
        leave_out(&mut missing, &[30..50, 10..12]);
        assert!(missing.contains(&51) && missing.contains(&29) && !missing.contains(&30));
        assert_eq!(missing.len(), 78);
        leave_out(&mut missing, std::slice::from_ref(&(0..usize::MAX)));
        assert!(missing.is_empty());
    }

    #[test]
    fn a_host_that_was_stopped_carries_out_no_order() {
        check_silence(ALIVE_INTERVAL * 3).unwrap();
        check_silence(ORDERS_MAX + Duration::from_secs(1)).unwrap_err();
        assert!(ORDERS_MAX < super::super::SILENCE_MAX);
    }
}
