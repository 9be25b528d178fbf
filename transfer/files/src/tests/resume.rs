//! Tests of interrupted transfers, and of their resume by the next transfer to the same
//! destination.

use std::collections::BTreeSet;

use rustix::io::Errno;
use sabul_content::CHUNK;

use super::*;
use crate::destination::ResumeIndex;
use crate::disk::Disk;
use crate::disk::memory::{Fault, MemoryDisk};
use crate::root::RootPath;

/// Distance of checkpoints in the tests, in bytes.
const STEP: u64 = 8192;

pub(super) type Files = Vec<(String, Vec<u8>)>;

fn content(seed: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

/// Some files that are large compared with the checkpoint distance, and some small files.
pub(super) fn few() -> Files {
    let file = |path: &str, seed, length| (path.to_owned(), content(seed, length));
    vec![
        file("big", 1, 100_000),
        file("small", 2, 3000),
        file("sub/large", 3, 40_000),
        file("sub/empty", 4, 0),
        file("sub/odd", 5, 20_001),
    ]
}

pub(super) fn source(files: &Files) -> TempDir {
    let from = TempDir::new().unwrap();
    for (path, bytes) in files {
        write(from.path(), path, bytes);
    }
    from
}

pub(super) fn path(text: &str) -> RootPath {
    RootPath::new(text.split('/')).unwrap()
}

/// A receiver with a short checkpoint distance.
fn receiver_on(disk: &MemoryDisk, sync: bool) -> Result<FileReceiver, Failure> {
    receiver_of(disk, sync, false, &[])
}

/// A receiver for these sources.
pub(super) fn receiver_of(
    disk: &MemoryDisk,
    sync: bool,
    read_back: bool,
    origins: &[[u8; 8]],
) -> Result<FileReceiver, Failure> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let destination = Destination {
        expected: Expected::Any,
        path: b"to".to_vec(),
        into_directory: true,
        preserve: true,
        sync,
        resume: true,
        read_back,
        origins: origins.to_vec(),
        may_keep: true,
    };
    let mut receiver = FileReceiver::new(disk, &destination, TRANSFER)?;
    let mut resume_index = ResumeIndex::new(origins);
    (resume_index.keep_from, resume_index.checkpoint_bytes) = (4096, STEP..=STEP);
    receiver.sink_mut().resume_index = Some(resume_index);
    Ok(receiver)
}

/// Result of one attempt.
pub(super) struct Attempt {
    pub(super) receiver: FileReceiver,
    pub(super) summary: SendSummary,
    error: Option<Failure>,
    /// Bytes sent over the network.
    pub(super) sent: u64,
}

/// Sends everything below a folder to a disk; time advances with each step.
pub(super) fn attempt(from: &TempDir, disk: &MemoryDisk, sync: bool) -> Attempt {
    attempt_until(from, disk, sync, usize::MAX)
}

/// As [`attempt`]; returns `None` if the disk fails before the start.
fn attempt_if_there(from: &TempDir, disk: &MemoryDisk) -> Option<Attempt> {
    Some(attempt_with(receiver_on(disk, true).ok()?, from, usize::MAX))
}

/// As [`attempt`]; the connection is lost after this many blocks.
pub(super) fn attempt_until(
    from: &TempDir,
    disk: &MemoryDisk,
    sync: bool,
    blocks: usize,
) -> Attempt {
    attempt_with(receiver_on(disk, sync).unwrap(), from, blocks)
}

pub(super) fn attempt_with(receiver: FileReceiver, from: &TempDir, blocks: usize) -> Attempt {
    let all = vec![Source::Path(from.path().join("."))];
    attempt_of(receiver, SourceSet::local(all, true).unwrap(), blocks)
}

/// The report of a receiver about earlier attempts.
pub(super) fn read_have(receiver: &mut FileReceiver) -> Have {
    let mut have = Have::default();
    for message in receiver.have() {
        message.encode(&mut Vec::new()).expect("every message fits on the wire");
        let Message::Have { files, wholes, is_last, .. } = message else { panic!("{message:?}") };
        have.add(files, wholes, is_last);
    }
    assert!(have.is_complete());
    have
}

pub(super) fn attempt_of(mut receiver: FileReceiver, set: SourceSet, blocks: usize) -> Attempt {
    let have = read_have(&mut receiver);
    let mut outlet = Record { block_bytes: BLOCK_BYTES, ..Record::default() };
    let summary = send_files(set, BLOCK_BYTES, have, &mut outlet).unwrap();
    let sent = outlet.blocks.iter().map(|block| content_bytes(block)).sum();
    let mut error = None;
    let mut at = Duration::ZERO;
    for block in outlet.blocks.into_iter().take(blocks) {
        let result = receiver.on_block(block);
        at += Duration::from_millis(40);
        receiver.poll_messages(at);
        if let Err(failure) = result {
            error = Some(failure);
            break;
        }
    }
    if receiver.finished().is_some() {
        receiver.conclude();
    } else {
        receiver.abort();
    }
    Attempt { receiver, summary, error, sent }
}

/// Every name leads to its complete content; returns the names of parts and journals.
#[track_caller]
pub(super) fn check_whole(disk: &MemoryDisk, files: &Files, what: &str) -> Vec<String> {
    let mut rest = Vec::new();
    for (name, content) in disk.tree() {
        let name = String::from_utf8(name).unwrap();
        let Some(content) = content else { continue };
        let name = name.strip_prefix("to/").unwrap_or(&name);
        match files.iter().find(|(path, _)| path == name) {
            Some((_, expected)) => assert_eq!(&content, expected, "{what}: '{name}'"),
            None => rest.push(name.to_owned()),
        }
    }
    rest
}

/// The transfer completes and leaves only the files sent; returns the bytes sent.
#[track_caller]
fn check_end(from: &TempDir, disk: &MemoryDisk, files: &Files, sync: bool, what: &str) -> u64 {
    disk.heal();
    let Attempt { receiver, summary, error, sent } = attempt(from, &disk.process(), sync);
    assert_eq!((error, receiver.failures()), (None, &[][..]), "{what}");
    assert_eq!(summary.failures, [], "{what}");
    let counts = receiver.finished().expect("it comes to its end");
    assert_eq!(counts.resumed, summary.resumed, "{what}");
    assert_eq!(counts.bytes, summary.bytes, "{what}");
    // Content sent before the sender finds that the source differs is sent again.
    let again = sent - (counts.bytes - counts.resumed);
    assert!(again == 0 || what == "changed", "{what}: {again}");
    drop(receiver);
    assert_eq!(check_whole(disk, files, what), [""; 0], "{what}: something stays");
    assert_eq!(disk.tree().values().flatten().count(), files.len(), "{what}");
    sent
}

pub(super) fn total(files: &Files) -> u64 {
    files.iter().map(|(_, content)| content.len() as u64).sum()
}

#[test]
fn a_lost_connection_costs_no_received_data() {
    let files = few();
    let from = source(&files);
    for sync in [true, false] {
        for blocks in 0..=usize::try_from(total(&files)).unwrap() / BLOCK_BYTES {
            let what = format!("lost after {blocks} blocks, sync {sync}");
            let disk = MemoryDisk::new(0);
            let first = attempt_until(&from, &disk, sync, blocks);
            let came = first.receiver.counts().bytes;
            drop(first);
            check_whole(&disk, &files, &what);
            let sent = check_end(&from, &disk, &files, sync, &what);
            // A file that had just begun starts again, and so may a small file.
            assert!(sent <= total(&files) - came + 4096 + 3000, "{what}: {came} {sent}");
        }
    }
}

#[test]
fn a_receiver_that_is_dropped_keeps_what_it_has_written() {
    let files = vec![("f".to_owned(), content(3, 3_000_000))];
    let (from, disk) = (source(&files), MemoryDisk::new(0));
    let set = local(&[&from.path().join("f")]);
    let mut outlet = Record { block_bytes: BLOCK_BYTES, ..Record::default() };
    send_files(set, BLOCK_BYTES, Have::default(), &mut outlet).unwrap();
    let mut receiver = receiver_on(&disk, true).unwrap();
    // No checkpoint by size or time is due.
    receiver.sink_mut().resume_index = Some(ResumeIndex::new(&[]));
    read_have(&mut receiver);
    let mut written = 0;
    while written < 2 << 20 {
        let block = outlet.blocks.pop_front().unwrap();
        written += content_bytes(&block);
        receiver.on_block(block).unwrap();
    }
    drop(receiver);
    let rest = attempt(&from, &disk, true);
    assert_eq!(rest.error, None);
    let lost = rest.sent + written - 3_000_000;
    assert!(lost < 2 * BLOCK_BYTES as u64, "{lost} bytes were sent twice");
}

#[test]
fn a_killed_process_costs_at_most_one_checkpoint_and_corrupts_nothing() {
    let files = few();
    let from = source(&files);
    let whole = MemoryDisk::new(0);
    assert_eq!(check_end(&from, &whole, &files, true, "undisturbed"), total(&files));
    for call in 0..=whole.calls().len() {
        let what = format!("killed before call {call}");
        let disk = MemoryDisk::new(0);
        let process = disk.process();
        process.fail_at(call, Fault::Kill);
        let first = attempt_if_there(&from, &process);
        let came = first.map_or(0, |first| first.receiver.counts().bytes);
        check_whole(&disk, &files, &what);
        let sent = check_end(&from, &disk, &files, true, &what);
        let most = total(&files) - came + STEP / 16 + 4096 + 23_001 + 1000;
        // If everything was done and the journal is gone, the transfer was complete.
        assert!(sent <= most || came == total(&files), "{what}: {came} {sent}");
    }
}

#[test]
fn a_power_cut_corrupts_nothing_and_keeps_marked_data() {
    let files = few();
    let from = source(&files);
    let whole = MemoryDisk::new(0);
    check_end(&from, &whole, &files, true, "undisturbed");
    let (mut resumed, calls) = (0, whole.calls().len());
    for call in 0..=calls {
        for seed in 0..4 {
            let what = format!("power cut before call {call}, seed {seed}");
            let disk = MemoryDisk::new(seed);
            disk.fail_at(call, Fault::PowerCut);
            drop(attempt_if_there(&from, &disk));
            disk.cut_power();
            check_whole(&disk, &files, &what);
            let sent = check_end(&from, &disk, &files, true, &what);
            resumed += u64::from(sent < total(&files));
        }
    }
    assert!(resumed > calls as u64, "{resumed} of {calls} times four went on");
}

/// Bytes that an attempt need not send: complete files, and parts up to their resume offset.
fn found(disk: &MemoryDisk, files: &Files) -> u64 {
    let there = disk.tree();
    let whole = |(path, content): &&(String, Vec<u8>)| {
        there.get(format!("to/{path}").as_bytes()) == Some(&Some(content.clone()))
    };
    let left = receiver_on(&disk.process(), true).unwrap().have();
    let parts = left.into_iter().flat_map(|message| match message {
        Message::Have { files, .. } => files,
        other => panic!("{other:?}"),
    });
    let reach: BTreeMap<Vec<u8>, u64> = parts
        .map(|held| (held.path, held.checkpoints.last().map_or(0, |checkpoint| checkpoint.bytes)))
        .collect();
    let of_part = |path: &str| reach.get(path.as_bytes()).copied().unwrap_or(0);
    let of = |file: &(String, Vec<u8>)| match Some(file).filter(whole) {
        Some((_, content)) => content.len() as u64,
        None => of_part(&file.0),
    };
    files.iter().map(of).sum()
}

#[test]
fn data_reported_as_durable_survives_a_power_cut() {
    let files = few();
    let from = source(&files);
    let whole = MemoryDisk::new(0);
    let counts = attempt(&from, &whole, true).receiver.finished().unwrap();
    assert_eq!((counts.durable, counts.bytes), (total(&files), total(&files)));
    let (mut least, mut most) = (total(&files), 0);
    for call in 0..=whole.calls().len() {
        for seed in 0..4 {
            let what = format!("power cut before call {call}, seed {seed}");
            let disk = MemoryDisk::new(seed);
            disk.fail_at(call, Fault::PowerCut);
            let Some(first) = attempt_if_there(&from, &disk) else { continue };
            let reported = first.receiver.counts().durable;
            drop(first);
            disk.cut_power();
            disk.heal();
            let found = found(&disk, &files);
            assert!(found >= reported, "{what}: {reported} were reported and {found} are there");
            (least, most) = (least.min(reported), most.max(reported));
        }
    }
    assert!(least == 0 && most > total(&files) / 2, "{least} to {most} were told");
}

#[test]
fn flushed_bytes_of_a_large_file_count_as_durable_before_it_is_complete() {
    let files = vec![("big".to_owned(), content(1, 100_000))];
    let from = source(&files);
    let half = attempt_until(&from, &MemoryDisk::new(0), true, 50).receiver.counts();
    assert!((STEP * 3..=half.bytes).contains(&half.durable), "{half:?}");
    // The next attempt begins with this content.
    let disk = MemoryDisk::new(0);
    drop(attempt_until(&from, &disk, true, 50));
    let next = attempt_until(&from, &disk.process(), true, 1).receiver.counts();
    assert!((STEP * 3..=next.resumed).contains(&next.durable), "{next:?}");
    // Without flushes, no byte counts as durable.
    let counts = attempt(&from, &MemoryDisk::new(0), false).receiver.finished().unwrap();
    assert_eq!((counts.bytes, counts.durable), (100_000, 0));
}

#[test]
fn two_interruptions_by_power_cuts_add_up_to_the_whole() {
    let files = few();
    let from = source(&files);
    let calls = {
        let disk = MemoryDisk::new(0);
        check_end(&from, &disk, &files, true, "undisturbed");
        disk.calls().len()
    };
    for call in 0..calls {
        let what = format!("power cuts after {call} calls each");
        let disk = MemoryDisk::new(call as u64);
        for _ in 0..3 {
            let process = disk.process();
            process.fail_at(call, Fault::PowerCut);
            drop(attempt_if_there(&from, &process));
            disk.cut_power();
            check_whole(&disk, &files, &what);
        }
        check_end(&from, &disk, &files, true, &what);
    }
}

#[test]
fn a_failed_disk_call_or_full_disk_costs_only_what_failed() {
    let files = few();
    let from = source(&files);
    let calls = {
        let disk = MemoryDisk::new(0);
        check_end(&from, &disk, &files, true, "undisturbed");
        disk.calls().len()
    };
    for errno in [Errno::NOSPC, Errno::IO, Errno::ACCESS] {
        for call in 3..calls {
            let disk = MemoryDisk::new(0);
            disk.fail_at(call, Fault::Error(errno));
            drop(attempt(&from, &disk.process(), true));
            let what = format!("{errno} at call {call}, {}", disk.calls()[call]);
            check_whole(&disk, &files, &what);
            check_end(&from, &disk, &files, true, &what);
        }
    }
    for room in (0..=total(&files)).step_by(5000) {
        let what = format!("room for {room} bytes");
        let disk = MemoryDisk::new(0);
        disk.leave_room(room);
        let first = attempt(&from, &disk.process(), true);
        let error = first.error.clone().map(|failure| failure.code);
        assert!(matches!(error, None | Some(FailureCode::NoSpace)), "{what}: {error:?}");
        drop(first);
        check_whole(&disk, &files, &what);
        check_end(&from, &disk, &files, true, &what);
    }
}

#[test]
fn a_source_that_changed_is_sent_from_the_checkpoint_before_the_change() {
    let files = few();
    let from = source(&files);
    let disk = MemoryDisk::new(0);
    drop(attempt_until(&from, &disk, true, 90));
    let mut changed = files.clone();
    changed[0].1[50_000] ^= 1;
    write(from.path(), "big", &changed[0].1);
    let sent = check_end(&from, &disk, &changed, true, "changed");
    // Checkpoints are at most a block and a chunk apart, and every other checkpoint is reported. The prefix is
    // verified at four times the rate of the rest.
    let least = total(&files) - 50_000;
    let again = (50_000 + 4096) / 4 + 1000;
    assert!((least..least + 4096 + again).contains(&sent), "{sent}");
    // A file that has grown, and a different file.
    for (bytes, is_same) in [(content(1, 150_000), true), (content(9, 100_000), false)] {
        let from = source(&files);
        let disk = MemoryDisk::new(0);
        let came = attempt_until(&from, &disk, true, 90).receiver.counts().bytes;
        let same = if is_same { came - came % CHUNK } else { 0 };
        changed[0].1 = bytes;
        write(from.path(), "big", &changed[0].1);
        assert_eq!(check_end(&from, &disk, &changed, true, "changed"), total(&changed) - same);
    }
}

#[test]
fn a_repeatedly_interrupted_copy_resumes_from_unread_ranges() {
    let files = few();
    let from = source(&files);
    for sync in [true, false] {
        let disk = MemoryDisk::new(0);
        let (mut cuts, mut there) = (0, 0);
        let counts = loop {
            // Each attempt receives too little to verify the whole prefix meanwhile.
            let attempt = attempt_until(&from, &disk, sync, 10);
            let counts = attempt.receiver.counts();
            assert_eq!(attempt.receiver.failures(), []);
            if attempt.receiver.finished().is_some() {
                break counts;
            }
            assert!(counts.bytes > there + 4096, "it goes on: {there} and {} bytes", counts.bytes);
            (there, cuts) = (counts.bytes, cuts + 1);
        };
        assert!(cuts > 10, "{cuts}");
        assert_eq!(counts.bytes, total(&files));
        assert_eq!(check_whole(&disk, &files, "cut again and again"), [""; 0]);
    }
}

#[test]
fn a_source_that_shrinks_during_a_resume_fails() {
    let files = few();
    for left in [0, 3000, 70_000, 95_000] {
        let from = source(&files);
        let disk = MemoryDisk::new(0);
        drop(attempt_until(&from, &disk, true, 90));
        let mut receiver = receiver_on(&disk, true).unwrap();
        let have = read_have(&mut receiver);
        let big = fs::OpenOptions::new().write(true).open(from.path().join("big")).unwrap();
        let set = SourceSet::local(vec![Source::Path(from.path().join("big"))], true).unwrap();
        let mut outlet = Record { block_bytes: BLOCK_BYTES, ..Record::default() };
        outlet.after_first = Some(Box::new(move || big.set_len(left).unwrap()));
        let summary = send_files(set, BLOCK_BYTES, have, &mut outlet).unwrap();
        let [(_, failure)] = &summary.failures[..] else { panic!("{:?}", summary.failures) };
        assert_eq!(failure.code, FailureCode::Changed, "{left}: {failure}");
        outlet.blocks.into_iter().for_each(|block| receiver.on_block(block).unwrap());
        assert_eq!(receiver.finished().unwrap().failed, 1);
        assert!(!disk.tree().contains_key(&b"to/big"[..]));
    }
}

#[test]
fn a_sender_without_the_final_message_resends_nothing() {
    let files = few();
    let from = source(&files);
    for sync in [true, false] {
        let disk = MemoryDisk::new(0);
        let mut receiver = receiver_on(&disk, sync).unwrap();
        let all = || {
            let all = vec![Source::Path(from.path().join("."))];
            SourceSet::local(all, true).unwrap()
        };
        let mut outlet = Record { block_bytes: BLOCK_BYTES, ..Record::default() };
        let have = read_have(&mut receiver);
        send_files(all(), BLOCK_BYTES, have, &mut outlet).unwrap();
        outlet.blocks.into_iter().for_each(|block| receiver.on_block(block).unwrap());
        assert!(receiver.finished().is_some() && receiver.awaits_confirmation());
        drop(receiver);
        assert_eq!(check_whole(&disk, &files, "unheard"), [".resume-0.sabul-part"]);
        assert_eq!(check_end(&from, &disk, &files, sync, "unheard"), 0);
    }
}

#[test]
fn the_rest_of_a_file_is_received_before_held_data_is_read() {
    let files = few();
    let from = source(&files);
    let disk = MemoryDisk::new(0);
    let came = attempt_until(&from, &disk, true, 90).receiver.counts().bytes;
    let mut receiver = receiver_on(&disk, true).unwrap();
    let have = read_have(&mut receiver);
    let set = SourceSet::local(vec![Source::Path(from.path().join("."))], true).unwrap();
    let mut outlet = Record { block_bytes: BLOCK_BYTES, ..Record::default() };
    send_files(set, BLOCK_BYTES, have, &mut outlet).unwrap();
    receiver.on_block(outlet.blocks.pop_front().unwrap()).unwrap();
    let counts = receiver.counts();
    assert!(counts.bytes > came - CHUNK && counts.resumed > came - 2 * CHUNK, "{counts:?}");
    while receiver.idle() {}
    outlet.blocks.into_iter().for_each(|block| receiver.on_block(block).unwrap());
    assert_eq!((receiver.finished().unwrap().bytes, receiver.failures()), (total(&files), &[][..]));
}

#[test]
fn data_changed_at_the_destination_is_sent_again() {
    let files = few();
    let from = source(&files);
    // Interrupted in the last file: the earlier files are complete.
    let disk = MemoryDisk::new(0);
    drop(attempt_until(&from, &disk, true, 157));
    assert!(disk.tree().contains_key(&b"to/small"[..]));
    disk.wait(1);
    disk.put(&path("to/other"), b"").unwrap();
    disk.remove_file(&path("to/small")).unwrap();
    disk.put(&path("to/small"), &[7; 3000]).unwrap();
    disk.remove_file(&path("to/other")).unwrap();
    let sent = check_end(&from, &disk, &files, true, "replaced");
    assert!((3000..30_000).contains(&sent), "{sent}");
}

#[test]
fn a_complete_small_file_changed_in_place_is_sent_again() {
    let files = few();
    let from = source(&files);
    let disk = MemoryDisk::new(0);
    drop(attempt_until(&from, &disk, true, 157));
    let file = disk.open_file(&path("to/small")).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(file.write_at(&[7; 3000], 0).unwrap(), 3000, "the same file and size");
    drop(file);
    let sent = check_end(&from, &disk, &files, true, "changed");
    assert!((3000..30_000).contains(&sent), "{sent}");
}

#[test]
fn damaged_or_foreign_journals_cause_no_corruption() {
    let files = few();
    let from = source(&files);
    let make = || {
        let disk = MemoryDisk::new(0);
        drop(attempt_until(&from, &disk, true, 90));
        disk
    };
    let note = "to/.resume-0.sabul-part";
    let written = make().tree().remove(note.as_bytes()).flatten().expect("there are notes");
    for at in (0..written.len()).step_by(7) {
        let disk = make();
        let mut altered = written.clone();
        altered[at] ^= 0x20;
        disk.remove_file(&path(note)).unwrap();
        disk.put(&path(note), &altered).unwrap();
        let Attempt { receiver, error, .. } = attempt(&from, &disk, true);
        assert_eq!((error, receiver.failures()), (None, &[][..]), "altered at {at}");
        drop(receiver);
        let rest = check_whole(&disk, &files, "altered");
        let is_left = |name: &String| name.contains(".kept.") || name == ".resume-0.sabul-part";
        assert!(rest.iter().all(is_left), "altered at {at}: {rest:?}");
    }
    // A part that differs from its notes, and whose writer could not note its end, fails and is
    // discarded; the next attempt completes.
    let disk = make();
    disk.remove_file(&path(note)).unwrap();
    disk.put(&path(note), &written[..written.len() - 1]).unwrap();
    let tree = disk.tree();
    let (name, part) = tree.iter().find(|(name, _)| name.ends_with(b".kept.sabul-part")).unwrap();
    let name = path(std::str::from_utf8(name).unwrap());
    let file = disk.open_file(&name).unwrap();
    let mut altered = part.clone().unwrap();
    altered[10] ^= 1;
    file.set_len(0).unwrap();
    file.write_at(&altered, 0).unwrap();
    drop(file);
    let Attempt { receiver, .. } = attempt(&from, &disk, true);
    assert_eq!(receiver.failures().len(), 1);
    assert!(receiver.failures()[0].1.message.contains("damaged"));
    drop(receiver);
    check_whole(&disk, &files, "damaged");
    check_end(&from, &disk, &files, true, "damaged");
}

#[test]
fn two_transfers_to_one_destination_keep_separate_journals() {
    let files = few();
    let from = source(&files);
    let disk = MemoryDisk::new(0);
    drop(attempt_until(&from, &disk, true, 90));
    // One process resumes the part and holds its lock; the other starts anew.
    let (one, two) = (disk.process(), disk.process());
    let mut holder = receiver_on(&one, true).unwrap();
    let held: Vec<_> = holder.have().collect();
    assert!(matches!(&held[..], [Message::Have { files, .. }] if files.len() == 1));
    let other = attempt(&from, &two, true);
    assert_eq!((other.sent, other.receiver.failures()), (total(&files), &[][..]));
    drop(other);
    holder.abort();
    drop(holder);
    check_whole(&disk, &files, "two");
    check_end(&from, &disk, &files, true, "two");
}

#[test]
fn a_transfer_beside_a_running_transfer_can_be_resumed() {
    let with = source(&vec![("later".to_owned(), content(8, 50_000))]);
    let from = source(&few());
    let disk = MemoryDisk::new(0);
    drop(attempt_until(&from, &disk, true, 90));
    let mut running = receiver_on(&disk.process(), true).unwrap();
    assert_eq!(running.have().count(), 1, "holds the lock of the first journal");
    let begun = attempt_until(&with, &disk.process(), true, 20).receiver.counts().bytes;
    let second = attempt(&with, &disk.process(), true);
    assert_eq!(second.receiver.counts().resumed, begun - begun % CHUNK);
}

#[test]
fn a_cleanup_removes_no_old_file_of_a_user() {
    let from = source(&few());
    let disk = MemoryDisk::new(0);
    let names = ["notes", ".resume-0", ".resume-0.sabul-part.old", "resume-0.sabul"];
    for name in names {
        disk.put(&path(&format!("to/{name}")), name.as_bytes()).unwrap();
    }
    disk.put(&path("to/x.0123456789abcdef.sabul-part"), b"left by a dead writer").unwrap();
    disk.wait(30 * 86_400);
    drop(attempt(&from, &disk, true));
    let rest = check_whole(&disk, &few(), "after a month");
    assert_eq!(rest.iter().collect::<BTreeSet<_>>(), names.map(str::to_owned).iter().collect());
}

#[test]
fn parts_of_another_transfer_are_kept_for_it() {
    let files = few();
    let from = source(&files);
    let other: Files = vec![("later".to_owned(), content(8, 50_000))];
    let with = source(&other);
    let disk = MemoryDisk::new(0);
    let came = attempt_until(&from, &disk, true, 90).receiver.counts().bytes;
    let came = came - came % CHUNK;
    let before = disk.tree();
    assert_eq!(attempt(&with, &disk.process(), true).sent, 50_000);
    let mut after = disk.tree();
    assert!(after.remove(&b"to/later"[..]).is_some());
    assert_eq!(after, before, "it is all there, and nothing else");
    let begun = attempt_until(&with, &disk.process(), true, 20).receiver.counts().bytes;
    let begun = begun - begun % CHUNK;
    assert!(begun > 15_000);
    let second = attempt(&with, &disk.process(), true);
    assert_eq!((second.sent, second.receiver.counts().resumed), (50_000 - begun, begun));
    drop(second);
    disk.remove_file(&path("to/later")).unwrap();
    assert_eq!(check_end(&from, &disk, &files, true, "the first"), total(&files) - came);
}

#[test]
fn a_folder_copied_under_a_new_name_is_resumed_and_not_nested() {
    let files = few();
    let from = source(&files);
    let disk = MemoryDisk::new(0);
    let copy = |source: &Path, blocks: usize| {
        let destination = Destination {
            path: b"archive".to_vec(),
            into_directory: false,
            preserve: true,
            sync: true,
            resume: true,
            ..Destination::default()
        };
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut receiver = FileReceiver::new(shared, &destination, TRANSFER).unwrap();
        let mut resume_index = ResumeIndex::default();
        (resume_index.keep_from, resume_index.checkpoint_bytes) = (4096, STEP..=STEP);
        receiver.sink_mut().resume_index = Some(resume_index);
        attempt_of(
            receiver,
            SourceSet::local(vec![Source::Path(source.into())], true).unwrap(),
            blocks,
        )
    };
    let photos = from.path().join("photos");
    for (path, content) in &files {
        write(&photos, path, content);
    }
    let music = from.path().join("music");
    write(&music, "song", b"la");
    let came = copy(&photos, 90).receiver.counts().bytes;
    let came = came - came % CHUNK;
    assert_eq!(copy(&music, usize::MAX).receiver.failures(), []);
    let second = copy(&photos, usize::MAX);
    assert_eq!((second.receiver.failures(), second.summary.resumed), (&[][..], came));
    drop(second);
    let there = disk.tree();
    for (path, content) in &files {
        assert_eq!(there.get(format!("archive/{path}").as_bytes()), Some(&Some(content.clone())));
    }
    assert_eq!(there.get(&b"archive/music/song"[..]), Some(&Some(b"la".to_vec())));
    assert!(!there.keys().any(|path| path.ends_with(b".sabul-part")));
    // Once it is finished, the folder is treated as any other folder.
    drop(copy(&photos, usize::MAX));
    assert!(disk.tree().contains_key(&b"archive/photos/big"[..]));
}
