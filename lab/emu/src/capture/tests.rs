//! Tests of packet captures: contents of the files, full buffers, and unusable folders.

use pcap_file::pcapng::{Block, PcapNgReader};

use super::*;

/// An IPv4 packet of a protocol without checksum, as a device delivers packets.
fn bundle(payload: usize) -> Bundle {
    let mut frame = vec![0; 10];
    frame.extend([0x45, 0]);
    frame.extend(u16::try_from(20 + payload).unwrap().to_be_bytes());
    frame.extend([0, 7, 0x40, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend((0..payload).map(|n| u8::try_from(n % 256).unwrap()));
    Bundle::parse(&frame).unwrap()
}

fn read(
    path: &Path,
) -> (Vec<InterfaceDescriptionBlock<'static>>, Vec<EnhancedPacketBlock<'static>>) {
    let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            packets.push(packet.into_owned());
        }
    }
    (reader.interfaces().to_vec(), packets)
}

#[test]
fn a_recording_reads_back_unchanged() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("new/captures");
    let links = ["access".to_owned(), "bottle neck/1".to_owned()];
    let start = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 5);
    let mut capture = Capture::start(&dir, &links, start).unwrap();
    let at = Duration::from_nanos;
    let (short, long) = (bundle(30), bundle(1480));
    capture.record(1, Way::Forward, at(0), &long, 0, Fate::Carried);
    capture.record(0, Way::Back, at(1), &short, 0, Fate::Carried);
    capture.record(1, Way::Back, at(2_000_000_123), &short, 0, Fate::Dropped("queue full"));
    let (left_out, error) = capture.finish();
    assert_eq!(left_out, 0);
    assert!(error.is_none(), "{error:?}");

    let (interfaces, packets) = read(&dir.join("bottle_neck_1.pcapng"));
    let [interface] = &interfaces[..] else { panic!("tcpdump takes no more than one") };
    assert_eq!((interface.linktype, interface.snaplen), (DataLink::RAW, 128));
    let name = InterfaceDescriptionOption::IfName("bottle neck/1".into());
    assert_eq!(interface.options, [name, InterfaceDescriptionOption::IfTsResol(9)]);
    let comment = EnhancedPacketOption::Comment("dropped: queue full".into());
    let mut kept = Vec::new();
    long.write_plain(0, 128, &mut kept);
    let first = EnhancedPacketBlock {
        interface_id: 0,
        timestamp: Duration::new(1_700_000_000, 5),
        original_len: 1500,
        data: kept.into(),
        options: vec![EnhancedPacketOption::Flags(2)],
    };
    let mut kept = Vec::new();
    short.write_plain(0, 128, &mut kept);
    let second = EnhancedPacketBlock {
        interface_id: 0,
        timestamp: Duration::new(1_700_000_002, 128),
        original_len: 50,
        data: kept.into(),
        options: vec![EnhancedPacketOption::Flags(1), comment],
    };
    assert_eq!(packets, [first, second]);
    let (_, packets) = read(&dir.join("access.pcapng"));
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0].data.len(), 50);
}

#[test]
fn dropping_a_capture_finishes_its_files() {
    let home = tempfile::tempdir().unwrap();
    let links = ["a".to_owned()];
    let mut capture = Capture::start(home.path(), &links, SystemTime::UNIX_EPOCH).unwrap();
    for n in 0..1000 {
        capture.record(0, Way::Forward, Duration::from_micros(n), &bundle(8), 0, Fate::Carried);
    }
    drop(capture);
    assert_eq!(read(&home.path().join("a.pcapng")).1.len(), 1000);
}

#[test]
fn packets_beyond_the_capture_buffer_are_counted_without_blocking() {
    let (sender, receiver) = crossbeam_channel::bounded(2);
    let mut capture = Capture { sender: Some(sender), writer: None, packet: vec![], left_out: 0 };
    let mut note = |n| {
        capture.record(0, Way::Forward, Duration::from_secs(n), &bundle(8), 0, Fate::Carried);
        capture.left_out
    };
    assert_eq!([note(0), note(1), note(2), note(3)], [0, 0, 1, 2]);
    assert_eq!(receiver.recv().unwrap().at, Duration::ZERO);
    assert_eq!(note(4), 2, "there is room again");
    drop(receiver);
    assert_eq!(note(5), 3, "the writer has given up");
    assert_eq!(capture.finish().0, 3);
}

#[test]
fn unwritable_capture_folders_are_reported_at_start() {
    let home = tempfile::tempdir().unwrap();
    let links = ["a".to_owned()];
    let start = |dir: &Path| match Capture::start(dir, &links, SystemTime::UNIX_EPOCH) {
        Ok(_) => panic!("nothing can be written to {}", dir.display()),
        Err(error) => error.to_string(),
    };
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let reported = start(&file.join("dir"));
    assert!(reported.starts_with("the lab cannot make the directory "), "{reported}");
    // A full disk.
    std::os::unix::fs::symlink("/dev/full", home.path().join("a.pcapng")).unwrap();
    let reported = start(home.path());
    assert!(
        reported.contains("write the recording") && reported.contains("a.pcapng"),
        "{reported}"
    );
}

/// A disk that accepts this many bytes and flushes, then fails.
struct Disk {
    bytes: usize,
    flushes: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = bytes.len().min(self.bytes);
        self.bytes -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushes = self.flushes.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        Ok(())
    }
}

/// Returns the result of writing three packets to a disk, and the number of records left in the
/// channel.
fn write_three(disk: Disk) -> (String, usize) {
    let (sender, receiver) = crossbeam_channel::unbounded();
    for _ in 0..3 {
        let (link, way, at, fate) = (0, Way::Back, Duration::ZERO, Fate::Carried);
        let record = Record { link, way, at, ip_bytes: 900, fate, kept: KEPT, bytes: [0; KEPT] };
        assert!(sender.send(record).is_ok());
    }
    drop(sender);
    let mut files = [Recording::new(PathBuf::from("x/y.pcapng"), disk, "y").unwrap()];
    let error = write_all(&receiver, &mut files, Duration::ZERO).unwrap_err();
    (error.to_string(), receiver.len())
}

#[test]
fn a_disk_that_fills_up_ends_the_recording_with_its_name() {
    let full_soon = Disk { bytes: 400, flushes: 2 };
    let full_at_the_end = Disk { bytes: usize::MAX, flushes: 1 };
    for (disk, left) in [(full_soon, 1), (full_at_the_end, 0)] {
        let (reported, left_over) = write_three(disk);
        assert!(
            reported.starts_with("the lab cannot write the recording x/y.pcapng: "),
            "{reported}"
        );
        assert_eq!(left_over, left);
    }
}

#[test]
fn every_link_has_a_file_of_its_own() {
    let links = ["a/b", "a_b", "", "..", "ä", "a b", "R1.x-2"].map(str::to_owned);
    assert_eq!(
        file_names(&links),
        ["a_b", "a_b-2", "", "..", "_", "a_b-3", "R1.x-2"].map(|name| format!("{name}.pcapng"))
    );
}
