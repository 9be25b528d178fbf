//! Copies between two `sabul serve`: one of them dials the other, and this machine shows the progress.
//!
//! This machine has a session with both servers. It orders a ticket for exactly this copy from one server, and the copy
//! from the other (`order.rs`). Both servers end the copy when their session with this machine ends.

use sabul::internal::{Host, Server};
use sabul_content::Printable;
use sabul_units::{count, show_bytes, show_rate};
use serde_json::Value;

use super::pair::{Dialled, Ended, Pair, Turn};
use super::{INTERRUPTED_EARLY, UNREACHABLE, exit_of, unsupported};
use crate::args::{self, ChannelArgs, CopyArgs};
use crate::cp::remotes::{Choice, Remotes};
use crate::cp::{CopyCommand, Selecting, dry_run, entries, there_already, transfer_options};
use crate::error::CliError;
use crate::exit;
use crate::interrupt::Interrupt;
use crate::keys;
use crate::order::{ChannelSettings, CopyOrder, FileSettings};
use crate::output;

/// Flags that hold between two servers; the others are refused.
const SUPPORTED: &[&str] = &[
    "recursive",
    "preserve",
    "archive",
    "hard-links",
    "again",
    "checksum",
    "delete",
    "delete-limit",
    "trash",
    "update",
    "size-only",
    "existing",
    "ignore-existing",
    "modify-window",
    "itemize-changes",
    "whole-file",
    "bwlimit",
    "policy",
    "rate",
    "no-sync",
    "read-back",
    "exclude",
    "include",
    "no-resume",
    "json",
    "json-lines",
    "growing",
    "quiet",
    "verbose",
    "progress",
    "times",
    "acls",
    "xattrs",
    "ticket",
    "to-ticket",
    "identity",
    "accept-new",
    "cc",
    "cc-param",
    "carrier",
    "tcp",
    "channels",
    "memory",
    "timeout",
    "mtu",
    "bind",
    "fresh",
];

/// Ours: most errors of single files that are printed.
const ERRORS_SHOWN: usize = 20;

/// Ours: longest message of a server that is printed, in characters.
const MESSAGE_MAX: usize = 1000;

/// Places of a copy between two servers.
#[derive(Debug)]
pub(super) struct Places<'a> {
    pub(super) source: &'a Server,
    /// Paths at the server of the sources.
    pub(super) sources: Vec<String>,
    pub(super) server: &'a Server,
    /// Path at the server of the destination.
    pub(super) destination: String,
}

/// Runs the copy, and returns the exit code. `last` gets the event of the end.
pub(super) async fn run(
    name: &str,
    command: &impl CopyCommand,
    places: &Places<'_>,
    interrupt: &Interrupt,
    last: &mut Option<Value>,
) -> Result<u8, CliError> {
    let (args, selecting) = settings(name, command)?;
    let (args, is_sync) = (&args, selecting.sync.is_some());
    let mut to = places.destination.clone();
    if is_sync && !to.is_empty() && !to.ends_with('/') {
        to.push('/');
    }
    let options = transfer_options(args)?;
    let channel = ChannelSettings::of(&options).ok_or_else(|| unsupported("--carrier ssh"))?;
    let order = CopyOrder {
        ticket: String::new(),
        sources: places.sources.clone(),
        recursive: args.recursive,
        selected: false,
        destination: to,
        files: FileSettings::of(&options),
        channel,
    };
    let source = dial(&args.channel, "--ticket", places.source, interrupt).await?;
    let mut channel = args.channel.clone();
    channel.ticket.clone_from(&args.to_ticket);
    let destination = dial(&channel, "--to-ticket", places.server, interrupt).await;
    let destination = match destination {
        Ok(destination) => destination,
        Err(error) => {
            source.session.close().await;
            return Err(error);
        }
    };
    let pair = Pair { args, options, order, source, destination, ends_stalled: false };
    let copy = Copy { selecting: &selecting, pair };
    let result = tokio::select! {
        result = copy.rounds() => result,
        () = interrupt.wait() => {
            Err(CliError::interrupted("interrupted: run the same command again to resume"))
        }
    };
    copy.pair.close().await;
    let done = result?.done;
    conclude(args, &selecting, &done);
    let code = exit_of(&done);
    *last = Some(done);
    Ok(code)
}

/// Returns the settings of the command.
///
/// # Errors
/// If a flag does not hold between two servers.
fn settings(name: &str, command: &impl CopyCommand) -> Result<(CopyArgs, Selecting), CliError> {
    let unsupported_flag = args::given(name, SUPPORTED).into_iter().find(|flag| {
        // `cp -n` prints other lines than `sync -n`.
        name != "sync" || !(flag == "-n" || flag == "--dry-run")
    });
    if let Some(flag) = unsupported_flag {
        return Err(unsupported(&flag.display().to_string()));
    }
    let selecting = command.selecting()?;
    let is_sync = selecting.sync.is_some();
    let mut args = command.as_ref().clone();
    args.recursive |= args.archive || is_sync;
    args.growing |= is_sync;
    Ok((args, selecting))
}

/// Connects to a server, by the ticket or a key.
async fn dial(
    channel: &ChannelArgs,
    flag: &str,
    server: &Server,
    interrupt: &Interrupt,
) -> Result<Dialled, CliError> {
    let host = match server {
        Server::Listener(host) => Some(host),
        _ => None,
    };
    let name = host.map_or_else(|| "the server of the ticket".to_owned(), Host::standing);
    if !channel.has_ticket() {
        let is_known = match host {
            Some(host) => keys::has_key(channel, &host.standing())?,
            None => false,
        };
        if !is_known {
            return Err(CliError::usage(format!(
                "no ticket or key for {name}: give its ticket file with {flag}, or trust a standing server with 'sabul \
                 key trust'"
            )));
        }
    }
    let session = channel.connect(host, interrupt, None).await.map_err(|error| {
        if interrupt.is_seen() { CliError::interrupted(INTERRUPTED_EARLY) } else { error }
    })?;
    Ok(Dialled { name, session })
}

struct Copy<'a> {
    selecting: &'a Selecting,
    pair: Pair<'a>,
}

impl Copy<'_> {
    /// Copies, and once more if another kind of entry had to be removed first.
    async fn rounds(&self) -> Result<Ended, CliError> {
        let first = self.turns().await?;
        if !first.is_repeated {
            return Ok(first);
        }
        let mut second = self.turns().await?;
        second.add(&first.done);
        Ok(second)
    }

    /// Lets the server of the sources dial, and the other one if the first does not dial or reaches nobody.
    async fn turns(&self) -> Result<Ended, CliError> {
        let first = self.attempt(Turn::Send).await;
        let why = match &first {
            Ok(Ended { done, has_started: false, .. }) if exit_of(done) == UNREACHABLE => {
                messages(done).next().unwrap_or_default()
            }
            Err(error) if error.is_refusal() => error.to_string(),
            _ => return first,
        };
        match self.attempt(Turn::Fetch).await {
            Err(error) if error.is_refusal() => {
                match first {
                    Ok(_) => {
                        output::note(error);
                        first
                    }
                    Err(first) => Err(first
                        .in_words(format!("neither server may dial the other\n{why}\n{error}"))),
                }
            }
            second => {
                if self.pair.args.verbose > 0 {
                    output::note(format_args!("{why}; the destination dialled the source"));
                }
                second
            }
        }
    }

    /// Runs the copy at one server.
    async fn attempt(&self, turn: Turn) -> Result<Ended, CliError> {
        let remotes = self.remotes();
        let mut different = match remotes.compare().await? {
            Choice::All => None,
            Choice::Different(different) if different.is_empty() => {
                let mut ended = Ended::without_copy(self.pair.args)?;
                ended.is_repeated = remotes.complete(different, &mut ended.done).await?;
                return Ok(ended);
            }
            Choice::Different(different) => Some(different),
        };
        remotes.prepare().await?;
        let mut ended = self.pair.carry_out(turn, different.as_mut()).await?;
        // After an error nothing more changes.
        if let Some(different) = different.filter(|_| ended.has_copied()) {
            ended.is_repeated = remotes.complete(different, &mut ended.done).await?;
        }
        Ok(ended)
    }

    /// Both servers, with the places of the copy.
    fn remotes(&self) -> Remotes<'_> {
        let Pair { args, order, source, destination, .. } = &self.pair;
        let sources = order.sources.iter().map(|it| it.clone().into_bytes()).collect();
        let to = order.destination.clone().into_bytes();
        let (source, destination) = ((&source.session, sources), (&destination.session, to));
        Remotes::new(args, self.selecting, source, destination)
    }
}

/// Returns the messages of failures in the event of the end. The servers are not trusted with this terminal.
fn messages(done: &Value) -> impl Iterator<Item = String> {
    let errors = done["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    errors.iter().map(|error| {
        let part = |name: &str| -> String {
            error[name].as_str().unwrap_or_default().chars().take(MESSAGE_MAX).collect()
        };
        let (path, message) = (part("path"), part("message"));
        let is_named = message.contains(&format!("{path}'"));
        let text = match path.is_empty() || is_named {
            true => message,
            false => format!("{path}: {message}"),
        };
        Printable(text.as_bytes()).to_string()
    })
}

/// Returns why a copy with this event of its end is not complete, if so.
pub(crate) fn why_incomplete(done: &Value) -> Option<String> {
    let why = || messages(done).next().unwrap_or_else(|| "the copy is not complete".to_owned());
    (exit_of(done) != exit::DONE).then(why)
}

/// Prints failures and the summary.
fn conclude(args: &CopyArgs, selecting: &Selecting, done: &Value) {
    for message in messages(done).take(ERRORS_SHOWN) {
        output::error(message);
    }
    let failed = done["failed"].as_u64().unwrap_or_default();
    if failed > ERRORS_SHOWN as u64 {
        output::error(format_args!("{failed} entries failed in all"));
    }
    let files = done["files"].as_u64().unwrap_or_default();
    let amount = |name: &str| done[name].as_u64().unwrap_or_default();
    let (skipped, removed) = (amount("skipped_files"), amount("removed"));
    let mut also = there_already(skipped, amount("skipped_bytes"));
    if selecting.is_dry {
        output::note(dry_run(files, amount("bytes"), removed) + &also);
        return;
    }
    if removed > 0 {
        also += &format!("; {} removed", entries(removed));
    }
    if args.quiet || (files == 0 && exit_of(done) != exit::DONE) {
        return;
    }
    if files == 0 && done["bytes"] == 0 && (skipped > 0 || selecting.sync.is_some()) {
        output::note(format_args!("nothing to copy{also}"));
        return;
    }
    let number = |name: &str| done[name].as_f64().unwrap_or_default();
    let bytes = done["bytes"].as_u64().unwrap_or_default();
    let mut line = format!("{} in {}", show_bytes(bytes), count(files, "file"));
    let resumed = done["resumed_bytes"].as_u64().unwrap_or_default();
    if resumed > 0 {
        line += &format!(" ({} resumed)", show_bytes(resumed));
    }
    for word in ["verified", "durable"] {
        if done[word] == true {
            line += &format!(", {word}");
        }
    }
    line += &format!(", {:.2} s, {}", number("seconds"), show_rate(number("goodput_bps")));
    output::note(line + &also);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_servers_do_not_steer_the_terminal() {
        let done = serde_json::json!({"errors": [
            {"code": "failed", "path": "a\u{1b}[2J", "message": "x"},
            {"code": "failed", "message": "b".repeat(5000)},
        ]});
        let shown: Vec<_> = messages(&done).collect();
        assert!(!shown[0].contains('\u{1b}') && shown[0].ends_with(": x"), "{shown:?}");
        assert_eq!(shown[1].len(), MESSAGE_MAX);
        assert_eq!(messages(&Value::Null).count(), 0);
    }

    #[test]
    fn failures_have_their_path() {
        let done = serde_json::json!({"errors": [
            {"path": "n", "message": "a directory at one end and none at the other"},
            {"path": "in/n", "message": "cannot write 'to/in/n': a folder is needed"},
        ]});
        let shown: Vec<_> = messages(&done).collect();
        assert_eq!(shown[0], "n: a directory at one end and none at the other");
        assert_eq!(shown[1], "cannot write 'to/in/n': a folder is needed");
    }
}
