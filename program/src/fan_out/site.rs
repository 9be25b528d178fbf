//! A destination of a copy to several machines, with the server that ssh keeps there.
//!
//! One login starts the server, which then takes all copies to the destination. If ssh fails, the machine is gone, and no
//! other destination waits for this machine any longer. A server that nobody uses for ten minutes ends in order.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sabul::files::View;
use sabul::internal::ssh::{Bridge, UploadObserver};
use sabul::internal::{Location, Server, escape_pattern};
use sabul::{FailureCode, Ticket};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::State;
use crate::args::CopyArgs;
use crate::error::CliError;
use crate::files::dial;
use crate::interrupt::Interrupt;
use crate::upload::UploadProgress;

/// Ours: time for a destination to list the names of the sources.
const FIND_TIMEOUT: Duration = Duration::from_secs(30);
/// Ours: time between the ends of two processes of a machine that dies.
const SOON: Duration = Duration::from_millis(200);

/// A destination, with its place and its state.
#[derive(Debug)]
pub(super) struct Site {
    /// Directory as written, with a separator at its end.
    pub(super) place: OsString,
    pub(super) state: watch::Receiver<State>,
    kept: Option<Kept>,
}

/// A server that ssh keeps at a site.
#[derive(Debug)]
struct Kept {
    ticket: Ticket,
    /// Whether ssh has ended in order; `None` while ssh runs.
    has_ended: watch::Receiver<Option<bool>>,
    /// Ends the server, and waits for its end.
    end: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

impl Kept {
    fn of(mut bridge: Bridge, ticket: Ticket) -> Self {
        let (sender, has_ended) = watch::channel(None);
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                in_order = bridge.ended() => drop(sender.send_replace(Some(in_order))),
                _ = ended => bridge.close().await,
            }
        });
        Self { ticket, has_ended, end: Mutex::new(Some((end, task))) }
    }
}

impl Site {
    pub(super) fn new(place: OsString, state: watch::Receiver<State>) -> Self {
        Self { place, state, kept: None }
    }

    /// Place of a name at the site. Only the name itself is meant: no pattern, and no home directory.
    pub(super) fn below(&self, name: &OsStr) -> OsString {
        let mut place = self.place.as_bytes().to_vec();
        let path = match Location::parse(&self.place) {
            Ok(Location::Remote(remote)) if place.ends_with(&remote.path) => remote.path,
            _ => Vec::new(),
        };
        place.truncate(place.len() - path.len());
        let start: &[u8] = if path.is_empty() && place.ends_with(b":") { b"./" } else { b"" };
        // Also the directory: a name is no pattern only if all of its path is quoted.
        place.extend(escape_pattern(&[start, &path, name.as_bytes()].concat()));
        OsString::from_vec(place)
    }

    /// Which of these names are at the site; all, if the site did not answer. A server that ssh started stays.
    pub(super) async fn find(
        &mut self,
        args: &CopyArgs,
        names: &[OsString],
        interrupt: &Interrupt,
    ) -> Vec<bool> {
        match self.list(args, names, interrupt).await {
            Ok(found) if found.len() == names.len() => found,
            _ => vec![true; names.len()],
        }
    }

    async fn list(
        &mut self,
        args: &CopyArgs,
        names: &[OsString],
        interrupt: &Interrupt,
    ) -> Result<Vec<bool>, CliError> {
        let mut server = None;
        let mut paths = Vec::new();
        for name in names {
            let Location::Remote(remote) = Location::parse(&self.below(name))? else { continue };
            paths.push(remote.path);
            server = Some(remote.server);
        }
        let Some(server) = server else { return Ok(Vec::new()) };
        let observer: Arc<dyn UploadObserver> = Arc::new(UploadProgress::new(true, true));
        let dialled = dial(&args.channel, &args.ssh, &server, interrupt, None, &observer);
        let (session, bridge) = dialled.await?;
        let listing = async {
            let mut listing = session.list(paths, View::Itself, Vec::new())?;
            let mut found = Vec::new();
            while let Some(seen) = listing.next().await? {
                let code = seen.outcome.err().map(|failure| failure.code);
                found.push(code != Some(FailureCode::NotFound));
            }
            Ok::<_, CliError>(found)
        };
        // Only the list: a question of ssh may take longer to answer.
        let found = timeout(FIND_TIMEOUT, listing).await;
        let found = found.unwrap_or_else(|_| Err(CliError::lost("no list in time")))?;
        session.close().await;
        // With --relay, each copy has a way of its own through this machine.
        let may_stay = matches!(server, Server::Ssh(_)) && !args.channel.relay;
        if let Some(bridge) = bridge {
            match bridge.ticket().cloned().filter(|_| may_stay) {
                Some(ticket) => self.kept = Some(Kept::of(bridge, ticket)),
                None => bridge.close().await,
            }
        }
        Ok(found)
    }

    /// Ticket of the server, unless the server has ended.
    pub(super) fn ticket(&self) -> Option<&Ticket> {
        let kept = self.kept.as_ref().filter(|kept| kept.has_ended.borrow().is_none());
        kept.map(|kept| &kept.ticket)
    }

    /// Whether the machine is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| *kept.has_ended.borrow() == Some(false))
    }

    /// Waits until the machine is gone.
    pub(super) async fn gone(&self) {
        if let Some(kept) = &self.kept
            && kept.has_ended.clone().wait_for(|ended| *ended == Some(false)).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    /// Whether the machine is gone, or will be within a moment.
    pub(super) async fn is_gone_soon(&self) -> bool {
        let _ = timeout(SOON, self.gone()).await;
        self.is_gone()
    }

    /// Ends the server.
    pub(super) async fn close(&self) {
        let kept = self.kept.as_ref().and_then(|kept| kept.end.lock().ok()?.take());
        if let Some((end, task)) = kept {
            let _ = end.send(());
            let _ = task.await;
        }
    }
}
