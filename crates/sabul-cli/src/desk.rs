//! `sabul ps` and `sabul set`: what runs, and changing it.

use sabul_front::desk::client::{self, AskError};

use crate::args::{PsArgs, SetArgs};
use crate::error::CliError;
use crate::{exit, json, output};

/// Runs `sabul ps`; the result is the exit code.
pub(crate) fn list(args: &PsArgs) -> Result<u8, CliError> {
    let (jobs, silent) = client::list();
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
    let job = client::set(args.pid, &args.change()).map_err(|error| match error {
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
