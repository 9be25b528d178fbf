//! `--include`, `--exclude`, `--ignore-name`, and the files of `--include-from`, `--exclude-from` and `--ignore-file`.
//!
//! Their relative order matters, so clap's derive does not suffice.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
use sabul::files::{Rule, RuleKind};
use sabul::internal::{MAX_RULES, Rules, ignore_rules};

/// Filter rules in the order of the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct RulesArgs(pub(crate) Vec<Rule>);

/// Meaning of the value of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// One pattern.
    Pattern,
    /// File of patterns in rsync's syntax.
    RsyncFile,
    /// File of patterns in the syntax of `.gitignore`.
    IgnoreFile,
    /// Name of such files in the directories of the source.
    IgnoreName,
}

/// Name, whether a pattern includes, meaning of the value, and help.
const FLAGS: [(&str, bool, Value, &str); 6] = [
    ("exclude", false, Value::Pattern, "Skip entries that match PATTERN; repeatable"),
    (
        "include",
        true,
        Value::Pattern,
        "Include entries that match PATTERN, before a later --exclude",
    ),
    (
        "exclude-from",
        false,
        Value::RsyncFile,
        "Skip entries that match a pattern of FILE, one a line",
    ),
    ("include-from", true, Value::RsyncFile, "Include entries that match a pattern of FILE"),
    (
        "ignore-file",
        false,
        Value::IgnoreFile,
        "Skip entries as FILE says in the syntax of .gitignore",
    ),
    (
        "ignore-name",
        false,
        Value::IgnoreName,
        "Skip entries as files NAME in each directory of SRC say: .gitignore",
    ),
];

impl Args for RulesArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.map(|(name, _, value, help)| {
            let value = match value {
                Value::Pattern => "PATTERN",
                Value::IgnoreName => "NAME",
                Value::RsyncFile | Value::IgnoreFile => "FILE",
            };
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
        for (name, takes, value, _) in FLAGS {
            let places = matches.indices_of(name).into_iter().flatten();
            let values = matches.get_many::<OsString>(name).into_iter().flatten();
            for (place, given) in places.zip(values) {
                let new = match value {
                    Value::Pattern => vec![rule(takes, given.as_bytes())],
                    Value::RsyncFile => read(given, |text| parse(text, takes))?,
                    Value::IgnoreFile => {
                        read(given, |text| ignore_rules(text).into_iter().collect())?
                    }
                    Value::IgnoreName => {
                        let pattern = given.as_bytes().to_vec();
                        vec![Rule { kind: RuleKind::Files, pattern }]
                    }
                };
                rules.extend(new.into_iter().map(|rule| (place, rule)));
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
fn read(
    path: &OsStr,
    parse: impl FnOnce(&[u8]) -> Result<Vec<Rule>, String>,
) -> Result<Vec<Rule>, Error> {
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
    parse(&text).map_err(|why| invalid(format!("the patterns in '{shown}': {why}")))
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
        rules.push(rule(takes, pattern));
    }
    Ok(rules)
}

fn rule(takes: bool, pattern: &[u8]) -> Rule {
    let kind = if takes { RuleKind::Include } else { RuleKind::Exclude };
    Rule { kind, pattern: pattern.to_vec() }
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
            .map(|rule| (rule.kind == RuleKind::Include, rule.pattern))
            .collect();
        let expected = [(false, "*.o"), (true, "keep.c"), (false, "*.c"), (false, " -x")];
        assert_eq!(rules, expected.map(|(takes, pattern)| (takes, pattern.as_bytes().to_vec())));
        assert_eq!(parse(b"a", true).unwrap()[0].kind, RuleKind::Include);
        parse(b"!\n", true).unwrap_err();
    }
}
