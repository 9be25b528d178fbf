//! Where a host's packets go out.

use sabul_path::{PacketMeta, RouteId, Verdict, Way};
use sabul_run::scenario::FlowPlan;
use sabul_units::Instant;

use crate::net::{Body, COPY_SHIFT, Net};

/// Where a host's packets go out.
#[derive(Debug)]
pub(crate) struct Port<'a> {
    pub(crate) net: &'a mut Net,
    pub(crate) route: RouteId,
    pub(crate) plan: &'a FlowPlan,
    /// What queues tell flows apart by; they tell its connections apart, too.
    pub(crate) number: u32,
}

impl Port<'_> {
    /// Sends a packet of `size` bytes, IP header included, `way` between the ends of the flow.
    pub(crate) fn send(&mut self, now: Instant, way: Way, size: u32, body: Body) {
        let meta = PacketMeta {
            size,
            flow: self.number.wrapping_add(u32::from(body.stripe()) << COPY_SHIFT),
            is_ecn_capable: way == Way::Forward
                && self.plan.tcp().is_some_and(|ends| ends.is_ecn_capable),
        };
        // What becomes of it, its sender learns from the answers.
        let _: Verdict = self.net.push(now, self.route, self.plan.way(way), meta, body);
    }
}
