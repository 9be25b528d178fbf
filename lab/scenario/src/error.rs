//! Problems of a scenario file: where, what is wrong, and what is allowed.

use std::fmt;
use std::sync::Arc;

use sabul_units::nearest;

/// Problems shown at most; further problems are only counted.
const SHOWN_MAX: usize = 20;

/// Origin of a key or value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The file as a whole.
    File,
    /// A line of the file, counted from 1.
    Line(usize),
    /// The text of an override.
    Set(Arc<str>),
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Origin of the key or value.
    pub(crate) origin: Origin,
    /// Part of the scenario, such as `link "bottleneck", key rate_mbps`; may be empty.
    pub(crate) place: String,
    /// Description of the problem and of allowed values.
    pub(crate) what: String,
}

impl Problem {
    /// Returns the line of the file, counted from 1; `None` for overrides and the file as a whole.
    pub fn line(&self) -> Option<usize> {
        match self.origin {
            Origin::Line(line) => Some(line),
            Origin::File | Origin::Set(_) => None,
        }
    }

    pub(crate) fn new(origin: &Origin, place: &str, what: impl Into<String>) -> Self {
        Self { origin: origin.clone(), place: place.to_owned(), what: what.into() }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, file: &str) -> fmt::Result {
        match &self.origin {
            Origin::File => write!(f, "{file}: ")?,
            Origin::Line(line) => write!(f, "{file}:{line}: ")?,
            Origin::Set(text) => write!(f, "--set {}: ", shown(text))?,
        }
        if !self.place.is_empty() {
            write!(f, "{}: ", shown(&self.place))?;
        }
        f.write_str(&shown(&self.what))
    }
}

/// Escapes control characters, because a file name could contain terminal escape sequences.
fn shown(text: &str) -> String {
    let shown = |c: char| match c {
        c if c.is_control() => c.escape_debug().to_string(),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// A scenario cannot be read or run. Lists all problems found; no part of the scenario has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    file: String,
    problems: Vec<Problem>,
}

impl Error {
    pub(crate) fn new(file: &str, mut problems: Vec<Problem>) -> Self {
        // Overrides first, because their author is at the keyboard; then in order of lines.
        problems.sort_by_key(|problem| problem.line());
        problems.dedup();
        Self { file: file.to_owned(), problems }
    }

    /// Returns all problems, at least one, in the order of the file.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().take(SHOWN_MAX).enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            problem.write(f, &self.file)?;
        }
        match self.problems.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for Error {}

/// Formats "unknown {noun}", the nearest known word if there is a near word, and all known words.
pub(crate) fn unknown(noun: &str, word: &str, known: &[&str]) -> String {
    let shown = shorten(word);
    let hint =
        nearest(word, known).map_or_else(String::new, |near| format!("did you mean '{near}'? "));
    match known {
        [] => format!("unknown {noun} '{shown}'; no {noun} exists"),
        _ => format!("unknown {noun} '{shown}'; {hint}known: {}", known.join(", ")),
    }
}

/// Returns a text on one line, truncated for display.
pub(crate) fn shorten(text: &str) -> String {
    const SHOWN: usize = 48;
    let mut short: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_with_no_known_names_reports_that_there_is_none() {
        assert!(unknown("key", "rate", &[]).contains("no key exists"));
    }

    #[test]
    fn many_problems_are_counted_and_listed_in_file_order() {
        let problems =
            (1..=30).rev().map(|line| Problem::new(&Origin::Line(line), "", "wrong")).collect();
        let text = Error::new("a.toml", problems).to_string();
        assert!(text.starts_with("a.toml:1: wrong\na.toml:2: wrong\n"), "{text}");
        assert!(text.ends_with("and 10 more"), "{text}");
    }

    #[test]
    fn a_shown_text_is_escaped_and_shortened_to_one_line() {
        assert_eq!(shorten("a\nb\u{7}"), "a\\nb\\u{7}");
        assert_eq!(shorten(&"x".repeat(100)).chars().count(), 49);
    }
}
