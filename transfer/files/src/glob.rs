//! Glob patterns as in shells: `*`, `?`, `[…]` and `{…}` within a name.
//!
//! A name with a leading dot matches only if the pattern begins with a dot. `?` matches one byte. A
//! backslash quotes the next character. The pattern may come from a hostile peer. So a pattern is
//! compiled to an automaton whose time is linear in the length of a name. The search is bounded in
//! names, matches and time.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use globset::{Glob, GlobBuilder, GlobSet};
use sabul_content::Printable;
use sabul_wire::control::{Failure, FailureCode, MAX_PATTERN};

use super::tree::Tree;
use crate::root::{Kind, LinkTarget};

/// Maximum number of names that a search examines. Ours: seconds on a usual disk.
const EXAMINED_MAX: usize = 1_000_000;
/// Maximum number of matches of a pattern. Ours: for more, copy the directory.
const MATCHES_MAX: usize = 100_000;
/// Maximum memory of the matches in bytes.
const MATCHES_BYTES: usize = 32 << 20;
/// Maximum duration of a search.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Maximum number of path components that are patterns.
const PARTS_MAX: usize = 16;

/// Characters that [`escape`] quotes.
const SPECIAL: &[u8] = b"*?[]{}\\";

/// Whether a path may be a pattern.
pub fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[{\\".contains(byte))
}

/// Returns a pattern that matches only this path; a path that is no pattern stays as it is.
pub fn escape(path: &[u8]) -> Vec<u8> {
    if !is_pattern(path) {
        return path.to_vec();
    }
    let is_plain = |byte: &u8| !SPECIAL.contains(byte);
    let escape = |byte: &u8| [b'\\', *byte].into_iter().skip(usize::from(is_plain(byte)));
    path.iter().flat_map(escape).collect()
}

/// Returns the path whose special characters all have a backslash in `path`, as [`escape`] writes them. Such a path means
/// no other file, also if a file has this exact name with its backslashes.
pub fn quoted(path: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut name) = (path.iter(), Vec::new());
    let mut is_quoted = false;
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => {
                name.push(*bytes.next().filter(|byte| SPECIAL.contains(byte))?);
                is_quoted = true;
            }
            byte if SPECIAL.contains(&byte) => return None,
            byte => name.push(byte),
        }
    }
    is_quoted.then_some(name)
}

/// As [`quoted`].
pub(super) fn quoted_path(path: &Path) -> Option<PathBuf> {
    quoted(path.as_os_str().as_bytes()).map(|name| OsString::from_vec(name).into())
}

/// Result of a pattern search.
#[derive(Debug)]
pub(super) enum Matches {
    /// A file with this exact name exists.
    Itself,
    /// Matching paths, sorted by bytes.
    Several(Vec<PathBuf>),
}

/// Pattern for a single path component.
#[derive(Clone, Debug)]
pub struct Pattern {
    matcher: GlobSet,
    /// Also matches names with a leading dot.
    has_hidden: bool,
}

impl Pattern {
    /// Compiles a pattern without slashes.
    pub fn new(pattern: &[u8]) -> Result<Self, Failure> {
        let has_hidden = pattern.starts_with(b".") || pattern.starts_with(b"\\.");
        Ok(Self { matcher: compile(pattern)?, has_hidden })
    }

    /// Whether a name matches.
    pub fn fits(&self, name: &[u8]) -> bool {
        (self.has_hidden || !name.starts_with(b".")) && is_match(&self.matcher, name)
    }
}

/// Compiles a pattern. A set of one pattern returns an error where `Glob::compile_matcher` panics: braces may be nested
/// more deeply than the compiler permits.
fn compile(pattern: &[u8]) -> Result<GlobSet, Failure> {
    let glob = glob(pattern)?;
    GlobSet::new([glob]).map_err(|error| refused(pattern, &error.kind().to_string()))
}

fn refused(pattern: &[u8], why: &str) -> Failure {
    let text = format!("'{}' is no pattern: {why}", Printable(pattern));
    Failure::new(FailureCode::BadSetting, text)
}

/// Parses a pattern of paths. `*` and `?` do not match slashes; `**` does.
pub(super) fn glob(pattern: &[u8]) -> Result<Glob, Failure> {
    let refuse = |why: &str| refused(pattern, why);
    if pattern.len() > MAX_PATTERN {
        return Err(refuse(&format!(
            "it has {} bytes, and {MAX_PATTERN} are possible",
            pattern.len()
        )));
    }
    let text = std::str::from_utf8(pattern)
        .map_err(|_| refuse("it is not UTF-8; put a '?' for each odd byte"))?;
    let mut builder = GlobBuilder::new(text);
    let glob = builder.literal_separator(true).backslash_escape(true).build();
    glob.map_err(|error| refuse(&error.kind().to_string()))
}

fn is_match(matcher: &GlobSet, path: &[u8]) -> bool {
    matcher.is_match(Path::new(OsStr::from_bytes(path)))
}

/// Expands a pattern.
///
/// # Errors
/// If the pattern is invalid, matches nothing or too much, or its first folder cannot be read.
pub(super) fn expand(tree: &Tree, pattern: &Path) -> Result<Matches, Failure> {
    if tree.examine(pattern, LinkTarget::Itself).is_ok() {
        return Ok(Matches::Itself);
    }
    let mut search = Search::new(tree, pattern.as_os_str().as_bytes())?;
    search.run()?;
    if search.matches.is_empty() {
        let text = format!("no file matches '{}'; check the name or pattern", pattern.display());
        return Err(Failure::new(FailureCode::NotFound, text));
    }
    Ok(Matches::Several(search.matches))
}

enum Part<'a> {
    Name(&'a [u8]),
    Pattern(Pattern),
}

struct Search<'a> {
    tree: &'a Tree,
    shown: String,
    parts: Vec<Part<'a>>,
    /// Paths to continue from, each with the index of its next component; a stack.
    todo: Vec<(PathBuf, usize)>,
    matches: Vec<PathBuf>,
    /// Bytes of paths in memory.
    held: usize,
    examined: usize,
    deadline: Instant,
    /// Matches only directories, and returns their entries.
    is_of_entries: bool,
}

impl<'a> Search<'a> {
    fn new(tree: &'a Tree, pattern: &'a [u8]) -> Result<Self, Failure> {
        let names = pattern.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        let parts = names.map(|name| {
            Ok(if is_pattern(name) { Part::Pattern(Pattern::new(name)?) } else { Part::Name(name) })
        });
        let parts = parts.collect::<Result<Vec<_>, Failure>>()?;
        let start = if pattern.starts_with(b"/") { "/" } else { "" };
        let search = Self {
            tree,
            shown: Printable(pattern).to_string(),
            todo: vec![(PathBuf::from(start), 0)],
            matches: Vec::new(),
            held: 0,
            examined: 0,
            deadline: Instant::now() + TIME_MAX,
            is_of_entries: pattern.ends_with(b"/"),
            parts,
        };
        let patterns = search.parts.iter().filter(|part| matches!(part, Part::Pattern(_))).count();
        if patterns > PARTS_MAX {
            return Err(search.too_much(&format!("it has more than {PARTS_MAX} parts with stars")));
        }
        Ok(search)
    }

    fn run(&mut self) -> Result<(), Failure> {
        while let Some((path, next)) = self.todo.pop() {
            self.held -= path.as_os_str().len().min(self.held);
            match self.parts.get(next) {
                None => self.take(path)?,
                Some(Part::Name(name)) => {
                    let path = path.join(OsStr::from_bytes(name));
                    // A path below a non-folder fails at its last component, which must exist.
                    let link = LinkTarget::Follow;
                    if next + 1 < self.parts.len() || self.tree.examine(&path, link).is_ok() {
                        self.hold(path, next + 1)?;
                    }
                }
                Some(Part::Pattern(_)) => self.list(&path, next)?,
            }
        }
        Ok(())
    }

    /// Continues with the matching names of a folder.
    fn list(&mut self, path: &Path, next: usize) -> Result<(), Failure> {
        let shown = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let children = match self.tree.list(shown) {
            Ok(children) => children,
            // A non-folder, or a folder that cannot be read, has no matches.
            Err(_) if next > 0 => return Ok(()),
            Err(failure) => return Err(failure),
        };
        let mut found = Vec::new();
        for name in children {
            let name = name?;
            self.examined += 1;
            if self.examined > EXAMINED_MAX {
                return Err(self.too_much(&format!("it leads past more than {EXAMINED_MAX} names")));
            }
            if self.examined.is_multiple_of(256) && Instant::now() > self.deadline {
                let seconds = TIME_MAX.as_secs();
                return Err(self.too_much(&format!("the search takes more than {seconds} s")));
            }
            let fits = match &self.parts[next] {
                Part::Pattern(pattern) => pattern.fits(&name),
                Part::Name(_) => false,
            };
            if fits {
                found.push(name);
                if found.len() > MATCHES_MAX {
                    return Err(self.too_many());
                }
            }
        }
        found.sort_unstable();
        for name in found.into_iter().rev() {
            self.hold(path.join(OsStr::from_bytes(&name)), next + 1)?;
        }
        Ok(())
    }

    fn hold(&mut self, path: PathBuf, next: usize) -> Result<(), Failure> {
        self.held += path.as_os_str().len();
        if self.held > MATCHES_BYTES {
            return Err(self.too_many());
        }
        self.todo.push((path, next));
        Ok(())
    }

    fn take(&mut self, path: PathBuf) -> Result<(), Failure> {
        let path = if self.is_of_entries {
            let kind = self.tree.examine(&path, LinkTarget::Follow).map(|it| it.kind);
            if kind != Ok(Kind::Directory) {
                return Ok(());
            }
            path.join("")
        } else {
            path
        };
        self.held += path.as_os_str().len();
        if self.matches.len() == MATCHES_MAX || self.held > MATCHES_BYTES {
            return Err(self.too_many());
        }
        self.matches.push(path);
        Ok(())
    }

    fn too_many(&self) -> Failure {
        self.too_much(&format!("it stands for more than {MATCHES_MAX} names"))
    }

    fn too_much(&self, why: &str) -> Failure {
        let text = format!("'{}' is too much: {why}; copy the directory instead", self.shown);
        Failure::new(FailureCode::Refused, text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::root::{RootDir, RootLink};

    #[test]
    fn a_dot_name_matches_only_patterns_with_a_leading_dot() {
        for (pattern, name, fits) in [
            ("*", "a", true),
            ("*", ".a", false),
            (".*", ".a", true),
            ("*.nc", "x.nc", true),
            ("*.nc", "x.ncx", false),
            ("?", "ab", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("{a,b}*", "bcd", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
        ] {
            let pattern = Pattern::new(pattern.as_bytes()).unwrap();
            assert_eq!(pattern.fits(name.as_bytes()), fits, "{pattern:?} {name}");
        }
        assert!(Pattern::new(b"*").unwrap().fits(b"caf\xE9"), "any bytes");
    }

    #[test]
    fn an_escaped_path_matches_only_itself() {
        for name in ["a*b", "[x]", "{y}", "{a,b}", "a\\b", "?", ".a?"] {
            let pattern = Pattern::new(&escape(name.as_bytes())).unwrap();
            assert!(pattern.fits(name.as_bytes()), "{pattern:?} {name}");
            for other in ["aXb", "x", "y", "a", "ab", ".ab"] {
                assert!(!pattern.fits(other.as_bytes()), "{pattern:?} {other}");
            }
        }
        assert_eq!(escape(b"a}]"), b"a}]", "no pattern");
    }

    #[test]
    fn a_quoted_name_is_no_pattern() {
        for name in ["[x]", "a*/b?", "{a,b}]", "a\\", "\\[", "é*"] {
            assert_eq!(quoted(&escape(name.as_bytes())), Some(name.into()), "{name}");
        }
        for other in ["a", "[x]", "\\[x]", "*\\*", "a\\b", "a\\", "a]"] {
            assert_eq!(quoted(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_refused_with_a_reason() {
        let nested = [b"{".repeat(300), b"a".to_vec(), b"}".repeat(300)].concat();
        for bad in [&b"[a"[..], b"{a", b"a\\", b"\xFF*", &[b'*'; MAX_PATTERN + 1], &nested] {
            let failure = Pattern::new(bad).unwrap_err();
            assert_eq!(failure.code, FailureCode::BadSetting, "{failure}");
        }
    }

    /// Patterns that take exponential time in a backtracking matcher take linear time here.
    #[test]
    fn pattern_matching_takes_linear_time_in_the_number_of_stars() {
        let name = vec![b'a'; 255];
        for stars in [10, 500] {
            let text = [b"*a".repeat(stars), b"b".to_vec()].concat();
            let pattern = Pattern::new(&text[text.len().saturating_sub(MAX_PATTERN)..]).unwrap();
            for _ in 0..100 {
                assert!(!pattern.fits(&name));
            }
        }
    }

    fn expanded(tree: &Tree, pattern: &str) -> Result<Vec<String>, Failure> {
        Ok(match expand(tree, Path::new(pattern))? {
            Matches::Itself => vec!["itself".to_owned()],
            Matches::Several(paths) => {
                paths.iter().map(|path| path.display().to_string()).collect()
            }
        })
    }

    #[test]
    fn patterns_are_matched_name_by_name_and_in_order_and_never_outside() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("b/sub")).unwrap();
        fs::create_dir_all(root.join("a")).unwrap();
        fs::create_dir(folder.path().join("secret")).unwrap();
        for name in ["a/1.nc", "a/2.nc", "b/1.nc", "b/sub/x", "a/.hidden", "[x]", "../secret/1.nc"]
        {
            fs::write(root.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("../secret", root.join("out")).unwrap();
        let root_dir = RootDir::open(&root, RootLink::Follow).unwrap();
        let tree = Tree::Disk(Arc::new(root_dir));
        let both = |pattern: &str| {
            let below = expanded(&tree, pattern);
            let place = format!("{}/{pattern}", root.display());
            let own = expanded(&Tree::Local, &place).map(|paths| {
                let strip = format!("{}/", root.display());
                paths.iter().map(|path| path.replacen(&strip, "", 1)).collect::<Vec<_>>()
            });
            (below, own)
        };
        for (pattern, paths) in [
            ("*/*.nc", &["a/1.nc", "a/2.nc", "b/1.nc"][..]),
            ("[ab]/1.nc", &["a/1.nc", "b/1.nc"]),
            ("*/sub/x", &["b/sub/x"]),
            ("b/*/", &["b/sub/"]),
            ("a/.h*", &["a/.hidden"]),
            ("[x]", &["itself"]),
            ("\\[x\\]", &["[x]"]),
        ] {
            let (below, _) = both(pattern);
            assert_eq!(below.unwrap(), paths, "{pattern}");
        }
        assert_eq!(both("a/*.nc").1.unwrap(), ["a/1.nc", "a/2.nc"]);
        for nothing in ["out/*", "*/nothing*", "../secret/*", "o*/*.n*", "../*/1.nc"] {
            let below = both(nothing).0;
            assert!(below.as_ref().is_err() || below == Ok(vec![]), "{nothing}: {below:?}");
            let text = below.unwrap_err().to_string();
            assert!(!text.contains("secret/1"), "{text}");
        }
    }

    #[test]
    fn a_pattern_with_too_many_parts_is_refused_before_anything_is_read() {
        let folder = tempfile::tempdir().unwrap();
        // A link to its own directory would double the matches with each component.
        std::os::unix::fs::symlink(".", folder.path().join("a")).unwrap();
        std::os::unix::fs::symlink(".", folder.path().join("b")).unwrap();
        let root_dir = RootDir::open(folder.path(), RootLink::Follow).unwrap();
        let tree = Tree::Disk(Arc::new(root_dir));
        let failure = expanded(&tree, &"*/".repeat(PARTS_MAX + 1)).unwrap_err();
        assert!(failure.message.contains("too much"), "{failure}");
        assert_eq!(failure.code, FailureCode::Refused);
    }
}
