//! Tests of the walk.

use std::fs;

use super::*;

#[test]
fn a_huge_directory_is_walked_in_sorted_parts() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("a/sub")).unwrap();
    for i in 0..50 {
        fs::write(dir.path().join(format!("a/{i:02}")), "").unwrap();
        fs::write(dir.path().join(format!("a/sub/{i:02}")), "").unwrap();
    }
    for names_held in [1, 7, 1000] {
        let set = SourceSet::local(vec![Source::Path(dir.path().join("a"))], true).unwrap();
        let (mut walk, _) = set.into_parts();
        walk.names_held = names_held;
        let mut found = Vec::new();
        while let Some(next) = walk.next() {
            let held: usize = walk.stack.iter().map(|level| level.children.len()).sum();
            assert!(held <= names_held + walk.stack.len(), "{held} of {names_held}");
            assert_eq!(next.failure, None);
            found.push(next.entry.path);
        }
        assert_eq!(found.len(), 102);
        if names_held == 1000 {
            assert!(found.is_sorted(), "one part is all of it");
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 102, "each comes once");
    }
}
