//! The guard around every controller: a bug in one ends the runs that use it, and nothing else.
//!
//! A [`Guarded`] is what senders own. It answers as the controller in it does, without being one.
//!
//! Model:       each fact goes to the controller, then its answers are asked for, looked at and kept.
//!              The first panic, or the first answer that would stop or swamp a sender, is its
//!              [`Fault`]: from then on the controller is asked nothing, and the last good answers
//!              stand, so that whoever drives it can go on until it asks for the fault.
//! Bounds:      no window of zero packets, none missing where the family needs one; a gap or hold of
//!              at most [`PAUSE_MAX`] or four round trips, whichever is longer; an interval of
//!              [`INTERVAL_MIN`] to [`PAUSE_MAX`]. A large window is allowed.
//! Breaker:     optional; it bounds the rate of a flow whose heavy loss does not end (`breaker`).
//! Not here:    whether a controller is any good (`conformance`); one that never returns from a call.

use std::any::Any;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::OnceLock;

use sabul_units::{
    Bytes, CongestionFields, CongestionForm, Gap, Instant, Packets, Random, SeededRandom, Span,
};

use crate::breaker::Breaker;
use crate::channel::{BulkReport, ChannelRules};
use crate::controller::{
    Acked, Context, Controller, IntervalReport, LossReport, Moment, SYN_INTERVAL, SendLimits,
};
use crate::entry::{Entry, Family};
use crate::events::{Event, Journal};
use crate::memory::PathFacts;
use crate::params::{ConfigError, ParamValues};
use crate::policy::Policy;
use crate::reason::{Reason, Reasons};

/// Ours: longest time that a controller may keep a sender from sending. A peer that hears nothing for
/// half of it takes the sender for dead.
pub(crate) const PAUSE_MAX: Span = Span::from_secs(60);
/// Ours: the largest burst.
const BURST_MAX: u64 = 100_000;
/// Ours: the shortest interval; below it a sender would do nothing but end intervals.
pub(crate) const INTERVAL_MIN: Span = Span::from_micros(10);
/// What stands where no answer was ever good: a trickle.
const TRICKLE: Answers = Answers {
    limits: SendLimits {
        gap: Gap(Span::from_millis(10)),
        window: Some(Packets(2)),
        hold_until: None,
    },
    header: None,
    syn_interval: SYN_INTERVAL,
    phase: "fault",
};

/// What a controller did that none may do. Displayed as one line that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The controller's name.
    pub controller: &'static str,
    /// The call after which it was seen, such as `on_ack`, or `build`.
    pub callback: &'static str,
    /// The time of that call, on the driver's clock.
    pub at: Instant,
    /// What it did.
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

/// A panic, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// What it said, on one line.
    pub message: String,
    /// Where in the source, if whoever caught it knows.
    pub place: Option<String>,
}

/// Does the work, and catches its panic.
pub type Catch = fn(work: &mut dyn FnMut()) -> Result<(), Panic>;

/// How this program catches; set at most once.
static CATCH: OnceLock<Catch> = OnceLock::new();

/// From now on panics of controllers are caught by `catch`, which may know more of them than
/// [`catch_panic`], say from a panic hook of the program. False if that was said before: the first stays.
pub fn catch_panics_with(catch: Catch) -> bool {
    CATCH.set(catch).is_ok()
}

/// Does the work, and catches its panic, of which nothing but the message is known.
///
/// # Errors
/// If it panics.
pub fn catch_panic(work: &mut dyn FnMut()) -> Result<(), Panic> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .map_err(|cause| Panic { message: panic_text(cause.as_ref()), place: None })
}

/// Runs a controller's code; a panic in it becomes the words for it.
#[inline]
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let (mut work, mut result) = (Some(work), None);
    let catch = CATCH.get().copied().unwrap_or(catch_panic);
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

/// The message of a panic, on one line.
fn panic_text(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| cause.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a controller says of itself between two facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answers {
    limits: SendLimits,
    header: Option<CongestionFields>,
    syn_interval: Span,
    phase: &'static str,
}

impl Answers {
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

    /// What no sender could live with.
    fn nonsense(&self, now: Instant, rtt: Option<Span>, needs: &Needs) -> Option<String> {
        let SendLimits { gap, window, hold_until } = self.limits;
        let longest = rtt.map_or(PAUSE_MAX, |rtt| PAUSE_MAX.max(rtt * 4));
        let hold = hold_until.map_or(Span::ZERO, |hold| hold.since(now));
        let seconds = |span: Span| span.as_secs_f64();
        if window == Some(Packets(0)) {
            Some("left a window of no packets, with which nothing is ever sent".to_owned())
        } else if needs.window && window.is_none() {
            Some("left no window, and its family says that it always has one".to_owned())
        } else if gap.0 > longest {
            Some(format!("left a gap of {} s between packets", seconds(gap.0)))
        } else if hold > longest {
            Some(format!("left a hold of {} s, in which nothing is sent", seconds(hold)))
        } else if !(INTERVAL_MIN..=PAUSE_MAX).contains(&self.syn_interval) {
            let given = seconds(self.syn_interval);
            Some(format!("left an interval of {given} s; one has 10 us to 60 s"))
        } else if needs.form.is_some_and(|form| form != self.form()) {
            Some("left congestion headers of another form than at first".to_owned())
        } else {
            None
        }
    }
}

/// What the answers of one controller have in common.
#[derive(Clone, Copy, Debug)]
struct Needs {
    /// It always has a window.
    window: bool,
    /// The form of its congestion headers, once it has been asked.
    form: Option<Option<CongestionForm>>,
}

/// A controller behind its guard: what a sender owns, tells facts and asks for limits.
#[derive(Debug)]
pub struct Guarded {
    name: &'static str,
    family: Family,
    needs: Needs,
    /// None after a fault.
    inner: Option<Box<dyn Controller>>,
    answers: Answers,
    rules: ChannelRules,
    burst: Packets,
    tells_chance: bool,
    counts_marks: bool,
    breaker: Option<Breaker>,
    random: SeededRandom,
    /// None while nobody listens.
    journal: Option<Box<Journal>>,
    fault: Option<Box<Fault>>,
}

impl Entry {
    /// A controller of this kind; `packet_bytes` is the full packet's size on the wire. Panics and
    /// impossible answers of it become its [`Guarded::fault`].
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
    /// A new controller of this kind. That it panics at its parameters is a fault.
    fn build(
        entry: &Entry,
        params: &ParamValues,
        packet_bytes: Bytes,
    ) -> Result<Self, ConfigError> {
        let mut guarded = Self::empty(entry.name, entry.family);
        match caught(|| (entry.build)(params, packet_bytes)) {
            Ok(built) => guarded.take_in(built?),
            Err(what) => guarded.blame(BUILD, Instant::ZERO, what),
        }
        Ok(guarded)
    }

    /// A controller that is in no table, guarded.
    pub fn around(name: &'static str, family: Family, controller: Box<dyn Controller>) -> Self {
        let mut guarded = Self::empty(name, family);
        guarded.take_in(controller);
        guarded
    }

    /// Where its chance comes from. A host gives each controller a stream of its own; without one, all
    /// have the same.
    #[must_use]
    pub fn seeded(mut self, random: SeededRandom) -> Self {
        self.random = random;
        self
    }

    /// Puts the circuit breaker around the controller: on the wire for every controller, elsewhere as the
    /// scenario says.
    #[must_use]
    pub fn with_breaker(mut self) -> Self {
        self.breaker = Some(Breaker::new());
        self
    }

    /// How often the circuit breaker has opened; `None` without a breaker.
    pub fn breaker_opened(&self) -> Option<u64> {
        self.breaker.as_ref().map(Breaker::opened)
    }

    fn empty(name: &'static str, family: Family) -> Self {
        Self {
            name,
            family,
            needs: Needs { window: family != Family::Rate, form: None },
            inner: None,
            answers: TRICKLE,
            rules: ChannelRules::Standard,
            burst: Packets(1),
            tells_chance: false,
            counts_marks: false,
            breaker: None,
            random: SeededRandom::new(0),
            journal: None,
            fault: None,
        }
    }

    /// Asks what is asked once.
    fn take_in(&mut self, controller: Box<dyn Controller>) {
        self.inner = Some(controller);
        let (mut rules, mut burst) = (self.rules, self.burst);
        let (mut tells_chance, mut counts_marks) = (false, false);
        self.tell(BUILD, Instant::ZERO, None, |inner, _, _| {
            (rules, burst) = (inner.rules(), inner.burst());
            (tells_chance, counts_marks) = (inner.tells_chance(), inner.counts_marks());
        });
        (self.tells_chance, self.counts_marks) = (tells_chance, counts_marks);
        self.needs.form = Some(self.answers.form());
        if (1..=BURST_MAX).contains(&burst.0) {
            (self.rules, self.burst) = (rules, burst);
        } else if self.fault.is_none() {
            let what = format!("left a burst of {} packets; one has 1 to {BURST_MAX}", burst.0);
            self.blame(BUILD, Instant::ZERO, what);
        }
    }

    /// Lets the controller take in one fact, and looks at what it makes of it.
    #[inline]
    fn tell(
        &mut self,
        callback: &'static str,
        now: Instant,
        rtt: Option<Span>,
        fact: impl FnOnce(&mut dyn Controller, &mut dyn Random, Option<&mut Reasons>),
    ) {
        let Some(inner) = self.inner.as_deref_mut() else { return };
        let random = &mut self.random;
        let reasons = self.journal.as_mut().map(|journal| &mut journal.reasons);
        let told = caught(|| {
            fact(inner, random, reasons);
            Answers::of(inner)
        });
        let wrong = match told {
            Ok(answers) => match answers.nonsense(now, rtt, &self.needs) {
                None => {
                    let before = std::mem::replace(&mut self.answers, answers);
                    if let Some(journal) = &mut self.journal {
                        let of = |answers: Answers| (answers.phase, answers.limits);
                        journal.note(now, callback, of(before), of(answers));
                    }
                    return;
                }
                Some(what) => what,
            },
            Err(what) => what,
        };
        self.blame(callback, now, wrong);
    }

    #[cold]
    fn blame(&mut self, callback: &'static str, at: Instant, what: String) {
        self.fault = Some(Box::new(Fault { controller: self.name, callback, at, what }));
        let broken = self.inner.take();
        // What has just panicked may do so again.
        let _ = caught(|| drop(broken));
    }

    #[inline]
    fn fact(
        &mut self,
        callback: &'static str,
        moment: &Moment,
        fact: impl FnOnce(&mut dyn Controller, &mut Context<'_>),
    ) {
        self.tell(
            callback,
            moment.now,
            moment.rtt.map(|rtt| rtt.smoothed),
            |inner, random, reasons| {
                fact(inner, &mut Context::new(moment, random).heard(reasons));
            },
        );
    }

    /// What the sender may do from now on.
    pub fn limits(&self) -> SendLimits {
        let limits = self.answers.limits;
        match self.breaker.as_ref().and_then(Breaker::gap) {
            Some(least) => SendLimits { gap: limits.gap.max(least), ..limits },
            None => limits,
        }
    }

    /// A NAK arrived. Losses that the receiver's own socket caused are not among them.
    pub fn on_loss(&mut self, loss: &LossReport, moment: &Moment) {
        self.fact("on_loss", moment, |inner, cx| inner.on_loss(loss, cx));
    }

    /// Nothing was heard for a whole expiry period while data was outstanding.
    pub fn on_timeout(&mut self, moment: &Moment) {
        self.fact("on_timeout", moment, |inner, cx| inner.on_timeout(cx));
    }

    /// Packets that counted as lost at the newest decrease have arrived after all.
    pub fn on_undo(&mut self, moment: &Moment) {
        self.fact("on_undo", moment, |inner, cx| inner.on_undo(cx));
    }

    /// An ACK arrived.
    pub fn on_ack(&mut self, acked: &Acked, moment: &Moment) {
        if let Some(word) = self.breaker.as_mut().and_then(|breaker| breaker.on_ack(acked, moment))
            && let Some(journal) = &mut self.journal
        {
            journal.reasons.tell(Reason::Own(word));
        }
        // A controller must not take the breaker's bound for the rate of the path.
        let is_bound = self.breaker.as_ref().is_some_and(|breaker| breaker.gap().is_some());
        let acked = &Acked { is_room_limited: acked.is_room_limited || is_bound, ..*acked };
        self.fact("on_ack", moment, |inner, cx| inner.on_ack(acked, cx));
    }

    /// One SYN interval ended.
    pub fn on_interval(&mut self, report: &IntervalReport, moment: &Moment) {
        self.fact("on_interval", moment, |inner, cx| inner.on_interval(report, cx));
    }

    /// A report arrived that only [`Self::rules`] other than the standard ones have.
    pub fn on_report(&mut self, report: &BulkReport, moment: &Moment) {
        self.fact("on_report", moment, |inner, cx| inner.on_report(report, cx));
    }

    /// How the flow stands beside others from now on.
    pub fn on_policy(&mut self, policy: Policy, moment: &Moment) {
        self.fact("on_policy", moment, |inner, cx| inner.on_policy(policy, cx));
    }

    /// What an earlier flow saw of what may be the same path; to be told before the first packet.
    pub fn on_memory(&mut self, facts: &PathFacts, moment: &Moment) {
        self.fact("on_memory", moment, |inner, cx| inner.on_memory(facts, cx));
    }

    /// What it knows of the path by now, for a later flow, where a full packet has this size; `None` also where it
    /// panics at that.
    pub fn path(&self, packet_bytes: Bytes) -> Option<PathFacts> {
        let inner = self.inner.as_deref()?;
        caught(|| inner.path(packet_bytes)).ok().flatten()
    }

    /// What it limits at all times.
    pub const fn family(&self) -> Family {
        self.family
    }

    /// What the algorithm needs of the channel.
    pub const fn rules(&self) -> ChannelRules {
        self.rules
    }

    /// How many packets leave back to back each time.
    pub const fn burst(&self) -> Packets {
        self.burst
    }

    /// Whether losses that the path makes by chance leave its rate as it is.
    pub const fn tells_chance(&self) -> bool {
        self.tells_chance
    }

    /// Whether a TCP receiver has to tell it of each mark once.
    pub const fn counts_marks(&self) -> bool {
        self.counts_marks
    }

    /// What to write into the congestion header of each DATA packet; none where it has none.
    pub const fn header(&self) -> Option<CongestionFields> {
        self.answers.header
    }

    /// How long the controller's own interval is.
    pub const fn syn_interval(&self) -> Span {
        self.answers.syn_interval
    }

    /// One word for what the controller is doing.
    pub const fn phase(&self) -> &'static str {
        self.answers.phase
    }

    /// What the controller did that none may do; whoever drives it ends the run and says so.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_deref()
    }

    /// From now on keeps what the controller does, and why, until it is fetched by
    /// [`Self::next_event`].
    pub fn listen(&mut self) {
        self.journal.get_or_insert_with(|| Box::new(Journal::new()));
    }

    /// The oldest event that was not fetched yet.
    pub fn next_event(&mut self) -> Option<Event> {
        self.journal.as_mut()?.next()
    }

    /// Events that were forgotten because nobody fetched them in time.
    pub fn missed_events(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.missed())
    }

    /// Whether the controller, asked again, answers as it did after the newest fact.
    pub(crate) fn answers_again(&self) -> bool {
        let Some(inner) = self.inner.as_deref() else { return true };
        caught(|| Answers::of(inner)).is_ok_and(|again| again == self.answers)
    }
}

#[cfg(test)]
mod tests;
