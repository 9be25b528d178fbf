//! `sabul queue run`: takes jobs from the queue and carries them out.
//!
//! States:      one loop in one thread. Each attempt has a thread that waits for its child and sends events to the loop.
//! Invariants:  a change of a job is in the store before the next step. One runner has the lock of the queue.
//!              When the runner dies, the kernel kills its attempts, and the next runner continues their jobs.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::process::setsid;
use sabul_queue::folder::{self, RunnerLock};
use sabul_queue::{Ending, Job, JobId, Outcome, Progress, Request, State, Timetable, now_ms};
use sabul_units::{Rate, count};

use super::attempt::{Attempt, Event, report};
use super::open::Queue;
use crate::args::QueueRunArgs;
use crate::error::CliError;
use crate::options::own_program;
use crate::stop::Stop;
use crate::{exit, output};

/// Ours: interval of the runner; new jobs and requests of users take effect within this time.
const TICK: Duration = Duration::from_millis(500);
/// Ours: interval while a hook runs, whose end causes no event.
const HOOK_TICK: Duration = Duration::from_millis(20);
/// Ours: maximum number of hooks at the same time.
const HOOKS_MAX: usize = 8;
/// Exit code of an attempt that was interrupted.
const INTERRUPTED: Option<i32> = Some(exit::INTERRUPTED as i32);
/// Ours: pause after a hook whose process failed.
const HOOK_PAUSE: Duration = Duration::from_secs(10);
/// Ours: ended jobs are kept for this time.
const KEEP_MS: i64 = 30 * 86_400_000;

/// Runs `sabul queue run` and returns the exit code.
pub(super) fn run(args: QueueRunArgs) -> Result<u8, CliError> {
    if args.background {
        // An error means that the process has a session of its own already.
        let _ = setsid();
    }
    let stop = Stop::listen()?;
    let mut queue = Queue::open()?;
    loop {
        let failed = |error| CliError::failed(format!("cannot lock the queue: {error}"));
        let Some(lock) = RunnerLock::take(&queue.folder).map_err(failed)? else {
            if args.background {
                return Ok(exit::DONE);
            }
            let pid = RunnerLock::holder(&queue.folder).map_err(failed)?.unwrap_or(0);
            return Err(CliError::failed(format!(
                "another runner of this user runs, process {pid}; 'sabul queue list' shows its jobs"
            )));
        };
        let mut runner = Runner::new(queue, &args)?;
        let code = runner.work(&stop)?;
        queue = runner.queue;
        drop(lock);
        // A job that was added before the lock was released relied on this runner.
        if !args.drain || stop.is_requested() || queue.store.next_ms()?.is_none() {
            return Ok(code);
        }
    }
}

#[derive(Debug)]
struct Runner {
    queue: Queue,
    timetable: Timetable,
    jobs_max: usize,
    mode: Mode,
    attempts: BTreeMap<JobId, Attempt>,
    hooks: BTreeMap<JobId, Hook>,
    events: Sender<Event>,
    received: Receiver<Event>,
}

/// End of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// An interrupt.
    Forever,
    /// No job waits.
    Drain,
    /// The end of the first attempt.
    Once,
}

/// Process of a hook, or the time of the next start after a failure.
#[derive(Debug)]
enum Hook {
    Running(Child),
    Failed(Instant),
}

impl Runner {
    /// Continues the jobs of a runner that has died.
    fn new(mut queue: Queue, args: &QueueRunArgs) -> Result<Self, CliError> {
        for (id, state) in queue.store.recover(now_ms())? {
            report(format_args!("job {id} was interrupted; its state is '{state}'"));
        }
        queue.store.remove_ended(now_ms() - KEEP_MS)?;
        let mode = match (args.once, args.drain) {
            (true, _) => Mode::Once,
            (false, true) => Mode::Drain,
            (false, false) => Mode::Forever,
        };
        let (events, received) = mpsc::channel();
        Ok(Self {
            queue,
            timetable: args.timetable.clone().unwrap_or_default(),
            jobs_max: args.jobs.into(),
            mode,
            attempts: BTreeMap::new(),
            hooks: BTreeMap::new(),
            events,
            received,
        })
    }

    /// Works until the end of its mode or an interrupt; returns the exit code.
    fn work(&mut self, stop: &Stop) -> Result<u8, CliError> {
        let mut once = None;
        loop {
            let is_stopping = stop.is_requested();
            self.stop_attempts(is_stopping)?;
            let may_start = !is_stopping && (self.mode != Mode::Once || once.is_none());
            if may_start && self.start_jobs()? && self.mode == Mode::Once {
                // Without an attempt, the command could not be started.
                once = Some(if self.attempts.is_empty() { exit::FAILED } else { exit::DONE });
            }
            if !is_stopping {
                self.run_hooks()?;
            }
            self.set_limits();
            if self.attempts.is_empty() {
                let is_idle = self.queue.store.hooks()?.is_empty();
                match (self.mode, once) {
                    _ if is_stopping => return Ok(exit::INTERRUPTED),
                    (Mode::Once, Some(code)) if is_idle => return Ok(code),
                    (Mode::Once, None) => {
                        output::note("no job is due");
                        return Ok(exit::DONE);
                    }
                    (Mode::Drain, _) if is_idle && self.queue.store.next_ms()?.is_none() => {
                        return Ok(exit::DONE);
                    }
                    _ => {}
                }
            }
            let may_start = may_start && self.mode != Mode::Once;
            if let Some(code) = self.receive(stop, may_start)? {
                once = Some(code);
            }
        }
    }

    /// Stops the attempts of jobs that a user paused or cancelled, or all.
    fn stop_attempts(&mut self, is_stopping: bool) -> Result<(), CliError> {
        if is_stopping {
            self.attempts.values_mut().for_each(Attempt::stop);
        } else if !self.attempts.is_empty() {
            for (id, Request::Pause | Request::Cancel) in self.queue.store.requests()? {
                if let Some(attempt) = self.attempts.get_mut(&id) {
                    attempt.stop();
                }
            }
        }
        Ok(())
    }

    /// Starts jobs whose time has come. Returns whether an attempt was started.
    fn start_jobs(&mut self) -> Result<bool, CliError> {
        let mut has_started = false;
        let jobs_max = if self.mode == Mode::Once { 1 } else { self.jobs_max };
        while self.attempts.len() < jobs_max {
            let Some(job) = self.queue.store.take(now_ms())? else { break };
            has_started = true;
            let limit = self.share(self.attempts.len() + 1);
            match Attempt::start(&job, &self.queue.folder, limit, &self.events) {
                Ok(attempt) => {
                    report(format_args!("job {}: attempt {}", job.id, job.attempts));
                    self.attempts.insert(job.id, attempt);
                }
                Err(error) => {
                    let message = Some(format!("cannot start the command: {error}"));
                    let outcome = Outcome::Retry;
                    let progress = Progress::default();
                    let end = Ending { outcome, code: None, message, progress, has_moved: false };
                    self.finish(job.id, &end)?;
                }
            }
        }
        Ok(has_started)
    }

    /// Returns the part of the present limit for each of this number of jobs.
    fn share(&self, jobs: usize) -> Option<Rate> {
        let limit = self.timetable.limit(now_ms())?;
        Some(Rate((limit.0 / jobs.max(1) as u64).max(1)))
    }

    fn set_limits(&mut self) {
        let share = self.share(self.attempts.len());
        self.attempts.values_mut().for_each(|attempt| attempt.set_limit(share));
    }

    /// Waits for events, at most for one interval. Returns the exit code of an attempt that has ended.
    fn receive(&mut self, stop: &Stop, may_start: bool) -> Result<Option<u8>, CliError> {
        let deadline = Instant::now() + self.pause(may_start)?;
        loop {
            let pause = deadline.saturating_duration_since(Instant::now());
            match self.received.recv_timeout(pause) {
                Ok(Event::Progress(id, progress)) => {
                    self.queue.store.set_progress(id, &progress)?;
                }
                Ok(Event::Ended(id, mut ending)) => {
                    let attempt = self.attempts.remove(&id);
                    let is_stopped = attempt.is_some_and(|attempt| attempt.is_stopped());
                    // A signal to the whole group reaches the attempt, too.
                    let is_interrupted = stop.is_requested() && ending.code == INTERRUPTED;
                    if ending.outcome == Outcome::Retry && (is_stopped || is_interrupted) {
                        ending.outcome = Outcome::Interrupted;
                    }
                    self.finish(id, &ending)?;
                    let ended = ending.code.and_then(|code| u8::try_from(code).ok());
                    return Ok(Some(ended.unwrap_or(exit::FAILED)));
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Returns the time until the next step without an event.
    fn pause(&self, may_start: bool) -> Result<Duration, CliError> {
        let has_hook = self.hooks.values().any(|hook| matches!(hook, Hook::Running(_)));
        let tick = if has_hook { HOOK_TICK } else { TICK };
        if !may_start || self.attempts.len() >= self.jobs_max {
            return Ok(tick);
        }
        let until = self.queue.store.next_ms()?.map(|next| u64::try_from(next - now_ms()));
        // Not before the clock has reached the next millisecond.
        let until = until.map(|ms| Duration::from_millis(ms.unwrap_or(0).max(1)));
        Ok(until.unwrap_or(tick).min(tick))
    }

    /// Records the end of an attempt.
    fn finish(&mut self, id: JobId, ending: &Ending) -> Result<(), CliError> {
        let Some(state) = self.queue.store.finish(id, ending, now_ms())? else { return Ok(()) };
        let message = ending.message.as_deref().unwrap_or_default();
        let job = self.queue.store.job(id)?;
        report(format_args!("job {id}: {}", describe(state, job.as_ref(), message)));
        if state.is_end() && job.is_none_or(|job| job.command.hook.is_none()) {
            folder::remove_job_lock(&self.queue.folder, id);
        }
        Ok(())
    }

    /// Starts the hooks of ended jobs, and removes the processes of hooks that have ended.
    fn run_hooks(&mut self) -> Result<(), CliError> {
        for hook in self.hooks.values_mut() {
            if let Hook::Running(child) = hook
                && let Ok(Some(_)) | Err(_) = child.try_wait()
            {
                *hook = Hook::Failed(Instant::now());
            }
        }
        let due = self.queue.store.hooks()?;
        self.hooks.retain(|id, hook| matches!(hook, Hook::Running(_)) || due.contains(id));
        for id in due {
            let running =
                self.hooks.values().filter(|hook| matches!(hook, Hook::Running(_))).count();
            let is_due = match self.hooks.get(&id) {
                None => true,
                Some(Hook::Failed(at)) => at.elapsed() > HOOK_PAUSE,
                Some(Hook::Running(_)) => false,
            };
            if !is_due || running >= HOOKS_MAX || self.attempts.contains_key(&id) {
                continue;
            }
            let program = own_program();
            let started = program.and_then(|program| {
                let mut command = Command::new(program);
                command.args(["queue", "hook", &id.to_string()]).stdin(Stdio::null());
                command.stdout(std::io::stderr()).spawn()
            });
            let hook = started.map(Hook::Running).unwrap_or_else(|error| {
                report(format_args!("job {id}: cannot start the hook: {error}"));
                Hook::Failed(Instant::now())
            });
            self.hooks.insert(id, hook);
        }
        Ok(())
    }
}

/// Describes the state of a job after an attempt.
fn describe(state: State, job: Option<&Job>, message: &str) -> String {
    let wait = job.map_or(0, |job| (job.times.due_ms - now_ms()).max(0) / 1000);
    match (state, job) {
        (State::Waiting, Some(job)) if job.failures > 0 => {
            let failures = count(job.failures.into(), "failure");
            format!("next attempt in {wait} s, after {failures}: {message}")
        }
        _ => format!("{state}: {message}"),
    }
}
