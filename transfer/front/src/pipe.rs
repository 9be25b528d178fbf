//! Standard output as the destination of a copy.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writer to standard output that records a closed pipe.
#[derive(Debug, Default)]
pub struct Pipe {
    is_closed: Arc<AtomicBool>,
}

impl Pipe {
    /// Creates a writer that sets `is_closed` when the reader closes the pipe.
    pub fn closing(is_closed: &Arc<AtomicBool>) -> Self {
        Self { is_closed: Arc::clone(is_closed) }
    }

    fn watch<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if matches!(&result, Err(error) if error.kind() == ErrorKind::BrokenPipe) {
            self.is_closed.store(true, Ordering::Release);
        }
        result
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.watch(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.watch(io::stdout().flush())
    }
}
