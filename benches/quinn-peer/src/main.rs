//! Bulk transfer with quinn over loopback, memory to memory.
//!
//! Reference for `sabul perf`: one unidirectional QUIC stream with quinn's default transport
//! configuration. Listener (receiver) and connector (sender) are separate processes, so that each
//! can have a core. Goodput counts the bytes read by the receiving application, from the opening of
//! the stream to its end.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{Connection, Endpoint, ServerConfig};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Release under test; `Cargo.toml` pins the same release, and a test compares both.
const QUINN_VERSION: &str = "0.11.12";
/// Bytes of one write to quinn.
const CHUNK_BYTES: usize = 1024 * 1024;
/// Most chunks per read. A chunk is at most one packet's payload, so this is about 1.5 MB.
const CHUNKS_PER_READ: usize = 1024;
/// Time beyond the sending time after which a run counts as stuck.
const GRACE: Duration = Duration::from_secs(30);

const USAGE: &str = "\
usage: quinn-peer [run] [--seconds N] [--json]
       quinn-peer serve                              one transfer, then exit
       quinn-peer send --to ADDR:PORT --certificate HEX [--seconds N]

run starts `serve` and `send` as processes of their own on 127.0.0.1 and prints the result.
";

/// First line of `serve`: listening address, and certificate to trust.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    listen: SocketAddr,
    certificate_hex: String,
}

/// Report of one side about the time in which data flowed.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    bytes: u64,
    seconds: f64,
    cpu_percent: f64,
}

/// Result of one run.
#[derive(Debug, Serialize)]
struct Outcome {
    peer: &'static str,
    version: &'static str,
    goodput_bps: f64,
    seconds: f64,
    bytes: u64,
    cpu_percent_sender: f64,
    cpu_percent_receiver: f64,
}

#[derive(Debug, PartialEq)]
enum Task {
    Run { seconds: f64, json: bool },
    Serve,
    Send { to: SocketAddr, certificate: Vec<u8>, seconds: f64 },
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "-h" || argument == "--help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let task = match parse(&arguments) {
        Ok(task) => task,
        Err(error) => {
            eprint!("quinn-peer: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match task {
        Task::Run { seconds, json } => run(seconds, json),
        Task::Serve => in_runtime(serve()),
        Task::Send { to, certificate, seconds } => in_runtime(send(to, certificate, seconds)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quinn-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Task, String> {
    let mut words = arguments.iter().map(String::as_str).peekable();
    let command =
        words.next_if(|word| ["run", "serve", "send"].contains(word)).unwrap_or("run").to_owned();
    let (mut seconds, mut json, mut to, mut certificate) = (5.0, false, None, None);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match (command.as_str(), word) {
            ("run" | "send", "--seconds") => {
                let text = value()?;
                seconds = text
                    .parse()
                    .ok()
                    .filter(|seconds| (0.1..=3600.0).contains(seconds))
                    .ok_or_else(|| format!("--seconds takes 0.1 to 3600, not `{text}`"))?;
            }
            ("run", "--json") => json = true,
            ("send", "--to") => {
                let text = value()?;
                to = Some(text.parse().map_err(|error| format!("--to `{text}`: {error}"))?);
            }
            ("send", "--certificate") => certificate = Some(from_hex(value()?)?),
            _ => return Err(format!("`{word}` is no option of {command}")),
        }
    }
    match command.as_str() {
        "serve" => Ok(Task::Serve),
        "send" => Ok(Task::Send {
            to: to.ok_or("send needs --to ADDR:PORT")?,
            certificate: certificate.ok_or("send needs --certificate HEX")?,
            seconds,
        }),
        _ => Ok(Task::Run { seconds, json }),
    }
}

/// A runtime with one thread per side. With a process per core it is about a third faster than
/// tokio's multi-threaded runtime on two cores, and a reference should have its best configuration.
fn in_runtime(task: impl Future<Output = Fallible<()>>) -> Fallible<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(task)
}

/// Starts both sides, waits for their end and prints the outcome.
fn run(seconds: f64, json: bool) -> Fallible<()> {
    let program = std::env::current_exe()?;
    let mut listener = Side(Command::new(&program).arg("serve").stdout(Stdio::piped()).spawn()?);
    let mut lines = BufReader::new(listener.0.stdout.take().ok_or("serve has no output")?).lines();
    let mut next_line = || -> Fallible<String> {
        Ok(lines.next().ok_or("serve ended without a result; see its message above")??)
    };
    let ready: Ready = serde_json::from_str(&next_line()?)?;
    let sender = Command::new(&program)
        .args(["send", "--to", &ready.listen.to_string()])
        .args(["--certificate", &ready.certificate_hex])
        .args(["--seconds", &seconds.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    if !sender.status.success() {
        return Err(format!("send ended with {}", sender.status).into());
    }
    let sent: Report = serde_json::from_slice(&sender.stdout)?;
    let received: Report = serde_json::from_str(&next_line()?)?;
    if sent.bytes != received.bytes {
        return Err(format!("sent {} bytes but received {}", sent.bytes, received.bytes).into());
    }
    #[expect(clippy::cast_precision_loss, reason = "byte counts stay far below 2^52")]
    let goodput_bps = received.bytes as f64 * 8.0 / received.seconds;
    let outcome = Outcome {
        peer: "quinn",
        version: QUINN_VERSION,
        goodput_bps,
        seconds: received.seconds,
        bytes: received.bytes,
        cpu_percent_sender: sent.cpu_percent,
        cpu_percent_receiver: received.cpu_percent,
    };
    if json {
        println!("{}", serde_json::to_string(&outcome)?);
    } else {
        println!(
            "quinn {QUINN_VERSION}: {:.3} Gbit/s over {:.2} s, CPU sender {:.0} %, receiver {:.0} %",
            outcome.goodput_bps / 1e9,
            outcome.seconds,
            outcome.cpu_percent_sender,
            outcome.cpu_percent_receiver
        );
    }
    Ok(())
}

/// A child process that does not outlive its owner.
struct Side(Child);

impl Drop for Side {
    fn drop(&mut self) {
        // Both fail only if the child has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Receives one stream on a free port of 127.0.0.1; prints [`Ready`], then [`Report`].
async fn serve() -> Fallible<()> {
    let identity = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let certificate = CertificateDer::from(identity.cert);
    let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    let endpoint = Endpoint::server(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    print_line(&Ready { listen: endpoint.local_addr()?, certificate_hex: to_hex(&certificate) })?;

    let incoming = tokio::time::timeout(GRACE, endpoint.accept()).await?.ok_or("no connection")?;
    let connection = incoming.await?;
    let mut stream = connection.accept_uni().await?;
    let usage = Usage::start()?;
    let mut buffers = vec![Bytes::new(); CHUNKS_PER_READ];
    let mut bytes = 0;
    while let Some(filled) = stream.read_chunks(&mut buffers).await? {
        bytes += buffers[..filled].iter().map(|chunk| chunk.len() as u64).sum::<u64>();
    }
    print_line(&usage.report(bytes)?)?;
    connection.close(0_u32.into(), b"received");
    endpoint.wait_idle().await;
    Ok(())
}

/// Sends a constant buffer for `seconds`, waits until all data is received; prints [`Report`].
async fn send(to: SocketAddr, certificate: Vec<u8>, seconds: f64) -> Fallible<()> {
    let endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let connection = endpoint.connect_with(client_config(certificate)?, to, "localhost")?.await?;
    let sending = Duration::from_secs_f64(seconds);
    let report =
        tokio::time::timeout(sending + GRACE, fill_stream(&connection, sending))
            .await
            .map_err(|_| format!("the transfer was still unfinished {GRACE:?} after its time"))??;
    print_line(&report)?;
    endpoint.wait_idle().await;
    Ok(())
}

fn client_config(certificate: Vec<u8>) -> Fallible<quinn::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(certificate))?;
    Ok(quinn::ClientConfig::with_root_certificates(Arc::new(roots))?)
}

async fn fill_stream(connection: &Connection, sending: Duration) -> Fallible<Report> {
    let chunk = Bytes::from(vec![0x5a; CHUNK_BYTES]);
    let mut stream = connection.open_uni().await?;
    let usage = Usage::start()?;
    let mut bytes = 0;
    while usage.wall.elapsed() < sending {
        stream.write_chunk(chunk.clone()).await?;
        bytes += chunk.len() as u64;
    }
    stream.finish()?;
    // The receiver closes once it has read everything.
    let _ = connection.closed().await;
    usage.report(bytes)
}

/// A point in wall-clock and CPU time.
struct Usage {
    wall: Instant,
    cpu: Duration,
}

impl Usage {
    fn start() -> Fallible<Self> {
        Ok(Self { wall: Instant::now(), cpu: process_cpu_time()? })
    }

    fn report(&self, bytes: u64) -> Fallible<Report> {
        let seconds = self.wall.elapsed().as_secs_f64();
        let cpu = process_cpu_time()?.saturating_sub(self.cpu).as_secs_f64();
        Ok(Report { bytes, seconds, cpu_percent: cpu / seconds * 100.0 })
    }
}

/// CPU time of all threads of this process, user and system.
fn process_cpu_time() -> Fallible<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::try_from(time)?)
}

fn print_line<T: Serialize>(value: &T) -> Fallible<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(out.flush()?)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 && !digits.is_empty() => {
            Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => Err("--certificate takes an even number of hexadecimal digits".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_printed_version_is_the_locked_version() {
        let lock = include_str!("../Cargo.lock");
        let entry = format!("name = \"quinn\"\nversion = \"{QUINN_VERSION}\"");
        assert!(lock.contains(&entry), "Cargo.lock has another quinn than {QUINN_VERSION}");
    }

    #[test]
    fn no_command_means_run() {
        let task = parse(&words("--seconds 2 --json"));
        assert_eq!(task, Ok(Task::Run { seconds: 2.0, json: true }));
    }

    #[test]
    fn an_unknown_option_is_named() {
        for line in ["--secnods 2", "serve --json", "send", "--seconds 0", "--seconds inf"] {
            assert!(parse(&words(line)).is_err(), "`{line}` was accepted");
        }
    }

    #[test]
    fn hex_round_trips_and_invalid_hex_is_rejected() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Ok(bytes));
        for text in ["", "abc", "zz"] {
            assert!(from_hex(text).is_err(), "`{text}` was accepted");
        }
    }
}
