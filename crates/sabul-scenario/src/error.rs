//! What is wrong with a scenario, where, and what would be right.

use std::fmt;
use std::sync::Arc;

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

/// The known word that a mistyped one most likely meant; the first of several as near.
///
/// A word that lacks only the unit at the end of a known one is near too.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // Longer than any word known here: not a slip of the finger.
    if word.is_empty() || word.len() > 64 {
        return None;
    }
    let lacks_unit =
        |near: &&&str| near.strip_prefix(word).is_some_and(|rest| rest.starts_with('_'));
    if let Some(near) = known.iter().find(lacks_unit) {
        return Some(near);
    }
    let distances = known.iter().map(|near| (distance(word, near), *near));
    let (distance, near) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= (near.len() / 3).max(1)).then_some(near)
}

/// Letters to insert, drop, change or swap with their neighbour to make one word the other.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect(), vec![0; b.len() + 1]];
    for (i, x) in a.iter().enumerate() {
        let [before, above, row] = &mut rows;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = above[j] + usize::from(x != y);
            row[j + 1] = change.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
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
    fn the_nearest_word_is_named_only_if_it_is_near() {
        let known = ["rate_mbps", "delay_ms", "loss"];
        assert_eq!(nearest("rate_mpbs", &known), Some("rate_mbps"));
        assert_eq!(nearest("los", &known), Some("loss"));
        assert_eq!(nearest("delay", &known), Some("delay_ms"));
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest(&"x".repeat(1000), &known), None);
        assert!(unknown("key", "rate", &[]).contains("there is none"));
    }

    #[test]
    fn two_letters_swapped_are_one_slip() {
        assert_eq!(distance("tpc", "tcp"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
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
