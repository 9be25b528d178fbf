//! Arguments of `sabul queue`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use sabul_queue::site::{LEASE_MAX, LEASE_MIN};
use sabul_queue::{JobId, Timetable, now_ms, parse_time};
use sabul_units::Rate;

use super::cp::parse_retry_time;
use super::ssh::SshArgs;
use crate::exit;
use crate::passing::Passing;

const ACTION_CODES: &str =
    "Exit codes: 0 done, 1 no such job, or not possible in its state, 2 usage or configuration.";

/// Arguments of `sabul queue`.
#[derive(Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(QUEUE_HELP, exit::SHORT_LIST))]
pub(crate) struct QueueArgs {
    /// Queue of a site in PostgreSQL: postgres://USER@HOST/DATABASE, or a FILE with such an address.
    ///
    /// Without this option and its variable, the queue is that of this user on this machine. An address with a password
    /// has to be in a file or in the variable.
    #[arg(
        long,
        global = true,
        value_name = "URL|FILE",
        env = "SABUL_QUEUE_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<OsString>,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: QueueCommand,
}

const QUEUE_HELP: &str = "\
A job is a `sabul cp` or `sabul sync` that a runner carries out, also after this terminal is closed, and after an \
interruption. The runner takes jobs by priority, then by age, and repeats failed attempts for three days. Jobs are in a \
database in ~/.local/state/sabul/queue. There is one runner for each user: `sabul queue run`, or the one that --detach \
starts, or a service of systemd.

A job whose login fails, or whose destination has no space, waits for you: remove the cause, then use `sabul queue retry`.

Examples:
  sabul cp --detach -r data host:
  sabul queue add --priority 5 -- sync -a data/ host:data
  sabul queue run --drain
  sabul queue list";

/// Commands of the queue.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// Add a copy to the queue
    Add(QueueAddArgs),
    /// List the jobs of this machine, or of another one
    List(QueueListArgs),
    /// Show all about a job
    Show(QueueShowArgs),
    /// Stop jobs until they are resumed
    #[command(after_help = ACTION_CODES, after_long_help = exit::below("Examples:\n  sabul queue pause 4 5", ACTION_CODES))]
    Pause(QueueActArgs),
    /// Let paused jobs run again
    #[command(after_help = ACTION_CODES, after_long_help = exit::below("Examples:\n  sabul queue resume 4 5", ACTION_CODES))]
    Resume(QueueActArgs),
    /// End jobs
    #[command(after_help = ACTION_CODES, after_long_help = exit::below("Examples:\n  sabul queue cancel 4 5", ACTION_CODES))]
    Cancel(QueueActArgs),
    /// Run jobs again that failed, were cancelled or wait for you
    #[command(after_help = ACTION_CODES, after_long_help = exit::below("Examples:\n  sabul queue retry 4 5", ACTION_CODES))]
    Retry(QueueActArgs),
    /// Run the jobs of this user
    Run(QueueRunArgs),
    /// Add a copy of each file that appears in a directory
    Watch(QueueWatchArgs),
    /// Become the command of a job. Started by the runner.
    #[command(hide = true)]
    Attempt(QueueAttemptArgs),
    /// Run the hook of a job. Started by the runner.
    #[command(hide = true)]
    Hook(QueueHookArgs),
}

/// Settings of a new job.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobArgs {
    /// Jobs of a higher priority run first.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1000..=1000))]
    pub(crate) priority: i32,
    /// Name of the job, for `sabul queue list`.
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// Run COMMAND with `sh -c` when the job has ended for good.
    ///
    /// The state is done, failed or cancelled. The environment has SABUL_JOB_ID, SABUL_JOB_STATE and
    /// SABUL_JOB_EXIT_CODE.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) hook: Option<OsString>,
    /// Repeat failed attempts for this time without progress, such as 7d.
    ///
    /// The unit is s, m, h or d. The pauses between attempts grow from 1 s to 1 h.
    #[arg(long, value_name = "TIME", default_value = "3d", value_parser = parse_retry_time)]
    pub(crate) retry_for: Duration,
    /// Start the job not before this time.
    ///
    /// A time of the day (22:00), a date (2026-12-24T22:00), or a time from now (12h).
    #[arg(long, value_name = "TIME", value_parser = parse_start)]
    pub(crate) not_before: Option<i64>,
}

/// Arguments of `sabul queue add`.
#[derive(Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below(ADD_HELP, exit::SHORT_LIST))]
#[command(override_usage = "sabul queue add [OPTIONS] -- cp|sync ARGUMENTS...")]
pub(crate) struct QueueAddArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Print the job as one JSON document (`sabul schema queue-job`).
    #[arg(long)]
    pub(crate) json: bool,
    /// The command: cp or sync, with its arguments.
    #[arg(required = true, num_args = 1.., value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

const ADD_HELP: &str = "\
The command is checked now and runs later, in the present working directory and with the present values of SABUL_SSH, \
SABUL_TICKET_FILE and SABUL_LOG. The queue has no tickets and keys, only the names of their files. The job runs without a \
terminal: ssh fails instead of a question.

Prints the number of the job.

Examples:
  sabul queue add -- cp -r data host:
  sabul queue add --not-before 22:00 --hook 'mail -s \"$SABUL_JOB_STATE\" me </dev/null' -- sync -a data/ host:data";

/// Arguments of `sabul queue list`.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(LIST_HELP, exit::LIST))]
pub(crate) struct QueueListArgs {
    /// List your queue on this machine, reached through ssh.
    #[arg(value_name = "[USER@]HOST:")]
    pub(crate) host: Option<String>,
    /// List all jobs, not only the last 20 of those that have ended.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON document (`sabul schema queue-list`).
    #[arg(long)]
    pub(crate) json: bool,
    /// Last, for its heading.
    #[command(flatten)]
    pub(crate) ssh: SshArgs,
}

const LIST_HELP: &str = "\
Examples:
  sabul queue list
  sabul queue list me@host:
  sabul queue list --all --json | jq '.jobs[] | select(.state == \"failed\")'";

/// Arguments of `sabul queue show`.
#[derive(Debug, Args)]
#[command(after_help = ACTION_CODES, after_long_help = exit::below("Examples:\n  sabul queue show 4", ACTION_CODES))]
pub(crate) struct QueueShowArgs {
    /// Number of the job.
    pub(crate) id: JobId,
    /// Print the job as one JSON document (`sabul schema queue-job`).
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `sabul queue pause`, `resume`, `cancel` and `retry`.
#[derive(Debug, Args)]
pub(crate) struct QueueActArgs {
    /// Numbers of the jobs.
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<JobId>,
}

/// Arguments of `sabul queue run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_CODES, after_long_help = exit::below(RUN_HELP, RUN_CODES))]
pub(crate) struct QueueRunArgs {
    /// Run one attempt of the next job, then exit with its code.
    #[arg(long, conflicts_with = "drain")]
    pub(crate) once: bool,
    /// Exit when no job waits for its turn or its next attempt.
    #[arg(long)]
    pub(crate) drain: bool,
    /// Number of jobs that run at the same time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: u16,
    /// Rate limits by time of the day, or a FILE with them.
    ///
    /// Windows such as 'Mon-Fri 08:00-18:00 100M', in lines or between commas. The first window that contains the local
    /// time applies to the sum of all jobs; outside of all windows there is no limit.
    #[arg(long, value_name = "FILE|WINDOWS", value_parser = parse_timetable)]
    pub(crate) timetable: Option<Timetable>,
    /// Let running jobs go on for this time after a SIGTERM or SIGINT, such as 10m.
    ///
    /// No further job starts. Jobs that have not ended then are interrupted; the next runner continues them.
    #[arg(long, value_name = "TIME", value_parser = parse_retry_time)]
    pub(crate) grace: Option<Duration>,
    /// Leave the session of the terminal, as a runner in the background.
    #[arg(long, hide = true)]
    pub(crate) background: bool,
    #[command(flatten)]
    pub(crate) worker: WorkerArgs,
}

/// Settings of a worker of a site.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Name of this worker in the queue of a site; by default the name of the machine.
    ///
    /// Two workers of one user on one machine, or with one home directory, need different names.
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Option<String>,
    /// A job of a worker that is lost waits for this time, 5s to 1h; for the queue of a site.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_lease)]
    pub(crate) lease: Duration,
}

const RUN_CODES: &str = "Exit codes: 0 done, 1 failed, or another runner runs, 2 usage or \
    configuration, 130 interrupted; with --once the code of the attempt.";

const RUN_HELP: &str = "\
There is one runner for each user. SIGINT and SIGTERM end the running attempts in order, and the next runner continues \
their jobs. A runner that is killed takes its attempts along; their jobs continue, too. Copies resume with the data \
that is there.

The timetable limits the sum of the rates of all running jobs, each of which gets an equal part. Changes apply to \
running copies at once. A job with --min-rate is not limited below that rate.

Examples:
  sabul queue run
  sabul queue run --drain --jobs 4
  sabul queue run --timetable '08:00-18:00 100M, Sat-Sun 00:00-24:00 none'";

/// Arguments of `sabul queue watch`.
#[derive(Debug, Args)]
#[command(after_help = RUN_CODES, after_long_help = exit::below(WATCH_HELP, RUN_CODES))]
pub(crate) struct QueueWatchArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Directory of this machine; its files are copied when they are complete.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Destination directory, as for `sabul cp`.
    #[arg(value_name = "DST")]
    pub(crate) destination: OsString,
}

const WATCH_HELP: &str = "\
A file is complete when its writer has closed or renamed the file, or when nothing has changed for 2 s. Files that are \
there at the start are added, too. Subdirectories are watched, and their files get the same relative names. Names that \
begin with '.' or end in '.sabul-part' are ignored. Runs until interrupted; a runner copies the files.

Examples:
  sabul queue watch /data/outgoing host:incoming/";

/// Arguments of the process that becomes the command of a job.
#[derive(Debug, Args)]
#[command(after_help = exit::LIST, after_long_help = exit::below(ATTEMPT_HELP, exit::LIST))]
pub(crate) struct QueueAttemptArgs {
    /// Lock of the job.
    #[arg(long)]
    pub(crate) lock: PathBuf,
    /// Process id of the runner.
    #[arg(long)]
    pub(crate) runner: u32,
    /// The command with its arguments.
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

const ATTEMPT_HELP: &str = "\
Examples:
  sabul queue attempt --runner 4711 --lock ~/.local/state/sabul/queue/locks/4 -- cp a host:";

/// Arguments of the process that runs a hook.
#[derive(Debug, Args)]
#[command(after_help = exit::SHORT_LIST, after_long_help = exit::below("Examples:\n  sabul queue hook 4", exit::SHORT_LIST))]
pub(crate) struct QueueHookArgs {
    /// Number of the job.
    pub(crate) id: JobId,
    #[command(flatten)]
    pub(crate) worker: WorkerArgs,
}

/// Flags of a copy that another command of this program gives.
#[derive(Clone, Debug, Args)]
pub(crate) struct QueuedArgs {
    /// Read the sources below this directory only: no link leads out.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) beneath: Option<PathBuf>,
    /// The end of standard input interrupts: the command that started this one is gone.
    #[arg(long, hide = true)]
    pub(crate) end_with_stdin: bool,
    /// Standard input has the list of entries, which the source may still receive.
    #[arg(long, hide = true)]
    pub(crate) passed_on: bool,
    /// The list of entries on standard input.
    #[arg(skip)]
    pub(crate) passing: Passing,
    /// Standard input begins with the ticket of a server at the destination.
    #[arg(long, hide = true)]
    pub(crate) ticket_line: bool,
    /// Identifiers of the sources, also at the machines that pass them on.
    #[arg(long, value_name = "ID,..", value_delimiter = ',', value_parser = parse_origin, hide = true)]
    pub(crate) origins: Vec<[u8; 8]>,
    /// Rate limit of the timetable, besides --bwlimit.
    #[arg(long, value_name = "RATE", hide = true)]
    pub(crate) queue_limit: Option<Rate>,
}

impl QueuedArgs {
    /// Returns the limit of a copy with these limits of its own.
    pub(crate) fn limit(&self, bwlimit: Option<Rate>, min_rate: Option<Rate>) -> Option<Rate> {
        limit(self.queue_limit, bwlimit, min_rate)
    }
}

/// Returns the rate limit of a copy: the lower one of the timetable's and its own. A timetable does not limit a copy
/// below its minimum rate.
pub(crate) fn limit(
    timetable: Option<Rate>,
    bwlimit: Option<Rate>,
    min_rate: Option<Rate>,
) -> Option<Rate> {
    let timetable = timetable.map(|rate| rate.max(min_rate.unwrap_or(Rate(1))));
    timetable.into_iter().chain(bwlimit).min()
}

/// Parses an identifier of 16 hexadecimal digits.
fn parse_origin(text: &str) -> Result<[u8; 8], String> {
    let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    number.map(u64::to_be_bytes).ok_or_else(|| format!("'{text}' is not 16 hexadecimal digits"))
}

fn parse_lease(text: &str) -> Result<Duration, String> {
    let lease = parse_retry_time(text)?;
    if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
        return Err(format!("'{text}' is not a time from 5s to 1h"));
    }
    Ok(lease)
}

fn parse_start(text: &str) -> Result<i64, String> {
    parse_time(text, now_ms()).map_err(|error| error.to_string())
}

/// Reads a timetable from a file, if one has this name, or from the text itself.
fn parse_timetable(text: &str) -> Result<Timetable, String> {
    /// Ours: maximum size of the file in bytes.
    const SIZE_MAX: u64 = 1 << 20;
    let content = match std::fs::metadata(text) {
        Ok(facts) if facts.is_file() && facts.len() > SIZE_MAX => {
            return Err(format!("'{text}' has {} bytes; the most are {SIZE_MAX}", facts.len()));
        }
        Ok(_) => std::fs::read_to_string(text).map_err(|error| format!("'{text}': {error}"))?,
        Err(_) => text.to_owned(),
    };
    content.parse().map_err(|error: sabul_queue::TimetableError| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn words(line: &[&str]) -> Vec<String> {
        let cli = Cli::try_parse_from([&["sabul", "queue", "add"], line].concat()).unwrap();
        let Command::Queue(QueueArgs { command: QueueCommand::Add(args), .. }) = cli.command else {
            panic!("another command");
        };
        args.words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn the_command_of_a_job_starts_after_the_options_of_the_queue() {
        let expected = ["cp", "-r", "--json", "a", "--", "-b", "h:"];
        assert_eq!(
            words(&["--priority", "-3", "--", "cp", "-r", "--json", "a", "--", "-b", "h:"]),
            expected
        );
        assert_eq!(words(&["--json", "cp", "-r", "--json", "a", "--", "-b", "h:"]), expected);
    }

    #[test]
    fn the_lower_limit_applies_but_not_below_the_minimum_rate() {
        let [low, high] = [Rate(10), Rate(20)];
        assert_eq!(limit(None, None, None), None);
        assert_eq!(limit(Some(low), Some(high), None), Some(low));
        assert_eq!(limit(Some(high), Some(low), None), Some(low));
        assert_eq!(limit(Some(low), None, Some(high)), Some(high));
        assert_eq!(limit(None, Some(low), Some(low)), Some(low));
    }
}
