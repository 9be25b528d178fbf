//! Parameters of `sabul2002`, and the constraints between them.

use sabul_cc::{ConfigError, ParamSpec, ParamValues, Unit};
use sabul_units::Bytes;

use super::Gains;
use crate::unused::UNUSED;

/// Spec of a gain; the default comes from the set.
const fn gain(name: &'static str, max: f64, doc: &'static str) -> ParamSpec {
    ParamSpec::new(name, Unit::NumberOr("set"), "set", (0.0, max))
        .doc(doc)
        .source("[OVV-T §IV-B], the set's")
}

/// Spec of a defect, off by default.
const fn defect(name: &'static str, doc: &'static str) -> ParamSpec {
    ParamSpec::word(name, &["off", "on"], "off").doc(doc).source("[OVV04 §3] found it; off is ours")
}

pub(crate) const PARAMS: &[ParamSpec] = &[
    ParamSpec::word("set", &["pr0", "pr1"], "pr0")
        .doc("Set of defaults for k1, k2, c_us, d_us and b_us: 'pr0', the constants of the SABUL release; \
              'pr1', with a weak response to loss")
        .source("[OVV-T §IV-B]"),
    gain("k1", 1000.0, "Gain by which a loss rate above alpha multiplies the gap, eq. (1)"),
    gain(
        "k2",
        1e6,
        "Gain by which a loss rate below alpha reduces the gap, eq. (2); k2 × alpha must be below 1",
    ),
    gain("c_us", 1e4, "Microseconds that a loss rate above alpha adds to the gap, eq. (1)"),
    gain("d_us", 1e4, "Microseconds that a loss rate of exactly alpha adds to the gap, eq. (3)"),
    gain("b_us", 1e4, "Microseconds that an excessive loss rate adds to the gap, eq. (4)"),
    ParamSpec::new("alpha", Unit::Number, "0.001", (0.0, 0.5))
        .doc("Target loss rate")
        .source("[SABUL2]; the papers give none"),
    ParamSpec::new("syn_interval_ms", Unit::Millis, "200", (1.0, 10_000.0))
        .doc("Interval of rate control; must equal the interval of the receiver's SYN reports")
        .source("[OVV-T §IV-B] table I"),
    ParamSpec::new("rate_mbps_initial", Unit::Mbps, "100", (0.012, 100_000.0))
        .doc("Initial sending rate including IP headers; at most nic_mbps")
        .source("[OVV-T §IV-B]: set by the application, 60 to 388 there"),
    ParamSpec::new("window_packets", Unit::Packets, "25600", (2.0, 1e6))
        .doc("Flow window, constant for the whole transfer")
        .source("[SABUL2]"),
    ParamSpec::new("nic_mbps", Unit::Mbps, "1000", (1.0, 400_000.0))
        .doc("Rate of the sender's own interface, C in eq. (5); also the maximum sending rate")
        .source("[OVV-T §III-A, §IV-B]: 1 Gb/s"),
    ParamSpec::new("period_ms_max", Unit::Millis, "1", (0.001, 10_000.0))
        .doc("Maximum time between the starts of two packets; 1 ms corresponds to 12 Mb/s")
        .source("[SABUL2]"),
    ParamSpec::word("domain", &["gap", "period"], "gap")
        .doc("Time that the equations change: 'gap', from the end of a packet to the start of the next; \
              'period', between the starts of two packets (Q8)")
        .source("gap: [OVV-T §II]; period: [SABUL2]"),
    ParamSpec::word("loss", &["instantaneous", "averaged"], "instantaneous")
        .doc("Loss rate in the equations: the rate of the newest interval, or an average over intervals (Q7)")
        .source("instantaneous: [OVV-T §II]; averaged: [SABUL2]"),
    ParamSpec::new("loss_weight_new", Unit::Number, "0.9", (0.0, 1.0))
        .doc("Weight of the newest interval in the averaged loss rate; 0.9 gives almost no averaging, and 0.1 \
              was intended (Q7)")
        .source("[SABUL2]"),
    defect(
        "raise_sent",
        "'on' raises the number of packets sent to the number reported as lost; an interval without sent \
         packets then has a loss rate of 1 (Q1)",
    ),
    defect(
        "count_repeats",
        "'on' counts a loss at each report of the loss; 'off' counts a loss once (Q3)",
    ),
    defect(
        "any_spacing",
        "'on' treats each SYN report as an interval (Q2); 'off' merges an interval shorter than half of \
         syn_interval_ms with the next interval",
    ),
    UNUSED,
];

/// Checks constraints between parameters.
pub(super) fn check(params: &ParamValues, packet_bytes: Bytes) -> Result<(), ConfigError> {
    let refuse = |setting: &str, value: String, allowed: String| {
        let setting = format!("parameter {setting} of sabul2002");
        Err(ConfigError { setting, value, allowed })
    };
    let (k2, alpha) = (Gains::from(params).k2, params.number("alpha"));
    if k2 * alpha >= 1.0 {
        return refuse(
            "k2",
            k2.to_string(),
            format!(
                "less than {} with an alpha of {alpha}: a loss-free interval multiplies the gap by \
                 1 − k2 × alpha, which must stay above zero",
                1.0 / alpha
            ),
        );
    }
    let bits = packet_bytes.0 as f64 * 8.0;
    let (nic, rate) = (params.number("nic_mbps"), params.number("rate_mbps_initial"));
    let slowest = bits / (params.number("period_ms_max") * 1e3);
    if nic < slowest {
        return refuse(
            "period_ms_max",
            params.word("period_ms_max").to_owned(),
            format!("at least {} ms, one packet's time at nic_mbps {nic}", bits / (nic * 1e3)),
        );
    }
    if !(slowest..=nic).contains(&rate) {
        return refuse(
            "rate_mbps_initial",
            params.word("rate_mbps_initial").to_owned(),
            format!("{slowest} (period_ms_max) to {nic} Mb/s (nic_mbps)"),
        );
    }
    Ok(())
}
