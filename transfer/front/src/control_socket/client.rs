//! Client of the control sockets of this user's running commands.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::folder;
use super::messages::{ANSWER_MAX, Answer, Change, JobJson, Request};
use crate::escape;

/// Ours: time limit for an answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Reason for a failed request to a running command.
#[derive(Debug)]
#[non_exhaustive]
pub enum RequestError {
    /// No matching process: none at all, or none with this process id.
    NotRunning(Option<u32>),
    /// Several commands run and no process id was given.
    Several(Vec<u32>),
    /// The process did not answer in time, or gave an invalid answer.
    NoAnswer(u32, io::Error),
    /// The process refused the change.
    Refused(String),
    /// A directory for control sockets does not belong to this user alone, so it is not used.
    Foreign(io::Error),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning(None) => f.write_str("no sabul command of this user is running"),
            Self::NotRunning(Some(pid)) => write!(
                f,
                "no sabul command of this user has the process id {pid}; 'sabul ps' lists the commands"
            ),
            Self::Several(pids) => {
                let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
                write!(
                    f,
                    "several commands are running; name one by its process id: {}",
                    pids.join(", ")
                )
            }
            Self::NoAnswer(pid, error) => {
                write!(f, "the sabul command with the process id {pid} does not answer: {error}")
            }
            Self::Refused(why) => f.write_str(why),
            Self::Foreign(why) => {
                write!(f, "control sockets are ignored: {why}; --sockets DIR reads them anyway")
            }
        }
    }
}

impl std::error::Error for RequestError {}

/// Returns the running commands in order of process id, and an error for each that does not answer.
/// Covers the sockets of this user, or those in the directory `named`, which may belong to another
/// user.
pub fn list(named: Option<&Path>) -> (Vec<JobJson>, Vec<RequestError>) {
    let (mut jobs, mut silent) = (Vec::new(), Vec::new());
    let (sockets, foreign) = sockets(named);
    silent.extend(foreign.into_iter().map(RequestError::Foreign));
    for (pid, answer) in query_all(sockets) {
        match answer {
            Ok(Answer::Job(job)) => jobs.push(job),
            Ok(Answer::Refused(why)) => silent.push(RequestError::Refused(why)),
            Err(error) => silent.push(RequestError::NoAnswer(pid, error)),
        }
    }
    jobs.sort_by_key(|job| job.pid);
    (jobs, silent)
}

/// Returns the sockets in the directories of this user, after removing stale sockets; or those in
/// the directory `named`, where nothing is removed. Also returns the reasons for unused
/// directories.
fn sockets(named: Option<&Path>) -> (Vec<(u32, PathBuf)>, Vec<io::Error>) {
    let (mut sockets, mut foreign) = (Vec::new(), Vec::new());
    if let Some(named) = named {
        return (folder::sockets(named), foreign);
    }
    for folder in folder::all() {
        match folder {
            Ok(folder) => {
                folder::sweep(&folder);
                sockets.extend(folder::sockets(&folder));
            }
            Err(why) => foreign.push(why),
        }
    }
    (sockets, foreign)
}

/// Queries all sockets. Processes that ended meanwhile are left out.
pub(super) fn query_all(sockets: Vec<(u32, PathBuf)>) -> Vec<(u32, io::Result<Answer>)> {
    let answers = sockets.into_iter().map(|(pid, path)| (pid, query(&path, &Request::Report)));
    let is_over = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
    };
    answers.filter(|(_, answer)| !answer.as_ref().is_err_and(is_over)).collect()
}

/// Changes the command with this process id, or the only running command. Returns its state after
/// the change.
///
/// # Errors
///
/// If no or several commands match, the command does not answer, or it refuses.
pub fn set(
    named: Option<&Path>,
    pid: Option<u32>,
    change: &Change,
) -> Result<JobJson, RequestError> {
    let (sockets, _) = sockets(named);
    let is_meant = |found: u32| pid.is_none_or(|pid| pid == found);
    let sockets: Vec<_> = sockets.into_iter().filter(|(found, _)| is_meant(*found)).collect();
    let (pid, socket) = match &sockets[..] {
        [] => return Err(RequestError::NotRunning(pid)),
        [one] => one,
        several => {
            return Err(RequestError::Several(several.iter().map(|(pid, _)| *pid).collect()));
        }
    };
    match query(socket, &Request::Set(change.clone())) {
        Ok(Answer::Job(job)) => Ok(job),
        Ok(Answer::Refused(why)) => Err(RequestError::Refused(why)),
        Err(error) => Err(RequestError::NoAnswer(*pid, error)),
    }
}

/// Sends a request, and repeats it once if the connection breaks.
pub(super) fn query(socket: &Path, request: &Request) -> io::Result<Answer> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match query_once(socket, request) {
        Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => {
            query_once(socket, request)
        }
        result => result,
    }
}

fn query_once(socket: &Path, request: &Request) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    let mut line = Vec::new();
    BufReader::new(stream.take(ANSWER_MAX)).read_until(b'\n', &mut line)?;
    escape::document(&line).map_err(io::Error::from)
}
