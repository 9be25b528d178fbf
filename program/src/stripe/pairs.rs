//! File of `--stripe`: one pair of hosts in each line.

use std::fmt;
use std::path::Path;

use crate::error::CliError;

/// Maximum number of pairs. Ours: each pair keeps two ssh connections.
const PAIRS_MAX: usize = 64;

/// A source host and its destination host, as ssh accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPair {
    pub(super) source: String,
    pub(super) destination: String,
}

impl fmt::Display for HostPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.source, self.destination)
    }
}

/// Reads the pairs of a file.
pub(super) fn read(path: &Path) -> Result<Vec<HostPair>, CliError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::usage(format!(
            "cannot read the pairs of --stripe in '{shown}': {error}; check the name"
        ))
    })?;
    parse(&text).map_err(|why| CliError::usage(format!("'{shown}', {why}")))
}

fn parse(text: &str) -> Result<Vec<HostPair>, String> {
    let mut pairs: Vec<HostPair> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = number + 1;
        let pair = match words[..] {
            [] => continue,
            [source, destination] => {
                HostPair { source: source.to_owned(), destination: destination.to_owned() }
            }
            _ => {
                return Err(format!(
                    "line {number}: {} words instead of 2; write a source host and its destination host",
                    words.len()
                ));
            }
        };
        if let Some(host) =
            words.iter().find(|host| host.starts_with('-') || host.contains([':', '/']))
        {
            return Err(format!(
                "line {number}: '{host}' is no ssh host; write [USER@]HOST without a path"
            ));
        }
        if pairs.contains(&pair) {
            return Err(format!("line {number}: the pair is there twice; remove the line"));
        }
        pairs.push(pair);
    }
    match pairs.len() {
        0 => Err(
            "it has no pair of hosts; write a source host and its destination host in each line"
                .to_owned(),
        ),
        1..=PAIRS_MAX => Ok(pairs),
        count => Err(format!("{count} pairs; at most {PAIRS_MAX} are possible")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_a_pair() {
        let pairs = parse("# from  to\nme@a1 b1 # fast\n\n  a2\tb2\n").unwrap();
        let pair = |source: &str, destination: &str| HostPair {
            source: source.to_owned(),
            destination: destination.to_owned(),
        };
        assert_eq!(pairs, [pair("me@a1", "b1"), pair("a2", "b2")]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, expected) in [
            ("", "no pair"),
            ("# none", "no pair"),
            ("a b\nc", "line 2: 1 words"),
            ("a b c", "line 1: 3 words"),
            ("a:x b", "'a:x' is no ssh host"),
            ("a -oProxyCommand=x", "'-oProxyCommand=x' is no ssh host"),
            ("a b\na b", "line 2: the pair is there twice"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
        let many: String = (0..65).map(|number| format!("a{number} b\n")).collect();
        assert!(parse(&many).unwrap_err().contains("65 pairs"));
    }
}
