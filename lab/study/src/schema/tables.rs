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
            Field("arm", Text, "Where it ran: sim or lab."),
            Field("scenario", Text, "The scenario's name."),
            Field("seed", Count, "Where all chance came from."),
            Field("commit", Text, "Source version of the program."),
            Field("wall_s", Number, "How long it took, in seconds."),
            Field("flows", List(FLOW), "One entry a flow, in the order of the scenario; copies together."),
            Field("links", List(LINK), "One entry a link, in the order of the scenario; data direction. Then one for the way back, `ID.back`, of each link with data of reverse flows."),
            Field("jain", MaybeNumber, "Jain's index over the flows without an end of their own, 0 to 1; null where no number counts."),
            Field("regions", List(REGION), "The times between entries and exits of long flows."),
            Field("settings", Named("string"), "Values set by sweep and overrides, as text."),
            $($more),*
        ]
    };
}

pub(super) const RUN: &[Field] = run!();

pub(super) const LAB: &[Field] = run!(
    Field("valid", Truth, "The numbers are about the path and not about the limits of the machine; otherwise flows, links and regions are empty."),
    Field("faults", Texts, "Why they are not."),
    Field("notes", Texts, "Notes on the results."),
    Field("lab", Any, "Calibration, how late packets left, processor seconds of the flows' hosts, and what else the lab saw."),
    Field("discarded", OptionalObject(DISCARDED), "Measurements of an invalid run."),
);

const DISCARDED: &[Field] = &[
    Field("flows", List(FLOW), "As of a run that is valid."),
    Field("links", List(LINK), "As of a run that is valid."),
    Field("jain", MaybeNumber, "As of a run that is valid."),
    Field("regions", List(REGION), "As of a run that is valid."),
];

const FLOW: &[Field] = &[
    Field("id", Text, "Its name."),
    Field("transport", Text, "sabul, tcp, udp-cbr or command."),
    Field("cc", Text, "Its controller."),
    Field("goodput_bps", Number, "New payload at the receiver over its life after the warm-up, in bit/s."),
    Field("throughput_bps", Number, "Its data packets at the receiver, headers and repeats included, in bit/s."),
    Field("packets_sent", Count, "DATA packets or segments sent."),
    Field("packets_lost", Count, "Those that the sender took for lost."),
    Field("loss_rate", Number, "Lost ÷ sent, 0 to 1."),
    Field("retransmissions", Count, "Repeats among the sent."),
    Field("breaker_opened", OptionalCount, "Times that the circuit breaker opened after the warm-up; absent where the flow has no breaker."),
    Field("rtt_ms", Object(RTT), "The round trip as its sender saw it, in milliseconds."),
    Field("stability", Number, "Standard deviation ÷ mean of its goodput over seconds."),
    Field("completed_s", MaybeNumber, "From start to the last byte's arrival in seconds, mean over copies; null if it has no end or did not reach it."),
    Field("started", Count, "Copies that started."),
    Field("completed", Count, "Copies that delivered all they had."),
    Field("completion", OptionalObject(COMPLETION), "How long the copies took, where two or more completed."),
];

const RTT: &[Field] = &[
    Field("min", Number, "Smallest, in milliseconds."),
    Field("mean", Number, "Mean over samples, in milliseconds."),
    Field("p99", Number, "99th percentile of the samples, in milliseconds."),
];

const COMPLETION: &[Field] = &[
    Field("median_s", Number, "Half were faster, in seconds."),
    Field("p99_s", Number, "99 % were faster, in seconds."),
];

const LINK: &[Field] = &[
    Field("id", Text, "Its name."),
    Field("utilisation", Number, "Bits carried ÷ bits it could have carried, 0 to 1; zero without a rate."),
    Field("drops", Count, "Packets dropped, whatever the cause."),
    Field("marks", Count, "Packets given the ECN mark."),
    Field("queue_packets", Object(QUEUE), "The queue, in packets."),
];

const QUEUE: &[Field] = &[
    Field("mean", Number, "Averaged over time."),
    Field("p99", Number, "99th percentile of the samples."),
    Field("max", Count, "Longest ever."),
];

const REGION: &[Field] = &[
    Field("from_s", Number, "Where it begins, in seconds."),
    Field("to_s", Number, "Where it ends, in seconds."),
    Field("aggregate_bps", Number, "Goodput of all long flows, in bit/s."),
    Field("stability", Number, "Standard deviation ÷ mean of that, over seconds."),
    Field("jain", Number, "Jain's index over the flows present, 0 to 1."),
    Field("flows", Named("number"), "Goodput of each by name, in bit/s."),
];

/// Fields of a card before its numbers, and the lab's fields after its numbers.
macro_rules! card {
    ($($more:expr),* $(,)?) => {
        &[
            Field("schema", Count, "Version of this document."),
            Field("arm", Text, "Where it was measured: sim or lab."),
            Field("cc", Text, "The controller."),
            Field("transport", Text, "Transport: sabul or tcp."),
            Field("params", Named("string"), "Its parameters that were set, as text."),
            Field("commit", Text, "Source version of the program."),
            Field("seeds", Count, "Over how many seeds the numbers are means."),
            Field("settings", Named("string"), "Changes of the scenarios, as text."),
            Field("wall_s", Number, "How long it took, in seconds."),
            $($more),*,
            Field("machine", OptionalObject(MACHINE), "Machine of the measurement, in the lab."),
            Field("exams", OptionalList(EXAM), "Whether each run counts, in the lab."),
        ]
    };
}

pub(super) const CARD: &[Field] = card!(
    Field("seconds_per_flow", Number, "Time between entries and exits of flows, in seconds."),
    Field("regions", List(REGIONS), "An entry each round trip of the test of seven regions."),
    Field("loss", List(LOSS), "An entry each rate of random loss."),
    Field("beside", List(BESIDE), "An entry each path that was shared with CUBIC."),
    Field("rtt_fairness", MaybeObject(FAIRNESS), "Two flows that differ in their round trip."),
    Field("convergence_s", MaybeNumber, "From a newcomer's entry until shares are alike, in seconds; null if that never came."),
    Field("convergence_within_s", MaybeNumber, "For how long that was watched, in seconds."),
    Field("standing_queue", MaybeObject(STANDING), "Standing queue in front of a link with a large buffer."),
    Field("mice", MaybeObject(MICE), "Short transfers beside the controller, and without it."),
    Field("cross", MaybeObject(CROSS), "One flow beside a constant rate that comes and goes."),
);

pub(super) const CONTRACT: &[Field] = card!(
    Field("order", Text, "Order of the starts: cubic-first, together or cubic-last."),
    Field("terms", Object(TERMS), "Bounds that a cell must meet."),
    Field("cells_judged", Count, "Cells with numbers."),
    Field("cells_met", Count, "How many of them are met."),
    Field("cells_judged_with_room", Count, "Cells with numbers whose queue has room for more than a few packets."),
    Field("cells_met_with_room", Count, "How many of those are met."),
    Field("worst", MaybeObject(CELL), "The cell in which CUBIC keeps least."),
    Field("cells", List(CELL), "An entry each cell, in the order of the grid."),
    Field("others", List(OTHER), "Goodput of other flows than one CUBIC flow beside the controller."),
    Field("links", List(KIND_OF_LINK), "The controller and others, alone where the rate is not constant."),
);

pub(super) const DRAW: &[Field] = card!(
    Field("draw", Text, "Name of the draw: tune, judge, or its seed."),
    Field("draw_seed", Count, "The seed that the paths are drawn from."),
    Field("resamples", Count, "Resamples of a bootstrap interval."),
    Field("terms", Object(DRAW_TERMS), "The bounds of the contract."),
    Field("met", Object(TALLY), "Paths by the verdict on all four questions."),
    Field("alone", Object(TALLY), "Paths by the verdict on one flow alone."),
    Field("cubic_keeps", Object(TALLY), "Paths by the verdict on what CUBIC keeps."),
    Field("ours_have", Object(TALLY), "Paths by the verdict on what flows of the controller have."),
    Field("own_loss", Object(TALLY), "Paths by the verdict on own loss beside CUBIC."),
    Field("paths", List(DRAWN), "An entry each path, in the order of their numbers."),
);

const DRAW_TERMS: &[Field] = &[
    Field("alone_share_min", Number, "Least part of what can arrive, of one flow alone, 0 to 1."),
    Field("alone_own_loss_max", Number, "Own loss of one flow alone is below this, 0 to 1."),
    Field("alone_queue_bdp_max", Number, "Largest mean queue of one flow alone, in bandwidth-delay products; the larger of both limits counts."),
    Field("alone_queue_packets_max", Number, "The same in packets."),
    Field("cubic_keeps_plain_min", Number, "Least part that CUBIC keeps with one flow each and no background."),
    Field("cubic_keeps_min", Number, "Least part that CUBIC keeps elsewhere."),
    Field("ours_have_min", Number, "Least goodput of the controller's flows, as a part of that of CUBIC flows in their place."),
    Field("own_loss_max", Number, "Own loss beside CUBIC is below this, 0 to 1; on a tiny path the bound is the loss of CUBIC in its place."),
];

const TALLY: &[Field] = &[
    Field("yes", Count, "Paths where the interval is on the good side of the bound."),
    Field("open", Count, "Paths where the interval contains the bound."),
    Field("no", Count, "Paths where the interval is on the bad side."),
    Field("yes_at_least", Number, "Lower bound (95 %, Wilson) of the probability of a yes, 0 to 1."),
];

const FINDING: &[Field] = &[
    Field("value", Number, "Over all seeds."),
    Field("low", Number, "Lower end of the interval of 95 %."),
    Field("high", Number, "Upper end of the interval."),
    Field("bound", Number, "Bounds of the contract."),
    Field("verdict", Text, "yes, no or open."),
];

const DRAWN: &[Field] = &[
    Field("number", Count, "Number of the path in the draw, from 1."),
    Field("rate_mbps", Number, "Rate of the link, in Mb/s."),
    Field("rate_drawn_mbps", Number, "The rate before the limit of packets lowered it, in Mb/s."),
    Field("rtt_ms", Number, "Base round trip, in milliseconds."),
    Field("queue_packets", Count, "Room of the queue, in packets."),
    Field("queue_bdp", Number, "Room of the queue, in bandwidth-delay products."),
    Field("loss", Number, "Share of the packets that the link loses at random, 0 to 1."),
    Field("ours", Count, "Flows of the controller."),
    Field("theirs", Count, "CUBIC flows."),
    Field("first", Text, "The group that starts first: ours or theirs."),
    Field("background", Text, "none, shaper, load or two-way."),
    Field("burst_mbps", OptionalNumber, "Peak rate of a shaper, in Mb/s."),
    Field("bucket_bytes", OptionalNumber, "Depth of the bucket of a shaper."),
    Field("load_mbps", OptionalNumber, "Inelastic load, in Mb/s."),
    Field("duration_s", Number, "Length of a run, in seconds."),
    Field("warmup_s", Number, "Part of a run before averages begin, in seconds."),
    Field("is_shortened", Truth, "Whether the limit of packets shortened the runs."),
    Field("alone_share", Object(FINDING), "One flow alone: goodput as a part of what can arrive."),
    Field("alone_own_loss", Object(FINDING), "One flow alone: loss beyond the path's random loss."),
    Field("alone_queue_packets", Object(FINDING), "One flow alone: mean queue, in packets."),
    Field("cubic_keeps", Object(FINDING), "Goodput of CUBIC beside the controller ÷ beside CUBIC."),
    Field("ours_have", Object(FINDING), "Goodput of the controller beside CUBIC ÷ that of CUBIC in its place."),
    Field("own_loss", Object(FINDING), "Loss of the controller beside CUBIC beyond random loss; in a tiny path less that of CUBIC in its place."),
    Field("is_tiny", Truth, "Whether own loss is held against that of CUBIC."),
    Field("failed_runs", Count, "Runs without numbers, because the controller failed: the path is not met."),
    Field("fault", MaybeText, "Why the first of these failed, or null."),
    Field("cubic_bps", Number, "Goodput of CUBIC beside the controller, in bit/s."),
    Field("ours_bps", Number, "Goodput of the controller beside CUBIC, in bit/s."),
    Field("reference_cubic_bps", Number, "Goodput of CUBIC beside CUBIC, in bit/s."),
    Field("reference_ours_bps", Number, "Goodput of CUBIC in the controller's place, in bit/s."),
    Field("reference_own_loss", Number, "Loss of CUBIC in the controller's place beyond random loss."),
    Field("alone_verdict", Text, "One flow alone: yes, no or open."),
    Field("keeps_verdict", Text, "CUBIC keeps enough: yes, no or open."),
    Field("have_verdict", Text, "The controller has enough: yes, no or open."),
    Field("loss_verdict", Text, "Own loss is small enough: yes, no or open."),
    Field("met", Text, "All four: yes, no or open."),
];

const TERMS: &[Field] = &[
    Field("kept_min", Number, "Part that CUBIC keeps of what it has beside another CUBIC, 0 to 1."),
    Field("emptier_max", Number, "How much emptier than with two CUBICs the link may be, 0 to 1."),
    Field("utilisation_min", Number, "How full it has to be where loss keeps two CUBICs from filling it so far, 0 to 1."),
    Field("tiny_queue_packets", Count, "Cells with a smaller queue are marked: they measure how long bursts are."),
];

const CELL: &[Field] = &[
    Field("rate_mbps", Number, "Rate of the link, in Mb/s."),
    Field("rtt_ms", Number, "Round trip of the path, in milliseconds."),
    Field("queue_bdp", Number, "Room of the queue, in bandwidth-delay products."),
    Field("loss", Number, "Share of the packets that the link loses, 0 to 1."),
    Field("queue_packets", Count, "Room of the queue, in packets."),
    Field("has_tiny_queue", Truth, "It is too small for a few packets."),
    Field("cubic_bps", Number, "Goodput of CUBIC beside the controller, in bit/s."),
    Field("cc_bps", Number, "Goodput of the controller beside it, in bit/s."),
    Field("reference_first_bps", Number, "Goodput of the first of two CUBIC flows beside each other, in bit/s."),
    Field("reference_second_bps", Number, "The second, in bit/s."),
    Field("reference_bps", Number, "Half of both, in bit/s."),
    Field("kept", Number, "cubic_bps ÷ reference_bps."),
    Field("utilisation", Number, "How full the link is, 0 to 1."),
    Field("reference_utilisation", Number, "The same with two CUBICs."),
    Field("is_kept", Truth, "CUBIC keeps enough."),
    Field("is_full", Truth, "The link is full enough."),
    Field("is_met", Truth, "Both."),
];

const OTHER: &[Field] = &[
    Field("what", Text, "Flows that share the link, and the measured value."),
    Field("unit", Text, "In what."),
    Field("rtt_ms", Number, "Round trip of the path, in milliseconds."),
    Field("beside_cc", Number, "Beside the controller."),
    Field("beside_reference", Number, "Beside CUBIC; of BBR beside another."),
    Field("alone", MaybeNumber, "Alone on the link, if measured."),
    Field("cc_bps", Number, "Goodput of the controller's own flow meanwhile, in bit/s."),
];

const KIND_OF_LINK: &[Field] = &[
    Field("link", Text, "Settings of the link beside its rate."),
    Field("cc", Text, "The controller, or one that it is held against."),
    Field("goodput_bps", Number, "New payload at the receiver, in bit/s."),
    Field("utilisation", Number, "How full the link is, of what it can carry."),
    Field("loss_rate", Number, "Share of its packets that were lost, 0 to 1."),
];

pub(super) const COMPARISON: &[Field] = &[
    Field("schema", Count, "Version of this document."),
    Field("commit", Text, "Source version of the program."),
    Field("marked_percent", Number, "Larger differences are marked, in percent."),
    Field("comparisons", List(COMPARED), "An entry each run of each scenario."),
];

const COMPARED: &[Field] = &[
    Field("scenario", Text, "The scenario's name."),
    Field("label", Text, "Which run of it."),
    Field("seed", Count, "Where all chance came from."),
    Field("measurements", Count, "Valid measurements in the lab, of which the medians are."),
    Field("is_valid", Truth, "There is one at least."),
    Field("faults", Texts, "Why others are not."),
    Field("rows", List(QUANTITY), "An entry each quantity."),
];

const QUANTITY: &[Field] = &[
    Field("kind", Text, "flow, link or run."),
    Field("id", Text, "Which of them."),
    Field("quantity", Text, "Measured value with its unit."),
    Field("simulated", Number, "In the simulator."),
    Field("measured", MaybeNumber, "In the lab; null where no measurement was valid."),
    Field("difference_percent", MaybeNumber, "Measured beyond simulated, in percent of simulated; null where that says nothing."),
    Field("is_marked", Truth, "That is more than is passed over."),
];

pub(super) const REPRODUCTIONS: &[Field] = &[
    Field("schema", Count, "Version of this document."),
    Field("arm", Text, "Where it ran: sim."),
    Field("commit", Text, "Source version of the program."),
    Field("reproductions", List(REPRODUCTION), "An entry each table or figure."),
];

const REPRODUCTION: &[Field] = &[
    Field("name", Text, "Its name."),
    Field("source", Text, "The paper, and where in it."),
    Field("cases", List(CASE), "Runs."),
    Field("ranks", OptionalList(RANK), "Whether cases come in the published order."),
];

const CASE: &[Field] = &[
    Field("id", Text, "Its name."),
    Field("figure", Text, "Where it is in the paper."),
    Field("flows", List(RATES), "The rates of its flows."),
    Field("claims", List(CLAIM), "Claims of the paper, and their verdicts."),
    Field("marks", OptionalObject(REGION_MARKS), "Where flows come and go."),
];

const RATES: &[Field] = &[
    Field("id", Text, "Which flow."),
    Field("published_mbps", MaybeNumber, "Its rate in the paper, in Mb/s; null where it says none."),
    Field("mbps", Number, "Ours: mean over seeds, in Mb/s."),
    Field("mbps_least", Number, "The least of them, in Mb/s."),
    Field("mbps_most", Number, "The most of them, in Mb/s."),
];

const CLAIM: &[Field] = &[
    Field("claim", Text, "In words."),
    Field("published", MaybeNumber, "Its number in the paper."),
    Field("ours", MaybeNumber, "Our number."),
    Field("tolerance", Number, "How far they may be apart."),
    Field("verdict", Text, "Verdict of this run."),
    Field("committed", Text, "Expected verdict, found before."),
    Field("cause", Text, "Why they differ, where they do."),
];

const RANK: &[Field] = &[
    Field("claim", Text, "In words."),
    Field("correlation", MaybeNumber, "Rank correlation of both orders, -1 to 1."),
    Field("at_least", Number, "What holds."),
    Field("verdict", Text, "Verdict of this run."),
    Field("committed", Text, "Expected verdict, found before."),
    Field("cause", Text, "Why they differ, where they do."),
];

const REGION_MARKS: &[Field] = &[
    Field("mean_mbps", MaybeNumber, "Goodput of all flows together, in Mb/s; means over seeds."),
    Field("sd_mbps", MaybeNumber, "Its standard deviation, in Mb/s."),
    Field("stability", MaybeNumber, "Standard deviation ÷ mean."),
    Field("jain_min", MaybeNumber, "Least Jain index of any region, 0 to 1."),
    Field("rtt_ms", MaybeNumber, "Mean round trip, in milliseconds."),
    Field("regions", Pairs, "Stability and Jain's index of each region."),
];

pub(super) const DEMO: &[Field] = &[
    Field("schema", Count, "Version of this document."),
    Field("path", Text, "The path's name."),
    Field("cc", Text, "The controller."),
    Field("bytes", Count, "Size of the file."),
    Field("verified", Truth, "Whether the received content equals the sent content."),
    Field("blake3", Text, "The hash of what arrived."),
    Field("seconds", Number, "How long the copy took, in seconds."),
    Field("goodput_bps", Number, "The file over that time, in bit/s."),
    Field("rtt_ms", Number, "The averaged round trip at the end, in milliseconds."),
    Field("rtt_ms_min", Number, "The least round trip, in milliseconds."),
    Field("packets_sent", Count, "DATA packets sent."),
    Field("packets_retransmitted", Count, "Those among them whose content was sent before."),
    Field("path_packets", Count, "Packets that came to the path."),
    Field("path_packets_lost", Count, "Those that it lost."),
    Field("path_packets_lost_queue_full", Count, "Those among them that found its queue full."),
    Field("path_packets_too_large", Count, "Those that asked how large a packet may be, and were too large."),
    Field("path_loss_rate", Number, "Lost ÷ came, 0 to 1."),
    Field("copy", Any, "Output of `sabul cp --json`: `sabul schema cp`."),
    Field("disturbed", Truth, "The numbers are about this machine and not about the path."),
    Field("disturbances", Texts, "Why."),
    Field("arm", OptionalText, "lab, where the path is between namespaces."),
    Field("alone", List(ALONE), "One transfer after the other, each alone on the path; TCP only where arm is lab."),
    Field("together", MaybeObject(TOGETHER), "sabul and TCP at once; null where a relay is the path."),
    Field("router_late_ms_p50", OptionalNumber, "Half of the packets left the path no later than this after they were due, in milliseconds; there."),
    Field("router_late_ms_p99", OptionalNumber, "99 % of them, in milliseconds; there."),
    Field("router_late_ms_max", OptionalNumber, "The latest, in milliseconds; there."),
    Field("calibration", OptionalAnys, "Measured properties of the path there."),
    Field("notes", OptionalTexts, "Notes on the results there."),
    Field("cpu_seconds_sender", OptionalMaybeNumber, "Processor time of the sending program in seconds, where a relay is the path."),
    Field("cpu_seconds_receiver", OptionalMaybeNumber, "The same of the receiving one."),
    Field("cpu_mhz", OptionalMaybeNumber, "Clock of the processor in MHz, there."),
    Field("mhz_per_mbps_sender", OptionalMaybeNumber, "Share of a processor × its clock ÷ goodput, of the sender, there."),
    Field("mhz_per_mbps_receiver", OptionalMaybeNumber, "The same of the receiver."),
    Field("memory_peak_bytes_sender", OptionalMaybeNumber, "The most memory that the sender had, in bytes, there."),
    Field("memory_peak_bytes_receiver", OptionalMaybeNumber, "The same of the receiver."),
    Field("relay_late_ms_p50", OptionalNumber, "Half of the packets left the relay no later than this after they were due, in milliseconds."),
    Field("relay_late_ms_p99", OptionalNumber, "99 % of them, in milliseconds."),
    Field("relay_late_ms_max", OptionalNumber, "The latest, in milliseconds."),
    Field("relay_dropped_packets", OptionalNumber, "Packets that the relay itself lost."),
];

const ALONE: &[Field] = &[
    Field("transport", Text, "sabul or tcp."),
    Field("cc", Text, "Its controller."),
    Field("loss_rate", Number, "Share of the data packets that the path loses at random, 0 to 1."),
    Field("bytes", Count, "Received bytes: the whole file, or for TCP on a lossy path the bytes until the time limit."),
    Field("seconds", Number, "From its start to its end, in seconds; of sabul the whole command."),
    Field("goodput_bps", Number, "The bytes over that time, in bit/s."),
    Field("rtt_ms", Number, "Its mean round trip, in milliseconds."),
    Field("completed", Truth, "All bytes arrived in the time given."),
];

const TOGETHER: &[Field] = &[
    Field("from_s", Number, "Time from the start of both flows to the start of the average, in seconds."),
    Field("to_s", Number, "And ends then."),
    Field("tcp_goodput_bps", Number, "TCP's new payload at the receiver, in bit/s."),
    Field("sabul_goodput_bps", Number, "The same of sabul."),
];

pub(super) const PRESETS: &[Field] = &[
    Field("schema", Count, "Version of this document."),
    Field("presets", List(PRESET), "An entry each named path."),
];

const PRESET: &[Field] = &[
    Field("name", Text, "Its name."),
    Field("summary", Text, "Description in words."),
    Field("source", Text, "Where its numbers are from."),
    Field("rtt_ms", Number, "Its round trip without queues, in milliseconds."),
    Field("forward", Object(PRESET_LINK), "The way of the data."),
    Field("back", Object(PRESET_LINK), "The way back."),
];

const PRESET_LINK: &[Field] = &[
    Field("rate_bps", MaybeNumber, "Its rate in bit/s; null without one."),
    Field("delay_ms", Number, "One way, in milliseconds."),
    Field("jitter_ms", Number, "By how much packets are late at most, in milliseconds."),
    Field("queue_packets", MaybeNumber, "Room of its queue in packets, where it is counted so."),
    Field("queue_bytes", MaybeNumber, "Room of its queue in bytes, where it is counted so."),
    Field("discipline", Text, "Discipline of its queue."),
    Field("loss", Number, "Share of the packets that it loses, 0 to 1."),
    Field("burst_loss", MaybeObject(BURSTS), "Losses that come together."),
    Field("duplicate", Number, "Share of the packets that come twice, 0 to 1."),
    Field("corrupt", Number, "Share of the packets with a wrong bit, 0 to 1."),
    Field("reorder", Number, "Share of the packets that are held back, 0 to 1."),
    Field("reorder_ms", Number, "For how long, in milliseconds."),
    Field("mtu", Count, "Largest packet with its IP header, in bytes."),
    Field("outage", List(OUTAGE), "When it is silent."),
];

const BURSTS: &[Field] = &[
    Field("to_bad", Number, "Chance of a good spell to end with a packet, 0 to 1."),
    Field("to_good", Number, "Chance of a bad one."),
    Field("loss_good", Number, "Share that is lost in a good spell, 0 to 1."),
    Field("loss_bad", Number, "Share that is lost in a bad one."),
];

const OUTAGE: &[Field] = &[
    Field("at_s", Number, "When it begins, in seconds."),
    Field("for_s", Number, "How long it lasts, in seconds."),
];

const REGIONS: &[Field] = &[
    Field("rtt_ms", Number, "Round trip of the path, in milliseconds."),
    Field("link_bps", Number, "Rate of the link, in bit/s."),
    Field("regions", List(MARK), "The seven regions."),
    Field("mean_bps", MaybeNumber, "Goodput of all flows together, over seconds, in bit/s."),
    Field("sd_bps", MaybeNumber, "Its standard deviation, in bit/s."),
    Field("stability", MaybeNumber, "Standard deviation ÷ mean."),
    Field("jain_min", MaybeNumber, "Least Jain index of any region and seed."),
    Field("jain_max", MaybeNumber, "Largest Jain index of any region and seed."),
    Field("rtt_ms_mean", MaybeNumber, "Mean round trip, in milliseconds."),
    Field("cpu_percent_sender", OptionalNumber, "Processor time of the sending hosts, in percent of one."),
    Field("cpu_percent_receiver", OptionalNumber, "Processor time of the receiving hosts, in percent of one."),
    Field("mhz_per_mbps_sender", OptionalNumber, "Share of a processor × its clock ÷ goodput, of the sending hosts."),
    Field("mhz_per_mbps_receiver", OptionalNumber, "Share of a processor × its clock ÷ goodput, of the receiving hosts."),
];

const MARK: &[Field] = &[
    Field("from_s", Number, "Where it begins, in seconds."),
    Field("to_s", Number, "Where it ends, in seconds."),
    Field("flows", Count, "How many flows there are."),
    Field("mean_bps", MaybeNumber, "Goodput of all together, in bit/s."),
    Field("sd_bps", MaybeNumber, "Its standard deviation over seconds, in bit/s."),
    Field("stability", MaybeNumber, "Standard deviation ÷ mean."),
    Field("jain", MaybeNumber, "Jain's index over the flows, 0 to 1."),
    Field("rtt_ms_mean", MaybeNumber, "Mean round trip, in milliseconds."),
    Field("cpu_percent_sender", OptionalNumber, "As of all regions."),
    Field("cpu_percent_receiver", OptionalNumber, "As of all regions."),
    Field("mhz_per_mbps_sender", OptionalNumber, "As of all regions."),
    Field("mhz_per_mbps_receiver", OptionalNumber, "As of all regions."),
];

const LOSS: &[Field] = &[
    Field("loss", Number, "Share of the packets that the link loses, 0 to 1."),
    Field("goodput_bps", MaybeNumber, "New payload at the receiver, in bit/s."),
    Field("share_of_link", MaybeNumber, "Goodput ÷ rate of the link, 0 to 1."),
    Field("rtt_ms_mean", MaybeNumber, "Mean round trip, in milliseconds."),
];

const BESIDE: &[Field] = &[
    Field("rtt_ms", Number, "Round trip of the path, in milliseconds."),
    Field("queue_bdp", Number, "Room of the queue, in bandwidth-delay products."),
    Field("cubic_share", MaybeNumber, "Goodput of CUBIC ÷ that of both, 0 to 1."),
    Field("cubic_bps", MaybeNumber, "Goodput of CUBIC, in bit/s."),
    Field("cc_bps", MaybeNumber, "Goodput of the controller, in bit/s."),
];

const FAIRNESS: &[Field] = &[
    Field("near_ms", Number, "The short round trip, in milliseconds."),
    Field("far_ms", Number, "The long one, in milliseconds."),
    Field("near_bps", MaybeNumber, "Goodput over the short one, in bit/s."),
    Field("far_bps", MaybeNumber, "Goodput over the long one, in bit/s."),
    Field("ratio", MaybeNumber, "Near ÷ far."),
];

const STANDING: &[Field] = &[
    Field("mean_ms", MaybeNumber, "Mean wait, in milliseconds."),
    Field("p99_ms", MaybeNumber, "99th percentile, in milliseconds."),
    Field("full_ms", MaybeNumber, "How long a full queue takes to empty, in milliseconds."),
    Field("goodput_bps", MaybeNumber, "Goodput meanwhile, in bit/s."),
];

const MICE: &[Field] = &[
    Field("beside", MaybeObject(SHORT), "Beside a flow of the controller."),
    Field("alone", MaybeObject(SHORT), "Without it."),
    Field("goodput_bps", MaybeNumber, "Goodput of the controller's own flow meanwhile, in bit/s."),
];

const SHORT: &[Field] = &[
    Field("median_s", MaybeNumber, "Half were faster, in seconds."),
    Field("p99_s", MaybeNumber, "99 % were faster, in seconds."),
    Field("started", Count, "How many began, of all seeds."),
    Field("completed", Count, "How many of them ended."),
];

const CROSS: &[Field] = &[
    Field("share", MaybeNumber, "Goodput ÷ capacity that the cross traffic leaves, over the whole time."),
    Field("share_during", MaybeNumber, "The same while it is there."),
    Field("share_between", MaybeNumber, "The same while it is not."),
    Field("cross_delivered", MaybeNumber, "How much of the cross traffic came through, 0 to 1."),
];

const MACHINE: &[Field] = &[
    Field("cpu_model", MaybeText, "The processor."),
    Field("processors", Count, "How many of them."),
    Field("cpu_mhz", MaybeNumber, "Their mean clock, in MHz."),
    Field("kernel", MaybeText, "The system's kernel."),
];

const EXAM: &[Field] = &[
    Field("scenario", Text, "Which run."),
    Field("seed", Count, "With what chance."),
    Field("valid", Truth, "Its numbers count."),
    Field("disturbed", Truth, "They count, and the machine was not always in time."),
    Field("faults", Texts, "Why they do not count."),
    Field("notes", Texts, "Notes on the results."),
    Field("late_us_p99", MaybeNumber, "99 % of the packets left the path no later than this after they were due, in microseconds."),
];
