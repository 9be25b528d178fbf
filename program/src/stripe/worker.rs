//! Destination host of a pair: reads chunks of files from its source host and writes them into shared parts.

use std::collections::{BTreeSet, HashMap};
use std::io::BufRead as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sabul::files::{Facts, View};
use sabul::internal::ssh::UploadObserver;
use sabul::internal::{Location, PartOwner, SharedPart};
use sabul::{Error, Failure, FailureCode, Session, TransferOptions};
use tokio::sync::{mpsc, watch};

use super::chunks::Chunks;
use super::messages::{Answer, Order};
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
const ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Work of an order; returns the answer.
type Work = Pin<Box<dyn Future<Output = Result<Option<Answer>, Fault>> + Send>>;

/// A file of which this host writes chunks.
#[derive(Clone, Debug)]
struct File {
    from: Vec<u8>,
    bytes: u64,
    part: Arc<SharedPart>,
}

/// A file that this host created.
#[derive(Debug)]
struct Owned {
    owner: PartOwner,
    /// Metadata of the source at the beginning.
    source: Facts,
    from: Vec<u8>,
}

/// A fetch: its first chunk, and the chunk before which the fetch stops.
#[derive(Debug)]
struct Fetch {
    file: u32,
    first: usize,
    end: watch::Sender<usize>,
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
    /// New directories are closed to others until the last copy sets their rights.
    is_private: bool,
    /// Names of one file stay names of one file, which only a copy by one host does.
    keeps_links: bool,
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
        is_private: args.preserve || args.archive,
        keeps_links: args.archive || args.hard_links,
        files: Mutex::default(),
        owned: Mutex::default(),
        fetches: Mutex::default(),
        fatal,
    });
    json::print(&Answer::Ready)?;
    let mut alive = tokio::time::interval(ALIVE_INTERVAL);
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => worker.accept(order),
                None => break,
            },
            _ = alive.tick() => json::print(&Answer::Alive)?,
            Some(fault) = faults.recv() => return Err(fault),
            () = interrupt.wait() => return Err(CliError::interrupted("interrupted")),
        }
    }
    // Parts without a final name are removed.
    drop(worker);
    session.close().await;
    Ok(exit::DONE)
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
        let file = order.file();
        let work: Work = match order {
            Order::Begin { from, to, is_single, .. } => {
                let opened = self.register(file);
                Box::pin(async move { worker.begin(file, from, (to, is_single), opened).await })
            }
            Order::Open { from, to, is_single, bytes, part, .. } => {
                let opened = self.register(file);
                Box::pin(async move {
                    let part = worker.open((to, is_single), bytes, part).await?;
                    opened.send_replace(Some(File { from: from.into_bytes(), bytes, part }));
                    Ok(None)
                })
            }
            Order::Fetch { first, end, .. } => {
                let (sender, end) = watch::channel(end);
                lock(&self.fetches).push(Fetch { file, first, end: sender });
                Box::pin(async move { worker.fetch(file, first, end).await })
            }
            Order::Shorten { first, end, .. } => return self.shorten(file, first..end),
            Order::Flush { .. } => Box::pin(async move { worker.flush(file).await }),
            Order::Publish { .. } => Box::pin(async move { worker.publish(file).await }),
            Order::Discard { .. } => Box::pin(async move { worker.discard(file).await }),
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

    /// Directory of the file, and its path below.
    fn place(&self, to: String, is_single: bool) -> (PathBuf, Vec<u8>) {
        let is_directory =
            self.to.as_os_str().as_bytes().ends_with(b"/") || self.to.is_dir() || !is_single;
        match (is_directory, self.to.file_name()) {
            (false, Some(name)) => {
                let above = self.to.parent().filter(|above| !above.as_os_str().is_empty());
                let above = above.unwrap_or_else(|| Path::new(".")).to_owned();
                (above, name.as_bytes().to_vec())
            }
            _ => (self.to.clone(), to.into_bytes()),
        }
    }

    /// Metadata of a source.
    async fn examine(&self, from: &[u8]) -> Result<Facts, Fault> {
        let mut listing = self.session.list(vec![from.to_vec()], View::Itself, Vec::new())?;
        match listing.next().await? {
            Some(seen) => Ok(seen.outcome?),
            None => Err(Failure::new(FailureCode::NotFound, "the source lists nothing").into()),
        }
    }

    async fn begin(
        &self,
        file: u32,
        from: String,
        (to, is_single): (String, bool),
        opened: watch::Sender<Option<File>>,
    ) -> Result<Option<Answer>, Fault> {
        let from = from.into_bytes();
        let source = self.examine(&from).await?;
        if self.keeps_links && source.is_shared {
            return Ok(Some(Answer::Left { file }));
        }
        let (directory, to) = self.place(to, is_single);
        let is_private = self.is_private;
        let created = blocking(move || {
            make_directory(&directory, is_private)?;
            SharedPart::create(&directory, &to, &source, is_private)
        });
        let (part, owner, path) = created.await?;
        let bytes = source.size;
        opened.send_replace(Some(File { from: from.clone(), bytes, part: Arc::new(part) }));
        lock(&self.owned).insert(file, Owned { owner, source, from });
        let part = String::from_utf8_lossy(&path).into_owned();
        Ok(Some(Answer::Begun { file, bytes, part }))
    }

    async fn open(
        &self,
        (to, is_single): (String, bool),
        bytes: u64,
        path: String,
    ) -> Result<Arc<SharedPart>, Fault> {
        let (directory, to) = self.place(to, is_single);
        let mut attempt = 1;
        loop {
            let (directory, to, path) = (directory.clone(), to.clone(), path.clone());
            let opened =
                blocking(move || SharedPart::open(&directory, &to, bytes, path.as_bytes())).await;
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
        first: usize,
        end: watch::Receiver<usize>,
    ) -> Result<Option<Answer>, Fault> {
        let fetched = self.read(file, first, end).await;
        // The receiver of this fetch is closed now.
        lock(&self.fetches).retain(|fetch| !fetch.end.is_closed());
        fetched.map(|()| None)
    }

    /// Reads and writes chunks from `first` until all chunks before `end` are written.
    async fn read(
        &self,
        file: u32,
        first: usize,
        mut end: watch::Receiver<usize>,
    ) -> Result<(), Fault> {
        let opened = self.opened(file).await?;
        let chunks: Vec<usize> = (first..*end.borrow()).collect();
        let range = |&chunk: &usize| {
            let (offset, length) = Chunks::place(opened.bytes, chunk);
            (opened.from.clone(), sabul::files::Range { offset, length: Some(length) })
        };
        let ranges = chunks.iter().map(range).collect();
        let mut reads = self.session.read_ranges(ranges, &self.options).await?;
        let mut missing: BTreeSet<usize> = chunks.iter().copied().collect();
        while missing.first().is_some_and(|chunk| chunk < &*end.borrow_and_update()) {
            let read = tokio::select! {
                read = reads.next() => read?,
                _ = end.changed() => continue,
            };
            let Some((number, content)) = read else { break };
            let (Some(&chunk), content) = (chunks.get(number), content?) else { continue };
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

    /// Lets fetches stop before these chunks, which are their last ones.
    fn shorten(&self, file: u32, chunks: Range<usize>) {
        let fetches = lock(&self.fetches);
        let of_file = fetches.iter().filter(|fetch| fetch.file == file);
        for fetch in of_file.filter(|fetch| fetch.first < chunks.end) {
            fetch.end.send_if_modified(|end| {
                let has_some = *end > chunks.start;
                *end = chunks.start.min(*end);
                has_some
            });
        }
    }

    /// Ends all fetches of a file, and waits for their last writes.
    async fn stop(&self, file: u32) {
        let ends: Vec<_> = lock(&self.fetches)
            .iter()
            .filter(|fetch| fetch.file == file)
            .map(|fetch| fetch.end.clone())
            .collect();
        for end in ends {
            end.send_replace(0);
            // The receiver ends with the fetch.
            end.closed().await;
        }
    }

    async fn flush(&self, file: u32) -> Result<Option<Answer>, Fault> {
        let opened = self.opened(file).await?;
        // Copies of chunks that another host delivered first are of no use any more.
        self.stop(file).await;
        if self.sync {
            blocking(move || opened.part.sync()).await?;
        }
        lock(&self.files).remove(&file);
        Ok(Some(Answer::Flushed { file }))
    }

    async fn publish(&self, file: u32) -> Result<Option<Answer>, Fault> {
        let Some(Owned { owner, source, from }) = lock(&self.owned).remove(&file) else {
            return Err(not_open().into());
        };
        if self.examine(&from).await? != source {
            let reason = "changed while it was copied";
            return Err(Failure::new(FailureCode::Changed, reason).into());
        }
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
