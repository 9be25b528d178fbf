//! Field tables of each document, one line per field.

use super::Field;
use super::Kind::{
    Any, Count, List, MaybeNumber, MaybeObject, MaybeText, Named, Number, Object, OptionalAnys, OptionalCount, OptionalList,
    OptionalMaybeNumber, OptionalNumber, OptionalObject, OptionalText, OptionalTexts, Pairs, Text,
    Texts, Truth,
};

/// Fields of a run before its numbers, and the numbers common to both arms.
macro_rules! run {
    ($($more:expr),* $(,)?) => {
        &[
            Field("schema", Count, "Version of this document."),
            Field("arm", Text, "Arm of the run: sim or lab."),
            Field("scenario", Text, "Name of the scenario."),
            Field("seed", Count, "Seed of all random numbers."),
            Field("commit", Text, "Source version of the program."),
            Field("wall_s", Number, "Duration of the computation or measurement, in seconds."),
            Field("flows", List(FLOW), "One entry per flow, in the order of the scenario; copies of a flow share one entry."),
            Field("links", List(LINK), "One entry per link in the data direction, in the order of the scenario. Then one entry `ID.back` for the reverse direction of each link with data of reverse flows."),
            Field("jain", MaybeNumber, "Jain's index over the flows without an end of their own, 0 to 1; null without such flows."),
            Field("regions", List(REGION), "Times between the starts and ends of long flows."),
            Field("settings", Named("string"), "Values set by sweep and overrides, as text."),
            $($more),*
        ]
    };
}

pub(super) const RUN: &[Field] = run!();

pub(super) const LAB: &[Field] = run!(
    Field("valid", Truth, "Whether the numbers describe the path and not limits of the machine; if false, flows, links and regions are empty."),
    Field("faults", Texts, "Reasons why the run is invalid."),
    Field("notes", Texts, "Notes on the results."),
    Field("lab", Any, "Calibration, lateness of packets, processor time of the flows' hosts, and other measurements of the lab."),
    Field("discarded", OptionalObject(DISCARDED), "Measurements of an invalid run."),
);

const DISCARDED: &[Field] = &[
    Field("flows", List(FLOW), "As in a valid run."),
    Field("links", List(LINK), "As in a valid run."),
    Field("jain", MaybeNumber, "As in a valid run."),
    Field("regions", List(REGION), "As in a valid run."),
];

const FLOW: &[Field] = &[
    Field("id", Text, "Name of the flow."),
    Field("transport", Text, "Transport: sabul, tcp, udp-cbr or command."),
    Field("cc", Text, "Name of the congestion controller."),
    Field("goodput_bps", Number, "New payload at the receiver over the lifetime of the flow after the warm-up, in bit/s."),
    Field("throughput_bps", Number, "Data packets at the receiver including headers and retransmissions, in bit/s."),
    Field("packets_sent", Count, "Number of DATA packets or segments sent."),
    Field("packets_lost", Count, "Packets that the sender declared lost."),
    Field("loss_rate", Number, "`packets_lost` ÷ `packets_sent`, 0 to 1."),
    Field("retransmissions", Count, "Retransmissions among `packets_sent`."),
    Field("breaker_opened", OptionalCount, "Number of openings of the circuit breaker after the warm-up; absent if the flow has no breaker."),
    Field("rtt_ms", Object(RTT), "RTT samples of the sender, in milliseconds."),
    Field("stability", Number, "Standard deviation ÷ mean of the goodput per second."),
    Field("completed_s", MaybeNumber, "Time from the start to the arrival of the last byte in seconds, mean over copies; null if no copy completed."),
    Field("started", Count, "Number of copies that started."),
    Field("completed", Count, "Number of copies that delivered all their data."),
    Field("completion", OptionalObject(COMPLETION), "Completion times of the copies, if two or more copies completed."),
];

const RTT: &[Field] = &[
    Field("min", Number, "Smallest sample, in milliseconds."),
    Field("mean", Number, "Mean of the samples, in milliseconds."),
    Field("p99", Number, "99th percentile of the samples, in milliseconds."),
];

const COMPLETION: &[Field] = &[
    Field("median_s", Number, "Median of the completion times, in seconds."),
    Field("p99_s", Number, "99th percentile of the completion times, in seconds."),
];

const LINK: &[Field] = &[
    Field("id", Text, "Name of the link."),
    Field("utilisation", Number, "Bits carried ÷ link capacity in bits, 0 to 1; zero for a link without a rate."),
    Field("drops", Count, "Number of dropped packets, for any cause."),
    Field("marks", Count, "Number of packets that received an ECN mark."),
    Field("queue_packets", Object(QUEUE), "Queue length, in packets."),
];

const QUEUE: &[Field] = &[
    Field("mean", Number, "Mean over time."),
    Field("p99", Number, "99th percentile of the samples."),
    Field("max", Count, "Maximum."),
];

const REGION: &[Field] = &[
    Field("from_s", Number, "Start of the region, in seconds."),
    Field("to_s", Number, "End of the region, in seconds."),
    Field("aggregate_bps", Number, "Goodput of all long flows, in bit/s."),
    Field("stability", Number, "Standard deviation ÷ mean of the goodput of all long flows per second."),
    Field("jain", Number, "Jain's index over the flows of the region, 0 to 1."),
    Field("flows", Named("number"), "Goodput of each flow by name, in bit/s."),
];

/// Fields of a card before its numbers, and the lab's fields after its numbers.
macro_rules! card {
    ($($more:expr),* $(,)?) => {
        &[
            Field("schema", Count, "Version of this document."),
            Field("arm", Text, "Arm of the measurement: sim or lab."),
            Field("cc", Text, "Name of the congestion controller."),
            Field("transport", Text, "Transport: sabul or tcp."),
            Field("params", Named("string"), "Changed parameters of the controller, as text."),
            Field("commit", Text, "Source version of the program."),
            Field("seeds", Count, "Number of seeds; the numbers are means over all seeds."),
            Field("settings", Named("string"), "Changed settings of the scenarios, as text."),
            Field("wall_s", Number, "Duration of the computation or measurement, in seconds."),
            $($more),*,
            Field("machine", OptionalObject(MACHINE), "Machine of the measurement; lab only."),
            Field("exams", OptionalList(EXAM), "Validity of each run; lab only."),
        ]
    };
}

pub(super) const CARD: &[Field] = card!(
    Field("seconds_per_flow", Number, "Time between starts and ends of flows, in seconds."),
    Field("regions", List(REGIONS), "One entry per RTT of the test of seven regions."),
    Field("loss", List(LOSS), "One entry per rate of random loss."),
    Field("beside", List(BESIDE), "One entry per path that the controller shared with CUBIC."),
    Field("rtt_fairness", MaybeObject(FAIRNESS), "Two flows with different RTTs."),
    Field("convergence_s", MaybeNumber, "Time from the start of a new flow to equal shares, in seconds; null without convergence."),
    Field("convergence_within_s", MaybeNumber, "Length of the observation of convergence, in seconds."),
    Field("standing_queue", MaybeObject(STANDING), "Standing queue in front of a link with a large buffer."),
    Field("mice", MaybeObject(MICE), "Short transfers beside the controller, and without the controller."),
    Field("cross", MaybeObject(CROSS), "One flow beside constant-rate cross traffic that starts and stops."),
);

pub(super) const CONTRACT: &[Field] = card!(
    Field("order", Text, "Order of the starts: cubic-first, together or cubic-last."),
    Field("terms", Object(TERMS), "Bounds of the contract for each cell."),
    Field("cells_judged", Count, "Number of cells with numbers."),
    Field("cells_met", Count, "Number of cells that meet the contract."),
    Field("cells_judged_with_room", Count, "Number of cells with numbers whose queue holds more than a few packets."),
    Field("cells_met_with_room", Count, "Number of cells among `cells_judged_with_room` that meet the contract."),
    Field("worst", MaybeObject(CELL), "The cell with the smallest part of the goodput that CUBIC keeps."),
    Field("cells", List(CELL), "One entry per cell, in the order of the grid."),
    Field("others", List(OTHER), "Goodput of flows other than a single CUBIC flow beside the controller."),
    Field("links", List(KIND_OF_LINK), "The controller and other controllers alone on links with a variable rate."),
);

pub(super) const DRAW: &[Field] = card!(
    Field("draw", Text, "Name of the draw: tune, judge, or the seed."),
    Field("draw_seed", Count, "Seed of the random paths."),
    Field("resamples", Count, "Number of resamples of a bootstrap interval."),
    Field("terms", Object(DRAW_TERMS), "Bounds of the contract."),
    Field("met", Object(TALLY), "Paths by the verdict on all four questions."),
    Field("alone", Object(TALLY), "Paths by the verdict on one flow alone."),
    Field("cubic_keeps", Object(TALLY), "Paths by the verdict on the goodput that CUBIC keeps."),
    Field("ours_have", Object(TALLY), "Paths by the verdict on the goodput of the controller's flows."),
    Field("own_loss", Object(TALLY), "Paths by the verdict on own loss beside CUBIC."),
    Field("paths", List(DRAWN), "One entry per path, in the order of the path numbers."),
);

const DRAW_TERMS: &[Field] = &[
    Field("alone_share_min", Number, "Minimum goodput of one flow alone, as a part of the possible goodput, 0 to 1."),
    Field("alone_own_loss_max", Number, "Upper bound of the own loss of one flow alone, 0 to 1."),
    Field("alone_queue_bdp_max", Number, "Maximum mean queue of one flow alone, in bandwidth-delay products; the larger of both queue bounds applies."),
    Field("alone_queue_packets_max", Number, "Maximum mean queue of one flow alone, in packets; the larger of both queue bounds applies."),
    Field("cubic_keeps_plain_min", Number, "Minimum part that CUBIC keeps with one flow of each kind and no background."),
    Field("cubic_keeps_min", Number, "Minimum part that CUBIC keeps in all other cases."),
    Field("ours_have_min", Number, "Minimum goodput of the controller's flows, as a part of the goodput of CUBIC flows in the same place."),
    Field("own_loss_max", Number, "Upper bound of own loss beside CUBIC, 0 to 1; on a tiny path the bound is the loss of CUBIC in the same place."),
];

const TALLY: &[Field] = &[
    Field("yes", Count, "Number of paths whose interval is on the good side of the bound."),
    Field("open", Count, "Number of paths whose interval contains the bound."),
    Field("no", Count, "Number of paths whose interval is on the bad side of the bound."),
    Field("yes_at_least", Number, "Lower bound (95 %, Wilson) of the probability of the verdict yes, 0 to 1."),
];

const FINDING: &[Field] = &[
    Field("value", Number, "Value over all seeds."),
    Field("low", Number, "Lower end of the 95 % interval."),
    Field("high", Number, "Upper end of the 95 % interval."),
    Field("bound", Number, "Bound of the contract."),
    Field("verdict", Text, "Verdict: yes, no or open."),
];

const DRAWN: &[Field] = &[
    Field("number", Count, "Number of the path in the draw, from 1."),
    Field("rate_mbps", Number, "Rate of the link, in Mb/s."),
    Field("rate_drawn_mbps", Number, "Rate before the packet limit reduced the rate, in Mb/s."),
    Field("rtt_ms", Number, "Base RTT, in milliseconds."),
    Field("queue_packets", Count, "Queue limit, in packets."),
    Field("queue_bdp", Number, "Queue limit, in bandwidth-delay products."),
    Field("loss", Number, "Random loss rate of the link, 0 to 1."),
    Field("ours", Count, "Number of flows of the controller."),
    Field("theirs", Count, "Number of CUBIC flows."),
    Field("first", Text, "The group that starts first: ours or theirs."),
    Field("background", Text, "Background: none, shaper, load or two-way."),
    Field("burst_mbps", OptionalNumber, "Peak rate of a shaper, in Mb/s."),
    Field("bucket_bytes", OptionalNumber, "Bucket size of the shaper, in bytes."),
    Field("load_mbps", OptionalNumber, "Rate of the inelastic load, in Mb/s."),
    Field("duration_s", Number, "Length of a run, in seconds."),
    Field("warmup_s", Number, "Start of the averages after the start of a run, in seconds."),
    Field("is_shortened", Truth, "Whether the packet limit shortened the runs."),
    Field("alone_share", Object(FINDING), "One flow alone: goodput as a part of the possible goodput."),
    Field("alone_own_loss", Object(FINDING), "One flow alone: loss rate above the path's random loss rate."),
    Field("alone_queue_packets", Object(FINDING), "One flow alone: mean queue, in packets."),
    Field("cubic_keeps", Object(FINDING), "Goodput of CUBIC beside the controller ÷ goodput of CUBIC beside CUBIC."),
    Field("ours_have", Object(FINDING), "Goodput of the controller beside CUBIC ÷ goodput of CUBIC in the same place."),
    Field("own_loss", Object(FINDING), "Loss rate of the controller beside CUBIC above the random loss rate; on a tiny path minus the value of CUBIC in the same place."),
    Field("is_tiny", Truth, "Whether the bound of own loss is the loss of CUBIC."),
    Field("failed_runs", Count, "Number of runs without numbers, because the controller failed; a path with failed runs does not meet the contract."),
    Field("fault", MaybeText, "Reason of the first failed run, or null."),
    Field("cubic_bps", Number, "Goodput of CUBIC beside the controller, in bit/s."),
    Field("ours_bps", Number, "Goodput of the controller beside CUBIC, in bit/s."),
    Field("reference_cubic_bps", Number, "Goodput of CUBIC beside CUBIC, in bit/s."),
    Field("reference_ours_bps", Number, "Goodput of CUBIC in the controller's place, in bit/s."),
    Field("reference_own_loss", Number, "Loss rate of CUBIC in the controller's place above the random loss rate."),
    Field("alone_verdict", Text, "Verdict on one flow alone: yes, no or open."),
    Field("keeps_verdict", Text, "Verdict on the goodput that CUBIC keeps: yes, no or open."),
    Field("have_verdict", Text, "Verdict on the goodput of the controller's flows: yes, no or open."),
    Field("loss_verdict", Text, "Verdict on own loss: yes, no or open."),
    Field("met", Text, "Verdict on all four questions: yes, no or open."),
];

const TERMS: &[Field] = &[
    Field("kept_min", Number, "Minimum part that CUBIC keeps of its goodput beside another CUBIC flow, 0 to 1."),
    Field("emptier_max", Number, "Maximum deficit of utilisation in comparison with two CUBIC flows, 0 to 1."),
    Field("utilisation_min", Number, "Minimum utilisation if loss prevents two CUBIC flows from reaching this utilisation, 0 to 1."),
    Field("tiny_queue_packets", Count, "Queue size in packets below which a cell is marked; such cells measure the length of bursts."),
];

const CELL: &[Field] = &[
    Field("rate_mbps", Number, "Rate of the link, in Mb/s."),
    Field("rtt_ms", Number, "Base RTT of the path, in milliseconds."),
    Field("queue_bdp", Number, "Queue limit, in bandwidth-delay products."),
    Field("loss", Number, "Random loss rate of the link, 0 to 1."),
    Field("queue_packets", Count, "Queue limit, in packets."),
    Field("has_tiny_queue", Truth, "Whether the queue holds only a few packets."),
    Field("cubic_bps", Number, "Goodput of CUBIC beside the controller, in bit/s."),
    Field("cc_bps", Number, "Goodput of the controller beside CUBIC, in bit/s."),
    Field("reference_first_bps", Number, "Goodput of the first of two CUBIC flows beside each other, in bit/s."),
    Field("reference_second_bps", Number, "Goodput of the second of two CUBIC flows beside each other, in bit/s."),
    Field("reference_bps", Number, "Half of the goodput of two CUBIC flows together, in bit/s."),
    Field("kept", Number, "`cubic_bps` ÷ `reference_bps`."),
    Field("utilisation", Number, "Utilisation of the link, 0 to 1."),
    Field("reference_utilisation", Number, "Utilisation of the link with two CUBIC flows, 0 to 1."),
    Field("is_kept", Truth, "Whether CUBIC keeps enough goodput."),
    Field("is_full", Truth, "Whether the utilisation is sufficient."),
    Field("is_met", Truth, "Whether `is_kept` and `is_full` are true."),
];

const OTHER: &[Field] = &[
    Field("what", Text, "Flows that share the link, and the measured value."),
    Field("unit", Text, "Unit of the measured value."),
    Field("rtt_ms", Number, "Base RTT of the path, in milliseconds."),
    Field("beside_cc", Number, "Value beside the controller."),
    Field("beside_reference", Number, "Value beside CUBIC; for BBR, beside another BBR flow."),
    Field("alone", MaybeNumber, "Value alone on the link, if measured."),
    Field("cc_bps", Number, "Goodput of the controller's own flow during the measurement, in bit/s."),
];

const KIND_OF_LINK: &[Field] = &[
    Field("link", Text, "Settings of the link in addition to its rate."),
    Field("cc", Text, "The controller, or a controller for comparison."),
    Field("goodput_bps", Number, "New payload at the receiver, in bit/s."),
    Field("utilisation", Number, "Bits carried ÷ available capacity of the link, 0 to 1."),
    Field("loss_rate", Number, "Share of the packets that were lost, 0 to 1."),
];

pub(super) const COMPARISON: &[Field] = &[
    Field("schema", Count, "Version of this document."),
    Field("commit", Text, "Source version of the program."),
    Field("marked_percent", Number, "Larger differences are marked, in percent."),
    Field("comparisons", List(COMPARED), "One entry per run of each scenario."),
];

const COMPARED: &[Field] = &[
    Field("scenario", Text, "Name of the scenario."),
    Field("label", Text, "Label of the run."),
    Field("seed", Count, "Seed of all random numbers."),
    Field("measurements", Count, "Number of valid measurements in the lab; the values are medians of these measurements."),
    Field("is_valid", Truth, "Whether at least one measurement is valid."),
    Field("faults", Texts, "Reasons why other measurements are invalid."),
    Field("rows", List(QUANTITY), "One entry per quantity."),
];

const QUANTITY: &[Field] = &[
    Field("kind", Text, "Kind of the object: flow, link or run."),
    Field("id", Text, "Name of the flow or link."),
    Field("quantity", Text, "Name of the measured value, with its unit."),
    Field("simulated", Number, "Value in the simulator."),
    Field("measured", MaybeNumber, "Value in the lab; null without a valid measurement."),
    Field("difference_percent", MaybeNumber, "(Measured - simulated) ÷ simulated, in percent; null if this ratio is meaningless."),
    Field("is_marked", Truth, "Whether the difference exceeds `marked_percent`."),
];

pub(super) const REPRODUCTIONS: &[Field] = &[
    Field("schema", Count, "Version of this document."),
    Field("arm", Text, "Arm of the runs: sim."),
    Field("commit", Text, "Source version of the program."),
    Field("reproductions", List(REPRODUCTION), "One entry per table or figure."),
];

const REPRODUCTION: &[Field] = &[
    Field("name", Text, "Name of the reproduction."),
    Field("source", Text, "Paper, with section or figure."),
    Field("cases", List(CASE), "Runs of the reproduction."),
    Field("ranks", OptionalList(RANK), "Whether the order of the cases equals the published order."),
];

const CASE: &[Field] = &[
    Field("id", Text, "Name of the case."),
    Field("figure", Text, "Figure or table of the paper."),
    Field("flows", List(RATES), "Rates of the flows."),
    Field("claims", List(CLAIM), "Claims of the paper, with verdicts."),
    Field("marks", OptionalObject(REGION_STATISTICS), "Statistics of the regions, if flows start and end."),
];

const RATES: &[Field] = &[
    Field("id", Text, "Name of the flow."),
    Field("published_mbps", MaybeNumber, "Rate in the paper, in Mb/s; null if the paper has no rate."),
    Field("mbps", Number, "Our rate, mean over seeds, in Mb/s."),
    Field("mbps_least", Number, "Our smallest rate over seeds, in Mb/s."),
    Field("mbps_most", Number, "Our largest rate over seeds, in Mb/s."),
];

const CLAIM: &[Field] = &[
    Field("claim", Text, "Text of the claim."),
    Field("published", MaybeNumber, "Published number."),
    Field("ours", MaybeNumber, "Our number."),
    Field("tolerance", Number, "Maximum accepted difference."),
    Field("verdict", Text, "Verdict of this run."),
    Field("committed", Text, "Expected verdict, as committed."),
    Field("cause", Text, "Cause of the difference, if the numbers differ."),
];

const RANK: &[Field] = &[
    Field("claim", Text, "Text of the claim."),
    Field("correlation", MaybeNumber, "Rank correlation of the two orders, -1 to 1."),
    Field("at_least", Number, "Minimum correlation at which the claim holds."),
    Field("verdict", Text, "Verdict of this run."),
    Field("committed", Text, "Expected verdict, as committed."),
    Field("cause", Text, "Cause of the difference, if the orders differ."),
];

const REGION_STATISTICS: &[Field] = &[
    Field("mean_mbps", MaybeNumber, "Mean goodput of all flows together over seeds, in Mb/s."),
    Field("sd_mbps", MaybeNumber, "Standard deviation of the goodput, in Mb/s."),
    Field("stability", MaybeNumber, "Standard deviation ÷ mean."),
    Field("jain_min", MaybeNumber, "Smallest Jain's index of any region, 0 to 1."),
    Field("rtt_ms", MaybeNumber, "Mean RTT, in milliseconds."),
    Field("regions", Pairs, "Stability and Jain's index of each region."),
];

pub(super) const DEMO: &[Field] = &[
    Field("schema", Count, "Version of this document."),
    Field("path", Text, "Name of the path."),
    Field("cc", Text, "Name of the congestion controller."),
    Field("bytes", Count, "Size of the file in bytes."),
    Field("verified", Truth, "Whether the received content equals the sent content."),
    Field("blake3", Text, "BLAKE3 hash of the received content."),
    Field("seconds", Number, "Duration of the copy, in seconds."),
    Field("goodput_bps", Number, "Size of the file over `seconds`, in bit/s."),
    Field("rtt_ms", Number, "Smoothed RTT at the end, in milliseconds."),
    Field("rtt_ms_min", Number, "Minimum RTT, in milliseconds."),
    Field("packets_sent", Count, "Number of DATA packets sent."),
    Field("packets_retransmitted", Count, "Number of retransmissions among `packets_sent`."),
    Field("path_packets", Count, "Number of packets that reached the path."),
    Field("path_packets_lost", Count, "Number of packets that the path lost."),
    Field("path_packets_lost_queue_full", Count, "Number of packets among `path_packets_lost` that a full queue dropped."),
    Field("path_packets_too_large", Count, "Number of MTU probes that were too large for the path."),
    Field("path_loss_rate", Number, "`path_packets_lost` ÷ `path_packets`, 0 to 1."),
    Field("copy", Any, "Output of `sabul cp --json`: `sabul schema cp`."),
    Field("disturbed", Truth, "Whether the numbers describe this machine and not the path."),
    Field("disturbances", Texts, "Reasons for `disturbed`."),
    Field("arm", OptionalText, "`lab` if the path is between network namespaces."),
    Field("alone", List(ALONE), "Transfers one after the other, each alone on the path; TCP only if arm is lab."),
    Field("together", MaybeObject(TOGETHER), "sabul and TCP at the same time; null if a relay is the path."),
    Field("router_late_ms_p50", OptionalNumber, "Median lateness of packets that left the path, in milliseconds; only if arm is lab."),
    Field("router_late_ms_p99", OptionalNumber, "99th percentile of the lateness of packets that left the path, in milliseconds; only if arm is lab."),
    Field("router_late_ms_max", OptionalNumber, "Maximum lateness of packets that left the path, in milliseconds; only if arm is lab."),
    Field("calibration", OptionalAnys, "Measured properties of the path; only if arm is lab."),
    Field("notes", OptionalTexts, "Notes on the results; only if arm is lab."),
    Field("cpu_seconds_sender", OptionalMaybeNumber, "Processor time of the sending program in seconds; only if a relay is the path."),
    Field("cpu_seconds_receiver", OptionalMaybeNumber, "Processor time of the receiving program in seconds; only if a relay is the path."),
    Field("cpu_mhz", OptionalMaybeNumber, "Clock rate of the processor in MHz; only if a relay is the path."),
    Field("mhz_per_mbps_sender", OptionalMaybeNumber, "Processor cost of 1 Mbit/s on the sending side, in MHz; only if a relay is the path."),
    Field("mhz_per_mbps_receiver", OptionalMaybeNumber, "Processor cost of 1 Mbit/s on the receiving side, in MHz; only if a relay is the path."),
    Field("memory_peak_bytes_sender", OptionalMaybeNumber, "Peak memory of the sending program, in bytes; only if a relay is the path."),
    Field("memory_peak_bytes_receiver", OptionalMaybeNumber, "Peak memory of the receiving program, in bytes; only if a relay is the path."),
    Field("relay_late_ms_p50", OptionalNumber, "Median lateness of packets that left the relay, in milliseconds."),
    Field("relay_late_ms_p99", OptionalNumber, "99th percentile of the lateness of packets that left the relay, in milliseconds."),
    Field("relay_late_ms_max", OptionalNumber, "Maximum lateness of packets that left the relay, in milliseconds."),
    Field("relay_dropped_packets", OptionalNumber, "Number of packets that the relay itself lost."),
];

const ALONE: &[Field] = &[
    Field("transport", Text, "Transport: sabul or tcp."),
    Field("cc", Text, "Name of the congestion controller."),
    Field("loss_rate", Number, "Random loss rate of the path for data packets, 0 to 1."),
    Field("bytes", Count, "Received bytes: the whole file, or for TCP on a lossy path the bytes until the time limit."),
    Field("seconds", Number, "Time from start to end, in seconds; for sabul the time of the whole command."),
    Field("goodput_bps", Number, "Received bytes over `seconds`, in bit/s."),
    Field("rtt_ms", Number, "Mean RTT, in milliseconds."),
    Field("completed", Truth, "Whether all bytes arrived before the time limit."),
];

const TOGETHER: &[Field] = &[
    Field("from_s", Number, "Time from the start of both flows to the start of the average, in seconds."),
    Field("to_s", Number, "Time from the start of both flows to the end of the average, in seconds."),
    Field("tcp_goodput_bps", Number, "New payload of TCP at the receiver, in bit/s."),
    Field("sabul_goodput_bps", Number, "New payload of sabul at the receiver, in bit/s."),
];

pub(super) const PRESETS: &[Field] = &[
    Field("schema", Count, "Version of this document."),
    Field("presets", List(PRESET), "One entry per named path."),
];

const PRESET: &[Field] = &[
    Field("name", Text, "Name of the path."),
    Field("summary", Text, "Description of the path."),
    Field("source", Text, "Source of the numbers."),
    Field("rtt_ms", Number, "Base RTT, in milliseconds."),
    Field("forward", Object(PRESET_LINK), "Link in the data direction."),
    Field("back", Object(PRESET_LINK), "Link in the reverse direction."),
];

const PRESET_LINK: &[Field] = &[
    Field("rate_bps", MaybeNumber, "Rate in bit/s; null for a link without a rate."),
    Field("delay_ms", Number, "One-way delay, in milliseconds."),
    Field("jitter_ms", Number, "Maximum extra delay of packets, in milliseconds."),
    Field("queue_packets", MaybeNumber, "Queue limit in packets; null if the limit is in bytes."),
    Field("queue_bytes", MaybeNumber, "Queue limit in bytes; null if the limit is in packets."),
    Field("discipline", Text, "Queue discipline."),
    Field("loss", Number, "Random loss rate, 0 to 1."),
    Field("burst_loss", MaybeObject(BURSTS), "Losses in bursts."),
    Field("duplicate", Number, "Share of duplicated packets, 0 to 1."),
    Field("corrupt", Number, "Share of corrupted packets, 0 to 1."),
    Field("reorder", Number, "Share of packets with the extra delay `reorder_ms`, 0 to 1."),
    Field("reorder_ms", Number, "Extra delay of reordered packets, in milliseconds."),
    Field("mtu", Count, "Maximum packet size including the IP header, in bytes."),
    Field("outage", List(OUTAGE), "Times without any traffic."),
];

const BURSTS: &[Field] = &[
    Field("to_bad", Number, "Probability per packet of a change from the good to the bad state, 0 to 1."),
    Field("to_good", Number, "Probability per packet of a change from the bad to the good state, 0 to 1."),
    Field("loss_good", Number, "Loss probability in the good state, 0 to 1."),
    Field("loss_bad", Number, "Loss probability in the bad state, 0 to 1."),
];

const OUTAGE: &[Field] = &[
    Field("at_s", Number, "Start of the outage, in seconds."),
    Field("for_s", Number, "Duration of the outage, in seconds."),
];

const REGIONS: &[Field] = &[
    Field("rtt_ms", Number, "Base RTT of the path, in milliseconds."),
    Field("link_bps", Number, "Rate of the link, in bit/s."),
    Field("regions", List(REGION_RESULT), "The seven regions."),
    Field("mean_bps", MaybeNumber, "Mean goodput per second of all flows together, in bit/s."),
    Field("sd_bps", MaybeNumber, "Standard deviation of the goodput per second, in bit/s."),
    Field("stability", MaybeNumber, "Standard deviation ÷ mean."),
    Field("jain_min", MaybeNumber, "Smallest Jain's index of any region and seed."),
    Field("jain_max", MaybeNumber, "Largest Jain's index of any region and seed."),
    Field("rtt_ms_mean", MaybeNumber, "Mean RTT, in milliseconds."),
    Field("cpu_percent_sender", OptionalNumber, "Processor time of the sending hosts, in percent of one core."),
    Field("cpu_percent_receiver", OptionalNumber, "Processor time of the receiving hosts, in percent of one core."),
    Field("mhz_per_mbps_sender", OptionalNumber, "Processor cost of 1 Mbit/s on the sending hosts, in MHz."),
    Field("mhz_per_mbps_receiver", OptionalNumber, "Processor cost of 1 Mbit/s on the receiving hosts, in MHz."),
];

const REGION_RESULT: &[Field] = &[
    Field("from_s", Number, "Start of the region, in seconds."),
    Field("to_s", Number, "End of the region, in seconds."),
    Field("flows", Count, "Number of flows in the region."),
    Field("mean_bps", MaybeNumber, "Goodput of all flows together, in bit/s."),
    Field("sd_bps", MaybeNumber, "Standard deviation of the goodput per second, in bit/s."),
    Field("stability", MaybeNumber, "Standard deviation ÷ mean."),
    Field("jain", MaybeNumber, "Jain's index over the flows, 0 to 1."),
    Field("rtt_ms_mean", MaybeNumber, "Mean RTT, in milliseconds."),
    Field("cpu_percent_sender", OptionalNumber, "Processor time of the sending hosts, in percent of one core."),
    Field("cpu_percent_receiver", OptionalNumber, "Processor time of the receiving hosts, in percent of one core."),
    Field("mhz_per_mbps_sender", OptionalNumber, "Processor cost of 1 Mbit/s on the sending hosts, in MHz."),
    Field("mhz_per_mbps_receiver", OptionalNumber, "Processor cost of 1 Mbit/s on the receiving hosts, in MHz."),
];

const LOSS: &[Field] = &[
    Field("loss", Number, "Random loss rate of the link, 0 to 1."),
    Field("goodput_bps", MaybeNumber, "New payload at the receiver, in bit/s."),
    Field("share_of_link", MaybeNumber, "Goodput ÷ rate of the link, 0 to 1."),
    Field("rtt_ms_mean", MaybeNumber, "Mean RTT, in milliseconds."),
];

const BESIDE: &[Field] = &[
    Field("rtt_ms", Number, "Base RTT of the path, in milliseconds."),
    Field("queue_bdp", Number, "Queue limit, in bandwidth-delay products."),
    Field("cubic_share", MaybeNumber, "Goodput of CUBIC ÷ goodput of both flows, 0 to 1."),
    Field("cubic_bps", MaybeNumber, "Goodput of CUBIC, in bit/s."),
    Field("cc_bps", MaybeNumber, "Goodput of the controller, in bit/s."),
];

const FAIRNESS: &[Field] = &[
    Field("near_ms", Number, "Short base RTT, in milliseconds."),
    Field("far_ms", Number, "Long base RTT, in milliseconds."),
    Field("near_bps", MaybeNumber, "Goodput of the flow with the short RTT, in bit/s."),
    Field("far_bps", MaybeNumber, "Goodput of the flow with the long RTT, in bit/s."),
    Field("ratio", MaybeNumber, "`near_bps` ÷ `far_bps`."),
];

const STANDING: &[Field] = &[
    Field("mean_ms", MaybeNumber, "Mean queueing delay, in milliseconds."),
    Field("p99_ms", MaybeNumber, "99th percentile of the queueing delay, in milliseconds."),
    Field("full_ms", MaybeNumber, "Time to drain a full queue, in milliseconds."),
    Field("goodput_bps", MaybeNumber, "Goodput during the measurement, in bit/s."),
];

const MICE: &[Field] = &[
    Field("beside", MaybeObject(SHORT), "Short transfers beside a flow of the controller."),
    Field("alone", MaybeObject(SHORT), "Short transfers without a flow of the controller."),
    Field("goodput_bps", MaybeNumber, "Goodput of the controller's own flow beside the short transfers, in bit/s."),
];

const SHORT: &[Field] = &[
    Field("median_s", MaybeNumber, "Median of the completion times, in seconds."),
    Field("p99_s", MaybeNumber, "99th percentile of the completion times, in seconds."),
    Field("started", Count, "Number of transfers that started, over all seeds."),
    Field("completed", Count, "Number of transfers that completed, over all seeds."),
];

const CROSS: &[Field] = &[
    Field("share", MaybeNumber, "Goodput ÷ remaining capacity (link rate minus cross traffic), over the whole time."),
    Field("share_during", MaybeNumber, "Goodput ÷ remaining capacity, during the cross traffic."),
    Field("share_between", MaybeNumber, "Goodput ÷ remaining capacity, between periods of cross traffic."),
    Field("cross_delivered", MaybeNumber, "Share of the cross traffic that arrived, 0 to 1."),
];

const MACHINE: &[Field] = &[
    Field("cpu_model", MaybeText, "Model of the processor."),
    Field("processors", Count, "Number of processors."),
    Field("cpu_mhz", MaybeNumber, "Mean clock rate of the processors, in MHz."),
    Field("kernel", MaybeText, "Version of the kernel."),
];

const EXAM: &[Field] = &[
    Field("scenario", Text, "Name of the scenario."),
    Field("seed", Count, "Seed of all random numbers."),
    Field("valid", Truth, "Whether the numbers of the run are valid."),
    Field("disturbed", Truth, "Whether the machine was late during a valid run."),
    Field("faults", Texts, "Reasons why the run is invalid."),
    Field("notes", Texts, "Notes on the results."),
    Field("late_us_p99", MaybeNumber, "99th percentile of the lateness of packets that left the path, in microseconds."),
];
