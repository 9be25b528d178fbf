//! Validation of the metadata of an announced entry, before the receiver acts on the entry.

use sabul_wire::Printable;
use sabul_wire::control::{Attribute, Entry, EntryKind, MAX_ATTRIBUTE_BYTES, More};

use crate::kept::kept_ranges;
use crate::layout::Layout;
use crate::path::RelativePath;

/// Namespace of extended attributes that users and programs set on their own files.
const USER: &[u8] = b"user.";
/// Extended attributes in which Linux stores POSIX ACLs.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Whether an extended attribute of this name is copied. User attributes and ACLs are copied. Other
/// attributes belong to one machine or grant privileges.
pub fn is_copied_attribute(name: &[u8]) -> bool {
    let is_users = name.strip_prefix(USER).is_some_and(|rest| !rest.is_empty());
    (is_users || LISTS.contains(&name)) && !name.contains(&0)
}

/// Returns a description of the first flaw in the metadata of an entry. Its path is not checked
/// here.
pub(crate) fn flaw(entry: &Entry) -> Option<String> {
    let nothing = More::default();
    let more = entry.more.as_deref().unwrap_or(&nothing);
    let name = Printable(&entry.path);
    let target = &more.target;
    let what = match entry.kind {
        EntryKind::SymbolicLink if target.is_empty() || target.contains(&0) => {
            format!("the link '{name}' has an invalid target")
        }
        EntryKind::HardLink if *target == entry.path => format!("'{name}' is a link to itself"),
        EntryKind::HardLink => match RelativePath::new(&**target) {
            Ok(_) => return flaw_of_more(entry, more),
            Err(error) => format!("the hard link '{name}' has an invalid target: {error}"),
        },
        EntryKind::File(_) | EntryKind::Directory | EntryKind::Stream if !target.is_empty() => {
            format!("'{name}' is not a link, but has a link target")
        }
        _ => return flaw_of_more(entry, more),
    };
    Some(what)
}

fn flaw_of_more(entry: &Entry, more: &More) -> Option<String> {
    let name = Printable(&entry.path);
    if more.owner.is_some_and(|it| it.user == u32::MAX || it.group == u32::MAX) {
        return Some(format!("the owner of '{name}' is invalid"));
    }
    if let Some(data) = &more.data {
        let EntryKind::File(size) = entry.kind else {
            return Some(format!("'{name}' has a hole map, but is not a file"));
        };
        if Layout::with_holes(size, data).is_none() {
            return Some(format!("the hole map of '{name}' is invalid"));
        }
    }
    if kept_ranges(entry).is_none() {
        return Some(format!("the kept ranges of '{name}' are invalid"));
    }
    let bad = |it: &&Attribute| !is_copied_attribute(&it.name);
    if let Some(attribute) = more.attributes.iter().find(bad) {
        let attribute = Printable(&attribute.name);
        return Some(format!("'{name}' has the attribute '{attribute}', which is not copied"));
    }
    let bytes: usize = more.attributes.iter().map(|it| it.name.len() + it.value.len()).sum();
    let may_have = matches!(entry.kind, EntryKind::File(_) | EntryKind::Directory);
    if bytes > MAX_ATTRIBUTE_BYTES || (bytes > 0 && !may_have) {
        return Some(format!("'{name}' has {bytes} bytes of attributes, which exceeds the limit"));
    }
    None
}
