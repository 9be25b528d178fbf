//! What a receiver reports under the rules of SABUL's relatives.
//!
//! Four rules, one kind of report: a stretch of the data and what is missing of it. They differ in when
//! it leaves. *Rounds*: all of it, when the sender's mark has come and the path has been quiet.
//! *Requests*: each gap at once, everything outstanding with each mark and each 350 ms. *Cyclic*: some
//! of it with every 64th packet, going round. *Buffers*: each buffer when its last packet has come, or
//! should have. A fifth, *pairs*, has NAKs, and the time between packets of a pair besides.

mod buffers;
mod cyclic;
mod desk;
mod pairs;
mod requests;
mod rounds;
mod spacing;

use sabul_cc::ChannelRules;
use sabul_units::{Instant, PacketNumber, SeqNo};
use sabul_wire::{Feedback, Mark, NumberRange};

use buffers::Buffers;
use cyclic::Cyclic;
pub(super) use desk::Desk;
use pairs::Pairs;
use requests::Requests;
use rounds::Rounds;

/// The rules of one channel with what each keeps in mind.
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

    /// Gaps are told by NAK.
    pub(super) const fn has_naks(&self) -> bool {
        matches!(self, Self::Naks | Self::Pairs(_))
    }

    /// The sender may mark what it has sent.
    pub(super) const fn has_marks(&self) -> bool {
        matches!(self, Self::Rounds(_) | Self::Requests(_) | Self::Buffers(_))
    }

    /// Whether an ACK leaves on account of the newest of so many packets.
    pub(super) const fn wants_ack(&self, packets: u64) -> bool {
        match self {
            Self::Cyclic(_) => Cyclic::is_turn(packets),
            _ => true,
        }
    }

    /// A DATA packet has arrived under this number.
    #[inline]
    pub(super) fn note_number(&mut self, now: Instant, number: PacketNumber) {
        if let Self::Pairs(pairs) = self {
            pairs.note(now, number);
        }
    }

    /// The report of packet pairs that is due.
    pub(super) fn report_pairs(&mut self, now: Instant) -> Option<Feedback> {
        match self {
            Self::Pairs(pairs) => pairs.report(now),
            _ => None,
        }
    }

    /// Numbers are missing that nobody knew of.
    pub(super) fn on_gap(&mut self, desk: &mut Desk<'_>, gap: NumberRange) {
        match self {
            Self::Requests(requests) => requests.on_gap(desk, gap),
            Self::Buffers(buffers) => buffers.on_gap(desk, gap),
            Self::Naks | Self::Pairs(_) | Self::Rounds(_) | Self::Cyclic(_) => {}
        }
    }

    /// A piece has come, and the gap before it and the piece itself are noted.
    #[inline]
    pub(super) fn on_piece(&mut self, desk: &mut Desk<'_>, seq: SeqNo) {
        match self {
            Self::Naks | Self::Pairs(_) => {}
            Self::Rounds(rounds) => rounds.on_piece(desk.now),
            Self::Requests(requests) => requests.on_piece(desk),
            Self::Cyclic(cyclic) => cyclic.on_piece(desk),
            Self::Buffers(buffers) => buffers.on_piece(desk, seq),
        }
    }

    /// The sender has sent everything before the mark's end, and nothing more for now; `tail` of it was
    /// not known to be missing.
    pub(super) fn on_mark(&mut self, desk: &mut Desk<'_>, mark: Mark, tail: Option<NumberRange>) {
        match self {
            Self::Rounds(rounds) => rounds.on_mark(desk.now, mark),
            Self::Requests(requests) => requests.ask_again(desk),
            Self::Buffers(buffers) => buffers.on_mark(desk, tail),
            Self::Naks | Self::Pairs(_) | Self::Cyclic(_) => {}
        }
    }

    /// What is due by the clock.
    #[inline]
    pub(super) fn run(&mut self, desk: &mut Desk<'_>) {
        match self {
            Self::Rounds(rounds) => rounds.run(desk),
            Self::Buffers(buffers) => buffers.run(desk),
            Self::Naks | Self::Pairs(_) | Self::Requests(_) | Self::Cyclic(_) => {}
        }
    }

    /// A list leaves.
    pub(super) const fn note_listed(&mut self, report: &Feedback) {
        if let (Self::Cyclic(cyclic), Feedback::Missing(missing)) = (self, report) {
            cyclic.note_listed(missing);
        }
    }

    /// When something is due though nothing happens.
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
