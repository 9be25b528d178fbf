//! Timers of a channel and their log, recorded only on request.

use std::collections::VecDeque;

use sabul_cc::events::json_text;
use sabul_units::Instant;

/// Ours: most events kept; beyond this the oldest are dropped.
const FIRED_MAX: usize = 1024;

/// A timer of one end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FiredTimer {
    /// Sender: losses that may be reordering are passed to the controller.
    Loss,
    /// Sender: an interval of rate control has ended.
    Interval,
    /// Sender: data is outstanding and no report arrives.
    Expiry,
    /// Sender: nothing has arrived for long, so a ping requests an ACK.
    Ping,
    /// Receiver: an ACK may leave.
    Ack,
    /// Receiver: missing numbers count as lost.
    Gap,
    /// Receiver: a piece is still missing, so its loss is reported again.
    Repeat,
    /// Receiver: a SYN report leaves.
    Syn,
    /// Receiver: the channel rules list missing pieces.
    Rules,
}

impl FiredTimer {
    /// All timers.
    pub const ALL: [Self; 9] = [
        Self::Loss,
        Self::Interval,
        Self::Expiry,
        Self::Ping,
        Self::Ack,
        Self::Gap,
        Self::Repeat,
        Self::Syn,
        Self::Rules,
    ];

    /// Returns the name of the timer and the reason why it fires, as words of an event.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Loss => ("loss", "losses-delayed"),
            Self::Interval => ("interval", "interval-over"),
            Self::Expiry => ("expiry", "no-feedback"),
            Self::Ping => ("ping", "nothing-received"),
            Self::Ack => ("ack", "due"),
            Self::Gap => ("gap", "missing-too-long"),
            Self::Repeat => ("repeat", "still-missing"),
            Self::Syn => ("syn", "interval-over"),
            Self::Rules => ("rules", "due"),
        }
    }
}

/// A timer that fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// When the timer fired.
    pub at: Instant,
    /// The timer.
    pub timer: FiredTimer,
}

impl Fired {
    /// Returns one JSON object with the columns `t_s`, `source` (the text `of`), `event`, `timer`
    /// and `why`.
    pub fn to_json(&self, of: &str) -> String {
        let (timer, why) = self.timer.words();
        format!(
            "{{\"t_s\":{:.6},\"source\":{},\"event\":\"timer\",\"timer\":\"{timer}\",\"why\":\"{why}\"}}",
            self.at.elapsed().as_secs_f64(),
            json_text(of)
        )
    }
}

/// Events not yet fetched; `None` while recording is off.
#[derive(Debug, Default)]
pub(crate) struct FiredLog(Option<VecDeque<Fired>>);

impl FiredLog {
    pub(crate) fn listen(&mut self) {
        self.0.get_or_insert_default();
    }

    #[inline]
    pub(crate) fn note(&mut self, at: Instant, timer: FiredTimer) {
        if let Some(kept) = &mut self.0 {
            if kept.len() == FIRED_MAX {
                kept.pop_front();
            }
            kept.push_back(Fired { at, timer });
        }
    }

    pub(crate) fn next(&mut self) -> Option<Fired> {
        self.0.as_mut()?.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use sabul_units::Span;

    use super::*;

    #[test]
    fn the_timer_log_uses_memory_only_while_listened_to_and_is_bounded() {
        let mut log = FiredLog::default();
        log.note(Instant::ZERO, FiredTimer::Expiry);
        assert_eq!(log.next(), None);
        log.listen();
        for n in 0..=FIRED_MAX as u64 {
            log.note(Instant::ZERO + Span::from_millis(n), FiredTimer::Expiry);
        }
        let first = log.next().unwrap();
        assert_eq!(first.at, Instant::ZERO + Span::from_millis(1), "the oldest is dropped");
        assert_eq!(
            first.to_json("flow:a"),
            r#"{"t_s":0.001000,"source":"flow:a","event":"timer","timer":"expiry","why":"no-feedback"}"#
        );
        assert_eq!(std::iter::from_fn(|| log.next()).count(), FIRED_MAX - 1);
    }
}
