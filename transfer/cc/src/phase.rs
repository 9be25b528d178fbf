//! Phase of a controller, for traces and for hosts that treat some phases differently.

/// Phase of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The controller has lowered its rate for other flows, as its policy requires.
    Yielding,
    /// The rate is constant and comes from the user.
    Constant,
    /// A controller with congestion headers continues without routers, because none answers. The
    /// sender then writes blank headers and sends no packets without data.
    Fallback,
    /// Another channel of the same flow searches for the rate, and this channel sends almost nothing.
    Waiting,
    /// The controller searches for the rate with trains ([`crate::search`]); by the one-word name of the stage.
    Search(&'static str),
    /// Another phase, by its one-word name.
    Named(&'static str),
}

impl Phase {
    /// Returns a one-word name for traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yielding => "yielding",
            Self::Constant => "fixed",
            Self::Fallback => "fallback",
            Self::Waiting => "waiting",
            Self::Search(name) | Self::Named(name) => name,
        }
    }
}
