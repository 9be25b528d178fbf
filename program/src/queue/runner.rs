//! `sabul queue run`: takes jobs from the queue and carries them out.
//!
//! States:      one loop in one thread. Each attempt has a thread that waits for its child and sends events to the loop.
//! Invariants:  a change of a job is in the store before the next step. One runner has the lock of the queue.
//!              When the runner dies, the kernel kills its attempts, and the next runner continues their jobs.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::process::setsid;
use sabul_queue::folder::{self, RunnerLock};
use sabul_queue::{Ending, Job, JobId, Jobs, Outcome, Progress, Request, State, Timetable, now_ms};
use sabul_units::{Rate, count};

use super::attempt::{Attempt, Event, report};
use super::leases::Renewal;
use super::open::{Queue, STORE};
use crate::args::{QueueRunArgs, WorkerArgs};
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

/// Ours: interval of the search for jobs of workers that were lost.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(1);
/// Ours: time for the attempts to end after an error of the queue.
const END_TIMEOUT: Duration = Duration::from_secs(25);

/// Runs `sabul queue run` and returns the exit code.
pub(super) fn run(args: &QueueRunArgs, store: Option<&OsStr>) -> Result<u8, CliError> {
    if args.background {
        // An error means that the process has a session of its own already.
        let _ = setsid();
    }
    let stop = Stop::listen()?;
    let mut queue = Queue::open_for(store, Some(&stop))?;
    queue.enter(&args.worker)?;
    loop {
        let failed = |error| CliError::failed(format!("cannot lock the queue: {error}"));
        let Some(lock) = RunnerLock::take(&queue.folder).map_err(failed)? else {
            if args.background {
                return Ok(exit::DONE);
            }
            let pid = RunnerLock::holder(&queue.folder).map_err(failed)?.unwrap_or(0);
            let why = if queue.is_site() { "; use another name with --worker" } else { "" };
            return Err(CliError::failed(format!(
                "another runner of this user runs, process {pid}; 'sabul queue list' shows its jobs{why}"
            )));
        };
        queue.become_worker(&args.worker, args.worker.lease)?;
        let mut runner = Runner::new(queue, args, store)?;
        let worked = runner.work(&stop);
        if worked.is_err() {
            runner.end_attempts();
        }
        queue = runner.queue;
        drop(lock);
        let code = match worked {
            // The leases of the jobs end, and other workers continue.
            Err(error) if stop.is_requested() && error.is_lost() => {
                report(error);
                return Ok(exit::INTERRUPTED);
            }
            worked => worked?,
        };
        // A job that was added before the lock was released relied on this runner.
        if !args.drain || stop.is_requested() || queue.store.next_in_ms(now_ms())?.is_none() {
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
    /// Time for running jobs after an interrupt, and the time of the interrupt.
    grace: (Duration, Option<Instant>),
    /// Present at a site.
    site: Option<Worker>,
}

/// Worker of a site.
#[derive(Debug)]
struct Worker {
    store: OsString,
    args: WorkerArgs,
    renewal: Renewal,
    /// Time of the last search for jobs of workers that were lost.
    recovered: Instant,
}

impl Worker {
    fn start(
        queue: &Queue,
        args: &WorkerArgs,
        store: Option<&OsStr>,
    ) -> Result<Option<Self>, CliError> {
        let (Jobs::Site(site), Some(store)) = (&queue.store, store) else { return Ok(None) };
        let (store, args, recovered) = (store.to_owned(), args.clone(), Instant::now());
        Ok(Some(Self { store, args, renewal: Renewal::start(site)?, recovered }))
    }
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
    fn new(mut queue: Queue, args: &QueueRunArgs, store: Option<&OsStr>) -> Result<Self, CliError> {
        for (id, state) in queue.store.recover(now_ms())? {
            report(format_args!("job {id} was interrupted; its state is '{state}'"));
        }
        queue.store.remove_ended(KEEP_MS, now_ms())?;
        let mode = match (args.once, args.drain) {
            (true, _) => Mode::Once,
            (false, true) => Mode::Drain,
            (false, false) => Mode::Forever,
        };
        let (events, received) = mpsc::channel();
        let site = Worker::start(&queue, &args.worker, store)?;
        Ok(Self {
            queue,
            site,
            grace: (args.grace.unwrap_or_default(), None),
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
            let is_over = is_stopping && self.is_grace_over();
            self.stop_attempts(is_over)?;
            self.recover_others()?;
            let may_start = !is_stopping && (self.mode != Mode::Once || once.is_none());
            if may_start && self.start_jobs()? && self.mode == Mode::Once {
                // Without an attempt, the command could not be started.
                once = Some(if self.attempts.is_empty() { exit::FAILED } else { exit::DONE });
            }
            if !is_over {
                self.run_hooks()?;
            }
            self.set_limits();
            if self.attempts.is_empty() {
                let is_idle = self.queue.store.hooks()?.is_empty();
                match (self.mode, once) {
                    _ if is_over || is_stopping && is_idle => return Ok(exit::INTERRUPTED),
                    (Mode::Once, Some(code)) if is_idle => return Ok(code),
                    (Mode::Once, None) => {
                        output::note("no job is due");
                        return Ok(exit::DONE);
                    }
                    (Mode::Drain, _)
                        if is_idle && self.queue.store.next_in_ms(now_ms())?.is_none() =>
                    {
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

    /// Whether the time for running jobs after an interrupt is over.
    fn is_grace_over(&mut self) -> bool {
        let (grace, since) = &mut self.grace;
        if since.is_none() && !grace.is_zero() && !self.attempts.is_empty() {
            let seconds = grace.as_secs();
            report(format_args!("no further job starts; running jobs have {seconds} s to end"));
        }
        since.get_or_insert_with(Instant::now).elapsed() >= *grace
    }

    /// Lets jobs of workers that were lost wait for their next attempts.
    fn recover_others(&mut self) -> Result<(), CliError> {
        let Some(site) = &mut self.site else { return Ok(()) };
        if site.recovered.elapsed() >= RECOVERY_INTERVAL {
            site.recovered = Instant::now();
            for (id, state) in self.queue.store.recover_others()? {
                report(format_args!("job {id}: its worker was lost; the state is '{state}'"));
            }
        }
        Ok(())
    }

    /// Ends all attempts after an error of the queue. Their ends are not recorded.
    fn end_attempts(&mut self) {
        let deadline = Instant::now() + END_TIMEOUT;
        while !self.attempts.is_empty() && Instant::now() < deadline {
            self.attempts.values_mut().for_each(Attempt::stop);
            if let Ok(Event::Ended(id, _)) = self.received.recv_timeout(TICK) {
                self.attempts.remove(&id);
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
                Ok(mut attempt) => {
                    report(format_args!("job {}: attempt {}", job.id, job.attempts));
                    if let Some(site) = &self.site
                        && let Err(error) = site.renewal.add(job.id, attempt.pid())
                    {
                        // The end of the lease could not end this attempt.
                        report(format_args!(
                            "job {}: the attempt ends: no process handle: {error}",
                            job.id
                        ));
                        attempt.stop();
                    }
                    self.attempts.insert(job.id, attempt);
                }
                Err(error) => {
                    let directory = String::from_utf8_lossy(&job.command.directory);
                    let message =
                        Some(format!("cannot start the command in '{directory}': {error}"));
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
                    let has_lost = self.site.as_ref().is_some_and(|site| site.renewal.remove(id));
                    let is_interrupted = is_interrupted || is_stopped || has_lost;
                    if ending.outcome == Outcome::Retry && is_interrupted {
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
    fn pause(&mut self, may_start: bool) -> Result<Duration, CliError> {
        let has_hook = self.hooks.values().any(|hook| matches!(hook, Hook::Running(_)));
        let tick = if has_hook { HOOK_TICK } else { TICK };
        if !may_start || self.attempts.len() >= self.jobs_max {
            return Ok(tick);
        }
        let until = self.queue.store.next_in_ms(now_ms())?.map(u64::try_from);
        // Not before the clock has reached the next millisecond.
        let until = until.map(|ms| Duration::from_millis(ms.unwrap_or(0).max(1)));
        Ok(until.unwrap_or(tick).min(tick))
    }

    /// Records the end of an attempt.
    fn finish(&mut self, id: JobId, ending: &Ending) -> Result<(), CliError> {
        let Some(state) = self.queue.store.finish(id, ending, now_ms())? else {
            if self.site.is_some() {
                report(format_args!("job {id}: the lease was lost; a worker runs the job again"));
            }
            return Ok(());
        };
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
                if let Some(Worker { store, args, .. }) = &self.site {
                    command.env(STORE, store).arg(format!("--lease={}s", args.lease.as_secs()));
                    command.args(args.worker.as_ref().map(|name| format!("--worker={name}")));
                }
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
