//! What is wrong with a scenario, where, and what would be right.

use std::fmt;
use std::sync::Arc;

use sabul_units::nearest;

/// More problems than this are counted, not shown.
const SHOWN_MAX: usize = 20;

/// Where a key or value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The file as a whole.
    File,
    /// A line of the file, counted from one.
    Line(usize),
    /// An override, as it was written.
    Set(Arc<str>),
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was written.
    pub(crate) origin: Origin,
    /// Which part of the scenario it concerns, such as `link "bottleneck", key rate_mbps`; empty
    /// where none.
    pub(crate) place: String,
    /// What is wrong and what would be right.
    pub(crate) what: String,
}

impl Problem {
    /// The line of the file, counted from one; none for overrides and the file as a whole.
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

/// Names of a file may steer a terminal; what is shown of them does not.
fn shown(text: &str) -> String {
    let shown = |c: char| match c {
        c if c.is_control() => c.escape_debug().to_string(),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// A scenario cannot be read or run; nothing of it has been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    file: String,
    problems: Vec<Problem>,
}

impl Error {
    pub(crate) fn new(file: &str, mut problems: Vec<Problem>) -> Self {
        // Overrides first, as their author is at the keyboard; then from top to bottom.
        problems.sort_by_key(|problem| problem.line());
        problems.dedup();
        Self { file: file.to_owned(), problems }
    }

    /// Everything that was found wrong, at least one, in the order of the file.
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

/// "unknown {noun}", the nearest known word if one is near, and all of them.
pub(crate) fn unknown(noun: &str, word: &str, known: &[&str]) -> String {
    let shown = shorten(word);
    let hint =
        nearest(word, known).map_or_else(String::new, |near| format!("did you mean '{near}'? "));
    match known {
        [] => format!("unknown {noun} '{shown}'; there is none"),
        _ => format!("unknown {noun} '{shown}'; {hint}known: {}", known.join(", ")),
    }
}

/// A text in one line and not too long to show.
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
    fn where_nothing_is_known_that_is_said() {
        assert!(unknown("key", "rate", &[]).contains("there is none"));
    }

    #[test]
    fn many_problems_are_counted_and_come_in_the_order_of_the_file() {
        let problems =
            (1..=30).rev().map(|line| Problem::new(&Origin::Line(line), "", "wrong")).collect();
        let text = Error::new("a.toml", problems).to_string();
        assert!(text.starts_with("a.toml:1: wrong\na.toml:2: wrong\n"), "{text}");
        assert!(text.ends_with("and 10 more"), "{text}");
    }

    #[test]
    fn a_shown_text_stays_in_its_line() {
        assert_eq!(shorten("a\nb\u{7}"), "a\\nb\\u{7}");
        assert_eq!(shorten(&"x".repeat(100)).chars().count(), 49);
    }
}
