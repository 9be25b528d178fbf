//! Library behind the `sabul` program: command line, output and exit codes.
//!
//! Results go to standard output, everything else to standard error. Each cause of a failure has its
//! own exit code; `sabul help` lists them.
//!
//! A program of one line gets all commands, with congestion controllers of its own in addition:
//!
//! ```no_run
//! # mod gentle { pub const ENTRY: sabul_cc::registry::Entry = sabul_cc::registry::ENTRIES[0]; }
//! fn main() -> std::process::ExitCode {
//!     sabul_program::run_with(&[gentle::ENTRY])
//! }
//! ```

mod args;
mod between;
mod card;
mod control_socket;
mod cp;
mod database;
mod demo;
mod doctor;
mod error;
mod events;
mod exit;
mod fan_out;
mod files;
mod info;
mod interrupt;
#[cfg(feature = "join")]
mod join;
mod json;
mod keys;
mod lab;
mod links;
mod manual;
mod model;
mod movement;
mod options;
mod order;
mod output;
mod panics;
mod passing;
mod paths;
mod perf;
mod policy;
mod port_mapping;
mod progress;
mod queue;
mod reproduce;
mod router;
mod sandbox;
mod schema;
mod serve;
mod sim;
mod stop;
mod stripe;
mod upload;
mod watched;

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sabul_lab_cc::registry::{self, Entry};
use tracing_subscriber::filter::LevelFilter;

use args::{Command, PerfCommand, ReproduceCommand, SimCommand};
use error::CliError;

/// Runs the whole program with additional congestion controllers. Every command lists, shows and
/// accepts them like the built-in ones. Returns the exit code, which is 2 if the controllers cannot
/// be added ([`registry::add`]).
///
/// Must be the first call in `main`, while the process has a single thread: some commands start the
/// program again, with the same arguments and under another name.
pub fn run_with(controllers: &'static [Entry]) -> ExitCode {
    sabul_lab_cc::register();
    if let Err(error) = registry::add(controllers) {
        output::error(&error);
        return ExitCode::from(exit::USAGE);
    }
    panics::report_as_faults();
    fail_writes_beyond_the_size_limit();
    if std::env::args_os().len() < 2 {
        output::note(args::first_screen());
        return ExitCode::from(exit::USAGE);
    }
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(error) => {
            let error = args::without_far_tips(error);
            // Help and version go to standard output. An error means that the reader closed the
            // pipe.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { exit::DONE });
        }
    };
    ExitCode::from(run(cli.command).unwrap_or_else(|error| {
        output::error(&error);
        error.code()
    }))
}

/// Makes a write beyond the file size limit (`ulimit -f`, `LimitFSIZE=`) fail with EFBIG, which
/// ends one transfer. Without a handler, SIGXFSZ would end the process. Rust ignores SIGPIPE by
/// itself.
fn fail_writes_beyond_the_size_limit() {
    // Registration fails only for signals that cannot be caught.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// Runs a command and returns its exit code.
fn run(command: Command) -> Result<u8, CliError> {
    match command {
        // These commands must run before any thread starts.
        Command::Lab(args) => lab::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::Card(args) => card::run(&args),
        Command::Router(args) => router::run(args),
        Command::Cp(args) if args.detach => queue::detach("cp", &args.copy),
        Command::Sync(args) if args.detach => queue::detach("sync", &args.copy),
        Command::Queue(args) => queue::run(args),
        Command::Cp(args) => {
            let level = level_of(args.copy.verbose);
            let one = async |args| between::run_or("cp", args, cp::run).await;
            block_on_at(level, stripe::run_or(args, async |args| fan_out::run_or(args, one).await))
        }
        Command::Sync(args) => {
            block_on_at(level_of(args.copy.verbose), between::run_or("sync", args, cp::sync))
        }
        Command::Apply(args) => block_on_at(level_of(args.copy.verbose), cp::apply(args)),
        Command::Replicate(args) => {
            block_on_at(level_of(args.copy.verbose), cp::replicate::run(args))
        }
        Command::Verify(args) => block_on(cp::verify(args)),
        #[cfg(feature = "join")]
        Command::Join(args) => block_on(join::run(args)),
        Command::Ls(args) => block_on(files::ls(args)),
        Command::Stat(args) => block_on(files::stat(args)),
        Command::Cat(args) => block_on(files::cat(args)),
        Command::Rm(args) => block_on(files::rm(args)),
        Command::Mv(args) => block_on(files::mv(args)),
        Command::Mkdir(args) => block_on(files::mkdir(args)),
        Command::Ps(args) => control_socket::list(&args),
        Command::Set(args) => control_socket::set(&args),
        Command::Key(args) => keys::run(&args),
        Command::Ticket(args) => keys::tickets(&args),
        // Must run before any thread starts.
        Command::Serve(args) => serve::files(&args),
        Command::Perf(args) => match args.command {
            Some(PerfCommand::Serve(args)) => serve::perf(&args),
            None => block_on(perf::run(args.test)),
        },
        Command::Doctor(args) => block_on(doctor::run(args)),
        Command::Cc(args) => info::controllers(&args),
        Command::Sim(args) => match args.command {
            SimCommand::Run(args) => sim::run(&args),
        },
        Command::Reproduce(args) => match args.command {
            ReproduceCommand::List => reproduce::list(),
            ReproduceCommand::Run(args) => reproduce::run(&args),
        },
        Command::Model(args) => model::run(&args),
        Command::Schema { name } => schema::run(name.as_deref()),
        Command::Completion { shell } => info::completion(shell),
        Command::Man { out } => manual::run(out.as_deref()),
    }
}

/// Log level of this number of `-v` flags.
const fn level_of(verbose: u8) -> LevelFilter {
    if verbose > 1 { output::DEBUG } else { output::WARN }
}

/// Runs one command to completion on its own runtime.
fn block_on(work: impl Future<Output = Result<u8, CliError>>) -> Result<u8, CliError> {
    block_on_at(output::WARN, work)
}

/// Like [`block_on`], with any result.
fn block_on_value<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    block_on_at(output::WARN, work)
}

/// Like [`block_on`], with this log level.
fn block_on_at<T>(
    level: LevelFilter,
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    output::start_log(level);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CliError::failed(format!("cannot start the runtime: {error}")))?;
    let result = runtime.block_on(work);
    paths::keep();
    // A thread may still be blocked in a read of standard input that never returns.
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}
