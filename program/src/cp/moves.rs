//! Moved files: a file that is new at the source and gone at the destination is renamed there, not sent.
//!
//! A file that exists only at the destination, with the size and the modification time of a new file, is a candidate.
//! Both ends hash their files. Only equal files are renamed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use sabul::files::{Facts, SeenKind, View};
use sabul::internal::compare::{ListOptions, LocalTree, NewFile, facts_of};
use sabul::{Error, Session};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::compare::Adjusted;
use super::sides::Sides;

/// Minimum size of a file that is searched. Ours: a smaller file is sent at the cost of a few packets.
pub(super) const MOVED_FROM: u64 = 64 << 10;
/// Most new files that wait for the end of the comparison. Ours: some 20 MB of names.
pub(super) const WAITING_MAX: usize = 100_000;
/// Places in one request.
const PLACES_AT_ONCE: usize = 500;
/// Renames in progress at the same time.
const RENAMES_AT_ONCE: usize = 64;

/// A name with the metadata of its entry.
pub(super) type NameAndFacts = (Vec<u8>, Facts);

/// Names of a moved file, and its metadata at the destination.
struct Move {
    from: Vec<u8>,
    to: Vec<u8>,
    old: Facts,
}

/// Renames moved files at the destination. Removes these from the new files and from the extra entries; returns their
/// new names with their metadata. Blocks.
pub(super) fn carry_out(
    sides: &Sides,
    new: &mut Vec<NameAndFacts>,
    extras: &mut Vec<NameAndFacts>,
) -> Vec<Adjusted> {
    let moves = equal(sides, candidates(new, extras));
    let moved: Vec<Move> = sides.runtime.block_on(rename_all(sides, moves));
    let from: BTreeSet<&[u8]> = moved.iter().map(|it| &it.from[..]).collect();
    let to: BTreeMap<&[u8], Facts> = moved.iter().map(|it| (&it.to[..], it.old)).collect();
    extras.retain(|(path, _)| !from.contains(&path[..]));
    let mut adjusted = Vec::new();
    new.retain(|(path, source)| match to.get(&path[..]) {
        Some(&old) => {
            adjusted.push(Adjusted { path: path.clone(), source: *source, old });
            false
        }
        None => true,
    });
    adjusted
}

/// Pairs new files with extra files of the same size and time.
fn candidates(new: &[NameAndFacts], extras: &[NameAndFacts]) -> Vec<Move> {
    let key = |facts: &Facts| (facts.size, facts.modified_ns);
    let mut old: HashMap<_, Vec<(&[u8], Facts)>> = HashMap::new();
    for (path, facts) in extras.iter().rev() {
        if facts.kind == SeenKind::File && facts.size >= MOVED_FROM {
            old.entry(key(facts)).or_default().push((path, *facts));
        }
    }
    let mut find = |(path, facts): &NameAndFacts| {
        let same = old.get_mut(&key(facts))?;
        // With several candidates, one of the same name is the most probable.
        let at = same
            .iter()
            .rposition(|(old, _)| name(old) == name(path))
            .unwrap_or(same.len().checked_sub(1)?);
        let (from, old) = same.remove(at);
        Some(Move { from: from.to_vec(), to: path.clone(), old })
    };
    new.iter().filter_map(&mut find).collect()
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Keeps the moves whose files have the same content at both ends.
fn equal(sides: &Sides, moves: Vec<Move>) -> Vec<Move> {
    let mut equal = Vec::new();
    let mut moves = moves.into_iter();
    loop {
        let some: Vec<Move> = moves.by_ref().take(PLACES_AT_ONCE).collect();
        if some.is_empty() {
            return equal;
        }
        let old = some.iter().map(|it| sides.destination(&it.from)).collect();
        let new = some.iter().map(|it| sides.source(&it.to).unwrap_or_default()).collect();
        let (here, there) = match sides.new {
            NewFile::Here => (new, old),
            NewFile::AtPeer => (old, new),
        };
        let Ok(there) = hashes_there(sides, there) else { return equal };
        let here = here.into_iter().map(hash_here);
        let same = some.into_iter().zip(here.zip(there));
        equal.extend(
            same.filter(|(_, (here, there))| here.is_some() && here == there).map(|(it, _)| it),
        );
    }
}

type Hash = Option<[u8; 32]>;

fn hash_here(place: Vec<u8>) -> Hash {
    facts_of(Path::new(OsStr::from_bytes(&place)), true)?.hash
}

/// Hashes of files of the other machine, in the order of their places; empty if one is missing.
fn hashes_there(sides: &Sides, places: Vec<Vec<u8>>) -> Result<Vec<Hash>, Error> {
    let count = places.len();
    let options = ListOptions { hashes: true, literal: true, ..ListOptions::default() };
    let mut listing = sides.session.list_for_copy(places, View::Archive, options)?;
    let mut hashes = Vec::new();
    while let Some(seen) = sides.runtime.block_on(listing.next())? {
        hashes.push(seen.outcome.ok().and_then(|facts| facts.hash));
    }
    // The answer has one item for each place.
    hashes.truncate(if hashes.len() == count { count } else { 0 });
    Ok(hashes)
}

/// Renames the files; returns those that were renamed.
async fn rename_all(sides: &Sides, moves: Vec<Move>) -> Vec<Move> {
    if sides.new == NewFile::AtPeer {
        // The other machine chose the new names.
        let Ok(tree) = LocalTree::open(&sides.local_destination()) else { return Vec::new() };
        return moves.into_iter().filter(|it| tree.rename(&it.from, &it.to).is_ok()).collect();
    }
    let folder = |it: &Move| {
        let place = sides.below_destination(&it.to);
        place.iter().rposition(|&byte| byte == b'/').map(|slash| place[..slash].to_vec())
    };
    let folders: BTreeSet<Vec<u8>> =
        moves.iter().filter_map(folder).filter(|it| !it.is_empty()).collect();
    let folders: Vec<Vec<u8>> = folders.into_iter().collect();
    for some in folders.chunks(PLACES_AT_ONCE) {
        // A folder that cannot be created fails the renames into it.
        let _ = sides.session.make_folders(some.to_vec(), true).await;
    }
    let room = Arc::new(Semaphore::new(RENAMES_AT_ONCE));
    let mut tasks = JoinSet::new();
    for it in moves {
        let (session, room) = (sides.session.clone(), Arc::clone(&room));
        let (from, to) = (sides.below_destination(&it.from), sides.below_destination(&it.to));
        tasks.spawn(async move {
            let _permit = room.acquire().await.ok()?;
            is_renamed(&session, from, to).await.then_some(it)
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

async fn is_renamed(session: &Session, from: Vec<u8>, to: Vec<u8>) -> bool {
    session.rename(from, to, false).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size: u64, modified_ns: i64) -> NameAndFacts {
        let modified_ns = Some(modified_ns);
        let (mode, owner, group) = (0o644, 0, 0);
        let facts =
            Facts { kind: SeenKind::File, size, mode, modified_ns, owner, group, hash: None };
        (path.into(), facts)
    }

    #[test]
    fn a_new_file_is_paired_with_a_gone_file_of_the_same_size_and_time() {
        let new = [
            file("new/a", 100_000, 1),
            file("new/b", 100_000, 1),
            file("new/c", 100_000, 1),
            file("other-time", 100_000, 2),
            file("small", 1000, 1),
        ];
        let extras = [
            file("old/b", 100_000, 1),
            file("old/x", 100_000, 1),
            file("old/small", 1000, 1),
            file("old/other-size", 100_001, 2),
        ];
        let pairs = candidates(&new, &extras);
        let pairs: Vec<_> = pairs.iter().map(|it| (&it.from[..], &it.to[..])).collect();
        assert_eq!(pairs, [(&b"old/b"[..], &b"new/a"[..]), (b"old/x", b"new/b")]);
        let same_name = candidates(&new[1..2], &extras);
        assert_eq!(same_name[0].from, b"old/b");
    }
}
