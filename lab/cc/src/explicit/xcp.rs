//! XCP: routers signal each packet the change of its flow's throughput.
//!
//! Source: [XCP] for the law; its authors' module for ns-2 (`xcpq`, `xcp-end-sys`) for the form in
//! throughputs; DEV-083.
//! Model of a router, each T = clamp(d, 1 ms, 1 s), y the arrivals, Q the standing queue, C the capacity, in
//! bytes; of a packet rtt, X = rtt / window and s its size:
//!     d    = sum of rtt X / sum of X
//!     phi  = alpha (C - y) - beta Q / d,  shuffled = max(0, gamma y - |phi|)
//!     P    = max(phi, 0) + shuffled,  N = max(-phi, 0) + shuffled         to give, to take
//!     each packet: P / sum of X × X - N / sum of s × s, and at most P and N in total
//! A host adds the feedback of its packets: window += given × rtt / s, at least 1. Pacing sends one
//! window per RTT. A loss halves the window once per window of data, and a timeout sets it to 1, as
//! in TCP [RFC5681].
//! Stable for 0 < alpha < pi / (4 sqrt 2) and beta = alpha^2 sqrt 2.
//! At a link with n flows and a load y < C, flows limited by this link converge to gamma y / (n
//! (gamma - alpha (C - y) / y)). The link's use is then at least alpha / (alpha + gamma) = 0.8, and
//! these flows starve beside flows limited elsewhere.
//! Invariants:  1 <= window <= `WINDOW_MAX`; each packet's feedback counts once.
//! Not here:    the desynchronised router clocks of the ns-2 module.

use sabul_cc::registry::{Entry, Family};
use sabul_cc::router::{LinkState, RouterController, RouterEntry};
use sabul_cc::{
    Acked, ConfigError, Context, Controller, LossReport, ParamSpec, ParamValues, Phase, Reason,
    SendLimits, SentNumber, Unit, ack_interval,
};
use sabul_units::{Bytes, CongestionFields, CongestionForm, Packets, Span};

use super::host::{Explicit, FALLBACK_PARAM, INITIAL_PARAM, RISE_PARAM};
use super::number::{Number, rate_of};

/// ns-2's module: first interval, and RTT if no packet carries one, in seconds.
const RTT_START: f64 = 0.05;
/// ns-2's module: bounds of the interval, and least time over which a queue counts as persistent,
/// in seconds.
const INTERVAL: (f64, f64) = (0.001, 1.0);
const QUEUE_INTERVAL_MIN: f64 = 0.002;
/// Ours: far above any path's BDP, and exact in floating point.
const WINDOW_MAX: f64 = 1e9;
/// [RFC6928 §2] Packets before the first RTT sample.
const WINDOW_START: f64 = 10.0;
/// Ours: packets that a window may exceed the packets in flight by.
const WINDOW_SPARE: f64 = 64.0;
/// [RFC5681 §3.1] eq. 4: part of the window that a loss leaves.
const KEEP: f64 = 0.5;

pub(crate) const ENTRY: Entry = Entry::new("xcp", Family::Window, build)
    .summary("XCP: routers write the change of the flow's throughput into each packet")
    .source("[XCP] Katabi, Handley, Rohrs 2002; in throughputs as in ns-2")
    .params(&[INITIAL_PARAM, RISE_PARAM, FALLBACK_PARAM]);

pub(crate) const ROUTER: RouterEntry = RouterEntry {
    name: "xcp",
    form: CongestionForm::Xcp,
    params: &[
        ParamSpec::new("alpha", Unit::Number, "0.4", (0.01, 0.55))
            .doc("Part of the unused capacity that the router allocates per interval")
            .source("[XCP]; stable below pi / (4 sqrt 2)"),
        ParamSpec::new("beta", Unit::Number, "0.226", (0.0, 0.43))
            .doc("Part of the standing queue that the router drains per interval")
            .source("[XCP] alpha^2 sqrt 2"),
        ParamSpec::new("gamma", Unit::Number, "0.1", (0.0, 1.0))
            .doc("Part of the load that the router moves between flows per interval")
            .source("[XCP]"),
    ],
    build: |params, _capacity, _id| {
        let gains = ["alpha", "beta", "gamma"].map(|name| params.number(name));
        Ok(Box::new(XcpRouter::<f64>::new(gains)))
    },
};

fn build(params: &ParamValues, packet_bytes: Bytes) -> Result<Box<dyn Controller>, ConfigError> {
    let initial = params.rate(INITIAL_PARAM.name).0 as f64;
    let law = Xcp::new(initial, params.number(RISE_PARAM.name), packet_bytes);
    Explicit::built(Box::new(law), params, packet_bytes)
}

/// Host half.
#[derive(Debug)]
struct Xcp {
    /// Rate before the first window, in bits a second.
    initial: f64,
    rise: f64,
    packet_bytes: Bytes,
    /// RTT in seconds.
    rtt: Option<f64>,
    /// Longest delay of an ACK, as a part of the RTT.
    late: f64,
    /// Window in packets.
    window: f64,
    /// Losses up to this number have been responded to.
    recover: Option<SentNumber>,
}

impl Xcp {
    const fn new(initial: f64, rise: f64, packet_bytes: Bytes) -> Self {
        Self {
            initial,
            rise,
            packet_bytes,
            rtt: None,
            late: 0.0,
            window: WINDOW_START,
            recover: None,
        }
    }

    fn packet(&self) -> f64 {
        self.packet_bytes.0.max(1) as f64
    }

    /// Returns the time between two evenly spaced packets.
    fn interval(&self) -> Option<Span> {
        Some(Span::from_secs_f64(self.rtt? / self.window))
    }
}

impl Controller for Xcp {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 10^9")]
    fn limits(&self) -> SendLimits {
        let gap = self
            .interval()
            .map_or_else(|| rate_of(self.initial).gap(self.packet_bytes), sabul_units::Gap);
        // Pacing sends a window per RTT; packets that wait for the next ACK are in flight in
        // addition.
        let window = Packets((self.window * (1.0 + self.late)).ceil() as u64);
        SendLimits { gap, window: Some(window), hold_until: None }
    }

    fn header(&self) -> Option<CongestionFields> {
        let (Some(interval), Some(rtt)) = (self.interval(), self.rtt) else {
            return Some(CongestionForm::Xcp.blank());
        };
        // Feedback that multiplies the window by `rise` in one RTT; the guard would not permit
        // more.
        #[expect(clippy::cast_possible_truncation, reason = "casts saturate")]
        let delta = ((self.rise - 1.0) * self.packet() / rtt) as i64;
        Some(CongestionFields::Xcp { rtt: Span::from_secs_f64(rtt), interval, delta })
    }

    fn on_loss(&mut self, loss: &LossReport, cx: &mut Context<'_>) {
        let is_new = self.recover.is_none_or(|recover| loss.first_lost > recover);
        if loss.first_time > Packets(0) && is_new {
            cx.log_reason(Reason::LossEpoch);
            self.recover = Some(loss.largest_sent);
            self.window = (self.window * KEEP).max(1.0);
        }
    }

    fn on_timeout(&mut self, cx: &mut Context<'_>) {
        cx.log_reason(Reason::Own("silence"));
        self.window = 1.0;
    }

    fn on_ack(&mut self, acked: &Acked, cx: &mut Context<'_>) {
        self.packet_bytes = cx.packet_bytes;
        let Some(rtt) = cx.rtt else { return };
        let late = ack_interval(rtt.min).as_secs_f64();
        let rtt = rtt.smoothed.as_secs_f64().max(1e-6);
        self.late = (late / rtt).min(1.0);
        let packet = self.packet();
        if self.rtt.replace(rtt).is_none() {
            self.window = self.initial * rtt / packet / 8.0;
        }
        let given = acked.echo.map_or(0.0, |echo| echo.delta as f64) * rtt / packet;
        // Packets in flight bound an unused window, and forged feedback.
        let flight = acked.in_flight.0.saturating_add(acked.newly.0) as f64;
        let most = self.window.max(flight * self.rise + WINDOW_SPARE);
        self.window = (self.window + given).min(most).clamp(1.0, WINDOW_MAX);
    }

    fn phase(&self) -> Phase {
        if self.rtt.is_some() { Phase::Named("steady") } else { Phase::Named("start") }
    }
}

/// Amount left to give or to take in an interval, in bytes a second, and the amount per second of X
/// or per byte.
#[derive(Clone, Copy, Debug, Default)]
struct Budget<N> {
    left: N,
    each: N,
}

impl<N: Number> Budget<N> {
    fn new(all: f64, over: f64) -> Self {
        if over > 0.0 {
            Self { left: N::of(all), each: N::of(all / over) }
        } else {
            Self::default()
        }
    }

    /// Returns the share for this much of X or of bytes.
    #[inline]
    fn share(&self, of: f64) -> N {
        let share = self.each * N::of(of);
        if share > self.left { self.left } else { share }
    }

    #[inline]
    fn spend(&mut self, part: N) {
        let zero = N::default();
        if part < self.left {
            self.left = self.left - part;
        } else {
            (self.left, self.each) = (zero, zero);
        }
    }
}

/// Router half.
#[derive(Debug)]
struct XcpRouter<N> {
    alpha: f64,
    beta: f64,
    gamma: f64,
    /// Interval so far: bytes; sums of X and of rtt X over packets with an RTT.
    bytes: N,
    spacing: N,
    rtts: N,
    /// Amounts to give, over X, and to take, over bytes.
    give: Budget<N>,
    take: Budget<N>,
    /// Mean RTT in seconds.
    rtt: f64,
    /// Least queue so far, and least queue of the previous queue interval, in bytes.
    queue_min: u64,
    standing: u64,
    /// End of the queue interval, in seconds.
    queue_ends: f64,
}

impl<N: Number> XcpRouter<N> {
    fn new([alpha, beta, gamma]: [f64; 3]) -> Self {
        let zero = N::default();
        let budget = Budget { left: zero, each: zero };
        Self {
            alpha,
            beta,
            gamma,
            bytes: zero,
            spacing: zero,
            rtts: zero,
            give: budget,
            take: budget,
            rtt: RTT_START,
            queue_min: u64::MAX,
            standing: 0,
            queue_ends: 0.0,
        }
    }

    /// Updates the standing queue: the least queue of an interval.
    #[inline]
    fn note_queue(&mut self, link: &LinkState) {
        self.queue_min = self.queue_min.min(link.queue.0);
        let now = link.now.elapsed().as_secs_f64();
        if now >= self.queue_ends {
            (self.standing, self.queue_min) = (self.queue_min, link.queue.0);
            let rest = (self.rtt - link.queue_delay().as_secs_f64()) / 2.0;
            self.queue_ends = now + rest.max(QUEUE_INTERVAL_MIN);
        }
    }
}

impl<N: Number> RouterController for XcpRouter<N> {
    #[inline]
    fn on_arrival(&mut self, size: Bytes, fields: Option<&CongestionFields>, _link: &LinkState) {
        self.bytes = self.bytes + N::of(size.0 as f64);
        if let Some(CongestionFields::Xcp { rtt, interval, .. }) = fields
            && *rtt > Span::ZERO
        {
            let spacing = N::of(interval.as_secs_f64());
            let rtt = N::of(rtt.as_secs_f64().min(INTERVAL.1));
            self.spacing = self.spacing + spacing;
            self.rtts = self.rtts + rtt * spacing;
        }
    }

    /// At most six additions and three multiplications where this router or an earlier router
    /// decides alone; seven additions in between.
    #[inline]
    fn on_departure(&mut self, size: Bytes, fields: &mut CongestionFields, link: &LinkState) {
        self.note_queue(link);
        let CongestionFields::Xcp { rtt, interval, delta } = fields else { return };
        if *rtt == Span::ZERO {
            return;
        }
        let mut give = self.give.share(interval.as_secs_f64());
        let mut take = self.take.share(size.0 as f64);
        let wish = N::of(*delta as f64);
        let mut over = N::default();
        let is_ours = wish >= give || {
            over = give - wish;
            over <= take
        };
        if is_ours {
            #[expect(clippy::cast_possible_truncation, reason = "casts saturate")]
            let granted = (give - take).value() as i64;
            *delta = granted;
        } else {
            // Feedback that this flow does not use goes to others, as far as the amount to take
            // permits.
            take = over;
            if take > self.take.left {
                give = wish + self.take.left;
            }
        }
        self.give.spend(give);
        self.take.spend(take);
    }

    fn on_interval(&mut self, elapsed: Span, link: &LinkState) {
        let zero = N::default();
        let sum = |sum: &mut N| std::mem::replace(sum, zero).value();
        let (bytes, spacing) = (sum(&mut self.bytes), sum(&mut self.spacing));
        let rtts = sum(&mut self.rtts);
        self.rtt = if spacing > 0.0 { rtts / spacing } else { RTT_START };
        let load = bytes / elapsed.as_secs_f64();
        let capacity = link.capacity.0 as f64 / 8.0;
        let rtt = self.rtt.max(INTERVAL.0);
        let phi = self.alpha * (capacity - load) - self.beta * self.standing as f64 / rtt;
        let shuffled = (self.gamma * load - phi.abs()).max(0.0);
        self.give = Budget::new(phi.max(0.0) + shuffled, spacing);
        self.take = Budget::new((-phi).max(0.0) + shuffled, bytes);
    }

    fn interval(&self) -> Span {
        Span::from_secs_f64(self.rtt.clamp(INTERVAL.0, INTERVAL.1))
    }
}

#[cfg(test)]
#[path = "xcp/tests.rs"]
mod tests;
