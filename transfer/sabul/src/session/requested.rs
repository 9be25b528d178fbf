//! Filter of received entries: accepts only entries that belong to a source of the `get` request, and all of them.
//!
//! The peer names the entries, and the destination accepts every name that leads downwards. A malicious peer could
//! therefore answer a request for one file with other files beside it, with more than the requested range, or with
//! nothing. This check rejects each announced entry that does not come from a requested source or is not the next one of
//! a selection. It also rejects the end of a transfer without an entry of each source, or of the selection.
//! Not here:    whether a name leads downwards (`sabul_content::RelativePath`), handling of equal names (the
//!              assembler).

use std::collections::BTreeSet;

use sabul_content::{Printable, RelativePath};
use sabul_wire::control::{Entry, EntryKind, Failure, FailureCode, Range, Replaces, Request};

use sabul_files::glob::{Pattern, is_pattern, quoted};
use sabul_files::{Chmod, Gate};

use super::selected::SentNames;
use crate::config::TransferOptions;

/// The name that a peer announces for a source whose own name is not a valid file name.
const UNNAMED: &[u8] = b"unnamed";

/// Further kinds of entries and metadata that the peer may send.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extras {
    /// Links, owners and extended attributes.
    archive: bool,
    hard_links: bool,
}

impl Extras {
    /// Those of a request with these options.
    pub(super) const fn of(options: &TransferOptions) -> Self {
        let archive = options.archive_mode;
        Self { archive, hard_links: options.hard_links || archive }
    }
}

/// The requested sources.
#[derive(Debug)]
pub(super) struct RequestedEntries {
    /// Allowed first components of entries.
    names: BTreeSet<Vec<u8>>,
    /// Patterns of further allowed first components.
    patterns: Vec<Pattern>,
    /// The content of a directory was requested, so any name is allowed.
    any_name: bool,
    recursive: bool,
    extras: Extras,
    /// Number of entries that may still come; `None` if directories or patterns were requested.
    entries_left: Option<usize>,
    /// Names of sources of which no entry has come. Without rules, the peer sends one for each source, at least to
    /// report a failure.
    missing: BTreeSet<Vec<u8>>,
    /// Most bytes of a file.
    length: Option<u64>,
    /// Names of a selection that the peer has.
    selected: Option<SentNames>,
}

/// The filter of a request, and the changes of its entries.
#[derive(Debug)]
pub(super) struct RequestGate {
    chmod: Chmod,
    /// Entries replace nothing.
    new_names: bool,
    requested: RequestedEntries,
}

impl RequestGate {
    /// Checks the entries of a request for these sources, or for the names of a selection.
    pub(super) fn of_request(
        options: &TransferOptions,
        sources: &[Vec<u8>],
        recursive: bool,
        selected: Option<SentNames>,
    ) -> Self {
        let requested = RequestedEntries::new(sources, recursive, Extras::of(options));
        let is_all = options.rules.is_empty();
        let requested = if is_all { requested.each_of(sources) } else { requested };
        Self::new(options, requested.with_range(options.range).with_selection(selected))
    }

    /// Checks the entries of a request with these options.
    fn new(options: &TransferOptions, requested: RequestedEntries) -> Self {
        Self { chmod: options.chmod.clone(), new_names: options.new_names, requested }
    }
}

impl Gate for RequestGate {
    fn admit(&mut self, entry: &mut Entry) -> Result<(), Failure> {
        self.chmod.change(entry);
        if self.new_names && entry.kind != EntryKind::Directory {
            entry.more.get_or_insert_default().replaces = Some(Replaces::Nothing);
        }
        self.requested.check(entry)
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.requested.end()
    }
}

impl RequestedEntries {
    /// Makes the filter of these sources, as sent to the peer. `recursive` allows directories.
    pub(super) fn new(sources: &[Vec<u8>], recursive: bool, extras: Extras) -> Self {
        let patterns = sources.iter().filter(|source| may_be_pattern(source));
        let patterns = patterns.map(|source| last(source)).filter(|name| is_pattern(name));
        let has_patterns = sources.iter().any(|source| may_be_pattern(source));
        let quoted = sources.iter().filter_map(|source| quoted(source));
        Self {
            // An invalid pattern can still be a name.
            patterns: patterns.filter_map(|pattern| Pattern::new(pattern).ok()).collect(),
            // In a literal request, a quoted name is a name.
            names: sources.iter().cloned().chain(quoted).map(|source| name(&source)).collect(),
            any_name: recursive && sources.iter().any(|source| is_content(source)),
            recursive,
            extras,
            entries_left: (!recursive && !has_patterns).then_some(sources.len()),
            missing: BTreeSet::new(),
            length: None,
            selected: None,
        }
    }

    /// Requires an entry of each source whose name is known.
    pub(super) fn each_of(mut self, sources: &[Vec<u8>]) -> Self {
        let is_known = |source: &&Vec<u8>| !is_content(source) && !may_be_pattern(source);
        let known = sources.iter().filter(is_known);
        let meant = known.map(|source| quoted(source).unwrap_or_else(|| source.clone()));
        self.missing = meant.map(|source| name(&source)).collect();
        self
    }

    /// Limits the bytes of each file to those of the range.
    pub(super) fn with_range(mut self, range: Option<Range>) -> Self {
        self.length = range.and_then(|range| range.length);
        self
    }

    /// Requires the entries of these names, in their order, instead of one of each source.
    pub(super) fn with_selection(mut self, selected: Option<SentNames>) -> Self {
        if selected.is_some() {
            self.missing.clear();
        }
        self.selected = selected;
        self
    }

    /// Returns an error if an entry is missing.
    fn end(&self) -> Result<(), Failure> {
        let refuse = |text: String| Err(Failure::new(FailureCode::Protocol, text));
        if let Some(name) = self.missing.first() {
            return refuse(format!(
                "the peer sent nothing of '{}'; copy it again",
                Printable(name)
            ));
        }
        match self.selected.as_ref().map_or(0, SentNames::missing) {
            0 => Ok(()),
            1 => refuse("the peer left out a selected entry; run the command again".to_owned()),
            missing => refuse(format!(
                "the peer left out {missing} selected entries; run the command again"
            )),
        }
    }

    /// Rejects an entry that was not requested.
    pub(super) fn check(&mut self, entry: &Entry) -> Result<(), Failure> {
        let refuse = |why: &str| {
            let text = format!(
                "the peer sent '{}', {why}; the transfer ended before this entry was written",
                Printable(&entry.path)
            );
            Err(Failure::new(FailureCode::Protocol, text))
        };
        if entry.kind == EntryKind::Stream {
            return refuse("a stream, but the request was for files");
        }
        let is_link_refused = match entry.kind {
            EntryKind::SymbolicLink => !self.extras.archive,
            EntryKind::HardLink => !self.extras.hard_links,
            EntryKind::File(_) | EntryKind::Directory | EntryKind::Stream => false,
        };
        let has_more =
            entry.more.as_ref().is_some_and(|it| it.owner.is_some() || !it.attributes.is_empty());
        if is_link_refused || (has_more && !self.extras.archive) {
            return refuse("with links or attributes that were not requested");
        }
        let (top, below) = match entry.path.iter().position(|&byte| byte == b'/') {
            Some(slash) => (&entry.path[..slash], true),
            None => (&entry.path[..], false),
        };
        if !self.any_name
            && !self.names.contains(top)
            && !self.patterns.iter().any(|pattern| pattern.fits(top))
        {
            return refuse("which was not requested");
        }
        if !self.recursive && (below || entry.kind == EntryKind::Directory) {
            return refuse("but no directories were requested");
        }
        if entry.kind.size().zip(self.length).is_some_and(|(size, length)| size > length) {
            return refuse("with more bytes than were requested");
        }
        if self.selected.as_ref().is_some_and(|selected| !selected.take(&entry.path)) {
            return refuse("which was not selected, or comes in another order");
        }
        self.missing.remove(top);
        match &mut self.entries_left {
            None => Ok(()),
            Some(0) => refuse("which exceeds the number of requested files"),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

/// Makes the request for files or directories with these options.
pub(super) fn get_request(
    sources: Vec<Vec<u8>>,
    recursive: bool,
    options: &TransferOptions,
    selected: bool,
) -> Request {
    Request::Get {
        sources,
        recursive,
        rules: options.rules.clone(),
        ranges: options.range.into_iter().collect(),
        archive: options.archive_mode,
        hard_links: options.hard_links,
        links_out: options.links_out,
        selected,
        growing: options.growing,
        literal: false,
        state: None,
        from_end: false,
    }
}

/// Returns whether a request reads ranges of single files. Consecutive requests of this kind share a controller, and all
/// of a session share a clock.
pub(super) fn is_of_ranges(request: &Request) -> bool {
    matches!(request, Request::Get { ranges, literal: true, .. } if !ranges.is_empty())
}

/// Whether a source can stand for other names than its own.
fn may_be_pattern(source: &[u8]) -> bool {
    is_pattern(source) && quoted(source).is_none()
}

/// Returns the name of the entry that a source produces: its last component.
fn name(source: &[u8]) -> Vec<u8> {
    let name = last(source);
    if RelativePath::new(name).is_ok() { name.to_vec() } else { UNNAMED.to_vec() }
}

/// The last component of a source.
fn last(source: &[u8]) -> &[u8] {
    source.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()).unwrap_or_default()
}

/// Whether a source stands for the content of a directory: it ends in `/`, `.` or `..`.
fn is_content(source: &[u8]) -> bool {
    matches!(source.rsplit(|&byte| byte == b'/').next(), None | Some(b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use sabul_wire::control::{More, Owner};

    use super::*;

    const FILE: EntryKind = EntryKind::File(1);

    fn check(requested: &mut RequestedEntries, path: &[u8], kind: EntryKind) -> Result<(), String> {
        let entry = Entry { path: path.to_vec(), kind, mode: None, modified_ns: None, more: None };
        requested.check(&entry).map_err(|failure| {
            assert_eq!(failure.code, FailureCode::Protocol);
            failure.message
        })
    }

    fn requested(sources: &[&str], recursive: bool) -> RequestedEntries {
        let sources: Vec<_> = sources.iter().map(|source| source.as_bytes().to_vec()).collect();
        RequestedEntries::new(&sources, recursive, Extras::default())
    }

    #[test]
    fn an_entry_with_a_new_name_replaces_nothing_whatever_the_peer_permits() {
        for (new_names, expected) in [(true, Some(Replaces::Nothing)), (false, None)] {
            let options = TransferOptions { new_names, ..<_>::default() };
            let mut gate = RequestGate::new(&options, requested(&["d"], true));
            let mut admitted = |kind| {
                let (path, mode, modified_ns) = (b"d/f".to_vec(), None, None);
                let mut entry = Entry { path, kind, mode, modified_ns, more: None };
                gate.admit(&mut entry).unwrap();
                entry.more.and_then(|more| more.replaces)
            };
            assert_eq!(admitted(FILE), expected);
            assert_eq!(admitted(EntryKind::Directory), None);
        }
    }

    #[test]
    fn a_request_for_one_file_accepts_only_one_file_of_that_name() {
        for source in ["data.csv", "a/b/data.csv", "/data.csv", "../data.csv"] {
            let mut requested = requested(&[source], false);
            let refusal = check(&mut requested, b".bashrc", FILE).unwrap_err();
            assert!(
                refusal.contains("'.bashrc'") && refusal.contains("not requested"),
                "{refusal}"
            );
            for (path, kind) in [
                (&b"data.csv/x"[..], FILE),
                (b".ssh/authorized_keys", FILE),
                (b"data.csv2", FILE),
                (b"data.csv", EntryKind::Directory),
                (b"data.csv", EntryKind::Stream),
                (b"", FILE),
                (b"unnamed", FILE),
            ] {
                assert!(check(&mut requested, path, kind).is_err(), "{path:?} {kind:?}");
            }
            check(&mut requested, b"data.csv", FILE).unwrap();
            let refusal = check(&mut requested, b"data.csv", FILE).unwrap_err();
            assert!(refusal.contains("exceeds"), "{refusal}");
        }
    }

    #[test]
    fn a_request_for_several_files_accepts_only_those() {
        let mut requested = requested(&["a", "d/b", "e/a"], false);
        for path in [&b"b"[..], b"a", b"a"] {
            check(&mut requested, path, FILE).unwrap();
        }
        assert!(check(&mut requested, b"b", FILE).is_err());
    }

    #[test]
    fn a_request_for_a_directory_accepts_only_its_content() {
        let mut requested = requested(&["photos", "x"], true);
        for (path, kind) in [
            (&b"photos"[..], EntryKind::Directory),
            (b"photos/.hidden", FILE),
            (b"photos/a/b", FILE),
            (b"x", FILE),
        ] {
            check(&mut requested, path, kind).unwrap();
        }
        for path in [&b".profile"[..], b"photo", b"photos2/a", b".ssh/config", b"b/photos"] {
            assert!(check(&mut requested, path, FILE).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_request_for_a_pattern_accepts_only_matching_names() {
        let mut requested = requested(&["data/*.nc"], false);
        for path in [&b"a.nc"[..], b"b.nc", b"*.nc"] {
            check(&mut requested, path, FILE).unwrap();
        }
        for path in [&b".bashrc"[..], b".x.nc", b"a.ncx", b"a.nc/x"] {
            assert!(check(&mut requested, path, FILE).is_err(), "{path:?}");
        }
        let mut odd = RequestedEntries::new(&[b"x[".to_vec()], false, Extras::default());
        check(&mut odd, b"x[", FILE).unwrap();
        assert!(check(&mut odd, b"xa", FILE).is_err(), "no pattern, but a name");
    }

    #[test]
    fn each_source_needs_an_entry_unless_its_name_is_unknown() {
        let of = |sources: &[&str]| {
            let sources: Vec<_> = sources.iter().map(|source| source.as_bytes().to_vec()).collect();
            RequestedEntries::new(&sources, true, Extras::default()).each_of(&sources)
        };
        of(&["d/", "", "a/*.nc", ".."]).end().unwrap();
        let mut two = of(&["d/a", "b", "d/a"]);
        check(&mut two, b"b/c", FILE).unwrap();
        let refusal = two.end().unwrap_err().message;
        assert!(refusal.contains("sent nothing of 'a'"), "{refusal}");
        check(&mut two, b"a", FILE).unwrap();
        two.end().unwrap();
    }

    #[test]
    fn links_and_attributes_come_only_on_request() {
        let requested = |archive_mode, hard_links| {
            let options = TransferOptions { archive_mode, hard_links, ..<_>::default() };
            RequestedEntries::new(&[b"d".to_vec()], true, Extras::of(&options))
        };
        let takes = |requested: &mut RequestedEntries| {
            let more = More { owner: Some(Owner { user: 1, group: 1 }), ..More::default() };
            let (mode, modified_ns, more) = (None, None, Some(Box::new(more)));
            let owned = Entry { path: b"d/f".to_vec(), kind: FILE, mode, modified_ns, more };
            let kinds = [EntryKind::SymbolicLink, EntryKind::HardLink];
            let [symbolic, hard] = kinds.map(|kind| check(requested, b"d/l", kind).is_ok());
            (symbolic, hard, requested.check(&owned).is_ok())
        };
        assert_eq!(takes(&mut requested(false, false)), (false, false, false));
        assert_eq!(takes(&mut requested(false, true)), (false, true, false));
        assert_eq!(takes(&mut requested(true, false)), (true, true, true));
    }

    #[test]
    fn a_request_for_directory_content_accepts_any_names() {
        for source in ["", "/", "dir/", "dir/.", "dir/.."] {
            let mut with = requested(&[source], true);
            check(&mut with, b"a", FILE).unwrap();
            check(&mut with, b".b/c", FILE).unwrap();
            // Without directories the peer can only report that the name is a directory.
            let mut without = requested(&[source], false);
            assert!(check(&mut without, b"a", FILE).is_err());
            let name = if source.ends_with("dir/") { &b"dir"[..] } else { b"unnamed" };
            check(&mut without, name, EntryKind::File(0)).unwrap();
        }
    }
}
