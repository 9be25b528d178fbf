//! Files that are sent while another transfer still writes them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sabul_wire::control::{Checkpoint, Held};

use super::*;

const SIZE: usize = 600_000;
const PART: &str = "d/f.0123456789abcdef.sabul-part";
const NEWER: &str = "d/f.00000000deadbeef.kept.sabul-part";
const MODIFIED_NS: i64 = 1_700_000_000_123_456_789;

/// One awaited file, `d/f`.
struct One {
    entry: Option<Awaited>,
    is_written: Arc<AtomicBool>,
}

impl Selection for One {
    fn next(&mut self) -> Selected {
        self.entry.take().map_or(Selected::End, |entry| Selected::Awaited(Box::new(entry)))
    }

    fn is_written(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_written)
    }
}

/// The sender as its writer sees it.
struct Sending {
    folder: PathBuf,
    has_sent: Arc<AtomicBool>,
    is_written: Arc<AtomicBool>,
}

impl Sending {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn append(&self, part: &str, content: &[u8]) {
        let mut file = File::options().create(true).append(true).open(self.path(part)).unwrap();
        io::Write::write_all(&mut file, content).unwrap();
    }

    fn complete(&self, part: &str) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(MODIFIED_NS.unsigned_abs());
        let file = File::options().write(true).open(self.path(part)).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
        fs::rename(self.path(part), self.path("d/f")).unwrap();
    }

    fn wait_for_block(&self) {
        while !self.has_sent.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Sending {
    /// The end of the writer ends all waiting.
    fn drop(&mut self) {
        self.is_written.store(true, Ordering::Release);
    }
}

/// Sends `d/f` while `write` writes it. Returns the summary, and the file at the destination.
fn sent(write: fn(&Sending)) -> (SendSummary, Option<Vec<u8>>) {
    let (summary, record) = recorded(Have::default(), write);
    let to = TempDir::new().unwrap();
    fs::create_dir(to.path().join("d")).unwrap();
    let mut receiver = receiver(to.path(), "", true);
    replay(record, &mut receiver);
    (summary, fs::read(to.path().join("d/f")).ok())
}

/// Sends `d/f`, of which the receiver has `have`, while `write` writes it.
fn recorded(have: Have, write: fn(&Sending)) -> (SendSummary, Record) {
    let from = TempDir::new().unwrap();
    fs::create_dir(from.path().join("d")).unwrap();
    let (has_sent, is_written) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let flag = Arc::clone(&has_sent);
    let mut record = Record { block_bytes: 100_000, may_be_short: true, ..Record::default() };
    // A block without content precedes the writer's first bytes if the writer is late.
    record.before_block = Some(Box::new(move |block| {
        flag.fetch_or(block.len() > 50_000, Ordering::AcqRel);
    }));
    let entry = Awaited {
        name: b"d/f".to_vec(),
        size: Some(SIZE as u64),
        mode: Some(0o644),
        modified_ns: Some(MODIFIED_NS),
        begins_early: true,
    };
    let one = One { entry: Some(entry), is_written: Arc::clone(&is_written) };
    let set = local(&[&from.path().join("d")]).with_selection(Box::new(one), None);
    let sending = Sending { folder: from.path().to_path_buf(), has_sent, is_written };
    let writer = thread::spawn(move || write(&sending));
    let summary = send_files(set, 100_000, have, &mut record).unwrap();
    writer.join().unwrap();
    record.before_block = None;
    (summary, record)
}

#[test]
fn a_part_is_sent_as_it_comes_and_ends_with_its_final_name() {
    let (summary, content) = sent(|sending| {
        sending.append(PART, &[1; 250_000]);
        sending.wait_for_block();
        assert!(!sending.path("d/f").exists());
        fs::rename(sending.path(PART), sending.path(NEWER)).unwrap();
        sending.append(NEWER, &[2; SIZE - 250_000]);
        sending.complete(NEWER);
    });
    assert_eq!(summary.failures, []);
    assert!(content == Some([vec![1; 250_000], vec![2; SIZE - 250_000]].concat()));
}

#[test]
fn another_part_takes_the_place_of_a_part_that_vanished() {
    let (summary, content) = sent(|sending| {
        sending.append(PART, &[3; 250_000]);
        sending.wait_for_block();
        fs::remove_file(sending.path(PART)).unwrap();
        sending.append(NEWER, &[3; SIZE]);
        thread::sleep(Duration::from_millis(100));
        sending.complete(NEWER);
    });
    assert_eq!(summary.failures, []);
    assert!(content == Some(vec![3; SIZE]));
}

#[test]
fn a_part_that_is_written_anew_with_other_bytes_never_becomes_a_file() {
    let (summary, content) = sent(|sending| {
        sending.append(PART, &[4; 250_000]);
        sending.wait_for_block();
        fs::write(sending.path(PART), vec![5; SIZE]).unwrap();
        sending.complete(PART);
    });
    assert_eq!((summary.failures[0].1.code, content), (FailureCode::Changed, None));
}

#[test]
fn a_part_that_vanishes_for_good_is_a_failure_at_the_end_of_the_other_transfer() {
    let (summary, content) = sent(|sending| {
        sending.append(PART, &[6; 250_000]);
        sending.wait_for_block();
        fs::remove_file(sending.path(PART)).unwrap();
    });
    assert_eq!((summary.failed, content), (1, None), "{:?}", summary.failures);
}

#[test]
fn a_part_that_other_users_may_write_or_that_is_a_link_is_not_read() {
    let (summary, content) = sent(|sending| {
        fs::write(sending.path("d/own"), vec![7; SIZE]).unwrap();
        symlink("own", sending.path(NEWER)).unwrap();
        sending.append("other", &[8; SIZE]);
        fs::set_permissions(sending.path("other"), Permissions::from_mode(0o666)).unwrap();
        fs::rename(sending.path("other"), sending.path(PART)).unwrap();
        thread::sleep(Duration::from_millis(200));
        assert!(!sending.has_sent.load(Ordering::Acquire));
        sending.complete(PART);
    });
    assert_eq!(summary.failures, []);
    assert!(content == Some(vec![8; SIZE]));
}

/// Content before a checkpoint at the receiver.
const HELD: u64 = 200 << 10;

/// The content up to [`HELD`] at the receiver, all of these bytes equal.
fn held(byte: u8) -> Have {
    let mut tree = sabul_content::Tree::new(0);
    tree.update(&vec![byte; usize::try_from(HELD).unwrap()]);
    let checkpoints = vec![Checkpoint { from: 0, bytes: HELD, hash: tree.hash() }];
    let mut have = Have::default();
    have.add(vec![Held { path: b"d/f".to_vec(), checkpoints }], Vec::new(), true);
    have
}

#[test]
fn a_part_goes_on_behind_the_content_of_the_receiver_before_the_part_is_complete() {
    for (byte, resumed) in [(9, HELD), (8, 0)] {
        let (summary, record) = recorded(held(byte), |sending| {
            sending.append(PART, &[9; 100_000]);
            thread::sleep(Duration::from_millis(200));
            assert!(!sending.has_sent.load(Ordering::Acquire), "nothing is verified yet");
            sending.append(PART, &[9; 400_000]);
            sending.wait_for_block();
            assert!(!sending.path("d/f").exists());
            sending.append(PART, &[9; SIZE - 500_000]);
            sending.complete(PART);
        });
        assert_eq!((summary.failures, summary.resumed), (Vec::new(), resumed));
        let sent: u64 = record.blocks.iter().map(|block| content_bytes(block)).sum();
        assert_eq!(sent, SIZE as u64 - resumed);
    }
}
