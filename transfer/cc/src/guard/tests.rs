//! Tests of the guard with controllers that break each rule.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use sabul_units::Rate;

use super::*;
use crate::channel::ChannelRules;
use crate::controller::{Context, RttEstimate, SentNumber};
use crate::params::ParamSpec;
use crate::phase::Phase;
use crate::registry::find;

/// Controller with good limits until a loss report, whose numbers select a bad value.
#[derive(Debug)]
struct BadLimits {
    limits: SendLimits,
    interval: Span,
    burst: u64,
}

const OWN: Constants = Constants {
    rules: ChannelRules { name: "own", has_naks: false },
    burst: Packets(7),
    tolerates_random_loss: true,
    needs_accurate_ecn: true,
    is_shared: false,
};
const GOOD: SendLimits = SendLimits { gap: Gap::NONE, window: Some(Packets(5)), hold_until: None };

impl Controller for BadLimits {
    fn limits(&self) -> SendLimits {
        self.limits
    }
    fn on_loss(&mut self, loss: &LossReport, _cx: &mut Context<'_>) {
        match loss.first_lost.0 {
            0 => self.limits.window = Some(Packets(0)),
            1 => self.limits.window = None,
            2 => self.limits.gap = Gap(Span(loss.largest_sent.0)),
            3 => self.limits.hold_until = Some(Instant(loss.largest_sent.0)),
            4 => self.interval = Span(loss.largest_sent.0),
            5 => panic!("the window is\n  {}", -1),
            6 => panic!("plain words"),
            7 => panic::panic_any(7),
            _ => self.limits.window = Some(Packets(loss.largest_sent.0)),
        }
    }
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {
        self.limits.window = Some(Packets(1));
    }
    fn constants(&self) -> Constants {
        Constants { burst: Packets(self.burst), ..Constants::default() }
    }
    fn syn_interval(&self) -> Span {
        self.interval
    }
}

const WORDS: &[ParamSpec] =
    &[ParamSpec::word("when", &["never", "now", "closed", "burst"], "never")];

fn entry(family: Family) -> Entry {
    Entry {
        name: "odd",
        params: WORDS,
        family,
        build: |params, _| {
            assert!(params.word("when") != "now", "now it is");
            let mut limits = GOOD;
            if params.word("when") == "closed" {
                limits.window = Some(Packets(0));
            }
            let burst = if params.word("when") == "burst" { u64::MAX } else { 3 };
            Ok(Box::new(BadLimits { limits, interval: SYN_INTERVAL, burst }))
        },
        ..*find("fixed").unwrap()
    }
}

fn at(now: Span) -> Moment {
    Moment::new(Instant::ZERO + now, None, Bytes(1500))
}

/// Returns the guarded controller after one loss report with these numbers, at three seconds.
fn after(family: Family, first: u64, value: u64) -> Guarded {
    let mut guarded = entry(family).build(&[], Bytes(1500)).unwrap();
    assert_eq!((guarded.limits(), guarded.fault()), (GOOD, None));
    let report = LossReport::new(Packets(1), Packets(0), SentNumber(first), SentNumber(value));
    guarded.on_loss(&report, &at(Span::from_secs(3)));
    guarded
}

#[track_caller]
fn assert_fault(first: u64, value: u64, word: &str) {
    let mut guarded = after(Family::Window, first, value);
    let text = guarded.fault().unwrap().to_string();
    assert!(text.starts_with("controller 'odd' is at fault: after 3.000 s its on_loss "), "{text}");
    assert!(text.contains(word) && !text.contains('\n'), "{text}");
    assert_eq!(guarded.limits(), GOOD, "the last good limits stand");
    // The controller is not called any more, and the first fault is kept.
    guarded.on_timeout(&at(Span::from_secs(4)));
    assert_eq!((guarded.limits(), guarded.syn_interval()), (GOOD, SYN_INTERVAL));
    assert_eq!(guarded.fault().unwrap().to_string(), text);
}

#[test]
fn limits_that_stop_or_overload_a_sender_are_faults() {
    let second = Span::from_secs(1).0;
    assert_fault(0, 0, "a window of 0 packets");
    assert_fault(1, 0, "no window");
    assert_fault(2, 61 * second, "a gap of 61 s");
    assert_fault(2, u64::MAX, "a gap");
    assert_fault(3, 64 * second, "a hold of 61 s");
    assert_fault(3, u64::MAX, "a hold");
    assert_fault(4, 0, "an interval of 0 s");
    assert_fault(4, u64::MAX, "an interval");
}

#[test]
fn a_burst_is_passed_on_if_it_is_within_limits() {
    let burst = |when: &str| {
        let given = [("when".to_owned(), when.to_owned())];
        let guarded = entry(Family::Rate).build(&given, Bytes(1500)).unwrap();
        (guarded.constants().burst.0, guarded.fault().map(ToString::to_string))
    };
    assert_eq!(burst("never"), (3, None));
    let (packets, fault) = burst("burst");
    assert_eq!(packets, 1);
    assert!(fault.unwrap().contains("its build left a burst of 18446744073709551615 packets"));
}

#[test]
fn unusual_but_legal_limits_are_not_faults() {
    let second = Span::from_secs(1).0;
    for (first, value) in
        [(2, 60 * second), (3, 63 * second), (3, 0), (4, 60 * second), (8, u64::MAX), (8, 1)]
    {
        assert_eq!(after(Family::Window, first, value).fault(), None, "{first} {value}");
    }
    assert_eq!(after(Family::Rate, 1, 0).fault(), None, "a controller of rates needs no window");
    // A gap may be as long as an RTT, however long.
    let mut guarded = entry(Family::Rate).build(&[], Bytes(1500)).unwrap();
    let rtt = Span::from_secs(100);
    let estimate = RttEstimate { latest: rtt, smoothed: rtt, variance: rtt, min: rtt };
    let cx = Moment::new(Instant::ZERO, Some(estimate), Bytes(1500));
    guarded
        .on_loss(&LossReport::new(Packets(1), Packets(0), SentNumber(2), SentNumber(rtt.0)), &cx);
    assert_eq!(guarded.fault(), None);
    assert_eq!(guarded.limits().gap.0, rtt);
}

#[test]
fn a_panic_is_a_fault_with_its_message_on_one_line() {
    assert_fault(5, 0, "panicked: the window is -1");
    assert_fault(6, 0, "panicked: plain words");
    assert_fault(7, 0, "panicked: without a message");
}

#[test]
fn a_panic_while_building_a_controller_is_a_fault() {
    let with = |word: &str| {
        let given = [("when".to_owned(), word.to_owned())];
        entry(Family::Rate).build(&given, Bytes(1500))
    };
    assert_eq!(with("never").unwrap().fault(), None);
    assert!(with("later").unwrap_err().to_string().contains("'later'"), "a refusal stays one");
    for (word, why) in
        [("now", "its build panicked: now it is"), ("closed", "its build left a win")]
    {
        let mut broken = with(word).unwrap();
        let text = broken.fault().unwrap().to_string();
        assert!(text.contains(why), "{text}");
        broken.on_timeout(&at(Span::ZERO));
        assert!(broken.limits().window > Some(Packets(0)), "somebody may still drive it");
    }
}

/// Controller that records its called callbacks; each returns a value other than the trait's
/// default.
#[derive(Clone, Debug, Default)]
struct CallRecorder {
    called: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl CallRecorder {
    fn note<T>(&self, callback: &'static str, answer: T) -> T {
        self.called.lock().unwrap().insert(callback);
        answer
    }
}

/// Path facts that the controller remembers.
const SEEN: PathFacts = PathFacts { rate: Rate::from_mbps(3), rtt: Span::from_millis(7) };

impl Controller for CallRecorder {
    fn limits(&self) -> SendLimits {
        self.note("limits", GOOD)
    }
    fn on_loss(&mut self, loss: &LossReport, _cx: &mut Context<'_>) {
        assert_eq!(loss.first_time, Packets(1));
        self.note("on_loss", ());
    }
    fn on_timeout(&mut self, _cx: &mut Context<'_>) {
        self.note("on_timeout", ());
    }
    fn on_undo(&mut self, _cx: &mut Context<'_>) {
        self.note("on_undo", ());
    }
    fn on_ack(&mut self, acked: &Acked, _cx: &mut Context<'_>) {
        assert_eq!(acked.newly, Packets(2));
        self.note("on_ack", ());
    }
    fn on_interval(&mut self, report: &IntervalReport, _cx: &mut Context<'_>) {
        assert_eq!(report.sent, Packets(3));
        self.note("on_interval", ());
    }
    fn on_report(&mut self, report: &BulkReport, _cx: &mut Context<'_>) {
        assert_eq!(*report, BulkReport::ErrorRate(4));
        self.note("on_report", ());
    }
    fn on_policy(&mut self, policy: Policy, _cx: &mut Context<'_>) {
        assert_eq!(policy, Policy::Low);
        self.note("on_policy", ());
    }
    fn on_memory(&mut self, facts: &PathFacts, _cx: &mut Context<'_>) {
        assert_eq!(*facts, SEEN);
        self.note("on_memory", ());
    }
    fn path(&self, _: Bytes) -> Option<PathFacts> {
        self.note("path", Some(SEEN))
    }
    fn constants(&self) -> Constants {
        self.note("constants", OWN)
    }
    fn header(&self) -> Option<CongestionFields> {
        self.note("header", Some(CongestionFields::Own([1, 2, 3, 4])))
    }
    fn syn_interval(&self) -> Span {
        self.note("syn_interval", Span::from_millis(8))
    }
    fn phase(&self) -> Phase {
        self.note("phase", Phase::Named("noting"))
    }
}

/// Returns the names of the trait's functions, from its source.
fn callbacks() -> BTreeSet<&'static str> {
    let source = include_str!("../controller.rs");
    let (_, after) = source.split_once("pub trait Controller").unwrap();
    let (body, _) = after.split_once("\n}\n").unwrap();
    let functions = body.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
    functions.map(|rest| rest.split_once('(').unwrap().0).collect()
}

#[test]
fn every_callback_of_the_trait_goes_through_the_guard() {
    let noting = CallRecorder::default();
    let mut guarded = Guarded::around("noting", Family::Rate, Box::new(noting.clone()));
    let cx = at(Span::from_secs(1));
    // Calls of a sender return the controller's values.
    assert_eq!((guarded.limits(), guarded.constants()), (GOOD, OWN));
    assert_eq!(guarded.syn_interval(), Span::from_millis(8));
    assert_eq!(guarded.phase(), Phase::Named("noting"));
    assert_eq!(guarded.header(), Some(CongestionFields::Own([1, 2, 3, 4])));
    // Events of a sender reach the controller unchanged.
    guarded.on_loss(&LossReport::new(Packets(1), Packets(0), SentNumber(5), SentNumber(6)), &cx);
    guarded.on_timeout(&cx);
    guarded.on_undo(&cx);
    guarded.on_ack(&Acked { newly: Packets(2), ..Acked::default() }, &cx);
    let report = IntervalReport::new(Packets(3), Packets(0), Packets(0), SYN_INTERVAL, false);
    guarded.on_interval(&report, &cx);
    guarded.on_report(&BulkReport::ErrorRate(4), &cx);
    guarded.on_policy(Policy::Low, &cx);
    guarded.on_memory(&SEEN, &cx);
    assert_eq!(guarded.path(Bytes(1500)), Some(SEEN));
    assert_eq!(guarded.fault(), None);
    let called = noting.called.lock().unwrap().clone();
    assert_eq!(
        called,
        callbacks(),
        "a callback that is new in the trait needs a line in the guard"
    );
}

/// Controller that changes the form of its headers at an ACK.
#[derive(Debug)]
struct FormChanger(Option<CongestionForm>);

impl Controller for FormChanger {
    fn limits(&self) -> SendLimits {
        GOOD
    }
    fn on_loss(&mut self, _: &LossReport, _: &mut Context<'_>) {}
    fn on_timeout(&mut self, _: &mut Context<'_>) {}
    fn on_ack(&mut self, _: &Acked, _: &mut Context<'_>) {
        self.0 = None;
    }
    fn header(&self) -> Option<CongestionFields> {
        self.0.map(CongestionForm::blank)
    }
}

#[test]
fn a_change_of_the_congestion_header_form_is_a_fault() {
    let fickle = FormChanger(Some(CongestionForm::Rcp));
    let mut guarded = Guarded::around("fickle", Family::Rate, Box::new(fickle));
    guarded.on_timeout(&at(Span::ZERO));
    assert_eq!(guarded.fault(), None);
    guarded.on_ack(&Acked::default(), &at(Span::ZERO));
    let fault = guarded.fault().unwrap();
    assert!(fault.what.contains("another form"), "{fault}");
    assert_eq!(guarded.header().map(|fields| fields.form()), Some(CongestionForm::Rcp));
}
