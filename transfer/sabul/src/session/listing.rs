//! Listing, removal and creation of files over the control connection, without a channel.
//!
//! The answers are subject to the same credit as other messages about entries, and the queues at both ends are bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sabul_units::Rate;
use sabul_wire::control::{
    self, Chunking, Done, Facts, Failure, FailureCode, Identity, ListOptions, Message, NewMetadata,
    Open, Rule, RunDigest, SameRun, Seen, View,
};
use tokio::sync::{mpsc, oneshot};

use super::Session;
use super::chunks::{ChunkList, send_chunks, unpack_chunks};
use super::limits::take_number;
use super::pending::Pending;
use super::shortened::{Entries, send_all};
use crate::config::{Direction, TransferOptions};
use crate::control::{Control, Event, Input, Intake, Mailbox};
use crate::error::Error;
use crate::lock::lock;
use crate::machine::thread;
use crate::transfer::Context;
use sabul_files::ahead::{Expansion, Marks, OwnEntries, read_ahead};
use sabul_files::disk::Disk;
use sabul_files::{
    Chunked, CompareOptions, DirectoryListing, MAX_KEPT_FAILURES, NameChange, RenameOf, rename,
    set_metadata, take_over,
};

/// Most entries queued for the application. Ours: at most 64 MiB, if each entry is a directory with a large rule file.
const WAITING_MAX: usize = 1024;

/// Entries of a listing at the peer, one by one. Dropping the value cancels the listing.
#[derive(Debug)]
pub struct Listing {
    entries: mpsc::Receiver<Result<Listed, Error>>,
    /// The next item, if left out entries may come before it.
    peeked: Option<Listed>,
    /// Inserts left out entries.
    expansion: Option<Expansion>,
    received: u64,
}

/// Item of a listing.
#[derive(Debug)]
pub(super) enum Listed {
    Entry(Seen),
    /// The rest of a run is left out.
    Same(RunDigest),
}

impl Listing {
    /// Number of entries that the peer has sent so far. The peer may leave out entries of a comparison.
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Returns the next entry; `None` at the end.
    ///
    /// # Errors
    /// If the peer refuses or the session is over; no entry follows.
    pub async fn next(&mut self) -> Result<Option<Seen>, Error> {
        loop {
            let item = match self.peeked.take() {
                Some(item) => Some(item),
                None => {
                    let item = self.entries.recv().await.transpose()?;
                    self.received += u64::from(matches!(item, Some(Listed::Entry(_))));
                    item
                }
            };
            match (item, &mut self.expansion) {
                (Some(Listed::Entry(seen)), None) => return Ok(Some(seen)),
                (None, None) => return Ok(None),
                (None, Some(expansion)) => return Ok(expansion.before(None)),
                (Some(Listed::Entry(seen)), Some(expansion)) => {
                    if let Some(left_out) = expansion.before(Some(&seen)) {
                        self.peeked = Some(Listed::Entry(seen));
                        return Ok(Some(left_out));
                    }
                    expansion.listed(&seen);
                    return Ok(Some(seen));
                }
                (Some(Listed::Same(digest)), Some(expansion)) => expansion.same(&digest)?,
                (Some(Listed::Same(_)), None) => {
                    let text = "the peer left out entries of a listing without digests";
                    return Err(Failure::violation(text).into());
                }
            }
        }
    }
}

/// Result of a removal or of the creation of directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// Number of removed names, or of created directories.
    pub names: u64,
    /// The first failed paths, by position in the request, with their causes.
    pub failures: Vec<(usize, Failure)>,
}

impl Session {
    /// Lists paths of the peer, named as the sources of [`Session::get`]. `view` selects the kind of listing of each
    /// path or pattern match; `rules` apply only to the views of a copy.
    ///
    /// # Errors
    /// If the request is too large or the session is over.
    pub fn list(
        &self,
        places: Vec<Vec<u8>>,
        view: View,
        rules: Vec<Rule>,
    ) -> Result<Listing, Error> {
        self.list_for_copy(places, view, ListOptions { rules, ..ListOptions::default() })
    }

    /// As [`Self::list`], with further settings.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn list_for_copy(
        &self,
        places: Vec<Vec<u8>>,
        view: View,
        options: ListOptions,
    ) -> Result<Listing, Error> {
        let request = control::Request::List { places, view, options };
        let mailbox = self.send_request(Direction::Receive, request)?;
        Ok(self.listing(mailbox, None))
    }

    /// As [`Self::list_for_copy`], for a comparison with own entries. `options` selects the facts that the digests cover. The
    /// peer leaves out most entries that this end has too, and the listing inserts them. Returns the own entries and the listing.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn list_beside(
        &self,
        places: Vec<Vec<u8>>,
        view: View,
        options: ListOptions,
        compare: &CompareOptions,
        own: impl Iterator<Item = Seen> + Send + 'static,
    ) -> Result<(OwnEntries, Listing), Error> {
        let digests = options.digests.unwrap_or_default();
        let request = control::Request::List { places, view, options };
        let mailbox = self.send_request(Direction::Receive, request)?;
        let (bulk, transfer) = (self.inner.cx.control.bulk(&mailbox), mailbox.number);
        let (entries, reader, expansion) = read_ahead(compare, own);
        thread("sabul-ahead", move || {
            reader.run(digests, |Marks { digests, until, is_last }| {
                bulk.send(&Message::Digests { transfer, digests, until, is_last })
            });
        })?;
        Ok((entries, self.listing(mailbox, Some(expansion))))
    }

    fn listing(&self, mailbox: Mailbox, expansion: Option<Expansion>) -> Listing {
        let (entry_sender, entries) = mpsc::channel(WAITING_MAX);
        let control = self.inner.cx.control.clone();
        self.inner.cx.machine.spawn(listen(mailbox, control, entry_sender, unpack));
        Listing { entries, peeked: None, expansion, received: 0 }
    }

    /// Returns the rate at which an earlier transfer sent to the peer, if known.
    pub fn known_rate(&self) -> Option<Rate> {
        self.inner.cx.endpoint.paths.of(self.inner.peer.ip()).facts().map(|facts| facts.rate)
    }

    /// Lists the chunks of a file of the peer, which reads the file.
    ///
    /// # Errors
    /// If the request is too large or the session is over.
    pub fn chunks(&self, place: Vec<u8>, chunking: Chunking) -> Result<ChunkList, Error> {
        let request = control::Request::Hash { place, chunking };
        let mailbox = self.send_request(Direction::Receive, request)?;
        let (chunk_sender, chunks) = mpsc::channel(WAITING_MAX);
        let control = self.inner.cx.control.clone();
        self.inner.cx.machine.spawn(listen(mailbox, control, chunk_sender, unpack_chunks));
        Ok(ChunkList { chunks })
    }

    /// Removes files, links and empty directories of the peer, or with `recursive` directories with their content.
    /// Links are not followed. After a failure in one path, names removed before stay removed.
    ///
    /// # Errors
    /// If the peer does not allow removal or the session is over.
    pub async fn remove(&self, places: Vec<Vec<u8>>, recursive: bool) -> Result<Changed, Error> {
        self.change(control::Request::Remove { places, recursive, seen: Vec::new() }).await
    }

    /// Removes files, links and empty directories of the peer, each only if it is the entry that was compared: without
    /// another kind, owner, group, mode or identity, and for a file with the same size and time.
    ///
    /// # Errors
    /// As [`Self::remove`]; at most [`MAX_PLACES`](control::MAX_PLACES) entries.
    pub async fn remove_compared(&self, entries: Vec<(Vec<u8>, Facts)>) -> Result<Changed, Error> {
        let (places, seen) = entries.into_iter().unzip();
        self.change(control::Request::Remove { places, recursive: false, seen }).await
    }

    /// Creates directories at the peer, with missing parents if `parents` is true.
    ///
    /// # Errors
    /// If the peer does not allow writing or the session is over.
    pub async fn make_folders(
        &self,
        places: Vec<Vec<u8>>,
        parents: bool,
    ) -> Result<Changed, Error> {
        let (mode, below) = (None, None);
        self.change(control::Request::MakeFolders { places, parents, mode, below }).await
    }

    /// Creates missing directories at the peer, with missing parents. New directories get these permission bits less the
    /// umask of the peer, and the owner's bits. With `below`, the directory before the mark `/./` of each place must have
    /// this identity.
    ///
    /// # Errors
    /// If the peer does not allow writing or the session is over.
    pub async fn make_folders_as(
        &self,
        places: Vec<Vec<u8>>,
        mode: u32,
        below: Option<Identity>,
    ) -> Result<Changed, Error> {
        let (parents, mode) = (true, Some(mode));
        self.change(control::Request::MakeFolders { places, parents, mode, below }).await
    }

    /// Renames a file, link or directory of the peer in one step. If `to` is a directory, the name is kept inside the
    /// directory. If `to` ends in `/`, it must be a directory. Without `replace` an existing file stays.
    ///
    /// # Errors
    /// If the name was not changed, the peer does not allow writing or the session is over.
    pub async fn rename(&self, from: Vec<u8>, to: Vec<u8>, replace: bool) -> Result<(), Error> {
        let (content, seen, below) = (None, None, None);
        let request = control::Request::Rename { from, to, replace, content, seen, below };
        self.rename_only(request).await
    }

    /// Moves a file or link of the peer to an unused name, under these conditions. Both paths have the mark `/./`.
    ///
    /// # Errors
    /// As [`Self::rename`].
    pub async fn move_compared(
        &self,
        from: Vec<u8>,
        to: Vec<u8>,
        RenameOf { seen, below }: RenameOf,
    ) -> Result<(), Error> {
        let (replace, content) = (false, None);
        let (seen, below) = (seen.map(Box::new), below.map(Box::new));
        let request = control::Request::Rename { from, to, replace, content, seen, below };
        self.rename_only(request).await
    }

    /// Renames a regular file of the peer to an unused name, if the file has this BLAKE3 hash and no other user of the
    /// peer's machine can change the file or its name meanwhile.
    ///
    /// # Errors
    /// If the name was not changed, the peer does not allow reading and writing or the session is over.
    pub async fn take_over(
        &self,
        from: Vec<u8>,
        to: Vec<u8>,
        hash: [u8; 32],
        RenameOf { seen, below }: RenameOf,
    ) -> Result<(), Error> {
        let (replace, content) = (false, Some(hash));
        let (seen, below) = (seen.map(Box::new), below.map(Box::new));
        let request = control::Request::Rename { from, to, replace, content, seen, below };
        self.rename_only(request).await
    }

    async fn rename_only(&self, request: control::Request) -> Result<(), Error> {
        let changed = self.change(request).await?;
        match changed.failures.into_iter().next() {
            Some((_, failure)) => Err(failure.into()),
            None => Ok(()),
        }
    }

    /// Sets metadata of files and directories of the peer; links are not followed.
    ///
    /// # Errors
    /// If the peer does not allow writing or the session is over.
    pub async fn set_metadata(&self, changes: Vec<NewMetadata>) -> Result<Changed, Error> {
        self.change(control::Request::SetMetadata { changes }).await
    }

    async fn change(&self, request: control::Request) -> Result<Changed, Error> {
        let mut mailbox = self.send_request(Direction::Send, request)?;
        let mut changed = Changed::default();
        loop {
            match next_event(&mut mailbox).await? {
                Message::EntryFailed { index, failure, .. } => {
                    let at = usize::try_from(index).unwrap_or(usize::MAX);
                    // A peer could send failures without end.
                    if changed.failures.len() < MAX_KEPT_FAILURES {
                        changed.failures.push((at, failure));
                    }
                }
                Message::Done(Done { entries, .. }) => {
                    changed.names = entries;
                    return Ok(changed);
                }
                _ => {}
            }
        }
    }

    /// Sends a request without a channel.
    pub(super) fn send_request(
        &self,
        direction: Direction,
        request: control::Request,
    ) -> Result<Mailbox, Error> {
        // The channel settings are required by the message but unused for these requests.
        let channel = TransferOptions::default().channel_params()?;
        let cx = &self.inner.cx;
        let next_number = &self.inner.next_number;
        let mut next_number = lock(next_number);
        let transfer = take_number(&mut next_number)?;
        let mailbox = cx.router.register(transfer, direction.role())?;
        let direction = direction.for_opener();
        cx.control.send_request(Open { transfer, direction, request, channel })?;
        Ok(mailbox)
    }
}

/// Returns the next message that is not for a writer.
pub(super) async fn next_event(mailbox: &mut Mailbox) -> Result<Message, Error> {
    loop {
        match mailbox.events.recv().await {
            Some(Event::Control(message)) => {
                mailbox.note_taken(&message);
                match message {
                    Message::Cancel { failure, .. } => return Err(failure.into()),
                    message => return Ok(message),
                }
            }
            Some(Event::Ended(ending)) => return Err(ending.to_error()),
            Some(Event::Abort) | None => return Err(Error::Cancelled),
            Some(_) => {}
        }
    }
}

/// Returns the entries of an answer, and whether they are the last; `None` for other messages.
type Unpack<T> = fn(Message) -> Option<(Vec<T>, bool)>;

fn unpack(message: Message) -> Option<(Vec<Listed>, bool)> {
    let Message::Seen { entries, same, is_last, .. } = message else { return None };
    let mut items = Vec::with_capacity(entries.len() + same.len());
    let mut same = same.into_iter().peekable();
    for (at, seen) in (0..).zip(entries) {
        let is_here = |mark: &SameRun| mark.at <= at;
        items
            .extend(std::iter::from_fn(|| same.next_if(is_here)).map(|it| Listed::Same(it.digest)));
        items.push(Listed::Entry(seen));
    }
    items.extend(same.map(|mark| Listed::Same(mark.digest)));
    Some((items, is_last))
}

/// Forwards entries until the end of the listing or until the application drops the [`Listing`].
async fn listen<T: Send + 'static>(
    mut mailbox: Mailbox,
    control: Control,
    entry_sender: mpsc::Sender<Result<T, Error>>,
    unpack: Unpack<T>,
) {
    let number = mailbox.number;
    let (nothing, gone) = std::sync::mpsc::channel();
    drop(nothing);
    let inputs = std::mem::replace(&mut mailbox.inputs, gone);
    let (intake, thread_sender, back) =
        (Arc::clone(&mailbox.intake), entry_sender.clone(), control.clone());
    let (over, mut is_over) = oneshot::channel();
    let spawned = thread("sabul-list", move || {
        let _ = over.send(hand_on(&inputs, number, &intake, &back, &thread_sender, unpack));
    });
    let result = match spawned {
        Err(error) => Err(error),
        Ok(()) => loop {
            tokio::select! {
                // Entries that arrived before the end are forwarded before the end.
                biased;
                result = &mut is_over => break result.unwrap_or(Err(Error::Cancelled)),
                message = next_event(&mut mailbox) => if let Err(error) = message {
                    let _ = mailbox.input.send(Input::Stop);
                    let _ = is_over.await;
                    break Err(error);
                },
                () = entry_sender.closed() => {
                    let failure = Failure::new(FailureCode::Cancelled, "the rest was not requested");
                    control.send(Message::Cancel { transfer: Some(number), failure });
                    let _ = mailbox.input.send(Input::Stop);
                    let _ = is_over.await;
                    break Ok(());
                }
            }
        },
    };
    if let Err(error) = result {
        if matches!(&error, Error::Failed(failure) if failure.code == FailureCode::Protocol) {
            let transfer = Some(number);
            control.send(Message::Cancel { transfer, failure: Failure::from(&error) });
        }
        let _ = entry_sender.send(Err(error)).await;
    }
}

/// Forwards entries until the last; blocks while the application is slow.
fn hand_on<T>(
    inputs: &std::sync::mpsc::Receiver<Input>,
    transfer: u32,
    intake: &Intake,
    control: &Control,
    entry_sender: &mpsc::Sender<Result<T, Error>>,
    unpack: Unpack<T>,
) -> Result<(), Error> {
    loop {
        let message = match inputs.recv() {
            Ok(Input::Message(message)) => message,
            Ok(Input::Block(_)) => continue,
            Ok(Input::Stop | Input::Confirmed) | Err(_) => return Ok(()),
        };
        let weight = message.weight();
        let Some((entries, is_last)) = unpack(message) else {
            let text = "the peer answered a request for a listing with a transfer";
            return Err(Failure::violation(text).into());
        };
        for entry in entries {
            // Fails if the application dropped the listing; `listen` then ends this thread.
            let _ = entry_sender.blocking_send(Ok(entry));
        }
        if is_last {
            return Ok(());
        }
        if let Some(weight) = intake.work_off(weight) {
            control.send(Message::Credit { transfer, weight });
        }
    }
}

/// Request of the peer for a listing, or for the chunks of a file.
#[derive(Debug)]
pub struct ListingRequest {
    pub(super) pending: Pending,
}

/// Request of the peer to remove or rename files, or to create directories.
#[derive(Debug)]
pub struct ChangeRequest {
    pub(super) pending: Pending,
    /// Removal if true; otherwise renaming or creation of directories.
    pub is_removal: bool,
}

impl ListingRequest {
    /// Answers with a listing below the root of `disk`, or without a disk with the rights of this process's user.
    pub(super) async fn answer(mut self, disk: Option<Arc<dyn Disk>>) -> Result<(), Error> {
        let parts = self.pending.parts.take();
        let Some((open, mut mailbox)) = parts else { return Err(Error::Cancelled) };
        let cx = self.pending.cx.clone();
        if let (control::Request::Hash { place, chunking }, control::Direction::Pull) =
            (&open.request, open.direction)
        {
            let (place, chunking) = (place.clone(), *chunking);
            let opened = cx.endpoint.file_call(move || Chunked::open(disk, place)).await;
            let file = match opened.and_then(|opened| opened) {
                Ok(file) => file,
                Err(failure) => return refuse(&cx, &mailbox, failure),
            };
            let (bulk, transfer) = (cx.control.bulk(&mailbox), mailbox.number);
            let block_bytes = open.channel.block_bytes;
            drop(self);
            return work(&cx, mailbox, block_bytes, move |stop| {
                let sent = send_chunks(&file, chunking, transfer, &bulk, stop);
                let failed = |failure| Message::Cancel { transfer: Some(transfer), failure };
                sent.err().map(failed)
            })
            .await;
        }
        let (control::Request::List { places, view, options }, control::Direction::Pull) =
            (open.request, open.direction)
        else {
            return refuse(&cx, &mailbox, other_way());
        };
        let rules = cx.compile(options.rules.clone()).await;
        let begun =
            rules.and_then(|rules| DirectoryListing::new(disk, places, view, &options, rules));
        let directory_listing = match begun {
            Ok(directory_listing) => directory_listing,
            Err(failure) => return refuse(&cx, &mailbox, failure),
        };
        let out = Entries::new(&cx.control, &mut mailbox);
        let block_bytes = open.channel.block_bytes;
        drop(self);
        work(&cx, mailbox, block_bytes, move |stop| {
            send_all(directory_listing, options.digests, out, stop);
            None
        })
        .await
    }
}

impl ChangeRequest {
    /// Changes files below the root of `disk`, or without a disk with the rights of this process's user.
    pub(super) async fn answer(mut self, disk: Option<Arc<dyn Disk>>) -> Result<(), Error> {
        let Some((open, mailbox)) = self.pending.parts.take() else { return Err(Error::Cancelled) };
        let cx = self.pending.cx.clone();
        let is_push = open.direction == control::Direction::Push;
        let Some(changes) = Change::all_of(open.request).filter(|_| is_push) else {
            return refuse(&cx, &mailbox, other_way());
        };
        let (control, transfer) = (cx.control.clone(), mailbox.number);
        let block_bytes = open.channel.block_bytes;
        drop(self);
        work(&cx, mailbox, block_bytes, move |stop| {
            let is_over = || stop.load(Ordering::Acquire);
            let (mut names, mut failed) = (0, 0);
            for (at, change) in changes.iter().enumerate() {
                match change.apply(disk.as_deref(), &is_over) {
                    Ok(changed) => names += changed,
                    Err(failure) => {
                        failed += 1;
                        let index = at as u64;
                        control.send(Message::EntryFailed { transfer, index, failure });
                    }
                }
                if is_over() {
                    return None;
                }
            }
            Some(Message::Done(Done {
                transfer,
                bytes: 0,
                resumed: 0,
                durable: 0,
                entries: names,
                files: 0,
                failed,
                elapsed_us: 0,
                cpu_us: 0,
                in_place: false,
                not_kept: Vec::new(),
                destination: None,
            }))
        })
        .await
    }
}

/// A change of a name or its metadata that the peer requests.
enum Change {
    Name(Vec<u8>, NameChange),
    Rename { from: Vec<u8>, to: Vec<u8>, replace: bool, conditions: RenameOf },
    TakeOver { from: Vec<u8>, to: Vec<u8>, hash: [u8; 32], conditions: RenameOf },
    Metadata(NewMetadata),
}

impl Change {
    /// The changes of a request; `None` for other requests.
    fn all_of(request: control::Request) -> Option<Vec<Self>> {
        Some(match request {
            control::Request::Remove { places, recursive, seen } => {
                if !seen.is_empty() && seen.len() != places.len() {
                    return None;
                }
                let remove = |(at, place)| {
                    let seen = seen.get(at).copied();
                    Self::Name(place, NameChange::Remove { recursive, seen })
                };
                places.into_iter().enumerate().map(remove).collect()
            }
            control::Request::MakeFolders { places, parents, mode, below } => {
                let change = NameChange::Make { parents, mode: mode.unwrap_or(0o777), below };
                places.into_iter().map(|place| Self::Name(place, change)).collect()
            }
            control::Request::Rename { from, to, replace, content, seen, below } => {
                let (seen, below) = (seen.map(|seen| *seen), below.map(|below| *below));
                let conditions = RenameOf { seen, below };
                vec![match content {
                    Some(hash) => Self::TakeOver { from, to, hash, conditions },
                    None => Self::Rename { from, to, replace, conditions },
                }]
            }
            control::Request::SetMetadata { changes } => {
                changes.into_iter().map(Self::Metadata).collect()
            }
            _ => return None,
        })
    }

    /// Applies the change; returns the number of names that changed.
    fn apply(&self, disk: Option<&dyn Disk>, is_over: &dyn Fn() -> bool) -> Result<u64, Failure> {
        match self {
            Self::Name(place, change) => change.apply(disk, place, is_over),
            Self::Rename { from, to, replace, conditions } => {
                rename(disk, from, to, *replace, *conditions).map(|()| 1)
            }
            Self::TakeOver { from, to, hash, conditions } => {
                take_over(disk, from, to, hash, *conditions, is_over).map(|()| 1)
            }
            Self::Metadata(change) => set_metadata(disk, change).map(|()| 1),
        }
    }
}

pub(super) fn other_way() -> Failure {
    Failure::violation("the answer to the request has the wrong direction")
}

/// Refuses the request.
pub(super) fn refuse(cx: &Context, mailbox: &Mailbox, failure: Failure) -> Result<(), Error> {
    let transfer = Some(mailbox.number);
    cx.control.send(Message::Cancel { transfer, failure: failure.clone() });
    Err(failure.into())
}

/// Accepts the request and runs `work` on its own thread. The flag is set when the request is cancelled. The returned
/// message is sent last.
pub(super) async fn work(
    cx: &Context,
    mut mailbox: Mailbox,
    block_bytes: u32,
    work: impl FnOnce(&AtomicBool) -> Option<Message> + Send + 'static,
) -> Result<(), Error> {
    let transfer = mailbox.number;
    mailbox.mark_accepted();
    cx.control.send(Message::Accept { transfer, block_bytes });
    let stop = Arc::<AtomicBool>::default();
    let (over, mut is_over) = oneshot::channel();
    let stopped = Arc::clone(&stop);
    let spawned = thread("sabul-list", move || {
        let _ = over.send(work(&stopped));
    });
    if let Err(error) = spawned {
        return refuse(cx, &mailbox, Failure::from(&error));
    }
    loop {
        tokio::select! {
            biased;
            last = &mut is_over => return match last {
                Ok(last) => {
                    last.into_iter().for_each(|last| cx.control.send(last));
                    Ok(())
                }
                Err(_) => {
                    let text = "a fault of this program ended the request";
                    refuse(cx, &mailbox, Failure::new(FailureCode::Internal, text))
                }
            },
            message = next_event(&mut mailbox) => if let Err(error) = message {
                stop.store(true, Ordering::Release);
                let _ = mailbox.input.send(Input::Stop);
                mailbox.end_bulk();
                // The thread counts as part of the session until it has ended.
                let _ = is_over.await;
                return Err(error);
            },
        }
    }
}
