//! Requests rules: each gap is requested at once, everything missing with each mark and each 350
//! ms. \[TSUNAMI\]

use sabul_units::{Instant, SeqNo, Span};
use sabul_wire::{ERROR_RATE_MAX, Feedback, MAX_RANGES, Missing, NumberRange};

use super::context::ReceiverContext;

/// [TSUNAMI] Period of requests for everything missing, checked each [`UPDATE_BLOCKS`] blocks.
const UPDATE_INTERVAL: Span = Span::from_millis(350);
const UPDATE_BLOCKS: u64 = 50;
/// [TSUNAMI] Most numbers requested at once.
const BATCH_NUMBERS: u64 = 2048;
/// [TSUNAMI] Most numbers of one gap that are requested: the size of its table.
const GAP_NUMBERS: u64 = 65_536;
/// [TSUNAMI] Weight of the old error rate, and the error rate of an update full of requests.
const ERROR_WEIGHT_OLD: f64 = 0.25;
const ERROR_SCALE: f64 = 50_000.0;

/// Numbers requested and blocks received in the present period, and its start.
#[derive(Debug)]
pub(in crate::receiver) struct Requests {
    requested: u64,
    received: u64,
    period_start: Instant,
    error: f64,
}

impl Requests {
    pub(super) const fn new() -> Self {
        Self { requested: 0, received: 0, period_start: Instant::ZERO, error: 0.0 }
    }

    pub(super) fn on_gap(&mut self, context: &mut ReceiverContext<'_>, gap: NumberRange) {
        let last = gap.last.min(gap.first.saturating_add(GAP_NUMBERS - 1));
        self.request(context, vec![NumberRange { last, ..gap }]);
    }

    /// Requests these numbers, which must fit one report.
    fn request(&mut self, context: &mut ReceiverContext<'_>, ranges: Vec<NumberRange>) {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return;
        };
        let (from, below) = (SeqNo(first.first), SeqNo(last.last + 1));
        let count: u64 = ranges.iter().map(|range| range.count()).sum();
        self.requested = self.requested.saturating_add(count);
        context.stats.reported += count;
        context.lists.push(Feedback::Missing(Missing { serial: 0, from, below, ranges }));
    }

    /// Requests everything missing, up to one batch.
    pub(super) fn request_missing(&mut self, context: &mut ReceiverContext<'_>) {
        let mut left = BATCH_NUMBERS;
        let mut all = Vec::new();
        for range in context.data.missing().iter() {
            if left == 0 {
                break;
            }
            let last = range.last.min(range.first + left - 1);
            left -= last - range.first + 1;
            all.push(NumberRange { last, ..range });
        }
        for ranges in all.chunks(MAX_RANGES) {
            self.request(context, ranges.to_vec());
        }
    }

    /// Records an arrived block; ends the period when it is over.
    #[expect(clippy::cast_precision_loss, reason = "counts of a third of a second")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100 000")]
    pub(super) fn on_piece(&mut self, context: &mut ReceiverContext<'_>) {
        if context.stats.packets == 1 {
            self.period_start = context.now;
        }
        self.received += 1;
        if !context.stats.packets.is_multiple_of(UPDATE_BLOCKS)
            || context.now.since(self.period_start) <= UPDATE_INTERVAL
        {
            return;
        }
        self.request_missing(context);
        // DEV-063: the original also counts the fill of its receive ring, which never overflows
        // here.
        let requested = self.requested as f64 / (1 + self.requested + self.received) as f64;
        self.error =
            ERROR_WEIGHT_OLD * self.error + (1.0 - ERROR_WEIGHT_OLD) * ERROR_SCALE * requested;
        let rate = (self.error as u32).min(ERROR_RATE_MAX);
        context.lists.push(Feedback::ErrorRate(rate));
        (self.requested, self.received) = (0, 0);
        self.period_start = context.now;
    }

    pub(super) fn check_invariants(&self) {
        assert!((0.0..=f64::from(ERROR_RATE_MAX)).contains(&self.error));
    }
}
