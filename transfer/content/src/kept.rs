//! Ranges of a changed file that the receiver takes from its old file.

use sabul_wire::control::{Entry, EntryKind, Extent, Moved};

/// Returns the kept ranges of an entry, ascending, with their offsets in the old file; empty if nothing is kept.
/// Returns `None` if the ranges contradict the entry.
///
/// Every range outside `data` is kept. A range without a moved part has the same offset in both files.
pub fn kept_ranges(entry: &Entry) -> Option<Vec<Moved>> {
    let more = entry.more.as_deref();
    let Some(kept) = more.and_then(|more| more.kept.as_ref()) else { return Some(Vec::new()) };
    let (EntryKind::File(size), Some(data)) =
        (entry.kind, more.and_then(|more| more.data.as_ref()))
    else {
        return None;
    };
    ranges(size, data, &kept.moved)
}

fn ranges(size: u64, data: &[Extent], moved: &[Moved]) -> Option<Vec<Moved>> {
    let (mut ranges, mut moved) = (Vec::new(), moved.iter().peekable());
    let mut at = 0;
    let end = Extent { offset: size, bytes: 0 };
    for extent in data.iter().chain([&end]) {
        while let Some(next) = moved.next_if(|next| next.to < extent.offset) {
            let stop = next.to.checked_add(next.bytes).filter(|stop| *stop <= extent.offset)?;
            next.from.checked_add(next.bytes)?;
            if next.bytes == 0 || next.to < at {
                return None;
            }
            push(&mut ranges, Moved { to: at, from: at, bytes: next.to - at });
            push(&mut ranges, *next);
            at = stop;
        }
        push(&mut ranges, Moved { to: at, from: at, bytes: extent.offset.checked_sub(at)? });
        at = extent.offset.checked_add(extent.bytes)?;
    }
    moved.next().is_none().then_some(ranges)
}

fn push(ranges: &mut Vec<Moved>, range: Moved) {
    if range.bytes > 0 {
        ranges.push(range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn extent(offset: u64, bytes: u64) -> Extent {
        Extent { offset, bytes }
    }

    const fn moved(to: u64, from: u64, bytes: u64) -> Moved {
        Moved { to, from, bytes }
    }

    #[test]
    fn every_range_outside_the_data_is_kept() {
        let data = [extent(10, 5), extent(30, 10)];
        let same = |to, bytes| moved(to, to, bytes);
        let all = vec![same(0, 10), same(15, 15), same(40, 60)];
        assert_eq!(ranges(100, &data, &[]), Some(all));
        let some = [moved(2, 50, 3), moved(5, 0, 5), moved(90, 7, 10)];
        let all = vec![same(0, 2), some[0], some[1], same(15, 15), same(40, 50), some[2]];
        assert_eq!(ranges(100, &data, &some), Some(all));
        assert_eq!(ranges(10, &[extent(0, 10)], &[]), Some(Vec::new()));
        assert_eq!(ranges(10, &[], &[]), Some(vec![same(0, 10)]));
    }

    #[test]
    fn ranges_that_overlap_or_leave_the_file_are_refused() {
        let data = [extent(10, 5)];
        for some in [
            &[moved(8, 0, 3)][..],
            &[moved(10, 0, 3)],
            &[moved(12, 0, 1)],
            &[moved(0, 0, 0)],
            &[moved(18, 0, 3)],
            &[moved(20, 0, 1)],
            &[moved(0, 0, 5), moved(4, 0, 2)],
            &[moved(5, 0, 2), moved(0, 0, 2)],
            &[moved(0, u64::MAX, 2)],
            &[moved(3, 0, u64::MAX)],
        ] {
            assert_eq!(ranges(20, &data, some), None, "{some:?}");
        }
    }
}
