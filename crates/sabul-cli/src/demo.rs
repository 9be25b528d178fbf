//! `sabul demo`: one real file between two processes over an emulated path.
//!
//! Where hosts can be made, the file goes from one to another beside a TCP connection of the kernel
//! (`demo/lab.rs`). Elsewhere, or where asked for, sender and receiver are children of this process and
//! the relay plays the path. Everything that was made goes away with the command.

mod child;
mod lab;
mod summary;

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sabul::Ticket;
use sabul_lab::{Relay, RelayConfig, RelayStats, isolate};
use sabul_path::{PathPreset, preset, presets};
use serde_json::Value;
use tempfile::TempDir;

use crate::args::DemoArgs;
use crate::error::{CliError, FAILED};
use crate::interrupt::Interrupt;
use crate::options::check_controller;
use crate::output;
use crate::size::show_bytes;
use child::{Child, Usage};

/// How long the server may take to start, and to end after the client has.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks at the children. Their memory peaks last longer.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Name of the file that travels.
const FILE_NAME: &str = "demo.bin";

/// What a run has shown.
#[derive(Debug)]
struct Outcome {
    path: PathPreset,
    cc: String,
    bytes: u64,
    /// From the start of the sending process to its end.
    wall: Duration,
    /// What `sabul cp --json` said.
    copy: Value,
    relay: RelayStats,
    sender: Usage,
    receiver: Usage,
    hashes: [blake3::Hash; 2],
    cpu_mhz: Option<f64>,
}

/// Runs the command. The process must have one thread until then.
pub(crate) fn run(args: DemoArgs) -> Result<ExitCode, CliError> {
    if isolate::is_inside() {
        isolate::settle()?;
        return lab::run(&args).map(ExitCode::from);
    }
    output::warn_of_debug_build();
    let path = find_path(&args.path)?;
    check_controller(&args.cc, &args.cc_params)?;
    if !args.relay {
        match isolate::probe().and_then(|()| isolate::run_inside()) {
            Ok(code) => return Ok(code),
            Err(error) if args.quiet || args.json => drop(error),
            Err(error) => output::note(format_args!(
                "no hosts here, so nothing runs beside the copy: {error}"
            )),
        }
    }
    crate::block_on(over_relay(args, path)).map(ExitCode::from)
}

/// Runs the demo without hosts; the result is the exit code.
async fn over_relay(args: DemoArgs, path: PathPreset) -> Result<u8, CliError> {
    let interrupt = Interrupt::listen()?;
    let folder = tempfile::Builder::new()
        .prefix("sabul-demo-")
        .tempdir()
        .map_err(|error| CliError::failed(format!("cannot make a temporary folder: {error}")))?;
    let result = tokio::select! {
        result = demonstrate(&args, path, &folder) => result,
        () = interrupt.wait() => Err(CliError::interrupted(
            "interrupted: the demo's processes were ended and its files removed; run it again to \
             repeat it",
        )),
    };
    let removed = folder.close();
    let outcome = result?;
    removed.map_err(|error| {
        CliError::failed(format!("cannot remove the demo's temporary folder: {error}"))
    })?;
    if args.json {
        crate::json::print(&summary::json(&outcome))?;
    } else {
        output::print(summary::text(&outcome))?;
    }
    if outcome.hashes[0] == outcome.hashes[1] {
        Ok(0)
    } else {
        output::complain("the file that arrived differs from the one that was sent");
        Ok(5)
    }
}

fn find_path(name: &str) -> Result<PathPreset, CliError> {
    preset(name).ok_or_else(|| {
        let names: Vec<_> = presets().iter().map(|preset| preset.name).collect();
        CliError::usage(format!("no path is called '{name}'; use one of: {}", names.join(", ")))
    })
}

/// Makes the file, sends it, and compares what arrived. Dropping this future ends the children.
async fn demonstrate(
    args: &DemoArgs,
    path: PathPreset,
    folder: &TempDir,
) -> Result<Outcome, CliError> {
    let is_loud = !args.quiet && !args.json;
    let say = |line: String| {
        if is_loud {
            output::note(line);
        }
    };
    say(format!("{}: {}", path.name, path.summary));
    let file = folder.path().join(FILE_NAME);
    let root = folder.path().join("received");
    std::fs::create_dir(&root)
        .map_err(|error| CliError::failed(format!("cannot make {}: {error}", root.display())))?;
    say(format!("making {} of random bytes", show_bytes(args.size)));
    let (target, size) = (file.clone(), args.size);
    blocking(move || make_file(&target, size)).await?;

    let ticket = folder.path().join("ticket");
    let mut server = start_server(&root, &ticket, folder.path())?;
    let target = wait_for_ticket(&mut server, &ticket).await?;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let relay = Relay::start(RelayConfig {
        listen: any,
        target,
        forward: path.forward.clone(),
        back: path.back.clone(),
        seed: args.seed,
        udp_blocked: false,
    })
    .map_err(|error| CliError::failed(error.to_string()))?;

    say("sending".to_owned());
    let answer = folder.path().join("cp.json");
    let begun = Instant::now();
    let mut client = start_client(args, &file, relay.addr(), &ticket, &answer)?;
    while client.look()?.is_none() {
        server.look()?;
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    let wall = begun.elapsed();
    let relay_stats = relay.stats();
    let copy = read_answer(&answer, client.exit_code())?;
    let deadline = Instant::now() + PATIENCE;
    while server.look()?.is_none() && Instant::now() < deadline {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    drop(relay);

    say("comparing both files".to_owned());
    let arrived = root.join(FILE_NAME);
    let hashes = blocking(move || Ok([hash(&file)?, hash(&arrived)?])).await?;
    Ok(Outcome {
        path,
        cc: args.cc.clone(),
        bytes: args.size,
        wall,
        copy,
        relay: relay_stats,
        sender: client.usage(),
        receiver: server.usage(),
        hashes,
        cpu_mhz: sabul_study::processor::cpu_mhz(),
    })
}

fn start_server(root: &Path, ticket: &Path, folder: &Path) -> Result<Child, CliError> {
    let mut command = child::this_program()?;
    command.arg("serve").arg("--root").arg(root);
    command.args(["--listen", "127.0.0.1:0", "--once"]).arg("--ticket-file").arg(ticket);
    Child::start("server", command, None, Some(&folder.join("serve.log")))
}

fn start_client(
    args: &DemoArgs,
    file: &Path,
    relay: SocketAddr,
    ticket: &Path,
    answer: &Path,
) -> Result<Child, CliError> {
    let mut command = child::this_program()?;
    command.args(["cp", "--json", "--cc", &args.cc]);
    for (key, value) in &args.cc_params {
        command.arg("--cc-param").arg(format!("{key}={value}"));
    }
    if args.quiet || args.json {
        command.arg("--quiet");
    }
    command.arg("--ticket").arg(ticket).arg(file).arg(format!("sabul://{relay}/"));
    Child::start("sender", command, Some(answer), None)
}

/// The server writes its ticket once it is ready; the first address in it is where it listens.
async fn wait_for_ticket(server: &mut Child, ticket: &Path) -> Result<SocketAddr, CliError> {
    let deadline = Instant::now() + PATIENCE;
    while !ticket.exists() {
        if server.look()?.is_some() || Instant::now() >= deadline {
            return Err(CliError::failed(format!(
                "the demo's server did not get ready: {}",
                server.last_words()
            )));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    let ticket = Ticket::read_file(ticket).map_err(|error| CliError::failed(error.to_string()))?;
    let mut addresses = ticket.addresses().iter();
    addresses
        .find_map(|address| address.parse().ok())
        .ok_or_else(|| CliError::failed("the ticket of the demo's server holds no IP address"))
}

/// The document that the sending process printed, or its failure.
fn read_answer(path: &Path, code: Option<u8>) -> Result<Value, CliError> {
    let text = std::fs::read(path).unwrap_or_default();
    let document = serde_json::from_slice::<Value>(&text).ok();
    match (code, document) {
        (Some(0), Some(document)) => Ok(document),
        (code, document) => {
            let message = document
                .as_ref()
                .and_then(|document| document["errors"][0]["message"].as_str())
                .unwrap_or("it ended without a word");
            let message = format!("the demo's sender failed: {message}");
            Err(CliError::failed(message)
                .with_code(code.filter(|&code| code > 0).unwrap_or(FAILED)))
        }
    }
}

/// Writes `size` random bytes: nothing on the way can shorten them.
fn make_file(path: &Path, size: u64) -> io::Result<()> {
    let mut random = File::open("/dev/urandom")?.take(size);
    io::copy(&mut random, &mut File::create(path)?).map(drop)
}

fn hash(path: &PathBuf) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize())
}

/// Runs work that waits for disks on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, CliError> {
    let result = tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| CliError::failed(format!("a thread of the demo ended: {error}")))?;
    result.map_err(|error| CliError::failed(format!("a file of the demo: {error}")))
}
