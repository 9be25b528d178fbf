//! Streams between applications, and measurements.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sabul_files::SourceSet;
use sabul_files::disk::Disk;

use sabul_units::Bytes;
use sabul_wire::control::{self, Open};

use super::files::users_path;
use super::pending::{Pending, refused};
use super::rights::denial;
use crate::access::User;
use crate::config::{Direction, LocalDestination, MeasureLimit, Service};
use crate::control::Ending;
use crate::error::Error;
use crate::passes::{Issuer, Permit};
use crate::stream::{self, ReceiveStream, SendStream};
use crate::ticket::Ticket;
use crate::transfer::{Report, Resume, Transfer, Work};
use sabul_files::StreamReceiver;
use sabul_keys::Right;

/// Answer to a stream of a peer: the report of the copy that the stream was about, if any.
pub type StreamAnswer = Pin<Box<dyn Future<Output = Result<Option<Report>, Error>> + Send>>;

/// Application that answers the streams of the peer of [`Session::serve_with`](crate::Session::serve_with).
pub trait StreamService: Send + Sync {
    /// Answers a stream. The future is dropped at the end of the session.
    fn answer(self: Arc<Self>, request: StreamRequest, files: ServedFiles) -> StreamAnswer;
}

/// The application that answers streams. Two values are equal if they are the same application.
#[derive(Clone)]
pub struct Streams(pub Arc<dyn StreamService>);

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streams")
    }
}

impl PartialEq for Streams {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Streams {}

/// Files that the peer's user may access: those below the served directory, or below the user's part of it, or those of
/// the user of this process.
#[derive(Clone)]
pub struct ServedFiles(Served);

#[derive(Clone)]
enum Served {
    Nothing,
    Below(Arc<dyn Disk>),
    OfUser,
}

impl fmt::Debug for ServedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_served = !matches!(self.0, Served::Nothing);
        f.debug_struct("ServedFiles").field("is_served", &is_served).finish()
    }
}

impl ServedFiles {
    pub(super) fn of(disk: Option<Arc<dyn Disk>>, service: &Service) -> Self {
        Self(match disk {
            Some(disk) => Served::Below(disk),
            None if service.as_user => Served::OfUser,
            None => Served::Nothing,
        })
    }

    /// Returns the sources of these names or patterns; `None` if no files are served.
    pub fn sources(&self, sources: Vec<Vec<u8>>, recursive: bool) -> Option<SourceSet> {
        let set = match &self.0 {
            Served::Nothing => return None,
            Served::Below(disk) => SourceSet::in_disk(Arc::clone(disk), sources, recursive),
            Served::OfUser => SourceSet::as_user(sources, recursive),
        };
        Some(set.with_patterns(true))
    }

    /// Returns this path as a destination; `None` if no files are served.
    pub fn destination(&self, path: Vec<u8>, into_directory: bool) -> Option<LocalDestination> {
        Some(match &self.0 {
            Served::Nothing => return None,
            Served::Below(disk) => {
                LocalDestination::Served { disk: Arc::clone(disk), path, into_directory }
            }
            Served::OfUser => LocalDestination::Path { path: users_path(path), into_directory },
        })
    }
}

/// Request of the peer for a stream between its application and this one.
#[derive(Debug)]
pub struct StreamRequest {
    /// Name of the stream, chosen by the peer.
    pub name: String,
    /// Direction of the data, seen from this side.
    pub direction: Direction,
    pub(super) pending: Pending,
}

impl StreamRequest {
    /// Answers the stream by the application, until the end of the session.
    pub(super) async fn answer(
        self,
        streams: Option<Streams>,
        files: ServedFiles,
    ) -> Result<Option<Report>, Error> {
        let Some(Streams(application)) = streams else {
            return Err(Error::Cancelled);
        };
        let router = Arc::clone(&self.pending.cx.router);
        tokio::select! {
            biased;
            answered = application.answer(self, files) => answered,
            () = router.over() => Err(router.ending().unwrap_or(Ending::Closed).to_error()),
        }
    }

    /// Returns the user of a key or named ticket by which a listener authenticated the peer.
    pub fn user(&self) -> Option<&User> {
        self.pending.user()
    }

    /// Checks the rights of the peer's user.
    ///
    /// # Errors
    /// If a right is missing.
    pub fn check_rights(&self, rights: &[Right]) -> Result<(), Error> {
        denial(self.user(), rights).map_or(Ok(()), |why| Err(Error::Failed(refused(why))))
    }

    /// Makes a ticket with which another machine may make this one request at this listener, on behalf of the peer's user.
    /// The ticket has one use, which has to begin within a minute. The request ends at the latest with this session.
    ///
    /// # Errors
    /// If the user has no right to make the request, or too many such tickets are unused.
    pub fn admit(&self, permit: Permit) -> Result<Ticket, Error> {
        self.check_rights(&[permit.right()])?;
        let cx = &self.pending.cx;
        let issuer: Arc<dyn Issuer> = Arc::clone(&cx.router) as Arc<dyn Issuer>;
        cx.endpoint.arrivals.passes.make(permit, self.user(), &issuer)
    }

    /// Sends the stream that the peer requested.
    ///
    /// # Errors
    /// If the peer opened the stream to send, or the session is over.
    pub fn accept_sender(self) -> Result<SendStream, Error> {
        let (pipe, set) =
            stream::source(self.pending.cx.control.runtime().clone(), stream::ENTRY_NAME.to_vec())?;
        let work = Work::Send { set, resume: Resume::Never };
        let transfer = self.pending.accept(Direction::Send, |_| Ok(work))?;
        Ok(SendStream::new(pipe, transfer))
    }

    /// Receives the stream that the peer sends.
    ///
    /// # Errors
    /// If the peer opened the stream to receive, or the session is over.
    pub fn accept_receiver(self) -> Result<ReceiveStream, Error> {
        let (pipe, writer) = stream::sink(self.pending.cx.control.runtime().clone());
        let transfer = self.pending.accept(Direction::Receive, |number| {
            Ok(Work::Receive(Box::new(StreamReceiver::new(writer, number))))
        })?;
        Ok(ReceiveStream::new(pipe, transfer))
    }

    /// Refuses the request; the peer receives `reason`.
    pub fn refuse(self, reason: &str) {
        self.pending.refuse(refused(reason));
    }
}

/// Request of the peer for a measurement of the path.
#[derive(Debug)]
pub struct MeasureRequest {
    pub(super) pending: Pending,
}

impl MeasureRequest {
    /// Accepts the measurement.
    ///
    /// # Errors
    /// If a setting of the peer is invalid here.
    pub fn accept(self) -> Result<Transfer, Error> {
        let Some(Open { direction, request: control::Request::Measure { bytes, millis }, .. }) =
            self.pending.open().cloned()
        else {
            return Err(Error::Cancelled);
        };
        let limit =
            MeasureLimit { bytes: bytes.map(Bytes), time: millis.map(Duration::from_millis) };
        let direction = Direction::for_acceptor(direction);
        self.pending.accept(direction, |_| Ok(measure_work(direction, limit)))
    }
}

/// Returns the work of a measurement in this direction.
pub(super) fn measure_work(direction: Direction, limit: MeasureLimit) -> Work {
    match direction {
        Direction::Send => Work::SendMeasure(limit),
        Direction::Receive => Work::ReceiveMeasure(limit),
    }
}
