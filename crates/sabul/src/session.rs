//! A session: two ends that know each other, and the transfers between them.

mod asked;
mod look;
mod served;
mod streams;

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sabul_wire::control::{self, Entry, Failure, FailureCode, Message, Open};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::{debug, info};

use crate::budget::{Asker, BlockLoan, Loan};
use crate::config::{
    Direction, LocalDestination, MeasureLimit, RemoteDestination, Service, TransferOptions,
    check_controller, check_params,
};
use crate::control::{Connection, Control, Ending, Mailbox, Requests, Router};
use crate::disk::Disk;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::files::{
    Destination, FileReceiver, Rules, SourceSet, StreamReceiver, local_destination, origins_of,
};
use crate::seal::Suite;
use crate::steer::Steering;
use crate::stream::{self, ReceiveStream, SendStream};
use crate::transfer::{
    self, Context, Plan, Report, Resume, Side, Transfer, TransferHandle, Work, Writer,
};
use asked::Asked;
pub use look::{ChangeRequest, Changed, Listing, LookRequest};
pub use served::{Begun, Order, Purpose, Served, Serving};
pub use streams::{MeasureRequest, StreamRequest};

/// Transfers of files that a peer may have under way where [`Session::serve`] answers.
const FILE_TRANSFERS_MAX: usize = 16;
/// How often the first in line looks for memory, beside being woken: the limit of open files may have grown.
const MEMORY_LOOK: Duration = Duration::from_secs(1);
/// How long [`Session::close`] waits for its last words to leave.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// A session with an authenticated peer. Clones share it; it ends when the last one is dropped
/// and the transfers under way are over, or with [`Session::close`].
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    cx: Context,
    /// Connectors give odd numbers, listeners even ones.
    /// Of the next transfer that this side opens. Held while one is asked for, since the peer wants
    /// them in order.
    next_number: Mutex<u32>,
    requests: tokio::sync::Mutex<Requests>,
    peer: SocketAddr,
    written: Mutex<Option<oneshot::Receiver<()>>>,
    /// The session's own memory.
    _loan: Loan,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("peer", &self.inner.peer).finish_non_exhaustive()
    }
}

/// What [`Session::serve`] has done.
#[derive(Debug, Default)]
pub struct ServeSummary {
    /// Transfers that ran to their end, those with failed entries included.
    pub transfers: u64,
    /// Questions about files that were answered, and names that were removed or made as asked for.
    pub answers: u64,
    /// Transfers that did not, and requests that were refused.
    pub failed: u64,
    /// Content bytes moved.
    pub bytes: u64,
    /// Entries that failed in transfers that ran to their end.
    pub entries_failed: u64,
    /// Why the last failed transfer failed.
    pub last_error: Option<Error>,
}

/// Name and version, for the peer's log.
pub(crate) fn software() -> String {
    concat!("sabul ", env!("CARGO_PKG_VERSION")).to_owned()
}

impl Session {
    /// A session over an authenticated connection.
    pub(crate) fn start(
        connection: Connection,
        side: Side,
        peer: SocketAddr,
        endpoint: Arc<Endpoint>,
        loan: Loan,
        suite: Option<Suite>,
        first: Message,
    ) -> Self {
        let (own_parity, peer_parity) = match side {
            Side::Connector { .. } => (1, 0),
            Side::Listener { .. } => (2, 1),
            #[cfg(test)]
            Side::World(ref end) => end.parities(),
        };
        let machine = endpoint.machine.clone();
        let (router, requests) = Router::new(peer_parity, suite, endpoint.memory.clone());
        let (control, written) =
            Control::start(connection.clone(), Arc::clone(&router), endpoint.patience, &machine);
        control.send(first);
        let inner = Inner {
            cx: Context { machine, side, connection, control, router, endpoint },
            next_number: Mutex::new(own_parity),
            requests: tokio::sync::Mutex::new(requests),
            peer,
            written: Mutex::new(Some(written)),
            _loan: loan,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Where the peer's control connection comes from.
    pub fn peer_addr(&self) -> SocketAddr {
        self.inner.peer
    }

    /// Sends files, directories or a stream to a place of the peer.
    ///
    /// # Errors
    /// If an option cannot be used or the session is over.
    pub async fn put(
        &self,
        sources: SourceSet,
        destination: RemoteDestination,
        options: &TransferOptions,
    ) -> Result<Transfer, Error> {
        let request = control::Request::Put {
            destination: destination.path,
            into_directory: destination.into_directory || sources.needs_directory(),
            preserve: options.preserve || options.all_of_files,
            sync: options.sync,
            read_back: options.read_back,
            origins: sources.origins(),
        };
        let resume = if options.resume { Resume::Yes } else { Resume::No };
        let rules = Rules::new(&options.rules).map_err(Error::from_failure)?;
        let sources = sources.with_rules(rules).with_all_of_files(options.all_of_files);
        let sources = sources.with_links_out(options.links_out);
        let announce_times = options.preserve || options.all_of_files;
        let work = Work::Send { set: sources, announce_times, resume };
        self.open(Direction::Send, request, options, |_| Ok(work)).await
    }

    /// Fetches files or directories of the peer. Only what comes of these sources is written: a
    /// peer that sends anything else ends the transfer.
    ///
    /// # Errors
    /// If an option cannot be used, the destination cannot be what it has to be, or the session is
    /// over.
    pub async fn get(
        &self,
        sources: Vec<Vec<u8>>,
        recursive: bool,
        destination: LocalDestination,
        options: &TransferOptions,
    ) -> Result<Transfer, Error> {
        let is_content = |source: &Vec<u8>| source.ends_with(b"/");
        let needs_directory = sources.len() > 1 || sources.iter().any(is_content);
        let &TransferOptions { sync, resume, read_back, links_out, all_of_files: archive, .. } =
            options;
        let preserve = options.preserve || archive;
        let origins = origins_of(sources.iter().map(Vec::as_slice));
        let place = move |path, into_directory| Destination {
            path,
            into_directory,
            preserve,
            sync,
            resume,
            read_back,
            origins,
        };
        let writes_files = !matches!(destination, LocalDestination::Writer(_));
        let prepared = self.inner.cx.machine.block(move || match destination {
            LocalDestination::Path { path, into_directory } => {
                let into_directory = into_directory || needs_directory;
                let (jail, path) = local_destination(&path, into_directory)?;
                Ok(Prepared::Files(Arc::new(jail), place(path, into_directory)))
            }
            LocalDestination::Writer(writer) => Ok(Prepared::Writer(writer)),
            #[cfg(test)]
            LocalDestination::Disk(disk, path) => {
                let into_directory = true;
                Ok(Prepared::Files(disk, place(path, into_directory)))
            }
        });
        let prepared = prepared.await.ok_or(Error::Cancelled)?.map_err(Error::from_failure)?;
        let mut asked = Asked::new(&sources, recursive, archive);
        let gate = move |entry: &Entry| asked.check(entry);
        let (rules, range) = (options.rules.clone(), options.range);
        let request =
            control::Request::Get { sources, recursive, rules, range, archive, links_out };
        let options = &TransferOptions { sync: sync && writes_files, ..options.clone() };
        self.open(Direction::Receive, request, options, |number| {
            let writer: Box<dyn Writer> = match prepared {
                Prepared::Files(disk, destination) => {
                    let receiver = FileReceiver::new(disk, &destination, number);
                    Box::new(receiver.map_err(Error::from_failure)?.with_gate(gate))
                }
                Prepared::Writer(writer) => {
                    Box::new(StreamReceiver::new(writer, number).with_gate(gate))
                }
            };
            Ok(Work::Receive(writer))
        })
        .await
    }

    /// Opens a stream of bytes to the peer's application, which knows it by `name`.
    ///
    /// # Errors
    /// If an option cannot be used or the session is over.
    pub async fn send_stream(
        &self,
        name: &str,
        options: &TransferOptions,
    ) -> Result<SendStream, Error> {
        let (pipe, set) = stream::source(self.inner.cx.control.runtime().clone())?;
        let request = control::Request::Stream { name: name.to_owned() };
        let work = Work::Send { set, announce_times: false, resume: Resume::Never };
        let transfer = self.open(Direction::Send, request, options, |_| Ok(work)).await?;
        Ok(SendStream::new(pipe, transfer))
    }

    /// Asks the peer's application for the stream that it knows by `name`.
    ///
    /// # Errors
    /// If an option cannot be used or the session is over.
    pub async fn receive_stream(
        &self,
        name: &str,
        options: &TransferOptions,
    ) -> Result<ReceiveStream, Error> {
        let (pipe, writer) = stream::sink(self.inner.cx.control.runtime().clone());
        let request = control::Request::Stream { name: name.to_owned() };
        let transfer = self.open(Direction::Receive, request, options, |number| {
            Ok(Work::Receive(Box::new(StreamReceiver::new(writer, number))))
        });
        let transfer = transfer.await?;
        Ok(ReceiveStream::new(pipe, transfer))
    }

    /// Moves bytes from memory to memory, to measure the path.
    ///
    /// # Errors
    /// If an option cannot be used or the session is over.
    pub async fn measure(
        &self,
        direction: Direction,
        limit: MeasureLimit,
        options: &TransferOptions,
    ) -> Result<Transfer, Error> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let request =
            control::Request::Measure { bytes: limit.bytes, millis: limit.time.map(millis) };
        self.open(direction, request, options, |_| Ok(measure_work(direction, limit))).await
    }

    async fn open(
        &self,
        direction: Direction,
        request: control::Request,
        options: &TransferOptions,
        work: impl FnOnce(u32) -> Result<Work, Error>,
    ) -> Result<Transfer, Error> {
        let mut params = options.channel_params()?;
        let memory = self.memory(params.block_bytes).await?;
        params.block_bytes = memory.block_bytes();
        let next_number = &self.inner.next_number;
        let mut next_number = next_number.lock().unwrap_or_else(PoisonError::into_inner);
        let number = take_number(&mut next_number)?;
        let work = work(number)?;
        let mailbox = self.inner.cx.router.register(number, direction.role())?;
        let is_durable = match &request {
            control::Request::Put { sync, .. } => *sync,
            control::Request::Get { .. } => options.sync,
            _ => false,
        };
        let open = Open {
            transfer: number,
            direction: direction.for_opener(),
            request,
            channel: params.clone(),
        };
        let steering = Steering::wanted(options.policy, options.rate_limit_bps);
        let is_stream = matches!(open.request, control::Request::Stream { .. });
        self.inner.cx.control.ask(open)?;
        drop(next_number);
        let answer_within = (!is_stream).then_some(self.inner.cx.endpoint.patience.accept);
        let plan = Plan {
            is_opener: true,
            answer_within,
            params,
            steering,
            work,
            memory: Some(memory),
            is_durable,
        };
        Ok(transfer::start(self.inner.cx.clone(), mailbox, plan))
    }

    /// Memory for this end of a transfer, before the peer is asked for it; waits in line where there is too little.
    async fn memory(&self, block_bytes: u32) -> Result<BlockLoan, Error> {
        let place = self.inner.cx.endpoint.memory.line_up(Asker::Here);
        loop {
            if let Ok(memory) = place.take(block_bytes) {
                return Ok(memory);
            }
            tokio::select! {
                biased;
                () = self.inner.cx.router.over() => {
                    let ending = self.inner.cx.router.ending().unwrap_or(Ending::Closed);
                    return Err(ending.to_error());
                }
                () = place.turn() => {}
                () = tokio::time::sleep(MEMORY_LOOK) => {}
            }
        }
    }

    /// What the peer asks for next; none once it asks for nothing more.
    pub async fn next_request(&self) -> Option<Request> {
        let (open, mailbox) = self.inner.requests.lock().await.next().await?;
        let pending = Pending { cx: self.inner.cx.clone(), parts: Some((open.clone(), mailbox)) };
        Some(match open.request {
            control::Request::Put { .. } => Request::Put(PutRequest { pending }),
            control::Request::Get { .. } => Request::Get(GetRequest { pending }),
            control::Request::Stream { name } => {
                let direction = Direction::for_acceptor(open.direction);
                Request::Stream(StreamRequest { name, direction, pending })
            }
            control::Request::Measure { .. } => Request::Measure(MeasureRequest { pending }),
            control::Request::Look { .. } => Request::Look(LookRequest { pending }),
            control::Request::Remove { .. } => {
                Request::Change(ChangeRequest { pending, is_removal: true })
            }
            control::Request::MakeFolders { .. } => {
                Request::Change(ChangeRequest { pending, is_removal: false })
            }
        })
    }

    /// Answers every request of the peer until it closes the session.
    ///
    /// # Errors
    /// If the root cannot be opened, or the session breaks before the peer has closed it.
    pub async fn serve(&self, service: &Service) -> Result<ServeSummary, Error> {
        self.serve_and_tell(service, |_| {}).await
    }

    /// As [`Self::serve`], and tells of each transfer when it begins and when it has ended, and of each other request
    /// that failed.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub async fn serve_and_tell(
        &self,
        service: &Service,
        tell: impl Fn(Serving<'_>) + Send + Sync,
    ) -> Result<ServeSummary, Error> {
        let disk: Option<Arc<dyn Disk>> = match &service.root {
            Some(root) if !service.as_user => {
                let opened = self.inner.cx.endpoint.open_root(root).await;
                Some(opened.map_err(|failure| Error::Config(failure.message))?)
            }
            _ => None,
        };
        self.serve_on(disk, service, tell).await
    }

    /// As [`Session::serve`], with a root that is open.
    pub(crate) async fn serve_on(
        &self,
        disk: Option<Arc<dyn Disk>>,
        service: &Service,
        tell: impl Fn(Serving<'_>) + Send + Sync,
    ) -> Result<ServeSummary, Error> {
        let peer = self.inner.peer;
        let mut summary = ServeSummary::default();
        let mut running = JoinSet::new();
        let (begin, mut begun) = mpsc::unbounded_channel();
        // Each transfer of files holds one.
        let places = Arc::new(Semaphore::new(FILE_TRANSFERS_MAX));
        let mut is_open = true;
        while is_open || !running.is_empty() {
            tokio::select! {
                biased;
                request = self.next_request(), if is_open => match request {
                    None => is_open = false,
                    Some(request) => {
                        debug!(?request, peer = %self.inner.peer, "request");
                        let is_files = !matches!(request, Request::Stream(_) | Request::Measure(_));
                        let place = is_files.then(|| Arc::clone(&places).try_acquire_owned());
                        let (service, disk) = (service.clone(), disk.clone());
                        let order = request.pending().open().map(Order::of);
                        let (begin, asked) = (begin.clone(), order.clone());
                        let begins = move |transfer| {
                            let begun = asked.map(|order| Begun { peer, order, transfer });
                            // Whoever serves waits for it as long as it runs.
                            begun.into_iter().for_each(|begun| drop(begin.send(begun)));
                        };
                        let answered = async move {
                            let Ok(_place) = place.transpose() else {
                                let text = format!(
                                    "{FILE_TRANSFERS_MAX} transfers of files are under way in this \
                                     session; wait for one to end"
                                );
                                request.refuse(&text);
                                return Err(Error::Failed(refused(text)));
                            };
                            request.answer(&service, disk, begins).await
                        };
                        running.spawn(async move { (order, answered.await) });
                    }
                },
                Some(begun) = begun.recv() => tell(Serving::Begun(&begun)),
                Some(ended) = running.join_next() => match ended {
                    Ok((_, Ok(None))) => summary.answers += 1,
                    Ok((order, Ok(Some(report)))) => {
                        if let Some(order) = &order {
                            tell(Serving::Over(Served { peer, order, result: Ok(&report) }));
                        }
                        info!(peer = %self.inner.peer, bytes = report.bytes,
                            entries = report.entries, failed = report.entries_failed,
                            "transfer done");
                        summary.transfers += 1;
                        summary.bytes += report.bytes;
                        summary.entries_failed += report.entries_failed;
                    }
                    Ok((order, Err(error))) => {
                        if let Some(order) = &order {
                            tell(Serving::Over(Served { peer, order, result: Err(&error) }));
                        }
                        info!(peer = %self.inner.peer, %error, "transfer failed");
                        summary.failed += 1;
                        summary.last_error = Some(error);
                    }
                    // A task that panicked has said so itself.
                    Err(_) => summary.failed += 1,
                },
            }
        }
        match self.inner.cx.router.ending() {
            None | Some(Ending::Closed) => Ok(summary),
            Some(ending) => Err(ending.to_error()),
        }
    }

    /// Ends the session in order, so that the peer knows that nothing more will come. Transfers
    /// that still run are over.
    pub async fn close(self) {
        self.inner.cx.control.send(Message::Close);
        self.inner.cx.router.end(Ending::Closed);
        let written = self.inner.written.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(written) = written {
            // A peer that reads nothing more has no use for our last words.
            let _ = tokio::time::timeout(CLOSE_PATIENCE, written).await;
        }
    }
}

/// The next number of a transfer of this side.
fn take_number(next: &mut u32) -> Result<u32, Error> {
    let after = next.checked_add(2).ok_or_else(|| {
        let text = "this session has used up its numbers for transfers; connect anew";
        Error::Config(text.to_owned())
    })?;
    Ok(std::mem::replace(next, after))
}

enum Prepared {
    Files(Arc<dyn Disk>, Destination),
    Writer(Box<dyn std::io::Write + Send>),
}

/// A path of the peer as the user of this process would write it: nothing is the current directory.
fn users_path(path: Vec<u8>) -> PathBuf {
    let path = if path.is_empty() { b".".to_vec() } else { path };
    PathBuf::from(OsString::from_vec(path))
}

fn measure_work(direction: Direction, limit: MeasureLimit) -> Work {
    match direction {
        Direction::Send => Work::SendMeasure(limit),
        Direction::Receive => Work::ReceiveMeasure(limit),
    }
}

/// A request that waits for its answer; dropping it refuses.
struct Pending {
    cx: Context,
    parts: Option<(Open, Mailbox)>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pending").field(&self.parts.as_ref().map(|(open, _)| open)).finish()
    }
}

impl Pending {
    fn open(&self) -> Option<&Open> {
        self.parts.as_ref().map(|(open, _)| open)
    }

    /// Takes part, if `work` can be had.
    fn accept(
        mut self,
        direction: Direction,
        work: impl FnOnce(u32) -> Result<Work, Failure>,
    ) -> Result<Transfer, Error> {
        let Some((mut open, mailbox)) = self.parts.take() else { return Err(Error::Cancelled) };
        let work = check_params(&open.channel)
            .and_then(|()| match direction {
                Direction::Send => check_controller(&open.channel)
                    .map_err(|error| {
                        Error::Config(format!("the end that sends needs the controller: {error}"))
                    })
                    .and_then(|()| {
                        let policy = &self.cx.endpoint.sending;
                        policy.apply(&mut open.channel).map_err(Error::from_failure)
                    }),
                Direction::Receive => Ok(()),
            })
            .and_then(|()| {
                if Direction::for_acceptor(open.direction) == direction {
                    work(mailbox.number).map_err(Error::from_failure)
                } else {
                    let text = "the request's data goes the other way";
                    Err(Error::Failed(Failure::new(FailureCode::Protocol, text)))
                }
            });
        match work {
            Ok(work) => {
                // Whoever asks for files knows alone whether they reach a disk.
                let is_durable = matches!(open.request, control::Request::Put { sync: true, .. });
                let allowed = self.cx.endpoint.sending.rate_limit_bps;
                let allowed = allowed.filter(|_| direction == Direction::Send);
                let steering = Steering::told(open.channel.rate_limit_bps, allowed);
                let plan = Plan {
                    is_opener: false,
                    answer_within: None,
                    params: open.channel,
                    steering,
                    work,
                    memory: None,
                    is_durable,
                };
                Ok(transfer::start(self.cx.clone(), mailbox, plan))
            }
            Err(error) => {
                self.tell(&mailbox, error.to_failure());
                Err(error)
            }
        }
    }

    fn refuse(mut self, failure: Failure) {
        if let Some((_, mailbox)) = self.parts.take() {
            self.tell(&mailbox, failure);
        }
    }

    fn tell(&self, mailbox: &Mailbox, failure: Failure) {
        let transfer = Some(mailbox.number);
        self.cx.control.send(Message::Cancel { transfer, failure });
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some((_, mailbox)) = self.parts.take() {
            self.tell(&mailbox, refused("nobody answers such requests here"));
        }
    }
}

fn refused(reason: impl Into<String>) -> Failure {
    Failure::new(FailureCode::Refused, reason)
}

/// What the peer asks for. Dropping a request refuses it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Request {
    /// To write files here.
    Put(PutRequest),
    /// To read files here.
    Get(GetRequest),
    /// A stream between applications.
    Stream(StreamRequest),
    /// A measurement.
    Measure(MeasureRequest),
    /// What there is here.
    Look(LookRequest),
    /// To remove names here, or to make folders.
    Change(ChangeRequest),
}

impl Request {
    /// Answers, and waits for the end; what was transferred, where anything was. Says when a transfer begins.
    async fn answer(
        self,
        service: &Service,
        disk: Option<Arc<dyn Disk>>,
        begins: impl FnOnce(TransferHandle),
    ) -> Result<Option<Report>, Error> {
        let is_of_files = !matches!(&self, Self::Measure(_) | Self::Stream(_));
        let refusal = match &self {
            Self::Put(_) | Self::Change(_) if service.read_only => {
                "the listener only lets files be read"
            }
            _ if is_of_files && disk.is_none() && !service.as_user => {
                "the listener serves no files"
            }
            Self::Change(request) if request.is_removal && !service.remove => {
                "the listener lets nothing be removed; 'sabul serve --allow-rm' does"
            }
            Self::Measure(_) if !service.measure => "the listener takes no measurements",
            Self::Stream(_) => "the listener serves no streams",
            _ => "",
        };
        if !refusal.is_empty() {
            self.refuse(refusal);
            return Err(Error::Failed(refused(refusal)));
        }
        let transfer = match (self, disk) {
            (Self::Look(request), disk) => return request.answer(disk).await.map(|()| None),
            (Self::Change(request), disk) => return request.answer(disk).await.map(|()| None),
            (Self::Put(request), Some(disk)) => request.accept_in(disk).await?,
            (Self::Put(request), None) => request.accept_as_user().await?,
            (Self::Get(request), Some(disk)) => request.accept_in(disk)?,
            (Self::Get(request), None) => request.accept_as_user()?,
            (Self::Measure(request), _) => request.accept()?,
            (Self::Stream(_), _) => return Err(Error::Cancelled),
        };
        begins(transfer.handle());
        transfer.finish().await.map(Some)
    }

    /// Says no, and why.
    pub fn refuse(self, reason: &str) {
        let pending = match self {
            Self::Put(PutRequest { pending })
            | Self::Get(GetRequest { pending })
            | Self::Measure(MeasureRequest { pending })
            | Self::Look(LookRequest { pending })
            | Self::Change(ChangeRequest { pending, .. })
            | Self::Stream(StreamRequest { pending, .. }) => pending,
        };
        pending.refuse(refused(reason));
    }

    const fn pending(&self) -> &Pending {
        match self {
            Self::Put(PutRequest { pending })
            | Self::Get(GetRequest { pending })
            | Self::Measure(MeasureRequest { pending })
            | Self::Look(LookRequest { pending })
            | Self::Change(ChangeRequest { pending, .. })
            | Self::Stream(StreamRequest { pending, .. }) => pending,
        }
    }
}

/// The peer wants to write files here.
#[derive(Debug)]
pub struct PutRequest {
    pending: Pending,
}

impl PutRequest {
    /// Takes the files into the place below `root` that the peer names.
    ///
    /// # Errors
    /// If that is not possible; the peer is told.
    pub async fn accept(self, root: &std::path::Path) -> Result<Transfer, Error> {
        match self.pending.cx.endpoint.open_root(root).await {
            Ok(jail) => self.accept_in(jail).await,
            Err(failure) => {
                self.pending.refuse(failure.clone());
                Err(Error::from_failure(failure))
            }
        }
    }

    async fn accept_in(self, disk: Arc<dyn Disk>) -> Result<Transfer, Error> {
        self.accept_at(|path, _| Ok((disk, path))).await
    }

    /// Takes the files to where the user of this process would write them.
    async fn accept_as_user(self) -> Result<Transfer, Error> {
        let place = |path, into_directory| {
            let (jail, path) = local_destination(&users_path(path), into_directory)?;
            Ok((Arc::new(jail) as Arc<dyn Disk>, path))
        };
        self.accept_at(place).await
    }

    /// Takes the files to what `place` makes of the peer's path, and whether that is a directory.
    async fn accept_at(
        self,
        place: impl FnOnce(Vec<u8>, bool) -> Result<(Arc<dyn Disk>, Vec<u8>), Failure> + Send + 'static,
    ) -> Result<Transfer, Error> {
        let Some(Open {
            transfer,
            request:
                control::Request::Put {
                    destination,
                    into_directory,
                    preserve,
                    sync,
                    read_back,
                    origins,
                },
            ..
        }) = self.pending.open().cloned()
        else {
            return Err(Error::Cancelled);
        };
        // Whoever does not want to go on with it does not use it.
        let resume = true;
        let open = move || {
            let (disk, path) = place(destination, into_directory)?;
            let destination =
                Destination { path, into_directory, preserve, sync, resume, read_back, origins };
            FileReceiver::new(disk, &destination, transfer)
        };
        let receiver = self.pending.cx.endpoint.look(open).await.and_then(|opened| opened);
        self.pending
            .accept(Direction::Receive, |_| receiver.map(|found| Work::Receive(Box::new(found))))
    }
}

/// The peer wants to read files here.
#[derive(Debug)]
pub struct GetRequest {
    pending: Pending,
}

impl GetRequest {
    /// Sends the files that the peer names, as far as they are below `root`.
    ///
    /// # Errors
    /// If that is not possible; the peer is told.
    pub async fn accept(self, root: &std::path::Path) -> Result<Transfer, Error> {
        match self.pending.cx.endpoint.open_root(root).await {
            Ok(jail) => self.accept_in(jail),
            Err(failure) => {
                self.pending.refuse(failure.clone());
                Err(Error::from_failure(failure))
            }
        }
    }

    fn accept_in(self, disk: Arc<dyn Disk>) -> Result<Transfer, Error> {
        self.accept_from(|sources, recursive| SourceSet::in_disk(disk, sources, recursive))
    }

    /// Sends the files that the user of this process would read under these names.
    fn accept_as_user(self) -> Result<Transfer, Error> {
        self.accept_from(SourceSet::as_user)
    }

    fn accept_from(
        self,
        set: impl FnOnce(Vec<Vec<u8>>, bool) -> SourceSet,
    ) -> Result<Transfer, Error> {
        let Some(Open {
            request: control::Request::Get { sources, recursive, rules, range, archive, links_out },
            ..
        }) = self.pending.open().cloned()
        else {
            return Err(Error::Cancelled);
        };
        self.pending.accept(Direction::Send, |_| {
            let set = set(sources, recursive).with_patterns().with_range(range);
            let set = set.with_rules(Rules::new(&rules)?).with_all_of_files(archive);
            let set = set.with_links_out(links_out);
            Ok(Work::Send { set, announce_times: true, resume: Resume::Yes })
        })
    }
}

#[cfg(test)]
mod tests;
