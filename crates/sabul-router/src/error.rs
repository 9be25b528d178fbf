//! What can go wrong with a router.

use std::{fmt, io};

use sabul_tun::TunError;

/// A router could not be made, or could not go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum RouterError {
    /// A setting makes no sense: what it was, and what is allowed.
    Setting {
        /// Which one, as its flag is called.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it may be, and what to do.
        allowed: String,
    },
    /// A device could not be had.
    Device(TunError),
    /// The system failed at something that it usually does.
    System {
        /// What was tried, as in "cannot ...".
        action: String,
        /// What the system said.
        source: io::Error,
    },
}

impl RouterError {
    pub(crate) fn setting(
        setting: &'static str,
        value: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self::Setting { setting, value: value.into(), allowed: allowed.into() }
    }

    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::System { action, source }
    }

    /// Whether something else has to be asked for: another setting, device or privilege.
    pub const fn is_request(&self) -> bool {
        matches!(self, Self::Setting { .. } | Self::Device(_))
    }
}

impl fmt::Display for RouterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { setting, value, allowed } => {
                write!(f, "{setting} cannot be {value}: {allowed}")
            }
            Self::Device(error) => write!(f, "the router {error}"),
            Self::System { action, source } => write!(f, "the router cannot {action}: {source}"),
        }
    }
}

impl std::error::Error for RouterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Setting { .. } => None,
            Self::Device(error) => Some(error),
            Self::System { source, .. } => Some(source),
        }
    }
}

impl From<TunError> for RouterError {
    fn from(error: TunError) -> Self {
        Self::Device(error)
    }
}
