//! What stays of a file that is changed: bits, owners, times of change.

use super::*;

/// Sends three files, of which the second is changed when the first was announced.
fn send_changed(change: impl FnOnce(&Path) + 'static) -> SendSummary {
    let from = TempDir::new().unwrap();
    let [first, second, last] = ["a", "b", "c"].map(|name| write(from.path(), name, &[2; 400_000]));
    let set = local(&[&first, &second, &last]);
    let mut change = Some(change);
    let mut sent = Record {
        block_bytes: 100_000,
        after_first: Some(Box::new(move || {
            // The clock of the file system may go on in steps.
            std::thread::sleep(Duration::from_millis(30));
            change.take().expect("once")(&second);
        })),
        ..Record::default()
    };
    let options = SendOptions { preserve: true, block_bytes: 100_000 };
    send_files(set, options, Have::default(), &mut sent).unwrap()
}

/// Rewrites the last half of a file and puts its time back.
fn rewrite(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let file = File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[3; 200_000], 200_000).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

#[test]
fn other_bits_and_another_name_are_no_change_of_a_source() {
    let bits = send_changed(|path| {
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    });
    assert_eq!(bits.failures, []);
    let name = send_changed(|path| fs::hard_link(path, path.with_extension("2")).unwrap());
    assert_eq!(name.failures, []);
    // Rewritten before any of it was read: what was sent is what is there.
    assert_eq!(send_changed(rewrite).failures, []);
}

#[test]
fn a_source_that_is_rewritten_while_it_is_read_is_found_though_its_time_is_put_back() {
    let from = TempDir::new().unwrap();
    let file = write(from.path(), "f", &[2; 400_000]);
    let (to_change, mut blocks) = (file.clone(), 0);
    let mut sent = Record {
        block_bytes: 100_000,
        // Half of it is read by now.
        before_block: Some(Box::new(move || {
            blocks += 1;
            if blocks == 3 {
                std::thread::sleep(Duration::from_millis(30));
                let modified = fs::metadata(&to_change).unwrap().modified().unwrap();
                let file = File::options().write(true).open(&to_change).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &[3; 400_000], 0).unwrap();
                file.set_times(FileTimes::new().set_modified(modified)).unwrap();
            }
        })),
        ..Record::default()
    };
    let options = SendOptions { preserve: true, block_bytes: 100_000 };
    let summary = send_files(local(&[&file]), options, Have::default(), &mut sent).unwrap();
    let [(_, failure)] = &summary.failures[..] else { panic!("{:?}", summary.failures) };
    assert_eq!(failure.code, FailureCode::Changed, "{failure}");
}
