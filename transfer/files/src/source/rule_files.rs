//! Rule files in the directories of a source (`--ignore-name`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use sabul_content::Printable;
use sabul_wire::control::{Entry, EntryKind, Failure, FailureCode, MAX_RULE_FILE};

use super::{Facts, Found, Walk};
use crate::entry_error::read_failure;
use crate::root::{Kind, LinkTarget};

impl Walk {
    /// Reads the rule file of a directory, if there is one. As in git, a symbolic link is no rule file.
    pub(super) fn read_rules(&mut self, path: &Path, name: &[u8]) -> Result<(), Failure> {
        let Some(file_name) = self.filter.file_name() else { return Ok(()) };
        let file_path = path.join(OsStr::from_bytes(file_name));
        let tree = self.base.tree(&self.tree);
        let is_file = match tree.examine(&file_path, LinkTarget::Itself) {
            Ok(metadata) => metadata.kind == Kind::File,
            Err(failure) if failure.code == FailureCode::NotFound => false,
            Err(failure) => return Err(failure),
        };
        if !is_file {
            return Ok(());
        }
        let shown = file_path.as_os_str().as_bytes();
        let file = tree.open(&file_path)?;
        let mut text = Vec::new();
        text.reserve_exact(MAX_RULE_FILE + 1);
        loop {
            let at = text.len() as u64;
            match file.read_at(&mut text, at) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(read_failure(shown, &error)),
            }
            if text.len() > MAX_RULE_FILE {
                let text = format!(
                    "the rule file '{}' has more than {MAX_RULE_FILE} bytes; shorten the file",
                    Printable(shown)
                );
                return Err(Failure::new(FailureCode::Unreadable, text));
            }
        }
        text.shrink_to_fit();
        self.filter.enter(name, text)
    }

    /// Whether the rules include an entry.
    pub(super) fn takes(&self, name: &[u8], is_folder: bool) -> bool {
        match self.chosen {
            None => self.filter.take(name, is_folder),
            Some(_) => self.filter.take_chosen(name, is_folder),
        }
    }

    /// The text of the rule file of the directory that was just entered, for a listing of a source.
    pub(super) fn take_rules(&mut self) -> Box<[u8]> {
        if self.opens { Box::default() } else { self.filter.take_text().into() }
    }

    /// The content of a source as an entry without a name, if the directory has a rule file and the entry is listed.
    pub(super) fn content_with_rules(&mut self, path: &Path, facts: &Facts) -> Option<Found> {
        let rules = self.take_rules();
        if rules.is_empty() {
            return None;
        }
        let (mode, modified_ns) = (Some(facts.mode), facts.modified_ns);
        let kind = EntryKind::Directory;
        let entry = Entry { path: Vec::new(), kind, mode, modified_ns, more: None };
        Some(Found { rules, ..Found::new(entry, path.to_path_buf(), facts, &self.tree) })
    }
}
