//! Power cuts on a disk in memory that loses any part of the writes that were not flushed.

use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use sqlite_vfs::wip::{WalIndex, WalIndexLock};
use sqlite_vfs::{DatabaseHandle, LockKind, OpenOptions, Vfs};

use super::*;

/// Name of the file system for SQLite.
const FORGETFUL: &str = "forgetful";
/// A disk writes each sector as a whole.
const SECTOR: usize = 512;

/// All disks; the files of disk `7` are below `/7/`.
static DISKS: Mutex<BTreeMap<u64, Arc<Mutex<Disk>>>> = Mutex::new(BTreeMap::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Files as a power cut leaves them.
type Image = BTreeMap<String, Vec<u8>>;

/// A change of a file that was not flushed.
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write(at, bytes) => {
                content.resize(content.len().max(at + bytes.len()), 0);
                content[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Self::Length(length) => content.resize(*length, 0),
        }
    }

    /// Applies nothing, everything, or some sectors.
    fn apply_in_part(&self, content: &mut Vec<u8>, random: &mut SeededRandom) {
        match (random.below(3), self) {
            (0, _) => {}
            (1, Self::Write(at, bytes)) => {
                let mut sector = *at;
                while sector < at + bytes.len() {
                    let end = ((sector / SECTOR + 1) * SECTOR).min(at + bytes.len());
                    if random.below(2) == 0 {
                        let part = bytes[sector - at..end - at].to_vec();
                        Self::Write(sector, part).apply(content);
                    }
                    sector = end;
                }
            }
            _ => self.apply(content),
        }
    }
}

#[derive(Default)]
struct File {
    content: Vec<u8>,
    /// Content at the last flush; `None` if the file is new, and its name may be lost.
    flushed: Option<Vec<u8>>,
    changes: Vec<Change>,
}

impl File {
    fn flushed(content: Vec<u8>) -> Self {
        Self { flushed: Some(content.clone()), content, changes: Vec::new() }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.content);
        self.changes.push(change);
    }

    fn after_cut(&self, random: &mut SeededRandom) -> Option<Vec<u8>> {
        let mut content = match &self.flushed {
            Some(content) => content.clone(),
            None if random.below(2) == 0 => return None,
            None => Vec::new(),
        };
        self.changes.iter().for_each(|change| change.apply_in_part(&mut content, random));
        Some(content)
    }
}

struct Disk {
    files: BTreeMap<String, File>,
    random: SeededRandom,
    /// Number of changes and flushes.
    steps: u64,
    /// The power fails before this step.
    cut_at: Option<u64>,
    image: Option<Image>,
}

impl Disk {
    fn step(&mut self) {
        self.steps += 1;
        if self.cut_at == Some(self.steps) {
            self.image = Some(self.after_cut());
        }
    }

    fn after_cut(&mut self) -> Image {
        let Self { files, random, .. } = self;
        let kept = |(name, file): (&String, &File)| Some((name.clone(), file.after_cut(random)?));
        files.iter().filter_map(kept).collect()
    }
}

/// Makes a disk with these files, which are flushed, and returns its number.
fn disk(files: Image, seed: u64) -> u64 {
    let mut disks = locked(&DISKS);
    let number = disks.last_key_value().map_or(0, |(number, _)| number + 1);
    let files = files.into_iter().map(|(name, content)| (name, File::flushed(content))).collect();
    let disk = Disk { files, random: SeededRandom::new(seed), steps: 0, cut_at: None, image: None };
    disks.insert(number, Arc::new(Mutex::new(disk)));
    number
}

/// Splits `/7/queue.sqlite` into the disk and the name of a file.
fn find(path: &str) -> Result<(Arc<Mutex<Disk>>, String), Error> {
    let (number, name) = path.trim_start_matches('/').split_once('/').ok_or(ErrorKind::NotFound)?;
    let number: u64 = number.parse().map_err(|_| ErrorKind::NotFound)?;
    let disk = locked(&DISKS).get(&number).cloned().ok_or(ErrorKind::NotFound)?;
    Ok((disk, name.to_owned()))
}

struct Forgetful;

/// A file that one connection has open. No other connection uses the disk at the same time.
struct Handle {
    disk: Arc<Mutex<Disk>>,
    name: String,
    lock: LockKind,
}

impl Handle {
    fn with<T>(&self, work: impl FnOnce(&mut File) -> T) -> Result<T, Error> {
        let mut disk = locked(&self.disk);
        disk.files.get_mut(&self.name).map(work).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn change(&self, work: impl FnOnce(&mut File)) -> Result<(), Error> {
        locked(&self.disk).step();
        self.with(work)
    }
}

fn position(offset: u64) -> Result<usize, Error> {
    usize::try_from(offset).map_err(Error::other)
}

impl Vfs for Forgetful {
    type Handle = Handle;

    fn open(&self, path: &str, _: OpenOptions) -> Result<Handle, Error> {
        let (disk, name) = find(path)?;
        let is_new = !locked(&disk).files.contains_key(&name);
        if is_new {
            let mut disk = locked(&disk);
            disk.step();
            disk.files.insert(name.clone(), File::default());
        }
        Ok(Handle { disk, name, lock: LockKind::None })
    }

    fn delete(&self, path: &str) -> Result<(), Error> {
        let (disk, name) = find(path)?;
        let mut disk = locked(&disk);
        disk.step();
        disk.files.remove(&name);
        Ok(())
    }

    fn exists(&self, path: &str) -> Result<bool, Error> {
        let (disk, name) = find(path)?;
        Ok(locked(&disk).files.contains_key(&name))
    }

    fn temporary_name(&self) -> String {
        "/none/temporary".to_owned()
    }

    fn random(&self, buffer: &mut [i8]) {
        buffer.fill(7);
    }

    fn sleep(&self, duration: Duration) -> Duration {
        duration
    }
}

impl DatabaseHandle for Handle {
    type WalIndex = Index;

    fn size(&self) -> Result<u64, Error> {
        self.with(|file| file.content.len() as u64)
    }

    fn read_exact_at(&mut self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        let offset = position(offset)?;
        self.with(|file| {
            let rest = file.content.get(offset..).unwrap_or_default();
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            buffer[length..].fill(0);
            if length < buffer.len() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
        })?
    }

    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        let offset = position(offset)?;
        self.change(|file| file.change(Change::Write(offset, bytes.to_vec())))
    }

    fn sync(&mut self, _: bool) -> Result<(), Error> {
        self.change(|file| *file = File::flushed(std::mem::take(&mut file.content)))
    }

    fn set_len(&mut self, size: u64) -> Result<(), Error> {
        let length = position(size)?;
        self.change(|file| file.change(Change::Length(length)))
    }

    fn lock(&mut self, lock: LockKind) -> Result<bool, Error> {
        self.lock = lock;
        Ok(true)
    }

    fn reserved(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

    fn current_lock(&self) -> Result<LockKind, Error> {
        Ok(self.lock)
    }

    fn wal_index(&self, _: bool) -> Result<Index, Error> {
        Ok(Index)
    }
}

/// Index of the log of changes. It is in memory, so each connection makes it again.
struct Index;

impl WalIndex for Index {
    fn map(&mut self, _: u32) -> Result<[u8; 32768], Error> {
        Ok([0; 32768])
    }

    fn lock(&mut self, _: std::ops::Range<u8>, _: WalIndexLock) -> Result<bool, Error> {
        Ok(true)
    }

    fn delete(self) -> Result<(), Error> {
        Ok(())
    }
}

fn open(disk: u64) -> Result<Store, StoreError> {
    static REGISTERED: std::sync::Once = std::sync::Once::new();
    REGISTERED.call_once(|| sqlite_vfs::register(FORGETFUL, Forgetful, false).unwrap());
    let path = format!("/{disk}/queue.sqlite");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connect = || Connection::open_with_flags_and_vfs(&path, flags, FORGETFUL);
    Ok(Store::on(Path::new(&path), connect)?.0)
}

fn states(store: &Store) -> Result<Vec<(JobId, State)>, StoreError> {
    Ok(store.jobs(usize::MAX)?.iter().map(|job| (job.id, job.state)).collect())
}

/// Returns the states of the jobs after a power cut.
fn after(image: Image, seed: u64) -> Result<Vec<(JobId, State)>, StoreError> {
    let number = disk(image, seed);
    let found = open(number).and_then(|store| states(&store));
    locked(&DISKS).remove(&number);
    found
}

/// Runs drawn operations with a power cut within each operation, and another after the operation. Returns the numbers of
/// power cuts, and of those after which the jobs have neither the states before the operation nor those after.
fn run(seed: u64, synchronous: &str) -> (u32, u32) {
    let number = disk(Image::from([("queue.sqlite".to_owned(), Vec::new())]), seed);
    let mut store = open(number).unwrap();
    store.connection.pragma_update(None, "synchronous", synchronous).unwrap();
    // Checkpoints occur within the test, too.
    store.connection.pragma_update(None, "wal_autocheckpoint", 10).unwrap();
    let shared = Arc::clone(&locked(&DISKS)[&number]);
    let (mut model, mut random) = (BTreeMap::new(), SeededRandom::new(seed));
    let (mut cuts, mut wrong) = (0, 0);
    let mut now = 1_000_000;
    for _ in 0..30 {
        now += 1000;
        let before = states(&store).unwrap();
        {
            let mut disk = locked(&shared);
            let step = disk.steps + 1 + random.below(8);
            disk.cut_at = Some(step);
        }
        operate(&mut store, &mut model, &mut random, now);
        expect_same(&store, &model, seed);
        let now_there = states(&store).unwrap();
        let within = locked(&shared).image.take();
        let at_end = locked(&shared).after_cut();
        let mut judge = |image: Image, accepted: &[&Vec<(JobId, State)>]| {
            cuts += 1;
            let found = after(image, seed);
            wrong += u32::from(!found.is_ok_and(|found| accepted.contains(&&found)));
        };
        judge(at_end, &[&now_there]);
        if let Some(image) = within {
            judge(image, &[&before, &now_there]);
        }
    }
    drop(store);
    locked(&DISKS).remove(&number);
    (cuts, wrong)
}

#[test]
fn no_acknowledged_change_is_lost_on_a_disk_that_loses_unflushed_writes() {
    let seeds = std::env::var("SABUL_QUEUE_SEEDS").map_or(40, |text| text.parse().unwrap());
    let mut all = 0;
    for seed in 0..seeds {
        let (cuts, wrong) = run(seed, "FULL");
        assert_eq!(wrong, 0, "seed {seed}: {wrong} of {cuts} power cuts lost or changed a job");
        all += cuts;
    }
    println!("{seeds} seeds, {all} power cuts");
    assert!(u64::from(all) > seeds * 35, "{all} power cuts");
}

#[test]
fn without_flushes_power_cuts_lose_jobs() {
    let wrong: u32 = (0..5).map(|seed| run(seed, "OFF").1).sum();
    println!("{wrong} power cuts lost a job");
    assert!(wrong > 5);
}
