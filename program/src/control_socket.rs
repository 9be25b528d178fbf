//! `sabul ps` and `sabul set`, and the control socket of running commands.

use sabul_front::control_socket::client::{self, RequestError};
use sabul_front::control_socket::{ControlSocket, Job};

use crate::args::{PsArgs, SetArgs};
use crate::error::CliError;
use crate::{exit, json, output};

/// Opens the control socket of this command. Without a socket the command runs anyway. A note is
/// printed if another user could be the cause.
pub(crate) fn open(job: &Job) -> Option<ControlSocket> {
    match ControlSocket::open(job.clone()) {
        Ok(control_socket) => Some(control_socket),
        // System error, such as a read-only file system: no other user is involved.
        Err(why) if why.raw_os_error().is_some() => None,
        Err(why) => {
            output::note(format_args!(
                "cannot open a control socket: {why}; 'sabul ps' and 'sabul set' cannot reach this command"
            ));
            None
        }
    }
}

/// Runs `sabul ps` and returns the exit code.
pub(crate) fn list(args: &PsArgs) -> Result<u8, CliError> {
    let (jobs, silent) = client::list(args.sockets.as_deref());
    for job in &jobs {
        if args.json {
            json::print(job)?;
        } else {
            output::print_line(job.lines())?;
        }
    }
    silent.iter().for_each(output::error);
    if jobs.is_empty() && silent.is_empty() && !args.json {
        output::note("no sabul command of this user is running");
    }
    Ok(if silent.is_empty() { exit::DONE } else { exit::FAILED })
}

/// Runs `sabul set` and returns the exit code.
pub(crate) fn set(args: &SetArgs) -> Result<u8, CliError> {
    let sockets = args.sockets.as_deref();
    let job = client::set(sockets, args.pid, &args.change()).map_err(|error| match error {
        RequestError::Refused(_) | RequestError::Several(_) => CliError::usage(error.to_string()),
        error => CliError::failed(error.to_string()),
    })?;
    if args.json {
        json::print(&job)?;
    } else {
        output::print_line(job.lines())?;
    }
    Ok(exit::DONE)
}
