//! The main functions without `async`, for programs without a tokio runtime: put, get, list, remove,
//! streams, measurements, serving.
//!
//! Every function waits for its result. Sessions run in the background, on one runtime of two
//! threads for the whole process. Call the functions from plain threads: inside a runtime they
//! return an error.
//!
//! ```
//! use sabul::files::{RemoteDestination, SourceSet};
//! use sabul::{ConnectConfig, ListenerConfig, Service, TransferOptions, blocking};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (here, there) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! # let (source, root) = (here.path().join("results.h5"), there.path().to_owned());
//! # std::fs::write(&source, "content")?;
//! let listener = blocking::Listener::bind(ListenerConfig::new("127.0.0.1:0".parse()?))?;
//! let ticket = listener.ticket().clone();
//! let receiver = std::thread::spawn(move || {
//!     listener.accept()?.serve(&Service::default().root(root))
//! });
//!
//! let session = blocking::connect(&ticket, ConnectConfig::default())?;
//! let (to, options) = (RemoteDestination::default(), TransferOptions::default());
//! let report = session.put(SourceSet::path(source), to, &options)?.finish()?.into_result()?;
//! println!("{} bytes", report.bytes);
//! session.close()?;
//! receiver.join().expect("the receiver does not panic")?;
//! # assert_eq!(std::fs::read(there.path().join("results.h5"))?, b"content");
//! # Ok(())
//! # }
//! ```

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::OnceLock;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::config::{ConnectConfig, ListenerConfig, LocalDestination, RemoteDestination, Service};
use crate::config::{Direction, MeasureLimit, TransferOptions};
use crate::error::Error;
use crate::session::{self, Changed, Request, ServeSummary, StreamRequest};
use crate::ssh::Ssh;
use crate::ticket::Ticket;
use crate::transfer::{self, Progress, Report, TransferHandle};
use crate::{connector, listener, stream};
use sabul_files::SourceSet;
use sabul_wire::control::{Rule, Seen, View};

/// Threads of the runtime. Ours: one may be busy with a handshake while the other sends messages.
const THREADS: usize = 2;

/// Runs a future on the runtime of this process, which the first call starts.
///
/// # Errors
/// If this thread is inside of a runtime, or the runtime cannot start.
fn wait<T>(future: impl Future<Output = T>) -> Result<T, Error> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if Handle::try_current().is_ok() {
        return Err(Error::impossible(
            "a blocking call",
            "it was made inside an async runtime, which would stop",
            "use the async function there, or call from a plain thread",
        ));
    }
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime.block_on(future));
    }
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(THREADS).thread_name("sabul").enable_all().build();
    let runtime = runtime.map_err(Error::io("start a runtime"))?;
    // If another thread was faster, its runtime is used and this runtime is dropped.
    Ok(RUNTIME.get_or_init(|| runtime).block_on(future))
}

/// As [`crate::connect`].
///
/// # Errors
/// As [`crate::connect`].
pub fn connect(ticket: &Ticket, config: ConnectConfig) -> Result<Session, Error> {
    wait(connector::connect(ticket, config))?.map(Session)
}

/// As [`Ssh::connect`].
///
/// # Errors
/// As [`Ssh::connect`].
pub fn connect_ssh(host: &Ssh, config: ConnectConfig) -> Result<Session, Error> {
    wait(host.connect(config))?.map(Session)
}

/// As [`crate::Listener`].
#[derive(Debug)]
pub struct Listener(listener::Listener);

impl Listener {
    /// As [`crate::Listener::bind`].
    ///
    /// # Errors
    /// As [`crate::Listener::bind`].
    pub fn bind(config: ListenerConfig) -> Result<Self, Error> {
        wait(listener::Listener::bind(config))?.map(Self)
    }

    /// Returns the ticket, which connectors need to find, authenticate and use this listener.
    pub fn ticket(&self) -> &Ticket {
        self.0.ticket()
    }

    /// Returns the bound address of TCP and UDP.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// As [`crate::Listener::accept`].
    ///
    /// # Errors
    /// As [`crate::Listener::accept`].
    pub fn accept(&self) -> Result<Session, Error> {
        wait(self.0.accept())?.map(Session)
    }
}

/// As [`crate::Session`].
#[derive(Clone, Debug)]
pub struct Session(session::Session);

impl Session {
    /// Returns the address of the peer's end of the control connection.
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr()
    }

    /// As [`crate::Session::put`].
    ///
    /// # Errors
    /// As [`crate::Session::put`].
    pub fn put(
        &self,
        sources: SourceSet,
        destination: RemoteDestination,
        options: &TransferOptions,
    ) -> Result<Transfer, Error> {
        wait(self.0.put(sources, destination, options))?.map(Transfer)
    }

    /// As [`crate::Session::get`].
    ///
    /// # Errors
    /// As [`crate::Session::get`].
    pub fn get(
        &self,
        sources: Vec<Vec<u8>>,
        recursive: bool,
        destination: LocalDestination,
        options: &TransferOptions,
    ) -> Result<Transfer, Error> {
        wait(self.0.get(sources, recursive, destination, options))?.map(Transfer)
    }

    /// As [`crate::Session::list`].
    ///
    /// # Errors
    /// As [`crate::Session::list`].
    pub fn list(
        &self,
        places: Vec<Vec<u8>>,
        view: View,
        rules: Vec<Rule>,
    ) -> Result<Listing, Error> {
        wait(async { self.0.list(places, view, rules) })?.map(Listing)
    }

    /// As [`crate::Session::remove`].
    ///
    /// # Errors
    /// As [`crate::Session::remove`].
    pub fn remove(&self, places: Vec<Vec<u8>>, recursive: bool) -> Result<Changed, Error> {
        wait(self.0.remove(places, recursive))?
    }

    /// As [`crate::Session::make_folders`].
    ///
    /// # Errors
    /// As [`crate::Session::make_folders`].
    pub fn make_folders(&self, places: Vec<Vec<u8>>, parents: bool) -> Result<Changed, Error> {
        wait(self.0.make_folders(places, parents))?
    }

    /// As [`crate::Session::rename`].
    ///
    /// # Errors
    /// As [`crate::Session::rename`].
    pub fn rename(&self, from: Vec<u8>, to: Vec<u8>, replace: bool) -> Result<(), Error> {
        wait(self.0.rename(from, to, replace))?
    }

    /// As [`crate::Session::send_stream`].
    ///
    /// # Errors
    /// As [`crate::Session::send_stream`].
    pub fn send_stream(&self, name: &str, options: &TransferOptions) -> Result<SendStream, Error> {
        wait(self.0.send_stream(name, options))?.map(SendStream)
    }

    /// As [`crate::Session::receive_stream`].
    ///
    /// # Errors
    /// As [`crate::Session::receive_stream`].
    pub fn receive_stream(
        &self,
        name: &str,
        options: &TransferOptions,
    ) -> Result<ReceiveStream, Error> {
        wait(self.0.receive_stream(name, options))?.map(ReceiveStream)
    }

    /// As [`crate::Session::measure`].
    ///
    /// # Errors
    /// As [`crate::Session::measure`].
    pub fn measure(
        &self,
        direction: Direction,
        limit: MeasureLimit,
        options: &TransferOptions,
    ) -> Result<Transfer, Error> {
        wait(self.0.measure(direction, limit, options))?.map(Transfer)
    }

    /// As [`crate::Session::serve`].
    ///
    /// # Errors
    /// As [`crate::Session::serve`].
    pub fn serve(&self, service: &Service) -> Result<ServeSummary, Error> {
        wait(self.0.serve(service))?
    }

    /// As [`crate::Session::next_request`].
    ///
    /// # Errors
    /// If this thread is inside of a runtime.
    pub fn next_request(&self) -> Result<Option<Request>, Error> {
        wait(self.0.next_request())
    }

    /// As [`crate::Session::close`].
    ///
    /// # Errors
    /// If this thread is inside of a runtime.
    pub fn close(self) -> Result<(), Error> {
        wait(self.0.close())
    }
}

/// As [`crate::Transfer`].
#[derive(Debug)]
pub struct Transfer(transfer::Transfer);

impl Transfer {
    /// Returns a cloneable handle to observe and change the transfer.
    pub fn handle(&self) -> TransferHandle {
        self.0.handle()
    }

    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// As [`crate::Transfer::changed`].
    ///
    /// # Errors
    /// If this thread is inside of a runtime.
    pub fn changed(&mut self) -> Result<(), Error> {
        wait(self.0.changed())
    }

    /// As [`crate::Transfer::cancel`].
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// As [`crate::Transfer::finish`].
    ///
    /// # Errors
    /// As [`crate::Transfer::finish`].
    pub fn finish(self) -> Result<Report, Error> {
        wait(self.0.finish())?
    }
}

/// As [`crate::files::Listing`], as an iterator over the entries. An error is the last item.
#[derive(Debug)]
pub struct Listing(session::Listing);

impl Iterator for Listing {
    type Item = Result<Seen, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        wait(self.0.next()).and_then(|seen| seen).transpose()
    }
}

/// As [`crate::SendStream`].
#[derive(Debug)]
pub struct SendStream(stream::SendStream);

impl SendStream {
    /// As [`StreamRequest::accept_sender`].
    ///
    /// # Errors
    /// As [`StreamRequest::accept_sender`].
    pub fn accept(request: StreamRequest) -> Result<Self, Error> {
        wait(async { request.accept_sender() })?.map(Self)
    }

    /// As [`crate::SendStream::finish`].
    ///
    /// # Errors
    /// As [`crate::SendStream::finish`].
    pub fn finish(self) -> Result<Report, Error> {
        wait(self.0.finish())?
    }
}

impl Write for SendStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        wait(self.0.write(bytes)).map_err(io::Error::other)?
    }

    fn flush(&mut self) -> io::Result<()> {
        wait(self.0.flush()).map_err(io::Error::other)?
    }
}

/// As [`crate::ReceiveStream`].
#[derive(Debug)]
pub struct ReceiveStream(stream::ReceiveStream);

impl ReceiveStream {
    /// As [`StreamRequest::accept_receiver`].
    ///
    /// # Errors
    /// As [`StreamRequest::accept_receiver`].
    pub fn accept(request: StreamRequest) -> Result<Self, Error> {
        wait(async { request.accept_receiver() })?.map(Self)
    }

    /// As [`crate::ReceiveStream::finish`].
    ///
    /// # Errors
    /// As [`crate::ReceiveStream::finish`].
    pub fn finish(self) -> Result<Report, Error> {
        wait(self.0.finish())?
    }
}

impl Read for ReceiveStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        wait(self.0.read(buffer)).map_err(io::Error::other)?
    }
}
