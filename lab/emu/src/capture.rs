//! Packet capture at the entry of each link, as pcapng files.
//!
//! Model: one file per link, with IP packets without framing, [`KEPT`] bytes of each. The direction
//!     is the near host's: outbound is forward, inbound is back. A comment gives the reason of a
//!     drop. The router passes fixed-size records to a thread through a bounded channel and never
//!     waits for the disk. Records that do not fit are left out and counted. Both directions share
//!     one interface, because libpcap (and tcpdump) reject a second interface of raw IP. libpcap
//!     compares that link type's number in files, 101, with its own number for the first, 12.
//!
//! Source: the pcapng draft (draft-ietf-opsawg-pcapng) by way of the `pcap-file` crate.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, Sender};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, PcapError};
use sabul_net::Way;

use crate::error::LabError;
use sabul_tun::Bundle;

#[cfg(test)]
mod tests;

/// Bytes captured per packet: all headers, and some payload for identification.
const KEPT: usize = 128;
/// Records queued for the writer, about 11 MiB: more than half a second of 1 Gbit/s in full
/// packets.
const WAITING_MAX: usize = 65_536;
/// Timestamp resolution as a negative power of ten: nanoseconds, as `pcap-file` writes.
const RESOLUTION: u8 = 9;
/// Direction bits of a packet's flags.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writes one file per link, on its own thread. Dropping the value finishes the files.
#[derive(Debug)]
pub(crate) struct Capture {
    /// `None` only while the value is being dropped.
    sender: Option<Sender<Record>>,
    writer: Option<JoinHandle<Result<(), LabError>>>,
    packet: Vec<u8>,
    left_out: u64,
}

/// Outcome of a packet's entry into a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The link accepted the packet.
    Carried,
    /// The link dropped the packet for this reason. The capture has the reason as a comment: "queue
    /// full" becomes "dropped: queue full".
    Dropped(&'static str),
}

/// One packet queued for the writer.
struct Record {
    link: usize,
    way: Way,
    at: Duration,
    ip_bytes: u32,
    fate: Fate,
    kept: usize,
    bytes: [u8; KEPT],
}

/// One file.
struct Recording<W: Write> {
    path: PathBuf,
    writer: PcapNgWriter<W>,
}

impl Capture {
    /// Starts a capture into the new directory `dir`: `LINK.pcapng` for each name. Characters other
    /// than letters, digits, dot, minus and underscore become underscores. Time zero of
    /// [`Capture::record`] is `start`.
    ///
    /// # Errors
    /// If the directory or a file cannot be created and written, no thread can be started, or
    /// `start` is before 1970.
    pub(crate) fn start(dir: &Path, links: &[String], start: SystemTime) -> Result<Self, LabError> {
        let zero = start.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| {
            let why = io::Error::other("the system's clock is before 1970; set it");
            LabError::system("date a recording")(why)
        })?;
        fs::create_dir_all(dir)
            .map_err(LabError::system(format!("make the directory {}", dir.display())))?;
        let mut files = Vec::new();
        for (link, name) in links.iter().zip(file_names(links)) {
            let path = dir.join(name);
            let file = File::create(&path)
                .map_err(LabError::system(format!("make the recording {}", path.display())))?;
            files.push(Recording::new(path, BufWriter::new(file), link)?);
        }
        let (sender, receiver) = crossbeam_channel::bounded(WAITING_MAX);
        let writer = std::thread::Builder::new()
            .name("sabul-capture".to_owned())
            .spawn(move || write_all(&receiver, &mut files, zero))
            .map_err(LabError::system("start the thread that writes recordings"))?;
        Ok(Self { sender: Some(sender), writer: Some(writer), packet: Vec::new(), left_out: 0 })
    }

    /// Records a segment that enters a link. Never blocks: if the writer is too slow or has stopped
    /// at an error, the packet is left out and counted.
    pub(crate) fn record(
        &mut self,
        link: usize,
        way: Way,
        at: Duration,
        bundle: &Bundle,
        segment: u16,
        fate: Fate,
    ) {
        let Some(sender) = self.sender.as_ref().filter(|sender| !sender.is_full()) else {
            self.left_out += 1;
            return;
        };
        bundle.write_plain(segment, KEPT, &mut self.packet);
        let mut bytes = [0; KEPT];
        let kept = self.packet.len();
        bytes[..kept].copy_from_slice(&self.packet);
        let ip_bytes = bundle.carried(segment).ip_bytes;
        if sender.try_send(Record { link, way, at, ip_bytes, fate, kept, bytes }).is_err() {
            self.left_out += 1;
        }
    }

    /// Finishes the files. Returns the number of packets left out and the first write error.
    pub(crate) fn finish(mut self) -> (u64, Option<LabError>) {
        (self.left_out, self.join())
    }

    /// Waits until the writer has written all records.
    fn join(&mut self) -> Option<LabError> {
        self.sender = None;
        let panicked =
            |_| Err(LabError::Program("the thread that writes recordings panicked".to_owned()));
        self.writer.take()?.join().unwrap_or_else(panicked).err()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Callers that handle errors call `finish`.
        let _ = self.join();
    }
}

impl<W: Write> Recording<W> {
    /// Writes the file's header, so that an unusable disk is detected at once.
    fn new(path: PathBuf, writer: W, link: &str) -> Result<Self, LabError> {
        let begin = || {
            let mut writer = PcapNgWriter::new(writer)?;
            writer.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::RAW,
                snaplen: u32::try_from(KEPT).expect("a small constant"),
                options: vec![
                    InterfaceDescriptionOption::IfName(link.into()),
                    InterfaceDescriptionOption::IfTsResol(RESOLUTION),
                ],
            })?;
            writer.get_mut().flush().map_err(PcapError::IoError)?;
            Ok(writer)
        };
        match begin() {
            Ok(writer) => Ok(Self { path, writer }),
            Err(error) => Err(cannot_write(&path, error)),
        }
    }

    fn write(&mut self, record: &Record, zero: Duration) -> Result<(), LabError> {
        let direction = match record.way {
            Way::Forward => OUTBOUND,
            Way::Back => INBOUND,
        };
        let mut options = vec![EnhancedPacketOption::Flags(direction)];
        if let Fate::Dropped(why) = record.fate {
            options.push(EnhancedPacketOption::Comment(format!("dropped: {why}").into()));
        }
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: zero + record.at,
            original_len: record.ip_bytes,
            data: Cow::Borrowed(&record.bytes[..record.kept]),
            options,
        };
        match self.writer.write_block(&block.into_block()) {
            Ok(_) => Ok(()),
            Err(error) => Err(cannot_write(&self.path, error)),
        }
    }

    fn flush(&mut self) -> Result<(), LabError> {
        let flushed = self.writer.get_mut().flush();
        flushed.map_err(|error| cannot_write(&self.path, PcapError::IoError(error)))
    }
}

/// Writes records until the channel closes, or until the first error.
fn write_all<W: Write>(
    records: &Receiver<Record>,
    files: &mut [Recording<W>],
    zero: Duration,
) -> Result<(), LabError> {
    for record in records {
        files[record.link].write(&record, zero)?;
    }
    files.iter_mut().try_for_each(Recording::flush)
}

fn cannot_write(path: &Path, error: PcapError) -> LabError {
    let source = match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    };
    LabError::system(format!("write the recording {}", path.display()))(source)
}

/// Returns a distinct file name for each link.
fn file_names(links: &[String]) -> Vec<String> {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let mut taken = BTreeSet::new();
    let name = |link: &String| {
        let stem: String = link.chars().map(|c| if is_kept(c) { c } else { '_' }).collect();
        let mut name = format!("{stem}.pcapng");
        let mut number = 2;
        while !taken.insert(name.clone()) {
            name = format!("{stem}-{number}.pcapng");
            number += 1;
        }
        name
    };
    links.iter().map(name).collect()
}
