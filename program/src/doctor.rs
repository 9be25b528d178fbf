//! `sabul doctor`: the limits of copies to and from another machine, measured before a copy.
//!
//! Measures the path in both directions from memory to memory, and the rate at which a local directory is written. The
//! files and the disk of the other machine are not touched.

use std::fs::read_to_string;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sabul::internal::ssh::UploadObserver;
use sabul::settings::{Direction, MeasureLimit};
use sabul::{Report, Session};
use sabul_front::json::{Document, ErrorJson, rate_bps};
use sabul_front::progress_line::carrier_name;
use sabul_units::show_rate;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::error::CliError;
use crate::exit;
use crate::files::dial;
use crate::interrupt::Interrupt;
use crate::perf::server;
use crate::upload::UploadProgress;
use crate::{json, output};

/// Bytes of one write to the disk, and the most that are written.
const WRITE_BYTES: usize = 4 << 20;
const WRITES_MAX: u64 = 256;
/// Loss rate from which on the page of limiters is named.
const NOTABLE_LOSS: f64 = 0.01;
/// Packets below this size in bytes point to a tunnel: Ethernet carries 1500.
const SMALL_MTU: u32 = 1400;
/// Largest socket buffer that the program requests, in bytes.
const SOCKET_BUFFER: u64 = 16 << 20;
/// Goodput from which on small socket buffers matter, in bit/s.
const FAST_BPS: f64 = 2e9;

/// Result of `sabul doctor --json`.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct DoctorJson {
    /// The other machine, as written.
    server: String,
    /// Time until the session was open, logins included, in seconds.
    connect_s: f64,
    /// From this machine to the other one; null if not measured.
    upload: Option<PathJson>,
    /// From the other machine to this one; null if not measured.
    download: Option<PathJson>,
    /// Directory of this machine that was written.
    directory: PathBuf,
    /// Rate at which the directory is written, with the flush, in bit/s; null if it cannot be written.
    write_bps: Option<f64>,
    /// Processors of this machine.
    processors: usize,
    /// Limit of uploads: the limiter that `cp` would name. Disks are not part of this limit.
    upload_limit: Option<LimitJson>,
    /// Limit of downloads to the directory: the path, or `destination` where the directory is slower.
    download_limit: Option<LimitJson>,
    /// Sentences on causes and on remedies.
    advice: Vec<String>,
    /// Exit code of the program.
    exit: u8,
    /// The error that ended the command.
    errors: Vec<ErrorJson>,
}

/// A path in one direction, from memory to memory.
#[derive(Debug, Serialize, JsonSchema)]
struct PathJson {
    /// New content bytes at the receiver, in bit/s.
    goodput_bps: f64,
    /// Smallest RTT in milliseconds; 0 over TCP.
    rtt_ms_min: f64,
    /// Smoothed RTT at the end in milliseconds; 0 over TCP.
    rtt_ms: f64,
    /// Share of the packets that the path lost, 0 to 1.
    loss_rate: f64,
    /// Packets that the socket of the receiver dropped.
    packets_overflowed: u64,
    /// Size of the largest packet with the IP header, in bytes.
    mtu: u32,
    /// Carrier of the data: `udp`, `tcp`, `ssh` or `relay`.
    carrier: &'static str,
    /// Reason for a carrier other than UDP, a clause; empty for UDP.
    carrier_reason: &'static str,
    /// The most frequent limiter of the sender; null for downloads, whose sender is the other machine.
    limiter: Option<&'static str>,
    /// Load of one core by the sending program, in percent; null if unknown.
    cpu_percent_sender: Option<f64>,
    /// Load of one core by the receiving program, in percent; null if unknown.
    cpu_percent_receiver: Option<f64>,
}

/// The slowest part of a copy.
#[derive(Debug, Serialize, JsonSchema)]
struct LimitJson {
    /// Name of the limiter, as in `cp --json`.
    name: &'static str,
    /// Rate that the limiter permits, in bit/s.
    bps: f64,
}

/// Runs `sabul doctor` and returns the exit code.
pub(crate) async fn run(args: DoctorArgs) -> Result<u8, CliError> {
    output::warn_of_debug_build();
    let mut found = DoctorJson {
        server: args.address.clone(),
        directory: args.directory.clone(),
        processors: thread::available_parallelism().map_or(1, Into::into),
        ..DoctorJson::default()
    };
    let result = examine(&args, &mut found).await;
    if let Err(error) = &result {
        found.errors.push(json::error(error));
        found.exit = error.code();
    }
    conclude(&mut found);
    if args.json {
        json::print(&Document::of(&found))?;
    } else {
        output::print(text(&found))?;
    }
    result.map(|()| exit::DONE)
}

/// Measures everything, as far as nothing fails.
async fn examine(args: &DoctorArgs, found: &mut DoctorJson) -> Result<(), CliError> {
    let server = server(Some(&args.address))?;
    let interrupt = Interrupt::listen()?;
    let channel = &args.reach.channel;
    let events = channel.event_file()?;
    let observer: Arc<dyn UploadObserver> = Arc::new(UploadProgress::new(args.json, true));
    let began = Instant::now();
    let dialled = dial(channel, &args.reach.ssh, &server, &interrupt, events.as_ref(), &observer);
    let (session, bridge) = dialled.await?;
    found.connect_s = began.elapsed().as_secs_f64();
    found.upload = Some(measure(args, &session, &interrupt, Direction::Send).await?);
    found.download = Some(measure(args, &session, &interrupt, Direction::Receive).await?);
    session.close().await;
    if let Some(bridge) = bridge {
        bridge.close().await;
    }
    let (directory, time) = (args.directory.clone(), Duration::from_secs_f64(args.time));
    let writing = tokio::task::spawn_blocking(move || write_rate(&directory, time));
    let written = tokio::select! {
        written = writing => written.map_err(|error| CliError::failed(error.to_string()))?,
        () = interrupt.wait() => {
            return Err(CliError::interrupted("interrupted: the directory was not measured"));
        }
    };
    match written {
        Ok(rate) => found.write_bps = Some(rate),
        Err(error) => found.advice.push(format!(
            "the directory '{}' was not measured: {error}; name another one with --directory",
            args.directory.display()
        )),
    }
    events.map_or(Ok(()), |events| events.finish())
}

/// Measures the path in one direction.
async fn measure(
    args: &DoctorArgs,
    session: &Session,
    interrupt: &Interrupt,
    direction: Direction,
) -> Result<PathJson, CliError> {
    let channel = &args.reach.channel;
    let options = channel.transfer_options(channel.controller())?;
    let limit = MeasureLimit::default().time(Some(Duration::from_secs_f64(args.time)));
    let measured = async {
        let transfer = session.measure(direction, limit, &options).await?;
        transfer.finish().await
    };
    tokio::select! {
        report = measured => Ok(PathJson::of(&report?)),
        () = interrupt.wait() => Err(CliError::interrupted("interrupted: the path was not measured")),
    }
}

impl PathJson {
    fn of(report: &Report) -> Self {
        let channel = &report.channel;
        let seconds = report.elapsed.as_secs_f64().max(1e-9);
        let percent = |cpu: Option<Duration>| cpu.map(|cpu| cpu.as_secs_f64() / seconds * 100.0);
        let most = channel.limiter.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        Self {
            goodput_bps: report.goodput_bps,
            rtt_ms_min: channel.rtt_ms_min,
            rtt_ms: channel.rtt_ms,
            loss_rate: channel.loss_rate(),
            packets_overflowed: channel.packets_overflowed,
            mtu: channel.mtu,
            carrier: channel.carrier,
            carrier_reason: channel.carrier_reason,
            limiter: most.map(|(name, _)| *name),
            cpu_percent_sender: percent(report.cpu_sender),
            cpu_percent_receiver: percent(report.cpu_receiver),
        }
    }
}

/// Writes a file without a name into a directory, for this time at most, and flushes the file. Returns the rate in bit/s.
fn write_rate(directory: &Path, time: Duration) -> io::Result<f64> {
    let mut file = tempfile::tempfile_in(directory)?;
    // File systems that compress would write zeros faster than files.
    let mut block = vec![0; WRITE_BYTES];
    blake3::Hasher::new().finalize_xof().fill(&mut block);
    let (began, mut written) = (Instant::now(), 0);
    for number in 0..WRITES_MAX {
        block[..8].copy_from_slice(&number.to_be_bytes());
        file.write_all(&block)?;
        written += WRITE_BYTES as u64;
        if began.elapsed() >= time {
            break;
        }
    }
    file.sync_all()?;
    Ok(rate_bps(written, began.elapsed().as_secs_f64()))
}

/// Derives the limits and the advice from the measurements.
fn conclude(found: &mut DoctorJson) {
    let limit =
        |path: &PathJson| LimitJson { name: path.limiter.unwrap_or("path"), bps: path.goodput_bps };
    found.upload_limit = found.upload.as_ref().map(limit);
    found.download_limit = found.download.as_ref().map(limit);
    if let (Some(limit), Some(bps)) = (&mut found.download_limit, found.write_bps)
        && bps < limit.bps
    {
        *limit = LimitJson { name: "destination", bps };
        found.advice.push(format!(
            "the directory '{}' takes {} and the path carries more: copies to it wait for its disk",
            found.directory.display(),
            show_rate(bps)
        ));
    }
    for (path, way) in [(&found.upload, "uploads"), (&found.download, "downloads")] {
        let Some(path) = path else { continue };
        found.advice.extend(path.advice(way, found.processors));
    }
}

impl PathJson {
    /// Causes and remedies for one direction.
    fn advice(&self, way: &str, processors: usize) -> Vec<String> {
        let mut advice = Vec::new();
        if self.carrier == "tcp" || self.carrier == "ssh" {
            advice.push(format!(
                "{way}: {} carried the data, because {}; see 'Firewalls and NAT' in the manual",
                carrier_name(self.carrier).unwrap_or(self.carrier),
                self.carrier_reason
            ));
        }
        if self.loss_rate >= NOTABLE_LOSS {
            advice.push(format!(
                "{way}: the path lost {:.1} % of the packets; a slower --bwlimit shows whether a device drops them above a \
                 rate",
                self.loss_rate * 100.0
            ));
        }
        if self.packets_overflowed > 0 {
            advice.push(format!(
                "{way}: the socket of the receiver dropped {} packets; raise net.core.rmem_max there to {SOCKET_BUFFER}",
                self.packets_overflowed
            ));
        }
        if self.mtu > 0 && self.mtu < SMALL_MTU {
            advice.push(format!(
                "{way}: packets have at most {} bytes, so a tunnel is on the path; each packet costs the same work",
                self.mtu
            ));
        }
        if self.limiter == Some("sender-cpu") && processors >= 4 {
            advice.push(format!("{way}: one core of this machine is the limit; try --channels 2"));
        }
        let buffer = socket_buffer();
        if self.goodput_bps >= FAST_BPS && buffer.is_some_and(|bytes| bytes < SOCKET_BUFFER / 4) {
            advice.push(format!(
                "{way}: sockets of this machine have at most {} bytes; raise net.core.rmem_max and wmem_max to \
                 {SOCKET_BUFFER}",
                buffer.unwrap_or_default()
            ));
        }
        advice
    }
}

/// Largest receive buffer that this system permits, in bytes; `None` on systems without this file.
fn socket_buffer() -> Option<u64> {
    read_to_string("/proc/sys/net/core/rmem_max").ok()?.trim().parse().ok()
}

/// Formats the findings for users.
fn text(found: &DoctorJson) -> String {
    let mut text = String::new();
    for (path, way) in [(&found.upload, "upload"), (&found.download, "download")] {
        let Some(path) = path else { continue };
        if text.is_empty() {
            text += &format!(
                "connection  {:.2} s until the session was open; RTT {:.2} ms (minimum {:.2}); packets of {} bytes over {}\n",
                found.connect_s,
                path.rtt_ms,
                path.rtt_ms_min,
                path.mtu,
                carrier_name(path.carrier).unwrap_or("UDP"),
            );
        }
        text += &format!(
            "{way:<11} {} from memory to memory, {:.2} % lost",
            show_rate(path.goodput_bps),
            path.loss_rate * 100.0
        );
        for (end, percent) in
            [("sender", path.cpu_percent_sender), ("receiver", path.cpu_percent_receiver)]
        {
            let Some(percent) = percent else { continue };
            text += &format!("; {end} {percent:.0} % of one core");
        }
        text.push('\n');
    }
    if let Some(bps) = found.write_bps {
        let directory = found.directory.display();
        text += &format!("disk        {} written to '{directory}' and flushed\n", show_rate(bps));
    }
    for (limit, way) in [(&found.upload_limit, "uploads"), (&found.download_limit, "downloads")] {
        let Some(limit) = limit else { continue };
        text += &format!("limit       {way}: {} at {}\n", limit.name, show_rate(limit.bps));
    }
    if found.upload_limit.is_some() {
        text += "not tested  reading files on either machine, and the disk of the other one\n";
    }
    for advice in &found.advice {
        text += &format!("advice      {advice}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(goodput_bps: f64) -> PathJson {
        PathJson {
            goodput_bps,
            rtt_ms_min: 1.0,
            rtt_ms: 1.0,
            loss_rate: 0.0,
            packets_overflowed: 0,
            mtu: 1500,
            carrier: "udp",
            carrier_reason: "",
            limiter: Some("path"),
            cpu_percent_sender: None,
            cpu_percent_receiver: None,
        }
    }

    fn concluded(download: PathJson, write_bps: f64) -> DoctorJson {
        let (upload, download) = (Some(path(1e8)), Some(download));
        let write_bps = Some(write_bps);
        let mut found = DoctorJson { upload, download, write_bps, ..DoctorJson::default() };
        conclude(&mut found);
        found
    }

    #[test]
    fn the_slower_of_path_and_disk_limits_a_download() {
        let found = concluded(path(1e9), 2e8);
        assert_eq!(found.download_limit.unwrap().name, "destination");
        assert!(found.advice[0].contains("200.0 Mbit/s"), "{:?}", found.advice);
        let found = concluded(path(1e8), 2e8);
        assert_eq!(found.download_limit.unwrap().name, "path");
        assert_eq!(found.upload_limit.unwrap().name, "path");
        assert_eq!(found.advice, [""; 0]);
    }

    #[test]
    fn each_cause_has_one_sentence() {
        let mut slow = path(1e8);
        (slow.carrier, slow.carrier_reason) = ("tcp", "UDP does not pass");
        (slow.loss_rate, slow.packets_overflowed, slow.mtu) = (0.02, 7, 1280);
        let found = concluded(slow, 1e9);
        for word in ["UDP does not pass", "2.0 %", "dropped 7", "1280"] {
            let with = found.advice.iter().filter(|advice| advice.contains(word));
            assert_eq!(with.count(), 1, "{word}: {:?}", found.advice);
        }
    }

    #[test]
    fn a_directory_that_does_not_exist_is_an_error() {
        assert!(write_rate(Path::new("/nowhere/at all"), Duration::ZERO).is_err());
        let folder = tempfile::tempdir().unwrap();
        assert!(write_rate(folder.path(), Duration::ZERO).unwrap() > 0.0);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
