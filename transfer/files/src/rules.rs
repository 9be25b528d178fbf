//! Include and exclude rules: `--include`, `--exclude` and `--ignore-name`, as in rsync.
//!
//! The first matching rule decides; a name without a matching rule is included. An excluded folder
//! is not read. A pattern with a leading `/` must match the whole name in the transfer; any other
//! pattern must match the end of the name. A pattern with a trailing `/` matches only folders. `*`
//! and `?` do not match slashes; `**` does. One rule may stand for the rule files of the directories
//! of the source ([`Filter`]).

use std::any::Any;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use globset::{Glob, GlobSet};
use sabul_content::Printable;
use sabul_wire::control::{Failure, FailureCode, Rule, RuleKind};

use super::gitignore;
use super::glob::{glob, is_pattern};

/// Most bytes of the rule files that apply to an entry.
const RULE_FILES_MAX: usize = 256 << 10;
/// Most bytes of the patterns with wildcards of one list of rules. Ours: 64 bytes for each of the most rules; such a
/// list compiles in some 10 ms.
const WILDCARDS_MAX: usize = 16 << 10;

/// Memory of a compiled pattern with wildcards, and of each of its bytes. Measured with globset 0.4.21: at most 6 KiB
/// and 130 bytes after compilation. The automata that grow while names are matched took up to 600 bytes a byte.
const WILDCARD_RULE: usize = 4 << 10;
const WILDCARD_BYTE: usize = 512;
/// Memory of another pattern, and of each of its bytes. Measured: 45 bytes a byte during compilation.
const PLAIN_RULE: usize = 256;
const PLAIN_BYTE: usize = 64;

/// Lends memory in bytes, until the returned value is dropped.
type Lend = Arc<dyn Fn(usize) -> Result<Lent, Failure> + Send + Sync>;
/// Lent memory.
type Lent = Box<dyn Any + Send + Sync>;

/// Ordered rules; an empty list includes everything.
#[derive(Clone, Debug, Default)]
pub struct Rules(Arc<Compiled>);

#[derive(Default)]
struct Compiled {
    set: GlobSet,
    effects: Vec<Effect>,
    /// Name of the rule files, and the number of rules before them.
    files: Option<(Vec<u8>, usize)>,
    /// Lender of the memory for rule files.
    lender: Option<Lend>,
    /// Memory of these rules.
    _lent: Option<Lent>,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { effects, files, .. } = self;
        f.debug_struct("Rules")
            .field("effects", effects)
            .field("files", files)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
struct Effect {
    takes: bool,
    is_for_folders: bool,
}

impl Rules {
    /// Compiles rules.
    ///
    /// # Errors
    /// If a pattern or the name of the rule files is invalid.
    pub fn new(rules: &[Rule]) -> Result<Self, Failure> {
        Self::with_lender(rules, None)
    }

    /// As [`Self::new`]. The rules, and the rule files of their walks, borrow their memory from `lender` as long as they
    /// exist.
    ///
    /// # Errors
    /// As [`Self::new`]; if the lender has no memory.
    pub fn lent(rules: &[Rule], lender: Lend) -> Result<Self, Failure> {
        Self::with_lender(rules, Some(lender))
    }

    fn with_lender(rules: &[Rule], lender: Option<Lend>) -> Result<Self, Failure> {
        let wildcards =
            rules.iter().map(|rule| &rule.pattern).filter(|pattern| is_pattern(pattern));
        let bytes: usize = wildcards.map(Vec::len).sum();
        if bytes > WILDCARDS_MAX {
            let text = format!(
                "the rules with wildcards have {bytes} bytes; at most {WILDCARDS_MAX} are possible; \
                 use fewer or shorter rules"
            );
            return Err(Failure::new(FailureCode::BadSetting, text));
        }
        let lent = lend(lender.as_ref(), rules)?;
        let (mut patterns, mut files) = (Vec::new(), None);
        for Rule { kind, pattern } in rules {
            let takes = match kind {
                RuleKind::Exclude => false,
                RuleKind::Include => true,
                RuleKind::Files => {
                    let is_first = files.replace((pattern.clone(), patterns.len())).is_none();
                    check_name(pattern, is_first)?;
                    continue;
                }
            };
            patterns.push(compile(takes, pattern)?);
        }
        let compiled = Compiled { files, lender, _lent: lent, ..of(patterns)? };
        Ok(Self(Arc::new(compiled)))
    }

    /// Compiles the text of a rule file. As in git, a line that is no pattern matches nothing.
    fn of_file(text: &[u8], lender: Option<&Lend>) -> Result<Self, Failure> {
        let rules: Vec<_> = gitignore::rules(text).into_iter().flatten().collect();
        let lent = lend(lender, &rules)?;
        let patterns = rules
            .into_iter()
            .filter_map(|Rule { kind, pattern }| compile(kind == RuleKind::Include, &pattern).ok());
        let compiled = Compiled { _lent: lent, ..of(patterns.collect())? };
        Ok(Self(Arc::new(compiled)))
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.effects.is_empty() && self.0.files.is_none()
    }

    /// Name of the rule files in the directories of the source.
    pub fn file_name(&self) -> Option<&[u8]> {
        self.0.files.as_ref().map(|(name, _)| &name[..])
    }

    /// Returns the effects of the first matching rule before the rule files, and of the first after them.
    fn first(&self, name: &[u8], is_folder: bool) -> [Option<bool>; 2] {
        let Compiled { set, effects, files, .. } = &*self.0;
        let before = files.as_ref().map_or(usize::MAX, |(_, before)| *before);
        let mut first = [None; 2];
        if effects.is_empty() {
            return first;
        }
        for at in set.matches(Path::new(OsStr::from_bytes(name))) {
            let Effect { takes, is_for_folders } = effects[at];
            if is_folder || !is_for_folders {
                first[usize::from(at >= before)].get_or_insert(takes);
            }
        }
        first
    }
}

/// Borrows the memory of compiled rules.
fn lend(lender: Option<&Lend>, rules: &[Rule]) -> Result<Option<Lent>, Failure> {
    let bytes_of = |rule: &Rule| match is_pattern(&rule.pattern) {
        true => WILDCARD_RULE + rule.pattern.len() * WILDCARD_BYTE,
        false => PLAIN_RULE + rule.pattern.len() * PLAIN_BYTE,
    };
    lender
        .filter(|_| !rules.is_empty())
        .map(|lend| lend(rules.iter().map(bytes_of).sum()))
        .transpose()
}

/// Compiles the patterns into one set.
fn of(patterns: Vec<(Glob, Effect)>) -> Result<Compiled, Failure> {
    let (globs, effects): (Vec<Glob>, Vec<Effect>) = patterns.into_iter().unzip();
    let set = GlobSet::new(globs).map_err(|error| {
        let text = format!("the rules cannot be used together: {error}; use fewer rules");
        Failure::new(FailureCode::BadSetting, text)
    })?;
    Ok(Compiled { set, effects, ..Compiled::default() })
}

fn compile(takes: bool, text: &[u8]) -> Result<(Glob, Effect), Failure> {
    let pattern = text.strip_suffix(b"/");
    let is_for_folders = pattern.is_some();
    let pattern = pattern.unwrap_or(text);
    let glob = match pattern.strip_prefix(b"/") {
        Some(whole) => glob(whole)?,
        None => glob(&[b"**/", pattern].concat())?,
    };
    Ok((glob, Effect { takes, is_for_folders }))
}

fn check_name(name: &[u8], is_first: bool) -> Result<(), Failure> {
    let why = if !is_first {
        "is a second name of rule files; give --ignore-name once"
    } else if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| b"/\0".contains(byte)) {
        "is no name of rule files; give a name without '/', such as .gitignore"
    } else {
        return Ok(());
    };
    let text = format!("'{}' {why}", Printable(name));
    Err(Failure::new(FailureCode::BadSetting, text))
}

/// Rules, with the rule files of the directories above an entry. A file in a deeper directory decides before the others.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    rules: Rules,
    /// The directories with a rule file on the current path.
    directories: Vec<Directory>,
}

#[derive(Clone, Debug)]
struct Directory {
    /// Name in the transfer; empty for the content of the source.
    name: Vec<u8>,
    rules: Rules,
    bytes: usize,
    /// Text of the file, until it is taken.
    text: Vec<u8>,
}

impl Filter {
    /// Filter without rule files yet.
    pub fn new(rules: Rules) -> Self {
        Self { rules, directories: Vec::new() }
    }

    /// Name of the rule files in the directories of the source.
    pub fn file_name(&self) -> Option<&[u8]> {
        self.rules.file_name()
    }

    /// Removes the rule files of all directories.
    pub fn restart(&mut self) {
        self.directories.clear();
    }

    /// Adds the rule file of a directory, in the order of a walk.
    ///
    /// # Errors
    /// If the rule files of this directory and of those above are too large.
    pub fn enter(&mut self, name: &[u8], text: Vec<u8>) -> Result<(), Failure> {
        while self.directories.last().is_some_and(|last| below(name, &last.name).is_none()) {
            self.directories.pop();
        }
        let above: usize = self.directories.iter().map(|directory| directory.bytes).sum();
        if above + text.len() > RULE_FILES_MAX {
            return Err(Failure::new(
                FailureCode::Unreadable,
                format!(
                    "the rule files of '{}' and of the directories above have {} bytes; at most {RULE_FILES_MAX} are possible",
                    Printable(name),
                    above + text.len()
                ),
            ));
        }
        let rules = Rules::of_file(&text, self.rules.0.lender.as_ref())?;
        let bytes = text.len();
        self.directories.push(Directory { name: name.to_vec(), rules, bytes, text });
        Ok(())
    }

    /// Returns the text of the rule file that was added last, once.
    pub(super) fn take_text(&mut self) -> Vec<u8> {
        self.directories.last_mut().map(|last| std::mem::take(&mut last.text)).unwrap_or_default()
    }

    /// Whether an entry is included; `name` is its name in the transfer.
    pub fn take(&self, name: &[u8], is_folder: bool) -> bool {
        let [before, after] = self.rules.first(name, is_folder);
        let of_files = || {
            self.directories.iter().rev().find_map(|directory| {
                directory.rules.first(below(name, &directory.name)?, is_folder)[0]
            })
        };
        before.or_else(of_files).or(after).unwrap_or(true)
    }

    /// As [`Self::take`], for an entry that was already chosen with the rule files.
    pub fn take_chosen(&self, name: &[u8], is_folder: bool) -> bool {
        let [before, after] = self.rules.first(name, is_folder);
        let after = if self.file_name().is_some() { None } else { after };
        before.or(after).unwrap_or(true)
    }
}

/// The part of a name below a directory.
fn below<'a>(name: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    match directory {
        [] => Some(name),
        _ => name.strip_prefix(directory)?.strip_prefix(b"/"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use sabul_wire::control::MAX_RULES;

    use super::*;

    fn filter(list: &[(bool, &str)]) -> Filter {
        Filter::new(Rules::new(&list.iter().map(rule).collect::<Vec<_>>()).unwrap())
    }

    fn rule(&(takes, pattern): &(bool, &str)) -> Rule {
        let kind = if takes { RuleKind::Include } else { RuleKind::Exclude };
        Rule { kind, pattern: pattern.into() }
    }

    fn files(name: &str) -> Rule {
        Rule { kind: RuleKind::Files, pattern: name.into() }
    }

    #[test]
    fn the_first_matching_rule_decides_and_unmatched_names_are_included() {
        let some =
            filter(&[(true, "keep.o"), (false, "*.o"), (false, "/top/tmp/"), (false, "a/b")]);
        for (name, is_folder, takes) in [
            ("x.c", false, true),
            ("x.o", false, false),
            ("d/e/x.o", false, false),
            ("d/keep.o", false, true),
            ("top/tmp", true, false),
            ("top/tmp", false, true),
            ("other/top/tmp", true, true),
            ("a/b", false, false),
            ("x/a/b", false, false),
            ("xa/b", false, true),
        ] {
            assert_eq!(some.take(name.as_bytes(), is_folder), takes, "{name}");
            assert_eq!(some.take_chosen(name.as_bytes(), is_folder), takes, "{name}");
        }
        let one_kind = filter(&[(true, "*/"), (true, "*.nc"), (false, "*")]);
        assert!(one_kind.take(b"d", true) && one_kind.take(b"d/x.nc", false));
        assert!(!one_kind.take(b"d/x.txt", false) && !one_kind.take(b"x", false));
        assert!(Filter::default().take(b"x", false));
    }

    #[test]
    fn two_stars_cross_slashes_and_one_does_not() {
        let one = filter(&[(false, "/a/*.log")]);
        assert!(one.take(b"a/b/x.log", false) && !one.take(b"a/x.log", false));
        let two = filter(&[(false, "/a/**/*.log")]);
        assert!(!two.take(b"a/b/c/x.log", false) && !two.take(b"a/x.log", false));
        Rules::new(&[rule(&(true, "["))]).unwrap_err();
    }

    #[test]
    fn a_deeper_rule_file_decides_first_and_only_below_its_directory() {
        let mut filter = Filter::new(Rules::new(&[files(".gitignore")]).unwrap());
        filter.enter(b"", b"*.o\n/top\nbuild/\n".to_vec()).unwrap();
        filter.enter(b"a/b", b"!keep.o\n/only\n".to_vec()).unwrap();
        assert_eq!(filter.take_text(), b"!keep.o\n/only\n");
        assert_eq!(filter.take_text(), b"", "once");
        for (name, takes) in [
            ("x.o", false),
            ("top", false),
            ("a/top", true),
            ("a/keep.o", false),
            ("a/b/keep.o", true),
            ("a/b/c/keep.o", true),
            ("a/b/x.o", false),
            ("a/b/only", false),
            ("a/b/c/only", true),
            ("a/bc/only", true),
            ("a/build", true),
        ] {
            assert_eq!(filter.take(name.as_bytes(), false), takes, "{name}");
        }
        assert!(!filter.take(b"a/build", true));
        filter.enter(b"c", b"x\n".to_vec()).unwrap();
        assert!(filter.directories.len() == 2, "the directories above stay");
        filter.restart();
        assert!(filter.take(b"x.o", false));
    }

    #[test]
    fn rules_before_and_after_the_rule_files_keep_their_place() {
        let rules = [rule(&(true, "a.o")), files("f"), rule(&(true, "b.o")), rule(&(false, "*.c"))];
        let mut filter = Filter::new(Rules::new(&rules).unwrap());
        filter.enter(b"", b"*.o\n!keep.c\n".to_vec()).unwrap();
        for (name, takes, takes_chosen) in [
            ("a.o", true, true),
            ("b.o", false, true),
            ("keep.c", true, true),
            ("x.c", false, true),
            ("y", true, true),
        ] {
            assert_eq!(filter.take(name.as_bytes(), false), takes, "{name}");
            assert_eq!(filter.take_chosen(name.as_bytes(), false), takes_chosen, "{name}");
        }
        for bad in [&[files("a"), files("b")][..], &[files("")], &[files("a/b")], &[files("..")]] {
            Rules::new(bad).unwrap_err();
        }
    }

    #[test]
    fn rule_files_without_bound_are_refused() {
        let mut filter = Filter::default();
        let text = vec![b'\n'; RULE_FILES_MAX / 2];
        filter.enter(b"a", text.clone()).unwrap();
        filter.enter(b"a/b", text).unwrap();
        filter.enter(b"a/b/c", b"x".to_vec()).unwrap_err();
        filter.enter(b"b", b"x".to_vec()).unwrap();
    }

    #[test]
    fn the_wildcards_of_a_list_are_bounded_and_names_are_not() {
        let list = |pattern: &str| vec![rule(&(false, pattern)); MAX_RULES];
        Rules::new(&list(&"?".repeat(64))).unwrap();
        let failure = Rules::new(&list(&"?".repeat(65))).unwrap_err();
        assert_eq!(failure.code, FailureCode::BadSetting);
        assert!(failure.message.contains("16640 bytes; at most 16384"), "{}", failure.message);
        Rules::new(&list(&"a".repeat(1000))).unwrap();
    }

    /// A lender of at most `most` bytes, and the bytes that it has lent.
    fn lender(most: usize) -> (Lend, Arc<AtomicUsize>) {
        struct Borrowed(usize, Arc<AtomicUsize>);
        impl Drop for Borrowed {
            fn drop(&mut self) {
                self.1.fetch_sub(self.0, Ordering::Relaxed);
            }
        }
        let lent = Arc::<AtomicUsize>::default();
        let total = Arc::clone(&lent);
        let lend = move |bytes| {
            if total.load(Ordering::Relaxed) + bytes > most {
                return Err(Failure::new(FailureCode::Refused, "no memory"));
            }
            total.fetch_add(bytes, Ordering::Relaxed);
            Ok(Box::new(Borrowed(bytes, Arc::clone(&total))) as Lent)
        };
        (Arc::new(lend), lent)
    }

    #[test]
    fn rules_and_their_rule_files_borrow_memory_as_long_as_they_exist() {
        let (lend, lent) = lender(100_000);
        let lent = || lent.load(Ordering::Relaxed);
        let rules = [rule(&(false, "a?")), files("f"), rule(&(false, "a"))];
        let rules = Rules::lent(&rules, Arc::clone(&lend)).unwrap();
        let of_rules = WILDCARD_RULE + 2 * WILDCARD_BYTE + 2 * (PLAIN_RULE + PLAIN_BYTE);
        assert_eq!(lent(), of_rules);
        let mut filter = Filter::new(rules.clone());
        drop(rules);
        filter.enter(b"", b"*.o\n".to_vec()).unwrap();
        let of_file = WILDCARD_RULE + 3 * WILDCARD_BYTE;
        assert_eq!(lent(), of_rules + of_file);
        let failure = filter.enter(b"d", vec![b'*'; 500]).unwrap_err();
        assert_eq!((failure.code, lent()), (FailureCode::Refused, of_rules + of_file));
        filter.restart();
        assert_eq!(lent(), of_rules);
        drop(filter);
        assert_eq!(lent(), 0);
        Rules::new(&[rule(&(false, "*"))]).unwrap();
        Rules::lent(&vec![rule(&(false, "*")); 30], lend).unwrap_err();
        assert_eq!(lent(), 0, "without a lender, or after a failure, nothing is borrowed");
    }
}
