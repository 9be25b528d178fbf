//! Contradictions between a report of the peer and the packets that this end has sent.

use std::fmt;

use sabul_units::{PacketNumber, SeqNo};
use sabul_wire::LossPolicy;

/// Cause of a rejected report. The field `next` is the first number that this end has not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerError {
    /// An ACK covers all data before `acked`, and some of that data was not sent.
    AckOfUnsentData {
        /// Reported cumulative acknowledgement.
        acked: SeqNo,
        /// First sequence number not sent.
        next: SeqNo,
    },
    /// An ACK reports the arrival of a packet that was not sent.
    AckOfUnsentPacket {
        /// Reported packet number.
        number: PacketNumber,
        /// First packet number not sent.
        next: PacketNumber,
    },
    /// An ACK reports the arrival of a packet number that this end skipped.
    AckOfSkippedNumber(PacketNumber),
    /// Several ACKs in a row cover a packet number that this end skipped, and do not list the number
    /// as missing.
    SkippedNumberNotListed(PacketNumber),
    /// A report lists a number as lost that was not sent.
    LossOfUnsent {
        /// Kind of the numbers.
        policy: LossPolicy,
        /// Largest reported number.
        number: u64,
        /// First number not sent.
        next: u64,
    },
    /// An ACK repeats the congestion header of a packet that was not sent.
    EchoOfUnsentPacket {
        /// Reported packet number.
        number: PacketNumber,
        /// First packet number not sent.
        next: PacketNumber,
    },
    /// A count in a report is larger than the facts permit.
    CountTooLarge {
        /// Counted objects, such as `received packets`.
        counted: &'static str,
        /// Reported count.
        count: u64,
        /// Largest possible count.
        limit: u64,
    },
    /// A list of missing data ends before its own last number.
    RangeOutsideList {
        /// Last missing number.
        number: u64,
        /// End of the list, exclusive.
        below: SeqNo,
    },
    /// A list of missing data answers a mark that was not sent.
    UnknownMark {
        /// Reported serial number.
        serial: u64,
        /// Serial number of the newest mark; zero before the first.
        newest: u64,
    },
    /// The rules of this channel have no reports of this kind.
    KindNotUsed(&'static str),
    /// A NAK has the kind of numbers that this channel does not use.
    WrongNumbers(LossPolicy),
    /// Too many packets were sent since the oldest packet without an acknowledgement.
    NeverAcknowledged {
        /// Packets sent since then.
        packets: usize,
        /// Limit of this number.
        limit: usize,
    },
}

/// Returns the name of the numbers in a loss report.
const fn unit(policy: LossPolicy) -> &'static str {
    match policy {
        LossPolicy::Historical => "sequence number",
        LossPolicy::Current => "packet",
    }
}

/// The newest number sent, as text.
struct Newest(LossPolicy, u64);

impl fmt::Display for Newest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1.checked_sub(1) {
            Some(newest) => write!(f, "the newest {} sent is {newest}", unit(self.0)),
            None => write!(f, "no {} was sent", unit(self.0)),
        }
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use LossPolicy::{Current, Historical};
        match *self {
            Self::AckOfUnsentData { acked, next } => write!(
                f,
                "peer acknowledged all data before sequence number {}, but {}",
                acked.0,
                Newest(Historical, next.0)
            ),
            Self::AckOfUnsentPacket { number, next } => {
                write!(f, "peer acknowledged packet {}, but {}", number.0, Newest(Current, next.0))
            }
            Self::AckOfSkippedNumber(number) => {
                write!(f, "peer acknowledged packet {}, which was not sent", number.0)
            }
            Self::SkippedNumberNotListed(number) => write!(
                f,
                "peer acknowledged packets around packet {0} without a loss report for packet {0}, \
                 which was not sent",
                number.0
            ),
            Self::LossOfUnsent { policy, number, next } => write!(
                f,
                "peer reported loss of {} {number}, but {}",
                unit(policy),
                Newest(policy, next)
            ),
            Self::EchoOfUnsentPacket { number, next } => write!(
                f,
                "peer echoed the congestion header of packet {}, but {}",
                number.0,
                Newest(Current, next.0)
            ),
            Self::CountTooLarge { counted, count, limit } => {
                write!(f, "peer reported {count} {counted}, but at most {limit} are possible")
            }
            Self::RangeOutsideList { number, below } => write!(
                f,
                "peer listed sequence number {number} as missing in a list that ends before {}",
                below.0
            ),
            Self::UnknownMark { serial, newest } => {
                write!(f, "peer answered mark {serial}, but the newest mark sent is {newest}")
            }
            Self::KindNotUsed(kind) => {
                write!(f, "peer sent a report of the kind {kind}, which this channel does not use")
            }
            Self::WrongNumbers(policy) => write!(
                f,
                "peer sent a NAK that lists {}s, which this channel does not use in NAKs",
                unit(policy)
            ),
            Self::NeverAcknowledged { packets, limit } => write!(
                f,
                "peer did not acknowledge the oldest of {packets} packets; the limit is {limit}"
            ),
        }
    }
}

impl std::error::Error for PeerError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_reported_value_and_the_sent_value() {
        let next = PacketNumber(641);
        for (error, text) in [
            (
                PeerError::LossOfUnsent { policy: LossPolicy::Current, number: 812, next: 641 },
                "peer reported loss of packet 812, but the newest packet sent is 640",
            ),
            (
                PeerError::AckOfUnsentData { acked: SeqNo(9), next: SeqNo(0) },
                "peer acknowledged all data before sequence number 9, but no sequence number was sent",
            ),
            (
                PeerError::AckOfUnsentPacket { number: PacketNumber(641), next },
                "peer acknowledged packet 641, but the newest packet sent is 640",
            ),
            (
                PeerError::CountTooLarge { counted: "received packets", count: 11, limit: 10 },
                "peer reported 11 received packets, but at most 10 are possible",
            ),
            (
                PeerError::WrongNumbers(LossPolicy::Historical),
                "peer sent a NAK that lists sequence numbers, which this channel does not use in NAKs",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }
}
