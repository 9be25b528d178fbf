//! Tickets: one line of text with which a connector finds, authenticates and may use a listener.
//!
//! A ticket holds the listener's addresses, the fingerprint of its certificate and a secret. The
//! text is `sabul1-`, followed by URL-safe base64 of:
//!
//! ```text
//! length (2 bytes, of all that follows it) | postcard of the fields | checksum (4 bytes, BLAKE3)
//! ```
//! A ticket of a server that introducers reach begins with `sabul2-`, and its fields end with [`Introduction`].
//! The length distinguishes a truncated ticket from a mistyped ticket; the checksum detects both.
//! Neither is a protection: anyone with the text has the secret.
//!
//! The connector never sends the secret. It sends [`proof`], keyed with the secret, over a value
//! that TLS exports from this connection. A proof is invalid on any other connection.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

/// Prefix of the text of each ticket of this version.
const PREFIX: &str = "sabul1-";
/// The same for a ticket with an introduction, which earlier programs then report as another version.
const PREFIX_INTRODUCED: &str = "sabul2-";
/// Maximum number of addresses in a ticket; more than any host has reason to offer.
pub const MAX_ADDRESSES: usize = 16;
/// Maximum length of an address: a 253-byte DNS name [RFC 1035 §2.3.4], a colon and a port.
const MAX_ADDRESS: usize = 259;
/// Maximum length of a ticket's text in bytes, with surrounding white space.
const MAX_TEXT: usize = 8192;
const LENGTH_LEN: usize = 2;
const CHECKSUM_LEN: usize = 4;

const _: () = assert!(
    ((MAX_ADDRESSES + 1) * (MAX_ADDRESS + 2) + 128) * 4 / 3 < MAX_TEXT,
    "the largest ticket must fit its text limit"
);

/// Addresses of a listener, its certificate's fingerprint, and the secret that it accepts.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    addresses: Vec<String>,
    fingerprint: [u8; 32],
    secret: [u8; 32],
    #[serde(skip)]
    introduction: Option<Introduction>,
}

/// The introducer at which a server is registered, for connectors that cannot dial the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// Address of the introducer, `host:port` or `[IPv6]:port`.
    pub address: String,
    /// SHA-256 of the introducer's certificate.
    pub fingerprint: [u8; 32],
    /// Name of the registration.
    pub name: [u8; 16],
}

/// Address, fingerprint and name, separated by spaces.
impl fmt::Display for Introduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [fingerprint, name] = [&self.fingerprint[..], &self.name].map(|it| HEXLOWER.encode(it));
        write!(f, "{} {fingerprint} {name}", self.address)
    }
}

impl FromStr for Introduction {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let mut words = text.split_whitespace();
        let mut next = || words.next().ok_or(TicketError::CutShort);
        let address = next()?.to_owned();
        let mut bytes = || HEXLOWER.decode(next()?.as_bytes()).map_err(|_| TicketError::Damaged);
        let fingerprint = bytes()?.try_into().map_err(|_| TicketError::Damaged)?;
        let name = bytes()?.try_into().map_err(|_| TicketError::Damaged)?;
        check_addresses(std::slice::from_ref(&address))?;
        Ok(Self { address, fingerprint, name })
    }
}

impl Ticket {
    /// Creates a ticket with a new random secret for the listener at `addresses`.
    ///
    /// Each address is `host:port` or `[IPv6]:port`, in order of preference; `fingerprint` is the
    /// SHA-256 of the listener's certificate.
    ///
    /// # Errors
    /// If there is no address, more than [`MAX_ADDRESSES`], or an invalid address; or if the system
    /// has no random numbers.
    pub fn generate(addresses: Vec<String>, fingerprint: [u8; 32]) -> Result<Self, TicketError> {
        check_addresses(&addresses)?;
        Ok(Self { addresses, fingerprint, secret: random()?, introduction: None })
    }

    /// Returns the ticket with this way to the listener.
    ///
    /// # Errors
    /// If the address of the introducer is invalid.
    pub fn with_introduction(mut self, introduction: Introduction) -> Result<Self, TicketError> {
        check_addresses(std::slice::from_ref(&introduction.address))?;
        self.introduction = Some(introduction);
        Ok(self)
    }

    /// The introducer of the listener, if any.
    pub const fn introduction(&self) -> Option<&Introduction> {
        self.introduction.as_ref()
    }

    /// Returns the ticket with these addresses of the same listener.
    #[must_use]
    pub fn with_addresses(mut self, addresses: Vec<String>) -> Self {
        self.addresses = addresses;
        self.addresses.truncate(MAX_ADDRESSES);
        self
    }

    /// The listener's addresses, each `host:port` or `[IPv6]:port`, in order of preference.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// SHA-256 of the listener's certificate (DER).
    pub const fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// The secret that the listener accepts.
    pub const fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// Writes the ticket to a file that only its owner can read (mode 0600).
    ///
    /// The file is created atomically and replaces an existing file of that name.
    ///
    /// # Errors
    /// If the path exists and is not a regular file (a symbolic link is not), or the folder is not
    /// writable.
    pub fn write_file(&self, path: &Path) -> Result<(), TicketError> {
        let io_error = |source| TicketError::Write { path: path.to_owned(), source };
        let name = path.file_name().ok_or_else(|| TicketError::NotAFile(path.to_owned()))?;
        match fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => return Err(TicketError::NotAFile(path.to_owned())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(error)),
        }
        // An unpredictable name and `create_new` stop an attacker from placing a link there.
        let mut temporary_name = name.to_owned();
        temporary_name.push(format!(".{}.tmp", HEXLOWER.encode(&random::<8>()?)));
        let temporary = path.with_file_name(temporary_name);
        let written = write_new(&temporary, &self.to_string())
            .and_then(|()| fs::rename(&temporary, path))
            .map_err(io_error);
        if written.is_err() {
            // If the removal fails, the file stays; the first error is reported.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Reads a ticket that [`Ticket::write_file`] or a user has written.
    ///
    /// # Errors
    /// If the file does not exist, is readable by other users, or has no valid ticket.
    pub fn read_file(path: &Path) -> Result<Self, TicketError> {
        let io_error = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => TicketError::Missing(path.to_owned()),
            _ => TicketError::Read { path: path.to_owned(), source },
        };
        let file = File::open(path).map_err(io_error)?;
        let metadata = file.metadata().map_err(io_error)?;
        if metadata.is_dir() {
            return Err(TicketError::NotAFile(path.to_owned()));
        }
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TicketError::Exposed { path: path.to_owned(), mode });
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_TEXT + 1));
        file.take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes).map_err(io_error)?;
        std::str::from_utf8(&bytes)
            .map_err(|_| TicketError::NotATicket)
            .and_then(str::parse)
            .map_err(|source| TicketError::InFile {
                path: path.to_owned(),
                source: Box::new(source),
            })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("addresses", &self.addresses)
            .field("fingerprint", &HEXLOWER.encode(&self.fingerprint))
            .field("introduction", &self.introduction)
            .finish_non_exhaustive()
    }
}

/// The ticket's text, **secret included**.
impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = postcard::to_stdvec(self).map_err(|_| fmt::Error)?;
        let (prefix, body) = match &self.introduction {
            Some(introduction) => {
                let whole = postcard::to_extend(introduction, body).map_err(|_| fmt::Error)?;
                (PREFIX_INTRODUCED, Zeroizing::new(whole))
            }
            None => (PREFIX, Zeroizing::new(body)),
        };
        let length = u16::try_from(body.len() + CHECKSUM_LEN).map_err(|_| fmt::Error)?;
        let mut bytes = Zeroizing::new(length.to_be_bytes().to_vec());
        bytes.extend_from_slice(&body);
        let checksum = checksum(&bytes);
        bytes.extend_from_slice(&checksum);
        let text = Zeroizing::new(BASE64URL_NOPAD.encode(&bytes));
        write!(f, "{prefix}{}", *text)
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let text = text.trim();
        let introduced = text.strip_prefix(PREFIX_INTRODUCED);
        let encoded = match introduced.or_else(|| text.strip_prefix(PREFIX)) {
            Some(encoded) if text.len() <= MAX_TEXT => encoded.as_bytes(),
            None if is_other_version(text) => return Err(TicketError::OtherVersion),
            _ => return Err(TicketError::NotATicket),
        };
        // The first four characters hold the length, which determines the number of characters.
        let Some(head) = encoded.get(..4) else {
            return Err(TicketError::CutShort);
        };
        let head = BASE64URL_NOPAD.decode(head).map_err(|_| TicketError::Damaged)?;
        let length = LENGTH_LEN + usize::from(u16::from_be_bytes([head[0], head[1]]));
        match encoded.len().cmp(&BASE64URL_NOPAD.encode_len(length)) {
            std::cmp::Ordering::Less => return Err(TicketError::CutShort),
            std::cmp::Ordering::Greater => return Err(TicketError::Damaged),
            std::cmp::Ordering::Equal => {}
        }
        let bytes = BASE64URL_NOPAD.decode(encoded).map_err(|_| TicketError::Damaged)?;
        let bytes = Zeroizing::new(bytes);
        let (content, sum) =
            bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or(TicketError::Damaged)?;
        if checksum(content) != *sum {
            return Err(TicketError::Damaged);
        }
        let body = content.get(LENGTH_LEN..).ok_or(TicketError::Damaged)?;
        let (mut ticket, mut rest) =
            postcard::take_from_bytes::<Self>(body).map_err(|_| TicketError::Damaged)?;
        if introduced.is_some() {
            let (introduction, after) = postcard::take_from_bytes::<Introduction>(rest)
                .map_err(|_| TicketError::Damaged)?;
            ticket = ticket.with_introduction(introduction)?;
            rest = after;
        }
        if !rest.is_empty() {
            return Err(TicketError::Damaged);
        }
        check_addresses(&ticket.addresses)?;
        Ok(ticket)
    }
}

/// The proof that the connector sends: it has `secret`, on the connection that `exporter` comes
/// from.
pub fn proof(secret: &[u8; 32], exporter: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(secret, exporter).as_bytes()
}

/// Whether `received` is the [`proof`] of `secret` on this connection. Runs in constant time.
#[must_use]
pub(crate) fn verify_proof(secret: &[u8; 32], exporter: &[u8], received: &[u8; 32]) -> bool {
    // `blake3::Hash` compares in constant time.
    blake3::keyed_hash(secret, exporter) == blake3::Hash::from_bytes(*received)
}

/// Reason why a ticket is invalid or was not read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum TicketError {
    /// The text is not a ticket.
    NotATicket,
    /// The text is a ticket of another version of the format.
    OtherVersion,
    /// The end of the text is missing.
    CutShort,
    /// A character was changed, added or lost.
    Damaged,
    /// There is no address, or more than [`MAX_ADDRESSES`].
    AddressCount(usize),
    /// An address is not `host:port`.
    Address(String),
    /// The file does not exist.
    Missing(PathBuf),
    /// The path is a folder, a symbolic link or another kind that is not a regular file.
    NotAFile(PathBuf),
    /// Other users can read the file.
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file cannot be written.
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file's content is invalid.
    InFile {
        /// The file.
        path: PathBuf,
        /// The error in the content.
        source: Box<Self>,
    },
    /// The system has no random numbers.
    NoRandomness,
}

impl fmt::Display for TicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATicket => write!(f, "not a ticket: expected one line starting '{PREFIX}'"),
            Self::OtherVersion => write!(
                f,
                "ticket of another version (this sabul reads '{PREFIX}'): use the same sabul on \
                 both sides"
            ),
            Self::CutShort => f.write_str("ticket is cut short: copy the whole line"),
            Self::Damaged => f.write_str("ticket is damaged: copy it again, without retyping"),
            Self::AddressCount(count) => {
                write!(f, "ticket with {count} addresses: it needs 1 to {MAX_ADDRESSES}")
            }
            Self::Address(address) => write!(
                f,
                "ticket address {address:?} is not host:port (an IPv6 host stands in brackets)"
            ),
            Self::Missing(path) => write!(
                f,
                "no ticket file {}: is the server up, and was it started with --ticket-file?",
                path.display()
            ),
            Self::NotAFile(path) => write!(
                f,
                "ticket file {} is not a plain file: name one that is, or that does not exist yet",
                path.display()
            ),
            Self::Exposed { path, mode } => write!(
                f,
                "ticket file {} can be read by others (mode {mode:04o}): run chmod 600 {}",
                path.display(),
                shell_quoted(path)
            ),
            Self::Read { path, source } => {
                write!(
                    f,
                    "cannot read ticket file {}: {}",
                    path.display(),
                    sabul_files::os_text(source)
                )
            }
            Self::Write { path, source } => {
                write!(
                    f,
                    "cannot write ticket file {}: {}",
                    path.display(),
                    sabul_files::os_text(source)
                )
            }
            Self::InFile { path, source } => write!(f, "{}: {source}", path.display()),
            Self::NoRandomness => f.write_str("the system's random number generator failed"),
        }
    }
}

impl std::error::Error for TicketError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => Some(source),
            Self::InFile { source, .. } => Some(source),
            _ => None,
        }
    }
}

fn random<const N: usize>() -> Result<[u8; N], TicketError> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| TicketError::NoRandomness)?;
    Ok(bytes)
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    *blake3::hash(bytes).as_bytes().first_chunk().expect("a hash has 32 bytes")
}

/// Whether the text starts like a ticket with another version number after `sabul`.
fn is_other_version(text: &str) -> bool {
    text.strip_prefix("sabul").and_then(|rest| rest.split_once('-')).is_some_and(|(version, _)| {
        !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit())
    })
}

fn check_addresses(addresses: &[String]) -> Result<(), TicketError> {
    if addresses.is_empty() || addresses.len() > MAX_ADDRESSES {
        return Err(TicketError::AddressCount(addresses.len()));
    }
    match addresses.iter().find(|address| !is_host_and_port(address)) {
        Some(address) => Err(TicketError::Address(address.clone())),
        None => Ok(()),
    }
}

/// `name:port`, `IPv4:port` or `[IPv6]:port`, with a port from 1 to 65535.
fn is_host_and_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else {
        return false;
    };
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|host| host.contains(':')),
        None => Some(host).filter(|host| !host.contains(':')),
    };
    address.len() <= MAX_ADDRESS
        && port.bytes().all(|b| b.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port > 0)
        && bare.is_some_and(|host| {
            !host.is_empty()
                && host.bytes().all(|b| b.is_ascii_graphic() && !b"[]/@\"'\\".contains(&b))
        })
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // The umask may have cleared bits of the owner.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    writeln!(file, "{text}")
}

/// The path, quoted for a shell.
fn shell_quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) && !text.starts_with('-') {
        text
    } else {
        format!("-- '{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests;
