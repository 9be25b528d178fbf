//! Extended attributes and access control lists of the two entries of a comparison.

use sabul_wire::control::Facts;

use crate::acl;

/// Whether extended attributes or access control lists differ.
pub fn attributes_differ(source: &Facts, old: &Facts) -> bool {
    differing_attributes(source, old) != (false, false)
}

/// Whether attributes of users differ, and whether access control lists do. Attributes that were not read, or that the file
/// system of one end does not keep, are not compared.
pub fn differing_attributes(source: &Facts, old: &Facts) -> (bool, bool) {
    let (Some(source), Some(old)) = (source.attributes, old.attributes) else {
        return (false, false);
    };
    let differ = |a: Option<[u8; 8]>, b: Option<[u8; 8]>| a.is_some() && b.is_some() && a != b;
    (differ(source.users, old.users), differ(source.lists, old.lists))
}

/// The access control lists of an entry, if both ends have the same.
fn same_lists(source: &Facts, old: &Facts) -> Option<[u8; 8]> {
    let lists = |facts: &Facts| facts.attributes.and_then(|found| found.lists);
    lists(source).filter(|lists_there| lists(old) == Some(*lists_there))
}

/// The permission bits for an entry of the destination; `None` is a new entry without a list. Without the access control
/// list of the source, its mask gives no rights to the owning group.
pub fn mode_of(source: &Facts, old: Option<&Facts>) -> u32 {
    let has_list = old.is_some_and(|old| same_lists(source, old).is_some());
    let group = source.attributes.filter(|_| !has_list).map_or(acl::GROUP, |found| found.group);
    source.mode & (!acl::GROUP | group)
}

/// The metadata by which the destination recognizes an entry. Its lists are part of it if they are those of the source.
pub fn recognized(source: &Facts, old: &Facts) -> Facts {
    let attributes = old.attributes.filter(|_| same_lists(source, old).is_some());
    Facts { hash: None, attributes, ..*old }
}

#[cfg(test)]
mod tests {
    use sabul_wire::control::{SeenAttributes, SeenKind};

    use super::*;

    #[test]
    fn the_mask_of_a_list_counts_only_with_the_list() {
        let facts = |lists: Option<u8>, group| Facts {
            mode: 0o660,
            hash: Some([1; 32]),
            attributes: Some(SeenAttributes { users: None, lists: lists.map(|it| [it; 8]), group }),
            ..Facts::new(SeenKind::File, 1, Some(1))
        };
        let (source, old) = (facts(Some(1), 0o040), facts(Some(2), 0o070));
        assert!(attributes_differ(&source, &old) && !attributes_differ(&source, &source));
        assert_eq!(differing_attributes(&source, &old), (false, true));
        assert!(!attributes_differ(&source, &facts(None, 0o070)), "one end keeps no lists");
        assert_eq!(mode_of(&source, None), 0o640);
        assert_eq!(mode_of(&source, Some(&old)), 0o640);
        assert_eq!(mode_of(&source, Some(&facts(None, 0o070))), 0o640);
        assert_eq!(mode_of(&source, Some(&source)), 0o660);
        assert_eq!(recognized(&source, &old).attributes, None);
        let Facts { hash, attributes, .. } = recognized(&source, &source);
        assert_eq!((hash, attributes), (None, source.attributes));
    }
}
