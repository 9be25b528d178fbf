//! Changes of many entries of the other machine, in requests of limited size.

use std::future::Future;

use sabul::files::{Changed, NewMetadata};
use tokio::task::JoinSet;

use crate::error::CliError;

/// Entries and bytes of names in one request.
const PLACES_AT_ONCE: usize = 1000;
/// Requests for changes at the same time. Ours: half of what a server permits a session, as for renames.
pub(super) const CHANGES_AT_ONCE: usize = 8;
/// Least entries of a request for changes, if there are more. Ours: fewer do not save an RTT.
const PORTION_MIN: usize = 32;
const BYTES_AT_ONCE: usize = 128 << 10;
/// Memory of all requests at the same time at the other machine, which lets 4 MiB wait.
const WEIGHT_AT_ONCE: usize = 3 << 20;
/// Memory of an entry at the other machine besides its name, as that machine counts.
const ENTRY_WEIGHT: usize = 96 + size_of::<NewMetadata>();

/// Requests changes in portions, so many at the same time. Failures have the number of their item.
pub(super) async fn in_portions<T, F>(
    items: &[T],
    at_once: usize,
    size: impl Fn(&T) -> usize,
    request: impl Fn(&[T]) -> F,
) -> Result<Changed, CliError>
where
    F: Future<Output = Result<Changed, sabul::Error>> + Send + 'static,
{
    let (mut tasks, mut at, mut all) = (JoinSet::new(), 0, Changed::default());
    // Some disks need milliseconds for a file, so the other end works at several portions at the same time.
    let share = items.len().div_ceil(at_once).max(PORTION_MIN);
    let weight_max = WEIGHT_AT_ONCE / at_once.max(2);
    loop {
        while at < items.len() && tasks.len() < at_once {
            let rest = &items[at..items.len().min(at + share)];
            let (from, now) = (at, portion(rest, weight_max, &size));
            let changed = request(&rest[..now]);
            tasks.spawn(async move { (from, changed.await) });
            at += now;
        }
        let Some(ended) = tasks.join_next().await else { return Ok(all) };
        let (from, changed) =
            ended.map_err(|_| CliError::failed("a request for changes ended with a fault"))?;
        let changed = changed?;
        all.names += changed.names;
        let failures = changed.failures.into_iter();
        all.failures.extend(failures.map(|(index, it)| (from.saturating_add(index), it)));
    }
}

/// Number of items that fit one request of this memory, at least one.
fn portion<T>(items: &[T], weight_max: usize, size: impl Fn(&T) -> usize) -> usize {
    let (mut bytes, mut weight) = (0, 0);
    let fits = |item: &&T| {
        bytes += size(item);
        weight += ENTRY_WEIGHT + size(item);
        bytes <= BYTES_AT_ONCE && weight <= weight_max
    };
    items.iter().take(PLACES_AT_ONCE).take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use sabul::{Failure, FailureCode};

    use super::*;

    #[tokio::test]
    async fn each_item_is_in_one_portion_and_failures_have_the_number_of_their_item() {
        for (count, at_once, portions) in
            [(0, 8, 0), (1, 8, 1), (100, 8, 4), (3000, 1, 3), (9000, 8, 9)]
        {
            let items: Vec<usize> = (0..count).collect();
            let taken = Mutex::new(Vec::new());
            let request = |now: &[usize]| {
                taken.lock().unwrap().push(now.to_vec());
                let mut changed = Changed::default();
                changed.names = now.len() as u64;
                let failed = now.iter().enumerate().filter(|(_, item)| *item % 70 == 69);
                let failure = |(index, item): (usize, &usize)| {
                    (index, Failure::new(FailureCode::Refused, item.to_string()))
                };
                changed.failures = failed.map(failure).collect();
                async move { Ok(changed) }
            };
            let all = in_portions(&items, at_once, |_| 10, request).await.unwrap();
            assert_eq!(all.names, count as u64);
            assert_eq!(all.failures.len(), count / 70);
            assert!(all.failures.iter().all(|(at, failure)| failure.message == at.to_string()));
            let taken = taken.into_inner().unwrap();
            assert_eq!((taken.len(), taken.concat()), (portions, items), "{count} items");
        }
    }

    #[tokio::test]
    async fn an_invalid_number_from_the_peer_is_no_overflow() {
        let request = |_: &[i32]| async {
            let mut changed = Changed::default();
            changed.failures.push((usize::MAX, Failure::new(FailureCode::Refused, String::new())));
            Ok(changed)
        };
        let all = in_portions(&[0; 100], 8, |_| 10, request).await.unwrap();
        assert!(all.failures.iter().all(|(at, _)| *at == usize::MAX));
    }

    #[test]
    fn long_names_make_smaller_portions() {
        let many = |size| portion(&[0; 5000], WEIGHT_AT_ONCE / 2, |_| size);
        assert_eq!(many(BYTES_AT_ONCE / 4), 4);
        assert_eq!(many(BYTES_AT_ONCE * 2), 1);
        assert_eq!(many(10), PLACES_AT_ONCE);
        // Eight requests together stay below the limit.
        for size in [1, 60, 255, 4000] {
            let count = portion(&[0; 5000], WEIGHT_AT_ONCE / 8, |_| size);
            assert!(8 * count * (ENTRY_WEIGHT + size) <= WEIGHT_AT_ONCE, "{size}");
            assert!(count > 90 || size == 4000, "{size}: {count}");
        }
    }
}
