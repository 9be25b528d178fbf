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
        shared
            .member(Instant::ZERO, || Ok(Guarded::around("recorder", Family::Rate, controller)))
            .unwrap()
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

/// A controller with channel rules of its own.
fn with_other_rules() -> Guarded {
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
    Guarded::around("others", Family::Rate, Box::new(OtherRules(Recorder::default())))
}

#[test]
fn controllers_of_another_channel_are_rejected() {
    let entry = registry::find("fixed").unwrap();
    let shared = SharedController::default();
    let params = [("rate_mbps".to_owned(), "10".to_owned())];
    assert!(shared.member(Instant::ZERO, || entry.build(&params, Bytes(1500))).is_ok());
    let build = || Ok(with_other_rules());
    let error = SharedController::default().member(Instant::ZERO, build).unwrap_err();
    assert!(
        error.to_string().contains("'others'") || error.to_string().contains("others"),
        "{error}"
    );
}

/// A recorder's flow whose only member has ended at 10 ms, after an ACK of all packets.
fn after_a_member() -> (Recorder, SharedController) {
    let (recorder, shared, mut members) = members(1);
    members[0].on_ack(&acked(50, 50, 50), &moment(10));
    (recorder, shared)
}

#[test]
fn the_epoch_after_a_pause_counts_as_limited_if_acks_before_the_pause_are_missing() {
    for (arrived, is_limited) in [(50, false), (49, true)] {
        let (recorder, shared, mut members) = members(1);
        members[0].on_ack(&acked(50, arrived, arrived), &moment(10));
        drop(members);
        let mut later = shared.member(moment(500).now, || panic!("a controller exists")).unwrap();
        later.on_ack(&acked(20, 5, 5), &moment(600));
        later.on_ack(&acked(20, 10, 5), &moment(610));
        let acks = recorder.acks.lock().unwrap().clone();
        assert_eq!([1, 2].map(|at: usize| acks[at].is_app_limited), [is_limited, false]);
    }
}

#[test]
fn a_later_member_continues_with_the_counts_of_the_earlier_one() {
    let (recorder, shared) = after_a_member();
    let mut later = shared.member(moment(500).now, || panic!("a controller exists")).unwrap();
    assert_eq!(later.limits().gap.0, Span::from_micros(10), "the whole rate");
    later.on_ack(&acked(20, 5, 5), &moment(600));
    later.on_ack(&acked(20, 10, 5), &moment(610));
    let acks = recorder.acks.lock().unwrap().clone();
    let [_, second, third] = &acks[..] else { panic!("three ACKs") };
    assert_eq!((second.total, second.next), (Packets(55), SentNumber(70)));
    assert_eq!(third.total, Packets(60));
}

#[test]
fn a_member_after_a_long_pause_has_half_of_the_rate_until_its_first_ack() {
    let (_, shared) = after_a_member();
    let mut later = shared.member(moment(2000).now, || panic!("a controller exists")).unwrap();
    let limits = later.limits();
    assert_eq!((limits.gap.0, limits.window), (Span::from_micros(20), Some(Packets(45))));
    later.on_ack(&acked(20, 5, 5), &moment(2100));
    let limits = later.limits();
    assert_eq!((limits.gap.0, limits.window), (Span::from_micros(10), Some(Packets(90))));
}

#[test]
fn a_member_after_ten_seconds_builds_a_new_controller() {
    let (recorder, shared) = after_a_member();
    let other = Recorder::default();
    let build = || Ok(Guarded::around("other", Family::Rate, Box::new(other.clone())));
    let mut later = shared.member(moment(10_011).now, build).unwrap();
    later.on_ack(&acked(20, 5, 5), &moment(10_100));
    assert_eq!(recorder.acks.lock().unwrap().len(), 1);
    assert_eq!(other.acks.lock().unwrap()[0].total, Packets(5));
}

#[test]
fn a_member_without_packets_in_flight_has_no_part_of_the_rate() {
    let (_, _, mut members) = members(2);
    members[0].on_ack(&acked(20, 5, 5), &moment(1));
    members[1].on_ack(&acked(20, 20, 20), &moment(2));
    members[0].refresh(&moment(3));
    assert_eq!(members[0].limits().gap.0, Span::from_micros(10), "the other one is idle");
    members[1].on_ack(&acked(30, 20, 0), &moment(4));
    members[0].refresh(&moment(5));
    assert_eq!(members[0].limits().gap.0, Span::from_micros(20));
}

#[test]
fn a_request_beside_another_has_a_controller_of_its_own_and_the_next_one_a_new_one() {
    let shared = SharedController::of_one_at_a_time();
    let recorders = [(); 3].map(|()| Recorder::default());
    let begin = |of: &Recorder, ms| {
        let build = || Ok(Guarded::around("recorder", Family::Rate, Box::new(of.clone())));
        let mut member = shared.member(moment(ms).now, build).unwrap();
        member.on_ack(&acked(20, 5, 5), &moment(ms + 1));
        member
    };
    let both = [begin(&recorders[0], 1), begin(&recorders[1], 2)];
    drop(both);
    begin(&recorders[2], 4);
    let counts = recorders.map(|it| it.acks.lock().unwrap().len());
    assert_eq!(counts, [1, 1, 1], "the first one has measured its share");
}

#[test]
fn a_controller_with_rules_of_its_own_is_not_shared_by_requests() {
    let shared = SharedController::of_one_at_a_time();
    for _ in 0..2 {
        let own = shared.member(Instant::ZERO, || Ok(with_other_rules())).unwrap();
        assert_eq!(own.constants().rules.name, "others");
    }
}

#[test]
fn a_flow_is_limited_by_its_data_only_if_all_of_its_members_are() {
    let (recorder, _, mut members) = members(2);
    let limited = |arrived| Acked { is_app_limited: true, ..acked(50, arrived, 1) };
    members[0].on_ack(&acked(50, 10, 10), &moment(1));
    members[1].on_ack(&limited(10), &moment(2));
    members[0].on_ack(&limited(11), &moment(3));
    members[1].on_ack(&acked(50, 50, 40), &moment(4));
    members[0].on_ack(&limited(12), &moment(5));
    let acks = recorder.acks.lock().unwrap();
    let limited: Vec<_> = acks.iter().map(|it| it.is_app_limited).collect();
    assert_eq!(limited, [false, false, true, false, true]);
}
