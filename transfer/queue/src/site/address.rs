//! Address of the database of a site: a URL, or a file with the URL.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::{Client, Config, NoTls};

use super::error::SiteError;
use super::proof::Proving;

/// Ours: maximum size of a file with an address in bytes.
const FILE_MAX: u64 = 64 << 10;
/// Ours: time limit of the connection to one address of a host with several addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Ours: a connection without an answer to probes for this time and the next two is lost.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// Address of the database, without its password in messages.
#[derive(Clone)]
pub struct Address {
    config: Config,
    place: String,
    /// The database has to prove that it knows the password.
    is_proving: bool,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.place).finish()
    }
}

/// The address cannot be used. No message contains the address, which can have a password.
#[derive(Debug)]
#[non_exhaustive]
pub enum AddressError {
    /// The file cannot be read.
    File(PathBuf, io::Error),
    /// Other users may read the file, which has a password.
    Mode(PathBuf, u32),
    /// Another user can change the file, and so give commands to the workers.
    Owner(PathBuf),
    /// The text is no address.
    Text(String),
    /// The address has no host.
    NoHost,
    /// The database is on another machine, and the connection would not be encrypted.
    Plain(String),
    /// Other users may create or replace the directory of the socket, or write there.
    Folder(PathBuf),
    /// The database is reached over TCP, and there is no password with which it could prove itself.
    NoProof(String),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(
                f,
                "cannot read '{}': {error}; --store is postgres://USER@HOST/DATABASE, or a file with such an address",
                path.display()
            ),
            Self::Mode(path, mode) => write!(
                f,
                "'{}' has a password and mode {mode:04o}, so all users may read the password; set its mode to 0600",
                path.display()
            ),
            Self::Owner(path) => write!(
                f,
                "another user can change '{}', and so give commands to the workers; use a file that belongs to you or \
                 root, with mode 0600 or 0644",
                path.display()
            ),
            Self::Text(why) => write!(
                f,
                "the address of the queue is invalid ({why}); write postgres://USER@HOST/DATABASE"
            ),
            Self::NoHost => f.write_str(
                "the address of the queue has no host; write postgres://USER@HOST/DATABASE, or \
                 postgres:///DATABASE?host=DIRECTORY for a socket in a directory",
            ),
            Self::Plain(host) => write!(
                f,
                "the connection to '{host}' would not be encrypted: this program has no TLS for databases; use a tunnel \
                 to a socket or to localhost, or add ?sslmode=disable to the address on a network that you trust"
            ),
            Self::Folder(path) => write!(
                f,
                "other users may write into '{}' or a directory above, and put a socket of their own there while the \
                 database is down, to give commands to the workers; use a directory that no other user can replace",
                path.display()
            ),
            Self::NoProof(host) => write!(
                f,
                "the address of the queue has no password, and any user can listen at '{host}' while the database is \
                 down, to give commands to the workers: use a socket (?host=DIRECTORY), a password for SCRAM, or \
                 ?sslmode=disable on a machine without other users"
            ),
        }
    }
}

impl std::error::Error for AddressError {}

impl Address {
    /// Reads an address: a URL, or the name of a file with the URL.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, other users may read its password, or the address is invalid.
    pub fn read(text: &OsStr) -> Result<Self, AddressError> {
        if let Some(url) = text.to_str().filter(|text| is_url(text)) {
            return Self::parse(url);
        }
        let path = Path::new(text);
        let (content, mode, owner) =
            content_of(path).map_err(|error| AddressError::File(path.to_owned(), error))?;
        if mode & 0o022 != 0 || (owner != 0 && owner != geteuid().as_raw()) {
            return Err(AddressError::Owner(path.to_owned()));
        }
        let address = Self::parse(content.trim())?;
        if address.has_password() && mode & 0o007 != 0 {
            return Err(AddressError::Mode(path.to_owned(), mode & 0o7777));
        }
        Ok(address)
    }

    fn parse(url: &str) -> Result<Self, AddressError> {
        if !is_url(url) {
            return Err(AddressError::Text("it does not begin with postgres://".to_owned()));
        }
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| AddressError::Text(why(&error)))?;
        let hosts: Vec<String> = config.get_hosts().iter().map(shown).collect();
        let has_sign = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        // The rest of a password, which no message and no query for the name may contain.
        if config.get_hosts().iter().any(has_sign) {
            let why = "its password or user contains '@': write %40 in place of each '@' there";
            return Err(AddressError::Text(why.to_owned()));
        }
        if hosts.is_empty() && config.get_hostaddrs().is_empty() {
            return Err(AddressError::NoHost);
        }
        if config.get_ssl_mode() != SslMode::Disable
            && let Some(host) = far_host(&config)
        {
            return Err(AddressError::Plain(host));
        }
        // A directory that is missing now is examined at each connection.
        check_sockets(&config).or_else(|error| match error {
            AddressError::Folder(folder) if !folder.exists() => Ok(()),
            error => Err(error),
        })?;
        let is_proving = is_proving(&mut config)?;
        match is_proving {
            // The client gives the stream to the connector at once.
            true => config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct),
            false => config.ssl_mode(SslMode::Disable),
        };
        config.application_name("sabul queue").keepalives_idle(KEEPALIVE);
        config.keepalives_interval(KEEPALIVE).keepalives_retries(2).tcp_user_timeout(3 * KEEPALIVE);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        let name = config.get_dbname().or_else(|| config.get_user()).unwrap_or_default();
        let place = format!("'{name}' at {}", hosts.join(", "));
        Ok(Self { config, place, is_proving })
    }

    /// Connects.
    pub(super) async fn connect(&self) -> Result<Client, SiteError> {
        check_sockets(&self.config).map_err(|error| SiteError::Outage {
            place: self.place.clone(),
            cause: error.to_string(),
        })?;
        // The task of a connection ends with the client. Its error is that of the client's next call.
        if self.is_proving {
            let (client, connection) = self.config.connect(Proving).await?;
            tokio::spawn(async move { drop(connection.await) });
            return Ok(client);
        }
        let (client, connection) = self.config.connect(NoTls).await?;
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }

    /// Returns database and hosts for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whether the address contains a password.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// Returns the content, the mode and the owner of a file.
fn content_of(path: &Path) -> io::Result<(String, u32, u32)> {
    let file = fs::File::open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() || facts.len() > FILE_MAX {
        return Err(io::Error::other("not a regular file of at most 64 KiB"));
    }
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text)?;
    Ok((text, facts.mode(), facts.uid()))
}

fn why(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    cause.unwrap_or_else(|| error.to_string())
}

fn shown(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

/// Checks that no other user can put a socket in the place of that of the database.
fn check_sockets(config: &Config) -> Result<(), AddressError> {
    for host in config.get_hosts() {
        if let Host::Unix(folder) = host
            && !(is_unreplaceable(folder)
                && folder.canonicalize().is_ok_and(|real| is_unreplaceable(&real)))
        {
            return Err(AddressError::Folder(folder.clone()));
        }
    }
    Ok(())
}

/// Whether a directory and those above belong to root, to this user or to the owner of the directory, and all users may write
/// into none of them. In a directory with the sticky bit, other users replace nothing that belongs to root or to this user.
fn is_unreplaceable(folder: &Path) -> bool {
    let (mut owner, mut database) = (None, None);
    folder.ancestors().filter(|path| !path.as_os_str().is_empty()).all(|path| {
        let Ok(found) = fs::symlink_metadata(path) else { return false };
        let below = owner.replace(found.uid());
        let database = *database.get_or_insert_with(|| found.uid());
        if ![0, geteuid().as_raw(), database].contains(&found.uid()) {
            return false;
        }
        let is_kept =
            |below: u32| found.mode() & 0o1000 != 0 && (below == 0 || below == geteuid().as_raw());
        // The bits of a link mean nothing.
        found.is_symlink() || found.mode() & 0o002 == 0 || below.is_some_and(is_kept)
    })
}

/// Whether the database has to prove that it knows the password.
fn is_proving(config: &mut Config) -> Result<bool, AddressError> {
    let has_socket = config.get_hosts().iter().any(|host| matches!(host, Host::Unix(_)));
    let has_tcp = config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_)))
        || !config.get_hostaddrs().is_empty();
    if !has_tcp || config.get_ssl_mode() == SslMode::Disable {
        return Ok(false);
    }
    if has_socket {
        return Err(AddressError::Text("it names a socket and a host".to_owned()));
    }
    if config.get_hosts().is_empty() {
        for address in config.get_hostaddrs().to_vec() {
            config.host(address.to_string());
        }
    }
    match (config.get_password(), config.get_hosts().first()) {
        (None, Some(host)) => Err(AddressError::NoProof(shown(host))),
        _ => Ok(true),
    }
}

/// Returns a host that is not this machine, if there is one.
fn far_host(config: &Config) -> Option<String> {
    let far_address = config.get_hostaddrs().iter().find(|address| !address.is_loopback());
    if let Some(address) = far_address {
        return Some(address.to_string());
    }
    if !config.get_hostaddrs().is_empty() {
        return None;
    }
    let is_far = |name: &str| {
        let is_loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        name != "localhost" && !is_loopback
    };
    config.get_hosts().iter().find_map(|host| match host {
        Host::Tcp(name) if is_far(name) => Some(name.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn error(url: &str) -> String {
        Address::parse(url).unwrap_err().to_string()
    }

    #[test]
    fn connections_without_encryption_leave_this_machine_only_on_request() {
        for near in ["localhost", "127.0.0.1", "[::1]", "%2Frun%2Fpostgresql"] {
            Address::parse(&format!("postgres://me:secret@{near}/queue")).unwrap();
        }
        Address::parse("postgres:///queue?host=/run/postgresql&user=me").unwrap();
        let far = error("postgres://me:secret@db.example.org/queue");
        assert!(far.contains("'db.example.org' would not be encrypted"), "{far}");
        assert!(error("postgres://me@localhost,db2/queue").contains("'db2'"));
        assert!(error("postgres://me@db/queue?hostaddr=10.0.0.1").contains("'10.0.0.1'"));
        Address::parse("postgres://me@db.example.org/queue?sslmode=disable").unwrap();
    }

    #[test]
    fn a_database_that_could_be_another_program_has_to_prove_itself() {
        let is_proving = |url: &str| Address::parse(url).unwrap().is_proving;
        assert!(is_proving("postgres://me:secret@localhost/queue"));
        assert!(is_proving("postgres://me:secret@/queue?hostaddr=127.0.0.1"));
        assert!(!is_proving("postgres://me@localhost/queue?sslmode=disable"));
        assert!(!is_proving("postgres:///queue?host=/nowhere&user=me"));
        assert!(error("postgres://me@localhost/queue").contains("no password"));
        assert!(error("postgres:///queue?hostaddr=127.0.0.1").contains("listen at '127.0.0.1'"));
        assert!(error("postgres://me:a@%2Fnowhere,localhost/queue").contains("socket and a host"));
        let folder = tempfile::tempdir().unwrap();
        let url = format!("postgres:///queue?host={}", folder.path().display());
        Address::parse(&url).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(error(&url).contains("a socket of their own"));
    }

    #[test]
    fn a_directory_that_another_user_can_create_or_replace_has_no_socket_of_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let of = |path: &Path| {
            let path = path.display().to_string().replace('@', "%40");
            format!("postgres:///queue?host={path}")
        };
        let set_mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let (shared, below) = (folder.path().join("shared"), folder.path().join("shared/me@db"));
        fs::create_dir_all(&below).unwrap();
        Address::parse(&of(&below)).unwrap();
        // The directory belongs to this user, so the sticky bit protects its name.
        set_mode(&shared, 0o1777);
        Address::parse(&of(&below)).unwrap();
        set_mode(&shared, 0o777);
        assert!(error(&of(&below)).contains("or a directory above"));
        // A missing directory is examined again at each connection.
        fs::remove_dir(&below).unwrap();
        let address = Address::parse(&of(&below)).unwrap();
        assert!(check_sockets(&address.config).is_err());
    }

    #[test]
    fn no_message_contains_the_password() {
        let address = Address::parse("postgres://me:secret@localhost/queue").unwrap();
        assert!(address.has_password());
        assert_eq!(address.place(), "'queue' at localhost");
        assert!(!format!("{address:?}").contains("secret"));
        for url in [
            "postgres://me:secret@db/queue",
            "postgres://me:secret@localhost/queue?frobnicate=1",
            "postgres://me:secret@localhost:port/queue",
            "mysql://me:secret@localhost/queue",
            "postgres://me:a@secret@localhost/queue",
            "postgres://me:a@secret@db/queue?sslmode=disable",
        ] {
            assert!(!error(url).contains("secret"), "{}", error(url));
        }
        assert!(error("postgres://me:a@b@localhost/queue").contains("write %40"));
        Address::parse("postgres://me:a%40b@localhost/queue").unwrap();
        assert!(error("postgres:///queue").contains("no host"));
    }

    #[test]
    fn a_file_with_a_password_is_not_for_all_users() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Address::read(path.as_os_str()).map_err(|error| error.to_string())
        };
        read("postgres://me:secret@localhost/queue\n", 0o600).unwrap();
        read("postgres:///queue?host=/nowhere", 0o644).unwrap();
        let refused = read("postgres://me:secret@localhost/queue", 0o644).unwrap_err();
        assert!(refused.contains("mode 0644") && refused.contains("set its mode to 0600"));
        for mode in [0o620, 0o646, 0o666] {
            let refused = read("postgres:///queue?host=/nowhere", mode).unwrap_err();
            assert!(refused.contains("another user can change"), "{refused}");
        }
        let missing = Address::read("/nowhere/store".as_ref()).unwrap_err().to_string();
        assert!(missing.contains("'/nowhere/store'"), "{missing}");
    }
}
