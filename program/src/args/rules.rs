//! `--include` and `--exclude`. Their relative order matters, so clap's derive does not suffice.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
use sabul::files::Rule;
use sabul::internal::Rules;

/// Filter rules in the order of the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct RulesArgs(pub(crate) Vec<Rule>);

const FLAGS: [(&str, bool, &str); 2] = [
    ("exclude", false, "Skip entries that match PATTERN; repeatable"),
    ("include", true, "Include entries that match PATTERN, before a later --exclude"),
];

impl Args for RulesArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.map(|(name, _, help)| {
            let arg = Arg::new(name).long(name).value_name("PATTERN").help(help);
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
        for (name, takes, _) in FLAGS {
            let places = matches.indices_of(name).into_iter().flatten();
            let patterns = matches.get_many::<OsString>(name).into_iter().flatten();
            rules.extend(places.zip(patterns).map(|(place, pattern)| {
                (place, Rule { takes, pattern: pattern.clone().into_vec() })
            }));
        }
        rules.sort_by_key(|(place, _)| *place);
        let rules: Vec<Rule> = rules.into_iter().map(|(_, rule)| rule).collect();
        match Rules::new(&rules) {
            Ok(_) => Ok(Self(rules)),
            Err(failure) => Err(Error::raw(ErrorKind::ValueValidation, format!("{failure}\n"))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
