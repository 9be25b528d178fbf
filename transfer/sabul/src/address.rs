//! Parser of locations on the command line: local paths, `-`, `sabul://[[user@]host[:port]]/path`, and
//! `[user@]host:path`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use sabul_content::Printable;

use crate::error::Error;
use crate::ticket::Ticket;

const SCHEME: &[u8] = b"sabul://";
/// Port of a listener by default.
const DEFAULT_PORT: u16 = 4850;

/// One source or destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path on this machine, or `-`.
    Local(OsString),
    /// A path on another machine.
    Remote(Remote),
}

/// A location on another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The server of the path.
    pub server: Server,
    /// The path, byte for byte as written. Relative to the root of a listener, or to the home directory of an ssh account;
    /// the `/` after the host of `sabul://host/path` is not part of the path.
    pub path: Vec<u8>,
}

/// How to reach the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// The listener of a ticket, at the addresses in the ticket.
    Ticket,
    /// A listener at this address; the ticket or key comes from elsewhere. Without a ticket or key, and without a port,
    /// the host is reached through ssh.
    Listener(Host),
    /// A host reached through ssh, as `[user@]host`; an IPv6 address has no brackets.
    Ssh(String),
    /// This process; no location is parsed as this server.
    Here,
}

/// A listener by name or address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name or IP address, without brackets.
    name: String,
    port: Option<u16>,
    /// User of the host, if ssh reaches the host.
    user: Option<String>,
}

impl Location {
    /// Parses one argument. No escapes are decoded: a path may contain any bytes.
    ///
    /// # Errors
    /// If the argument is ambiguous or has no host; the error states the correct form.
    pub fn parse(argument: &OsStr) -> Result<Self, Error> {
        let bytes = argument.as_bytes();
        let shown = Printable(bytes);
        if let Some(rest) = bytes.strip_prefix(SCHEME) {
            let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            if authority.is_empty() && !path.is_empty() {
                let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
                return Ok(Self::Remote(Remote { server: Server::Ticket, path }));
            }
            let refuse = |why: &str| {
                let form = "sabul://[USER@]HOST[:PORT]/PATH, an IPv6 address in brackets";
                invalid(&shown, why, form)
            };
            let authority = std::str::from_utf8(authority)
                .map_err(|_| refuse("names a host that is no readable text"))?;
            let host = Host::of_user(authority).map_err(refuse)?;
            let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
            return Ok(Self::Remote(Remote { server: Server::Listener(host), path }));
        }
        if bytes.is_empty() {
            return Err(invalid(&shown, "is an empty path", "'.' for this folder"));
        }
        if let Some((account, path)) = split_account(bytes) {
            let refuse = |why: &str| {
                let form = format!(
                    "[USER@]HOST:PATH for a host that ssh reaches, or ./{shown} for a file of this machine"
                );
                invalid(&shown, why, form)
            };
            if bytes.len() > 2 && account.len() == 1 && path.starts_with(b"\\") {
                return Err(refuse("looks like a path of Windows"));
            }
            let account = std::str::from_utf8(account)
                .map_err(|_| refuse("names a host that is no readable text"))?;
            let account = check_account(account).map_err(refuse)?;
            let server = Server::Ssh(account);
            // Relative paths start at the home directory there, and no shell expands `~`.
            let path = match path {
                b"~" => b"",
                _ => path.strip_prefix(b"~/").unwrap_or(path),
            };
            return Ok(Self::Remote(Remote { server, path: path.to_vec() }));
        }
        Ok(Self::Local(OsString::from_vec(bytes.to_vec())))
    }
}

/// Splits `[user@]host:path` by the rule of scp: the colon comes before any `/`, and an IPv6 address stands in
/// brackets.
fn split_account(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = bytes.split(|&byte| byte == b'/').next().unwrap_or(bytes);
    let host_at = name.iter().position(|&byte| byte == b'@').map_or(0, |at| at + 1);
    let from = match name.get(host_at) {
        Some(b'[') => name.windows(2).position(|pair| pair == b"]:")? + 1,
        _ => 0,
    };
    let colon = from + name[from..].iter().position(|&byte| byte == b':')?;
    Some((&bytes[..colon], &bytes[colon + 1..]))
}

/// Makes the error of an address; `reason` follows the address in the message.
pub(crate) fn invalid(
    address: &dyn fmt::Display,
    reason: impl Into<String>,
    form: impl Into<String>,
) -> Error {
    let address = address.to_string();
    Error::Address { address, reason: reason.into(), form: form.into() }
}

/// Returns the account in ssh's form, without the brackets of an IPv6 address, or the reason why the account is
/// invalid.
pub(crate) fn check_account(account: &str) -> Result<String, &'static str> {
    let (user, host) = match account.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, account),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let odd = |c: char| c.is_whitespace() || c.is_control() || "[]'\"`$\\;&|<>(){}".contains(c);
    if bare.is_empty() || user == Some("") {
        return Err("names no host");
    }
    // ssh would parse such a name as an option.
    if account.starts_with('-') || bare.starts_with('-') {
        return Err("names a host that starts with '-'");
    }
    if account.len() > 1024 || bare.contains(odd) || user.is_some_and(|user| user.contains(odd)) {
        return Err("names a host with signs that no host has");
    }
    Ok(user.map_or_else(|| bare.to_owned(), |user| format!("{user}@{bare}")))
}

impl Host {
    /// The name or IP address, without brackets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Parses `[user@]host[:port]`.
    fn of_user(text: &str) -> Result<Self, &'static str> {
        let (user, host) = match text.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, text),
        };
        let mut host = Self::parse(host)?;
        if let Some(user) = user {
            check_account(&format!("{user}@{}", host.name))?;
            host.user = Some(user.to_owned());
        }
        Ok(host)
    }

    /// The account in ssh's form, if the text names no port: a port is that of a listener.
    ///
    /// # Errors
    /// The reason why ssh accepts no such name, as a phrase that follows the name in a message.
    pub fn account(&self) -> Result<Option<String>, &'static str> {
        if self.port.is_some() {
            return Ok(None);
        }
        let account = match &self.user {
            Some(user) => format!("{user}@{}", self.name),
            None => self.name.clone(),
        };
        check_account(&account).map(Some)
    }

    /// Parses `host`, `host:port`, `[IPv6]` or `[IPv6]:port`.
    ///
    /// # Errors
    /// The reason as a phrase that follows the quoted text in a message.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.contains('@') {
            return Err("names a user, which a ticket or key makes needless");
        }
        let (name, port) = if let Some(rest) = text.strip_prefix('[') {
            let (name, port) =
                rest.split_once(']').ok_or("lacks the ']' after its IPv6 address")?;
            if name.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("has something else than an IPv6 address in its brackets");
            }
            let port = match port {
                "" => None,
                port => Some(port.strip_prefix(':').ok_or("has no ':' after its ']'")?),
            };
            (name, port)
        } else {
            match text.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err("has an IPv6 address without brackets");
                }
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            }
        };
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err("names no host");
        }
        let port = port
            .map(|port| {
                port.parse()
                    .ok()
                    .filter(|&port| port > 0)
                    .ok_or("has no port number from 1 to 65535")
            })
            .transpose()?;
        Ok(Self { name: name.to_owned(), port, user: None })
    }

    /// Returns the address of a standing listener, in lower case; the default port is 4850.
    pub fn standing(&self) -> String {
        self.with_port(self.port.unwrap_or(DEFAULT_PORT)).to_ascii_lowercase()
    }

    fn with_port(&self, port: u16) -> String {
        format!("{}:{port}", self.with_brackets())
    }

    /// The name, with brackets around an IPv6 address.
    fn with_brackets(&self) -> String {
        if self.name.contains(':') { format!("[{}]", self.name) } else { self.name.clone() }
    }

    /// Returns the address to dial; the default port is that of the ticket, or of its introducer if the name is the same.
    ///
    /// # Errors
    /// If neither the text nor the ticket has a port.
    pub fn dial(&self, ticket: &Ticket) -> Result<String, Error> {
        let of_introducer = ticket.introduction().and_then(|it| it.address.rsplit_once(':'));
        let of_introducer = of_introducer.filter(|(host, _)| *host == self.with_brackets());
        let first = || ticket.addresses().first()?.rsplit_once(':');
        let port = self.port.or_else(|| of_introducer.or_else(first)?.1.parse().ok());
        let port = port.ok_or_else(|| {
            let form = format!("{}:PORT", self.name);
            invalid(&self.name, "has no port, and the ticket names no port of this host", form)
        })?;
        Ok(self.with_port(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(name: &str, port: Option<u16>, path: &[u8]) -> Location {
        let host = Host { name: name.to_owned(), port, user: None };
        Location::Remote(Remote { server: Server::Listener(host), path: path.to_vec() })
    }

    fn by_ssh(account: &str, path: &[u8]) -> Location {
        Location::Remote(Remote { server: Server::Ssh(account.to_owned()), path: path.to_vec() })
    }

    #[test]
    fn addresses_are_read_and_their_paths_kept_byte_for_byte() {
        for (text, place) in [
            (&b"sabul://host:4850/a/b"[..], remote("host", Some(4850), b"a/b")),
            (b"sabul://host", remote("host", None, b"")),
            (b"sabul://[::1]:9/a b%20", remote("::1", Some(9), b"a b%20")),
            (b"sabul://[fe80::1]/", remote("fe80::1", None, b"")),
            (b"sabul://10.0.0.1:1/caf\xE9/", remote("10.0.0.1", Some(1), b"caf\xE9/")),
            (b"sabul://host//etc", remote("host", None, b"/etc")),
            (b"./host:path", Location::Local("./host:path".into())),
            (b"a/b:c", Location::Local("a/b:c".into())),
            (b"host:path", by_ssh("host", b"path")),
            (b"host:", by_ssh("host", b"")),
            (
                b"sabul:///a",
                Location::Remote(Remote { server: Server::Ticket, path: b"a".to_vec() }),
            ),
            (b"host:~/a", by_ssh("host", b"a")),
            (b"host:~", by_ssh("host", b"")),
            (b"c:/x", by_ssh("c", b"/x")),
            (b"me@host:/a b:c", by_ssh("me@host", b"/a b:c")),
            (b"[::1]:caf\xE9", by_ssh("::1", b"caf\xE9")),
            (b"me@[fe80::1%eth0]:x", by_ssh("me@fe80::1%eth0", b"x")),
            (b"-", Location::Local("-".into())),
        ] {
            assert_eq!(Location::parse(OsStr::from_bytes(text)).unwrap(), place, "{text:?}");
        }
    }

    #[test]
    fn ambiguous_places_are_refused() {
        for text in [
            "",
            ":path",
            "@host:path",
            "me@:path",
            "-oProxyCommand=x:path",
            "me@-x:path",
            "a b:c",
            "a;b:c",
            "C:\\x",
            "sabul://",
            "sabul://:4850/",
            "sabul://host:0/",
            "sabul://host:70000/",
            "sabul://host:/",
            "sabul://::1/",
            "sabul://[::1/",
            "sabul://[host]:1/",
            "sabul://[::1]9/",
            "sabul://@host/",
            "sabul://a b@host/",
            "sabul://-oProxyCommand=x@host/",
        ] {
            let error = Location::parse(OsStr::new(text)).unwrap_err();
            assert!(matches!(error, Error::Address { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn an_address_without_a_port_names_an_account_of_ssh() {
        let account = |text: &str| match Location::parse(OsStr::new(text)).unwrap() {
            Location::Remote(Remote { server: Server::Listener(host), path }) => {
                (host.account().unwrap(), path)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(account("sabul://me@host/a"), (Some("me@host".to_owned()), b"a".to_vec()));
        assert_eq!(account("sabul://host//a"), (Some("host".to_owned()), b"/a".to_vec()));
        assert_eq!(account("sabul://me@[::1]"), (Some("me@::1".to_owned()), Vec::new()));
        assert_eq!(account("sabul://me@host:4850/a").0, None);
    }

    #[test]
    fn a_missing_port_is_taken_from_the_ticket() {
        let ticket = Ticket::generate(vec!["[::1]:77".to_owned()], [0; 32]).unwrap();
        let dial = |text| Host::parse(text).unwrap().dial(&ticket).unwrap();
        assert_eq!(dial("host"), "host:77");
        assert_eq!(dial("[::2]"), "[::2]:77");
        assert_eq!(dial("[::2]:5"), "[::2]:5");
        let standing = |text| Host::parse(text).unwrap().standing();
        assert_eq!(standing("Far"), "far:4850");
        assert_eq!(standing("[::2]:5"), "[::2]:5");
    }
}
