//! Running commands that can be asked and told: what `sabul ps` and `sabul set` speak with.
//!
//! Model:       each running command has a [`Desk`], a Unix socket that is named by its process id in a folder of its user
//!              (`folder`); who connects asks once ([`words`]), is answered once, and is let go.
//! Trust:       the folder is its user's alone (0700, checked, for root too), no other user can replace it (`own`), a
//!              desk turns away everybody else but root, and texts of an answer are escaped where they enter.
//! Bounds:      `GUESTS_MAX` at a time, [`words::ASK_MAX`] bytes and `PATIENCE` for each.

pub mod client;
mod folder;
mod job;
pub mod words;

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
use words::{ASK_MAX, Answer, Ask};

/// Who is answered at the same time; others wait in the socket's queue.
const GUESTS_MAX: usize = 4;
/// How long one may take to ask and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after the system could not hand over a guest.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a running command is asked and told; it goes when it is dropped.
#[derive(Debug)]
pub struct Desk {
    socket: PathBuf,
    answering: AbortHandle,
}

impl Desk {
    /// The folder of this user's sockets, for a process that soon may make none any more.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn folder() -> io::Result<PathBuf> {
        folder::own()
    }

    /// Opens the desk of this process. Sockets that crashed ones left in the folder are removed.
    ///
    /// # Errors
    /// If there is no folder that is this user's alone, or no socket in it. Commands run without a desk, too.
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

impl Drop for Desk {
    fn drop(&mut self) {
        self.answering.abort();
        // Whoever has removed it already has done what there was to do.
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn answer_all(listener: UnixListener, job: Job) {
    let places = Arc::new(Semaphore::new(GUESTS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((guest, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let job = job.clone();
        tokio::spawn(async move {
            let _place = place;
            // A guest that goes has no use for an answer.
            let _ = tokio::time::timeout(PATIENCE, answer(guest, &job)).await;
        });
    }
}

/// Answers one guest.
async fn answer(mut guest: UnixStream, job: &Job) -> io::Result<()> {
    let who = guest.peer_cred()?.uid();
    if who != 0 && who != geteuid().as_raw() {
        return Ok(());
    }
    let (read, mut write) = guest.split();
    let mut line = Vec::new();
    BufReader::new(read.take(ASK_MAX)).read_until(b'\n', &mut line).await?;
    let answer = match serde_json::from_slice(&line) {
        Ok(Ask::Look) => Answer::Job(job.look()),
        Ok(Ask::Set(change)) => match job.set(&change) {
            Ok(()) => Answer::Job(job.look()),
            Err(why) => Answer::Refused(why),
        },
        Err(error) => Answer::Refused(format!(
            "it does not understand what it is asked ({error}); use its own version of sabul"
        )),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    write.write_all(&text).await
}

#[cfg(test)]
mod tests;
