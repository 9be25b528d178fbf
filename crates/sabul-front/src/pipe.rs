//! Standard output as the destination of a copy.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Standard output as the destination of a transfer; remembers that its reader went away.
#[derive(Debug, Default)]
pub struct Pipe {
    is_closed: Arc<AtomicBool>,
}

impl Pipe {
    /// One that tells here when its reader has gone away.
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
