//! Results of a run, for both simulator and lab.

use std::collections::BTreeMap;

use serde::Serialize;

/// Averages of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Results {
    /// One entry per flow, in the order of the scenario.
    pub flows: Vec<FlowResult>,
    /// One entry per link, in the order of the scenario, for the data direction. Then one entry for
    /// the back direction of each link that carries data of reverse flows.
    pub links: Vec<LinkResult>,
    /// Jain's index over the goodput of the endless flows; over all flows if no flow is endless.
    /// Constant-rate flows are excluded.
    pub jain: f64,
    /// Averages between consecutive starts and stops of long flows.
    pub regions: Vec<Region>,
}

/// Results of one flow, or of all its copies together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlowResult {
    /// Name of the flow.
    pub id: String,
    /// `sabul`, `tcp`, `udp-cbr` or `command`.
    pub transport: String,
    /// Name of the controller.
    pub cc: String,
    /// New payload bits per second at the receiver, over the flow's life after the warm-up.
    pub goodput_bps: f64,
    /// Bits of data packets per second at the receiver, headers and retransmissions included.
    pub throughput_bps: f64,
    /// DATA packets or segments sent.
    pub packets_sent: u64,
    /// Packets that the sender declared lost.
    pub packets_lost: u64,
    /// Lost ÷ sent.
    pub loss_rate: f64,
    /// Retransmissions, included in `packets_sent`.
    pub retransmissions: u64,
    /// Number of times the circuit breaker opened after the warm-up; `None` without a breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker_opened: Option<u64>,
    /// RTT as the sender measured it.
    pub rtt_ms: Rtt,
    /// Standard deviation ÷ mean of the goodput over bins of one second. \[SLAC\]
    pub stability: f64,
    /// Time from start to the arrival of the last byte, mean over completed copies; `None` if no
    /// copy completed.
    pub completed_s: Option<f64>,
    /// Number of copies that started.
    pub started: u64,
    /// Number of copies that delivered all their data.
    pub completed: u64,
    /// Median and 99th percentile of the copies' completion times; `None` for fewer than two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<Completion>,
}

/// RTTs in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rtt {
    /// Smallest.
    pub min: f64,
    /// Mean over samples.
    pub mean: f64,
    /// 99th percentile of the samples.
    pub p99: f64,
}

/// Completion times of a flow's copies, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Completion {
    /// Median.
    pub median_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
}

/// Results of one link in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkResult {
    /// Name of the link; ends in `.back` for the back direction.
    pub id: String,
    /// Bits carried ÷ capacity in bits; zero for a link without a rate.
    pub utilisation: f64,
    /// Packets dropped, for all causes.
    pub drops: u64,
    /// Packets that received an ECN mark.
    pub marks: u64,
    /// Queue length, in packets.
    pub queue_packets: Queue,
}

/// Queue length in packets, after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Queue {
    /// Averaged over time.
    pub mean: f64,
    /// 99th percentile of the samples.
    pub p99: f64,
    /// Maximum.
    pub max: u64,
}

/// Averages of the interval between two starts or stops of long flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Region {
    /// Begin of the interval.
    pub from_s: f64,
    /// End of the interval.
    pub to_s: f64,
    /// Goodput of all long flows together.
    pub aggregate_bps: f64,
    /// Standard deviation ÷ mean of the aggregate goodput, over bins of one second.
    pub stability: f64,
    /// Jain's index over the flows present.
    pub jain: f64,
    /// Goodput of each flow.
    pub flows: BTreeMap<String, f64>,
}

/// Time series, one row per sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// End of each sample.
    pub t_s: Vec<f64>,
    /// One entry per flow.
    pub flows: Vec<FlowSeries>,
    /// One entry per link for the data direction, then the same back directions as in
    /// [`Results::links`].
    pub links: Vec<LinkSeries>,
}

/// Time series of a flow, or of all its copies together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowSeries {
    /// Name of the flow.
    pub id: String,
    /// New payload bits per second at the receiver.
    pub goodput_bps: Vec<f64>,
    /// Bits per second sent, headers included.
    pub rate_bps: Vec<f64>,
    /// The controller's inter-packet gap; zero without pacing.
    pub gap_ns: Vec<f64>,
    /// Latest RTT sample; NaN before the first sample.
    pub rtt_ms: Vec<f64>,
    /// Packets in flight.
    pub in_flight_pkts: Vec<f64>,
    /// Lost ÷ sent within the sample.
    pub loss_rate: Vec<f64>,
    /// The controller's window in packets; NaN without a window.
    pub cwnd_pkts: Vec<f64>,
    /// Recent delivery rate as the sender measures it, in payload bits per second; NaN where the
    /// sender does not report that rate.
    pub delivery_bps: Vec<f64>,
}

/// Time series of one direction of a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSeries {
    /// Name of the link.
    pub id: String,
    /// Queue length at the end of the sample, in packets.
    pub queue_pkts: Vec<f64>,
    /// Packets dropped within the sample.
    pub drops: Vec<f64>,
    /// Utilised share of the link's capacity within the sample.
    pub utilisation: Vec<f64>,
}
