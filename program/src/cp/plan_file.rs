//! Plan files: the changes of `sabul sync --dry-run` as JSON lines, carried out by `sabul apply`.
//!
//! The first line has the places and the options, each further line a change, and the last line the number of changes
//! and the BLAKE3 hash of all lines before. [`Planned`] compares the changes of a new comparison with the plan.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use sabul::files::{Facts, Rule, RuleKind, SeenKind};
use sabul::internal::compare::{Difference, Named, NamedContent, NamedSet};
use sabul::internal::{Location, Rules};
use sabul::{Failure, FailureCode};
use sabul_content::Tree;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::args::{ApplyArgs, CopyArgs, RulesArgs, SyncArgs, parse_chmod};
use crate::error::CliError;

/// Version of the format.
const VERSION: u32 = 1;

/// First line: places and options of the comparison.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    plan: u32,
    from: Name,
    to: Name,
    archive: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    hard_links: bool,
    preserve: bool,
    checksum: bool,
    copy_links: bool,
    delete: bool,
    delete_limit: Option<u64>,
    trash: Option<Name>,
    update: bool,
    size_only: bool,
    existing: bool,
    ignore_existing: bool,
    modify_window: u32,
    rules: Vec<RuleLine>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    chmod: Option<String>,
    /// Names of `--files-from`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    names: Option<Vec<NamedLine>>,
}

/// A rule of `--include` or `--exclude`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RuleLine {
    Include(Name),
    Exclude(Name),
    /// Name of the rule files of `--ignore-name`.
    Files(Name),
}

/// A name of `--files-from`, by the listed part of its content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NamedLine {
    Entry(Name),
    Entries(Name),
    All(Name),
}

/// Last line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Foot {
    changes: u64,
    blake3: String,
}

/// A change, as one line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
enum Change {
    /// Copy the entry.
    Copy { path: Name, source: Known, old: Option<Known> },
    /// Set the metadata of the entry.
    Set { path: Name, source: Known, old: Known },
    /// Remove the entry.
    Remove { path: Name, old: Known },
}

/// A path. Paths that are not UTF-8 are written in hexadecimal digits.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Hex { hex: String },
}

/// Metadata of an entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    kind: Kind,
    size: u64,
    mode: u32,
    modified_ns: Option<i64>,
    owner: u32,
    group: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    blake3: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    File,
    Directory,
    Link,
    Other,
}

/// A plan file in progress. The file gets its name at the end.
#[derive(Debug)]
pub(super) struct PlanWriter {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
    hash: Tree,
    changes: u64,
}

/// Changes of a plan that were not met yet, by path.
#[derive(Clone, Debug, Default)]
pub(super) struct Planned {
    copies: HashMap<Vec<u8>, (Known, Option<Known>)>,
    sets: HashMap<Vec<u8>, (Known, Known)>,
    removals: HashMap<Vec<u8>, Known>,
}

/// Decision about a change of the new comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The change is in the plan.
    Permitted,
    /// The plan has no such change.
    Unplanned,
    /// An entry changed since the plan was made.
    Changed(&'static str),
}

impl PlanWriter {
    /// Starts a plan of this command.
    pub(super) fn new(path: &Path, args: &SyncArgs) -> Result<Self, CliError> {
        let fail = |error: io::Error| cannot_write(path, &error);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let file = tempfile::Builder::new()
            .prefix(".sabul-plan-")
            .tempfile_in(folder.unwrap_or_else(|| Path::new(".")))
            .map_err(fail)?;
        let mut writer = Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
            hash: Tree::new(0),
            changes: 0,
        };
        writer.line(&Head::of(args)?)?;
        Ok(writer)
    }

    /// Adds a change.
    pub(super) fn add(&mut self, difference: &Difference, removes: bool) -> Result<(), CliError> {
        let change = match difference {
            Difference::Copy { path, source, old } => Change::Copy {
                path: Name::of(path),
                source: Known::of(source),
                old: old.as_ref().map(Known::of),
            },
            Difference::Adjust { path, source, old } => {
                Change::Set { path: Name::of(path), source: Known::of(source), old: Known::of(old) }
            }
            Difference::Extra { path, old } if removes => {
                Change::Remove { path: Name::of(path), old: Known::of(old) }
            }
            _ => return Ok(()),
        };
        self.changes += 1;
        self.line(&change)
    }

    /// Completes the file.
    pub(super) fn finish(mut self) -> Result<(), CliError> {
        let foot = Foot { changes: self.changes, blake3: hex(&self.hash.hash()) };
        self.line(&foot)?;
        let path = self.path;
        let fail = |error: io::Error| cannot_write(&path, &error);
        let file = self.file.into_inner().map_err(|error| fail(error.into_error()))?;
        file.as_file().sync_all().map_err(fail)?;
        file.persist(&path).map_err(|error| fail(error.error))?;
        Ok(())
    }

    fn line(&mut self, line: &impl Serialize) -> Result<(), CliError> {
        let mut text = serde_json::to_vec(line)
            .map_err(|error| cannot_write(&self.path, &io::Error::other(error)))?;
        text.push(b'\n');
        self.hash.update(&text);
        self.file.write_all(&text).map_err(|error| cannot_write(&self.path, &error))
    }
}

/// Reads a plan. Returns the command that made the plan, with the other options of `args`, and the changes.
pub(super) fn read(path: &Path, args: ApplyArgs) -> Result<(SyncArgs, Planned), CliError> {
    let shown = path.display();
    let ApplyArgs { delete_limit, whole_file, copy } = args;
    let text = std::fs::read(path).map_err(|error| {
        let remedy = "check the name, or make a plan with 'sabul sync -n --plan FILE'";
        CliError::usage(format!("cannot read the plan {shown}: {error}; {remedy}"))
    })?;
    let again = "make a new plan with 'sabul sync -n --plan FILE'";
    let damaged = |why: &str| {
        CliError::unverified(format!(
            "the plan {shown} is incomplete or was changed: {why}; {again}"
        ))
    };
    let body = text.strip_suffix(b"\n").ok_or_else(|| damaged("the last line has no end"))?;
    let start = body.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let (lines, foot) = text.split_at(start);
    let foot: Foot = serde_json::from_slice(foot)
        .map_err(|_| damaged("the last line is not the line with the hash"))?;
    let mut hash = Tree::new(0);
    hash.update(lines);
    if hex(&hash.hash()) != foot.blake3 {
        return Err(damaged("its hash does not match"));
    }
    let mut lines = lines.split_inclusive(|&byte| byte == b'\n');
    let refuse = |number: usize, error: serde_json::Error| {
        CliError::usage(format!("the plan {shown}, line {number}: {error}; {again}"))
    };
    let head = lines.next().unwrap_or_default();
    let mut head: Head = serde_json::from_slice(head).map_err(|error| refuse(1, error))?;
    head.delete_limit = delete_limit.or(head.delete_limit);
    if head.plan != VERSION {
        return Err(CliError::usage(format!(
            "the plan {shown} has format {}, and this program reads format {VERSION}; {again}",
            head.plan
        )));
    }
    let mut planned = Planned::default();
    let mut changes = 0;
    for (number, line) in lines.enumerate() {
        let change = serde_json::from_slice(line).map_err(|error| refuse(number + 2, error))?;
        planned.add(change).map_err(|()| damaged("a path is invalid"))?;
        changes += 1;
    }
    if changes != foot.changes {
        return Err(damaged("the number of changes does not match"));
    }
    if !head.delete && !planned.removals.is_empty() {
        return Err(damaged("it removes entries, and was made without --delete"));
    }
    let args =
        head.into_args(copy, whole_file).ok_or_else(|| damaged("a path or rule is invalid"))?;
    Ok((args, planned))
}

impl Head {
    fn of(args: &SyncArgs) -> Result<Self, CliError> {
        let copy = &args.copy;
        let [from, to] = &copy.places[..] else {
            return Err(CliError::usage("give one source and one destination"));
        };
        let rule = |rule: &Rule| match rule.kind {
            RuleKind::Include => RuleLine::Include(Name::of(&rule.pattern)),
            RuleKind::Exclude => RuleLine::Exclude(Name::of(&rule.pattern)),
            RuleKind::Files => RuleLine::Files(Name::of(&rule.pattern)),
        };
        Ok(Self {
            plan: VERSION,
            from: absolute(from)?,
            to: absolute(to)?,
            archive: copy.archive,
            hard_links: copy.hard_links,
            preserve: copy.preserve,
            checksum: copy.checksum,
            copy_links: copy.copy_links,
            delete: args.delete,
            delete_limit: args.delete_limit,
            trash: args.trash.as_ref().map(|trash| trash_of(to, trash.as_os_str())).transpose()?,
            update: args.update,
            size_only: args.size_only,
            existing: args.existing,
            ignore_existing: args.ignore_existing,
            modify_window: args.modify_window,
            rules: copy.rules.0.iter().map(rule).collect(),
            chmod: copy.chmod.as_ref().map(|chmod| chmod.text().to_owned()),
            names: args.names.as_ref().map(|names| names.iter().map(NamedLine::of).collect()),
        })
    }

    fn into_args(self, copy: CopyArgs, whole_file: bool) -> Option<SyncArgs> {
        let rule = |line: RuleLine| {
            let (kind, pattern) = match line {
                RuleLine::Include(pattern) => (RuleKind::Include, pattern),
                RuleLine::Exclude(pattern) => (RuleKind::Exclude, pattern),
                RuleLine::Files(name) => (RuleKind::Files, name),
            };
            Some(Rule { kind, pattern: pattern.bytes()? })
        };
        let rules: Vec<Rule> = self.rules.into_iter().map(rule).collect::<Option<_>>()?;
        Rules::new(&rules).ok()?;
        let chmod = self.chmod.as_deref().map(parse_chmod).transpose().ok()?;
        let names = match self.names {
            Some(names) => {
                let names: Option<Vec<_>> = names.into_iter().map(NamedLine::named).collect();
                NamedSet::new(names.as_deref()?).ok()?;
                names
            }
            None => None,
        };
        let place = |name: Name| Some(OsString::from_vec(name.bytes()?));
        let trash = match self.trash {
            Some(trash) => Some(PathBuf::from(place(trash)?)),
            None => None,
        };
        Some(SyncArgs {
            detach: false,
            delete: self.delete,
            delete_limit: self.delete_limit,
            trash,
            update: self.update,
            size_only: self.size_only,
            existing: self.existing,
            ignore_existing: self.ignore_existing,
            modify_window: self.modify_window,
            itemize_changes: copy.verbose > 0,
            plan: None,
            files_from: None,
            from0: false,
            names,
            whole_file,
            copy: CopyArgs {
                places: vec![place(self.from)?, place(self.to)?],
                recursive: true,
                archive: self.archive,
                hard_links: self.hard_links,
                preserve: self.preserve,
                checksum: self.checksum,
                copy_links: self.copy_links,
                rules: RulesArgs(rules),
                chmod,
                ..copy
            },
        })
    }
}

impl NamedLine {
    fn of(named: &Named) -> Self {
        let name = Name::of(&named.path);
        match named.content {
            NamedContent::Nothing => Self::Entry(name),
            NamedContent::Entries => Self::Entries(name),
            NamedContent::All => Self::All(name),
        }
    }

    /// Returns the name; `None` if the digits are invalid.
    fn named(self) -> Option<Named> {
        let (name, content) = match self {
            Self::Entry(name) => (name, NamedContent::Nothing),
            Self::Entries(name) => (name, NamedContent::Entries),
            Self::All(name) => (name, NamedContent::All),
        };
        Some(Named { path: name.bytes()?, content })
    }
}

impl Planned {
    fn add(&mut self, change: Change) -> Result<(), ()> {
        match change {
            Change::Copy { path, source, old } => {
                self.copies.insert(path.bytes().ok_or(())?, (source, old));
            }
            Change::Set { path, source, old } => {
                self.sets.insert(path.bytes().ok_or(())?, (source, old));
            }
            Change::Remove { path, old } => {
                self.removals.insert(path.bytes().ok_or(())?, old);
            }
        }
        Ok(())
    }

    /// Whether the plan changes the entry.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.sets.contains_key(path) || self.copies.contains_key(path)
    }

    /// Decides about an item of the new comparison. An item that is not a change is permitted.
    pub(super) fn verdict(&mut self, difference: &Difference) -> Verdict {
        const SOURCE: &str = "the source changed since the plan was made";
        const DESTINATION: &str = "the destination changed since the plan was made";
        let check = |is_source: bool, is_old: bool| match (is_source, is_old) {
            (true, true) => Verdict::Permitted,
            (false, _) => Verdict::Changed(SOURCE),
            (true, false) => Verdict::Changed(DESTINATION),
        };
        match difference {
            Difference::Copy { path, source, old } => match self.copies.remove(path) {
                // An entry that was removed since cannot be lost.
                Some((planned, before)) => check(
                    planned.is(source),
                    old.as_ref().is_none_or(|old| before.is_some_and(|before| before.is(old))),
                ),
                None if self.sets.remove(path).is_some() => Verdict::Changed(SOURCE),
                None => Verdict::Unplanned,
            },
            Difference::Adjust { path, source, old } => {
                if let Some((planned, before)) = self.sets.remove(path) {
                    return check(
                        planned.is(source),
                        before.is(old) || before.is_narrowed(&planned, old),
                    );
                }
                match self.copies.remove(path) {
                    // An interrupted run made the directory, or renamed a moved file, and did not set the metadata.
                    // The content is that of the source, so nothing is lost.
                    Some((planned, _)) => check(planned.is(source), true),
                    None => Verdict::Unplanned,
                }
            }
            Difference::Extra { path, old } => match self.removals.remove(path) {
                Some(before) => check(true, before.is(old)),
                None if self.copies.remove(path).is_some() => Verdict::Changed(SOURCE),
                None => Verdict::Unplanned,
            },
            Difference::Same { path, .. } => {
                self.copies.remove(path);
                self.sets.remove(path);
                // The entry exists at the source now.
                match self.removals.remove(path) {
                    Some(_) => Verdict::Changed(SOURCE),
                    None => Verdict::Permitted,
                }
            }
            _ => Verdict::Permitted,
        }
    }

    /// Returns a failure for each change whose entry was not met: the source lost the entry.
    pub(super) fn missing(&self) -> Vec<(Vec<u8>, Failure)> {
        let text = "the source has no such entry any more; make a new plan";
        let failure = || Failure::new(FailureCode::Changed, text);
        let mut paths: Vec<_> = self.copies.keys().chain(self.sets.keys()).collect();
        paths.sort_unstable();
        paths.into_iter().map(|path| (path.clone(), failure())).collect()
    }
}

impl Known {
    fn of(facts: &Facts) -> Self {
        let kind = match facts.kind {
            SeenKind::File => Kind::File,
            SeenKind::Directory => Kind::Directory,
            SeenKind::Link => Kind::Link,
            SeenKind::Other => Kind::Other,
        };
        let &Facts { size, mode, modified_ns, owner, group, hash, .. } = facts;
        let blake3 = hash.map(|hash| hex(&hash));
        Self { kind, size, mode, modified_ns, owner, group, blake3 }
    }

    /// Whether an entry is as it was. The size and the time of a directory change with its content.
    fn is(&self, facts: &Facts) -> bool {
        let now = Self::of(facts);
        let is_equal = self.kind == now.kind
            && (self.mode, self.owner, self.group) == (now.mode, now.owner, now.group);
        let is_content_equal = (self.size, self.modified_ns) == (now.size, now.modified_ns)
            && self.blake3 == now.blake3;
        is_equal && (self.kind == Kind::Directory || is_content_equal)
    }

    /// Whether an interrupted run has taken rights of a directory, which it does before the content is copied.
    fn is_narrowed(&self, planned: &Self, facts: &Facts) -> bool {
        let narrow = Self { mode: self.mode & planned.mode, ..self.clone() };
        self.kind == Kind::Directory && narrow.is(facts)
    }
}

impl Name {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex { hex: hex(bytes) },
        }
    }

    /// Returns the path; `None` if the digits are invalid.
    fn bytes(self) -> Option<Vec<u8>> {
        let hex = match self {
            Self::Text(text) => return Some(text.into_bytes()),
            Self::Hex { hex } => hex,
        };
        let digits = hex.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        });
        digits.collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a local place absolute, so that the plan can be used from any directory.
fn absolute(place: &OsStr) -> Result<Name, CliError> {
    let bytes = match Location::parse(place)? {
        Location::Local(path) if Path::new(&path).is_relative() => {
            let folder = std::env::current_dir().map_err(|error| no_directory(&error))?;
            super::names::join(folder.as_os_str().as_bytes(), path.as_bytes())
        }
        _ => place.as_bytes().to_vec(),
    };
    Ok(Name::of(&bytes))
}

/// Trash of a plan. A relative name beside a destination on this machine is one of the current directory.
fn trash_of(to: &OsStr, trash: &OsStr) -> Result<Name, CliError> {
    match Location::parse(to)? {
        Location::Local(_) => {
            let folder = std::env::current_dir().map_err(|error| no_directory(&error))?;
            Ok(Name::of(folder.join(trash).as_os_str().as_bytes()))
        }
        Location::Remote(_) => Ok(Name::of(trash.as_bytes())),
    }
}

fn no_directory(error: &io::Error) -> CliError {
    CliError::failed(format!("cannot find the current directory: {error}"))
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    let path = path.display();
    CliError::failed(format!(
        "cannot write the plan {path}: {error}; choose another file with --plan"
    ))
}
