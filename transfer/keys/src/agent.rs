//! Client of an ssh agent: lists keys and requests signatures [draft-ietf-sshm-ssh-agent].

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::wire::{Reader, put};

const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
/// Flag: RSA with SHA-512.
const RSA_SHA2_512: u32 = 4;
/// Longest answer in bytes, as in OpenSSH.
const ANSWER_MAX: u32 = 256 << 10;
/// Ours: time for the list of keys.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Ours: time for a signature; the user may have to touch a device or confirm.
const SIGN_TIMEOUT: Duration = Duration::from_secs(120);

/// An ssh agent by its socket. Each request has its own connection.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    socket: PathBuf,
}

/// A key of an agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentKey {
    /// Public key in ssh's encoding.
    pub(crate) public: Vec<u8>,
    pub(crate) comment: String,
}

impl Agent {
    pub(crate) fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Returns the keys of the agent in its order.
    pub(crate) fn keys(&self) -> io::Result<Vec<AgentKey>> {
        let answer = self.request(&[REQUEST_IDENTITIES], IDENTITIES_ANSWER, LIST_TIMEOUT)?;
        let mut reader = Reader(&answer);
        let count = reader.number().ok_or_else(malformed)?;
        let mut keys = Vec::new();
        for _ in 0..count {
            let public = reader.string().ok_or_else(malformed)?.to_vec();
            let comment = reader.string().ok_or_else(malformed)?;
            keys.push(AgentKey { public, comment: String::from_utf8_lossy(comment).into_owned() });
        }
        Ok(keys)
    }

    /// Returns the signature of a key in ssh's encoding.
    pub(crate) fn sign(&self, public: &[u8], data: &[u8]) -> io::Result<Vec<u8>> {
        let mut request = vec![SIGN_REQUEST];
        put(&mut request, public);
        put(&mut request, data);
        request.extend(RSA_SHA2_512.to_be_bytes());
        let answer = self.request(&request, SIGN_RESPONSE, SIGN_TIMEOUT)?;
        Reader(&answer).string().map(<[u8]>::to_vec).ok_or_else(malformed)
    }

    /// Sends a request and returns the content of the answer of this kind.
    fn request(&self, request: &[u8], kind: u8, timeout: Duration) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut message = Vec::new();
        put(&mut message, request);
        stream.write_all(&message)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length > ANSWER_MAX {
            return Err(malformed());
        }
        let mut answer = Vec::new();
        stream.take(length.into()).read_to_end(&mut answer)?;
        match answer.split_first() {
            Some((found, content)) if *found == kind => Ok(content.to_vec()),
            Some(_) => Err(io::Error::other("the agent refused the request")),
            None => Err(malformed()),
        }
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the agent sent an invalid answer")
}
