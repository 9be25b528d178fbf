//! `--detach` of `cp` and `sync`: the command becomes a job, and a runner starts in the background.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sabul_queue::folder::{self, RunnerLock};
use sabul_queue::{RETRY_FOR, Shown, now_ms};

use super::add;
use super::open::{Queue, store_of_environment};
use crate::args::{self, CopyArgs, JobArgs};
use crate::error::CliError;
use crate::options::own_program;
use crate::{exit, json, output};

/// Flags that the queue replaces.
const REPLACED: &[&str] = &["detach", "json", "json-lines"];
/// Ours: time for a runner to start. A busy machine needs a part of a second.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Puts the command of this process into the queue, and starts a runner if none runs.
pub(crate) fn run(name: &str, copy: &CopyArgs) -> Result<u8, CliError> {
    add::check(copy)?;
    let mut words = vec![OsString::from(name)];
    words.extend(args::given(name, REPLACED));
    words.push("--".into());
    words.extend(copy.places.iter().cloned());
    let settings =
        JobArgs { priority: 0, name: None, hook: None, retry_for: RETRY_FOR, not_before: None };
    let mut queue = Queue::open(store_of_environment().as_deref())?;
    let id = queue.store.add(&add::new_job(&settings, words)?, now_ms())?;
    if copy.json || copy.json_lines {
        json::print(&Shown::of(&add::job(&mut queue, id)?))?;
    } else {
        output::print_line(format_args!("job {id}: 'sabul queue show {id}' shows its progress"))?;
    }
    // The workers of a site run on their own.
    if !queue.is_site()
        && let Err(error) = start_runner(&queue.folder)
    {
        output::error(format_args!(
            "job {id} is in the queue, but no runner started: {error}; run 'sabul queue run'"
        ));
    }
    Ok(exit::DONE)
}

/// Starts a runner in the background, unless one runs, and waits until the runner has its lock.
fn start_runner(queue: &Path) -> io::Result<()> {
    if RunnerLock::holder(queue)?.is_some() {
        return Ok(());
    }
    let log = folder::open_log(queue)?;
    let mut runner = Command::new(own_program()?)
        .args(["queue", "run", "--drain", "--background"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if RunnerLock::holder(queue)?.is_some() {
            return Ok(());
        }
        match runner.try_wait()? {
            // The job has been done already, or another runner was faster.
            Some(status) if status.success() || Instant::now() > deadline => return Ok(()),
            Some(status) if RunnerLock::holder(queue)?.is_none() => {
                let log = folder::log(queue);
                let text = format!("{status}; see '{}'", log.display());
                return Err(io::Error::other(text));
            }
            _ if Instant::now() > deadline => {
                return Err(io::Error::other("it did not start within 10 s"));
            }
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Prints a note if no runner of this user runs. The workers of a site run on other machines.
pub(super) fn remark_without_runner(queue: &Queue) {
    if !queue.is_site()
        && let Ok(None) = RunnerLock::holder(&queue.folder)
    {
        output::note("no runner runs; start one: sabul queue run");
    }
}
