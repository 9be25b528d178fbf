//! The network of a world: what its packets are, and who else waits on its agenda.

use sabul_path::{Headed, Topology};
use sabul_proto::DataPacket;
use sabul_units::{CongestionHeader, PacketNumber};
use sabul_wire::{Feedback, Mark};

use crate::tcp::{Segment, TcpAck};

/// A TCP segment with a congestion header, and which of the flow's connections it is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadedSegment {
    pub(crate) stripe: u16,
    pub(crate) segment: Segment,
    pub(crate) header: CongestionHeader,
}

/// Copies of a plan, and their connections, are told apart above this bit of a flow's number.
pub(crate) const COPY_SHIFT: u32 = 16;

/// The links of a world, and its agenda.
pub(crate) type Net = Topology<Body, Due>;

/// Who of a world, besides its network, waits for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The measurements.
    Meter,
    /// The arrivals of a plan, and its stop.
    Plan(u32),
    /// The sending end of the flow at a place.
    Sender(u32),
    /// Its receiving end.
    Receiver(u32),
}

/// What a packet is to its flow.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// DATA of our own protocol.
    Data(DataPacket),
    /// The same with a congestion header.
    Explicit(Box<(DataPacket, CongestionHeader)>),
    /// DATA without data, for its congestion header.
    Ask(Box<(PacketNumber, CongestionHeader)>),
    /// Confirmation of an ACK.
    Ack2 { number: PacketNumber, serial: u64 },
    /// Everything that may be sent has been.
    Mark { number: PacketNumber, mark: Mark },
    /// ACK, NAK or SYN in a datagram.
    Report(Box<Feedback>),
    /// A TCP segment: data of a TCP flow, or reports on a control connection; and which of the flow's
    /// connections it is of.
    Segment { stripe: u16, segment: Segment },
    /// The same with a congestion header.
    Headed(Box<HeadedSegment>),
    /// Its acknowledgement.
    TcpAck { stripe: u16, ack: Box<TcpAck> },
    /// The same with what came of the headers: the newest, whose change is the sum of all.
    TcpEcho { stripe: u16, ack: Box<(TcpAck, CongestionHeader)> },
    /// Nothing but size.
    Filler(u32),
}

impl Body {
    /// Which of the flow's connections it belongs to.
    pub(crate) const fn stripe(&self) -> u16 {
        match self {
            Self::Segment { stripe, .. }
            | Self::TcpAck { stripe, .. }
            | Self::TcpEcho { stripe, .. } => *stripe,
            Self::Headed(packet) => packet.stripe,
            Self::Data(_)
            | Self::Explicit(_)
            | Self::Ask(_)
            | Self::Ack2 { .. }
            | Self::Mark { .. }
            | Self::Report(_)
            | Self::Filler(_) => 0,
        }
    }
}

impl Headed for Body {
    fn congestion(&mut self) -> Option<&mut CongestionHeader> {
        match self {
            Self::Explicit(packet) => Some(&mut packet.1),
            Self::Ask(packet) => Some(&mut packet.1),
            Self::Headed(packet) => Some(&mut packet.header),
            _ => None,
        }
    }
}
