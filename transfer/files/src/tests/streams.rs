//! Tests of streams as sources and writers as destinations.

use super::*;

#[test]
fn a_stream_arrives_as_a_file_or_in_a_writer() {
    let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    for length in [0, 1, 1000, 400_000] {
        let set = || {
            let reader = Trickle(io::Cursor::new(content[..length].to_vec()));
            let source = Source::Stream { name: b"stdin".to_vec(), reader: Box::new(reader) };
            SourceSet::local(vec![source], false).unwrap()
        };
        let to = TempDir::new().unwrap();
        let mut files = receiver(to.path(), "out", false);
        replay(record(set(), BLOCK_BYTES).0, &mut files);
        assert_eq!(files.finished().unwrap().entries, 1);
        assert_eq!(fs::read(to.path().join("out")).unwrap(), &content[..length]);

        let mut stream = StreamReceiver::new(Vec::new(), TRANSFER);
        replay(record(set(), BLOCK_BYTES).0, &mut stream);
        let bytes = length as u64;
        let counts = Counts { bytes, entries: 1, files: 1, ..Counts::default() };
        assert_eq!(stream.finished(), Some(counts));
        assert_eq!(stream.writer(), &content[..length]);
    }
}

/// A reader that returns small pieces, as a pipe may.
struct Trickle(io::Cursor<Vec<u8>>);

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(617);
        self.0.read(&mut buffer[..most])
    }
}

/// A reader that returns `WouldBlock` between its pieces.
struct Halting(Trickle, bool);

impl Read for Halting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 { Err(io::ErrorKind::WouldBlock.into()) } else { self.0.read(buffer) }
    }
}

#[test]
fn available_stream_data_is_sent_when_the_stream_pauses() {
    let content: Vec<u8> = (0..2500_u32).flat_map(u32::to_le_bytes).collect();
    let reader = Box::new(Halting(Trickle(io::Cursor::new(content.clone())), false));
    let source = Source::Stream { name: b"stdin".to_vec(), reader };
    let mut sent = Record { may_be_short: true, ..Record::default() };
    sent.block_bytes = BLOCK_BYTES;
    let set = SourceSet::local(vec![source], false).unwrap();
    send_files(set, BLOCK_BYTES, Have::default(), &mut sent).unwrap();
    let lengths: Vec<_> = sent.blocks.iter().map(|block| content_bytes(block)).collect();
    // The name precedes the first piece, and the end follows the last piece.
    assert_eq!((lengths.len(), lengths[1], lengths[17]), (19, 617, 10_000 - 16 * 617));
    let mut stream = StreamReceiver::new(Vec::new(), TRANSFER);
    replay(sent, &mut stream);
    assert_eq!(stream.writer(), &content);
}

#[test]
fn a_stream_with_a_read_error_fails_and_leaves_no_file() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("unplugged"))
        }
    }
    let reader = Box::new(io::Cursor::new([1; 5000]).chain(Broken));
    let set = SourceSet::local(vec![Source::Stream { name: b"s".to_vec(), reader }], false);
    let (sent, summary) = record(set.unwrap(), BLOCK_BYTES);
    assert!(summary.failures[0].1.message.contains("unplugged"));
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    replay(sent, &mut receiver);
    assert_eq!(receiver.finished().unwrap().failed, 1);
    assert!(names(to.path()).is_empty());
}

#[test]
fn only_one_source_may_be_a_stream_and_it_is_sent_last() {
    let dash = || Source::from_argument(OsStr::new("-"));
    let failure = SourceSet::local(vec![dash(), dash()], false).unwrap_err();
    assert_eq!(failure.code, FailureCode::BadSetting);

    let from = TempDir::new().unwrap();
    let file = Source::Path(write(from.path(), "f", b"file"));
    let stream = Source::Stream { name: b"s".to_vec(), reader: Box::new(&b"stream"[..]) };
    let set = SourceSet::local(vec![stream, file], false).unwrap();
    assert!(set.needs_directory());
    let to = TempDir::new().unwrap();
    let mut receiver = receiver(to.path(), "", true);
    replay(record(set, BLOCK_BYTES).0, &mut receiver);
    assert_eq!(names(to.path()), ["f", "s"]);
}

#[test]
fn a_writer_that_fails_is_reported_with_its_cause() {
    let from = TempDir::new().unwrap();
    let file = write(from.path(), "f", &[0; 5000]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut receiver = StreamReceiver::new(full, TRANSFER);
    let messages = replay(record(local(&[&file]), BLOCK_BYTES).0, &mut receiver);
    assert!(matches!(&messages[0], Message::EntryFailed { failure, .. }
        if failure.code == FailureCode::NoSpace));
    assert_eq!(receiver.finished().unwrap().failed, 1);

    let (gone, writer) = io::pipe().unwrap();
    drop(gone);
    let mut receiver = StreamReceiver::new(writer, TRANSFER);
    replay(record(local(&[&file]), BLOCK_BYTES).0, &mut receiver);
    assert_eq!(receiver.failures()[0].1.code, FailureCode::Cancelled);
}

#[test]
fn a_writer_accepts_one_file_and_no_directory() {
    let mut receiver = StreamReceiver::new(Vec::new(), TRANSFER);
    let two = BlockBuilder::default().file("a", b"").file("b", b"").block();
    let failure = receiver.on_block(two).unwrap_err();
    assert_eq!(failure.code, FailureCode::BadSetting);

    let mut receiver = StreamReceiver::new(Vec::new(), TRANSFER);
    receiver
        .on_block(BlockBuilder::default().entry(entry("d", EntryKind::Directory)).block())
        .unwrap();
    assert!(receiver.failures()[0].1.message.contains("is a directory"));
}
