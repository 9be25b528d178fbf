//! Changes of permission bits on their way, in the syntax of rsync's `--chmod`.
//!
//! A change is octal digits, or `[ugoa]*[-+=][rwxX]*`; `D` or `F` in front restricts the change to directories or to
//! other entries. Without `ugoa` the umask limits the bits. Setuid, setgid and sticky bits are not supported, because a
//! copy does not set these bits for other users.

use sabul_wire::control::{Entry, EntryKind, Facts, SeenKind};

/// Permission bits that changes apply to.
const BITS: u32 = 0o777;
/// Execute bits.
const EXECUTE: u32 = 0o111;

/// Changes of permission bits, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chmod {
    text: String,
    changes: Vec<Change>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    /// Only directories, or only other entries.
    directories: Option<bool>,
    and: u32,
    or: u32,
    /// Execute bits are set only for directories, and for files that have one.
    keeps_execute: bool,
}

impl Chmod {
    /// Reads changes, separated by commas.
    ///
    /// # Errors
    /// If a change is invalid; the text has the change and the reason.
    pub fn parse(text: &str, umask: u32) -> Result<Self, String> {
        let change = |word: &str| {
            Change::parse(word, umask).ok_or_else(|| {
                format!(
                    "'{word}' is no change of permission bits; write it as 644, u=rwX, go-w, D755 or Fa-x, without \
                     setuid, setgid and sticky bits"
                )
            })
        };
        let changes = text.split(',').map(change).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), changes })
    }

    /// The changes as text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Permission bits of an entry after the changes.
    pub fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        let has_execute = mode & EXECUTE != 0;
        let applies = |change: &&Change| change.directories.is_none_or(|only| only == is_directory);
        self.changes.iter().filter(applies).fold(mode, |mode, change| {
            let is_kept = change.keeps_execute && !has_execute && !is_directory;
            (mode & !BITS)
                | (mode & change.and)
                | (change.or & if is_kept { !EXECUTE } else { BITS })
        })
    }

    /// Changes an entry of a transfer; a link has no permission bits of its own.
    pub fn change(&self, entry: &mut Entry) {
        if entry.kind != EntryKind::SymbolicLink {
            let is_directory = entry.kind == EntryKind::Directory;
            entry.mode = entry.mode.map(|mode| self.apply(mode, is_directory));
        }
    }

    /// Changes a listed entry.
    pub fn change_facts(&self, facts: &mut Facts) {
        if facts.kind != SeenKind::Link {
            facts.mode = self.apply(facts.mode, facts.kind == SeenKind::Directory);
        }
    }
}

impl Change {
    fn parse(word: &str, umask: u32) -> Option<Self> {
        let rest = word.trim_start_matches(['D', 'F']);
        let directories = match &word[..word.len() - rest.len()] {
            "" => None,
            "D" => Some(true),
            "F" => Some(false),
            _ => return None,
        };
        if rest.starts_with(|first: char| first.is_ascii_digit()) {
            let or = u32::from_str_radix(rest, 8).ok().filter(|bits| bits & !BITS == 0)?;
            return Some(Self { directories, and: 0, or, keeps_execute: false });
        }
        let operator = rest.find(['+', '-', '='])?;
        let (who, what) = (&rest[..operator], &rest[operator + 1..]);
        let mut classes = 0;
        for class in who.chars() {
            classes |= match class {
                'u' => 0o100,
                'g' => 0o010,
                'o' => 0o001,
                'a' => 0o111,
                _ => return None,
            };
        }
        let (mut bits, mut keeps_execute) = (0, false);
        for bit in what.chars() {
            bits |= match bit {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                'X' => {
                    keeps_execute = true;
                    1
                }
                _ => return None,
            };
        }
        let limit = if classes == 0 { !umask } else { BITS };
        let classes = if classes == 0 { 0o111 } else { classes };
        let bits = (classes * bits) & limit & BITS;
        let (and, or) = match &rest[operator..=operator] {
            "+" => (BITS, bits),
            "-" => (!bits & BITS, 0),
            _ => (!(classes * 7) & BITS, bits),
        };
        Some(Self { directories, and, or, keeps_execute })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_the_effect_of_the_manual_of_rsync() {
        // Worked by hand from the manual of rsync; tests/options.py compares drawn changes with rsync itself.
        for (text, mode, is_directory, expected) in [
            ("644", 0o777, false, 0o644),
            ("D755,F640", 0o700, true, 0o755),
            ("D755,F640", 0o700, false, 0o640),
            ("u=rwX,go=rX", 0o600, false, 0o644),
            ("u=rwX,go=rX", 0o710, false, 0o755),
            ("u=rwX,go=rX", 0o600, true, 0o755),
            ("go-w", 0o666, false, 0o644),
            ("+w", 0o444, false, 0o644),
            ("=r", 0o777, false, 0o444),
            ("a+x,o-x", 0o600, false, 0o710),
            ("Fa-x,+X", 0o755, false, 0o755),
        ] {
            let chmod = Chmod::parse(text, 0o022).unwrap();
            assert_eq!(chmod.apply(mode, is_directory), expected, "{text} of {mode:o}");
        }
        for text in ["", "u", "8", "DF755", "u+s", "1777", "x+r", "u+q", "644,"] {
            Chmod::parse(text, 0o022).unwrap_err();
        }
    }
}
