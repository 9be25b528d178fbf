//! Reports from receiver to sender: ACK, NAK, SYN, and the reports of other rules. [SABUL §II-C, §II-D], [OVV-T §II]
//!
//! A report has the same bytes in a sealed UDP datagram and in a control message; the channel chooses the carrier.
//! Numbers have 64 bits. Ranges are LEB128 pairs (numbers skipped, numbers missing), because losses are often
//! continuous. [SABUL §II-D]

use sabul_units::{CongestionHeader, PacketNumber, SeqNo, Span};

use crate::bytes::{DecodeError, Reader, Reason, put_varint};
use crate::congestion::{congestion_len, decode_congestion, encode_congestion};

/// Most ranges in one report: 200 ranges of typical numbers fit in 1200 bytes.
pub const MAX_RANGES: usize = 200;

/// Kind of number in a loss report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossPolicy {
    /// Data sequence numbers, reported again after k × RTT: the rule of the papers. [SABUL §II-D]
    Historical,
    /// Packet numbers: each transmission is reported lost at most once.
    Current,
}

/// A range of numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumberRange {
    /// First number.
    pub first: u64,
    /// Last number, not below the first.
    pub last: u64,
}

impl NumberRange {
    /// Returns the count of numbers in the range.
    pub const fn count(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Positive acknowledgement: all data before `seq` has arrived. Also carries the state of the flow.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ack {
    /// Number of this ACK in the channel, from one; ACK2 repeats this number.
    pub serial: u64,
    /// All data before this number has been received. [SABUL §II-C]
    pub seq: SeqNo,
    /// The largest packet number received.
    pub largest: PacketNumber,
    /// Time from the arrival of `largest` to this ACK, in microseconds on the wire.
    pub delay: Span,
    /// Receiver's clock when `largest` arrived, in microseconds on the wire.
    pub arrived_at: Span,
    /// Authentic DATA packets received so far, duplicates included.
    pub packets: u64,
    /// Payload bytes of these packets.
    pub bytes: u64,
    /// Packets with an ECN mark so far.
    pub marked: u64,
    /// Packets dropped so far at the receiver's own socket.
    pub overflowed: u64,
    /// First block number for which the receiver has no room yet.
    pub block_limit: u32,
    /// Missing packet numbers that no ACK2 has confirmed yet (current policy only).
    pub missing: Vec<NumberRange>,
    /// State from routers; `None` if packets have no congestion header.
    pub echo: Option<Echo>,
}

/// State of the congestion headers that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The largest packet number among packets with a congestion header.
    pub number: PacketNumber,
    /// The congestion header of that packet.
    pub header: CongestionHeader,
    /// Sum of the changes in [`sabul_units::CongestionFields::Xcp`] over all packets so far, each counted once; the sum
    /// wraps around.
    pub delta_sum: i64,
}

/// Negative acknowledgement: missing numbers, ascending. [SABUL §II-C]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nak {
    /// Kind of the numbers.
    pub policy: LossPolicy,
    /// Ascending, disjoint, at most [`MAX_RANGES`].
    pub ranges: Vec<NumberRange>,
}

/// Missing numbers of a range of the data; all other numbers of that range have arrived. By the rules of the channel,
/// this is a bitmap as ranges, a list of requests, or the state of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Missing {
    /// Serial of the mark that caused this report; zero if no mark did.
    pub serial: u64,
    /// First number of the range.
    pub from: SeqNo,
    /// End of the range, exclusive.
    pub below: SeqNo,
    /// Missing numbers within the range; ascending, disjoint, at most [`MAX_RANGES`].
    pub ranges: Vec<NumberRange>,
}

impl Missing {
    /// Returns the count of missing numbers.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|range| range.count()).sum()
    }
}

/// Mark of the sender: everything before `end` has been sent. A mark ends a round, a list or a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Number of the mark in the channel, from one; a retransmitted mark keeps its number.
    pub serial: u64,
    /// One past the last sequence number sent.
    pub end: SeqNo,
}

impl Mark {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Returns the wire form.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&self.serial.to_be_bytes());
        out[8..].copy_from_slice(&self.end.0.to_be_bytes());
        out
    }

    /// Reads a mark that fills `bytes` exactly.
    ///
    /// # Errors
    /// If there are fewer or more bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let mark = Self { serial: r.u64()?, end: SeqNo(r.u64()?) };
        r.finish()?;
        Ok(mark)
    }
}

/// The largest [`Feedback::ErrorRate`]: all packets are lost.
pub const ERROR_RATE_MAX: u32 = 100_000;

/// One report from receiver to sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// Positive acknowledgement.
    Ack(Ack),
    /// Negative acknowledgement.
    Nak(Nak),
    /// An interval of rate control ended, by the receiver's clock. [OVV04 §2]
    Syn {
        /// Authentic DATA packets received since the previous SYN, duplicates included.
        received: u64,
    },
    /// Missing numbers of a range, under rules without NAKs.
    Missing(Missing),
    /// Filtered share of data that the receiver requested again: percent × 1000, at most [`ERROR_RATE_MAX`].
    ErrorRate(u32),
    /// Filtered time between the arrivals of two packets that were sent back to back: whole nanoseconds, 1 to 2^32 - 1.
    PairTime(Span),
}

const TAG_ACK: u8 = 1;
const TAG_NAK_SEQ: u8 = 2;
const TAG_NAK_PN: u8 = 3;
const TAG_SYN: u8 = 4;
const TAG_MISSING: u8 = 5;
const TAG_ERROR_RATE: u8 = 6;
const TAG_ACK_ECHO: u8 = 7;
const TAG_PAIR_TIME: u8 = 8;

impl Feedback {
    /// Appends the wire form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ack(ack) => {
                out.push(if ack.echo.is_some() { TAG_ACK_ECHO } else { TAG_ACK });
                for number in [
                    ack.serial,
                    ack.seq.0,
                    ack.largest.0,
                    ack.delay.as_micros(),
                    ack.arrived_at.as_micros(),
                    ack.packets,
                    ack.bytes,
                    ack.marked,
                    ack.overflowed,
                    ack.block_limit.into(),
                ] {
                    put_varint(out, number);
                }
                put_ranges(out, &ack.missing);
                if let Some(echo) = &ack.echo {
                    put_echo(out, echo);
                }
            }
            Self::Nak(nak) => {
                out.push(match nak.policy {
                    LossPolicy::Historical => TAG_NAK_SEQ,
                    LossPolicy::Current => TAG_NAK_PN,
                });
                put_ranges(out, &nak.ranges);
            }
            Self::Syn { received } => {
                out.push(TAG_SYN);
                put_varint(out, *received);
            }
            Self::Missing(missing) => {
                out.push(TAG_MISSING);
                put_varint(out, missing.serial);
                put_varint(out, missing.from.0);
                put_varint(out, missing.below.0 - missing.from.0);
                put_ranges(out, &missing.ranges);
            }
            Self::ErrorRate(rate) => {
                out.push(TAG_ERROR_RATE);
                put_varint(out, u64::from(*rate));
            }
            Self::PairTime(time) => {
                out.push(TAG_PAIR_TIME);
                put_varint(out, time.as_nanos());
            }
        }
    }

    /// Reads one report that fills `bytes` exactly.
    ///
    /// # Errors
    /// With the offset and the reason of the first invalid field.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let tag = r.u8()?;
        let feedback = match tag {
            TAG_ACK | TAG_ACK_ECHO => Self::Ack(Ack {
                serial: r.varint()?,
                seq: SeqNo(r.varint()?),
                largest: PacketNumber(r.varint()?),
                delay: Span::from_micros(r.varint()?),
                arrived_at: Span::from_micros(r.varint()?),
                packets: r.varint()?,
                bytes: r.varint()?,
                marked: r.varint()?,
                overflowed: r.varint()?,
                block_limit: match u32::try_from(r.varint()?) {
                    Ok(limit) => limit,
                    Err(_) => return r.fail(Reason::Overlong),
                },
                missing: ranges(&mut r)?,
                echo: if tag == TAG_ACK_ECHO { Some(echo(&mut r)?) } else { None },
            }),
            TAG_NAK_SEQ => {
                Self::Nak(Nak { policy: LossPolicy::Historical, ranges: ranges(&mut r)? })
            }
            TAG_NAK_PN => Self::Nak(Nak { policy: LossPolicy::Current, ranges: ranges(&mut r)? }),
            TAG_SYN => Self::Syn { received: r.varint()? },
            TAG_MISSING => {
                let (serial, from, length) = (r.varint()?, r.varint()?, r.varint()?);
                let ranges = ranges(&mut r)?;
                let Some(below) = from.checked_add(length) else {
                    return r.fail(Reason::BadRange);
                };
                let first = ranges.first().map_or(from, |range| range.first);
                if first < from || ranges.last().is_some_and(|range| range.last >= below) {
                    return r.fail(Reason::BadRange);
                }
                Self::Missing(Missing { serial, from: SeqNo(from), below: SeqNo(below), ranges })
            }
            TAG_ERROR_RATE => match u32::try_from(r.varint()?) {
                Ok(rate) if rate <= ERROR_RATE_MAX => Self::ErrorRate(rate),
                _ => return r.fail(Reason::Reserved),
            },
            TAG_PAIR_TIME => match u32::try_from(r.varint()?) {
                Ok(ns) if ns > 0 => Self::PairTime(Span::from_nanos(ns.into())),
                _ => return r.fail(Reason::Reserved),
            },
            other => return r.fail(Reason::UnknownKind(other)),
        };
        r.finish()?;
        Ok(feedback)
    }
}

fn put_echo(out: &mut Vec<u8>, echo: &Echo) {
    put_varint(out, echo.number.0);
    // Zigzag encoding: small numbers of either sign are short.
    put_varint(out, (echo.delta_sum << 1 ^ echo.delta_sum >> 63).cast_unsigned());
    let start = out.len();
    out.resize(start + congestion_len(echo.header.fields.form()), 0);
    encode_congestion(&echo.header, &mut out[start..]);
}

/// Reads an echo, which is always the last field of its report.
fn echo(r: &mut Reader<'_>) -> Result<Echo, DecodeError> {
    let number = PacketNumber(r.varint()?);
    let zigzag = r.varint()?;
    let delta_sum = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
    let header = r.rest(decode_congestion)?;
    Ok(Echo { number, header, delta_sum })
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[NumberRange]) {
    assert!(ranges.len() <= MAX_RANGES, "the caller splits long reports");
    put_varint(out, ranges.len() as u64);
    let mut next = 0;
    for range in ranges {
        put_varint(out, range.first - next);
        put_varint(out, range.count() - 1);
        next = range.last + 1;
    }
}

fn ranges(r: &mut Reader<'_>) -> Result<Vec<NumberRange>, DecodeError> {
    let count = r.varint()?;
    if count > MAX_RANGES as u64 {
        return r.fail(Reason::TooManyRanges);
    }
    let mut ranges = Vec::new();
    let mut next = 0u64;
    for _ in 0..count {
        let (skip, extra) = (r.varint()?, r.varint()?);
        let Some(range) = next
            .checked_add(skip)
            .and_then(|first| Some(NumberRange { first, last: first.checked_add(extra)? }))
            .filter(|range| range.last < u64::MAX)
        else {
            return r.fail(Reason::BadRange);
        };
        next = range.last + 1;
        ranges.push(range);
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use sabul_units::CongestionForm;

    use super::*;

    fn round_trip(feedback: &Feedback) {
        let mut bytes = Vec::new();
        feedback.encode(&mut bytes);
        assert_eq!(Feedback::decode(&bytes).as_ref(), Ok(feedback));
        for cut in 0..bytes.len() {
            assert!(Feedback::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        bytes.push(0);
        assert_eq!(Feedback::decode(&bytes).unwrap_err().reason, Reason::TrailingBytes);
    }

    #[test]
    fn the_published_loss_list_takes_seven_bytes() {
        // {2, 6..11, 14}: count, then (2,0), (3,5), (2,0) as (skipped, extra).
        let range = |first, last| NumberRange { first, last };
        let ranges = vec![range(2, 2), range(6, 11), range(14, 14)];
        let nak = Feedback::Nak(Nak { policy: LossPolicy::Historical, ranges });
        let mut bytes = Vec::new();
        nak.encode(&mut bytes);
        assert_eq!(bytes, [TAG_NAK_SEQ, 3, 2, 0, 3, 5, 2, 0]);
        round_trip(&nak);
    }

    #[test]
    fn a_loss_list_has_at_most_its_maximum_of_ranges() {
        let range = |i| NumberRange { first: 2 * i, last: 2 * i };
        let ranges = (0..MAX_RANGES as u64).map(range).collect();
        let mut bytes = Vec::new();
        Feedback::Nak(Nak { policy: LossPolicy::Historical, ranges }).encode(&mut bytes);
        assert!(Feedback::decode(&bytes).is_ok());
        bytes[1] += 1;
        assert_eq!(Feedback::decode(&bytes).unwrap_err().reason, Reason::TooManyRanges);
    }

    #[test]
    fn acks_round_trip() {
        round_trip(&Feedback::Ack(Ack {
            serial: 1,
            seq: SeqNo(1 << 40),
            largest: PacketNumber(77),
            delay: Span::from_micros(5),
            arrived_at: Span::from_secs(9),
            packets: 1000,
            bytes: u64::MAX,
            marked: 3,
            overflowed: 4,
            block_limit: u32::MAX,
            missing: vec![NumberRange { first: 0, last: 0 }, NumberRange { first: 2, last: 70 }],
            echo: None,
        }));
    }

    #[test]
    fn an_echo_is_encoded_last_and_acks_without_one_are_unchanged() {
        let plain = Ack { serial: 1, packets: 2, ..Ack::default() };
        let mut bytes = Vec::new();
        Feedback::Ack(plain.clone()).encode(&mut bytes);
        assert_eq!(bytes, [TAG_ACK, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0]);
        for form in CongestionForm::ALL {
            for delta_sum in [0, -1, 1, i64::MIN, i64::MAX] {
                let header = CongestionHeader::new(form.blank());
                let echo = Some(Echo { number: PacketNumber(300), header, delta_sum });
                round_trip(&Feedback::Ack(Ack { echo, ..plain.clone() }));
            }
        }
    }

    #[test]
    fn a_syn_report_is_encoded_as_its_tag_and_a_count() {
        let syn = Feedback::Syn { received: 300 };
        let mut bytes = Vec::new();
        syn.encode(&mut bytes);
        // 300 = 2 × 128 + 44.
        assert_eq!(bytes, [TAG_SYN, 44 | 0x80, 2]);
        round_trip(&syn);
        round_trip(&Feedback::Syn { received: 0 });
        round_trip(&Feedback::Syn { received: u64::MAX });
    }

    #[test]
    fn missing_ranges_round_trip_and_must_lie_inside_their_interval() {
        let range = |first, last| NumberRange { first, last };
        let stretch = |ranges| Missing { serial: 3, from: SeqNo(100), below: SeqNo(164), ranges };
        for ranges in [vec![], vec![range(100, 163)], vec![range(100, 100), range(120, 122)]] {
            round_trip(&Feedback::Missing(stretch(ranges)));
        }
        for outside in [range(99, 100), range(163, 164), range(500, 501)] {
            let mut bytes = Vec::new();
            Feedback::Missing(stretch(vec![outside])).encode(&mut bytes);
            assert_eq!(Feedback::decode(&bytes).unwrap_err().reason, Reason::BadRange);
        }
        let mut bytes = vec![TAG_MISSING, 0];
        put_varint(&mut bytes, u64::MAX);
        bytes.extend([1, 0]);
        assert_eq!(Feedback::decode(&bytes).unwrap_err().reason, Reason::BadRange);
    }

    #[test]
    fn pair_times_are_32_bits_and_not_zero() {
        for ns in [1, 12_001, u64::from(u32::MAX)] {
            round_trip(&Feedback::PairTime(Span::from_nanos(ns)));
        }
        for ns in [0, 1 << 32, 1 << 50] {
            let mut bytes = Vec::new();
            Feedback::PairTime(Span::from_nanos(ns)).encode(&mut bytes);
            assert_eq!(Feedback::decode(&bytes).unwrap_err().reason, Reason::Reserved, "{ns}");
        }
    }

    #[test]
    fn error_rates_are_at_most_one_and_marks_have_sixteen_bytes() {
        round_trip(&Feedback::ErrorRate(0));
        round_trip(&Feedback::ErrorRate(ERROR_RATE_MAX));
        let mut bytes = Vec::new();
        Feedback::ErrorRate(ERROR_RATE_MAX + 1).encode(&mut bytes);
        assert_eq!(Feedback::decode(&bytes).unwrap_err().reason, Reason::Reserved);
        let mark = Mark { serial: 7, end: SeqNo(1 << 40) };
        assert_eq!(Mark::decode(&mark.encode()), Ok(mark));
        assert!(Mark::decode(&mark.encode()[1..]).is_err());
        assert!(Mark::decode(&[0; 17]).is_err());
    }

    #[test]
    fn a_full_report_fits_the_smallest_packet() {
        let start = 1 << 33;
        let ranges = (0..MAX_RANGES as u64)
            .map(|i| NumberRange { first: start + i * 300, last: start + i * 300 + 128 })
            .collect();
        let mut bytes = Vec::new();
        Feedback::Nak(Nak { policy: LossPolicy::Current, ranges }).encode(&mut bytes);
        assert!(bytes.len() < 1100, "{} bytes", bytes.len());
    }

    #[test]
    fn ranges_that_run_past_64_bits_are_refused() {
        let mut bytes = vec![TAG_NAK_PN, 1];
        put_varint(&mut bytes, u64::MAX);
        bytes.push(0);
        assert_eq!(Feedback::decode(&bytes).unwrap_err().reason, Reason::BadRange);
        assert_eq!(
            Feedback::decode(&[TAG_NAK_PN, 0xFF, 0x7F]).unwrap_err().reason,
            Reason::TooManyRanges
        );
    }
}
