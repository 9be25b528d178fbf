//! Messages between the machine that divides the files and the destination hosts: one JSON line each.

use serde::{Deserialize, Serialize};

/// Names of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Names {
    /// Source as named by the user.
    pub(super) source: String,
    /// Path below that directory; `None` if the source is the file.
    pub(super) below: Option<String>,
    /// Path below the destination.
    pub(super) to: String,
}

impl Names {
    /// Path of the source.
    pub(super) fn from(&self) -> String {
        match &self.below {
            None => self.source.clone(),
            Some(below) if self.source.is_empty() => below.clone(),
            Some(below) => format!("{}/{below}", self.source.trim_end_matches('/')),
        }
    }

    /// Whether the source is the file itself.
    pub(super) const fn is_alone(&self) -> bool {
        self.below.is_none()
    }

    /// Place to list, and the only name that is listed below.
    pub(super) fn place(&self) -> (String, Option<&str>) {
        match &self.below {
            Some(below) if self.source.is_empty() => ("./".to_owned(), Some(below)),
            Some(below) => (format!("{}/", self.source.trim_end_matches('/')), Some(below)),
            None => (self.source.clone(), None),
        }
    }
}

/// Order for a destination host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Order {
    /// Nothing; comes several times a minute.
    Alive,
    /// Open the destination directory and make a probe in it, and look up the first file. With `is_single`, the destination
    /// may be the name of the file.
    Prepare { is_single: bool, names: Names },
    /// Open the destination directory, look for the probe, and compare the state of the first file, if known.
    Join { is_single: bool, probe: String, names: Names, state: Option<[u8; 32]> },
    /// Remove the probe.
    Settle,
    /// Create the part of a file.
    Begin { file: u32, names: Names },
    /// Open the part that another host created. The source must have the state that the other host found.
    Open { file: u32, names: Names, bytes: u64, part: String, state: [u8; 32] },
    /// Copy the chunks from `first` up to `end`.
    Fetch { file: u32, first: usize, end: usize },
    /// Leave out the chunks from `first` up to `end` of earlier fetches.
    Shorten { file: u32, first: usize, end: usize },
    /// Flush the written data and close the part. The host that created the part keeps its right to name the part.
    Flush { file: u32 },
    /// Give the part its final name.
    Publish { file: u32 },
    /// Stop, and remove the part.
    Discard { file: u32 },
}

/// Answer of a destination host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Answer {
    /// The host is connected to its source host.
    Ready,
    /// The host works; comes several times a minute.
    Alive,
    /// The destination directory is open and has this probe. The first file has this state, if it is there.
    Prepared {
        probe: String,
        state: Option<[u8; 32]>,
    },
    /// The probe is there, and the first file has the state.
    Joined,
    /// The host takes no part.
    Apart {
        error: String,
    },
    Begun {
        file: u32,
        bytes: u64,
        part: String,
        state: [u8; 32],
    },
    /// The file needs a copy by one host.
    Left {
        file: u32,
    },
    Written {
        file: u32,
        chunk: usize,
    },
    Flushed {
        file: u32,
    },
    Published {
        file: u32,
    },
    Failed {
        file: u32,
        error: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_below_a_source_is_listed_below_it() {
        let names = |source: &str, below: Option<&str>| Names {
            source: source.to_owned(),
            below: below.map(str::to_owned),
            to: "to".to_owned(),
        };
        for (source, below, from, place) in [
            ("x/d", Some("a/b"), "x/d/a/b", "x/d/"),
            ("x/d/", Some("a/b"), "x/d/a/b", "x/d/"),
            ("/", Some("a"), "/a", "/"),
            (".", Some("a"), "./a", "./"),
            ("", Some("a"), "a", "./"),
            ("x/big", None, "x/big", "x/big"),
        ] {
            let names = names(source, below);
            assert_eq!((names.from(), names.place()), (from.to_owned(), (place.to_owned(), below)));
        }
    }
}
