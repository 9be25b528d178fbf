//! Callback for events of controllers and timers at this end of transfers.

use std::fmt;
use std::sync::Arc;
use std::time::Instant as Moment;

use sabul_cc::events::Event;
use sabul_channel::Fired;
use sabul_units::Instant;

type Callback = dyn Fn(&TransferEvent) + Send + Sync;

/// Receives each event of a controller that sends from this end, and each protocol timer that fires here.
///
/// The callback runs on the thread of the channel; a slow callback delays the transfer.
#[derive(Clone)]
pub struct EventSink(Arc<Callback>);

/// An event at this end of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct TransferEvent {
    transfer: u32,
    opened: Moment,
    detail: Detail,
}

#[derive(Clone, Copy, Debug)]
enum Detail {
    Did(Event),
    Fired(Fired),
}

impl TransferEvent {
    /// Returns the number of the transfer in its session.
    pub const fn transfer(&self) -> u32 {
        self.transfer
    }

    /// Returns one line of JSON. The source is `transfer:N`, and time counts from the opening of its channel. The
    /// columns are those of `sabul_cc::events` and, for a timer, `timer` and `why`.
    pub fn to_json(&self) -> String {
        self.line(&format!("transfer:{}", self.transfer), self.detail)
    }

    /// As [`Self::to_json`], with the source `of` and with time since `start`; `None` if the channel was opened before
    /// `start`.
    pub fn to_json_since(&self, start: Moment, of: &str) -> Option<String> {
        let before = self.opened.checked_duration_since(start)?.into();
        let later = |at: Instant| at + before;
        let detail = match self.detail {
            Detail::Did(mut event) => {
                event.at = later(event.at);
                event.limits.hold_until = event.limits.hold_until.map(later);
                Detail::Did(event)
            }
            Detail::Fired(fired) => Detail::Fired(Fired { at: later(fired.at), ..fired }),
        };
        Some(self.line(of, detail))
    }

    fn line(&self, of: &str, detail: Detail) -> String {
        match detail {
            Detail::Did(event) => event.to_json(of),
            Detail::Fired(fired) => fired.to_json(of),
        }
    }
}

impl EventSink {
    /// Makes a sink that calls `callback` for each event.
    pub fn new(callback: impl Fn(&TransferEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub(crate) const fn of_transfer(self, transfer: u32) -> TransferEventSink {
        TransferEventSink { sink: self, transfer }
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}

/// Event sink of one transfer.
#[derive(Clone, Debug)]
pub(crate) struct TransferEventSink {
    sink: EventSink,
    transfer: u32,
}

impl TransferEventSink {
    /// Reports a controller event; `opened` is the time at which the channel was opened.
    pub(crate) fn did(&self, opened: Moment, event: Event) {
        self.emit(opened, Detail::Did(event));
    }

    /// Reports a timer that fired.
    pub(crate) fn fired(&self, opened: Moment, fired: Fired) {
        self.emit(opened, Detail::Fired(fired));
    }

    fn emit(&self, opened: Moment, detail: Detail) {
        (self.sink.0)(&TransferEvent { transfer: self.transfer, opened, detail });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use sabul_channel::FiredTimer;
    use sabul_units::Span;

    use super::*;

    #[test]
    fn an_event_is_written_relative_to_its_transfer_or_to_a_run() {
        let received = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&received);
        let sink = EventSink::new(move |event| list.lock().unwrap().push(*event));
        let start = Moment::now();
        let opened = start + Duration::from_millis(1500);
        let at = Instant::ZERO + Span::from_millis(250);
        let fired = Fired { at, timer: FiredTimer::Expiry };
        sink.of_transfer(7).fired(opened, fired);
        let event = received.lock().unwrap()[0];
        let rest = r#""event":"timer","timer":"expiry","why":"no-feedback"}"#;
        assert_eq!(event.to_json(), format!(r#"{{"t_s":0.250000,"source":"transfer:7",{rest}"#));
        let as_part = event.to_json_since(start, "flow:a").unwrap();
        assert_eq!(as_part, format!(r#"{{"t_s":1.750000,"source":"flow:a",{rest}"#));
        assert_eq!(event.to_json_since(opened + Duration::from_secs(1), "flow:a"), None);
    }
}
