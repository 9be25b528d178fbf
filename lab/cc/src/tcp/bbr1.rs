//! BBR version 1: paces at the largest measured delivery rate.
//!
//! Source: [BBR]; details as in [LINUX tcp_bbr.c].
//! Model:       rate     = largest delivery rate of ten RTTs (`delivery`)
//!              rtt_min  = smallest RTT of ten seconds
//!              gap      = packet / (0.99 × gain × rate)
//!              cwnd     = cwnd_gain × rate × rtt_min + 6, at least 4
//! States, with gain and cwnd_gain:
//!              Startup (2.885, 2.885) --three rounds without a quarter more rate--> Drain
//!              Drain (0.347, 2.885) --at most one BDP in flight--> ProbeBw
//!              ProbeBw (1.25, 0.75, then 1 six times; 2), each about rtt_min long
//!              any --rtt_min ten seconds old--> ProbeRtt (1; window 4) --200 ms and a round--> back
//! A loss reduces the window to the packets in flight for one RTT; the rate falls only with the
//! arrivals.
//! Invariants:  1 <= window; a rate only from samples.
//! Not here:    policers; a window for ACK aggregation. The host must support pacing.

use std::f64::consts::LN_2;

use sabul_cc::registry::{Entry, Family};
use sabul_cc::tcp::delivery::Delivery;
use sabul_cc::tcp::window::INITIAL_WINDOW;
use sabul_cc::{
    Acked, ConfigError, Context, Controller, LossReport, ParamSpec, ParamValues, Phase, Reason,
    SendLimits, SentNumber,
};
use sabul_units::{Bytes, Gap, Instant, Packets, Span};

/// [BBR] Least gain that doubles the rate per RTT.
const GAIN_HIGH: f64 = 2.0 / LN_2;
/// [BBR] Cycle of ProbeBw: probe, drain the probe's queue, cruise.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const CYCLE_DRAINS: usize = 1;
/// [BBR] Twice the BDP tolerates late ACKs without idling the path.
const CWND_GAIN: f64 = 2.0;
/// [LINUX tcp_bbr.c] Pacing leaves one per cent unused, so that queues drain eventually.
const MARGIN: f64 = 0.99;
/// Ours, after the least value of [LINUX tcp_bbr.c]: three bursts of two packets.
const CWND_EXTRA: f64 = 6.0;
/// [BBR] Smallest window, and window of ProbeRtt.
const CWND_MIN: f64 = 4.0;
/// [BBR] Startup ends after this many rounds with less growth than this factor.
const FULL_ROUNDS: u32 = 3;
const FULL_GROWTH: f64 = 1.25;
/// [BBR] Age at which the smallest RTT is measured again, and length of that measurement.
const RTT_MIN_AGE: Span = Span::from_secs(10);
const PROBE_RTT: Span = Span::from_millis(200);
pub(crate) const ENTRY: Entry = Entry::new("bbr1", Family::PacedWindow, build)
    .summary("BBR version 1: paces at the maximum recent delivery rate")
    .source("[BBR] Cardwell, Cheng, Gunn, Yeganeh, Jacobson 2016; details after [LINUX tcp_bbr.c]")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[INITIAL_WINDOW];

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Startup,
    Drain,
    ProbeBw {
        phase: usize,
        since: Instant,
        has_lost: bool,
    },
    /// `until` is set once at most [`CWND_MIN`] is in flight; `round` must be over.
    ProbeRtt {
        until: Option<Instant>,
        round: u64,
    },
}

/// State after a loss, until a later packet has arrived.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    point: SentNumber,
    /// Window to restore.
    cwnd_before: f64,
}

#[derive(Debug)]
struct Bbr {
    state: State,
    delivery: Delivery,
    cwnd: f64,
    rtt_min: Option<Span>,
    rtt_min_at: Instant,
    /// Largest rate at the last round with growth, and rounds since.
    full_rate: f64,
    full_rounds: u32,
    is_full: bool,
    recovery: Option<Recovery>,
    /// Losses of packets below this number are ignored: [LINUX tcp_bbr.c] conserves packets in the
    /// first of the two RTTs of a recovery.
    free_until: SentNumber,
    /// Packets in flight after the newest ACK, and before it.
    in_flight: f64,
    flight: f64,
    /// True between a timeout and the next ACK.
    is_silent: bool,
}

fn build(params: &ParamValues, _packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    Ok(Box::new(Bbr::new(params.number(INITIAL_WINDOW.name))))
}

impl Bbr {
    const fn new(cwnd: f64) -> Self {
        Self {
            state: State::Startup,
            delivery: Delivery::new(),
            cwnd,
            rtt_min: None,
            rtt_min_at: Instant::ZERO,
            full_rate: 0.0,
            full_rounds: 0,
            is_full: false,
            recovery: None,
            free_until: SentNumber(0),
            in_flight: 0.0,
            flight: 0.0,
            is_silent: false,
        }
    }

    const fn gains(&self) -> (f64, f64) {
        match self.state {
            State::Startup => (GAIN_HIGH, GAIN_HIGH),
            State::Drain => (1.0 / GAIN_HIGH, GAIN_HIGH),
            State::ProbeBw { phase, .. } => (CYCLE[phase], CWND_GAIN),
            State::ProbeRtt { .. } => (1.0, CWND_GAIN),
        }
    }

    /// Returns `gain` BDPs in packets; `None` before the first sample.
    fn product(&self, gain: f64) -> Option<f64> {
        let rtt = self.rtt_min?.as_secs_f64();
        self.delivery.rate().map(|rate| gain * rate * rtt)
    }

    fn holds_at_most(&self, in_flight: f64, gain: f64) -> bool {
        self.product(gain).is_some_and(|product| in_flight <= product)
    }

    /// Updates the smallest RTT; returns whether the smallest RTT had expired.
    fn measure_rtt(&mut self, cx: &Context<'_>) -> bool {
        let Some(rtt) = &cx.rtt else { return false };
        let is_old = self.rtt_min.is_some() && cx.now > self.rtt_min_at + RTT_MIN_AGE;
        if is_old || self.rtt_min.is_none_or(|min| rtt.latest <= min) {
            self.rtt_min = Some(rtt.latest);
            self.rtt_min_at = cx.now;
        }
        is_old
    }

    /// [BBR] Updates whether the path is full: the rate has stopped growing.
    fn check_full(&mut self, cx: &mut Context<'_>) {
        let (Some(rate), false) = (self.delivery.rate(), self.is_full) else { return };
        if rate >= self.full_rate * FULL_GROWTH {
            (self.full_rate, self.full_rounds) = (rate, 0);
        } else {
            self.full_rounds += 1;
            self.is_full = self.full_rounds >= FULL_ROUNDS;
            if self.is_full {
                cx.log_reason(Reason::PipeFull);
            }
        }
    }

    /// [BBR] Starts the cycle at a random phase other than the draining phase.
    fn enter_probe_bw(&mut self, cx: &mut Context<'_>) {
        let drawn = usize::try_from(cx.random.below(CYCLE.len() as u64 - 1)).unwrap_or(0);
        let phase = if drawn == CYCLE_DRAINS { CYCLE.len() - 1 } else { drawn };
        self.state = State::ProbeBw { phase, since: cx.now, has_lost: false };
    }

    fn step(&mut self, is_rtt_old: bool, cx: &mut Context<'_>) {
        let now = cx.now;
        if is_rtt_old && !matches!(self.state, State::ProbeRtt { .. }) {
            self.state = State::ProbeRtt { until: None, round: 0 };
        }
        if matches!(self.state, State::ProbeRtt { .. }) {
            // [LINUX tcp_bbr.c] So few packets do not show the rate of the path.
            self.delivery.limit_by_application();
        }
        match self.state {
            State::Startup if self.is_full => self.state = State::Drain,
            State::Startup => {}
            State::Drain => {
                if self.holds_at_most(self.in_flight, 1.0) {
                    self.enter_probe_bw(cx);
                }
            }
            State::ProbeBw { phase, since, has_lost } => {
                let is_long = self.rtt_min.is_some_and(|min| now.since(since) > min);
                let is_over = match phase {
                    0 => is_long && (has_lost || !self.holds_at_most(self.flight, CYCLE[0])),
                    1 => is_long || self.holds_at_most(self.flight, 1.0),
                    _ => is_long,
                };
                if is_over {
                    let phase = (phase + 1) % CYCLE.len();
                    self.state = State::ProbeBw { phase, since: now, has_lost: false };
                }
            }
            State::ProbeRtt { until: None, .. } => {
                if self.in_flight <= CWND_MIN {
                    let round = self.delivery.rounds() + 1;
                    self.state = State::ProbeRtt { until: Some(now + PROBE_RTT), round };
                }
            }
            State::ProbeRtt { until: Some(until), round } => {
                if now >= until && self.delivery.rounds() >= round {
                    self.rtt_min_at = now;
                    if self.is_full {
                        self.enter_probe_bw(cx);
                    } else {
                        self.state = State::Startup;
                    }
                }
            }
        }
    }

    /// [LINUX tcp_bbr.c] Moves the window towards its target by the number of arrivals.
    fn set_window(&mut self, newly: f64) {
        let Some(product) = self.product(self.gains().1) else {
            self.cwnd += newly;
            return;
        };
        let target = product + CWND_EXTRA;
        if self.recovery.is_some() {
            // Packet conservation: each arrival permits one new packet.
            self.cwnd = self.cwnd.max(self.in_flight + newly);
        } else if self.is_full {
            self.cwnd = (self.cwnd + newly).min(target);
        } else if self.cwnd < target {
            self.cwnd += newly;
        }
        self.cwnd = self.cwnd.max(CWND_MIN);
    }
}

impl Controller for Bbr {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
    fn limits(&self) -> SendLimits {
        let gap = self.delivery.rate().map_or(Gap::NONE, |rate| {
            Gap(Span::from_secs_f64(1.0 / (MARGIN * self.gains().0 * rate)))
        });
        let is_probing = matches!(self.state, State::ProbeRtt { .. });
        let cwnd = if is_probing { self.cwnd.min(CWND_MIN) } else { self.cwnd };
        SendLimits { gap, window: Some(Packets(cwnd.clamp(1.0, 1e9) as u64)), hold_until: None }
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        let newly = acked.newly.0 as f64;
        self.in_flight = acked.in_flight.0 as f64;
        self.flight = self.in_flight + newly;
        let is_rtt_old = self.measure_rtt(cx);
        let rtt_min = self.rtt_min.unwrap_or(Span::ZERO);
        let is_new_round = self.delivery.on_ack(acked, rtt_min);
        if let Some(recovery) =
            self.recovery.filter(|recovery| acked.cumulative_ack > recovery.point)
        {
            self.cwnd = self.cwnd.max(recovery.cwnd_before);
            self.recovery = None;
            self.free_until = acked.next;
        }
        self.is_silent = false;
        if is_new_round && !self.delivery.is_app_limited() {
            self.check_full(cx);
        }
        self.step(is_rtt_old, cx);
        self.set_window(newly);
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        if let State::ProbeBw { has_lost, .. } = &mut self.state {
            *has_lost = true;
        }
        if self.recovery.is_none() && loss.first_lost >= self.free_until {
            cx.log_reason(Reason::LossEpoch);
            self.recovery = Some(Recovery { point: loss.largest_sent, cwnd_before: self.cwnd });
            self.cwnd = self.flight.clamp(CWND_MIN, self.cwnd.max(CWND_MIN));
        }
    }

    fn on_timeout(&mut self, _cx: &mut Context<'_>) {
        if !self.is_silent {
            let cwnd_before = self.recovery.map_or(self.cwnd, |recovery| recovery.cwnd_before);
            let point = self.delivery.next().before();
            self.recovery = Some(Recovery { point, cwnd_before });
        }
        self.is_silent = true;
        self.cwnd = 1.0;
    }

    fn phase(&self) -> Phase {
        match self.state {
            State::Startup => Phase::Named("startup"),
            State::Drain => Phase::Named("drain"),
            State::ProbeBw { .. } => Phase::Named("probe-bw"),
            State::ProbeRtt { .. } => Phase::Named("probe-rtt"),
        }
    }
}

#[cfg(test)]
mod tests;
