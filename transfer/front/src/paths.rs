//! Cache file of known paths: rate, RTT and goodput by number of channels, as earlier transfers to each peer measured
//! them.
//!
//! States:      read once at the start; at the end, new values are merged into the file's content of
//!              that time.
//! Invariants:  the file is complete at any time and private to its owner. Transfers work without it.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs};

use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;
use sabul::Rate;
use sabul::settings::{KnownPath, MeasuredChannels, PathMemory};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::ownership;

/// Path of the file below the user's cache directory.
const PLACE: &str = "sabul/paths.json";
/// Ours: maximum size read, in bytes; the program never writes a longer file.
const SIZE_MAX: u64 = 4 << 20;

/// Known path as written to the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Written {
    rate_bps: u64,
    rtt_us: u64,
    /// Seconds since 1970.
    seen: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    channels: Vec<WrittenChannels>,
}

/// Result of a transfer with a number of channels, as written to the file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct WrittenChannels {
    channels: u8,
    goodput_bps: u64,
    is_cpu_limited: bool,
    /// Seconds since 1970.
    seen: u64,
}

fn seconds(seen: SystemTime) -> u64 {
    seen.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn time(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

impl From<MeasuredChannels> for WrittenChannels {
    fn from(measured: MeasuredChannels) -> Self {
        Self {
            channels: measured.channels,
            goodput_bps: measured.goodput.0,
            is_cpu_limited: measured.is_cpu_limited,
            seen: seconds(measured.seen),
        }
    }
}

impl Written {
    fn of(path: &KnownPath) -> Self {
        let rtt_us = u64::try_from(path.rtt.as_micros()).unwrap_or(u64::MAX);
        let channels = path.channels().map(WrittenChannels::from).collect();
        Self { rate_bps: path.rate.0, rtt_us, seen: seconds(path.seen), channels }
    }

    fn path(self) -> Option<KnownPath> {
        let (rate, rtt) = (Rate(self.rate_bps), Duration::from_micros(self.rtt_us));
        let path = KnownPath::new(rate, rtt, time(self.seen)?);
        Some(self.channels.into_iter().fold(path, |path, written| {
            let WrittenChannels { channels, goodput_bps, is_cpu_limited, seen } = written;
            let Some(seen) = time(seen) else { return path };
            let goodput = Rate(goodput_bps);
            path.with_channels(MeasuredChannels::new(channels, goodput, is_cpu_limited, seen))
        }))
    }
}

/// Known paths of a program, and the file that keeps them.
#[derive(Debug)]
pub struct PathFile {
    file: Option<PathBuf>,
    memory: PathMemory,
}

impl PathFile {
    /// Opens the file of this user: `sabul/paths.json` in `XDG_CACHE_HOME`, or in `.cache` of the
    /// home directory. Without either, or with an unreadable or invalid file, no path is known.
    /// Nothing is read or written in a directory of another user, or on a path that another user
    /// can redirect.
    pub fn of_user() -> Self {
        let absolute =
            |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
        let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        Self::open(caches.map(|caches| caches.join(PLACE)))
    }

    fn open(file: Option<PathBuf>) -> Self {
        let memory = PathMemory::default();
        let is_own =
            |file: &PathBuf| file.parent().is_some_and(|it| ownership::check_place(it).is_ok());
        let file = file.filter(is_own);
        file.as_deref().into_iter().for_each(|file| read(file, &memory));
        Self { file, memory }
    }

    /// Returns the known paths, for transfers to use and to extend.
    pub fn memory(&self) -> PathMemory {
        self.memory.clone()
    }

    /// Writes the known paths, merged with those that other processes wrote meanwhile.
    ///
    /// # Errors
    ///
    /// If the file cannot be written. The only loss is a slower start of the next transfer.
    pub fn keep(&self) -> io::Result<()> {
        let Some(file) = self.file.as_deref().filter(|_| !self.memory.paths().is_empty()) else {
            return Ok(());
        };
        let all = PathMemory::default();
        read(file, &all);
        for (peer, path) in self.memory.paths() {
            all.note(peer, path);
        }
        let all: BTreeMap<_, _> =
            all.paths().iter().map(|(peer, path)| (*peer, Written::of(path))).collect();
        let folder = file.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder)?;
        ownership::check(folder)?;
        // A new file of mode 0600 with an unpredictable name.
        let mut aside = NamedTempFile::new_in(folder)?;
        aside.write_all(&serde_json::to_vec(&all)?)?;
        aside.persist(file)?;
        Ok(())
    }
}

/// Opens a regular file of this user. Does not follow a link and does not wait for the writer of a
/// FIFO.
fn open(file: &Path) -> io::Result<fs::File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(file, flags, Mode::empty())?);
    let facts = file.metadata()?;
    if !facts.is_file() || facts.uid() != geteuid().as_raw() {
        return Err(io::Error::other("it is no file of this user"));
    }
    Ok(file)
}

/// Adds the paths of a valid file to `memory`.
fn read(file: &Path, memory: &PathMemory) {
    let mut text = Vec::new();
    let is_read = open(file).and_then(|it| it.take(SIZE_MAX).read_to_end(&mut text));
    let known: BTreeMap<IpAddr, Written> =
        is_read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default();
    for (peer, written) in known {
        if let Some(path) = written.path() {
            memory.note(peer, path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PEERS: [IpAddr; 2] =
        [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))];

    fn now(rate_bps: u64) -> KnownPath {
        KnownPath::new(Rate(rate_bps), Duration::from_millis(100), SystemTime::now())
    }

    fn rates(file: &PathFile) -> Vec<(IpAddr, u64)> {
        file.memory.paths().iter().map(|(peer, path)| (*peer, path.rate.0)).collect()
    }

    #[test]
    fn two_programs_merge_their_path_records() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("caches/sabul/paths.json");
        let open = || PathFile::open(Some(place.clone()));
        let (first, second) = (open(), open());
        first.keep().unwrap();
        assert!(!place.exists(), "nothing is written where nothing is known");
        first.memory.note(PEERS[0], now(5));
        second.memory.note(PEERS[1], now(6));
        first.keep().unwrap();
        second.keep().unwrap();
        assert_eq!(rates(&open()), [(PEERS[0], 5), (PEERS[1], 6)]);
        assert_eq!(
            fs::read_dir(place.parent().unwrap()).unwrap().count(),
            1,
            "nothing stays aside"
        );
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn results_by_number_of_channels_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("paths.json");
        let file = PathFile::open(Some(place.clone()));
        let seen = UNIX_EPOCH + Duration::from_secs(seconds(SystemTime::now()));
        let results =
            [1, 8].map(|channels| MeasuredChannels::new(channels, Rate(5), channels == 1, seen));
        file.memory.note(PEERS[0], results.into_iter().fold(now(5), KnownPath::with_channels));
        file.keep().unwrap();
        let read = PathFile::open(Some(place)).memory.paths();
        assert_eq!(read[0].1.channels().collect::<Vec<_>>(), results);
    }

    #[test]
    fn an_invalid_path_file_is_ignored_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("paths.json");
        for text in [
            "",
            "{",
            "[1, 2]",
            r#"{"host": {"rate_bps": 1, "rtt_us": 1, "seen": 1}}"#,
            r#"{"192.0.2.9": {"rate_bps": 1, "rtt_us": 18446744073709551615, "seen": 18446744073709551615}}"#,
        ] {
            fs::write(&place, text).unwrap();
            let file = PathFile::open(Some(place.clone()));
            assert_eq!(rates(&file), [], "{text}");
            file.memory.note(PEERS[0], now(5));
            file.keep().unwrap();
            assert_eq!(rates(&PathFile::open(Some(place.clone()))), [(PEERS[0], 5)], "{text}");
        }
    }

    #[test]
    fn a_link_or_fifo_at_the_path_file_is_not_followed_and_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let (place, victim) = (folder.path().join("paths.json"), folder.path().join("victim"));
        fs::write(&victim, r#"{"192.0.2.9": {"rate_bps": 1, "rtt_us": 1, "seen": 1}}"#).unwrap();
        let before = fs::read(&victim).unwrap();
        std::os::unix::fs::symlink(&victim, &place).unwrap();
        let file = PathFile::open(Some(place.clone()));
        assert_eq!(rates(&file), []);
        file.memory.note(PEERS[0], now(5));
        file.keep().unwrap();
        assert_eq!(fs::read(&victim).unwrap(), before);
        assert!(fs::symlink_metadata(&place).unwrap().is_file(), "the link is replaced");
        fs::remove_file(&place).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&place).status().unwrap();
        assert!(made.success());
        assert_eq!(rates(&PathFile::open(Some(place))), []);
    }

    #[test]
    fn root_writes_no_path_file_in_another_users_home() {
        if !geteuid().is_root() {
            println!("skipped: only root can give a folder away");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(home.path(), Some(1000), Some(1000)).unwrap();
        let file = PathFile::open(Some(home.path().join(".cache/sabul/paths.json")));
        file.memory.note(PEERS[0], now(5));
        file.keep().unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_a_location_no_path_file_is_kept() {
        let file = PathFile::open(None);
        file.memory.note(PEERS[0], now(5));
        file.keep().unwrap();
    }
}
