//! Length of leases, and the end of a process whose lease ends.

use std::time::Duration;

/// Ours: length of a lease, unless the user chooses another one. A job of a machine that crashed waits for this time; an
/// outage of the database of 0.4 of this time interrupts no copy.
pub const LEASE: Duration = Duration::from_secs(60);
/// Ours: shortest lease. A busy database answers within a tenth of this time.
pub const LEASE_MIN: Duration = Duration::from_secs(5);
/// Ours: longest lease.
pub const LEASE_MAX: Duration = Duration::from_secs(3600);
/// Ours: length of the lease of a hook, in leases. Hooks mostly cannot continue where they were ended.
const HOOK_LEASES: u32 = 5;

/// End of an attempt or a hook whose lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// End in order.
    Stop,
    /// End at once.
    Kill,
}

/// Returns the length of the lease of a hook.
pub fn hook_lease(lease: Duration) -> Duration {
    lease.saturating_mul(HOOK_LEASES)
}
