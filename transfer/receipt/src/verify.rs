//! Verification of a receipt, and of a directory against a receipt.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path};

use data_encoding::HEXLOWER;
use sabul_keys::{Fingerprint, RECEIPT_NAMESPACE, from_armor};

use crate::hashes::{FileHasher, FileHashes};
use crate::manifest::{Line, Manifests};
use crate::names;
use crate::statement::{Role, Statement};

/// Longest statement, signature or list of signers, in bytes.
const SMALL_MAX: u64 = 1 << 20;
/// Longest line of a manifest: an escaped path of 4096 bytes, and the hash.
const LINE_MAX: u64 = 2 * 4096 + 128;
/// The open of a FIFO does not wait for a writer.
const NON_BLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
/// Bytes of a file that are read at once.
const READ_AT_ONCE: usize = 1 << 20;

/// A file that differs from the receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path: of the receipt's files, or relative to the verified directory.
    pub path: Vec<u8>,
    /// The difference, and the remedy.
    pub what: String,
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The statement, if its text is valid.
    pub statement: Option<Statement>,
    /// Files in the manifests.
    pub files: u64,
    /// Files of the directory that are as in the receipt.
    pub equal: u64,
    /// Bytes of the files of the directory that were read.
    pub bytes: u64,
    /// Differences; empty if the receipt, and the directory if given, are right.
    pub findings: Vec<Finding>,
    /// Files that could not be read.
    pub unreadable: Vec<Finding>,
}

impl Verified {
    fn find(&mut self, path: &[u8], what: impl Into<String>) {
        self.findings.push(Finding { path: path.to_vec(), what: what.into() });
    }

    /// Whether nothing differs and everything could be read.
    pub fn is_right(&self) -> bool {
        self.findings.is_empty() && self.unreadable.is_empty()
    }
}

/// Whether a path is a directory with most files of a receipt.
pub fn is_receipt(path: &Path) -> bool {
    names::ALL.iter().filter(|name| path.join(name).is_file()).count() >= names::ALL.len() / 2
}

/// Whether a directory has no other entries than files of a receipt.
pub fn has_only_receipt(path: &Path) -> bool {
    let is_known = |name: &OsStr| names::ALL.iter().any(|known| name == *known);
    fs::read_dir(path).is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| is_known(&entry.file_name())))
    })
}

/// Verifies the receipt in `folder`: its form, signatures and manifests. With `target`, each file of the manifests is read
/// there and compared. `signers` replaces the `allowed_signers` of the receipt.
pub fn verify(folder: &Path, target: Option<&Path>, signers: Option<&Path>) -> Verified {
    let mut verified = Verified::default();
    let Some(text) = read(folder, names::STATEMENT, &mut verified) else { return verified };
    let statement = match Statement::parse(&text) {
        Ok(statement) => statement,
        Err(error) => {
            let why = format!("{error}; get the receipt again from the end that wrote it");
            verified.find(names::STATEMENT.as_bytes(), why);
            return verified;
        }
    };
    check_signatures(folder, &text, &statement, signers, &mut verified);
    check_manifests(folder, target, &statement, &mut verified);
    verified.statement = Some(statement);
    verified
}

fn read(folder: &Path, name: &str, verified: &mut Verified) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let opened = open_plain(&folder.join(name));
    match opened.and_then(|file| file.take(SMALL_MAX).read_to_end(&mut bytes)) {
        Ok(_) => Some(bytes),
        Err(error) => {
            let why = format!("{error}: the receipt is incomplete; make it again");
            verified.find(name.as_bytes(), why);
            None
        }
    }
}

fn check_signatures(
    folder: &Path,
    text: &[u8],
    statement: &Statement,
    signers: Option<&Path>,
    verified: &mut Verified,
) {
    if let Some(beside) = read(folder, names::SIGNERS, verified)
        && beside != statement.allowed_signers().as_bytes()
    {
        let why = "the keys are not those of the statement; get the file again";
        verified.find(names::SIGNERS.as_bytes(), why);
    }
    let allowed = match signers {
        None => statement.allowed_signers(),
        Some(path) => match fs::read_to_string(path) {
            Ok(allowed) => allowed,
            Err(error) => {
                let path = path.as_os_str().as_bytes();
                verified.find(path, format!("{error}: give a file of allowed signers"));
                return;
            }
        },
    };
    for (role, name) in [(Role::Receiver, names::RECEIVER), (Role::Sender, names::SENDER)] {
        let Some(signature) = read(folder, name, verified) else { continue };
        let key = match from_armor(&signature) {
            Some(signature) => sabul_keys::verify(RECEIPT_NAMESPACE, text, &signature),
            None => Err(sabul_keys::SignatureError::Malformed),
        };
        let of_receipt = "the receipt was changed, or another signature was put beside it";
        match key {
            Err(_) => verified.find(
                name.as_bytes(),
                format!("not a signature of {} by its {}: {of_receipt}", names::STATEMENT, role.name()),
            ),
            Ok(key) if Some(key) != Fingerprint::of_line(&statement.party(role).key) => verified.find(
                name.as_bytes(),
                format!("signed with {key}, and not with the key of the {}: {of_receipt}", role.name()),
            ),
            Ok(key) if !is_allowed(&allowed, role, key) => verified.find(
                name.as_bytes(),
                format!(
                    "signed with {key}, which the allowed signers do not have for '{}': add the key if you trust it",
                    role.name()
                ),
            ),
            Ok(_) => {}
        }
    }
}

/// Whether a line of allowed signers has this key for the principal of the role. [ssh-keygen ALLOWED SIGNERS]
fn is_allowed(allowed: &str, role: Role, key: Fingerprint) -> bool {
    allowed.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let principals = words.next().unwrap_or_default();
        // Negations are not evaluated, so such a line allows nothing.
        let is_text = principals.starts_with('#') || principals.contains('!');
        let is_named =
            !is_text && principals.split(',').any(|name| name == role.name() || name == "*");
        let words: Vec<&str> = words.collect();
        let at = words
            .iter()
            .position(|word| ["ssh-", "ecdsa-", "sk-"].iter().any(|start| word.starts_with(start)));
        let Some(at) = at else { return false };
        let options = lower_outside_quotes(&words[..at].join(" "));
        let is_for_receipts = !options.contains("namespaces=")
            || options.contains(&format!("\"{RECEIPT_NAMESPACE}\""));
        // Certificates and times of validity are not evaluated, so such a line allows nothing.
        let is_plain = !options.contains("cert-authority") && !options.contains("valid-");
        is_named
            && is_plain
            && is_for_receipts
            && Fingerprint::of_line(&words[at..].join(" ")) == Some(key)
    })
}

/// Options in lower letters; values in quotes stay. ssh-keygen compares names of options without case.
fn lower_outside_quotes(options: &str) -> String {
    let parts = options.split('"').enumerate();
    let lowered = parts.map(|(number, part)| match number % 2 {
        0 => part.to_ascii_lowercase(),
        _ => part.to_owned(),
    });
    lowered.collect::<Vec<_>>().join("\"")
}

fn check_manifests(
    folder: &Path,
    target: Option<&Path>,
    statement: &Statement,
    verified: &mut Verified,
) {
    let mut open = |name: &str| match open_plain(&folder.join(name)) {
        Ok(file) => Some(BufReader::new(file)),
        Err(error) => {
            verified.find(
                name.as_bytes(),
                format!("{error}: the receipt is incomplete; make it again"),
            );
            None
        }
    };
    let (Some(mut sha256), Some(mut blake3)) = (open(names::SHA256), open(names::BLAKE3)) else {
        return;
    };
    // A manifest that is not the signed one says nothing about files.
    for (name, file) in [(names::SHA256, &mut sha256), (names::BLAKE3, &mut blake3)] {
        let hashed = hash_all(file);
        let is_signed = match &hashed {
            Ok(hash) => statement.digest_of(name) == Some(HEXLOWER.encode(&hash.sha256).as_str()),
            Err(_) => false,
        };
        if !is_signed {
            let why = "the file is not the signed one: a line was changed, added or removed; get it again";
            verified.find(name.as_bytes(), why);
        }
    }
    if !verified.findings.iter().all(|finding| {
        finding.path != names::SHA256.as_bytes() && finding.path != names::BLAKE3.as_bytes()
    }) {
        return;
    }
    let rewound = io::Seek::rewind(&mut sha256).and_then(|()| io::Seek::rewind(&mut blake3));
    let mut totals = Manifests::default();
    let mut sum = 0;
    let mut at = 0_u64;
    loop {
        at += 1;
        let lines = rewound
            .as_ref()
            .map_err(|_| ())
            .and_then(|()| Ok((next_line(&mut sha256)?, next_line(&mut blake3)?)));
        match lines {
            Ok((None, None)) => break,
            Ok((Some(one), Some(other))) if one.path == other.path => {
                let expected = FileHashes { bytes: 0, sha256: one.hash, blake3: other.hash };
                totals.add(&one.path, &expected);
                if let Some(target) = target {
                    sum += check_file(target, &one.path, &expected, verified);
                }
            }
            _ => {
                let why = format!(
                    "line {at} of both manifests is not of the same file; make the receipt again"
                );
                verified.find(names::BLAKE3.as_bytes(), why);
                return;
            }
        }
    }
    verified.files = totals.totals().0;
    verified.bytes = sum;
    let is_complete = verified.findings.is_empty() && verified.unreadable.is_empty();
    if verified.files != statement.predicate.files
        || (target.is_some() && is_complete && sum != statement.predicate.bytes)
    {
        let why = "the numbers of files and bytes are not those of the manifests";
        verified.find(names::STATEMENT.as_bytes(), why);
    }
}

/// Returns the next line of a manifest; `None` at the end.
fn next_line(reader: &mut BufReader<File>) -> Result<Option<Line>, ()> {
    let mut line = Vec::new();
    reader.take(LINE_MAX).read_until(b'\n', &mut line).map_err(|_| ())?;
    match line.strip_suffix(b"\n") {
        None if line.is_empty() => Ok(None),
        None => Err(()),
        Some(line) => Line::parse(line).map(Some).map_err(|_| ()),
    }
}

/// Compares a file of the directory. Returns its bytes.
fn check_file(target: &Path, path: &[u8], expected: &FileHashes, verified: &mut Verified) -> u64 {
    let below = Path::new(OsStr::from_bytes(path));
    if !below.components().all(|part| matches!(part, Component::Normal(_))) {
        verified.find(path, "the path leads out of the directory; do not use this receipt");
        return 0;
    }
    let place = target.join(below);
    let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink());
    if below
        .ancestors()
        .filter(|part| *part != Path::new(""))
        .any(|part| is_link(&target.join(part)))
    {
        verified.find(path, "is a link or below a link, and not a file of the copy; copy it again");
        return 0;
    }
    match open_plain(&place).and_then(|mut file| hash_all(&mut file)) {
        Ok(hashes) => {
            if (hashes.sha256, hashes.blake3) != (expected.sha256, expected.blake3) {
                verified.find(
                    path,
                    "the content is not that of the receipt; copy it again from the source",
                );
            } else {
                verified.equal += 1;
            }
            hashes.bytes
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            verified.find(path, "is not a file any more; copy it again");
            0
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            verified.find(path, "the file is missing; copy it again from the source");
            0
        }
        Err(error) => {
            let what = format!("cannot be read: {error}");
            verified.unreadable.push(Finding { path: path.to_vec(), what });
            0
        }
    }
}

/// Opens a regular file. A FIFO would block, and a device may have no end.
fn open_plain(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(NON_BLOCKING).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

fn hash_all(file: &mut impl io::Read) -> io::Result<FileHashes> {
    let (mut hasher, mut buffer) = (FileHasher::default(), vec![0; READ_AT_ONCE]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_file_below_a_link_is_not_a_file_of_the_copy() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("other")).unwrap();
        fs::write(folder.path().join("other/a"), "").unwrap();
        std::os::unix::fs::symlink("other", folder.path().join("link")).unwrap();
        let hashes = hash_all(&mut io::empty()).unwrap();
        let mut verified = Verified::default();
        check_file(folder.path(), b"other/a", &hashes, &mut verified);
        assert_eq!((verified.findings.len(), verified.equal), (0, 1));
        check_file(folder.path(), b"link/a", &hashes, &mut verified);
        assert_eq!((verified.findings.len(), verified.equal), (1, 1));
    }

    #[test]
    fn options_of_allowed_signers_have_no_case() {
        let key =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";
        let print = Fingerprint::of_line(key).unwrap();
        let is_allowed =
            |options: &str| is_allowed(&format!("receiver {options} {key}"), Role::Receiver, print);
        assert!(is_allowed("") && is_allowed("NAMESPACES=\"sabul-receipt@v1\""));
        for options in ["NAMESPACES=\"git\"", "CERT-AUTHORITY", "Valid-Before=\"20200101\""] {
            assert!(!is_allowed(options), "{options}");
        }
    }

    #[test]
    fn a_key_that_is_commented_out_or_excluded_is_not_allowed() {
        let key =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";
        let print = Fingerprint::of_line(key).unwrap();
        let is_allowed =
            |principals: &str| is_allowed(&format!("{principals} {key}"), Role::Receiver, print);
        assert!(is_allowed("sender,receiver") && is_allowed("  *"));
        for principals in
            ["#sender,receiver", " #x,*", "# receiver", "!receiver,*", "*,!rec*", "sender"]
        {
            assert!(!is_allowed(principals), "{principals}");
        }
    }

    #[test]
    fn a_directory_with_other_files_is_more_than_a_receipt() {
        let folder = tempfile::tempdir().unwrap();
        for name in [names::STATEMENT, names::SHA256, names::BLAKE3] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert!(is_receipt(folder.path()) && has_only_receipt(folder.path()));
        fs::write(folder.path().join("important"), "").unwrap();
        assert!(is_receipt(folder.path()) && !has_only_receipt(folder.path()));
    }

    #[test]
    fn pipes_and_devices_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for path in [&pipe, &link] {
            let error = open_plain(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        let mut verified = Verified::default();
        let hashes = FileHashes { bytes: 0, sha256: [0; 32], blake3: [0; 32] };
        for name in [&b"pipe"[..], b"link"] {
            assert_eq!(check_file(folder.path(), name, &hashes, &mut verified), 0);
        }
        assert!(verified.findings[0].what.contains("not a file any more"), "{verified:?}");
        assert!(verified.findings[1].what.contains("is a link"), "{verified:?}");
        assert_eq!((verified.findings.len(), verified.unreadable.len()), (2, 0));
    }
}
