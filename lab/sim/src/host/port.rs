//! Output port of a host.

use sabul_net::{PacketMeta, RouteId, Verdict, Way};
use sabul_run::scenario::FlowPlan;
use sabul_units::Instant;

use crate::net::{Body, COPY_SHIFT, Net};

/// Output port of a host.
#[derive(Debug)]
pub(crate) struct Port<'a> {
    pub(crate) net: &'a mut Net,
    pub(crate) route: RouteId,
    pub(crate) plan: &'a FlowPlan,
    /// Flow number for queues; connections add to its high bits.
    pub(crate) number: u32,
}

impl Port<'_> {
    /// Sends a packet of `size` bytes, IP header included, in direction `way` of the flow.
    pub(crate) fn send(&mut self, now: Instant, way: Way, size: u32, body: Body) {
        let meta = PacketMeta {
            size,
            flow: self.number.wrapping_add(u32::from(body.stripe()) << COPY_SHIFT),
            is_ecn_capable: way == Way::Forward
                && self.plan.tcp().is_some_and(|ends| ends.is_ecn_capable),
        };
        // The sender detects losses by feedback, not by the verdict.
        let _: Verdict = self.net.push(now, self.route, self.plan.way(way), meta, body);
    }
}
