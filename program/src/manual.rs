//! Manual pages: generated from the command line, with sections for examples, exit status,
//! environment and files.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args;
use crate::error::CliError;
use crate::exit;
use crate::output;

/// Commands that connect to another machine.
const CLIENTS: &[&str] = &["cp", "ls", "stat", "cat", "rm", "mkdir", "perf", "doctor"];
/// Commands that use the cache of known paths.
const CACHING: &[&str] = &["cp", "ls", "stat", "cat", "rm", "mkdir", "perf", "doctor", "serve"];
/// Commands with control sockets.
const SOCKETS: &[&str] = &["cp", "perf", "serve", "ps", "set"];

/// For each variable: name, meaning, and the commands that use the variable; none are all.
const ENVIRONMENT: &[(&str, &str, &[&str])] = &[
    ("SABUL_TICKET_FILE", "Ticket file, if --ticket is not given.", CLIENTS),
    ("SABUL_SSH", "The ssh program and its options, if --ssh is not given.", CLIENTS),
    (
        "SABUL_LOG",
        "Level of the log on standard error: error, warn, info, debug or trace.",
        CACHING,
    ),
    (
        "SSH_AUTH_SOCK",
        "Socket of the ssh agent whose keys are offered to a standing server.",
        CLIENTS,
    ),
    (
        "XDG_CONFIG_HOME",
        "Directory of settings instead of ~/.config.",
        &["cp", "ls", "stat", "cat", "rm", "mkdir", "perf", "doctor", "key", "ticket", "serve"],
    ),
    (
        "SABUL_QUEUE_STORE",
        "Queue of a site: the address of a PostgreSQL database, or a file with the address.",
        &["cp", "sync", "queue"],
    ),
    ("XDG_STATE_HOME", "Directory of lasting state instead of ~/.local/state.", &["cp", "queue"]),
    ("XDG_CACHE_HOME", "Directory of caches instead of ~/.cache.", CACHING),
    ("XDG_RUNTIME_DIR", "Directory that contains the directory of control sockets.", SOCKETS),
    (
        "TMPDIR",
        "Directory for temporary files instead of /tmp: control sockets without XDG_RUNTIME_DIR, and the page of \
         sabul-demo(1).",
        &["cp", "perf", "serve", "ps", "set", "demo"],
    ),
    ("SHELL", "Program of sabul-lab-shell(1), if no program is given.", &["lab"]),
    ("RUST_BACKTRACE", "With 1, an internal error prints a stack trace.", &[]),
];

/// For each file: name, content, and the commands that use the file.
const FILES: &[(&str, &str, &[&str])] = &[
    (
        "~/.config/sabul/known_hosts",
        "Trusted standing servers: lines of HOST:PORT and fingerprint.",
        &["cp", "ls", "stat", "cat", "rm", "mkdir", "perf", "doctor", "key"],
    ),
    (
        "~/.config/sabul/server",
        "Key of a standing server (identity.pem), its named tickets, and by default the authorized_keys of its users.",
        &["serve", "key", "ticket"],
    ),
    (
        "~/.local/state/sabul/queue",
        "Queue: the database queue.sqlite, locks, and queue.log with the messages of runners in the background; workers/NAME: files of a worker of a site.",
        &["cp", "queue"],
    ),
    (
        "~/.cache/sabul/paths.json",
        "Rate and RTT that earlier transfers measured, for a faster start. The file may be removed.",
        CACHING,
    ),
    ("~/.cache/sabul/sabul-HASH", "Program that --push uploaded to this account.", CLIENTS),
    (
        "$XDG_RUNTIME_DIR/sabul/PID.sock",
        "Control socket of a running command; without the variable, in the directory sabul-UID for temporary files.",
        SOCKETS,
    ),
    (
        "NAME.HASH.sabul-part",
        "Incomplete file at the destination. The file is kept for a week, to resume the copy.",
        &["cp", "serve"],
    ),
    (".resume-N.sabul-part", "Journal of an interrupted copy.", &["cp", "serve"]),
    (
        "/dev/net/tun",
        "Source of the devices of emulated hosts and of the router.",
        &["demo", "lab", "card", "router"],
    ),
];

/// Prints the manual page of `sabul`, or writes the pages of all commands into a directory.
pub(crate) fn run(out: Option<&Path>) -> Result<u8, CliError> {
    let mut command = args::command().disable_help_subcommand(true);
    command.build();
    let Some(directory) = out else {
        let page = page(&command)
            .map_err(|error| CliError::failed(format!("cannot write the manual page: {error}")))?;
        output::print(page)?;
        return Ok(exit::DONE);
    };
    fs::create_dir_all(directory).and_then(|()| write_below(&command, directory)).map_err(
        |error| {
            CliError::failed(format!(
                "cannot write manual pages into '{}': {error}",
                directory.display()
            ))
        },
    )?;
    Ok(exit::DONE)
}

/// Writes the page of a command and those of the commands below it.
fn write_below(command: &Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_below(below, directory)?;
    }
    let name = Man::new(command.clone()).get_filename();
    fs::write(directory.join(name), page(command)?)
}

/// Returns the page of a command in roff.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let below = command.get_after_long_help().or_else(|| command.get_after_help());
    let below = below.map(ToString::to_string).unwrap_or_default();
    let is_of = |start: &'static str| move |part: &&str| part.starts_with(start);
    let parts: Vec<&str> = below.split("\n\n").filter(|part| !part.is_empty()).collect();
    let examples = parts.iter().copied().find(is_of("Examples:"));
    let codes = parts.iter().copied().find(is_of("Exit codes:"));

    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    let mut notes = Roff::new();
    for note in parts
        .iter()
        .filter(|part| !["Examples:", "Exit codes:"].iter().any(|it| part.starts_with(it)))
    {
        notes.control("PP", []);
        notes.text([roman(*note)]);
    }
    notes.to_writer(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    write_examples(&mut rest, examples);
    write_codes(&mut rest, codes);
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    write_table(&mut rest, "ENVIRONMENT", ENVIRONMENT, name);
    write_table(&mut rest, "FILES", FILES, name);
    rest.to_writer(&mut page)?;
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

fn write_examples(roff: &mut Roff, examples: Option<&str>) {
    let Some(examples) = examples else { return };
    roff.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in examples.lines().skip(1) {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
}

fn write_codes(roff: &mut Roff, codes: Option<&str>) {
    let Some(codes) = codes else { return };
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in split_codes(codes) {
        roff.control("TP", []);
        roff.text([bold(code)]);
        roff.text([roman(meaning)]);
    }
}

/// Splits `Exit codes: 0 done, 1 failed.` into codes and meanings. A code starts each part; a comma without a code
/// belongs to the meaning. A text before the first code stands for any code.
fn split_codes(codes: &str) -> Vec<(String, String)> {
    let list = codes.trim_start_matches("Exit codes:").trim().trim_end_matches('.');
    let mut parts: Vec<(String, String)> = Vec::new();
    for part in list.split(", ") {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match (part.split_at(digits), parts.last_mut()) {
            ((code, meaning), _) if digits > 0 => {
                parts.push((code.to_owned(), meaning.trim().to_owned()));
            }
            (_, Some((_, meaning))) => *meaning += &format!(", {part}"),
            (_, None) => parts.push(("other".to_owned(), part.to_owned())),
        }
    }
    parts
}

/// Writes the rows that concern the command with this display name, such as `sabul-lab-run`.
fn write_table(roff: &mut Roff, title: &str, table: &[(&str, &str, &[&str])], name: &str) {
    let command = match name {
        "sabul-perf-serve" => Some("serve"),
        name => name.split('-').nth(1),
    };
    let concerns = |commands: &[&str]| {
        commands.is_empty() || command.is_none_or(|command| commands.contains(&command))
    };
    let rows: Vec<_> = table.iter().filter(|(_, _, commands)| concerns(commands)).collect();
    if rows.is_empty() {
        return;
    }
    roff.control("SH", [title]);
    for (name, text, _) in rows {
        roff.control("TP", []);
        roff.text([bold(*name)]);
        roff.text([roman(*text)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(command: &Command) -> String {
        String::from_utf8(page(command).unwrap()).unwrap()
    }

    #[test]
    fn every_page_has_examples_exit_status_and_environment() {
        fn check(command: &Command) {
            let page = text(command);
            let name = command.get_display_name().unwrap_or_default().to_owned();
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "ENVIRONMENT"] {
                assert!(page.contains(&format!(".SH {section}\n")), "{name}: {section}: {page}");
            }
            if command.get_subcommands().next().is_none() {
                for section in ["EXAMPLES", "\"EXIT STATUS\""] {
                    assert!(
                        page.contains(&format!(".SH {section}\n")),
                        "{name}: {section}: {page}"
                    );
                }
            }
            assert!(!page.contains("Exit codes:"), "{name}: {page}");
            command.get_subcommands().for_each(check);
        }
        let mut command = args::command().disable_help_subcommand(true);
        command.build();
        check(&command);
        let copy = text(command.find_subcommand("cp").unwrap());
        for part in [".SH FILES\n", "paths.json", "SABUL_SSH", "\\fB130\\fR\ninterrupted"] {
            assert!(copy.contains(part), "{part}: {copy}");
        }
        assert!(!copy.contains("/dev/net/tun"), "{copy}");
    }

    #[test]
    fn exit_code_lists_are_split_only_at_numbers() {
        let text = "Exit codes: the program's own, 1 a, or b, 130 c.";
        let pairs = [("other", "the program's own"), ("1", "a, or b"), ("130", "c")];
        assert_eq!(split_codes(text), pairs.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }
}
