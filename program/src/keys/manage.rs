//! `sabul key` and `sabul ticket`: changes of the files of a standing server.

use std::path::{Path, PathBuf};

use sabul::Ticket;
use sabul::internal::Host;
use sabul::keys::{
    Fingerprint, KeyLine, NamedTicket, NamedTickets, ServerIdentity, read_guarded, write_private,
};
use sabul_content::Printable;

use super::{
    ADDRESSES, AUTHORIZED, IDENTITY, INTRODUCER, TICKETS, known_hosts, of_file, state_folder,
};
use crate::args::{
    KeyAddArgs, KeyArgs, KeyCommand, KeyFileArgs, TicketArgs, TicketCommand, TicketCreateArgs,
};
use crate::error::CliError;
use crate::{exit, output};

/// Longest file of keys or addresses, in bytes.
const FILE_MAX: u64 = 32 << 20;

/// Runs `sabul key` and returns the exit code.
pub(crate) fn run(args: &KeyArgs) -> Result<u8, CliError> {
    match &args.command {
        KeyCommand::Fingerprint(args) => {
            let identity = identity(&state_folder(args.state.as_deref())?)?;
            output::print_line(Fingerprint(identity.fingerprint()))?;
        }
        KeyCommand::Trust(args) => {
            let host = Host::parse(&args.host).map_err(|why| {
                CliError::usage(format!("'{}' {why}; write HOST:PORT", args.host))
            })?;
            let hosts = known_hosts()?;
            hosts.trust(&host.standing(), args.fingerprint).map_err(of_file)?;
            output::note(format_args!("{} is trusted", host.standing()));
        }
        KeyCommand::List(args) => list(args)?,
        KeyCommand::Add(args) => add(args)?,
        KeyCommand::Revoke(args) => {
            let path = key_file(&args.file)?;
            let lines = lines_of(&path)?;
            let kept: Vec<_> = lines.iter().filter(|line| key_of(line) != Some(args.key)).collect();
            if kept.len() == lines.len() {
                return Err(CliError::usage(format!(
                    "'{}' has no key {}: see 'sabul key list'",
                    path.display(),
                    args.key
                )));
            }
            write_lines(&path, kept)?;
            output::note(format_args!("{} is no longer accepted", args.key));
        }
    }
    Ok(exit::DONE)
}

fn identity(state: &Path) -> Result<ServerIdentity, CliError> {
    let path = state.join(IDENTITY);
    ServerIdentity::read(&path).map_err(|error| {
        CliError::usage(match error.is_missing() {
            true => format!(
                "no standing server has been started with '{}': start 'sabul serve --authorized-keys FILE', \
                 or name its directory with --state",
                path.display()
            ),
            false => error.to_string(),
        })
    })
}

fn key_file(args: &KeyFileArgs) -> Result<PathBuf, CliError> {
    match &args.authorized_keys {
        Some(path) => Ok(path.clone()),
        None => Ok(state_folder(args.state.state.as_deref())?.join(AUTHORIZED)),
    }
}

/// Returns the lines of the file of keys; none if the file is missing.
fn lines_of(path: &Path) -> Result<Vec<String>, CliError> {
    let bytes = match read_guarded(path, false, FILE_MAX) {
        Err(error) if error.is_missing() => Vec::new(),
        other => other.map_err(of_file)?,
    };
    Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

fn write_lines<'a>(
    path: &Path,
    lines: impl IntoIterator<Item = &'a String>,
) -> Result<(), CliError> {
    let text: String = lines.into_iter().map(|line| format!("{line}\n")).collect();
    write_private(path, text.as_bytes()).map_err(of_file)
}

/// Returns the key of a line that authorizes a key.
fn key_of(line: &str) -> Option<Fingerprint> {
    KeyLine::parse(line).ok().flatten().map(|line| line.key)
}

fn list(args: &KeyFileArgs) -> Result<(), CliError> {
    let path = key_file(args)?;
    for (number, line) in lines_of(&path)?.iter().enumerate() {
        match KeyLine::parse(line) {
            Ok(Some(line)) => {
                let parts = [line.key.to_string(), line.options, line.comment];
                let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                // A key of another person has a comment of that person.
                output::print_line(Printable(parts.join(" ").as_bytes()))?;
            }
            Ok(None) => {}
            Err(why) => {
                output::note(format_args!("'{}' line {}: {why}", path.display(), number + 1))
            }
        }
    }
    Ok(())
}

fn add(args: &KeyAddArgs) -> Result<(), CliError> {
    let options = args.grant.options().map_err(CliError::usage)?;
    let quoted = |value: &str| value.replace('"', "\\\"");
    let options: Vec<_> =
        options.iter().map(|(name, value)| format!("{name}=\"{}\"", quoted(value))).collect();
    let options = options.join(",");
    let source = &args.public_keys;
    let fail = |why: &dyn std::fmt::Display| {
        CliError::usage(format!("cannot add '{}': {why}", source.display()))
    };
    let text = std::fs::read_to_string(source).map_err(|error| fail(&error))?;
    let path = key_file(&args.file)?;
    let mut lines = lines_of(&path)?;
    let mut added = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some(parsed) = KeyLine::parse(line).map_err(|why| fail(&why))? else { continue };
        if !parsed.options.is_empty() {
            return Err(fail(&"its key has options; give options as flags of this command"));
        }
        let line = if options.is_empty() { line.to_owned() } else { format!("{options} {line}") };
        if key_of(&line) != Some(parsed.key) {
            return Err(fail(&"the options cannot be written"));
        }
        lines.retain(|line| key_of(line) != Some(parsed.key));
        lines.push(line);
        added.push(parsed.key);
    }
    if added.is_empty() {
        return Err(fail(&"there is no public key in this file"));
    }
    write_lines(&path, &lines)?;
    for key in added {
        output::note(format_args!("{key} is accepted"));
    }
    Ok(())
}

/// Runs `sabul ticket` and returns the exit code.
pub(crate) fn tickets(args: &TicketArgs) -> Result<u8, CliError> {
    match &args.command {
        TicketCommand::Create(args) => create(args)?,
        TicketCommand::List(args) => {
            let tickets = open(args.state.as_deref())?;
            for ticket in tickets.all().map_err(of_file)? {
                output::print_line(ticket_line(&ticket))?;
            }
        }
        TicketCommand::Revoke(args) => {
            let tickets = open(args.state.state.as_deref())?;
            if !tickets.revoke(&args.name).map_err(of_file)? {
                return Err(CliError::usage(format!(
                    "there is no ticket '{}' in '{}': see 'sabul ticket list'",
                    args.name,
                    tickets.folder().display()
                )));
            }
            output::note(format_args!("the ticket '{}' is no longer accepted", args.name));
        }
    }
    Ok(exit::DONE)
}

fn open(state: Option<&Path>) -> Result<NamedTickets, CliError> {
    NamedTickets::open(&state_folder(state)?.join(TICKETS)).map_err(of_file)
}

/// Formats a ticket without its secret: name, uses, limits.
fn ticket_line(ticket: &NamedTicket) -> String {
    let uses = ticket.uses.map(|uses| format!(" of {uses}")).unwrap_or_default();
    let options = ticket.options.iter().map(|(name, value)| format!(" {name}={value}"));
    let end = ticket.grant.expires.filter(|it| it.is_over(std::time::SystemTime::now()));
    format!(
        "{} used {}{uses}{}{}",
        ticket.name,
        ticket.used,
        options.collect::<String>(),
        if end.is_some() { " (expired)" } else { "" }
    )
}

fn create(args: &TicketCreateArgs) -> Result<(), CliError> {
    let options = args.grant.options().map_err(CliError::usage)?;
    let state = state_folder(args.state.state.as_deref())?;
    let fingerprint = identity(&state)?.fingerprint();
    let addresses = if args.advertise.is_empty() {
        let bytes = read_guarded(&state.join(ADDRESSES), false, FILE_MAX).map_err(|error| {
            CliError::usage(format!(
                "{error}; start the server once, or give --advertise NAME:PORT"
            ))
        })?;
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    } else {
        args.advertise.clone()
    };
    let usage = |error: sabul::settings::TicketError| CliError::usage(error.to_string());
    let mut ticket = Ticket::generate(addresses, fingerprint).map_err(usage)?;
    // Servers before introductions wrote no such file.
    let kept = read_guarded(&state.join(INTRODUCER), false, FILE_MAX).unwrap_or_default();
    if let Ok(introduction) = String::from_utf8_lossy(&kept).parse() {
        ticket = ticket.with_introduction(introduction).map_err(usage)?;
    }
    let tickets = open(Some(&state))?;
    tickets.create(&args.name, ticket.secret(), &options, args.uses).map_err(of_file)?;
    let written = match &args.output {
        Some(path) => ticket.write_file(path).map_err(usage),
        None => output::print_line(&ticket),
    };
    if written.is_err() {
        // A ticket without a holder is of no use.
        let _ = tickets.revoke(&args.name);
    }
    written
}
