//! Sums, shares and numbers of a shared controller.

use std::sync::{Arc, Mutex};

use sabul_units::{Instant, Rate};

use super::*;
use crate::controller::RttEstimate;
use crate::entry::Family;
use crate::registry;

/// Records the events that it receives.
#[derive(Clone, Debug, Default)]
struct Recorder {
    acks: Arc<Mutex<Vec<Acked>>>,
    losses: Arc<Mutex<Vec<LossReport>>>,
    intervals: Arc<Mutex<Vec<IntervalReport>>>,
    timeouts: Arc<Mutex<usize>>,
    is_searching: Arc<Mutex<bool>>,
}

impl Controller for Recorder {
    fn limits(&self) -> SendLimits {
        SendLimits { gap: Gap(Span::from_micros(10)), window: Some(Packets(90)), hold_until: None }
    }

    fn on_loss(&mut self, loss: &LossReport, _cx: &mut Context<'_>) {
        assert!(loss.first_time < Packets(999), "a controller with a defect");
        self.losses.lock().unwrap().push(*loss);
    }

    fn on_timeout(&mut self, _cx: &mut Context<'_>) {
        *self.timeouts.lock().unwrap() += 1;
    }

    fn on_ack(&mut self, acked: &Acked, _cx: &mut Context<'_>) {
        self.acks.lock().unwrap().push(*acked);
    }

    fn on_interval(&mut self, report: &IntervalReport, _cx: &mut Context<'_>) {
        self.intervals.lock().unwrap().push(*report);
    }

    fn phase(&self) -> Phase {
        let is_searching = *self.is_searching.lock().unwrap();
        // A controller without trains may have a phase of the same name.
        if is_searching { Phase::Search("ramp") } else { Phase::Named("ramp") }
    }
}

/// This number of members of a recorder.
fn members(count: usize) -> (Recorder, SharedController, Vec<Guarded>) {
    let (recorder, shared) = (Recorder::default(), SharedController::default());
    let member = |_| {
        let controller = Box::new(recorder.clone());
        shared.member(|| Ok(Guarded::around("recorder", Family::Rate, controller))).unwrap()
    };
    let members = (0..count).map(member).collect();
    (recorder, shared, members)
}

fn moment(ms: u64) -> Moment {
    let rtt = Span::from_millis(40);
    let rtt = RttEstimate { latest: rtt, smoothed: rtt, variance: Span::ZERO, min: rtt };
    Moment::new(Instant::ZERO + Span::from_millis(ms), Some(rtt), Bytes(1500))
}

/// An ACK after `sent` packets from number 100 on, of which `arrived` have arrived and none is lost.
fn acked(sent: u64, arrived: u64, newly: u64) -> Acked {
    let largest = SentNumber(100 + arrived).before();
    Acked {
        newly: Packets(newly),
        total: Packets(arrived),
        in_flight: Packets(sent - arrived),
        largest,
        cumulative_ack: largest,
        next: SentNumber(100 + sent),
        delivered: Bytes(arrived * 1500),
        ..Acked::default()
    }
}

#[test]
fn counts_are_sums_and_numbers_count_the_packets_of_all_members() {
    let (recorder, _, mut members) = members(2);
    members[0].on_ack(&acked(50, 10, 10), &moment(1));
    members[1].on_ack(&acked(30, 20, 20), &moment(2));
    members[0].on_ack(&acked(90, 60, 50), &moment(3));
    let acks = recorder.acks.lock().unwrap().clone();
    let [first, second, third] = &acks[..] else { panic!("three ACKs") };
    assert_eq!((first.total, second.total, third.total), (Packets(10), Packets(30), Packets(80)));
    assert_eq!((first.newly, second.newly, third.newly), (Packets(10), Packets(20), Packets(50)));
    assert_eq!(third.delivered, Bytes(80 * 1500));
    assert_eq!((first.in_flight, third.in_flight), (Packets(40), Packets(40)));
    assert_eq!((first.next.0, second.next.0, third.next.0), (50, 80, 120));
    assert_eq!(first.largest.0, 9, "no packet of another member was sent before");
    // Number 159 is the ninth of 40 packets that left while the flow sent its packets 50 to 120.
    assert!((60..=70).contains(&third.largest.0), "{third:?}");
}

#[test]
fn limits_are_divided_among_the_members_that_are_left() {
    let (_, _, mut members) = members(3);
    members.iter_mut().for_each(|member| member.on_ack(&acked(2, 1, 1), &moment(1)));
    members.iter_mut().for_each(|member| member.refresh(&moment(2)));
    for member in &members {
        let limits = member.limits();
        assert_eq!((limits.gap.0, limits.window), (Span::from_micros(30), Some(Packets(30))));
    }
    members.truncate(1);
    members[0].refresh(&moment(3));
    assert_eq!(members[0].limits().gap.0, Span::from_micros(10), "as one channel");
}

#[test]
fn a_member_with_smaller_packets_has_the_same_rate() {
    let (_, _, mut members) = members(2);
    members[0].on_ack(&acked(2, 1, 1), &Moment::new(Instant::ZERO, None, Bytes(9000)));
    members[1].on_ack(&acked(2, 1, 1), &Moment::new(Instant::ZERO, None, Bytes(1500)));
    members[0].refresh(&moment(1));
    let rates = [9000, 1500].map(Bytes);
    let rates: Vec<Option<Rate>> =
        members.iter().zip(rates).map(|(member, bytes)| member.limits().rate(bytes)).collect();
    assert_eq!(rates[0], rates[1]);
}

#[test]
fn only_the_first_member_sends_and_counts_during_a_search() {
    let (recorder, _, mut members) = members(2);
    *recorder.is_searching.lock().unwrap() = true;
    for (arrived, member) in [(1, 0), (1, 1), (2, 0)] {
        members[member].on_ack(&acked(2, arrived, 1), &moment(arrived));
    }
    assert_eq!(members[0].limits().gap.0, Span::from_micros(10), "the whole rate");
    let limits = members[1].limits();
    assert_eq!((limits.gap.0, limits.window), (Span::from_millis(40), Some(Packets(1))));
    assert_eq!(members[1].phase(), Phase::Waiting);
    assert_eq!(recorder.acks.lock().unwrap().len(), 2);
    *recorder.is_searching.lock().unwrap() = false;
    members[0].on_ack(&acked(3, 3, 1), &moment(4));
    members[1].refresh(&moment(5));
    assert_eq!(members[1].phase(), Phase::Named("ramp"));
    let last = *recorder.acks.lock().unwrap().last().unwrap();
    assert_eq!(last.total, Packets(3), "without the packet that did not count");
}

#[test]
fn a_flow_times_out_when_no_member_has_answers() {
    let (recorder, _, mut members) = members(2);
    members.iter_mut().for_each(|member| member.on_ack(&acked(5, 1, 1), &moment(1)));
    let count = || *recorder.timeouts.lock().unwrap();
    members[0].on_timeout(&moment(2));
    assert_eq!(count(), 0, "the other member has answers");
    members[1].on_timeout(&moment(3));
    assert_eq!(count(), 1);
    members[0].on_timeout(&moment(4));
    assert_eq!(count(), 1, "one timeout for all members");
    members[0].on_ack(&acked(5, 2, 1), &moment(5));
    members[1].on_timeout(&moment(6));
    assert_eq!(count(), 1);
}

#[test]
fn an_interval_sums_the_members_and_ends_with_that_of_the_first() {
    let (recorder, _, mut members) = members(2);
    let report = |sent, is_below| {
        let [sent, none] = [sent, 0].map(Packets);
        IntervalReport::new(sent, none, none, Span::from_millis(10), is_below)
    };
    members[1].on_interval(&report(3, true), &moment(1));
    members[0].on_interval(&report(4, false), &moment(2));
    members[0].on_interval(&report(5, false), &moment(3));
    let intervals = recorder.intervals.lock().unwrap();
    let seen: Vec<_> = intervals.iter().map(|it| (it.sent.0, it.is_below_rate)).collect();
    assert_eq!(seen, [(7, true), (5, false)]);
}

#[test]
fn a_fault_of_the_controller_is_a_fault_of_each_member() {
    let (_, _, mut members) = members(2);
    let loss =
        |packets| LossReport::new(Packets(packets), Packets(0), SentNumber(1), SentNumber(1000));
    members[0].on_loss(&loss(1), &moment(1));
    assert!(members[0].fault().is_none());
    members[0].on_loss(&loss(999), &moment(2));
    members[1].on_ack(&acked(2, 1, 1), &moment(3));
    for member in &members {
        let fault = member.fault().map(ToString::to_string).unwrap_or_default();
        assert!(fault.contains("a controller with a defect"), "{fault}");
    }
}

#[test]
fn controllers_of_another_channel_are_rejected() {
    let entry = registry::find("fixed").unwrap();
    let shared = SharedController::default();
    let params = [("rate_mbps".to_owned(), "10".to_owned())];
    assert!(shared.member(|| entry.build(&params, Bytes(1500))).is_ok());
    let with_rules = Recorder::default();
    #[derive(Debug)]
    struct OtherRules(Recorder);
    impl Controller for OtherRules {
        fn limits(&self) -> SendLimits {
            self.0.limits()
        }
        fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
        fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
        fn constants(&self) -> Constants {
            let rules = ChannelRules { name: "others", ..ChannelRules::STANDARD };
            Constants { rules, ..Constants::default() }
        }
    }
    let build = || Ok(Guarded::around("others", Family::Rate, Box::new(OtherRules(with_rules))));
    let error = SharedController::default().member(build).unwrap_err();
    assert!(
        error.to_string().contains("'others'") || error.to_string().contains("others"),
        "{error}"
    );
}
