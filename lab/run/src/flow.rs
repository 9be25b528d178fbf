//! Plan of one flow, and the keys of a `[[flow]]`, each beside the field that the key fills.

use sabul_cc::{PathFacts, Policy};
use sabul_lab_cc::registry::{self, Entry};
use sabul_net::Way;
use sabul_units::key::{Key, Range, Takes, names};
use sabul_units::{Instant, Rate, Span};
use sabul_wire::DATA_OVERHEAD;

use crate::size::{
    ARRIVALS, ARRIVALS_EXAMPLE, Arrivals, COUNT_MAX, FlowSize, SECONDS, SIZE, SIZE_EXAMPLE,
};

/// Bytes of a DATA packet beyond its payload: IPv4 and UDP headers, our header and tag.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
pub const DATA_HEADERS: u32 = 28 + DATA_OVERHEAD as u32;

/// Bytes of a block where the sending or receiving application has a limited rate.
pub const PACED_BLOCK_BYTES: u32 = 1 << 16;
/// Receive buffer of a rate-limited receiving application, in blocks.
pub const SINK_BLOCKS: u32 = 16;

/// Transport of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The protocol of this project.
    Sabul,
    /// TCP with selective acknowledgements.
    Tcp,
    /// Packets at a constant rate, without feedback.
    UdpCbr,
    /// A user's program; lab only.
    Command,
}

impl Transport {
    /// Name of the transport in files and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sabul => "sabul",
            Self::Tcp => "tcp",
            Self::UdpCbr => "udp-cbr",
            Self::Command => "command",
        }
    }
}

/// Transport of a flow, with the settings of that transport.
#[derive(Clone, Debug, PartialEq)]
pub enum Carrier {
    /// The protocol of this project.
    Sabul(SabulEnds),
    /// TCP: simulated, or the kernel's.
    Tcp(TcpEnds),
    /// Packets at a constant rate, without feedback.
    UdpCbr {
        /// Sending rate, IP headers included.
        rate: Rate,
    },
    /// User's programs. The lab replaces `{near}` and `{far}` in an argument by the hosts'
    /// addresses.
    Command {
        /// Program and arguments for the near host.
        near: Vec<String>,
        /// Program and arguments for the far host, started before the near program; empty if there
        /// is no far program.
        far: Vec<String>,
    },
}

impl Carrier {
    /// Returns the transport of this carrier.
    pub const fn transport(&self) -> Transport {
        match self {
            Self::Sabul(_) => Transport::Sabul,
            Self::Tcp(_) => Transport::Tcp,
            Self::UdpCbr { .. } => Transport::UdpCbr,
            Self::Command { .. } => Transport::Command,
        }
    }
}

impl From<Transport> for Carrier {
    /// A carrier with default settings. Constant-rate flows have 1 Mb/s, `command` flows no
    /// program.
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Sabul => Self::Sabul(SabulEnds::default()),
            Transport::Tcp => Self::Tcp(TcpEnds::default()),
            Transport::UdpCbr => Self::UdpCbr { rate: Rate::from_mbps(1) },
            Transport::Command => Self::Command { near: Vec::new(), far: Vec::new() },
        }
    }
}

impl SabulEnds {
    /// Returns path facts of an earlier flow for the controller; `None` unless both rate and RTT
    /// are set.
    pub fn remembered(&self) -> Option<PathFacts> {
        Some(PathFacts { rate: self.remembered_rate?, rtt: self.remembered_rtt? })
    }

    /// Returns whether the circuit breaker guards the controller named `cc`. By default the breaker
    /// guards only this project's own controllers.
    pub fn has_breaker(&self, cc: &str) -> bool {
        self.breaker.unwrap_or_else(|| registry::find(cc).is_ok_and(Entry::is_ours))
    }
}

impl From<SabulEnds> for Carrier {
    fn from(ends: SabulEnds) -> Self {
        Self::Sabul(ends)
    }
}

impl From<TcpEnds> for Carrier {
    fn from(ends: TcpEnds) -> Self {
        Self::Tcp(ends)
    }
}

/// Settings of both ends of a flow over the protocol of this project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SabulEnds {
    /// Published protocol that the channel follows.
    pub profile: Profile,
    /// Defects of that protocol's first implementation.
    pub defects: Defects,
    /// Sharing policy. Policies other than fair need a controller that supports policies.
    pub policy: Policy,
    /// Whether the circuit breaker is enabled; `None` for the default of [`Self::has_breaker`].
    pub breaker: Option<bool>,
    /// Rate of an earlier flow on presumably the same path; used together with `remembered_rtt`.
    pub remembered_rate: Option<Rate>,
    /// Minimum RTT of that earlier flow.
    pub remembered_rtt: Option<Span>,
    /// Rate of the sending host's own interface. A full interface blocks the sender, where a queue
    /// on the path would drop.
    pub nic_rate: Option<Rate>,
    /// Rate at which the sending application produces data; unlimited if `None`.
    pub source_rate: Option<Rate>,
    /// Rate at which the receiving application reads; unlimited if `None`. The receive buffer has
    /// [`SINK_BLOCKS`] blocks of [`PACED_BLOCK_BYTES`].
    pub sink_rate: Option<Rate>,
    /// Flows with the same number share one controller, as the channels of one transfer.
    pub group: Option<u32>,
    /// Timing effects of the machines at both ends.
    pub machine: Machine,
}

/// Timing effects of the machines at both ends of a flow; none by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Packets per transmit batch, sent back to back when pacing allows the last packet; 1 or more.
    pub gso_packets: u32,
    /// Packets per receive batch, with one arrival time; 1 or more.
    pub gro_packets: u32,
    /// Interval at whose ends the sender receives feedback.
    pub ack_bunch: Span,
    /// Longest time for which the processor of each end is busy with other work, which is half of
    /// the time.
    pub busy: Span,
}

impl Default for Machine {
    fn default() -> Self {
        Self { gso_packets: 1, gro_packets: 1, ack_bunch: Span::ZERO, busy: Span::ZERO }
    }
}

/// Settings of both ends of a flow over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpEnds {
    /// Initial window, in packets.
    pub initial_window: u32,
    /// Whether the flow negotiates ECN.
    pub is_ecn_capable: bool,
    /// Number of parallel connections that share the flow's data, 1 or more.
    pub streams: u32,
    /// Distribution of blocks over the connections.
    pub striping: Striping,
}

impl Default for TcpEnds {
    fn default() -> Self {
        Self {
            initial_window: INITIAL_WINDOW,
            is_ecn_capable: false,
            streams: 1,
            striping: Striping::RoundRobin,
        }
    }
}

/// Published protocol that the channel of a `sabul` flow follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// The current protocol.
    #[default]
    Current,
    /// \[SABUL\]: data sequence numbers, loss reports repeated after k × RTT, reports on a TCP
    /// connection.
    Sabul2003,
    /// [OVV-T §II], [OVV04 §2]: SYN and ERR reports on a TCP connection, each at its own interval.
    Sabul2002,
}

/// Defects of the first implementation in its channel or host [OVV04 §3]. Defects of its rate
/// control are parameters of `sabul2002`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defects {
    /// Losses are reported again every 20 ms, not after k × RTT. Item 4.
    pub periodic_err: bool,
    /// The RTT is measured only once. Item 3.
    pub rtt_once: bool,
    /// After one second of silence all unacknowledged packets are sent again.
    pub expire_all: bool,
    /// The sender reads one report per DATA packet sent. With many ERR reports, SYN reports
    /// therefore arrive late and in bunches. Effect (ii).
    pub one_report_per_packet: bool,
}

/// Distribution of the blocks of one stream over several connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Striping {
    /// Round robin, whatever the connections' rates: the slowest connection determines the flow's
    /// duration. \[PSockets\]
    #[default]
    RoundRobin,
    /// The next block goes to a connection with nothing left to send, as GridFTP's extended block
    /// mode allows.
    OnDemand,
}

/// Plan of a flow, or of several copies that arrive one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// Name of the flow.
    pub id: String,
    /// Transport and its settings.
    pub carrier: Carrier,
    /// Registry name of the controller; where TCP is the kernel's, the kernel's name. Empty for
    /// constant-rate flows, and for a program that uses the system's default TCP.
    pub cc: String,
    /// Parameters of the controller.
    pub params: Vec<(String, String)>,
    /// Links in order, as positions in [`Scenario::links`](crate::scenario::Scenario::links). ACKs
    /// cross the same links in reverse order.
    pub path: Vec<usize>,
    /// Whether data crosses the links in the back direction, and ACKs in the forward direction.
    pub is_reverse: bool,
    /// One-way access delay of the hosts, added to the links' delay in each direction.
    pub access_delay: Span,
    /// Start time; with several copies, the earliest start.
    pub start: Instant,
    /// Time at which the flow stops sending; `None` for the end of the run.
    pub stop: Option<Instant>,
    /// Amount of data.
    pub size: FlowSize,
    /// Number of copies and their start times.
    pub arrivals: Arrivals,
    /// Size of a full packet in bytes, IP header included.
    pub packet_bytes: u32,
    /// Largest number of unacknowledged packets (TCP receive window, SABUL flow window).
    pub window_packets: Option<u64>,
}

impl FlowPlan {
    /// An endless flow from time zero, with defaults for all other settings.
    pub fn new(id: &str, carrier: impl Into<Carrier>, cc: &str, path: Vec<usize>) -> Self {
        let carrier = carrier.into();
        let defaults = FlowDraft::new(carrier.clone()).plan;
        Self { id: id.to_owned(), carrier, cc: cc.to_owned(), path, ..defaults }
    }

    /// A plan before any key has been applied.
    fn blank(carrier: Carrier) -> Self {
        Self {
            id: String::new(),
            carrier,
            cc: String::new(),
            params: Vec::new(),
            path: Vec::new(),
            is_reverse: false,
            access_delay: Span::ZERO,
            start: Instant::ZERO,
            stop: None,
            size: FlowSize::Endless,
            arrivals: Arrivals::Together { count: 1, spread: Span::ZERO },
            packet_bytes: 0,
            window_packets: None,
        }
    }

    /// Returns the link direction that carries `way` of this flow. The mapping is its own inverse.
    #[must_use]
    pub const fn way(&self, way: Way) -> Way {
        if self.is_reverse { way.other() } else { way }
    }

    /// Returns the transport of the flow.
    pub const fn transport(&self) -> Transport {
        self.carrier.transport()
    }

    /// Returns the settings of a flow over the protocol of this project.
    pub const fn sabul(&self) -> Option<&SabulEnds> {
        match &self.carrier {
            Carrier::Sabul(ends) => Some(ends),
            _ => None,
        }
    }

    /// Returns the settings of a flow over TCP.
    pub const fn tcp(&self) -> Option<&TcpEnds> {
        match &self.carrier {
            Carrier::Tcp(ends) => Some(ends),
            _ => None,
        }
    }

    /// Returns the rate of a constant-rate flow.
    pub const fn constant_rate(&self) -> Option<Rate> {
        match &self.carrier {
            Carrier::UdpCbr { rate } => Some(*rate),
            _ => None,
        }
    }

    /// Returns the programs of the near and the far host; empty for other transports.
    pub fn commands(&self) -> (&[String], &[String]) {
        match &self.carrier {
            Carrier::Command { near, far } => (near, far),
            _ => (&[], &[]),
        }
    }

    /// Returns the payload of a full packet, in bytes. Flows of programs are counted as TCP.
    pub fn payload_bytes(&self) -> u32 {
        let headers = match self.transport() {
            Transport::Sabul => DATA_HEADERS,
            Transport::Tcp | Transport::Command => 40,
            Transport::UdpCbr => 28,
        };
        self.packet_bytes.saturating_sub(headers).max(1)
    }
}

/// A flow while its keys are read, with values that are converted once path and controller are
/// known.
#[derive(Clone, Debug)]
pub struct FlowDraft {
    /// The flow so far.
    pub plan: FlowPlan,
    /// Requested base RTT of links and access together.
    pub rtt: Option<Span>,
    /// The controller parameter `rate_mbps_initial`, if the flow sets that key.
    pub rate_mbps_initial: Option<f64>,
}

impl FlowDraft {
    /// A flow with only its carrier set and the defaults of [`FLOW`].
    pub fn new(carrier: Carrier) -> Self {
        let plan = FlowPlan::blank(carrier);
        let mut draft = Self { plan, rtt: None, rate_mbps_initial: None };
        for key in FLOW {
            key.put_default(&mut draft).expect("the default of a key is a value of it, and tested");
        }
        draft
    }

    /// Returns the key that the lab cannot apply to a finished flow, and the reason; `None` if the
    /// lab can run the flow.
    pub fn lab_refusal(plan: FlowPlan) -> Option<(&'static str, &'static str)> {
        let draft = Self { plan, rtt: None, rate_mbps_initial: None };
        FLOW.iter().find_map(|key| Some((key.name, key.lab_refusal(&draft)?)))
    }

    fn sabul(&mut self, change: impl FnOnce(&mut SabulEnds)) {
        if let Carrier::Sabul(ends) = &mut self.plan.carrier {
            change(ends);
        }
    }

    fn machine(&mut self, change: impl FnOnce(&mut Machine)) {
        self.sabul(|ends| change(&mut ends.machine));
    }

    fn tcp(&mut self, change: impl FnOnce(&mut TcpEnds)) {
        if let Carrier::Tcp(ends) = &mut self.plan.carrier {
            change(ends);
        }
    }

    fn defect(&mut self, name: &str) {
        self.sabul(|ends| match name {
            "periodic-err" => ends.defects.periodic_err = true,
            "rtt-once" => ends.defects.rtt_once = true,
            "expire-all" => ends.defects.expire_all = true,
            _ => ends.defects.one_report_per_packet = true,
        });
    }

    fn together(&mut self, change: impl FnOnce(&mut u32, &mut Span)) {
        if let Arrivals::Together { count, spread } = &mut self.plan.arrivals {
            change(count, spread);
        }
    }
}

/// Rates of hosts and applications, in Mb/s: the same range as for links.
const RATE_MBPS: Range = sabul_net::RATE_MBPS;
/// Up to twice the longest delay of a link.
const RTT_MS: Range = Range::of(0.0, 2.0 * sabul_net::DELAY_MS.high);
/// RTT of an earlier flow, in milliseconds.
const REMEMBERED_RTT_MS: Range = Range::of(0.01, 60_000.0);
/// Longest time for which a machine is busy or defers packets, in milliseconds.
const AWAY_MS: Range = Range::of(0.0, 1000.0);
/// Most packets of one batch, as in the kernel's segmentation offload.
const BATCH_MAX: u32 = 64;
/// Largest number of a group.
const GROUP_MAX: u32 = 1_000_000;
/// Most bytes that a flow sends.
const BYTES_MAX: u64 = 1_000_000_000_000_000;
/// Largest window, in packets.
const PACKETS_MAX: u64 = 1_000_000_000;

const SABUL: &[&str] = &["sabul"];
const TCP: &[&str] = &["tcp"];
const WITH_WINDOW: &[&str] = &["sabul", "tcp"];
const COMMAND: &[&str] = &["command"];
/// Transports whose traffic is generated here, not by a user's program.
const OURS: &[&str] = &["sabul", "tcp", "udp-cbr"];

/// Transports of a flow.
pub const TRANSPORTS: &[&str] = &["sabul", "tcp", "udp-cbr", "command"];
/// Defects of the first implementation in its channel or host. [OVV04 §3]
const DEFECTS: &[&str] = &["periodic-err", "rtt-once", "expire-all", "one-report-per-packet"];

const PROGRAM_SENDS: &str = "remove this key: the program determines its traffic";
const PROGRAM_ONCE: &str = "remove this key: a program runs once; write a flow for each run";
const ONLY_SIMULATED: &str =
    "only the simulator has this setting; remove this key, or use the simulator";
const RATE_ONLY_SIMULATED: &str =
    "only the simulator has this setting; remove this key, or add a link of this rate to the path";
const ONLY_ONE_WAY: &str =
    "lab hosts send data in one direction; remove this key, or use the simulator";
const REAL_MACHINE: &str =
    "only the simulator models delays of a host, and lab hosts have real delays; remove this key";
const ONLY_2002: &str =
    "only the simulator has the implementation of 2002; remove this key, or use the simulator";
/// The kernel's initial window; no socket option changes that window. [RFC6928 §2]
const INITIAL_WINDOW: u32 = 10;

/// Keys of a `[[flow]]`, in the order in which they take effect. The transport is read first,
/// because the transport determines the carrier that the other keys fill.
pub const FLOW: &[Key<FlowDraft>] = &[
    Key::<FlowDraft>::new("id", Takes::Own("a name")).required("a name"),
    Key::<FlowDraft>::new("transport", Takes::Word(TRANSPORTS, |_, _| {}))
        .doc("`udp-cbr`: constant rate without replies; `command`: [a program](#programs), lab \
              only")
    .or_word("sabul"),
    Key::<FlowDraft>::new("cc", Takes::Own(
            "a name of `sabul cc list`; in the lab, for `tcp` and `command`, [a controller of the kernel](#in-the-lab)",
        ))
        .doc("congestion controller of the flow")
    .or_else("`sabul`: the default of `sabul cc list`; `tcp`: `cubic`; `command`: the default of the system")
    .of(&["sabul", "tcp", "command"])
    .elsewhere("remove this key: a constant rate has no controller"),
    Key::<FlowDraft>::new("params", Takes::Map)
        .doc("parameters of the controller: `sabul cc show NAME`; not for `tcp` in the lab")
    .or_else("default of the controller")
    .of(WITH_WINDOW),
    Key::<FlowDraft>::new("rate_mbps_initial", Takes::Number(Range::of(0.0, 1e6), |flow, mbps| flow.rate_mbps_initial = Some(mbps)))
        .doc("short form of the controller's parameter with the same name; the controller defines \
              the range")
    .or_else("default of the controller")
    .of(SABUL)
    .elsewhere("remove this key; the key of a constant rate is rate_mbps"),
    Key::<FlowDraft>::new("rate_mbps", Takes::Mbps(RATE_MBPS, |flow, mbps| {
            if let Carrier::UdpCbr { rate } = &mut flow.plan.carrier {
                *rate = mbps;
            }
        }))
        .doc("constant rate including IP headers")
    .required("the rate of the flow, in megabits per second")
    .of(&["udp-cbr"])
    .elsewhere("remove this key; the initial rate of sabul is rate_mbps_initial"),
    Key::<FlowDraft>::new("profile", Takes::Word(&["current", "sabul2003", "sabul2002"], |flow, word| {
            flow.sabul(|ends| {
                ends.profile = match word {
                    "sabul2003" => Profile::Sabul2003,
                    "sabul2002" => Profile::Sabul2002,
                    _ => Profile::Current,
                }
            });
        }))
        .doc("published protocol of the channel")
    .or_else("`current`; with cc `sabul2002`: `sabul2002`")
    .of(SABUL)
    .not_in_lab(
        |flow| flow.plan.sabul().is_some_and(|ends| ends.profile == Profile::Sabul2002),
        ONLY_2002,
    ),
    Key::<FlowDraft>::new("defects", Takes::Words(DEFECTS, FlowDraft::defect))
        .doc("profile `sabul2002`: defects of the first implementation [OVV04 §3]")
    .or_else("none")
    .of(SABUL)
    .not_in_lab(
        |flow| flow.plan.sabul().is_some_and(|ends| ends.defects != Defects::default()),
        ONLY_2002,
    ),
    Key::<FlowDraft>::new("policy", Takes::Word(&["fair", "high", "low"], |flow, word| {
            if let Some(policy) = Policy::named(word) {
                flow.sabul(|ends| ends.policy = policy);
            }
        })).doc("sharing policy: `fair`, the share of one flow; `high`, the share of two; `low`, only unused \
         capacity. `high` and `low` need a controller with policies (`sabul cc show`)")
    .or_word("fair")
    .of(SABUL),
    Key::<FlowDraft>::new("breaker", Takes::Word(&["on", "off"], |flow, word| {
            flow.sabul(|ends| ends.breaker = Some(word == "on"));
        }))
        .doc("circuit breaker against sustained heavy loss; always on in the lab and on the wire")
    .or_else("`on` for this project's own controllers, `off` for published controllers")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.breaker == Some(false)), ONLY_SIMULATED),
    Key::<FlowDraft>::new("group", Takes::Whole32(0, GROUP_MAX, |flow, n| flow.sabul(|ends| ends.group = Some(n))))
        .doc(
            "flows with the same number share one controller, as the channels of one transfer; a flow that begins \
             within ten seconds of the end of the others continues with their rate",
        )
    .or_else("a controller of its own")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.group.is_some()), ONLY_SIMULATED),
    Key::<FlowDraft>::new("remembered_mbps", Takes::Mbps(RATE_MBPS, |flow, mbps| flow.sabul(|ends| ends.remembered_rate = Some(mbps))))
        .doc("rate of an earlier flow on this path, for a controller with path memory; requires \
              `remembered_rtt_ms`")
    .or_else("none")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.remembered_rate.is_some()), ONLY_SIMULATED),
    Key::<FlowDraft>::new("remembered_rtt_ms", Takes::Millis(REMEMBERED_RTT_MS, |flow, ms| flow.sabul(|ends| ends.remembered_rtt = Some(ms))))
        .doc("smallest RTT of the earlier flow; requires `remembered_mbps`")
    .or_else("none")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.remembered_rtt.is_some()), ONLY_SIMULATED),
    Key::<FlowDraft>::new("nic_mbps", Takes::Mbps(RATE_MBPS, |flow, mbps| flow.sabul(|ends| ends.nic_rate = Some(mbps))))
        .doc("rate of the sending host's interface; the interface delays excess packets and drops \
              no packet")
    .or_else("100 000")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|ends| ends.nic_rate.is_some()), RATE_ONLY_SIMULATED),
    Key::<FlowDraft>::new("source_mbps", Takes::Mbps(RATE_MBPS, |flow, mbps| flow.sabul(|ends| ends.source_rate = Some(mbps))))
        .doc("rate at which the sending application produces data")
    .or_else("unlimited")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.source_rate.is_some()), RATE_ONLY_SIMULATED),
    Key::<FlowDraft>::new("sink_mbps", Takes::Mbps(RATE_MBPS, |flow, mbps| flow.sabul(|ends| ends.sink_rate = Some(mbps))))
        .doc("rate at which the receiving application reads data; the receive buffer has 1 MiB")
    .or_else("unlimited")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.sink_rate.is_some()), RATE_ONLY_SIMULATED),
    Key::<FlowDraft>::new("gso_packets", Takes::Whole32(1, BATCH_MAX, |flow, n| flow.machine(|it| it.gso_packets = n))).doc("packets per send call (GSO): the sender waits for the time of the last packet, at most 0.5 ms, and \
         sends all packets back to back")
    .or(1.0)
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.machine.gso_packets > 1), REAL_MACHINE),
    Key::<FlowDraft>::new("gro_packets", Takes::Whole32(1, BATCH_MAX, |flow, n| flow.machine(|it| it.gro_packets = n))).doc("packets per receive call (GRO): the receiver gets fewer if no packet follows within 0.3 ms; all \
         packets have the arrival time of the last")
    .or(1.0)
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.machine.gro_packets > 1), REAL_MACHINE),
    Key::<FlowDraft>::new("ack_bunch_ms", Takes::Millis(AWAY_MS, |flow, ms| flow.machine(|it| it.ack_bunch = ms)))
        .doc("interval at which the sender reads ACKs; ACKs wait until the end of the interval")
    .or(0.0)
    .of(SABUL)
    .not_in_lab(
        |flow| flow.plan.sabul().is_some_and(|it| it.machine.ack_bunch > Span::ZERO),
        REAL_MACHINE,
    ),
    Key::<FlowDraft>::new("busy_ms", Takes::Millis(AWAY_MS, |flow, ms| flow.machine(|it| it.busy = ms)))
        .doc("maximum length of random pauses of both hosts; the pauses take half of the time")
    .or(0.0)
    .of(SABUL)
    .not_in_lab(
        |flow| flow.plan.sabul().is_some_and(|it| it.machine.busy > Span::ZERO),
        REAL_MACHINE,
    ),
    Key::<FlowDraft>::new("path", Takes::Own("a list of links, each once"))
        .doc("links in the data direction; the reverse direction has the reverse order")
    .required("a list of links"),
    Key::<FlowDraft>::new("reverse", Takes::Flag(|flow, is| flow.plan.is_reverse = is)).doc("`true` sends the data in the reverse direction, beside the ACKs of other flows: [two-way \
         traffic](#two-way-traffic)")
    .or_flag(false)
    .not_in_lab(|flow| flow.plan.is_reverse, ONLY_ONE_WAY),
    Key::<FlowDraft>::new("rtt_ms", Takes::Millis(RTT_MS, |flow, ms| flow.rtt = Some(ms)))
        .doc("base RTT, at least twice the delay of the path; access delay supplies the difference")
    .against(&["access_delay_ms"]),
    Key::<FlowDraft>::new("access_delay_ms", Takes::Millis(sabul_net::DELAY_MS, |flow, ms| flow.plan.access_delay = ms))
        .doc("one-way delay of this flow in addition to the delay of the links")
    .or(0.0)
    .against(&["rtt_ms"]),
    Key::<FlowDraft>::new("start_s", Takes::Seconds(SECONDS, |flow, s| flow.plan.start = Instant::ZERO + s))
        .doc("start time; before `duration_s`")
    .or(0.0),
    Key::<FlowDraft>::new("stop_s", Takes::Seconds(SECONDS, |flow, s| flow.plan.stop = Some(Instant::ZERO + s)))
        .doc("end time; after `start_s`")
    .or_else("end of the run"),
    Key::<FlowDraft>::new("bytes", Takes::Whole(1, BYTES_MAX, |flow, bytes| flow.plan.size = FlowSize::Bytes(bytes)))
        .doc("size of the flow in bytes")
    .or_else("unlimited")
    .of(OURS)
    .elsewhere(PROGRAM_SENDS)
    .against(&["size"]),
    Key::<FlowDraft>::new("size", Takes::Table(|| names(SIZE), SIZE_EXAMPLE))
        .doc("[distribution of the size](#size)")
        .or_else("unlimited")
        .of(OURS)
        .elsewhere(PROGRAM_SENDS)
        .against(&["bytes"]),
    Key::<FlowDraft>::new("arrivals", Takes::Table(|| names(ARRIVALS), ARRIVALS_EXAMPLE))
        .doc("[arrival process of the copies](#arrivals)")
    .or_else("start of all copies at once")
    .of(OURS)
    .elsewhere(PROGRAM_ONCE)
    .against(&["count", "spread_s"]),
    Key::<FlowDraft>::new("count", Takes::Whole32(1, COUNT_MAX, |flow, n| flow.together(|count, _| *count = n)))
        .doc("number of copies of the flow; at most 10^6 copies of all flows together")
    .or(1.0)
    .of(OURS)
    .elsewhere(PROGRAM_ONCE)
    .against(&["arrivals"]),
    Key::<FlowDraft>::new("spread_s", Takes::Seconds(SECONDS, |flow, s| flow.together(|_, spread| *spread = s)))
        .doc("the copies start at random times within this time; at most the lifetime of the flow")
    .or(0.0)
    .of(OURS)
    .elsewhere("remove this key: a program runs once; use start_s")
    .against(&["arrivals"]),
    // From the least IPv4 datagram that every host accepts [RFC791 §3.1] to the largest; the usual
    // Ethernet MTU.
    Key::<FlowDraft>::new("packet_bytes", Takes::Whole32(576, 65_535, |flow, bytes| flow.plan.packet_bytes = bytes))
        .doc("size of a full packet including the IP header; at most the `mtu` of the path")
    .or(1_500.0),
    Key::<FlowDraft>::new("window_packets", Takes::Whole(1, PACKETS_MAX, |flow, n| flow.plan.window_packets = Some(n)))
        .doc("maximum number of unacknowledged packets; at least 2 for `sabul`")
    .or_else("default of the transport")
    .of(WITH_WINDOW),
    Key::<FlowDraft>::new("initial_window", Takes::Whole32(1, 100_000, |flow, n| flow.tcp(|ends| ends.initial_window = n)))
        .doc("initial window, in packets")
    .or(INITIAL_WINDOW as f64)
    .of(TCP)
    .not_in_lab(
        |flow| flow.plan.tcp().is_some_and(|ends| ends.initial_window != INITIAL_WINDOW),
        "the initial window of the kernel's TCP is 10; remove this key",
    ),
    Key::<FlowDraft>::new("ecn", Takes::Flag(|flow, is| flow.tcp(|ends| ends.is_ecn_capable = is)))
        .doc("`true` negotiates ECN")
    .or_flag(false)
    .of(TCP),
    Key::<FlowDraft>::new("streams", Takes::Whole32(1, 256, |flow, n| flow.tcp(|ends| ends.streams = n)))
        .doc("number of TCP connections that share the data of the flow")
    .or(1.0)
    .of(TCP)
    .elsewhere("remove this key; count creates several flows of a kind")
    .not_in_lab(
        |flow| flow.plan.tcp().is_some_and(|ends| ends.streams > 1),
        "only the simulator supports several connections per flow; use count for separate flows",
    ),
    Key::<FlowDraft>::new("striping", Takes::Word(&["round-robin", "on-demand"], |flow, word| {
            flow.tcp(|ends| {
                ends.striping = match word {
                    "on-demand" => Striping::OnDemand,
                    _ => Striping::RoundRobin,
                }
            });
        })).doc("assignment of 64 KiB blocks of `bytes` to `streams`: `round-robin`, in turn, so that the slowest \
         connection ends last [PSockets]; `on-demand`, to a connection without data, as in GridFTP")
    .or_word("round-robin")
    .of(TCP),
    Key::<FlowDraft>::new("command", Takes::Own("a list of 1 to 200 texts"))
        .doc("program with arguments, on the near host")
    .required("the program to run")
    .of(COMMAND)
    .elsewhere("remove this key, or use transport command"),
    Key::<FlowDraft>::new("peer_command", Takes::Own("a list of up to 200 texts"))
        .doc("program with arguments on the far host; starts before `command`")
    .or_else("none")
    .of(COMMAND)
    .elsewhere("remove this key, or use transport command"),
];
