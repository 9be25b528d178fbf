//! What stands around every host half: it bounds what headers can do, and goes on without routers where none answer.
//!
//! Source: ours (ADR 23).
//! Model:       rate <= `rise` × what arrived in the better of the last two round trips, and at least that part of
//!              the initial rate; on the way <= two round trips of it or of what arrives, and no more than `WINDOW_MAX` or four of the latter.
//! States:      Explicit --evidence (`watch`)--> Fallback: another controller, from its beginning and for good
//!              Fallback for losses --`CALM` without one, within `OTHERS`--> silence of two round trips --> Fallback, anew
//! A flow that leaves while others still do as they are told searches in a queue that they keep full. It takes the link for
//! as much slower, and its share is as much smaller for good, unless it searches again when they have left, too.
//! Invariants:  what a header says changes nothing but the flow's own rate, and that within these bounds; the
//!              form of headers stays, and after the fall-back they are blank.
//! Not here:    a user's limit, which the sender's pacer keeps whatever a controller says.

use sabul_units::{Bytes, CongestionFields, Instant, JetMaxFields, Packets, Rate, Span};

use super::number::rate_of;
use super::watch::{Evidence, Watch};
use crate::channel::{BulkReport, ChannelRules};
use crate::controller::{Acked, Context, Controller, IntervalReport, LossReport, SendLimits};
use crate::params::{ConfigError, ParamSpec, ParamValues, Unit};
use crate::policy::Policy;
use crate::reason::Reason;
use crate::sabul2026;

/// The phase of a flow that no longer listens to routers.
pub const FALLBACK: &str = "fallback";
/// Ours: packets that may be on the way beside two round trips of the rate.
const WINDOW_SPARE: f64 = 64.0;
/// Ours: packets that may be on the way whatever the rate, and round trips of what arrives that may: where nothing else
/// bounds a rate, a sender would lose account of what it has lost.
const WINDOW_MAX: f64 = 131_072.0;
const WINDOW_DELIVERED: f64 = 4.0;
/// Ours: nothing lost for so long, and nobody overloads the path any more; who has not left by then does not.
const CALM: Span = Span::from_secs(1);
const OTHERS: Span = Span::from_secs(15);

/// The parameter that every explicit controller has.
pub(super) const FALLBACK_PARAM: ParamSpec = ParamSpec {
    name: "fallback",
    unit: Unit::Word(&["on", "off"]),
    default: "on",
    range: (0.0, 0.0),
    doc: "Whether it goes on as sabul2026 where no router answers, or packets wait or are lost elsewhere",
    source: "ours: docs/adr/0023-congestion-headers.md",
};

/// The parameter that every explicit controller has.
pub(super) const RISE_PARAM: ParamSpec = ParamSpec {
    name: "rise",
    unit: Unit::Number,
    default: "10",
    range: (2.0, 1e6),
    doc: "Whatever headers say, at most so many times what arrived a round trip ago; 10^6 is no bound",
    source: "ours: docs/adr/0023-congestion-headers.md",
};

/// The parameter that every one that sets a rate has.
pub(super) const INITIAL_PARAM: ParamSpec = ParamSpec {
    name: "rate_mbps_initial",
    unit: Unit::Mbps,
    default: "1",
    range: (0.01, 1e6),
    doc: "Sending rate until the first word of a router",
    source: "ours: some packets in any round trip",
};

/// A host half with its guard.
#[derive(Debug)]
pub struct Explicit {
    law: Box<dyn Controller>,
    /// Who goes on where routers do not answer; none where that is not wished.
    beside: Option<Box<dyn Controller>>,
    is_fallen: bool,
    watch: Watch,
    rise: f64,
    /// Bits a second; before the first round, and at least.
    floor: f64,
    packet_bytes: Bytes,
    rtt: Option<Span>,
    /// Counts when the fall-back began: the other controller begins with nothing.
    before: Acked,
    /// Who begins anew when others have left as well; none where that is over.
    again: Option<Again>,
    /// Nothing is sent until then, so that what is on the way is not taken for the new beginning.
    silent_until: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
struct Again {
    controller: Box<dyn Controller>,
    fell_at: Instant,
    /// The newest loss, and how many there were by then.
    lost_at: Instant,
    lost: Packets,
}

impl Explicit {
    /// That host half, which begins at that rate and is never faster than `rise` times what arrived a round trip
    /// before. The first of `beside` goes on where no router answers, the second where it begins anew.
    pub fn new(
        law: Box<dyn Controller>,
        initial: Rate,
        rise: f64,
        packet_bytes: Bytes,
        beside: Option<[Box<dyn Controller>; 2]>,
    ) -> Self {
        let fell_at = Instant::ZERO;
        let (beside, again) = beside.map_or((None, None), |[beside, controller]| {
            let again = Again { controller, fell_at, lost_at: fell_at, lost: Packets(0) };
            (Some(beside), Some(again))
        });
        Self {
            law,
            beside,
            again,
            silent_until: None,
            is_fallen: false,
            watch: Watch::default(),
            rise,
            floor: initial.0 as f64 * rise,
            packet_bytes,
            rtt: None,
            before: Acked::default(),
        }
    }

    /// The same by the parameters that all of them have.
    pub(super) fn built(
        law: Box<dyn Controller>,
        params: &ParamValues,
        packet_bytes: Bytes,
    ) -> Result<Box<dyn Controller>, ConfigError> {
        let beside = if params.is_on(FALLBACK_PARAM.name) {
            let entry = sabul2026::ENTRY;
            let values = ParamValues::check(entry.name, entry.params, &[])?;
            Some([(entry.build)(&values, packet_bytes)?, (entry.build)(&values, packet_bytes)?])
        } else {
            None
        };
        let initial = params.rate(INITIAL_PARAM.name);
        let rise = params.number(RISE_PARAM.name);
        Ok(Box::new(Self::new(law, initial, rise, packet_bytes, beside)))
    }

    /// The controller that decides now.
    fn active(&self) -> &dyn Controller {
        match &self.beside {
            Some(beside) if self.is_fallen => &**beside,
            _ => &*self.law,
        }
    }

    fn active_mut(&mut self) -> &mut dyn Controller {
        match &mut self.beside {
            Some(beside) if self.is_fallen => &mut **beside,
            _ => &mut *self.law,
        }
    }

    /// The most that it may send, in bits a second, whatever headers say.
    fn ceiling(&self) -> f64 {
        self.watch
            .delivered()
            .map_or(self.floor, |delivered| (delivered * self.rise).max(self.floor))
    }

    /// What came with this ACK is the first that the other one hears of.
    fn begin(&mut self, acked: &Acked, cx: &Context<'_>) {
        self.before = Acked { newly: Packets(0), ..*acked };
        self.before.total = Packets(acked.total.0.saturating_sub(acked.newly.0));
        let newly = Bytes(acked.newly.0.saturating_mul(cx.packet_bytes.0));
        self.before.delivered = Bytes(acked.delivered.0.saturating_sub(newly.0));
    }

    /// Whether those who overloaded the path have left it.
    fn is_calm(&mut self, acked: &Acked, now: Instant) -> bool {
        let Some(again) = &mut self.again else { return false };
        if acked.lost > again.lost {
            (again.lost, again.lost_at) = (acked.lost, now);
        }
        if now.since(again.fell_at) > OTHERS {
            self.again = None;
            return false;
        }
        now.since(again.lost_at) >= CALM
    }

    fn note(&mut self, cx: &Context<'_>) {
        self.packet_bytes = cx.packet_bytes;
        self.rtt = cx.rtt.map(|rtt| rtt.smoothed);
    }

    /// Packets on the way that two round trips of a rate need, or of what arrives where that is more: a flow whose rate
    /// falls below half must not stop until its earlier packets are acknowledged, since routers count flows by the
    /// packets that come.
    fn window(&self, rate: f64) -> Option<Packets> {
        let bits = self.packet_bytes.0.max(1) as f64 * 8.0;
        let rtt = self.rtt?.as_secs_f64();
        let delivered = self.watch.delivered().unwrap_or(0.0);
        let most = delivered / bits * rtt * WINDOW_DELIVERED;
        let rate = rate.max(delivered);
        let packets = (rate / bits * rtt * 2.0 + WINDOW_SPARE).min(most.max(WINDOW_MAX));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
        let packets = packets as u64;
        Some(Packets(packets))
    }
}

impl Controller for Explicit {
    fn limits(&self) -> SendLimits {
        if self.is_fallen {
            let limits = self.active().limits();
            return SendLimits { hold_until: self.silent_until.max(limits.hold_until), ..limits };
        }
        let law = self.law.limits();
        let gap = law.gap.max(rate_of(self.ceiling()).gap(self.packet_bytes));
        let rate = gap.rate(self.packet_bytes).map_or(0.0, |rate| rate.0 as f64);
        let window = match (law.window, self.window(rate)) {
            (Some(law), Some(ours)) => Some(law.min(ours)),
            (one, other) => one.or(other),
        };
        SendLimits { gap, window, hold_until: law.hold_until }
    }

    fn header(&self) -> Option<CongestionFields> {
        let mut fields = self.law.header()?;
        if self.is_fallen {
            return Some(fields.form().blank());
        }
        // A router counts flows by what they say of their rate, so they say what they really send.
        if let CongestionFields::JetMax(JetMaxFields { interval, .. })
        | CongestionFields::Emkc { interval, .. }
        | CongestionFields::Xcp { interval, .. } = &mut fields
        {
            *interval = (*interval).max(self.limits().gap.0);
        }
        Some(fields)
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        self.note(cx);
        self.active_mut().on_loss(loss, cx);
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.note(cx);
        self.active_mut().on_timeout(cx);
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        self.note(cx);
        if !self.is_fallen {
            let rate = self.law.limits().gap.rate(self.packet_bytes);
            let rate = rate.map_or(f64::INFINITY, |rate| rate.0 as f64);
            match self.watch.note(acked, rate, cx) {
                Some(evidence) if self.beside.is_some() => {
                    cx.tell(Reason::Own(evidence.word()));
                    self.is_fallen = true;
                    self.begin(acked, cx);
                    let is_lossy =
                        matches!(evidence, Evidence::LossElsewhere | Evidence::LastingLoss);
                    self.again = self.again.take().filter(|_| is_lossy).map(|again| Again {
                        fell_at: cx.now,
                        lost_at: cx.now,
                        lost: acked.lost,
                        ..again
                    });
                }
                _ => return self.law.on_ack(acked, cx),
            }
        } else if self.is_calm(acked, cx.now)
            && let Some(again) = self.again.take()
        {
            cx.tell(Reason::Own("again"));
            self.beside = Some(again.controller);
            self.silent_until = self.rtt.map(|rtt| cx.now + rtt * 2);
        }
        if self.silent_until.is_some_and(|until| cx.now < until) {
            return self.begin(acked, cx);
        }
        if acked.newly.0 == 0 {
            // Nothing but a header has come, which no longer counts.
            return;
        }
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let told = Acked {
            total: Packets(since(acked.total.0, self.before.total.0)),
            lost: Packets(since(acked.lost.0, self.before.lost.0)),
            delivered: Bytes(since(acked.delivered.0, self.before.delivered.0)),
            echo: None,
            ..*acked
        };
        self.active_mut().on_ack(&told, cx);
    }

    fn on_interval(&mut self, report: &IntervalReport, cx: &mut Context<'_>) {
        self.note(cx);
        self.active_mut().on_interval(report, cx);
    }

    fn on_report(&mut self, report: &BulkReport, cx: &mut Context<'_>) {
        self.active_mut().on_report(report, cx);
    }

    fn on_policy(&mut self, policy: Policy, cx: &mut Context<'_>) {
        self.law.on_policy(policy, cx);
        let again = self.again.as_mut().map(|again| &mut again.controller);
        for controller in self.beside.iter_mut().chain(again) {
            controller.on_policy(policy, cx);
        }
    }

    fn rules(&self) -> ChannelRules {
        self.law.rules()
    }

    fn tells_chance(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.tells_chance())
    }

    fn syn_interval(&self) -> Span {
        self.active().syn_interval()
    }

    fn phase(&self) -> &'static str {
        if self.is_fallen { FALLBACK } else { self.law.phase() }
    }
}

#[cfg(test)]
#[path = "host/tests.rs"]
mod tests;
