//! Several byte streams over one pair of pipes: the standard input and output of a program at the other end of ssh, or
//! the connection of a server to its introducer.
//!
//! ```text
//! | number of the stream, 4 | kind, 1 | amount, 3 | for kind 1: bytes of this amount |
//! ```
//! Kinds: 0 opens a stream, 1 has bytes, 2 ends one direction, 3 permits so many further bytes.
//! A stream begins with [`WINDOW_MIN`] permitted bytes in each direction. The receiver of the bytes permits more as the
//! application reads, so a stream that is not read holds up no other stream. A window grows only while it arrives
//! within a second: longer windows would only fill the buffers of ssh, and control messages would wait behind them.
//! Invariants:  the reader of the pipe never waits for an application or for the writer of the pipe.
//! Not here:    encryption and authentication; TLS runs on each stream.

mod inbox;
mod stream;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::lock::lock;

use inbox::{Inbox, Received};
pub(crate) use stream::Stream;

/// Bytes of a header.
const HEADER: usize = 8;
/// Most bytes of a frame, without the header.
const PIECE: usize = 64 << 10;
/// Bytes permitted in one direction of a stream: at first, and at most.
const WINDOW_MIN: usize = 256 << 10;
const WINDOW_MAX: usize = 8 << 20;
/// A window that arrives within this time grows.
const GROWTH_TIME: Duration = Duration::from_secs(1);
/// Most streams at the same time.
const STREAMS_MAX: usize = 64;
/// Longest time that a relay waits for the end of its streams before the pipe is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);
/// Frames that may wait for the pipe.
const FRAMES: usize = 4;

const OPEN: u8 = 0;
const DATA: u8 = 1;
const END: u8 = 2;
const CREDIT: u8 = 3;

/// Settings of a relay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Most bytes permitted in one direction of a stream.
    pub(crate) window_max: usize,
    /// Reason for the end, if the pipes end.
    pub(crate) ended: &'static str,
}

impl Settings {
    /// Streams through ssh.
    const SSH: Self =
        Self { window_max: WINDOW_MAX, ended: "ssh or the program at its other end has ended" };
}

/// Streams over a pair of pipes. Clones share the streams.
#[derive(Clone, Debug)]
pub(crate) struct Relay(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    streams: Mutex<Streams>,
    frames: mpsc::Sender<Vec<u8>>,
    settings: Settings,
    /// Reason for the end of the relay.
    over: watch::Sender<Option<String>>,
    /// A stream has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Streams {
    next: u32,
    open: HashMap<u32, Entry>,
    /// Streams beyond the limit whose end waits for the pipe.
    refused: usize,
}

/// Stream as the reader of the pipe needs it.
#[derive(Debug)]
struct Entry {
    /// Received bytes on the way to the application.
    inbox: Inbox,
    /// Further bytes that the peer may send.
    expected: usize,
    /// Total of the bytes that this end may send.
    permitted: watch::Sender<u64>,
}

/// The connection of ssh as the way to a listener.
#[derive(Clone, Debug)]
pub(crate) struct ThroughSsh {
    pub(crate) relay: Relay,
    /// Reason for this way, for the user.
    pub(crate) reason: &'static str,
}

/// The tasks of a relay. They end when the value is dropped.
#[derive(Debug)]
pub(crate) struct Tasks {
    relay: Relay,
    tasks: JoinSet<()>,
    close: oneshot::Sender<()>,
}

impl Tasks {
    /// Waits shortly for the end of the streams, writes what waits for the pipe, and closes the pipe.
    pub(crate) async fn close(mut self) {
        let all_ended = async {
            loop {
                let mut ended = std::pin::pin!(self.relay.0.ended.notified());
                ended.as_mut().enable();
                if self.relay.lock().open.is_empty() {
                    break;
                }
                ended.await;
            }
        };
        // An application may keep a stream open.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, all_ended).await;
        self.relay.end("it was closed");
        // The writer may have ended.
        let _ = self.close.send(());
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Relay {
    /// Starts a relay over these pipes. Streams that the peer opens go to `opened`; without it the peer must not open
    /// streams.
    pub(crate) fn start(
        from: impl AsyncRead + Send + Unpin + 'static,
        to: impl AsyncWrite + Send + Unpin + 'static,
        opened: Option<mpsc::UnboundedSender<Stream>>,
    ) -> (Self, Tasks) {
        Self::with(Settings::SSH, from, to, opened)
    }

    /// As [`Self::start`], with these settings.
    pub(crate) fn with(
        settings: Settings,
        from: impl AsyncRead + Send + Unpin + 'static,
        to: impl AsyncWrite + Send + Unpin + 'static,
        opened: Option<mpsc::UnboundedSender<Stream>>,
    ) -> (Self, Tasks) {
        let (frames, queue) = mpsc::channel(FRAMES);
        let (over, _) = watch::channel(None);
        let ended = Notify::new();
        let relay =
            Self(Arc::new(Shared { streams: Mutex::default(), frames, settings, over, ended }));
        let (close, is_closed) = oneshot::channel();
        let mut tasks = JoinSet::new();
        let reading = relay.clone();
        tasks.spawn(async move {
            let mut is_over = reading.0.over.subscribe();
            tokio::select! {
                Err(error) = reading.read(from, opened) => match error.kind() {
                    io::ErrorKind::ConnectionAborted => reading.end(settings.ended),
                    _ => reading.end(&error.to_string()),
                },
                _ = is_over.wait_for(Option::is_some) => {}
            }
        });
        let writing = relay.clone();
        tasks.spawn(async move {
            if write(to, queue, is_closed).await.is_err() {
                writing.end(settings.ended);
            }
        });
        (relay.clone(), Tasks { relay, tasks, close })
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        lock(&self.0.streams)
    }

    /// Opens a stream to the peer.
    ///
    /// # Errors
    /// If the relay has ended or has too many streams.
    pub(crate) async fn open(&self) -> io::Result<Stream> {
        // Nothing waits between the entry and its frame: the peer would never end a stream whose frame was not sent.
        let place = self.0.frames.reserve().await.map_err(|_| closed())?;
        let number = {
            let mut streams = self.lock();
            streams.next = streams.next.wrapping_add(1);
            streams.next
        };
        let stream = self.add(number)?;
        place.send(header(number, OPEN, 0).to_vec());
        Ok(stream)
    }

    /// Waits for the end of the relay.
    pub(crate) async fn ended(&self) {
        let mut over = self.0.over.subscribe();
        // The sender lives as long as this value.
        let _ = over.wait_for(Option::is_some).await;
    }

    /// Returns the reason for the end.
    fn reason(&self) -> Option<String> {
        self.0.over.borrow().clone()
    }

    /// Ends all streams; the first reason counts.
    pub(crate) fn end(&self, why: &str) {
        self.0.over.send_if_modified(|reason| {
            let is_first = reason.is_none();
            reason.get_or_insert_with(|| why.to_owned());
            is_first
        });
        self.lock().open.clear();
    }

    /// Adds a stream and starts its tasks.
    fn add(&self, number: u32) -> io::Result<Stream> {
        let (permitted, permission) = watch::channel(WINDOW_MIN as u64);
        let (inbox, received) = inbox::inbox();
        {
            let mut streams = self.lock();
            if let Some(why) = self.reason() {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
            }
            if streams.open.contains_key(&number) {
                return Err(invalid());
            }
            if streams.open.len() >= STREAMS_MAX {
                let text = "too many streams through one connection";
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
            }
            let entry = Entry { inbox, expected: WINDOW_MIN, permitted };
            streams.open.insert(number, entry);
        }
        let (near, far) = tokio::io::duplex(PIECE);
        let (reader, writer) = tokio::io::split(far);
        let relay = self.clone();
        tokio::spawn(async move {
            let outgoing = relay.outgoing(number, reader, permission);
            let _ = tokio::join!(outgoing, relay.incoming(number, writer, received));
            relay.lock().open.remove(&number);
            relay.0.ended.notify_waiters();
        });
        Ok(Stream::new(near, self.0.over.subscribe()))
    }

    /// Sends a frame without bytes.
    async fn send(&self, number: u32, kind: u8, amount: usize) -> io::Result<()> {
        self.0.frames.send(header(number, kind, amount).to_vec()).await.map_err(|_| closed())
    }

    /// Takes bytes of the application to the pipe.
    async fn outgoing(
        &self,
        number: u32,
        mut from: impl AsyncRead + Unpin,
        mut permission: watch::Receiver<u64>,
    ) -> io::Result<()> {
        let mut sent = 0;
        loop {
            let until = *permission.wait_for(|until| *until > sent).await.map_err(|_| closed())?;
            let room = usize::try_from(until - sent).unwrap_or(PIECE).min(PIECE);
            let mut frame = vec![0; HEADER + room];
            // A read error of the application's end counts as the end of its bytes.
            let length = from.read(&mut frame[HEADER..]).await.unwrap_or(0);
            if length == 0 {
                // The peer must see the end of the relay, and not an end that the application chose.
                return match self.reason() {
                    None => self.send(number, END, 0).await,
                    Some(_) => Err(closed()),
                };
            }
            frame.truncate(HEADER + length);
            frame[..HEADER].copy_from_slice(&header(number, DATA, length));
            self.0.frames.send(frame).await.map_err(|_| closed())?;
            sent += length as u64;
        }
    }

    /// Takes received bytes to the application, and permits further bytes.
    async fn incoming(
        &self,
        number: u32,
        mut to: impl AsyncWrite + Unpin,
        received: Received,
    ) -> io::Result<()> {
        let (mut window, mut in_window, mut since) = (WINDOW_MIN, 0, Instant::now());
        let (mut used, mut is_read) = (0, true);
        let mut piece = vec![0; PIECE];
        loop {
            let taken = received.read(&mut piece).await;
            if taken == 0 {
                return to.shutdown().await;
            }
            // Bytes that the application does not read are dropped: the peer sees the end of the other direction.
            is_read = is_read && to.write_all(&piece[..taken]).await.is_ok();
            used += taken;
            in_window += taken;
            if in_window >= window {
                if is_read && since.elapsed() < GROWTH_TIME && window < self.0.settings.window_max {
                    used += window;
                    window *= 2;
                }
                (in_window, since) = (0, Instant::now());
            }
            if used >= window / 4 {
                if let Some(entry) = self.lock().open.get_mut(&number) {
                    entry.expected += used;
                }
                self.send(number, CREDIT, used).await?;
                used = 0;
            }
        }
    }

    /// Reads frames until the pipe ends.
    async fn read(
        &self,
        mut from: impl AsyncRead + Unpin,
        opened: Option<mpsc::UnboundedSender<Stream>>,
    ) -> io::Result<()> {
        loop {
            let mut header = [0; HEADER];
            from.read_exact(&mut header).await.map_err(|_| closed())?;
            let [a, b, c, d, kind, x, y, z] = header;
            let number = u32::from_be_bytes([a, b, c, d]);
            let amount = u32::from_be_bytes([0, x, y, z]) as usize;
            match kind {
                OPEN => {
                    let opened = opened.as_ref().ok_or_else(invalid)?;
                    match self.add(number) {
                        // Without an application the stream ends at once.
                        Ok(stream) => drop(opened.send(stream)),
                        // The peer has counted the end of a stream that this end still has.
                        Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
                            self.refuse(number)?;
                        }
                        Err(error) => return Err(error),
                    }
                }
                DATA if (1..=PIECE).contains(&amount) => {
                    let mut bytes = vec![0; amount];
                    from.read_exact(&mut bytes).await.map_err(|_| closed())?;
                    self.deliver(number, &bytes)?;
                }
                END => {
                    if let Some(entry) = self.lock().open.get(&number) {
                        entry.inbox.end();
                    }
                }
                CREDIT => {
                    if let Some(entry) = self.lock().open.get(&number) {
                        entry.permitted.send_modify(|until| *until += amount as u64);
                    }
                }
                _ => return Err(invalid()),
            }
        }
    }

    /// Ends a stream that the peer has opened beyond the limit.
    fn refuse(&self, number: u32) -> io::Result<()> {
        let mut streams = self.lock();
        if streams.refused >= STREAMS_MAX {
            return Err(invalid());
        }
        streams.refused += 1;
        let relay = self.clone();
        tokio::spawn(async move {
            // An error ends the relay elsewhere.
            let _ = relay.send(number, END, 0).await;
            relay.lock().refused -= 1;
        });
        Ok(())
    }

    fn deliver(&self, number: u32, bytes: &[u8]) -> io::Result<()> {
        let mut streams = self.lock();
        // Bytes of a stream that has ended here are dropped.
        let Some(entry) = streams.open.get_mut(&number) else { return Ok(()) };
        entry.expected = entry.expected.checked_sub(bytes.len()).ok_or_else(invalid)?;
        entry.inbox.push(bytes);
        Ok(())
    }
}

/// Writes the frames of all streams, until the relay is closed.
async fn write(
    mut to: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Vec<u8>>,
    is_closed: oneshot::Receiver<()>,
) -> io::Result<()> {
    let mut is_closed = std::pin::pin!(is_closed);
    loop {
        let frame = match queue.try_recv() {
            Ok(frame) => frame,
            Err(_) => {
                to.flush().await?;
                tokio::select! {
                    biased;
                    Some(frame) = queue.recv() => frame,
                    _ = &mut is_closed => return to.shutdown().await,
                }
            }
        };
        to.write_all(&frame).await?;
    }
}

fn header(number: u32, kind: u8, amount: usize) -> [u8; HEADER] {
    let [a, b, c, d] = number.to_be_bytes();
    let [_, x, y, z] = u32::try_from(amount).unwrap_or(u32::MAX).to_be_bytes();
    [a, b, c, d, kind, x, y, z]
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the relay has ended")
}

fn invalid() -> io::Error {
    let text = "the other end of the pipes sent something else than sabul's frames";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pair {
        near: Relay,
        tasks: (Tasks, Tasks),
        opened: mpsc::UnboundedReceiver<Stream>,
    }

    fn pair() -> Pair {
        let (a, b) = tokio::io::duplex(4096);
        let (a_in, a_out) = tokio::io::split(a);
        let (b_in, b_out) = tokio::io::split(b);
        let (sender, opened) = mpsc::unbounded_channel();
        let (near, near_tasks) = Relay::start(a_in, a_out, None);
        let (_, far_tasks) = Relay::start(b_in, b_out, Some(sender));
        Pair { near, tasks: (near_tasks, far_tasks), opened }
    }

    fn content(bytes: usize) -> Vec<u8> {
        (0..=250).cycle().take(bytes).collect()
    }

    #[tokio::test]
    async fn streams_carry_bytes_both_ways_and_end_each_direction() {
        let mut pair = pair();
        let mut near = pair.near.open().await.unwrap();
        let mut far = pair.opened.recv().await.unwrap();
        let bytes = content(3 << 20);
        let sending = bytes.clone();
        let sender = tokio::spawn(async move {
            near.write_all(&sending).await.unwrap();
            near.shutdown().await.unwrap();
            let mut answer = Vec::new();
            near.read_to_end(&mut answer).await.unwrap();
            answer
        });
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        assert!(received == bytes);
        far.write_all(b"answer").await.unwrap();
        far.shutdown().await.unwrap();
        assert_eq!(sender.await.unwrap(), b"answer");
    }

    #[tokio::test]
    async fn a_stream_that_ends_after_the_relay_is_no_chosen_end() {
        let Pair { near: relay, tasks: (near_tasks, _far_tasks), mut opened } = pair();
        let near = relay.open().await.unwrap();
        let mut far = opened.recv().await.unwrap();
        relay.end("the introducer has ended");
        drop(near);
        // The tasks of the stream have time to send an end.
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(near_tasks);
        let error = far.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "{error}");
    }

    #[tokio::test]
    async fn an_unread_stream_holds_up_no_other_stream() {
        let mut pair = pair();
        let mut full = pair.near.open().await.unwrap();
        let unread = pair.opened.recv().await.unwrap();
        let filler = tokio::spawn(async move { full.write_all(&content(WINDOW_MAX)).await });
        let mut other = pair.near.open().await.unwrap();
        let mut far = pair.opened.recv().await.unwrap();
        let sent = content(1 << 20);
        let sending = sent.clone();
        let sender = tokio::spawn(async move { other.write_all(&sending).await });
        let mut received = vec![0; sent.len()];
        far.read_exact(&mut received).await.unwrap();
        assert!(received == sent && !filler.is_finished());
        sender.await.unwrap().unwrap();
        drop(unread);
        filler.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_end_of_the_other_program_ends_all_streams_with_a_reason() {
        let mut pair = pair();
        let mut near = pair.near.open().await.unwrap();
        let far = pair.opened.recv().await.unwrap();
        let (near_tasks, far_tasks) = pair.tasks;
        drop((far, far_tasks));
        let error = near.read_u8().await.unwrap_err().to_string();
        assert!(error.contains("has ended"), "{error}");
        near_tasks.close().await;
        assert!(pair.near.open().await.is_err());
    }

    #[tokio::test]
    async fn an_attempt_to_open_that_is_given_up_leaves_no_stream() {
        let (pipe, _peer) = tokio::io::duplex(1);
        let (from, to) = tokio::io::split(pipe);
        let (relay, _tasks) = Relay::start(from, to, None);
        let mut open = Vec::new();
        let short = Duration::from_millis(20);
        while let Ok(stream) = tokio::time::timeout(short, relay.open()).await {
            open.push(stream.unwrap());
        }
        for _ in 0..5 {
            assert!(tokio::time::timeout(short, relay.open()).await.is_err());
        }
        assert_eq!(relay.lock().open.len(), open.len());
    }

    #[tokio::test]
    async fn a_stream_beyond_the_limit_ends_and_the_others_stay() {
        let mut frames = Vec::new();
        for number in 1..=100 {
            frames.extend(header(number, OPEN, 0));
        }
        let (sender, mut opened) = mpsc::unbounded_channel();
        let (pipe, mut peer) = tokio::io::duplex(64 << 10);
        let (from, to) = tokio::io::split(pipe);
        let (relay, _tasks) = Relay::start(from, to, Some(sender));
        peer.write_all(&frames).await.unwrap();
        let mut ended = Vec::new();
        for _ in 0..100 - STREAMS_MAX {
            let mut frame = [0; HEADER];
            peer.read_exact(&mut frame).await.unwrap();
            assert_eq!(frame[4..], [END, 0, 0, 0]);
            ended.push(u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]));
        }
        ended.sort_unstable();
        assert_eq!(ended, (65..=100).collect::<Vec<_>>());
        assert_eq!(relay.reason(), None);
        assert_eq!(std::iter::from_fn(|| opened.try_recv().ok()).count(), STREAMS_MAX);
    }

    #[tokio::test]
    async fn frames_that_break_the_rules_end_the_relay() {
        let open = header(1, OPEN, 0);
        let long = [&open[..], &header(1, DATA, PIECE + 1)].concat();
        let beyond = {
            let one = [&header(1, DATA, PIECE)[..], &vec![0; PIECE]].concat();
            [open.to_vec(), one.repeat(WINDOW_MIN / PIECE + 1)].concat()
        };
        for bytes in [vec![1, 2, 3], long, beyond, header(1, 9, 0).to_vec(), open.repeat(2)] {
            let (sender, _opened) = mpsc::unbounded_channel();
            let (relay, _tasks) = Relay::start(&*bytes.leak(), tokio::io::sink(), Some(sender));
            relay.ended().await;
        }
    }
}
