//! Session between two authenticated ends, and its transfers.

mod answered;
mod attest;
mod chunks;
pub(crate) mod ends;
mod files;
mod limits;
mod listing;
mod opening;
mod pending;
pub(crate) mod ranges;
pub(crate) mod remote_file;
pub(crate) mod remote_writer;
mod requested;
mod rights;
mod selected;
mod served;
mod shortened;
mod streams;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sabul_wire::control::{self, Failure, Message, Open, Part};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tracing::debug;

use crate::access::User;
use crate::budget::{BlockLoan, Initiator, Loan};
use crate::channel::RequestFlows;
use crate::config::{
    Direction, LocalDestination, MeasureLimit, RemoteDestination, Service, TransferOptions,
};
use crate::connection::{Connection, Hop};
use crate::control::{Control, Ending, Punches, Requests, Router};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::lock::lock;
use crate::machine::thread;
use crate::ssh::bridge::Bridge;
use crate::steer::Steering;
use crate::stream::{self, ReceiveStream, SendStream};
use crate::transfer::{
    self, Context, Plan, Report, Resume, Side, Transfer, TransferHandle, Work, Writer,
};
pub use attest::{AttestRequest, Attestation, AttestedFiles};
use files::Prepared;
pub use files::{GetRequest, PutRequest};
use limits::{FILE_TRANSFERS_MAX, crowded, take_number};
pub use listing::{ChangeRequest, Changed, Listing, ListingRequest};
pub(crate) use opening::Opening;
use pending::{Pending, refused};
use requested::RequestGate;
use sabul_files::disk::Disk;
use sabul_files::root::RootDir;
use sabul_files::store::StoreReceiver;
use sabul_files::{
    Destination, FileReceiver, Rules, Selection, SourceSet, StreamReceiver, local_destination,
    origins_of,
};
pub use served::{Order, Purpose, ServeSummary, Served, Serving, Started};
use streams::measure_work;
pub use streams::{
    MeasureRequest, ServedFiles, StreamAnswer, StreamRequest, StreamService, Streams,
};

/// Polling interval of the first transfer in the queue for memory: the limit of open files may have grown.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);
/// How long [`Session::close`] waits until the last message is written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a session of a pass waits for the end of its transfers, after the end of the session that requested the pass.
const ENDED_WITHIN: Duration = Duration::from_millis(200);

/// A session with an authenticated peer. Clones share the session. The session ends with [`Session::close`], or when
/// the last clone is dropped and the running transfers are over.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    cx: Context,
    /// Number of the next transfer opened here: odd for connectors, even for listeners. Locked while a request is sent,
    /// because the peer requires ascending numbers.
    next_number: Mutex<u32>,
    requests: tokio::sync::Mutex<Requests>,
    peer: SocketAddr,
    written: Mutex<Option<oneshot::Receiver<()>>>,
    /// Transfers whose content is complete and used, and whose end nobody waits for.
    ending: Mutex<Vec<JoinHandle<()>>>,
    /// Memory of the session itself.
    _loan: Loan,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("peer", &self.inner.peer).finish_non_exhaustive()
    }
}

/// Name and version of this program, for the peer's log.
pub(crate) fn software() -> String {
    concat!("sabul ", env!("CARGO_PKG_VERSION")).to_owned()
}

impl Session {
    pub(crate) fn start(
        connection: Connection,
        side: Side,
        peer: SocketAddr,
        endpoint: Arc<Endpoint>,
        loan: Loan,
        opening: Opening,
    ) -> Self {
        let Opening { first, suite, user, succession } = opening;
        let (own_parity, peer_parity) = match side {
            Side::Connector { .. } => (1, 0),
            Side::Listener { .. } => (2, 1),
            #[cfg(test)]
            Side::World(ref end) => end.parities(),
        };
        let machine = endpoint.machine.clone();
        let (router, requests) = Router::new(peer_parity, suite, endpoint.memory.clone());
        if let (Side::Listener { demux, .. }, Some(Hop::Introducer)) = (&side, connection.hop()) {
            let demux = Arc::clone(demux);
            let punch = move |channel, addresses: &[SocketAddr]| demux.punch(channel, addresses);
            router.accept_punches(Punches(Box::new(punch)));
        }
        let (control, written) = Control::start(
            connection.clone(),
            Arc::clone(&router),
            endpoint.timeouts,
            &machine,
            succession,
        );
        control.send(first);
        let flows = Some(RequestFlows::new());
        let published = user.as_ref().filter(|user| !user.may_read()).map(|_| Arc::default());
        let inner = Inner {
            cx: Context {
                machine,
                side,
                connection,
                control,
                router,
                endpoint,
                flows,
                user,
                published,
            },
            next_number: Mutex::new(own_parity),
            requests: tokio::sync::Mutex::new(requests),
            peer,
            written: Mutex::new(Some(written)),
            ending: Mutex::default(),
            _loan: loan,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Whether the control connection goes through an introducer.
    pub(crate) fn is_introduced(&self) -> bool {
        self.inner.cx.connection.hop() == Some(Hop::Introducer)
    }

    /// Sends a message outside of transfers.
    pub(crate) fn send(&self, message: Message) {
        self.inner.cx.control.send(message);
    }

    /// Returns the address of the peer's end of the control connection, as an introducer sees it if there is one.
    pub fn peer_addr(&self) -> SocketAddr {
        self.inner.peer
    }

    /// Returns the user of a key or named ticket by which a listener authenticated the peer; `None` for a ticket of one
    /// run. [`Session::serve`] applies the limits of the user.
    pub fn user(&self) -> Option<&User> {
        self.inner.cx.user.as_deref()
    }

    /// Sends files, directories or a stream to a destination at the peer.
    ///
    /// # Errors
    /// If an option is invalid or the session is over.
    pub async fn put(
        &self,
        sources: SourceSet,
        destination: RemoteDestination,
        options: &TransferOptions,
    ) -> Result<Transfer, Error> {
        let request = control::Request::Put {
            destination: destination.path,
            into_directory: destination.into_directory || sources.needs_directory(),
            preserve: options.preserve || options.archive_mode,
            sync: options.sync,
            read_back: options.read_back,
            origins: options.origins_or(|| sources.origins()),
            expected: options.expected,
        };
        let resume = if options.resume { Resume::Yes } else { Resume::No };
        let set = sources.with_rules(Rules::new(&options.rules)?).with_chmod(options.chmod.clone());
        let set = set.with_archive_mode(options.archive_mode).with_hard_links(options.hard_links);
        let set = set.with_links_out(options.links_out).with_growing(options.growing);
        let work = Work::Send { set, resume };
        self.begin(Direction::Send, request, options, |_| Ok(work)).await
    }

    /// Receives files or directories from the peer. Only entries of these sources are written; any other entry ends the
    /// transfer.
    ///
    /// # Errors
    /// If an option or the destination is invalid, or the session is over.
    pub async fn get(
        &self,
        sources: Vec<Vec<u8>>,
        recursive: bool,
        destination: LocalDestination,
        options: &TransferOptions,
    ) -> Result<Transfer, Error> {
        self.request_files(sources, recursive, destination, options, None).await
    }

    /// Receives the entries of these sources that `selection` names; a directory comes without its content. The names
    /// are those that a copy of the sources would announce.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn get_selected(
        &self,
        sources: Vec<Vec<u8>>,
        recursive: bool,
        selection: Box<dyn Selection>,
        destination: LocalDestination,
        options: &TransferOptions,
    ) -> Result<Transfer, Error> {
        self.request_files(sources, recursive, destination, options, Some(selection)).await
    }

    async fn request_files(
        &self,
        sources: Vec<Vec<u8>>,
        recursive: bool,
        destination: LocalDestination,
        options: &TransferOptions,
        selection: Option<Box<dyn Selection>>,
    ) -> Result<Transfer, Error> {
        let needs_directory = sources.len() > 1 || sources.iter().any(|it| it.ends_with(b"/"));
        let &TransferOptions { sync, resume, read_back, expected, .. } = options;
        let preserve = options.preserve || options.archive_mode;
        let origins = options.origins_or(|| origins_of(sources.iter().map(Vec::as_slice)));
        let place = move |path, into_directory| Destination {
            path,
            into_directory,
            preserve,
            sync,
            resume,
            read_back,
            origins,
            may_keep: true,
            expected,
        };
        let writes_files = !matches!(destination, LocalDestination::Writer(_));
        let prepared = self.inner.cx.machine.block(move || match destination {
            LocalDestination::Path { path, into_directory } => {
                let into_directory = into_directory || needs_directory;
                let (root_dir, path) = local_destination(&path, into_directory, expected)?;
                Ok(Prepared::Files(Arc::new(root_dir), place(path, into_directory)))
            }
            LocalDestination::Writer(writer) => Ok::<_, Failure>(Prepared::Writer(writer)),
            LocalDestination::Store(store) => Ok(Prepared::Store(store)),
            LocalDestination::Served { disk, path, into_directory } => {
                Ok(Prepared::Files(disk, place(path, into_directory || needs_directory)))
            }
        });
        let prepared = prepared.await.ok_or(Error::Cancelled)??;
        let (selection, sent) = selected::recorded(selection);
        let gate = RequestGate::of_request(options, &sources, recursive, sent);
        let request = requested::get_request(sources, recursive, options, selection.is_some());
        let options = &TransferOptions { sync: sync && writes_files, ..options.clone() };
        self.open_selected(Direction::Receive, request, options, selection, |number| {
            let writer: Box<dyn Writer> = match prepared {
                Prepared::Files(disk, destination) => {
                    let receiver = FileReceiver::new(disk, &destination, number);
                    Box::new(receiver?.with_gate(gate))
                }
                Prepared::Store(store) => {
                    Box::new(StoreReceiver::of_store(store, sync, number).with_gate(gate))
                }
                Prepared::Writer(writer) => {
                    Box::new(StreamReceiver::new(writer, number).with_gate(gate))
                }
            };
            Ok(Work::Receive(writer))
        })
        .await
    }

    /// Opens a byte stream to the peer's application, identified by `name`.
    ///
    /// # Errors
    /// If an option is invalid or the session is over.
    pub async fn send_stream(
        &self,
        name: &str,
        options: &TransferOptions,
    ) -> Result<SendStream, Error> {
        let (pipe, set) =
            stream::source(self.inner.cx.control.runtime().clone(), stream::ENTRY_NAME.to_vec())?;
        let request = control::Request::Stream { name: name.to_owned() };
        let work = Work::Send { set, resume: Resume::Never };
        let transfer = self.begin(Direction::Send, request, options, |_| Ok(work)).await?;
        Ok(SendStream::new(pipe, transfer))
    }

    /// Requests the stream `name` from the peer's application.
    ///
    /// # Errors
    /// If an option is invalid or the session is over.
    pub async fn receive_stream(
        &self,
        name: &str,
        options: &TransferOptions,
    ) -> Result<ReceiveStream, Error> {
        let (pipe, writer) = stream::sink(self.inner.cx.control.runtime().clone());
        let request = control::Request::Stream { name: name.to_owned() };
        let transfer = self.begin(Direction::Receive, request, options, |number| {
            Ok(Work::Receive(Box::new(StreamReceiver::new(writer, number))))
        });
        let transfer = transfer.await?;
        Ok(ReceiveStream::new(pipe, transfer))
    }

    /// Transfers bytes from memory to memory, to measure the path.
    ///
    /// # Errors
    /// If an option is invalid or the session is over.
    pub async fn measure(
        &self,
        direction: Direction,
        limit: MeasureLimit,
        options: &TransferOptions,
    ) -> Result<Transfer, Error> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let request = control::Request::Measure {
            bytes: limit.bytes.map(|bytes| bytes.0),
            millis: limit.time.map(millis),
        };
        self.begin(direction, request, options, |_| Ok(measure_work(direction, limit))).await
    }

    async fn begin(
        &self,
        direction: Direction,
        request: control::Request,
        options: &TransferOptions,
        work: impl FnOnce(u32) -> Result<Work, Error>,
    ) -> Result<Transfer, Error> {
        self.open_selected(direction, request, options, None, work).await
    }

    /// Opens a transfer, and sends the names of a selection.
    async fn open_selected(
        &self,
        direction: Direction,
        request: control::Request,
        options: &TransferOptions,
        selection: Option<Box<dyn Selection>>,
        work: impl FnOnce(u32) -> Result<Work, Error>,
    ) -> Result<Transfer, Error> {
        let mut params = options.channel_params()?;
        if direction == Direction::Send && matches!(self.inner.cx.side, Side::Connector { .. }) {
            self.inner.cx.endpoint.sending.apply(&mut params)?;
        }
        transfer::channels::use_paths(&self.inner.cx, direction, options, &mut params)?;
        let mut memory = self.memory(params.block_bytes).await?;
        params.block_bytes = memory.block_bytes();
        let has_room = direction == Direction::Receive && params.paths == 1;
        params.room = if has_room { memory.borrow_first() } else { 0 };
        let next_number = &self.inner.next_number;
        let mut next_number = lock(next_number);
        let number = take_number(&mut next_number)?;
        let work = work(number)?;
        let mailbox = self.inner.cx.router.register(number, direction.role())?;
        let is_durable = match &request {
            control::Request::Put { sync, .. } => *sync,
            control::Request::Get { .. } => options.sync,
            _ => false,
        };
        let is_of_ranges = requested::is_of_ranges(&request);
        let open = Open {
            transfer: number,
            direction: direction.for_opener(),
            request,
            channel: params.clone(),
        };
        let steering = Steering::requested(options.policy, options.rate_limit.map(|rate| rate.0));
        let is_stream = matches!(open.request, control::Request::Stream { .. });
        let side = &self.inner.cx.side;
        let carrier = options.carrier_plan(side.hop(), side.may_relay())?;
        self.inner.cx.control.send_request(open)?;
        drop(next_number);
        if let Some(selection) = selection {
            let bulk = self.inner.cx.control.bulk(&mailbox);
            thread("sabul-names", move || selected::send_names(selection, number, &bulk))?;
        }
        let answer_within = (!is_stream).then_some(self.inner.cx.endpoint.timeouts.accept);
        let plan = Plan {
            is_opener: true,
            answer_within,
            params,
            carrier,
            steering,
            work,
            memory: Some(memory),
            is_durable,
            is_of_ranges,
        };
        Ok(transfer::start(self.inner.cx.clone(), mailbox, plan))
    }

    /// Reserves memory for this end before the request is sent; waits in the queue while memory is short.
    async fn memory(&self, block_bytes: u32) -> Result<BlockLoan, Error> {
        let place = self.inner.cx.endpoint.memory.line_up(Initiator::Here);
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
                () = place.notified() => {}
                () = tokio::time::sleep(MEMORY_INTERVAL) => {}
            }
        }
    }

    /// Returns the peer's next request; `None` once the peer will send no more.
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
            control::Request::List { .. } | control::Request::Hash { .. } => {
                Request::List(ListingRequest { pending })
            }
            control::Request::Attest { part, .. } => {
                Request::Attest(AttestRequest { pending, part })
            }
            control::Request::Remove { .. } => {
                Request::Change(ChangeRequest { pending, is_removal: true })
            }
            control::Request::MakeFolders { .. }
            | control::Request::Rename { .. }
            | control::Request::SetMetadata { .. } => {
                Request::Change(ChangeRequest { pending, is_removal: false })
            }
        })
    }

    /// Answers all requests of the peer until the peer closes the session.
    ///
    /// # Errors
    /// If the root cannot be opened, or the session breaks before the peer closes it.
    pub async fn serve(&self, service: &Service) -> Result<ServeSummary, Error> {
        self.serve_with_observer(service, |_| {}).await
    }

    /// As [`Self::serve`]; also calls `observe` at the start and end of each transfer, and for each other failed
    /// request.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub async fn serve_with_observer(
        &self,
        service: &Service,
        observe: impl Fn(Serving<'_>) + Send + Sync,
    ) -> Result<ServeSummary, Error> {
        self.serve_with(service, None, observe).await
    }

    /// As [`Self::serve_with_observer`]; `streams` answers the streams of the peer.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub async fn serve_with(
        &self,
        service: &Service,
        streams: Option<Streams>,
        observe: impl Fn(Serving<'_>) + Send + Sync,
    ) -> Result<ServeSummary, Error> {
        let disk: Option<Arc<dyn Disk>> = match &service.root {
            Some(root) if !service.as_user => {
                let opened = self.inner.cx.endpoint.open_root(root).await;
                let root = opened.map_err(|failure| {
                    let served = format!("service of the directory '{}'", root.display());
                    let advice = "serve a directory that exists and can be read";
                    Error::impossible(served, failure.message, advice)
                })?;
                Some(self.within_grant(root).await?)
            }
            _ => None,
        };
        self.serve_on(disk, service, streams, observe).await
    }

    /// Returns the part of the root that the peer's user may access. Without such a directory the session ends.
    async fn within_grant(&self, root: Arc<RootDir>) -> Result<Arc<dyn Disk>, Error> {
        let Some(user) = self.user().filter(|user| !user.grant.root.is_empty()) else {
            return Ok(root);
        };
        let user = user.clone();
        let opened = self.inner.cx.endpoint.file_call(move || user.open_root(&root)).await;
        match opened.and_then(|opened| opened) {
            Ok(folder) => Ok(Arc::new(folder)),
            Err(failure) => {
                self.inner
                    .cx
                    .control
                    .send(Message::Cancel { transfer: None, failure: failure.clone() });
                Err(Error::Failed(failure))
            }
        }
    }

    /// As [`Session::serve`], with an open root. A session of a pass ends with the session of its user.
    pub(crate) async fn serve_on(
        &self,
        disk: Option<Arc<dyn Disk>>,
        service: &Service,
        streams: Option<Streams>,
        observe: impl Fn(Serving<'_>) + Send + Sync,
    ) -> Result<ServeSummary, Error> {
        let peer = self.inner.peer;
        let pass = self.user().and_then(|user| user.pass.clone());
        let mut is_pass_over = false;
        let mut summary = ServeSummary::default();
        let mut running = JoinSet::new();
        let (begin, mut started) = mpsc::unbounded_channel();
        // Each file request holds one permit.
        let places = Arc::new(Semaphore::new(FILE_TRANSFERS_MAX));
        let mut is_open = true;
        while is_open || !running.is_empty() {
            tokio::select! {
                biased;
                request = self.next_request(), if is_open => match request {
                    None => is_open = false,
                    Some(request) => {
                        debug!(?request, peer = %self.inner.peer, "request");
                        let place = (!matches!(request, Request::Measure(_)))
                            .then(|| Arc::clone(&places).try_acquire_owned());
                        let (service, streams) = (service.clone(), streams.clone());
                        let disk = disk.clone();
                        let order = request.pending().open().map(Order::of);
                        let (begin, requested) = (begin.clone(), order.clone());
                        let begins = move |transfer| {
                            let started = requested.map(|order| Started { peer, order, transfer });
                            // The receiver lives as long as this function.
                            started.into_iter().for_each(|started| drop(begin.send(started)));
                        };
                        let answered = async move {
                            let Ok(_place) = place.transpose() else {
                                let text = crowded();
                                request.refuse(&text);
                                return Err(Error::Failed(refused(text)));
                            };
                            request.answer(&service, streams, disk, begins).await
                        };
                        running.spawn(async move { (order, answered.await) });
                    }
                },
                Some(started) = started.recv() => observe(Serving::Started(&started)),
                Some(ended) = running.join_next() => summary.add(peer, ended, &observe),
                () = served::issuer_over(pass.as_deref()), if !is_pass_over => {
                    (is_pass_over, is_open) = (true, false);
                    self.send(Message::Cancel { transfer: None, failure: served::pass_over() });
                }
                // A transfer that has ended at the peer ends here a little later.
                () = tokio::time::sleep(ENDED_WITHIN), if is_pass_over => {
                    return Err(Error::Failed(served::pass_over()));
                }
            }
        }
        match self.inner.cx.router.ending() {
            _ if is_pass_over && summary.failed > 0 => Err(Error::Failed(served::pass_over())),
            None | Some(Ending::Closed) => Ok(summary),
            Some(ending) => Err(ending.to_error()),
        }
    }

    /// Keeps the ssh that started the peer for as long as the session and its transfers.
    pub(crate) fn keep(&self, bridge: Bridge) {
        *self.bridge() = Some(bridge);
    }

    fn bridge(&self) -> MutexGuard<'_, Option<Bridge>> {
        lock(&self.inner.cx.endpoint.bridge)
    }

    /// Closes the session and notifies the peer. Running transfers are cancelled.
    pub async fn close(self) {
        let ending = std::mem::take(&mut *lock(&self.inner.ending));
        // Otherwise the peer reports a failed transfer.
        let all_ended = async {
            for task in ending {
                let _ = task.await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, all_ended).await;
        self.inner.cx.control.send(Message::Close);
        self.inner.cx.router.end(Ending::Closed);
        let written = lock(&self.inner.written).take();
        if let Some(written) = written {
            // A peer that no longer reads does not need the message.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, written).await;
        }
        let bridge = self.bridge().take();
        if let Some(bridge) = bridge {
            bridge.close().await;
        }
    }
}

/// Request of the peer. Dropping a request refuses it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Request {
    /// Write files here.
    Put(PutRequest),
    /// Read files here.
    Get(GetRequest),
    /// Open a stream between applications.
    Stream(StreamRequest),
    /// Run a measurement.
    Measure(MeasureRequest),
    /// List files here.
    List(ListingRequest),
    /// Remove files or create directories here.
    Change(ChangeRequest),
    /// Hash files here and sign a statement about them.
    Attest(AttestRequest),
}

impl Request {
    /// Answers the request and waits for its end. Calls `begins` at the start of a transfer and returns its report.
    async fn answer(
        self,
        service: &Service,
        streams: Option<Streams>,
        disk: Option<Arc<dyn Disk>>,
        begins: impl FnOnce(TransferHandle),
    ) -> Result<Option<Report>, Error> {
        let is_of_files = !matches!(&self, Self::Measure(_) | Self::Stream(_));
        let refusal = match &self {
            Self::Put(_) | Self::Change(_) if service.read_only => {
                "the listener only lets files be read"
            }
            Self::Attest(AttestRequest { part: Part::Receiver, .. }) if service.read_only => {
                "the listener only lets files be read, so it is no receiver"
            }
            _ if is_of_files && disk.is_none() && !service.as_user => {
                "the listener serves no files"
            }
            Self::Change(request) if request.is_removal && !service.remove => {
                "the listener lets nothing be removed; 'sabul serve --allow-rm' does"
            }
            Self::Measure(_) if !service.measure => "the listener takes no measurements",
            Self::Stream(_) if streams.is_none() => "the listener serves no streams",
            _ => "",
        };
        let refusal =
            if refusal.is_empty() { self.pending().denied() } else { Some(refusal.to_owned()) };
        if let Some(refusal) = refusal {
            self.refuse(&refusal);
            return Err(Error::Failed(refused(refusal)));
        }
        let this = match self {
            Self::Put(request) if service.read_back => Self::Put(request.reading_back()),
            other => other,
        };
        let transfer = match (this, disk) {
            (Self::List(request), disk) => return request.answer(disk).await.map(|()| None),
            (Self::Change(request), disk) => return request.answer(disk).await.map(|()| None),
            (Self::Attest(request), disk) => {
                return request.answer(disk, &service.signing).await.map(|()| None);
            }
            (Self::Put(request), Some(disk)) => request.accept_in(disk).await?,
            (Self::Put(request), None) => request.accept_as_user().await?,
            (Self::Get(request), Some(disk)) => request.accept_in(disk).await?,
            (Self::Get(request), None) => request.accept_as_user().await?,
            (Self::Measure(request), _) => request.accept()?,
            (Self::Stream(request), disk) => {
                return request.answer(streams, ServedFiles::of(disk, service)).await;
            }
        };
        begins(transfer.handle());
        transfer.finish().await.map(Some)
    }

    /// Refuses the request; the peer receives `reason`.
    pub fn refuse(self, reason: &str) {
        let pending = match self {
            Self::Put(PutRequest { pending })
            | Self::Get(GetRequest { pending })
            | Self::Measure(MeasureRequest { pending })
            | Self::List(ListingRequest { pending })
            | Self::Change(ChangeRequest { pending, .. })
            | Self::Attest(AttestRequest { pending, .. })
            | Self::Stream(StreamRequest { pending, .. }) => pending,
        };
        pending.refuse(refused(reason));
    }

    const fn pending(&self) -> &Pending {
        match self {
            Self::Put(PutRequest { pending })
            | Self::Get(GetRequest { pending })
            | Self::Measure(MeasureRequest { pending })
            | Self::List(ListingRequest { pending })
            | Self::Change(ChangeRequest { pending, .. })
            | Self::Attest(AttestRequest { pending, .. })
            | Self::Stream(StreamRequest { pending, .. }) => pending,
        }
    }
}

#[cfg(test)]
mod tests;
