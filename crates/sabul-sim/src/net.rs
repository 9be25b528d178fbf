//! The links of a world and the packets on them.

use sabul_proto::DataPacket;
use sabul_units::{Instant, PacketNumber, SeededRandom};
use sabul_wire::{Feedback, Mark};

use crate::agenda::{Actor, Agenda};
use crate::tcp::{Segment, TcpAck};
use sabul_path::{Link, PacketMeta};
use sabul_run::meter::{LinkLook, Links};
use sabul_run::scenario::LinkPlan;

/// Copies of a plan, and their connections, are told apart above this bit of a flow's number.
pub(crate) const COPY_SHIFT: u32 = 16;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the flow's sender.
    Forward,
    /// From the flow's receiver.
    Back,
}

/// What a packet is to its flow.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// DATA of our own protocol.
    Data(DataPacket),
    /// Confirmation of an ACK.
    Ack2 { number: PacketNumber, serial: u64 },
    /// Everything that may be sent has been.
    Mark { number: PacketNumber, mark: Mark },
    /// ACK, NAK or SYN in a datagram.
    Report(Box<Feedback>),
    /// A TCP segment: data of a TCP flow, or reports on a control connection; and which of the flow's
    /// connections it is of.
    Segment { stripe: u16, segment: Segment },
    /// Its acknowledgement.
    TcpAck { stripe: u16, ack: Box<TcpAck> },
    /// Nothing but size.
    Filler(u32),
}

impl Body {
    /// Which of the flow's connections it belongs to.
    pub(crate) const fn stripe(&self) -> u16 {
        match self {
            Self::Segment { stripe, .. } | Self::TcpAck { stripe, .. } => *stripe,
            Self::Data(_)
            | Self::Ack2 { .. }
            | Self::Mark { .. }
            | Self::Report(_)
            | Self::Filler(_) => 0,
        }
    }
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// Place of its flow, and how often that place had been used before.
    pub(crate) flow: FlowKey,
    /// Position in the flow's path of the link it is on.
    pub(crate) hop: u8,
    pub(crate) is_ecn_capable: bool,
    /// A queue on the way has set the ECN mark.
    pub(crate) is_marked: bool,
    /// With the IP header.
    pub(crate) size: u32,
    pub(crate) body: Body,
}

/// A flow that may have ended: places are used again, keys are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowKey {
    pub(crate) place: u32,
    pub(crate) reuse: u32,
}

#[derive(Debug)]
struct Direction {
    link: Link<Packet>,
    actor: Actor,
}

/// All links in both directions, each an actor on the agenda.
#[derive(Debug)]
pub(crate) struct Net {
    /// Forward and back of each link in turn.
    directions: Vec<Direction>,
    pub(crate) agenda: Agenda,
}

impl Net {
    pub(crate) fn new(plans: &[LinkPlan], random: &SeededRandom) -> Self {
        let mut agenda = Agenda::default();
        let directions = plans
            .iter()
            .flat_map(|plan| {
                let random = random.fork(&format!("link/{}", plan.id));
                [
                    Link::new(plan.forward.clone(), &random.fork("forward")),
                    Link::new(plan.back.clone(), &random.fork("back")),
                ]
            })
            .map(|link| Direction { link, actor: agenda.add_actor() })
            .collect();
        Self { directions, agenda }
    }

    /// The link that this actor is, and which way.
    pub(crate) fn link_of(&self, actor: Actor) -> Option<(usize, Way)> {
        let index = actor.0 as usize;
        let way = if index.is_multiple_of(2) { Way::Forward } else { Way::Back };
        (index < self.directions.len()).then_some((index / 2, way))
    }

    pub(crate) fn link_mut(&mut self, link: usize, way: Way) -> &mut Link<Packet> {
        &mut self.directions[link * 2 + way as usize].link
    }

    /// Puts a packet of the flow with this number onto a link. Queues tell its connections apart.
    pub(crate) fn push(&mut self, now: Instant, link: usize, way: Way, flow: u32, packet: Packet) {
        let flow = flow.wrapping_add(u32::from(packet.body.stripe()) << COPY_SHIFT);
        let Direction { link, actor } = &mut self.directions[link * 2 + way as usize];
        let meta = PacketMeta { size: packet.size, flow, is_ecn_capable: packet.is_ecn_capable };
        link.push_packet(now, meta, packet);
        self.agenda.set(*actor, link.next_deadline());
    }

    /// The next packet that has come to the end of a link. Damaged ones are gone: no receiver takes
    /// them.
    pub(crate) fn poll(&mut self, now: Instant, link: usize, way: Way) -> Option<Packet> {
        let Direction { link, actor } = &mut self.directions[link * 2 + way as usize];
        while let Some(delivery) = link.poll(now) {
            if !delivery.corrupted {
                let mut packet = delivery.payload;
                packet.is_marked |= delivery.is_marked;
                return Some(packet);
            }
        }
        self.agenda.set(*actor, link.next_deadline());
        None
    }

    pub(crate) fn check_link(&self, link: usize, way: Way) {
        let link = &self.directions[link * 2 + way as usize].link;
        let stats = link.stats();
        assert_eq!(
            stats.arrived + stats.duplicated,
            stats.delivered + stats.dropped() + link.in_transit(),
            "a link makes and loses nothing unseen"
        );
    }
}

impl Links for Net {
    fn look(&mut self, link: usize, now: Instant) -> LinkLook {
        let link = self.link_mut(link, Way::Forward);
        LinkLook {
            stats: link.stats_at(now),
            queue_packets: link.queue_len(),
            queue_packet_time: link.queue_packet_time(),
        }
    }

    fn restart_queue_max(&mut self, link: usize) {
        self.link_mut(link, Way::Forward).restart_queue_max();
    }
}
