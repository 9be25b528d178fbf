//! Open files of the process: connections, sockets and files all count, and the system permits so
//! many.
//!
//! The system gives the lowest free number to what is opened. So the number of what was opened last
//! tells how many are open at least, without asking.

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Most open files asked for. Far more would slow down programs that close every file they could
/// have inherited.
const WANTED: u64 = 65_536;
/// So many are for the files of transfers under way.
const FOR_FILES: u64 = 64;
/// One part in so many is for the channels and files of the sessions that there are.
const PART_FOR_CHANNELS: u64 = 4;

/// So many are for each channel: its socket, what wakes its thread, and the file that is written with its folder.
/// Ours: 40 uploads had 216 open, sessions and their listener included.
const FOR_CHANNEL: u64 = 4;

/// What something new may be opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Somebody who calls, and may come to have a session.
    Session,
    /// A channel of a session.
    Channel,
}

/// Lets this process open as many files as the system permits, up to 65 536, instead of the 1024 that
/// are usual. For the start of a program; it changes nothing where that is not possible.
pub fn allow_many_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if current.is_some_and(|current| current < wanted) {
        // Without it, the system says which file was one too many.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

/// The least limit of open files with which a listener can let anybody in: below, what is kept for files and channels
/// leaves no session.
pub const LISTENER_FILES_MIN: u64 = 2 * FOR_FILES;

/// How many files this process may open at most, where there is a limit.
pub fn files_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// How many of how many are open, where this new one is one too many for its purpose.
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

/// Channels at the same time for which the limit of open files is enough.
pub(crate) fn channels_max() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, channels_at)
}

fn channels_at(limit: u64) -> usize {
    usize::try_from(limit / PART_FOR_CHANNELS / FOR_CHANNEL).unwrap_or(usize::MAX)
}

/// How many files may be open at such a limit when something new is opened.
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
    fn sessions_leave_room_for_channels_and_both_for_files() {
        assert_eq!(most(1024, Purpose::Session), 704);
        assert_eq!(most(1024, Purpose::Channel), 960);
        assert_eq!(most(65_536, Purpose::Session), 49_088);
        assert_eq!(most(10, Purpose::Channel), 0);
        assert_eq!((channels_at(1024), channels_at(65_536)), (64, 4096));
    }

    #[test]
    fn the_least_limit_of_a_listener_leaves_room_for_sessions() {
        // Standard streams, ports, wake-ups of the runtime and of its threads take some.
        assert!(most(LISTENER_FILES_MIN, Purpose::Session) >= 32);
    }

    #[test]
    fn nothing_is_short_in_a_small_program() {
        allow_many_files();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(shortage(&file, Purpose::Session), None);
    }
}
