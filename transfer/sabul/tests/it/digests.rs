//! Listings that leave out runs of entries, over loopback: comparisons of real directories.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use sabul::files::{Listing, Seen, SourceSet, View};
use sabul::internal::compare::{CompareOptions, Comparison, Difference, ListOptions};
use sabul::internal::sources_beneath;
use sabul::{ConnectConfig, Error, Listener, ListenerConfig, Service, Session, connect};
use sabul_units::{Random as _, SeededRandom};
use tempfile::TempDir;
use tokio::runtime::Handle;

/// Rounds of changes.
const ROUNDS: u64 = 40;

fn options() -> CompareOptions {
    CompareOptions { modes: true, directories: true, extras: true, ..CompareOptions::default() }
}

/// A listing as an iterator; blocks.
struct Blocking(Listing, Handle);

impl Iterator for Blocking {
    type Item = Result<Seen, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.1.block_on(self.0.next()).transpose()
    }
}

/// The entries of a directory of this machine.
fn walk(root: &Path) -> impl Iterator<Item = Seen> + Send + use<> {
    let set: SourceSet = sources_beneath(root, vec![b"./".to_vec()], true).unwrap();
    set.with_archive_mode(true).plan_compared(options().parts())
}

/// Compares a directory with the one that is served. The listing leaves out entries after the first `after`, if given.
fn compare(session: &Session, own: &Path, after: Option<u64>, is_pull: bool) -> Vec<Difference> {
    let list = ListOptions { literal: true, ..ListOptions::default() };
    let places = vec![b"./".to_vec()];
    let handle = Handle::current();
    let all: Result<_, Error> = match after {
        None => {
            let listing = session.list_for_copy(places, View::Archive, list).unwrap();
            let (own, there) = (walk(own).map(Ok), Blocking(listing, handle));
            match is_pull {
                false => Comparison::new(options(), own, there).collect(),
                true => Comparison::new(options(), there, own).collect(),
            }
        }
        Some(after) => {
            let list = ListOptions { digests: Some(options().digests(after)), ..list };
            let own = walk(own);
            let beside = session.list_beside(places, View::Archive, list, &options(), own);
            let (own, listing) = beside.unwrap();
            let (own, there) =
                (own.map(|seen| seen.map_err(Error::from)), Blocking(listing, handle));
            match is_pull {
                false => Comparison::new(options(), own, there).collect(),
                true => Comparison::new(options(), there, own).collect(),
            }
        }
    };
    all.unwrap()
}

/// Replaces the metadata of equal entries, whose identity differs.
fn essential(all: Vec<Difference>) -> Vec<String> {
    let text = |difference| match difference {
        Difference::Same { path, .. } => format!("same {}", String::from_utf8(path).unwrap()),
        other => format!("{other:?}"),
    };
    all.into_iter().map(text).collect()
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
        .unwrap();
}

/// Changes an entry of a tree.
fn change(root: &Path, random: &mut SeededRandom) {
    let directory = root.join(format!("{:02}", random.below(30)));
    let path = directory.join(format!("{:03}", random.below(50)));
    let is_file = path.is_file();
    match random.below(6) {
        0 if is_file => fs::remove_file(&path).unwrap(),
        1 if is_file => write(&path, b"longer"),
        2 if is_file => {
            fs::remove_file(&path).unwrap();
            write(&path.join("below"), b"");
        }
        3 if directory.is_dir() => {
            fs::remove_dir_all(&directory).unwrap();
            write(&directory, b"was a directory");
        }
        4 if directory.is_file() => fs::remove_file(&directory).unwrap(),
        5 if !path.exists() && !directory.is_file() => write(&path, b"new"),
        _ if !directory.is_file() => write(&directory.join("another"), b"new"),
        _ => {}
    }
}

/// Number of entries of a listing beside own entries, and the number that the peer has sent.
fn counts(session: &Session, own: &Path, after: u64) -> (usize, u64) {
    let digests = Some(options().digests(after));
    let list = ListOptions { literal: true, digests, ..ListOptions::default() };
    let places = vec![b"./".to_vec()];
    let beside = session.list_beside(places, View::Archive, list, &options(), walk(own)).unwrap();
    let (_own, mut listing) = beside;
    let handle = Handle::current();
    let mut all = 0;
    while handle.block_on(listing.next()).unwrap().is_some() {
        all += 1;
    }
    (all, listing.received())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_with_digests_gives_the_same_differences() {
    let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for root in [here.path(), there.path()] {
        for at in 0..1500 {
            write(&root.join(format!("{:02}/{:03}", at / 50, at % 50)), b"");
        }
    }
    let listener =
        Listener::bind(ListenerConfig::new("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let session = connect(listener.ticket(), ConnectConfig::default()).await.unwrap();
    let far = listener.accept().await.unwrap();
    let root = there.path().to_owned();
    let served = tokio::spawn(async move { far.serve(&Service::default().root(root)).await });
    let near = session.clone();
    let compared = tokio::task::spawn_blocking(move || {
        let (all, received) = counts(&near, here.path(), u64::MAX);
        assert_eq!(received, all as u64);
        // Some six runs of files, and thirty directories.
        assert!(matches!(counts(&near, here.path(), 0), (same, ..100) if same == all), "{all}");
        let random = &mut SeededRandom::new(7).fork("changes");
        for round in 0..ROUNDS {
            for is_pull in [false, true] {
                let all = essential(compare(&near, here.path(), None, is_pull));
                let after = [0, 50, 1000][usize::try_from(random.below(3)).unwrap()];
                let same = essential(compare(&near, here.path(), Some(after), is_pull));
                assert_eq!(same, all, "round {round}, pull {is_pull}, after {after}");
            }
            for _ in 0..random.below(3) {
                change(if round % 2 == 0 { here.path() } else { there.path() }, random);
            }
        }
    });
    compared.await.unwrap();
    session.close().await;
    served.await.unwrap().unwrap();
}
