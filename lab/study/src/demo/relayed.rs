//! Demonstration without hosts: two child processes and a relay between them.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use sabul_emu::{Relay, RelayConfig, RelayStats};
use sabul_net::PathPreset;
use sabul_units::Span;
use serde_json::{Value, json};

use super::child::{Child, Usage};
use super::losses::Losses;
use super::shown::{Alone, Shown};
use super::{Copied, Folder, Request, go_on, in_folder, read_answer};
use crate::error::Error;
use crate::observer::Observer;
use crate::processor::{cpu_mhz, mhz_per_mbps};

/// Timeout for the start of the server, and for its end after the client has ended.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Polling interval of the children. Their memory peaks last longer.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Ours: a relay that is late by more than 1/20 of the one-way delay has distorted the path.
const LATE_SHARE: u64 = 20;
/// Smaller lateness is ignored, however short the path: it is the relay's own step and a wake-up.
const LATE_FLOOR: Span = Span::from_micros(500);

/// Result of a copy over the relay.
#[derive(Debug)]
struct Relayed {
    path: PathPreset,
    cc: String,
    copied: Copied,
    /// From the start of the sending process to its end.
    wall: Duration,
    relay: RelayStats,
    sender: Usage,
    receiver: Usage,
    cpu_mhz: Option<f64>,
}

/// Creates the file, sends the file over the relay with the path's own loss and with more loss, and
/// compares both files.
///
/// # Errors
/// If a process of the program fails, the system refuses an operation, or the observer interrupts.
pub fn over_relay(request: &Request, observer: &Observer) -> Result<Shown, Error> {
    in_folder(request, observer, |folder| {
        let mut shown = Shown::of_relay(&request.path, &request.cc, request.bytes);
        for losses in Losses::BOTH {
            let link = losses.on(&request.path);
            let path =
                PathPreset { forward: link.forward, back: link.back, ..request.path.clone() };
            let request = Request { path, ..request.clone() };
            let cc = &request.cc;
            observer
                .note(format_args!("sabul cp ({cc}) alone, {}", Losses::Own.words(&request.path)));
            let first = send(&request, folder, observer)?;
            // The machine may be less busy now.
            let is_valid = first.disturbances().is_empty();
            let relayed = if is_valid { first } else { send(&request, folder, observer)? };
            if losses == Losses::Own {
                shown.document = relayed.json();
            }
            shown.is_verified &= relayed.copied.is_verified();
            shown.alone.push(Alone {
                is_ours: true,
                losses,
                bytes: relayed.copied.bytes,
                seconds: relayed.wall.as_secs_f64(),
                rtt_ms: relayed.copied.number("rtt_ms"),
                faults: relayed.disturbances(),
            });
        }
        Ok(shown)
    })
}

fn send(request: &Request, folder: &Folder, observer: &Observer) -> Result<Relayed, Error> {
    folder.reset();
    let mut server = start_server(request, folder)?;
    let target = wait_for_ticket(&mut server, request, folder, observer)?;
    let relay = Relay::start(RelayConfig {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        target,
        forward: request.path.forward.clone(),
        back: request.path.back.clone(),
        seed: request.seed,
        udp_blocked: false,
    })
    .map_err(|error| Error::failed(error.to_string()))?;

    let begun = Instant::now();
    let mut client = start_client(request, folder, relay.addr())?;
    while client.poll()?.is_none() {
        server.poll()?;
        pause(observer)?;
    }
    let wall = begun.elapsed();
    let relay_stats = relay.stats();
    let document = read_answer(&folder.answer, client.ended_with())?;
    let deadline = Instant::now() + TIMEOUT;
    while server.poll()?.is_none() && Instant::now() < deadline {
        pause(observer)?;
    }
    drop(relay);
    Ok(Relayed {
        path: request.path.clone(),
        cc: request.cc.clone(),
        copied: folder.copied(document, observer)?,
        wall,
        relay: relay_stats,
        sender: client.usage(),
        receiver: server.usage(),
        cpu_mhz: cpu_mhz(),
    })
}

/// Returns a command that runs the program.
fn program(request: &Request) -> Command {
    let mut command = Command::new(&request.program);
    // The user's setting must not replace the demo's ticket.
    command.env_remove("SABUL_TICKET_FILE");
    command
}

fn start_server(request: &Request, folder: &Folder) -> Result<Child, Error> {
    let mut command = program(request);
    command.arg("serve").arg("--root").arg(&folder.root);
    command.args(["--listen", "127.0.0.1:0", "--once"]).arg("--ticket-file").arg(&folder.ticket);
    Child::start("server", command, None, Some(&folder.folder.path().join("serve.log")))
}

fn start_client(request: &Request, folder: &Folder, relay: SocketAddr) -> Result<Child, Error> {
    let mut command = program(request);
    // A path estimate from an earlier run would be an advantage.
    command.args(["cp", "--json", "--fresh", "--cc", &request.cc]);
    for (key, value) in &request.params {
        command.arg("--cc-param").arg(format!("{key}={value}"));
    }
    if request.is_quiet {
        command.arg("--quiet");
    }
    command.arg("--ticket").arg(&folder.ticket).arg(&folder.file);
    command.arg(format!("sabul://{relay}/"));
    Child::start("sender", command, Some(&folder.answer), None)
}

/// Waits until the server has written its ticket, and returns the first address in the ticket.
fn wait_for_ticket(
    server: &mut Child,
    request: &Request,
    folder: &Folder,
    observer: &Observer,
) -> Result<SocketAddr, Error> {
    let deadline = Instant::now() + TIMEOUT;
    while !folder.ticket.exists() {
        if server.poll()?.is_some() || Instant::now() >= deadline {
            return Err(Error::failed(format!(
                "the demo's server did not get ready: {}",
                server.last_words()
            )));
        }
        pause(observer)?;
    }
    (request.read_address)(&folder.ticket).map_err(Error::failed)
}

/// Waits for one polling interval. Fails if the observer interrupts.
fn pause(observer: &Observer) -> Result<(), Error> {
    thread::sleep(POLL_INTERVAL);
    go_on(observer)
}

impl Relayed {
    fn goodput_bps(&self) -> f64 {
        self.copied.bytes as f64 * 8.0 / self.wall.as_secs_f64().max(1e-9)
    }

    fn cost(&self, cpu_seconds: Option<f64>) -> Option<f64> {
        mhz_per_mbps(cpu_seconds, self.cpu_mhz, self.wall.as_secs_f64(), self.goodput_bps())
    }

    fn disturbances(&self) -> Vec<String> {
        let relay = &self.relay;
        let bound = (self.path.forward.delay() / LATE_SHARE).max(LATE_FLOOR);
        let mut found = Vec::new();
        if relay.socket_drops > 0 {
            found.push(format!("its sockets overflowed by {} packets", relay.socket_drops));
        }
        if relay.memory_drops > 0 {
            found.push(format!("it had no memory for {} packets", relay.memory_drops));
        }
        if relay.lateness.p99 > bound {
            found.push(format!(
                "1 % of the packets left it over {:.2} ms late",
                relay.lateness.p99.as_millis_f64()
            ));
        }
        found
    }

    /// Returns the result as a document.
    fn json(&self) -> Value {
        let relay = &self.relay;
        let own = json!({
            "seconds": self.wall.as_secs_f64(),
            "goodput_bps": self.goodput_bps(),
            "cpu_seconds_sender": self.sender.cpu_seconds,
            "cpu_seconds_receiver": self.receiver.cpu_seconds,
            "cpu_mhz": self.cpu_mhz,
            "mhz_per_mbps_sender": self.cost(self.sender.cpu_seconds),
            "mhz_per_mbps_receiver": self.cost(self.receiver.cpu_seconds),
            "memory_peak_bytes_sender": self.sender.memory_peak_bytes,
            "memory_peak_bytes_receiver": self.receiver.memory_peak_bytes,
            "relay_late_ms_p50": relay.lateness.p50.as_millis_f64(),
            "relay_late_ms_p99": relay.lateness.p99.as_millis_f64(),
            "relay_late_ms_max": relay.lateness.max.as_millis_f64(),
            "relay_dropped_packets": relay.socket_drops + relay.memory_drops,
        });
        self.copied.document(&self.path, &self.cc, &relay.forward, own)
    }
}
