//! List of the large files of a copy, from the dry run of a destination host.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::chunks::{CHUNK, FILE_MAX};

/// Smallest file that several pairs copy. Ours: one chunk for each of two pairs.
pub(super) const STRIPED_FROM: u64 = 2 * CHUNK;
/// Ours: most files that are divided. The list of a host is not trusted to be short.
const FILES_MAX: usize = 1_000_000;

/// Document of the dry run.
#[derive(Debug, Deserialize)]
pub(super) struct List {
    #[serde(rename = "entries")]
    pub(super) large: Large,
}

/// Names and sizes of the files that are divided. Other entries are dropped while the document is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Large(pub(super) Vec<(String, u64)>);

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow, default)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    what: Cow<'a, str>,
    bytes: Option<u64>,
}

impl<'de> Deserialize<'de> for Large {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(LargeVisitor)
    }
}

struct LargeVisitor;

impl<'de> Visitor<'de> for LargeVisitor {
    type Value = Large;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Large, A::Error> {
        let mut large = Vec::new();
        while let Some(Entry { path, what, bytes }) = entries.next_element::<Entry<'de>>()? {
            let bytes = bytes.filter(|bytes| (STRIPED_FROM..=FILE_MAX).contains(bytes));
            let Some(bytes) = bytes.filter(|_| matches!(&*what, "send" | "replace")) else {
                continue;
            };
            if large.len() == FILES_MAX {
                return Err(A::Error::custom(format!("more than {FILES_MAX} large files")));
            }
            large.push((path.into_owned(), bytes));
        }
        Ok(Large(large))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_files_are_kept() {
        let entry = |path: &str, what: &str, bytes: u64| {
            format!(r#"{{"path":"{path}","what":"{what}","bytes":{bytes},"more":[1]}}"#)
        };
        let text = |entries: &[String]| format!(r#"{{"x":1,"entries":[{}]}}"#, entries.join(","));
        let read = |text: &str| serde_json::from_str::<List>(text).map(|list| list.large.0);
        let entries = [
            entry("a", "send", STRIPED_FROM),
            entry("b\\n", "replace", FILE_MAX),
            entry("c", "send", STRIPED_FROM - 1),
            entry("d", "send", FILE_MAX + 1),
            entry("e", "make", STRIPED_FROM),
            r#"{"path":"f"}"#.to_owned(),
            "{}".to_owned(),
        ];
        let kept = [("a".to_owned(), STRIPED_FROM), ("b\n".to_owned(), FILE_MAX)];
        assert_eq!(read(&text(&entries)).unwrap(), kept);
        assert_eq!(read(&text(&[])).unwrap(), []);
        for invalid in ["null", "[]", r#"{"entries":[[0],[0]]}"#, r#"{"entries":1}"#] {
            read(invalid).unwrap_err();
        }
        let many = vec![entry("a", "send", STRIPED_FROM); FILES_MAX + 1];
        assert!(read(&text(&many)).unwrap_err().to_string().contains("large files"));
    }
}
