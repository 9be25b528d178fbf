//! Network of a world: the contents of its packets and the tags of its timers.

use sabul_channel::DataPacket;
use sabul_net::{Headed, Topology};
use sabul_units::{CongestionHeader, PacketNumber};
use sabul_wire::{Feedback, Mark};

use crate::tcp::{Segment, TcpAck};

/// A TCP segment with a congestion header, and the index of its connection within the flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadedSegment {
    pub(crate) stripe: u16,
    pub(crate) segment: Segment,
    pub(crate) header: CongestionHeader,
}

/// Bits of a flow number from this bit on distinguish copies of a plan and their connections.
pub(crate) const COPY_SHIFT: u32 = 16;

/// The links of a world, with the event queue.
pub(crate) type Net = Topology<Body, Due>;

/// Timers of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The meter.
    Meter,
    /// Arrivals of a plan, and its stop.
    Plan(u32),
    /// The sending end of the flow in a slot.
    Sender(u32),
    /// The receiving end of the flow in a slot.
    Receiver(u32),
}

/// Contents of a packet.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// DATA packet of our own protocol.
    Data(DataPacket),
    /// DATA packet with a congestion header.
    Explicit(Box<(DataPacket, CongestionHeader)>),
    /// DATA packet without data, which carries only a congestion header.
    RateProbe(Box<(PacketNumber, CongestionHeader)>),
    /// Confirmation of an ACK.
    Ack2 { number: PacketNumber, serial: u64 },
    /// Mark: everything before its end has been sent.
    Mark { number: PacketNumber, mark: Mark },
    /// ACK, NAK or SYN report in a datagram.
    Report(Box<Feedback>),
    /// TCP segment: data of a TCP flow, or reports on a control connection; with the index of its
    /// connection within the flow.
    Segment { stripe: u16, segment: Segment },
    /// TCP segment with a congestion header.
    Headed(Box<HeadedSegment>),
    /// TCP acknowledgement.
    TcpAck { stripe: u16, ack: Box<TcpAck> },
    /// TCP acknowledgement with the newest congestion header, whose rate change is the sum of all
    /// changes.
    TcpEcho { stripe: u16, ack: Box<(TcpAck, CongestionHeader)> },
    /// Payload without meaning, of this size.
    Filler(u32),
}

impl Body {
    /// Index of the connection within the flow.
    pub(crate) const fn stripe(&self) -> u16 {
        match self {
            Self::Segment { stripe, .. }
            | Self::TcpAck { stripe, .. }
            | Self::TcpEcho { stripe, .. } => *stripe,
            Self::Headed(packet) => packet.stripe,
            Self::Data(_)
            | Self::Explicit(_)
            | Self::RateProbe(_)
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
            Self::RateProbe(packet) => Some(&mut packet.1),
            Self::Headed(packet) => Some(&mut packet.header),
            _ => None,
        }
    }
}
