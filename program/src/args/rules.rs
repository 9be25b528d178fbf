//! `--include`, `--exclude` and the files of `--include-from` and `--exclude-from`.
//!
//! Their relative order matters, so clap's derive does not suffice.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
use sabul::files::Rule;
use sabul::internal::{MAX_RULES, Rules};

/// Filter rules in the order of the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct RulesArgs(pub(crate) Vec<Rule>);

/// Name, whether a pattern includes, whether the value is a file of patterns, and help.
const FLAGS: [(&str, bool, bool, &str); 4] = [
    ("exclude", false, false, "Skip entries that match PATTERN; repeatable"),
    ("include", true, false, "Include entries that match PATTERN, before a later --exclude"),
    ("exclude-from", false, true, "Skip entries that match a pattern of FILE, one a line"),
    ("include-from", true, true, "Include entries that match a pattern of FILE"),
];

impl Args for RulesArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.map(|(name, _, is_file, help)| {
            let value = if is_file { "FILE" } else { "PATTERN" };
            let arg = Arg::new(name).long(name).value_name(value).help(help);
            arg.action(ArgAction::Append).value_parser(value_parser!(OsString))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RulesArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut rules = Vec::new();
        for (name, takes, is_file, _) in FLAGS {
            let places = matches.indices_of(name).into_iter().flatten();
            let patterns = matches.get_many::<OsString>(name).into_iter().flatten();
            for (place, pattern) in places.zip(patterns) {
                match is_file {
                    true => rules.extend(read(pattern, takes)?.into_iter().map(|it| (place, it))),
                    false => {
                        rules.push((place, Rule { takes, pattern: pattern.clone().into_vec() }))
                    }
                }
            }
        }
        rules.sort_by_key(|(place, _)| *place);
        let rules: Vec<Rule> = rules.into_iter().map(|(_, rule)| rule).collect();
        if rules.len() > MAX_RULES {
            return Err(invalid(format!(
                "{} rules of --exclude and --include; at most {MAX_RULES} are possible, so join patterns, as in '*.{{o,a}}'",
                rules.len()
            )));
        }
        match Rules::new(&rules) {
            Ok(_) => Ok(Self(rules)),
            Err(failure) => Err(invalid(failure.to_string())),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn invalid(text: String) -> Error {
    Error::raw(ErrorKind::ValueValidation, format!("{text}\n"))
}

/// Reads a file of patterns; `-` is standard input.
fn read(path: &OsStr, takes: bool) -> Result<Vec<Rule>, Error> {
    let text = match path == "-" {
        true => {
            let mut text = Vec::new();
            std::io::stdin().lock().read_to_end(&mut text).map(|_| text)
        }
        false => std::fs::read(path),
    };
    let shown = Path::new(path).display();
    let text =
        text.map_err(|error| invalid(format!("cannot read the patterns in '{shown}': {error}")))?;
    parse(&text, takes).map_err(|why| invalid(format!("the patterns in '{shown}': {why}")))
}

/// Rules of a file, as in rsync: `+ ` and `- ` in front of a pattern select the kind of the rule, and lines that begin
/// with `#` or `;` are comments.
fn parse(text: &[u8], takes: bool) -> Result<Vec<Rule>, String> {
    let mut rules = Vec::new();
    for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let (takes, pattern) = match line {
            [] | [b'#' | b';', ..] => continue,
            [b'!'] => {
                return Err("'!' (no earlier rules) is not supported; remove the line".to_owned());
            }
            [b'+', b' ', pattern @ ..] => (true, pattern),
            [b'-', b' ', pattern @ ..] => (false, pattern),
            pattern => (takes, pattern),
        };
        rules.push(Rule { takes, pattern: pattern.to_vec() });
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_patterns_has_comments_and_rules_of_both_kinds() {
        let text = b"# comment\n\n;too\n*.o\r\n+ keep.c\n- *.c\n -x\n";
        let rules: Vec<(bool, Vec<u8>)> = parse(text, false)
            .unwrap()
            .into_iter()
            .map(|rule| (rule.takes, rule.pattern))
            .collect();
        let expected = [(false, "*.o"), (true, "keep.c"), (false, "*.c"), (false, " -x")];
        assert_eq!(rules, expected.map(|(takes, pattern)| (takes, pattern.as_bytes().to_vec())));
        assert!(parse(b"a", true).unwrap()[0].takes && parse(b"!\n", true).is_err());
    }
}
