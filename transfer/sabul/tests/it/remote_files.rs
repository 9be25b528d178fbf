//! Files of the peer as streams, and bytes put from memory.

use std::fs::{self, File};
use std::io::SeekFrom;
use std::time::{Duration, SystemTime};

use sabul::{Error, ErrorKind, FailureCode, TransferOptions};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

use crate::ranges::{content, with_session};

fn options() -> TransferOptions {
    TransferOptions::default()
}

fn code(error: &std::io::Error) -> Option<FailureCode> {
    error.get_ref()?.downcast_ref::<Error>().map(Error::code)
}

#[test]
fn a_file_is_read_to_its_end_in_few_requests() {
    let root = TempDir::new().unwrap();
    // One request opens the file and returns up to 64 KiB. The others have 256 KiB, 1 MiB, 4 MiB and so on.
    let cases = [
        (0, 1),
        (1, 1),
        (64 << 10, 1),
        ((64 << 10) + 1, 2),
        (320 << 10, 2),
        ((320 << 10) + 1, 3),
        (20 << 20, 5),
    ];
    for (size, requests) in cases {
        fs::write(root.path().join("f"), content(size, size)).unwrap();
        let summary = with_session(root.path(), |session| async move {
            let mut file = session.open(b"f".to_vec(), &options()).await.unwrap();
            assert_eq!(file.size(), size as u64);
            let mut found = Vec::new();
            file.read_to_end(&mut found).await.unwrap();
            assert!(found == content(size, size), "{size}");
            assert_eq!(file.read(&mut [0; 9]).await.unwrap(), 0);
        });
        assert_eq!(
            (summary.transfers, summary.failed, summary.answers),
            (requests, 0, 0),
            "{size}"
        );
    }
}

#[test]
fn seeks_lead_to_the_same_bytes_as_in_a_local_file() {
    let root = TempDir::new().unwrap();
    let size = (1 << 20) + 77;
    let whole = content(3, size);
    fs::write(root.path().join("f"), &whole).unwrap();
    with_session(root.path(), |session| async move {
        let mut file = session.open(b"f".to_vec(), &options()).await.unwrap();
        let mut random = 1_u64;
        for _ in 0..40 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = usize::try_from(random >> 33).unwrap() % (size + 10);
            let place = match random % 3 {
                0 => SeekFrom::Start(at as u64),
                1 => SeekFrom::End(at as i64 - size as i64),
                _ => SeekFrom::Current(at as i64 - file.stream_position().await.unwrap() as i64),
            };
            assert_eq!(file.seek(place).await.unwrap(), at as u64);
            let mut found = vec![0; [9, 5000, 300_000][at % 3]];
            let mut read = 0;
            while read < found.len() {
                match file.read(&mut found[read..]).await.unwrap() {
                    0 => break,
                    more => read += more,
                }
            }
            let end = size.min(at + found.len());
            let expected = whole.get(at..end).unwrap_or_default();
            assert!(found[..read] == *expected, "{read} bytes at {at}");
        }
        let error = file.seek(SeekFrom::Current(-(1 << 40))).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    });
}

#[test]
fn a_read_fails_after_the_size_or_the_time_of_the_file_changed() {
    let root = TempDir::new().unwrap();
    let name = root.path().join("f");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let write = |bytes: usize, time| {
        fs::write(root.path().join("new"), content(bytes, bytes)).unwrap();
        fs::rename(root.path().join("new"), &name).unwrap();
        File::options().write(true).open(&name).unwrap().set_modified(time).unwrap();
    };
    let size = 3 << 20;
    with_session(root.path(), |session| async move {
        for (bytes, later) in [(size, time + Duration::from_nanos(1)), (size + 1, time)] {
            write(size, time);
            let mut file = session.open(b"f".to_vec(), &options()).await.unwrap();
            let mut found = vec![0; 100];
            file.read_exact(&mut found).await.unwrap();
            write(bytes, later);
            file.seek(SeekFrom::Start(2 << 20)).await.unwrap();
            let error = file.read(&mut found).await.unwrap_err();
            assert_eq!(code(&error), Some(FailureCode::Changed), "{error}");
            assert!(error.to_string().contains("changed since it was opened"), "{error}");
            // The tail is that of the version that was opened.
            let mut end = vec![0; 1000];
            file.seek(SeekFrom::End(-1000)).await.unwrap();
            file.read_exact(&mut end).await.unwrap();
            assert!(end == content(size, size)[size - 1000..]);
        }
    });
}

#[test]
fn files_that_cannot_be_opened_are_errors_with_a_code() {
    let root = TempDir::new().unwrap();
    fs::create_dir(root.path().join("d")).unwrap();
    with_session(root.path(), |session| async move {
        let missing = session.open(b"no".to_vec(), &options()).await.unwrap_err();
        assert_eq!(missing.code(), FailureCode::NotFound);
        let directory = session.open(b"d".to_vec(), &options()).await.unwrap_err();
        assert_eq!(directory.code(), FailureCode::Unreadable);
    });
}

#[test]
fn a_dropped_reader_cancels_its_read_ahead_and_the_session_goes_on() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("f"), content(0, 24 << 20)).unwrap();
    with_session(root.path(), |session| async move {
        for _ in 0..2 {
            let mut file = session.open(b"f".to_vec(), &options()).await.unwrap();
            let mut found = vec![0; 8 << 20];
            file.read_exact(&mut found).await.unwrap();
            assert!(found == content(0, 8 << 20));
        }
    });
}

#[test]
fn a_written_file_has_its_name_only_after_its_end() {
    let root = TempDir::new().unwrap();
    let name = root.path().join("a/b/f");
    let summary = with_session(root.path(), |session| async move {
        for size in [0, 1, 3 << 20] {
            let mut file = session.create(b"a/b/f".to_vec(), &options()).await.unwrap();
            for part in content(size, size).chunks(70_001) {
                file.write_all(part).await.unwrap();
            }
            file.flush().await.unwrap();
            let before = fs::metadata(&name).map(|found| found.len()).unwrap_or(0);
            assert_ne!(before, size.max(1) as u64);
            file.shutdown().await.unwrap();
            let report = file.finish().await.unwrap();
            assert_eq!((report.bytes, report.files), (size as u64, 1));
            assert!(report.durable && report.verified);
            assert!(fs::read(&name).unwrap() == content(size, size), "{size}");
        }
    });
    assert_eq!((summary.transfers, summary.failed), (3, 0));
}

#[test]
fn a_dropped_writer_leaves_no_file_and_replaces_none() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("old"), b"old").unwrap();
    with_session(root.path(), |session| async move {
        for name in ["new", "old"] {
            let mut file = session.create(name.into(), &options()).await.unwrap();
            file.write_all(&content(0, 2 << 20)).await.unwrap();
            file.flush().await.unwrap();
        }
    });
    let names = fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["old"]);
    assert_eq!(fs::read(root.path().join("old")).unwrap(), b"old");
}

#[test]
fn bytes_are_put_from_memory_by_one_call() {
    let root = TempDir::new().unwrap();
    fs::create_dir(root.path().join("d")).unwrap();
    let at = |name: &str| root.path().join(name);
    let summary = with_session(root.path(), |session| async move {
        let put = async |path: &str, bytes: Vec<u8>| {
            session.put_bytes(path.into(), bytes, &options()).await
        };
        for (path, size) in [("f", 0), ("f", 9), ("new/f", 3 << 20), ("/g", 1)] {
            let report = put(path, content(size, size)).await.unwrap();
            assert!(report.durable && report.bytes == size as u64, "{report:?}");
            let found = fs::read(at(path.trim_start_matches('/'))).unwrap();
            assert!(found == content(size, size), "{path}");
        }
        session.put_bytes(b"s".to_vec(), "text", &options()).await.unwrap();
        assert_eq!(fs::read(at("s")).unwrap(), b"text");
        // A directory is not replaced, and nothing is written into it.
        put("d", vec![7]).await.unwrap_err();
        assert_eq!(fs::read_dir(at("d")).unwrap().count(), 0);
        for path in ["", "d/", "d/.."] {
            let error = put(path, vec![7]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Request, "{path}: {error}");
        }
    });
    assert_eq!(summary.failed, 0);
}
