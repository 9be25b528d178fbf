//! `--receipt`: both ends hash the files of a finished copy, and sign a statement about them.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabul::files::receipts::{
    Attestation, AttestedFiles, Bag, BagError, CommandFacts, Draft, FileHashes, Lost, PAYLOAD,
    Part, Party, Place, ReceivedFiles, Role, SentFiles, Signer, Statement, ToHash,
};
use sabul::files::{RemoteDestination, Seen, SeenKind, SourceSet, View};
use sabul::internal::Rules;
use sabul::internal::compare::ReadParts;
use sabul::keys::Fingerprint;
use sabul::{Error, Failure, Report, Session, TransferOptions};
use sabul_content::Printable;
use sabul_units::{count, show_bytes};
use tokio::runtime::Handle;

use super::entries::Entries;
use super::listings::Remote;
use super::names::join;
use super::plan::{Plan, source_set};
use crate::args::{CopyArgs, ReceiptArgs};
use crate::error::CliError;
use crate::{keys, links};

/// Difference of a file that prevents a receipt, and the remedy.
const DIFFERENT: &str =
    "the source and the destination differ; copy again, with --checksum if their times are equal";
/// Name and version of this program.
const SOFTWARE: &str = concat!("sabul ", env!("CARGO_PKG_VERSION"));
/// Files that one end may be ahead of the other.
const AHEAD_MAX: usize = 256;

/// The receipt of a copy.
#[derive(Debug)]
pub(super) struct Receipt {
    /// Directory and key of a signed receipt.
    signed: Option<(PathBuf, Arc<Signer>)>,
    /// The destination becomes a bag.
    bag: bool,
    /// Name of the command.
    command: &'static str,
}

impl Receipt {
    /// Returns the receipt that the arguments request. Finds the key of this end before anything is copied.
    pub(super) fn of(args: &CopyArgs, command: &'static str) -> Result<Option<Self>, CliError> {
        let ReceiptArgs { receipt, bag, receipt_key } = &args.receipt;
        if receipt.is_none() && !*bag {
            return Ok(None);
        }
        let identity = args.channel.identity.as_deref();
        let signed = match receipt {
            Some(folder) => Some((folder.clone(), keys::signer(receipt_key.as_deref(), identity)?)),
            None => None,
        };
        Ok(Some(Self { signed, bag: *bag, command }))
    }

    /// The key of this end.
    pub(super) fn signer(&self) -> Option<Arc<Signer>> {
        self.signed.as_ref().map(|(_, signer)| Arc::clone(signer))
    }

    /// Checks that places can have a receipt.
    pub(super) fn check(args: &CopyArgs, plan: &Plan) -> Result<(), CliError> {
        let refuse = |why: &str| Err(CliError::usage(format!("--receipt {why}")));
        if plan.reads_stdin() || plan.writes_stdout() {
            return refuse("needs files at both ends, not '-'");
        }
        if args.copy_links && !plan.is_put() {
            return refuse("does not support -L for downloads; leave out -L");
        }
        Ok(())
    }

    /// Checks before the copy that the other end can sign.
    pub(super) async fn probe(&self, plan: &Plan, session: &Session) -> Result<(), CliError> {
        let (part, places) = other_end(plan, Vec::new());
        let attested = session.attest(part, places, false, self.signed.is_some()).await;
        attested.map(drop).map_err(|error| {
            let error = CliError::from(error);
            let machines = plan.machines();
            match machines.source.or(machines.destination) {
                Some(machine) if !error.is_lost() => {
                    let message = format!("{machine}: {error}");
                    error.in_words(message)
                }
                _ => error,
            }
        })
    }

    /// Writes the receipt of a finished copy. With `growing`, a source may be longer than its copy. Returns a line for
    /// the user.
    pub(super) async fn write(
        &self,
        args: &CopyArgs,
        plan: &Plan,
        session: &Session,
        options: &TransferOptions,
        (report, growing): (&Report, bool),
    ) -> Result<String, CliError> {
        let stop = Arc::new(AtomicBool::new(false));
        let guard = StopOnDrop(Arc::clone(&stop));
        // Opened before the files are read: later, another user may put another directory under the name.
        let bag_place = match plan {
            Plan::Get { destination, .. } if self.bag => Some(open_bag(destination)?),
            _ => None,
        };
        let work = Work {
            signed: self.signed.clone(),
            bag: self.bag.then(Bag::default),
            command: self.facts(plan, report),
            in_place: report.in_place,
            growing,
            recursive: args.recursive,
            archive: args.archive,
            links_out: args.copy_links,
            rules: Rules::new(&args.rules.0).map_err(|why| CliError::usage(why.to_string()))?,
            entries: source_entries(args, plan, session)?,
            plan: plan.clone(),
            session: session.clone(),
            runtime: Handle::current(),
            stop,
        };
        let written = tokio::task::spawn_blocking(move || work.all()).await;
        drop(guard);
        let written = written.map_err(|_| CliError::failed("the receipt was not written"))??;
        let files = format!("{} ({})", count(written.files, "file"), show_bytes(written.bytes));
        if let Some(bag) = written.bag {
            write_bag(&bag, bag_place, plan, session, options).await?;
        }
        let bag = if self.bag { "the destination is a bag" } else { "" };
        let Some((folder, _)) = &self.signed else { return Ok(format!("{bag}: {files}")) };
        let folder = folder.display();
        let also = if self.bag { format!("; {bag}") } else { String::new() };
        Ok(format!(
            "receipt in {folder}: {files}, signed by both ends; check it with: sabul verify {folder}{also}"
        ))
    }

    fn facts(&self, plan: &Plan, report: &Report) -> CommandFacts {
        let lost = report.not_kept.iter().filter(|lost| lost.count > 0);
        CommandFacts {
            run_by: if plan.is_put() { Role::Sender } else { Role::Receiver },
            name: self.command.to_owned(),
            not_kept: lost
                .map(|lost| Lost {
                    what: format!("{:?}", lost.what).to_lowercase(),
                    entries: lost.count,
                })
                .collect(),
            grown: 0,
        }
    }
}

/// Opens the directory of a local bag.
fn open_bag(payload: &OsStr) -> Result<Place, CliError> {
    let path = Path::new(OsStr::from_bytes(bag_of(payload.as_bytes())));
    // Without the slash at its end, the path of a link is that of the link.
    let opened = links::target(path.components().as_path()).and_then(|path| Place::open(&path));
    opened.map_err(|error| {
        CliError::failed(format!("cannot open the bag '{}': {error}", path.display()))
    })
}

/// Writes the tag files of a bag into the destination; `place` is the open directory of a local bag.
async fn write_bag(
    bag: &Bag,
    place: Option<Place>,
    plan: &Plan,
    session: &Session,
    options: &TransferOptions,
) -> Result<(), CliError> {
    let fail = |why: BagError| CliError::failed(why.to_string());
    if let Some(place) = place {
        return bag.write(&place, SOFTWARE).map_err(fail);
    }
    let Plan::Put { destination, .. } = plan else { return Ok(()) };
    let no_tags = |error: io::Error| {
        CliError::failed(format!("cannot make a directory for the files of the bag: {error}"))
    };
    let tags = tempfile::tempdir().map_err(no_tags)?;
    bag.write(&Place::open(tags.path()).map_err(no_tags)?, SOFTWARE).map_err(fail)?;
    let sources = SourceSet::path(tags.path().join(""));
    let mut to = RemoteDestination::path(bag_of(&destination.path).to_vec());
    to.into_directory = true;
    // The rules are those of the payload.
    let options = options.clone().rules(Vec::new());
    let transfer = session.put(sources, to, &options).await?;
    transfer.finish().await?.into_result()?;
    Ok(())
}

/// The directory of a bag, from that of its payload.
fn bag_of(payload: &[u8]) -> &[u8] {
    let path = payload.strip_suffix(b"/").unwrap_or(payload);
    path.strip_suffix(PAYLOAD.as_bytes()).unwrap_or(path)
}

/// Stops the work on its thread if nobody waits for the result.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Entries of the source, in the order of the walk.
fn source_entries(args: &CopyArgs, plan: &Plan, session: &Session) -> Result<Entries, CliError> {
    match plan {
        Plan::Put { sources, .. } => {
            let rules =
                Rules::new(&args.rules.0).map_err(|why| CliError::usage(why.to_string()))?;
            let set = source_set(sources, args.recursive)?
                .with_rules(rules)
                .with_archive_mode(args.archive)
                .with_links_out(args.copy_links);
            Ok(Box::new(set.plan_compared(ReadParts::default()).map(Ok)))
        }
        Plan::Get { sources, .. } => {
            let view = match (args.archive, args.recursive) {
                (true, _) => View::Archive,
                (_, true) => View::Tree,
                _ => View::Files,
            };
            let listing = session.list(sources.clone(), view, args.rules.0.clone())?;
            Ok(Box::new(Remote { listing, runtime: Handle::current() }))
        }
    }
}

/// Part and places of the other end; `root` is the directory of the files at the destination.
fn other_end(plan: &Plan, root: Vec<u8>) -> (Part, Vec<Vec<u8>>) {
    match plan {
        Plan::Put { .. } => (Part::Receiver, vec![root]),
        Plan::Get { sources, .. } => (Part::Sender, sources.clone()),
    }
}

/// Paths of the files at the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Places {
    /// The directory at which all paths start.
    root: Vec<u8>,
    /// The first component of each name is left out.
    is_stripped: bool,
    /// The path of the only file, if its name was replaced.
    only: Option<Vec<u8>>,
    /// Directory in front of each path.
    payload: &'static str,
}

impl Places {
    /// Places of a copy to `to`. `first` is the name of its first file.
    fn new(to: &[u8], in_place: bool, first: Option<&[u8]>) -> Self {
        let is_file = first.is_some_and(|first| !first.contains(&b'/'));
        if !in_place || !is_file {
            return Self { root: to.to_vec(), is_stripped: in_place, only: None, payload: "" };
        }
        let end = to.iter().rposition(|&byte| byte == b'/');
        let (root, name) = match end {
            Some(0) => (b"/".to_vec(), &to[1..]),
            Some(end) => (to[..end].to_vec(), &to[end + 1..]),
            None => (Vec::new(), to),
        };
        Self { root, is_stripped: false, only: Some(name.to_vec()), payload: "" }
    }

    /// Places of a copy to the payload directory of a bag.
    fn of_bag(payload: &[u8]) -> Self {
        let root = bag_of(payload).to_vec();
        Self { root, is_stripped: false, only: None, payload: PAYLOAD }
    }

    /// The path of an entry.
    fn path(&self, name: &[u8]) -> Vec<u8> {
        match (&self.only, self.is_stripped) {
            (Some(only), _) => only.clone(),
            (None, true) => name
                .iter()
                .position(|&byte| byte == b'/')
                .map_or_else(Vec::new, |slash| name[slash + 1..].to_vec()),
            (None, false) => join(self.payload.as_bytes(), name),
        }
    }
}

/// Everything that the receipt needs, for a thread that may block.
struct Work {
    signed: Option<(PathBuf, Arc<Signer>)>,
    bag: Option<Bag>,
    command: CommandFacts,
    in_place: bool,
    /// A source may be longer than its copy.
    growing: bool,
    recursive: bool,
    archive: bool,
    links_out: bool,
    rules: Rules,
    entries: Entries,
    plan: Plan,
    session: Session,
    runtime: Handle,
    stop: Arc<AtomicBool>,
}

impl Work {
    fn all(mut self) -> Result<Written, CliError> {
        let mut first = self.next_file()?;
        let to = match &self.plan {
            Plan::Put { destination, .. } => destination.path.clone(),
            Plan::Get { destination, .. } => destination.as_bytes().to_vec(),
        };
        let name = first.as_ref().map(|(name, _)| &name[..]);
        let places = match self.bag {
            Some(_) => Places::of_bag(&to),
            None => Places::new(&to, self.in_place, name),
        };
        let (part, far_places) = other_end(&self.plan, places.root.clone());
        let far = self.session.attest(part, far_places, self.archive, self.signed.is_some());
        let far = self.runtime.block_on(far)?;
        let near = self.near(&places)?;
        let draft = self.signed.as_ref().map(|(folder, _)| draft(folder)).transpose()?;
        let bag = self.bag.take();
        let (growing, ahead) = (self.growing, VecDeque::new());
        let mut hashing = Hashing {
            near,
            far,
            draft,
            bag,
            written: Written::default(),
            growing,
            grown: 0,
            ahead,
        };
        while let Some((name, size)) = first.take() {
            hashing.add(&places.path(&name), name, size, &self.stop)?;
            if hashing.ahead.len() >= AHEAD_MAX {
                hashing.settle(&self.stop)?;
            }
            first = self.next_file()?;
        }
        while !hashing.ahead.is_empty() {
            hashing.settle(&self.stop)?;
        }
        if let Some(bag) = &hashing.bag {
            self.check_bag(bag)?;
        }
        self.conclude(hashing, &places)
    }

    /// Returns the name and size of the next file of the source.
    fn next_file(&mut self) -> Result<Option<(Vec<u8>, u64)>, CliError> {
        for seen in self.entries.by_ref() {
            let Seen { path, outcome, .. } = seen?;
            let facts = outcome.map_err(|failure| no_receipt(&path, &failure.to_string()))?;
            if facts.kind == SeenKind::File {
                return Ok(Some((path, facts.size)));
            }
        }
        Ok(None)
    }

    /// Checks that the destination has nothing that makes the bag invalid: payload files or links that are not of this
    /// copy, and other manifests.
    fn check_bag(&self, bag: &Bag) -> Result<(), CliError> {
        let _entered = self.runtime.enter();
        let (payload, beside) = self.bag_entries()?;
        let copied = bag.payload();
        let refuse = |path: &[u8], why: &str| {
            Err(CliError::failed(format!("the destination is no bag: '{}' {why}", Printable(path))))
        };
        for seen in payload {
            let Seen { path, outcome, .. } = seen?;
            match outcome.map(|facts| facts.kind) {
                Ok(SeenKind::Directory) => {}
                Ok(SeenKind::File) if copied.has(&path) => {}
                Ok(SeenKind::File) => {
                    return refuse(
                        &path,
                        "is not of this copy; remove it, or name a new directory",
                    );
                }
                Ok(_) => {
                    return refuse(&path, "is not a file; remove it there, and copy without -a");
                }
                Err(failure) => {
                    return Err(CliError::failed(format!("the destination is no bag: {failure}")));
                }
            }
        }
        match beside.iter().find(|name| std::str::from_utf8(name).is_ok_and(Bag::is_foreign)) {
            Some(name) => {
                refuse(name, "does not match this copy; remove it, or name a new directory")
            }
            None => Ok(()),
        }
    }

    /// Entries of the payload directory of a bag, and the names beside this directory.
    fn bag_entries(&self) -> Result<(Entries, Vec<Vec<u8>>), CliError> {
        match &self.plan {
            Plan::Put { destination, .. } => {
                let root = bag_of(&destination.path);
                let list = |place: Vec<u8>, view| {
                    let listing = self.session.list(vec![place], view, Vec::new())?;
                    Ok::<_, CliError>(Remote { listing, runtime: self.runtime.clone() })
                };
                let last =
                    |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().map(<[u8]>::to_vec);
                let beside = list(root.to_vec(), View::Content)?
                    .map(|seen| Ok::<_, CliError>(last(&seen?.path).unwrap_or_default()));
                let beside = beside.collect::<Result<_, _>>()?;
                let payload = list([root, PAYLOAD.as_bytes()].concat(), View::Archive)?;
                Ok((Box::new(payload), beside))
            }
            Plan::Get { destination, .. } => {
                let root = bag_of(destination.as_bytes());
                let payload = OsString::from_vec([root, PAYLOAD.as_bytes()].concat());
                let set = source_set(&[payload], true)?.with_archive_mode(true);
                let root = if root.is_empty() { &b"."[..] } else { root };
                let listed = std::fs::read_dir(OsStr::from_bytes(root)).and_then(|entries| {
                    entries.map(|entry| Ok(entry?.file_name().into_vec())).collect()
                });
                let beside = listed.map_err(|error| {
                    CliError::failed(format!("cannot list the bag '{}': {error}", Printable(root)))
                })?;
                let payload = set.plan_compared(ReadParts::default()).map(Ok);
                Ok((Box::new(payload), beside))
            }
        }
    }

    /// The files of this end.
    fn near(&self, places: &Places) -> Result<AttestedFiles, CliError> {
        Ok(match &self.plan {
            Plan::Put { sources, .. } => {
                let set = source_set(sources, self.recursive)?
                    .with_rules(self.rules.clone())
                    .with_archive_mode(self.archive)
                    .with_links_out(self.links_out);
                AttestedFiles::Sent(Box::new(SentFiles::new(set)))
            }
            Plan::Get { .. } => {
                let files = ReceivedFiles::new(None, places.root.clone());
                AttestedFiles::Received(files.map_err(Error::from)?)
            }
        })
    }

    fn conclude(mut self, hashing: Hashing, places: &Places) -> Result<Written, CliError> {
        let Hashing { near, mut far, draft, bag, mut written, grown, .. } = hashing;
        written.bag = bag;
        self.command.grown = grown;
        let fail = |why: String| CliError::failed(format!("no receipt was written: {why}"));
        let of_far = far.finish()?;
        near.finish().map_err(Error::from)?;
        let (Some(draft), Some((_, signer))) = (draft, &self.signed) else { return Ok(written) };
        let of_far = Party::parse(&of_far).map_err(|why| fail(why.to_string()))?;
        let role = self.command.run_by;
        let place = match &self.plan {
            Plan::Put { sources, .. } => shown(sources),
            Plan::Get { .. } => shown(&[OsString::from_vec(places.root.clone())]),
        };
        let own = Party::of_this_end(role, &place, SOFTWARE, None, signer);
        let far_key = of_far.key.clone();
        let (sender, receiver) = match role {
            Role::Sender => (own, of_far),
            Role::Receiver => (of_far, own),
        };
        if sender.read_at.is_none() || receiver.durable_at.is_none() {
            return Err(fail(
                "the other end does not state when it read or wrote the files".to_owned(),
            ));
        }
        let statement = Statement::new(draft.manifests(), sender, receiver, self.command);
        let text = statement.encode();
        let of_far = far.sign(text.clone())?;
        let signed =
            sabul::keys::verify_receipt(&text, &of_far).map_err(|why| fail(why.to_string()))?;
        if Some(signed) != Fingerprint::of_line(&far_key) {
            return Err(fail("the other end signed with another key than it stated".to_owned()));
        }
        let own = signer.sign(&text).map_err(|why| fail(why.to_string()))?;
        let (by_receiver, by_sender) = match role {
            Role::Sender => (of_far, own),
            Role::Receiver => (own, of_far),
        };
        draft
            .finish(&statement, &by_receiver, &by_sender)
            .map_err(|why| CliError::failed(why.to_string()))?;
        Ok(written)
    }
}

/// Begins a receipt in a directory.
fn draft(folder: &Path) -> Result<Draft, CliError> {
    let folder = links::target(folder.components().as_path()).map_err(|error| {
        CliError::failed(format!("cannot write the receipt to '{}': {error}", folder.display()))
    })?;
    Draft::create(&folder).map_err(|why| CliError::failed(why.to_string()))
}

/// Text of local places.
fn shown(places: &[OsString]) -> String {
    let text = |place: &OsString| {
        let place = if place.is_empty() { OsStr::new(".") } else { place };
        let path = std::path::absolute(place).unwrap_or_else(|_| Path::new(place).to_owned());
        Printable(path.as_os_str().as_bytes()).to_string()
    };
    places.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// Result of the work.
#[derive(Default)]
struct Written {
    files: u64,
    bytes: u64,
    bag: Option<Bag>,
}

/// Both ends while they hash the same files.
struct Hashing {
    near: AttestedFiles,
    far: Attestation,
    draft: Option<Draft>,
    bag: Option<Bag>,
    written: Written,
    growing: bool,
    /// Files whose source is longer than the copy.
    grown: u64,
    /// Files that this end has hashed and whose answer is awaited.
    ahead: VecDeque<(ToHash, FileHashes)>,
}

impl Hashing {
    /// Names a file to the other end, and hashes the file here meanwhile.
    fn add(
        &mut self,
        path: &[u8],
        name: Vec<u8>,
        size: u64,
        stop: &AtomicBool,
    ) -> Result<(), CliError> {
        let bytes = match &self.near {
            AttestedFiles::Sent(_) => size,
            AttestedFiles::Received(files) => {
                let here = files.size(path).map_err(|why| no_receipt(path, &why.to_string()))?;
                if self.growing && here < size {
                    self.grown += 1;
                } else if here != size {
                    return Err(no_receipt(path, DIFFERENT));
                }
                here
            }
        };
        let name = if name == path { Vec::new() } else { name };
        let file = ToHash { path: path.to_vec(), name, bytes };
        self.far.add(file.clone())?;
        let hashes = self.hash(&file, stop)?;
        self.ahead.push_back((file, hashes));
        Ok(())
    }

    fn hash(&mut self, file: &ToHash, stop: &AtomicBool) -> Result<FileHashes, CliError> {
        let is_over = || stop.load(Ordering::Acquire);
        self.near.hash(file, &is_over).map_err(|why| no_receipt(&file.path, &why.to_string()))
    }

    /// Compares the hashes of both ends of the next file.
    fn settle(&mut self, stop: &AtomicBool) -> Result<(), CliError> {
        let Some((mut file, mut near)) = self.ahead.pop_front() else { return Ok(()) };
        let far =
            self.far.answer()?.map_err(|why: Failure| no_receipt(&file.path, &why.to_string()))?;
        let is_sender = matches!(self.near, AttestedFiles::Sent(_));
        if self.growing && is_sender && far.bytes < near.bytes {
            file.bytes = far.bytes;
            near = self.hash(&file, stop)?;
            self.grown += 1;
        }
        if near != far {
            return Err(no_receipt(&file.path, DIFFERENT));
        }
        if let Some(draft) = &mut self.draft {
            draft.add(&file.path, &far).map_err(|why| CliError::failed(why.to_string()))?;
        }
        if let Some(bag) = &mut self.bag {
            bag.add(&file.path, &far).map_err(|why| no_receipt(&file.path, &why.to_string()))?;
        }
        self.written.files += 1;
        self.written.bytes += far.bytes;
        Ok(())
    }
}

/// Error about a file that prevents the receipt.
fn no_receipt(path: &[u8], why: &str) -> CliError {
    CliError::unverified(format!("no receipt was written: '{}': {why}", Printable(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_receipt_start_at_the_copied_root() {
        let places = |to: &[u8], in_place, first: &[u8]| Places::new(to, in_place, Some(first));
        let inside = places(b"to/", false, b"a/b");
        assert_eq!((&inside.root[..], inside.path(b"a/b")), (&b"to/"[..], b"a/b".to_vec()));
        let renamed = places(b"x/to", true, b"a/b/c");
        assert_eq!((&renamed.root[..], renamed.path(b"a/b/c")), (&b"x/to"[..], b"b/c".to_vec()));
        for (to, root) in [(&b"x/y/name"[..], &b"x/y"[..]), (b"name", b""), (b"/name", b"/")] {
            let file = places(to, true, b"a");
            assert_eq!((&file.root[..], file.path(b"a")), (root, b"name".to_vec()));
        }
        assert_eq!(Places::new(b"to", true, None).root, b"to");
        let bag = Places::of_bag(b"x/bag/data/");
        assert_eq!((&bag.root[..], bag.path(b"a/b")), (&b"x/bag/"[..], b"data/a/b".to_vec()));
    }
}
