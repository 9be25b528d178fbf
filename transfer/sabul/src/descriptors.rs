//! Limit of open file descriptors: connections, sockets and files all count against it.
//!
//! The system assigns the lowest free number to a new descriptor. The number of the newest descriptor is therefore a
//! lower bound of the open ones, without a system call.

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Highest limit that this process requests. A much higher limit would slow down programs that close every descriptor
/// they could have inherited.
const LIMIT_MAX: u64 = 65_536;
/// Descriptors reserved for files of running transfers.
const FOR_FILES: u64 = 64;
/// Fraction (1/n) of the limit reserved for channels and files of existing sessions.
const PART_FOR_CHANNELS: u64 = 4;

/// Descriptors per channel: its socket, the waker of its thread, and the written file with its directory. Ours: 40
/// uploads had 216 open, including sessions and their listener.
const FOR_CHANNEL: u64 = 4;

/// Purpose of a new descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A new connection that may become a session.
    Session,
    /// A channel of a session.
    Channel,
}

/// Raises this process's limit of open files to the hard limit, at most 65 536, from the usual 1024. Call at the start
/// of a program. Has no effect if raising is not permitted.
pub fn allow_many_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(LIMIT_MAX, |maximum| maximum.min(LIMIT_MAX));
    if current.is_some_and(|current| current < wanted) {
        // If this fails, a later error shows which file exceeded the limit.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

/// Least limit of open files for a listener; below it, the reserves for files and channels leave no session.
pub const LISTENER_FILES_MIN: u64 = 2 * FOR_FILES;

/// Returns this process's limit of open files; `None` if there is no limit.
pub fn files_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns an error text if the newest descriptor exceeds the limit of its purpose.
pub(crate) fn shortage(newest: &impl AsFd, purpose: Purpose) -> Option<String> {
    let limit = getrlimit(Resource::Nofile).current?;
    let number = u64::try_from(newest.as_fd().as_raw_fd()).unwrap_or(0);
    (number >= most(limit, purpose)).then(|| {
        format!(
            "too many open files here: {number} of {limit}; wait for sessions to end, or give that \
             end a higher limit (ulimit -n)"
        )
    })
}

/// Most concurrent channels within the limit of open files.
pub(crate) fn channels_max() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, channels_at)
}

fn channels_at(limit: u64) -> usize {
    usize::try_from(limit / PART_FOR_CHANNELS / FOR_CHANNEL).unwrap_or(usize::MAX)
}

/// Most open descriptors at this limit when a new one is opened for `purpose`.
const fn most(limit: u64, purpose: Purpose) -> u64 {
    let most = limit.saturating_sub(FOR_FILES);
    match purpose {
        Purpose::Session => most.saturating_sub(limit / PART_FOR_CHANNELS),
        Purpose::Channel => most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_limits_reserve_some_for_channels_and_files() {
        assert_eq!(most(1024, Purpose::Session), 704);
        assert_eq!(most(1024, Purpose::Channel), 960);
        assert_eq!(most(65_536, Purpose::Session), 49_088);
        assert_eq!(most(10, Purpose::Channel), 0);
        assert_eq!((channels_at(1024), channels_at(65_536)), (64, 4096));
    }

    #[test]
    fn the_minimum_descriptor_limit_of_a_listener_allows_sessions() {
        // Standard streams, ports, and wakers of the runtime and its threads take some.
        assert!(most(LISTENER_FILES_MIN, Purpose::Session) >= 32);
    }

    #[test]
    fn a_small_program_has_no_descriptor_shortage() {
        allow_many_files();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(shortage(&file, Purpose::Session), None);
    }
}
