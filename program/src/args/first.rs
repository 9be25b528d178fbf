//! First screen without arguments, and suggestions for unknown flags.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use sabul_units::nearest;

/// First commands for new users.
const EXAMPLES: &str =
    "  sabul cp big.iso host:     copy through ssh (--push: to a host without sabul)
  sabul cp -r host:data .    copy a directory back
  sabul demo                 compare with TCP over an emulated path";

/// Group of the commands about the program itself, and their line.
const PROGRAM: &str = "Program";
const PROGRAM_LINE: &str = "JSON Schemas, shell completions, manual pages";

/// All commands in groups.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Copying",
        &[
            "cp",
            "sync",
            "apply",
            "replicate",
            "verify",
            "queue",
            #[cfg(feature = "join")]
            "join",
            "ls",
            "stat",
            "cat",
            "mv",
            "rm",
            "mkdir",
        ],
    ),
    ("Servers", &["serve", "key", "ticket", "ps", "set", "perf", "doctor"]),
    ("Laboratory", &["demo", "sim", "lab", "card", "router", "reproduce", "cc", "model"]),
    (PROGRAM, &["schema", "completion", "man", "help"]),
];

/// Returns the examples of the program's help.
pub(super) fn examples() -> String {
    format!("Examples:\n{EXAMPLES}")
}

/// Returns the screen that `sabul` without arguments prints.
pub(crate) fn first_screen() -> String {
    let groups =
        GROUPS.map(|(name, commands)| format!("{:<13}{}", format!("{name}:"), commands.join(" ")));
    format!(
        "sabul copies files to other machines over UDP, encrypted and verified.\n\n\
         Start here:\n{EXAMPLES}\n\n{}\n\n\
         'sabul help' lists all commands, 'sabul COMMAND --help' explains a command.",
        groups.join("\n")
    )
}

/// Returns the template of the program's help: all commands in groups, with a line each.
pub(super) fn template(command: &Command) -> String {
    let about = |name: &str| match command.find_subcommand(name) {
        Some(found) => found.get_about().map(ToString::to_string).unwrap_or_default(),
        None => "Print help for a command".to_owned(),
    };
    let groups = GROUPS.map(|(name, commands)| {
        // Commands about the program itself have one line.
        if name == PROGRAM {
            return format!("{name}:\n  {:<24} {PROGRAM_LINE}\n", commands.join(", "));
        }
        let lines = commands.iter().map(|command| format!("  {command:<11} {}\n", about(command)));
        format!("{name}:\n{}", lines.collect::<String>())
    });
    format!(
        "{{about-with-newline}}{{usage-heading}} {{usage}}\n\n{}\n\
         Options: -h, --help; -V, --version. 'sabul COMMAND --help' explains a command.{{after-help}}",
        groups.join("\n")
    )
}

/// Removes unhelpful suggestions from an error. clap suggests flags that share few letters with the
/// typed one, and suggests passing every unknown flag as a value.
pub(crate) fn without_far_tips(mut error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let typed = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(typed)) => typed.trim_start_matches('-').to_owned(),
        _ => return error,
    };
    let is_near = |tip: &String| nearest(&typed, &[tip.trim_start_matches('-')]).is_some();
    let is_kept = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(tip)) => is_near(tip),
        _ => false,
    };
    if !is_kept {
        error.remove(ContextKind::SuggestedArg);
    }
    error.remove(ContextKind::Suggested);
    error
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_command_is_on_the_first_screen_in_one_group() {
        let mut listed: Vec<_> =
            GROUPS.iter().flat_map(|(_, commands)| commands.to_vec()).collect();
        let mut known: Vec<String> =
            Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        known.push("help".to_owned());
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
        assert!(
            first_screen().lines().count() <= 20 && first_screen().lines().all(|l| l.len() <= 100)
        );
    }

    #[test]
    fn an_unknown_flag_gets_a_tip_only_if_one_is_near() {
        let text = |flag: &str| {
            let error = Cli::try_parse_from(["sabul", "cp", flag, "a", "b:"]).unwrap_err();
            without_far_tips(error).to_string()
        };
        assert!(text("--bwlimt").contains("'--bwlimit'"), "{}", text("--bwlimt"));
        for flag in ["--frobnicate", "--xyz", "-y"] {
            let text = text(flag);
            assert!(text.contains(flag) && !text.contains("tip:"), "{text}");
        }
    }
}
