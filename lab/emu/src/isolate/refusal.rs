//! Diagnosis of refused namespaces, with remedies.
//!
//! The kernel returns "operation not permitted" for half a dozen reasons. The deciding settings and
//! capabilities are readable, so the reason can be determined.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::LabError;

/// Bits of the capability sets in `/proc/self/status`; see capability.h.
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_ADMIN: u64 = 1 << 21;
/// Errors of `unshare(2)` with distinct causes.
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

/// Settings and rights that decide about namespaces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Findings {
    /// Effective user id 0, in any namespace.
    is_root: bool,
    /// Whether the process already has the capabilities that hosts need.
    has_capabilities: bool,
    /// `user.max_user_namespaces`; `None` where the kernel has no user namespaces.
    user_namespaces_max: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, which Debian's kernels have.
    unprivileged_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, which Ubuntu's kernels have.
    apparmor_restricts: Option<u64>,
}

impl Findings {
    pub(super) fn of_this_system() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            is_root: rustix::process::geteuid().is_root(),
            has_capabilities: has_capabilities(&status),
            user_namespaces_max: number("user/max_user_namespaces"),
            unprivileged_clone: number("kernel/unprivileged_userns_clone"),
            apparmor_restricts: number("kernel/apparmor_restrict_unprivileged_userns"),
        }
    }

    /// Whether no known setting forbids hosts.
    pub(super) fn may_make_hosts(&self) -> bool {
        self.has_capabilities || self.forbidding_setting().is_none()
    }

    /// Returns the setting that forbids user namespaces to a process without capabilities, with the
    /// remedy.
    fn forbidding_setting(&self) -> Option<&'static str> {
        if self.user_namespaces_max.is_none() {
            return Some("this kernel has no user namespaces");
        }
        if self.user_namespaces_max == Some(0) {
            return Some(
                "user.max_user_namespaces is 0 here: \
                 `sudo sysctl -w user.max_user_namespaces=10000` allows namespaces",
            );
        }
        if self.unprivileged_clone == Some(0) {
            return Some(
                "kernel.unprivileged_userns_clone is 0 here: \
                 `sudo sysctl -w kernel.unprivileged_userns_clone=1` allows namespaces",
            );
        }
        if self.apparmor_restricts.is_some_and(|value| value != 0) {
            return Some(
                "kernel.apparmor_restrict_unprivileged_userns is 1 here: \
                 `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` allows namespaces",
            );
        }
        None
    }

    /// Returns the error for an action that the kernel refused.
    pub(super) fn explain(&self, action: &str, source: io::Error) -> LabError {
        let remedy = self.remedy(source.raw_os_error());
        LabError::NotAllowed { action: action.to_owned(), source, remedy }
    }

    /// Returns the remedy for this error of the kernel.
    fn remedy(&self, error: Option<i32>) -> String {
        const CONTAINER: &str = "run the container with `--cap-add SYS_ADMIN --cap-add NET_ADMIN --device /dev/net/tun`, \
             or with `--privileged`";
        let setting = self.forbidding_setting().filter(|_| !self.has_capabilities);
        match error {
            Some(ENOSPC) if setting.is_none() => {
                return "a limit on namespaces is reached: see the numbers in /proc/sys/user/"
                    .to_owned();
            }
            Some(EINVAL) if self.user_namespaces_max.is_some() => {
                return "it has to be asked for before a second thread is started, \
                        on a kernel with PID, mount and network namespaces"
                    .to_owned();
            }
            _ => {}
        }
        match (setting, self.is_root) {
            (Some(setting), true) => format!("{setting}; or {CONTAINER}"),
            (Some(setting), false) => format!("{setting}; or run it with `sudo`"),
            // Root has all rights and no setting forbids, so the refusal comes from a container's
            // filter.
            (None, true) => CONTAINER.to_owned(),
            (None, false) => format!("run it with `sudo`; in a container, {CONTAINER}"),
        }
    }
}

/// Whether the effective set in the text of `/proc/self/status` suffices for hosts.
fn has_capabilities(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let needed = CAP_SYS_ADMIN | CAP_NET_ADMIN;
    effective & needed == needed
}

fn number(setting: &str) -> Option<u64> {
    fs::read_to_string(Path::new("/proc/sys").join(setting)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPERM: Option<i32> = Some(1);
    /// An ordinary user of a system without restrictions.
    const USER: Findings = Findings {
        is_root: false,
        has_capabilities: false,
        user_namespaces_max: Some(1000),
        unprivileged_clone: None,
        apparmor_restricts: None,
    };

    #[test]
    fn the_remedy_names_the_setting_that_forbids_namespaces() {
        let cases = [
            (Findings { user_namespaces_max: Some(0), ..USER }, "user.max_user_namespaces=10000"),
            (Findings { user_namespaces_max: None, ..USER }, "no user namespaces; or run it with"),
            (Findings { unprivileged_clone: Some(0), ..USER }, "unprivileged_userns_clone=1"),
            (Findings { apparmor_restricts: Some(1), ..USER }, "restrict_unprivileged_userns=0"),
        ];
        for (findings, wanted) in cases {
            assert!(!findings.may_make_hosts(), "{findings:?}");
            let remedy = findings.remedy(EPERM);
            assert!(remedy.contains(wanted), "{remedy}");
            assert!(remedy.ends_with("or run it with `sudo`"), "{remedy}");
            // sudo does not help root without capabilities.
            let remedy = Findings { is_root: true, ..findings }.remedy(EPERM);
            assert!(remedy.contains(wanted.split(';').next().unwrap()), "{remedy}");
            assert!(
                remedy.contains("--cap-add SYS_ADMIN") && !remedy.contains("sudo`"),
                "{remedy}"
            );
            // With capabilities the settings do not matter.
            assert!(Findings { has_capabilities: true, ..findings }.may_make_hosts());
        }
    }

    #[test]
    fn settings_that_allow_namespaces_are_not_named() {
        let open = Findings { unprivileged_clone: Some(1), apparmor_restricts: Some(0), ..USER };
        assert!(open.may_make_hosts());
        let remedy = open.remedy(EPERM);
        assert!(remedy.starts_with("run it with `sudo`"), "{remedy}");
        let root = Findings { is_root: true, ..open };
        assert!(root.remedy(EPERM).starts_with("run the container with"));
        let full = Findings { is_root: true, has_capabilities: true, ..open };
        assert!(full.remedy(EPERM).starts_with("run the container with"));
    }

    #[test]
    fn limits_and_missing_permissions_have_different_remedies() {
        assert!(USER.remedy(Some(ENOSPC)).contains("/proc/sys/user/"));
        // The kernel's error for user.max_user_namespaces = 0.
        let closed = Findings { user_namespaces_max: Some(0), ..USER };
        assert!(closed.remedy(Some(ENOSPC)).contains("user.max_user_namespaces=10000"));
        let full = Findings { has_capabilities: true, ..closed };
        assert!(full.remedy(Some(ENOSPC)).contains("/proc/sys/user/"));
        assert!(USER.remedy(Some(EINVAL)).contains("second thread"));
        let none = Findings { user_namespaces_max: None, ..USER };
        assert!(none.remedy(Some(EINVAL)).contains("no user namespaces"));
    }

    #[test]
    fn net_admin_and_sys_admin_are_both_required() {
        let status = |set: u64| format!("CapPrm:\tffffffffffffffff\nCapEff:\t{set:016x}\n");
        assert!(has_capabilities(&status(CAP_NET_ADMIN | CAP_SYS_ADMIN)));
        assert!(has_capabilities(&status(u64::MAX)));
        assert!(!has_capabilities(&status(CAP_NET_ADMIN)));
        assert!(!has_capabilities(&status(CAP_SYS_ADMIN)));
        assert!(!has_capabilities("CapEff:\tnonsense\n"));
        assert!(!has_capabilities(""));
    }
}
