//! Fuzz target for names from the peer: accepted names lead downwards, and contain no terminal
//! control characters when shown.

use std::path::{Component, Path};

use sabul_content::{MAX_COMPONENT, MAX_PATH, RelativePath};
use sabul_files::root::{MAX_PATH as ROOT_MAX_PATH, RootPath};

/// Input: one path, and a list of names separated by 0xFF or `/`.
pub(crate) fn target(data: &[u8]) -> bool {
    let relative = RelativePath::new(data);
    assert_eq!(relative.is_ok(), is_plain(data), "{relative:?}");
    match &relative {
        Ok(path) => {
            assert_eq!(path.as_bytes(), data);
            check_downwards(path.as_bytes(), path.components().count());
            let shown = path.to_string();
            assert!(!shown.contains(char::is_control), "{shown:?}");
            let checked = RootPath::new(path.components());
            assert_eq!(checked.is_ok(), data.len() <= ROOT_MAX_PATH, "{checked:?}");
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control), "{shown:?}");
        }
    }
    check_root(data.split(|&byte| byte == 0xFF));
    check_root(data.split(|&byte| byte == b'/'));
    relative.is_ok()
}

fn check_root<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) {
    let path = match RootPath::new(names.clone()) {
        Ok(path) => path,
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control), "{error:?}");
            return;
        }
    };
    assert!(path.components().eq(names), "no name is lost or split");
    check_downwards(path.as_bytes(), path.components().count());
    assert!(!path.to_string().contains(char::is_control), "{path:?}");
    let (parent, name) = (path.parent(), path.name());
    let parent = parent.expect("a path of at least one name has a parent");
    let rejoined = parent.join(name.expect("and a name")).expect("which is good");
    assert_eq!(rejoined, path);
}

/// Checks with the standard library's parser: plain names only, and the same number of names.
fn check_downwards(path: &[u8], names: usize) {
    use std::os::unix::ffi::OsStrExt as _;
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    assert!(path.components().all(|part| matches!(part, Component::Normal(_))), "{path:?}");
    assert_eq!(path.components().count(), names, "{path:?}");
}

/// Independent statement of the rules of a relative path.
fn is_plain(path: &[u8]) -> bool {
    (1..=MAX_PATH).contains(&path.len())
        && path.split(|&byte| byte == b'/').all(|name| {
            (1..=MAX_COMPONENT).contains(&name.len())
                && !name.contains(&0)
                && !matches!(name, b"." | b"..")
        })
}
