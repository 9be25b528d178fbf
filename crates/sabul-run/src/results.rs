//! What a run has shown, whichever arm it ran on.

use std::collections::BTreeMap;

use serde::Serialize;

/// Averages of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Results {
    /// One entry a flow, in the order of the scenario.
    pub flows: Vec<FlowResult>,
    /// One entry a link, in the order of the scenario; data direction. Then one for the way back of each link that
    /// carries data of reverse flows.
    pub links: Vec<LinkResult>,
    /// Jain's index over the goodput of flows without an end of their own.
    pub jain: f64,
    /// What happened between any two entries or exits of long flows.
    pub regions: Vec<Region>,
}

/// What one flow did, or all copies of it together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowResult {
    /// Its name.
    pub id: String,
    /// `sabul`, `tcp`, `udp-cbr` or `command`.
    pub transport: String,
    /// Its controller.
    pub cc: String,
    /// New payload bits per second at the receiver, over its life after the warm-up.
    pub goodput_bps: f64,
    /// Bits of its data packets per second at the receiver, headers and repeats included.
    pub throughput_bps: f64,
    /// DATA packets or segments sent.
    pub packets_sent: u64,
    /// Those that the sender took for lost.
    pub packets_lost: u64,
    /// Lost ÷ sent.
    pub loss_rate: f64,
    /// Repeats among the sent.
    pub retransmissions: u64,
    /// Times that the circuit breaker opened after the warm-up; none where there is no breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker_opened: Option<u64>,
    /// The round trip as its sender saw it.
    pub rtt_ms: Rtt,
    /// Standard deviation ÷ mean of its goodput over seconds. \[SLAC\]
    pub stability: f64,
    /// Time from start to the last byte's arrival, mean over copies; none if it has no end or did
    /// not reach it.
    pub completed_s: Option<f64>,
    /// Copies that started.
    pub started: u64,
    /// Copies that delivered all they had.
    pub completed: u64,
    /// Median and 99th percentile of the copies' completion times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<Completion>,
}

/// Round-trip times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rtt {
    /// Smallest.
    pub min: f64,
    /// Mean over samples.
    pub mean: f64,
    /// 99th percentile of the samples.
    pub p99: f64,
}

/// How long the copies of a flow took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Completion {
    /// Half were faster.
    pub median_s: f64,
    /// 99 % were faster.
    pub p99_s: f64,
}

/// What one link did in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkResult {
    /// Its name; with `.back` for the way back.
    pub id: String,
    /// Bits carried ÷ bits it could have carried; zero without a rate.
    pub utilisation: f64,
    /// Packets dropped, whatever the cause.
    pub drops: u64,
    /// Packets given the ECN mark.
    pub marks: u64,
    /// The queue, in packets.
    pub queue_packets: Queue,
}

/// A queue's length in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Queue {
    /// Averaged over time.
    pub mean: f64,
    /// 99th percentile of the samples.
    pub p99: f64,
    /// Longest ever.
    pub max: u64,
}

/// The time between two entries or exits of long flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Region {
    /// Where it begins.
    pub from_s: f64,
    /// Where it ends.
    pub to_s: f64,
    /// Goodput of all long flows.
    pub aggregate_bps: f64,
    /// Standard deviation ÷ mean of that, over seconds.
    pub stability: f64,
    /// Jain's index over the flows present.
    pub jain: f64,
    /// Goodput of each.
    pub flows: BTreeMap<String, f64>,
}

/// What happened over time, one row each sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// End of each sample.
    pub t_s: Vec<f64>,
    /// One entry a flow.
    pub flows: Vec<FlowSeries>,
    /// One entry a link, data direction, and then the same ways back as in [`Results::links`].
    pub links: Vec<LinkSeries>,
}

/// What a flow did over time, or all copies of it together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowSeries {
    /// Its name.
    pub id: String,
    /// New payload bits per second at the receiver.
    pub goodput_bps: Vec<f64>,
    /// What the sender put on the wire, bits per second.
    pub rate_bps: Vec<f64>,
    /// The controller's inter-packet gap; zero without pacing.
    pub gap_ns: Vec<f64>,
    /// The newest round trip; NaN before there is one.
    pub rtt_ms: Vec<f64>,
    /// Packets on the way.
    pub in_flight_pkts: Vec<f64>,
    /// Lost ÷ sent within the sample.
    pub loss_rate: Vec<f64>,
    /// The controller's window in packets; NaN without one.
    pub cwnd_pkts: Vec<f64>,
    /// Payload bits per second that were acknowledged of late, as the sender says; NaN where it does
    /// not.
    pub delivery_bps: Vec<f64>,
}

/// What a link did over time, in the data direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSeries {
    /// Its name.
    pub id: String,
    /// Packets waiting at the end of the sample.
    pub queue_pkts: Vec<f64>,
    /// Packets dropped within it.
    pub drops: Vec<f64>,
    /// Share of its capacity used within it.
    pub utilisation: Vec<f64>,
}
