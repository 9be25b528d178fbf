//! Tests with a hostile sender that announces arbitrary entries: paths stay inside, and transfers
//! end in order.

use sabul_units::{Random, SeededRandom};

use super::*;
use crate::disk::Disk;
use crate::root::RootPath;
use crate::testing::{HOSTILE_FOLDER, HostileValues, MemoryDisk};

#[test]
fn hostile_entries_never_touch_anything_outside_the_folder() {
    let (mut refused, mut made) = (0, 0);
    for seed in 0..400 {
        let (mut hostile, mut rng) = (HostileValues::new(seed), SeededRandom::new(seed));
        let disk = MemoryDisk::new(0);
        disk.put(&RootPath::new(["a"]).unwrap(), b"mine").unwrap();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let destination = Destination {
            path: HOSTILE_FOLDER.to_vec(),
            into_directory: true,
            ..Destination::default()
        };
        let mut receiver = FileReceiver::new(shared, &destination, TRANSFER).unwrap();
        let mut builder = BlockBuilder::default();
        for _ in 0..rng.below(12) {
            let entry = hostile.entry();
            let is_long = Sent::Entry(entry.clone()).encode(&mut Vec::new()).is_err();
            // A rejected name or size says nothing about later entries.
            let is_bad = entry.path.is_empty() || entry.stream_bytes() > Some(1 << 40);
            if is_long || (is_bad && rng.below(8) > 0) {
                continue;
            }
            let has_content = entry.kind.has_content();
            builder.entry(entry);
            if has_content && rng.below(2) == 0 {
                builder.content(b"x");
            }
            if has_content {
                builder.end(b"x");
            }
        }
        let result = receiver.on_block(builder.last().block());
        refused += u32::from(result.is_err());
        if result.is_err() {
            receiver.abort();
        }
        drop(receiver);
        let there = disk.tree();
        assert_eq!(there[&b"a"[..]].as_deref(), Some(&b"mine"[..]), "seed {seed}");
        made += there.len() - 2;
        let outside = |name: &&Vec<u8>| !name.starts_with(HOSTILE_FOLDER) && *name != b"a";
        assert_eq!(there.keys().find(outside), None, "seed {seed}");
    }
    assert!(refused > 50 && made > 0, "{refused} were refused, {made} names made");
}
