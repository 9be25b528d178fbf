//! Named tickets of a standing server: one file for each ticket, in a directory of the server.
//!
//! A file `NAME.ticket` has lines of a word and its value: `secret` in hexadecimal, `uses` if their number is limited,
//! and options of [`Grant::set`]. Each use appends a line `used TIME ADDRESS`, so the count survives restarts and
//! crashes. Removal of the file revokes the ticket.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use rustix::fs::{FlockOperation, OFlags, flock};
use tracing::warn;
use zeroize::Zeroizing;

use crate::expiry::Expiry;
use crate::grant::Grant;
use crate::guard::{self, FileError, Others, write_private};

const SUFFIX: &str = ".ticket";
/// Longest file in bytes; some ten thousand uses.
const FILE_MAX: u64 = 1 << 20;
/// Most tickets of a server: each greeting is compared with all of them.
const TICKETS_MAX: usize = 4096;
/// Longest name of a ticket.
const NAME_MAX: usize = 64;
/// A directory that changed so shortly before it was read is read again: the clock of file times is coarse.
const SETTLED: Duration = Duration::from_secs(2);

/// Named tickets in a directory. Clones share what was read.
#[derive(Clone, Debug)]
pub struct NamedTickets {
    folder: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    tickets: Vec<Arc<NamedTicket>>,
    /// State of the directory when it was read; `None` if it must be read again.
    version: Option<(u64, i64, i64)>,
}

/// One named ticket.
#[derive(Clone, PartialEq, Eq)]
pub struct NamedTicket {
    /// Name, unique in the directory.
    pub name: String,
    /// Limits of its holder.
    pub grant: Arc<Grant>,
    /// Options as written, for display: without secret and uses.
    pub options: Vec<(String, String)>,
    /// Most uses; `None` without a limit.
    pub uses: Option<u32>,
    /// Uses so far.
    pub used: u32,
    secret: Zeroizing<[u8; 32]>,
}

impl std::fmt::Debug for NamedTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NamedTicket")
            .field("name", &self.name)
            .field("grant", &self.grant)
            .field("uses", &self.uses)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

impl NamedTickets {
    /// The tickets in this directory, which is created with mode 0700 if missing.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn open(folder: &Path) -> Result<Self, FileError> {
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700)
            .create(folder)
            .map_err(|source| FileError::io(folder, source))?;
        Ok(Self { folder: folder.to_owned(), state: Arc::default() })
    }

    /// Returns the directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds a ticket with this secret. The options are those of [`Grant::set`].
    ///
    /// # Errors
    /// If the name is taken or has other characters than letters, digits, `-`, `_` and `.`; if an option is invalid;
    /// or if the file cannot be written.
    pub fn create(
        &self,
        name: &str,
        secret: &[u8; 32],
        options: &[(String, String)],
        uses: Option<u32>,
    ) -> Result<(), FileError> {
        let path = self.path(name)?;
        let fail = |reason: String| FileError::Content { path: path.clone(), reason };
        if path.exists() {
            return Err(fail(
                "the name is taken: revoke the ticket, or choose another name".to_owned(),
            ));
        }
        if self.all()?.len() >= TICKETS_MAX {
            return Err(fail(format!("there are {TICKETS_MAX} tickets: revoke some")));
        }
        let mut text = Zeroizing::new(format!("secret {}\n", HEXLOWER.encode(secret)));
        if let Some(uses) = uses {
            text.push_str(&format!("uses {uses}\n"));
        }
        for (name, value) in options {
            if value.contains(char::is_control) {
                return Err(fail(format!("the value of {name} has a control character")));
            }
            text.push_str(&format!("{name} {value}\n"));
        }
        parse(name, &text).map_err(fail)?;
        write_private(&path, text.as_bytes())
    }

    /// Returns all tickets in the order of their names. A file with an error is reported in the log and left out.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn all(&self) -> Result<Vec<Arc<NamedTicket>>, FileError> {
        let fail = |source| FileError::io(&self.folder, source);
        let mut tickets = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(SUFFIX));
            let Some(name) = name.map(str::to_owned) else { continue };
            match self.read(&name) {
                Ok(ticket) => tickets.push(Arc::new(ticket)),
                Err(error) if error.is_missing() => {}
                Err(error) => warn!("{error}; this ticket is not accepted"),
            }
        }
        tickets.sort_by(|a, b| a.name.cmp(&b.name));
        tickets.truncate(TICKETS_MAX);
        Ok(tickets)
    }

    /// Removes a ticket; returns whether there was one.
    ///
    /// # Errors
    /// If the name is invalid or the file cannot be removed.
    pub fn revoke(&self, name: &str) -> Result<bool, FileError> {
        let path = self.path(name)?;
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(FileError::io(&path, source)),
        }
    }

    /// Returns the ticket whose secret `is_it` accepts. All secrets are tried, so the time does not depend on the
    /// ticket. Reads the directory again if it changed, so the call may block.
    pub fn find(&self, is_it: impl Fn(&[u8; 32]) -> bool) -> Option<Arc<NamedTicket>> {
        let tickets = self.refreshed();
        let mut found = None;
        for ticket in tickets {
            if is_it(&ticket.secret) {
                found = Some(ticket);
            }
        }
        found
    }

    fn refreshed(&self) -> Vec<Arc<NamedTicket>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let version = version(&self.folder);
        if version.is_none() || state.version != version {
            let tickets = self.all().unwrap_or_else(|error| {
                warn!("{error}; no named ticket is accepted until this is repaired");
                Vec::new()
            });
            *state = State { tickets, version };
        }
        state.tickets.clone()
    }

    /// Counts a use of a ticket by a client at this address. Returns the limits of the holder as the file has them now.
    ///
    /// # Errors
    /// The reason why the ticket is not accepted: revoked, expired, from another address, or used too often.
    pub fn count_use(&self, name: &str, client: IpAddr) -> Result<Arc<Grant>, String> {
        let gone = || {
            format!(
                "the ticket '{name}' is revoked: get another one from the listener's administrator"
            )
        };
        let path = self.path(name).map_err(|_| gone())?;
        let opened = OpenOptions::new().read(true).append(true).custom_flags(FLAGS).open(&path);
        let mut file = opened.map_err(|_| gone())?;
        let broken = |error: &dyn std::fmt::Display| {
            warn!("cannot count a use of '{}': {error}", path.display());
            format!(
                "the use of the ticket '{name}' cannot be counted: contact the listener's administrator"
            )
        };
        if !file.metadata().is_ok_and(|facts| facts.is_file()) {
            return Err(broken(&"it is not a regular file"));
        }
        // Other processes may serve the same tickets.
        flock(&file, FlockOperation::LockExclusive).map_err(|error| broken(&error))?;
        let mut text = Zeroizing::new(String::new());
        (&mut file).take(FILE_MAX).read_to_string(&mut text).map_err(|error| broken(&error))?;
        if path.metadata().ok().map(|facts| facts.ino()) != file.metadata().ok().map(|it| it.ino())
        {
            return Err(gone());
        }
        let ticket = parse(name, &text).map_err(|error| broken(&error))?;
        if let Some(why) = ticket.grant.refusal(client, SystemTime::now()) {
            return Err(format!(
                "the ticket '{name}' is {why}: contact the listener's administrator"
            ));
        }
        if let Some(uses) = ticket.uses.filter(|uses| ticket.used >= *uses) {
            return Err(format!(
                "the ticket '{name}' was used {uses} times and is used up: get another one from the listener's \
                 administrator"
            ));
        }
        let line = format!("used {} {}\n", Expiry::after_seconds(0), client.to_canonical());
        file.write_all(line.as_bytes())
            .and_then(|()| file.sync_data())
            .map_err(|it| broken(&it))?;
        Ok(ticket.grant)
    }

    fn read(&self, name: &str) -> Result<NamedTicket, FileError> {
        let path = self.path(name)?;
        let bytes = Zeroizing::new(guard::read(&path, Others::ReadNothing, FILE_MAX)?);
        let text = String::from_utf8_lossy(&bytes);
        parse(name, &text).map_err(|reason| FileError::Content { path, reason })
    }

    fn path(&self, name: &str) -> Result<PathBuf, FileError> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if name.is_empty()
            || name.len() > NAME_MAX
            || !name.bytes().all(is_plain)
            || name.starts_with('.')
        {
            return Err(FileError::Content {
                path: self.folder.clone(),
                reason: format!(
                    "'{}' is not a name of a ticket: use 1 to {NAME_MAX} letters, digits, '-', '_' and '.'",
                    name.escape_debug()
                ),
            });
        }
        Ok(self.folder.join(format!("{name}{SUFFIX}")))
    }
}

/// Flags: a link is not followed, and a FIFO is not waited for.
const FLAGS: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

/// Returns the version of a directory; `None` if it changed just now.
fn version(folder: &Path) -> Option<(u64, i64, i64)> {
    let facts = File::open(folder).and_then(|folder| folder.metadata()).ok()?;
    let age = SystemTime::now().duration_since(facts.modified().ok()?).ok()?;
    (age >= SETTLED).then(|| (facts.ino(), facts.mtime(), facts.mtime_nsec()))
}

fn parse(name: &str, text: &str) -> Result<NamedTicket, String> {
    let mut secret = None;
    let (mut grant, mut options, mut uses, mut used) = (Grant::default(), Vec::new(), None, 0);
    for line in text.lines() {
        let (word, value) = line
            .split_once(' ')
            .ok_or_else(|| format!("invalid line '{word}'", word = line.escape_debug()))?;
        match word {
            "secret" => {
                let bytes = HEXLOWER.decode(value.as_bytes()).map(Zeroizing::new);
                let bytes: Option<[u8; 32]> =
                    bytes.ok().and_then(|it| it.as_slice().try_into().ok());
                secret = Some(Zeroizing::new(bytes.ok_or("the secret is damaged")?));
            }
            "uses" => {
                uses =
                    Some(value.parse().map_err(|_| format!("'{value}' is not a number of uses"))?)
            }
            "used" => used += 1,
            word => {
                if !grant.set(word, value)? {
                    return Err(format!("the option '{word}' is not known"));
                }
                options.push((word.to_owned(), value.to_owned()));
            }
        }
    }
    let secret = secret.ok_or("there is no secret")?;
    Ok(NamedTicket { name: name.to_owned(), grant: Arc::new(grant), options, uses, used, secret })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn tickets() -> (tempfile::TempDir, NamedTickets) {
        let folder = tempfile::tempdir().unwrap();
        let tickets = NamedTickets::open(&folder.path().join("tickets")).unwrap();
        (folder, tickets)
    }

    fn options(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_ticket_is_found_by_its_secret_until_it_is_revoked() {
        let (_folder, tickets) = tickets();
        tickets.create("a", &[1; 32], &options(&[("rights", "read")]), None).unwrap();
        tickets.create("b", &[2; 32], &[], Some(2)).unwrap();
        let find = |secret: u8| tickets.find(|it| *it == [secret; 32]).map(|it| it.name.clone());
        assert_eq!((find(1), find(2), find(3)), (Some("a".into()), Some("b".into()), None));
        assert!(tickets.create("a", &[3; 32], &[], None).is_err(), "the name is taken");
        assert!(tickets.revoke("a").unwrap());
        assert!(!tickets.revoke("a").unwrap());
        assert_eq!((find(1), find(2)), (None, Some("b".into())));
        assert!(tickets.count_use("a", HERE).unwrap_err().contains("revoked"));
    }

    #[test]
    fn uses_are_counted_in_the_file() {
        let (_folder, tickets) = tickets();
        tickets.create("a", &[1; 32], &[], Some(2)).unwrap();
        tickets.create("free", &[2; 32], &[], None).unwrap();
        // Another process.
        let other = NamedTickets::open(tickets.folder()).unwrap();
        tickets.count_use("a", HERE).unwrap();
        other.count_use("a", HERE).unwrap();
        for tickets in [&tickets, &other] {
            assert!(tickets.count_use("a", HERE).unwrap_err().contains("used up"));
            tickets.count_use("free", HERE).unwrap();
        }
        let used: Vec<_> = tickets.all().unwrap().iter().map(|it| (it.used, it.uses)).collect();
        assert_eq!(used, [(2, Some(2)), (2, None)]);
    }

    #[test]
    fn options_that_were_added_to_the_file_count_at_the_next_use() {
        let (_folder, tickets) = tickets();
        tickets.create("a", &[1; 32], &[], None).unwrap();
        assert!(tickets.count_use("a", HERE).unwrap().expires.is_none());
        let mut file = OpenOptions::new().append(true).open(tickets.path("a").unwrap()).unwrap();
        file.write_all(b"expiry-time 20200101Z\n").unwrap();
        assert!(tickets.count_use("a", HERE).unwrap_err().contains("expired"));
    }

    #[test]
    fn a_fifo_in_place_of_a_ticket_is_refused_without_waiting() {
        let (_folder, tickets) = tickets();
        let path = tickets.path("a").unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(tickets.count_use("a", HERE).map(|_| ())));
        let refused = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(refused.unwrap_err().contains("cannot be counted"));
    }

    #[test]
    fn bad_names_and_options_are_refused_and_broken_files_left_out() {
        let (_folder, tickets) = tickets();
        for name in ["", "..", "a/b", ".a", "a b", &"a".repeat(65)] {
            assert!(tickets.create(name, &[1; 32], &[], None).is_err(), "{name}");
        }
        let unknown = options(&[("command", "x")]);
        assert!(tickets.create("a", &[1; 32], &unknown, None).is_err());
        let lines = options(&[("root", "x\nrights read")]);
        assert!(tickets.create("a", &[1; 32], &lines, None).is_err());
        tickets.create("good", &[1; 32], &[], None).unwrap();
        for text in ["", "secret 00", "uses 1", "secret\n"] {
            write_private(&tickets.folder().join("bad.ticket"), text.as_bytes()).unwrap();
            assert_eq!(tickets.all().unwrap().len(), 1, "{text}");
        }
    }
}
