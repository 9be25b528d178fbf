//! Contract of object stores as tests, for every implementation of [`ObjectSource`] and [`ObjectDestination`].
//!
//! [`check`] runs all of them on new stores. The first violated rule is returned as text, so that a test can also show
//! that a wrong implementation is found.

use std::sync::Arc;

use sabul_wire::control::{Extent, Failure, FailureCode};

use super::object::{NewObject, Object, ObjectDestination, ObjectSource, Upload, checked};

/// An empty store under test.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Reader of the store.
    pub source: Arc<dyn ObjectSource>,
    /// Writer of the store.
    pub destination: Arc<dyn ObjectDestination>,
    /// Simulates a power failure, if the store can; returns the store afterwards.
    pub cut_power: Option<fn(&Self) -> Self>,
    /// Everything in the store, also what is not an object.
    pub names: fn(&Self) -> Vec<String>,
    /// Store of the implementation.
    pub disk: Option<crate::disk::memory::MemoryDisk>,
}

type Rule = fn(&Bench) -> Result<(), String>;

/// The rules, with their names.
const RULES: &[(&str, Rule)] = &[
    ("an object is visible only after its publication", nothing_is_visible_before),
    ("a durable published object survives a power failure", durable_objects_survive),
    ("a list is sorted by components and has every object", a_list_is_sorted),
    ("a changed object is not read as its old version", a_changed_version_is_not_read),
    ("a range is cut at the end of the object", ranges_end_with_the_object),
    ("parts come in any order and twice", parts_come_in_any_order),
    ("an object with a missing part is not published", a_missing_part_is_found),
    ("an aborted upload leaves nothing", an_aborted_upload_leaves_nothing),
    ("a published object replaces the old object", publication_replaces),
    ("the last of two writers wins", the_last_writer_wins),
    ("a name is kept exactly or refused", names_are_exact),
    ("an empty object exists", an_empty_object_exists),
    ("holes read as zeros and take no writes", holes_are_zeros),
];

/// Checks all rules, each on a new store.
///
/// # Errors
/// The first violated rule, with the reason.
pub fn check(new: impl Fn() -> Bench) -> Result<(), String> {
    for (name, rule) in RULES {
        rule(&new()).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

fn text(failure: Failure) -> String {
    format!("{:?}: {failure}", failure.code)
}

fn require(is_met: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_met { Ok(()) } else { Err(why()) }
}

/// Content in which each position differs from its neighbours.
fn content(bytes: usize, seed: u8) -> Vec<u8> {
    let rows = (0..=255).cycle().flat_map(|row: u8| (0..251).map(move |at: u8| at ^ row ^ seed));
    rows.take(bytes).collect()
}

/// Size of a part in tests.
fn part(bench: &Bench) -> usize {
    bench.destination.part_bytes().max(1000)
}

fn start(bench: &Bench, path: &str, size: usize) -> Result<Box<dyn Upload>, String> {
    let new = NewObject::new(path, size as u64).map_err(text)?;
    bench.destination.create(&new).map_err(text)
}

fn put(bench: &Bench, path: &str, content: &[u8]) -> Result<(), String> {
    let upload = start(bench, path, content.len())?;
    for (number, bytes) in content.chunks(part(bench)).enumerate() {
        upload.write((number * part(bench)) as u64, bytes).map_err(text)?;
    }
    upload.make_durable().map_err(text)?;
    upload.publish().map_err(text)
}

fn stat(bench: &Bench, path: &str) -> Result<Object, Failure> {
    bench.source.stat(&checked(path.as_bytes())?)
}

fn read(bench: &Bench, object: &Object, from: u64, most: usize) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    while all.len() < most {
        let mut some = Vec::with_capacity(most - all.len());
        let wanted = some.capacity().min(most - all.len());
        let count = bench.source.read(object, from + all.len() as u64, &mut some)?;
        if count == 0 {
            break;
        }
        all.extend_from_slice(&some[..count.min(wanted)]);
    }
    Ok(all)
}

fn expect(bench: &Bench, path: &str, content: &[u8]) -> Result<(), String> {
    let object = stat(bench, path).map_err(text)?;
    require(object.size == content.len() as u64, || format!("'{path}' has {} bytes", object.size))?;
    let found = read(bench, &object, 0, content.len() + 1).map_err(text)?;
    require(found == content, || format!("'{path}' has other content"))
}

fn a_list_is_sorted(bench: &Bench) -> Result<(), String> {
    let names = ["a", "a.b", "a-c/x", "b/a", "b/b/c", "b.", "c"];
    for name in names {
        put(bench, name, name.as_bytes())?;
    }
    let mut expected: Vec<&str> = names.to_vec();
    expected.sort_by_key(|name| name.split('/').collect::<Vec<_>>());
    let list = bench.source.list().map_err(text)?.collect::<Result<Vec<_>, _>>().map_err(text)?;
    let found: Vec<String> = list.iter().map(|object| object.path.to_string()).collect();
    require(found == expected, || format!("{found:?} is not {expected:?}"))?;
    for object in &list {
        let now = bench.source.stat(&object.path).map_err(text)?;
        require(now == *object, || format!("{object:?} was listed, {now:?} is there"))?;
        require(object.size == object.path.as_bytes().len() as u64, || format!("{object:?}"))?;
    }
    Ok(())
}

fn a_changed_version_is_not_read(bench: &Bench) -> Result<(), String> {
    put(bench, "f", &content(5000, 1))?;
    let old = stat(bench, "f").map_err(text)?;
    read(bench, &old, 0, 100).map_err(text)?;
    put(bench, "f", &content(5000, 2))?;
    let now = stat(bench, "f").map_err(text)?;
    require(now.version != old.version, || "two contents have the same version".to_owned())?;
    match read(bench, &old, 100, 100) {
        Err(failure) if failure.code == FailureCode::Changed => Ok(()),
        other => Err(format!("the old version returned {other:?}")),
    }
}

fn ranges_end_with_the_object(bench: &Bench) -> Result<(), String> {
    let all = content(part(bench) * 2 + 77, 3);
    put(bench, "f", &all)?;
    let object = stat(bench, "f").map_err(text)?;
    let end = all.len();
    for (from, most) in [(0, 1), (0, end), (end - 1, 10), (end, 10), (end + 5, 10), (999, 1002)] {
        let found = read(bench, &object, from as u64, most).map_err(text)?;
        let expected = &all[from.min(end)..(from + most).min(end)];
        require(found == expected, || format!("{most} bytes from {from}: {}", found.len()))?;
    }
    match stat(bench, "g") {
        Err(failure) if failure.code == FailureCode::NotFound => Ok(()),
        other => Err(format!("a missing object returned {other:?}")),
    }
}

fn parts_come_in_any_order(bench: &Bench) -> Result<(), String> {
    let (size, step) = (part(bench) * 5 + 10, part(bench));
    let all = content(size, 4);
    let upload = start(bench, "f", size)?;
    for number in [5, 0, 3, 3, 1, 0, 4, 2, 5] {
        let from = number * step;
        upload.write(from as u64, &all[from..(from + step).min(size)]).map_err(text)?;
    }
    let outside = upload.write(size as u64, b"x");
    require(outside.is_err(), || "a byte behind the end was accepted".to_owned())?;
    upload.make_durable().map_err(text)?;
    upload.publish().map_err(text)?;
    expect(bench, "f", &all)
}

fn a_missing_part_is_found(bench: &Bench) -> Result<(), String> {
    let (size, step) = (part(bench) * 3, part(bench));
    let all = content(size, 5);
    put(bench, "f", b"old")?;
    for missing in 0..3 {
        for is_durable in [true, false] {
            let upload = start(bench, "f", size)?;
            for number in (0..3).filter(|number| *number != missing) {
                let from = number * step;
                upload.write(from as u64, &all[from..from + step]).map_err(text)?;
            }
            let result = if is_durable { upload.make_durable() } else { upload.publish() };
            require(result.is_err(), || format!("part {missing} of 3 is not missing"))?;
        }
    }
    expect(bench, "f", b"old")
}

fn nothing_is_visible_before(bench: &Bench) -> Result<(), String> {
    let hidden = |when: &str| {
        let listed = bench.source.list().map_err(text)?.count();
        let path = checked(b"d/f").map_err(text)?;
        let there = bench.destination.find(&path).map_err(text)?;
        require(listed == 0 && there.is_none(), || format!("the object is visible {when}"))
    };
    let upload = start(bench, "d/f", 3)?;
    hidden("after its creation")?;
    upload.write(0, b"abc").map_err(text)?;
    hidden("after its last byte")?;
    upload.make_durable().map_err(text)?;
    hidden("when it is durable")?;
    upload.publish().map_err(text)?;
    expect(bench, "d/f", b"abc")
}

fn durable_objects_survive(bench: &Bench) -> Result<(), String> {
    let Some(cut_power) = bench.cut_power else { return Ok(()) };
    let mut bench = bench.clone();
    for round in 0..20 {
        let (name, all) = (format!("d{round}/e/f"), content(20_000, round));
        put(&bench, &name, &all)?;
        bench = cut_power(&bench);
        expect(&bench, &name, &all)?;
    }
    Ok(())
}

fn an_aborted_upload_leaves_nothing(bench: &Bench) -> Result<(), String> {
    put(bench, "kept", b"1")?;
    let before = (bench.names)(bench);
    for is_dropped in [false, true] {
        let upload = start(bench, "d/e/f", 10)?;
        upload.write(2, b"abc").map_err(text)?;
        if is_dropped {
            drop(upload)
        } else {
            upload.abort()
        }
        let after = (bench.names)(bench);
        require(after == before, || format!("{after:?} is left, not {before:?}"))?;
    }
    Ok(())
}

fn publication_replaces(bench: &Bench) -> Result<(), String> {
    put(bench, "f", &content(3000, 6))?;
    let upload = start(bench, "f", 2)?;
    upload.write(0, b"ab").map_err(text)?;
    upload.make_durable().map_err(text)?;
    expect(bench, "f", &content(3000, 6))?;
    upload.publish().map_err(text)?;
    expect(bench, "f", b"ab")
}

fn the_last_writer_wins(bench: &Bench) -> Result<(), String> {
    let (one, two) = (start(bench, "f", 2000)?, start(bench, "f", 1500)?);
    std::thread::scope(|scope| {
        let write = |upload: &dyn Upload, bytes, seed| upload.write(0, &content(bytes, seed));
        let (first, second) = (&*one, &*two);
        let other = scope.spawn(move || write(first, 2000, 7));
        write(second, 1500, 8).and_then(|()| other.join().unwrap_or(Ok(())))
    })
    .map_err(text)?;
    for upload in [&one, &two] {
        upload.make_durable().map_err(text)?;
    }
    two.publish().map_err(text)?;
    expect(bench, "f", &content(1500, 8))?;
    one.publish().map_err(text)?;
    expect(bench, "f", &content(2000, 7))
}

fn names_are_exact(bench: &Bench) -> Result<(), String> {
    let long = "x".repeat(255);
    let names = ["a b", "é", "%2e%2e", "a\\b", ".hidden", "a.0123456789abcdef.sabul-part", &long];
    let mut kept = Vec::new();
    for name in names {
        match NewObject::new(name, 1).and_then(|new| bench.destination.create(&new)) {
            Ok(upload) => {
                upload.write(0, b"1").map_err(text)?;
                upload.publish().map_err(text)?;
                expect(bench, name, b"1")?;
                kept.push(name.to_owned());
            }
            Err(failure) if failure.code == FailureCode::Refused => {}
            Err(failure) => return Err(text(failure)),
        }
    }
    for name in ["", ".", "..", "a/../b", "/a", "a//b", "a/"] {
        require(NewObject::new(name, 1).is_err(), || format!("'{name}' is accepted"))?;
    }
    kept.sort();
    let list = bench.source.list().map_err(text)?.collect::<Result<Vec<_>, _>>().map_err(text)?;
    let found: Vec<String> = list.iter().map(|object| object.path.to_string()).collect();
    require(found == kept, || format!("{found:?} is listed, not {kept:?}"))
}

fn an_empty_object_exists(bench: &Bench) -> Result<(), String> {
    put(bench, "d/empty", b"")?;
    expect(bench, "d/empty", b"")?;
    require(bench.source.list().map_err(text)?.count() == 1, || "it is not listed".to_owned())
}

fn holes_are_zeros(bench: &Bench) -> Result<(), String> {
    // The disk in memory of the tests allocates holes.
    let size: u64 = if bench.disk.is_some() { 1 << 24 } else { 1 << 40 };
    let data = vec![Extent { offset: 0, bytes: 2 }, Extent { offset: size / 2, bytes: 3 }];
    let new = NewObject { data: Some(data), ..NewObject::new("f", size).map_err(text)? };
    let upload = bench.destination.create(&new).map_err(text)?;
    upload.write(size / 2, b"mid").map_err(text)?;
    upload.write(0, b"ab").map_err(text)?;
    upload.make_durable().map_err(text)?;
    upload.publish().map_err(text)?;
    let object = stat(bench, "f").map_err(text)?;
    require(object.size == size, || format!("{} bytes", object.size))?;
    let found = [0, size / 2 - 1, size - 4].map(|from| read(bench, &object, from, 5));
    let [head, middle, tail] = found.map(|found| found.map_err(text));
    require(head? == b"ab\0\0\0" && middle? == b"\0mid\0" && tail? == [0; 4], || {
        "a hole has other bytes than zeros".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::memory::MemoryDisk;
    use crate::root::{RootDir, RootLink};
    use crate::store::{Folder, Memory, Objects};
    use sabul_content::RelativePath;

    fn list(bench: &Bench) -> Vec<String> {
        let objects = bench.source.list().unwrap();
        objects.map(|object| object.unwrap().path.to_string()).collect()
    }

    fn of_memory() -> Bench {
        let memory = Arc::new(Memory::new());
        let (source, destination) = (memory.clone(), memory);
        Bench { source, destination, cut_power: None, names: list, disk: None }
    }

    fn of_disk(disk: &MemoryDisk) -> Bench {
        let folder = Arc::new(Folder::new(Arc::new(disk.clone())));
        let names = |bench: &Bench| {
            let tree = bench.disk.as_ref().unwrap().tree();
            tree.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
        };
        let cut_power = |bench: &Bench| {
            let disk = bench.disk.as_ref().unwrap();
            disk.cut_power();
            of_disk(&disk.process())
        };
        let (source, destination) = (folder.clone(), folder);
        let (cut_power, disk) = (Some(cut_power as fn(&Bench) -> Bench), Some(disk.clone()));
        Bench { source, destination, cut_power, names, disk }
    }

    #[test]
    fn memory_meets_the_contract_of_stores() {
        check(of_memory).unwrap();
    }

    #[test]
    fn a_folder_meets_the_contract_of_stores() {
        let dir = tempfile::tempdir().unwrap();
        let count = std::cell::Cell::new(0);
        check(|| {
            count.set(count.get() + 1);
            let path = dir.path().join(count.get().to_string());
            std::fs::create_dir(&path).unwrap();
            let disk: Arc<dyn Disk> = Arc::new(RootDir::open(&path, RootLink::Follow).unwrap());
            let folder = Arc::new(Folder::new(disk));
            let (source, destination) = (folder.clone(), folder);
            Bench { source, destination, cut_power: None, names: list, disk: None }
        })
        .unwrap();
    }

    #[test]
    fn a_folder_on_a_disk_that_loses_power_meets_the_contract_of_stores() {
        check(|| of_disk(&MemoryDisk::new(7))).unwrap();
    }

    /// Mistakes of an implementation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Mistake {
        /// The object is published before its content is durable.
        Early,
        /// The flush does nothing.
        NoFlush,
        /// Reads return the current version.
        AnyVersion,
        /// A missing part is accepted.
        Fills,
        /// An aborted upload is published.
        Keeps,
    }

    #[derive(Debug)]
    struct Wrong(Bench, Mistake);

    #[derive(Debug)]
    struct WrongUpload(Option<Box<dyn Upload>>, Mistake, NewObject, Arc<dyn ObjectDestination>);

    impl ObjectSource for Wrong {
        fn list(&self) -> Result<Objects<'_>, Failure> {
            self.0.source.list()
        }

        fn stat(&self, path: &RelativePath) -> Result<Object, Failure> {
            self.0.source.stat(path)
        }

        fn read(&self, object: &Object, from: u64, into: &mut Vec<u8>) -> Result<usize, Failure> {
            match self.1 {
                Mistake::AnyVersion => self.0.source.read(&self.stat(&object.path)?, from, into),
                _ => self.0.source.read(object, from, into),
            }
        }
    }

    impl ObjectDestination for Wrong {
        fn find(&self, path: &RelativePath) -> Result<Option<Object>, Failure> {
            self.0.destination.find(path)
        }

        fn create(&self, new: &NewObject) -> Result<Box<dyn Upload>, Failure> {
            let upload = self.0.destination.create(new)?;
            if self.1 == Mistake::Fills {
                upload
                    .write(0, &vec![0; usize::try_from(new.size.unwrap().min(1 << 16)).unwrap()])?;
            }
            let destination = Arc::clone(&self.0.destination);
            Ok(Box::new(WrongUpload(Some(upload), self.1, new.clone(), destination)))
        }
    }

    impl Upload for WrongUpload {
        fn write(&self, offset: u64, content: &[u8]) -> Result<(), Failure> {
            self.0.as_ref().unwrap().write(offset, content)?;
            if self.1 == Mistake::Early && offset + content.len() as u64 == self.2.size.unwrap() {
                let early = self.3.create(&self.2)?;
                early.write(0, &vec![0; usize::try_from(self.2.size.unwrap()).unwrap()])?;
                early.publish()?;
            }
            Ok(())
        }

        fn make_durable(&self) -> Result<(), Failure> {
            if self.1 == Mistake::NoFlush {
                return Ok(());
            }
            self.0.as_ref().unwrap().make_durable()
        }

        fn publish(mut self: Box<Self>) -> Result<(), Failure> {
            self.0.take().unwrap().publish()
        }

        fn abort(mut self: Box<Self>) {
            if self.1 == Mistake::Keeps {
                let upload = self.0.take().unwrap();
                upload.write(0, &[0; 10]).unwrap();
                upload.publish().unwrap();
            }
        }
    }

    #[test]
    fn each_mistake_of_an_implementation_is_found_by_its_rule() {
        for (mistake, rule) in [
            (Mistake::Early, "visible only after"),
            (Mistake::NoFlush, "survives a power failure"),
            (Mistake::AnyVersion, "not read as its old version"),
            (Mistake::Fills, "missing part"),
            (Mistake::Keeps, "leaves nothing"),
        ] {
            // A power failure does not lose everything that was not flushed, so several seeds are tried.
            let found = (0..20).filter_map(|seed| {
                check(|| {
                    let bench = of_disk(&MemoryDisk::new(seed));
                    let wrong = Arc::new(Wrong(bench.clone(), mistake));
                    Bench { source: wrong.clone(), destination: wrong, ..bench }
                })
                .err()
            });
            let found: Vec<String> = found.collect();
            assert!(found.iter().any(|why| why.contains(rule)), "{mistake:?}: {found:?}");
        }
    }
}
