//! Asking running commands of this user.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::folder;
use super::words::{ANSWER_MAX, Answer, Ask, Change, JobJson};
use crate::foreign;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why a running command was not changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum AskError {
    /// None is meant: none runs, or none with this process id.
    Nobody(Option<u32>),
    /// Several run, and none was named.
    Several(Vec<u32>),
    /// It did not answer in time, or not as a sabul does.
    NoAnswer(u32, io::Error),
    /// It refuses.
    Refused(String),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody(None) => f.write_str("no sabul of yours runs here that could be changed"),
            Self::Nobody(Some(pid)) => write!(
                f,
                "no sabul of yours with the process id {pid} runs here; 'sabul ps' lists them"
            ),
            Self::Several(pids) => {
                let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
                write!(f, "several run; name one by its process id: {}", pids.join(", "))
            }
            Self::NoAnswer(pid, error) => {
                write!(f, "the sabul with the process id {pid} does not answer: {error}")
            }
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for AskError {}

/// What runs, in the order of process ids; and what went wrong with those that do not answer.
pub fn list() -> (Vec<JobJson>, Vec<AskError>) {
    let (mut jobs, mut silent) = (Vec::new(), Vec::new());
    for (pid, answer) in folder::all().iter().flat_map(|folder| ask_all(folder)) {
        match answer {
            Ok(Answer::Job(job)) => jobs.push(job),
            Ok(Answer::Refused(why)) => silent.push(AskError::Refused(why)),
            Err(error) => silent.push(AskError::NoAnswer(pid, error)),
        }
    }
    jobs.sort_by_key(|job| job.pid);
    (jobs, silent)
}

/// Asks everybody in a folder; those that ended meanwhile are left out, and what crashed ones left is removed.
pub(super) fn ask_all(folder: &Path) -> Vec<(u32, io::Result<Answer>)> {
    folder::sweep(folder);
    let asked =
        folder::sockets(folder).into_iter().map(|(pid, path)| (pid, ask(&path, &Ask::Look)));
    let is_over = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
    };
    asked.filter(|(_, answer)| !answer.as_ref().is_err_and(is_over)).collect()
}

/// Changes the command with this process id, or the only one that runs; gives how it is then.
///
/// # Errors
/// If it is not known which, it does not answer, or it refuses.
pub fn set(pid: Option<u32>, change: &Change) -> Result<JobJson, AskError> {
    let sockets: Vec<_> = folder::all()
        .iter()
        .flat_map(|folder| {
            folder::sweep(folder);
            folder::sockets(folder)
        })
        .filter(|(found, _)| pid.is_none_or(|pid| pid == *found))
        .collect();
    let (pid, socket) = match &sockets[..] {
        [] => return Err(AskError::Nobody(pid)),
        [one] => one,
        several => return Err(AskError::Several(several.iter().map(|(pid, _)| *pid).collect())),
    };
    match ask(socket, &Ask::Set(change.clone())) {
        Ok(Answer::Job(job)) => Ok(job),
        Ok(Answer::Refused(why)) => Err(AskError::Refused(why)),
        Err(error) => Err(AskError::NoAnswer(*pid, error)),
    }
}

/// Asks at one socket; once more where whoever was asked went meanwhile.
pub(super) fn ask(socket: &Path, ask: &Ask) -> io::Result<Answer> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match ask_once(socket, ask) {
        Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => {
            ask_once(socket, ask)
        }
        result => result,
    }
}

fn ask_once(socket: &Path, ask: &Ask) -> io::Result<Answer> {
    let mut desk = UnixStream::connect(socket)?;
    desk.set_read_timeout(Some(PATIENCE))?;
    desk.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(ask)?;
    text.push(b'\n');
    desk.write_all(&text)?;
    let mut line = Vec::new();
    BufReader::new(desk.take(ANSWER_MAX)).read_until(b'\n', &mut line)?;
    foreign::document(&line).map_err(io::Error::from)
}
