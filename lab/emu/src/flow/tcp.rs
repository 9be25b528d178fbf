//! Flows over the kernel's TCP.
//!
//! A thread in the far host accepts and discards; a thread in the near host connects and writes
//! zeros. Both ends are in one process, so the near end has access to the far end's counters; the
//! near end's port identifies a connection. A copy lives from the first SYN until the sender has
//! received one byte from the far end, which confirms that all bytes arrived. Then, or when the
//! flow is stopped, the connection is reset, which leaves no state in either host.
//!
//! The receiving application counts arrivals; the kernel counts sent segments. Losses are
//! retransmitted segments, because the kernel does not report which segments the kernel considers
//! lost. Header bytes are computed from the number of segments.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use rustix::net::sockopt;
use rustix::net::{RecvFlags, recv};
use sabul_run::meter::{Counters, Gauges};
use sabul_run::scenario::FlowPlan;
use sabul_units::{Bytes, Rate, Span};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc};

use super::board::Board;
use super::copies::{self, Copy};
use super::task::{Engine, Task, averaged_rtt, runtime, start_thread};
use crate::clock::Clock;
use crate::error::LabError;
use crate::tcp_info::{TcpInfo, TcpSample};

/// Bytes of one write, and of one discarding read.
const CHUNK: usize = 256 << 10;
static ZEROS: [u8; CHUNK] = [0; CHUNK];
/// Reads of one connection before other connections have their turn.
const READS_PER_TURN: usize = 16;
/// Most connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// Least interval between queries to the kernel for periodic looks.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Largest segment size that a socket option may request.
const MSS_MAX: u32 = 32_767;

/// Connection of a copy, shared by both ends.
#[derive(Debug)]
struct Connection {
    copy: u64,
    near: SocketAddr,
    bytes: Option<u64>,
    received: AtomicU64,
    /// Latest sample of the near host's kernel.
    sample: Mutex<Option<TcpSample>>,
    /// Notified when the near end no longer needs the connection.
    is_over: Notify,
}

/// State shared by both threads and the owner of the flow.
#[derive(Debug)]
pub(super) struct Tcp {
    board: Arc<Board>,
    /// Address of the far end's listener.
    far: SocketAddr,
    is_paced: bool,
    window: Option<Window>,
    /// Connections by the near end's port.
    connections: Mutex<BTreeMap<u16, Arc<Connection>>>,
    info: Mutex<(TcpInfo, Option<Instant>)>,
}

/// Makes both ends: the far end listens.
pub(super) fn prepare(
    task: &Task,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<Arc<Tcp>, LabError> {
    // The near end sends on this channel at its start; a closed channel means that the near end is
    // over.
    let (to_far, mut from_near) = mpsc::unbounded_channel::<(Arc<Tcp>, Clock)>();
    let far_task = task.clone();
    let far = start_thread("lab-tcp-far", &task.far, threads, move |prepared| {
        let listen = || {
            let runtime = runtime()?;
            let listener = runtime.block_on(async { listen(&far_task) })?;
            let address = listener.local_addr().map_err(LabError::system("learn a port"))?;
            Ok((address, (runtime, listener)))
        };
        let Some((runtime, listener)) = prepared.report(listen()) else { return };
        runtime.block_on(async {
            if let Some((tcp, clock)) = from_near.recv().await {
                accept(&mut from_near, &listener, &tcp, clock).await;
            }
        });
    })?;
    let mut near_task = task.clone();
    start_thread("lab-tcp-near", &task.near, threads, move |prepared| {
        let open = || {
            let runtime = runtime()?;
            let info = TcpInfo::open()?;
            // Settings that the kernel refuses are reported before the run.
            runtime.block_on(async { socket(&near_task, near_task.near.any_port()) })?;
            let tcp = Arc::new(Tcp {
                board: Arc::clone(&near_task.board),
                far,
                is_paced: algorithm(&near_task.plan.cc).starts_with("bbr"),
                window: Window::of(&near_task.plan),
                connections: Mutex::default(),
                info: Mutex::new((info, None)),
            });
            Ok((Arc::clone(&tcp), (runtime, tcp)))
        };
        let Some((runtime, tcp)) = prepared.report(open()) else { return };
        runtime.block_on(async {
            let Some((clock, end)) = near_task.start().await else { return };
            if to_far.send((Arc::clone(&tcp), clock)).is_err() {
                return;
            }
            let settings = near_task.clone();
            let run = |copy| send_copy(&tcp, &settings, clock, copy);
            let at_end = || {
                tcp.query_all(Duration::ZERO);
                tcp.board.retire_all(clock.now());
            };
            if let Err(why) = copies::run(&mut near_task, clock, end, run, at_end).await {
                near_task.board.fail(why);
            }
        });
    })
}

impl Engine for Arc<Tcp> {
    fn refresh(&self) {
        self.query_all(SAMPLE_INTERVAL);
    }
}

impl Tcp {
    fn connections(&self) -> MutexGuard<'_, BTreeMap<u16, Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn info(&self) -> MutexGuard<'_, (TcpInfo, Option<Instant>)> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queries the kernel about all connections if the last query is older than `age`, and updates
    /// the board.
    fn query_all(&self, age: Duration) {
        let mut info = self.info();
        let (kernel, queried_at) = &mut *info;
        let connections: Vec<_> = self.connections().values().map(Arc::clone).collect();
        if queried_at.is_none_or(|queried_at| queried_at.elapsed() >= age)
            && !connections.is_empty()
        {
            *queried_at = Some(Instant::now());
            // After a failed query the older figures remain, and the next look repeats the query.
            for sample in kernel.sample().unwrap_or_default() {
                if let Some(connection) = self.connections().get(&sample.local.port())
                    && sample.remote == self.far
                {
                    connection.take(sample);
                }
            }
        }
        drop(info);
        for connection in connections {
            self.write_down(&connection);
        }
    }

    fn query_connection(&self, connection: &Connection) {
        let sample = self.info().0.find(connection.near, self.far);
        if let Ok(Some(sample)) = sample {
            connection.take(sample);
        }
        self.write_down(connection);
    }

    fn write_down(&self, connection: &Connection) {
        let fresh_bytes = connection.received.load(Ordering::Acquire);
        let sample = *connection.sample.lock().unwrap_or_else(PoisonError::into_inner);
        let (counters, gauges) = sample.map_or_else(
            || (Counters { fresh_bytes, ..Counters::default() }, None),
            |sample| (counters(&sample, fresh_bytes), Some(gauges(&sample, self.is_paced))),
        );
        self.board.update(connection.copy, counters, gauges);
    }
}

impl Connection {
    fn take(&self, sample: TcpSample) {
        *self.sample.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
    }
}

fn counters(sample: &TcpSample, fresh_bytes: u64) -> Counters {
    let headers = u64::from(sample.header_bytes());
    let sent = u64::from(sample.data_segments_out);
    let resent = u64::from(sample.retransmitted);
    Counters {
        fresh_bytes,
        arrived_bytes: fresh_bytes + fresh_bytes.div_ceil(u64::from(sample.mss.max(1))) * headers,
        sent,
        sent_bytes: sample.bytes_sent + sent * headers,
        lost: resent,
        resent,
        breaker_opened: 0,
    }
}

/// Returns the current gauges of a connection.
pub(super) fn gauges(sample: &TcpSample, is_paced: bool) -> Gauges {
    let micros = |us: u32| Span::from_micros(us.into());
    let rate = Rate(sample.pacing_rate.saturating_mul(8));
    let is_paced = is_paced && rate.0 > 0;
    Gauges {
        gap: if is_paced { rate.time_for(Bytes(sample.mss.into())) } else { Span::ZERO },
        rtt: averaged_rtt(
            micros(sample.rtt_us),
            micros(sample.rtt_variance_us),
            micros(sample.min_rtt_us),
        ),
        in_flight: sample.in_flight().into(),
        window: Some(sample.cwnd.into()),
        delivery: (sample.delivery_rate > 0).then(|| Rate(sample.delivery_rate.saturating_mul(8))),
    }
}

// ---- sockets ------------------------------------------------------------------------------------

/// Returns the kernel's name of an algorithm.
pub(super) fn algorithm(cc: &str) -> &str {
    match cc {
        "newreno" => "reno",
        "bbr1" => "bbr",
        "tcp-lp" => "lp",
        name => name,
    }
}

/// Returns the message for an algorithm that the kernel refuses.
pub(super) fn refused_algorithm(cc: &str, error: &io::Error) -> String {
    let name = algorithm(cc);
    let offered = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let offered = offered.unwrap_or_default();
    format!(
        "the kernel refuses the TCP algorithm '{name}' ({error}); it offers {}; use one of those, \
         or load it with `modprobe tcp_{name}`",
        offered.trim()
    )
}

/// Checks that the kernel has an algorithm; `cc` is a controller's name here or the kernel's name.
///
/// # Errors
/// [`LabError::CannotCarry`] if the kernel has no such algorithm, with the available names. An
/// algorithm that this process may not use passes, because a host of a lab may be allowed to.
pub fn check_kernel_algorithm(cc: &str) -> Result<(), LabError> {
    let socket = TcpSocket::new_v4().map_err(LabError::system("make a TCP socket"))?;
    match sockopt::set_tcp_congestion(&socket, algorithm(cc)) {
        Err(error @ rustix::io::Errno::NOENT) => {
            Err(LabError::CannotCarry(refused_algorithm(cc, &error.into())))
        }
        _ => Ok(()),
    }
}

/// Returns a socket at `address` with all options that must precede connect or listen.
fn socket(task: &Task, address: SocketAddr) -> Result<TcpSocket, LabError> {
    let plan = &task.plan;
    let new = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = new.map_err(LabError::system("make a TCP socket"))?;
    sockopt::set_tcp_congestion(&socket, algorithm(&plan.cc))
        .map_err(|error| task.failed(refused_algorithm(&plan.cc, &error.into())))?;
    let mss = plan.packet_bytes.saturating_sub(if address.is_ipv4() { 40 } else { 60 });
    if mss <= MSS_MAX {
        SockRef::from(&socket)
            .set_tcp_mss(mss)
            .map_err(LabError::system(format!("send segments of {mss} bytes")))?;
    }
    // Closing resets the connection; unacknowledged data is discarded.
    socket.set_zero_linger().map_err(LabError::system("make a TCP socket"))?;
    socket.bind(address).map_err(LabError::system(format!("use TCP at {address}")))?;
    Ok(socket)
}

fn listen(task: &Task) -> Result<TcpListener, LabError> {
    let socket = socket(task, task.far.any_port())?;
    if let Some(window) = Window::of(&task.plan) {
        set_receive_buffer(&socket, window.scale_bytes).map_err(|error| {
            let bytes = window.scale_bytes;
            task.failed(format!(
                "its receive window needs a buffer of {bytes} bytes, which the kernel refuses \
                 ({error}); raise sysctl net.core.rmem_max to {bytes}"
            ))
        })?;
    }
    socket.listen(BACKLOG).map_err(LabError::system("listen for TCP connections"))
}

/// Receive buffers to request for the plan's window.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Buffer of the listener: connections inherit its window scale, which must be large enough.
    scale_bytes: usize,
    /// Buffer of a connection.
    bytes: usize,
}

impl Window {
    /// The kernel doubles the requested size and offers as window the rest after its own overhead.
    /// The rest is about 0.65 of the doubled size for packets of 1500 bytes (measured). The window
    /// is therefore 1.3 times the requested size; other packet sizes change that by a third at
    /// most.
    fn of(plan: &FlowPlan) -> Option<Self> {
        let wanted = plan.window_packets?.saturating_mul(plan.payload_bytes().into());
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        Some(Self { scale_bytes: wanted.saturating_mul(2), bytes: wanted.saturating_mul(10) / 13 })
    }
}

/// Sets the receive buffer and checks that the kernel has not reduced its size.
fn set_receive_buffer(socket: impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = bytes.min(i32::MAX as usize / 2);
    if sockopt::set_socket_recv_buffer_size_force(&socket, bytes).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    let granted = sockopt::socket_recv_buffer_size(&socket)?;
    if granted >= bytes { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
}

// ---- the near end -------------------------------------------------------------------------------

/// Removes a copy's connection from the list, however the copy ends.
struct Listed<'a> {
    tcp: &'a Tcp,
    connection: Arc<Connection>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.tcp.connections().remove(&self.connection.near.port());
        self.connection.is_over.notify_one();
    }
}

async fn send_copy(tcp: &Tcp, task: &Task, clock: Clock, copy: Copy) -> Result<(), String> {
    let failed = |error: LabError| match error {
        LabError::Flow { why, .. } => why,
        error => error.to_string(),
    };
    let socket = socket(task, task.near.any_port()).map_err(failed)?;
    let near = socket.local_addr().map_err(|error| error.to_string())?;
    let connection = Arc::new(Connection {
        copy: copy.number,
        near,
        bytes: copy.bytes,
        received: AtomicU64::new(0),
        sample: Mutex::default(),
        is_over: Notify::new(),
    });
    // The far end looks the connection up when accepting.
    tcp.connections().insert(near.port(), Arc::clone(&connection));
    let listed = Listed { tcp, connection };
    tcp.board.start(copy.number, clock.now());
    let sent = async {
        let mut stream = socket.connect(tcp.far).await?;
        write_zeros(&mut stream, copy.bytes).await?;
        stream.shutdown().await?;
        // One byte confirms the arrival of all data, and its segment acknowledges all data.
        stream.read_u8().await?;
        Ok::<_, io::Error>(stream)
    };
    let stream =
        sent.await.map_err(|error| format!("its connection to {} broke: {error}", tcp.far))?;
    tcp.query_connection(&listed.connection);
    tcp.board.retire(copy.number, clock.now());
    drop(stream);
    Ok(())
}

async fn write_zeros(stream: &mut TcpStream, bytes: Option<u64>) -> io::Result<()> {
    let mut left = bytes;
    loop {
        let chunk =
            left.map_or(CHUNK, |left| usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK)));
        if chunk == 0 {
            return Ok(());
        }
        let written = stream.write(&ZEROS[..chunk]).await?;
        left = left.map(|left| left - written as u64);
    }
}

// ---- the far end --------------------------------------------------------------------------------

/// Accepts and counts until the near end is over.
async fn accept(
    from_near: &mut mpsc::UnboundedReceiver<(Arc<Tcp>, Clock)>,
    listener: &TcpListener,
    tcp: &Tcp,
    clock: Clock,
) {
    // With MSG_TRUNC nothing is written to this buffer, but its size limits how much the kernel
    // discards.
    let nowhere = RefCell::new(vec![0; CHUNK]);
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            _ = from_near.recv() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let found = tcp.connections().get(&peer.port()).map(Arc::clone);
                    // Otherwise the copy was over before its connection was accepted.
                    if let Some(connection) = found {
                        if let Some(window) = tcp.window {
                            // The listener's buffer, which is the fallback, has been granted.
                            let _ = set_receive_buffer(&stream, window.bytes);
                        }
                        open.push(receive(stream, connection, tcp, clock, &nowhere));
                    }
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tcp.board.fail(format!("its far end cannot accept connections: {error}"));
                    return;
                }
            },
            Some(()) = open.next(), if !open.is_empty() => {}
        }
    }
}

/// A connection that was gone before being accepted, which is no failure of the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

async fn receive(
    stream: TcpStream,
    connection: Arc<Connection>,
    tcp: &Tcp,
    clock: Clock,
    nowhere: &RefCell<Vec<u8>>,
) {
    tokio::select! {
        () = connection.is_over.notified() => return,
        // A broken connection is reported by the near end.
        _ = count(&stream, &connection, tcp, clock, nowhere) => {}
    }
    // The near end must query the kernel first: closing here would be too early.
    connection.is_over.notified().await;
}

/// Discards and counts arrivals; confirms the arrival of all data.
async fn count(
    stream: &TcpStream,
    connection: &Connection,
    tcp: &Tcp,
    clock: Clock,
    nowhere: &RefCell<Vec<u8>>,
) -> io::Result<()> {
    let throw_away = || {
        let read = recv(stream, nowhere.borrow_mut().as_mut_slice(), RecvFlags::TRUNC)?;
        Ok(read.1)
    };
    let mut total = 0;
    loop {
        for _ in 0..READS_PER_TURN {
            if connection.bytes.is_some_and(|bytes| total >= bytes) {
                tcp.write_down(connection);
                tcp.board.complete(connection.copy, clock.now());
                stream.try_write(&[1])?;
                return Ok(());
            }
            stream.readable().await?;
            match stream.try_io(Interest::READABLE, throw_away) {
                Ok(0) => return Ok(()),
                Ok(bytes) => {
                    total += bytes as u64;
                    connection.received.store(total, Ordering::Release);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        tokio::task::yield_now().await;
    }
}
