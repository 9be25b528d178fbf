//! Messages between the machine that divides the files and the destination hosts: one JSON line each.

use serde::{Deserialize, Serialize};

/// Order for a destination host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Order {
    /// Create the part of a file. `from` is a path of the source, `to` a path below the destination; with `is_single`, the
    /// destination may be the name of the file.
    Begin { file: u32, from: String, to: String, is_single: bool },
    /// Open the part that another host created.
    Open { file: u32, from: String, to: String, is_single: bool, bytes: u64, part: String },
    /// Copy the chunks from `first` up to `end`.
    Fetch { file: u32, first: usize, end: usize },
    /// Leave out the chunks from `first` up to `end`, which are the last ones of their fetches.
    Shorten { file: u32, first: usize, end: usize },
    /// Flush the written data and close the part. The host that created the part keeps its right to name the part.
    Flush { file: u32 },
    /// Give the part its final name.
    Publish { file: u32 },
    /// Stop, and remove the part.
    Discard { file: u32 },
}

impl Order {
    pub(super) const fn file(&self) -> u32 {
        match self {
            Self::Begin { file, .. }
            | Self::Open { file, .. }
            | Self::Fetch { file, .. }
            | Self::Shorten { file, .. }
            | Self::Flush { file }
            | Self::Publish { file }
            | Self::Discard { file } => *file,
        }
    }
}

/// Answer of a destination host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Answer {
    /// The host is connected to its source host.
    Ready,
    /// The host works; comes several times a minute.
    Alive,
    Begun {
        file: u32,
        bytes: u64,
        part: String,
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
