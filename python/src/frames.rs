//! Streams between two processes of Python, which carry the large frames of their messages.
//!
//! One process listens, the other one connects. Both know the name of a stream, and one of both sends.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyList};
use sabul::server::{Request, StreamRequest};
use sabul::{
    ConnectConfig, Error, Listener, ListenerConfig, ReceiveStream, SendStream, Session, Ticket,
    TransferOptions,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};

use crate::dial::path_memory;
use crate::error::Fault;
use crate::runtime::{OfProcess, run, runtime};

/// Streams that wait for this process, for each session. Ours: twice the streams that a session opens at a time.
const WAITING_MAX: usize = 2 * STREAMS_MAX;
/// Streams of a session at the same time. Ours: half of the requests that a server answers at the same time.
const STREAMS_MAX: usize = 8;
/// Memory that is reserved before the bytes of a frame arrive. Ours.
const RESERVED_MAX: u64 = 1 << 20;

/// Streams that the peers opened, by name.
#[derive(Debug, Default)]
struct Arrivals {
    waiting: Mutex<HashMap<String, StreamRequest>>,
    changed: Notify,
}

impl Arrivals {
    fn waiting(&self) -> MutexGuard<'_, HashMap<String, StreamRequest>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the stream of this name, however long: streams before it may be slow. The caller drops the future when the
    /// connection of the message has ended.
    async fn take(&self, name: &str) -> StreamRequest {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(request) = self.waiting().remove(name) {
                return request;
            }
            changed.await;
        }
    }

    /// Keeps the streams of a session until `take`, or until the session ends.
    async fn serve(&self, session: Session) {
        let mut names: Vec<String> = Vec::new();
        while let Some(request) = session.next_request().await {
            let Request::Stream(request) = request else {
                request.refuse("only streams of frames are open here");
                continue;
            };
            let mut waiting = self.waiting();
            names.retain(|name| waiting.contains_key(name));
            if names.len() >= WAITING_MAX || waiting.contains_key(&request.name) {
                request.refuse("too many streams wait for this process, or this name is in use");
                continue;
            }
            names.push(request.name.clone());
            waiting.insert(request.name.clone(), request);
            drop(waiting);
            self.changed.notify_waiters();
        }
        let mut waiting = self.waiting();
        for name in names {
            waiting.remove(&name);
        }
    }
}

/// A listener for streams of frames. A dropped object ends its sessions.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct FrameListener {
    inner: OfProcess<Listening>,
}

#[derive(Debug)]
struct Listening {
    ticket: String,
    port: u16,
    arrivals: Arc<Arrivals>,
    accepting: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Listens at this address, at the first free port of the range, or at any free port.
#[pyfunction]
pub(crate) fn listen_frames(
    py: Python<'_>,
    address: &str,
    ports: (u16, u16),
) -> PyResult<FrameListener> {
    let address: IpAddr = address.parse().map_err(|_| {
        PyErr::from(Fault::usage(format!("'{address}' is no IP address of this machine")))
    })?;
    let listening = async move {
        let listener = bind(address, ports.0..=ports.1).await.map_err(Fault::from)?;
        let (ticket, port) = (listener.ticket().to_string(), listener.local_addr().port());
        let arrivals = Arc::new(Arrivals::default());
        let accepting = tokio::spawn(accept(listener, Arc::clone(&arrivals)));
        Ok::<_, Fault>(Listening { ticket, port, arrivals, accepting })
    };
    let runtime = runtime(py)?;
    let listening = py.detach(|| runtime.block_on(listening))?;
    Ok(FrameListener { inner: OfProcess::new(listening) })
}

async fn bind(address: IpAddr, ports: RangeInclusive<u16>) -> Result<Listener, Error> {
    for port in ports.chain([0]) {
        let config = ListenerConfig::new(SocketAddr::new(address, port)).paths(path_memory());
        match Listener::bind(config).await {
            Err(_) if port != 0 => {}
            bound => return bound,
        }
    }
    Err(Error::Cancelled)
}

async fn accept(listener: Listener, arrivals: Arc<Arrivals>) {
    let mut sessions = JoinSet::new();
    while let Ok(session) = listener.accept().await {
        let arrivals = Arc::clone(&arrivals);
        sessions.spawn(async move { arrivals.serve(session).await });
        while sessions.try_join_next().is_some() {}
    }
}

#[pymethods]
impl FrameListener {
    /// Ticket with which other processes connect.
    #[getter]
    fn ticket(&self) -> PyResult<&str> {
        Ok(&self.inner.get()?.ticket)
    }

    /// Port of TCP and UDP.
    #[getter]
    fn port(&self) -> PyResult<u16> {
        Ok(self.inner.get()?.port)
    }

    /// Waits until the peer requests the stream of this name, and returns its writer.
    fn send<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyAny>> {
        let arrivals = Arc::clone(&self.inner.get()?.arrivals);
        run(py, false, async move {
            Ok(FrameWriter::new(arrivals.take(&name).await.accept_sender()?, None))
        })
    }

    /// Receives frames of these sizes from the stream of this name.
    fn receive<'py>(
        &self,
        py: Python<'py>,
        name: String,
        sizes: Vec<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arrivals = Arc::clone(&self.inner.get()?.arrivals);
        run(
            py,
            false,
            async move { read(arrivals.take(&name).await.accept_receiver()?, sizes).await },
        )
    }
}

/// A session with the listener of another process. A dropped object ends the session.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct FrameSession {
    inner: OfProcess<Arc<Connected>>,
}

#[derive(Debug)]
struct Connected {
    session: Session,
    streams: Arc<Semaphore>,
}

impl Connected {
    /// Waits for one of the streams of this session.
    async fn place(&self) -> Result<OwnedSemaphorePermit, Fault> {
        let place = Arc::clone(&self.streams).acquire_owned().await;
        place.map_err(|_| Fault::failed("the session has ended"))
    }
}

/// Connects to the listener of this ticket at `address`, as `HOST:PORT`.
#[pyfunction]
pub(crate) fn connect_frames<'py>(
    py: Python<'py>,
    ticket: &str,
    address: String,
) -> PyResult<Bound<'py, PyAny>> {
    let ticket: Ticket =
        ticket.parse().map_err(|error| PyErr::from(Fault::from(Error::Ticket(error))))?;
    run(py, false, async move {
        let config = ConnectConfig::default().paths(path_memory()).address(address);
        let session = sabul::connect(&ticket, config).await?;
        let connected = Connected { session, streams: Arc::new(Semaphore::new(STREAMS_MAX)) };
        Ok(FrameSession { inner: OfProcess::new(Arc::new(connected)) })
    })
}

#[pymethods]
impl FrameSession {
    /// Opens a stream of this name to the peer, and returns its writer.
    fn send<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyAny>> {
        let connected = Arc::clone(self.inner.get()?);
        run(py, false, async move {
            let place = connected.place().await?;
            let stream = connected.session.send_stream(&name, &TransferOptions::default()).await?;
            Ok(FrameWriter::new(stream, Some(place)))
        })
    }

    /// Requests the stream of this name from the peer, and receives frames of these sizes.
    fn receive<'py>(
        &self,
        py: Python<'py>,
        name: String,
        sizes: Vec<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let connected = Arc::clone(self.inner.get()?);
        run(py, false, async move {
            let _place = connected.place().await?;
            let options = TransferOptions::default();
            read(connected.session.receive_stream(&name, &options).await?, sizes).await
        })
    }
}

/// A stream until its end.
type Open = Arc<tokio::sync::Mutex<Option<SendStream>>>;

/// Sending end of a stream. An object that is dropped before `finish` cancels the stream.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct FrameWriter {
    stream: OfProcess<Open>,
    _place: Option<OwnedSemaphorePermit>,
}

impl FrameWriter {
    fn new(stream: SendStream, place: Option<OwnedSemaphorePermit>) -> Self {
        let stream = OfProcess::new(Arc::new(tokio::sync::Mutex::new(Some(stream))));
        Self { stream, _place: place }
    }
}

#[pymethods]
impl FrameWriter {
    /// Appends bytes; waits while earlier bytes are not sent.
    fn write<'py>(&self, py: Python<'py>, bytes: PyBackedBytes) -> PyResult<Bound<'py, PyAny>> {
        let stream = Arc::clone(self.stream.get()?);
        run(py, false, async move {
            let mut slot = stream.lock().await;
            let open = slot.as_mut().ok_or_else(ended)?;
            if let Err(error) = open.write_all(&bytes).await {
                // The transfer has the cause of its end.
                let Some(stream) = slot.take() else { return Err(ended()) };
                stream.finish().await?;
                return Err(Fault::failed(error.to_string()));
            }
            Ok(())
        })
    }

    /// Ends the stream with an error at the peer.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let stream = Arc::clone(self.stream.get()?);
        runtime(py)?.spawn(async move { stream.lock().await.take() });
        Ok(())
    }

    /// Ends the stream, and waits until the peer has all bytes, verified.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stream = Arc::clone(self.stream.get()?);
        run(py, false, async move {
            let stream = stream.lock().await.take().ok_or_else(ended)?;
            stream.finish().await?;
            Ok(())
        })
    }
}

fn ended() -> Fault {
    Fault::usage("the stream has ended; open a new one")
}

/// Frames of a message.
struct Frames(Vec<Vec<u8>>);

impl<'py> IntoPyObject<'py> for Frames {
    type Target = PyList;
    type Output = Bound<'py, PyList>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        // Arrays of the receiver may write to the memory of their frame.
        PyList::new(py, self.0.into_iter().map(|frame| PyByteArray::new(py, &frame)))
    }
}

/// Reads frames of these sizes, which are the whole stream.
async fn read(mut stream: ReceiveStream, sizes: Vec<u64>) -> Result<Frames, Fault> {
    let mut frames = Vec::with_capacity(sizes.len());
    for size in sizes {
        let mut frame = Vec::with_capacity(usize::try_from(size.min(RESERVED_MAX)).unwrap_or(0));
        let read = (&mut stream).take(size).read_to_end(&mut frame).await;
        if read.is_err() || frame.len() as u64 != size {
            let got = frame.len();
            stream.finish().await?;
            return Err(Fault::failed(format!("a frame has {got} of {size} bytes")));
        }
        frames.push(frame);
    }
    stream.finish().await?;
    Ok(Frames(frames))
}
