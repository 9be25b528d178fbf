//! Guard of every host half: bounds the effect of headers, and falls back to sabul2026 without
//! routers.
//!
//! Source: ours (ADR 23).
//! Model:       rate <= `rise` × the larger arrival rate of the last two RTTs, and at least `rise`
//!              × the initial rate; in flight <= two RTTs of this rate or of the arrival rate, at
//!              most `WINDOW_MAX` or four RTTs of the arrival rate.
//! States:      Explicit --evidence (`watch`)--> Fallback: another controller, permanently
//!              Fallback for losses --`CALM` without loss, within `OTHERS`--> pause of two RTTs
//!              --> Fallback, restarted
//! A flow that leaves while other flows still follow routers searches in a queue that these flows
//! keep full. The flow then underestimates the link, and its share stays too small, unless it
//! searches again after the others have left.
//! Invariants:  headers affect only the flow's own rate, within these bounds; the form of headers
//!              never changes, and after the fallback headers are blank.
//! Not here:    a user's rate limit, which the sender's pacer enforces.

use sabul_cc::registry;
use sabul_cc::{
    Acked, BulkReport, ConfigError, Constants, Context, Controller, IntervalReport, LossReport,
    ParamSpec, ParamValues, Phase, Policy, Reason, SendLimits, Unit,
};
use sabul_units::{Bytes, CongestionFields, Instant, JetMaxFields, Packets, Rate, Span};

use super::number::rate_of;
use super::watch::{Evidence, Watch};

/// Ours: packets allowed in flight beyond two RTTs of the rate.
const WINDOW_SPARE: f64 = 64.0;
/// Ours: largest number of packets in flight at any rate, or this many RTTs of the arrival rate.
/// Without a bound a sender's loss accounting would overflow.
const WINDOW_MAX: f64 = 131_072.0;
const WINDOW_DELIVERED: f64 = 4.0;
/// Ours: time without a loss after which the path counts as free of overload, and the longest wait
/// for that.
const CALM: Span = Span::from_secs(1);
const OTHERS: Span = Span::from_secs(15);

/// Parameter of every explicit controller.
pub(super) const FALLBACK_PARAM: ParamSpec = ParamSpec::word("fallback", &["on", "off"], "on")
    .doc("Fallback: 'on' changes to sabul2026 if no router answers, or if packets queue or are lost at links \
          without a router")
    .source("ours: docs/adr/0023-congestion-headers.md");

/// Parameter of every explicit controller.
pub(super) const RISE_PARAM: ParamSpec = ParamSpec::new("rise", Unit::Number, "10", (2.0, 1e6))
    .doc("Maximum ratio of the sending rate to the arrival rate of the previous RTT; 10^6 disables this limit")
    .source("ours: docs/adr/0023-congestion-headers.md");

/// Parameter of every explicit controller that sets a rate.
pub(super) const INITIAL_PARAM: ParamSpec =
    ParamSpec::new("rate_mbps_initial", Unit::Mbps, "1", (0.01, 1e6))
        .doc("Sending rate before the first answer of a router")
        .source("ours: some packets in any round trip");

/// Host half with its guard.
#[derive(Debug)]
pub struct Explicit {
    law: Box<dyn Controller>,
    /// Controller used after the fallback; `None` if the fallback is off.
    beside: Option<Box<dyn Controller>>,
    is_fallen: bool,
    watch: Watch,
    rise: f64,
    /// Bound of the rate before the first round, and least bound, in bits a second.
    floor: f64,
    packet_bytes: Bytes,
    rtt: Option<Span>,
    /// Counts at the start of the fallback, because the other controller starts at zero.
    before: Acked,
    /// Controller for a restart after other flows have left; `None` when the restart is done or
    /// expired.
    restart: Option<Restart>,
    /// No packet leaves before this time, so that packets in flight do not count for the restarted
    /// controller.
    silent_until: Option<Instant>,
}

/// Pending restart; see the module.
#[derive(Debug)]
struct Restart {
    controller: Box<dyn Controller>,
    fell_at: Instant,
    /// Time of the newest loss, and number of losses at that time.
    lost_at: Instant,
    lost: Packets,
}

impl Explicit {
    /// Wraps a host half that starts at the initial rate and never exceeds `rise` times the
    /// previous RTT's arrival rate. The first controller of `beside` takes over where no router
    /// answers, the second after a restart.
    pub fn new(
        law: Box<dyn Controller>,
        initial: Rate,
        rise: f64,
        packet_bytes: Bytes,
        beside: Option<[Box<dyn Controller>; 2]>,
    ) -> Self {
        let fell_at = Instant::ZERO;
        let (beside, restart) = beside.map_or((None, None), |[beside, controller]| {
            let restart = Restart { controller, fell_at, lost_at: fell_at, lost: Packets(0) };
            (Some(beside), Some(restart))
        });
        Self {
            law,
            beside,
            restart,
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

    /// Wraps a host half according to the common parameters.
    pub(super) fn built(
        law: Box<dyn Controller>,
        params: &ParamValues,
        packet_bytes: Bytes,
    ) -> Result<Box<dyn Controller>, ConfigError> {
        let beside = if params.is_on(FALLBACK_PARAM.name) {
            let entry = registry::find("sabul2026")?;
            let values = ParamValues::check(entry.name, entry.params, &[])?;
            Some([(entry.build)(&values, packet_bytes)?, (entry.build)(&values, packet_bytes)?])
        } else {
            None
        };
        let initial = params.rate(INITIAL_PARAM.name);
        let rise = params.number(RISE_PARAM.name);
        Ok(Box::new(Self::new(law, initial, rise, packet_bytes, beside)))
    }

    /// Returns the controller in charge.
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

    /// Returns the largest permitted rate, in bits a second, whatever headers contain.
    fn ceiling(&self) -> f64 {
        self.watch
            .delivered()
            .map_or(self.floor, |delivered| (delivered * self.rise).max(self.floor))
    }

    /// Sets the offsets of all counts, so that this ACK is the first of the other controller.
    fn begin(&mut self, acked: &Acked, cx: &Context<'_>) {
        self.before = Acked { newly: Packets(0), ..*acked };
        self.before.total = Packets(acked.total.0.saturating_sub(acked.newly.0));
        let newly = Bytes(acked.newly.0.saturating_mul(cx.packet_bytes.0));
        self.before.delivered = Bytes(acked.delivered.0.saturating_sub(newly.0));
    }

    /// Returns whether flows that overloaded the path have left.
    fn is_calm(&mut self, acked: &Acked, now: Instant) -> bool {
        let Some(restart) = &mut self.restart else { return false };
        if acked.lost > restart.lost {
            (restart.lost, restart.lost_at) = (acked.lost, now);
        }
        if now.since(restart.fell_at) > OTHERS {
            self.restart = None;
            return false;
        }
        now.since(restart.lost_at) >= CALM
    }

    fn note(&mut self, cx: &Context<'_>) {
        self.packet_bytes = cx.packet_bytes;
        self.rtt = cx.rtt.map(|rtt| rtt.smoothed);
    }

    /// Returns the packets in flight that two RTTs of a rate need, or of the arrival rate if
    /// larger. A flow whose rate more than halves must not pause until its earlier packets are
    /// acknowledged, because routers count flows by their packets.
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
        // Routers count flows by their announced rate, so the announced rate must be the real rate.
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
                    cx.log_reason(Reason::Own(evidence.word()));
                    self.is_fallen = true;
                    self.begin(acked, cx);
                    let is_lossy =
                        matches!(evidence, Evidence::LossElsewhere | Evidence::LastingLoss);
                    self.restart = self.restart.take().filter(|_| is_lossy).map(|restart| {
                        Restart { fell_at: cx.now, lost_at: cx.now, lost: acked.lost, ..restart }
                    });
                }
                _ => return self.law.on_ack(acked, cx),
            }
        } else if self.is_calm(acked, cx.now)
            && let Some(restart) = self.restart.take()
        {
            cx.log_reason(Reason::Own("again"));
            self.beside = Some(restart.controller);
            self.silent_until = self.rtt.map(|rtt| cx.now + rtt * 2);
        }
        if self.silent_until.is_some_and(|until| cx.now < until) {
            return self.begin(acked, cx);
        }
        if acked.newly.0 == 0 {
            // Only a header has arrived, which no longer counts.
            return;
        }
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let since_fallback = Acked {
            total: Packets(since(acked.total.0, self.before.total.0)),
            lost: Packets(since(acked.lost.0, self.before.lost.0)),
            delivered: Bytes(since(acked.delivered.0, self.before.delivered.0)),
            echo: None,
            ..*acked
        };
        self.active_mut().on_ack(&since_fallback, cx);
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
        let restart = self.restart.as_mut().map(|restart| &mut restart.controller);
        for controller in self.beside.iter_mut().chain(restart) {
            controller.on_policy(policy, cx);
        }
    }

    fn constants(&self) -> Constants {
        let beside = self.beside.as_ref().map(|beside| beside.constants());
        let tolerates_random_loss = beside.is_some_and(|beside| beside.tolerates_random_loss);
        Constants {
            rules: self.law.constants().rules,
            tolerates_random_loss,
            ..Constants::default()
        }
    }

    fn syn_interval(&self) -> Span {
        self.active().syn_interval()
    }

    fn phase(&self) -> Phase {
        if self.is_fallen { Phase::Fallback } else { self.law.phase() }
    }
}

#[cfg(test)]
#[path = "host/tests.rs"]
mod tests;
