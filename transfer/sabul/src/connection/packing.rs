//! Compression of long messages of the control connection: lists of names and metadata shrink to a quarter.
//!
//! Wire format: the body of a message may be replaced by the byte [`PACKED`] and the body as a raw DEFLATE stream, which
//!              has no kind of its own: no message begins with that byte.
//! Bounds:      an unpacked body has the limit of its kind, and is never packed itself.
//! Not here:    messages with secrets, which are short.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use sabul_wire::control::{MAX_MESSAGE, PACKED, is_list};

use super::incoming::ReadError;

/// Least bytes of a message that is compressed. Ours: shorter messages fit into a packet.
const PACKED_MIN: usize = 1 << 10;

/// Compresses a message with its length, if it is a long list and becomes shorter.
pub(crate) fn packed(message: Vec<u8>) -> Vec<u8> {
    let Some((length, body)) = message.split_first_chunk::<4>() else { return message };
    if body.len() < PACKED_MIN || !is_list(body[0]) {
        return message;
    }
    let mut out = length.to_vec();
    out.push(PACKED);
    let mut encoder = DeflateEncoder::new(out, Compression::fast());
    match encoder.write_all(body).and_then(|()| encoder.finish()) {
        Ok(mut shorter) if shorter.len() < message.len() => {
            let length = u32::try_from(shorter.len() - 4).unwrap_or(u32::MAX);
            shorter[..4].copy_from_slice(&length.to_be_bytes());
            shorter
        }
        _ => message,
    }
}

/// Returns the body in a packed body.
pub(super) fn unpacked(body: &[u8]) -> Result<Vec<u8>, ReadError> {
    let malformed = |text: String| ReadError::Malformed(text);
    let mut unpacked = Vec::new();
    let mut decoder = DeflateDecoder::new(&body[1..]).take(MAX_MESSAGE as u64 + 1);
    decoder
        .read_to_end(&mut unpacked)
        .map_err(|error| malformed(format!("a compressed message is damaged: {error}")))?;
    match unpacked.first() {
        Some(kind) if unpacked.len() <= MAX_MESSAGE && is_list(*kind) => Ok(unpacked),
        Some(kind) if unpacked.len() <= MAX_MESSAGE => {
            Err(malformed(format!("a message of kind {kind} is compressed")))
        }
        _ => Err(malformed(format!(
            "a compressed message has no content, or more than {MAX_MESSAGE} bytes"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use sabul_wire::control::{Failure, FailureCode, Message, Seen};

    use super::*;
    use crate::connection::incoming::Incoming;

    fn listing(count: usize) -> Vec<u8> {
        let seen = |number: usize| Seen {
            path: format!("directory/file{number}").into(),
            outcome: Err(Failure::new(FailureCode::NotFound, "no such file")),
            rules: Vec::new(),
        };
        let entries = (0..count).map(seen).collect();
        let mut bytes = Vec::new();
        Message::Seen { transfer: 1, entries, same: Vec::new(), is_last: false }
            .encode(&mut bytes)
            .unwrap();
        bytes
    }

    async fn read(bytes: &[u8]) -> Result<Option<Message>, ReadError> {
        Incoming::new(bytes).next(MAX_MESSAGE).await
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(body);
        bytes
    }

    fn deflated(content: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(vec![PACKED], Compression::fast());
        encoder.write_all(content).unwrap();
        framed(&encoder.finish().unwrap())
    }

    #[tokio::test]
    async fn a_long_list_is_shorter_on_its_way_and_equal_after_it() {
        for (count, is_shorter) in [(1, false), (1000, true)] {
            let plain = listing(count);
            let packed = packed(plain.clone());
            assert_eq!(packed.len() < plain.len() / 4, is_shorter, "{count}");
            assert_eq!(read(&packed).await.unwrap(), read(&plain).await.unwrap(), "{count}");
        }
    }

    #[tokio::test]
    async fn damaged_nested_and_oversized_content_is_rejected() {
        let body = &listing(1000)[4..];
        let packed_body = &packed(listing(1000))[4..];
        let mut damaged = packed(listing(1000));
        let middle = damaged.len() / 2;
        damaged.truncate(middle);
        damaged = framed(&damaged[4..]);
        let close = [3];
        for (bytes, expected) in [
            (damaged, "damaged"),
            (deflated(packed_body), "kind 255"),
            (deflated(&close), "kind 3"),
            (deflated(&[]), "no content"),
            (deflated(&vec![body[0]; MAX_MESSAGE + 1]), "more than"),
            (framed(&[PACKED]), "damaged"),
        ] {
            let error = read(&bytes).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let greeting = Incoming::new(&packed(listing(1000))[..]).next(1 << 10).await;
        assert!(greeting.is_err(), "a greeting is never compressed");
    }
}
