//! Exit codes, and their mapping from errors. No other crate uses exit codes.

use sabul::{ErrorKind, Failure, FailureCode};
use sabul_study::Cause;

/// Success.
pub(crate) const DONE: u8 = 0;
/// An operation failed, completely or in part.
pub(crate) const FAILED: u8 = 1;
/// Error in usage or configuration.
pub(crate) const USAGE: u8 = 2;
/// Received content differs from the sent content.
pub(crate) const VERIFICATION: u8 = code_of(ErrorKind::Verification);
/// The transfer was slower than `--min-rate`.
const SLOW: u8 = 7;
/// A login failed.
pub(crate) const AUTHENTICATION: u8 = code_of(ErrorKind::Authentication);
/// No space or no permission at the destination.
pub(crate) const DESTINATION: u8 = code_of(ErrorKind::Destination);
/// The user interrupted the command.
pub(crate) const INTERRUPTED: u8 = code_of(ErrorKind::Interrupt);

/// Explanation of the exit codes for help texts.
pub(crate) const LIST: &str = "Exit codes: 0 done, 1 transfer failed or incomplete, \
    2 usage or configuration, 3 peer unreachable, 4 authentication failed, 5 verification failed, \
    6 no space or permission at the destination, 7 slower than --min-rate, 130 interrupted.";
/// The same for commands without a transfer.
pub(crate) const SHORT_LIST: &str = "Exit codes: 0 done, 1 failed, 2 usage or configuration.";

/// Returns the text below the options of a command: notes and examples, then the exit codes.
pub(crate) fn below(text: &str, codes: &str) -> String {
    format!("{text}\n\n{codes}")
}

/// Cause of an early end of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Error of this kind.
    Error(ErrorKind),
    /// Transfer below the minimum rate.
    Slow,
    /// Exit code of a program that this program started, passed on unchanged.
    Program(u8),
}

impl End {
    /// Returns the exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Error(kind) => code_of(kind),
            Self::Slow => SLOW,
            Self::Program(code) => code,
        }
    }
}

impl From<Cause> for End {
    fn from(cause: Cause) -> Self {
        Self::Error(match cause {
            Cause::Request => ErrorKind::Request,
            Cause::Failure => ErrorKind::Failure,
            Cause::Interrupt => ErrorKind::Interrupt,
            Cause::Program(code) => return Self::Program(code),
        })
    }
}

/// Returns the exit code for an error of this kind.
pub(crate) const fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Request => USAGE,
        ErrorKind::Unreachable => 3,
        ErrorKind::Authentication => 4,
        ErrorKind::Verification => 5,
        ErrorKind::Destination => 6,
        ErrorKind::Interrupt => 130,
        _ => FAILED,
    }
}

/// Returns the word for a cause in JSON documents.
pub(crate) const fn word_of(end: End) -> &'static str {
    match end {
        End::Error(ErrorKind::Internal) => "internal",
        End::Error(ErrorKind::Request) => "usage",
        End::Error(ErrorKind::Unreachable) => "unreachable",
        End::Error(ErrorKind::Authentication) => "authentication",
        End::Error(ErrorKind::Verification) => "verification",
        End::Error(ErrorKind::Destination) => "destination",
        End::Error(ErrorKind::Interrupt) => "interrupted",
        End::Slow => "too-slow",
        End::Error(_) | End::Program(_) => "failed",
    }
}

/// Returns the exit code for failures of single files: that of the most severe failure, or [`DONE`].
pub(crate) fn code_of_failures<'a>(failures: impl IntoIterator<Item = &'a Failure>) -> u8 {
    failures
        .into_iter()
        .map(|failure| match failure.code {
            FailureCode::Verification | FailureCode::NoSpace | FailureCode::Permission => {
                code_of(ErrorKind::of(failure.code))
            }
            _ => FAILED,
        })
        .max()
        .unwrap_or(DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All kinds except [`ErrorKind::Internal`], which shares its code with [`ErrorKind::Failure`].
    const KINDS: [(ErrorKind, &str); 7] = [
        (ErrorKind::Failure, "transfer failed or incomplete"),
        (ErrorKind::Request, "usage or configuration"),
        (ErrorKind::Unreachable, "peer unreachable"),
        (ErrorKind::Authentication, "authentication failed"),
        (ErrorKind::Verification, "verification failed"),
        (ErrorKind::Destination, "no space or permission at the destination"),
        (ErrorKind::Interrupt, "interrupted"),
    ];

    #[test]
    fn each_error_kind_has_its_documented_exit_code() {
        let manual = include_str!("../../docs/manual/exit-codes.md");
        let mut listed: Vec<_> = KINDS.map(|(kind, what)| (code_of(kind), what)).into();
        listed.insert(0, (DONE, "done"));
        listed.insert(listed.len() - 1, (SLOW, "slower than --min-rate"));
        let list: Vec<_> = listed.iter().map(|(code, what)| format!("{code} {what}")).collect();
        assert_eq!(LIST, format!("Exit codes: {}.", list.join(", ")));
        for (code, what) in &listed {
            let row = format!("| {code} | {what}");
            assert!(manual.contains(&row), "docs/manual/exit-codes.md lacks '{row}'");
        }
        let rows = manual.lines().filter(|line| line.starts_with("| ") && !line.contains("---"));
        assert_eq!(rows.count(), listed.len() + 1, "one row each, and a head");
    }

    #[test]
    fn the_manual_names_the_commands_with_these_codes() {
        use clap::CommandFactory as _;
        let manual = include_str!("../../docs/manual/exit-codes.md");
        let (first, _) = manual.split_once("Other commands").unwrap();
        let is_listed = |command: &clap::Command| {
            command.get_after_help().is_some_and(|help| help.to_string() == LIST)
        };
        let program = crate::args::Cli::command();
        for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let is_named = first.contains(&format!("`{name}`"));
            assert_eq!(is_named, is_listed(command), "{name}");
        }
    }

    #[test]
    fn every_error_word_is_in_the_manual_with_its_exit_code() {
        use sabul::FailureCode as Code;
        let manual = include_str!("../../docs/manual/json.md");
        let row = |word: &str, code: u8| {
            let row = format!("| `{word}` | {code} |");
            assert!(manual.contains(&row), "docs/manual/json.md lacks '{row}'");
        };
        for end in KINDS
            .map(|(kind, _)| End::Error(kind))
            .into_iter()
            .chain([End::Error(ErrorKind::Internal), End::Slow])
        {
            row(word_of(end), end.code());
        }
        for code in [
            Code::Protocol,
            Code::Version,
            Code::Authentication,
            Code::Refused,
            Code::NotFound,
            Code::Unreadable,
            Code::Changed,
            Code::Permission,
            Code::NoSpace,
            Code::Unwritable,
            Code::Verification,
            Code::UdpBlocked,
            Code::Timeout,
            Code::Cancelled,
            Code::BadSetting,
            Code::Internal,
        ] {
            assert!(manual.contains(&format!("| `{}` | ", code.word())), "{}", code.word());
        }
    }

    #[test]
    fn error_words_and_exit_codes_distinguish_the_same_kinds() {
        for (one, _) in KINDS {
            for (other, _) in KINDS {
                let same_word = word_of(End::Error(one)) == word_of(End::Error(other));
                assert_eq!(one == other, same_word && code_of(one) == code_of(other));
            }
        }
        assert_eq!(End::Program(77).code(), 77);
        let internal = End::Error(ErrorKind::Internal);
        assert_eq!((word_of(internal), internal.code()), ("internal", FAILED));
    }

    #[test]
    fn the_gravest_file_failure_determines_the_exit_code() {
        let failure = |code| Failure::new(code, "x");
        let [changed, space, content] =
            [FailureCode::Changed, FailureCode::NoSpace, FailureCode::Verification].map(failure);
        assert_eq!(code_of_failures([&changed]), 1);
        assert_eq!(code_of_failures([&changed, &content]), 5);
        assert_eq!(code_of_failures([&content, &space, &changed]), 6);
        assert_eq!(code_of_failures([]), 0);
    }
}
