//! Upload of bytes that the application writes piece by piece: a bounded queue between the application and the thread
//! that reads the source of a transfer.

use std::io::{self, Read};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::sync::mpsc;

use crate::error::Fault;
use crate::runtime::{OfProcess, run};

/// Pieces that wait for the reader. Ours: the application prepares the next pieces while one is sent.
const WAITING_MAX: usize = 4;

/// A piece of the file.
enum Piece {
    Bytes(Vec<u8>),
    /// The file is complete.
    End,
}

/// Application end of an upload.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Upload {
    sender: OfProcess<Sender>,
}

/// Sends pieces of the file to its reader.
#[derive(Clone, Debug)]
pub(crate) struct Sender(mpsc::Sender<Piece>);

/// Reader end of an upload.
pub(crate) struct Reader {
    pieces: mpsc::Receiver<Piece>,
    piece: io::Cursor<Vec<u8>>,
    is_complete: bool,
}

/// Makes both ends of an upload.
pub(crate) fn pipe() -> (Sender, Reader) {
    let (sender, pieces) = mpsc::channel(WAITING_MAX);
    (Sender(sender), Reader { pieces, piece: io::Cursor::default(), is_complete: false })
}

impl Upload {
    pub(crate) fn new(sender: Sender) -> Self {
        Self { sender: OfProcess::new(sender) }
    }

    fn send<'py>(&self, py: Python<'py>, piece: Piece, waits: bool) -> PyResult<Bound<'py, PyAny>> {
        let Sender(sender) = self.sender.get()?.clone();
        run(py, waits, async move {
            // The transfer has the cause of its end.
            sender
                .send(piece)
                .await
                .map_err(|_| Fault::failed("the upload ended before its last byte"))
        })
    }
}

#[pymethods]
impl Upload {
    /// Appends bytes to the file; waits while earlier bytes are not sent.
    fn write<'py>(
        &self,
        py: Python<'py>,
        bytes: &Bound<'py, PyBytes>,
        waits: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.send(py, Piece::Bytes(bytes.as_bytes().to_vec()), waits)
    }

    /// Marks the file as complete.
    fn end<'py>(&self, py: Python<'py>, waits: bool) -> PyResult<Bound<'py, PyAny>> {
        self.send(py, Piece::End, waits)
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 || buffer.is_empty() || self.is_complete {
                return Ok(read);
            }
            match self.pieces.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.piece = io::Cursor::new(bytes),
                Some(Piece::End) => self.is_complete = true,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        "the application dropped the upload before its end",
                    ));
                }
            }
        }
    }
}
