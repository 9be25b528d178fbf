//! Control socket of a running command, used by `sabul ps` and `sabul set`.
//!
//! Model:       each running command has a [`ControlSocket`]: a Unix socket, named by its process id, in a
//!              directory of its user (`folder`). A client sends one request ([`messages`]), receives one
//!              answer, and is disconnected.
//! Trust:       the directory belongs to its user alone (0700, checked, for root too), and no other user
//!              can replace it (`ownership`). The socket refuses all users except its own and root. Texts of
//!              an answer are escaped on input.
//! Bounds:      `CLIENTS_MAX` clients at a time, [`messages::REQUEST_MAX`] bytes and `TIMEOUT` for each.

pub mod client;
mod folder;
mod job;
pub mod messages;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

pub use job::Job;
use messages::{Answer, REQUEST_MAX, Request};

/// Ours: maximum number of clients served at the same time. Further clients wait in the socket's
/// backlog.
const CLIENTS_MAX: usize = 4;
/// Ours: time for one request and its answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Ours: pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Open control socket. Dropping it removes the socket.
#[derive(Debug)]
pub struct ControlSocket {
    socket: PathBuf,
    answering: AbortHandle,
}

impl ControlSocket {
    /// Returns the directory of this user's sockets and creates it if it is missing. For a process
    /// that soon loses the right to create directories.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn folder() -> io::Result<PathBuf> {
        folder::own()
    }

    /// Opens the control socket of this process. Removes stale sockets of crashed processes.
    ///
    /// # Errors
    ///
    /// If the directory does not belong to this user alone, or the socket cannot be created.
    /// Commands also run without a control socket.
    pub fn open(job: Job) -> io::Result<Self> {
        Self::open_in(folder::own()?, job)
    }

    fn open_in(folder: PathBuf, job: Job) -> io::Result<Self> {
        folder::sweep(&folder);
        let socket = folder::socket(&folder, std::process::id());
        let listener = UnixListener::bind(&socket)?;
        let answering = tokio::spawn(answer_all(listener, job)).abort_handle();
        Ok(Self { socket, answering })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.answering.abort();
        // An error means that the socket is already removed.
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn answer_all(listener: UnixListener, job: Job) {
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let job = job.clone();
        tokio::spawn(async move {
            let _place = place;
            // A client that disconnects needs no answer.
            let _ = tokio::time::timeout(TIMEOUT, answer(client, &job)).await;
        });
    }
}

/// Serves one client.
async fn answer(mut client: UnixStream, job: &Job) -> io::Result<()> {
    let who = client.peer_cred()?.uid();
    if who != 0 && who != geteuid().as_raw() {
        return Ok(());
    }
    let (read, mut write) = client.split();
    let mut line = Vec::new();
    BufReader::new(read.take(REQUEST_MAX)).read_until(b'\n', &mut line).await?;
    let answer = match serde_json::from_slice(&line) {
        Ok(Request::Report) => Answer::Job(job.report()),
        Ok(Request::Set(change)) => match job.set(&change) {
            Ok(()) => Answer::Job(job.report()),
            Err(why) => Answer::Refused(why),
        },
        Err(error) => Answer::Refused(format!(
            "the running command cannot read the request ({error}); use the same version of sabul"
        )),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    write.write_all(&text).await
}

#[cfg(test)]
mod tests;
