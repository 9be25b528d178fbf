//! Flows over this project's protocol: memory-to-memory measurements by the library `sabul`.
//!
//! The far host has a listener, the near host a session with that listener, and each copy is a
//! transfer of the session. Preparation connects and runs an empty transfer, so that all handshakes
//! are done. A host's own thread starts everything that the library needs in that host (tasks,
//! threads, sockets).
//!
//! The receiving end counts arrivals until the transfer is complete: packets with new data, times
//! the payload of a full packet. If packets do not divide a block, the average payload per packet
//! counts. The first RTT counts slightly too much, while the packet size is still being discovered.
//! Sent, lost and in-flight packets are the sending end's counts, which the library updates every
//! 20 ms.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use sabul::server::Request;
use sabul::settings::{
    Carrier, Direction, LossPolicy, MeasureLimit, MemoryBudget, ReportCarrier, SendPolicy,
};
use sabul::{
    ChannelStats, ConnectConfig, Error, Listener, ListenerConfig, Policy, Session, Ticket,
    Transfer, TransferOptions,
};
use sabul_run::meter::{Counters, Gauges};
use sabul_run::scenario::{Arrivals, FlowPlan, FlowSize, Profile};
use sabul_units::{Bytes, Span};
use tokio::time::sleep;

use super::board::Board;
use super::copies::{self, Copy};
use super::task::{Engine, Task, averaged_rtt, runtime, start_thread};
use crate::clock::Clock;
use crate::error::LabError;

/// Most concurrent transfers of a session.
const COPIES_MAX: u32 = 256;
/// Memory for the blocks of all copies at one end, in bytes; and least and most memory of one copy.
const MEMORY_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_ONE: std::ops::RangeInclusive<u64> = 4 << 20..=256 << 20;
/// Assumed number of copies that share the memory if the number is not known.
const COPIES_GUESSED: u64 = 32;
/// Sizes of a block; the largest is also the simulator's largest.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4096..=1 << 20;
/// Interval at which the end of a copy is polled.
const TICK: Duration = Duration::from_millis(1);
/// Time limit of the preparation, and time for which the far end waits for the session's end.
const TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of the empty transfer before the copies.
const FIRST: u64 = 0;

/// Receiving end of a transfer.
#[derive(Debug)]
struct Receiving {
    transfer: Transfer,
    opened: Instant,
}

/// Sending end of one copy.
#[derive(Debug)]
struct Sending {
    /// Number of the transfer in the session, counted from [`FIRST`].
    order: u64,
    bytes: Option<u64>,
    transfer: Arc<Transfer>,
}

/// State shared by both threads and the owner of the flow.
#[derive(Debug)]
pub(super) struct Sabul {
    board: Arc<Board>,
    clock: Mutex<Option<Clock>>,
    sizes: Sizes,
    /// Transfers in the order of opening.
    receiving: Mutex<BTreeMap<u64, Receiving>>,
    /// Transfers by copy.
    sending: Mutex<BTreeMap<u64, Sending>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes both ends and connects the near end.
pub(super) fn prepare(
    task: &Task,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<Arc<Sabul>, LabError> {
    // The sessions find controllers in the registry of `sabul-cc`.
    sabul_lab_cc::register();
    let plan = &task.plan;
    refuse_what_cannot_be(task)?;
    let options = options(plan).map_err(|why| task.failed(why))?;
    let memory = Bytes(memory_bytes(plan));
    let sabul = Arc::new(Sabul {
        board: Arc::clone(&task.board),
        clock: Mutex::default(),
        sizes: Sizes::of(task, u32::try_from(options.block_size.0).unwrap_or(u32::MAX)),
        receiving: Mutex::default(),
        sending: Mutex::default(),
    });

    let (far_task, shared) = (task.clone(), Arc::clone(&sabul));
    let (address, ticket) = start_thread("lab-sabul-far", &task.far, threads, move |prepared| {
        let listen = || {
            let runtime = runtime()?;
            let mut config = ListenerConfig::new(far_task.far.any_port());
            config.memory = MemoryBudget::each(memory);
            config.sending = SendPolicy::any();
            config.events = far_task.sink("far");
            let listener = runtime
                .block_on(Listener::bind(config))
                .map_err(|error| far_task.failed(error.to_string()))?;
            let found = (listener.local_addr(), listener.ticket().clone());
            Ok((found, (runtime, listener)))
        };
        let Some((runtime, listener)) = prepared.report(listen()) else { return };
        let mut task = far_task;
        runtime.block_on(serve(&mut task, &shared, &listener));
        drop(listener);
        runtime.shutdown_timeout(CLOSE_TIMEOUT);
    })?;

    let (mut near_task, shared) = (task.clone(), Arc::clone(&sabul));
    start_thread("lab-sabul-near", &task.near, threads, move |prepared| {
        let memory = MemoryBudget::each(memory);
        let events = near_task.sink("near");
        let config = ConnectConfig::default().memory(memory).events(events);
        let connect = || {
            let runtime = runtime()?;
            let session = runtime
                .block_on(connect(address, &ticket, config, &options))
                .map_err(|error| near_task.failed(format!("its ends do not meet: {error}")))?;
            Ok(((), (runtime, session)))
        };
        let Some((runtime, session)) = prepared.report(connect()) else { return };
        runtime.block_on(async {
            send_copies(&mut near_task, &shared, &session, &options).await;
            session.close().await;
        });
        runtime.shutdown_timeout(CLOSE_TIMEOUT);
    })?;
    Ok(sabul)
}

/// Refuses settings that the library's measurements do not support.
fn refuse_what_cannot_be(task: &Task) -> Result<(), LabError> {
    let plan = &task.plan;
    let at_once = match plan.arrivals {
        Arrivals::Together { count, .. } => count,
        Arrivals::Chain { count, parallel } => count.min(parallel),
        Arrivals::Poisson { .. } => 1,
    };
    if at_once > COPIES_MAX {
        return Err(LabError::CannotCarry(format!(
            "flow '{}' has {at_once} copies at a time, and a session takes {COPIES_MAX}; use \
             several flows",
            plan.id
        )));
    }
    Ok(())
}

/// Returns the transfer options of a plan's copies.
fn options(plan: &FlowPlan) -> Result<TransferOptions, String> {
    let (loss_policy, report_carrier) = match plan
        .sabul()
        .map_or(Profile::Current, |ends| ends.profile)
    {
        Profile::Current => (LossPolicy::Current, ReportCarrier::Udp),
        Profile::Sabul2003 | Profile::Sabul2002 => (LossPolicy::Historical, ReportCarrier::Control),
    };
    let memory_bytes = memory_bytes(plan);
    let window_bytes = plan
        .window_packets
        .map_or(memory_bytes, |packets| packets.saturating_mul(plan.payload_bytes().into()));
    let block_bytes = block_bytes(window_bytes.min(memory_bytes / 4)).ok_or_else(|| {
        let least = BLOCK_BYTES.start().div_ceil(plan.payload_bytes().into());
        format!("its window is less than the smallest block; use window_packets of {least} or more")
    })?;
    Ok(TransferOptions::default()
        .controller(plan.cc.clone())
        .controller_params(plan.params.clone())
        .policy(plan.sabul().map_or_else(Policy::default, |ends| ends.policy))
        .mtu_max(Bytes(plan.packet_bytes.into()))
        .block_size(Bytes(block_bytes.into()))
        .window(Bytes(window_bytes))
        .loss_policy(loss_policy)
        // TCP would not show the controller.
        .carrier(Carrier::Udp)
        .report_carrier(report_carrier))
}

/// Returns the memory for the blocks of one copy at one end: a share of the total, or the need of
/// the window and its last blocks.
fn memory_bytes(plan: &FlowPlan) -> u64 {
    let at_once = match plan.arrivals {
        Arrivals::Together { count, .. } => u64::from(count),
        Arrivals::Chain { count, parallel } => u64::from(count.min(parallel)),
        Arrivals::Poisson { .. } => COPIES_GUESSED,
    };
    let (least, most) = (*MEMORY_BYTES_ONE.start(), *MEMORY_BYTES_ONE.end());
    let share = (MEMORY_BYTES / at_once.max(1)).clamp(least, most);
    let window = plan.window_packets.map_or(0, |packets| {
        let bytes = packets.saturating_mul(plan.payload_bytes().into());
        bytes.saturating_add(4 * BLOCK_BYTES.end())
    });
    let needed = match plan.size {
        FlowSize::Bytes(bytes) => bytes.saturating_add(*BLOCK_BYTES.end()),
        FlowSize::Endless | FlowSize::Pareto { .. } => u64::MAX,
    };
    share.max(window).min(needed).max(least)
}

/// Returns the largest block size that is at most `most`.
fn block_bytes(most: u64) -> Option<u32> {
    let most = most.min(*BLOCK_BYTES.end());
    let power = 1_u64 << most.checked_ilog2()?;
    u32::try_from(power).ok().filter(|_| power >= *BLOCK_BYTES.start())
}

// ---- the near end -------------------------------------------------------------------------------

/// Opens the session and verifies the session with an empty transfer.
async fn connect(
    address: SocketAddr,
    ticket: &Ticket,
    config: ConnectConfig,
    options: &TransferOptions,
) -> Result<Session, Error> {
    let session = sabul::internal::connect_to(&address.to_string(), ticket, config).await?;
    let nothing = MeasureLimit::default().bytes(Bytes(0));
    let transfer = session.measure(Direction::Send, nothing, options).await?;
    let late = |_| Error::PeerGone(format!("no answer within {} s", TIMEOUT.as_secs()).into());
    tokio::time::timeout(TIMEOUT, transfer.finish()).await.map_err(late)??;
    Ok(session)
}

/// Sends every copy at its time, after the start of the run.
async fn send_copies(task: &mut Task, sabul: &Sabul, session: &Session, options: &TransferOptions) {
    let Some((clock, end)) = task.start().await else { return };
    *lock(&sabul.clock) = Some(clock);
    let next = std::cell::Cell::new(FIRST + 1);
    let run = |copy| send_copy(sabul, session, options, &next, clock, copy);
    let at_end = || {
        sabul.refresh();
        sabul.board.retire_all(clock.now());
    };
    if let Err(why) = copies::run(task, clock, end, run, at_end).await {
        task.board.fail(why);
    }
    // Dropping a transfer cancels that transfer.
    lock(&sabul.sending).clear();
}

async fn send_copy(
    sabul: &Sabul,
    session: &Session,
    options: &TransferOptions,
    next: &std::cell::Cell<u64>,
    clock: Clock,
    copy: Copy,
) -> Result<(), String> {
    let Copy { number, bytes } = copy;
    // No await between the two lines, so this is the order in which the far end receives requests.
    let order = next.replace(next.get() + 1);
    let limit = MeasureLimit::default().bytes(bytes.map(Bytes));
    let opened = session.measure(Direction::Send, limit, options).await;
    let transfer = Arc::new(opened.map_err(|error| error.to_string())?);
    sabul.board.start(number, clock.now());
    let sending = Sending { order, bytes, transfer: Arc::clone(&transfer) };
    lock(&sabul.sending).insert(number, sending);
    while !transfer.progress().is_finished {
        sleep(TICK).await;
    }
    sabul.refresh();
    lock(&sabul.sending).remove(&number);
    lock(&sabul.receiving).remove(&order);
    if let Some(transfer) = Arc::into_inner(transfer) {
        transfer.finish().await.map_err(|error| error.to_string())?;
    }
    sabul.board.retire(number, clock.now());
    Ok(())
}

// ---- the far end --------------------------------------------------------------------------------

/// Accepts every measurement, until the session has ended or the flow is over.
async fn serve(task: &mut Task, sabul: &Sabul, listener: &Listener) {
    let mut sessions = FuturesUnordered::new();
    loop {
        tokio::select! {
            () = task.quit() => break,
            accepted = listener.accept() => match accepted {
                Ok(session) => sessions.push(receive(sabul, session)),
                Err(error) => {
                    task.board.fail(error.to_string());
                    return;
                }
            },
            Some(()) = sessions.next(), if !sessions.is_empty() => {}
        }
    }
    // The near end closes the session, and then its transfers end in order.
    let closed = async { while sessions.next().await.is_some() {} };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
    drop(sessions);
    let left = std::mem::take(&mut *lock(&sabul.receiving));
    let ended = async {
        for (_, Receiving { transfer, .. }) in left {
            transfer.cancel();
            let _ = transfer.finish().await;
        }
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, ended).await;
}

async fn receive(sabul: &Sabul, session: Session) {
    let mut order = FIRST;
    while let Some(request) = session.next_request().await {
        let opened = Instant::now();
        match request {
            Request::Measure(request) => {
                // A failure to accept is reported by the near end.
                if let Ok(transfer) = request.accept() {
                    lock(&sabul.receiving).insert(order, Receiving { transfer, opened });
                }
            }
            other => other.refuse("a lab measures, and does nothing else"),
        }
        order += 1;
    }
}

// ---- counters
// ------------------------------------------------------------------------------------

impl Engine for Arc<Sabul> {
    fn refresh(&self) {
        (**self).refresh();
    }
}

impl Sabul {
    fn refresh(&self) {
        let Some(clock) = *lock(&self.clock) else { return };
        let receiving = lock(&self.receiving);
        for (copy, sending) in &*lock(&self.sending) {
            let sent = sending.transfer.progress().channel;
            let Some(Receiving { transfer, opened }) = receiving.get(&sending.order) else {
                let (counters, gauges) = self.sender_side(&sent, 0);
                self.board.update(*copy, counters, Some(gauges));
                continue;
            };
            let progress = transfer.progress();
            let (mut counters, gauges) = self.sender_side(&sent, progress.channel.packets);
            let whole = sending.bytes.filter(|bytes| progress.bytes >= *bytes);
            self.receiver_side(&progress.channel, &mut counters);
            match (whole, sending.bytes) {
                // The channel's last statistics may be older than its last packets.
                (Some(whole), _) if progress.is_finished => {
                    let mtu = progress.channel.mtu;
                    let least = self.sizes.wire_bytes(self.sizes.packets(whole, mtu), mtu);
                    counters.fresh_bytes = whole;
                    counters.arrived_bytes = counters.arrived_bytes.max(least);
                    self.board.update(*copy, counters, Some(gauges));
                    self.board.complete(*copy, clock.at(*opened + progress.elapsed));
                }
                (_, bytes) => {
                    let most = bytes.unwrap_or(u64::MAX);
                    counters.fresh_bytes = counters.fresh_bytes.min(most);
                    self.board.update(*copy, counters, Some(gauges));
                }
            }
        }
    }

    /// Returns the sending end's figures, which may be older than the arrivals.
    fn sender_side(&self, stats: &ChannelStats, arrived: u64) -> (Counters, Gauges) {
        let (sent, lost) = (stats.packets.max(arrived), stats.packets_lost);
        let counters = Counters {
            sent,
            sent_bytes: self.sizes.wire_bytes(sent, stats.mtu),
            lost,
            resent: stats.packets_retransmitted,
            ..Counters::default()
        };
        let acknowledged = self.sizes.packets(stats.bytes, stats.mtu);
        let millis = |ms: f64| Span::from_secs_f64(ms / 1e3);
        let gauges = Gauges {
            gap: Span::from_secs_f64(stats.gap_ns / 1e9),
            rtt: averaged_rtt(millis(stats.rtt_ms), Span::ZERO, millis(stats.rtt_ms_min)),
            in_flight: sent.saturating_sub(lost).saturating_sub(acknowledged),
            // The library reports neither window nor delivery rate.
            window: None,
            delivery: None,
        };
        (counters, gauges)
    }

    fn receiver_side(&self, stats: &ChannelStats, counters: &mut Counters) {
        let fresh = stats.packets.saturating_sub(stats.packets_retransmitted);
        counters.fresh_bytes = self.sizes.payload_bytes(fresh, stats.mtu);
        counters.arrived_bytes = self.sizes.wire_bytes(stats.packets, stats.mtu);
    }
}

/// Division of a flow's bytes into packets. The last packet of a block is shorter, so payload per
/// packet is an average over a block.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    block_bytes: u32,
    /// Bytes of a packet that are not payload: headers and tag.
    overhead: u32,
}

impl Sizes {
    fn of(task: &Task, block_bytes: u32) -> Self {
        // The plan's payload is for IPv4; IPv6 headers have 20 bytes more.
        let more = if task.far.address().is_ipv4() { 0 } else { 20 };
        Self { block_bytes, overhead: task.plan.packet_bytes - task.plan.payload_bytes() + more }
    }

    fn packets_per_block(self, mtu: u32) -> u64 {
        self.block_bytes.div_ceil(mtu.saturating_sub(self.overhead).max(1)).into()
    }

    fn payload_bytes(self, packets: u64, mtu: u32) -> u64 {
        scale(packets, self.block_bytes.into(), self.packets_per_block(mtu))
    }

    fn wire_bytes(self, packets: u64, mtu: u32) -> u64 {
        self.payload_bytes(packets, mtu).saturating_add(packets * u64::from(self.overhead))
    }

    fn packets(self, payload_bytes: u64, mtu: u32) -> u64 {
        scale(payload_bytes, self.packets_per_block(mtu), self.block_bytes.into())
    }
}

/// `number × part ÷ whole`, rounded up, so that a complete transfer is not short of a byte.
fn scale(number: u64, part: u64, whole: u64) -> u64 {
    let wide = (u128::from(number) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
    u64::try_from(wide).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use sabul_run::scenario::{SabulEnds, Transport};

    use super::*;

    fn plan() -> FlowPlan {
        FlowPlan::new("s", Transport::Sabul, "sabul2003", vec![0])
    }

    #[test]
    fn blocks_fit_the_window_and_memory_is_shared() {
        let mut plan = plan();
        let requested = options(&plan).unwrap();
        assert_eq!((requested.block_size, requested.window), (Bytes(1 << 20), Bytes(256 << 20)));
        plan.arrivals = Arrivals::Together { count: 64, spread: Span::ZERO };
        assert_eq!(memory_bytes(&plan), 8 << 20);
        assert_eq!(options(&plan).unwrap().block_size, Bytes(1 << 20));
        plan.window_packets = Some(64);
        let requested = options(&plan).unwrap();
        assert_eq!(requested.window.0, 64 * u64::from(plan.payload_bytes()));
        assert_eq!(
            requested.block_size,
            Bytes(65_536),
            "the largest power of two within the window"
        );
        plan.window_packets = Some(2);
        assert!(options(&plan).unwrap_err().contains("window_packets of 3 or more"));
    }

    /// A block of 10 000 bytes in packets of 1 072 bytes of payload: nine full packets and one of
    /// 352.
    #[test]
    fn packets_hold_their_share_of_a_block() {
        let sizes = Sizes { block_bytes: 10_000, overhead: 60 };
        assert_eq!(sizes.payload_bytes(10, 1132), 10_000);
        assert_eq!(sizes.wire_bytes(20, 1132), 20_000 + 20 * 60);
        assert_eq!(sizes.packets(10_000, 1132), 10);
        assert_eq!(sizes.payload_bytes(5, 1132), 5_000);
        assert_eq!(sizes.payload_bytes(0, 0), 0, "before the first packet its size is not known");
    }

    #[test]
    fn historical_profiles_report_on_the_control_connection() {
        let mut plan = plan();
        assert_eq!(options(&plan).unwrap().report_carrier, ReportCarrier::Udp);
        for profile in [Profile::Sabul2003, Profile::Sabul2002] {
            plan.carrier = SabulEnds { profile, ..SabulEnds::default() }.into();
            let requested = options(&plan).unwrap();
            assert_eq!(
                (requested.loss_policy, requested.report_carrier),
                (LossPolicy::Historical, ReportCarrier::Control)
            );
        }
    }
}
