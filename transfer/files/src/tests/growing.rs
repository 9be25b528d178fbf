//! Files that grow while they are read.

use super::*;

/// Sends a file of bytes 2, which `change` changes after its first bytes were read. Returns the summary, and the file at
/// the destination.
fn sent(size: usize, growing: bool, change: fn(&Path)) -> (SendSummary, Option<Vec<u8>>) {
    let from = TempDir::new().unwrap();
    let first = write(from.path(), "a", &[1; 700]);
    let changing = write(from.path(), "b", &vec![2; size]);
    let mut to_change = Some(changing.clone());
    let mut act = move || to_change.take().iter().for_each(|path| change(path));
    let mut sent = Record { block_bytes: 1000, ..Record::default() };
    // The content of a small file is read at once, so it changes before.
    if size < 100_000 {
        sent.after_first = Some(Box::new(act));
    } else {
        sent.before_block = Some(Box::new(move |_| act()));
    }
    let all = [&*first, &*changing];
    let set = local(if size < 100_000 { &all } else { &all[1..] }).with_growing(growing);
    let summary = send_files(set, BLOCK_BYTES, Have::default(), &mut sent).unwrap();
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    sent.before_block = None;
    replay(sent, &mut receiver);
    assert_eq!(receiver.finished().unwrap().grown, summary.grown);
    (summary, fs::read(to.path().join("b")).ok())
}

fn append(path: &Path) {
    let mut file = File::options().append(true).open(path).unwrap();
    io::Write::write_all(&mut file, &[3; 500]).unwrap();
}

#[test]
fn a_growing_file_arrives_up_to_its_first_size() {
    for size in [4000, 200_000] {
        let (summary, content) = sent(size, true, append);
        assert_eq!((summary.failed, summary.grown), (0, 1), "{:?}", summary.failures);
        assert!(content == Some(vec![2; size]), "{size}");
        let (summary, content) = sent(size, false, append);
        assert_eq!((summary.failed, summary.grown, content.is_none()), (1, 0, true));
    }
}

#[test]
fn a_file_that_shrinks_or_is_rewritten_fails_although_files_may_grow() {
    let rewrite = |path: &Path| fs::write(path, vec![9; 300_000]).unwrap();
    let shrink = |path: &Path| File::options().write(true).open(path).unwrap().set_len(9).unwrap();
    for (word, change) in [("changed", rewrite as fn(&Path)), ("shrank", shrink)] {
        let (summary, content) = sent(200_000, true, change);
        assert_eq!((summary.failed, summary.grown, content.is_none()), (1, 0, true), "{word}");
        let failure = &summary.failures[0].1;
        assert!(failure.message.contains(word), "{failure}");
    }
    let hidden = local(&[Path::new("/proc/self/status")]).with_growing(true);
    let (_, summary) = record(hidden, BLOCK_BYTES);
    assert_eq!(summary.failures[0].1.code, FailureCode::Changed);
}
