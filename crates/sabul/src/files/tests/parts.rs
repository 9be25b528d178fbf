//! Files on their way: under the name of a part until they are complete and verified.

use super::*;

#[test]
fn content_that_was_altered_on_the_way_never_gets_its_name() {
    let from = TempDir::new().unwrap();
    let file = write(from.path(), "f", &[1; 2500]);
    let to = TempDir::new().unwrap();
    write(to.path(), "f", b"old");
    let (mut sent, _) = record(local(&[&file]), OPTIONS);
    sent.blocks[1][3] ^= 1;
    let mut receiver = receiver(to.path(), "", true);
    let messages = replay(sent, &mut receiver, false);
    assert!(messages.iter().any(|message| matches!(message,
        Message::EntryFailed { index: 0, failure, .. }
            if failure.code == FailureCode::Verification)));
    assert_eq!(tree(to.path()), BTreeMap::from([(b"f".to_vec(), Some(b"old".to_vec()))]));
}

#[test]
fn a_transfer_that_ends_early_leaves_no_parts() {
    for abort in [true, false] {
        let to = TempDir::new().unwrap();
        let mut receiver = receiver(to.path(), "", true);
        let entries = vec![
            entry("a", EntryKind::File(5)),
            entry("\u{e9}".repeat(127).as_str(), EntryKind::File(9)),
        ];
        receiver.on_message(manifest(entries)).unwrap();
        receiver.on_block(b"aaaaabbb".to_vec()).unwrap();
        assert_eq!(names(to.path()).len(), 2, "one part is full, one is not");
        assert!(names(to.path()).iter().all(|name| name.ends_with(".sabul-part")));
        if abort {
            receiver.abort();
        } else {
            drop(receiver);
        }
        assert!(names(to.path()).is_empty());
    }
}

#[test]
fn whatever_has_the_name_of_a_part_is_replaced_and_not_followed() {
    let from = TempDir::new().unwrap();
    let file = write(from.path(), "f", b"content");
    let other = write(from.path(), "other", b"untouched");
    let stale: [fn(&Path, &Path); 3] = [
        |part, _| fs::write(part, b"longer than the content").unwrap(),
        |part, other| symlink(other, part).unwrap(),
        |part, _| {
            rustix::fs::mkfifoat(rustix::fs::CWD, part, rustix::fs::Mode::RWXU).unwrap();
        },
    ];
    for make in stale {
        let to = TempDir::new().unwrap();
        make(&to.path().join("f.sabul-part"), &other);
        copy(&[&file], to.path(), "", true);
        assert_eq!(names(to.path()), ["f"]);
        assert!(to.path().join("f").symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read(to.path().join("f")).unwrap(), b"content");
        assert_eq!(fs::read(&other).unwrap(), b"untouched");
    }
}

#[test]
fn a_file_larger_than_the_disk_fails_before_its_first_byte() {
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    let entries = vec![entry("huge", EntryKind::File(1 << 60)), entry("b", EntryKind::File(1))];
    receiver.on_message(manifest(entries)).unwrap();
    receiver.on_block(vec![0; 10]).unwrap();
    let messages = receiver.poll_messages(Duration::ZERO);
    let [Message::EntryFailed { index: 0, failure, .. }, _progress] = &messages[..] else {
        panic!("{messages:?}")
    };
    assert_eq!(failure.code, FailureCode::NoSpace);
    assert!(failure.message.contains("'huge'"), "{failure}");
    assert!(names(to.path()).is_empty());
}
