//! Transmission rules: SABUL's order of packets and those of related protocols.
//!
//! Source: [SABUL §II-D] for losses first, then new data. [`ChannelRules`] names the other rules.
//! Under *requests*, *buffers* and *rounds*, reported losses go first, and a mark informs the
//! receiver when nothing more may be sent. *Rounds* then wait for the receiver's list. *Cyclic*
//! keeps a cursor instead of a loss list and starts over where the others would wait.

mod buffers;
mod cyclic;
mod marks;
mod rounds;
mod verdict;

use sabul_cc::ChannelRules;
use sabul_units::{Instant, SeqNo, Span};
use sabul_wire::{Mark, Missing};

use super::pace::PaceReference;
use crate::interval_set::IntervalSet;
use buffers::Buffers;
use cyclic::Cyclic;
use marks::Marks;
use rounds::Rounds;
pub(super) use verdict::{Account, Totals, Verdict};

/// [TSUNAMI] The terminating block is repeated after ten times the longest gap.
const MARK_INTERVAL_REQUESTS: Span = Span::from_millis(100);

/// Rules of one channel with their state.
#[derive(Debug)]
pub(super) enum Rules {
    /// The loss list, then new data; NAKs report losses.
    LossesFirst,
    Rounds(Rounds),
    /// Requested pieces, then new data; marks repeat while nothing else may leave.
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

    /// Whether NAKs report losses and lost transmissions are looked up.
    pub(super) const fn has_naks(&self) -> bool {
        matches!(self, Self::LossesFirst)
    }

    /// Whether missing pieces go onto the loss list.
    pub(super) const fn has_loss_list(&self) -> bool {
        !matches!(self, Self::Cyclic(_))
    }

    /// Whether the receiver reports its error rate.
    pub(super) const fn has_error_rate(&self) -> bool {
        matches!(self, Self::Requests(_))
    }

    /// Whether nothing may leave before the newest mark is answered.
    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self, Self::Rounds(rounds) if rounds.is_waiting())
    }

    /// Cyclic: pieces not known to have arrived; `None` under other rules.
    #[inline]
    pub(super) fn open(&self) -> Option<&IntervalSet> {
        match self {
            Self::Cyclic(cyclic) => Some(cyclic.open()),
            _ => None,
        }
    }

    /// Cyclic: the next piece of the pass; `None` under other rules.
    #[inline]
    pub(super) fn next_of_pass(&mut self, begins_again: bool) -> Option<SeqNo> {
        match self {
            Self::Cyclic(cyclic) => cyclic.next(begins_again),
            _ => None,
        }
    }

    /// Records a first transmission; `is_rest` if the piece was cut off a larger one.
    #[inline]
    pub(super) fn note_new(&mut self, seq: SeqNo, is_rest: bool) {
        if let Self::Cyclic(cyclic) = self {
            cyclic.note_new(seq, is_rest);
        }
    }

    #[inline]
    pub(super) const fn note_sent(&mut self) {
        match self {
            Self::LossesFirst | Self::Cyclic(_) => {}
            Self::Rounds(rounds) => rounds.note_sent(),
            Self::Requests(marks) => marks.note_sent(),
            Self::Buffers(buffers) => buffers.marks.note_sent(),
        }
    }

    /// Reference time for the gap after the packet that has just left.
    #[inline]
    pub(super) const fn pace_from(&mut self) -> PaceReference {
        match self {
            Self::Rounds(rounds) => rounds.pace_from(),
            _ => PaceReference::Due,
        }
    }

    /// Records the cumulative acknowledgement; `seq` is the first unacknowledged number.
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

    /// All that may be sent has been, up to `end`: returns a mark, or the earliest time for a mark.
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

    /// After a timeout: repeats the newest mark if no data has left since.
    pub(super) const fn resend_mark(&mut self) {
        match self {
            Self::LossesFirst | Self::Cyclic(_) => {}
            Self::Rounds(rounds) => rounds.marks.resend(),
            Self::Requests(marks) => marks.resend(),
            Self::Buffers(buffers) => buffers.marks.resend(),
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

    /// Processes a list of missing numbers in a range; all other numbers of the range have arrived.
    pub(super) fn on_missing(&mut self, missing: &Missing, totals: Totals) -> Verdict {
        match self {
            Self::LossesFirst | Self::Requests(_) => Verdict::Lost(None),
            Self::Rounds(rounds) => rounds.on_missing(missing),
            Self::Cyclic(cyclic) => Verdict::Lost(Some(cyclic.on_missing(missing, totals))),
            Self::Buffers(buffers) => Verdict::Lost(buffers.on_missing(missing)),
        }
    }
}
