//! Opening of a transfer's UDP path.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sabul_udp::SocketOptions;
use sabul_wire::control::{Failure, FailureCode, Message};
use tokio::sync::watch;

use super::super::context::{Context, Side, Through, first_suite};
use crate::channel::OpenPath;
use crate::error::Error;
use crate::path::{self, Attempt, Meeting};
use crate::seal::Suite;
use crate::tls::{ChannelSecrets, TlsError};

/// Converts an error of a TLS exporter.
pub(super) fn internal(error: TlsError) -> Error {
    Error::Failed(Failure::new(FailureCode::Internal, error.to_string()))
}

/// Means to open UDP paths through NATs; `None` for a session without an introducer.
pub(super) fn meeting(cx: &Context, through: Option<&Through>) -> Option<Meeting> {
    let Some(Through::Introducer(introduced)) = through else { return None };
    let control = cx.control.clone();
    Some(Meeting {
        introducer: introduced.introducer,
        secrets: introduced.secrets(),
        peer: cx.router.outside(),
        own: introduced.own.clone(),
        punch: Box::new(move |channel, addresses| {
            control.send(Message::Punch { channel, addresses });
        }),
    })
}

/// Opens a path to `peer` from `local`, directly or through the NATs of both ends. Blocks.
fn connect(
    meeting: Option<&Meeting>,
    (peer, local): (SocketAddr, Option<IpAddr>),
    sockets: &SocketOptions,
    (secrets, suite): (&ChannelSecrets, Suite),
    attempt: &Attempt,
) -> Result<Option<OpenPath>, Error> {
    match meeting {
        Some(meeting) => {
            path::connect_through_nats(meeting, local, sockets, secrets, suite, attempt)
        }
        None => path::connect(peer, local, sockets, secrets, suite, attempt),
    }
}

/// Opens the UDP path of a channel. Retries without limit, and pauses while `is_held` is true.
pub(super) async fn open_path(
    cx: &Context,
    number: u32,
    mut is_held: watch::Receiver<bool>,
) -> Result<OpenPath, Error> {
    let mut suites = cx.router.suite();
    match &cx.side {
        Side::Listener { demux, peer, .. } => {
            let secrets = cx.connection.channel_secrets(number, 0).map_err(internal)?;
            let suite = suites.borrow().unwrap_or_else(first_suite);
            let buffers = cx.endpoint.memory.socket_bytes();
            demux.expect(&secrets, suite, *peer, buffers)?.wait().await
        }
        #[cfg(test)]
        Side::World(end) => {
            let secrets = cx.connection.channel_secrets(number, 0).map_err(internal)?;
            Ok(end.open_path(&secrets, 0).await)
        }
        Side::Connector { peer, sockets, bind, through, .. } => loop {
            let suite = suites.borrow_and_update().unwrap_or_else(first_suite);
            let secrets = cx.connection.channel_secrets(number, 0).map_err(internal)?;
            let ending = EndOnDrop(Arc::default());
            ending.0.hold(*is_held.borrow_and_update());
            let sockets = sockets.clone().with_buffers(cx.endpoint.memory.socket_bytes());
            let (peer, of_attempt) = (*peer, Arc::clone(&ending.0));
            let local = bind.first().copied();
            let meeting = meeting(cx, through.as_ref());
            let mut attempt = tokio::task::spawn_blocking(move || {
                connect(meeting.as_ref(), (peer, local), &sockets, (&secrets, suite), &of_attempt)
            });
            loop {
                tokio::select! {
                    path = &mut attempt => match path {
                        Ok(Ok(Some(path))) => return Ok(path),
                        Ok(Err(error)) => return Err(error),
                        Ok(Ok(None)) | Err(_) => return Err(Error::Cancelled),
                    },
                    Ok(()) = is_held.changed() => ending.0.hold(*is_held.borrow_and_update()),
                    Ok(()) = suites.changed() => {
                        // The listener chose another suite than the guess: start again.
                        if suites.borrow().is_some_and(|chosen| chosen != suite) {
                            break;
                        }
                    }
                }
            }
        },
    }
}

/// Opens a UDP path beside TCP connections, after this number of changes to TCP. Retries without limit.
pub(super) async fn reopen_path(
    cx: &Context,
    number: u32,
    changes: u32,
) -> Result<OpenPath, Error> {
    open_beside(cx, number, changes, (0, 0)).await
}

/// Opens one of several paths of a transfer by this attempt, from the local address of this index. Retries without limit.
pub(super) async fn path_of_attempt(
    cx: &Context,
    number: u32,
    (path, local): (u8, u8),
    attempt: u16,
) -> Result<OpenPath, Error> {
    open_beside(cx, number, u32::from(path) << 16 | u32::from(attempt), (path, local)).await
}

/// Opens a UDP path with the keys of this use, from the local address of this index.
async fn open_beside(
    cx: &Context,
    number: u32,
    key: u32,
    (_path, local): (u8, u8),
) -> Result<OpenPath, Error> {
    let secrets = cx.connection.channel_secrets(number, key).map_err(internal)?;
    let suite = cx.router.suite().borrow().unwrap_or_else(first_suite);
    let buffers = cx.endpoint.memory.socket_bytes();
    match &cx.side {
        Side::Listener { demux, peer, .. } => {
            demux.expect(&secrets, suite, *peer, buffers)?.wait().await
        }
        Side::Connector { peer, sockets, bind, through, .. } => {
            let ending = EndOnDrop(Arc::default());
            let (peer, of_attempt) = (*peer, Arc::clone(&ending.0));
            let local = bind.get(usize::from(local)).copied();
            let sockets = sockets.clone().with_buffers(buffers);
            let meeting = meeting(cx, through.as_ref());
            let attempt = tokio::task::spawn_blocking(move || {
                connect(meeting.as_ref(), (peer, local), &sockets, (&secrets, suite), &of_attempt)
            });
            match attempt.await {
                Ok(Ok(Some(path))) => Ok(path),
                Ok(Err(error)) => Err(error),
                Ok(Ok(None)) | Err(_) => Err(Error::Cancelled),
            }
        }
        #[cfg(test)]
        Side::World(end) => Ok(end.open_path(&secrets, _path).await),
    }
}

/// Ends the blocking attempt when no task waits for it.
struct EndOnDrop(Arc<Attempt>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}
