//! The fields of each document, a line each.

use super::Field;
use super::Kind::{
    Any, Count, List, MaybeNumber, MaybeObject, MaybeText, Named, Number, Object, OptionalList,
    OptionalNumber, OptionalObject, Text, Texts, Truth,
};

/// What a run is, in front of its numbers.
macro_rules! run {
    ($($more:expr),* $(,)?) => {
        &[
            Field("schema", Count, "Version of this document."),
            Field("arm", Text, "Where it ran: sim or lab."),
            Field("scenario", Text, "The scenario's name."),
            Field("seed", Count, "Where all chance came from."),
            Field("commit", Text, "What the program was built from."),
            Field("wall_s", Number, "How long it took, in seconds."),
            Field("flows", List(FLOW), "One entry a flow, in the order of the scenario; copies together."),
            Field("links", List(LINK), "One entry a link, in the order of the scenario; data direction."),
            Field("jain", MaybeNumber, "Jain's index over the flows without an end of their own, 0 to 1; null where no number counts."),
            Field("regions", List(REGION), "The times between entries and exits of long flows."),
            Field("settings", Named("string"), "What sweep and overrides have set, as text."),
            $($more),*
        ]
    };
}

pub(super) const RUN: &[Field] = run!();

pub(super) const LAB: &[Field] = run!(
    Field("valid", Truth, "The numbers are about the path and not about the limits of the machine; otherwise flows, links and regions are empty."),
    Field("faults", Texts, "Why they are not."),
    Field("notes", Texts, "What a reader should know all the same."),
    Field("lab", Any, "Calibration, how late packets left, processor seconds of the flows' hosts, and what else the lab saw."),
    Field("discarded", OptionalObject(DISCARDED), "What was measured in a run that is not valid."),
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

pub(super) const CARD: &[Field] = &[
    Field("schema", Count, "Version of this document."),
    Field("arm", Text, "Where it was measured: sim or lab."),
    Field("cc", Text, "The controller."),
    Field("transport", Text, "What carried it: sabul or tcp."),
    Field("params", Named("string"), "Its parameters that were set, as text."),
    Field("commit", Text, "What the program was built from."),
    Field("seeds", Count, "Over how many seeds the numbers are means."),
    Field("settings", Named("string"), "What was changed in the scenarios, as text."),
    Field("wall_s", Number, "How long it took, in seconds."),
    Field("seconds_per_flow", Number, "Time between entries and exits of flows, in seconds."),
    Field("regions", List(REGIONS), "An entry each round trip of the test of seven regions."),
    Field("loss", List(LOSS), "An entry each rate of random loss."),
    Field("beside", List(BESIDE), "An entry each path that was shared with CUBIC."),
    Field("rtt_fairness", MaybeObject(FAIRNESS), "Two flows that differ in their round trip."),
    Field("convergence_s", MaybeNumber, "From a newcomer's entry until shares are alike, in seconds; null if that never came."),
    Field("convergence_within_s", MaybeNumber, "For how long that was watched, in seconds."),
    Field("standing_queue", MaybeObject(STANDING), "What waits in front of a link with much room."),
    Field("mice", MaybeObject(MICE), "Short transfers beside the controller, and without it."),
    Field("cross", MaybeObject(CROSS), "One flow beside a constant rate that comes and goes."),
    Field("machine", OptionalObject(MACHINE), "What it was measured on, in the lab."),
    Field("exams", OptionalList(EXAM), "Whether each run counts, in the lab."),
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
    Field("notes", Texts, "What a reader should know all the same."),
    Field("late_us_p99", MaybeNumber, "99 % of the packets left the path no later than this after they were due, in microseconds."),
];
