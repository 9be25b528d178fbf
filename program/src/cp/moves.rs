//! Moved files: a file that is new at the source and gone at the destination is renamed there, not sent.
//!
//! A file that exists only at the destination, with the size and the modification time of a new file, is a candidate.
//! Both ends hash their files. Only equal files are renamed, and only those that no other user can change: the destination
//! checks both on the open file that it renames. All other files are sent.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use sabul::Error;
use sabul::files::{Facts, Identity, SeenKind, View};
use sabul::internal::compare::{
    ListOptions, LocalTree, NewFile, RenameOf, attributes_differ, facts_of,
};
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
/// Renames in progress at the same time; the destination reads each file before. Ours: few, for the disk's sake.
const RENAMES_AT_ONCE: usize = 8;

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
///
/// `folders` has the permission bits of new directories of the source. A file goes only into these, made with these bits,
/// or into directories that exist.
pub(super) fn carry_out(
    sides: &Sides,
    folders: &BTreeMap<Vec<u8>, u32>,
    new: &mut Vec<NameAndFacts>,
    extras: &mut Vec<NameAndFacts>,
) -> Vec<Adjusted> {
    let moves = hashed(sides, candidates(new, extras));
    // Without the directory that was compared, all files are sent.
    let Ok(id) = sides.destination_id() else { return Vec::new() };
    let moved: Vec<Move> = sides.runtime.block_on(rename_all(sides, folders, moves, id));
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
        let is_alike = |old: &Facts| !attributes_differ(facts, old);
        // With several candidates, one of the same name is the most probable.
        let is_named = |(from, old): &(&[u8], Facts)| name(from) == name(path) && is_alike(old);
        let at = same.iter().rposition(is_named);
        let at = at.or_else(|| same.iter().rposition(|(_, old)| is_alike(old)))?;
        let (from, old) = same.remove(at);
        Some(Move { from: from.to_vec(), to: path.clone(), old })
    };
    new.iter().filter_map(&mut find).collect()
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Hashes the files of the moves at the source. A move whose file cannot be read is left out.
fn hashed(sides: &Sides, moves: Vec<Move>) -> Vec<Hashed> {
    let mut hashed = Vec::new();
    let mut moves = moves.into_iter();
    loop {
        let some: Vec<Move> = moves.by_ref().take(PLACES_AT_ONCE).collect();
        if some.is_empty() {
            return hashed;
        }
        let places = some.iter().map(|it| sides.source(&it.to).unwrap_or_default());
        let hashes = match sides.new {
            NewFile::Here => places.map(hash_here).collect(),
            NewFile::AtPeer => match hashes_there(sides, places.collect()) {
                Ok(hashes) => hashes,
                Err(_) => return hashed,
            },
        };
        hashed.extend(some.into_iter().zip(hashes).filter_map(|(it, hash)| Some((it, hash?))));
    }
}

type Hash = Option<[u8; 32]>;
/// A move with the hash of the file at the source.
type Hashed = (Move, [u8; 32]);

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
async fn rename_all(
    sides: &Sides,
    folders: &BTreeMap<Vec<u8>, u32>,
    moves: Vec<Hashed>,
    id: Option<Identity>,
) -> Vec<Move> {
    let folders = needed(folders, moves.iter().map(|(it, _)| &it.to[..]));
    if sides.new == NewFile::AtPeer {
        // The other machine chose the new names.
        let tree = LocalTree::open(&sides.local_destination(), id);
        let Ok(tree) = tree else { return Vec::new() };
        for (folder, mode) in folders {
            let _ = tree.make(folder, mode);
        }
        let renamed = |(it, hash): Hashed| {
            tree.take_over(&it.from, &it.to, &hash, &it.old).is_ok().then_some(it)
        };
        return moves.into_iter().filter_map(renamed).collect();
    }
    for some in folders.chunk_by(|one, next| one.1 == next.1) {
        for some in some.chunks(PLACES_AT_ONCE) {
            let places = some.iter().map(|(folder, _)| sides.below_destination(folder)).collect();
            // A folder that cannot be created fails the renames into it.
            let _ = sides.session.make_folders_as(places, some[0].1, id).await;
        }
    }
    let room = Arc::new(Semaphore::new(RENAMES_AT_ONCE));
    let mut tasks = JoinSet::new();
    for (it, hash) in moves {
        let (session, room) = (sides.session.clone(), Arc::clone(&room));
        let (from, to) = (sides.below_destination(&it.from), sides.below_destination(&it.to));
        tasks.spawn(async move {
            let _permit = room.acquire().await.ok()?;
            let conditions = RenameOf { seen: Some(Facts { hash: None, ..it.old }), below: id };
            session.take_over(from, to, hash, conditions).await.is_ok().then_some(it)
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// The new directories above these names, with their permission bits; a directory comes after its parent.
fn needed<'a>(
    folders: &BTreeMap<Vec<u8>, u32>,
    names: impl Iterator<Item = &'a [u8]>,
) -> Vec<(&'a [u8], u32)> {
    let above = |name: &'a [u8]| {
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        slashes.map(move |(at, _)| &name[..at])
    };
    let all: BTreeSet<&[u8]> = names.flat_map(above).collect();
    all.into_iter().filter_map(|folder| Some((folder, *folders.get(folder)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size: u64, modified_ns: i64) -> NameAndFacts {
        let modified_ns = Some(modified_ns);
        let (mode, owner, group) = (0o644, 0, 0);
        let (kind, hash, attributes) = (SeenKind::File, None, None);
        let (id, is_shared) = (None, false);
        let facts =
            Facts { kind, size, mode, modified_ns, owner, group, hash, attributes, id, is_shared };
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
        let bits = BTreeMap::from([(b"new/x".to_vec(), 0o700), (b"new".to_vec(), 0o750)]);
        let names = [&b"new/x/a"[..], b"new/b", b"old/c", b"d"];
        let found = needed(&bits, names.into_iter());
        assert_eq!(found, [(&b"new"[..], 0o750), (b"new/x", 0o700)]);
        let same_name = candidates(&new[1..2], &extras);
        assert_eq!(same_name[0].from, b"old/b");
    }
}
