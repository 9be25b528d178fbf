//! `sabul ps` and `sabul set`: what runs, and changing it; and the control sockets that both use.

use sabul_front::desk::client::{self, AskError};
use sabul_front::desk::{Desk, Job};

use crate::args::{PsArgs, SetArgs};
use crate::error::CliError;
use crate::{exit, json, output};

/// Opens the control socket of this command. Without one the command runs all the same, and a note says so where
/// another user could be the reason.
pub(crate) fn open(job: &Job) -> Option<Desk> {
    match Desk::open(job.clone()) {
        Ok(desk) => Some(desk),
        // An error of the system, such as a file system that is read-only: nobody stands in the way.
        Err(why) if why.raw_os_error().is_some() => None,
        Err(why) => {
            output::note(format_args!(
                "no control socket ({why}): 'sabul ps' and 'sabul set' do not reach this command"
            ));
            None
        }
    }
}

/// Runs `sabul ps`; the result is the exit code.
pub(crate) fn list(args: &PsArgs) -> Result<u8, CliError> {
    let (jobs, silent) = client::list(args.sockets.as_deref());
    for job in &jobs {
        if args.json {
            json::print(job)?;
        } else {
            output::print_line(job.lines())?;
        }
    }
    silent.iter().for_each(output::complain);
    if jobs.is_empty() && silent.is_empty() && !args.json {
        output::note("nothing of yours runs here");
    }
    Ok(if silent.is_empty() { exit::DONE } else { exit::FAILED })
}

/// Runs `sabul set`; the result is the exit code.
pub(crate) fn set(args: &SetArgs) -> Result<u8, CliError> {
    let sockets = args.sockets.as_deref();
    let job = client::set(sockets, args.pid, &args.change()).map_err(|error| match error {
        AskError::Refused(_) | AskError::Several(_) => CliError::usage(error.to_string()),
        error => CliError::failed(error.to_string()),
    })?;
    if args.json {
        json::print(&job)?;
    } else {
        output::print_line(job.lines())?;
    }
    Ok(exit::DONE)
}
