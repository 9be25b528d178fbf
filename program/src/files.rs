//! File commands on another machine: `sabul ls`, `stat`, `cat`, `rm` and `mkdir`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sabul::files::{Changed, LocalDestination, Range, Seen, View};
use sabul::internal::ssh::{Bridge, UploadObserver};
use sabul::internal::{Location, Server};
use sabul::{Error, Failure, FailureCode, Session};
use sabul_content::Printable;
use sabul_front::format;
use sabul_front::json::SeenJson;
use sabul_front::pipe::Pipe;

use crate::args::{
    CarrierArg, CatArgs, ChannelArgs, LsArgs, MkdirArgs, MvArgs, PlacesArgs, ReachArgs, RmArgs,
    SshArgs, StatArgs,
};
use crate::error::CliError;
use crate::events::EventFile;
use crate::exit::{self, code_of_failures};
use crate::interrupt::Interrupt;
use crate::json;
use crate::output;
use crate::upload::UploadProgress;

/// Runs `sabul ls` and returns the exit code.
pub(crate) async fn ls(args: LsArgs) -> Result<u8, CliError> {
    let view = if args.recursive { View::All } else { View::Content };
    print_listing(&args.at, view, args.json, args.long).await
}

/// Runs `sabul stat` and returns the exit code.
pub(crate) async fn stat(args: StatArgs) -> Result<u8, CliError> {
    print_listing(&args.at, View::Itself, args.json, true).await
}

async fn print_listing(
    at: &PlacesArgs,
    view: View,
    is_json: bool,
    is_long: bool,
) -> Result<u8, CliError> {
    let (server, paths) = one_server(&at.places)?;
    // A single listed place is not repeated in front of each name.
    let place = match &paths[..] {
        [place] if view != View::Itself => Some(Printable(place).to_string()),
        _ => None,
    };
    at.run(&server, async |session| {
        let mut listing = session.list(paths, view, Vec::new())?;
        let mut failures = Vec::new();
        while let Some(seen) = listing.next().await? {
            if is_json {
                json::print(&SeenJson::of(&seen))?;
            }
            let Seen { path, outcome, .. } = seen;
            let path = Printable(&path).to_string();
            match outcome {
                Ok(_) if is_json => {}
                Ok(facts) => {
                    let name = format::name(&path, &facts, place.as_deref());
                    let front = if is_long { format::facts(&facts) + " " } else { String::new() };
                    output::print_line(front + &name)?;
                }
                Err(failure) => {
                    output::error(format_args!("{path}: {failure}"));
                    failures.push(failure);
                }
            }
        }
        Ok(code_of_failures(&failures))
    })
    .await
}

/// Runs `sabul cat` and returns the exit code.
pub(crate) async fn cat(args: CatArgs) -> Result<u8, CliError> {
    let at = PlacesArgs { places: vec![args.place], reach: args.reach };
    let (server, paths) = one_server(&at.places)?;
    let whole = args.offset == 0 && args.length.is_none();
    let range = (!whole).then_some(Range { offset: args.offset, length: args.length });
    let channel = &at.reach.channel;
    let options = channel.transfer_options(channel.controller())?.range(range);
    let is_closed = Arc::default();
    let pipe = Pipe::closing(&is_closed);
    at.run(&server, async |session| {
        let to = LocalDestination::Writer(Box::new(pipe));
        let transfer = session.get(paths, false, to, &options).await?;
        let result = transfer.finish().await;
        if is_closed.load(Ordering::Acquire) {
            // The reader closed the pipe, which is not an error.
            return Ok(exit::DONE);
        }
        let report = result?;
        for (_, failure) in &report.failures {
            output::error(failure);
        }
        Ok(code_of_failures(report.failures.iter().map(|(_, failure)| failure)))
    })
    .await
}

/// Runs `sabul rm` and returns the exit code.
pub(crate) async fn rm(args: RmArgs) -> Result<u8, CliError> {
    let (server, paths) = one_server(&args.at.places)?;
    args.at
        .run(&server, async |session| {
            Ok(concluded(&args.at.places, &session.remove(paths, args.recursive).await?))
        })
        .await
}

/// Runs `sabul mv` and returns the exit code.
pub(crate) async fn mv(args: MvArgs) -> Result<u8, CliError> {
    let (server, mut paths) = one_server(&args.at.places)?;
    let (Some(mut to), false) = (paths.pop(), paths.is_empty()) else {
        return Err(CliError::usage(
            "give at least one old name and the new name: sabul mv OLD... NEW",
        ));
    };
    if paths.len() > 1 && !to.is_empty() && !to.ends_with(b"/") {
        // With the slash, the server moves nothing unless the name is that of a directory.
        to.push(b'/');
    }
    args.at
        .run(&server, async |session| {
            let mut changed = Changed::default();
            let mut moved = BTreeSet::new();
            for (at, from) in paths.into_iter().enumerate() {
                let name = last_name(&from).to_vec();
                let renamed = match moved.contains(&name) {
                    true => Err(Error::Failed(just_moved(&from, &to))),
                    false => session.rename(from, to.clone(), !args.no_clobber).await,
                };
                match renamed {
                    Ok(()) => drop(moved.insert(name)),
                    Err(Error::Exists(failure) | Error::Failed(failure)) => {
                        changed.failures.push((at, failure));
                    }
                    Err(error) => {
                        concluded(&args.at.places, &changed);
                        return Err(error.into());
                    }
                }
            }
            Ok(concluded(&args.at.places, &changed))
        })
        .await
}

/// The last name of a path, as the other side keeps it inside of a directory.
fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()).unwrap_or_default()
}

/// Failure of a move that would replace an entry that the same command moved before.
fn just_moved(from: &[u8], to: &[u8]) -> Failure {
    let why = format!(
        "this command has just moved another '{}' into '{}'; move this one under another name",
        Printable(last_name(from)),
        Printable(to)
    );
    Failure::of_file(FailureCode::Unwritable, "move", Printable(from), why)
}

/// Runs `sabul mkdir` and returns the exit code.
pub(crate) async fn mkdir(args: MkdirArgs) -> Result<u8, CliError> {
    let (server, paths) = one_server(&args.at.places)?;
    args.at
        .run(&server, async |session| {
            Ok(concluded(&args.at.places, &session.make_folders(paths, args.parents).await?))
        })
        .await
}

/// Prints the failures and returns the exit code.
fn concluded(places: &[OsString], changed: &Changed) -> u8 {
    for (at, failure) in &changed.failures {
        let place = places.get(*at).map(|place| place.to_string_lossy()).unwrap_or_default();
        output::error(format_args!("{place}: {failure}"));
    }
    code_of_failures(changed.failures.iter().map(|(_, failure)| failure))
}

impl PlacesArgs {
    /// Connects, runs `act` and closes the session in order. An interrupt ends the command.
    async fn run(
        &self,
        server: &Server,
        act: impl AsyncFnOnce(&Session) -> Result<u8, CliError>,
    ) -> Result<u8, CliError> {
        let interrupt = Interrupt::listen()?;
        let ReachArgs { channel, ssh } = &self.reach;
        let events = channel.event_file()?;
        let observer: Arc<dyn UploadObserver> = Arc::new(UploadProgress::new(false, true));
        let dialled = dial(channel, ssh, server, &interrupt, events.as_ref(), &observer);
        let (session, bridge) = dialled.await?;
        let code = tokio::select! {
            code = act(&session) => code,
            () = interrupt.wait() => Err(CliError::interrupted("interrupted")),
        };
        // Closed in order even after a refusal: otherwise the peer reports a broken connection.
        session.close().await;
        let code = match code {
            Err(error) if bridge.is_some() && error.is_lost() && interrupt.follows_soon().await => {
                return Err(CliError::interrupted("interrupted"));
            }
            code => code?,
        };
        if let Some(bridge) = bridge {
            bridge.close().await;
        }
        events.map_or(Ok(()), |events| events.finish())?;
        Ok(code)
    }
}

/// Connects to a server: through ssh if the place requires it, or if there is neither a ticket nor a key for the server.
pub(crate) async fn dial(
    channel: &ChannelArgs,
    ssh: &SshArgs,
    server: &Server,
    interrupt: &Interrupt,
    events: Option<&EventFile>,
    observer: &Arc<dyn UploadObserver>,
) -> Result<(Session, Option<Bridge>), CliError> {
    let account = match server {
        // The command that started this one keeps a server there.
        Server::Ssh(_) if channel.given_ticket.is_some() => None,
        Server::Ssh(account) => Some(account.clone()),
        Server::Listener(host) => channel.account(host)?,
        Server::Ticket | Server::Here => None,
    };
    if let Some(account) = account {
        let order = ssh.order(&account, channel.carrier, observer);
        let dialled = match channel.connect_by_ssh(&order, interrupt, events).await {
            Err(error) if error.is_lost() && interrupt.follows_soon().await => {
                return Err(CliError::interrupted("interrupted while connecting"));
            }
            dialled => dialled?,
        };
        return Ok((dialled.session, Some(dialled.bridge)));
    }
    if channel.carrier == CarrierArg::Ssh {
        return Err(CliError::usage(
            "--carrier ssh needs a host that ssh reaches; write HOST:PATH, or choose another carrier",
        ));
    }
    let host = match server {
        Server::Here => return Ok((channel.connect_here().await?, None)),
        Server::Listener(host) => Some(host),
        Server::Ticket | Server::Ssh(_) => None,
    };
    Ok((channel.connect(host, interrupt, events).await?, None))
}

/// Returns the common server of these places and their paths.
fn one_server(places: &[OsString]) -> Result<(Server, Vec<Vec<u8>>), CliError> {
    let mut server = None;
    let mut paths = Vec::with_capacity(places.len());
    for written in places {
        let Location::Remote(remote) = Location::parse(written)? else {
            return Err(CliError::usage(format!(
                "'{}' is a local path; write HOST:PATH or sabul://HOST/PATH",
                written.to_string_lossy()
            )));
        };
        if server.get_or_insert_with(|| remote.server.clone()) != &remote.server {
            return Err(CliError::usage(
                "the places are on several hosts; run one command for each host",
            ));
        }
        paths.push(remote.path);
    }
    let server = server.ok_or_else(|| CliError::usage("give at least one place"))?;
    Ok((server, paths))
}
