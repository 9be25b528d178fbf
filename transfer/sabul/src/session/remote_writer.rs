//! Files of the peer that are written from memory or as a stream.

use std::fmt;
use std::io::{self, Cursor};
use std::pin::Pin;
use std::task::{Context, Poll};

use sabul_files::{Source, SourceSet};
use tokio::io::AsyncWrite;

use super::Session;
use crate::config::{RemoteDestination, TransferOptions};
use crate::error::Error;
use crate::stream::{self, SendStream};
use crate::transfer::{Progress, Report};

/// A file of the peer, for writing from its start to its end. Written data is sent within 200 ms. `shutdown` ends the file,
/// and [`RemoteWriter::finish`] waits until the file has its name. Dropped before, or cancelled, the file gets no name,
/// and a file that had the name stays.
pub struct RemoteWriter(SendStream);

impl fmt::Debug for RemoteWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteWriter").field(&self.0).finish()
    }
}

impl Session {
    /// Creates or replaces a file of the peer with what will be written. Missing directories of the path are created.
    ///
    /// # Errors
    /// If the path has no name of a file, an option is invalid, or the session is over.
    pub async fn create(
        &self,
        path: Vec<u8>,
        options: &TransferOptions,
    ) -> Result<RemoteWriter, Error> {
        let (directory, name) = split(path);
        let (pipe, set) = stream::source(self.inner.cx.control.runtime().clone(), name)?;
        let transfer = self.put(set, RemoteDestination::directory(directory), options).await?;
        Ok(RemoteWriter(SendStream::new(pipe, transfer)))
    }

    /// Creates or replaces a file of the peer with these bytes. Returns when the file has its name and, with
    /// [`TransferOptions::sync`], is on the disk. Missing directories of the path are created.
    ///
    /// # Errors
    /// If the file was not written, an option is invalid, or the session is over.
    pub async fn put_bytes(
        &self,
        path: Vec<u8>,
        bytes: impl AsRef<[u8]> + Send + 'static,
        options: &TransferOptions,
    ) -> Result<Report, Error> {
        let (directory, name) = split(path);
        let source = Source::Stream { name, reader: Box::new(Cursor::new(bytes)) };
        let set = SourceSet::local(vec![source], false)?;
        let transfer = self.put(set, RemoteDestination::directory(directory), options).await?;
        transfer.finish().await?.into_result()
    }
}

/// Splits a path into its directory and the last name.
fn split(mut path: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let name = path.split_off(start);
    (path, name)
}

impl RemoteWriter {
    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// Cancels the transfer; the file gets no name.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Ends the file if it is still open. Returns when the file has its name and, with [`TransferOptions::sync`], is on
    /// the disk.
    ///
    /// # Errors
    /// If the file was not written.
    pub async fn finish(self) -> Result<Report, Error> {
        self.0.finish().await
    }
}

impl AsyncWrite for RemoteWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_path_is_split_in_front_of_its_last_name() {
        for (path, directory, name) in [
            ("a", "", "a"),
            ("/a", "/", "a"),
            ("d/e/a", "d/e/", "a"),
            ("d/", "d/", ""),
            ("", "", ""),
        ] {
            let expected = (directory.as_bytes().to_vec(), name.as_bytes().to_vec());
            assert_eq!(split(path.into()), expected, "{path}");
        }
    }
}
