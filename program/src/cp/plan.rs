//! Sources and destination of a copy, from the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sabul::files::receipts::PAYLOAD;
use sabul::files::{LocalDestination, RemoteDestination, Source, SourceSet};
use sabul::internal::{Location, Remote, Server, sources_beneath};
use sabul::{Failure, Session, Transfer, TransferOptions};
use sabul_content::Printable;
use sabul_front::failures::Machines;
use sabul_front::pipe::Pipe;

use super::names::{Names, is_pattern, join, means_content};
use crate::args::CopyArgs;
use crate::error::CliError;

/// Sources and destination of a copy.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Put { sources: Vec<OsString>, destination: Remote },
    Get { server: Server, sources: Vec<Vec<u8>>, destination: OsString },
}

impl Plan {
    pub(super) fn of(args: &CopyArgs) -> Result<Self, CliError> {
        Self::of_places(&args.places, args.recursive)
    }

    fn of_places(places: &[OsString], is_recursive: bool) -> Result<Self, CliError> {
        let places: Vec<Location> =
            places.iter().map(|place| Location::parse(place)).collect::<Result<_, _>>()?;
        let (destination, sources) = match places.split_last() {
            Some((destination, sources)) if !sources.is_empty() => (destination, sources),
            _ => {
                return Err(CliError::usage(
                    "give at least one source and a destination: sabul cp SRC... DST",
                ));
            }
        };
        match destination {
            Location::Remote(destination) => {
                let locals = sources.iter().map(|source| match source {
                    Location::Local(path) => Ok(path.clone()),
                    Location::Remote(_) => Err(CliError::usage(
                        "both sides are remote; copy to this machine first, then to the other one",
                    )),
                });
                let sources = locals.collect::<Result<_, _>>()?;
                Ok(Self::Put { sources, destination: destination.clone() })
            }
            Location::Local(destination) => {
                let (server, sources) = remote_sources(sources)?;
                let plan = Self::Get { server, sources, destination: destination.clone() };
                if plan.writes_stdout() && (is_recursive || sources_count(&plan) > 1) {
                    return Err(CliError::usage(
                        "standard output takes a single file; name one source, without -r",
                    ));
                }
                Ok(plan)
            }
        }
    }

    /// Places of `sabul sync`: one source, and a directory that takes the source or its content.
    /// With `is_content`, the source means its content in any case.
    pub(super) fn of_sync(args: &CopyArgs, is_content: bool) -> Result<Self, CliError> {
        let mut plan = Self::of_two(&args.places, args.recursive)?;
        if is_content {
            plan.mean_content();
        }
        if let Self::Get { sources, .. } = &plan {
            if args.copy_links {
                return Err(CliError::usage(
                    "sync does not support -L for downloads; leave out -L",
                ));
            }
            if sources.iter().any(|source| is_pattern(source)) {
                return Err(CliError::usage("sync does not support patterns; name one directory"));
            }
        }
        if plan.reads_stdin() || plan.writes_stdout() {
            return Err(CliError::usage("sync does not support '-'; name directories"));
        }
        match &mut plan {
            Self::Put { destination, .. } => {
                if !destination.path.is_empty() && !destination.path.ends_with(b"/") {
                    destination.path.push(b'/');
                }
            }
            Self::Get { destination, .. } => {
                if !destination.as_bytes().ends_with(b"/") {
                    destination.push("/");
                }
            }
        }
        Ok(plan)
    }

    /// Makes the sources stand for their content.
    fn mean_content(&mut self) {
        match self {
            Self::Put { sources, .. } => {
                for source in sources.iter_mut().filter(|it| !means_content(it.as_bytes())) {
                    source.push("/");
                }
            }
            Self::Get { sources, .. } => {
                for source in sources.iter_mut().filter(|it| !means_content(it)) {
                    source.push(b'/');
                }
            }
        }
    }

    /// One source and one destination; both may be on this machine.
    pub(super) fn of_two(places: &[OsString], is_recursive: bool) -> Result<Self, CliError> {
        let [_, _] = places else {
            return Err(CliError::usage("give one source and one destination"));
        };
        match Self::of_local(places)? {
            Some(plan) => Ok(plan),
            None => Self::of_places(places, is_recursive),
        }
    }

    /// Two directories on this machine.
    fn of_local(places: &[OsString]) -> Result<Option<Self>, CliError> {
        let places: Vec<Location> =
            places.iter().map(|place| Location::parse(place)).collect::<Result<_, _>>()?;
        let [Location::Local(source), Location::Local(to)] = &places[..] else { return Ok(None) };
        let is_inside = |to: &Path| match (to.canonicalize(), Path::new(source).canonicalize()) {
            (Ok(to), Ok(source)) => to.starts_with(source),
            _ => false,
        };
        let absolute = std::path::absolute(to).unwrap_or_else(|_| PathBuf::from(to));
        let above = absolute.ancestors().find(|above| above.exists());
        if above.is_some_and(is_inside) {
            return Err(CliError::usage(format!(
                "the destination '{}' is inside of the source '{}'; choose another destination",
                Printable(to.as_bytes()),
                Printable(source.as_bytes())
            )));
        }
        let destination = Remote { server: Server::Here, path: to.as_bytes().to_vec() };
        Ok(Some(Self::Put { sources: vec![source.clone()], destination }))
    }

    pub(super) const fn server(&self) -> &Server {
        match self {
            Self::Put { destination, .. } => &destination.server,
            Self::Get { server, .. } => server,
        }
    }

    pub(super) fn reads_stdin(&self) -> bool {
        matches!(self, Self::Put { sources, .. } if sources.iter().any(|source| source == "-"))
    }

    pub(super) fn writes_stdout(&self) -> bool {
        matches!(self, Self::Get { destination, .. } if destination == "-")
    }

    /// Returns the names of the two machines.
    pub(super) fn machines(&self) -> Machines {
        let name = match self.server() {
            Server::Ticket => "the server".to_owned(),
            Server::Listener(host) => host.name().to_owned(),
            Server::Ssh(account) => account.clone(),
            Server::Here => "this machine".to_owned(),
        };
        match self {
            Self::Put { .. } => Machines { source: None, destination: Some(name) },
            Self::Get { .. } => Machines { source: Some(name), destination: None },
        }
    }

    /// Returns the reason for each local source if no source can be sent; otherwise an empty list.
    /// Avoids a useless connection.
    pub(super) fn none_to_send(
        &self,
        args: &CopyArgs,
    ) -> Result<Vec<(Vec<u8>, Failure)>, CliError> {
        match self {
            // Standard input can always be sent, and sources that are passed on may come later.
            Self::Put { sources, .. } if !self.reads_stdin() && !args.queued.passed_on => {
                let set = source_set(sources, args.recursive)?.with_archive_mode(args.archive);
                Ok(set.none_to_send())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Whether the name of a local destination takes the place of the name of the only source.
    pub(super) fn is_renamed(&self) -> bool {
        match self {
            Self::Put { .. } => false,
            Self::Get { sources, destination, .. } => {
                !is_into(sources, destination) && !Path::new(destination).is_dir()
            }
        }
    }

    /// The same copy into the payload directory of a bag.
    pub(super) fn into_bag(mut self) -> Result<Self, CliError> {
        if self.reads_stdin() || self.writes_stdout() {
            return Err(CliError::usage("--bag needs files at both ends, not '-'"));
        }
        let path = match &mut self {
            Self::Put { destination, .. } => std::mem::take(&mut destination.path),
            Self::Get { destination, .. } => std::mem::take(destination).into_vec(),
        };
        let path = [&join(&path, PAYLOAD.as_bytes())[..], b"/"].concat();
        match &mut self {
            Self::Put { destination, .. } => destination.path = path,
            Self::Get { destination, .. } => *destination = OsString::from_vec(path),
        }
        Ok(self)
    }

    /// The same copy into the directory of the destination, and the name of the destination there.
    pub(super) fn beside(&self) -> (Self, Vec<u8>) {
        let mut plan = self.clone();
        let mut path = match &plan {
            Self::Put { destination, .. } => destination.path.clone(),
            Self::Get { destination, .. } => destination.as_bytes().to_vec(),
        };
        let name = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let name = path.split_off(name);
        match &mut plan {
            Self::Put { destination, .. } => destination.path = path,
            Self::Get { destination, .. } => *destination = OsString::from_vec(path),
        }
        (plan, name)
    }

    pub(super) const fn is_put(&self) -> bool {
        matches!(self, Self::Put { .. })
    }

    /// Starts the transfer of all entries, or of the selected entries.
    pub(super) async fn start(
        &self,
        session: &Session,
        args: &CopyArgs,
        options: &TransferOptions,
        pipe: Pipe,
        names: Option<Names>,
    ) -> Result<Transfer, CliError> {
        Ok(match self {
            Self::Put { sources, destination } => {
                let mut sources = sent_sources(sources, args)?;
                let path = destination.path.clone();
                let into_directory =
                    sources.needs_directory() || path.is_empty() || path.ends_with(b"/");
                if args.queued.passed_on {
                    let entries = args.queued.passing.take_entries().ok_or_else(|| {
                        CliError::failed("the list of entries was read by an earlier attempt")
                    })?;
                    sources = sources.with_selection(Box::new(entries), None);
                } else if let Some(names) = names {
                    let skipped = Arc::clone(&names.skipped);
                    sources = sources.with_selection(Box::new(names), Some(skipped));
                }
                let mut destination = RemoteDestination::path(path);
                destination.into_directory = into_directory;
                session.put(sources, destination, options).await?
            }
            Self::Get { sources, destination, .. } => {
                let (sources, is_recursive) = (sources.clone(), args.recursive);
                let to = if destination == "-" {
                    LocalDestination::Writer(Box::new(pipe))
                } else {
                    let into_directory = is_into(&sources, destination);
                    LocalDestination::Path { path: PathBuf::from(destination), into_directory }
                };
                match names {
                    Some(names) => {
                        session
                            .get_selected(sources, is_recursive, Box::new(names), to, options)
                            .await?
                    }
                    None => session.get(sources, is_recursive, to, options).await?,
                }
            }
        })
    }
}

/// Returns the source set for the paths of the command line.
pub(super) fn source_set(sources: &[OsString], is_recursive: bool) -> Result<SourceSet, CliError> {
    let sources = sources.iter().map(|source| Source::from_argument(source)).collect();
    SourceSet::local(sources, is_recursive).map_err(|failure| CliError::usage(failure.to_string()))
}

/// Returns the source set that a transfer reads.
fn sent_sources(sources: &[OsString], args: &CopyArgs) -> Result<SourceSet, CliError> {
    let Some(directory) = &args.queued.beneath else { return source_set(sources, args.recursive) };
    let below = |source: &OsString| {
        let path = Path::new(source).strip_prefix(directory);
        path.map(|path| path.as_os_str().as_bytes().to_vec()).map_err(|_| {
            CliError::usage(format!("'{}' is not in '{}'", source.display(), directory.display()))
        })
    };
    let sources = sources.iter().map(below).collect::<Result<_, _>>()?;
    sources_beneath(directory, sources, args.recursive)
        .map_err(|error| CliError::failed(error.to_string()))
}

fn sources_count(plan: &Plan) -> usize {
    match plan {
        Plan::Put { sources, .. } => sources.len(),
        Plan::Get { sources, .. } => sources.len(),
    }
}

/// Returns the common server and the paths of remote sources.
fn remote_sources(sources: &[Location]) -> Result<(Server, Vec<Vec<u8>>), CliError> {
    let mut server: Option<&Server> = None;
    let mut paths = Vec::with_capacity(sources.len());
    for source in sources {
        let Location::Remote(remote) = source else {
            return Err(CliError::usage(if server.is_some() {
                "some sources are remote and some are local; copy them with two commands"
            } else {
                "both sides are local; write the remote one as HOST:PATH"
            }));
        };
        if server.is_some_and(|server| *server != remote.server) {
            return Err(CliError::usage(
                "the sources are on several hosts; run one command for each host",
            ));
        }
        server = Some(&remote.server);
        paths.push(remote.path.clone());
    }
    let server = server.ok_or_else(|| CliError::usage("give at least one source"))?;
    Ok((server.clone(), paths))
}

/// Returns whether a local destination must be a directory.
pub(super) fn is_into(sources: &[Vec<u8>], destination: &OsStr) -> bool {
    sources.len() > 1
        || sources.iter().any(|source| means_content(source))
        || destination.as_bytes().ends_with(b"/")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn plan(words: &[&str]) -> Result<Plan, CliError> {
        let line = ["sabul", "cp"].iter().chain(words);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Cp(args) => Plan::of(&args.copy),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn exactly_one_side_is_remote() {
        assert!(matches!(plan(&["a", "b", "sabul://h/"]), Ok(Plan::Put { .. })));
        assert!(matches!(plan(&["sabul://h/a", "sabul://h/b", "."]), Ok(Plan::Get { .. })));
        assert!(matches!(plan(&["a", "h:"]), Ok(Plan::Put { .. })));
        assert!(matches!(plan(&["h:a", "h:/b", "."]), Ok(Plan::Get { .. })));
        for (words, part) in [
            (&["a", "b"][..], "both sides are local"),
            (&["sabul://h/a", "sabul://h/b"], "both sides are remote"),
            (&["sabul://h/a", "b", "c"], "some sources are remote"),
            (&["a", "sabul://h/b", "c"], "both sides are local"),
            (&["sabul://h/a", "sabul://i/b", "c"], "several hosts"),
            (&["sabul://h/a", "h:b", "c"], "several hosts"),
            (&["h:a", "me@h:b", "c"], "several hosts"),
            (&["-r", "sabul://h/a", "-"], "standard output"),
            (&["sabul://h/a", "sabul://h/b", "-"], "standard output"),
        ] {
            let error = plan(words).unwrap_err();
            assert!(error.to_string().contains(part), "{words:?}: {error}");
            assert_eq!(error.code(), 2);
        }
    }
}
