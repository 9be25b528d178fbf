//! Places as people write them: local paths, `-`, and `sabul://host[:port]/path`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use crate::error::Error;
use crate::ticket::Ticket;

const SCHEME: &[u8] = b"sabul://";

/// One source or destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A path on this machine, or `-`.
    Local(OsString),
    /// Below the root of a listener.
    Remote(Remote),
}

/// A place below the root of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Who serves it.
    pub host: Host,
    /// The path below the root, byte for byte as written, without the `/` in front.
    pub path: Vec<u8>,
}

/// A listener by name or address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name or IP address, without brackets.
    name: String,
    port: Option<u16>,
}

impl Place {
    /// Reads one argument. Nothing is decoded: a path may hold any bytes.
    ///
    /// # Errors
    /// If it could be two things, or names no host; the error says how to write it.
    pub fn parse(argument: &OsStr) -> Result<Self, Error> {
        let bytes = argument.as_bytes();
        let shown = argument.to_string_lossy();
        if let Some(rest) = bytes.strip_prefix(SCHEME) {
            let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let authority = std::str::from_utf8(authority).map_err(|_| {
                Error::Config(format!("the host in '{shown}' is not readable text"))
            })?;
            let host = Host::parse(authority).map_err(|why| {
                Error::Config(format!(
                    "'{shown}' {why}; write sabul://HOST:PORT/PATH, an IPv6 address in brackets"
                ))
            })?;
            let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
            return Ok(Self::Remote(Remote { host, path }));
        }
        if bytes.is_empty() {
            return Err(Error::Config(
                "an empty path names nothing; write '.' for this folder".to_owned(),
            ));
        }
        let first = bytes.split(|&byte| byte == b'/').next().unwrap_or(bytes);
        if first.contains(&b':') {
            return Err(Error::Config(format!(
                "'{shown}' could be a host or a file; write sabul://HOST:PORT/PATH for a host, or \
                 ./{shown} for a file of this machine"
            )));
        }
        Ok(Self::Local(OsString::from_vec(bytes.to_vec())))
    }
}

impl Host {
    /// Reads `host`, `host:port`, `[IPv6]` or `[IPv6]:port`.
    ///
    /// # Errors
    /// What is wrong with it, to go behind the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.contains('@') {
            return Err("names a user, which a ticket makes needless");
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
        Ok(Self { name: name.to_owned(), port })
    }

    /// The address to dial; the port of the ticket serves where none was written.
    ///
    /// # Errors
    /// If there is none either.
    pub fn dial(&self, ticket: &Ticket) -> Result<String, Error> {
        let port = self.port.or_else(|| {
            let first = ticket.addresses().first()?;
            first.rsplit_once(':')?.1.parse().ok()
        });
        let port = port.ok_or_else(|| {
            Error::Config(format!(
                "neither the address nor the ticket names a port of {}; write {}:PORT",
                self.name, self.name
            ))
        })?;
        Ok(if self.name.contains(':') {
            format!("[{}]:{port}", self.name)
        } else {
            format!("{}:{port}", self.name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(name: &str, port: Option<u16>, path: &[u8]) -> Place {
        let host = Host { name: name.to_owned(), port };
        Place::Remote(Remote { host, path: path.to_vec() })
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
            (b"./host:path", Place::Local("./host:path".into())),
            (b"-", Place::Local("-".into())),
        ] {
            assert_eq!(Place::parse(OsStr::from_bytes(text)).unwrap(), place, "{text:?}");
        }
    }

    #[test]
    fn what_could_be_two_things_is_refused() {
        for text in [
            "",
            "host:path",
            "sabul://",
            "sabul://:4850/",
            "sabul://host:0/",
            "sabul://host:70000/",
            "sabul://host:/",
            "sabul://::1/",
            "sabul://[::1/",
            "sabul://[host]:1/",
            "sabul://[::1]9/",
            "sabul://me@host/",
        ] {
            let error = Place::parse(OsStr::new(text)).unwrap_err();
            assert!(matches!(error, Error::Config(_)), "{text}: {error}");
        }
    }

    #[test]
    fn a_missing_port_comes_from_the_ticket() {
        let ticket = Ticket::generate(vec!["[::1]:77".to_owned()], [0; 32]).unwrap();
        let dial = |text| Host::parse(text).unwrap().dial(&ticket).unwrap();
        assert_eq!(dial("host"), "host:77");
        assert_eq!(dial("[::2]"), "[::2]:77");
        assert_eq!(dial("[::2]:5"), "[::2]:5");
    }
}
