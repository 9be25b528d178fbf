//! Parameters of `sabul2002`, and the constraints between them.

use sabul_cc::{ConfigError, ParamSpec, ParamValues, Unit};
use sabul_units::Bytes;

use super::Gains;
use crate::unused::UNUSED;

/// Spec of a gain; the default comes from the set.
const fn gain(name: &'static str, max: f64, doc: &'static str) -> ParamSpec {
    ParamSpec {
        name,
        unit: Unit::NumberOr("set"),
        default: "set",
        range: (0.0, max),
        doc,
        source: "[OVV-T §IV-B], the set's",
    }
}

/// Spec of a defect, off by default.
const fn defect(name: &'static str, doc: &'static str) -> ParamSpec {
    ParamSpec {
        name,
        unit: Unit::Word(&["off", "on"]),
        default: "off",
        range: (0.0, 0.0),
        doc,
        source: "[OVV04 §3] found it; off is ours",
    }
}

pub(crate) const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "set",
        unit: Unit::Word(&["pr0", "pr1"]),
        default: "pr0",
        range: (0.0, 0.0),
        doc: "Where k1, k2, c_us, d_us and b_us come from unless they are given: 'pr0', what SABUL \
              shipped with, or 'pr1', which barely gives way to loss",
        source: "[OVV-T §IV-B]",
    },
    gain("k1", 1000.0, "How much loss above alpha multiplies the gap, eq. (1)"),
    gain("k2", 1e6, "How much loss below alpha divides it, eq. (2); k2 × alpha stays below 1"),
    gain("c_us", 1e4, "Microseconds that loss above alpha adds, eq. (1)"),
    gain("d_us", 1e4, "Microseconds that loss of exactly alpha adds, eq. (3)"),
    gain("b_us", 1e4, "Microseconds that excessive loss adds, eq. (4)"),
    ParamSpec {
        name: "alpha",
        unit: Unit::Number,
        default: "0.001",
        range: (0.0, 0.5),
        doc: "Loss rate that it aims at",
        source: "[SABUL2]; the papers give none",
    },
    ParamSpec {
        name: "syn_interval_ms",
        unit: Unit::Millis,
        default: "200",
        range: (1.0, 10_000.0),
        doc: "Interval of rate control; the receiver's SYN reports must have the same",
        source: "[OVV-T §IV-B] table I",
    },
    ParamSpec {
        name: "rate_mbps_initial",
        unit: Unit::Mbps,
        default: "100",
        range: (0.012, 100_000.0),
        doc: "Sending rate at the start, IP headers included; at most nic_mbps",
        source: "[OVV-T §IV-B]: set by the application, 60 to 388 there",
    },
    ParamSpec {
        name: "window_packets",
        unit: Unit::Packets,
        default: "25600",
        range: (2.0, 1e6),
        doc: "Flow window, the same from the start to the end",
        source: "[SABUL2]",
    },
    ParamSpec {
        name: "nic_mbps",
        unit: Unit::Mbps,
        default: "1000",
        range: (1.0, 400_000.0),
        doc: "Rate of the sender's own interface, C of eq. (5); also the highest sending rate",
        source: "[OVV-T §III-A, §IV-B]: 1 Gb/s",
    },
    ParamSpec {
        name: "period_ms_max",
        unit: Unit::Millis,
        default: "1",
        range: (0.001, 10_000.0),
        doc: "Longest time between two packet starts; 1 ms is 12 Mb/s",
        source: "[SABUL2]",
    },
    ParamSpec {
        name: "domain",
        unit: Unit::Word(&["gap", "period"]),
        default: "gap",
        range: (0.0, 0.0),
        doc: "Time that the equations change: the silence between two packets, or the time between two \
              packet starts (Q8)",
        source: "gap: [OVV-T §II]; period: [SABUL2]",
    },
    ParamSpec {
        name: "loss",
        unit: Unit::Word(&["instantaneous", "averaged"]),
        default: "instantaneous",
        range: (0.0, 0.0),
        doc: "Which loss rate the equations see: the interval's own, or an average over intervals \
              (Q7)",
        source: "instantaneous: [OVV-T §II]; averaged: [SABUL2]",
    },
    ParamSpec {
        name: "loss_weight_new",
        unit: Unit::Number,
        default: "0.9",
        range: (0.0, 1.0),
        doc: "Weight of the newest interval in the averaged loss rate; with 0.9 the average hardly \
              averages, 0.1 is what was meant (Q7)",
        source: "[SABUL2]",
    },
    defect(
        "raise_sent",
        "Packets sent are taken to be at least as many as were reported lost, so that an interval \
         in which nothing was sent can lose everything (Q1)",
    ),
    defect("count_repeats", "A loss counts each time it is reported, not once (Q3)"),
    defect(
        "any_spacing",
        "Each SYN report is an interval of its own, however soon it follows the last (Q2); off: \
         what is shorter than half an interval is counted with the next",
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
