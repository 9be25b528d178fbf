//! What of a tree is copied and what is left out: `--include` and `--exclude`, as rsync has them.
//!
//! The first rule whose pattern fits decides; what none fits is taken. A folder that is left out is not
//! looked into. A pattern with a `/` in front is held against the whole name in the transfer, any
//! other one against its end; one with a `/` at its end fits folders alone. `*` and `?` stay between
//! slashes, `**` does not.

use globset::GlobMatcher;
use sabul_wire::control::{Failure, Rule};

use super::glob::{compile, is_match};

/// Rules in their order; without any, everything is taken.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Compiled>);

#[derive(Clone, Debug)]
struct Compiled {
    matcher: GlobMatcher,
    takes: bool,
    is_for_folders: bool,
}

impl Rules {
    /// Reads rules.
    ///
    /// # Errors
    /// If a pattern is none.
    pub fn new(rules: &[Rule]) -> Result<Self, Failure> {
        rules.iter().map(Compiled::new).collect::<Result<_, _>>().map(Self)
    }

    /// Nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a file or folder is taken, by its name in the transfer.
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
    fn the_first_rule_that_fits_decides_and_what_none_fits_is_taken() {
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
