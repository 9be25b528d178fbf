//! Comparison of a source tree with a destination tree, from the listings of both in the order of a walk.
//!
//! Both listings are read at the same time, and each difference is returned as soon as it is known.
//! Not here:    listings ([`super::DirectoryListing`]), the copy of the differences.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::Peekable;

use sabul_wire::control::{Facts, Failure, FailureCode, Seen, SeenKind};

use super::attributes::attributes_differ;
use super::rules::Filter;
pub use options::CompareOptions;
use runs::walk_order;

pub mod ahead;
mod options;
pub mod runs;

/// An item of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The entry is missing at the destination, or differs there.
    Copy {
        /// Name of the entry.
        path: Vec<u8>,
        /// Metadata at the source.
        source: Facts,
        /// Metadata at the destination, if the entry exists there.
        old: Option<Facts>,
    },
    /// Only the metadata differs, and the content need not be copied. A directory comes after its content.
    Adjust {
        /// Name of the entry.
        path: Vec<u8>,
        /// Metadata at the source.
        source: Facts,
        /// Metadata at the destination.
        old: Facts,
    },
    /// A directory of both ends that loses rights, before its content; later, the directory comes as another item. With
    /// `mode` it has no rights that it loses.
    Narrow {
        /// Name of the directory.
        path: Vec<u8>,
        /// Metadata at the destination.
        old: Facts,
        /// Permission bits of both ends.
        mode: u32,
    },
    /// The entry is equal, or the options exclude its copy.
    Same {
        /// Name of the entry.
        path: Vec<u8>,
        /// Metadata at the source.
        source: Facts,
        /// The entry exists at the destination.
        is_there: bool,
    },
    /// The entry exists only at the destination.
    Extra {
        /// Name of the entry.
        path: Vec<u8>,
        /// Metadata at the destination.
        old: Facts,
    },
    /// The source cannot be read here.
    SourceFailed(Vec<u8>, Failure),
    /// The destination cannot be read here, and the source has no such entry.
    DestinationFailed(Vec<u8>, Failure),
    /// The destination cannot be read here, so the entry of the source is not copied, nor its content.
    Unknown(Vec<u8>, Failure),
    /// A listing is not in the order of a walk, so that nothing more can be compared.
    Disordered(Vec<u8>),
}

impl Difference {
    /// Bytes of the entry at the source; `None` if the source has no such entry.
    pub fn source_size(&self) -> Option<u64> {
        match self {
            Self::Copy { source, .. } | Self::Adjust { source, .. } | Self::Same { source, .. } => {
                Some(if source.kind == SeenKind::File { source.size } else { 0 })
            }
            Self::SourceFailed(..) | Self::Unknown(..) => Some(0),
            Self::Narrow { .. }
            | Self::Extra { .. }
            | Self::DestinationFailed(..)
            | Self::Disordered(_) => None,
        }
    }
}

/// A directory that exists at both ends and whose content is being compared.
#[derive(Debug)]
struct Open {
    path: Vec<u8>,
    source: Facts,
    old: Facts,
    is_different: bool,
}

/// Comparison in progress. `E` is an error of a listing.
pub struct Comparison<S: Iterator, D: Iterator> {
    options: CompareOptions,
    order: WalkOrder,
    filter: Filter,
    source: Peekable<S>,
    destination: Peekable<D>,
    open: Vec<Open>,
    /// The last name of each listing.
    last: [Option<Vec<u8>>; 2],
    is_over: bool,
    /// The destination is not compared any more.
    is_source_only: bool,
    /// A directory at one end only that stays as it is, or one that the source cannot read.
    kept: Option<Vec<u8>>,
}

impl<S: Iterator, D: Iterator> std::fmt::Debug for Comparison<S, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Comparison").field("open", &self.open).finish_non_exhaustive()
    }
}

impl<E, S, D> Comparison<S, D>
where
    S: Iterator<Item = Result<Seen, E>>,
    D: Iterator<Item = Result<Seen, E>>,
{
    /// Starts to compare. Both listings have the order of a walk.
    pub fn new(options: CompareOptions, source: S, destination: D) -> Self {
        let order = WalkOrder(options.order.iter().cloned().zip(0..).collect());
        let (source, destination) = (source.peekable(), destination.peekable());
        let last = [None, None];
        let filter = Filter::new(options.rules.clone());
        Self {
            options,
            order,
            filter,
            source,
            destination,
            open: Vec::new(),
            last,
            is_over: false,
            is_source_only: false,
            kept: None,
        }
    }

    /// Returns the change of a file with the same content.
    fn adjust(&mut self, path: Vec<u8>, source: Facts, old: Facts) -> Difference {
        let above = self.open.iter().map(|open| &open.old);
        if self.options.would_give_away(&source, &old, above) {
            self.touch();
            return Difference::Copy { path, source, old: Some(old) };
        }
        Difference::Adjust { path, source, old }
    }

    fn step(&mut self) -> Option<Result<Difference, E>> {
        while !self.is_over {
            if let Some(failed) = self.enter_content().or_else(|| self.failed_directory()) {
                return Some(Ok(failed));
            }
            if self.is_source_only {
                let next = self.source.next()?;
                let Ok(seen) = next else { return next.err().map(Err) };
                match self.compare(seen.path.clone(), Some(seen), None) {
                    Some(difference) => return Some(Ok(difference)),
                    None => continue,
                }
            }
            let next = match (self.source.peek(), self.destination.peek()) {
                (None, None) => return self.close_until(None).map(Ok),
                (None, Some(Ok(_))) if !self.options.extras => {
                    return self.close_until(None).map(Ok);
                }
                (Some(Err(_)), _) => return self.source.next()?.err().map(Err),
                (_, Some(Err(_))) => return self.destination.next()?.err().map(Err),
                (Some(Ok(source)), Some(Ok(old))) => self.order.cmp(&source.path, &old.path),
                (Some(Ok(_)), None) => Ordering::Less,
                (None, Some(Ok(_))) => Ordering::Greater,
            };
            let first = match next {
                Ordering::Greater => self.destination.peek(),
                _ => self.source.peek(),
            };
            let first = match first {
                Some(Ok(seen)) => seen.path.clone(),
                _ => return None,
            };
            if let Some(left) = self.close_until(Some(&first)) {
                return Some(Ok(left));
            }
            let source = if next == Ordering::Greater { None } else { self.source.next()?.ok() };
            let old = if next == Ordering::Less { None } else { self.destination.next()?.ok() };
            for (at, is_here) in [(0, source.is_some()), (1, old.is_some())] {
                if !is_here || !self.is_disordered(at, &first) {
                    continue;
                }
                if !self.options.copies_disordered {
                    self.is_over = true;
                    return Some(Ok(Difference::Disordered(first)));
                }
                self.is_source_only = true;
            }
            if self.is_source_only {
                match source.and_then(|seen| self.compare(first, Some(seen), None)) {
                    Some(difference) => return Some(Ok(difference)),
                    None => continue,
                }
            }
            if let Some(difference) = self.compare(first, source, old) {
                return Some(Ok(difference));
            }
        }
        None
    }

    /// Takes the failure of a directory of the source that follows the directory or some of its content: the rest was not
    /// listed, or has names that are too long.
    fn failed_directory(&mut self) -> Option<Difference> {
        let last = self.last[0].as_ref()?;
        let is_failed = |seen: &Result<Seen, E>| {
            let Ok(Seen { path, outcome: Err(_), .. }) = seen else { return false };
            !path.is_empty() && (path == last || is_below(last, path))
        };
        let Seen { path, outcome, .. } = self.source.next_if(is_failed)?.ok()?;
        outcome.err().map(|failure| Difference::SourceFailed(path, failure))
    }

    /// Takes the rule file of the content of the source, which has no name.
    fn enter_content(&mut self) -> Option<Difference> {
        let is_content = |seen: &Result<Seen, E>| matches!(seen, Ok(seen) if seen.path.is_empty());
        let content = self.source.next_if(is_content)?.ok()?;
        self.enter(&content)
    }

    /// Takes the rule file of a directory of the source.
    fn enter(&mut self, seen: &Seen) -> Option<Difference> {
        if seen.rules.is_empty() || self.filter.file_name().is_none() {
            return None;
        }
        let failure = self.filter.enter(&seen.path, seen.rules.clone()).err()?;
        Some(Difference::SourceFailed(seen.path.clone(), failure))
    }

    /// Drops an entry of the destination that the rule files of the source exclude. The entry stays as it is, with its
    /// content.
    fn without_excluded(&mut self, old: Option<Seen>) -> Option<Seen> {
        let old = old?;
        let is_excluded = self.filter.file_name().is_some()
            && match &old.outcome {
                Ok(facts) => !self.filter.take(&old.path, facts.kind == SeenKind::Directory),
                Err(_) => [true, false].iter().any(|kind| !self.filter.take(&old.path, *kind)),
            };
        if is_excluded {
            self.kept = Some(old.path);
            return None;
        }
        Some(old)
    }

    /// Whether a name comes before the last name of its listing. Records the name.
    fn is_disordered(&mut self, listing: usize, path: &[u8]) -> bool {
        let last = self.last[listing].replace(path.to_vec());
        last.is_some_and(|last| self.order.cmp(&last, path) != Ordering::Less)
    }

    /// Closes a directory that does not contain the path. Returns the directory if it has to be copied.
    fn close_until(&mut self, path: Option<&[u8]>) -> Option<Difference> {
        let open = self.open.pop()?;
        if path.is_some_and(|path| is_below(path, &open.path)) {
            self.open.push(open);
            return None;
        }
        let Open { path, source, old, is_different } = open;
        Some(match is_different {
            true if attributes_differ(&source, &old) => {
                Difference::Copy { path, source, old: Some(old) }
            }
            true => Difference::Adjust { path, source, old },
            false => Difference::Same { path, source, is_there: true },
        })
    }

    fn compare(
        &mut self,
        path: Vec<u8>,
        source: Option<Seen>,
        old: Option<Seen>,
    ) -> Option<Difference> {
        if self.kept.as_ref().is_some_and(|kept| kept.is_empty() || is_below(&path, kept)) {
            return None;
        }
        if let Some(failed) = source.as_ref().and_then(|source| self.enter(source)) {
            return Some(failed);
        }
        // The empty path is the destination itself.
        let is_wanted = path.is_empty() || source.as_ref().is_some_and(|seen| seen.outcome.is_ok());
        let mut is_unknown = false;
        let old = match self.without_excluded(old).map(|old| old.outcome) {
            Some(Err(failure)) if failure.code == FailureCode::NotFound => None,
            Some(Err(failure)) if self.options.keeps_unknown && is_wanted => {
                self.kept = Some(path.clone());
                return Some(Difference::Unknown(path, failure));
            }
            Some(Err(failure)) if source.is_none() => {
                return Some(Difference::DestinationFailed(path, failure));
            }
            old => {
                is_unknown = matches!(old, Some(Err(_)));
                old.and_then(Result::ok)
            }
        };
        let source = match source.map(|source| source.outcome) {
            Some(Err(failure)) => return self.source_failed(path, failure),
            Some(Ok(source)) => source,
            None => return self.extra(path, old?),
        };
        let Some(old) = old else { return Some(self.missing(path, source, is_unknown)) };
        let are_directories = [source.kind, old.kind] == [SeenKind::Directory; 2];
        if are_directories {
            let is_different = self.options.directories && self.options.differs(&source, &old);
            self.open.push(Open { path: path.clone(), source, old, is_different });
            let mode = self.options.narrowed(&source, &old)?;
            return Some(Difference::Narrow { path, old, mode });
        }
        if self.options.ignore_existing || !self.options.differs(&source, &old) {
            self.kept = (source.kind != old.kind).then(|| path.clone());
            return Some(Difference::Same { path, source, is_there: true });
        }
        if self.options.keep_newer && is_newer(&old, &source) {
            return Some(Difference::Same { path, source, is_there: true });
        }
        let is_file = [source.kind, old.kind] == [SeenKind::File; 2];
        if is_file && self.options.has_same_content(&source, &old) {
            return Some(self.adjust(path, source, old));
        }
        self.touch();
        Some(Difference::Copy { path, source, old: Some(old) })
    }

    /// Returns an entry of the source that the destination does not have, or that cannot be examined there.
    fn missing(&mut self, path: Vec<u8>, source: Facts, is_unknown: bool) -> Difference {
        if is_unknown && self.options.ignore_existing {
            return Difference::Same { path, source, is_there: true };
        }
        if !is_unknown && self.options.existing {
            return Difference::Same { path, source, is_there: false };
        }
        self.touch();
        Difference::Copy { path, source, old: None }
    }

    /// Returns a failure of the source. Entries of the destination below are skipped, because the source may have them.
    fn source_failed(&mut self, path: Vec<u8>, failure: Failure) -> Option<Difference> {
        self.kept = Some(path.clone());
        Some(Difference::SourceFailed(path, failure))
    }

    /// Returns an entry that exists only at the destination.
    fn extra(&mut self, path: Vec<u8>, old: Facts) -> Option<Difference> {
        if self.options.removes {
            self.touch();
        }
        Some(Difference::Extra { path, old })
    }

    /// Records that the content of the innermost directory changes, and so its time.
    fn touch(&mut self) {
        if let Some(open) = self.open.last_mut().filter(|_| self.options.directories) {
            open.is_different = true;
        }
    }
}

impl<E, S, D> Iterator for Comparison<S, D>
where
    S: Iterator<Item = Result<Seen, E>>,
    D: Iterator<Item = Result<Seen, E>>,
{
    type Item = Result<Difference, E>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step()
    }
}

/// Whether an entry of the destination is newer than one of the same kind. A time that cannot be represented is neither
/// older nor newer.
fn is_newer(old: &Facts, source: &Facts) -> bool {
    let times = old.modified_ns.zip(source.modified_ns);
    source.kind == old.kind && times.is_some_and(|(old, source)| old > source)
}

/// Order of names in a walk: the sources as given, then a directory, its content, and the next name by bytes.
#[derive(Debug)]
struct WalkOrder(BTreeMap<Vec<u8>, usize>);

impl WalkOrder {
    fn cmp(&self, a: &[u8], b: &[u8]) -> Ordering {
        let rank = |path: &[u8]| {
            let top = path.split(|&byte| byte == b'/').next().unwrap_or_default();
            self.0.get(top).copied().unwrap_or(usize::MAX)
        };
        let ranks = if self.0.is_empty() { Ordering::Equal } else { rank(a).cmp(&rank(b)) };
        ranks.then_with(|| walk_order(a, b))
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use sabul_wire::control::SeenAttributes;

    use super::options::is_same_time;
    use super::*;

    const T: i64 = 1_700_000_000_123_456_789;

    fn seen(path: &str, kind: SeenKind, size: u64, modified_ns: i64) -> Result<Seen, Infallible> {
        let facts = Facts { mode: 0o644, ..Facts::new(kind, size, Some(modified_ns)) };
        Ok(Seen { path: path.into(), outcome: Ok(facts), rules: Vec::new() })
    }

    fn file(path: &str, size: u64, modified_ns: i64) -> Result<Seen, Infallible> {
        seen(path, SeenKind::File, size, modified_ns)
    }

    fn directory(path: &str, modified_ns: i64) -> Result<Seen, Infallible> {
        seen(path, SeenKind::Directory, 0, modified_ns)
    }

    /// Compares and returns one word for each item.
    fn compare(
        options: CompareOptions,
        source: Vec<Result<Seen, Infallible>>,
        destination: Vec<Result<Seen, Infallible>>,
    ) -> Vec<String> {
        let options = CompareOptions { extras: true, ..options };
        let all = Comparison::new(options, source.into_iter(), destination.into_iter());
        let word = |difference| {
            let (word, path) = match difference {
                Ok(Difference::Copy { path, old: None, .. }) => ("new", path),
                Ok(Difference::Copy { path, .. }) => ("changed", path),
                Ok(Difference::Adjust { path, .. }) => ("adjust", path),
                Ok(Difference::Narrow { path, .. }) => ("narrow", path),
                Ok(Difference::Same { path, .. }) => ("same", path),
                Ok(Difference::Extra { path, .. }) => ("extra", path),
                Ok(Difference::SourceFailed(path, _)) => ("unreadable", path),
                Ok(Difference::DestinationFailed(path, _)) => ("unknown", path),
                Ok(Difference::Unknown(path, _)) => ("kept", path),
                Ok(Difference::Disordered(path)) => ("disordered", path),
            };
            format!("{word} {}", String::from_utf8(path).unwrap())
        };
        all.map(word).collect()
    }

    #[test]
    fn each_kind_of_difference_is_found_in_the_order_of_the_walk() {
        let options = || CompareOptions { directories: true, ..CompareOptions::default() };
        let source = vec![
            directory("a", T),
            file("a/new", 1, T),
            file("a/same", 1, T),
            // A name with a byte below the slash comes after the content of the directory.
            file("a-b", 2, T),
            file("longer", 3, T),
            file("newer", 3, T),
            directory("z", T),
            file("z/same", 1, T),
        ];
        let destination = vec![
            directory("a", T),
            file("a/gone", 1, T),
            file("a/same", 1, T),
            file("a-b", 2, T),
            directory("gone", T),
            file("gone/too", 1, T),
            file("longer", 2, T),
            file("newer", 3, T - 1),
            directory("z", T),
            file("z/same", 1, T),
        ];
        let all = compare(options(), source, destination);
        let expected = [
            "extra a/gone",
            "new a/new",
            "same a/same",
            "adjust a",
            "same a-b",
            "extra gone",
            "extra gone/too",
            "changed longer",
            "changed newer",
            "same z/same",
            "same z",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn options_decide_about_times_and_existing_files() {
        let one = |options: CompareOptions, source_ns, old_ns| {
            compare(options, vec![file("f", 1, source_ns)], vec![file("f", 1, old_ns)])
        };
        let plain = CompareOptions::default;
        assert_eq!(one(plain(), T, T + 1), ["changed f"]);
        assert_eq!(one(plain(), T, T / 1_000_000_000 * 1_000_000_000), ["same f"], "whole seconds");
        assert_eq!(one(plain(), T, (T / 1_000_000_000 + 1) * 1_000_000_000), ["changed f"]);
        let window = CompareOptions { window_ns: 2_000_000_000, ..plain() };
        assert_eq!(one(window.clone(), T, T + 2_000_000_000), ["same f"]);
        assert_eq!(one(window, T, T + 2_000_000_001), ["changed f"]);
        assert_eq!(one(CompareOptions { size_only: true, ..plain() }, T, 0), ["same f"]);
        let keep_newer = CompareOptions { keep_newer: true, ..plain() };
        assert_eq!(one(keep_newer.clone(), T, T + 1), ["same f"]);
        assert_eq!(one(keep_newer.clone(), T, T - 1), ["changed f"]);
        // A time that cannot be represented is neither older nor newer.
        let no_time = |seen: Result<Seen, Infallible>| {
            let Ok(mut seen) = seen;
            seen.outcome = seen.outcome.map(|facts| Facts { modified_ns: None, ..facts });
            Ok(seen)
        };
        let unknown = compare(keep_newer, vec![no_time(file("f", 1, T))], vec![file("f", 1, T)]);
        assert_eq!(unknown, ["changed f"]);
        assert_eq!(one(CompareOptions { ignore_existing: true, ..plain() }, T, 0), ["same f"]);
        let existing = CompareOptions { existing: true, ..plain() };
        assert_eq!(compare(existing, vec![file("f", 1, T)], vec![]), ["same f"]);
    }

    #[test]
    fn a_directory_that_loses_rights_comes_before_its_content_too() {
        let tree = |mode, group| {
            let with = |seen: Result<Seen, Infallible>| {
                let Ok(mut seen) = seen;
                seen.outcome = seen.outcome.map(|facts| Facts { mode, group, ..facts });
                Ok(seen)
            };
            vec![with(directory("d", T)), file("d/f", 1, T)]
        };
        let options = || CompareOptions { modes: true, directories: true, ..Default::default() };
        let all = compare(options(), tree(0o750, 0), tree(0o755, 0));
        assert_eq!(all, ["narrow d", "same d/f", "adjust d"]);
        let all = compare(options(), tree(0o755, 0), tree(0o700, 0));
        assert_eq!(all, ["same d/f", "adjust d"]);
        let owners = CompareOptions { owners: true, ..options() };
        let all = compare(owners.clone(), tree(0o750, 7), tree(0o750, 0));
        assert_eq!(all, ["narrow d", "same d/f", "adjust d"], "the rights of another group");
        let facts = |mode, group| {
            directory("d", T).unwrap().outcome.map(|it| Facts { mode, group, ..it }).unwrap()
        };
        assert_eq!(owners.narrowed(&facts(0o770, 7), &facts(0o1775, 0)), Some(0o1700));
        assert_eq!(CompareOptions::default().narrowed(&facts(0o700, 0), &facts(0o755, 0)), None);
    }

    #[test]
    fn a_file_that_another_user_may_have_put_there_is_copied_and_not_given_away() {
        // Owner and mode of the directory at the destination, and of the files.
        let compared = |folder: (u32, u32), old: (u32, u32), new: (u32, u32)| {
            let with = |mut seen: Seen, (owner, mode)| {
                if let Ok(facts) = &mut seen.outcome {
                    (facts.owner, facts.mode) = (owner, mode);
                }
                Ok::<_, Infallible>(seen)
            };
            let tree = |folder, of_file| {
                let [Ok(directory), Ok(file)] = [directory("d", T), file("d/f", 1, T)];
                [with(directory, folder), with(file, of_file)].into_iter()
            };
            let Ok(Seen { outcome: Ok(root), .. }) = with(directory("", T).unwrap(), (0, 0o755))
            else {
                unreachable!()
            };
            let (modes, owners, top) = (true, true, Some(root));
            let options = CompareOptions { modes, owners, top, ..CompareOptions::default() };
            let options = CompareOptions { directories: true, ..options };
            let mut comparison = Comparison::new(options, tree(folder, new), tree(folder, old));
            let is_copied = matches!(comparison.next(), Some(Ok(Difference::Copy { .. })));
            // The copy changes the time of the directory.
            let is_touched = matches!(comparison.next(), Some(Ok(Difference::Adjust { .. })));
            assert_eq!(is_copied, is_touched);
            is_copied
        };
        assert!(compared((65534, 0o755), (0, 0o600), (65534, 0o600)), "root's file");
        assert!(compared((0, 0o1777), (0, 0o600), (0, 0o644)), "a directory of all users");
        assert!(!compared((0, 0o1777), (0, 0o644), (0, 0o600)), "fewer rights");
        assert!(!compared((0, 0o755), (0, 0o600), (65534, 0o644)), "only root puts files there");
        assert!(!compared((65534, 0o755), (65534, 0o600), (65534, 0o644)), "an own directory");
        let options = || CompareOptions { modes: true, owners: true, ..CompareOptions::default() };
        let top = |owner: u32, mode: u32| {
            let Ok(mut seen) = file("f", 1, T);
            if let Ok(facts) = &mut seen.outcome {
                (facts.owner, facts.mode) = (owner, mode);
            }
            std::iter::once(Ok::<_, Infallible>(seen))
        };
        let first = |source, old| Comparison::new(options(), source, old).next();
        assert!(matches!(first(top(7, 0o600), top(0, 0o600)), Some(Ok(Difference::Copy { .. }))));
        assert!(matches!(first(top(0, 0o644), top(0, 0o600)), Some(Ok(Difference::Adjust { .. }))));
    }

    #[test]
    fn an_entry_with_other_attributes_is_copied_if_both_ends_keep_them() {
        let with = |seen: Result<Seen, Infallible>, lists: Option<u8>, group| {
            let Ok(mut seen) = seen;
            let lists = lists.map(|byte| [byte; 8]);
            let attributes = Some(SeenAttributes { users: None, lists, group });
            seen.outcome = seen.outcome.map(|facts| Facts { mode: 0o660, attributes, ..facts });
            Ok(seen)
        };
        let tree = |lists, group| {
            let directory = with(directory("d", T), lists, group);
            vec![directory, with(file("d/f", 1, T), lists, group)]
        };
        let options = || CompareOptions { modes: true, directories: true, ..Default::default() };
        let all = |lists| compare(options(), tree(Some(1), 0), tree(lists, 0));
        assert_eq!(all(Some(2)), ["narrow d", "changed d/f", "changed d"]);
        assert_eq!(all(Some(1)), ["same d/f", "same d"]);
        // Without the list, the mask is no right of the group.
        assert_eq!(all(None), ["narrow d", "adjust d/f", "adjust d"]);
    }

    #[test]
    fn every_directory_above_a_file_decides_whether_it_is_given_away() {
        let facts = |owner: u32, mode: u32| {
            let Ok(seen) = directory("d", T);
            Facts { owner, group: owner, mode, ..seen.outcome.unwrap() }
        };
        let options = |top| CompareOptions { modes: true, owners: true, top, ..<_>::default() };
        let (key, own) = (facts(0, 0o600), facts(7, 0o644));
        let gives =
            |top: Option<Facts>, above: &[Facts]| options(top).would_give_away(&own, &key, above);
        let root = facts(0, 0o755);
        assert!(!gives(Some(root), &[root, root]));
        // A user can rename a directory of root in a directory of his own, and in one that all may write.
        assert!(gives(Some(root), &[facts(7, 0o755), root]));
        assert!(gives(Some(facts(7, 0o755)), &[root]));
        assert!(gives(Some(root), &[facts(0, 0o1777), root]));
        assert!(gives(None, &[root]), "an unknown destination");
        // A file of the user, in directories of root and the user.
        let old = facts(7, 0o600);
        assert!(!options(Some(root)).would_give_away(&own, &old, &[facts(7, 0o755)]));
        let shared = Facts { is_shared: true, ..key };
        assert!(options(Some(root)).would_give_away(&own, &shared, []), "names elsewhere");
    }

    #[test]
    fn times_that_cannot_be_represented_are_never_equal() {
        let facts = |modified_ns| {
            let Ok(seen) = file("f", 1, 0);
            Facts { modified_ns, ..seen.outcome.unwrap() }
        };
        let window = i64::MAX;
        assert!(!is_same_time(&facts(None), &facts(None), window));
        assert!(!is_same_time(&facts(Some(0)), &facts(None), window));
        assert!(is_same_time(&facts(Some(0)), &facts(Some(5)), window));
    }

    #[test]
    fn a_directory_that_fails_after_its_content_ends_no_comparison() {
        let failed = |path: &str| {
            let failure = Failure::new(FailureCode::Unreadable, "a name is too long");
            Ok(Seen { path: path.into(), outcome: Err(failure), rules: Vec::new() })
        };
        let source = || {
            let long = [failed("d/e"), failed("d/e"), file("d/f", 1, T), failed("d")];
            let before = [directory("d", T), directory("d/e", T), file("d/e/a", 1, T)];
            before.into_iter().chain(long).chain([file("z", 1, T)]).collect::<Vec<_>>()
        };
        let there = vec![directory("d", T), file("d/f", 1, T), file("y", 1, T)];
        let expected = [
            "new d/e",
            "new d/e/a",
            "unreadable d/e",
            "unreadable d/e",
            "same d/f",
            "unreadable d",
            "same d",
            "extra y",
            "new z",
        ];
        for copies_disordered in [false, true] {
            let options = CompareOptions { copies_disordered, ..CompareOptions::default() };
            assert_eq!(compare(options, source(), there.clone()), expected);
        }
        // A failure of another directory is not in order.
        let source = vec![directory("d", T), file("d/f", 1, T), failed("c"), file("z", 1, T)];
        let all = compare(CompareOptions::default(), source, there);
        assert_eq!(all.last().unwrap(), "disordered c");
    }

    #[test]
    fn with_hashes_the_content_decides_and_times_are_adjusted() {
        let options = CompareOptions { content: true, ..CompareOptions::default() };
        let hashed = |modified_ns, hash: u8| {
            let mut seen = file("f", 1, modified_ns).unwrap();
            seen.outcome = seen.outcome.map(|facts| Facts { hash: Some([hash; 32]), ..facts });
            vec![Ok(seen)]
        };
        assert_eq!(compare(options.clone(), hashed(T, 1), hashed(T, 1)), ["same f"]);
        assert_eq!(compare(options.clone(), hashed(T, 1), hashed(T, 2)), ["changed f"]);
        assert_eq!(compare(options.clone(), hashed(T, 1), hashed(0, 1)), ["adjust f"]);
        assert_eq!(compare(options, hashed(T, 1), vec![file("f", 1, T)]), ["changed f"]);
    }

    #[test]
    fn several_sources_are_compared_in_their_own_order() {
        let order = vec![b"z".to_vec(), b"a".to_vec()];
        let options = CompareOptions { order, ..CompareOptions::default() };
        let source = vec![directory("z", T), file("z/1", 1, T), file("a", 1, T)];
        let destination = vec![directory("z", T), file("z/1", 1, T), file("a", 2, T)];
        assert_eq!(compare(options, source, destination), ["same z/1", "same z", "changed a"]);
    }

    #[test]
    fn a_listing_in_another_order_ends_the_comparison() {
        let destination = vec![file("b", 1, T), file("a", 1, T), file("c", 1, T)];
        let plain = CompareOptions { extras: true, ..CompareOptions::default() };
        let all = compare(plain.clone(), vec![file("d", 1, T)], destination);
        assert_eq!(all, ["extra b", "disordered a"]);
        let destination = vec![file("b", 1, T), file("a", 1, T), file("c", 1, T)];
        let source = vec![file("c", 1, T), file("d", 1, T)];
        let options = CompareOptions { copies_disordered: true, extras: true, ..plain };
        assert_eq!(compare(options, source, destination), ["extra b", "new c", "new d"]);
    }

    #[test]
    fn an_existing_entry_of_another_kind_stays_with_ignore_existing() {
        let options = || CompareOptions { ignore_existing: true, ..CompareOptions::default() };
        let tree = || vec![directory("a", T), file("a/x", 1, T)];
        assert_eq!(compare(options(), vec![file("a", 1, T)], tree()), ["same a"]);
        assert_eq!(compare(options(), tree(), vec![file("a", 1, T)]), ["same a"]);
    }

    #[test]
    fn failures_of_either_side_are_no_differences() {
        let failed = |path: &str, code| {
            let outcome = Err(Failure::new(code, "it failed"));
            Ok(Seen { path: path.into(), outcome, rules: Vec::new() })
        };
        let source = vec![failed("a", FailureCode::Unreadable), file("b", 1, T), file("c", 1, T)];
        let destination = vec![
            file("a", 1, T),
            failed("b", FailureCode::Unreadable),
            failed("c", FailureCode::NotFound),
            failed("d", FailureCode::Unreadable),
        ];
        let all = compare(CompareOptions::default(), source, destination);
        assert_eq!(all, ["unreadable a", "new b", "new c", "unknown d"]);
        let options = CompareOptions { keeps_unknown: true, ..CompareOptions::default() };
        let source = vec![directory("b", T), file("b/x", 1, T), file("c", 1, T), file("e", 1, T)];
        let destination = vec![
            failed("b", FailureCode::Unreadable),
            failed("c", FailureCode::NotFound),
            failed("d", FailureCode::Unreadable),
        ];
        let all = compare(options.clone(), source, destination);
        assert_eq!(all, ["kept b", "new c", "unknown d", "new e"]);
        let destination = vec![failed("", FailureCode::Unreadable)];
        assert_eq!(compare(options, vec![file("f", 1, T)], destination), ["kept "]);
        // The source may have the content of the directory.
        let source = vec![failed("a", FailureCode::Unreadable), file("c", 1, T)];
        let destination = vec![directory("a", T), file("a/x", 1, T), file("b", 1, T)];
        let all = compare(CompareOptions::default(), source, destination);
        assert_eq!(all, ["unreadable a", "extra b", "new c"]);
    }
}
