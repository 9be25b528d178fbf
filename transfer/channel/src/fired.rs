//! Log of fired timers with reasons, recorded only on request.

use std::collections::VecDeque;

use sabul_cc::events::json_text;
use sabul_units::Instant;

/// Ours: most events kept; beyond this the oldest are dropped.
const FIRED_MAX: usize = 1024;

/// A timer of one end of a channel that fired.
///
/// | timer | end | reason (`why`) |
/// |---|---|---|
/// | `loss` | sender | `held-losses`: losses held back are passed to the controller |
/// | `interval` | sender | `interval-over`: an interval of rate control ended |
/// | `expiry` | sender | `silent`: no report on outstanding data |
/// | `ping` | sender | `long-unheard`: a ping requests an ACK |
/// | `ack` | receiver | `due`: an ACK may leave |
/// | `gap` | receiver | `open-too-long`: missing numbers count as lost |
/// | `repeat` | receiver | `still-missing`: a loss is reported again |
/// | `syn` | receiver | `interval-over`: a SYN report leaves |
/// | `rules` | receiver | `due`: the channel rules list missing pieces |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// When the timer fired.
    pub at: Instant,
    /// Name of the timer.
    pub timer: &'static str,
    /// Reason.
    pub why: &'static str,
}

impl Fired {
    /// Returns one JSON object with the columns `t_s`, `source` (the text `of`), `event`, `timer`
    /// and `why`.
    pub fn to_json(&self, of: &str) -> String {
        let Self { at, timer, why } = self;
        format!(
            "{{\"t_s\":{:.6},\"source\":{},\"event\":\"timer\",\"timer\":\"{timer}\",\"why\":\"{why}\"}}",
            at.elapsed().as_secs_f64(),
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
    pub(crate) fn note(&mut self, at: Instant, timer: &'static str, why: &'static str) {
        if let Some(kept) = &mut self.0 {
            if kept.len() == FIRED_MAX {
                kept.pop_front();
            }
            kept.push_back(Fired { at, timer, why });
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
        log.note(Instant::ZERO, "expiry", "silent");
        assert_eq!(log.next(), None);
        log.listen();
        for n in 0..=FIRED_MAX as u64 {
            log.note(Instant::ZERO + Span::from_millis(n), "expiry", "silent");
        }
        let first = log.next().unwrap();
        assert_eq!(first.at, Instant::ZERO + Span::from_millis(1), "the oldest is dropped");
        assert_eq!(
            first.to_json("flow:a"),
            r#"{"t_s":0.001000,"source":"flow:a","event":"timer","timer":"expiry","why":"silent"}"#
        );
        assert_eq!(std::iter::from_fn(|| log.next()).count(), FIRED_MAX - 1);
    }
}
