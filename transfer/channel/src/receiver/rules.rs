//! Reports of a receiver under the channel rules of related protocols.
//!
//! Four rules share one kind of report: a range of the data and its missing numbers. They differ in
//! when the report leaves. *Rounds*: the whole range, after the sender's mark, once the path is
//! quiet. *Requests*: each gap at once, and everything missing with each mark and each 350 ms.
//! *Cyclic*: part of the range with every 64th packet, in turn. *Buffers*: each buffer when its
//! last packet has arrived or is overdue. A fifth rule, *pairs*, has NAKs and also reports the time
//! between packets of a pair.

mod buffers;
mod context;
mod cyclic;
mod pairs;
mod requests;
mod rounds;
mod spacing;

use sabul_cc::ChannelRules;
use sabul_units::{Instant, PacketNumber, SeqNo};
use sabul_wire::{Feedback, Mark, NumberRange};

use buffers::Buffers;
pub(super) use context::ReceiverContext;
use cyclic::Cyclic;
use pairs::Pairs;
use requests::Requests;
use rounds::Rounds;

/// Rules of one channel with their state.
#[derive(Debug)]
pub(super) enum Rules {
    /// NAKs at once.
    Naks,
    Rounds(Rounds),
    Requests(Requests),
    Cyclic(Cyclic),
    Buffers(Buffers),
    /// NAKs at once, and reports of packet pairs.
    Pairs(Box<Pairs>),
}

impl Rules {
    pub(super) fn new(rules: ChannelRules) -> Self {
        match rules {
            ChannelRules::Standard => Self::Naks,
            ChannelRules::Rounds => Self::Rounds(Rounds::new()),
            ChannelRules::Requests => Self::Requests(Requests::new()),
            ChannelRules::Cyclic => Self::Cyclic(Cyclic::new()),
            ChannelRules::Buffers => Self::Buffers(Buffers::new()),
            ChannelRules::Pairs => Self::Pairs(Box::new(Pairs::new())),
        }
    }

    /// Whether NAKs report gaps.
    pub(super) const fn has_naks(&self) -> bool {
        matches!(self, Self::Naks | Self::Pairs(_))
    }

    /// Whether the sender may send marks.
    pub(super) const fn has_marks(&self) -> bool {
        matches!(self, Self::Rounds(_) | Self::Requests(_) | Self::Buffers(_))
    }

    /// Whether the newest packet, number `packets` to arrive, requests an ACK.
    pub(super) const fn wants_ack(&self, packets: u64) -> bool {
        match self {
            Self::Cyclic(_) => Cyclic::is_due(packets),
            _ => true,
        }
    }

    /// Records the packet number of a DATA packet.
    #[inline]
    pub(super) fn note_number(&mut self, now: Instant, number: PacketNumber) {
        if let Self::Pairs(pairs) = self {
            pairs.note(now, number);
        }
    }

    /// Returns a packet-pair report if one is due.
    pub(super) fn report_pairs(&mut self, now: Instant) -> Option<Feedback> {
        match self {
            Self::Pairs(pairs) => pairs.report(now),
            _ => None,
        }
    }

    /// Handles newly missing numbers.
    pub(super) fn on_gap(&mut self, context: &mut ReceiverContext<'_>, gap: NumberRange) {
        match self {
            Self::Requests(requests) => requests.on_gap(context, gap),
            Self::Buffers(buffers) => buffers.on_gap(context, gap),
            Self::Naks | Self::Pairs(_) | Self::Rounds(_) | Self::Cyclic(_) => {}
        }
    }

    /// Handles a piece; the piece and the gap before it are already recorded.
    #[inline]
    pub(super) fn on_piece(&mut self, context: &mut ReceiverContext<'_>, seq: SeqNo) {
        match self {
            Self::Naks | Self::Pairs(_) => {}
            Self::Rounds(rounds) => rounds.on_piece(context.now),
            Self::Requests(requests) => requests.on_piece(context),
            Self::Cyclic(cyclic) => cyclic.on_piece(context),
            Self::Buffers(buffers) => buffers.on_piece(context, seq),
        }
    }

    /// Handles a mark: the sender has sent everything before the mark's end, and nothing more for
    /// now. `tail` is the newly missing part.
    pub(super) fn on_mark(
        &mut self,
        context: &mut ReceiverContext<'_>,
        mark: Mark,
        tail: Option<NumberRange>,
    ) {
        match self {
            Self::Rounds(rounds) => rounds.on_mark(context.now, mark),
            Self::Requests(requests) => requests.request_missing(context),
            Self::Buffers(buffers) => buffers.on_mark(context, tail),
            Self::Naks | Self::Pairs(_) | Self::Cyclic(_) => {}
        }
    }

    /// Runs the timers of the rules.
    #[inline]
    pub(super) fn run(&mut self, context: &mut ReceiverContext<'_>) {
        match self {
            Self::Rounds(rounds) => rounds.run(context),
            Self::Buffers(buffers) => buffers.run(context),
            Self::Naks | Self::Pairs(_) | Self::Requests(_) | Self::Cyclic(_) => {}
        }
    }

    /// Records a list that leaves.
    pub(super) const fn note_listed(&mut self, report: &Feedback) {
        if let (Self::Cyclic(cyclic), Feedback::Missing(missing)) = (self, report) {
            cyclic.note_listed(missing);
        }
    }

    /// When a timer of the rules fires.
    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            Self::Rounds(rounds) => rounds.due(),
            Self::Buffers(buffers) => buffers.due(),
            Self::Naks | Self::Pairs(_) | Self::Requests(_) | Self::Cyclic(_) => None,
        }
    }

    pub(super) fn check_invariants(&self) {
        match self {
            Self::Requests(requests) => requests.check_invariants(),
            Self::Buffers(buffers) => buffers.check_invariants(),
            Self::Naks | Self::Pairs(_) | Self::Rounds(_) | Self::Cyclic(_) => {}
        }
    }
}
