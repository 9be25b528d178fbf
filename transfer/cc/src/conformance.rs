//! Conformance suite for every controller, of this crate or of a user.
//!
//! Each check drives the controller over a small closed-loop path: one drop-tail queue of known
//! rate and delay, simulated packet by packet in virtual time. The tolerances do not measure
//! quality; a controller that fails is broken.

pub mod path;
#[cfg(test)]
mod published;
pub mod response;

use sabul_units::{
    Bytes, CongestionFields, CongestionHeader, Instant, JetMaxFields, NO_RATE, Packets,
    Probability, Random, Rate, SeededRandom, Span,
};

use crate::channel::BulkReport;
use crate::controller::{Acked, Echo, IntervalReport, LossReport, Moment, SentNumber};
use crate::entry::{Entry, Family};
use crate::guard::Guarded;
use crate::params::Unit;
use path::{Change, PACKET, Path, Trace, illegal, moment, run};

/// Number of random event sequences, and events in each sequence.
const SEQUENCES: u64 = 50;
const SEQUENCE_EVENTS: u32 = 400;

/// Violation of a rule by a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The violated rule.
    pub rule: &'static str,
    /// Description of the violation.
    pub seen: String,
}

/// Violations found so far.
#[derive(Debug, Default)]
struct Findings(Vec<Violation>);

impl Findings {
    fn rule(&mut self, rule: &'static str, is_kept: bool, seen: String) {
        if !is_kept {
            self.0.push(Violation { rule, seen });
        }
    }
}

/// Clean path of 100 Mb/s and 40 ms. One packet of 1500 bytes takes 120 µs, and the queue holds a
/// BDP of 333 packets.
pub const CLEAN: Path = Path {
    service: Span::from_micros(120),
    rtt: Span::from_millis(40),
    queue: 333,
    loss: Probability::ZERO,
    mark: None,
    change: None,
};

/// 10 Mb/s and 4 ms, with a queue of six BDPs: loss and delay signals are coarse.
const SHORT: Path =
    Path { service: Span::from_micros(1200), rtt: Span::from_millis(4), queue: 20, ..CLEAN };

/// 200 Mb/s and 150 ms: a BDP of 2500 packets, and ECN marks from half a queue on.
const LONG: Path = Path {
    service: Span::from_micros(60),
    rtt: Span::from_millis(150),
    queue: 2500,
    mark: Some(1250),
    ..CLEAN
};

/// After five seconds the application offers a tenth of the link's rate.
const LIMITED: Path = Path {
    change: Some((Instant(Span::from_secs(5).0), Change::Application(Span::from_micros(1200)))),
    ..CLEAN
};

/// Runs every check and returns the violations; an empty list is a pass.
///
/// # Panics
/// If the controller's own specs reject its default parameters.
pub fn check(entry: &Entry) -> Vec<Violation> {
    let build = || entry.build(&[], PACKET).expect("defaults are inside their own ranges");
    let mut found = Findings::default();
    let first = run(&mut build(), CLEAN, 5);
    let second = run(&mut build(), CLEAN, 5);
    found.rule(
        "the same facts give the same answers",
        first == second,
        "two runs over the same path differ".to_owned(),
    );
    let illegal = first.illegal.as_ref().or(second.illegal.as_ref()).cloned();
    found.rule(
        "limits are pure and legal at all times",
        illegal.is_none(),
        illegal.unwrap_or_default(),
    );
    let shaken = (0..SEQUENCES).find_map(|seed| shake(&mut build(), seed));
    found.rule(
        "any order of any facts leaves legal limits",
        shaken.is_none(),
        shaken.unwrap_or_default(),
    );
    if entry.is_adaptive {
        check_adaptive(&build, entry.family, &first, &mut found);
    }
    found.0
}

/// Builds the controller with the default, both bounds and every word of each parameter, and with
/// values beyond. Returns values that were wrongly refused or taken, as `CONTROLLER PARAMETER=VALUE`
/// after the rule.
pub fn check_params(entry: &Entry) -> Vec<Violation> {
    let mut found = Findings::default();
    for spec in entry.params {
        let what = |value: &str| format!("{} {}={value}", entry.name, spec.name);
        let build = |value: &str| entry.build(&[(spec.name.to_owned(), value.to_owned())], PACKET);
        let mut takes = |value: &str| {
            let is_taken = build(value).is_ok_and(|built| built.fault().is_none());
            found.rule("a parameter takes its default, bounds and words", is_taken, what(value));
        };
        takes(spec.default);
        let (least, most) = spec.range;
        let (beyond, allowed) = match spec.unit {
            Unit::Word(words) => {
                words.iter().for_each(|word| takes(word));
                (vec!["no-such-word".to_owned()], words.join(", "))
            }
            unit => {
                if let Unit::NumberOr(word) = unit {
                    takes(word);
                }
                takes(&least.to_string());
                takes(&most.to_string());
                let above = (most * 2.0 + 1.0).to_string();
                let below = (least - least.abs() / 2.0 - 1e-9).to_string();
                (vec![above, below], format!("{least} to {most}"))
            }
        };
        for value in beyond {
            let is_refused = build(&value).is_err_and(|error| {
                error.setting.contains(spec.name) && error.allowed.contains(&allowed)
            });
            let rule = "a parameter refuses values beyond, by its name and range";
            found.rule(rule, is_refused, what(&value));
        }
    }
    found.0
}

/// Checks an adaptive controller; `clean` is its trace over [`CLEAN`].
fn check_adaptive(
    build: &dyn Fn() -> Guarded,
    family: Family,
    clean: &Trace,
    found: &mut Findings,
) {
    let clean_sent = last_second(&clean.sent);
    let filled = last_second(&clean.arrived);
    found.rule(
        "an idle path is filled to half within five seconds",
        filled > 8333 / 2,
        format!("{filled} of 8333 packets in the last second"),
    );
    for (name, path, seconds) in [("short", SHORT, 5), ("long", LONG, 10)] {
        let trace = run(&mut build(), path, seconds);
        let (filled, all) = (last_second(&trace.arrived), Span::from_secs(1).0 / path.service.0);
        found.rule(
            "idle paths of any length are filled to half within ten seconds",
            filled > all / 2 && trace.illegal.is_none(),
            format!("{name}: {filled} of {all} packets, {:?}", trace.illegal),
        );
    }
    // Controllers with a loss report each 350 ms and decreases of a few per cent need longer.
    let has_naks = build().constants().rules.has_naks;
    if !build().constants().tolerates_random_loss {
        let lossy = Path { loss: Probability::per_mille(300), ..CLEAN };
        let hurt = last_second(&run(&mut build(), lossy, if has_naks { 5 } else { 60 }).sent);
        found.rule(
            "heavy loss lowers the rate",
            hurt * 10 < clean_sent * 7,
            format!("{hurt} packets a second are sent at 30 % loss, {clean_sent} without"),
        );
    }
    let service = CLEAN.service * 4;
    let narrows = Some((Instant::ZERO + Span::from_secs(4), Change::Service(service)));
    let narrow = Path { queue: 80, change: narrows, ..CLEAN };
    let sent = last_second(&run(&mut build(), narrow, if has_naks { 9 } else { 60 }).sent);
    found.rule(
        "a link that becomes narrow is not flooded",
        sent < 8333 / 4 * 3 / 2,
        format!("{sent} packets a second are sent where the link carries {}", 8333 / 4),
    );
    if has_naks {
        check_limited(build(), family, found);
    }
    check_silence(build(), found);
}

/// Checks a limited source: the window of a window-based controller, or the packets per RTT of a
/// rate-based controller.
fn check_limited(mut limited: Guarded, family: Family, found: &mut Findings) {
    let trace = run(&mut limited, LIMITED, 15);
    let most = |tenths: &[(u64, u64)]| {
        let limit =
            |(window, round): &(u64, u64)| if family == Family::Rate { *round } else { *window };
        tenths.iter().map(limit).max().unwrap_or(0)
    };
    // Packets sent before the application was limited are acknowledged within 0.2 s.
    let (before, after) = (most(&trace.allowed[20..50]), most(&trace.allowed[52..]));
    found.rule(
        "a limited source does not raise the limits",
        after * 4 <= before * 5,
        format!("{before} packets a round trip before, {after} while the application has 33"),
    );
}

fn check_silence(mut silenced: Guarded, found: &mut Findings) {
    run(&mut silenced, CLEAN, 2);
    let before = silenced.limits();
    for _ in 0..20 {
        silenced.on_timeout(&moment(Instant::ZERO + Span::from_secs(9), CLEAN.rtt, CLEAN.rtt));
    }
    let after = silenced.limits();
    found.rule(
        "silence lowers the rate or the window",
        after.gap > before.gap || after.window < before.window,
        format!("{before:?} became {after:?}"),
    );
}

/// Returns the packets of the last second.
fn last_second(tenths: &[u64]) -> u64 {
    tenths.iter().rev().take(10).sum()
}

/// Sends event sequences that no path would produce; returns the event after which a value was
/// illegal.
fn shake(controller: &mut Guarded, seed: u64) -> Option<String> {
    let mut rng = SeededRandom::new(seed).fork("shake");
    let (mut now, mut next, mut total) = (Instant::ZERO, 0u64, 0u64);
    (0..SEQUENCE_EVENTS).find_map(|step| {
        // Powers of two up to 2^31, so that small numbers are as likely as large numbers.
        let (kind, scale) = (rng.below(9), 1 << rng.below(32));
        let mut draw = || rng.below(scale);
        now = now + Span::from_nanos(draw());
        let base = Span::from_micros(1) + Span::from_nanos(draw());
        let moment = moment(now, base + Span::from_nanos(draw()), base);
        next += draw();
        let largest = next.saturating_sub(draw());
        let event = if kind < 4 {
            send_event(controller, kind, [largest, next].map(SentNumber), &moment, &mut draw)
        } else {
            let newly = draw();
            total += newly;
            let echo = controller.header().map(|fields| arbitrary_echo(fields, &mut draw));
            let acked = Acked {
                echo,
                newly: Packets(newly),
                total: Packets(total),
                in_flight: Packets(draw()),
                marked: Packets(draw().saturating_sub(scale / 2)),
                largest: SentNumber(largest),
                cumulative_ack: SentNumber(largest),
                next: SentNumber(next),
                delivered: Bytes(total * PACKET.0),
                arrived_at: Span::from_nanos(draw()),
                ..Acked::default()
            };
            controller.on_ack(&acked, &moment);
            format!("{acked:?}")
        };
        illegal(controller).map(|what| format!("{what}: seed {seed}, step {step}, after {event}"))
    })
}

/// Returns header fields that no correct router would write, for a header with these fields.
fn arbitrary_echo(fields: CongestionFields, mut draw: impl FnMut() -> u64) -> Echo {
    let mut rate = || if draw().is_multiple_of(2) { NO_RATE } else { Rate(draw()) };
    let signalled = rate();
    let span = Span::from_nanos(draw());
    let [small, other] = [draw(), draw()].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    let fields = match fields {
        CongestionFields::Xcp { rtt, interval, .. } => {
            let delta = draw().cast_signed();
            CongestionFields::Xcp {
                rtt,
                interval,
                delta: if small.is_multiple_of(2) { delta } else { -delta },
            }
        }
        CongestionFields::Rcp { rtt, .. } => CongestionFields::Rcp { rtt, rate: signalled },
        CongestionFields::PiqiRcp { rtt, .. } => CongestionFields::PiqiRcp { rtt, rate: signalled },
        CongestionFields::JetMax(sent) => CongestionFields::JetMax(JetMaxFields {
            interval: span,
            fair: signalled,
            loss: small.cast_signed(),
            loss_max: other.cast_signed(),
            suggested: small % 4,
            ..sent
        }),
        CongestionFields::Emkc { .. } => CongestionFields::Emkc {
            interval: span,
            loss: i64::from(small.cast_signed()) - i64::from(other),
            router: small % 4,
            round: other,
        },
        CongestionFields::MaxNet { .. } => CongestionFields::MaxNet { price: span },
        CongestionFields::Own(_) => CongestionFields::Own([draw(), draw(), draw(), draw()]),
    };
    let routers = u8::try_from(small % 3).unwrap_or(0);
    let header = CongestionHeader { routers, queued: Span::from_nanos(draw()), fields };
    Echo { header, delta: other.cast_signed().into() }
}

/// Sends one of four kinds of events other than ACKs; returns its description.
fn send_event(
    controller: &mut Guarded,
    kind: u64,
    [first_lost, largest_sent]: [SentNumber; 2],
    moment: &Moment,
    mut draw: impl FnMut() -> u64,
) -> String {
    match kind {
        0 => {
            let (first_time, repeats) = (Packets(draw()), Packets(draw()));
            let report = LossReport::new(first_time, repeats, first_lost, largest_sent);
            controller.on_loss(&report, moment);
            format!("{report:?}")
        }
        1 => {
            controller.on_timeout(moment);
            "a timeout".to_owned()
        }
        2 => {
            let [sent, resent, lost] = [draw(), draw(), draw()].map(Packets);
            let elapsed = Span::from_micros(1 + draw());
            let report = IntervalReport::new(sent, resent, lost, elapsed, draw().is_multiple_of(2));
            controller.on_interval(&report, moment);
            format!("{report:?}")
        }
        _ => {
            let (sent, error) = (draw(), draw() % 100_001);
            let report = match error % 3 {
                0 => {
                    BulkReport::Account { sent: Packets(sent), arrived: Packets(draw().min(sent)) }
                }
                1 => BulkReport::PairTime(Span::from_nanos(1 + draw())),
                _ => BulkReport::ErrorRate(u32::try_from(error).unwrap_or(0)),
            };
            controller.on_report(&report, moment);
            format!("{report:?}")
        }
    }
}

/// Returns the events of a controller on a path of 20 Mb/s and 40 ms with a queue of one BDP and a
/// random loss of one in a thousand. Three timeouts, one second apart, follow the run.
///
/// # Panics
/// If the controller rejects the parameters, or has more events than are kept.
pub fn events_of(entry: &Entry, params: &[(String, String)]) -> Vec<String> {
    let path = Path {
        service: Span::from_micros(600),
        rtt: Span::from_millis(40),
        queue: 67,
        loss: Probability::per_mille(1),
        ..CLEAN
    };
    let mut controller = entry.build(params, PACKET).expect("the parameters are allowed");
    controller.listen();
    let seconds = 4;
    run(&mut controller, path, seconds);
    for later in 1..=3 {
        let now = Instant::ZERO + Span::from_secs(seconds + later);
        controller.on_timeout(&moment(now, path.rtt, path.rtt));
    }
    assert_eq!(controller.missed_events(), 0, "{}: the journal holds all of it", entry.name);
    std::iter::from_fn(|| controller.next_event()).map(|event| event.to_string()).collect()
}

/// Compares text with a committed file below `tests`; `SABUL_GOLDEN=write` rewrites the file.
#[cfg(test)]
pub(crate) fn compare_golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    if std::env::var_os("SABUL_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::create_dir_all(path.parent().expect("the file is in a folder")).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    for (line, (kept, now)) in kept.lines().zip(text.lines()).enumerate() {
        assert_eq!(kept, now, "{name}, line {}", line + 1);
    }
    assert_eq!(kept, text, "{name}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{Context, Controller, SendLimits};
    use crate::params::{ConfigError, ParamSpec, ParamValues};
    use crate::registry::{ENTRIES, find};

    #[test]
    fn every_registered_controller_conforms() {
        let broken = ENTRIES.iter().map(|entry| (entry.name, check(entry)));
        let broken: Vec<_> = broken.filter(|(_, violations)| !violations.is_empty()).collect();
        assert_eq!(broken, []);
    }

    /// Sends as fast as [`CLEAN`] serves, whatever happens.
    #[derive(Debug)]
    struct Unresponsive;

    impl Controller for Unresponsive {
        fn limits(&self) -> SendLimits {
            SendLimits { gap: sabul_units::Gap(CLEAN.service), window: None, hold_until: None }
        }
        fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {}
        fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
    }

    #[test]
    fn the_suite_detects_a_controller_that_ignores_loss() {
        let build: crate::entry::Build = |_, _| Ok(Box::new(Unresponsive));
        let deaf = Entry { is_adaptive: true, build, ..*find("fixed").unwrap() };
        let rules: Vec<_> = check(&deaf).into_iter().map(|violation| violation.rule).collect();
        for rule in [
            "heavy loss lowers the rate",
            "a link that becomes narrow is not flooded",
            "silence lowers the rate or the window",
        ] {
            assert!(rules.contains(&rule), "{rule}: {rules:?}");
        }
    }

    #[test]
    fn every_parameter_accepts_its_default_bounds_and_words_only() {
        let found: Vec<_> = ENTRIES.iter().flat_map(check_params).collect();
        assert_eq!(found, []);
    }

    #[test]
    fn wrong_ranges_of_a_parameter_are_found() {
        const WINDOW: ParamSpec = ParamSpec::new("window", Unit::Packets, "5", (1.0, 10.0));
        let picky: crate::entry::Build = |values, _| match values.number("window") {
            window if window > 9.0 => Err(ConfigError {
                setting: "window".to_owned(),
                value: window.to_string(),
                allowed: "less".to_owned(),
            }),
            _ => Ok(Box::new(Unresponsive)),
        };
        let entry = Entry { params: &[WINDOW], build: picky, ..*find("fixed").unwrap() };
        let seen: Vec<_> = check_params(&entry).into_iter().map(|found| found.seen).collect();
        assert_eq!(seen, ["fixed window=10"]);
    }

    #[test]
    fn two_registered_controllers_distinguish_random_loss_from_overload() {
        let is_tolerant =
            |entry: &&Entry| entry.build(&[], PACKET).unwrap().constants().tolerates_random_loss;
        let names: Vec<_> = ENTRIES.iter().filter(is_tolerant).map(|entry| entry.name).collect();
        assert_eq!(names, ["sabul2026", "bbr3"]);
        let draft = [("loss".to_owned(), "draft".to_owned())];
        assert!(
            !find("bbr3").unwrap().build(&draft, PACKET).unwrap().constants().tolerates_random_loss
        );
    }

    /// Closes its window after two losses without an ACK between them.
    #[derive(Debug, Default)]
    struct Closing {
        losses: u64,
    }

    impl Controller for Closing {
        fn limits(&self) -> SendLimits {
            let window = Some(Packets(2u64.saturating_sub(self.losses)));
            SendLimits { gap: sabul_units::Gap::NONE, window, hold_until: None }
        }
        fn on_loss(&mut self, _loss: &LossReport, _cx: &mut Context<'_>) {
            self.losses += 1;
        }
        fn on_timeout(&mut self, _cx: &mut Context<'_>) {}
        fn on_ack(&mut self, _acked: &Acked, _cx: &mut Context<'_>) {
            self.losses = 0;
        }
    }

    #[test]
    fn the_suite_detects_a_controller_that_closes_its_window() {
        let closing =
            Entry { build: |_, _| Ok(Box::<Closing>::default()), ..*find("fixed").unwrap() };
        let found = check(&closing);
        let rules: Vec<_> = found.iter().map(|violation| violation.rule).collect();
        assert_eq!(rules, ["any order of any facts leaves legal limits"]);
        assert!(found[0].seen.contains("LossReport"), "{found:?}");
    }

    #[test]
    fn parameters_of_another_controller_are_rejected() {
        let given = [("rate_mbps".to_owned(), "5".to_owned())];
        let specs = find("cubic").unwrap().params;
        let error: ConfigError = ParamValues::check("cubic", specs, &given).unwrap_err();
        assert!(error.allowed.contains("initial_window"), "{error}");
    }
}
