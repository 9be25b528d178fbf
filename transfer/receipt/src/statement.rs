//! Statement of a receipt: an in-toto Statement v1 whose subjects are both manifests.
//!
//! Both ends sign the same bytes. Each end states its own part, and checks the manifests and its part before it signs.

use std::fmt;

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manifest::Manifests;
use crate::names;
use crate::signer::{Signer, here};

/// Type of the statement. [in-toto Statement v1]
const TYPE: &str = "https://in-toto.io/Statement/v1";
/// Type of the predicate.
const PREDICATE_TYPE: &str = "urn:sabul:receipt:v1";
/// Longest text of a place, in characters: a statement then fits into its message.
const PLACE_MAX: usize = 2000;

/// Part of an end in a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The end with the sources.
    Sender,
    /// The end with the destination.
    Receiver,
}

impl Role {
    /// Name of the role, which is also its principal in `allowed_signers`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    /// Both manifests.
    pub subject: [Subject; 2],
    #[serde(rename = "predicateType")]
    predicate_type: String,
    /// Facts about the copy.
    pub predicate: Predicate,
}

/// A manifest with its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// Name of the file.
    pub name: String,
    digest: Digest,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Digest {
    sha256: String,
}

/// Facts about a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicate {
    /// Number of files in each manifest.
    pub files: u64,
    /// Sum of their bytes.
    pub bytes: u64,
    /// Facts stated by the sender.
    pub sender: Party,
    /// Facts stated by the receiver.
    pub receiver: Party,
    /// Facts stated by the end that ran the command.
    pub command: CommandFacts,
}

/// Facts that an end states about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Party {
    /// Name of the host.
    pub host: String,
    /// Name of the user of the process.
    pub user: String,
    /// Places of the files, as this end names them.
    pub place: String,
    /// Program and version.
    pub software: String,
    /// Public key as a line of ssh.
    pub key: String,
    /// Name under which this end authenticated the other end, if it did by a key or a named ticket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Time at which the sender had read all files again; absent for a receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_at: Option<String>,
    /// Time at which all files were on the disk of the receiver, with their names; absent for a sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable_at: Option<String>,
}

/// Facts that the end which ran the command states about the copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandFacts {
    /// The end that ran the command.
    pub run_by: Role,
    /// Name of the command.
    pub name: String,
    /// Metadata that was not kept.
    pub not_kept: Vec<Lost>,
    /// Number of files that grew while they were read.
    pub grown: u64,
}

/// Metadata that was not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// Kind of the metadata.
    pub what: String,
    /// Number of entries.
    pub entries: u64,
}

/// Reason why an end does not sign a statement, or why a statement is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementError(String);

impl fmt::Display for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StatementError {}

impl Party {
    /// States this end's part now, with the key that will sign.
    pub fn of_this_end(
        role: Role,
        place: &str,
        software: &str,
        peer: Option<String>,
        signer: &Signer,
    ) -> Self {
        let (user, host) = here();
        let now = now();
        let place = match place.char_indices().nth(PLACE_MAX) {
            Some((end, _)) => format!("{}…", &place[..end]),
            None => place.to_owned(),
        };
        let (read_at, durable_at) = match role {
            Role::Sender => (Some(now), None),
            Role::Receiver => (None, Some(now)),
        };
        let (software, key) = (software.to_owned(), signer.public().to_owned());
        Self { host, user, place, software, key, peer, read_at, durable_at }
    }

    /// Returns the part as text.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a part.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn parse(text: &[u8]) -> Result<Self, StatementError> {
        serde_json::from_slice(text).map_err(|error| invalid("part of a statement", &error))
    }
}

/// Time as text, in UTC with seconds [RFC 3339].
fn now() -> String {
    Timestamp::from_second(Timestamp::now().as_second())
        .map_or_else(|_| String::new(), |now| now.to_string())
}

fn invalid(what: &str, error: &serde_json::Error) -> StatementError {
    StatementError(format!("the {what} is not valid: {error}"))
}

fn subjects(manifests: &Manifests) -> [Subject; 2] {
    let [sha256, blake3] = manifests.digests();
    let subject = |name: &str, hash: &[u8; 32]| Subject {
        name: name.to_owned(),
        digest: Digest { sha256: HEXLOWER.encode(hash) },
    };
    [subject(names::SHA256, &sha256), subject(names::BLAKE3, &blake3)]
}

impl Statement {
    /// Makes the statement of a copy.
    pub fn new(
        manifests: &Manifests,
        sender: Party,
        receiver: Party,
        command: CommandFacts,
    ) -> Self {
        let (files, bytes) = manifests.totals();
        Self {
            kind: TYPE.to_owned(),
            subject: subjects(manifests),
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate: Predicate { files, bytes, sender, receiver, command },
        }
    }

    /// Returns the text that is signed.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// Reads a statement; accepts only the exact text of [`Self::encode`].
    ///
    /// # Errors
    /// If the text is another.
    pub fn parse(text: &[u8]) -> Result<Self, StatementError> {
        let parsed: Self =
            serde_json::from_slice(text).map_err(|error| invalid("statement", &error))?;
        let fail = |why: &str| Err(StatementError(format!("the statement {why}")));
        if parsed.kind != TYPE || parsed.predicate_type != PREDICATE_TYPE {
            return fail("is of another type, or of a later version of sabul");
        }
        let [sha256, blake3] = &parsed.subject;
        if sha256.name != names::SHA256 || blake3.name != names::BLAKE3 {
            return fail("names other files than the two manifests");
        }
        if parsed.encode() != text {
            return fail("is not written as sabul writes it");
        }
        Ok(parsed)
    }

    /// Returns the part of an end.
    pub const fn party(&self, role: Role) -> &Party {
        match role {
            Role::Sender => &self.predicate.sender,
            Role::Receiver => &self.predicate.receiver,
        }
    }

    /// Checks the statement before this end signs: the manifests and totals must be those of the hashes that this end
    /// computed, and its part must be as this end stated it.
    ///
    /// # Errors
    /// With the difference.
    pub fn check(
        &self,
        manifests: &Manifests,
        role: Role,
        own: &Party,
    ) -> Result<(), StatementError> {
        let fail = |why: &str| Err(StatementError(format!("no signature: {why}")));
        if self.subject != subjects(manifests) {
            return fail("the statement names other manifests than those of the hashed files");
        }
        let (files, bytes) = manifests.totals();
        if (self.predicate.files, self.predicate.bytes) != (files, bytes) {
            return fail("the statement has other numbers of files or bytes");
        }
        if self.party(role) != own {
            return fail("the statement changes the part of this end");
        }
        Ok(())
    }

    /// Returns the text of `allowed_signers`: the keys of both ends, each with its role as principal.
    pub fn allowed_signers(&self) -> String {
        let line = |role: Role| {
            let Party { key, user, host, .. } = self.party(role);
            let comment = format!("{user}@{host}").replace(char::is_control, "?");
            let namespace = sabul_keys::RECEIPT_NAMESPACE;
            format!("{} namespaces=\"{namespace}\" {key} {comment}\n", role.name())
        };
        line(Role::Receiver) + &line(Role::Sender)
    }

    /// Returns the hash of a manifest as the statement names it, in hexadecimal digits.
    pub fn digest_of(&self, name: &str) -> Option<&str> {
        let subject = self.subject.iter().find(|subject| subject.name == name)?;
        Some(&subject.digest.sha256)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::hashes::FileHasher;

    pub(crate) fn party(role: Role) -> Party {
        let time = |is_wanted: bool| is_wanted.then(|| "2026-11-26T10:00:00Z".to_owned());
        Party {
            host: "h".into(),
            user: "u".into(),
            place: "/p".into(),
            software: "sabul".into(),
            key: format!("ssh-ed25519 {}", role.name()),
            peer: None,
            read_at: time(role == Role::Sender),
            durable_at: time(role == Role::Receiver),
        }
    }

    pub(crate) fn command() -> CommandFacts {
        let not_kept = vec![Lost { what: "owner".into(), entries: 2 }];
        CommandFacts { run_by: Role::Sender, name: "cp".into(), not_kept, grown: 1 }
    }

    fn statement() -> (Manifests, Statement) {
        let mut manifests = Manifests::default();
        let mut hasher = FileHasher::default();
        hasher.update(b"abc");
        manifests.add(b"a", &hasher.finish());
        let (sender, receiver) = (party(Role::Sender), party(Role::Receiver));
        let statement = Statement::new(&manifests, sender, receiver, command());
        (manifests, statement)
    }

    #[test]
    fn an_end_signs_only_the_hashes_it_computed_and_its_own_part() {
        let (manifests, good) = statement();
        let own = party(Role::Receiver);
        assert_eq!(good.check(&manifests, Role::Receiver, &own), Ok(()));
        assert!(good.check(&Manifests::default(), Role::Receiver, &own).is_err());
        let mut more = good.clone();
        more.predicate.bytes += 1;
        assert!(more.check(&manifests, Role::Receiver, &own).is_err());
        let mut later = good.clone();
        later.predicate.receiver.durable_at = Some("2027-01-01T00:00:00Z".into());
        assert!(later.check(&manifests, Role::Receiver, &own).is_err());
        // The part of the other end is the word of the other end.
        assert_eq!(later.check(&manifests, Role::Sender, &party(Role::Sender)), Ok(()));
    }

    #[test]
    fn a_statement_is_read_only_in_its_one_form() {
        let (_, good) = statement();
        let text = good.encode();
        assert_eq!(Statement::parse(&text), Ok(good.clone()));
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] = if changed[at] == b'x' { b'y' } else { b'x' };
            assert_ne!(Statement::parse(&changed), Ok(good.clone()), "byte {at}");
        }
        assert!(Statement::parse(&[&text[..], b" "].concat()).is_err());
        assert!(Statement::parse(b"{}").is_err());
    }

    #[test]
    fn a_long_place_keeps_the_statement_short() {
        let mut keys = sabul_keys::Identities::default();
        let pair = aws_lc_rs::signature::EcdsaKeyPair::generate(
            &aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        )
        .unwrap();
        let pkcs8 = pair.to_pkcs8v1().unwrap();
        assert!(keys.add_p256(pkcs8.as_ref(), "key"));
        let signer = Signer::new(keys).unwrap();
        let part = Party::of_this_end(Role::Sender, &"ä".repeat(9000), "s", None, &signer);
        assert!(part.place.chars().count() == PLACE_MAX + 1, "{}", part.place.len());
        assert!(part.durable_at.is_none() && part.read_at.is_some_and(|at| at.ends_with('Z')));
        let signature = signer.sign(b"text").unwrap();
        assert!(sabul_keys::verify(sabul_keys::RECEIPT_NAMESPACE, b"text", &signature).is_ok());
    }
}
