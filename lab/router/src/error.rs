//! Errors of a router.

use std::{fmt, io};

use sabul_tun::TunError;

/// A router could not be started, or could not continue.
#[derive(Debug)]
#[non_exhaustive]
pub enum RouterError {
    /// A setting is outside its range.
    Setting {
        /// Name of the setting's flag.
        setting: &'static str,
        /// Value of the setting.
        value: String,
        /// Allowed values, and the remedy.
        allowed: String,
    },
    /// A device could not be opened.
    Device(TunError),
    /// Unexpected failure of the system.
    System {
        /// Attempted action, as in "cannot ...".
        action: String,
        /// Error of the system.
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

    /// Returns whether the request must change: another setting, device or privilege.
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
