//! Include and exclude rules: `--include` and `--exclude`, as in rsync.
//!
//! The first matching rule decides; a name without a matching rule is included. An excluded folder
//! is not read. A pattern with a leading `/` must match the whole name in the transfer; any other
//! pattern must match the end of the name. A pattern with a trailing `/` matches only folders. `*`
//! and `?` do not match slashes; `**` does.

use globset::GlobMatcher;
use sabul_wire::control::{Failure, Rule};

use super::glob::{compile, is_match};

/// Ordered rules; an empty list includes everything.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Compiled>);

#[derive(Clone, Debug)]
struct Compiled {
    matcher: GlobMatcher,
    takes: bool,
    is_for_folders: bool,
}

impl Rules {
    /// Compiles rules.
    ///
    /// # Errors
    /// If a pattern is invalid.
    pub fn new(rules: &[Rule]) -> Result<Self, Failure> {
        rules.iter().map(Compiled::new).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a file or folder is included; `name` is its name in the transfer.
    pub fn take(&self, name: &[u8], is_folder: bool) -> bool {
        let first = self
            .0
            .iter()
            .find(|rule| (is_folder || !rule.is_for_folders) && is_match(&rule.matcher, name));
        first.is_none_or(|rule| rule.takes)
    }
}

impl Compiled {
    fn new(rule: &Rule) -> Result<Self, Failure> {
        let pattern = rule.pattern.strip_suffix(b"/");
        let is_for_folders = pattern.is_some();
        let pattern = pattern.unwrap_or(&rule.pattern);
        let matcher = match pattern.strip_prefix(b"/") {
            Some(whole) => compile(whole)?,
            None => compile(&[b"**/", pattern].concat())?,
        };
        Ok(Self { matcher, takes: rule.takes, is_for_folders })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(list: &[(bool, &str)]) -> Rules {
        let rule = |&(takes, pattern): &(bool, &str)| Rule { takes, pattern: pattern.into() };
        Rules::new(&list.iter().map(rule).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_first_matching_rule_decides_and_unmatched_names_are_included() {
        let some = rules(&[(true, "keep.o"), (false, "*.o"), (false, "/top/tmp/"), (false, "a/b")]);
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
        }
        let one_kind = rules(&[(true, "*/"), (true, "*.nc"), (false, "*")]);
        assert!(one_kind.take(b"d", true) && one_kind.take(b"d/x.nc", false));
        assert!(!one_kind.take(b"d/x.txt", false) && !one_kind.take(b"x", false));
        assert!(Rules::default().take(b"x", false));
    }

    #[test]
    fn two_stars_cross_slashes_and_one_does_not() {
        let one = rules(&[(false, "/a/*.log")]);
        assert!(one.take(b"a/b/x.log", false) && !one.take(b"a/x.log", false));
        let two = rules(&[(false, "/a/**/*.log")]);
        assert!(!two.take(b"a/b/c/x.log", false) && !two.take(b"a/x.log", false));
        assert!(Rules::new(&[Rule { takes: true, pattern: b"[".to_vec() }]).is_err());
    }
}
