//! Entries of a local source that another user swaps between their lookup and their opening.

use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use sabul_wire::control::{ListOptions, View};

use super::*;
use crate::source::{Found, Step, Walk};

const SECRET: &[u8] = b"of another user";
const OWN: &[u8] = b"0123456789 own.";

/// A source `d` with a large file, 100 small ones and `sub/a`, `sub/z`; beside it `out` with files of the same names,
/// sizes and modification times. Times of the system advance in steps of at most 10 ms: without a pause, birth and
/// change times of two files could be equal, too.
fn source_and_secrets() -> TempDir {
    let dir = TempDir::new().unwrap();
    let more = ["sub/a", "sub/z", "zz"].map(str::to_owned);
    let names = (0..99).map(|n| format!("f{n:02}")).chain(more);
    for name in names {
        write(dir.path(), format!("d/{name}"), OWN);
        write(dir.path(), format!("out/{name}"), SECRET);
    }
    write(dir.path(), "d/big", &OWN.repeat(10_000));
    std::thread::sleep(Duration::from_millis(20));
    write(dir.path(), "out/big", &SECRET.repeat(10_000));
    for name in ["big", "f98", "sub/a", "sub/z"] {
        let time = fs::metadata(dir.path().join("d").join(name)).unwrap().modified().unwrap();
        let file = File::options().write(true).open(dir.path().join("out").join(name)).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }
    dir
}

/// Moves a name of `d` away and makes a link to the same name in `out`.
fn swap_for_link(dir: &Path, name: &str) {
    fs::rename(dir.join("d").join(name), dir.join("own")).unwrap();
    symlink(dir.join("out").join(name), dir.join("d").join(name)).unwrap();
}

/// Swaps a name after the first entry is announced; returns all that is sent, and the failures.
fn send_with(dir: &Path, archive: bool, swap: impl FnMut() + 'static) -> (Vec<u8>, Vec<Failure>) {
    let mut outlet =
        Record { block_bytes: BLOCK_BYTES, after_first: Some(Box::new(swap)), ..Record::default() };
    let set = local(&[&dir.join("d")]).with_archive_mode(archive);
    let summary = send_files(set, BLOCK_BYTES, Have::default(), &mut outlet).unwrap();
    let failures = summary.failures.into_iter().map(|(_, failure)| failure).collect();
    (outlet.blocks.into_iter().flatten().collect(), failures)
}

fn contains(sent: &[u8], text: &[u8]) -> bool {
    sent.windows(text.len()).any(|part| part == text)
}

#[test]
fn a_link_that_replaces_a_file_before_its_opening_is_not_followed() {
    for (name, archive) in [("big", false), ("big", true), ("f98", false), ("f98", true)] {
        let dir = source_and_secrets();
        let path = dir.path().to_path_buf();
        let (sent, failures) = send_with(dir.path(), archive, move || swap_for_link(&path, name));
        assert!(!contains(&sent, SECRET), "{name} {archive}");
        let codes: Vec<_> = failures.iter().map(|failure| failure.code).collect();
        assert_eq!(codes, [FailureCode::Changed], "{name} {archive} {failures:?}");
        assert!(failures[0].message.contains(name), "{failures:?}");
    }
}

#[test]
fn a_link_that_replaces_a_directory_before_its_files_are_opened_is_not_followed() {
    for archive in [false, true] {
        let dir = source_and_secrets();
        let path = dir.path().to_path_buf();
        let (sent, failures) = send_with(dir.path(), archive, move || swap_for_link(&path, "sub"));
        assert!(!contains(&sent, SECRET), "{archive}");
        assert_eq!(failures.len(), 2, "{archive} {failures:?}");
        assert!(failures.iter().all(|it| it.code == FailureCode::Changed), "{failures:?}");
    }
}

#[test]
fn another_file_that_replaces_a_file_is_not_sent_under_its_metadata() {
    for follow in [false, true] {
        for name in ["big", "f98"] {
            let dir = source_and_secrets();
            let path = dir.path().to_path_buf();
            let swap = move || {
                fs::rename(path.join("out").join(name), path.join("d").join(name)).unwrap();
            };
            let mut outlet = Record {
                block_bytes: BLOCK_BYTES,
                after_first: Some(Box::new(swap)),
                ..Record::default()
            };
            let set = local(&[&dir.path().join("d")]).with_links_out(follow);
            let summary = send_files(set, BLOCK_BYTES, Have::default(), &mut outlet).unwrap();
            let sent: Vec<u8> = outlet.blocks.into_iter().flatten().collect();
            assert!(name != "big" || !contains(&sent, SECRET), "{follow}");
            let codes: Vec<_> = summary.failures.iter().map(|(_, failure)| failure.code).collect();
            assert_eq!(codes, [FailureCode::Changed], "{name} {follow}");
        }
    }
}

/// The walk of `d`, up to and with the entry of this name.
fn walk_to(set: SourceSet, name: &str) -> (Walk, Found) {
    let (mut walk, _) = set.into_parts();
    let found = walk.find(|found| found.entry.path == name.as_bytes()).unwrap();
    (walk, found)
}

fn text_of(found: &Found) -> Result<Vec<u8>, FailureCode> {
    let file = found.open_same().map_err(|failure| failure.code)?;
    let mut text = Vec::with_capacity(100);
    file.read_at(&mut text, 0).unwrap();
    Ok(text)
}

#[test]
fn a_directory_that_is_replaced_during_its_walk_is_not_left_for_another() {
    for archive in [false, true] {
        let dir = source_and_secrets();
        let set = local(&[&dir.path().join("d")]).with_archive_mode(archive);
        let (mut walk, _) = walk_to(set, "d/sub/a");
        swap_for_link(dir.path(), "sub");
        // The name is looked up in the directory that was entered.
        let found = walk.next().unwrap();
        let own = fs::metadata(dir.path().join("own/z")).unwrap();
        assert_eq!((found.entry.path.as_slice(), &found.failure), (&b"d/sub/z"[..], &None));
        assert_eq!(found.changed.seconds, own.ctime());
        assert_eq!(text_of(&found), Ok(OWN.to_vec()));
        // Later, its path leads through the link.
        walk.for_each(drop);
        assert_eq!(text_of(&found), Err(FailureCode::Changed));
    }
}

#[test]
fn a_walk_does_not_return_to_a_directory_that_was_replaced() {
    let dir = TempDir::new().unwrap();
    for name in ["d/m/in/f", "d/m/z", "other/in/f", "other/z"] {
        write(dir.path(), name, b"x");
    }
    let (walk, _) = walk_to(local(&[&dir.path().join("d")]), "d/m/in/f");
    fs::rename(dir.path().join("d/m"), dir.path().join("own")).unwrap();
    fs::rename(dir.path().join("other"), dir.path().join("d/m")).unwrap();
    let rest: Vec<_> =
        walk.map(|found| (found.entry.path, found.failure.map(|it| it.code))).collect();
    assert_eq!(rest, [(b"d/m".to_vec(), Some(FailureCode::Changed))]);
}

#[test]
fn links_inside_a_source_are_followed_only_to_the_file_of_their_lookup() {
    let dir = source_and_secrets();
    let inside = dir.path().join("d/l");
    fs::create_dir(&inside).unwrap();
    symlink(dir.path().join("d/f01"), inside.join("absolute")).unwrap();
    symlink("../f02", inside.join("file")).unwrap();
    symlink("../sub", inside.join("folder")).unwrap();
    for name in ["absolute", "file", "folder/a"] {
        let (_, found) = walk_to(local(&[&dir.path().join("d")]), &format!("d/l/{name}"));
        assert_eq!(text_of(&found), Ok(OWN.to_vec()), "{name}");
    }
    for (name, target) in [("file", "../../out/f02"), ("file", "../f03")] {
        let (_, found) = walk_to(local(&[&dir.path().join("d")]), &format!("d/l/{name}"));
        fs::remove_file(inside.join(name)).unwrap();
        symlink(target, inside.join(name)).unwrap();
        assert_eq!(text_of(&found), Err(FailureCode::Changed), "{target}");
        fs::remove_file(inside.join(name)).unwrap();
        symlink("../f02", inside.join(name)).unwrap();
    }
    let (walk, found) = walk_to(local(&[&dir.path().join("d")]), "d/l/folder/a");
    walk.for_each(drop);
    fs::remove_file(inside.join("folder")).unwrap();
    symlink("../../out/sub", inside.join("folder")).unwrap();
    assert_eq!(text_of(&found), Err(FailureCode::Changed));
}

#[test]
fn chosen_names_are_looked_up_without_swapped_links() {
    struct None;
    impl Selection for None {
        fn next(&mut self) -> Selected {
            Selected::End
        }
    }
    let dir = source_and_secrets();
    let set = local(&[&dir.path().join("d").join("")]).with_archive_mode(true);
    let (mut walk, _) = set.with_selection(Box::new(None), Option::None).into_parts();
    let mut visit = |name: &[u8]| walk.visit_chosen(name.to_vec()).unwrap();
    let found = visit(b"sub/a");
    assert_eq!((text_of(&found), found.failure), (Ok(OWN.to_vec()), Option::None));
    swap_for_link(dir.path(), "sub");
    assert_eq!(visit(b"f01").failure, Option::None);
    let failure = visit(b"sub/z").failure.map(|failure| failure.code);
    assert_eq!(failure, Some(FailureCode::Changed));
}

#[test]
fn a_fifo_in_place_of_a_directory_does_not_block() {
    let dir = source_and_secrets();
    for archive in [false, true] {
        let (mut walk, _) =
            walk_to(local(&[&dir.path().join("d")]).with_archive_mode(archive), "d/f98");
        fs::rename(dir.path().join("d/sub"), dir.path().join("own")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("d/sub"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let Step::Found(found) = walk.step() else { panic!("an entry follows") };
        assert!(found.failure.is_some());
        let path = dir.path().join("d/sub");
        assert!(tree::Tree::Local.open_directory(&path).is_err());
        assert!(tree::Tree::Local.enter(&path).is_err());
        fs::remove_file(&path).unwrap();
        fs::rename(dir.path().join("own"), dir.path().join("d/sub")).unwrap();
    }
}

#[test]
fn entries_of_many_sources_can_be_opened_after_the_walk() {
    let dir = TempDir::new().unwrap();
    let sources: Vec<_> = (0..40).map(|n| dir.path().join(format!("s{n:02}"))).collect();
    for source in &sources {
        write(source, "f", OWN);
    }
    let set = local(&sources.iter().map(|path| &**path).collect::<Vec<_>>());
    let (walk, _) = set.into_parts();
    let files: Vec<_> = walk.filter(|it| it.entry.path.ends_with(b"/f")).collect();
    fs::rename(&sources[1], dir.path().join("own")).unwrap();
    symlink(dir.path().join("own"), &sources[1]).unwrap();
    fs::rename(&sources[0], dir.path().join("first")).unwrap();
    fs::create_dir(&sources[0]).unwrap();
    write(&sources[0], "f", SECRET);
    let texts: Vec<_> = files.iter().map(text_of).collect();
    assert_eq!(texts[0], Err(FailureCode::Changed), "another directory has the name of the source");
    assert!(texts[1..].iter().all(|text| *text == Ok(OWN.to_vec())), "{texts:?}");
}

/// The state of a file by its path, from a listing of states.
fn state(path: &Path) -> Option<[u8; 32]> {
    let options = ListOptions { states: true, literal: true, ..ListOptions::default() };
    let place = vec![path.as_os_str().as_bytes().to_vec()];
    let mut listing =
        DirectoryListing::new(None, place, View::Tree, &options, Rules::default()).unwrap();
    match listing.step(&|| false) {
        ListingStep::Seen(seen) => seen.outcome.unwrap().hash,
        step => panic!("{step:?}"),
    }
}

#[test]
fn only_a_file_in_the_requested_state_is_sent() {
    let dir = source_and_secrets();
    let big = dir.path().join("d/big");
    let wanted = state(&big);
    assert!(wanted.is_some() && wanted == state(&big));
    assert_ne!(wanted, state(&dir.path().join("out/big")));
    let send = || {
        let mut outlet = Record { block_bytes: BLOCK_BYTES, ..Record::default() };
        let set = local(&[&big]).with_state(wanted);
        let summary = send_files(set, BLOCK_BYTES, Have::default(), &mut outlet).unwrap();
        let codes: Vec<_> = summary.failures.iter().map(|(_, failure)| failure.code).collect();
        let bytes: usize = outlet.blocks.iter().map(Vec::len).sum();
        (bytes >= OWN.len() * 10_000, codes)
    };
    assert_eq!(send(), (true, vec![]));
    // Another file of the same size and time, through a link and by its name.
    swap_for_link(dir.path(), "big");
    assert_eq!(send(), (false, vec![FailureCode::Changed]));
    fs::remove_file(&big).unwrap();
    fs::hard_link(dir.path().join("out/big"), &big).unwrap();
    assert_eq!(send(), (false, vec![FailureCode::Changed]));
    fs::remove_file(&big).unwrap();
    // A change in place that sets the old time again; moves change the change time of some file systems, too.
    fs::rename(dir.path().join("own"), &big).unwrap();
    let time = fs::metadata(&big).unwrap().modified().unwrap();
    let file = File::options().write(true).open(&big).unwrap();
    file.write_all_at(b"other", 0).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
    assert_eq!(send(), (false, vec![FailureCode::Changed]));
}
