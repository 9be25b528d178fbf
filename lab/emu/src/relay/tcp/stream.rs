//! Send window of one direction of a TCP connection: segments, delivered in order.
//!
//! No sockets here. The owner appends bytes read, puts each segment on the link, reports arrivals,
//! and writes out bytes that are ready.

use std::collections::VecDeque;

/// Content of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A step of the handshake, without data.
    Handshake,
    /// This many bytes.
    Data(u32),
    /// End of the stream.
    Fin,
    /// Reset of the connection.
    Reset,
}

#[derive(Debug)]
struct Segment {
    kind: Kind,
    has_arrived: bool,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Bytes read and not yet written: first the ready bytes, then the bytes in flight.
    bytes: VecDeque<u8>,
    ready: usize,
    /// Segments from the first that has not arrived.
    segments: VecDeque<Segment>,
    /// Number of the first of these segments.
    base: u64,
    handshakes: u32,
    has_ended: bool,
    is_reset: bool,
    is_abandoned: bool,
}

impl Stream {
    /// Appends a segment and returns its number. `bytes` is the content of a [`Kind::Data`].
    pub(super) fn append(&mut self, kind: Kind, bytes: &[u8]) -> u64 {
        self.bytes.extend(bytes);
        self.segments.push_back(Segment { kind, has_arrived: false });
        self.base + self.segments.len() as u64 - 1
    }

    /// Returns the payload length of a segment that has not arrived; `None` after its arrival.
    pub(super) fn missing(&self, number: u64) -> Option<u32> {
        let segment = self.segments.get(self.index(number)?)?;
        match segment {
            Segment { has_arrived: true, .. } => None,
            Segment { kind: Kind::Data(len), .. } => Some(*len),
            Segment { .. } => Some(0),
        }
    }

    /// Records the arrival of an undamaged segment; duplicates have no effect.
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

    /// Returns the next bytes to write, in order; empty if there are none.
    pub(super) fn readable(&self) -> &[u8] {
        let (first, _) = self.bytes.as_slices();
        &first[..self.ready.min(first.len())]
    }

    /// Removes `written` of the [`readable`](Self::readable) bytes.
    pub(super) fn consume(&mut self, written: usize) {
        self.bytes.drain(..written);
        self.ready -= written;
    }

    /// Discards the rest of the stream.
    pub(super) fn abandon(&mut self) {
        // Segments still on the link have numbers below this base.
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
