//! Congestion header: the part of a DATA packet that routers on the path read and rewrite.
//!
//! ```text
//!  0               1               2               3
//! +-------------------------------+-------+-------+---------------+
//! |          magic 0x5CC1         |version| form  |    routers    |
//! +-------------------------------+-------+-------+---------------+
//! |             check             |      queued (16 us each)      |
//! +-------------------------------+-------------------------------+
//! |                    the fields of the form …                   |
//! ```
//! The header follows the 28 bytes of the DATA header, outside the AEAD. Anyone on the path may rewrite the header but
//! not change its length. A router finds the header by offset, magic, version and check, and parses nothing else.
//! The check is the Internet checksum of the header [RFC1071], so the sum of the header's 16-bit words is constant. A
//! rewritten header therefore leaves the checksum of the UDP datagram valid.
//! Source: [ECC] for the existence of such a header; [ECC] shows its layout only as a picture, so this layout is ours
//! (ADR 23).

use sabul_units::{CongestionFields, CongestionForm, CongestionHeader, JetMaxFields, Rate, Span};

use crate::bytes::{DecodeError, Reader, Reason};
use crate::data::DATA_HEADER_LEN;
use crate::header::{Kind, MAX_CONGESTION_HEADER, VERSION};

/// First two bytes of a congestion header.
pub const CONGESTION_MAGIC: u16 = 0x5CC1;
/// Layout version of this build.
pub const CONGESTION_VERSION: u8 = 1;
/// Bytes before the fields of the form.
const HEADER_BYTES: usize = 8;
/// Offset of the check.
const CHECK: usize = 4;
/// Unit of [`CongestionHeader::queued`] on the wire: 16 bits reach about one second.
const QUEUED_UNIT: Span = Span::from_micros(16);

/// Length in bytes of a congestion header of this form, a multiple of four.
pub const fn congestion_len(form: CongestionForm) -> usize {
    HEADER_BYTES
        + match form {
            CongestionForm::Xcp => 20,
            CongestionForm::Rcp | CongestionForm::PiqiRcp => 12,
            CongestionForm::JetMax => 36,
            CongestionForm::Emkc => 24,
            CongestionForm::MaxNet => 8,
            CongestionForm::Own => 32,
        }
}

const _: () = {
    let mut n = 0;
    while n < CongestionForm::ALL.len() {
        let length = congestion_len(CongestionForm::ALL[n]);
        assert!(length <= MAX_CONGESTION_HEADER && length.is_multiple_of(4));
        n += 1;
    }
};

/// Writes a congestion header.
///
/// # Panics
/// If the length of `out` is not [`congestion_len`] of the form.
pub fn encode_congestion(header: &CongestionHeader, out: &mut [u8]) {
    let form = header.fields.form();
    assert_eq!(out.len(), congestion_len(form), "a form has one length");
    out[..2].copy_from_slice(&CONGESTION_MAGIC.to_be_bytes());
    out[2] = CONGESTION_VERSION << 4 | form.code();
    out[3] = header.routers;
    out[CHECK..6].fill(0);
    let queued = u16::try_from(header.queued.0 / QUEUED_UNIT.0).unwrap_or(u16::MAX);
    out[6..HEADER_BYTES].copy_from_slice(&queued.to_be_bytes());
    let mut w = Writer(&mut out[HEADER_BYTES..]);
    match header.fields {
        CongestionFields::Xcp { rtt, interval, delta } => {
            w.put(micros(rtt).to_be_bytes());
            w.put(interval.0.to_be_bytes());
            w.put(delta.to_be_bytes());
        }
        CongestionFields::Rcp { rtt, rate } | CongestionFields::PiqiRcp { rtt, rate } => {
            w.put(micros(rtt).to_be_bytes());
            w.put(rate.0.to_be_bytes());
        }
        CongestionFields::JetMax(fields) => {
            w.put(fields.interval.0.to_be_bytes());
            w.put(fields.fair.0.to_be_bytes());
            w.put(fields.loss.to_be_bytes());
            w.put(fields.loss_max.to_be_bytes());
            w.put(fields.controlling.to_be_bytes());
            w.put(fields.suggested.to_be_bytes());
            w.put(fields.round.to_be_bytes());
            w.put([0; 2]);
        }
        CongestionFields::Emkc { interval, loss, router, round } => {
            w.put(interval.0.to_be_bytes());
            w.put(loss.to_be_bytes());
            w.put(router.to_be_bytes());
            w.put(round.to_be_bytes());
        }
        CongestionFields::MaxNet { price } => w.put(price.0.to_be_bytes()),
        CongestionFields::Own(numbers) => numbers.into_iter().for_each(|n| w.put(n.to_be_bytes())),
    }
    debug_assert!(w.0.is_empty(), "the fields fill their form");
    let check = !sum(out);
    out[CHECK..6].copy_from_slice(&check.to_be_bytes());
}

/// Reads a congestion header that fills `bytes` exactly.
///
/// # Errors
/// If magic, version, form, length or check is not valid for this build.
pub fn decode_congestion(bytes: &[u8]) -> Result<CongestionHeader, DecodeError> {
    let mut r = Reader::new(bytes);
    if r.u16()? != CONGESTION_MAGIC {
        return DecodeError::at(0, Reason::Reserved);
    }
    let first = r.u8()?;
    if first >> 4 != CONGESTION_VERSION {
        return DecodeError::at(2, Reason::UnknownVersion(first >> 4));
    }
    let Some(form) = CongestionForm::from_code(first & 0x0F) else {
        return DecodeError::at(2, Reason::UnknownKind(first & 0x0F));
    };
    if bytes.len() < congestion_len(form) {
        return DecodeError::at(bytes.len(), Reason::Truncated);
    }
    if bytes.len() > congestion_len(form) {
        return DecodeError::at(congestion_len(form), Reason::TrailingBytes);
    }
    if sum(bytes) != u16::MAX {
        return DecodeError::at(CHECK, Reason::BadCheck);
    }
    let routers = r.u8()?;
    // A check of 0 and a check of 0xFFFF give the same sum. The encoder never writes 0xFFFF, because the other words
    // include the magic and never add up to zero.
    if r.u16()? == u16::MAX {
        return DecodeError::at(CHECK, Reason::BadCheck);
    }
    let queued = QUEUED_UNIT * u64::from(r.u16()?);
    let fields = fields(form, &mut r)?;
    r.finish()?;
    Ok(CongestionHeader { routers, queued, fields })
}

fn fields(form: CongestionForm, r: &mut Reader<'_>) -> Result<CongestionFields, DecodeError> {
    Ok(match form {
        CongestionForm::Xcp => CongestionFields::Xcp {
            rtt: Span::from_micros(r.u32()?.into()),
            interval: Span(r.u64()?),
            delta: r.u64()?.cast_signed(),
        },
        CongestionForm::Rcp => {
            CongestionFields::Rcp { rtt: Span::from_micros(r.u32()?.into()), rate: Rate(r.u64()?) }
        }
        CongestionForm::PiqiRcp => CongestionFields::PiqiRcp {
            rtt: Span::from_micros(r.u32()?.into()),
            rate: Rate(r.u64()?),
        },
        CongestionForm::JetMax => {
            let fields = JetMaxFields {
                interval: Span(r.u64()?),
                fair: Rate(r.u64()?),
                loss: r.u32()?.cast_signed(),
                loss_max: r.u32()?.cast_signed(),
                controlling: r.u32()?,
                suggested: r.u32()?,
                round: r.u16()?,
            };
            if r.u16()? != 0 {
                return r.fail(Reason::Reserved);
            }
            CongestionFields::JetMax(fields)
        }
        CongestionForm::Emkc => CongestionFields::Emkc {
            interval: Span(r.u64()?),
            loss: r.u64()?.cast_signed(),
            router: r.u32()?,
            round: r.u32()?,
        },
        CongestionForm::MaxNet => CongestionFields::MaxNet { price: Span(r.u64()?) },
        CongestionForm::Own => CongestionFields::Own([r.u64()?, r.u64()?, r.u64()?, r.u64()?]),
    })
}

/// Result of searching a UDP payload for a congestion header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CongestionFound {
    /// No congestion header, or a damaged one.
    Nothing,
    /// A header that this build can read, at [`congestion_place`] of its form.
    Header(CongestionHeader),
    /// A header of a later version or form. Routers forward such a header unchanged.
    Later {
        /// Layout version.
        version: u8,
        /// Code of the form, if the later version keeps that field where this build has it.
        form: u8,
    },
}

/// Searches a UDP payload of any kind of traffic for a congestion header.
#[inline]
pub fn locate_congestion(payload: &[u8]) -> CongestionFound {
    let [first, words, ..] = payload else { return CongestionFound::Nothing };
    if *first != VERSION << 4 | Kind::Data as u8 || !(1..=15).contains(words) {
        return CongestionFound::Nothing;
    }
    let range = DATA_HEADER_LEN..DATA_HEADER_LEN + usize::from(*words) * 4;
    let Some(bytes) = payload.get(range) else { return CongestionFound::Nothing };
    match decode_congestion(bytes) {
        Ok(header) => CongestionFound::Header(header),
        Err(_) => later(bytes),
    }
}

/// Recognises a header of a later version or form by its first three bytes.
#[cold]
fn later(bytes: &[u8]) -> CongestionFound {
    let [high, low, first, ..] = *bytes else { return CongestionFound::Nothing };
    let (version, form) = (first >> 4, first & 0x0F);
    let is_later = version > CONGESTION_VERSION
        || version == CONGESTION_VERSION && CongestionForm::from_code(form).is_none();
    if is_later && u16::from_be_bytes([high, low]) == CONGESTION_MAGIC {
        return CongestionFound::Later { version, form };
    }
    CongestionFound::Nothing
}

/// Byte range of a congestion header of this form in a UDP payload.
pub const fn congestion_place(form: CongestionForm) -> std::ops::Range<usize> {
    DATA_HEADER_LEN..DATA_HEADER_LEN + congestion_len(form)
}

/// Byte range of the congestion header in a UDP payload of any kind of traffic, or `None`.
pub fn find_congestion(payload: &[u8]) -> Option<std::ops::Range<usize>> {
    match locate_congestion(payload) {
        CongestionFound::Header(header) => Some(congestion_place(header.fields.form())),
        CongestionFound::Nothing | CongestionFound::Later { .. } => None,
    }
}

/// A time in whole microseconds, at most `u32::MAX`.
fn micros(span: Span) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

/// Ones' complement sum of the 16-bit words. [RFC1071]
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    #[expect(clippy::cast_possible_truncation, reason = "30 words fold in two steps")]
    let folded = ((folded & 0xFFFF) + (folded >> 16)) as u16;
    folded
}

struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let (front, rest) = std::mem::take(&mut self.0).split_at_mut(N);
        front.copy_from_slice(&bytes);
        self.0 = rest;
    }
}

#[cfg(test)]
#[path = "congestion/tests.rs"]
mod tests;
