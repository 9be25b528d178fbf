//! Message framing of the control connection: reads messages and never a byte beyond them.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sabul_wire::DecodeError;
use sabul_wire::control::{MAX_MESSAGE, Message, PACKED, body_length, body_limit};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::packing::unpacked;

/// Bytes of length and kind of a message, needed before the rest is read.
const HEADER_BYTES: usize = 5;
/// Initial buffer size in bytes; the buffer grows with the received bytes, not with the announced
/// length.
const ROOM_MIN: usize = 1 << 10;
/// Buffer size kept between messages, in bytes.
const ROOM_KEPT: usize = 16 << 10;

/// Cause of a failed read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The connection failed.
    Io(io::Error),
    /// The bytes are not a message, or the message exceeds a limit.
    Malformed(String),
}

impl ReadError {
    /// Whether the connection broke, for another reason than an end of the peer's program.
    pub(crate) fn is_break(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Malformed(text) => f.write_str(text),
        }
    }
}

/// Reader of messages. Cancel-safe: an interrupted read keeps the bytes received so far.
#[derive(Debug)]
pub(crate) struct Incoming<R> {
    from: R,
    bytes: Vec<u8>,
    /// Number of received bytes in `bytes`.
    filled: usize,
    /// Received bytes in total.
    seen: Arc<AtomicU64>,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub(crate) fn new(from: R) -> Self {
        Self::counting(from, Arc::default())
    }

    /// As [`Self::new`]; adds the received bytes to `seen`.
    pub(crate) fn counting(from: R, seen: Arc<AtomicU64>) -> Self {
        Self { from, bytes: Vec::new(), filled: 0, seen }
    }

    /// Received bytes so far: an increase shows that the peer is alive, even within a message.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Reads the next message, whose body may have at most `limit` bytes; `None` if the stream ends
    /// between two messages.
    pub(crate) async fn next(&mut self, limit: usize) -> Result<Option<Message>, ReadError> {
        let bad = |error: DecodeError| ReadError::Malformed(error.to_string());
        loop {
            let front = &self.bytes[..self.filled.min(HEADER_BYTES)];
            let length = match front.split_first_chunk::<4>() {
                None => HEADER_BYTES,
                Some((length, kind)) => {
                    let length = body_length(*length).map_err(bad)?;
                    // Checked even before the kind is known: a message with too large a length is
                    // rejected at once.
                    let limit = kind.first().map_or(limit, |kind| limit.min(body_limit(*kind)));
                    if length > limit {
                        let text = format!("a message of {length} bytes is longer than it may be");
                        return Err(ReadError::Malformed(text));
                    }
                    4 + length
                }
            };
            if self.filled >= HEADER_BYTES && self.filled == length {
                let body = &self.bytes[4..length];
                let message = match body[0] {
                    PACKED if limit == MAX_MESSAGE => Message::decode_body(&unpacked(body)?),
                    _ => Message::decode_body(body),
                }
                .map_err(bad)?;
                self.filled = 0;
                self.bytes.truncate(ROOM_KEPT);
                self.bytes.shrink_to(ROOM_KEPT);
                return Ok(Some(message));
            }
            let room = length.min(ROOM_MIN.max(2 * self.filled));
            if self.bytes.len() < room {
                self.bytes.resize(room, 0);
            }
            let read = self.from.read(&mut self.bytes[self.filled..room]).await;
            let read = read.map_err(ReadError::Io)?;
            if read == 0 {
                return if self.filled == 0 { Ok(None) } else { Err(cut_short()) };
            }
            self.filled += read;
            self.seen.fetch_add(read as u64, Ordering::Relaxed);
        }
    }
}

fn cut_short() -> ReadError {
    ReadError::Io(io::Error::from(io::ErrorKind::UnexpectedEof))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sabul_wire::control::{Failure, FailureCode, MAX_GREETING, Seen};
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn seen(entries: usize) -> Message {
        let path = b"a file with a name of some length".to_vec();
        let seen = Seen {
            path,
            outcome: Err(Failure::new(FailureCode::NotFound, "gone")),
            rules: Vec::new(),
        };
        Message::Seen {
            transfer: 1,
            entries: vec![seen; entries],
            same: Vec::new(),
            is_last: false,
        }
    }

    fn encoded(messages: &[Message]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            message.encode(&mut bytes).unwrap();
        }
        bytes
    }

    #[tokio::test]
    async fn messages_arrive_whole_and_in_order_with_any_fragmentation() {
        let messages =
            [Message::Close, seen(900), Message::Accept { transfer: 3, block_bytes: 4096 }];
        let bytes = encoded(&messages);
        for step in [1, 7, 4096] {
            let (mut far, near) = tokio::io::duplex(step);
            let sent = bytes.clone();
            tokio::spawn(async move { far.write_all(&sent).await });
            let mut incoming = Incoming::new(near);
            for message in &messages {
                assert_eq!(incoming.next(MAX_MESSAGE).await.unwrap().as_ref(), Some(message));
            }
            assert_eq!(incoming.next(MAX_MESSAGE).await.unwrap(), None);
            assert_eq!(incoming.seen(), bytes.len() as u64);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_read_resumes_where_it_stopped() {
        let bytes = encoded(&[seen(100)]);
        let (mut far, near) = tokio::io::duplex(1 << 20);
        let mut incoming = Incoming::new(near);
        let mut attempts = 0;
        let mut rest = &bytes[..];
        let message = loop {
            let (now, later) = rest.split_at(rest.len().min(500));
            far.write_all(now).await.unwrap();
            rest = later;
            let next = tokio::time::timeout(Duration::from_millis(1), incoming.next(MAX_MESSAGE));
            if let Ok(message) = next.await {
                break message.unwrap();
            }
            attempts += 1;
        };
        assert!(attempts > 3 && message == Some(seen(100)), "{attempts}");
    }

    #[tokio::test]
    async fn an_announced_length_alone_allocates_no_memory() {
        let (mut far, near) = tokio::io::duplex(1 << 20);
        let mut incoming = Incoming::new(near);
        // An answer of 1 MiB, of which only the kind arrives.
        far.write_all(&[0, 0x10, 0, 0, 6]).await.unwrap();
        let next = tokio::time::timeout(Duration::from_millis(50), incoming.next(MAX_MESSAGE));
        assert!(next.await.is_err());
        assert!(incoming.bytes.capacity() <= 2 * ROOM_MIN);
    }

    #[tokio::test]
    async fn a_message_longer_than_its_kind_or_the_reader_allows_is_refused_unread() {
        for (front, limit) in [
            ([0, 0x0F, 0xFF, 0xFF, 6], MAX_GREETING),
            ([0, 0, 0xFF, 0xFF, 7], MAX_MESSAGE),
            ([0, 0, 4, 1, 0], MAX_MESSAGE),
            ([0, 0, 0, 0, 0], MAX_MESSAGE),
        ] {
            let error = Incoming::new(&front[..]).next(limit).await.unwrap_err();
            assert!(matches!(error, ReadError::Malformed(_)), "{front:?} {error:?}");
        }
        let bytes = encoded(&[seen(3)]);
        let error = Incoming::new(&bytes[..bytes.len() - 1]).next(MAX_MESSAGE).await.unwrap_err();
        assert!(matches!(error, ReadError::Io(_)), "{error:?}");
    }
}
