//! A flow of a run, and the keys of a `[[flow]]`, each beside the field that it fills.

use sabul_cc::registry::{self, Entry};
use sabul_cc::{PathFacts, Policy};
use sabul_path::Way;
use sabul_units::key::{Key, Range, Takes, names};
use sabul_units::{Instant, Rate, Span};
use sabul_wire::DATA_OVERHEAD;

use crate::size::{
    ARRIVALS, ARRIVALS_EXAMPLE, Arrivals, COUNT_MAX, FlowSize, SECONDS, SIZE, SIZE_EXAMPLE,
};

/// DATA on the wire beyond its payload: IPv4 and UDP headers, our header and tag.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
pub const DATA_HEADERS: u32 = 28 + DATA_OVERHEAD as u32;

/// Bytes of a block where an application is slower than its end could be.
pub const PACED_BLOCK_BYTES: u32 = 1 << 16;
/// Blocks for which a slow receiving application has room.
pub const SINK_BLOCKS: u32 = 16;

/// Who carries a flow's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The protocol of this project.
    Sabul,
    /// TCP with selective acknowledgement.
    Tcp,
    /// Packets at a constant rate that nobody answers.
    UdpCbr,
    /// Whatever a program of the user's sends; only where programs run, which is the lab.
    Command,
}

impl Transport {
    /// Its name in files and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sabul => "sabul",
            Self::Tcp => "tcp",
            Self::UdpCbr => "udp-cbr",
            Self::Command => "command",
        }
    }
}

/// Who carries a flow, with what only that carrier has.
#[derive(Clone, Debug, PartialEq)]
pub enum Carrier {
    /// The protocol of this project.
    Sabul(SabulEnds),
    /// TCP: simulated, or the kernel's.
    Tcp(TcpEnds),
    /// Packets at a constant rate.
    UdpCbr {
        /// That rate, IP headers included.
        rate: Rate,
    },
    /// Programs of the user's. `{near}` and `{far}` in an argument stand for the hosts' addresses, which
    /// whoever makes the hosts puts in.
    Command {
        /// The program and its arguments, for the near host.
        near: Vec<String>,
        /// The same for the far host, started before; empty where there is none.
        far: Vec<String>,
    },
}

impl Carrier {
    /// Which transport that is.
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
    /// One with nothing asked for; where there is no default, a rate of 1 Mb/s or no program.
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
    /// What the controller is told of an earlier flow.
    pub fn remembered(&self) -> Option<PathFacts> {
        Some(PathFacts { rate: self.remembered_rate?, rtt: self.remembered_rtt? })
    }

    /// Whether the circuit breaker is around a controller of this name: where the scenario does not say, around this
    /// project's own.
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

/// The two ends of a flow over the protocol of this project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SabulEnds {
    /// Which published protocol the channel follows.
    pub profile: Profile,
    /// Faults of that protocol's first implementation.
    pub defects: Defects,
    /// How the flow stands beside others; anything but fair only with a controller that follows policies.
    pub policy: Policy,
    /// Whether the circuit breaker is around the controller; by default, as [`Self::has_breaker`] returns.
    pub breaker: Option<bool>,
    /// What an earlier flow carried on what may be the same path; goes with the next.
    pub remembered_rate: Option<Rate>,
    /// The smallest round trip of that flow.
    pub remembered_rtt: Option<Span>,
    /// The sending host's own interface, which makes the sender wait where a queue on the way would drop.
    pub nic_rate: Option<Rate>,
    /// The application at the sending end produces at this rate; at once where none.
    pub source_rate: Option<Rate>,
    /// The application at the receiving end takes at this rate, with [`SINK_BLOCKS`] of
    /// [`PACED_BLOCK_BYTES`] for what it has not taken; at once where none.
    pub sink_rate: Option<Rate>,
    /// What the machines under both ends do to time.
    pub machine: Machine,
}

/// What the machines under both ends of a flow do to time; both are punctual by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Packets that leave back to back when pacing lets the last of them go; 1 or more.
    pub gso_packets: u32,
    /// Packets that the receiving end sees at a time, with one time of arrival; 1 or more.
    pub gro_packets: u32,
    /// What comes back is seen at the ends of intervals of this length.
    pub ack_bunch: Span,
    /// The processor of each end is away half of the time, for up to this long.
    pub busy: Span,
}

impl Default for Machine {
    fn default() -> Self {
        Self { gso_packets: 1, gro_packets: 1, ack_bunch: Span::ZERO, busy: Span::ZERO }
    }
}

/// The two ends of a flow over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpEnds {
    /// First window, in packets.
    pub initial_window: u32,
    /// Whether it negotiates ECN.
    pub is_ecn_capable: bool,
    /// Connections that carry the flow between them, 1 or more.
    pub streams: u32,
    /// Which of them carries what.
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

/// Which of the published protocols the channel of a `sabul` flow behaves as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// As shipped.
    #[default]
    Current,
    /// \[SABUL\]: data sequence numbers, repeats after k × RTT, reports on a TCP connection.
    Sabul2003,
    /// [OVV-T §II], [OVV04 §2]: SYN and ERR reports on a TCP connection, each at its own interval.
    Sabul2002,
}

/// Faults of the first implementation that belong to its channel or host [OVV04 §3]; those of its
/// rate control are parameters of `sabul2002`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defects {
    /// Losses are reported again every 20 ms, not after k × RTT. Item 4.
    pub periodic_err: bool,
    /// The round trip is measured once. Item 3.
    pub rtt_once: bool,
    /// After a second of silence everything outstanding is sent again.
    pub expire_all: bool,
    /// The sender reads one report for each DATA packet that it sends, so SYN reports come late and
    /// in bunches where there are many ERR reports. Effect (ii).
    pub one_report_per_packet: bool,
}

/// How the blocks of one stream are dealt out to several connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Striping {
    /// In turn, whoever is faster: the flow lasts as long as its slowest connection. \[PSockets\]
    #[default]
    RoundRobin,
    /// The next one to whoever has nothing left to send, as GridFTP's extended block mode allows.
    OnDemand,
}

/// A flow, or a kind of flows that arrive one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// Its name.
    pub id: String,
    /// Who carries it.
    pub carrier: Carrier,
    /// Registry name of its controller; where TCP is the kernel's, the kernel's name for it. Empty
    /// for constant-rate flows, and for the system's own choice of a program's TCP.
    pub cc: String,
    /// Parameters of the controller.
    pub params: Vec<(String, String)>,
    /// Links in order, as positions in [`Scenario::links`](crate::scenario::Scenario::links); the way
    /// back mirrors them.
    pub path: Vec<usize>,
    /// Whether its data goes the way back, and its ACKs the way of other flows' data.
    pub is_reverse: bool,
    /// One-way delay of the hosts' own access, added to that of the links in each direction.
    pub access_delay: Span,
    /// When it starts, or its first copy may.
    pub start: Instant,
    /// When it stops sending; the end of the run where none.
    pub stop: Option<Instant>,
    /// How much it sends.
    pub size: FlowSize,
    /// How many there are of it, and when.
    pub arrivals: Arrivals,
    /// Size of a full packet, IP header included.
    pub packet_bytes: u32,
    /// Most packets a flow may have unacknowledged (TCP receive window, SABUL flow window).
    pub window_packets: Option<u64>,
}

impl FlowPlan {
    /// An endless flow from the start with nothing else asked for.
    pub fn new(id: &str, carrier: impl Into<Carrier>, cc: &str, path: Vec<usize>) -> Self {
        let carrier = carrier.into();
        let defaults = FlowDraft::new(carrier.clone()).plan;
        Self { id: id.to_owned(), carrier, cc: cc.to_owned(), path, ..defaults }
    }

    /// One to which no key has been applied yet.
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

    /// The direction of links that carries what goes `way` between the ends of the flow; and the other way round.
    #[must_use]
    pub const fn way(&self, way: Way) -> Way {
        if self.is_reverse { way.other() } else { way }
    }

    /// Who carries it, by name.
    pub const fn transport(&self) -> Transport {
        self.carrier.transport()
    }

    /// The ends of a flow over the protocol of this project.
    pub const fn sabul(&self) -> Option<&SabulEnds> {
        match &self.carrier {
            Carrier::Sabul(ends) => Some(ends),
            _ => None,
        }
    }

    /// The ends of a flow over TCP.
    pub const fn tcp(&self) -> Option<&TcpEnds> {
        match &self.carrier {
            Carrier::Tcp(ends) => Some(ends),
            _ => None,
        }
    }

    /// The rate of a constant-rate flow.
    pub const fn constant_rate(&self) -> Option<Rate> {
        match &self.carrier {
            Carrier::UdpCbr { rate } => Some(*rate),
            _ => None,
        }
    }

    /// The programs of the near and of the far host; empty where there is none.
    pub fn commands(&self) -> (&[String], &[String]) {
        match &self.carrier {
            Carrier::Command { near, far } => (near, far),
            _ => (&[], &[]),
        }
    }

    /// Payload of a full packet of this flow; of a program's, as if it spoke TCP.
    pub fn payload_bytes(&self) -> u32 {
        let headers = match self.transport() {
            Transport::Sabul => DATA_HEADERS,
            Transport::Tcp | Transport::Command => 40,
            Transport::UdpCbr => 28,
        };
        self.packet_bytes.saturating_sub(headers).max(1)
    }
}

/// What the keys of a `[[flow]]` fill: the flow, and what becomes something else once its path and
/// controller are known.
#[derive(Clone, Debug)]
pub struct FlowDraft {
    /// The flow so far.
    pub plan: FlowPlan,
    /// Base round trip of path and access together, where one is asked for.
    pub rtt: Option<Span>,
    /// The controller's parameter of that name, where the flow sets it.
    pub rate_mbps_initial: Option<f64>,
}

impl FlowDraft {
    /// A flow of which only the carrier is known, with the defaults of [`FLOW`].
    pub fn new(carrier: Carrier) -> Self {
        let plan = FlowPlan::blank(carrier);
        let mut draft = Self { plan, rtt: None, rate_mbps_initial: None };
        for key in FLOW {
            key.put_default(&mut draft).expect("the default of a key is a value of it, and tested");
        }
        draft
    }

    /// Why the lab cannot carry a finished flow, and the key that asks for it; `None` where it can.
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

/// The rates that hosts and applications may have, in Mb/s: those of links.
const RATE_MBPS: Range = sabul_path::RATE_MBPS;
/// Twice the longest delay of a link.
const RTT_MS: Range = Range::of(0.0, 2.0 * sabul_path::DELAY_MS.high);
/// The longest for which a machine is late, in milliseconds.
const REMEMBERED_RTT_MS: Range = Range::of(0.01, 60_000.0);
const AWAY_MS: Range = Range::of(0.0, 1000.0);
/// Most packets that a machine handles together, as the kernel's offloading.
const BATCH_MAX: u32 = 64;
/// The most that a flow sends.
const BYTES_MAX: u64 = 1_000_000_000_000_000;
/// Most packets of a window.
const PACKETS_MAX: u64 = 1_000_000_000;

const SABUL: &[&str] = &["sabul"];
const TCP: &[&str] = &["tcp"];
const WITH_WINDOW: &[&str] = &["sabul", "tcp"];
const COMMAND: &[&str] = &["command"];
/// Transports whose traffic is made here and not by a program of the user's.
const OURS: &[&str] = &["sabul", "tcp", "udp-cbr"];

/// Who may carry a flow.
pub const TRANSPORTS: &[&str] = &["sabul", "tcp", "udp-cbr", "command"];
/// Faults of the first implementation that belong to its channel or host. [OVV04 §3]
const DEFECTS: &[&str] = &["periodic-err", "rtt-once", "expire-all", "one-report-per-packet"];

const PROGRAM_SENDS: &str = "leave it out: the program knows what it sends";
const PROGRAM_ONCE: &str = "leave it out: a program runs once; use a flow for each";
const ONLY_SIMULATED: &str =
    "which only the simulator knows; leave it out, or put a link of that rate into its path";
const ONLY_ONE_WAY: &str = "since its hosts send data one way; leave it out, or use the simulator";
const REAL_MACHINE: &str =
    "which only the simulator has: here the machine itself is late; leave it out";
const ONLY_2002: &str = "which is the implementation of 2002, and only the simulator has that";
/// What the kernel sends at first, and no socket option changes. [RFC6928 §2]
const INITIAL_WINDOW: u32 = 10;

/// Keys of a `[[flow]]`, in the order in which they take effect. The transport is read before all others:
/// it makes the carrier that they fill.
pub const FLOW: &[Key<FlowDraft>] = &[
    Key::<FlowDraft>::new("id", Takes::Own("a name"), "").required("a name"),
    Key::<FlowDraft>::new(
        "transport",
        Takes::Word(TRANSPORTS, |_, _| {}),
        "`udp-cbr`: a constant rate that nobody answers; `command`: [a program](#programs), lab only",
    )
    .or_word("sabul"),
    Key::<FlowDraft>::new(
        "cc",
        Takes::Own("a name of `sabul cc list`; in the lab, for `tcp` and `command`, [one of the kernel's](#in-the-lab)"),
        "its controller",
    )
    .or_else("`sabul`: the default of `sabul cc list`; `tcp`: `cubic`; `command`: the system's")
    .of(&["sabul", "tcp", "command"])
    .elsewhere("leave it out: nothing controls a constant rate"),
    Key::<FlowDraft>::new(
        "params",
        Takes::Map,
        "the controller's own settings: `sabul cc show NAME`; not for `tcp` in the lab",
    )
    .or_else("the controller's")
    .of(WITH_WINDOW),
    Key::<FlowDraft>::new(
        "rate_mbps_initial",
        Takes::Number(Range::of(0.0, 1e6), |flow, mbps| flow.rate_mbps_initial = Some(mbps)),
        "short for the controller's parameter of that name, with its own range",
    )
    .or_else("the controller's")
    .of(SABUL)
    .elsewhere("leave it out; a constant rate is rate_mbps"),
    Key::<FlowDraft>::new(
        "rate_mbps",
        Takes::Mbps(RATE_MBPS, |flow, mbps| {
            if let Carrier::UdpCbr { rate } = &mut flow.plan.carrier {
                *rate = mbps;
            }
        }),
        "the constant rate, IP headers included",
    )
    .required("the rate of the flow, in megabits per second")
    .of(&["udp-cbr"])
    .elsewhere("leave it out; sabul begins at rate_mbps_initial"),
    Key::<FlowDraft>::new(
        "profile",
        Takes::Word(&["current", "sabul2003", "sabul2002"], |flow, word| {
            flow.sabul(|ends| {
                ends.profile = match word {
                    "sabul2003" => Profile::Sabul2003,
                    "sabul2002" => Profile::Sabul2002,
                    _ => Profile::Current,
                }
            });
        }),
        "the published protocol that the channel follows",
    )
    .or_else("`current`; with cc `sabul2002` that")
    .of(SABUL)
    .not_in_lab(
        |flow| flow.plan.sabul().is_some_and(|ends| ends.profile == Profile::Sabul2002),
        ONLY_2002,
    ),
    Key::<FlowDraft>::new(
        "defects",
        Takes::Words(DEFECTS, FlowDraft::defect),
        "profile `sabul2002`: faults of its first implementation [OVV04 §3]",
    )
    .or_else("none")
    .of(SABUL)
    .not_in_lab(
        |flow| flow.plan.sabul().is_some_and(|ends| ends.defects != Defects::default()),
        ONLY_2002,
    ),
    Key::<FlowDraft>::new(
        "policy",
        Takes::Word(&["fair", "high", "low"], |flow, word| {
            if let Some(policy) = Policy::named(word) {
                flow.sabul(|ends| ends.policy = policy);
            }
        }),
        "how it stands beside others: like one of them, as two, or only with what they leave; the last two with a \
         controller that follows policies, which `sabul cc show` says",
    )
    .or_word("fair")
    .of(SABUL),
    Key::<FlowDraft>::new(
        "breaker",
        Takes::Word(&["on", "off"], |flow, word| {
            flow.sabul(|ends| ends.breaker = Some(word == "on"));
        }),
        "the circuit breaker that ends sustained heavy loss; in the lab it is always on, as on the wire",
    )
    .or_else("on for this project's own controllers, off for published ones")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.breaker == Some(false)), ONLY_SIMULATED),
    Key::<FlowDraft>::new(
        "remembered_mbps",
        Takes::Mbps(RATE_MBPS, |flow, mbps| flow.sabul(|ends| ends.remembered_rate = Some(mbps))),
        "what an earlier flow carried on this path, as it is told to a controller that remembers paths; with `remembered_rtt_ms`",
    )
    .or_else("nothing is remembered")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.remembered_rate.is_some()), ONLY_SIMULATED),
    Key::<FlowDraft>::new(
        "remembered_rtt_ms",
        Takes::Millis(REMEMBERED_RTT_MS, |flow, ms| flow.sabul(|ends| ends.remembered_rtt = Some(ms))),
        "the smallest round trip of that flow",
    )
    .or_else("nothing is remembered")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.remembered_rtt.is_some()), ONLY_SIMULATED),
    Key::<FlowDraft>::new(
        "nic_mbps",
        Takes::Mbps(RATE_MBPS, |flow, mbps| flow.sabul(|ends| ends.nic_rate = Some(mbps))),
        "rate of the sending host's own interface, which makes the sender wait instead of dropping",
    )
    .or_else("100 000")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|ends| ends.nic_rate.is_some()), ONLY_SIMULATED),
    Key::<FlowDraft>::new(
        "source_mbps",
        Takes::Mbps(RATE_MBPS, |flow, mbps| flow.sabul(|ends| ends.source_rate = Some(mbps))),
        "the sending application produces at this rate",
    )
    .or_else("none: at once")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.source_rate.is_some()), ONLY_SIMULATED),
    Key::<FlowDraft>::new(
        "sink_mbps",
        Takes::Mbps(RATE_MBPS, |flow, mbps| flow.sabul(|ends| ends.sink_rate = Some(mbps))),
        "the receiving application takes at this rate, with 1 MiB of room",
    )
    .or_else("none: at once")
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.sink_rate.is_some()), ONLY_SIMULATED),
    Key::<FlowDraft>::new(
        "gso_packets",
        Takes::Whole32(1, BATCH_MAX, |flow, n| flow.machine(|it| it.gso_packets = n)),
        "the sending end wakes when the last of so many is due, at most 0.5 ms late, and sends them back to back",
    )
    .or(1.0)
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.machine.gso_packets > 1), REAL_MACHINE),
    Key::<FlowDraft>::new(
        "gro_packets",
        Takes::Whole32(1, BATCH_MAX, |flow, n| flow.machine(|it| it.gro_packets = n)),
        "the receiving end sees so many at a time, or fewer where none follows within 0.3 ms, all with the time of the last",
    )
    .or(1.0)
    .of(SABUL)
    .not_in_lab(|flow| flow.plan.sabul().is_some_and(|it| it.machine.gro_packets > 1), REAL_MACHINE),
    Key::<FlowDraft>::new(
        "ack_bunch_ms",
        Takes::Millis(AWAY_MS, |flow, ms| flow.machine(|it| it.ack_bunch = ms)),
        "the sending end sees what came back at the ends of intervals of this length",
    )
    .or(0.0)
    .of(SABUL)
    .not_in_lab(
        |flow| flow.plan.sabul().is_some_and(|it| it.machine.ack_bunch > Span::ZERO),
        REAL_MACHINE,
    ),
    Key::<FlowDraft>::new(
        "busy_ms",
        Takes::Millis(AWAY_MS, |flow, ms| flow.machine(|it| it.busy = ms)),
        "the processor of each end is away half of the time, for drawn spans of up to this",
    )
    .or(0.0)
    .of(SABUL)
    .not_in_lab(
        |flow| flow.plan.sabul().is_some_and(|it| it.machine.busy > Span::ZERO),
        REAL_MACHINE,
    ),
    Key::<FlowDraft>::new(
        "path",
        Takes::Own("a list of links, each once"),
        "in order; the way back mirrors it",
    )
    .required("a list of links"),
    Key::<FlowDraft>::new(
        "reverse",
        Takes::Flag(|flow, is| flow.plan.is_reverse = is),
        "its data goes the way back of its path, beside the ACKs of other flows, and its ACKs go beside their data: [two-way traffic](#two-way-traffic)",
    )
    .or_flag(false)
    .not_in_lab(|flow| flow.plan.is_reverse, ONLY_ONE_WAY),
    Key::<FlowDraft>::new(
        "rtt_ms",
        Takes::Millis(RTT_MS, |flow, ms| flow.rtt = Some(ms)),
        "base round trip, at least twice the delays of its path; access delay makes up the rest",
    )
    .against(&["access_delay_ms"]),
    Key::<FlowDraft>::new(
        "access_delay_ms",
        Takes::Millis(sabul_path::DELAY_MS, |flow, ms| flow.plan.access_delay = ms),
        "one way, beside the links",
    )
    .or(0.0)
    .against(&["rtt_ms"]),
    Key::<FlowDraft>::new(
        "start_s",
        Takes::Seconds(SECONDS, |flow, s| flow.plan.start = Instant::ZERO + s),
        "before `duration_s`",
    )
    .or(0.0),
    Key::<FlowDraft>::new(
        "stop_s",
        Takes::Seconds(SECONDS, |flow, s| flow.plan.stop = Some(Instant::ZERO + s)),
        "after `start_s`",
    )
    .or_else("the end of the run"),
    Key::<FlowDraft>::new(
        "bytes",
        Takes::Whole(1, BYTES_MAX, |flow, bytes| flow.plan.size = FlowSize::Bytes(bytes)),
        "what it sends",
    )
    .or_else("no end")
    .of(OURS)
    .elsewhere(PROGRAM_SENDS)
    .against(&["size"]),
    Key::<FlowDraft>::new("size", Takes::Table(|| names(SIZE), SIZE_EXAMPLE), "[the same, by a distribution](#size)")
        .or_else("no end")
        .of(OURS)
        .elsewhere(PROGRAM_SENDS)
        .against(&["bytes"]),
    Key::<FlowDraft>::new("arrivals", Takes::Table(|| names(ARRIVALS), ARRIVALS_EXAMPLE), "[how its copies arrive](#arrivals)")
        .or_else("all at the start")
        .of(OURS)
        .elsewhere(PROGRAM_ONCE)
        .against(&["count", "spread_s"]),
    Key::<FlowDraft>::new(
        "count",
        Takes::Whole32(1, COUNT_MAX, |flow, n| flow.together(|count, _| *count = n)),
        "copies of the flow; 10^6 in all flows together",
    )
    .or(1.0)
    .of(OURS)
    .elsewhere(PROGRAM_ONCE)
    .against(&["arrivals"]),
    Key::<FlowDraft>::new(
        "spread_s",
        Takes::Seconds(SECONDS, |flow, s| flow.together(|_, spread| *spread = s)),
        "they start within this time, each at a drawn moment; at most the flow's life",
    )
    .or(0.0)
    .of(OURS)
    .elsewhere("leave it out: a program runs once; use start_s")
    .against(&["arrivals"]),
    // From the least IPv4 datagram that every host takes [RFC791 §3.1] to the largest; the usual
    // Ethernet MTU.
    Key::<FlowDraft>::new(
        "packet_bytes",
        Takes::Whole32(576, 65_535, |flow, bytes| flow.plan.packet_bytes = bytes),
        "a full packet, IP header included; at most the `mtu` of its path",
    )
    .or(1_500.0),
    Key::<FlowDraft>::new(
        "window_packets",
        Takes::Whole(1, PACKETS_MAX, |flow, n| flow.plan.window_packets = Some(n)),
        "most packets unacknowledged",
    )
    .or_else("the transport's")
    .of(WITH_WINDOW),
    Key::<FlowDraft>::new(
        "initial_window",
        Takes::Whole32(1, 100_000, |flow, n| flow.tcp(|ends| ends.initial_window = n)),
        "first window, in packets",
    )
    .or(INITIAL_WINDOW as f64)
    .of(TCP)
    .not_in_lab(
        |flow| flow.plan.tcp().is_some_and(|ends| ends.initial_window != INITIAL_WINDOW),
        "and the kernel's TCP starts with 10",
    ),
    Key::<FlowDraft>::new(
        "ecn",
        Takes::Flag(|flow, is| flow.tcp(|ends| ends.is_ecn_capable = is)),
        "whether it negotiates ECN",
    )
    .or_flag(false)
    .of(TCP),
    Key::<FlowDraft>::new(
        "streams",
        Takes::Whole32(1, 256, |flow, n| flow.tcp(|ends| ends.streams = n)),
        "connections that carry the flow between them",
    )
    .or(1.0)
    .of(TCP)
    .elsewhere("leave it out; several flows of a kind are count")
    .not_in_lab(
        |flow| flow.plan.tcp().is_some_and(|ends| ends.streams > 1),
        "which only the simulator has; count gives as many flows of their own",
    ),
    Key::<FlowDraft>::new(
        "striping",
        Takes::Word(&["round-robin", "on-demand"], |flow, word| {
            flow.tcp(|ends| {
                ends.striping = match word {
                    "on-demand" => Striping::OnDemand,
                    _ => Striping::RoundRobin,
                }
            });
        }),
        "which of the `streams` carries what of `bytes`, in blocks of 64 KiB: in turn, so that the flow \
         lasts as long as its slowest connection [PSockets], or whoever has nothing left, as GridFTP may",
    )
    .or_word("round-robin")
    .of(TCP),
    Key::<FlowDraft>::new(
        "command",
        Takes::Own("a list of 1 to 200 texts"),
        "the program and its arguments, in the near host",
    )
    .required("the program to run")
    .of(COMMAND)
    .elsewhere("leave it out, or use transport command"),
    Key::<FlowDraft>::new(
        "peer_command",
        Takes::Own("a list of up to 200 texts"),
        "the same in the far host, started before",
    )
    .or_else("none")
    .of(COMMAND)
    .elsewhere("leave it out, or use transport command"),
];
