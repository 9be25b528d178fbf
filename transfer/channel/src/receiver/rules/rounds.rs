//! Rounds rules: a list of everything missing, after the mark, once the path is quiet. \[RBUDP\]
//!
//! States:      no mark to answer → a mark to answer, delayed by each packet → answered

use sabul_units::{Instant, Span};
use sabul_wire::Mark;

use super::context::ReceiverContext;
use super::spacing::Spacing;
use crate::receiver::lists::Listing;

/// [RBUDP] Quiet time in mean packet spacings; packets that a mark overtook arrive within it.
const QUIET_PACKETS: u64 = 4;
/// Ours: longest quiet time.
const QUIET_MAX: Span = Span::from_millis(10);

/// State of the rounds rules.
#[derive(Debug)]
pub(in crate::receiver) struct Rounds {
    spacing: Spacing,
    /// The mark to answer, and when.
    mark: Option<(Mark, Instant)>,
}

impl Rounds {
    pub(super) const fn new() -> Self {
        Self { spacing: Spacing::new(), mark: None }
    }

    /// How long the path must be quiet after a mark.
    fn quiet(&self) -> Span {
        (self.spacing.mean() * QUIET_PACKETS).min(QUIET_MAX)
    }

    pub(super) fn on_piece(&mut self, now: Instant) {
        self.spacing.note(now);
        let due = now + self.quiet();
        if let Some((_, at)) = &mut self.mark {
            *at = due;
        }
    }

    pub(super) fn on_mark(&mut self, now: Instant, mark: Mark) {
        self.mark = Some((mark, now + self.quiet()));
    }

    pub(super) fn run(&mut self, context: &mut ReceiverContext<'_>) {
        let complete = context.data.complete();
        let is_due =
            |(mark, due): &mut (Mark, Instant)| *due <= context.now || complete >= mark.end;
        if let Some((mark, _)) = self.mark.take_if(is_due) {
            context.acks.want_now(context.now);
            let (from, below) = (complete.0.min(mark.end.0), mark.end.0);
            context.lists.begin(Listing { serial: mark.serial, from, below, lists: u32::MAX });
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.mark.map(|(_, due)| due)
    }
}
