//! Which piece leaves next: SABUL's rule and those of its relatives.
//!
//! Source: [SABUL §II-D] for losses first, then new data. [`ChannelRules`] names the others. They have
//! most in common: what is reported goes first (*requests*, *buffers*, *rounds*), and when nothing may
//! be sent any more, a mark tells the receiver so. *Rounds* then wait for its list. *Cyclic* keeps a
//! cursor instead of a loss list and begins again where the others would wait.

mod buffers;
mod cyclic;
mod marks;
mod rounds;
mod verdict;

use sabul_cc::ChannelRules;
use sabul_units::{Instant, SeqNo, Span};
use sabul_wire::{Mark, Missing};

use super::pace::From;
use crate::interval_set::IntervalSet;
use buffers::Buffers;
use cyclic::Cyclic;
use marks::Marks;
use rounds::Rounds;
pub(super) use verdict::{Account, Totals, Verdict};

/// [TSUNAMI] The terminating block is repeated after ten times the longest gap.
const MARK_INTERVAL_REQUESTS: Span = Span::from_millis(100);

/// The rules of one channel with what each keeps in mind.
#[derive(Debug)]
pub(super) enum Rules {
    /// The loss list, then new data; NAKs tell of losses.
    LossesFirst,
    Rounds(Rounds),
    /// What the receiver asks for, then new data; marks go on as long as nothing else may leave.
    Requests(Marks),
    Cyclic(Cyclic),
    Buffers(Buffers),
}

impl Rules {
    pub(super) const fn new(rules: ChannelRules) -> Self {
        match rules {
            ChannelRules::Standard | ChannelRules::Pairs => Self::LossesFirst,
            ChannelRules::Rounds => Self::Rounds(Rounds::new()),
            ChannelRules::Requests => Self::Requests(Marks::new(MARK_INTERVAL_REQUESTS)),
            ChannelRules::Cyclic => Self::Cyclic(Cyclic::new()),
            ChannelRules::Buffers => Self::Buffers(Buffers::new()),
        }
    }

    /// Losses come by NAK, and what a lost transmission carried is still asked for.
    pub(super) const fn has_naks(&self) -> bool {
        matches!(self, Self::LossesFirst)
    }

    /// What is missing goes onto the loss list.
    pub(super) const fn has_loss_list(&self) -> bool {
        !matches!(self, Self::Cyclic(_))
    }

    /// The receiver tells its error rate.
    pub(super) const fn has_error_rate(&self) -> bool {
        matches!(self, Self::Requests(_))
    }

    /// Nothing leaves before the newest mark is answered.
    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self, Self::Rounds(rounds) if rounds.is_waiting())
    }

    /// Cyclic: what is not known to have arrived; nothing under other rules.
    #[inline]
    pub(super) fn open(&self) -> Option<&IntervalSet> {
        match self {
            Self::Cyclic(cyclic) => Some(cyclic.open()),
            _ => None,
        }
    }

    /// Cyclic: the next of the pass. Under other rules there is none.
    #[inline]
    pub(super) fn next_of_pass(&mut self, begins_again: bool) -> Option<SeqNo> {
        match self {
            Self::Cyclic(cyclic) => cyclic.next(begins_again),
            _ => None,
        }
    }

    /// A piece leaves for the first time; `is_rest` if it was cut off one that no longer fitted.
    #[inline]
    pub(super) fn note_new(&mut self, seq: SeqNo, is_rest: bool) {
        if let Self::Cyclic(cyclic) = self {
            cyclic.note_new(seq, is_rest);
        }
    }

    /// A DATA packet has left.
    #[inline]
    pub(super) const fn note_sent(&mut self) {
        match self {
            Self::LossesFirst | Self::Cyclic(_) => {}
            Self::Rounds(rounds) => rounds.note_sent(),
            Self::Requests(marks) => marks.note_sent(),
            Self::Buffers(buffers) => buffers.marks.note_sent(),
        }
    }

    /// From when on the gap of a packet that has left counts.
    #[inline]
    pub(super) const fn pace_from(&mut self) -> From {
        match self {
            Self::Rounds(rounds) => rounds.pace_from(),
            _ => From::Due,
        }
    }

    /// Everything before `seq` has arrived.
    pub(super) fn note_acknowledged(&mut self, seq: SeqNo) -> Option<Account> {
        match self {
            Self::Cyclic(cyclic) => {
                cyclic.note_acknowledged(seq);
                None
            }
            Self::Rounds(rounds) => rounds.note_acknowledged(seq),
            Self::LossesFirst | Self::Requests(_) | Self::Buffers(_) => None,
        }
    }

    /// All that may be sent has been, up to `end`: a mark to say so, or when there may be one.
    pub(super) fn next_mark(&mut self, now: Instant, end: SeqNo) -> Result<Mark, Instant> {
        match self {
            Self::LossesFirst | Self::Cyclic(_) => Err(Instant::MAX),
            Self::Rounds(rounds) => rounds.next_mark(now, end),
            Self::Requests(marks) => {
                marks.renew(now, end, true)?;
                marks.take(now)
            }
            Self::Buffers(buffers) => buffers.next_mark(now, end),
        }
    }

    /// Nothing was heard: the newest mark again, if nothing has left since.
    pub(super) const fn repeat_mark(&mut self) {
        match self {
            Self::LossesFirst | Self::Cyclic(_) => {}
            Self::Rounds(rounds) => rounds.marks.repeat(),
            Self::Requests(marks) => marks.repeat(),
            Self::Buffers(buffers) => buffers.marks.repeat(),
        }
    }

    /// The serial number of the newest mark; zero before the first.
    pub(super) const fn newest_mark(&self) -> u64 {
        match self {
            Self::LossesFirst | Self::Cyclic(_) => 0,
            Self::Rounds(rounds) => rounds.marks.newest().serial,
            Self::Requests(marks) => marks.newest().serial,
            Self::Buffers(buffers) => buffers.marks.newest().serial,
        }
    }

    /// What is missing of a stretch; everything else in it has arrived.
    pub(super) fn on_missing(&mut self, missing: &Missing, totals: Totals) -> Verdict {
        match self {
            Self::LossesFirst | Self::Requests(_) => Verdict::Lost(None),
            Self::Rounds(rounds) => rounds.on_missing(missing),
            Self::Cyclic(cyclic) => Verdict::Lost(Some(cyclic.on_missing(missing, totals))),
            Self::Buffers(buffers) => Verdict::Lost(buffers.on_missing(missing)),
        }
    }
}
