//! File attributes that a copy could not keep.

use sabul::files::{NotKept, Trait};
use sabul_units::count;
use schemars::JsonSchema;
use serde::Serialize;

/// Number of attributes that were not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotKeptJson {
    /// Entries with another owner or group.
    pub owners: u64,
    /// Missing extended attributes and access control lists.
    pub attributes: u64,
    /// Entries with other permission bits. Setuid and setgid bits, and sticky bits of files, are never kept.
    pub bits: u64,
}

impl NotKeptJson {
    /// Returns the counts.
    pub fn of(list: &[NotKept]) -> Self {
        let mut counts = Self::default();
        for not_kept in list {
            let sum = match not_kept.what {
                Trait::Owner => &mut counts.owners,
                Trait::Attribute => &mut counts.attributes,
                Trait::Bits => &mut counts.bits,
            };
            *sum = sum.saturating_add(not_kept.count);
        }
        counts
    }
}

/// Returns one line for users, or `None` if everything was kept.
pub fn line(list: &[NotKept]) -> Option<String> {
    let parts = list.iter().filter(|it| it.count > 0).map(|NotKept { what, count: n, why }| {
        let what = match what {
            Trait::Owner => count(*n, "owner"),
            Trait::Attribute => count(*n, "extended attribute"),
            Trait::Bits => format!("permission bits of {}", count(*n, "file")),
        };
        format!("{what} ({why})")
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("not kept: {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_not_kept_are_one_line_with_reasons() {
        let not_kept = |what, count| NotKept { what, count, why: "so".into() };
        assert_eq!(line(&[]), None);
        assert_eq!(line(&[not_kept(Trait::Bits, 0)]), None);
        let list = [not_kept(Trait::Owner, 2), not_kept(Trait::Attribute, 1)];
        assert_eq!(line(&list).unwrap(), "not kept: 2 owners (so), 1 extended attribute (so)");
        let counts = NotKeptJson::of(&list);
        assert_eq!(counts, NotKeptJson { owners: 2, attributes: 1, bits: 0 });
    }
}
