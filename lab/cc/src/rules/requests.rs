//! Requests rules: requested pieces before new data. Each gap is requested at once, everything
//! missing with each mark and each 350 ms. \[TSUNAMI\]

use sabul_cc::{BulkReport, ChannelRules};
use sabul_channel::rules::{Marks, ReceiverContext, ReceiverRules, RuleSet, SenderRules};
use sabul_units::{Instant, PacketNumber, SeqNo, Span};
use sabul_wire::{ERROR_RATE_MAX, Feedback, MAX_RANGES, Mark, Missing, NumberRange};

/// [TSUNAMI] The terminating block is repeated after ten times the longest gap.
const MARK_INTERVAL: Span = Span::from_millis(100);
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

/// Requested pieces before new data. The receiver requests missing pieces at a gap and all missing
/// pieces each 350 ms, together with its error rate. \[TSUNAMI\]
pub const REQUESTS: ChannelRules = ChannelRules { name: "requests", has_naks: false };

pub(super) const RULES: RuleSet = RuleSet {
    rules: REQUESTS,
    codes: [3, 3],
    reports: super::reports::lists,
    sender: Some(|| Box::new(Sender { marks: Marks::repeated(MARK_INTERVAL) })),
    receiver: Some(|| Box::new(Receiver::new())),
};

/// Marks repeat while nothing else may leave.
#[derive(Debug)]
struct Sender {
    marks: Marks,
}

impl SenderRules for Sender {
    fn marks(&mut self) -> Option<&mut Marks> {
        Some(&mut self.marks)
    }
    fn accepts(&self, report: BulkReport) -> bool {
        matches!(report, BulkReport::ErrorRate(_))
    }
}

/// Numbers requested and blocks received in the present period, and its start.
#[derive(Debug)]
struct Receiver {
    requested: u64,
    received: u64,
    period_start: Instant,
    error: f64,
}

impl Receiver {
    const fn new() -> Self {
        Self { requested: 0, received: 0, period_start: Instant::ZERO, error: 0.0 }
    }

    /// Requests these numbers, which must fit one report.
    fn request(&mut self, context: &mut ReceiverContext<'_>, ranges: Vec<NumberRange>) {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return;
        };
        let (from, below) = (SeqNo(first.first), SeqNo(last.last + 1));
        let count: u64 = ranges.iter().map(|range| range.count()).sum();
        self.requested = self.requested.saturating_add(count);
        context.send(Feedback::Missing(Missing { serial: 0, from, below, ranges }));
    }

    /// Requests everything missing, up to one batch.
    fn request_missing(&mut self, context: &mut ReceiverContext<'_>) {
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
}

impl ReceiverRules for Receiver {
    fn has_marks(&self) -> bool {
        true
    }
    fn on_gap(&mut self, context: &mut ReceiverContext<'_>, gap: NumberRange) {
        let last = gap.last.min(gap.first.saturating_add(GAP_NUMBERS - 1));
        self.request(context, vec![NumberRange { last, ..gap }]);
    }
    fn on_mark(
        &mut self,
        context: &mut ReceiverContext<'_>,
        _mark: Mark,
        _tail: Option<NumberRange>,
    ) {
        self.request_missing(context);
    }
    /// Records an arrived block; ends the period when it is over.
    #[expect(clippy::cast_precision_loss, reason = "counts of a third of a second")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100 000")]
    fn on_piece(&mut self, context: &mut ReceiverContext<'_>, _number: PacketNumber, _seq: SeqNo) {
        if context.packets() == 1 {
            self.period_start = context.now;
        }
        self.received += 1;
        if !context.packets().is_multiple_of(UPDATE_BLOCKS)
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
        context.send(Feedback::ErrorRate(rate));
        (self.requested, self.received) = (0, 0);
        self.period_start = context.now;
    }
    fn check_invariants(&self) {
        assert!((0.0..=f64::from(ERROR_RATE_MAX)).contains(&self.error));
    }
}
