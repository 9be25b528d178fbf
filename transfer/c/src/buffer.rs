//! Memory of the caller that receives the content of a file.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Memory of the caller. After [`Buffer::close`] nothing is written any more.
#[derive(Clone, Debug)]
pub(crate) struct Buffer(Arc<Mutex<Option<Room>>>);

#[derive(Debug)]
struct Room {
    start: *mut u8,
    length: usize,
    filled: usize,
}

// SAFETY: only one thread at a time uses the pointer, behind the mutex, and the memory outlives the room.
unsafe impl Send for Room {}

impl Buffer {
    /// Returns a writer into this memory.
    ///
    /// # Safety
    /// The memory is valid for writes of `length` bytes until [`Self::close`].
    pub(crate) unsafe fn new(start: *mut u8, length: usize) -> Self {
        Self(Arc::new(Mutex::new(Some(Room { start, length, filled: 0 }))))
    }

    /// Returns the number of written bytes.
    pub(crate) fn close(&self) -> usize {
        let room = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        room.map_or(0, |room| room.filled)
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut room = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(room) = &mut *room else {
            return Err(io::Error::other("the call has returned"));
        };
        if bytes.len() > room.length - room.filled {
            return Err(io::Error::other("the file has more bytes than the buffer"));
        }
        // SAFETY: the range from `filled` has room for these bytes, and the memory of a caller is not inside of ours.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.start.add(room.filled), bytes.len());
        }
        room.filled += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_takes_what_fits_and_nothing_after_its_end() {
        let mut memory = [0_u8; 4];
        // SAFETY: the memory outlives the buffer.
        let mut buffer = unsafe { Buffer::new(memory.as_mut_ptr(), memory.len()) };
        buffer.write_all(b"ab").unwrap();
        assert!(buffer.write_all(b"cde").is_err());
        buffer.write_all(b"cd").unwrap();
        assert_eq!(buffer.close(), 4);
        assert!(buffer.write_all(b"x").is_err());
        assert_eq!(&memory, b"abcd");
    }
}
