//! One direction of a TCP connection under way: a window of segments, delivered in order.
//!
//! No sockets here. The owner appends what it has read, puts each segment on the link, says which
//! of them arrived, and writes out what is ready.

use std::collections::VecDeque;

/// What a segment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A step of the handshake, without data.
    Handshake,
    /// This many bytes.
    Data(u32),
    /// The end of the stream.
    Fin,
    /// The end of the connection, in error.
    Reset,
}

#[derive(Debug)]
struct Segment {
    kind: Kind,
    has_arrived: bool,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Bytes read and not yet written: first those that are ready, then those under way.
    bytes: VecDeque<u8>,
    ready: usize,
    /// Segments from the first that has not arrived.
    segments: VecDeque<Segment>,
    /// The number of the first of them.
    base: u64,
    handshakes: u32,
    has_ended: bool,
    is_reset: bool,
    is_abandoned: bool,
}

impl Stream {
    /// Adds a segment; returns its number. The bytes are those of a [`Kind::Data`].
    pub(super) fn append(&mut self, kind: Kind, bytes: &[u8]) -> u64 {
        self.bytes.extend(bytes);
        self.segments.push_back(Segment { kind, has_arrived: false });
        self.base + self.segments.len() as u64 - 1
    }

    /// The bytes of payload of a segment that still has to arrive.
    pub(super) fn missing(&self, number: u64) -> Option<u32> {
        let segment = self.segments.get(self.index(number)?)?;
        match segment {
            Segment { has_arrived: true, .. } => None,
            Segment { kind: Kind::Data(len), .. } => Some(*len),
            Segment { .. } => Some(0),
        }
    }

    /// A segment arrived whole; a second copy changes nothing.
    pub(super) fn arrive(&mut self, number: u64) {
        let Some(segment) = self.index(number).and_then(|at| self.segments.get_mut(at)) else {
            return;
        };
        segment.has_arrived = true;
        while let Some(Segment { kind, .. }) = self.pop_arrived() {
            match kind {
                Kind::Handshake => self.handshakes += 1,
                Kind::Data(len) => self.ready += len as usize,
                Kind::Fin => self.has_ended = true,
                Kind::Reset => self.is_reset = true,
            }
        }
    }

    fn pop_arrived(&mut self) -> Option<Segment> {
        if !self.segments.front()?.has_arrived {
            return None;
        }
        self.base += 1;
        self.segments.pop_front()
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.base)?).ok()
    }

    /// The next bytes to write, in order; empty when there are none.
    pub(super) fn readable(&self) -> &[u8] {
        let (first, _) = self.bytes.as_slices();
        &first[..self.ready.min(first.len())]
    }

    /// That many of the [`readable`](Self::readable) bytes are written.
    pub(super) fn consume(&mut self, written: usize) {
        self.bytes.drain(..written);
        self.ready -= written;
    }

    /// Nobody wants the rest.
    pub(super) fn abandon(&mut self) {
        // Whatever is still on the link has a number below this base.
        let base = self.base + self.segments.len() as u64;
        *self = Self { base, is_abandoned: true, ..Self::default() };
    }

    /// Bytes held, ready or not.
    pub(super) fn held(&self) -> usize {
        self.bytes.len()
    }

    /// Segments that have not arrived in order.
    pub(super) fn in_flight(&self) -> usize {
        self.segments.len()
    }

    /// Handshake segments that have arrived.
    pub(super) fn handshakes(&self) -> u32 {
        self.handshakes
    }

    /// Whether everything up to the end of the stream has been written.
    pub(super) fn is_at_end(&self) -> bool {
        self.has_ended && self.ready == 0
    }

    pub(super) fn is_reset(&self) -> bool {
        self.is_reset
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Stream {
        let mut stream = Stream::default();
        assert_eq!(stream.append(Kind::Data(2), b"ab"), 0);
        assert_eq!(stream.append(Kind::Data(1), b"c"), 1);
        assert_eq!(stream.append(Kind::Fin, b""), 2);
        stream
    }

    #[test]
    fn bytes_are_ready_only_in_order() {
        let mut stream = three();
        stream.arrive(1);
        stream.arrive(2);
        assert_eq!(stream.readable(), b"");
        assert_eq!((stream.missing(0), stream.missing(1)), (Some(2), None));
        stream.arrive(0);
        assert_eq!(stream.readable(), b"abc");
        assert!(!stream.is_at_end(), "not before it is written");
        stream.consume(3);
        assert!(stream.is_at_end());
        assert_eq!((stream.held(), stream.in_flight()), (0, 0));
    }

    #[test]
    fn a_second_copy_changes_nothing() {
        let mut stream = three();
        stream.arrive(0);
        stream.arrive(0);
        assert_eq!(stream.readable(), b"ab");
        assert_eq!(stream.missing(0), None);
        stream.arrive(99);
        assert_eq!(stream.in_flight(), 2);
    }

    #[test]
    fn an_abandoned_stream_ignores_what_was_under_way() {
        let mut stream = three();
        stream.abandon();
        stream.arrive(0);
        assert_eq!((stream.readable(), stream.missing(0), stream.held()), (&b""[..], None, 0));
        assert!(stream.is_abandoned() && !stream.is_at_end());
    }

    #[test]
    fn control_segments_take_effect_in_order() {
        let mut stream = Stream::default();
        let (syn, reset) = (stream.append(Kind::Handshake, b""), stream.append(Kind::Reset, b""));
        stream.arrive(reset);
        assert!(!stream.is_reset() && stream.handshakes() == 0);
        stream.arrive(syn);
        assert!(stream.is_reset() && stream.handshakes() == 1);
    }
}
