//! SABUL's rate control as published in 2003.
//!
//! Source: [SABUL §II-D, §II-E]; open points are taken from the authors' code [SABUL2] where
//! marked.
//! Model, per SYN interval while the averaged loss rate is below 0.1 %:
//!     packets/SYN += max(10^ceil(log10(SYN / gap)) / 1000, 1 / MTU)
//! On the NAK that opens a loss epoch: gap ×= 9/8, then a pause of one RTT.
//! On the 2^`dec_count`-th NAK of the epoch: gap ×= 9/8 again.
//! States:      Starting --loss or window full--> Steady; a freeze pauses either for one RTT
//! Invariants:  `GAP_MIN` <= gap <= `GAP_MAX`; a loss epoch opens only beyond the last decrease.
//! Not here:    retransmission order and send times (`sabul-channel`), the rate search (`search`).
//!
//! Bounds: a window and a largest rate from the arrival rate (`bounds`), or as published a window
//! and 10 µs.
//!
//! Two starts. *published*: the application sets the rate, the flow window grows from one packet to
//! the number of acknowledged packets, and the rate is constant meanwhile. *search*: ours, measures
//! the rate (DEV-008: it is the default); afterwards everything is as published.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::search::{RateSearch, SearchStep};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, IntervalReport, LossReport, ParamSpec, ParamValues,
    Reason, SYN_INTERVAL, SendLimits, SentNumber, Unit,
};
use sabul_units::{Bytes, Gap, Instant, Packets, Rate, Span};

use crate::unused::{UNUSED, Unused};

use self::bounds::{Arrivals, BOUNDS, Bounds};

mod bounds;

/// [SABUL §II-E] The rate rises only while the averaged loss rate is below 0.1 %.
const LOSS_THRESHOLD: f64 = 0.001;
/// [SABUL2] Weight of the newest interval in the averaged loss rate; the paper gives no value.
const LOSS_WEIGHT_NEW: f64 = 0.9;
/// [SABUL §II-E] The MTU of the increase formula, a pure number there: 1/1500 in nano-packets.
const INCREASE_FLOOR_NANO: u128 = 1_000_000_000 / 1500;
/// [SABUL §II-E] `dec_count` after a loss epoch opens: its next decrease is at the 16th NAK.
const DEC_COUNT_START: u32 = 4;
/// Ours, DEV-003: enough for 100 Gb/s of jumbo packets.
const GAP_MIN: Span = Span::from_nanos(10);
/// [SABUL2] 1.2 Gb/s of 1500-byte packets, a limit of the timers of 2003.
const GAP_MIN_PUBLISHED: Span = Span::from_micros(10);
/// Ours, DEV-002: 1 Mb/s of 1500-byte packets. If every interval has random losses, the published
/// rule only decreases and needs a lower bound. The authors' code stops at 1 ms (12 Mb/s), which
/// would flood slower paths.
const GAP_MAX: Span = Span::from_millis(12);

pub(crate) const ENTRY: Entry = Entry::new("sabul2003", Family::Rate, build)
    .summary("SABUL's rate control as published in 2003, with a search for the initial rate")
    .source("[SABUL] Gu, Hong, Mazzucco, Grossman 2003, sections II-D and II-E")
    .params(PARAMS);

const PARAMS: &[ParamSpec] = &[
    ParamSpec::word("start", &["search", "published"], "search")
        .doc("Start of the flow: 'search' measures the rate; 'published' uses rate_mbps_initial, and the flow \
              window grows from one packet")
        .source("published: [SABUL §II-E]; search: ours"),
    ParamSpec::new("rate_mbps_initial", Unit::Mbps, "100", (1.0, 100_000.0))
        .doc("Sending rate of the published start including IP headers; the gap is at most 12 ms, which sets \
              a higher minimum rate for packets above 1500 bytes")
        .source("[SABUL §II-E]: set by the application"),
    ParamSpec::new("window_packets", Unit::Packets, "25600", (2.0, 1e6))
        .doc("Maximum flow window during the published start; with 'bounds=published' for the whole transfer")
        .source("[SABUL2] 25 600; [SABUL §II-D] suggests bandwidth × RTT"),
    ParamSpec::new("syn_interval_ms", Unit::Millis, "10", (1.0, 10_000.0))
        .doc("Interval of rate control")
        .source("[SABUL §II-E] 0.01 s"),
    ParamSpec::word("freeze", &["rtt-min", "rtt", "syn"], "rtt-min")
        .doc("Length of the freeze at the start of a loss epoch: 'rtt-min', the smallest RTT, which drains a \
              queue of one BDP; 'rtt', the averaged RTT including the queue; 'syn', one SYN interval")
        .source("[SABUL §II-E] one RTT, without saying which; [SABUL2] one SYN interval"),
    ParamSpec::word("bounds", &["measured", "published", "none"], "measured")
        .doc("Limit after the start: 'measured' limits rate and data in flight by the arrival rate; \
              'published' by window_packets and one packet per 10 µs; with 'none' only losses reduce the rate")
        .source("measured: ours; published: [SABUL §II-D], [SABUL2]"),
    UNUSED,
];

#[derive(Clone, Copy, Debug)]
enum Start {
    Search,
    Published,
}

const STARTS: [(&str, Start); 2] = [("search", Start::Search), ("published", Start::Published)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freeze {
    SmallestRtt,
    AveragedRtt,
    OneSyn,
}

const FREEZES: [(&str, Freeze); 3] =
    [("rtt-min", Freeze::SmallestRtt), ("rtt", Freeze::AveragedRtt), ("syn", Freeze::OneSyn)];

#[derive(Debug)]
enum Phase {
    /// [SABUL §II-E] The window follows the acknowledged packets; the rate is constant.
    SlowStart { window: Packets },
    /// Ours: the rate search.
    Search(Box<RateSearch>),
    /// [SABUL §II-E] Rate control.
    Steady,
}

#[derive(Debug)]
struct Sabul2003 {
    gap: Span,
    phase: Phase,
    window_max: Packets,
    syn_interval: Span,
    freeze: Freeze,
    unused: Unused,
    bounds: Bounds,
    arrivals: Arrivals,
    /// Most packets in flight after the start.
    window: Option<Packets>,
    averaged_loss: f64,
    hold_until: Option<Instant>,
    /// Largest number sent when the last loss epoch opened; `None` before the first.
    last_decrease: Option<SentNumber>,
    nak_count: u64,
    dec_count: u32,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ranges are checked")]
fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let rate = params.rate("rate_mbps_initial");
    let gap = rate.gap(packet_bytes).0;
    let bounds = params.choice("bounds", &BOUNDS);
    let gap_min = gap_min(bounds);
    if !(gap_min..=GAP_MAX).contains(&gap) {
        let [most, least] = [gap_min, GAP_MAX].map(|gap| Gap(gap).rate(packet_bytes));
        let mbps = |rate: Option<Rate>| rate.map_or(0.0, |rate| rate.0 as f64 / 1e6);
        return Err(ConfigError {
            setting: "parameter rate_mbps_initial of sabul2003".to_owned(),
            value: params.word("rate_mbps_initial").to_owned(),
            allowed: format!(
                "{} to {} Mb/s with packets of {} bytes",
                mbps(least),
                mbps(most),
                packet_bytes.0
            ),
        });
    }
    let start = params.choice("start", &STARTS);
    let has_window = bounds == Bounds::Published || matches!(start, Start::Published);
    let window_max = Packets(params.number("window_packets") as u64);
    let syn_interval = Span::from_secs_f64(params.number("syn_interval_ms") / 1e3);
    Ok(Box::new(Sabul2003 {
        gap,
        phase: match start {
            Start::Search => Phase::Search(Box::new(RateSearch::new())),
            Start::Published => Phase::SlowStart { window: Packets(1) },
        },
        window_max,
        syn_interval,
        freeze: params.choice("freeze", &FREEZES),
        unused: Unused::new(params),
        bounds,
        arrivals: Arrivals::new(syn_interval),
        window: has_window.then_some(window_max),
        averaged_loss: 0.0,
        hold_until: None,
        last_decrease: None,
        nak_count: 0,
        dec_count: DEC_COUNT_START,
    }))
}

const fn gap_min(bounds: Bounds) -> Span {
    match bounds {
        Bounds::Published => GAP_MIN_PUBLISHED,
        Bounds::Measured | Bounds::None => GAP_MIN,
    }
}

/// Returns `10^ceil(log10(syn / gap))` in millionths, exact at every power of ten. [SABUL §II-E]
pub(crate) const fn decade_millionths(syn: Span, gap: Span) -> u128 {
    assert!(gap.0 > 0, "a zero gap means that pacing is off and has no decade");
    let target = syn.0 as u128 * 1_000_000;
    let mut decade = 1;
    while decade * (gap.0 as u128) < target {
        decade *= 10;
    }
    decade
}

/// Returns the packets that one loss-free interval adds, in nano-packets. [SABUL §II-E]
pub(crate) const fn increase_nano(syn: Span, gap: Span) -> u128 {
    // A thousandth of a number of millionths is the same number of billionths.
    let decade = decade_millionths(syn, gap);
    if decade > INCREASE_FLOOR_NANO { decade } else { INCREASE_FLOOR_NANO }
}

/// Returns the gap after one loss-free interval: SYN ÷ (SYN ÷ gap + inc). [SABUL §II-E]
#[expect(clippy::cast_possible_truncation, reason = "the quotient is below the old gap")]
pub(crate) const fn increased(syn: Span, gap: Span) -> Span {
    const NANO: u128 = 1_000_000_000;
    let (p, s) = (gap.0 as u128, syn.0 as u128);
    let gap_after = p * s * NANO / (p * increase_nano(syn, gap) + s * NANO);
    Span(gap_after as u64)
}

impl Sabul2003 {
    fn decrease(&mut self) {
        // [SABUL §II-E] The gap grows by 1/8, so the rate falls by 1/9.
        self.gap = self.clamped(self.gap.mul_ratio(9, 8));
    }

    fn clamped(&self, gap: Span) -> Span {
        gap.clamp(gap_min(self.bounds), GAP_MAX)
    }

    /// Applies the increase of one interval, within the bounds.
    fn increase(&mut self, cx: &Context<'_>) {
        let mut gap = increased(self.syn_interval, self.gap);
        if let (Bounds::Measured, Some(rtt)) = (self.bounds, cx.rtt) {
            let inc = increase_nano(self.syn_interval, self.gap) as f64 / 1e9;
            let least = self.arrivals.gap_min(inc, rtt).unwrap_or(gap);
            gap = gap.max(least.min(self.gap));
        }
        self.gap = self.clamped(gap);
    }

    fn end_search(&mut self, rate: Rate, cx: &Context<'_>) {
        self.gap = self.clamped(rate.gap(cx.packet_bytes).0);
        self.phase = Phase::Steady;
        self.arrivals.found(rate, cx);
        self.take_window(cx);
    }

    fn take_window(&mut self, cx: &Context<'_>) {
        if let (Bounds::Measured, Some(rtt)) = (self.bounds, cx.rtt) {
            self.window = self.arrivals.window(rtt).or(self.window);
        }
    }

    fn take_step(&mut self, step: SearchStep, cx: &mut Context<'_>) {
        let (rate, hold) = match step {
            SearchStep::Continue => return,
            SearchStep::Found { rate, hold } => (rate, hold),
            SearchStep::Overrun { rate } => (rate, None),
        };
        cx.log_reason(Reason::RateFound);
        self.end_search(rate, cx);
        self.hold_until = hold.map(|span| cx.now + span);
    }
}

impl Controller for Sabul2003 {
    fn limits(&self) -> SendLimits {
        match &self.phase {
            Phase::SlowStart { window } => SendLimits {
                gap: Gap(self.gap),
                window: Some(*window),
                hold_until: self.hold_until,
            },
            Phase::Search(search) => search.limits(),
            Phase::Steady => {
                SendLimits { gap: Gap(self.gap), window: self.window, hold_until: self.hold_until }
            }
        }
    }

    fn on_interval(&mut self, report: &IntervalReport, cx: &mut Context<'_>) {
        let lost = report.lost.0 as f64;
        let newest = if lost > 0.0 { lost / (report.sent.0 as f64).max(lost) } else { 0.0 };
        self.averaged_loss =
            (1.0 - LOSS_WEIGHT_NEW) * self.averaged_loss + LOSS_WEIGHT_NEW * newest;
        match &mut self.phase {
            Phase::SlowStart { .. } => {}
            Phase::Search(search) => {
                let step = search.on_interval(report, cx);
                self.take_step(step, cx);
            }
            Phase::Steady => {
                let is_rising = self.averaged_loss < LOSS_THRESHOLD
                    && !self.unused.holds(report.sent, report.elapsed, self.gap);
                cx.log_reason(if is_rising { Reason::Rise } else { Reason::Hold });
                if is_rising {
                    self.increase(cx);
                }
            }
        }
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        self.unused.on_ack(acked);
        if let Some(rtt) = cx.rtt {
            self.arrivals.on_ack(acked, rtt);
        }
        match &mut self.phase {
            Phase::SlowStart { window } => {
                // [SABUL §II-E] The window grows to the number of acknowledged packets.
                *window = Packets(window.0.max(acked.total.0)).min(self.window_max);
                if *window == self.window_max {
                    self.phase = Phase::Steady;
                }
            }
            Phase::Search(search) => {
                let step = search.on_ack(acked, cx);
                if matches!(step, SearchStep::Overrun { .. }) {
                    cx.log_reason(Reason::LossEpoch);
                    // The search already chose a rate that the path has carried. Losses up to here
                    // belong to the epoch that is closed now.
                    self.last_decrease = Some(acked.next.before());
                    self.nak_count = 1;
                }
                self.take_step(step, cx);
            }
            Phase::Steady => self.take_window(cx),
        }
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        match &mut self.phase {
            Phase::SlowStart { .. } => {
                self.phase = Phase::Steady;
            }
            Phase::Search(search) => {
                search.on_loss(loss);
                return;
            }
            Phase::Steady => {}
        }
        if self.last_decrease.is_none_or(|last| loss.first_lost > last) {
            // Condition 1 of [SABUL §II-E].
            cx.log_reason(Reason::LossEpoch);
            self.decrease();
            self.last_decrease = Some(loss.largest_sent);
            self.nak_count = 1;
            self.dec_count = DEC_COUNT_START;
            let freeze = match self.freeze {
                Freeze::SmallestRtt => cx.rtt.map_or(self.syn_interval, |rtt| rtt.min),
                Freeze::AveragedRtt => cx.rtt.map_or(self.syn_interval, |rtt| rtt.smoothed),
                Freeze::OneSyn => self.syn_interval,
            };
            self.hold_until = Some(cx.now + freeze);
        } else {
            // Condition 2 of [SABUL §II-E]; the count continues, so decreases follow at NAKs 16,
            // 32, 64, …
            self.nak_count += 1;
            if self.dec_count < 63 && self.nak_count >= 1 << self.dec_count {
                cx.log_reason(Reason::FurtherLoss);
                self.decrease();
                self.dec_count += 1;
            }
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        // Ours: the paper does not define the rate after a timeout. Each expiry decreases once.
        if let Phase::Search(search) = &self.phase {
            cx.log_reason(Reason::SearchCutShort);
            let rate = search.after_timeout(cx);
            self.end_search(rate, cx);
        }
        self.decrease();
    }

    fn syn_interval(&self) -> Span {
        self.syn_interval
    }

    fn phase(&self) -> sabul_cc::Phase {
        match &self.phase {
            Phase::SlowStart { .. } => sabul_cc::Phase::Named("slow-start"),
            Phase::Search(search) => search.phase(),
            Phase::Steady => sabul_cc::Phase::Named("steady"),
        }
    }
}

const _: () = assert!(SYN_INTERVAL.0 == Span::from_millis(10).0, "the parameter's default says 10");

#[cfg(test)]
#[path = "sabul2003/tests.rs"]
mod tests;
