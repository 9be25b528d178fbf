//! SABUL's rate control of 2002: multiplicative increase and decrease of the gap.
//!
//! Source: [OVV-T §II] equations 1 to 5, an analysis of SABUL by others; open points are taken from
//! the authors' code [SABUL2] where marked. Defects that [OVV04 §3] found are parameters here, off
//! by default.
//! Model, once a SYN report, with x the gap and rho the loss rate of the interval:
//!     x ×= 1 + k1 × (rho − alpha), then + c      where rho > alpha    (1)
//!     x ×= 1 + k2 × (rho − alpha)                where rho < alpha    (2)
//!     x += d                                     where they are equal (3)
//!     x += b                                     on the 10th NAK, then every 510th (4)
//!     rate = L / (L / C + x)                                          (5)
//! States:      none
//! Invariants:  L / C <= time between packet starts <= the configured maximum.
//! Not here:    the times of SYN and ERR reports (`sabul-channel`) and their defects.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, IntervalReport, LossReport, ParamValues, Reason,
    SendLimits,
};
use sabul_units::{Bytes, Gap, Packets, Rate, Span};

use crate::unused::Unused;

mod params;

use params::PARAMS;

pub(crate) const ENTRY: Entry = Entry::new("sabul2002", Family::Rate, build)
    .summary(
        "SABUL's first rate control, multiplicative increase and decrease: historical reference",
    )
    .source("[OVV-T §II] Oothongsap, Viniotis, Vouk; defects after [OVV04 §3]")
    .params(PARAMS);

const PS_PER_US: f64 = 1e6;
/// [SABUL2] Number of the first ERR packet that counts as excessive loss.
const EXCESSIVE_AT: u32 = 10;
/// [SABUL2] The count then restarts at −500, so the next excess follows 510 ERR packets later.
const EXCESSIVE_AGAIN_AFTER: u32 = 510;
/// Ours: tolerance for the equality in eq (3), which computed fractions hardly ever have.
const EQUAL_WITHIN: f64 = 1e-12;

/// The constants of equations 1 to 4; times in picoseconds.
#[derive(Clone, Copy, Debug)]
struct Gains {
    k1: f64,
    k2: f64,
    c: f64,
    d: f64,
    b: f64,
}

impl Gains {
    /// [OVV-T §IV-B] `Pr_0`: SABUL's defaults.
    const PR0: Self =
        Self { k1: 0.1, k2: 10.0, c: 0.5 * PS_PER_US, d: 0.1 * PS_PER_US, b: 2.0 * PS_PER_US };
    /// [OVV-T §IV-B] `Pr_1`: meets the conditions of Lemma 7, so its loss exceeds its target.
    const PR1: Self = Self {
        k1: 0.001_01,
        k2: 100.0,
        c: 0.002 * PS_PER_US,
        d: 0.1 * PS_PER_US,
        b: 0.002 * PS_PER_US,
    };

    fn from(params: &ParamValues) -> Self {
        let set = params.choice("set", &[("pr0", Self::PR0), ("pr1", Self::PR1)]);
        let micros = |name, of_set| params.number_or_word(name).map_or(of_set, |us| us * PS_PER_US);
        Self {
            k1: params.number_or_word("k1").unwrap_or(set.k1),
            k2: params.number_or_word("k2").unwrap_or(set.k2),
            c: micros("c_us", set.c),
            d: micros("d_us", set.d),
            b: micros("b_us", set.b),
        }
    }
}

/// Variable of the equations.
#[derive(Clone, Copy, Debug)]
enum Domain {
    /// Pause between two packets, as in the papers.
    Gap,
    /// Time between two packet starts, as in the authors' code (Q8).
    Period,
}

/// Loss rate used in the equations.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Loss rate of the interval itself. [OVV-T §II]
    Instantaneous,
    /// [SABUL2] Average over intervals; weight of the newest interval.
    Averaged { weight_new: f64 },
}

/// Defects that [OVV04 §3] found; each is off by default.
#[derive(Clone, Copy, Debug)]
struct Defects {
    /// Q1: the count of sent packets is raised to the count of reported losses.
    raise_sent: bool,
    /// Q3: a loss counts each time it is reported.
    count_repeats: bool,
    /// Q2: an interval counts whatever its length.
    any_spacing: bool,
}

/// Counts of intervals that wait for an update.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    sent: u64,
    lost: u64,
    /// Numbers in all NAKs, repeats included.
    reported: u64,
    elapsed: Span,
}

#[derive(Debug)]
struct Sabul2002 {
    gains: Gains,
    alpha: f64,
    syn_interval: Span,
    window: Packets,
    nic: Rate,
    period_max: Span,
    domain: Domain,
    loss: Loss,
    defects: Defects,
    unused: Unused,
    /// Gap or period in picoseconds, by `domain`.
    x: f64,
    /// L / C: transmission time of one packet on the sender's own interface. [OVV-T eq. 5]
    packet_time: Span,
    averaged_loss: f64,
    counted: Counted,
    /// NAKs until the next NAK counts as excessive loss.
    naks_to_excess: u32,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ranges are checked")]
fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    params::check(params, packet_bytes)?;
    let is_on = |name| params.is_on(name);
    let mbps = |name| params.rate(name);
    let (nic, rate) = (mbps("nic_mbps"), mbps("rate_mbps_initial"));
    let packet_time = nic.gap(packet_bytes).0;
    let domain = params.choice("domain", &[("gap", Domain::Gap), ("period", Domain::Period)]);
    let period = rate.gap(packet_bytes).0;
    Ok(Box::new(Sabul2002 {
        gains: Gains::from(params),
        alpha: params.number("alpha"),
        syn_interval: Span::from_secs_f64(params.number("syn_interval_ms") / 1e3),
        window: Packets(params.number("window_packets") as u64),
        nic,
        period_max: Span::from_secs_f64(params.number("period_ms_max") / 1e3),
        domain,
        loss: params.choice(
            "loss",
            &[
                ("instantaneous", Loss::Instantaneous),
                ("averaged", Loss::Averaged { weight_new: params.number("loss_weight_new") }),
            ],
        ),
        defects: Defects {
            raise_sent: is_on("raise_sent"),
            count_repeats: is_on("count_repeats"),
            any_spacing: is_on("any_spacing"),
        },
        unused: Unused::new(params),
        x: match domain {
            Domain::Gap => period.saturating_sub(packet_time).0 as f64,
            Domain::Period => period.0 as f64,
        },
        packet_time,
        averaged_loss: 0.0,
        counted: Counted::default(),
        naks_to_excess: EXCESSIVE_AT,
    }))
}

impl Sabul2002 {
    /// Applies equations 1 to 3.
    fn step(&mut self, rho: f64, is_unused: bool, cx: &mut Context<'_>) {
        let excess = rho - self.alpha;
        let Gains { k1, k2, c, d, .. } = self.gains;
        if excess.abs() < EQUAL_WITHIN {
            cx.log_reason(Reason::Fall);
            self.x += d;
        } else if excess > 0.0 {
            cx.log_reason(Reason::Fall);
            self.x = self.x * (1.0 + k1 * excess) + c;
        } else if is_unused {
            cx.log_reason(Reason::Hold);
        } else {
            cx.log_reason(Reason::Rise);
            self.x *= 1.0 + k2 * excess;
        }
        self.clamp();
    }

    /// DEV-021: the interface's rate bounds the sending rate, whatever the packet size.
    fn clamp(&mut self) {
        let (least, most) = match self.domain {
            Domain::Gap => (Span::ZERO, self.period_max.saturating_sub(self.packet_time)),
            Domain::Period => (self.packet_time, self.period_max.max(self.packet_time)),
        };
        self.x = self.x.clamp(least.0 as f64, most.0 as f64);
    }

    /// Returns the loss rate of the counted intervals; `None` if nothing was sent. [SABUL2]
    fn loss_rate(&mut self) -> Option<f64> {
        let Counted { mut sent, lost, reported, .. } = self.counted;
        let lost = if self.defects.count_repeats { reported } else { lost };
        if self.defects.raise_sent {
            sent = sent.max(lost);
        }
        if sent == 0 {
            return None;
        }
        let newest = (lost as f64 / sent as f64).min(1.0);
        Some(match self.loss {
            Loss::Instantaneous => newest,
            Loss::Averaged { weight_new } => {
                self.averaged_loss = (1.0 - weight_new) * self.averaged_loss + weight_new * newest;
                self.averaged_loss
            }
        })
    }
}

impl Controller for Sabul2002 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    fn limits(&self) -> SendLimits {
        let x = Span((self.x + 0.5) as u64);
        let period = match self.domain {
            // [OVV-T eq. 5]
            Domain::Gap => self.packet_time + x,
            Domain::Period => x,
        };
        SendLimits { gap: Gap(period), window: Some(self.window), hold_until: None }
    }

    fn on_interval(&mut self, report: &IntervalReport, cx: &mut Context<'_>) {
        self.packet_time = self.nic.gap(cx.packet_bytes).0;
        self.clamp();
        self.counted.sent += report.sent.0;
        self.counted.lost += report.lost.0;
        self.counted.elapsed += report.elapsed;
        // Two SYN reports that a busy machine delivers together are one interval. [OVV04 §3]
        if self.counted.elapsed < self.syn_interval / 2 && !self.defects.any_spacing {
            return;
        }
        if let Some(rho) = self.loss_rate() {
            let Counted { sent, elapsed, .. } = self.counted;
            let is_unused = self.unused.holds(Packets(sent), elapsed, self.limits().gap.0);
            self.step(rho, is_unused, cx);
        }
        self.counted = Counted::default();
    }

    fn on_ack(&mut self, acked: &Acked, _cx: &mut Context<'_>) {
        self.unused.on_ack(acked);
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        self.counted.reported += loss.first_time.0 + loss.repeats.0;
        self.naks_to_excess -= 1;
        if self.naks_to_excess == 0 {
            // [OVV-T eq. 4], at any time.
            cx.log_reason(Reason::FurtherLoss);
            self.naks_to_excess = EXCESSIVE_AGAIN_AFTER;
            self.x += self.gains.b;
            self.clamp();
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        // DEV-020: a timeout counts as an interval in which everything was lost.
        self.step(1.0, false, cx);
    }

    fn syn_interval(&self) -> Span {
        self.syn_interval
    }
}

#[cfg(test)]
#[path = "sabul2002/tests.rs"]
mod tests;
