//! Demonstration: two processes of the program transfer one real file over a named path.
//!
//! [`beside_tcp`] sends the file between hosts of the lab, and the same number of bytes over the
//! kernel's TCP, with and without extra loss. [`over_relay`] needs no hosts: sender and receiver
//! are child processes, and a relay emulates the path. Both functions remove everything that they
//! create.

mod child;
mod hosts;
mod losses;
mod relayed;
mod shown;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sabul_net::{LinkStats, PathPreset};
use sabul_units::show_bytes;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::error::Error;
use crate::observer::Observer;
pub use hosts::{Draw, beside_tcp};
pub use relayed::over_relay;
pub use shown::Shown;

/// Name of the transferred file.
const FILE_NAME: &str = "demo.bin";
/// Bytes written or hashed between two checks for an interrupt.
const STRIDE: usize = 1 << 20;

/// Options of a demonstration.
#[derive(Clone, Debug)]
pub struct Request {
    /// The `sabul` program, run as server and as client.
    pub program: PathBuf,
    /// The path to emulate.
    pub path: PathPreset,
    /// Size of the file.
    pub bytes: u64,
    /// Congestion controller of the copy.
    pub cc: String,
    /// Parameters of the controller.
    pub params: Vec<(String, String)>,
    /// Seed for the path's loss, duplication and reordering.
    pub seed: u64,
    /// Whether the copy writes nothing to standard error.
    pub is_quiet: bool,
    /// Reads the server's address from a ticket file.
    pub read_address: fn(&Path) -> Result<SocketAddr, String>,
}

/// The file that was copied.
#[derive(Clone, Debug)]
struct Copied {
    bytes: u64,
    /// Output of `sabul cp --json`.
    document: Value,
    /// Hashes of the sent and of the received file.
    hashes: [blake3::Hash; 2],
}

impl Copied {
    fn is_verified(&self) -> bool {
        self.hashes[0] == self.hashes[1]
    }

    fn number(&self, key: &str) -> f64 {
        self.document[key].as_f64().unwrap_or(0.0)
    }

    /// Returns the document of the copy and of the path to the receiver. `own` holds the fields of
    /// only one kind of path.
    fn document(&self, path: &PathPreset, cc: &str, link: &LinkStats, own: Value) -> Value {
        let mut document = json!({
            "schema": crate::SCHEMA,
            "path": path.name,
            "cc": cc,
            "bytes": self.bytes,
            "verified": self.is_verified(),
            "blake3": self.hashes[1].to_hex().as_str(),
            "rtt_ms": self.document["rtt_ms"],
            "rtt_ms_min": self.document["rtt_ms_min"],
            "packets_sent": self.document["packets_sent"],
            "packets_retransmitted": self.document["packets_retransmitted"],
            "path_packets": link.arrived,
            "path_packets_lost": lost(link),
            "path_packets_lost_queue_full": link.dropped_full,
            "path_packets_too_large": link.dropped_too_large,
            "path_loss_rate": share(lost(link), link.arrived),
            "copy": self.document,
        });
        if let (Some(all), Value::Object(own)) = (document.as_object_mut(), own) {
            all.extend(own);
        }
        document
    }
}

/// Returns the packets that the link lost, without lost path MTU probes.
const fn lost(link: &LinkStats) -> u64 {
    link.dropped_full + link.dropped_loss + link.dropped_outage
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Files of a demonstration.
#[derive(Debug)]
struct Folder {
    folder: TempDir,
    /// The file to send.
    file: PathBuf,
    /// The directory that the server serves.
    root: PathBuf,
    ticket: PathBuf,
    /// Output of `sabul cp --json`.
    answer: PathBuf,
}

impl Folder {
    /// Creates the folder and the file in it.
    fn make(request: &Request, observer: &Observer) -> Result<Self, Error> {
        let folder = tempfile::Builder::new()
            .prefix("sabul-demo-")
            .tempdir()
            .map_err(|error| Error::failed(format!("cannot make a temporary folder: {error}")))?;
        let [file, root, ticket, answer] =
            [FILE_NAME, "received", "ticket", "cp.json"].map(|name| folder.path().join(name));
        std::fs::create_dir(&root)
            .map_err(|error| Error::failed(format!("cannot make {}: {error}", root.display())))?;
        let size = request.bytes;
        observer.note(format_args!("making {} of random bytes", show_bytes(size)));
        make_file(&file, size, observer)?;
        Ok(Self { folder, file, root, ticket, answer })
    }

    /// Removes the files of the last run, so the next run starts clean.
    fn reset(&self) {
        for path in [&self.ticket, &self.answer, &self.root.join(FILE_NAME)] {
            // A missing file is not an error.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Returns the document of the copy, and the hashes of both files.
    fn copied(&self, document: Value, observer: &Observer) -> Result<Copied, Error> {
        observer.note("comparing both files");
        let bytes = std::fs::metadata(&self.file).map_err(of_file)?.len();
        let hashes = [hash(&self.file, observer)?, hash(&self.root.join(FILE_NAME), observer)?];
        Ok(Copied { bytes, document, hashes })
    }

    fn remove(self) -> Result<(), Error> {
        self.folder.close().map_err(|error| {
            Error::failed(format!("cannot remove the demo's temporary folder: {error}"))
        })
    }
}

/// Runs `work` in a temporary folder, which is removed afterwards, even on errors.
fn in_folder<T>(
    request: &Request,
    observer: &Observer,
    work: impl FnOnce(&Folder) -> Result<T, Error>,
) -> Result<T, Error> {
    let PathPreset { name, summary, .. } = &request.path;
    observer.note(format_args!("{name}: {summary}"));
    let folder = Folder::make(request, observer)?;
    let result = work(&folder);
    let removed = folder.remove();
    let value = result?;
    removed.map(|()| value)
}

/// Returns the document printed by the sending process, or its failure.
fn read_answer(path: &Path, code: Option<u8>) -> Result<Value, Error> {
    let text = std::fs::read(path).unwrap_or_default();
    let document = serde_json::from_slice::<Value>(&text).ok();
    match (code, document) {
        (Some(0), Some(document)) => Ok(document),
        (code, document) => {
            let message = document
                .as_ref()
                .and_then(|document| document["errors"][0]["message"].as_str())
                .unwrap_or("it ended without a word");
            Err(Error::of_program(code, format!("the demo's sender failed: {message}")))
        }
    }
}

/// Writes `size` random bytes. Random data cannot be compressed on the path.
fn make_file(path: &Path, size: u64, observer: &Observer) -> Result<(), Error> {
    let random = File::open("/dev/urandom").map_err(of_file)?.take(size);
    let mut file = File::create(path).map_err(of_file)?;
    each_stride(random, observer, |bytes| file.write_all(bytes))
}

fn hash(path: &Path, observer: &Observer) -> Result<blake3::Hash, Error> {
    let mut hasher = blake3::Hasher::new();
    each_stride(File::open(path).map_err(of_file)?, observer, |bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    Ok(hasher.finalize())
}

/// Reads to the end, unless the observer interrupts.
fn each_stride(
    mut source: impl io::Read,
    observer: &Observer,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), Error> {
    let mut buffer = vec![0; STRIDE];
    loop {
        go_on(observer)?;
        match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => take(&buffer[..length]).map_err(of_file)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(of_file(error)),
        }
    }
}

/// Fails if the observer interrupts.
fn go_on(observer: &Observer) -> Result<(), Error> {
    if observer.is_interrupted() {
        return Err(Error::interrupted(
            "interrupted: the demo's processes were ended and its files removed; run it again to \
             repeat it",
        ));
    }
    Ok(())
}

fn of_file(error: io::Error) -> Error {
    Error::failed(format!("a file of the demo: {error}"))
}
