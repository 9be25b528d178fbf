//! Keys that a server accepts, from a file in the form of `authorized_keys` [sshd(8)].
//!
//! A line is `[OPTIONS] TYPE KEY [COMMENT]`. Options are those of [`Grant::set`]; options of sshd that restrict nothing
//! here are skipped. A line with any other option, or of another form, is reported and its key refused, because a
//! restriction that is not understood cannot be kept.
//!
//! The file is read again when it changed. A file that is missing or open to others authorizes nobody.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ssh_key::PublicKey;
use ssh_key::public::KeyData;
use tracing::{info, warn};

use crate::fingerprint::Fingerprint;
use crate::grant::Grant;
use crate::guard::{self, FileError, Others};

/// Longest file in bytes; 50 000 RSA keys.
const FILE_MAX: u64 = 32 << 20;
/// A file that changed so shortly before it was read is read again: the clock of file times is coarse.
const TIME_RESOLUTION: Duration = Duration::from_secs(2);
/// Options of sshd that restrict only what sabul does not offer.
const IGNORED_OPTIONS: [&str; 6] = [
    "no-pty",
    "no-user-rc",
    "no-agent-forwarding",
    "no-port-forwarding",
    "no-x11-forwarding",
    "restrict",
];

/// Keys that a server accepts, with their grants. Clones share the keys.
#[derive(Clone, Debug)]
pub struct AuthorizedKeys {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: HashMap<Fingerprint, Arc<Grant>>,
    /// State of the file when it was read; `None` if it must be read again.
    version: Option<Version>,
    problem: Option<String>,
}

/// Identity of a file's content, without reading the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl AuthorizedKeys {
    /// Reads the file.
    ///
    /// # Errors
    /// If the file is missing, open to others, or too long.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let state = read(path)?;
        let shared = Shared { path: path.to_owned(), state: Mutex::new(state) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the grant of a key; `None` if the key is not accepted. Reads the file again if it changed, so the call
    /// may block.
    pub fn find(&self, key: Fingerprint) -> Option<Arc<Grant>> {
        self.refreshed().keys.get(&key).map(Arc::clone)
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.refreshed().keys.len()
    }

    fn refreshed(&self) -> MutexGuard<'_, State> {
        let path = &self.shared.path;
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.version.is_some() && state.version == version(path) {
            return state;
        }
        match read(path) {
            Ok(read) => {
                if read.keys.len() != state.keys.len() || state.problem.is_some() {
                    info!(path = %path.display(), keys = read.keys.len(), "authorized keys read");
                }
                *state = read;
            }
            Err(error) => {
                let problem = error.to_string();
                if state.problem.as_ref() != Some(&problem) {
                    warn!("{problem}; no key is accepted until this is repaired");
                }
                *state = State { problem: Some(problem), ..State::default() };
            }
        }
        state
    }
}

/// Returns the version of the file; `None` if it changed just now, so that another change could look the same.
fn version(path: &Path) -> Option<Version> {
    let facts = std::fs::metadata(path).ok()?;
    let age = |time| SystemTime::now().duration_since(time).ok();
    let is_settled = facts.modified().ok().and_then(age).is_some_and(|age| age >= TIME_RESOLUTION);
    is_settled.then(|| Version {
        inode: (facts.dev(), facts.ino()),
        size: facts.size(),
        modified: (facts.mtime(), facts.mtime_nsec()),
        changed: (facts.ctime(), facts.ctime_nsec()),
    })
}

fn read(path: &Path) -> Result<State, FileError> {
    // A change during the read leads to another version.
    let version = version(path);
    let bytes = guard::read(path, Others::WriteNothing, FILE_MAX)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut keys = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        match parse_line(line) {
            // As in sshd, the first line of a key decides.
            Ok(Some(KeyLine { key, grant, .. })) => {
                keys.entry(key).or_insert_with(|| Arc::new(grant));
            }
            Ok(None) => {}
            Err(reason) => warn!("'{}' line {}: {reason}", path.display(), number + 1),
        }
    }
    Ok(State { keys, version, problem: None })
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyLine {
    /// The public key.
    pub key: Fingerprint,
    /// Limits of the key.
    pub grant: Grant,
    /// Options as written.
    pub options: String,
    /// Text behind the key, which nobody has verified.
    pub comment: String,
}

impl KeyLine {
    /// Parses a line; `None` for an empty line or a comment.
    ///
    /// # Errors
    /// The reason why the line authorizes no key.
    pub fn parse(line: &str) -> Result<Option<Self>, String> {
        parse_line(line)
    }
}

fn parse_line(line: &str) -> Result<Option<KeyLine>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (options, key) = match PublicKey::from_openssh(line) {
        Ok(key) => ("", key),
        Err(_) => {
            let (options, rest) = split_options(line)?;
            let key = PublicKey::from_openssh(rest.trim_start())
                .map_err(|_| "not a public key of ssh, with options in front of it".to_owned())?;
            (options, key)
        }
    };
    match key.key_data() {
        KeyData::Dsa(_) | KeyData::Other(_) => {
            return Err(format!(
                "keys of the kind {} are not accepted: use an Ed25519, ECDSA or RSA key",
                key.algorithm()
            ));
        }
        _ => {}
    }
    let mut grant = Grant::default();
    let mut seen = HashSet::new();
    for (name, value) in parse_options(options)? {
        let name = name.to_ascii_lowercase();
        // A second limit of a kind would silently replace the first one.
        if value.is_some() && !seen.insert(name.clone()) {
            return Err(format!(
                "the option '{name}' is given twice, so the key is refused: keep one"
            ));
        }
        let is_known = match &value {
            Some(value) => grant.set(&name, value)?,
            None => IGNORED_OPTIONS.contains(&name.as_str()),
        };
        if !is_known {
            return Err(format!(
                "the option '{name}' is not supported here, so the key is refused: remove the option or the line"
            ));
        }
    }
    let blob = key.to_bytes().map_err(|error| error.to_string())?;
    let (options, comment) = (options.to_owned(), key.comment().to_owned());
    Ok(Some(KeyLine { key: Fingerprint::of(&blob), grant, options, comment }))
}

/// Splits a line at the first space outside of quotes.
fn split_options(line: &str) -> Result<(&str, &str), String> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' if !is_escaped => is_quoted = !is_quoted,
            ' ' | '\t' if !is_quoted => return Ok((&line[..at], &line[at..])),
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    Err(if is_quoted { "a quote is not closed" } else { "not a public key of ssh" }.to_owned())
}

/// Parses `name`, `name=value` and `name="value"`, separated by commas; `\"` is a quote in a value.
fn parse_options(options: &str) -> Result<Vec<(String, Option<String>)>, String> {
    let mut parsed = Vec::new();
    let mut rest = options;
    while !rest.is_empty() {
        let end = rest.find(['=', ',']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let value = match after.strip_prefix('=') {
            None => {
                rest = after;
                None
            }
            Some(quoted) if quoted.starts_with('"') => {
                let (value, after) = unquote(&quoted[1..])?;
                rest = after;
                Some(value)
            }
            Some(plain) => {
                let end = plain.find(',').unwrap_or(plain.len());
                rest = &plain[end..];
                Some(plain[..end].to_owned())
            }
        };
        parsed.push((name.to_owned(), value));
        rest = match rest.strip_prefix(',') {
            Some(more) if !more.is_empty() => more,
            None if rest.is_empty() => rest,
            _ => return Err("the options are not separated by single commas".to_owned()),
        };
    }
    Ok(parsed)
}

/// Returns the text up to the closing quote, and the rest behind the quote.
fn unquote(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' if text[at + 1..].starts_with('"') => {
                value.push('"');
                characters.next();
            }
            _ => value.push(c),
        }
    }
    Err("a quote is not closed".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";
    const OTHER: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB9dG4kjRhQTtWTVzd2t27+t0DEHBPW7iOD23TUiYLio";

    fn parse(options: &str) -> Result<Grant, String> {
        let line = format!("{options} {KEY} a comment with spaces");
        parse_line(&line).map(|parsed| parsed.unwrap().grant)
    }

    #[test]
    fn an_option_that_is_given_twice_refuses_the_key() {
        for options in [
            r#"expiry-time="20200101",expiry-time="20301231""#,
            r#"from="10.0.0.0/8",FROM="127.0.0.0/8""#,
            r#"rights="list",rights="read,write""#,
        ] {
            assert!(parse(options).unwrap_err().contains("given twice"), "{options}");
        }
        parse("no-pty,no-pty").unwrap();
    }

    #[test]
    fn options_stand_in_front_of_the_key() {
        let line = format!("{KEY} me@here");
        let KeyLine { key, grant, comment, .. } = parse_line(&line).unwrap().unwrap();
        assert_eq!((grant, comment.as_str()), (Grant::default(), "me@here"));
        let grant =
            parse(r#"root="a b/c",Rights="read,list",no-pty,expiry-time=20300101Z"#).unwrap();
        assert_eq!(
            (&grant.root[..], grant.rights.to_string()),
            (&b"a b/c"[..], "read,list".into())
        );
        assert!(grant.expires.is_some());
        assert_eq!(parse(r#"root="a\"b""#).unwrap().root, b"a\"b");
        let spaced = parse_line(&format!("  no-pty\t{KEY}")).unwrap().unwrap();
        assert_eq!((spaced.key, spaced.options.as_str()), (key, "no-pty"));
        for nothing in ["", "   ", "# comment"] {
            assert_eq!(parse_line(nothing), Ok(None));
        }
    }

    #[test]
    fn an_invalid_line_authorizes_no_key() {
        for options in [
            r#"command="/bin/true""#,
            "cert-authority",
            "rights=read,list",
            r#"rights="read"#,
            r#"rights="read"list"#,
            "no-pty,,no-pty",
            "no-pty,",
            "unknown",
            "root",
        ] {
            assert!(parse(options).is_err(), "{options}");
        }
        for line in ["ssh-ed25519", "ssh-ed25519 AAAA", "x", "ssh-dss AAAAB3NzaC1kc3M="] {
            assert!(parse_line(line).is_err(), "{line}");
        }
    }

    fn fingerprint(key: &str) -> Fingerprint {
        parse_line(key).unwrap().unwrap().key
    }

    #[test]
    fn a_changed_file_is_read_again_and_the_first_line_of_a_key_decides() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        assert!(AuthorizedKeys::open(&path).unwrap_err().is_missing());
        fs::write(&path, format!("rights=list {KEY}\n{KEY}\n")).unwrap();
        let keys = AuthorizedKeys::open(&path).unwrap();
        assert_eq!(keys.find(fingerprint(KEY)).unwrap().rights.to_string(), "list");
        assert_eq!((keys.find(fingerprint(OTHER)), keys.count()), (None, 1));
        // The same length and, on a coarse clock, the same time.
        fs::write(&path, format!("rights=list {OTHER}\n{OTHER}\n")).unwrap();
        assert_eq!(keys.find(fingerprint(KEY)), None);
        assert!(keys.find(fingerprint(OTHER)).is_some());
        fs::remove_file(&path).unwrap();
        assert_eq!(keys.find(fingerprint(OTHER)), None);
        fs::write(&path, OTHER).unwrap();
        assert!(keys.find(fingerprint(OTHER)).is_some());
    }

    #[test]
    fn a_settled_file_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs::write(&path, KEY).unwrap();
        assert_eq!(version(&path), None, "it changed just now");
        let old = SystemTime::now() - Duration::from_secs(60);
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        let keys = AuthorizedKeys::open(&path).unwrap();
        assert!(keys.refreshed().version.is_some());
        assert_eq!(keys.refreshed().version, version(&path));
    }
}
