//! What a simulated or emulated run is made of: links, flows and how long.
//!
//! Plain values, already checked; the text form of the same is read elsewhere. Flows and links are
//! named by position here.

use sabul_units::{Instant, Rate, Span};
use sabul_wire::DATA_OVERHEAD;

use sabul_path::LinkPlan;

/// DATA on the wire beyond its payload: IPv4 and UDP headers, our header and tag.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
pub const DATA_HEADERS: u32 = 28 + DATA_OVERHEAD as u32;

/// Bytes of a block where an application is slower than its end could be.
pub const PACED_BLOCK_BYTES: u32 = 1 << 16;
/// Blocks for which a slow receiving application has room.
pub const SINK_BLOCKS: u32 = 16;

/// A whole experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// How long it runs.
    pub duration: Span,
    /// Left out of averages.
    pub warmup: Span,
    /// Time between two rows of the series.
    pub sample: Span,
    /// Where all chance comes from.
    pub seed: u64,
    /// The links, in both directions each.
    pub links: Vec<LinkPlan>,
    /// The flows.
    pub flows: Vec<FlowPlan>,
}

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

/// How much a flow sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowSize {
    /// Until it is stopped.
    Endless,
    /// This many payload bytes.
    Bytes(u64),
    /// Drawn for each arrival: Pareto with this shape and mean, in packets. \[ECC\]
    Pareto {
        /// Tail index, over 1.
        shape: f64,
        /// Mean, in packets.
        mean_packets: f64,
    },
}

/// When the copies of a flow start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// All `count` of them within `spread` of the start, each at a drawn time.
    Together {
        /// How many.
        count: u32,
        /// Within this time; zero is at once.
        spread: Span,
    },
    /// One after another from the start to the stop, exponential times between them.
    Poisson {
        /// Mean time between two.
        mean_interval: Span,
    },
    /// So many at a time: whenever one has all its bytes acknowledged, the next starts.
    Chain {
        /// How many in all.
        count: u32,
        /// How many at a time.
        parallel: u32,
    },
}

/// A flow, or a kind of flows that arrive one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// Its name.
    pub id: String,
    /// Who carries it.
    pub transport: Transport,
    /// Registry name of its controller; where TCP is the kernel's, the kernel's name for it. Empty
    /// for constant-rate flows, and for the system's own choice of a program's TCP.
    pub cc: String,
    /// Parameters of the controller.
    pub params: Vec<(String, String)>,
    /// Which published protocol the channel follows.
    pub profile: Profile,
    /// Faults of that protocol's first implementation.
    pub defects: Defects,
    /// Links in order, as positions in [`Scenario::links`]; the way back mirrors them.
    pub path: Vec<usize>,
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
    /// Rate of a constant-rate flow, IP headers included.
    pub rate: Option<Rate>,
    /// SABUL: the sending host's own interface, which makes the sender wait where a queue on the way
    /// would drop.
    pub nic_rate: Option<Rate>,
    /// SABUL: the application at the sending end produces at this rate; at once where none.
    pub source_rate: Option<Rate>,
    /// SABUL: the application at the receiving end takes at this rate, with [`SINK_BLOCKS`] of
    /// [`PACED_BLOCK_BYTES`] for what it has not taken; at once where none.
    pub sink_rate: Option<Rate>,
    /// Most packets a flow may have unacknowledged (TCP receive window, SABUL flow window).
    pub window_packets: Option<u64>,
    /// TCP: first window, in packets.
    pub initial_window: u32,
    /// TCP: whether it negotiates ECN.
    pub is_ecn_capable: bool,
    /// TCP: connections that carry the flow between them, 1 or more.
    pub streams: u32,
    /// TCP: which of them carries what.
    pub striping: Striping,
    /// Commands: the program and its arguments, for the near host. `{near}` and `{far}` in an
    /// argument stand for the hosts' addresses, which whoever makes the hosts puts in.
    pub command: Vec<String>,
    /// Commands: the same for the far host, started before; empty where there is none.
    pub peer_command: Vec<String>,
}

impl FlowPlan {
    /// An endless flow from the start, of packets of 1500 bytes, with nothing else asked for.
    pub fn new(id: &str, transport: Transport, cc: &str, path: Vec<usize>) -> Self {
        Self {
            id: id.to_owned(),
            transport,
            cc: cc.to_owned(),
            params: Vec::new(),
            profile: Profile::Current,
            defects: Defects::default(),
            path,
            access_delay: Span::ZERO,
            start: Instant::ZERO,
            stop: None,
            size: FlowSize::Endless,
            arrivals: Arrivals::Together { count: 1, spread: Span::ZERO },
            packet_bytes: 1500,
            rate: None,
            nic_rate: None,
            source_rate: None,
            sink_rate: None,
            window_packets: None,
            initial_window: 10,
            is_ecn_capable: false,
            streams: 1,
            striping: Striping::RoundRobin,
            command: Vec::new(),
            peer_command: Vec::new(),
        }
    }

    /// Payload of a full packet of this flow; of a program's, as if it spoke TCP.
    pub fn payload_bytes(&self) -> u32 {
        let headers = match self.transport {
            Transport::Sabul => DATA_HEADERS,
            Transport::Tcp | Transport::Command => 40,
            Transport::UdpCbr => 28,
        };
        self.packet_bytes.saturating_sub(headers).max(1)
    }
}
