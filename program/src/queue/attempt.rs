//! One attempt of a job: a child process with its progress, its messages and its end.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sabul_front::control_socket::client;
use sabul_front::control_socket::messages::Change;
use sabul_queue::{Ending, Job, JobId, Outcome, Progress, folder, now_ms, show_time};
use sabul_units::Rate;
use serde_json::Value;

use crate::options::own_program;
use crate::{args, exit, output};

/// Ours: maximum length of a line of the child in bytes; the last line names each failed file.
const LINE_MAX: u64 = 64 << 20;
/// Ours: time for the output of a child that has ended. A process that the child left behind can keep the pipe open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);
/// Ours: time for an attempt to end in order, before the attempt is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Ours: interval between two changes of the limit of an attempt that does not answer.
const LIMIT_INTERVAL: Duration = Duration::from_secs(1);

/// Event of an attempt.
#[derive(Debug)]
pub(super) enum Event {
    /// Progress of the copy.
    Progress(JobId, Progress),
    /// The attempt has ended.
    Ended(JobId, Ending),
}

/// Running attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    pid: u32,
    process: OwnedFd,
    /// Time of the request to end.
    stopped: Option<Instant>,
    /// Rate limit and minimum rate of the command itself.
    own: (Option<Rate>, Option<Rate>),
    /// Limit in force.
    limit: Option<Rate>,
    limit_tried: Instant,
}

impl Attempt {
    /// Starts the command of a job below this limit of the timetable.
    ///
    /// # Errors
    ///
    /// If no process can be started.
    pub(super) fn start(
        job: &Job,
        queue: &Path,
        limit: Option<Rate>,
        events: &Sender<Event>,
    ) -> io::Result<Self> {
        let mut command = command(job, queue, limit)?;
        let (id, events) = (job.id, events.clone());
        let (started, start) = mpsc::sync_channel(1);
        // The kernel kills the child at the end of the thread that started it, so the thread waits for the child.
        thread::Builder::new().name(format!("job {id}")).spawn(move || {
            let opened = command.spawn().and_then(|child| {
                let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
                Ok((child, process))
            });
            match opened {
                Ok((child, process)) => {
                    let _ = started.send(Ok((child.id(), process)));
                    let ending = follow(id, child, &events);
                    let _ = events.send(Event::Ended(id, ending));
                }
                Err(error) => drop(started.send(Err(error))),
            }
        })?;
        let (pid, process) = start
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the thread of the job ended")))?;
        let own = own_rates(job);
        let limit = args::limit(limit, own.0, own.1);
        Ok(Self { pid, process, stopped: None, own, limit, limit_tried: Instant::now() })
    }

    /// Returns the process id.
    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the attempt was stopped.
    pub(super) const fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Requests the end of the attempt. Kills an attempt that does not end.
    pub(super) fn stop(&mut self) {
        let signal = match self.stopped {
            None => Signal::TERM,
            Some(at) if at.elapsed() > STOP_TIMEOUT => Signal::KILL,
            Some(_) => return,
        };
        self.stopped = Some(Instant::now());
        // An attempt that has ended needs no signal.
        let _ = pidfd_send_signal(&self.process, signal);
    }

    /// Changes the limit of the running copy to that of the timetable. A copy that does not answer keeps its limit until
    /// the next call.
    pub(super) fn set_limit(&mut self, limit: Option<Rate>) {
        let limit = args::limit(limit, self.own.0, self.own.1);
        if limit == self.limit || self.is_stopped() || self.limit_tried.elapsed() < LIMIT_INTERVAL {
            return;
        }
        self.limit_tried = Instant::now();
        let bps = limit.map_or(0, |rate| rate.0);
        let change = Change { rate_limit_bps: Some(bps), ..Change::default() };
        if client::set(None, Some(self.pid), &change).is_ok() {
            self.limit = limit;
        }
    }
}

/// Returns the command that runs a job.
fn command(job: &Job, queue: &Path, limit: Option<Rate>) -> io::Result<Command> {
    let words: Vec<&OsStr> = job.command.words.iter().map(|word| OsStr::from_bytes(word)).collect();
    let (name, rest) =
        words.split_first().ok_or_else(|| io::Error::other("the job has no command"))?;
    let mut command = Command::new(own_program()?);
    command.args(["queue", "attempt", "--runner", &std::process::id().to_string(), "--lock"]);
    command.arg(folder::job_lock(queue, job.id)?).arg("--");
    command.arg(name).args(["--json-lines", "--batch"]);
    if let Some(limit) = limit {
        command.arg(format!("--queue-limit={}", limit.0));
    }
    command.args(rest).current_dir(OsStr::from_bytes(&job.command.directory));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"SABUL_"))
    {
        command.env_remove(name);
    }
    for variable in &job.command.environment {
        let Some(at) = variable.iter().position(|&byte| byte == b'=') else { continue };
        let [name, value] = [&variable[..at], &variable[at + 1..]].map(OsStr::from_bytes);
        // The agent of a session that has ended is replaced by that of the runner.
        if name != "SSH_AUTH_SOCK" || Path::new(value).exists() {
            command.env(name, value);
        }
    }
    command.env("SSH_ASKPASS_REQUIRE", "never");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Returns the rate limit and the minimum rate of the command itself.
fn own_rates(job: &Job) -> (Option<Rate>, Option<Rate>) {
    let words: Vec<OsString> =
        job.command.words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
    let flags = args::flags_of(&words, &[]);
    let rate = |flag: &str| {
        flags.iter().rev().find_map(|word| word.to_str()?.strip_prefix(flag)?.parse().ok())
    };
    (rate("--bwlimit="), rate("--min-rate="))
}

/// Writes a line with its time to standard error, which is the log of a runner in the background.
pub(super) fn report(line: impl Display) {
    output::note(format_args!("{} {line}", show_time(now_ms())));
}

/// Waits for the end of a child and passes its progress on.
fn follow(id: JobId, mut child: Child, events: &Sender<Event>) -> Ending {
    let (done, last_event) = mpsc::sync_channel(1);
    if let Some(output) = child.stdout.take() {
        let events = events.clone();
        thread::spawn(move || done.send(read_events(id, output, &events)));
    }
    let (said, last_line) = mpsc::sync_channel(1);
    if let Some(output) = child.stderr.take() {
        thread::spawn(move || said.send(pass_on(id, output)));
    }
    let status = child.wait();
    let (document, progress) = last_event.recv_timeout(OUTPUT_TIMEOUT).unwrap_or_default();
    let last_line = last_line.recv_timeout(OUTPUT_TIMEOUT).unwrap_or_default();
    ending(status, &document, progress, last_line)
}

/// Reads the events of a copy. Returns the last one, which is null without an end, and the progress.
fn read_events(id: JobId, output: impl Read, events: &Sender<Event>) -> (Value, Progress) {
    let (mut document, mut progress) = (Value::Null, Progress::default());
    for_lines(output, |line| {
        // Lines that are no events are not for the queue.
        let Ok(event) = serde_json::from_slice::<Value>(line) else { return };
        let kind = event["event"].as_str();
        if !matches!(kind, Some("progress" | "done")) {
            return;
        }
        progress.bytes = event["bytes"].as_u64().unwrap_or(progress.bytes);
        progress.bytes_total = event["bytes_total"].as_u64().or(progress.bytes_total);
        progress.goodput_bps = event["goodput_bps"].as_f64().unwrap_or_default();
        if kind == Some("done") {
            document = event;
        } else {
            let _ = events.send(Event::Progress(id, progress));
        }
    });
    (document, progress)
}

/// Passes the messages of a copy on to standard error, and returns the last one.
fn pass_on(id: JobId, output: impl Read) -> Option<String> {
    let mut last = None;
    for_lines(output, |line| {
        let line = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        report(format_args!("job {id}: {line}"));
        if !line.trim().is_empty() && !line.starts_with("hint: ") {
            last = Some(line);
        }
    });
    last
}

/// Calls `take` for each line until the end of the output.
fn for_lines(output: impl Read, mut take: impl FnMut(&[u8])) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while let Ok(1..) = output.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
        take(&line);
        line.clear();
    }
}

/// Returns the end of an attempt from its status and its last event.
fn ending(
    status: io::Result<ExitStatus>,
    document: &Value,
    progress: Progress,
    last_line: Option<String>,
) -> Ending {
    let (code, how) = match status {
        Ok(status) => (status.code(), status.to_string()),
        Err(error) => (None, error.to_string()),
    };
    let outcome = outcome(code);
    let bytes = |name: &str| document[name].as_u64().unwrap_or(0);
    // A copy that fails in part can find something to copy each time.
    let has_moved = bytes("bytes") > bytes("resumed_bytes") && code != Some(exit::FAILED.into());
    let message = error_of(document).or(last_line);
    let message = message.or_else(|| (outcome != Outcome::Done).then_some(how));
    Ending { outcome, code, message, progress, has_moved }
}

/// Returns the errors of a copy as one line.
fn error_of(document: &Value) -> Option<String> {
    let errors = document["errors"].as_array()?;
    let first = errors.first()?;
    let message = first["message"].as_str()?;
    let place = first["path"].as_str().map(|path| format!("{path}: ")).unwrap_or_default();
    let more = match errors.len() {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    Some(format!("{place}{message}{more}"))
}

/// Returns the meaning of the exit code of an attempt; `None` for an attempt that was killed.
pub(super) fn outcome(code: Option<i32>) -> Outcome {
    match code.and_then(|code| u8::try_from(code).ok()) {
        Some(exit::DONE) => Outcome::Done,
        // The command or the data has to be changed.
        Some(exit::USAGE | exit::VERIFICATION) => Outcome::Failed,
        // A person has to log in, or to make room.
        Some(exit::AUTHENTICATION | exit::DESTINATION) => Outcome::Blocked,
        // 1, 3, 7, 130, and the end by a signal.
        _ => Outcome::Retry,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_manual_has_the_meaning_of_each_exit_code() {
        let manual = include_str!("../../../docs/manual/queue.md");
        let words = |code: Option<i32>| match outcome(code) {
            Outcome::Done => "`done`",
            Outcome::Retry => "tried again",
            Outcome::Blocked => "`waiting for you`",
            Outcome::Failed => "`failed`",
            Outcome::Interrupted => "interrupted",
        };
        for code in [0, 1, 2, 3, 4, 5, 6, 7, 130] {
            let row = format!("| {code} | {} |", words(Some(code)));
            assert!(manual.contains(&row), "docs/manual/queue.md lacks '{row}'");
        }
        assert!(manual.contains(&format!("| killed by a signal | {} |", words(None))));
    }

    #[test]
    fn progress_and_the_end_come_from_the_events_of_the_copy() {
        let (events, seen) = mpsc::channel();
        let lines = "banner\n{\"event\":\"progress\",\"bytes\":5,\"bytes_total\":10,\"goodput_bps\":8}\n\
                     {\"event\":\"done\",\"bytes\":10,\"goodput_bps\":9,\"resumed_bytes\":4,\"errors\":[]}\n";
        let (document, progress) = read_events(3, lines.as_bytes(), &events);
        let expected = Progress { bytes: 10, bytes_total: Some(10), goodput_bps: 9.0 };
        assert_eq!(progress, expected);
        assert!(matches!(seen.try_recv().unwrap(), Event::Progress(3, Progress { bytes: 5, .. })));
        let unreachable = ExitStatus::from_raw(3 << 8);
        let end = ending(Ok(unreachable), &document, progress, Some("last".to_owned()));
        assert_eq!((end.outcome, end.code, end.has_moved), (Outcome::Retry, Some(3), true));
        assert_eq!(end.message.as_deref(), Some("last"));
    }

    #[test]
    fn a_copy_that_fails_in_part_has_no_progress() {
        let document = json!({ "bytes": 9, "resumed_bytes": 0,
                               "errors": [{ "path": "a", "message": "m" }, { "message": "n" }] });
        let end = ending(Ok(ExitStatus::from_raw(1 << 8)), &document, Progress::default(), None);
        assert!(!end.has_moved);
        assert_eq!(end.message.as_deref(), Some("a: m (and 1 more)"));
        let killed = ending(Ok(ExitStatus::from_raw(9)), &Value::Null, Progress::default(), None);
        assert_eq!((killed.code, killed.outcome), (None, Outcome::Retry));
        assert!(killed.message.unwrap().contains("signal"));
    }
}
