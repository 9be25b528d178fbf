//! First screen without arguments, and suggestions for unknown flags.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use sabul_units::nearest;

/// Commands for new users.
pub(super) const START: &str = "\
Start here:
  sabul cp big.iso host:       copy to another machine through ssh (--push: it has no sabul)
  sabul cp -r host:data .      and back
  sabul demo                   see it beside TCP on an emulated path, here alone
  sabul help cp                all about copying";

/// Commands for copies and servers.
const COPYING: &[&str] = &["cp", "ls", "stat", "cat", "rm", "mkdir", "serve", "ps", "set", "perf"];
/// Commands for experiments.
const LABORATORY: &[&str] = &["demo", "cc", "sim", "lab", "card", "reproduce", "model", "router"];
/// Commands about the program itself.
const PROGRAM: &[&str] = &["help", "completion", "man", "schema"];

/// Returns the screen that `sabul` without arguments prints.
pub(crate) fn first_screen() -> String {
    let [copying, laboratory, program] =
        [COPYING, LABORATORY, PROGRAM].map(|commands| commands.join(" "));
    format!(
        "sabul copies files to other machines over UDP, encrypted and checked.\n\n{START}\n\n\
         Copying:     {copying}\n\
         Laboratory:  {laboratory}\n\
         Program:     {program}\n\n\
         sabul help lists all commands, sabul COMMAND --help explains one."
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
        let mut listed: Vec<_> = [COPYING, LABORATORY, PROGRAM].concat();
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
