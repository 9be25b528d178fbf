//! Fault guard around every controller: contains panics and rejects unusable limits.
//!
//! Senders own a [`Guarded`]. A bug in a controller then ends the runs that use it, and nothing
//! else.
//!
//! Model:       each call goes to the controller; its limits, header, interval and phase are then
//!              read, checked and cached. The first panic, or the first value that would stop or flood
//!              a sender, becomes the [`Fault`]. After a fault the controller is never called again.
//!              The last good values stay, so a driver can continue until it reads the fault.
//! Bounds:      no window of zero packets; a window wherever the family needs one; a gap or hold of
//!              at most [`PAUSE_MAX`] or four RTTs, whichever is longer; an interval of
//!              [`INTERVAL_MIN`] to [`PAUSE_MAX`]. A large window is allowed.
//! Breaker:     optional; bounds the rate of a flow with persistent heavy loss (`breaker`).
//! Not here:    the quality of a controller (`conformance`); a controller that never returns from a
//!              call.

use std::any::Any;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::OnceLock;

use sabul_units::{
    Bytes, CongestionFields, CongestionForm, Gap, Instant, Packets, SeededRandom, Span,
};

use crate::breaker::Breaker;
use crate::channel::BulkReport;
use crate::controller::{
    Acked, Constants, Context, Controller, IntervalReport, LossReport, Moment, SYN_INTERVAL,
    SendLimits,
};
use crate::entry::{Entry, Family};
use crate::events::{Event, Journal};
use crate::memory::PathFacts;
use crate::params::{ConfigError, ParamValues};
use crate::phase::Phase;
use crate::policy::Policy;
use crate::reason::Reason;

/// Ours: longest gap or hold; a receiver declares a sender dead after half of it without a packet.
pub const PAUSE_MAX: Span = Span::from_secs(60);
/// Ours: the largest burst, in packets; a larger burst is a fault.
const BURST_MAX: u64 = 100_000;
/// Ours: the shortest interval; below it a sender would do nothing but end intervals.
pub(crate) const INTERVAL_MIN: Span = Span::from_micros(10);
/// Limits while no good value exists: two packets, 10 ms apart.
const FALLBACK_OUTPUTS: Outputs = Outputs {
    limits: SendLimits {
        gap: Gap(Span::from_millis(10)),
        window: Some(Packets(2)),
        hold_until: None,
    },
    header: None,
    syn_interval: SYN_INTERVAL,
    phase: Phase::Named("fault"),
};

/// Fault of a controller. Displayed as one line that names the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The controller's name.
    pub controller: &'static str,
    /// The call after which the fault was seen, such as `on_ack`, or `build`.
    pub callback: &'static str,
    /// The time of that call, on the driver's clock.
    pub at: Instant,
    /// Description of the fault.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "controller '{}' is at fault: ", self.controller)?;
        if self.callback != BUILD {
            write!(f, "after {:.3} s ", self.at.elapsed().as_secs_f64())?;
        }
        write!(f, "its {} {}", self.callback, self.what)
    }
}

impl std::error::Error for Fault {}

const BUILD: &str = "build";

/// Description of a caught panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// The panic message, on one line.
    pub message: String,
    /// Source location, if the catcher has it.
    pub place: Option<String>,
}

/// Function that runs `work` and catches its panic.
pub type Catch = fn(work: &mut dyn FnMut()) -> Result<(), Panic>;

/// The program's own catcher; set at most once.
static CATCHER: OnceLock<Catch> = OnceLock::new();

/// Sets the catcher for panics of controllers, such as a panic hook that also records the source
/// location, in place of [`catch_panic`]. Returns false if a catcher was set before; the first
/// stays.
pub fn catch_panics_with(catch: Catch) -> bool {
    CATCHER.set(catch).is_ok()
}

/// Runs the work and catches its panic. Only the message is returned.
///
/// # Errors
/// If the work panics.
pub fn catch_panic(work: &mut dyn FnMut()) -> Result<(), Panic> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .map_err(|cause| Panic { message: panic_text(cause.as_ref()), place: None })
}

/// Runs a controller's code; returns a panic as text.
#[inline]
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let (mut work, mut result) = (Some(work), None);
    let catch = CATCHER.get().copied().unwrap_or(catch_panic);
    let ended = catch(&mut || result = work.take().map(|work| work()));
    match (ended, result) {
        (Ok(()), Some(result)) => Ok(result),
        (Ok(()), None) => Err("was not called: the program's own way to catch panics".to_owned()),
        (Err(Panic { message, place }), _) => {
            let place = place.map_or_else(String::new, |place| format!(" at {place}"));
            Err(format!("panicked{place}: {message}"))
        }
    }
}

/// Returns the message of a panic, on one line.
fn panic_text(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| cause.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Cached return values of the controller after its newest callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outputs {
    limits: SendLimits,
    header: Option<CongestionFields>,
    syn_interval: Span,
    phase: Phase,
}

impl Outputs {
    fn of(controller: &dyn Controller) -> Self {
        Self {
            limits: controller.limits(),
            header: controller.header(),
            syn_interval: controller.syn_interval(),
            phase: controller.phase(),
        }
    }

    fn form(&self) -> Option<CongestionForm> {
        self.header.map(|fields| fields.form())
    }

    /// Returns the reason if no sender can work with these values.
    fn rejection(
        &self,
        now: Instant,
        rtt: Option<Span>,
        constraints: &Constraints,
    ) -> Option<String> {
        let SendLimits { gap, window, hold_until } = self.limits;
        let longest = rtt.map_or(PAUSE_MAX, |rtt| PAUSE_MAX.max(rtt * 4));
        let hold = hold_until.map_or(Span::ZERO, |hold| hold.since(now));
        let seconds = |span: Span| span.as_secs_f64();
        if window == Some(Packets(0)) {
            Some("left a window of 0 packets; the minimum is 1".to_owned())
        } else if constraints.window && window.is_none() {
            Some("left no window, but its family requires a window".to_owned())
        } else if gap.0 > longest {
            Some(format!("left a gap of {} s between packets", seconds(gap.0)))
        } else if hold > longest {
            Some(format!("left a hold of {} s, in which nothing is sent", seconds(hold)))
        } else if !(INTERVAL_MIN..=PAUSE_MAX).contains(&self.syn_interval) {
            let given = seconds(self.syn_interval);
            Some(format!("left an interval of {given} s; 10 us to 60 s are allowed"))
        } else if constraints.form.is_some_and(|form| form != self.form()) {
            Some("left congestion headers of another form than at first".to_owned())
        } else {
            None
        }
    }
}

/// One event for a controller.
#[derive(Clone, Copy)]
enum Fact<'a> {
    Loss(&'a LossReport),
    Timeout,
    Undo,
    Ack(&'a Acked),
    Interval(&'a IntervalReport),
    Report(&'a BulkReport),
    Policy(Policy),
    Memory(&'a PathFacts),
}

impl Fact<'_> {
    /// Returns the name of the callback.
    const fn callback(self) -> &'static str {
        match self {
            Self::Loss(_) => "on_loss",
            Self::Timeout => "on_timeout",
            Self::Undo => "on_undo",
            Self::Ack(_) => "on_ack",
            Self::Interval(_) => "on_interval",
            Self::Report(_) => "on_report",
            Self::Policy(_) => "on_policy",
            Self::Memory(_) => "on_memory",
        }
    }

    #[inline(always)] // As `Guarded::pass`.
    fn pass_to(self, controller: &mut dyn Controller, cx: &mut Context<'_>) {
        match self {
            Self::Loss(loss) => controller.on_loss(loss, cx),
            Self::Timeout => controller.on_timeout(cx),
            Self::Undo => controller.on_undo(cx),
            Self::Ack(acked) => controller.on_ack(acked, cx),
            Self::Interval(report) => controller.on_interval(report, cx),
            Self::Report(report) => controller.on_report(report, cx),
            Self::Policy(policy) => controller.on_policy(policy, cx),
            Self::Memory(facts) => controller.on_memory(facts, cx),
        }
    }
}

/// Constraints that all values of one controller must meet.
#[derive(Clone, Copy, Debug)]
struct Constraints {
    /// True if the family always has a window.
    window: bool,
    /// Form of the congestion headers; `None` until the form was read.
    form: Option<Option<CongestionForm>>,
}

/// Controller behind its guard, as senders own it: receives events and returns limits.
#[derive(Debug)]
pub struct Guarded {
    name: &'static str,
    family: Family,
    constraints: Constraints,
    /// `None` after a fault.
    inner: Option<Box<dyn Controller>>,
    outputs: Outputs,
    constants: Constants,
    breaker: Option<Breaker>,
    random: SeededRandom,
    /// `None` without a listener.
    journal: Option<Box<Journal>>,
    fault: Option<Box<Fault>>,
}

impl Entry {
    /// Builds a guarded controller; `packet_bytes` is a full packet's size on the wire. A panic or
    /// unusable limits become its [`Guarded::fault`].
    ///
    /// # Errors
    /// On an unknown parameter or a value out of its range.
    pub fn build(
        &self,
        params: &[(String, String)],
        packet_bytes: Bytes,
    ) -> Result<Guarded, ConfigError> {
        let values = ParamValues::check(self.name, self.params, params)?;
        Guarded::build(self, &values, packet_bytes)
    }
}

impl Guarded {
    /// Builds a guarded controller. A panic at its parameters becomes a fault.
    fn build(
        entry: &Entry,
        params: &ParamValues,
        packet_bytes: Bytes,
    ) -> Result<Self, ConfigError> {
        let mut guarded = Self::empty(entry.name, entry.family);
        match caught(|| (entry.build)(params, packet_bytes)) {
            Ok(built) => guarded.install(built?),
            Err(what) => guarded.record_fault(BUILD, Instant::ZERO, what),
        }
        Ok(guarded)
    }

    /// Guards a controller that is not in the registry.
    pub fn around(name: &'static str, family: Family, controller: Box<dyn Controller>) -> Self {
        let mut guarded = Self::empty(name, family);
        guarded.install(controller);
        guarded
    }

    /// Sets the random stream. A host gives each controller its own stream; the default stream is
    /// the same for all.
    #[must_use]
    pub fn seeded(mut self, random: SeededRandom) -> Self {
        self.random = random;
        self
    }

    /// Adds the circuit breaker: always on the wire, elsewhere if the scenario has it.
    #[must_use]
    pub fn with_breaker(mut self) -> Self {
        self.breaker = Some(Breaker::new());
        self
    }

    /// Returns how often the circuit breaker has opened; `None` without a breaker.
    pub fn breaker_opened(&self) -> Option<u64> {
        self.breaker.as_ref().map(Breaker::opened)
    }

    fn empty(name: &'static str, family: Family) -> Self {
        Self {
            name,
            family,
            constraints: Constraints { window: family != Family::Rate, form: None },
            inner: None,
            outputs: FALLBACK_OUTPUTS,
            constants: Constants::default(),
            breaker: None,
            random: SeededRandom::new(0),
            journal: None,
            fault: None,
        }
    }

    /// Reads and caches the values that are read once.
    fn install(&mut self, controller: Box<dyn Controller>) {
        let read = caught(|| (controller.constants(), Outputs::of(&*controller)));
        self.inner = Some(controller);
        let (constants, outputs) = match read {
            Ok((constants, outputs)) => (constants, Ok(outputs)),
            Err(what) => (Constants::default(), Err(what)),
        };
        self.check(BUILD, Instant::ZERO, None, outputs);
        self.constraints.form = Some(self.outputs.form());
        let burst = constants.burst.0;
        if (1..=BURST_MAX).contains(&burst) {
            self.constants = constants;
        } else if self.fault.is_none() {
            let what = format!("left a burst of {burst} packets; one has 1 to {BURST_MAX}");
            self.record_fault(BUILD, Instant::ZERO, what);
        }
    }

    /// Passes one fact to the controller, then reads and checks its new values.
    #[inline(always)] // Called for each ACK; the fact is known where it is called.
    fn pass(&mut self, fact: Fact<'_>, moment: &Moment) {
        let Some(inner) = self.inner.as_deref_mut() else { return };
        let reasons = self.journal.as_mut().map(|journal| &mut journal.reasons);
        let mut cx = Context::new(moment, &mut self.random).with_reasons(reasons);
        let read = caught(|| {
            fact.pass_to(inner, &mut cx);
            Outputs::of(inner)
        });
        self.check(fact.callback(), moment.now, moment.rtt.map(|rtt| rtt.smoothed), read);
    }

    /// Keeps the values that the controller returned after a call, or records a fault.
    #[inline(always)] // As `pass`.
    fn check(
        &mut self,
        callback: &'static str,
        now: Instant,
        rtt: Option<Span>,
        read: Result<Outputs, String>,
    ) {
        let fault = match read {
            Ok(outputs) => match outputs.rejection(now, rtt, &self.constraints) {
                None => {
                    let before = std::mem::replace(&mut self.outputs, outputs);
                    if let Some(journal) = &mut self.journal {
                        let of = |outputs: Outputs| (outputs.phase, outputs.limits);
                        journal.note(now, callback, of(before), of(outputs));
                    }
                    return;
                }
                Some(what) => what,
            },
            Err(what) => what,
        };
        self.record_fault(callback, now, fault);
    }

    #[cold]
    fn record_fault(&mut self, callback: &'static str, at: Instant, what: String) {
        self.fault = Some(Box::new(Fault { controller: self.name, callback, at, what }));
        let broken = self.inner.take();
        // The controller may panic again in its destructor.
        let _ = caught(|| drop(broken));
    }

    /// Returns the limits from now on, bounded by the breaker.
    pub fn limits(&self) -> SendLimits {
        let limits = self.outputs.limits;
        match self.breaker.as_ref().and_then(Breaker::gap) {
            Some(least) => SendLimits { gap: limits.gap.max(least), ..limits },
            None => limits,
        }
    }

    /// A NAK arrived. Losses that the receiver's own socket caused are not included.
    pub fn on_loss(&mut self, loss: &LossReport, moment: &Moment) {
        self.pass(Fact::Loss(loss), moment);
    }

    /// An expiry period passed without feedback while data was unacknowledged.
    pub fn on_timeout(&mut self, moment: &Moment) {
        self.pass(Fact::Timeout, moment);
    }

    /// Packets counted as lost at the newest decrease have arrived after all.
    pub fn on_undo(&mut self, moment: &Moment) {
        self.pass(Fact::Undo, moment);
    }

    /// An ACK arrived.
    pub fn on_ack(&mut self, acked: &Acked, moment: &Moment) {
        if let Some(word) = self.breaker.as_mut().and_then(|breaker| breaker.on_ack(acked, moment))
            && let Some(journal) = &mut self.journal
        {
            journal.reasons.record(Reason::Own(word));
        }
        // Otherwise a controller would take the breaker's bound for the rate of the path.
        let is_bound = self.breaker.as_ref().is_some_and(|breaker| breaker.gap().is_some());
        let acked = &Acked { is_room_limited: acked.is_room_limited || is_bound, ..*acked };
        self.pass(Fact::Ack(acked), moment);
    }

    /// One SYN interval ended.
    pub fn on_interval(&mut self, report: &IntervalReport, moment: &Moment) {
        self.pass(Fact::Interval(report), moment);
    }

    /// A report arrived that exists only under channel rules other than the standard rules.
    pub fn on_report(&mut self, report: &BulkReport, moment: &Moment) {
        self.pass(Fact::Report(report), moment);
    }

    /// Sets the flow's share beside other flows from now on.
    pub fn on_policy(&mut self, policy: Policy, moment: &Moment) {
        self.pass(Fact::Policy(policy), moment);
    }

    /// Passes measurements of an earlier flow on the same path; call before the first packet.
    pub fn on_memory(&mut self, facts: &PathFacts, moment: &Moment) {
        self.pass(Fact::Memory(facts), moment);
    }

    /// Reads the limits of a shared controller again, because events of other channels may have changed them.
    pub fn refresh(&mut self, moment: &Moment) {
        let Some(inner) = self.inner.as_deref() else { return };
        let read = caught(|| Outputs::of(inner));
        self.check("limits", moment.now, moment.rtt.map(|rtt| rtt.smoothed), read);
    }

    /// Returns the measured rate and RTT for a later flow, for full packets of this size; `None` if
    /// unknown, after a fault, or if the controller panics.
    pub fn path(&self, packet_bytes: Bytes) -> Option<PathFacts> {
        let inner = self.inner.as_deref()?;
        caught(|| inner.path(packet_bytes)).ok().flatten()
    }

    /// Returns the family: which limits the controller always sets.
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Returns the constants of the algorithm.
    pub const fn constants(&self) -> Constants {
        self.constants
    }

    /// Returns the congestion header fields of each DATA packet; `None` without a header.
    pub const fn header(&self) -> Option<CongestionFields> {
        self.outputs.header
    }

    /// Returns the length of the controller's own interval.
    pub const fn syn_interval(&self) -> Span {
        self.outputs.syn_interval
    }

    /// Returns the current phase.
    pub const fn phase(&self) -> Phase {
        self.outputs.phase
    }

    /// Returns the name of the algorithm.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the controller's fault; the driver then ends the run and reports the fault.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_deref()
    }

    /// Starts to record events and their reasons, until [`Self::next_event`] returns them.
    pub fn listen(&mut self) {
        self.journal.get_or_insert_with(|| Box::new(Journal::new()));
    }

    /// Returns and removes the oldest recorded event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.journal.as_mut()?.next()
    }

    /// Returns the number of events dropped because they were not fetched in time.
    pub fn missed_events(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.missed())
    }

    /// Returns whether the controller, read again, returns the values cached after the newest
    /// event.
    pub(crate) fn outputs_repeat(&self) -> bool {
        let Some(inner) = self.inner.as_deref() else { return true };
        caught(|| Outputs::of(inner)).is_ok_and(|again| again == self.outputs)
    }
}

#[cfg(test)]
mod tests;
