//! Decisions about a replica that lacks much: which entries another replica sends instead of the writer.
//!
//! Another replica sends a file only if it has the version and the content of the writer, and only to a free name. So a
//! change at a replica neither travels nor is replaced. The content is compared again after the copy, because the file of
//! the other replica may change meanwhile.

use sabul_wire::control::{Facts, SeenKind};

use super::{Version, Versions};

/// Ours: another replica sends at least so many bytes of files. At 20 Mb/s, the writer needs 26 s for these; the search for
/// them costs some round trips, and all three machines read them.
pub const CATCH_UP_MIN: u64 = 64_000_000;

/// Whether another replica may send this entry of the writer. Links are short, and names of one file become hard links
/// only if one machine sends all of them.
pub const fn may_send(writer: &Facts) -> bool {
    matches!(writer.kind, SeenKind::File | SeenKind::Directory) && !writer.is_shared
}

/// Whether another replica, which has this entry and these recorded versions, sends it instead of the writer. Files have
/// their hashes.
pub fn sends(writer: &Facts, other: &Facts, versions: Versions) -> bool {
    let has_version = versions.has(writer) && Version::of(other) == Version::of(writer);
    let has_content = match writer.kind {
        SeenKind::File => writer.hash.is_some() && other.hash == writer.hash && !other.is_shared,
        _ => true,
    };
    may_send(writer) && has_version && has_content
}

/// State of an entry after the other replica has sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caught {
    /// The replica has the entry of the writer.
    Complete,
    /// The next comparison decides: the entry is missing, or has another version.
    Open,
    /// The file has the content to which the other replica changed its file meanwhile. The file is removed.
    Foreign,
    /// The file has another content than its version promises. The file gets another name.
    Unlike,
}

impl Caught {
    /// Compares the entry with that of the writer, and with the entry that the other replica has now. All have hashes.
    pub fn of(writer: &Facts, now: Option<&Facts>, other: Option<&Facts>) -> Self {
        let Some(now) = now else { return Self::Open };
        let is_version = Version::of(now).is_copy_of(Version::of(writer));
        if now.kind != SeenKind::File {
            return if is_version { Self::Complete } else { Self::Open };
        }
        let is_equal = now.hash.is_some() && now.hash == writer.hash;
        let comes_from = |other: &Facts| {
            let (here, there) = (Version::of(now), Version::of(other));
            here.is_copy_of(there) && now.hash.is_some() && now.hash == other.hash
        };
        match (is_version, is_equal) {
            (true, true) => Self::Complete,
            (_, false) if other.is_some_and(comes_from) => Self::Foreign,
            (true, false) => Self::Unlike,
            (false, _) => Self::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: i64 = 1_700_000_000_123_456_789;

    fn file(size: u64, modified_ns: i64, hash: u8) -> Facts {
        Facts {
            mode: 0o644,
            hash: Some([hash; 32]),
            ..Facts::new(SeenKind::File, size, Some(modified_ns))
        }
    }

    fn had(facts: &Facts) -> Versions {
        Versions { had: Some(Version::of(facts)), sent: None }
    }

    #[test]
    fn only_the_version_and_the_content_of_the_writer_are_sent() {
        let (writer, older) = (file(7, T, 1), file(5, T - 9, 2));
        assert!(sends(&writer, &writer, had(&writer)));
        assert!(!sends(&writer, &writer, had(&older)), "the record has no such version");
        let same_but = |change: fn(&mut Facts)| {
            let mut facts = writer;
            change(&mut facts);
            facts
        };
        let unread = same_but(|it| it.hash = None);
        let shared = same_but(|it| it.is_shared = true);
        for (other, why) in [
            (same_but(|it| (it.size, it.hash) = (8, Some([3; 32]))), "the file was changed"),
            (same_but(|it| it.modified_ns = Some(T + 1)), "the file was written again"),
            (same_but(|it| it.hash = Some([3; 32])), "the same size and time hide a change"),
            (same_but(|it| it.kind = SeenKind::Link), "a link is there"),
            (shared, "the file has several names there"),
            (unread, "the file cannot be read there"),
        ] {
            assert!(!sends(&writer, &other, had(&writer)), "{why}");
        }
        assert!(!sends(&unread, &unread, had(&unread)), "the writer cannot read its file");
        assert!(!sends(&shared, &writer, had(&writer)), "the file has several names");
    }

    #[test]
    fn directories_are_made_and_links_are_left_to_the_writer() {
        let writer = Facts { kind: SeenKind::Directory, hash: None, ..file(4096, T, 0) };
        let other = Facts { size: 9, modified_ns: Some(1), ..writer };
        assert!(sends(&writer, &other, had(&writer)));
        let link = Facts { kind: SeenKind::Link, ..writer };
        assert!(!sends(&link, &link, had(&link)));
    }

    #[test]
    fn a_content_that_changed_during_the_copy_is_noticed() {
        let writer = file(7, T, 1);
        let (changed, hidden) = (file(8, T + 5, 2), file(7, T, 2));
        for (now, other, expected) in [
            (None, Some(&writer), Caught::Open),
            (Some(&writer), Some(&writer), Caught::Complete),
            (Some(&writer), None, Caught::Complete),
            (Some(&changed), Some(&changed), Caught::Foreign),
            (Some(&hidden), Some(&hidden), Caught::Foreign),
            // Another program has written these at the replica, or the other replica has a newer change.
            (Some(&changed), Some(&writer), Caught::Open),
            (Some(&hidden), Some(&writer), Caught::Unlike),
            (Some(&hidden), None, Caught::Unlike),
        ] {
            assert_eq!(Caught::of(&writer, now, other), expected, "{now:?}, {other:?}");
        }
    }
}
