//! Test bench: a server and clients of the built program, limited in time and ended by their
//! process ids.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

pub(crate) mod schema;

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use sabul_emu::{Relay, RelayConfig};
use sabul_net::LinkConfig;
use sabul_units::{Rate, Span};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than any command here takes, so that a hanging command ends too.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The built program without the user's settings.
pub(crate) fn sabul() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sabul"));
    command.env_remove("SABUL_TICKET_FILE").stdin(Stdio::null());
    // Separate from the commands that the user runs.
    command.env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"));
    command
}

/// The program in this directory, where only commands started there are visible.
pub(crate) fn sabul_apart(folder: &Path) -> Command {
    let mut command = sabul();
    command.current_dir(folder).env("XDG_RUNTIME_DIR", folder).env("TMPDIR", folder);
    command
}

/// Opens a pseudo-terminal: the test's end, and the end for programs.
pub(crate) fn terminal(columns: u16) -> (fs::File, fs::File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let slave = fs::File::options().read(true).write(true).open(name).unwrap();
    (fs::File::from(terminal), slave)
}

/// Child process whose output is being read. Killed on drop.
pub(crate) struct Running {
    child: Child,
    out: Option<JoinHandle<Vec<u8>>>,
    err: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let mut out = Vec::new();
        let mut err = Vec::new();
        let out = std::thread::spawn(move || stdout.read_to_end(&mut out).map(|_| out).unwrap());
        let err = std::thread::spawn(move || stderr.read_to_end(&mut err).map(|_| err).unwrap());
        Self { child, out: Some(out), err: Some(err) }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end.
    pub(crate) fn finish(mut self) -> Output {
        let deadline = Instant::now() + TIMEOUT;
        while !self.is_over() {
            assert!(Instant::now() < deadline, "a command did not end within {TIMEOUT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Output {
            status: self.child.wait().unwrap(),
            stdout: self.out.take().unwrap().join().unwrap(),
            stderr: self.err.take().unwrap().join().unwrap(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Output {
    Running::start(command).finish()
}

/// Runs a command with `input` on standard input.
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> Output {
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let mut stdin = running.child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    drop(stdin);
    running.finish()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks the exit code and shows the output on a mismatch.
#[track_caller]
pub(crate) fn expect_code(output: &Output, expected: i32) {
    assert_eq!(code(output), expected, "{}", stderr(output));
}

#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}, {}", String::from_utf8_lossy(&output.stdout), stderr(output))
    })
}

/// Server of a directory, with a place for the client's files beside it.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) server: Option<Running>,
    pub(crate) address: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(&["serve", "--root", "root"])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        let mut command = sabul_apart(folder.path());
        command.args(arguments);
        Self::of(folder, command)
    }

    /// Starts this command, which serves the directory `root` of the folder, or fails.
    pub(crate) fn of(folder: TempDir, mut command: Command) -> Self {
        command.args(["--listen", "127.0.0.1:0", "--ticket-file", "ticket"]);
        let mut server = Running::start(&mut command);
        let ticket = folder.path().join("ticket");
        let deadline = Instant::now() + TIMEOUT;
        while !ticket.exists() {
            assert!(!server.is_over() && Instant::now() < deadline, "the server did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        let ticket = sabul::Ticket::read_file(&ticket).unwrap();
        let address = ticket.addresses()[0].clone();
        Self { folder, server: Some(server), address }
    }

    /// Returns a path beside the root.
    pub(crate) fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.folder.path().join(name.as_ref())
    }

    /// Returns a path below the root.
    pub(crate) fn root(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.folder.path().join("root").join(name.as_ref())
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("sabul://{}/{path}", self.address)
    }

    /// Returns `sabul cp`, run beside the root with the ticket.
    pub(crate) fn cp<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Command {
        let mut command = self.sabul();
        command.arg("cp").args(arguments);
        command
    }

    /// Returns the program, run beside the root with the ticket.
    pub(crate) fn sabul(&self) -> Command {
        let mut command = sabul_apart(self.folder.path());
        command.env("SABUL_TICKET_FILE", "ticket");
        command
    }

    /// Returns a relay in front of the server, over this link in both directions.
    pub(crate) fn relay(&self, link: LinkConfig, udp_blocked: bool) -> Relay {
        let listen = "127.0.0.1:0".parse().unwrap();
        let target = self.address.parse().unwrap();
        let (forward, back) = (link.clone(), link);
        let config = RelayConfig { listen, target, forward, back, seed: 1, udp_blocked };
        Relay::start(config).unwrap()
    }
}

/// A link of 20 Mb/s and 5 ms, slow enough to interrupt a transfer.
pub(crate) fn slow_link() -> LinkConfig {
    LinkConfig::builder()
        .with_rate(Some(Rate::from_mbps(20)))
        .with_delay(Span::from_millis(5))
        .build()
        .unwrap()
}

/// Returns bytes that depend on the position and on `seed`.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Returns all files below a directory, by relative path.
pub(crate) fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![directory.to_path_buf()];
    while let Some(next) = todo.pop() {
        // A file may vanish during the scan.
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
            } else {
                found.push(path.strip_prefix(directory).unwrap().to_path_buf());
            }
        }
    }
    found.sort();
    found
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not happen within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a file is being received below a directory.
#[track_caller]
pub(crate) fn wait_for_part(directory: &Path) {
    wait_for("the arrival of a first part", || {
        let files = files_below(directory);
        files.iter().any(|name| name.to_string_lossy().ends_with(".sabul-part"))
    });
}
