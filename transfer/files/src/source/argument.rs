//! One source of a transfer.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::PathBuf;

use sabul_content::Printable;

use crate::stdin::StdinReader;

/// Entry name of standard input, until the destination sets the name.
const STDIN_NAME: &[u8] = b"stdin";

/// One source.
pub enum Source {
    /// A file or directory. A trailing `/` means the content of a directory, as in rsync.
    Path(PathBuf),
    /// A byte stream up to the end of the reader, sent as an entry.
    Stream {
        /// Name of the entry; one plain component.
        name: Vec<u8>,
        /// Source of the bytes. If a read fails with [`io::ErrorKind::WouldBlock`], the bytes so
        /// far are sent in a partial block and the reader is called again at once. The reader must
        /// therefore wait a little itself before it returns this error.
        reader: Box<dyn Read + Send>,
    },
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Stream { name, .. } => {
                f.debug_struct("Stream").field("name", &Printable(name)).finish_non_exhaustive()
            }
        }
    }
}

impl Source {
    /// Parses a command-line argument: a path, or `-` for standard input.
    pub fn from_argument(argument: &OsStr) -> Self {
        if argument == "-" {
            let reader: Box<dyn Read + Send> = match StdinReader::stdin() {
                Ok(stdin_reader) => Box::new(stdin_reader),
                Err(_) => Box::new(io::stdin()),
            };
            Self::Stream { name: STDIN_NAME.to_vec(), reader }
        } else {
            Self::Path(argument.into())
        }
    }
}
