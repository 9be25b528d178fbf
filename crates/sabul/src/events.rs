//! Who hears what the controllers of this end do, and why.

use std::fmt;
use std::sync::Arc;

/// Gets a line of JSON for each event of a controller that sends from this end: `sabul_cc::events` has
/// the columns; `of` is `transfer:N`, and time counts from the opening of its channel.
///
/// It is called on the thread that sends; whoever waits in it holds up the transfer.
#[derive(Clone)]
pub struct EventSink(Arc<dyn Fn(&str) + Send + Sync>);

impl EventSink {
    /// Hands each line to `hear`.
    pub fn new(hear: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(crate) fn tell(&self, line: &str) {
        (self.0)(line);
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}
