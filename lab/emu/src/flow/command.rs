//! User's programs as flows: one program per copy in the near host, and optionally one in the far
//! host.
//!
//! The far program is started first, once, and has some time until the program must listen. Each
//! copy is one run of the near program. The near program is started at the copy's start, is
//! complete when it exits with code 0, and is terminated when the flow stops. Output goes to files;
//! the last line explains a failure. Only the router can count the traffic of programs: counters
//! stay zero. Gauges are those of the near host's TCP connection with the most bytes acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use sabul_run::meter::{Counters, Gauges};
use tempfile::TempDir;
use tokio::time::sleep;

use super::board::Board;
use super::copies::{self, Copy};
use super::end::FlowEnd;
use super::task::{Engine, Task, runtime, start_thread};
use super::tcp;
use crate::clock::Clock;
use crate::error::LabError;
use crate::host::prefer_algorithm;
use crate::tcp_info::{TcpInfo, TcpSample};

/// Time limit for the far program to start listening; some programs never listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which programs are checked.
const TICK: Duration = Duration::from_millis(10);
/// Time between SIGTERM and SIGKILL.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Least interval between queries to the kernel.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes at the end of a program's output that are searched for the last line.
const TAIL_BYTES: u64 = 4096;
/// Longest quoted line, in characters.
const LINE_MAX: usize = 300;

/// A started program.
#[derive(Debug)]
struct Running {
    name: String,
    child: Child,
    /// Exit status. After the exit, the process id may belong to another process.
    ended: Option<ExitStatus>,
    errors: PathBuf,
    output: PathBuf,
}

/// State shared by the thread and the owner of the flow.
#[derive(Debug)]
pub(super) struct Programs {
    board: Arc<Board>,
    is_paced: bool,
    info: Mutex<(TcpInfo, Option<Instant>)>,
    /// Near programs, by copy.
    near: Mutex<BTreeMap<u64, Running>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the far program.
pub(super) fn prepare(
    task: &Task,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<Arc<Programs>, LabError> {
    let plan = &task.plan;
    if plan.commands().0.is_empty() {
        return Err(task.failed("a command flow needs a command"));
    }
    for end in [&task.near, &task.far] {
        choose_algorithm(task, end)?;
    }
    let mut task = task.clone();
    // The thread itself may be in either host; programs are started in their own hosts.
    start_thread("lab-command", &task.near.clone(), threads, move |prepared| {
        let start = || {
            let runtime = runtime()?;
            let info = TcpInfo::open()?;
            let files = tempfile::Builder::new()
                .prefix("sabul-lab-")
                .tempdir()
                .map_err(LabError::system("make a directory for what programs write"))?;
            let programs = Arc::new(Programs {
                board: Arc::clone(&task.board),
                is_paced: tcp::algorithm(&task.plan.cc).starts_with("bbr"),
                info: Mutex::new((info, None)),
                near: Mutex::default(),
            });
            let peer = start_peer(&task, &files)?;
            Ok((Arc::clone(&programs), (runtime, programs, files, peer)))
        };
        let Some((runtime, programs, files, mut peer)) = prepared.report(start()) else { return };
        runtime.block_on(async {
            let Some((clock, end)) = task.start().await else { return };
            let settings = task.clone();
            let run = |copy| run_copy(&programs, &settings, &files, clock, copy);
            let at_end = || {
                programs.query_kernel(Duration::ZERO);
                programs.board.retire_all(clock.now());
            };
            let result = tokio::select! {
                result = copies::run(&mut task, clock, end, run, at_end) => result,
                why = failure_of(&mut peer) => Err(why),
            };
            if let Err(why) = result {
                programs.board.fail(why);
            }
        });
        programs.end_all();
        // The far program serves until the end of the run. An error exit after the near program was
        // terminated early is no failure.
        runtime.block_on(task.quit());
        if let Some(peer) = peer {
            peer.signal(Signal::SIGTERM);
            peer.end();
        }
    })
}

/// Sets the flow's algorithm as the host's default, if the flow names an algorithm.
fn choose_algorithm(task: &Task, end: &FlowEnd) -> Result<(), LabError> {
    if task.plan.cc.is_empty() {
        return Ok(());
    }
    let name = tcp::algorithm(&task.plan.cc).to_owned();
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    let choose = move || match std::fs::write(path, &name) {
        // An unprivileged host may only choose algorithms that the machine allows to everybody.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => prefer_algorithm(&name),
        done => done,
    };
    end.run(choose)?.map_err(|error| task.failed(tcp::refused_algorithm(&task.plan.cc, &error)))
}

/// Starts the far program and waits until the program listens or the time limit passes.
fn start_peer(task: &Task, files: &TempDir) -> Result<Option<Running>, LabError> {
    let (_, command) = task.plan.commands();
    if command.is_empty() {
        return Ok(None);
    }
    let before = task.far.run(listening)?;
    let mut peer = start(task, &task.far, command, files, "far")?;
    let started = Instant::now();
    while started.elapsed() < LISTEN_TIMEOUT {
        if let Some(why) = peer.failure() {
            peer.end();
            return Err(task.failed(why));
        }
        if !task.far.run(listening)?.is_subset(&before) {
            break;
        }
        std::thread::sleep(TICK);
    }
    Ok(Some(peer))
}

/// Waits until the far program fails; never returns if the program does not fail.
async fn failure_of(peer: &mut Option<Running>) -> String {
    loop {
        if let Some(why) = peer.as_mut().and_then(Running::failure) {
            return why;
        }
        sleep(TICK).await;
    }
}

async fn run_copy(
    programs: &Programs,
    task: &Task,
    files: &TempDir,
    clock: Clock,
    copy: Copy,
) -> Result<(), String> {
    let number = copy.number;
    let name = format!("near-{number}");
    let running = start(task, &task.near, task.plan.commands().0, files, &name);
    let running = running.map_err(|error| match error {
        LabError::Flow { why, .. } => why,
        error => error.to_string(),
    })?;
    programs.board.start(number, clock.now());
    lock(&programs.near).insert(number, running);
    loop {
        sleep(TICK).await;
        let mut near = lock(&programs.near);
        let Some(running) = near.get_mut(&number) else { return Ok(()) };
        if let Some(status) = running.ended() {
            let why = running.failure_with(status);
            near.remove(&number);
            drop(near);
            if let Some(why) = why {
                return Err(why);
            }
            let now = clock.now();
            programs.board.complete(number, now);
            programs.board.retire(number, now);
            return Ok(());
        }
    }
}

/// Starts a program, with `{near}` and `{far}` in its arguments replaced by the addresses.
fn start(
    task: &Task,
    end: &FlowEnd,
    arguments: &[String],
    files: &TempDir,
    file: &str,
) -> Result<Running, LabError> {
    let (near, far) = (task.near.address().to_string(), task.far.address().to_string());
    let mut words =
        arguments.iter().map(|word| word.replace("{near}", &near).replace("{far}", &far));
    let name = words.next().unwrap_or_default();
    let (output, errors) =
        (files.path().join(format!("{file}.out")), files.path().join(format!("{file}.err")));
    let create = |path| File::create(path).map_err(LabError::system("keep what a program writes"));
    let mut command = Command::new(&name);
    command.args(words).stdin(Stdio::null()).stdout(create(&output)?).stderr(create(&errors)?);
    let child = end.spawn(command)?;
    Ok(Running { name, child, ended: None, errors, output })
}

impl Running {
    /// Returns the exit status if the program has ended.
    fn ended(&mut self) -> Option<ExitStatus> {
        self.ended = self.ended.or_else(|| self.child.try_wait().ok().flatten());
        self.ended
    }

    /// Returns the reason if the program has failed.
    fn failure(&mut self) -> Option<String> {
        self.ended().and_then(|status| self.failure_with(status))
    }

    fn failure_with(&self, status: ExitStatus) -> Option<String> {
        let how = match (status.code(), status.signal()) {
            (Some(0), _) => return None,
            (Some(code), _) => format!("ended with code {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended badly".to_owned(),
        };
        let said = [&self.errors, &self.output].into_iter().find_map(last_line);
        let said =
            said.map_or_else(|| "it said nothing".to_owned(), |line| format!("it said: {line}"));
        Some(format!("'{}' {how}; {said}", self.name))
    }

    /// Sends a signal to the program and its descendants.
    fn signal(&self, signal: Signal) {
        if let (None, Ok(group)) = (self.ended, i32::try_from(self.child.id())) {
            // The program leads its own process group, which may be gone by now.
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }

    /// Waits for the program to end; sends SIGKILL after the time limit.
    fn end(mut self) {
        let started = Instant::now();
        while self.ended().is_none() {
            if started.elapsed() >= END_TIMEOUT {
                self.signal(Signal::SIGKILL);
                // SIGKILL cannot be ignored.
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Returns the last non-empty line at the end of a file.
fn last_line(path: &PathBuf) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    let shown = line.chars().filter(|c| !c.is_control()).take(LINE_MAX).collect();
    Some(shown)
}

/// Returns the listening ports in the namespace of the calling thread: table and local end.
fn listening() -> BTreeSet<(&'static str, String)> {
    // A listening TCP socket, and a UDP socket without a peer.
    let tables = [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")];
    let mut found = BTreeSet::new();
    for (table, wanted) in tables {
        let path = format!("/proc/thread-self/net/{table}");
        for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
            let mut words = line.split_whitespace();
            if let (Some(_), Some(local), Some(_), Some(state)) =
                (words.next(), words.next(), words.next(), words.next())
                && state == wanted
            {
                found.insert((table, local.to_owned()));
            }
        }
    }
    found
}

// ---- gauges
// --------------------------------------------------------------------------------------

impl Engine for Arc<Programs> {
    fn refresh(&self) {
        self.query_kernel(SAMPLE_INTERVAL);
    }

    fn counts_by_router(&self) -> bool {
        true
    }
}

impl Programs {
    /// Terminates the remaining near programs: signals all programs before waiting for any.
    fn end_all(&self) {
        let left = std::mem::take(&mut *lock(&self.near));
        for running in left.values() {
            running.signal(Signal::SIGTERM);
        }
        for (_, running) in left {
            running.end();
        }
    }

    /// Queries the kernel about the host's connections if the last query is older than `age`, and
    /// shows the connection with the most bytes acknowledged.
    fn query_kernel(&self, age: Duration) {
        let mut info = lock(&self.info);
        let (kernel, queried_at) = &mut *info;
        if queried_at.is_some_and(|queried_at| queried_at.elapsed() < age) {
            return;
        }
        *queried_at = Some(Instant::now());
        // After a failed query the older figures remain, and the next look repeats the query.
        let samples = kernel.sample().unwrap_or_default();
        let most = samples.iter().max_by_key(|sample: &&TcpSample| sample.bytes_acked);
        let Some(gauges) = most.map(|sample| tcp::gauges(sample, self.is_paced)) else { return };
        self.show(gauges);
    }

    fn show(&self, gauges: Gauges) {
        for copy in lock(&self.near).keys() {
            self.board.update(*copy, Counters::default(), Some(gauges));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_nonblank_line_of_output_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("said");
        std::fs::write(&path, "x".repeat(10_000) + "\nfirst\n  second\x1b[0m \n\n").unwrap();
        assert_eq!(last_line(&path).as_deref(), Some("second[0m"));
        std::fs::write(&path, "\n \n").unwrap();
        assert_eq!(last_line(&path), None);
        assert_eq!(last_line(&dir.path().join("nothing")), None);
    }

    #[test]
    fn listeners_of_both_transports_are_detected() {
        let before = listening();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("[::1]:0").unwrap();
        let has = |table, port: u16| {
            let end = format!(":{port:04X}");
            let found = listening();
            found.iter().any(|(name, local)| *name == table && local.ends_with(&end))
        };
        assert!(has("tcp", tcp.local_addr().unwrap().port()));
        assert!(has("udp6", udp.local_addr().unwrap().port()));
        assert!(!listening().is_subset(&before));
    }
}
