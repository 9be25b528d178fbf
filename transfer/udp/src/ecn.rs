//! The ECN bits of a datagram.

use quinn_udp::EcnCodepoint;

/// The two ECN bits of a datagram's IP header.
///
/// # Source
/// RFC 3168, section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// The transport does not use ECN; also reported where the bits cannot be read.
    #[default]
    NotEct,
    /// ECN-capable transport, codepoint 0.
    Ect0,
    /// ECN-capable transport, codepoint 1.
    Ect1,
    /// Congestion experienced: a router on the path set the mark.
    Ce,
}

impl Ecn {
    pub(crate) fn to_codepoint(self) -> Option<EcnCodepoint> {
        match self {
            Self::NotEct => None,
            Self::Ect0 => Some(EcnCodepoint::Ect0),
            Self::Ect1 => Some(EcnCodepoint::Ect1),
            Self::Ce => Some(EcnCodepoint::Ce),
        }
    }

    pub(crate) fn from_codepoint(codepoint: Option<EcnCodepoint>) -> Self {
        match codepoint {
            None => Self::NotEct,
            Some(EcnCodepoint::Ect0) => Self::Ect0,
            Some(EcnCodepoint::Ect1) => Self::Ect1,
            Some(EcnCodepoint::Ce) => Self::Ce,
        }
    }
}
