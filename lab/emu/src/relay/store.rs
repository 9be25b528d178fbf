//! Memory for datagrams in flight: large chunks, filled in turn and reused.

use std::cell::{Ref, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Bytes of a chunk: large enough for several full receive batches.
const CHUNK: usize = 256 * 1024;
/// Most chunks, 512 MiB in all: more than 4 s of 1 Gb/s.
const CHUNKS_MAX: usize = 2_048;

/// The bytes of one datagram; clones share memory.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    chunk: Rc<RefCell<Vec<u8>>>,
    start: u32,
    len: u32,
}

impl Piece {
    pub(super) fn bytes(&self) -> Ref<'_, [u8]> {
        let (start, len) = (self.start as usize, self.len as usize);
        Ref::map(self.chunk.borrow(), |chunk| &chunk[start..start + len])
    }
}

/// Allocator of pieces; a chunk is reused after all its pieces have been dropped.
#[derive(Debug)]
pub(super) struct Store {
    /// In order of use; the last chunk is being filled.
    chunks: VecDeque<Rc<RefCell<Vec<u8>>>>,
    chunks_max: usize,
}

impl Store {
    pub(super) fn new() -> Self {
        Self::with_limit(CHUNKS_MAX)
    }

    fn with_limit(chunks_max: usize) -> Self {
        Self { chunks: VecDeque::new(), chunks_max }
    }

    /// Stores a copy of a datagram; `None` at the memory limit.
    pub(super) fn put(&mut self, datagram: &[u8]) -> Option<Piece> {
        let has_room =
            |chunk: &Rc<RefCell<Vec<u8>>>| chunk.borrow().len() + datagram.len() <= CHUNK;
        if !self.chunks.back().is_some_and(has_room) {
            self.next_chunk()?;
        }
        let chunk = Rc::clone(self.chunks.back()?);
        let start = u32::try_from(chunk.borrow().len()).ok()?;
        let len = u32::try_from(datagram.len()).ok()?;
        chunk.borrow_mut().extend_from_slice(datagram);
        Some(Piece { chunk, start, len })
    }

    fn next_chunk(&mut self) -> Option<()> {
        let oldest_is_free =
            self.chunks.front().is_some_and(|oldest| Rc::strong_count(oldest) == 1);
        let chunk = if oldest_is_free {
            let chunk = self.chunks.pop_front()?;
            chunk.borrow_mut().clear();
            chunk
        } else if self.chunks.len() < self.chunks_max {
            Rc::new(RefCell::new(Vec::with_capacity(CHUNK)))
        } else {
            return None;
        };
        self.chunks.push_back(chunk);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_keep_their_bytes_until_dropped_and_chunks_are_reused() {
        let mut store = Store::new();
        let mut held = VecDeque::new();
        // Twenty chunks in all, slightly more than one chunk at a time.
        for n in 0..20 * CHUNK / 1_000 {
            let fill = u8::try_from(n % 251).unwrap();
            held.push_back((fill, store.put(&[fill; 1_000]).unwrap()));
            if held.len() > 300 {
                let (fill, piece) = held.pop_front().unwrap();
                assert!(piece.bytes().iter().all(|&byte| byte == fill));
            }
        }
        assert!(store.chunks.len() <= 3, "{} chunks", store.chunks.len());
    }

    #[test]
    fn the_store_refuses_pieces_beyond_its_limit() {
        let mut store = Store::with_limit(3);
        let datagram = [0; 60_000];
        let held: Vec<_> = std::iter::from_fn(|| store.put(&datagram)).collect();
        assert_eq!(held.len(), 3 * (CHUNK / datagram.len()));
        drop(held);
        assert!(store.put(&datagram).is_some(), "room again once the pieces are gone");
    }
}
